package driver

import (
	"fmt"
	"sync"
	"sync/atomic"

	"splicenic/driver/device"
	"splicenic/driver/ring"
	"splicenic/regs"
)

// batch is how many descriptors are taken from a ring at once.
const batch = 64

// An Exception is a frame that the card handed to the host.
type Exception struct {
	regs.ExceptionEntry
	// Frame is in DMA memory and valid until CommitExceptions. It is empty where the descriptor names bytes outside the
	// ring's buffers.
	Frame []byte
}

// Handle returns the connection the exception is about, zero if none.
func (e *Exception) Handle() Handle { return NewHandle(e.HandleN, e.HandleGeneration) }

// inbox is a ring that the card produces, with room for what is taken from it.
type inbox struct {
	ring *ring.Consumer
	ds   [batch]ring.Descriptor
}

// take takes a batch of at most n descriptors.
func (x *inbox) take(n int) []ring.Descriptor {
	return x.ds[:x.ring.Recv(x.ds[:min(batch, n)])]
}

type exceptions struct {
	inbox
	buffers    *device.DMA
	frameBytes uint32
}

type inject struct {
	mu         sync.Mutex
	ring       *ring.Producer
	buffers    *device.DMA
	frameBytes uint32
}

type stats struct {
	lostExceptions, lostEvents, badDescriptors, lostInterrupts, lateCompletions atomic.Uint64
}

// Stats counts what the host noticed and the card cannot.
type Stats struct {
	LostExceptions  uint64 // descriptors the ring had no room for
	LostEvents      uint64
	BadDescriptors  uint64 // descriptors that name memory outside the ring's buffers
	LostInterrupts  uint64 // completions found without an interrupt
	LateCompletions uint64 // completions of commands nobody waited for any more
}

// Stats returns the host's counters.
func (c *Card) Stats() Stats {
	s := &c.stats
	return Stats{s.lostExceptions.Load(), s.lostEvents.Load(), s.badDescriptors.Load(), s.lostInterrupts.Load(), s.lateCompletions.Load()}
}

// Exceptions takes frames from the exception ring and returns how many; zero where there are none, or the card is not up.
// It does not wait. One goroutine takes exceptions.
func (c *Card) Exceptions(es []Exception) int {
	x := &c.exceptions
	if x.ring == nil || c.dataPath() != nil {
		return 0
	}
	n := 0
	for ds := x.take(len(es)); len(ds) > 0; ds = x.take(len(es) - n) {
		for i := range ds {
			e := &es[n]
			e.Decode(ds[i][:])
			e.Frame = c.frame(&e.ExceptionEntry)
			n++
		}
	}
	c.stats.lostExceptions.Store(x.ring.Lost())
	return n
}

// frame returns the bytes a descriptor names.
func (c *Card) frame(e *regs.ExceptionEntry) []byte {
	return c.named(c.exceptions.buffers, c.exceptions.frameBytes, e.Length, e.IovaLo, e.IovaHi)
}

// named returns the bytes that a descriptor names in buffers of a size.
func (c *Card) named(buffers *device.DMA, most, length, lo, hi uint32) []byte {
	off := (uint64(lo) | uint64(hi)<<32) - buffers.IOVA
	size := uint64(len(buffers.Bytes))
	if n := uint64(length); n <= uint64(most) && off <= size && n <= size-off {
		return buffers.Bytes[off:][:n:n]
	}
	c.stats.badDescriptors.Add(1)
	return nil
}

// CommitExceptions gives the buffers of all exceptions taken back to the card. Injected frames leave first, so that what
// an exception led to precedes its end.
func (c *Card) CommitExceptions() {
	c.Flush()
	if c.exceptions.ring != nil && c.dataPath() == nil {
		c.exceptions.ring.Commit()
	}
}

// Events takes events from the event ring and returns how many; it does not wait. One goroutine takes events.
func (c *Card) Events(es []regs.EventEntry) int {
	x := &c.events
	if x.ring == nil || c.dataPath() != nil {
		return 0
	}
	n := 0
	for ds := x.take(len(es)); len(ds) > 0; ds = x.take(len(es) - n) {
		for i := range ds {
			es[n].Decode(ds[i][:])
			n++
		}
	}
	c.stats.lostEvents.Store(x.ring.Lost())
	return n
}

