package datapath

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// TestServerLearned: a SYN-ACK that differs from the server's profile is told to the host, in as far as our SYN asked.
func TestServerLearned(t *testing.T) {
	all := []layers.TCPOption{optMSS(1460), optSACK, optTS(100, 0), optNop, optWscale(6)}
	kept := regs.ServerEntry{ProfileKnown: 1, ProfileMss: 1460, ProfileWscaleOn: 1, ProfileWscale: 7, ProfileSack: 1, ProfileTimestamps: 1}
	answer := []layers.TCPOption{optMSS(1460), optSACK, optTS(9, 100), optNop, optWscale(7)}
	with := func(e regs.ServerEntry, f func(*regs.ServerEntry)) regs.ServerEntry { f(&e); return e }
	mss := regs.ServiceEntry{PromiseMssIpv4: 536, PromiseMssIpv6: 1220}
	for _, tt := range []struct {
		name    string
		promise regs.ServiceEntry
		before  regs.ServerEntry
		offer   []layers.TCPOption
		answer  []layers.TCPOption
		ecn     uint8 // flags of the SYN-ACK; the client offers it always
		want    *regs.ServerEntry
	}{
		{"as it was", full, kept, all, answer, 0, nil},
		{"nothing known", full, regs.ServerEntry{}, all, answer, 0, &kept},
		{"another scale", full, with(kept, func(e *regs.ServerEntry) { e.ProfileWscale = 3 }), all, answer, 0, &kept},
		{"no scale", full, kept, all, answer[:3], 0, ptr(with(kept, func(e *regs.ServerEntry) { e.ProfileWscale, e.ProfileWscaleOn = 0, 0 }))},
		{"no SACK", full, kept, all, []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(9, 100), optNop, optWscale(7)}, 0, ptr(with(kept, func(e *regs.ServerEntry) { e.ProfileSack = 0 }))},
		{"no timestamps", full, kept, all, []layers.TCPOption{optMSS(1460), optNop, optNop, optSACK, optNop, optWscale(7)}, 0, ptr(with(kept, func(e *regs.ServerEntry) { e.ProfileTimestamps = 0 }))},
		{"larger MSS", full, kept, all, append([]layers.TCPOption{optMSS(9000)}, answer[1:]...), 0, ptr(with(kept, func(e *regs.ServerEntry) { e.ProfileMss = 9000 }))},
		{"smaller MSS", full, kept, all, append([]layers.TCPOption{optMSS(1000)}, answer[1:]...), 0, ptr(with(kept, func(e *regs.ServerEntry) { e.ProfileMss = 1000 }))},
		{"MSS alone asked, known", mss, kept, all, answer[:1], 0, nil},
		{"MSS alone asked, unknown", mss, regs.ServerEntry{}, all, answer[:1], 0, &regs.ServerEntry{ProfileMss: 1460}},
		{"MSS alone asked, half known", mss, regs.ServerEntry{ProfileMss: 1460}, all, answer[:1], 0, nil},
		{"no MSS", mss, regs.ServerEntry{}, all, nil, 0, &regs.ServerEntry{ProfileMss: 536}},
		{"ECN", with2(full, 1), kept, all, answer, flagECE, ptr(with(kept, func(e *regs.ServerEntry) { e.ProfileEcn = 1 }))},
		{"no ECN", with2(full, 1), with(kept, func(e *regs.ServerEntry) { e.ProfileEcn = 1 }), all, answer, 0, &kept},
		{"ECN not asked", full, with(kept, func(e *regs.ServerEntry) { e.ProfileEcn = 1 }), all, answer, 0, nil},
	} {
		for _, w := range []world{world4, world6} {
			t.Run(fmt.Sprintf("%s %v", tt.name, w.client), func(t *testing.T) {
				want := tt.want
				if want != nil && want.ProfileMss == 536 && w.kind == kindIPv6 {
					want = &regs.ServerEntry{ProfileMss: 1220}
				}
				b := newBench(t, smallGeometry())
				b.serve(w, 0, tt.promise)
				b.attach()
				b.now = time.Second
				var e regs.ServerEntry
				e.Decode(b.m.Server)
				b.m.Server[regs.ServerProfile] = profileWord(tt.before)
				c := &conn{b: b, w: w, port: 40001, cseq: 99, sseq: 7}
				c.cack = one(t, b.push(0, c.client(flagSYN|flagECE|flagCWR, "", tt.offer...))[0]).seq + 1
				b.push(0, c.client(flagACK, ""))
				c.sack = c.cseq
				one(t, b.push(0, c.client(flagACK|flagPSH, request))[1])
				b.events()
				b.push(1, c.server(flagSYN|flagACK|tt.ecn, "", tt.answer...))
				var got []regs.EventEntry
				for _, e := range b.events() {
					if e.ControlType == regs.EventControlTypeProfile {
						got = append(got, e)
					}
				}
				if n := b.r.Get64(regs.ConnectionServerLearned); n != uint64(len(got)) {
					t.Errorf("server_learned: got %d with %d events", n, len(got))
				}
				if want == nil {
					if len(got) != 0 {
						t.Errorf("told %#x, want nothing", got[0].Delta)
					}
					return
				}
				if len(got) != 1 || got[0].Delta != profileWord(*want) || got[0].IndexServer != 0 {
					t.Errorf("told %+v, want profile %#x", got, profileWord(*want))
				}
				if b.m.Server[regs.ServerProfile] != profileWord(tt.before) {
					t.Error("the card stored into the server's entry, which is the host's")
				}
			})
		}
	}
}

