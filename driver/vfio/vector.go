package vfio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"splicenic/driver/device"
)

// vectors is the interrupt index in use: MSI-X, MSI, or the one line of INTx.
type vectors struct {
	index   uint32
	count   int     // the device has
	fixed   bool    // the set is chosen at once (NORESIZE)
	masked  bool    // the kernel masks the line when it raises it (AUTOMASKED)
	armed   []int32 // receivers of the vectors that the kernel has set up, -1: none; empty: the index is off
	enabled atomic.Int32
	unmask  atomic.Bool // the line was raised and handled

	mu     sync.Mutex // guards events, which grow under Device.mu
	events []event
}

// irqNames is what the indexes are called.
var irqNames = [...]string{irqINTx: "INTx", irqMSI: "MSI", irqMSIX: "MSI-X", irqERR: "ERR", irqREQ: "REQ"}

// readIRQs chooses the interrupt index: MSI-X, or MSI, or INTx, whichever the device has first.
func (d *Device) readIRQs() error {
	for _, i := range []uint32{irqMSIX, irqMSI, irqINTx} {
		info, err := d.irqInfo(i)
		if err != nil {
			return err
		}
		if info.Count == 0 || info.Flags&irqFlagEventfd == 0 {
			continue
		}
		if info.Count > 2048 {
			return &ReplyError{fmt.Sprintf("%s %d", deviceGetIRQ, i), fmt.Sprintf("%d vectors", info.Count)}
		}
		d.vec.index, d.vec.count = i, int(info.Count)
		d.vec.fixed = info.Flags&irqFlagNoResize != 0 || i != irqMSIX
		d.vec.masked = info.Flags&irqFlagAutomasked != 0
		break
	}
	d.info.Vectors = d.vec.count
	return nil
}

func (d *Device) irqInfo(i uint32) (irqInfo, error) {
	info := irqInfo{Argsz: 16, Index: i}
	if i >= d.irqs {
		return info, nil
	}
	_, err := d.ioctl(d.fd, d.on, deviceGetIRQ, irqNames[i], &info)
	return info, err
}

// setIRQs makes one call of VFIO_DEVICE_SET_IRQS. fds are the descriptors of start and on; none: count with no data. The
// answer is how many vectors the machine has, where it has fewer than were asked for.
func (d *Device) setIRQs(index, flags uint32, start, count int, fds []int32) (int, error) {
	b, err := binary.Append(nil, binary.NativeEndian, irqSet{Argsz: uint32(20 + 4*len(fds)), Flags: flags, Index: index, Start: uint32(start), Count: uint32(count)})
	if err == nil {
		b, err = binary.Append(b, binary.NativeEndian, fds)
	}
	if err != nil {
		return 0, err
	}
	return d.ioctl(d.fd, d.on, deviceSetIRQs, fmt.Sprintf("%s %d+%d", irqNames[index], start, count), b)
}

// EnableVectors prepares vectors 0..n-1. Where the kernel fixes the set at once, all vectors of the device are set up with
// the first call, those beyond n without a receiver; else each is added or taken by itself, and the others stay.
func (d *Device) EnableVectors(n int) error {
	op := fmt.Sprintf("enable %d vectors", n)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead.Load() {
		return d.Err()
	}
	if n < 0 || n > d.vec.count {
		return d.fault(op, fmt.Errorf("the device has %d: %w", d.vec.count, device.ErrRange))
	}
	if r, ok := d.dom.(*registersOnly); ok && n > 0 {
		return d.fault(op, r.refuse())
	}
	fds, err := d.vec.grow(d.host, n)
	if err != nil {
		return d.fault(op, err)
	}
	if err := d.receivers(fds); err != nil {
		return d.fault(op, err)
	}
	if d.dead.Load() {
		return d.Err()
	}
	return nil
}

// grow makes sure of n events and returns their descriptors.
func (v *vectors) grow(h *host, n int) ([]int32, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.events) < n {
		f, err := h.k.eventfd()
		if err != nil {
			return nil, h.explain("eventfd", fmt.Sprintf("vector %d", len(v.events)), err)
		}
		v.events = append(v.events, event{f})
	}
	fds := make([]int32, n)
	for i := range fds {
		if i >= int(v.enabled.Load()) {
			v.events[i].take() // what was raised while it was off
		}
		fds[i] = v.events[i].fd()
	}
	return fds, nil
}

// SetVectorFDs lets the kernel raise event descriptors of the caller: vector i raises fds[i], -1 raises nothing. They stay
// the caller's. It is for a process that serves the device to another one, and takes the place of EnableVectors and Wait.
func (d *Device) SetVectorFDs(fds []int) error {
	op := fmt.Sprintf("set receivers of %d vectors", len(fds))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead.Load() {
		return d.Err()
	}
	if len(fds) > d.vec.count {
		return d.fault(op, fmt.Errorf("the device has %d: %w", d.vec.count, device.ErrRange))
	}
	raise := make([]int32, len(fds))
	for i, fd := range fds {
		raise[i] = int32(fd)
	}
	d.vec.enabled.Store(0)
	if err := d.receivers(raise); err != nil {
		return d.fault(op, err)
	}
	d.vec.enabled.Store(0) // nobody waits here
	for i := range d.vec.armed {
		d.vec.armed[i] = foreign
	}
	return nil
}

