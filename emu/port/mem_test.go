package port_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"splicenic/emu/frame"
	"splicenic/emu/port"
)

// memBuffers makes n receive buffers for a port.
func memBuffers(p port.Port, n int) []frame.Frame {
	fs := make([]frame.Frame, n)
	for i := range fs {
		fs[i] = frame.Frame{Buf: make([]byte, p.BufferBytes()), Start: frame.Headroom}
	}
	return fs
}

func frameOf(b []byte, o frame.Offload) *frame.Frame {
	return &frame.Frame{Buf: b, End: uint32(len(b)), Offload: o}
}

func TestPair(t *testing.T) {
	a, b := port.Pair(port.MemConfig{Queue: 3})
	if a.MAC() == b.MAC() || a.MTU() != 1500 || !a.Link().Up || a.FD() != -1 {
		t.Errorf("defaults: %x %x, MTU %d, link %v, fd %d", a.MAC(), b.MAC(), a.MTU(), a.Link(), a.FD())
	}
	o := frame.Offload{Flags: frame.NeedsChecksum, GSOType: frame.GSOTCP4, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}
	big := bytes.Repeat([]byte{7}, frame.MaxBytes)
	out := []*frame.Frame{frameOf([]byte("first"), frame.Offload{}), frameOf(big, o), frameOf([]byte("third"), o), frameOf([]byte("fourth"), o)}
	if got := a.Transmit(out); got != 3 {
		t.Fatalf("took %d frames, the queue holds 3", got)
	}
	out[0].Buf[0] = 'x' // the buffer is the sender's again
	fs := memBuffers(b, 2)
	for _, want := range [][]string{{"first", string(big)}, {"third"}, {}} {
		for i := range fs {
			fs[i].Start = frame.Headroom
		}
		if got := b.Receive(fs); got != len(want) {
			t.Fatalf("received %d frames, want %d", got, len(want))
		}
		for i, w := range want {
			if got := string(fs[i].Bytes()); got != w || (fs[i].Offload == frame.Offload{}) != (w == "first") {
				t.Errorf("received %.10q with %+v, want %.10q", got, fs[i].Offload, w)
			}
		}
	}
	if a.Overruns()+b.Overruns() != 0 {
		t.Error("a sender that was told of a full queue lost nothing")
	}
}

func TestMemInjectDrain(t *testing.T) {
	a, b := port.Pair(port.MemConfig{Queue: 2})
	for i, want := range []bool{true, true, false} {
		if got := a.Inject([]byte{byte(i)}, frame.Offload{}); got != want {
			t.Errorf("inject %d = %v", i, got)
		}
	}
	if a.Overruns() != 1 || b.Overruns() != 0 {
		t.Errorf("overruns = %d, %d", a.Overruns(), b.Overruns())
	}
	fs := memBuffers(a, 4)
	if got := a.Receive(fs); got != 2 || fs[1].Bytes()[0] != 1 {
		t.Errorf("received %d", got)
	}
	a.Transmit([]*frame.Frame{frameOf([]byte("out"), frame.Offload{GSOSize: 5})})
	var got []string
	n := a.Drain(func(b []byte, o frame.Offload) {
		got = append(got, fmt.Sprintf("%s %d", b, o.GSOSize))
		a.Transmit([]*frame.Frame{frameOf([]byte("again"), frame.Offload{})}) // not drained in this turn
	})
	if n != 1 || len(got) != 1 || got[0] != "out 5" {
		t.Errorf("drained %d: %q", n, got)
	}
	if n := b.Receive(fs); n != 1 || string(fs[0].Bytes()) != "again" {
		t.Errorf("received %d frames", n)
	}
}

func TestMemOversize(t *testing.T) {
	a, b := port.Pair(port.MemConfig{})
	a.Transmit([]*frame.Frame{frameOf(make([]byte, frame.MaxBytes+9), frame.Offload{})})
	fs := memBuffers(b, 1)
	if b.Receive(fs) != 1 || int(fs[0].End) <= len(fs[0].Buf) {
		t.Errorf("a frame that does not fit ends at %d of %d", fs[0].End, len(fs[0].Buf))
	}
}

func TestMemNotify(t *testing.T) {
	a, b := port.Pair(port.MemConfig{})
	wakes := 0
	b.Notify(func() { wakes++ })
	two := []*frame.Frame{frameOf([]byte{1}, frame.Offload{}), frameOf([]byte{2}, frame.Offload{})}
	a.Transmit(two)
	a.Transmit(two)
	if wakes != 1 {
		t.Errorf("%d wakes for a queue that was empty once", wakes)
	}
	b.Receive(memBuffers(b, 4))
	a.Transmit(two)
	if wakes != 2 {
		t.Errorf("%d wakes", wakes)
	}
	b.Notify(nil)
	b.Receive(memBuffers(b, 4))
	a.Transmit(two)
	if wakes != 2 {
		t.Errorf("%d wakes after the end", wakes)
	}
}

func TestMemClose(t *testing.T) {
	a, b := port.Pair(port.MemConfig{})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if a.Link().Up || b.Link().Up {
		t.Error("link up after Close")
	}
	if got := b.Transmit([]*frame.Frame{frameOf([]byte{1}, frame.Offload{})}); got != 0 {
		t.Errorf("took %d frames", got)
	}
}

// TestMemConcurrent moves frames between goroutines in order. The race detector judges the rest.
func TestMemConcurrent(t *testing.T) {
	a, b := port.Pair(port.MemConfig{Queue: 8})
	const n = 2000
	wake := make(chan struct{}, 1)
	b.Notify(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; i < n; {
			i += a.Transmit([]*frame.Frame{frameOf([]byte{byte(i), byte(i >> 8)}, frame.Offload{})})
		}
	})
	fs := memBuffers(b, 4)
	for i := 0; i < n; {
		got := b.Receive(fs)
		for _, f := range fs[:got] {
			if v := f.Bytes(); int(v[0])|int(v[1])<<8 != i {
				t.Fatalf("frame %d is %v", i, v)
			}
			i++
		}
		if got == 0 {
			<-wake
		}
	}
	wg.Wait()
}

func BenchmarkMem(b *testing.B) {
	for _, size := range []int{64, 1514, 9000} {
		for _, batch := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%d/batch%d", size, batch), func(b *testing.B) {
				x, y := port.Pair(port.MemConfig{Queue: batch})
				out, in := make([]*frame.Frame, batch), memBuffers(y, batch)
				for i := range out {
					out[i] = frameOf(make([]byte, size), frame.Offload{})
				}
				b.ReportAllocs()
				for i := 0; i < b.N; i += batch {
					x.Transmit(out)
					y.Receive(in)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
			})
		}
	}
}