func ptr[T any](v T) *T { return &v }

func with2(s regs.ServiceEntry, ecn uint32) regs.ServiceEntry {
	s.PromiseEcn = ecn
	return s
}

func profileWord(e regs.ServerEntry) uint32 {
	var words [regs.ServerWords]uint32
	e.Encode(words[:])
	return words[regs.ServerProfile]
}

// TestClocksWhileHeld: what the card sends while bytes are held is never older, by its timestamps, than what went before it
// from the same end: neither held bytes again after newer segments of the client's, nor an ACK of ours after the server's.
func TestClocksWhileHeld(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		b, c := caseBench(t, w, full)
		copts := []layers.TCPOption{optMSS(1460), optSACK, optTS(0xfffffff0, 0), optNop, optWscale(7)}
		sa := one(t, b.push(0, c.client(flagSYN, "", copts...))[0])
		if ecr := sa.stamp(t, 4); ecr != 0xfffffff0 {
			t.Fatalf("SYN-ACK echoes %#x", ecr)
		}
		lastClient, lastServer := sa.stamp(t, 0), uint32(0xfffffff0) // what either end was sent last
		toClient := func(s tcp) {
			t.Helper()
			if v := s.stamp(t, 0); int32(v-lastClient) < 0 {
				t.Errorf("the client's clock goes back from %#x to %#x: %v", lastClient, v, s)
			} else {
				lastClient = v
			}
		}
		toServer := func(s tcp) {
			t.Helper()
			if v := s.stamp(t, 0); int32(v-lastServer) < 0 {
				t.Errorf("the server's clock goes back from %#x to %#x: %v", lastServer, v, s)
			} else {
				lastServer = v
			}
		}
		c.cack = sa.seq + 1
		b.now += 30 * time.Millisecond
		b.push(0, c.client(flagACK, "", stamp(0xfffffff8, sa.stamp(t, 0))...))
		first := c.cseq
		out := b.push(0, c.client(flagACK|flagPSH, request, stamp(0xfffffffc, sa.stamp(t, 0))...))
		toClient(one(t, out[0]))
		syn := one(t, out[1])
		toServer(syn)
		if ecr := syn.stamp(t, 4); ecr != 0 {
			t.Errorf("our SYN echoes %#x, want nothing", ecr)
		}
		c.sack = first
		b.now += 40 * time.Millisecond
		out = b.push(1, c.server(flagSYN|flagACK, "", optMSS(1460), optSACK, optTS(0x80000000, syn.stamp(t, 0)), optNop, optWscale(7)))
		held := out[1][len(out[1])-1]
		toServer(held)
		if ecr := held.stamp(t, 4); ecr != 0x80000000 {
			t.Errorf("held bytes echo %#x, want the SYN-ACK's %#x", ecr, uint32(0x80000000))
		}
		for _, s := range out[0] {
			toClient(s)
		}
		// The client goes on beyond H, the server speaks without having acknowledged anything.
		up := one(t, b.push(0, c.client(flagACK, "more", stamp(5, lastClient)...))[1])
		toServer(up)
		down := one(t, b.push(1, c.server(flagACK, "early", stamp(0x80000064, up.stamp(t, 0))...))[0])
		toClient(down)
		if ecr := down.stamp(t, 4); ecr != 5 {
			t.Errorf("the server's echo comes to the client as %#x, want 5", ecr)
		}
		// Our ACK of what the client repeats, and the held bytes again.
		again := *c
		again.cseq = first
		toClient(one(t, b.push(0, again.client(flagACK, request[:10], stamp(9, lastClient)...))[0]))
		late := b.wait(1500 * time.Millisecond)[1]
		if len(late) == 0 || string(late[0].payload) != request {
			t.Fatalf("held bytes again: %v", late)
		}
		for _, s := range late {
			toServer(s)
			if ecr := s.stamp(t, 4); ecr != 0x80000064 {
				t.Errorf("held bytes again echo %#x, want the server's latest %#x", ecr, uint32(0x80000064))
			}
		}
		b.check(t)
	}
}

