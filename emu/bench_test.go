package emu_test

import (
	"fmt"
	"testing"
	"time"

	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
)

func oneFrame(b []byte) []*frame.Frame { return []*frame.Frame{{Buf: b, End: uint32(len(b))}} }

// flood is a port that always has the same frame to give and takes everything.
type flood struct {
	frame []byte
	n     int // frames of a batch
}

func (f *flood) MAC() [6]byte         { return clientMAC }
func (f *flood) MTU() int             { return 9000 }
func (f *flood) Link() port.LinkState { return port.LinkState{Up: true, Mbps: 1000} }
func (f *flood) Receive(fs []frame.Frame) int {
	n := min(f.n, len(fs))
	for i := range fs[:n] {
		x := &fs[i]
		x.End = x.Start + uint32(copy(x.Buf[x.Start:], f.frame))
		x.Offload = frame.Offload{}
	}
	return n
}
func (f *flood) Transmit(fs []*frame.Frame) int { return len(fs) }
func (f *flood) BufferBytes() int               { return frame.Headroom + frame.MaxBytes }
func (f *flood) Offloads() port.Offloads        { return port.Offloads{} }
func (f *flood) FD() int                        { return -1 }
func (f *flood) Overruns() uint64               { return 0 }
func (f *flood) Close() error                   { return nil }

func flooded(t testing.TB, size, n int) (*emu.Card, *bench) {
	t.Helper()
	s := segment{dst: clientMAC, from: clientAddress, to: serverAddress, sport: 1, dport: 2, flags: flagACK, payload: make([]byte, max(size-54, 0))}
	f := &flood{frame: s.build(false), n: n}
	c, err := emu.New(emu.Config{Geometry: small(), Client: f, Server: &flood{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	b := &bench{TB: t, card: c}
	b.store(regs.PortControl, regs.PortControlEnableMask)
	return c, b
}

// BenchmarkStep is what a frame costs around the data path's own work: it misses both CAMs and finds no exception ring.
func BenchmarkStep(b *testing.B) {
	for _, size := range []int{64, 1514, 9000} {
		for _, n := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%d/batch%d", size, n), func(b *testing.B) {
				c, _ := flooded(b, size, n)
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i += n {
					c.Step(time.Duration(i))
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
			})
		}
	}
}

// BenchmarkStepIdle is a step with nothing to do.
func BenchmarkStepIdle(b *testing.B) {
	c, _ := flooded(b, 64, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Step(time.Duration(i) * time.Microsecond)
	}
}

func TestNoAllocations(t *testing.T) {
	c, b := flooded(t, 64, 64)
	now := time.Duration(0)
	if n := testing.AllocsPerRun(200, func() {
		now += time.Millisecond
		c.Step(now)
	}); n != 0 {
		t.Errorf("a step: %v allocations", n)
	}
	if b.load(regs.PortRxFrames) == 0 {
		t.Error("no frames")
	}
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.splice(t)
	up := segment{dst: clientMAC, from: clientAddress, to: vipAddress, sport: 1000, dport: 80, seq: h.clientNext(), ack: h.isn + 1, flags: flagACK}
	raw := oneFrame(up.build(false))
	sink := make([]frame.Frame, 8)
	for i := range sink {
		sink[i].Buf = make([]byte, 2048)
	}
	translate := func() {
		h.far[0].Transmit(raw)
		h.step()
		h.far[1].Receive(sink)
	}
	for range 300 { // every slot of the queues has its buffer then
		translate()
	}
	if n := testing.AllocsPerRun(200, translate); n != 0 {
		t.Errorf("a translated frame: %v allocations", n)
	}
	if h.load(regs.PmuTranslatedClient) < 500 {
		t.Errorf("translated %d frames", h.load(regs.PmuTranslatedClient))
	}
}

// BenchmarkNew is what a card costs to make: tests make thousands.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		c, err := emu.New(emu.Config{Geometry: small(), Client: &flood{}, Server: &flood{}})
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
