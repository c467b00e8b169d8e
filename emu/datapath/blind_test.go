package datapath

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/cam"
	"splicenic/regs"
)

// What somebody who does not see a connection's numbers can do to it: every segment goes on for its receiver to answer,
// but only one that the receiver takes moves a mark that the end of the connection is judged by (RFC 5961, 3.2 and 5.2).

// armLegB moves the connection's later bytes to another server as a host does: a server entry, a server-side key, leg set
// B in the page, and last the bit that puts it in force. It returns the connection as its ends see it from then on.
func (b *bench) armLegB(t testing.TB, c *conn) *conn {
	t.Helper()
	x := *c
	x.w.server, x.sseq = c.w.server.Next(), 0xfffffff0
	x.sack = c.cseq
	set(b.m.Server, 9, regs.ServerWords, &regs.ServerEntry{ControlValid: 1, ControlKind: c.w.kind, ControlProtocol: 6, ControlPort: 8080, Address: words(x.w.server)})
	b.m.Dirty = ^uint32(0)
	n := b.pageOf(t)
	w := b.c.page(n)
	l := *w // as if the new leg were set A
	l[regs.PageAIndex] = 9
	l[regs.PageADeltaServer] = c.cack - x.sseq
	l[regs.PageASeqClient], l[regs.PageAAckClient], l[regs.PageASeqServer], l[regs.PageAAckServer] = c.cseq, c.cack, c.cack, c.cseq
	l[regs.PageAChecksum] = b.c.differences(&l)
	copy(w[regs.PageBIndex:regs.PageBIndex+legWords], l[regs.PageAIndex:])
	w[regs.PageBoundaryClient], w[regs.PageBoundaryServer] = c.cseq, c.cack
	k, h := b.c.serverKey(w, legWords)
	if got := b.c.cams[ServerSide].Insert(&k, h, handleOf(n, w), true); got != cam.OK {
		t.Fatalf("key of leg set B: result %d", got)
	}
	w[regs.PageControl] |= regs.PageControlLegBMask
	return &x
}

// spliced brings a connection to its splice, with bytes both ways, on leg set A or B. All three initial sequence numbers
// are isn.
func spliced(t testing.TB, w world, promise regs.ServiceEntry, isn uint32, legB bool) (*bench, *conn) {
	t.Helper()
	b := newBench(t, smallGeometry())
	b.serve(w, 0, promise)
	b.attach()
	b.now = time.Second
	c := &conn{b: b, w: w, port: 40001, cseq: isn, sseq: isn, opts: plainOptions, sopts: plainOptions}
	b.ownISN(c, 0, isn)
	if promise.PromiseWscaleOn != 0 {
		c.opts = []layers.TCPOption{optMSS(1460), optNop, optWscale(3)}
		c.sopts = []layers.TCPOption{optMSS(1460), optNop, optWscale(2)}
	}
	c.cack = one(t, b.push(0, c.client(flagSYN, "", c.opts...))[0]).seq + 1
	b.push(0, c.client(flagACK, ""))
	one(t, b.push(0, c.client(flagACK|flagPSH, request))[1])
	c.sack = c.cseq - uint32(len(request))
	one(t, b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))[1])
	c.sack = c.cseq
	one(t, b.push(1, c.server(flagACK, "first"))[0])
	c.cack += 5
	one(t, b.push(0, c.client(flagACK, "more"))[1])
	c.sack += 4
	one(t, b.push(1, c.server(flagACK, ""))[0])
	if legB {
		c = b.armLegB(t, c)
		one(t, b.push(0, c.client(flagACK, "second request"))[1])
		c.sack = c.cseq
		one(t, b.push(1, c.server(flagACK, "second response"))[0])
		c.cack += 15
		one(t, b.push(0, c.client(flagACK, ""))[1])
	}
	return b, c
}

// from sends a segment of one side, off by some, and returns what goes on.
func (c *conn) from(t testing.TB, side Side, seq, ack uint32, flags uint8, payload string) tcp {
	t.Helper()
	x := *c
	if side == ClientSide {
		x.cseq, x.cack = x.cseq+seq, x.cack+ack
		return one(t, c.b.push(0, x.client(flags, payload))[1])
	}
	x.sseq, x.sack = x.sseq+seq, x.sack+ack
	return one(t, c.b.push(1, x.server(flags, payload))[0])
}

