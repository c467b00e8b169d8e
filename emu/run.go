package emu

import (
	"context"
	"runtime"
	"time"

	"splicenic/emu/port"
	"splicenic/regs"
)

// How long Run sleeps at most: with connections alive the timer scan must not be late, without it costs nothing to
// sleep; a port that tells nothing has to be asked.
const (
	sleepIdle  = 100 * time.Millisecond
	sleepLive  = 10 * time.Millisecond
	sleepBlind = time.Millisecond
)

// Run steps the card until ctx ends, and returns nil then. It sleeps where there is nothing to do, until a frame, a
// doorbell or the timer scan is due. Only one Run at a time, and no Step beside it.
func (c *Card) Run(ctx context.Context) error {
	s, err := c.newSleeper()
	if err != nil {
		return c.fault("run", err)
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.wake.ring()
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken
		}
	}()
	for i := range c.wires {
		if n, ok := c.wires[i].port.(port.Notifier); ok {
			n.Notify(c.wake.ring)
			defer n.Notify(nil)
		}
	}
	k := c.newClock()
	for ctx.Err() == nil {
		if c.Step(k.now()) {
			c.letIn()
			continue
		}
		// What comes after this store rings; what came before is found by the step below.
		c.wake.asleep.Store(true)
		if ctx.Err() == nil && !c.Step(k.now()) {
			err = s.sleep(c.patience())
		}
		c.wake.asleep.Store(false)
		if err != nil {
			return c.fault("run", err)
		}
	}
	return nil
}

// letIn gives way to register accesses that wait for the lock.
func (c *Card) letIn() {
	for range 1000 {
		if c.waiting.Load() == 0 {
			return
		}
		runtime.Gosched()
	}
}

// patience is how long there may be nothing to do.
func (c *Card) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := sleepIdle
	if c.reg.Get(regs.AmuLive)+c.reg.Get(regs.AmuQuarantined) != 0 {
		d = sleepLive
	}
	for i := range c.wires {
		p := c.wires[i].port
		if p == nil || p.FD() >= 0 {
			continue
		}
		if _, ok := p.(port.Notifier); !ok {
			d = sleepBlind
		}
	}
	return d
}

// clock turns the time of day into the card's time, which begins anew with every reset.
type clock struct {
	card   *Card
	resets uint64
	start  time.Time
}

// newClock makes a clock that goes on where timer.now stands.
func (c *Card) newClock() *clock {
	k := &clock{card: c}
	k.set()
	return k
}

func (k *clock) set() {
	k.card.mu.Lock()
	defer k.card.mu.Unlock()
	k.resets = k.card.resets.Load()
	k.start = time.Now().Add(-time.Duration(k.card.reg.Get64(regs.TimerNow)) * time.Microsecond)
}

func (k *clock) now() time.Duration {
	if k.card.resets.Load() != k.resets {
		k.set()
	}
	return time.Since(k.start)
}
