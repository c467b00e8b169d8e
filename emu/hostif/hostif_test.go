package hostif

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"splicenic/driver/device"
	"splicenic/emu/regfile"
	"splicenic/regs"
)

// host is a host's memory: one mapping of bytes at base.
type host struct {
	base  uint64
	bytes []byte
	order []string // of writes, when not nil
}

func (h *host) at(iova uint64, n int) ([]byte, error) {
	if iova < h.base || iova-h.base > uint64(len(h.bytes)) || uint64(n) > uint64(len(h.bytes))-(iova-h.base) {
		return nil, device.ErrDMA
	}
	return h.bytes[iova-h.base:][:n], nil
}

func (h *host) Read(iova uint64, p []byte) error {
	b, err := h.at(iova, len(p))
	copy(p, b)
	return err
}

func (h *host) Write(iova uint64, p []byte) error {
	b, err := h.at(iova, len(p))
	copy(b, p)
	if h.order != nil {
		h.order = append(h.order, fmt.Sprintf("write %#x", iova-h.base))
	}
	return err
}

func (h *host) Load32(iova uint64) (uint32, error) {
	b, err := h.at(iova, 4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (h *host) Store32(iova uint64, v uint32) error {
	b, err := h.at(iova, 4)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(b, v)
	if h.order != nil {
		h.order = append(h.order, fmt.Sprintf("store %#x", iova-h.base))
	}
	return nil
}

// Where things lie in the host's memory of these tests.
const (
	base       = 0x1_0000_0000
	ringAt     = 0x0000
	buffersAt  = 0x4000
	writeback  = 0x8000
	injectedAt = 0x9000
	hostBytes  = 0xa000
	entries    = 8
	bufBytes   = 128
)

type bench struct {
	*testing.T
	reg    *regfile.File
	host   *host
	h      *Interface
	raised [Vectors]int
}

// newBench enables one ring; all rings lie in the same place.
func newBench(t *testing.T, ring int) *bench {
	b := &bench{T: t, reg: regfile.New(), host: &host{base: base, bytes: make([]byte, hostBytes)}}
	b.h = New(b.reg, func(v int) { b.raised[v]++ })
	b.h.SetHost(b.host)
	b.reg.Set(regs.HostifControl, regs.HostifControlEnableMask)
	b.reg.Set64(b.r(regs.RingIova, ring), base+ringAt)
	b.reg.Set(b.r(regs.RingEntries, ring), entries)
	b.reg.Set(b.r(regs.RingBufferBytes, ring), bufBytes)
	b.reg.Set64(b.r(regs.RingBuffers, ring), base+buffersAt)
	b.reg.Set64(b.r(regs.RingWriteback, ring), base+writeback)
	b.enable(ring)
	return b
}

func (b *bench) r(r regs.Reg, ring int) regs.Reg { return r.At(ring, regs.RingStride) }

func (b *bench) enable(ring int) {
	b.HostStore(b.r(regs.RingControl, ring), 1)
	if got := b.reg.Get(b.r(regs.RingStatus, ring)); got != regs.RingStatusRunningMask {
		b.Fatalf("ring %d: status %#x after enabling", ring, got)
	}
}

func (b *bench) HostStore(r regs.Reg, v uint32) {
	if b.reg.HostStore(uint32(r), v) == regfile.RingControl {
		b.h.Control()
	}
}

// words returns a descriptor as the host sees it.
func (b *bench) words(slot int) []uint32 {
	w := make([]uint32, descriptorWords)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b.host.bytes[ringAt+slot*descriptorBytes+4*i:])
	}
	return w
}

func (b *bench) counter(r regs.Reg, ring int, want uint64) {
	b.Helper()
	if got := b.reg.Get64(b.r(r, ring)); got != want {
		b.Errorf("%s = %d, want %d", b.r(r, ring).Name(), got, want)
	}
}

