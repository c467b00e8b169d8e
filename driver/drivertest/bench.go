// Package drivertest holds tests that package driver has to pass over every device that reaches a card of this project:
// the card vanishes at any access, the process that drives it dies at any access. They are for tests alone; the test gives
// the card and the ways to it as a Bench.
package drivertest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/regs"
)

// A Bench is a card with small memories and the ways a test has to it.
type Bench struct {
	// Attach opens the device as a new process does. kept says which DMA memory a process before has left; nil: none is.
	Attach func() (dev device.Device, kept func(*device.DMA) bool)
	// Die lets a device go as the end of its process does: what outlives a process stays.
	Die func(device.Device)
	// Pump lets the card work; nil: it works by itself.
	Pump func()
	// Bus is what the card is attached to the rest by.
	Bus *Bus
	// Lose takes the card off the bus.
	Lose func()
	// Frame lets a frame of these bytes come to the card's client port.
	Frame func(b []byte)
	// Close ends the card. Its device is closed then.
	Close func()
}

// frameBytes is the size of the test's frames: no IP, so that the card hands them to the host, numbered.
const frameBytes = 64

// send lets frame number n come.
func (b *Bench) send(n uint32) {
	f := make([]byte, frameBytes)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x88, 0xb5})
	binary.BigEndian.PutUint32(f[frameBytes-4:], n)
	b.Frame(f)
}

// number returns the number of a frame.
func number(f []byte) (uint32, error) {
	if len(f) != frameBytes {
		return 0, fmt.Errorf("frame of %d bytes", len(f))
	}
	return binary.BigEndian.Uint32(f[frameBytes-4:]), nil
}

// config is that of a card with small rings, so that they turn.
func (b *Bench) config() driver.Config {
	return driver.Config{Pump: b.Pump, Rings: driver.Rings{Exception: 16, Event: 16, Completion: 8, Inject: 16, Command: 8, FrameBytes: 256}}
}

// errSilent: what should have come did not.
var errSilent = errors.New("the card has gone silent")

// receive takes n exceptions and hands them over; they are not committed.
func (b *Bench) receive(ctx context.Context, c *driver.Card, n int, f func(e *driver.Exception) error) error {
	es := make([]driver.Exception, n)
	for turn := 1; n > 0; turn++ {
		got := c.Exceptions(es[:n])
		for i := range es[:got] {
			if err := f(&es[i]); err != nil {
				return err
			}
		}
		if n -= got; n == 0 || got > 0 {
			continue
		}
		if b.Pump == nil {
			if err := c.Wait(ctx, driver.VectorException); err != nil {
				return err
			}
			continue
		}
		b.Pump()
		if turn%64 == 0 {
			c.Load(regs.ControlStatus)
		}
		if err := c.Err(); err != nil {
			return err
		}
		if turn == 1<<20 {
			return errSilent
		}
	}
	return nil
}

// every calls f with 0, and then with every strideth access that it says there were.
func every(t *testing.T, stride int, f func(at int) int) {
	t.Helper()
	n := f(0)
	t.Logf("%d accesses", n)
	for at := 1; at <= n && !t.Failed(); at += stride {
		f(at)
	}
}

// settle fails the test if goroutines are left.
func settle(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines, %d at the start\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}
