package vfio

import (
	"errors"
	"os"
	"sync"
)

// A notice is a channel that is closed when the kernel raises an event. One goroutine waits for it.
type notice struct {
	index uint32 // of the interrupt
	name  string // in errors
	event event
	wg    sync.WaitGroup

	mu    sync.Mutex
	given bool
	c     chan struct{}
}

// start begins to wait. The kernel raises a removal again and again until the device is let go: the first one counts and
// the rest are read away in silence.
func (n *notice) start(f *os.File) {
	n.event.f = f
	n.c = make(chan struct{})
	n.wg.Go(func() {
		var b [8]byte
		for {
			if _, err := f.Read(b[:]); err != nil {
				return
			}
			n.mu.Lock()
			if !n.given {
				n.given = true
				close(n.c)
			}
			n.mu.Unlock()
		}
	})
}

// channel returns the channel, nil where the kernel never gives the notice.
func (n *notice) channel() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.c
}

// rearm makes a given notice one that can be given again.
func (n *notice) rearm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.given {
		n.given, n.c = false, make(chan struct{})
	}
}

// stop ends the goroutine.
func (n *notice) stop(h *host) error {
	f := n.event.f
	if f == nil {
		return nil
	}
	n.event.f = nil
	err := h.closeEvent(f, n.name)
	n.wg.Wait()
	return err
}

const (
	noticeRemoval = 0
	noticeError   = 1
)

// startNotices asks the kernel to say when the device is to be let go and when the bus reported an error.
func (d *Device) startNotices() error {
	d.notices[noticeRemoval] = notice{index: irqREQ, name: "removal notices"}
	d.notices[noticeError] = notice{index: irqERR, name: "error notices"}
	for i := range d.notices {
		if err := d.startNotice(&d.notices[i]); err != nil {
			return err
		}
	}
	return nil
}

// startNotice does nothing where the kernel does not offer it: the answer for ERR is EINVAL where there is no PCI Express.
func (d *Device) startNotice(n *notice) error {
	info, err := d.irqInfo(n.index)
	if invalid(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Count == 0 || info.Flags&irqFlagEventfd == 0 {
		return nil
	}
	f, err := d.k.eventfd()
	if err != nil {
		return d.explain("eventfd", n.name, err)
	}
	e := event{f}
	if _, err := d.setIRQs(n.index, irqDataEventfd|irqActionTrigger, 0, 1, []int32{e.fd()}); err != nil {
		return errors.Join(err, d.closeEvent(f, n.name))
	}
	n.start(f)
	return nil
}

// stopNotices takes the notices back and ends their goroutines.
func (d *Device) stopNotices() error {
	var err error
	for i := range d.notices {
		n := &d.notices[i]
		if n.event.f == nil {
			continue
		}
		_, e := d.setIRQs(n.index, irqDataEventfd|irqActionTrigger, 0, 1, []int32{-1})
		err = errors.Join(err, e, n.stop(d.host))
	}
	return err
}

// RemovalRequested is closed when somebody wants to take the device away: unbind it, unplug it. Close within seconds.
func (d *Device) RemovalRequested() <-chan struct{} { return d.notices[noticeRemoval].channel() }

// ErrorNotice is closed when the bus reported an error of the device. After Reset it is a new channel.
func (d *Device) ErrorNotice() <-chan struct{} { return d.notices[noticeError].channel() }