func TestException(t *testing.T) {
	b := newBench(t, regs.RingException)
	b.reg.Set(regs.TimerTick, 77)
	frame := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 20)
	b.h.Exception(frame, &regs.ExceptionEntry{ControlType: regs.ExceptionControlTypeFrame, ControlPort: 1, HandleN: 9, ReasonReason: regs.ExceptionReasonReasonIcmp})
	long := bytes.Repeat([]byte{7}, bufBytes+1)
	b.h.Exception(long, &regs.ExceptionEntry{ControlType: regs.ExceptionControlTypeFrame})
	b.h.Flush()
	for i, want := range []regs.ExceptionEntry{
		{ControlPhase: 1, ControlType: 1, ControlPort: 1, HandleN: 9, Length: 100, IovaLo: buffersAt, IovaHi: 1, Tick: 77, ReasonReason: regs.ExceptionReasonReasonIcmp},
		{ControlPhase: 1, ControlType: 1, Length: bufBytes, Sequence: 1, IovaLo: buffersAt + bufBytes, IovaHi: 1, Tick: 77},
	} {
		var got regs.ExceptionEntry
		got.Decode(b.words(i))
		if got != want {
			t.Errorf("descriptor %d = %+v, want %+v", i, got, want)
		}
	}
	if got := b.host.bytes[buffersAt:][:len(frame)]; !bytes.Equal(got, frame) {
		t.Errorf("frame = %x", got)
	}
	if got := b.host.bytes[buffersAt+bufBytes:][:bufBytes+1]; !bytes.Equal(got, append(bytes.Clone(long[:bufBytes]), 0)) {
		t.Errorf("long frame = %x", got)
	}
	b.counter(regs.RingTruncated, regs.RingException, 1)
	b.counter(regs.RingDescriptors, regs.RingException, 2)
	if got, _ := b.host.Load32(base + writeback); got != 2 {
		t.Errorf("index written back = %d, want 2", got)
	}
	if b.raised != [Vectors]int{1, 0, 0} {
		t.Errorf("raised %v: one interrupt per batch", b.raised)
	}
	b.h.Flush()
	if b.raised != [Vectors]int{1, 0, 0} {
		t.Errorf("raised %v by an empty batch", b.raised)
	}
}

// TestOwnershipLast: the control word, whose phase gives the descriptor to the host, is stored after all else.
func TestOwnershipLast(t *testing.T) {
	b := newBench(t, regs.RingException)
	b.host.order = []string{}
	b.h.Exception([]byte("frame"), &regs.ExceptionEntry{ControlType: 1})
	want := []string{fmt.Sprintf("write %#x", buffersAt), "write 0x4", "store 0x0"}
	if fmt.Sprint(b.host.order) != fmt.Sprint(want) {
		t.Errorf("order = %v, want %v", b.host.order, want)
	}
}

// TestPhaseWrap runs a ring the card produces across index 2^32 and checks every descriptor's phase and place.
func TestPhaseWrap(t *testing.T) {
	b := newBench(t, regs.RingEvent)
	start := ^uint32(0) - entries - 2
	b.reg.Set(b.r(regs.RingProducer, regs.RingEvent), start)
	b.reg.Set(b.r(regs.RingConsumer, regs.RingEvent), start)
	for i := range uint32(4 * entries) {
		index := start + i
		b.h.Event(&regs.EventEntry{ControlType: regs.EventControlTypeOpened, Rule: i}, nil)
		var got regs.EventEntry
		got.Decode(b.words(int(index % entries)))
		want := regs.EventEntry{ControlType: regs.EventControlTypeOpened, ControlPhase: 1 - index/entries%2, Sequence: i, Rule: i}
		if got != want {
			t.Fatalf("index %#x: descriptor %+v, want %+v", index, got, want)
		}
		b.HostStore(b.r(regs.RingConsumer, regs.RingEvent), index+1)
		b.h.Flush()
		if got, _ := b.host.Load32(base + writeback); got != index+1 {
			t.Fatalf("index %#x written back as %#x", index+1, got)
		}
	}
	b.counter(regs.RingLost, regs.RingEvent, 0)
	if b.raised[VectorEvent] != 4*entries {
		t.Errorf("raised %v", b.raised)
	}
}

