package vfio

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"
)

// An event is a counter that the kernel raises and one goroutine waits for, parked in the runtime's poller.
type event struct {
	f *os.File
}

func (e *event) fd() int32 {
	fd := int32(-1)
	raw, err := e.f.SyscallConn()
	if err == nil {
		_ = raw.Control(func(v uintptr) { fd = int32(v) }) // closed: -1
	}
	return fd
}

// take returns the count if there is one, without waiting and whatever deadline is set.
func (e *event) take() uint64 {
	raw, err := e.f.SyscallConn()
	if err != nil {
		return 0
	}
	var b [8]byte
	n := 0
	if err := raw.Control(func(fd uintptr) { n = readEvent(fd, b[:]) }); err != nil || n != 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}

// past is a deadline that has gone by.
var past = time.Unix(1, 0)

// wake ends a wait that is under way, or the next one, which then looks why.
func (e *event) wake() { _ = e.f.SetReadDeadline(past) } // closed: nobody waits

// wait returns the count, ctx's error, or zero once dead says so. A deadline in the past only asks to look again: whoever
// sets it has made its reason visible before.
func (e *event) wait(ctx context.Context, dead func() bool) (uint64, error) {
	if n := e.take(); n > 0 {
		return n, nil
	}
	stop := context.AfterFunc(ctx, e.wake)
	defer stop()
	for {
		if err := e.f.SetReadDeadline(time.Time{}); err != nil {
			if errors.Is(err, os.ErrNoDeadline) {
				return 0, err
			}
			return 0, os.ErrClosed // being closed is an error of its own here, which is no ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if dead() {
			return 0, nil
		}
		var b [8]byte
		_, err := e.f.Read(b[:])
		if err == nil {
			return binary.NativeEndian.Uint64(b[:]), nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
	}
}