// foreign stands for a receiver of somebody else: its number may be another event by the next call, so it is always set anew.
const foreign = -2

// receivers makes fds the receivers of vectors 0..len(fds)-1 and takes those of the others. Where it fails the index is off.
func (d *Device) receivers(fds []int32) error {
	v := &d.vec
	if len(fds) == 0 {
		return d.disableVectors()
	}
	var err error
	if v.fixed && len(v.armed) < len(fds) {
		if err = d.disableVectors(); err == nil {
			err = d.armAll(fds)
		}
	} else if len(v.armed) == 0 {
		err = d.arm(0, fds)
	} else {
		err = d.armEach(fds)
	}
	if err != nil {
		return errors.Join(err, d.disableVectors())
	}
	v.enabled.Store(int32(len(fds)))
	return nil
}

// armAll sets up the whole index at once. A machine that has fewer vectors says how many; they suffice if they are as many
// as there are receivers.
func (d *Device) armAll(fds []int32) error {
	n := d.vec.count
	for range 3 {
		all := slices.Repeat([]int32{-1}, n)
		copy(all, fds)
		have, err := d.setIRQs(d.vec.index, irqDataEventfd|irqActionTrigger, 0, n, all)
		if err != nil {
			return err
		}
		if have == 0 {
			d.vec.armed = all
			return nil
		}
		if have < len(fds) || have >= n {
			return d.fewVectors(len(fds), have)
		}
		n = have
	}
	return &ReplyError{deviceSetIRQs.String(), "the number of vectors never settles"}
}

// arm sets the receivers of some vectors and nothing else.
func (d *Device) arm(start int, fds []int32) error {
	have, err := d.setIRQs(d.vec.index, irqDataEventfd|irqActionTrigger, start, len(fds), fds)
	if err != nil {
		return err
	}
	if have > 0 {
		return d.fewVectors(start+len(fds), have)
	}
	d.vec.armed = slices.Replace(d.vec.armed, start, min(start+len(fds), len(d.vec.armed)), fds...)
	return nil
}

// armEach changes the vectors whose receiver is another than before, one by one.
func (d *Device) armEach(fds []int32) error {
	for i := range max(len(d.vec.armed), len(fds)) {
		fd := int32(-1)
		if i < len(fds) {
			fd = fds[i]
		}
		if i < len(d.vec.armed) && d.vec.armed[i] == fd {
			continue
		}
		if err := d.arm(i, []int32{fd}); err != nil {
			return err
		}
	}
	return nil
}

func (d *Device) fewVectors(need, have int) error {
	return &QuotaError{What: "interrupt vectors", Unit: "vectors", Need: uint64(need), Have: uint64(have),
		Detail: "what the machine has left for " + d.address, Fix: "take devices with many vectors out of use; see /proc/interrupts"}
}

// disableVectors turns the index off. What was raised and not yet counted is gone.
func (d *Device) disableVectors() error {
	v := &d.vec
	v.enabled.Store(0)
	v.unmask.Store(false)
	var err error
	if len(v.armed) > 0 {
		v.armed = nil
		_, err = d.setIRQs(v.index, irqDataNone|irqActionTrigger, 0, 0, nil)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.events {
		v.events[i].take()
	}
	return err
}

// wake ends the waits for all vectors.
func (v *vectors) wake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.events {
		v.events[i].wake()
	}
}

func (v *vectors) close(h *host) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var err error
	for i := range v.events {
		err = errors.Join(err, h.closeEvent(v.events[i].f, fmt.Sprintf("vector %d", i)))
	}
	return err
}

// Wait blocks until vector v was raised at least once since the last Wait. With INTx, whose line the kernel masks when it
// raises it, Wait also says that the last raise was handled: it unmasks the line before it blocks.
func (d *Device) Wait(ctx context.Context, v int) (uint64, error) {
	if d.dead.Load() {
		return 0, d.Err()
	}
	if v < 0 || v >= int(d.vec.enabled.Load()) {
		return 0, d.fault(fmt.Sprintf("wait for vector %d", v), device.ErrRange)
	}
	if d.vec.unmask.CompareAndSwap(true, false) {
		if err := d.unmaskLine(); err != nil {
			return 0, err
		}
	}
	d.vec.mu.Lock()
	e := d.vec.events[v]
	d.vec.mu.Unlock()
	n, err := e.wait(ctx, d.dead.Load)
	if n > 0 {
		d.vec.unmask.Store(d.vec.masked)
		return n, nil
	}
	if err == nil || errors.Is(err, os.ErrClosed) {
		err = d.Err()
	}
	return 0, err
}

func (d *Device) unmaskLine() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead.Load() {
		return d.Err()
	}
	if len(d.vec.armed) == 0 {
		return nil
	}
	if _, err := d.setIRQs(d.vec.index, irqDataNone|irqActionUnmask, 0, 1, nil); err != nil {
		return d.fault("unmask interrupt line", err)
	}
	return nil
}

// Interrupts tells which kind of interrupt the device has: "MSI-X", "MSI", "INTx", or "" for none.
func (d *Device) Interrupts() string {
	if d.vec.count == 0 {
		return ""
	}
	return irqNames[d.vec.index]
}