// TestShare: what no connection waits with leaves a quarter of the exception ring free, and what can only be refused an
// eighth, for connections that are to come to a server.
func TestShare(t *testing.T) {
	b := newBench(t, regs.RingException)
	for _, x := range []struct {
		name   string
		reason uint32
		want   int // that find room behind those before
	}{
		{"fragments", regs.ExceptionReasonReasonFragment, entries - entries/4},
		{"clients that said too little", regs.ExceptionReasonReasonHeadTimeout, entries/4 - entries/8},
		{"bad requests", regs.ExceptionReasonReasonBadRequest, 0},
		{"requests to be altered", regs.ExceptionReasonReasonRewrite, entries / 8},
		{"servers that failed", regs.ExceptionReasonReasonServerFailed, 0},
	} {
		taken := 0
		for range 2 * entries {
			if b.h.Exception([]byte{1}, &regs.ExceptionEntry{ReasonReason: x.reason}) {
				taken++
			}
		}
		if taken != x.want {
			t.Errorf("%d %s find room, want %d", taken, x.name, x.want)
		}
	}
	b.counter(regs.RingLost, regs.RingException, 9*entries)
}

// TestFull: what does not fit is lost and counted, the sequence number tells, and nothing is overwritten.
func TestFull(t *testing.T) {
	b := newBench(t, regs.RingEvent)
	for i := range uint32(entries + 3) {
		b.h.Event(&regs.EventEntry{ControlType: regs.EventControlTypeClosed, Rule: i}, nil)
	}
	b.counter(regs.RingLost, regs.RingEvent, 3)
	b.counter(regs.RingDescriptors, regs.RingEvent, entries)
	if got := b.words(0)[regs.EventRule]; got != 0 {
		t.Errorf("slot 0 was overwritten by event %d", got)
	}
	b.HostStore(b.r(regs.RingConsumer, regs.RingEvent), 1)
	b.h.Event(&regs.EventEntry{ControlType: regs.EventControlTypeClosed, Rule: 99}, nil)
	var got regs.EventEntry
	got.Decode(b.words(0))
	if got.Sequence != entries+3 || got.Rule != 99 || got.ControlPhase != 0 {
		t.Errorf("after making room: %+v", got)
	}
	// A consumer index that overtakes the producer is no room either.
	b.HostStore(b.r(regs.RingConsumer, regs.RingEvent), 1000)
	b.h.Event(&regs.EventEntry{}, nil)
	b.counter(regs.RingLost, regs.RingEvent, 4)
}

func TestStopped(t *testing.T) {
	for _, x := range []struct {
		name string
		stop func(b *bench)
	}{
		{"ring disabled", func(b *bench) { b.HostStore(b.r(regs.RingControl, regs.RingCompletion), 0) }},
		{"interface disabled", func(b *bench) { b.HostStore(regs.HostifControl, 0) }},
		{"no host", func(b *bench) { b.h.SetHost(nil) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, regs.RingCompletion)
			x.stop(b)
			b.h.Completion(&regs.CompletionEntry{Sequence: 5})
			b.h.Flush()
			b.counter(regs.RingLost, regs.RingCompletion, 1)
			b.counter(regs.RingDescriptors, regs.RingCompletion, 0)
			if b.raised != [Vectors]int{} {
				t.Errorf("raised %v", b.raised)
			}
			b.h.SetHost(b.host)
			b.HostStore(regs.HostifControl, 1)
			b.enable(regs.RingCompletion)
			b.h.Completion(&regs.CompletionEntry{Sequence: 6})
			b.counter(regs.RingDescriptors, regs.RingCompletion, 1)
			if got := b.words(0)[regs.CompletionSequence]; got != 6 {
				t.Errorf("sequence = %d, want the command's", got)
			}
		})
	}
}

