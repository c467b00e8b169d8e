package driver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/ring"
	"splicenic/regs"
)

// Rings sizes the rings in descriptors, powers of two of at most 65,536. Memory is touched only as frames use it.
type Rings struct {
	Exception, Event, Completion, Inject, Command uint32 // zero: 512, 4096, 256, 512, 256
	FrameBytes                                    uint32 // buffer of an exception or injected frame; zero: 65,536
}

// Timers are the card's time-outs in whole milliseconds.
type Timers struct {
	Interval, SynRcvd, WaitHead, ServerSyn, Idle, Closing, Quarantine, Retransmit time.Duration
	RetransmitLimit                                                               uint32
}

// A PortConfig says how a port works.
type PortConfig struct {
	Enable, Promiscuous, Loopback bool
	MAC                           [6]byte // zero: as it is
	MTU                           uint16  // zero: as it is
}

// PCI configuration space.
const (
	configCommand = 4
	memorySpace   = 1 << 1
	busMaster     = 1 << 2
)

// bringUp takes a card with stopped rings to one whose rings run. About 110 accesses, whatever the geometry.
func (c *Card) bringUp(ctx context.Context, keep bool) error {
	if err := c.setCommand(memorySpace|busMaster, 0); err != nil {
		return fmt.Errorf("enable bus master: %w", err)
	}
	bits := regs.ControlResetHostInterfaceMask
	if !keep {
		bits |= regs.ControlResetDataPathMask
	}
	if err := c.reset(ctx, bits); err != nil {
		return err
	}
	if st := c.Load(regs.ControlStatus); regs.ControlStatusFault(st) != 0 {
		return fmt.Errorf("bring up: %w, code %d", ErrFault, regs.ControlFaultCode(c.Load(regs.ControlFault)))
	}
	if !keep {
		if err := c.storeKeys(); err != nil {
			return err
		}
	}
	if err := c.storeTimers(&c.cfg.Timers); err != nil {
		return err
	}
	if err := c.startRings(); err != nil {
		return err
	}
	c.up.Store(true)
	for i, p := range c.cfg.Ports {
		if p != (PortConfig{}) {
			if err := c.SetPort(i, p); err != nil {
				return err
			}
		}
	}
	return c.dev.Err()
}

// reset starts resets and waits until they are done.
func (c *Card) reset(ctx context.Context, bits uint32) error {
	c.Store(regs.ControlReset, bits)
	err := c.poll(ctx, func() bool { return c.Load(regs.ControlReset)&bits == 0 })
	if err != nil {
		return fmt.Errorf("wait for %s: %w", regs.ControlReset.Name(), err)
	}
	return nil
}

// storeKeys gives the CAMs and the transmit ends keys nobody can guess.
func (c *Card) storeKeys() error {
	src := c.cfg.Random
	if src == nil {
		src = rand.Reader
	}
	arrays := []struct {
		reg             regs.Reg
		stride, element regs.Reg
		n               int
	}{
		{regs.CamHashKey, regs.CamStride, regs.CamHashKeyStride, regs.CamHashKeyCount},
		{regs.TransmitIsnKey, regs.TransmitStride, regs.TransmitIsnKeyStride, regs.TransmitIsnKeyCount},
	}
	for _, a := range arrays {
		for instance := range 2 {
			var b [16]byte
			if _, err := io.ReadFull(src, b[:]); err != nil {
				return fmt.Errorf("draw keys: %w", err)
			}
			for i := range min(a.n, 4) {
				c.Store(a.reg.At(instance, a.stride).At(i, a.element), binary.LittleEndian.Uint32(b[4*i:]))
			}
		}
	}
	return nil
}

func (c *Card) storeTimers(t *Timers) error {
	timers := []struct {
		reg regs.Reg
		d   time.Duration
	}{
		{regs.TimerInterval, t.Interval}, {regs.TimerSynRcvd, t.SynRcvd}, {regs.TimerWaitHead, t.WaitHead},
		{regs.TimerServerSyn, t.ServerSyn}, {regs.TimerIdle, t.Idle}, {regs.TimerClosing, t.Closing},
		{regs.TimerQuarantine, t.Quarantine}, {regs.TimerRetransmit, t.Retransmit},
	}
	for _, x := range timers {
		if x.d == 0 {
			continue
		}
		ms := x.d.Milliseconds()
		if ms < 1 || ms > int64(regs.TimerIdleTicksMask) {
			return fmt.Errorf("set %s to %v: %w", x.reg.Name(), x.d, device.ErrRange)
		}
		c.Store(x.reg, uint32(ms))
	}
	if n := t.RetransmitLimit; n != 0 {
		if n > regs.TimerRetransmitLimitTimesMask {
			return fmt.Errorf("set %s to %d: %w", regs.TimerRetransmitLimit.Name(), n, device.ErrRange)
		}
		c.Store(regs.TimerRetransmitLimit, n)
	}
	return nil
}

