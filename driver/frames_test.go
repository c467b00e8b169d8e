package driver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"splicenic/driver/device"
	"splicenic/regs"
)

func TestExceptions(t *testing.T) {
	c, f := testCard(t, Config{Rings: Rings{Exception: 8, FrameBytes: 256}})
	es := make([]Exception, 100)
	if n := c.Exceptions(es); n != 0 {
		t.Fatalf("%d exceptions, want none", n)
	}
	for i := range uint32(10) { // two more than fit
		f.exception(regs.ExceptionEntry{ControlType: 1, ReasonReason: i, HandleN: i, HandleGeneration: 3}, fmt.Sprintf("frame %d", i))
	}
	if n := c.Exceptions(es[:3]); n != 3 {
		t.Fatalf("%d exceptions, want 3", n)
	}
	if n := c.Exceptions(es[3:]); n != 5 {
		t.Fatalf("%d exceptions, want 5", n)
	}
	for i := range 8 {
		if got, want := string(es[i].Frame), fmt.Sprintf("frame %d", i); got != want || es[i].ReasonReason != uint32(i) || es[i].Handle() != NewHandle(uint32(i), 3) {
			t.Errorf("exception %d = %+v, frame %q, want %q", i, es[i].ExceptionEntry, got, want)
		}
	}
	f.exception(regs.ExceptionEntry{ControlType: 1}, "lost: nothing was committed")
	c.CommitExceptions()
	f.exception(regs.ExceptionEntry{ControlType: 1}, "after")
	if n := c.Exceptions(es); n != 1 || string(es[0].Frame) != "after" || cap(es[0].Frame) != 5 {
		t.Errorf("%d exceptions, frame %q, want the one after the commit", n, es[0].Frame)
	}
	if s := c.Stats(); s.LostExceptions != 3 {
		t.Errorf("Stats = %+v, want three lost", s)
	}
}

// TestExceptionBad: a descriptor is the card's word; its address is checked before use.
func TestExceptionBad(t *testing.T) {
	c, f := testCard(t, Config{Rings: Rings{Exception: 8, FrameBytes: 256}})
	buffers := c.exceptions.buffers
	end := buffers.IOVA + uint64(len(buffers.Bytes))
	rows := []struct {
		name string
		iova uint64
		n    uint32
		ok   bool
	}{
		{"last bytes", end - 256, 256, true},
		{"past the end", end - 64, 65, false},
		{"before", buffers.IOVA - 1, 2, false},
		{"nowhere", 0, 1, false},
		{"longer than a buffer", buffers.IOVA, 257, false},
		{"wraps", ^uint64(0), 16, false},
	}
	for _, row := range rows {
		f.exception(regs.ExceptionEntry{Length: row.n, IovaLo: uint32(row.iova), IovaHi: uint32(row.iova >> 32)}, "")
		var es [1]Exception
		if n := c.Exceptions(es[:]); n != 1 || (len(es[0].Frame) == int(row.n)) != row.ok {
			t.Errorf("%s: %d exceptions, frame of %d bytes", row.name, n, len(es[0].Frame))
		}
	}
	if s := c.Stats(); s.BadDescriptors != 5 {
		t.Errorf("Stats = %+v, want five bad descriptors", s)
	}
}

func TestEvents(t *testing.T) {
	c, f := testCard(t, Config{Rings: Rings{Event: 128}})
	for i := range uint32(130) {
		f.event(regs.EventEntry{ControlType: regs.EventControlTypeClosed, Delta: i})
	}
	es := make([]regs.EventEntry, 200)
	if n := c.Events(es); n != 128 || es[127].Delta != 127 {
		t.Errorf("%d events, last %+v", n, es[127])
	}
	c.CommitEvents()
	f.event(regs.EventEntry{Delta: 500})
	if n := c.Events(es); n != 1 || es[0].Delta != 500 || c.Stats().LostEvents != 2 {
		t.Errorf("%d events, %+v, Stats %+v", n, es[0], c.Stats())
	}
}

