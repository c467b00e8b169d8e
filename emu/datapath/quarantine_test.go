package datapath

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/ssram"
	"splicenic/regs"
)

// tiny is a geometry whose lists turn over quickly.
func tiny(pages uint32) ssram.Geometry {
	g := smallGeometry()
	g.Pages, g.Heads = pages, 8
	return g
}

// TestPortReuse closes and opens the same client port twenty times, with a higher sequence number or, where that went
// back, a newer timestamp.
func TestPortReuse(t *testing.T) {
	for _, w := range []world{world4, world6} {
		for _, by := range []string{"sequence number", "timestamp"} {
			t.Run(fmt.Sprintf("%v by %s", w.client, by), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.serve(w, 0, regs.ServiceEntry{PromiseTimestamps: 1})
				b.now = time.Second
				seq, stamp := uint32(0xfffffe00), uint32(0xfffffff0)
				for i := range 20 {
					c := &conn{b: b, w: w, port: 40001, cseq: seq, sseq: uint32(i) * 0x12345678, opts: plainOptions, sopts: plainOptions}
					if by == "timestamp" {
						c.opts = []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(stamp, 0)}
						c.sopts = []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(uint32(i), stamp)}
						stamp += 1000
					}
					c.reach(t, Quarantine)
					b.check(t)
					if got := b.r.Get64(regs.ConnectionReused); got != uint64(i) {
						t.Fatalf("turn %d: reused: got %d", i, got)
					}
					seq = c.cseq + 1
					if by == "timestamp" {
						seq = c.cseq - 1000
					}
				}
				if got := b.r.Get(regs.AmuFree); got != b.m.Geometry.Pages-1 {
					t.Errorf("free pages: got %d, want all but one", got)
				}
				b.wait(1200 * time.Millisecond)
				b.allFree(t)
				b.check(t)
			})
		}
	}
}

// TestOldSYNInQuarantine: a SYN that is no newer, a duplicate of the connection's own among them, opens nothing.
func TestOldSYNInQuarantine(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{PromiseTimestamps: 1})
	b.now = time.Second
	opts := []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(500, 0)}
	c := &conn{b: b, w: world4, port: 40001, cseq: 0xfffffff0, sseq: 1, opts: opts, sopts: []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(1, 500)}}
	own := c.cseq
	c.reach(t, Quarantine)
	for i, seq := range []uint32{own, own - 1, c.cseq - 1, c.cseq - 1<<30} {
		x := *c
		x.cseq = seq
		if out := b.push(0, x.client(flagSYN, "", opts...)); len(out[0])+len(out[1]) != 0 {
			t.Errorf("SYN with seq %#x draws %v", seq, out)
		}
		if got := b.r.Get64(regs.ConnectionDropOldSyn); got != uint64(i+1) {
			t.Errorf("drop_old_syn: got %d, want %d", got, i+1)
		}
	}
	b.check(t)
}

// TestQuarantineTranslates: repeated FINs, late ACKs and RSTs go both ways until quarantine is over, and do not prolong
// it.
func TestQuarantineTranslates(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{})
	b.now = time.Second
	c := &conn{b: b, w: world4, port: 40001, cseq: 0x7fffff00, sseq: 0xffffff00, opts: plainOptions, sopts: plainOptions}
	c.reach(t, Quarantine)
	for range 9 {
		b.wait(100 * time.Millisecond)
		x := *c
		x.sseq--
		if fin := one(t, b.push(1, x.server(flagFIN|flagACK, ""))[0]); fin.seq != c.cack-1 || fin.ack != c.cseq {
			t.Fatalf("repeated FIN: %v, want seq %#x", fin, c.cack-1)
		}
		if ack := one(t, b.push(0, c.client(flagACK, ""))[1]); ack.ack != c.sseq || ack.seq != c.sack {
			t.Fatalf("late ACK: %v", ack)
		}
		x = *c
		one(t, b.push(0, x.client(flagRST, ""))[1])
		b.check(t)
	}
	b.wait(110 * time.Millisecond)
	b.allFree(t)
	if got := b.r.Get64(regs.ConnectionClosedFin); got != 1 {
		t.Errorf("closed_fin: got %d, want 1", got)
	}
}