// TestUnmapped: an access the host refuses stops its ring, and only that.
func TestUnmapped(t *testing.T) {
	for _, x := range []struct {
		name string
		ring int
		reg  regs.Reg
		use  func(b *bench)
		lost uint64
	}{
		{"descriptor", regs.RingEvent, regs.RingIova, func(b *bench) { b.h.Event(&regs.EventEntry{}, nil) }, 1},
		{"frame buffer", regs.RingException, regs.RingBuffers, func(b *bench) { b.h.Exception([]byte{1}, &regs.ExceptionEntry{}) }, 1},
		{"write-back", regs.RingEvent, regs.RingWriteback, func(b *bench) { b.h.Event(&regs.EventEntry{}, nil) }, 0},
		{"command", regs.RingCommand, regs.RingIova, func(b *bench) {
			b.HostStore(b.r(regs.RingProducer, regs.RingCommand), 1)
			if b.h.NextCommand(&regs.CommandEntry{}) {
				b.Error("got a command")
			}
		}, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, x.ring)
			b.reg.Set64(b.r(x.reg, x.ring), 0x40)
			x.use(b)
			b.h.Flush()
			if got := b.reg.Get(b.r(regs.RingStatus, x.ring)); got != regs.RingStatusErrorMask {
				t.Errorf("status = %#x, want the error bit alone", got)
			}
			b.counter(regs.RingLost, x.ring, x.lost)
			if got := b.reg.Get64(regs.HostifDmaErrors); got != 1 {
				t.Errorf("dma_errors = %d", got)
			}
			if b.reg.Get(regs.HostifCause) != CauseDMA {
				t.Errorf("cause = %#x", b.reg.Get(regs.HostifCause))
			}
			b.h.Flush() // the cause of a write-back error is raised by the next batch
			if b.raised[VectorEvent] == 0 {
				t.Error("event vector not raised")
			}
			// Disabling and enabling with a good address starts it again.
			b.HostStore(b.r(regs.RingControl, x.ring), 0)
			b.reg.Set64(b.r(x.reg, x.ring), base+writeback)
			b.enable(x.ring)
		})
	}
}

func TestRefusedRegisters(t *testing.T) {
	for _, x := range []struct {
		name string
		set  func(b *bench)
	}{
		{"no entries", func(b *bench) { b.reg.Set(b.r(regs.RingEntries, regs.RingException), 0) }},
		{"entries not a power of two", func(b *bench) { b.reg.Set(b.r(regs.RingEntries, regs.RingException), 12) }},
		{"too many entries", func(b *bench) { b.reg.Set(b.r(regs.RingEntries, regs.RingException), 1<<17) }},
		{"base not aligned", func(b *bench) { b.reg.Set64(b.r(regs.RingIova, regs.RingException), base+32) }},
		{"write-back not aligned", func(b *bench) { b.reg.Set64(b.r(regs.RingWriteback, regs.RingException), base+4) }},
		{"no buffers", func(b *bench) { b.reg.Set(b.r(regs.RingBufferBytes, regs.RingException), 0) }},
		{"buffers not aligned", func(b *bench) { b.reg.Set(b.r(regs.RingBufferBytes, regs.RingException), 100) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, regs.RingException)
			b.HostStore(b.r(regs.RingControl, regs.RingException), 0)
			x.set(b)
			b.HostStore(b.r(regs.RingControl, regs.RingException), 1)
			if got := b.reg.Get(b.r(regs.RingStatus, regs.RingException)); got != regs.RingStatusErrorMask {
				t.Errorf("status = %#x, want the error bit", got)
			}
			b.h.Exception([]byte{1}, &regs.ExceptionEntry{})
			b.counter(regs.RingLost, regs.RingException, 1)
		})
	}
}

// put writes a descriptor of the host's.
func (b *bench) put(slot int, e interface{ Encode([]uint32) }) {
	var w [descriptorWords]uint32
	e.Encode(w[:])
	for i, v := range w {
		binary.LittleEndian.PutUint32(b.host.bytes[ringAt+slot*descriptorBytes+4*i:], v)
	}
}