// SetPort stores how a port works.
func (c *Card) SetPort(port int, p PortConfig) error {
	if err := c.dataPath(); err != nil {
		return fmt.Errorf("set port %d: %w", port, err)
	}
	if port < 0 || port >= regs.PortInstances {
		return fmt.Errorf("set port %d: %w", port, device.ErrRange)
	}
	at := func(r regs.Reg) regs.Reg { return r.At(port, regs.PortStride) }
	if p.MAC != [6]byte{} {
		lo, hi := MACWords(p.MAC)
		c.Store(at(regs.PortMacLo), lo)
		c.Store(at(regs.PortMacHi), hi)
	}
	if p.MTU != 0 {
		c.Store(at(regs.PortMtu), uint32(p.MTU))
	}
	w := regs.SetPortControlEnable(0, bit(p.Enable))
	w = regs.SetPortControlPromiscuous(w, bit(p.Promiscuous))
	w = regs.SetPortControlLoopback(w, bit(p.Loopback))
	c.Store(at(regs.PortControl), w)
	return c.dev.Err()
}

// Accept says whether the card accepts new connections.
func (c *Card) Accept(on bool) error {
	if err := c.dataPath(); err != nil {
		return fmt.Errorf("accept connections: %w", err)
	}
	c.Store(regs.AmuControl, regs.SetAmuControlEnable(0, bit(on)))
	return c.dev.Err()
}

// alloc allocates memory that is freed at tear-down.
func (c *Card) alloc(name string, n uint64) (*device.DMA, error) {
	m, err := c.dev.AllocDMA(name, int(n))
	if err == nil {
		c.dma = append(c.dma, m)
	}
	return m, err
}

func pick(v, or uint32) uint32 {
	if v == 0 {
		return or
	}
	return v
}

// startRings allocates memory, programs the rings and lets them run. Their indexes go on from where the card stands.
func (c *Card) startRings() error {
	if err := c.dev.EnableVectors(vectors); err != nil {
		return err
	}
	r := c.cfg.Rings
	frame := pick(r.FrameBytes, 1<<16)
	if frame%64 != 0 || frame > 1<<16 {
		return fmt.Errorf("start rings: frame buffers of %d bytes: %w", frame, device.ErrRange)
	}
	// A line each for the writeback words of inject and command: no two owners share one.
	words, err := c.alloc("ring-indexes", 2*ring.DescriptorBytes)
	if err != nil {
		return err
	}
	c.Store(regs.HostifControl, regs.SetHostifControlEnable(0, 1))
	exceptions, err1 := c.startConsumer(regs.RingException, pick(r.Exception, 512), frame)
	events, err2 := c.startConsumer(regs.RingEvent, pick(r.Event, 4096), 0)
	completions, err3 := c.startConsumer(regs.RingCompletion, pick(r.Completion, 256), 0)
	injected, err4 := c.startProducer(regs.RingInject, pick(r.Inject, 512), words, 0)
	commands, err5 := c.startProducer(regs.RingCommand, pick(r.Command, 256), words, ring.DescriptorBytes)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	c.exceptions.ring, c.exceptions.frameBytes = exceptions, frame
	c.events.ring = events
	c.completions, c.commands, c.inFlight = completions, commands, 0
	buffers, err := c.alloc("inject-frames", uint64(frame)*uint64(injected.Entries()))
	if err != nil {
		return err
	}
	c.inject.ring, c.inject.buffers, c.inject.frameBytes = injected, buffers, frame
	c.staging, err = c.alloc("staging", stagingBytes)
	return err
}

func ringReg(r regs.Reg, i int) regs.Reg { return r.At(i, regs.RingStride) }

