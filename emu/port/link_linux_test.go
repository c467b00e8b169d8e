package port_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/emu/port"
)

// runLink carries frames until the test ends.
func runLink(t *testing.T, l *port.Link) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// TestLinkRuns joins two veth pairs: frames of a kernel interface come late, whole, and once each.
func TestLinkRuns(t *testing.T) {
	left, a := wirePair(t)
	right, b := wirePair(t)
	const delay = 5 * time.Millisecond
	l := port.NewLink(port.LinkConfig{A: a, B: b, AB: port.Impairment{Delay: delay}})
	runLink(t, l)
	big := super{payload: 8000, size: 1448, flags: 0x18}
	coalesced, payload := big.frame()
	start := time.Now()
	if left.Transmit([]*frame.Frame{coalesced}) != 1 {
		t.Fatal("not taken")
	}
	want := big.reference(payload)
	got := takeSent(t, right, len(want))
	took := time.Since(start)
	for i, w := range want {
		sameBytes(t, got[i].Bytes(), w)
	}
	if took < delay {
		t.Errorf("took %v, less than the delay of %v", took, delay)
	}
	t.Logf("a delay of %v took %v", delay, took)
	back := super{payload: 100, flags: 0x18}.bytes(make([]byte, 100), 0x18, 1, 2)
	right.Transmit([]*frame.Frame{wrap(back, frame.Offload{})})
	sameBytes(t, takeSent(t, left, 1)[0].Bytes(), back)
	if s := l.Stats(); s[0].Sent < uint64(len(want)) || s[1].Sent < 1 {
		t.Errorf("%+v", s)
	}
}

// takeSent waits for n frames beside those a kernel sends to groups when an interface comes up.
func takeSent(t *testing.T, p port.Port, n int) (got []frame.Frame) {
	t.Helper()
	for len(got) < n {
		if f := take(t, p, 1)[0]; f.Bytes()[0]&1 == 0 {
			got = append(got, f)
		}
	}
	return got
}

// TestLinkRunWakes: ports without a descriptor wake Run, and ctx ends it.
func TestLinkRunWakes(t *testing.T) {
	near, a := port.Pair(port.MemConfig{})
	far, b := port.Pair(port.MemConfig{})
	runLink(t, port.NewLink(port.LinkConfig{A: a, B: b}))
	arrived := make(chan struct{}, 1)
	far.Notify(func() { arrived <- struct{}{} })
	fs := memBuffers(far, 1)
	for i := range 100 {
		near.Transmit([]*frame.Frame{frameOf(numbered(i, 0), frame.Offload{})})
		<-arrived
		fs[0].Start = frame.Headroom
		if far.Receive(fs) != 1 || number(fs[0].Bytes()) != i {
			t.Fatalf("frame %d did not come", i)
		}
	}
}