func TestCommand(t *testing.T) {
	b := newBench(t, regs.RingCommand)
	start := ^uint32(0) - 2
	b.reg.Set(b.r(regs.RingProducer, regs.RingCommand), start)
	b.reg.Set(b.r(regs.RingConsumer, regs.RingCommand), start)
	var e regs.CommandEntry
	if b.h.NextCommand(&e) {
		t.Fatal("a command from an empty ring")
	}
	for i := range uint32(entries) {
		b.put(int((start+i)%entries), &regs.CommandEntry{ControlType: regs.CommandControlTypeFill, Cookie: 100 + i, Sequence: i})
	}
	b.HostStore(b.r(regs.RingProducer, regs.RingCommand), start+entries)
	for i := range uint32(entries) {
		if !b.h.NextCommand(&e) || e.Cookie != 100+i || e.Sequence != i {
			t.Fatalf("command %d: %+v", i, e)
		}
	}
	if b.h.NextCommand(&e) {
		t.Error("one command too many")
	}
	b.h.Flush()
	if got, _ := b.host.Load32(base + writeback); got != start+entries {
		t.Errorf("consumer written back as %#x, want %#x", got, start+entries)
	}
	b.counter(regs.RingDescriptors, regs.RingCommand, entries)
	// A doorbell beyond the ring's size is the host's error.
	b.HostStore(b.r(regs.RingProducer, regs.RingCommand), start+3*entries)
	if b.h.NextCommand(&e) {
		t.Error("a command behind a doorbell out of range")
	}
	if got := b.reg.Get(b.r(regs.RingStatus, regs.RingCommand)); got != regs.RingStatusErrorMask {
		t.Errorf("status = %#x", got)
	}
}

func TestInject(t *testing.T) {
	b := newBench(t, regs.RingInject)
	copy(b.host.bytes[injectedAt:], "a frame of the host")
	for i, e := range []regs.InjectEntry{
		{ControlType: regs.InjectControlTypeEmit, ControlPort: 1, Length: 7, IovaLo: injectedAt, IovaHi: 1},
		{ControlType: regs.InjectControlTypeReinject, Length: 65, IovaLo: injectedAt, IovaHi: 1},
		{ControlType: regs.InjectControlTypeEmit, Length: 0, IovaLo: injectedAt, IovaHi: 1},
		{ControlType: regs.InjectControlTypeReinject, Length: 19, IovaLo: injectedAt, IovaHi: 1},
		{ControlType: regs.InjectControlTypeEmit, Length: 4, IovaLo: 0, IovaHi: 0},
	} {
		b.put(i, &e)
	}
	b.HostStore(b.r(regs.RingProducer, regs.RingInject), 5)
	buf := make([]byte, 64)
	var e regs.InjectEntry
	for i, want := range []string{"a frame", "", "", "a frame of the host", ""} {
		n, ok := b.h.NextInject(&e, buf)
		if !ok || string(buf[:n]) != want {
			t.Errorf("frame %d = %q %v, want %q", i, buf[:n], ok, want)
		}
	}
	b.counter(regs.RingTruncated, regs.RingInject, 2)
	if _, ok := b.h.NextInject(&e, buf); ok {
		t.Error("the ring goes on after a DMA error")
	}
	if got := b.reg.Get64(regs.HostifDmaErrors); got != 1 {
		t.Errorf("dma_errors = %d", got)
	}
}

func TestCause(t *testing.T) {
	b := newBench(t, regs.RingEvent)
	b.h.Cause(CauseLink)
	b.h.Cause(CauseLink)
	b.h.Flush()
	b.h.Cause(CauseLink)
	b.h.Flush()
	if b.raised[VectorEvent] != 1 {
		t.Errorf("raised %v: a cause that is set already", b.raised)
	}
	b.HostStore(regs.HostifCause, CauseLink)
	b.h.Cause(CauseLink | CauseHeadLow)
	b.h.Flush()
	if b.raised[VectorEvent] != 2 || b.reg.Get(regs.HostifCause) != CauseLink|CauseHeadLow {
		t.Errorf("raised %v, cause %#x", b.raised, b.reg.Get(regs.HostifCause))
	}
	if got := b.reg.Get64(regs.HostifInterrupts); got != 2 {
		t.Errorf("interrupts = %d", got)
	}
}

func TestDropCompletions(t *testing.T) {
	b := newBench(t, regs.RingCompletion)
	b.h.DropCompletions(2)
	for i := range uint32(3) {
		b.h.Completion(&regs.CompletionEntry{Sequence: i})
	}
	b.counter(regs.RingDescriptors, regs.RingCompletion, 1)
	if got := b.words(0)[regs.CompletionSequence]; got != 2 {
		t.Errorf("completion of command %d came through, want 2", got)
	}
}

