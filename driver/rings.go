package driver

import (
	"fmt"

	"splicenic/driver/device"
	"splicenic/driver/ring"
	"splicenic/regs"
)

// Rings sizes the rings in descriptors, powers of two of at most 65,536. Memory is touched only as frames use it.
type Rings struct {
	Exception, Event, Completion, Inject, Command uint32 // zero: 512, 4096, 256, 512, 256
	FrameBytes                                    uint32 // buffer of an exception or injected frame; zero: 65,536
	BeginBytes                                    uint32 // buffer of an event, for the begin of a head; zero: 2048
}

// withDefaults fills in what is zero.
func (r Rings) withDefaults() Rings {
	pick := func(v *uint32, or uint32) {
		if *v == 0 {
			*v = or
		}
	}
	pick(&r.Exception, 512)
	pick(&r.Event, 4096)
	pick(&r.Completion, 256)
	pick(&r.Inject, 512)
	pick(&r.Command, 256)
	pick(&r.FrameBytes, 1<<16)
	pick(&r.BeginBytes, 2048)
	return r
}

func (r *Rings) entries() [regs.RingInstances]uint32 {
	return [...]uint32{
		regs.RingException: r.Exception, regs.RingEvent: r.Event, regs.RingCompletion: r.Completion,
		regs.RingInject: r.Inject, regs.RingCommand: r.Command,
	}
}

var ringNames = [regs.RingInstances]string{"exception", "event", "completion", "inject", "command"}

func ringReg(r regs.Reg, i int) regs.Reg { return r.At(i, regs.RingStride) }

// ringMemory is the host memory of the rings, frame buffers aside.
type ringMemory struct {
	descriptors [regs.RingInstances]*device.DMA
	indexes     *device.DMA // a line each, so that no two owners share one
}

// line returns a ring's line of the memory for indexes: the note of a ring the card produces, the writeback word of one
// that the host does.
func (m *ringMemory) line(i int) []byte { return m.indexes.Bytes[m.offset(i):][:ring.DescriptorBytes] }

func (m *ringMemory) offset(i int) uint64 { return uint64(i) * ring.DescriptorBytes }

// writeback is where the card writes its index of a ring to.
func (m *ringMemory) writeback(i int) uint64 { return m.indexes.IOVA + m.offset(i) }

// alloc allocates memory that is freed at tear-down.
func (c *Card) alloc(name string, n uint64) (*device.DMA, error) {
	m, err := c.dev.AllocDMA(name, int(n))
	if err == nil {
		c.dma = append(c.dma, m)
	}
	return m, err
}

// allocate allocates everything that the card reaches: always the same names and sizes in the same order, so that a
// successor gets the same memory.
func (c *Card) allocate() error {
	r := &c.cfg.Rings
	frame := uint64(r.FrameBytes)
	if frame%64 != 0 || frame > 1<<16 {
		return fmt.Errorf("allocate rings: frame buffers of %d bytes: %w", frame, device.ErrRange)
	}
	if b := r.BeginBytes; b%64 != 0 || b > 1<<16 {
		return fmt.Errorf("allocate rings: event buffers of %d bytes: %w", b, device.ErrRange)
	}
	var err error
	take := func(to **device.DMA, name string, n uint64) {
		if err == nil {
			*to, err = c.alloc(name, n)
		}
	}
	take(&c.rings.indexes, "ring-indexes", regs.RingInstances*ring.DescriptorBytes)
	for i, n := range r.entries() {
		take(&c.rings.descriptors[i], "ring-"+ringNames[i], uint64(n)*ring.DescriptorBytes)
	}
	take(&c.exceptions.buffers, "exception-frames", frame*uint64(r.Exception))
	take(&c.inject.buffers, "inject-frames", frame*uint64(r.Inject))
	take(&c.staging, "staging", stagingBytes)
	take(&c.begins, "event-begins", uint64(r.BeginBytes)*uint64(r.Event)) // the last: a predecessor may have had none
	c.exceptions.frameBytes, c.inject.frameBytes = r.FrameBytes, r.FrameBytes
	return err
}

