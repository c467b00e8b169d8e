package emu

import (
	"splicenic/driver/device"
	"splicenic/emu/flash"
	"splicenic/regs"
)

// faults are what goes wrong on demand.
type faults struct {
	lost       bool
	linkDown   [regs.PortInstances]bool
	stuck      map[regs.Reg]stuck
	interrupts map[int]int // vector: how many to lose
}

type stuck struct{ mask, value uint32 }

func (f *faults) loseInterrupt(v int) bool {
	if f.interrupts[v] == 0 {
		return false
	}
	f.interrupts[v]--
	return true
}

// Lose takes the card off the bus: loads read all ones, stores and frames come to nothing, Reset fails. Restore or
// another Card is the way on.
func (c *Card) Lose() {
	c.lock()
	defer c.mu.Unlock()
	c.faults.lost = true
	c.host.SetHost(nil)
}

// Stick makes the bits of mask of a register read as value says, whatever the card has there; mask 0 ends it.
func (c *Card) Stick(r regs.Reg, mask, value uint32) {
	c.lock()
	defer c.mu.Unlock()
	if mask == 0 {
		delete(c.faults.stuck, r)
		return
	}
	if c.faults.stuck == nil {
		c.faults.stuck = map[regs.Reg]stuck{}
	}
	c.faults.stuck[r] = stuck{mask, value}
}

// CorruptPage flips bits of one word of page n, unseen by the card.
func (c *Card) CorruptPage(n, word, flip uint32) {
	c.lock()
	defer c.mu.Unlock()
	c.mem.Page(n)[word] ^= flip
}

// DropCompletions loses the next n completions.
func (c *Card) DropCompletions(n int) {
	c.lock()
	defer c.mu.Unlock()
	c.host.DropCompletions(n)
}

// SetLinkDown holds a port's link down, or lets it be what its wire says.
func (c *Card) SetLinkDown(port int, down bool) {
	c.lock()
	defer c.mu.Unlock()
	c.faults.linkDown[port] = down
}

// LoseInterrupts loses the next n interrupts of a vector.
func (c *Card) LoseInterrupts(vector, n int) {
	c.lock()
	defer c.mu.Unlock()
	if c.faults.interrupts == nil {
		c.faults.interrupts = map[int]int{}
	}
	c.faults.interrupts[vector] = n
}

// WithFlash gives f the card's flash, while nothing else uses it: to look into it, to break it, or to let its power fail in
// the midst of an operation, which takes the whole card off the bus until PowerCycle.
func (c *Card) WithFlash(f func(*flash.Flash)) {
	c.lock()
	defer c.mu.Unlock()
	f(c.flash)
	if c.flash.Dark() {
		c.leave()
	}
}

// PowerCycle takes the card's power and gives it back: all is as after power-on with what the flash holds. The host's
// memory map and vectors stay as they are given. Power ends Lose.
func (c *Card) PowerCycle() error {
	c.lock()
	defer c.mu.Unlock()
	c.bus.rest()
	if c.closed {
		return c.fault("power cycle", device.ErrClosed)
	}
	c.faults.lost = false
	c.flash.PowerOn()
	if err := c.powerOn(); err != nil {
		return c.fault("power cycle", err)
	}
	return nil
}
