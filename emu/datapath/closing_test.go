package datapath

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// The end of a connection: who closes, how long that may take, and what comes behind it.

// leap lets time pass in one step and returns what the scan sends.
func (b *bench) leap(d time.Duration) [2][]tcp {
	b.t.Helper()
	b.now += d
	b.c.Advance(b.now)
	for !b.c.Scan(b.out) {
	}
	return b.drain()
}

// TestHalfClose: an end that has closed is sent to for as long as the other likes, past every other time-out; probes of
// the silent end keep the connection too.
func TestHalfClose(t *testing.T) {
	for _, w := range []world{world4, world6} {
		for side := range Side(sides) {
			for _, probes := range []bool{false, true} {
				b, c := caseBench(t, w, regs.ServiceEntry{})
				c.reach(t, Spliced)
				if side == ClientSide {
					one(t, b.push(0, c.client(flagFIN|flagACK, ""))[1])
					c.sack = c.cseq
					one(t, b.push(1, c.server(flagACK, ""))[0])
				} else {
					one(t, b.push(1, c.server(flagFIN|flagACK, ""))[0])
					c.cack++
					one(t, b.push(0, c.client(flagACK, ""))[1])
				}
				for range 100 { // more than two days
					if out := b.leap(30 * time.Minute); len(out[0])+len(out[1]) != 0 || b.state(c) != Closing {
						t.Fatalf("side %d closed: %v, state %d", side, out, b.state(c))
					}
					switch {
					case probes && side == ClientSide:
						x := *c
						x.sseq--
						one(t, b.push(1, x.server(flagACK, ""))[0])
						one(t, b.push(0, c.client(flagACK, ""))[1])
					case probes:
						x := *c
						x.cseq--
						one(t, b.push(0, x.client(flagACK, ""))[1])
						one(t, b.push(1, c.server(flagACK, ""))[0])
					case side == ClientSide:
						one(t, b.push(1, c.server(flagACK, "more of it"))[0])
						c.cack += 10
						one(t, b.push(0, c.client(flagACK, ""))[1])
					default:
						one(t, b.push(0, c.client(flagACK, "more of it"))[1])
						c.sack += 10
						one(t, b.push(1, c.server(flagACK, ""))[0])
					}
				}
				if side == ClientSide {
					one(t, b.push(1, c.server(flagFIN|flagACK, "end"))[0])
					c.cack += 4
					one(t, b.push(0, c.client(flagACK, ""))[1])
				} else {
					one(t, b.push(0, c.client(flagFIN|flagACK, "end"))[1])
					c.sack += 4
					one(t, b.push(1, c.server(flagACK, ""))[0])
				}
				if b.state(c) != Quarantine || b.r.Get64(regs.ConnectionClosedFin) != 1 {
					t.Errorf("side %d closed first: state %d at the end", side, b.state(c))
				}
				b.check(t)
			}
		}
	}
}

// TestSimultaneousClose: FINs that cross, in every order of what follows, close the connection once both are
// acknowledged.
func TestSimultaneousClose(t *testing.T) {
	for order := range 4 {
		b, c := caseBench(t, world4, regs.ServiceEntry{})
		c.reach(t, Spliced)
		one(t, b.push(0, c.client(flagFIN|flagACK, ""))[1])
		one(t, b.push(1, c.server(flagFIN|flagACK, ""))[0])
		c.cack++
		c.sack = c.cseq
		acks := []func(){
			func() { one(t, b.push(0, c.client(flagACK, ""))[1]) },
			func() { one(t, b.push(1, c.server(flagACK, ""))[0]) },
		}
		if order&1 != 0 {
			acks[0], acks[1] = acks[1], acks[0]
		}
		if order&2 != 0 { // FIN again instead of a bare ACK
			acks[0] = func() {
				x := *c
				x.cseq--
				one(t, b.push(0, x.client(flagFIN|flagACK, ""))[1])
				x = *c
				x.sseq--
				one(t, b.push(1, x.server(flagFIN|flagACK, ""))[0])
			}
		}
		acks[0]()
		if order&2 == 0 && b.state(c) != Closing {
			t.Errorf("order %d: state %d after one acknowledgement", order, b.state(c))
		}
		acks[1]()
		if b.state(c) != Quarantine {
			t.Errorf("order %d: state %d, want quarantine", order, b.state(c))
		}
		b.check(t)
	}
}

