package vfio

import (
	"context"
	"fmt"
	"time"

	"splicenic/driver/device"
)

// Trigger makes the kernel raise vector v as the device would: a test of everything between the kernel and Wait.
func (d *Device) Trigger(v int) error {
	op := fmt.Sprintf("trigger vector %d", v)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead.Load() {
		return d.Err()
	}
	if v < 0 || v >= int(d.vec.enabled.Load()) {
		return d.fault(op, device.ErrRange)
	}
	if _, err := d.setIRQs(d.vec.index, irqDataNone|irqActionTrigger, v, 1, nil); err != nil {
		return d.fault(op, err)
	}
	return nil
}

// A Loop is what came of one vector's test.
type Loop struct {
	Vector int
	Took   time.Duration
	Err    error // nil: it arrived
}

// LoopVectors enables every vector of the device, lets the kernel raise each once, and waits for it at most patience. The
// error is for vectors that could not be enabled at all. Whoever used vectors before enables them anew.
func (d *Device) LoopVectors(ctx context.Context, patience time.Duration) ([]Loop, error) {
	n := d.info.Vectors
	if n == 0 {
		return nil, d.fault("test vectors", fmt.Errorf("the device has none: %w", device.ErrNotSupported))
	}
	if err := d.EnableVectors(n); err != nil {
		return nil, err
	}
	loops := make([]Loop, n)
	for v := range loops {
		loops[v] = d.loop(ctx, v, patience)
	}
	if err := d.EnableVectors(0); err != nil {
		return loops, err
	}
	return loops, nil
}

func (d *Device) loop(ctx context.Context, v int, patience time.Duration) Loop {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	err := d.Trigger(v)
	if err == nil {
		_, err = d.Wait(ctx, v)
	}
	return Loop{Vector: v, Took: time.Since(start), Err: err}
}
