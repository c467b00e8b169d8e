package emu

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// waker wakes Run from other goroutines through an event descriptor, which is made by the first Run. The zero value
// wakes nobody.
type waker struct {
	asleep atomic.Bool

	mu   sync.Mutex
	made bool
	fd   int
}

func (w *waker) open() (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.made {
		return w.fd, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	w.fd, w.made = fd, true
	return fd, nil
}

// ring ends a sleep that is going on or about to begin.
func (w *waker) ring() {
	if !w.asleep.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.made {
		_, _ = unix.Write(w.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a full counter rings already
	}
}

func (w *waker) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.made {
		return nil
	}
	w.made = false
	return unix.Close(w.fd)
}

// sleeper waits for the event descriptor and the ports'.
type sleeper struct {
	fds  []unix.PollFd
	away []int32 // descriptors that reported an error: left out of one sleep, so that they do not keep Run awake
}

func (c *Card) newSleeper() (*sleeper, error) {
	fd, err := c.wake.open()
	if err != nil {
		return nil, err
	}
	s := &sleeper{fds: []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}}
	for i := range c.wires {
		if p := c.wires[i].port; p != nil && p.FD() >= 0 {
			s.fds = append(s.fds, unix.PollFd{Fd: int32(p.FD()), Events: unix.POLLIN})
		}
	}
	s.away = make([]int32, len(s.fds))
	for i := range s.away {
		s.away[i] = -1
	}
	return s, nil
}

func (s *sleeper) sleep(d time.Duration) error {
	if _, err := unix.Poll(s.fds, int(d.Milliseconds())); err != nil && err != unix.EINTR {
		return err
	}
	for i := range s.fds {
		f := &s.fds[i]
		switch {
		case f.Fd < 0:
			f.Fd, s.away[i] = s.away[i], -1
		case f.Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0:
			f.Fd, s.away[i] = -1, f.Fd
		}
	}
	if s.fds[0].Revents&unix.POLLIN != 0 {
		var b [8]byte
		_, _ = unix.Read(int(s.fds[0].Fd), b[:])
	}
	return nil
}
