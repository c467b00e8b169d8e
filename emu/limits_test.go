package emu_test

import (
	"testing"

	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/emu/urltable"
	"splicenic/regs"
)

// TestGeometryTellsTheMatchersBound: the register says what the matcher does.
func TestGeometryTellsTheMatchersBound(t *testing.T) {
	newBench(t, emu.Config{}, port.MemConfig{}).want(regs.GeometryMaxPathSegments, urltable.MaxSegments)
}