// TestIdle: a connection of which nothing is heard ends with an exact RST to both ends, or without a word where its
// service wants that; one whose ends have both closed is no idle one.
func TestIdle(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, idle := range []time.Duration{0, 2 * time.Minute} { // zero: the register
			for _, at := range []string{"spliced", "half closed", "both closed"} {
				t.Run(fmt.Sprintf("silent %v, idle %v, %s", silent, idle, at), func(t *testing.T) {
					service := regs.ServiceEntry{Idle: uint32(idle.Milliseconds())}
					if silent {
						service.ControlIdleSilent = 1
					}
					b, c := caseBench(t, world4, service)
					c.reach(t, Spliced)
					limit, counter := max(idle, 0), regs.ConnectionExpiredIdle
					if limit == 0 {
						limit = 7440 * time.Second
					}
					switch at {
					case "half closed":
						one(t, b.push(0, c.client(flagFIN|flagACK, ""))[1])
					case "both closed":
						one(t, b.push(0, c.client(flagFIN|flagACK, ""))[1])
						one(t, b.push(1, c.server(flagFIN|flagACK, ""))[0])
						limit, counter = time.Minute, regs.ConnectionExpiredClosing
					}
					b.events()
					if out := b.leap(limit - time.Second); len(out[0])+len(out[1]) != 0 {
						t.Fatalf("a second too early: %v", out)
					}
					out := b.leap(time.Second)
					if silent && counter == regs.ConnectionExpiredIdle {
						if len(out[0])+len(out[1]) != 0 {
							t.Errorf("a silent end: %v", out)
						}
					} else {
						seq := c.cack
						if at == "both closed" {
							seq++
						}
						if s := one(t, out[0]); s.flags&flagRST == 0 || s.seq != seq || s.ack != c.cseq {
							t.Errorf("the client gets %v, want RST seq %#x", s, seq)
						}
						if s := one(t, out[1]); s.flags&flagRST == 0 || s.seq != c.cseq {
							t.Errorf("the server gets %v, want RST seq %#x", s, c.cseq)
						}
					}
					if got := b.r.Get64(counter); got != 1 {
						t.Errorf("%s: got %d, want 1", counter.Name(), got)
					}
					if es := b.events(); len(es) != 1 || es[0].ControlType != regs.EventControlTypeClosed {
						t.Errorf("events %v", es)
					}
					b.check(t)
					b.allFree(t)
				})
			}
		}
	}
}

// TestPortReuseAfterRST: once a RST has ended a connection, its port is free at once, whatever number the client comes
// with; only the connection's own SYN, which may come late, opens nothing.
func TestPortReuseAfterRST(t *testing.T) {
	for _, w := range []world{world4, world6} {
		for side := range Side(sides) {
			for _, off := range []uint32{1, 1000, ^uint32(0), ^uint32(1 << 20), 1 << 30, 1<<31 + 5} {
				b, c := caseBench(t, w, regs.ServiceEntry{})
				own := c.cseq
				c.reach(t, Spliced)
				c.from(t, side, 0, 0, flagRST, "")
				if b.state(c) != Quarantine {
					t.Fatalf("state %d after the RST", b.state(c))
				}
				x := *c
				x.cseq = own
				if out := b.push(0, x.client(flagSYN, "", plainOptions...)); len(out[0])+len(out[1]) != 0 || b.r.Get64(regs.ConnectionDropOldSyn) != 1 {
					t.Errorf("the old SYN draws %v", out)
				}
				x = *c
				x.cseq, x.sseq = own+off, 0x5555
				x.reach(t, Spliced)
				b.check(t)
				if got := b.r.Get64(regs.ConnectionReused); got != 1 {
					t.Errorf("off %#x: reused: got %d, want 1", off, got)
				}
			}
		}
	}
}

