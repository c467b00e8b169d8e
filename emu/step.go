package emu

import (
	"time"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// Bounds of one step.
const (
	batch           = 64 // frames received from a port
	injectBatch     = 64 // injected frames
	commandsPerStep = 64
)

// Step does a bounded piece of everything that is due: commands, injected frames, one batch of each port, the timer
// scan's share up to now. now is the time since the card was made or reset; it does not go back. Step says whether
// there was anything to do but the scan.
func (c *Card) Step(now time.Duration) (worked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.boot.going {
		c.endBoot()
	}
	if c.gone() || c.run.shellOnly() {
		return c.idle()
	}
	c.stepping = true
	defer c.stepped()
	c.bus.choose()
	c.advance(now)
	c.core.Sync()
	if c.commands() {
		worked = true
	}
	if c.injected() {
		worked = true
	}
	if c.gone() { // meanwhile
		return worked
	}
	for i := range c.wires {
		if c.receive(i) {
			worked = true
		}
	}
	for done := false; !done; {
		done = c.core.Scan(c.out)
		c.transmit()
	}
	c.bus.drain()
	c.host.Flush()
	return worked
}

// idle is a step without a data path: what arrives at the ports is lost.
func (c *Card) idle() (worked bool) {
	if c.closed || c.faults.lost {
		return false
	}
	for i := range c.wires {
		w := &c.wires[i]
		if w.port == nil {
			continue
		}
		for j := range w.frames {
			w.frames[j].Start = frame.Headroom
		}
		if w.port.Receive(w.frames) > 0 {
			worked = true
		}
	}
	return worked
}

// stepped ends a step.
func (c *Card) stepped() {
	c.stepping = false
	c.bus.free.Broadcast()
}

// advance sets the time and asks the ports what is to be asked now and then.
func (c *Card) advance(now time.Duration) {
	before := c.reg.Get(regs.TimerTick)
	c.core.Advance(now)
	for i := range c.wires {
		if w := &c.wires[i]; w.clock != nil {
			w.clock.SetNow(now)
		}
	}
	tick := c.reg.Get(regs.TimerTick)
	if tick == before {
		return
	}
	for i := range c.wires {
		w := &c.wires[i]
		if w.updateLink(c.reg, c.faults.linkDown[i]) {
			c.host.Cause(regs.HostifCauseLinkMask)
		}
		if tick/100 != before/100 {
			w.updateOverruns(c.reg)
		}
	}
}

// injected takes frames from the inject ring: some go to a port as they are, others to a port's parser as if they had
// come from the wire.
func (c *Card) injected() bool {
	n := 0
	for ; n < injectBatch; n++ {
		f := &c.inject[n]
		var e regs.InjectEntry
		size, ok := c.host.NextInject(&e, f.Buf[frame.Headroom:])
		if !ok {
			break
		}
		if size == 0 {
			continue
		}
		if size > c.maxFrame && e.FlagsBack == 0 {
			c.reg.Add64(regs.RingTruncated+regs.RingInject*regs.RingStride, 1)
			continue
		}
		f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(size), frame.Offload{}
		switch e.ControlType {
		case regs.InjectControlTypeEmit:
			c.out.Ports[e.ControlPort] = append(c.out.Ports[e.ControlPort], f)
		case regs.InjectControlTypeReinject:
			c.core.Reinject(&e, c.inject[n:n+1], c.out)
		}
	}
	if n == 0 {
		return false
	}
	c.transmit()
	return true
}