// finish closes the connection in good order, the client first.
func (c *conn) finish(t testing.TB) {
	t.Helper()
	one(t, c.b.push(0, c.client(flagFIN|flagACK, ""))[1])
	c.sack = c.cseq
	one(t, c.b.push(1, c.server(flagFIN|flagACK, "the end"))[0])
	c.cack += 8
	one(t, c.b.push(0, c.client(flagACK, ""))[1])
	if got := c.b.state(c); got != Quarantine {
		t.Errorf("state %d after both FINs, want quarantine", got)
	}
	if got := c.b.r.Get64(regs.ConnectionClosedFin); got != 1 {
		t.Errorf("closed_fin: got %d, want 1", got)
	}
}

// blindISNs put every number of a short connection in the middle of the space, at, and around its borders.
var blindISNs = []uint32{0x10203040, 1<<31 - 56, ^uint32(55), 1<<31 - 6, ^uint32(5), 1<<31 - 65, ^uint32(64)}

var blindSegments = []struct {
	name     string
	seq, ack uint32
	flags    uint8
	payload  string
}{
	{"seq beyond the window", 1 << 20, 0, flagACK, "blind"},
	{"seq far beyond", 1 << 31, 0, flagACK, "blind"},
	{"seq just beyond the window", 64001, 0, flagACK, "blind"},
	{"old seq", ^uint32(99999), 0, flagACK, "blind"},
	{"ack of what was never sent", 0, 1, flagACK, "blind"},
	{"ack far beyond", 0, 1 << 30, flagACK, "blind"},
	{"ack older than a window", 0, ^uint32(64000), flagACK, "blind"},
	{"ack half the space away", 0, 1 << 31, flagACK, "blind"},
	{"both off", 77777, 88888, flagACK, "blind"},
	{"no ACK", 0, 0, flagPSH, "blind"},
	{"SYN", 5, 0, flagSYN, ""},
	{"SYN with data", 0, 0, flagSYN, "blind"},
	{"FIN beyond the window", 1 << 20, 0, flagACK | flagFIN, "blind"},
	{"FIN with a wrong ack", 0, 1, flagACK | flagFIN, ""},
	{"ACK alone, wrong", 0, 1000, flagACK, ""},
	{"RST with an ack", 1 << 20, 3, flagRST | flagACK, ""},
}

// TestBlindSegments: a segment that its receiver does not take makes no RST behind it exact, closes nothing, and does
// not keep the connection from its own end.
func TestBlindSegments(t *testing.T) {
	i := 0
	for _, w := range []world{world4, world6} {
		for _, legB := range []bool{false, true} {
			for side := range Side(sides) {
				for _, x := range blindSegments {
					t.Run(strings.ReplaceAll(fmt.Sprintf("%v leg B %v side %d %s", w.kind, legB, side, x.name), " ", "_"), func(t *testing.T) {
						b, c := spliced(t, w, regs.ServiceEntry{}, blindISNs[i%len(blindISNs)], legB)
						i++
						c.window, c.serverWindow = 64000, 64000
						c.from(t, ClientSide, 0, 0, flagACK, "")
						c.from(t, ServerSide, 0, 0, flagACK, "")
						c.from(t, side, x.seq, x.ack, x.flags, x.payload)
						// RSTs at every number that the segment brought, of its own side and of the other.
						end := x.seq + uint32(len(x.payload))
						for _, seq := range []uint32{x.seq, end, end + 1} {
							if seq != 0 {
								c.from(t, side, seq, 0, flagRST, "")
							}
						}
						if x.ack != 0 {
							c.from(t, 1-side, x.ack, 0, flagRST, "")
						}
						if got := b.state(c); got != Spliced {
							t.Fatalf("state %d, want spliced", got)
						}
						b.check(t)
						c.finish(t)
						b.check(t)
						b.wait(1100 * time.Millisecond)
						b.allFree(t)
					})
				}
			}
		}
	}
}

// TestWindowEdge: what begins at the last byte of the window moves the mark, what begins behind it does not, whatever the
// window's scale; the largest window counts.
func TestWindowEdge(t *testing.T) {
	for _, scaled := range []bool{false, true} {
		for side := range Side(sides) {
			for _, legB := range []bool{false, true} {
				promise := regs.ServiceEntry{}
				shift := [...]uint32{ClientSide: 0, ServerSide: 0}
				if scaled {
					promise.PromiseWscaleOn, promise.PromiseWscale = 1, 2
					shift = [...]uint32{ClientSide: 2, ServerSide: 3} // of the window that bounds the side
				}
				b, c := spliced(t, world4, promise, ^uint32(50000), legB)
				// The larger window was there first.
				c.window, c.serverWindow = 64111, 64222
				c.from(t, ClientSide, 0, 0, flagACK, "")
				c.from(t, ServerSide, 0, 0, flagACK, "")
				c.window, c.serverWindow = 10, 20
				c.from(t, ClientSide, 0, 0, flagACK, "")
				c.from(t, ServerSide, 0, 0, flagACK, "")
				edge := [...]uint32{ClientSide: 64222, ServerSide: 64111}[side] << shift[side]
				w := b.c.page(b.pageOf(t))
				at := regs.PageASeqClient + markWords*int(side) + inForce(w[regs.PageControl])
				before := w[at]
				c.from(t, side, edge+1, 0, flagACK, "x")
				if got := w[at] - before; got != 0 {
					t.Errorf("scaled %v, side %d, leg B %v: behind the edge: the mark moves by %d", scaled, side, legB, got)
				}
				c.from(t, side, edge, 0, flagACK, "x")
				if got := w[at] - before; got != edge+1 {
					t.Errorf("scaled %v, side %d, leg B %v: at the edge: the mark moves by %d, want %d", scaled, side, legB, got, edge+1)
				}
			}
		}
	}
}

