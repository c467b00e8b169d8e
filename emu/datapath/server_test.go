package datapath

import (
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// asking brings a connection to where its server was sent a SYN.
func asking(t *testing.T, promise regs.ServiceEntry, copts, sopts []layers.TCPOption) (*bench, *conn) {
	t.Helper()
	b, c := waiting(t, promise, copts)
	c.sopts = sopts
	first := c.cseq
	one(t, b.push(0, c.client(flagACK|flagPSH, request))[1])
	c.sack = first
	return b, c
}

func TestServerRefuses(t *testing.T) {
	b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
	for _, tt := range []struct {
		name  string
		flags uint8
		ack   uint32
	}{{"wrong ack", flagRST | flagACK, c.sack + 1}, {"no ack", flagRST, c.sack}} {
		x := *c
		x.sack = tt.ack
		if out := b.push(1, x.server(tt.flags, "")); len(out[0])+len(out[1]) != 0 || b.state(c) != ServerSyn {
			t.Errorf("RST with %s: %v, state %d", tt.name, out, b.state(c))
		}
	}
	if got := b.r.Get64(regs.ConnectionDropRst); got != 2 {
		t.Errorf("drop_rst: got %d, want 2", got)
	}
	b.r.Set(regs.RingControl+regs.RingException*regs.RingStride, 0) // no host chooses another
	b.c.host.Control()
	out := b.push(1, c.server(flagRST|flagACK, ""))
	if rst := one(t, out[0]); rst.flags&flagRST == 0 || rst.seq != c.cack || rst.ack != c.cseq {
		t.Errorf("the client is sent %v, want an exact RST", rst)
	}
	if got := b.r.Get64(regs.ConnectionAbortRefused); got != 1 {
		t.Errorf("abort_refused: got %d, want 1", got)
	}
	if got := b.m.ServerState[regs.ServerStateFailed]; got != 1 {
		t.Errorf("failed of the server: got %d, want 1", got)
	}
	b.allFree(t)
	again := &conn{b: b, w: world4, port: c.port, cseq: 99, sseq: 7, opts: plainOptions, sopts: plainOptions}
	again.splice(t)
}

// TestServerStale: a server that still has an older connection of the same four-tuple answers our SYN with an ACK. It is
// sent RST, and our SYN again.
func TestServerStale(t *testing.T) {
	for _, s := range []struct {
		flags   uint8
		payload string
	}{{flagACK, ""}, {flagACK, "old data"}, {flagACK | flagFIN, ""}, {flagACK | flagFIN, "old"}} {
		b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
		x := *c
		x.sseq, x.sack = 0x31415926, 0x27182818
		stale := x.server(s.flags, s.payload)
		out := b.push(1, stale, stale)
		if len(out[1]) != 3 || len(out[0]) != 0 {
			t.Fatalf("flags %#x: got %v, want RST, SYN, RST to the server", s.flags, out)
		}
		for i, want := range []tcp{{flags: flagRST, seq: 0x27182818}, {flags: flagSYN, seq: c.sack - 1}, {flags: flagRST, seq: 0x27182818}} {
			if got := out[1][i]; got.flags != want.flags || got.seq != want.seq {
				t.Errorf("flags %#x: segment %d to the server is %v, want %v", s.flags, i, got, want)
			}
		}
		if syn := one(t, b.wait(1110 * time.Millisecond)[1]); syn.flags != flagSYN || syn.seq != c.sack-1 {
			t.Errorf("flags %#x: then %v, want our SYN again", s.flags, syn)
		}
		if got := b.r.Get64(regs.ConnectionServerStale); got != 1 {
			t.Errorf("flags %#x: server_stale: got %d, want 1", s.flags, got)
		}
		if got := c.serverBytes(t, c.sack); got != request {
			t.Errorf("flags %#x: then the server gets %q", s.flags, got)
		}
		b.check(t)
	}
}

// TestServerProfile: what the server's SYN-ACK lacks of the promise is made up for, or ends the connection.
func TestServerProfile(t *testing.T) {
	promise := regs.ServiceEntry{PromiseMssIpv4: 1400, PromiseWscaleOn: 1, PromiseWscale: 4, PromiseSack: 1, PromiseTimestamps: 1}
	copts := []layers.TCPOption{optMSS(1460), optSACK, optTS(100, 0), optNop, optWscale(6)}
	for _, tt := range []struct {
		name    string
		sopts   []layers.TCPOption
		aborts  bool
		client  int32 // shift of windows
		server  int32
		sackOff bool
	}{
		{"all kept", []layers.TCPOption{optMSS(1400), optSACK, optTS(9, 100), optNop, optWscale(4)}, false, 0, 0, false},
		{"larger MSS", []layers.TCPOption{optMSS(9000), optSACK, optTS(9, 100), optNop, optWscale(9)}, false, 0, 5, false},
		{"smaller shift", []layers.TCPOption{optMSS(1400), optSACK, optTS(9, 100), optNop, optWscale(0)}, false, 0, -4, false},
		{"no window scale", []layers.TCPOption{optMSS(1400), optSACK, optTS(9, 100)}, false, 6, -4, false},
		{"no SACK", []layers.TCPOption{optMSS(1400), optNop, optNop, optTS(9, 100), optNop, optWscale(4)}, false, 0, 0, true},
		{"smaller MSS", []layers.TCPOption{optMSS(1399), optSACK, optTS(9, 100), optNop, optWscale(4)}, true, 0, 0, false},
		{"no MSS", []layers.TCPOption{optSACK, optTS(9, 100), optNop, optWscale(4)}, true, 0, 0, false},
		{"no timestamps", []layers.TCPOption{optMSS(1400), optSACK, optNop, optNop, optNop, optWscale(4)}, true, 0, 0, false},
		{"nothing", nil, true, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := asking(t, promise, copts, tt.sopts)
			out := b.push(1, c.server(flagSYN|flagACK, "", tt.sopts...))
			if tt.aborts {
				if rst := one(t, out[1]); rst.flags != flagRST || rst.seq != c.sack || len(out[0]) != 0 {
					t.Errorf("got %v, want RST to the server", out)
				}
				if got := b.r.Get64(regs.ConnectionServerProfile); got != 1 {
					t.Errorf("server_profile: got %d, want 1", got)
				}
				b.failed(t, c, 0, 1)
				return
			}
			one(t, out[1])
			one(t, out[0])
			c.sack = c.cseq
			c.serverWindow, c.window = 1000, 1000
			got := one(t, b.push(1, c.server(flagACK, "data", optNop, optNop, optTS(10, 100)))[0])
			if want := shiftWindow(1000, tt.server); uint32(got.window) != want {
				t.Errorf("the server's window 1000 comes out as %d, want %d", got.window, want)
			}
			block := layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: 10, OptionData: append(u32(c.cack+100), u32(c.cack+200)...)}
			got = one(t, b.push(0, c.client(flagACK, "", optNop, optNop, block))[1])
			if want := shiftWindow(1000, tt.client); uint32(got.window) != want {
				t.Errorf("the client's window 1000 comes out as %d, want %d", got.window, want)
			}
			if off := got.option(layers.TCPOptionKindSACK) == nil; off != tt.sackOff {
				t.Errorf("SACK blocks removed: %v, want %v", off, tt.sackOff)
			}
			b.check(t)
		})
	}
}