func TestNoAllocations(t *testing.T) {
	b := newBench(t, regs.RingException)
	frame := make([]byte, 100)
	var e regs.ExceptionEntry
	if n := testing.AllocsPerRun(100, func() {
		b.h.Exception(frame, &e)
		b.h.Flush()
		b.reg.Set(b.r(regs.RingConsumer, regs.RingException), b.reg.Get(b.r(regs.RingProducer, regs.RingException)))
	}); n != 0 {
		t.Errorf("exception: %v allocations", n)
	}
	c := newBench(t, regs.RingInject)
	c.put(0, &regs.InjectEntry{Length: 64, IovaLo: injectedAt, IovaHi: 1})
	buf := make([]byte, 2048)
	var in regs.InjectEntry
	if n := testing.AllocsPerRun(100, func() {
		c.reg.Set(c.r(regs.RingConsumer, regs.RingInject), 0)
		c.reg.Set(c.r(regs.RingProducer, regs.RingInject), 1)
		if n, ok := c.h.NextInject(&in, buf); n != 64 || !ok {
			t.Fatal("no frame")
		}
		c.h.Flush()
	}); n != 0 {
		t.Errorf("inject: %v allocations", n)
	}
}

func BenchmarkException(b *testing.B) {
	for _, size := range []int{64, 1514} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x := newBench(&testing.T{}, regs.RingException)
			x.reg.Set(regs.RingBufferBytes, 2048)
			frame := make([]byte, size)
			var e regs.ExceptionEntry
			b.ReportAllocs()
			for b.Loop() {
				x.h.Exception(frame, &e)
				x.h.Flush()
				x.reg.Set(regs.RingConsumer, x.reg.Get(regs.RingProducer))
			}
		})
	}
}

// TestEventHead: the begin of a head goes to the slot's buffer, as far as there is room; without buffers an event goes
// alone, and one whose head the host refuses is lost.
func TestEventHead(t *testing.T) {
	head := bytes.Repeat([]byte("0123456789abcdef"), bufBytes/16+1)
	for _, x := range []struct {
		name         string
		size         uint32
		head         []byte
		length, lost uint32
	}{
		{"fits", bufBytes, head[:9], 9, 0},
		{"is cut", bufBytes, head, bufBytes, 0},
		{"none", bufBytes, nil, 0, 0},
		{"no buffers", 0, head, 0, 0},
		{"refused", bufBytes, head, 0, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, regs.RingEvent)
			b.reg.Set(b.r(regs.RingBufferBytes, regs.RingEvent), x.size)
			if x.lost != 0 {
				b.reg.Set64(b.r(regs.RingBuffers, regs.RingEvent), 0)
			}
			b.h.Event(&regs.EventEntry{}, nil)
			b.h.Event(&regs.EventEntry{ControlType: regs.EventControlTypeSpliced}, x.head)
			b.counter(regs.RingLost, regs.RingEvent, uint64(x.lost))
			b.counter(regs.RingTruncated, regs.RingEvent, 0)
			if x.lost != 0 {
				return
			}
			var got regs.EventEntry
			got.Decode(b.words(1))
			want := regs.EventEntry{ControlType: regs.EventControlTypeSpliced, ControlPhase: 1, Sequence: 1, Length: x.length}
			if x.length != 0 {
				at := uint64(base + buffersAt + bufBytes)
				want.IovaLo, want.IovaHi = uint32(at), uint32(at>>32)
			}
			if got != want || !bytes.Equal(b.host.bytes[buffersAt+bufBytes:][:x.length], x.head[:x.length]) {
				t.Errorf("event %+v, want %+v", got, want)
			}
		})
	}
	// Buffers that make no sense stop the ring before it runs.
	b := newBench(t, regs.RingEvent)
	b.HostStore(b.r(regs.RingControl, regs.RingEvent), 0)
	b.reg.Set(b.r(regs.RingBufferBytes, regs.RingEvent), 100)
	b.HostStore(b.r(regs.RingControl, regs.RingEvent), 1)
	if got := b.reg.Get(b.r(regs.RingStatus, regs.RingEvent)); got != regs.RingStatusErrorMask {
		t.Errorf("status %#x with buffers of 100 bytes", got)
	}
}
