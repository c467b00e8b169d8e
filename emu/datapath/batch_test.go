package datapath

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// twin is a card that is fed in batches beside one that is fed frame by frame.
type twin struct {
	t              *testing.T
	batched, alone *bench
}

// pushRaw runs frames as one batch and returns copies of what comes out, by port; every frame that can be is decoded.
func (b *bench) pushRaw(port int, raws ...[]byte) (out [2][][]byte) {
	b.t.Helper()
	b.out.Reset()
	for i, raw := range raws {
		f := &b.buf[i]
		f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	}
	b.c.Advance(b.now)
	b.c.Process(port, b.buf[:len(raws)], b.out)
	return b.copies()
}

func (b *bench) copies() (out [2][][]byte) {
	for p := range b.out.Ports {
		for _, f := range b.out.Ports[p] {
			out[p] = append(out[p], bytes.Clone(f.Bytes()))
		}
	}
	b.out.Reset()
	return out
}

// duePort is the port of the end whose turn it is.
var duePort = [9]int{0, 0, 0, 1, 1, 0, 1, 0, 1}

// next makes a segment that one end sends on a port: the right one of its life if that is due there, else any.
func (p *peer) next(r *rand.Rand, port int) []byte {
	if r.IntN(25) == 0 {
		p.phase = r.IntN(9)
	}
	if r.IntN(25) == 0 || duePort[p.phase] != port {
		return p.raw(port, uint8(r.IntN(64)), r.IntN(3), r.Uint32()>>uint(r.IntN(32)))
	}
	phase := p.phase
	if p.phase++; p.phase > 8 {
		p.phase = 0
	}
	switch phase {
	case 0:
		if r.IntN(3) == 0 {
			p.cseq += uint32(r.IntN(100_000))
		}
		return p.client(flagSYN, "", looseOptions...)
	case 1:
		return p.client(flagACK, "")
	case 2:
		return p.client(flagACK|flagPSH|uint8(r.IntN(8)/7), request)
	case 3:
		p.sseq = r.Uint32()
		return p.server(flagSYN|flagACK, "", looseOptions...)
	case 4:
		return p.server(flagACK, "response")
	case 5:
		return p.client(flagACK, "more")
	case 6:
		return p.server(flagACK|flagFIN, "")
	case 7:
		if r.IntN(4) == 0 {
			return p.client(flagRST, "")
		}
		return p.client(flagACK|flagFIN, "")
	}
	return p.server(flagACK, "")
}

// take notes the numbers of what came out for the peers.
func take(ps []*peer, out [2][]tcp) {
	for _, s := range out[0] {
		for _, p := range ps {
			p.takeClient(s)
		}
	}
	for _, s := range out[1] {
		for _, p := range ps {
			p.takeServer(s)
		}
	}
}

func (x *twin) compare(what string, got, want [2][][]byte) {
	x.t.Helper()
	for p := range got {
		if len(got[p]) != len(want[p]) {
			x.t.Fatalf("%s: port %d: %d frames in a batch, %d alone", what, p, len(got[p]), len(want[p]))
		}
		for i := range got[p] {
			if !bytes.Equal(got[p][i], want[p][i]) {
				x.t.Fatalf("%s: port %d frame %d:\n in a batch % x\n alone      % x", what, p, i, got[p][i], want[p][i])
			}
		}
	}
}

// batch makes n frames of one port, feeding each to the card that takes them alone so that the ends can answer within
// the batch, and then all of them to the other.
func (x *twin) batch(r *rand.Rand, ps []*peer, port, n int) {
	x.t.Helper()
	var raws [][]byte
	var want [2][][]byte
	for p := 0; len(raws) < n; {
		for tries := 0; tries < 8 && (r.IntN(6) == 0 || duePort[ps[p].phase] != port); tries++ {
			p = r.IntN(len(ps))
		}
		raw := slices.Clone(ps[p].next(r, port))
		if r.IntN(50) == 0 {
			raw[r.IntN(len(raw))] ^= 1 << r.IntN(8)
		}
		if r.IntN(100) == 0 {
			raw = raw[:r.IntN(len(raw))]
		}
		raws = append(raws, raw)
		out := x.alone.pushRaw(port, raw)
		var seen [2][]tcp
		for q := range out {
			want[q] = append(want[q], out[q]...)
			for _, f := range out[q] {
				seen[q] = append(seen[q], parseFrame(x.t, f))
			}
		}
		take(ps, seen)
	}
	x.compare("batch", x.batched.pushRaw(port, raws...), want)
}

