package vfiouser

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// irqBank is one interrupt index: how a client wants to hear of its interrupts. An interrupt goes through three gates:
//
//	no eventfd:  nobody hears of it
//	masked:      it stays pending, once, until unmasked
//	otherwise:   1 is added to the eventfd; an automasked one is masked by that
type irqBank struct {
	flags uint32 // as irqInfo tells them
	count int    // how many there can be

	mu    sync.Mutex
	lines []irqLine // as many as are set up
}

type irqLine struct {
	fd              int // -1: none
	masked, pending bool
}

// raise is called by a function that raises interrupt i. It does not block.
func (b *irqBank) raise(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i < len(b.lines) {
		b.fire(&b.lines[i])
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
	b.mu.Lock()
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
				b.fire(l)
			}
		default:
			b.fire(l)
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
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
}

// raisers returns what a function calls for its vectors, nil for those nobody hears of, and the eventfds themselves.
func (b *irqBank) raisers() (raise []func(), fds []int) {
	b.mu.Lock()
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
