package vfiouser

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// irqBank is one interrupt index: how a client wants to hear of its interrupts. An interrupt goes through three gates:
//
//	no eventfd:  nobody hears of it
//	masked:      it stays pending, once, until unmasked
//	otherwise:   1 is added to the eventfd; an automasked one is masked by that
//
// An eventfd is the client's too: it can make it block and fill it at any moment. So a function only notes its interrupts,
// and a goroutine of the server's own (deliver) writes to eventfds; take sets it free where it hangs.
type irqBank struct {
	flags uint32 // as irqInfo tells them
	count int    // how many there can be

	raised []atomic.Bool // by interrupt: noted, not delivered yet
	wake   chan struct{}

	mu    sync.Mutex
	lines []irqLine // as many as are set up; only the client's goroutine changes them
}

func newBank(count int, flags uint32) irqBank {
	return irqBank{flags: flags, count: count, raised: make([]atomic.Bool, count), wake: make(chan struct{}, 1)}
}

type irqLine struct {
	fd              int // -1: none
	masked, pending bool
}

// raise is called by a function that raises interrupt i. It does not block.
func (b *irqBank) raise(i int) {
	if i >= len(b.raised) {
		return
	}
	b.raised[i].Store(true)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// deliver rings what was raised, until ctx ends.
func (b *irqBank) deliver(ctx context.Context) {
	for {
		select {
		case <-b.wake:
		case <-ctx.Done():
			return
		}
		b.ring()
	}
}

// ring delivers what was raised so far.
func (b *irqBank) ring() {
	for i := range b.raised {
		if !b.raised[i].Swap(false) {
			continue
		}
		b.mu.Lock()
		if i < len(b.lines) {
			b.fire(&b.lines[i])
		}
		b.mu.Unlock()
	}
}

// patience is how long take waits for a write to an eventfd, which takes microseconds.
const patience = 10 * time.Millisecond

// take locks the bank for the client's goroutine. A write that hangs holds the lock: emptying the eventfds lets it end.
func (b *irqBank) take() {
	for begin := time.Now(); !b.mu.TryLock(); time.Sleep(20 * time.Microsecond) {
		if time.Since(begin) < patience {
			continue
		}
		for i := range b.lines {
			if fd := b.lines[i].fd; fd >= 0 && unix.SetNonblock(fd, true) == nil {
				unix.Read(fd, make([]byte, 8))
			}
		}
	}
}

func (b *irqBank) fire(l *irqLine) {
	if l.fd < 0 {
		return
	}
	if l.masked {
		l.pending = true
		return
	}
	signal(l.fd)
	l.masked = b.flags&irqAutomasked != 0
}

// one is 1 as an eventfd takes it.
var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// signal adds 1. An eventfd that is full does not need it.
func signal(fd int) { unix.Write(fd, one) }

// set does what a request says, and takes the file descriptors. It says whether an eventfd came or went.
func (b *irqBank) set(s irqSet, fds []int) (changed bool, err error) {
	if err := b.check(s, fds); err != nil {
		closeAll(fds)
		return false, err
	}
	b.take()
	defer b.mu.Unlock()
	if s.count == 0 {
		b.clear()
		return true, nil
	}
	if s.flags&setEventfd != 0 {
		b.assign(int(s.start), int(s.count), fds)
		return true, nil
	}
	for i := range int(s.count) {
		at := int(s.start) + i
		if at >= len(b.lines) || s.flags&setBool != 0 && s.data[i] == 0 {
			continue
		}
		switch l := &b.lines[at]; s.flags & setAction {
		case setMask:
			l.masked = true
		case setUnmask:
			l.masked = false
			if l.pending {
				l.pending = false
				b.raise(at)
			}
		default:
			b.raise(at)
		}
	}
	return false, nil
}

func (b *irqBank) check(s irqSet, fds []int) error {
	switch {
	case int(s.start)+int(s.count) > b.count:
		return violation("set irqs: %d from %d of %d", s.count, s.start, b.count)
	case s.flags&setEventfd == 0 && len(fds) != 0:
		return violation("set irqs: %d file descriptors not asked for", len(fds))
	case s.flags&setEventfd != 0 && s.flags&setTrigger == 0:
		return fmt.Errorf("set irqs: eventfds to mask by: %w", eNOTSUP)
	case s.flags&setEventfd != 0 && len(fds) != 0 && len(fds) != int(s.count):
		return violation("set irqs: %d file descriptors for %d interrupts", len(fds), s.count)
	}
	for _, fd := range fds {
		if err := checkEventfd(fd); err != nil {
			return err
		}
	}
	return nil
}

// checkEventfd lets nothing in that could block a raise: only eventfds, which are then made not to.
func checkEventfd(fd int) error {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	if name != "anon_inode:[eventfd]" {
		return violation("set irqs: file descriptor is not an eventfd")
	}
	return unix.SetNonblock(fd, true)
}

// assign gives interrupts their eventfds; none at all takes theirs away, but leaves the index set up.
func (b *irqBank) assign(start, count int, fds []int) {
	for len(b.lines) < start+count {
		b.lines = append(b.lines, irqLine{fd: -1})
	}
	for i := range count {
		l := &b.lines[start+i]
		if l.fd >= 0 {
			unix.Close(l.fd)
		}
		l.fd = -1
		if len(fds) > 0 {
			l.fd = fds[i]
		}
	}
}

func (b *irqBank) clear() {
	for i := range b.lines {
		if b.lines[i].fd >= 0 {
			unix.Close(b.lines[i].fd)
		}
	}
	b.lines = nil
}

// reset forgets every eventfd: the client is gone.
func (b *irqBank) reset() {
	b.take()
	defer b.mu.Unlock()
	b.clear()
}

// raisers returns what a function calls for its vectors, nil for those nobody hears of, and the eventfds themselves.
func (b *irqBank) raisers() (raise []func(), fds []int) {
	b.take()
	defer b.mu.Unlock()
	if len(b.lines) == 0 {
		return nil, nil
	}
	raise, fds = make([]func(), len(b.lines)), make([]int, len(b.lines))
	for i, l := range b.lines {
		if fds[i] = l.fd; l.fd >= 0 {
			raise[i] = func() { b.raise(i) }
		}
	}
	return raise, fds
}