// TestQuarantineListNeverOverflows turns few pages over so often within one quarantine that the list would run round.
func TestQuarantineListNeverOverflows(t *testing.T) {
	b := newBench(t, tiny(8))
	b.serve(world4, 0, regs.ServiceEntry{})
	b.r.Set(regs.AmuLowWatermark, 0)
	b.now = time.Second
	other := &conn{b: b, w: world4, port: 40002, cseq: 1, sseq: 1, opts: plainOptions, sopts: plainOptions}
	other.reach(t, Quarantine)
	seq := uint32(1)
	for i := range 100 {
		c := &conn{b: b, w: world4, port: 40001, cseq: seq, sseq: uint32(i), opts: plainOptions, sopts: plainOptions}
		c.reach(t, Quarantine)
		seq = c.cseq + 1
		b.check(t)
		if got := b.r.Get(regs.AmuQuarantined); got > 8 {
			t.Fatalf("turn %d: %d entries in a list of 8", i, got)
		}
	}
	b.wait(1100 * time.Millisecond)
	b.allFree(t)
	b.check(t)
}

// TestLowWatermarkEndsQuarantine: with few free pages quarantine ends early, oldest first.
func TestLowWatermarkEndsQuarantine(t *testing.T) {
	b := newBench(t, tiny(8))
	b.serve(world4, 0, regs.ServiceEntry{})
	b.r.Set(regs.AmuLowWatermark, 3)
	b.now = time.Second
	var cs []*conn
	for i := range 6 {
		c := &conn{b: b, w: world4, port: uint16(41000 + i), cseq: uint32(i) << 28, sseq: 1, opts: plainOptions, sopts: plainOptions}
		c.reach(t, Quarantine)
		cs = append(cs, c)
		b.check(t)
	}
	if got := b.r.Get64(regs.AmuQuarantineEarly); got != 0 {
		t.Fatalf("quarantine_early: got %d, want 0", got)
	}
	// 2 pages are free, fewer than 3: every new connection ends the oldest quarantine.
	for i := range 6 {
		c := &conn{b: b, w: world4, port: uint16(42000 + i), cseq: 1, sseq: 1, opts: plainOptions, sopts: plainOptions}
		c.reach(t, SynRcvd)
		b.check(t)
		if got := b.r.Get64(regs.AmuQuarantineEarly); got != uint64(i+1) {
			t.Errorf("connection %d: quarantine_early: got %d, want %d", i, got, i+1)
		}
		for j, old := range cs {
			if got, want := b.state(old) == Quarantine, j > i; got != want {
				t.Errorf("connection %d: quarantine of %d goes on: %v, want %v", i, j, got, want)
			}
		}
	}
}

// TestRandomLife drives a small card with random segments, commands and time, and holds it after every step to what must
// always be true.
func TestRandomLife(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 9))
		g := tiny(12)
		g.CamClientWords, g.CamServerWords = 16, 16 // refuses now and then
		b := newBench(t, g)
		for i, w := range []world{world4, world6} {
			b.serve(w, i, regs.ServiceEntry{PromiseTimestamps: 1, PromiseSack: 1, PromiseWscale: 3, PromiseWscaleOn: 1})
		}
		b.r.Set(regs.AmuLowWatermark, uint32(seed%4))
		b.r.Set(regs.TimerIdle, 2000)
		b.r.Set(regs.TimerWaitHead, 3000)
		b.r.Set(regs.TimerClosing, 500)
		b.now = time.Second
		peers := make([]*peer, 20)
		for i := range peers {
			peers[i] = &peer{conn: conn{b: b, w: []world{world4, world6}[i%2], port: uint16(40000 + i/2)}}
		}
		for step := range 4000 {
			switch r.IntN(12) {
			case 0:
				b.wait(time.Duration(1+r.IntN(40)) * time.Millisecond)
			case 1:
				n := uint32(r.IntN(int(b.m.Geometry.Pages)))
				w := b.c.page(n)
				if State(regs.PageControlState(w[regs.PageControl])) != Free {
					verb := []uint32{regs.CommandControlTypeFree, regs.CommandControlTypeReset}[r.IntN(2)]
					b.command(regs.CommandEntry{ControlType: verb, HandleN: n, HandleGeneration: handleOf(n, w)>>20 + uint32(r.IntN(8)/7), FlagsToClient: 1, FlagsToServer: uint32(r.IntN(2))})
					b.drain()
				}
			default:
				peers[r.IntN(len(peers))].step(r)
			}
			b.check(t)
			if t.Failed() {
				t.Fatalf("seed %d step %d", seed, step)
			}
		}
		b.wait(15 * time.Second)
		b.allFree(t)
		b.check(t)
		for _, r := range []regs.Reg{regs.ConnectionSpliced, regs.ConnectionReused, regs.ConnectionClosedFin, regs.ConnectionClosedRst, regs.AmuQuarantineEarly, regs.AmuNoPage} {
			if b.r.Get64(r) == 0 && seed == 3 {
				t.Errorf("seed %d: %s stayed zero: the steps do not go where they should", seed, r.Name())
			}
		}
	}
}
