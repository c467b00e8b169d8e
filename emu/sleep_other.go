//go:build !linux

package emu

import (
	"sync/atomic"
	"time"

	"splicenic/driver/device"
)

// waker has nobody to wake: Run needs Linux.
type waker struct{ asleep atomic.Bool }

func (w *waker) ring()        {}
func (w *waker) close() error { return nil }

type sleeper struct{}

func (c *Card) newSleeper() (*sleeper, error) { return nil, device.ErrNotSupported }

func (s *sleeper) sleep(time.Duration) error { return device.ErrNotSupported }