// stamp is TSval of a segment at 0, TSecr at 4.
func (s tcp) stamp(t *testing.T, at int) uint32 {
	t.Helper()
	o := s.option(layers.TCPOptionKindTimestamps)
	if len(o) != 8 {
		t.Fatalf("no timestamps in %v", s)
	}
	return uint32(o[at])<<24 | uint32(o[at+1])<<16 | uint32(o[at+2])<<8 | uint32(o[at+3])
}

// TestServerSynMSS: our SYN to the server tells the client's MSS, as far as both links and the next hop carry it.
func TestServerSynMSS(t *testing.T) {
	for _, tt := range []struct {
		w              world
		offer          uint16
		client, server uint32 // MTU of the ports
		hop            uint32
		want           uint16
	}{
		{world4, 1460, 1500, 1500, 0, 1460}, {world4, 8960, 9000, 9000, 0, 8960}, {world4, 8960, 1500, 9000, 0, 1460}, {world4, 8960, 9000, 1500, 0, 1460},
		{world4, 8960, 9000, 9000, 1400, 1360}, {world4, 536, 9000, 9000, 0, 536}, {world4, 0, 9000, 9000, 0, 536},
		{world6, 8940, 1500, 9000, 0, 1440}, {world6, 8940, 9000, 9000, 1480, 1420}, {world6, 0, 9000, 9000, 0, 1220},
	} {
		b := newBench(t, smallGeometry())
		b.serve(tt.w, 0, regs.ServiceEntry{})
		b.r.Set(regs.PortMtu, tt.client)
		b.r.Set(regs.PortMtu+regs.PortStride, tt.server)
		b.m.NextHop[regs.NextHopMacHi] = regs.SetNextHopMacHiMtu(b.m.NextHop[regs.NextHopMacHi], tt.hop)
		b.now = time.Second
		c := &conn{b: b, w: tt.w, port: 40001, cseq: 1, sseq: 2}
		if tt.offer != 0 {
			c.opts = []layers.TCPOption{optMSS(tt.offer)}
		}
		c.reach(t, WaitHead)
		if got := mssOf(t, one(t, b.push(0, c.client(flagACK|flagPSH, request))[1])); got != tt.want {
			t.Errorf("%+v: our SYN has MSS %d", tt, got)
		}
	}
}
