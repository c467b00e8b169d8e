package emu_test

import (
	"testing"

	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/emu/urltable"
	"splicenic/regs"
)

// TestGeometryTellsTheMatchersBounds: the registers say what the matcher does.
func TestGeometryTellsTheMatchersBounds(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	b.want(regs.GeometryMaxPathSegments, urltable.MaxSegments)
	b.want(regs.GeometryMaxCandidates, urltable.MaxCandidates)
	b.want(regs.GeometryMaxConditions, urltable.MaxConditions)
}
