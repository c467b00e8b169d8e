package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"splicenic/driver/device"
)

// A Device is a PCI function behind VFIO. It implements device.Device.
type Device struct {
	*host
	o      Options
	name   string // vfio:0000:65:00.0
	on     string // in errors of calls
	fd     int
	dom    domain
	shared bool // somebody else keeps the device

	info    device.Info
	flags   uint32
	regions uint32
	irqs    uint32
	ids     [configHeader]byte
	config  region
	bars    [device.Regions]bar

	mu      sync.Mutex // set-up: configuration space, dma, vectors, reset, close
	closed  bool
	windows windows
	space   space
	live    []*allocation
	vec     vectors
	notices [2]notice

	errMu sync.Mutex
	err   error // sticky
	dead  atomic.Bool
	down  chan struct{} // closed with dead
}

var _ device.Device = (*Device)(nil)

// Info describes the device.
func (d *Device) Info() device.Info {
	i := d.info
	i.IOVA = slices.Clone(i.IOVA)
	return i
}

// Transport tells by which way the device was opened.
func (d *Device) Transport() Transport { return d.dom.transport() }

// IOMMU tells the kind of address space the device has: "type1v2", "type1", "iommufd"; "noiommu" or "registers" for none.
func (d *Device) IOMMU() string { return d.dom.kindName() }

// Resettable says whether the kernel can reset the function by itself.
func (d *Device) Resettable() bool { return d.flags&deviceFlagReset != 0 }

func (d *Device) fault(op string, err error) error {
	return &device.OpError{Op: op, Dev: d.name, Err: err}
}

// fail makes err the sticky error unless there is one, and wakes whoever waits. It may be called with any lock but errMu.
func (d *Device) fail(err error) {
	d.errMu.Lock()
	defer d.errMu.Unlock()
	if d.err != nil {
		return
	}
	d.err = err
	d.dead.Store(true)
	close(d.down)
	d.vec.wake()
}

// Err returns the sticky error.
func (d *Device) Err() error {
	d.errMu.Lock()
	defer d.errMu.Unlock()
	return d.err
}

// Lose sets the sticky error.
func (d *Device) Lose(err error) {
	if err == nil {
		err = device.ErrDeviceLost
	}
	d.fail(d.fault("use device", err))
}

// lost is the sticky error of a device that does not answer; cause is what was noticed.
func (d *Device) lost(op string, cause error) {
	if errors.Is(cause, device.ErrDeviceLost) {
		d.fail(d.fault(op, cause))
		return
	}
	d.fail(d.fault(op, fmt.Errorf("%w: %w", device.ErrDeviceLost, cause)))
}

// ReadConfig reads configuration space.
func (d *Device) ReadConfig(off uint32, p []byte) error {
	return d.configCall("read", off, p, d.readConfig)
}

// WriteConfig writes configuration space, as the kernel lets it: BARs, MSI and MSI-X keep what it set, and the function
// level reset bit makes it reset the device.
func (d *Device) WriteConfig(off uint32, p []byte) error {
	return d.configCall("write", off, p, d.writeConfig)
}

func (d *Device) configCall(verb string, off uint32, p []byte, do func(uint32, []byte) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead.Load() {
		return d.Err()
	}
	if err := do(off, p); err != nil {
		return d.fault(fmt.Sprintf("%s configuration space at %#x", verb, off), err)
	}
	return nil
}

// readConfig and writeConfig make one access; d.mu is held or the device is not out yet.
func (d *Device) readConfig(off uint32, p []byte) error {
	if err := d.inConfig(off, p); err != nil {
		return err
	}
	n, err := d.k.pread(d.fd, p, int64(d.config.offset)+int64(off))
	return d.configDone("pread", n, len(p), err)
}

func (d *Device) writeConfig(off uint32, p []byte) error {
	if err := d.inConfig(off, p); err != nil {
		return err
	}
	n, err := d.k.pwrite(d.fd, p, int64(d.config.offset)+int64(off))
	return d.configDone("pwrite", n, len(p), err)
}

func (d *Device) inConfig(off uint32, p []byte) error {
	if uint64(off)+uint64(len(p)) > min(d.config.size, configBytes) {
		return fmt.Errorf("%d bytes, it has %d: %w", len(p), d.config.size, device.ErrRange)
	}
	return nil
}

func (d *Device) configDone(call string, got, want int, err error) error {
	on := "configuration space of " + d.address
	if err != nil {
		return d.explain(call, on, err)
	}
	if got != want {
		return &ReplyError{call + " on " + on, fmt.Sprintf("%d of %d bytes", got, want)}
	}
	return nil
}

// readIDs reads what the device is. A space of all ones is a device that does not answer.
func (d *Device) readIDs() error {
	if err := d.readConfig(0, d.ids[:]); err != nil {
		return err
	}
	if gone(d.ids[:]) {
		return &StateError{Fact: d.address + " does not answer: its configuration space reads all ones", Fix: fixRescan, Err: device.ErrDeviceLost}
	}
	b := d.ids[:]
	i := &d.info
	i.VendorID, i.DeviceID = binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:])
	i.Revision = b[8]
	i.Class = binary.LittleEndian.Uint32(b[8:]) >> 8
	i.Subsys = binary.LittleEndian.Uint32(b[offSubsystem:])
	for n := range 6 {
		if bits := b[offBAR+4*n]; d.bars[n].info.size > 0 && bits&1 == 0 && bits&8 != 0 {
			i.Regions[n].Flags |= device.RegionPrefetchable
		}
	}
	return nil
}