// startConsumer starts a ring that the card produces; frameBytes other than zero gives its slots buffers.
func (c *Card) startConsumer(i int, entries, frameBytes uint32) (*ring.Consumer, error) {
	mem, err := c.ringMemory(i, entries)
	if err != nil {
		return nil, err
	}
	if frameBytes != 0 {
		buffers, err := c.alloc("exception-frames", uint64(frameBytes)*uint64(entries))
		if err != nil {
			return nil, err
		}
		c.exceptions.buffers = buffers
		c.Store(ringReg(regs.RingBufferBytes, i), frameBytes)
		c.Store64(ringReg(regs.RingBuffers, i), buffers.IOVA)
	}
	start := c.Load(ringReg(regs.RingProducer, i))
	consumer := ringReg(regs.RingConsumer, i)
	r, err := ring.NewConsumer(mem, start, c.Load(ringReg(regs.RingSequence, i)), ring.Bell{Dev: &c.bars, Region: device.Bar0, Off: uint64(consumer)})
	if err != nil {
		return nil, err
	}
	c.Store(consumer, start)
	c.Store(ringReg(regs.RingControl, i), regs.SetRingControlEnable(0, 1))
	return r, nil
}

// startProducer starts a ring that the host produces; the card writes its index to words at off.
func (c *Card) startProducer(i int, entries uint32, words *device.DMA, off uint64) (*ring.Producer, error) {
	mem, err := c.ringMemory(i, entries)
	if err != nil {
		return nil, err
	}
	start := c.Load(ringReg(regs.RingConsumer, i))
	producer := ringReg(regs.RingProducer, i)
	r, err := ring.NewProducer(mem, words.Bytes[off:][:4], start, ring.Bell{Dev: &c.bars, Region: device.Bar0, Off: uint64(producer)})
	if err != nil {
		return nil, err
	}
	c.Store64(ringReg(regs.RingWriteback, i), words.IOVA+off)
	c.Store(producer, start)
	c.Store(ringReg(regs.RingControl, i), regs.SetRingControlEnable(0, 1))
	return r, nil
}

// ringMemory allocates the descriptors of a ring and tells the card.
func (c *Card) ringMemory(i int, entries uint32) ([]byte, error) {
	n := int(entries) * ring.DescriptorBytes
	m, err := c.alloc("ring-"+ringNames[i], uint64(n))
	if err != nil {
		return nil, err
	}
	c.Store64(ringReg(regs.RingIova, i), m.IOVA)
	c.Store(ringReg(regs.RingEntries, i), entries)
	return m.Bytes[:n], nil
}

var ringNames = [regs.RingInstances]string{"exception", "event", "completion", "inject", "command"}

// tearDown undoes bringUp as far as it went: stop the rings, Load, wait until idle, bus master off, unmap. The memory is
// freed even where the card does not answer, because by then it can no longer reach it.
func (c *Card) tearDown(ctx context.Context) error {
	c.inject.mu.Lock() // nobody is about to queue a frame
	c.up.Store(false)
	c.inject.mu.Unlock()
	var idle error
	if len(c.dma) > 0 && c.dev.Err() == nil {
		for i := range regs.RingInstances {
			c.Store(ringReg(regs.RingControl, i), 0)
		}
		idle = c.poll(ctx, func() bool {
			busy := regs.HostifStatusBusy(c.Load(regs.HostifStatus))
			for i := range regs.RingInstances {
				busy |= regs.RingStatusRunning(c.Load(ringReg(regs.RingStatus, i)))
			}
			return busy == 0
		})
		c.Store(regs.HostifControl, 0)
		c.Load(regs.HostifControl)
	}
	err := idle
	if c.dev.Err() == nil {
		err = errors.Join(err, c.setCommand(0, busMaster), c.dev.EnableVectors(0))
	}
	for _, m := range c.dma {
		err = errors.Join(err, m.Close())
	}
	c.dma = nil
	return err
}

// setCommand sets and clears bits of the PCI command register.
func (c *Card) setCommand(set, unset uint16) error {
	var b [2]byte
	if err := c.dev.ReadConfig(configCommand, b[:]); err != nil {
		return err
	}
	old := binary.LittleEndian.Uint16(b[:])
	binary.LittleEndian.PutUint16(b[:], old&^unset|set)
	return c.dev.WriteConfig(configCommand, b[:])
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