// TestAckRange: an acknowledgement moves the mark up to what was sent, and one that is older by no more than a window
// does not keep its segment from counting.
func TestAckRange(t *testing.T) {
	for side := range Side(sides) {
		for _, legB := range []bool{false, true} {
			b, c := spliced(t, world4, regs.ServiceEntry{}, 1<<31-60, legB)
			const window = 64000
			c.window, c.serverWindow = window, window
			oldest := ^uint32(window-1) + 10 // 10 - window
			c.from(t, ClientSide, 0, 0, flagACK, "")
			c.from(t, ServerSide, 0, 0, flagACK, "")
			w := b.c.page(b.pageOf(t))
			own := markWords*int(side) + inForce(w[regs.PageControl])
			seq, ack := &w[regs.PageASeqClient+own], &w[regs.PageAAckClient+own]
			seqBefore, ackBefore := *seq, *ack
			c.from(t, 1-side, 0, 0, flagACK, "1234567890")
			c.from(t, side, 0, 11, flagACK, "x")
			if *ack != ackBefore || *seq != seqBefore {
				t.Errorf("side %d, leg B %v: acknowledging more than was sent moves the marks", side, legB)
			}
			c.from(t, side, 0, 10, flagACK, "x")
			if *ack != ackBefore+10 || *seq != seqBefore+1 {
				t.Errorf("side %d, leg B %v: acknowledging all moves the marks by %d and %d", side, legB, *ack-ackBefore, *seq-seqBefore)
			}
			c.from(t, side, 1, oldest-1, flagACK, "x")
			if *seq != seqBefore+1 {
				t.Errorf("side %d, leg B %v: an acknowledgement older than a window counts", side, legB)
			}
			c.from(t, side, 1, oldest, flagACK, "x")
			if *ack != ackBefore+10 || *seq != seqBefore+2 {
				t.Errorf("side %d, leg B %v: an acknowledgement a window old does not count", side, legB)
			}
		}
	}
}

// TestBlindWhileHeld: no acknowledgement of bytes that the server was never sent frees the head buffer, and a client's
// segment from nowhere does not open the window.
func TestBlindWhileHeld(t *testing.T) {
	b, c := caseBench(t, caseWorld4, regs.ServiceEntry{})
	c.reach(t, ServerSyn)
	one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])
	held := c.cseq
	for _, x := range []struct{ seq, ack uint32 }{{0, 1}, {0, 1 << 30}, {1 << 20, 0}, {^uint32(1 << 20), 0}} {
		y := *c
		y.sseq, y.sack = y.sseq+x.seq, held+x.ack
		if out := b.push(1, y.server(flagACK, "")); len(out[0])+len(out[1]) != 0 {
			t.Errorf("%+v: draws %v", x, out)
		}
		if s := one(t, b.push(1, y.server(flagACK, "data"))[0]); s.ack != held {
			t.Errorf("%+v: goes on as %v, want ack %#x", x, s, held)
		}
		if got := b.r.Get64(regs.HeadReleased); got != 0 {
			t.Fatalf("%+v: the head buffer is freed", x)
		}
	}
	x := *c
	x.cseq, x.cack, x.window = x.cseq-5, x.cack+1000, 65535
	b.push(0, x.client(flagACK, "blind"))
	if got := regs.PageAWindowClient(b.c.page(b.pageOf(t))[regs.PageAWindow]); got != 64000 {
		t.Errorf("the client's window is %d, want 64000", got)
	}
	c.sack = held
	one(t, b.push(1, c.server(flagACK, ""))[0])
	if got := b.r.Get64(regs.HeadReleased); got != 1 {
		t.Errorf("head buffers released: got %d, want 1", got)
	}
	b.check(t)
}