// TestPortReuseInClosing: a client that has lost the old connection comes back with its port while the page is in
// CLOSING. Nobody may end a connection by a SYN, so it goes to the server; the server's answer makes the client's stack
// reset the old connection, and the SYN that follows is a new one's.
func TestPortReuseInClosing(t *testing.T) {
	for _, both := range []bool{false, true} { // both ends have sent FIN; the last acknowledgement was lost
		b, c := caseBench(t, world4, regs.ServiceEntry{})
		c.reach(t, Spliced)
		one(t, b.push(0, c.client(flagFIN|flagACK, ""))[1])
		c.sack = c.cseq
		if both {
			one(t, b.push(1, c.server(flagFIN|flagACK, ""))[0])
		} else {
			one(t, b.push(1, c.server(flagACK, ""))[0])
		}
		old := *c
		x := *c
		x.cseq += 50000
		if s := one(t, b.push(0, x.client(flagSYN, "", plainOptions...))[1]); s.flags != flagSYN || s.seq != old.cseq+50000 {
			t.Errorf("the SYN goes on as %v", s)
		}
		challenge := one(t, b.push(1, old.server(flagACK, ""))[0])
		if challenge.ack != old.cseq || b.state(c) != Closing {
			t.Fatalf("the server's answer goes on as %v, state %d", challenge, b.state(c))
		}
		y := old
		y.cseq = challenge.ack // of a client in SYN-SENT (RFC 9293, 3.10.7.3)
		one(t, b.push(0, y.client(flagRST, ""))[1])
		if b.state(c) != Quarantine {
			t.Fatalf("state %d after the client's RST", b.state(c))
		}
		x.cseq = old.cseq + 50000
		x.sseq = 0x77777777
		x.reach(t, Spliced)
		if b.r.Get64(regs.ConnectionReused) != 1 {
			t.Error("the SYN again opens nothing")
		}
		b.check(t)
	}
}

// TestSYNAfterTheEnd: what repeats the SYN of a connection that is over and forgotten opens a new one, which ends by
// itself when nobody completes it.
func TestSYNAfterTheEnd(t *testing.T) {
	b, c := caseBench(t, world4, regs.ServiceEntry{})
	own := c.cseq
	c.reach(t, Quarantine)
	b.wait(1100 * time.Millisecond)
	b.allFree(t)
	x := *c
	x.cseq = own
	one(t, b.push(0, x.client(flagSYN, "", plainOptions...))[0])
	b.push(0, c.client(flagRST, "")) // the client knows of none: our SYN-ACK draws a RST from its stack
	if got := b.state(c); got != SynRcvd {
		t.Errorf("a RST with the old connection's numbers: state %d", got)
	}
	b.push(0, x.client(flagRST, ""))
	b.check(t)
	b.allFree(t)
}

// TestURG: the urgent pointer and mark pass a splice as they are; of what the card holds the bytes go on.
func TestURG(t *testing.T) {
	for _, w := range []world{world4, world6} {
		b, c := caseBench(t, w, regs.ServiceEntry{})
		c.reach(t, WaitHead)
		first := c.cseq
		one(t, b.push(0, c.client(flagACK|flagURG|flagPSH, request[:9]))[0])
		out := b.push(0, c.client(flagACK|flagURG, request[9:]))
		if one(t, out[1]).flags != flagSYN {
			t.Fatalf("the head's end draws %v", out)
		}
		one(t, b.push(0, c.client(flagACK|flagURG, "!"))[0])
		if got := c.serverBytes(t, first); got != request+"!" {
			t.Errorf("the server gets %q", got)
		}
		c.sack = c.cseq
		one(t, b.push(1, c.server(flagACK, ""))[0])
		for side := range Side(sides) {
			raw := c.client(flagACK|flagURG, "urgent")
			if side == ServerSide {
				raw = c.server(flagACK|flagURG, "urgent")
			}
			at := 34
			if w.kind == kindIPv6 {
				at = 54
			}
			raw[at+19] = 3 // urgent pointer
			o := b.inject(int(side), sumUp(raw))
			if o.forwarded != 1 || o.went.flags != flagACK|flagURG || string(o.went.payload) != "urgent" {
				t.Fatalf("side %d: goes on %d times as %v", side, o.forwarded, o.went)
			}
			if got := b.buf[0].Bytes()[at+19]; got != 3 {
				t.Errorf("side %d: urgent pointer %d, want 3", side, got)
			}
		}
	}
}

