package driver

import (
	"context"
	"errors"
	"time"

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
	if err := w.ctx.Err(); err != nil {
		return err
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

func (w *waiter) sleep() error {
	if w.c.cfg.Pump != nil {
		return w.pump()
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

// completion waits until a completion may be there. silent says that no interrupt told so.
func (w *waiter) completion() (silent bool, err error) {
	if w.c.cfg.Pump != nil {
		return false, w.pump()
	}
	ctx, cancel := context.WithTimeout(w.ctx, w.next())
	defer cancel()
	_, err = w.c.dev.Wait(ctx, VectorCompletion)
	switch {
	case err == nil:
		return false, nil
	case w.ctx.Err() != nil:
		return false, context.Cause(w.ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return true, w.c.alive()
	}
	return false, err
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