// TestLegInForce: with leg set B armed a RST, a FIN and its acknowledgement count on that leg, by that leg's marks; what
// the old server still sends only goes on.
func TestLegInForce(t *testing.T) {
	for _, w := range []world{world4, world6} {
		for side := range Side(sides) {
			// The old leg's marks, where a RST used to count as exact.
			b, c := spliced(t, w, regs.ServiceEntry{}, 0x10203040, false)
			old := *c
			c = b.armLegB(t, c)
			one(t, b.push(0, c.client(flagACK, "second request"))[1])
			c.sack = c.cseq
			one(t, b.push(1, c.server(flagACK, "second response"))[0])
			c.cack += 15
			one(t, b.push(0, c.client(flagACK, ""))[1])
			if side == ServerSide {
				old.from(t, ServerSide, 0, 0, flagRST, "") // exact on leg set A
				old.from(t, ServerSide, 0, 0, flagFIN|flagACK, "")
			} else {
				old.from(t, ClientSide, 0, 0, flagRST, "")
			}
			if got := b.state(c); got != Spliced {
				t.Fatalf("%v side %d: the old leg ends the connection: state %d", w.kind, side, got)
			}
			for _, off := range []uint32{1, ^uint32(0), 1 << 20} {
				c.from(t, side, off, 0, flagRST, "")
			}
			if got := b.state(c); got != Spliced {
				t.Fatalf("%v side %d: a RST that is not exact: state %d", w.kind, side, got)
			}
			b.check(t)
			c.from(t, side, 0, 0, flagRST, "")
			if got := b.state(c); got != Quarantine {
				t.Errorf("%v side %d: exact RST on the leg in force: state %d", w.kind, side, got)
			}
			b.check(t)
			b.wait(1100 * time.Millisecond)
			b.allFree(t)
		}
		b, c := spliced(t, w, regs.ServiceEntry{}, 0x10203040, true)
		c.finish(t)
		b.check(t)
		// A newer SYN is one behind the last byte of the leg in force.
		seq := c.cseq
		c.cseq = seq - 10
		if out := b.push(0, c.client(flagSYN, "", plainOptions...)); len(out[0])+len(out[1]) != 0 || b.r.Get64(regs.ConnectionDropOldSyn) != 1 {
			t.Errorf("%v: a SYN among the bytes of leg set B: %v", w.kind, out)
		}
		c.cseq = seq + 1
		one(t, b.push(0, c.client(flagSYN, "", plainOptions...))[0])
		b.check(t)
	}
}

// TestLegBIdle: where the card itself ends a connection with two servers, the client and both servers get exact RSTs and
// every CAM entry goes.
func TestLegBIdle(t *testing.T) {
	b, c := spliced(t, world4, regs.ServiceEntry{}, 0x10203040, true)
	b.r.Set(regs.TimerIdle, 3000)
	out := b.wait(4 * time.Second)
	if s := one(t, out[0]); s.flags&flagRST == 0 || s.seq != c.cack || s.ack != c.cseq {
		t.Errorf("the client gets %v, want RST seq %#x ack %#x", s, c.cack, c.cseq)
	}
	want := map[netip.Addr]uint32{c.w.server: c.cseq, world4.server: c.cseq - uint32(len("second request"))}
	for _, s := range out[1] {
		if s.flags != flagRST || s.seq != want[s.to] || s.dport != 8080 || s.sport != c.port {
			t.Errorf("a server gets %v, want RST seq %#x", s, want[s.to])
		}
		delete(want, s.to)
	}
	if len(want) != 0 {
		t.Errorf("no RST for %v", want)
	}
	b.check(t)
	b.allFree(t)
}

// An end is a loose TCP: it sends within the window it was given, sends again what is not acknowledged, and closes.
type end struct {
	una, nxt uint32 // own numbers, in the client's view
	rcv      uint32 // next byte expected of the other
	edge     uint32 // up to where it may send
	gave     uint32 // right edge it advertised
	fin      bool   // sent
}

type flight struct {
	side     Side
	seq, ack uint32
	length   uint32
	window   uint16
	fin      bool
}

