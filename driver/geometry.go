package driver

import (
	"fmt"

	"splicenic/driver/device"
	"splicenic/regs"
)

// A Geometry says how large a card's memories are and where its loops end. It is zero where the card was opened for its
// shell only.
type Geometry struct {
	PageBytes, Pages, Heads, HeadBytes         uint32
	CAMClientWords, CAMServerWords             uint32
	CAMWordBits, Pipelines                     uint32
	Listeners, Services, Groups, Servers       uint32
	NextHops, VIPs, LocalAddresses             uint32
	Rules, URLNodes, Slots, LocalPorts         uint32
	Ports, Vectors                             uint32
	MaxCAMMoves, MaxOptionBytes, MaxSACKBlocks uint32
	MaxExtensionHeaders, MaxHeadGaps           uint32
	MaxPathSegments, MaxCandidates             uint32
	MaxConditions, MaxCompare, MaxHeldSegments uint32
	Clock                                      uint32 // hertz
}

// Geometry returns the card's geometry.
func (c *Card) Geometry() Geometry { return c.geometry }

// A Memory is a window of BAR2 with as many entries as this card has.
type Memory struct {
	regs.Memory
	Entries uint32 // of one bank
}

// At returns the BAR2 offset of an entry.
func (m *Memory) At(bank, entry uint32) (uint64, error) {
	if bank >= m.Banks || entry >= m.Entries {
		return 0, fmt.Errorf("find %s %d in bank %d: %d entries, %d banks: %w", m.Name, entry, bank, m.Entries, m.Banks, device.ErrRange)
	}
	return m.Memory.At(bank, entry), nil
}

// Memory returns the window of index regs.Mem….
func (c *Card) Memory(index int) *Memory { return &c.memories[index] }

// readGeometry loads the geometry and checks it against the windows of the map: a card may have fewer entries than the
// window has room for, never more.
func (c *Card) readGeometry() error {
	g := &c.geometry
	fields := []struct {
		reg regs.Reg
		to  *uint32
	}{
		{regs.GeometryPageBytes, &g.PageBytes}, {regs.GeometryPages, &g.Pages}, {regs.GeometryHeads, &g.Heads},
		{regs.GeometryHeadBytes, &g.HeadBytes}, {regs.GeometryCamClientWords, &g.CAMClientWords},
		{regs.GeometryCamServerWords, &g.CAMServerWords}, {regs.GeometryCamWordBits, &g.CAMWordBits},
		{regs.GeometryPipelines, &g.Pipelines}, {regs.GeometryListeners, &g.Listeners},
		{regs.GeometryServices, &g.Services}, {regs.GeometryGroups, &g.Groups}, {regs.GeometryServers, &g.Servers},
		{regs.GeometryNextHops, &g.NextHops}, {regs.GeometryVips, &g.VIPs},
		{regs.GeometryLocalAddresses, &g.LocalAddresses}, {regs.GeometryRules, &g.Rules},
		{regs.GeometryUrlNodes, &g.URLNodes}, {regs.GeometrySlots, &g.Slots}, {regs.GeometryLocalPorts, &g.LocalPorts},
		{regs.GeometryPorts, &g.Ports}, {regs.GeometryVectors, &g.Vectors}, {regs.GeometryMaxCamMoves, &g.MaxCAMMoves},
		{regs.GeometryMaxOptionBytes, &g.MaxOptionBytes}, {regs.GeometryMaxSackBlocks, &g.MaxSACKBlocks},
		{regs.GeometryMaxExtensionHeaders, &g.MaxExtensionHeaders}, {regs.GeometryMaxHeadGaps, &g.MaxHeadGaps},
		{regs.GeometryMaxPathSegments, &g.MaxPathSegments}, {regs.GeometryMaxCandidates, &g.MaxCandidates},
		{regs.GeometryMaxConditions, &g.MaxConditions}, {regs.GeometryMaxCompare, &g.MaxCompare},
		{regs.GeometryMaxHeldSegments, &g.MaxHeldSegments}, {regs.GeometryClock, &g.Clock},
	}
	byReg := map[regs.Reg]uint32{}
	for _, f := range fields {
		*f.to = c.Load(f.reg)
		byReg[f.reg] = *f.to
	}
	if err := c.dev.Err(); err != nil {
		return err
	}
	if g.PageBytes != regs.PageBytes {
		return &MismatchError{Part: regs.GeometryPageBytes.Name(), Card: g.PageBytes, Host: regs.PageBytes}
	}
	if g.HeadBytes != regs.HeadBytes {
		return &MismatchError{Part: regs.GeometryHeadBytes.Name(), Card: g.HeadBytes, Host: regs.HeadBytes}
	}
	for i := range regs.Memories {
		m := Memory{Memory: regs.Memories[i]}
		entries := uint64(byReg[m.Geometry])
		if i == regs.MemSlot { // which no register alone sizes
			entries = 2 * uint64(g.Groups) * uint64(g.Slots)
		}
		if entries > uint64(m.Max) {
			return &MismatchError{Part: "size of memory " + m.Name, Card: uint32(min(entries, uint64(allOnes))), Host: m.Max}
		}
		m.Entries = uint32(entries)
		c.memories[i] = m
	}
	return nil
}
