package ssram

import (
	"fmt"

	"splicenic/regs"
)

// Geometry says how many entries each memory has. A zero field means the default image's number.
type Geometry struct {
	Pages, Heads                   uint32
	CamClientWords, CamServerWords uint32 // multiples of 4
	Listeners, Services            uint32
	Groups, Slots                  uint32 // Slots: of one area; a group has two
	Servers, LocalPorts            uint32 // LocalPorts: of all servers
	NextHops, Vips, LocalAddresses uint32
	Rules, UrlNodes                uint32
	SourceBuckets                  uint32
}

// WordsPerPage is the size of a page in words.
const WordsPerPage = 64

// HeadBytes is the size of a head buffer.
const HeadBytes = 8192

// fill puts the default image's numbers where g has zero.
func (g *Geometry) fill() {
	for _, x := range []struct {
		field *uint32
		def   uint32
	}{
		{&g.Pages, regs.MemPageCount}, {&g.Heads, regs.MemHeadCount},
		{&g.CamClientWords, regs.MemCamClientCount}, {&g.CamServerWords, regs.MemCamServerCount},
		{&g.Listeners, regs.MemListenerCount}, {&g.Services, regs.MemServiceCount},
		{&g.Groups, regs.MemGroupCount}, {&g.Slots, regs.MemSlotCount / (2 * regs.MemGroupCount)},
		{&g.Servers, regs.MemServerCount}, {&g.LocalPorts, regs.MemLocalPortCount},
		{&g.NextHops, regs.MemNextHopCount}, {&g.Vips, regs.MemVipCount}, {&g.LocalAddresses, regs.MemLocalAddressCount},
		{&g.Rules, regs.MemRuleCount}, {&g.UrlNodes, regs.MemUrlCount},
		{&g.SourceBuckets, regs.MemSourceBucketCount},
	} {
		if *x.field == 0 {
			*x.field = x.def
		}
	}
}

// entries is how many entries of one bank a memory has.
func (g *Geometry) entries(memory int) uint64 {
	return [...]uint64{
		regs.MemPage: uint64(g.Pages), regs.MemHead: uint64(g.Heads),
		regs.MemCamClient: uint64(g.CamClientWords), regs.MemCamServer: uint64(g.CamServerWords),
		regs.MemUrl: uint64(g.UrlNodes), regs.MemRule: uint64(g.Rules), regs.MemRuleCounter: uint64(g.Rules),
		regs.MemSlot:     2 * uint64(g.Groups) * uint64(g.Slots),
		regs.MemListener: uint64(g.Listeners), regs.MemService: uint64(g.Services),
		regs.MemGroup: uint64(g.Groups), regs.MemGroupState: uint64(g.Groups),
		regs.MemServer: uint64(g.Servers), regs.MemServerState: uint64(g.Servers),
		regs.MemNextHop: uint64(g.NextHops), regs.MemVip: uint64(g.Vips), regs.MemLocalAddress: uint64(g.LocalAddresses),
		regs.MemLocalPort:   uint64(g.LocalPorts),
		regs.MemAddressList: uint64(g.Pages), regs.MemQuarantineList: uint64(g.Pages), regs.MemHeadList: uint64(g.Heads),
		regs.MemSourceBucket: uint64(g.SourceBuckets), regs.MemHalfOpenList: uint64(g.Pages),
	}[memory]
}

// Complete returns the geometry with all defaults filled in. It refuses what the windows have no room for.
func (g Geometry) Complete() (Geometry, error) {
	g.fill()
	return g, g.check()
}

// check refuses what the windows have no room for.
func (g *Geometry) check() error {
	for i := range regs.Memories {
		if m := &regs.Memories[i]; g.entries(i) > uint64(m.Max) {
			return fmt.Errorf("geometry of %s: %d entries, the window has room for %d", m.Name, g.entries(i), m.Max)
		}
	}
	if g.CamClientWords%4 != 0 || g.CamServerWords%4 != 0 {
		return fmt.Errorf("geometry of the CAMs: %d and %d words, not multiples of 4", g.CamClientWords, g.CamServerWords)
	}
	return nil
}

// Store writes the geometry registers of a register file.
func (g *Geometry) Store(f interface{ Set(r regs.Reg, v uint32) }) {
	for i := range regs.Memories {
		if m := &regs.Memories[i]; m.Geometry != 0 {
			f.Set(m.Geometry, uint32(g.entries(i)))
		}
	}
	f.Set(regs.GeometrySlots, g.Slots)
	f.Set(regs.GeometryLocalPorts, g.LocalPorts)
}