// TestOwnTrafficCounts: two ends that keep to their windows, with loss before and behind the card, segments out of order,
// windows that close, shrink and grow, never get to where the card does not take their segments: the marks never pass
// what was sent, and are right once everything is acknowledged.
func TestOwnTrafficCounts(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 5))
		isn := uint32(seed/2%2<<31) - uint32(r.IntN(100_000)) // crosses 2^31 or 2^32 on the way
		b, c := spliced(t, world4, regs.ServiceEntry{}, isn, seed%2 != 0)
		w := b.c.page(b.pageOf(t))
		leg := inForce(w[regs.PageControl])
		toServer := c.sseq - c.cack // added to an ack of the client's view
		ends := [sides]*end{
			{una: c.cseq, nxt: c.cseq, rcv: c.cack, edge: c.cseq + 1000, gave: c.cack + 64000},
			{una: c.cack, nxt: c.cack, rcv: c.cseq, edge: c.cack + 64000, gave: c.cseq + 1000},
		}
		var wire []flight
		push := func(f flight) {
			x := *c
			flags, payload := uint8(flagACK), strings.Repeat("d", int(f.length))
			if f.fin {
				flags |= flagFIN
			}
			if f.side == ClientSide {
				x.cseq, x.cack, x.window = f.seq, f.ack, f.window
			} else {
				x.sseq, x.sack, x.serverWindow = f.seq+toServer, f.ack, f.window
			}
			raw := x.client
			if f.side == ServerSide {
				raw = x.server
			}
			if x.window == 0 {
				x.window = 1 // the builder takes zero for its default
			}
			if x.serverWindow == 0 {
				x.serverWindow = 1
			}
			one(t, b.push(int(f.side), raw(flags, payload))[1-f.side])
		}
		send := func(side Side, seq, length uint32, fin bool) flight {
			e := ends[side]
			window := uint32(r.IntN(8000)) // may take back what was given
			if r.IntN(4) == 0 {
				window = uint32(1 + r.IntN(60000))
			}
			window = max(window, 1)
			e.gave = e.rcv + window
			return flight{side, seq, e.rcv, length, uint16(window), fin}
		}
		arrive := func(f flight) {
			o := ends[1-f.side]
			last := f.seq + f.length
			if f.fin {
				last++
			}
			if int32(f.seq-o.rcv) <= 0 && int32(last-o.rcv) > 0 { // taken even where the window was taken back
				o.rcv = last
			}
			if int32(f.ack-o.una) >= 0 && int32(f.ack-o.nxt) <= 0 {
				o.una, o.edge = f.ack, f.ack+uint32(f.window)
			}
		}
		step := func(last bool) {
			side := Side(r.IntN(2))
			e := ends[side]
			var f flight
			room := int32(e.edge - e.nxt)
			switch k := r.IntN(5); {
			case e.una != e.nxt && (k == 0 || last): // again
				length := e.nxt - e.una
				fin := e.fin && length <= 1400
				if fin {
					length--
				}
				f = send(side, e.una, min(length, 1400), fin)
			case k <= 2 && room > 0 && !e.fin && !last:
				length := uint32(1 + r.IntN(int(min(room, 1400))))
				f = send(side, e.nxt, length, false)
				e.nxt += length
			case last && !e.fin && room > 0:
				f = send(side, e.nxt, 0, true)
				e.nxt++
				e.fin = true
			default:
				f = send(side, e.nxt, 0, false)
			}
			if r.IntN(20) == 0 {
				return // lost before the card
			}
			wire = append(wire, f)
			if r.IntN(6) == 0 && len(wire) < 4 {
				return // overtaken by the next
			}
			for len(wire) > 0 {
				i := r.IntN(len(wire))
				f := wire[i]
				wire = append(wire[:i], wire[i+1:]...)
				push(f)
				if r.IntN(20) != 0 {
					arrive(f)
				}
				for s := range Side(sides) {
					own := leg + markWords*int(s)
					if seq, ack := w[regs.PageASeqClient+own], w[regs.PageAAckClient+own]; int32(seq-ends[s].nxt) > 0 || int32(ack-ends[s].rcv) > 0 {
						t.Fatalf("seed %d side %d: marks %#x, %#x pass %#x, %#x", seed, s, seq, ack, ends[s].nxt, ends[s].rcv)
					}
				}
			}
		}
		for range 400 {
			step(false)
		}
		for range 4000 {
			if step(true); State(regs.PageControlState(w[regs.PageControl])) == Quarantine {
				break
			}
		}
		for s := range Side(sides) {
			own := leg + markWords*int(s)
			if seq, ack := w[regs.PageASeqClient+own], w[regs.PageAAckClient+own]; seq != ends[s].nxt || ack != ends[1-s].nxt {
				t.Errorf("seed %d side %d: marks %#x, %#x at the end, want %#x, %#x", seed, s, seq, ack, ends[s].nxt, ends[1-s].nxt)
			}
		}
		if got := b.state(c); got != Quarantine {
			t.Errorf("seed %d: state %d at the end, want quarantine", seed, got)
		}
		b.check(t)
	}
}
