package port

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// linkIdle is how long Run sleeps when no frame waits, linkBlind when a port tells nothing.
const (
	linkIdle  = 100 * time.Millisecond
	linkBlind = 500 * time.Microsecond
)

// Run carries frames in real time until ctx ends, and returns nil then. It sleeps until a frame comes or is due. Only
// one Run at a time, and no Step beside it.
func (l *Link) Run(ctx context.Context) error {
	wake, err := newEvent()
	if err != nil {
		return fmt.Errorf("run link: %w", err)
	}
	defer wake.close()
	defer context.AfterFunc(ctx, wake.ring)()
	patience := linkIdle
	fds := []unix.PollFd{{Fd: int32(wake.fd), Events: unix.POLLIN}}
	for _, p := range [...]Port{l.a, l.b} {
		n, notifies := p.(Notifier)
		switch {
		case p.FD() >= 0:
			fds = append(fds, unix.PollFd{Fd: int32(p.FD()), Events: unix.POLLIN})
		case notifies:
			n.Notify(wake.ring)
			defer n.Notify(nil)
		default:
			patience = linkBlind
		}
	}
	start := time.Now()
	for ctx.Err() == nil {
		next := l.Step(time.Since(start))
		wait := patience
		if next >= 0 {
			wait = min(wait, next-time.Since(start))
		}
		if wait <= 0 {
			continue
		}
		if err := pause(fds, wait); err != nil {
			return fmt.Errorf("run link: %w", err)
		}
		if fds[0].Revents != 0 {
			wake.clear()
		}
	}
	return nil
}

// pause waits for input, for d at most. A descriptor with an error, as of an interface that is down, is left out for
// that time so that it does not keep Run awake.
func pause(fds []unix.PollFd, d time.Duration) error {
	timeout := unix.NsecToTimespec(int64(d))
	if _, err := unix.Ppoll(fds, &timeout, nil); err != nil && err != unix.EINTR {
		return err
	}
	for i := range fds {
		f := &fds[i]
		switch {
		case f.Fd < 0:
			f.Fd = ^f.Fd
		case f.Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0:
			f.Fd = ^f.Fd
		}
	}
	return nil
}

// event is an event descriptor that other goroutines ring, closed or not.
type event struct {
	mu sync.Mutex
	fd int
}

func newEvent() (*event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return &event{fd: fd}, err
}

func (e *event) ring() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd >= 0 {
		_, _ = unix.Write(e.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a full counter rings already
	}
}

func (e *event) clear() {
	var b [8]byte
	_, _ = unix.Read(e.fd, b[:])
}

func (e *event) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = unix.Close(e.fd)
	e.fd = -1
}