// TestBatchLikeAlone: batches of up to 64 frames of random connections, whole handshakes within one batch and reused
// ports among them, give the same output, registers, memories and rings as the frames one at a time.
func TestBatchLikeAlone(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 11))
		mode := [...]uint32{3: modeNAT, 4: modeDR}[seed] // the last two pass connections on
		x := &twin{t: t}
		g := tiny(20)
		g.CamClientWords, g.CamServerWords = 48, 48
		for _, b := range []**bench{&x.batched, &x.alone} {
			*b = newBench(t, g)
			for i, w := range []world{world4, world6} {
				if mode == 0 {
					(*b).serve(w, i, full)
				} else {
					(*b).serve4(w, i, mode, func(e *regs.ServiceEntry) {
						e.ControlSloppy, e.Persistence, e.PersistenceNetIpv4, e.PersistenceNetIpv6 = uint32(i), uint32(i)*500, 24, 64
					})
				}
			}
			(*b).attach()
			(*b).r.Set(regs.TimerIdle, 1500)
			(*b).r.Set(regs.TimerWaitHead, 1500)
			(*b).r.Set(regs.AmuLowWatermark, 2)
			(*b).now = time.Second
		}
		ps := make([]*peer, 36)
		for i := range ps {
			ps[i] = &peer{conn: conn{b: x.alone, w: []world{world4, world6}[i%2], port: uint16(40000 + i/2)}}
		}
		for step := range 500 {
			x.batch(r, ps, r.IntN(2), 1+r.IntN(BatchMax))
			for _, b := range []*bench{x.batched, x.alone} {
				b.now += time.Duration(step%7) * 40 * time.Millisecond
			}
			x.scan(step)
			if step%50 == 0 {
				x.sameState(step)
			}
		}
		x.sameState(500)
		x.batched.check(t)
		for _, c := range []regs.Reg{regs.ConnectionSpliced, regs.ConnectionReused, regs.ConnectionClosedFin, regs.ConnectionClosedRst, regs.AmuNoPage, regs.AmuQuarantineEarly, regs.CamMoves, regs.TransmitResentHeld + serverEnd} {
			if x.batched.r.Get64(c) == 0 {
				t.Logf("seed %d: %s stayed zero", seed, c.Name())
			}
		}
		if got := x.batched.r.Get64(regs.ConnectionSpliced) + x.batched.r.Get64(regs.PassEstablished); got < 30 { // a server that fails leaves its connection to a host that is not there
			t.Errorf("seed %d: %d connections spliced: the frames do not go where they should", seed, got)
		}
	}
}

// scan lets both cards do the timer's share and compares what it sends.
func (x *twin) scan(step int) {
	x.t.Helper()
	var out [2][2][][]byte
	for i, b := range []*bench{x.batched, x.alone} {
		b.c.Advance(b.now)
		for done := false; !done; {
			done = b.c.Scan(b.out)
			o := b.copies()
			for p := range o {
				out[i][p] = append(out[i][p], o[p]...)
			}
		}
	}
	x.compare("scan", out[0], out[1])
}

func (x *twin) sameState(step int) {
	x.t.Helper()
	a, b := x.batched.snapshot(), x.alone.snapshot()
	if d := a.diff(b); len(d) != 0 {
		x.t.Fatalf("step %d: batched and alone differ in %v", step, d)
	}
	for i, v := range x.batched.ram {
		if v != x.alone.ram[i] {
			at := i &^ 63
			x.t.Fatalf("step %d: host memory at %#x:\n batched % x\n alone   % x", step, i, x.batched.ram[at:at+64], x.alone.ram[at:at+64])
		}
	}
	for _, c := range []*bench{x.batched, x.alone} {
		c.exceptions()
		c.events()
	}
}
