package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// vector is an interrupt's eventfd. One goroutine waits, parked in the runtime's poller; to end its wait somebody sets a
// deadline that is over.
type vector struct {
	file    *os.File
	raw     syscall.RawConn
	fd      int
	expired atomic.Bool // the deadline is over

	// What the one waiting goroutine reads with, so that a wait allocates nothing.
	try, block func(fd uintptr) bool
	buf        [8]byte
	n          int
	err        error
}

func newVector() (*vector, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	v := &vector{file: os.NewFile(uintptr(fd), "eventfd"), fd: fd}
	if v.raw, err = v.file.SyscallConn(); err != nil {
		v.file.Close()
		return nil, err
	}
	v.try = func(fd uintptr) bool {
		v.n, v.err = unix.Read(int(fd), v.buf[:])
		return true
	}
	v.block = func(fd uintptr) bool {
		v.n, v.err = unix.Read(int(fd), v.buf[:])
		return !errors.Is(v.err, unix.EAGAIN)
	}
	return v, nil
}

// expire ends the wait under way, and the next one unless it sees that it may go on.
func (v *vector) expire() {
	v.expired.Store(true)
	v.file.SetReadDeadline(time.Unix(1, 0))
}

// read returns what the eventfd counted; 0: nothing.
func (v *vector) read(how func(fd uintptr) bool) (uint64, error) {
	err := v.raw.Read(how)
	switch {
	case err != nil:
		return 0, err
	case v.n == len(v.buf):
		return le.Uint64(v.buf[:]), nil
	case errors.Is(v.err, unix.EAGAIN), errors.Is(v.err, unix.EINTR):
		return 0, nil
	}
	return 0, v.err
}

// clear forgets what was counted.
func (v *vector) clear() {
	var b [8]byte
	v.raw.Control(func(fd uintptr) { unix.Read(int(fd), b[:]) })
}

// learnIRQs asks which interrupts there are, and sets the two notices up.
func (c *Client) learnIRQs(indexes uint32) error {
	for i := range min(indexes, irqIndexes) {
		if i == irqINTx || i == irqMSI {
			continue
		}
		k, err := c.ask(cmdIRQInfo, func(b []byte) []byte { return appendIRQInfo(b, irqInfo{argsz: irqInfoBytes, index: i}) }, nil)
		if err != nil {
			return err
		}
		info, err := decodeIRQInfo(k.body)
		switch {
		case err != nil:
			return err
		case info.index != i || info.count > maxVectors:
			return violation("irq info: asked for %d, got %d with %d interrupts", i, info.index, info.count)
		case i == irqMSIX:
			c.noResize = info.flags&irqNoResize != 0
			c.info.Vectors = int(info.count)
			c.errMu.Lock()
			c.vectors = make([]atomic.Pointer[vector], info.count)
			c.errMu.Unlock()
		case info.count > 0 && info.flags&irqEventfd != 0:
			if err := c.listen(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// notice is an interrupt that comes once.
type notice struct {
	v    *vector
	came chan struct{}
}

func (n *notice) channel() <-chan struct{} {
	if n == nil {
		return nil
	}
	return n.came
}

func (n *notice) close() {
	if n != nil {
		n.v.file.Close()
	}
}

func (c *Client) listen(index uint32) error {
	v, err := newVector()
	if err != nil {
		return err
	}
	n := &notice{v, make(chan struct{})}
	c.notice[index] = n
	c.wg.Go(func() {
		if count, err := v.read(v.block); err == nil && count > 0 {
			close(n.came)
		}
	})
	return c.setIRQs(index, 0, []int{v.fd})
}

// setIRQs gives interrupts of an index their eventfds, none of which is missing.
func (c *Client) setIRQs(index, from uint32, fds []int) error {
	room := c.caps.maxFDs()
	if room == 0 {
		return fmt.Errorf("the server takes no file descriptors: %w", device.ErrNotSupported)
	}
	for part := range slices.Chunk(fds, room) {
		set := irqSet{argsz: irqSetBytes, flags: setEventfd | setTrigger, index: index, start: from, count: uint32(len(part))}
		if _, err := c.ask(cmdSetIRQs, func(b []byte) []byte { return appendIRQSet(b, set) }, part); err != nil {
			return err
		}
		from += uint32(len(part))
	}
	return nil
}

// disableVectors ends the delivery of all vectors.
func (c *Client) disableVectors() error {
	if c.enabled.Swap(0) == 0 {
		return nil
	}
	set := irqSet{argsz: irqSetBytes, flags: setNone | setTrigger, index: irqMSIX}
	_, err := c.ask(cmdSetIRQs, func(b []byte) []byte { return appendIRQSet(b, set) }, nil)
	return err
}

func (c *Client) clearVectors() {
	for i := range c.vectors {
		if v := c.vectors[i].Load(); v != nil {
			v.clear()
		}
	}
}

// EnableVectors prepares vectors 0..n-1. A raise while their number changes may be lost.
func (c *Client) EnableVectors(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead.Load() {
		return c.Err()
	}
	op := fmt.Sprintf("enable %d vectors", n)
	if n < 0 || n > len(c.vectors) {
		return c.fault(op, fmt.Errorf("the device has %d: %w", len(c.vectors), device.ErrRange))
	}
	fds := make([]int, n)
	for i := range fds {
		v := c.vectors[i].Load()
		if v == nil {
			var err error
			if v, err = newVector(); err != nil {
				return c.fault(op, err)
			}
			c.vectors[i].Store(v)
		}
		fds[i] = v.fd
	}
	if c.noResize || n < int(c.enabled.Load()) {
		if err := c.disableVectors(); err != nil {
			return c.fault(op, err)
		}
	}
	if err := c.setIRQs(irqMSIX, 0, fds); err != nil {
		return c.fault(op, err)
	}
	c.enabled.Store(int32(n))
	return nil
}

// Wait blocks until vector v was raised since the last Wait for it, and returns how often.
func (c *Client) Wait(ctx context.Context, v int) (uint64, error) {
	if c.dead.Load() {
		return 0, c.Err()
	}
	if v < 0 || v >= int(c.enabled.Load()) {
		return 0, c.fault(fmt.Sprintf("wait for vector %d", v), device.ErrRange)
	}
	w := c.vectors[v].Load()
	if w == nil { // closed just now
		return 0, c.Err()
	}
	for {
		if w.expired.Swap(false) {
			w.file.SetReadDeadline(time.Time{})
		}
		if c.dead.Load() {
			return 0, c.Err()
		}
		n, err := w.read(w.try)
		if n == 0 && err == nil {
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			n, err = w.wait(ctx)
		}
		switch {
		case n > 0:
			return n, nil
		case c.dead.Load():
			return 0, c.Err()
		case err != nil && !os.IsTimeout(err):
			return 0, c.fault(fmt.Sprintf("wait for vector %d", v), err)
		}
	}
}

// wait blocks until something was counted or ctx ends.
func (v *vector) wait(ctx context.Context) (uint64, error) {
	if ctx.Done() == nil {
		return v.read(v.block)
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		v.expire()
		close(over)
	})
	n, err := v.read(v.block)
	if !stop() {
		<-over // it must not end the next wait
	}
	return n, err
}