func gone(b []byte) bool { return binary.LittleEndian.Uint32(b) == ^uint32(0) }

// setCommand sets and clears bits of the command register.
func (d *Device) setCommand(set, unset uint16) error {
	var b [2]byte
	if err := d.readConfig(offCommand, b[:]); err != nil {
		return err
	}
	old := binary.LittleEndian.Uint16(b[:])
	if old == 0xffff {
		return &StateError{Fact: "the command register reads all ones", Fix: fixRescan, Err: device.ErrDeviceLost}
	}
	binary.LittleEndian.PutUint16(b[:], old&^unset|set)
	return d.writeConfig(offCommand, b[:])
}

// turnOn enables the device's memory space and lets it be a bus master. VFIO leaves both off.
func (d *Device) turnOn() error {
	bits := uint16(commandMemory | commandBusMaster)
	if d.Transport() == NoIOMMU {
		bits = commandMemory
	}
	return d.setCommand(bits, 0)
}

const (
	resetTries  = 20
	resetPause  = 50 * time.Millisecond
	settleTries = 100
	settlePause = 10 * time.Millisecond
)

// Reset returns the function to its state after power-on by the kernel's reset of it, and turns it on again. It takes at
// most two seconds: the kernel refuses while another reset holds the bus, and the function may take its time to answer.
// Loads and stores wait meanwhile. Removal and error notices stay; an error notice that was given is taken back.
func (d *Device) Reset() error { return d.reset(false) }

// reset is Reset; keepOthers leaves what was mapped for another process mapped, which the kernel's reset does not touch.
func (d *Device) reset(keepOthers bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead.Load() {
		return d.Err()
	}
	if d.shared {
		return d.fault("reset", &StateError{Fact: "the device belongs to the process that handed it over", Fix: "ask that process", Err: device.ErrNotSupported})
	}
	if !d.Resettable() {
		return d.fault("reset", &StateError{Fact: "the function has no reset of its own", Fix: "cat " + d.device() + "/reset_method", Err: device.ErrNotSupported})
	}
	for i := range d.bars {
		d.bars[i].mu.Lock()
		defer d.bars[i].mu.Unlock()
	}
	if err := errors.Join(d.setCommand(0, commandBusMaster), d.disableVectors(), d.unmapAll(keepOthers)); err != nil {
		return d.fault("prepare reset", errors.Join(err, d.turnOn()))
	}
	if err := d.resetFunction(); err != nil {
		return d.fault("reset", errors.Join(err, d.turnOn()))
	}
	if err := d.settle(); err != nil {
		err = d.fault("reset", err)
		d.fail(err)
		return err
	}
	if err := d.turnOn(); err != nil {
		return d.fault("turn on after reset", err)
	}
	d.notices[noticeError].rearm()
	return nil
}

func (d *Device) resetFunction() error {
	var err error
	for range resetTries {
		if _, err = d.k.ioctl(d.fd, deviceReset, nil); !again(err) {
			break
		}
		d.k.pause(resetPause)
	}
	return d.explain(deviceReset.String(), d.on, err)
}

// settle waits until the function answers and checks that it is still the same.
func (d *Device) settle() error {
	var b [configHeader]byte
	for range settleTries {
		if err := d.readConfig(0, b[:]); err != nil {
			return err
		}
		if !gone(b[:]) {
			break
		}
		d.k.pause(settlePause)
	}
	if gone(b[:]) {
		return &StateError{Fact: "the function does not answer after its reset", Fix: fixRescan, Err: device.ErrDeviceLost}
	}
	for _, f := range []struct {
		name    string
		off, to int
	}{{"vendor and device", 0, 4}, {"revision and class", 8, 12}, {"subsystem", offSubsystem, offSubsystem + 4}} {
		if got, want := b[f.off:f.to], d.ids[f.off:f.to]; string(got) != string(want) {
			return &StateError{Fact: fmt.Sprintf("after the reset another function answers: %s %x, was %x", f.name, got, want),
				Fix: "open it anew", Err: device.ErrDeviceLost}
		}
	}
	return nil
}

// Close stops waits, revokes bus mastering, takes interrupts, memory and mappings back and lets the device go. It does all
// of it whatever fails, and returns what failed. It is bounded: it waits for nobody but accesses under way.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	wasLost := errors.Is(d.Err(), device.ErrDeviceLost)
	d.fail(d.fault("use device", device.ErrClosed))
	err := d.release()
	if err != nil && !wasLost {
		return d.fault("close", err)
	}
	return nil
}

// release undoes set-up as far as it went and closes the descriptors.
func (d *Device) release() error {
	return errors.Join(d.unwind(), d.dom.detach(d.fd), d.closeAll(d.fd), d.dom.close(), d.freeMemory())
}

// unwind undoes set-up but keeps the descriptors.
func (d *Device) unwind() error {
	d.closed = true
	var err error
	if !d.shared && d.config.size > 0 {
		err = d.setCommand(0, commandBusMaster)
	}
	err = errors.Join(err, d.disableVectors(), d.stopNotices(), d.vec.close(d.host), d.unmapAll(false), d.unmapBARs())
	if !d.shared && d.config.size > 0 {
		err = errors.Join(err, d.setCommand(0, commandMemory))
	}
	return err
}

func again(err error) bool { return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EBUSY) }

func invalid(err error) bool { return errors.Is(err, syscall.EINVAL) }