// descriptors returns the memory of ring i without the rest of its last page.
func (c *Card) descriptors(i int) []byte {
	return c.rings.descriptors[i].Bytes[:c.cfg.Rings.entries()[i]*ring.DescriptorBytes]
}

func (c *Card) bell(r regs.Reg) ring.Bell {
	return ring.Bell{Dev: &c.bars, Region: device.Bar0, Off: uint64(r)}
}

// consumers and producers are the host's halves of the rings.
func (c *Card) consumers() [regs.RingInject]**ring.Consumer {
	return [...]**ring.Consumer{regs.RingException: &c.exceptions.ring, regs.RingEvent: &c.events.ring, regs.RingCompletion: &c.completions}
}

func (c *Card) producers() [regs.RingInstances]**ring.Producer {
	return [...]**ring.Producer{regs.RingInject: &c.inject.ring, regs.RingCommand: &c.commands}
}

// startRings programs rings that stand still and lets them run. Their indexes go on from where the card has them.
func (c *Card) startRings() error {
	c.Store(regs.HostifControl, regs.SetHostifControlEnable(0, 1))
	c.Store(ringReg(regs.RingBufferBytes, regs.RingException), c.exceptions.frameBytes)
	c.Store64(ringReg(regs.RingBuffers, regs.RingException), c.exceptions.buffers.IOVA)
	c.storeBegins()
	for i, n := range c.cfg.Rings.entries() {
		c.Store64(ringReg(regs.RingIova, i), c.rings.descriptors[i].IOVA)
		c.Store(ringReg(regs.RingEntries, i), n)
		if err := c.startRing(i); err != nil {
			return fmt.Errorf("start %s ring: %w", ringNames[i], err)
		}
		c.Store(ringReg(regs.RingControl, i), regs.SetRingControlEnable(0, 1))
	}
	c.inFlight = 0
	return nil
}

// storeBegins gives the event ring its buffers; the card uses them from the last store on.
func (c *Card) storeBegins() {
	c.Store64(ringReg(regs.RingBuffers, regs.RingEvent), c.begins.IOVA)
	c.Store(ringReg(regs.RingBufferBytes, regs.RingEvent), c.cfg.Rings.BeginBytes)
}

// startRing brings the memory of a ring in order. The doorbell precedes what enables the ring.
func (c *Card) startRing(i int) (err error) {
	consumer, producer := ringReg(regs.RingConsumer, i), ringReg(regs.RingProducer, i)
	if i >= regs.RingInject {
		start := c.Load(consumer)
		*c.producers()[i], err = ring.NewProducer(c.descriptors(i), c.rings.line(i), start, c.bell(producer))
		c.Store64(ringReg(regs.RingWriteback, i), c.rings.writeback(i))
		c.Store(producer, start)
		return err
	}
	start := c.Load(producer)
	*c.consumers()[i], err = ring.NewConsumer(c.descriptors(i), c.rings.line(i), start, c.Load(ringReg(regs.RingSequence, i)), c.bell(consumer))
	c.Store(consumer, start)
	return err
}

// resumeRing goes on with a ring that runs in the memory it was left in.
func (c *Card) resumeRing(i int) (err error) {
	consumer, producer := ringReg(regs.RingConsumer, i), ringReg(regs.RingProducer, i)
	consumed := c.Load(consumer)
	produced := c.Load(producer)
	if i >= regs.RingInject {
		*c.producers()[i], err = ring.ResumeProducer(c.descriptors(i), c.rings.line(i), produced, consumed, c.bell(producer))
		return err
	}
	*c.consumers()[i], err = ring.ResumeConsumer(c.descriptors(i), c.rings.line(i), consumed, produced, c.bell(consumer))
	return err
}
