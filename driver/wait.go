package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"splicenic/driver/device"
	"splicenic/regs"
)

// A waiter bounds one wait for the card: by time, or by calls of Pump.
type waiter struct {
	c      *Card
	ctx    context.Context // ends with ErrTimeout as its cause
	cancel context.CancelFunc
	turns  int
	slice  time.Duration
}

// First and longest wait before looking again, in between doubling: a register is loaded a few times a second at most, a
// lost interrupt costs little.
const (
	firstPoll  = time.Millisecond
	firstSlice = 20 * time.Millisecond
	longest    = 500 * time.Millisecond
)

func (c *Card) newWaiter(ctx context.Context, first time.Duration) *waiter {
	w := &waiter{c: c, ctx: ctx, cancel: func() {}, slice: first}
	if c.cfg.Pump == nil {
		w.ctx, w.cancel = context.WithTimeoutCause(ctx, c.cfg.Timeout, ErrTimeout)
	}
	return w
}

// pump moves the card once.
func (w *waiter) pump() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if w.turns == w.c.cfg.PumpLimit {
		return ErrTimeout
	}
	w.turns++
	w.c.cfg.Pump()
	return w.c.dev.Err()
}

func (w *waiter) next() time.Duration {
	d := w.slice
	w.slice = min(2*d, longest)
	return d
}

// poll waits until done, which loads registers, says so.
func (c *Card) poll(ctx context.Context, done func() bool) error {
	w := c.newWaiter(ctx, firstPoll)
	defer w.cancel()
	for !done() {
		if err := c.dev.Err(); err != nil {
			return err
		}
		if err := w.sleep(); err != nil {
			return err
		}
	}
	return c.dev.Err()
}

// sleep lets the card work before the next look: every time as long as all the times before.
func (w *waiter) sleep() error {
	if w.c.cfg.Pump != nil {
		for range max(w.turns, 1) {
			if err := w.pump(); err != nil {
				return err
			}
		}
		return nil
	}
	t := time.NewTimer(w.next())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}

// glance is how many calls of Pump pass between two looks at whether the card is still there.
const glance = 64

// completion waits until a completion may be there. silent says that no interrupt told so. A card that is lost, or has
// stopped itself, is noticed within the longest slice.
func (w *waiter) completion() (silent bool, err error) {
	if w.c.cfg.Pump != nil {
		if err := w.pump(); err != nil || w.turns%glance != 0 {
			return false, w.c.because(err)
		}
		return false, w.c.alive()
	}
	silent, err = w.c.listen(w.ctx, VectorCompletion, w.next())
	return silent, w.c.because(err)
}

// listen waits for an interrupt for a slice of the time that ctx gives. silent says that none came, and that the card was
// there nevertheless.
func (c *Card) listen(ctx context.Context, vector int, slice time.Duration) (silent bool, err error) {
	part, cancel := context.WithTimeout(ctx, slice)
	defer cancel()
	_, err = c.dev.Wait(part, vector)
	switch {
	case err == nil:
		return false, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return true, c.alive()
	}
	return false, err
}

// because returns err, or the loss of the card where that may be what is behind it.
func (c *Card) because(err error) error {
	if err == nil || errors.Is(err, device.ErrDeviceLost) {
		return err
	}
	c.Load(regs.ControlStatus)
	if lost := c.dev.Err(); lost != nil && !errors.Is(err, lost) {
		return fmt.Errorf("%w (%w)", lost, err)
	}
	return err
}

// alive loads the card's status once: a lost card is noticed by it, and a card that stopped itself says so.
func (c *Card) alive() error {
	st := c.Load(regs.ControlStatus)
	if err := c.dev.Err(); err != nil {
		return err
	}
	if regs.ControlStatusFault(st) != 0 {
		return ErrFault
	}
	return nil
}
