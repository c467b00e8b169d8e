package datapath

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"splicenic/regs"
)

// TestCorruptedMemories stores random words wherever a host may store, as a failing memory or a broken host would, and
// goes on with traffic, commands and time. What comes out is not right then; but nothing may panic or hang.
func TestCorruptedMemories(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			b := newBench(t, tiny(16))
			for i, w := range []world{world4, world6} {
				b.serve(w, i, full)
			}
			b.attach()
			b.now = time.Second
			ps := make([]*peer, 12)
			for i := range ps {
				ps[i] = &peer{conn: conn{b: b, w: []world{world4, world6}[i%2], port: uint16(40000 + i/2)}}
			}
			for range 400 {
				p := ps[r.IntN(len(ps))]
				port := duePort[p.phase]
				b.pushRaw(port, p.next(r, port))
				b.corrupt(r)
				if r.IntN(4) == 0 {
					b.now += time.Duration(r.IntN(300)) * time.Millisecond
					b.c.Advance(b.now)
					for done := false; !done; {
						done = b.c.Scan(b.out)
						b.out.Reset()
					}
				}
				if r.IntN(8) == 0 {
					b.command(randomCommand(r, b.m.Geometry.Pages))
					b.out.Reset()
				}
			}
		})
	}
}

// corrupt changes one word of one memory that host software can store into.
func (b *bench) corrupt(r *rand.Rand) {
	m := b.m
	all := [][]uint32{m.Pages, m.Pages, m.Pages, m.CamClient, m.CamServer, m.Slot, m.GroupState, m.Server, m.ServerState, m.NextHop, m.Vip,
		m.Listener[0], m.Service[0], m.Group[0], m.Rule[0], m.Url[0], m.AddressList, m.QuarantineList, m.HeadList}
	w := all[r.IntN(len(all))]
	i := r.IntN(min(len(w), 16*regs.PageWords))
	if r.IntN(2) == 0 { // where it hurts
		w, i = m.Pages, r.IntN(4)*regs.PageWords+[]int{regs.PageControl, regs.PageIndex, regs.PageAIndex, regs.PageHead, regs.PageHeldBoundary, regs.PageARto, regs.PageOptions, regs.PageALocal}[r.IntN(8)]
	}
	switch r.IntN(4) {
	case 0:
		w[i] = r.Uint32()
	case 1:
		w[i] = ^uint32(0)
	case 2:
		w[i] ^= 1 << r.IntN(32)
	default:
		w[i] = w[r.IntN(min(len(w), 16*regs.PageWords))]
	}
	m.Dirty = ^uint32(0)
}

// randomCommand is any command, often about a page that there is.
func randomCommand(r *rand.Rand, pages uint32) regs.CommandEntry {
	n := r.Uint32() >> r.IntN(32)
	if r.IntN(4) != 0 {
		n %= pages
	}
	return regs.CommandEntry{ControlType: r.Uint32() % 17, HandleN: n & handleMask, HandleGeneration: r.Uint32() >> r.IntN(32) & 0xfff, FlagsServerSide: r.Uint32() & 1,
		FlagsToClient: r.Uint32() & 1, FlagsGroup: r.Uint32() & 1, FlagsReplace: r.Uint32() & 1, FlagsKeep: r.Uint32() & 1, FlagsLast: r.Uint32() & 1,
		Length: r.Uint32() >> r.IntN(32), Bar2Offset: r.Uint32() >> r.IntN(32), Boundary: r.Uint32(), FlagsToServer: r.Uint32() & 1, KeyControlKind: r.Uint32() & 7, KeyControlProtocol: r.Uint32() & 0xff, KeyControlVlan: r.Uint32() & 0xfff,
		KeyControlLegB: r.Uint32() & 1, KeyPortsPort: r.Uint32() & 0xffff, KeyPortsDestination: r.Uint32() & 0xffff, KeyIndexIndex: r.Uint32() & 0xffff, Value: r.Uint32(), IovaLo: r.Uint32() >> r.IntN(32), IovaHi: r.Uint32() >> 31}
}
