package datapath

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// modularConn is a connection whose payload goes by way of the host, after its handshake, with numbers from given ones on.
func modularConn(t *testing.T, w world, cseq, sseq uint32) (*bench, *conn) {
	t.Helper()
	b := newBench(t, smallGeometry())
	b.serve4(w, 0, regs.ServiceControlModeNat, func(e *regs.ServiceEntry) { e.ControlModule = 1 })
	b.attach()
	b.now = 3 * time.Second
	c := &conn{b: b, w: w, port: 40001, cseq: cseq, sseq: sseq, serverWindow: 60000}
	one(t, b.push(0, c.client(flagSYN, "", optMSS(1460), optSACK))[1])
	c.sack, c.cack = c.cseq, c.sseq+1
	one(t, b.push(1, c.server(flagSYN|flagACK, "", optMSS(1460), optSACK))[0])
	one(t, b.push(0, c.client(flagACK, ""))[1])
	if got := b.state(c); got != Spliced {
		t.Fatalf("state %v", stateNames[got])
	}
	return b, c
}

// done sends a frame as the host does that has read its payload.
func (b *bench) done(port int, raw []byte) (out [2][]tcp) {
	b.t.Helper()
	b.out.Reset()
	f := &b.buf[0]
	f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	b.c.Reinject(&regs.InjectEntry{ControlType: regs.InjectControlTypeReinject, ControlPort: uint32(port), FlagsModuleDone: 1}, b.buf[:1], b.out)
	return b.drain()
}

// onlyPage finds the only page.
func (b *bench) onlyPage(t *testing.T) (n uint32, w *page) {
	t.Helper()
	for n := range b.m.Geometry.Pages {
		if w := b.c.page(n); w[regs.PageControl]&regs.PageControlValidMask != 0 {
			return n, w
		}
	}
	t.Fatal("no page is in use")
	return 0, nil
}

// adjust gives the command.
func (b *bench) adjust(t *testing.T, side Side, boundary uint32, value int32) uint32 {
	t.Helper()
	n, w := b.onlyPage(t)
	e := regs.CommandEntry{ControlType: regs.CommandControlTypeAdjust, HandleN: n, HandleGeneration: regs.PageControlGeneration(w[regs.PageControl]),
		FlagsServerStream: uint32(side), Boundary: boundary, Value: uint32(value)}
	var done regs.CompletionEntry
	b.c.Command(&e, &done, b.out)
	return done.ControlStatus
}

// slowShift is the reference: a list of every alteration of a stream, asked in 64 bits. Numbers are counted from the first
// byte of the stream.
type slowShift []struct{ at, by int64 }

func (s slowShift) forth(n int64) int64 {
	sum := int64(0)
	for _, x := range s {
		if n >= x.at {
			sum += x.by
		}
	}
	return n + sum
}

// back is the greatest number whose bytes before it the receiver has: by trying.
func (s slowShift) back(n int64) int64 {
	var before, last int64
	at := int64(-1 << 62)
	for _, x := range s {
		before, last, at = last, last+x.by, x.at
	}
	if at == -1<<62 {
		return n
	}
	best := int64(-1 << 62)
	for o := n - 200; o <= n+200; o++ {
		has := s.forth(o) <= n
		if o < at {
			has = o+before <= n
		}
		if has && o > best {
			best = o
		}
	}
	return best
}

// TestPivot holds the pivot to the reference, around the places where something changes and around the end of numbers.
func TestPivot(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	for range 60 {
		first := []uint32{0, 1000, 0xfffffff0, 0x7ffffff0, r.Uint32()}[r.IntN(5)]
		var slow slowShift
		var v pivot
		at := int64(0)
		for range 1 + r.IntN(3) {
			by := int64(r.IntN(40) - 20)
			at += 50 + int64(r.IntN(100))
			slow = append(slow, struct{ at, by int64 }{at, by})
			v = pivot{at: first + uint32(at), before: v.after, after: v.after + uint32(by)}
			low := at - 30 // the receiver has what lies before the one that came before
			for n := low; n < at+60; n++ {
				if got, want := v.forth(first+uint32(n)), first+uint32(slow.forth(n)); got != want {
					t.Fatalf("%+v, first %#x: forth of %d is %#x, want %#x", slow, first, n, got, want)
				}
				m := n + int64(int32(v.before))
				if got, want := v.back(first+uint32(m)), first+uint32(slow.back(m)); got != want {
					t.Fatalf("%+v, first %#x: back of %d is %#x, want %#x", slow, first, m, got, want)
				}
			}
		}
	}
}