// TestUnknownOptionsPass: options of kinds nobody was promised go through a splice untouched, both ways, beside those
// that are translated.
func TestUnknownOptionsPass(t *testing.T) {
	b, c := caseBench(t, world4, full)
	c.opts = []layers.TCPOption{optMSS(1460), optSACK, optTS(5, 0), optNop, optWscale(7)}
	c.sopts = []layers.TCPOption{optMSS(1460), optSACK, optTS(9, 5), optNop, optWscale(7)}
	c.reach(t, Spliced)
	for kind := range 256 {
		if k := layers.TCPOptionKind(kind); k <= 1 || k == layers.TCPOptionKindSACK || k == layers.TCPOptionKindTimestamps {
			continue
		}
		for _, data := range []string{"", "\x01", "\xff\xfe\xfd\xfc", strings.Repeat("z", 18)} {
			o := layers.TCPOption{OptionType: layers.TCPOptionKind(kind), OptionLength: uint8(2 + len(data)), OptionData: []byte(data)}
			for side := range Side(sides) {
				raw := c.client(flagACK, "x", optNop, optNop, optTS(7, 8), o)
				if side == ServerSide {
					raw = c.server(flagACK, "x", optNop, optNop, optTS(7, 8), o)
				}
				s := one(t, b.push(int(side), raw)[1-side])
				if got := s.option(layers.TCPOptionKind(kind)); string(got) != data {
					t.Fatalf("side %d: option %d % x goes on as % x", side, kind, data, got)
				}
			}
		}
	}
}

// TestRSTWhileHeld: a client's RST passes whatever bytes are held, and an exact one ends the connection for the server
// too, however much of them it has: by the client's own RST where it has all, by ours where it has what it acknowledged.
func TestRSTWhileHeld(t *testing.T) {
	for _, w := range []world{world4, world6} {
		for _, have := range []int{0, 1, len(request) - 1} { // acknowledged by the server
			b, c := caseBench(t, w, regs.ServiceEntry{})
			c.reach(t, ServerSyn)
			first := c.sack
			one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])
			c.sack = first + uint32(have)
			b.push(1, c.server(flagACK, ""))
			for _, off := range []uint32{^uint32(2), ^uint32(0), 1, 1 << 20} { // in range, and not
				x := *c
				x.cseq += off
				if s := one(t, b.push(0, x.client(flagRST, ""))[1]); s.seq != x.cseq || s.flags != flagRST {
					t.Errorf("have %d, RST off by %#x goes on as %v", have, off, s)
				}
				if off == ^uint32(0) && have == len(request)-1 {
					break // that was the lower end
				}
				if b.state(c) != Spliced {
					t.Fatalf("have %d, RST off by %#x: state %d", have, off, b.state(c))
				}
			}
			if have == len(request)-1 {
				if b.state(c) != Quarantine {
					t.Errorf("exact at the lower end: state %d", b.state(c))
				}
				continue
			}
			out := b.push(0, c.client(flagRST, ""))
			if len(out[0]) != 0 || len(out[1]) != 2 || out[1][0].seq != c.sack || out[1][1].seq != c.cseq || out[1][0].flags != flagRST || out[1][1].flags != flagRST {
				t.Errorf("have %d: the server gets %v, want RST at %#x and at %#x", have, out[1], c.sack, c.cseq)
			}
			if b.state(c) != Quarantine || b.r.Get64(regs.HeadReleased) != 1 {
				t.Errorf("have %d: state %d, head buffers released: %d", have, b.state(c), b.r.Get64(regs.HeadReleased))
			}
			b.check(t)
			b.wait(1100 * time.Millisecond)
			b.allFree(t)
		}
	}
}
