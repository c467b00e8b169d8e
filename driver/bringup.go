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
	"splicenic/regs"
)

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

// bringUp takes a card to one whose rings run, by a reset or from where a predecessor left it. About 120 accesses,
// whatever the geometry.
func (c *Card) bringUp(ctx context.Context, adopt bool) error {
	adopted, continued := adopt && c.configured(), false
	err := c.dev.Err()
	if err == nil && adopted {
		continued, err = c.resume(ctx)
	}
	if err == nil && !continued {
		err = c.restart(ctx, adopted)
	}
	if err != nil {
		return err
	}
	if err := c.storeTimers(&c.cfg.Timers); err != nil {
		return err
	}
	c.adopted.Store(adopted)
	c.continued.Store(continued)
	c.up.Store(true)
	for i, p := range c.cfg.Ports {
		if p != (PortConfig{}) {
			if err := c.SetPort(i, p); err != nil {
				return err
			}
		}
	}
	if err := c.alive(); err != nil {
		return err
	}
	c.ours = true
	return nil
}

// restart resets host interface and, unless tables and connections are to stay, data path, and starts the rings.
func (c *Card) restart(ctx context.Context, keep bool) error {
	c.ours = true
	bits := regs.ControlResetHostInterfaceMask
	if !keep {
		bits |= regs.ControlResetDataPathMask
	}
	if err := c.reset(ctx, bits); err != nil {
		return err
	}
	// The last bulk command of a predecessor must not be completed into the new rings.
	if err := c.poll(ctx, func() bool { return !c.bulkBusy() }); err != nil {
		return fmt.Errorf("wait for the end of a bulk command: %w", err)
	}
	st, fault := c.Load(regs.ControlStatus), c.Load(regs.ControlFault)
	if err := c.dev.Err(); err != nil {
		return err
	}
	if regs.ControlStatusFault(st) != 0 {
		return fmt.Errorf("bring up: %w, code %d", ErrFault, regs.ControlFaultCode(fault))
	}
	if !keep {
		if err := c.storeKeys(); err != nil {
			return err
		}
	}
	if len(c.dma) == 0 {
		if err := c.allocate(); err != nil {
			return err
		}
	}
	if err := c.enable(); err != nil {
		return err
	}
	return c.startRings()
}

// enable lets the card reach memory and raise interrupts.
func (c *Card) enable() error {
	if err := c.setCommand(memorySpace|busMaster, 0); err != nil {
		return fmt.Errorf("enable bus master: %w", err)
	}
	return c.dev.EnableVectors(vectors)
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

// storeKeys gives the CAMs, the transmit ends and the SYN defence keys nobody can guess.
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
		{regs.DefenceKey, 0, regs.DefenceKeyStride, regs.DefenceKeyCount},
	}
	for _, a := range arrays {
		for instance := range 2 {
			if a.stride == 0 && instance > 0 {
				break
			}
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

// tearDown undoes bringUp as far as it went: stop the rings, Load, wait until idle, bus master off, unmap. The memory is
// freed even where the card does not answer, because by then it can no longer reach it. A card that is not ours, or not
// any more, is left as it is.
func (c *Card) tearDown(ctx context.Context) error {
	c.close()
	if !c.ours {
		c.forget()
		return nil
	}
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
		if idle == nil {
			idle = c.dev.Err()
		}
	}
	err := idle
	if c.dev.Err() == nil {
		err = errors.Join(err, c.setCommand(0, busMaster), c.dev.EnableVectors(0))
	}
	for _, m := range c.dma {
		err = errors.Join(err, m.Close())
	}
	c.forget()
	return err
}

// setCommand sets and clears bits of the PCI command register.
func (c *Card) setCommand(set, unset uint16) error {
	var b [2]byte
	if err := c.dev.ReadConfig(configCommand, b[:]); err != nil {
		return err
	}
	old := binary.LittleEndian.Uint16(b[:])
	if old == 1<<16-1 { // no card sets all of them
		c.suspect("the command register")
		if err := c.dev.Err(); err != nil {
			return err
		}
	}
	binary.LittleEndian.PutUint16(b[:], old&^unset|set)
	return c.dev.WriteConfig(configCommand, b[:])
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