// TestBegin has events bring bytes, their own and what they must not reach.
func TestBegin(t *testing.T) {
	c, f := testCard(t, Config{Rings: Rings{Event: 4, BeginBytes: 128}})
	buffers := f.get64(ringReg(regs.RingBuffers, regs.RingEvent))
	at := func(iova uint64, n uint32) regs.EventEntry {
		return regs.EventEntry{Length: n, IovaLo: uint32(iova), IovaHi: uint32(iova >> 32)}
	}
	bad := uint64(0)
	for _, row := range []struct {
		name  string
		event regs.EventEntry
		begin string // empty: as the event says
		want  int    // bytes; negative: bad
	}{
		{"none", regs.EventEntry{}, "", 0},
		{"some", regs.EventEntry{}, "GET / HTTP/1.1\r\n", 16},
		{"a whole buffer", regs.EventEntry{}, strings.Repeat("x", 128), 128},
		{"more than a buffer", at(buffers, 129), "", -1},
		{"before the buffers", at(buffers-64, 64), "", -1},
		{"over the end", at(buffers+4096-64, 128), "", -1},
		{"far away", at(1<<63, 64), "", -1},
		{"the exceptions' frames", at(f.get64(regs.RingBuffers), 64), "", -1},
	} {
		if row.event.Length == 0 && row.begin != "" {
			f.brings(row.event, row.begin)
		} else {
			f.event(row.event)
		}
		es := make([]regs.EventEntry, 2)
		if n := c.Events(es); n != 1 {
			t.Fatalf("%s: %d events", row.name, n)
		}
		got := c.Begin(&es[0])
		if row.want < 0 {
			bad++
		}
		if len(got) != max(row.want, 0) || row.begin != "" && string(got) != row.begin {
			t.Errorf("%s: got %q", row.name, got)
		}
		if n := c.Stats().BadDescriptors; n != bad {
			t.Errorf("%s: %d bad descriptors, want %d", row.name, n, bad)
		}
		c.CommitEvents()
	}
}

func TestSetEvents(t *testing.T) {
	c, f := testCard(t, Config{})
	for _, row := range []struct {
		kinds EventKinds
		want  uint32
	}{{EventKinds{Established: true}, 1}, {EventKinds{FirstByte: true}, 2}, {EventKinds{Heads: true}, 4}, {EventKinds{true, true, true}, 7}, {EventKinds{}, 0}} {
		if err := c.SetEvents(row.kinds); err != nil || f.get(regs.HostifEvents) != row.want {
			t.Errorf("%+v: %s is %d, %v, want %d", row.kinds, regs.HostifEvents.Name(), f.get(regs.HostifEvents), err, row.want)
		}
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.SetEvents(EventKinds{}); err == nil {
		t.Error("no error from a card that was shut down")
	}
}

func TestInject(t *testing.T) {
	c, f := testCard(t, Config{Rings: Rings{Inject: 4, FrameBytes: 128}})
	var want []injected
	for round := range 3 {
		for i := range 4 {
			s := fmt.Sprintf("frame %d of %d", i, round)
			send, verb := c.Emit, uint32(regs.InjectControlTypeEmit)
			if i%2 == 1 {
				send, verb = c.Reinject, regs.InjectControlTypeReinject
			}
			if err := send(i/2, []byte(s)); err != nil {
				t.Fatal(err)
			}
			want = append(want, injected{verb, uint32(i / 2), s})
		}
		if err := c.Emit(0, []byte("x")); !errors.Is(err, ErrRingFull) {
			t.Errorf("Emit = %v, want %v", err, ErrRingFull)
		}
		f.step()
		if len(f.injected) != 4*round {
			t.Errorf("%d frames left before Flush", len(f.injected)-4*round)
		}
		if round == 1 {
			c.CommitExceptions() // flushes, too
		} else {
			c.Flush()
		}
		f.step()
		if !slices.Equal(f.injected, want) {
			t.Errorf("injected %v, want %v", f.injected, want)
		}
	}
	for _, frame := range []string{"", strings.Repeat("x", 129)} {
		if err := c.Emit(0, []byte(frame)); !errors.Is(err, ErrFrameSize) {
			t.Errorf("Emit of %d bytes = %v, want %v", len(frame), err, ErrFrameSize)
		}
	}
	for _, port := range []int{-1, 2} {
		if err := c.Emit(port, []byte("x")); !errors.Is(err, device.ErrRange) {
			t.Errorf("Emit on port %d = %v, want %v", port, err, device.ErrRange)
		}
	}
}

// TestFrameAllocs: taking an exception and injecting an answer allocates nothing.
func TestFrameAllocs(t *testing.T) {
	c, _ := testCard(t, Config{})
	es := make([]Exception, 16)
	events := make([]regs.EventEntry, 16)
	frame := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		c.Exceptions(es)
		c.Events(events)
		if err := c.Emit(0, frame); err != nil {
			t.Fatal(err)
		}
		c.CommitExceptions()
		c.CommitEvents()
	}); n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEmit(b *testing.B) {
	f := newFakeCard()
	d := device.Local(f, device.LocalConfig{})
	defer d.Close()
	c, err := Open(b.Context(), d, Config{Pump: f.step})
	if err != nil {
		b.Fatal(err)
	}
	frame := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Emit(0, frame); err != nil {
			b.Fatal(err)
		}
		c.Flush()
		f.must(f.host.Store32(f.get64(ringReg(regs.RingWriteback, regs.RingInject)), c.inject.ring.Index()))
	}
}