// Begin returns the begin of the head that an event brings: DMA memory, valid until CommitEvents. It is empty where the
// event brings none, or names bytes outside the ring's buffers.
func (c *Card) Begin(e *regs.EventEntry) []byte {
	if e.Length == 0 || c.begins == nil || c.dataPath() != nil {
		return nil
	}
	return c.named(c.begins, c.cfg.Rings.BeginBytes, e.Length, e.IovaLo, e.IovaHi)
}

// EventKinds says what the event ring tells beside connections opened, spliced and closed, and profiles.
type EventKinds struct {
	Established bool // a client completed its handshake
	FirstByte   bool // a server sent its first payload
	Heads       bool // a spliced event brings the begin of the head
}

// SetEvents says what the event ring tells from now on. A reset takes it back.
func (c *Card) SetEvents(k EventKinds) error {
	if err := c.dataPath(); err != nil {
		return fmt.Errorf("set events: %w", err)
	}
	w := regs.SetHostifEventsEstablished(0, bit(k.Established))
	w = regs.SetHostifEventsFirstByte(w, bit(k.FirstByte))
	c.Store(regs.HostifEvents, regs.SetHostifEventsHeads(w, bit(k.Heads)))
	return c.dev.Err()
}

// CommitEvents gives the slots of all events taken back to the card.
func (c *Card) CommitEvents() {
	if c.events.ring != nil && c.dataPath() == nil {
		c.events.ring.Commit()
	}
}

// Emit queues a frame to be sent on a port as it is. The bytes are copied; nothing leaves before Flush.
func (c *Card) Emit(port int, frame []byte) error {
	return c.send(regs.InjectEntry{ControlType: regs.InjectControlTypeEmit}, port, frame)
}

// Reinject queues a frame for a port's parser, as if it had been received there. Nothing leaves before Flush.
func (c *Card) Reinject(port int, frame []byte) error {
	return c.send(regs.InjectEntry{ControlType: regs.InjectControlTypeReinject}, port, frame)
}

// ReinjectDone is Reinject for a segment or datagram whose payload the host has read, or altered: it goes on.
func (c *Card) ReinjectDone(port int, frame []byte) error {
	return c.send(regs.InjectEntry{ControlType: regs.InjectControlTypeReinject, FlagsModuleDone: 1}, port, frame)
}

// ReinjectBack is Reinject for a frame that is not to leave yet: what would go to a wire comes back as an exception, with
// reason fragmented, the wire's port and the cookie, however long it is.
func (c *Card) ReinjectBack(port int, frame []byte, cookie uint32) error {
	return c.send(regs.InjectEntry{ControlType: regs.InjectControlTypeReinject, FlagsBack: 1, Cookie: cookie}, port, frame)
}

// send queues a frame with what its descriptor says beside where it is.
func (c *Card) send(e regs.InjectEntry, port int, frame []byte) error {
	x := &c.inject
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := c.dataPath(); err != nil {
		return fmt.Errorf("inject frame: %w", err)
	}
	if port < 0 || port >= regs.PortInstances {
		return fmt.Errorf("inject frame on port %d: %w", port, device.ErrRange)
	}
	if len(frame) == 0 || len(frame) > int(x.frameBytes) {
		return fmt.Errorf("inject frame of %d bytes: %w", len(frame), ErrFrameSize)
	}
	if x.ring.Free() == 0 {
		return ErrRingFull
	}
	off := uint64(x.ring.Slot()) * uint64(x.frameBytes)
	copy(x.buffers.Bytes[off:], frame)
	iova := x.buffers.IOVA + off
	e.ControlPort, e.Length, e.IovaLo, e.IovaHi = uint32(port), uint32(len(frame)), uint32(iova), uint32(iova>>32)
	var d [1]ring.Descriptor
	e.Encode(d[0][:])
	x.ring.Send(d[:])
	return nil
}

// Flush hands queued frames to the card.
func (c *Card) Flush() {
	c.inject.mu.Lock()
	defer c.inject.mu.Unlock()
	if c.dataPath() == nil {
		c.inject.ring.Commit()
	}
}