// TestNewISNInSynRcvd: a client that tries again with another number gets a connection with that number.
func TestNewISNInSynRcvd(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{PromiseSack: 1})
	b.now = time.Second
	c := &conn{b: b, w: world4, port: 40001, cseq: 1000, sseq: 3, opts: plainOptions, sopts: plainOptions}
	first := one(t, b.push(0, c.client(flagSYN, "", optMSS(1000)))[0])
	b.now += 2500 * time.Millisecond
	c.cseq = 0x80000000
	second := one(t, b.push(0, c.client(flagSYN, "", optMSS(1460), optNop, optNop, optSACK))[0])
	if second.ack != c.cseq || second.seq == first.seq || second.option(layers.TCPOptionKindSACKPermitted) == nil {
		t.Errorf("second SYN-ACK: %v after %v", second, first)
	}
	old := *c
	old.cseq, old.cack = 1001, first.seq+1
	if rst := one(t, b.push(0, old.client(flagACK, ""))[0]); rst.flags != flagRST || rst.seq != old.cack {
		t.Errorf("an ACK of the first attempt draws %v", rst)
	}
	c.cack = second.seq + 1
	b.check(t)
	if got := b.r.Get(regs.AmuLive); got != 1 {
		t.Errorf("live: got %d, want 1", got)
	}
	b.push(0, c.client(flagACK, ""))
	syn := one(t, b.push(0, c.client(flagACK, request))[1])
	if syn.seq != 0x80000000 || mssOf(t, syn) != 1460 {
		t.Errorf("our SYN: %v, want the second attempt's number and MSS", syn)
	}
}

// TestRepeatedServerSynAck: a server whose handshake ACK was lost gets it again, and the client notices nothing.
func TestRepeatedServerSynAck(t *testing.T) {
	b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
	synack := c.server(flagSYN|flagACK, "", plainOptions...)
	one(t, b.push(1, synack)[1])
	for range 3 {
		out := b.push(1, synack)
		if ack := one(t, out[1]); ack.flags != flagACK || ack.ack != c.sseq || len(out[0]) != 0 {
			t.Errorf("repeated SYN-ACK draws %v", out)
		}
	}
	w := b.c.page(b.pageOf(t))
	packets, seen := w[regs.PagePacketsServer], w[regs.PageLastSeen]
	b.now += 200 * time.Millisecond
	other := *c
	other.sseq += 1000
	if ack := one(t, b.push(1, other.server(flagSYN|flagACK, "", plainOptions...))[1]); ack.flags != flagACK || ack.ack != c.sseq {
		t.Errorf("another SYN-ACK draws %v, want a challenge", ack)
	}
	if got := [2]uint32{w[regs.PagePacketsServer], w[regs.PageLastSeen]}; packets != 4 || got != [2]uint32{packets, seen} {
		t.Errorf("packets and time of the last after another SYN-ACK: %d, want those of the four before, %d", got, [2]uint32{packets, seen})
	}
	if held := one(t, b.wait(310 * time.Millisecond)[1]); string(held.payload) != request {
		t.Errorf("held bytes again: %v", held)
	}
	b.check(t)
}

// TestNextHopGone: while the way to the server is not known nothing is sent there, and the SYN goes when it is.
func TestNextHopGone(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	hop := b.m.NextHop[regs.NextHopControl]
	one(t, b.push(0, c.client(flagACK, request))[1])
	b.m.NextHop[regs.NextHopControl] = hop &^ regs.NextHopControlResolvedMask
	if out := b.wait(1110 * time.Millisecond); len(out[0])+len(out[1]) != 0 {
		t.Errorf("sent without a next hop: %v", out)
	}
	if got := b.r.Get64(regs.ConnectionDropNextHop); got != 1 {
		t.Errorf("drop_next_hop: got %d, want 1", got)
	}
	b.m.NextHop[regs.NextHopControl] = hop
	if syn := one(t, b.wait(2210 * time.Millisecond)[1]); syn.flags != flagSYN {
		t.Errorf("got %v, want our SYN", syn)
	}
}