// TestAdjust alters lines of both streams, longer and shorter, and follows both ends' numbers through what comes after,
// around the ends of the number space and in both families.
func TestAdjust(t *testing.T) {
	for _, w := range []world{world4, world6} {
		for _, first := range [][2]uint32{{1000, 5000}, {0xffffffe0, 0x7fffffe0}, {0x7fffffe0, 0xffffffe8}, {0xfffffff5, 0xfffffff5}} {
			for _, by := range [][2]int32{{7, 3}, {-3, -7}, {9, -4}, {-5, 12}} {
				t.Run(fmt.Sprintf("%v/%#x/%+d", w.client, first, by), func(t *testing.T) {
					b, c := modularConn(t, w, first[0], first[1])
					line := "0123456789"
					shift := [2]uint32{} // so far, by side
					for range 3 {
						for side := range Side(sides) {
							raw := c.client(flagACK|flagPSH, line)
							if side == ServerSide {
								c.cseq -= uint32(len(line))
								raw = c.server(flagACK|flagPSH, line)
							}
							if out := b.push(int(side), raw); len(out[0])+len(out[1]) != 0 {
								t.Fatalf("payload goes past the host: %v", out)
							}
							sent := parseFrame(t, raw)
							end := sent.seq + uint32(len(line)) + 0
							boundary := end
							if side == ServerSide {
								boundary = c.sseq
							}
							if got := b.adjust(t, side, boundary, by[side]); got != statusOK {
								t.Fatalf("adjust: status %d", got)
							}
							long := make([]byte, len(line)+int(by[side]))
							sent.payload = long
							got := one(t, b.done(int(side), buildFrame(t, &sent))[1-side])
							if got.seq != sent.seq+shift[side] {
								t.Errorf("side %d: the line comes with seq %#x, sent %#x, shifted by %d", side, got.seq, sent.seq, int32(shift[side]))
							}
							shift[side] += uint32(by[side])
							// The other end acknowledges all of it, the one that wrote it hears of all it wrote.
							ack := got.seq + uint32(len(long))
							if side == ClientSide {
								c.sack = ack
								if status := b.adjust(t, side, boundary+20, 1); status != statusState {
									t.Errorf("a second adjustment before the first is acknowledged: status %d", status)
								}
								back := one(t, b.push(1, c.server(flagACK, ""))[0])
								if back.ack != c.cseq {
									t.Errorf("the client hears of %#x, wrote up to %#x", back.ack, c.cseq)
								}
								if back.seq != c.sseq+shift[1] {
									t.Errorf("the server's seq comes as %#x, sent %#x, shifted by %d", back.seq, c.sseq, int32(shift[1]))
								}
							} else {
								c.cack = ack
								back := one(t, b.push(0, c.client(flagACK, ""))[1])
								if back.ack != c.sseq {
									t.Errorf("the server hears of %#x, wrote up to %#x", back.ack, c.sseq)
								}
								if back.seq != c.cseq+shift[0] {
									t.Errorf("the client's seq comes as %#x, sent %#x, shifted by %d", back.seq, c.cseq, int32(shift[0]))
								}
							}
							if status := b.adjust(t, side, boundary, 1); status != statusArgument {
								t.Errorf("an adjustment of what is acknowledged: status %d", status)
							}
						}
					}
					b.counts(t, map[regs.Reg]uint64{regs.PassShifted: 6})
					// The end: FINs are counted where they are.
					fin := one(t, b.push(0, c.client(flagACK|flagFIN, ""))[1])
					c.sack = fin.seq + 1
					back := one(t, b.push(1, c.server(flagACK|flagFIN, ""))[0])
					if back.ack != c.cseq {
						t.Errorf("FIN acknowledged with %#x, want %#x", back.ack, c.cseq)
					}
					c.cack = back.seq + 1
					one(t, b.push(0, c.client(flagACK, ""))[1])
					if got := b.state(c); got != Quarantine {
						t.Errorf("at the end: %v", stateNames[got])
					}
					b.check(t)
				})
			}
		}
	}
}

// TestAdjustSACK: edges are translated by which side of the line they lie on; of a line that is there in part the receiver
// has nothing.
func TestAdjustSACK(t *testing.T) {
	for _, tt := range []struct {
		name     string
		by       int32
		from, to int32 // of the block, from the boundary in the receiver's numbers
		want     [2]int32
	}{
		{"behind", 5, 5 + 10, 5 + 20, [2]int32{10, 20}},
		{"before", 5, -30, -20, [2]int32{-30, -20}},
		{"from its end", 5, 5, 9, [2]int32{0, 4}},
		{"from within", 5, 3, 9, [2]int32{0, 4}},
		{"to within", 5, -20, 3, [2]int32{-20, -1}},
		{"within", 5, 1, 3, [2]int32{-1, -1}},
		{"shorter, behind", -5, -5 + 10, -5 + 20, [2]int32{10, 20}},
		{"shorter, before", -5, -30, -20, [2]int32{-30, -20}},
		{"shorter, over", -5, -10, 5, [2]int32{-10, 10}},
	} {
		for _, odd := range []bool{false, true} {
			for side := range Side(sides) {
				t.Run(fmt.Sprintf("%s/%v/%d", tt.name, odd, side), func(t *testing.T) {
					b, c := modularConn(t, world4, 0xffffffd0, 0xfffffff8)
					at := c.cseq + 50
					if side == ServerSide {
						at = c.sseq + 50
					}
					if got := b.adjust(t, side, at, tt.by); got != statusOK {
						t.Fatalf("adjust: status %d", got)
					}
					block := layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: 10, OptionData: append(u32(at+uint32(tt.from)), u32(at+uint32(tt.to))...)}
					opts := []layers.TCPOption{optNop, optNop, block}
					if odd {
						opts = []layers.TCPOption{optNop, block, optNop}
					}
					raw, to := c.client(flagACK, "", opts...), 1
					if side == ClientSide { // the server tells what it has
						raw, to = c.server(flagACK, "", opts...), 0
					}
					got := one(t, b.push(1-to, raw)[to]).option(layers.TCPOptionKindSACK)
					want := append(u32(at+uint32(tt.want[0])), u32(at+uint32(tt.want[1]))...)
					if string(got) != string(want) {
						t.Errorf("got % x, want % x", got, want)
					}
				})
			}
		}
	}
}

