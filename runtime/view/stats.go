package view

import (
	"context"
	"strings"

	"splicenic/regs"
)

// Stats are counters as nested objects, by their dotted names.
type Stats map[string]any

// Set puts a value at a dotted name.
func (s Stats) Set(name string, value any) {
	m := s
	for {
		part, rest, more := strings.Cut(name, ".")
		if !more {
			m[part] = value
			return
		}
		next, ok := m[part].(Stats)
		if !ok {
			next = Stats{}
			m[part] = next
		}
		m, name = next, rest
	}
}

// plural are the objects of statistics whose name is not their block's.
var plural = map[string]string{"port": "ports", "ring": "rings", "connection": "connections", "head": "heads"}

// Stats reads every counter of the card, by a snapshot of each block, and the levels beside them. An array of counters is
// a list.
func (v *View) Stats(ctx context.Context) (Stats, error) {
	counters, err := v.Card.Counters(ctx)
	if err != nil {
		return nil, err
	}
	s := Stats{}
	lists := map[string][]uint64{}
	for _, c := range counters {
		block, rest, _ := strings.Cut(c.Name, ".")
		if p, ok := plural[block]; ok {
			block = p
		}
		name := block + "." + rest
		if array, _, ok := strings.Cut(name, "["); ok {
			lists[array] = append(lists[array], c.Value)
			continue
		}
		s.Set(name, c.Value)
	}
	for name, list := range lists {
		s.Set(name, list)
	}
	g := v.Card.Geometry()
	load := func(r regs.Reg) uint64 { return uint64(v.Card.Load(r)) }
	for name, value := range map[string]uint64{
		"pages.free": load(regs.AmuFree), "pages.total": uint64(g.Pages), "pages.quarantined": load(regs.AmuQuarantined),
		"heads.free": load(regs.HeadFree), "heads.total": uint64(g.Heads), "heads.lowest": load(regs.HeadLowest),
		"connections.live": load(regs.AmuLive),
		"defence.active":   uint64(regs.DefenceStatusActive(v.Card.Load(regs.DefenceStatus))), "defence.rate": load(regs.DefenceRate),
		"cam.client.free": load(regs.CamFree), "cam.client.entries": load(regs.CamEntries), "cam.client.total": uint64(g.CAMClientWords),
		"cam.server.free": load(regs.CamFree.At(1, regs.CamStride)), "cam.server.entries": load(regs.CamEntries.At(1, regs.CamStride)), "cam.server.total": uint64(g.CAMServerWords),
	} {
		s.Set(name, value)
	}
	return s, v.Card.Err()
}
