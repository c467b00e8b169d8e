package drivertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
)

// patience is how long the loss of a card may go unnoticed where it works by itself.
const patience = 2 * time.Second

// SurpriseRemoval has the card vanish at every access of its host: to registers, tables, configuration space, vectors and
// DMA memory, in bring-up, traffic and shutdown, with a reset and with a card that is adopted; and at every access of the
// card to its host's memory. Each time the error says that the device is lost, in bounded time, and nothing is left.
// stride 1 is every access, 2 every other.
func SurpriseRemoval(t *testing.T, stride int, open func(testing.TB) *Bench) {
	for _, row := range []struct {
		name  string
		adopt bool
	}{{"reset", false}, {"adopt", true}} {
		t.Run(row.name, func(t *testing.T) {
			every(t, stride, func(at int) int {
				host, _ := vanish(t, open, row.adopt, at, 0)
				return host
			})
		})
		t.Run(row.name+" dma", func(t *testing.T) {
			every(t, stride, func(at int) int {
				_, card := vanish(t, open, row.adopt, 0, at)
				return card
			})
		})
	}
}

// vanish lives once with a card that vanishes at an access of the host or of the card; 0: it does not. It returns how many
// accesses of either kind there were.
func vanish(t *testing.T, open func(testing.TB) *Bench, adopt bool, host, card int) (hostAccesses, cardAccesses int) {
	t.Helper()
	before := runtime.NumGoroutine()
	b := open(t)
	if adopt {
		b.prepare(t)
	}
	dev, kept := b.Attach()
	w := watch(dev)
	w.at, w.trip = host, b.Lose
	w.when = time.Now()
	b.Bus.begin(card, b.Lose)
	err := b.live(t.Context(), w, adopt, kept)
	took := time.Since(w.when)
	hostAccesses, cardAccesses = w.accesses, b.Bus.count()

	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("vanished at access %d of the host (%s), %d of the card: %s", host, w.what, card, fmt.Sprintf(format, args...))
	}
	// Stores tell nothing: only a loss that no load came after may go unnoticed.
	switch expected := card != 0 || w.asked > 0; {
	case host == 0 && card == 0 && err != nil, err != nil && !errors.Is(err, device.ErrDeviceLost), err == nil && expected:
		fail("got error %v, want %v", err, device.ErrDeviceLost)
	case expected && b.Pump == nil && took > patience:
		fail("noticed after %v", took)
	}
	if n := len(w.memory); n != 0 && !adopt {
		fail("%d allocations are left", n)
	}
	if err := dev.Close(); err != nil {
		fail("close: %v", err)
	}
	if n := b.Bus.Vectors(); n != 0 {
		fail("%d vectors are left", n)
	}
	b.Close()
	settle(t, before)
	return hostAccesses, cardAccesses
}

// prepare leaves a card to be adopted.
func (b *Bench) prepare(t *testing.T) {
	t.Helper()
	dev, _ := b.Attach()
	c, err := driver.Open(t.Context(), dev, b.config())
	if err == nil {
		err = b.traffic(t.Context(), c)
	}
	if err == nil {
		err = c.Leave(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	b.Die(dev)
}

// live brings the card up, uses it and shuts it down.
func (b *Bench) live(ctx context.Context, w *tripwire, adopt bool, kept func(*device.DMA) bool) error {
	c, err := driver.Open(ctx, w, w.adopting(b.config(), adopt, kept))
	if err != nil {
		return err
	}
	err = b.traffic(ctx, c)
	b.Bus.count() // the card is gone, if it goes at an access of its own
	return errors.Join(err, c.Shutdown(ctx))
}