// TestAdjustRefused: what the verb does not take.
func TestAdjustRefused(t *testing.T) {
	b, c := modularConn(t, world4, 1000, 5000)
	for _, tt := range []struct {
		name     string
		boundary uint32
		value    int32
		want     uint32
	}{
		{"longer than may be", c.cseq + 10, maxAdjust + 1, statusArgument},
		{"shorter than may be", c.cseq + 10, -maxAdjust - 1, statusArgument},
		{"acknowledged", c.cseq, 1, statusArgument},
		{"longest", c.cseq + 10, maxAdjust, statusOK},
	} {
		if got := b.adjust(t, ClientSide, tt.boundary, tt.value); got != tt.want {
			t.Errorf("%s: status %d, want %d", tt.name, got, tt.want)
		}
	}
	_, w := b.onlyPage(t)
	w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl], 0)
	if got := b.adjust(t, ServerSide, c.sseq+10, 1); got != statusState {
		t.Errorf("payload does not come by the host: status %d", got)
	}
}

// TestSettle: an adjustment that lies far behind is forgotten before its number comes round again.
func TestSettle(t *testing.T) {
	b, c := modularConn(t, world4, 1000, 5000)
	if got := b.adjust(t, ClientSide, c.cseq+10, 5); got != statusOK {
		t.Fatalf("status %d", got)
	}
	_, w := b.onlyPage(t)
	for range 10 {
		c.cseq += 1 << 29
		w[regs.PageASeqClient], w[regs.PageAAckServer] = c.cseq, c.cseq
		b.rest()
		if got := one(t, b.push(0, c.client(flagACK, ""))[1]); got.seq != c.cseq+5 {
			t.Fatalf("seq %#x comes as %#x, want 5 more", c.cseq, got.seq)
		}
	}
	if got := b.adjust(t, ClientSide, c.cseq+10, -5); got != statusOK {
		t.Fatalf("status %d", got)
	}
	c.cseq += 10
	if got := one(t, b.push(0, c.client(flagACK, ""))[1]); got.seq != c.cseq {
		t.Fatalf("seq %#x comes as %#x", c.cseq, got.seq)
	}
}

// TestAdjustReset: what the card itself sends a server has the server's numbers.
func TestAdjustReset(t *testing.T) {
	b, c := modularConn(t, world4, 1000, 5000)
	if got := b.adjust(t, ClientSide, c.cseq+10, 5); got != statusOK {
		t.Fatalf("status %d", got)
	}
	sent := parseFrame(t, c.client(flagACK|flagPSH, "0123456789"))
	sent.payload = make([]byte, 15)
	one(t, b.done(0, buildFrame(t, &sent))[1])
	n, w := b.onlyPage(t)
	b.out.Reset()
	var done regs.CompletionEntry
	b.c.Command(&regs.CommandEntry{ControlType: regs.CommandControlTypeReset, HandleN: n, HandleGeneration: regs.PageControlGeneration(w[regs.PageControl]), FlagsToServer: 1, FlagsToClient: 1}, &done, b.out)
	out := b.drain()
	if got := one(t, out[1]); got.seq != c.cseq+5 {
		t.Errorf("RST to the server with seq %#x, want %#x", got.seq, c.cseq+5)
	}
	if got := one(t, out[0]); got.ack != c.cseq {
		t.Errorf("RST to the client acknowledges %#x, want %#x", got.ack, c.cseq)
	}
}

// TestAdjustAllocations: segments of altered streams cost nothing but the work.
func TestAdjustAllocations(t *testing.T) {
	b, c := modularConn(t, world4, 1000, 5000)
	b.adjust(t, ClientSide, c.cseq+10, 5)
	b.adjust(t, ServerSide, c.sseq+10, -5)
	raws := [2][]byte{c.client(flagACK, "", sackBlocksOf(2)), c.server(flagACK, "", sackBlocksOf(2))}
	if n := testing.AllocsPerRun(50, func() {
		for side, raw := range raws {
			f := &b.buf[0]
			f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
			b.c.Process(side, b.buf[:1], b.out)
			b.out.Reset()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func sackBlocksOf(n int) layers.TCPOption {
	o := layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: uint8(2 + 8*n)}
	for i := range 2 * n {
		o.OptionData = append(o.OptionData, u32(uint32(1000+i))...)
	}
	return o
}
