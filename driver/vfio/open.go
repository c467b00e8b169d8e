package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"splicenic/driver/device"
)

// Options says how a device is opened. The zero value suits.
type Options struct {
	// Transport forces one; Auto tries them.
	Transport Transport
	// NoIOMMU takes a device without IOMMU, for its registers only. The kernel marks itself tainted when such a device is
	// opened, and nothing confines the card: bus mastering stays off. False: it is refused.
	NoIOMMU bool
	// VFToken is the UUID that the owner of the physical function set; empty: none. It is for type1 only.
	VFToken string
	// NoGuard gives successive buffers adjacent IOVAs, so that a test can cross from one mapping into the next. False: an
	// unmapped page lies between any two buffers.
	NoGuard bool
	// NoHugePages keeps DMA memory in pages of the usual size.
	NoHugePages bool
	// Where the kernel's file systems are; empty: /sys, /dev, /proc.
	Sysfs, Dev, Proc string

	kernel kernel // of tests
}

func (o *Options) host(address string) (*host, error) {
	k := o.kernel
	if k == nil {
		var err error
		if k, err = newKernel(); err != nil {
			return nil, err
		}
	}
	return &host{k: k, nodes: nodes{address: address, sys: or(o.Sysfs, "/sys"), dev: or(o.Dev, "/dev"), proc: or(o.Proc, "/proc")}}, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Open opens the device at a PCI address, which the vfio-pci driver has. It is the process's until Close: a second Open,
// here or elsewhere, fails with device.ErrBusy and names the process.
func Open(address string, o Options) (*Device, error) {
	fail := func(err error) (*Device, error) {
		return nil, &device.OpError{Op: "open device", Dev: "vfio:" + address, Err: err}
	}
	at, err := ParseAddress(address)
	if err != nil {
		return fail(err)
	}
	address = at
	h, err := o.host(address)
	if err != nil {
		return fail(err)
	}
	dom, fd, err := openDomain(h, &o)
	if err != nil {
		return fail(err)
	}
	d := newDevice(h, o, dom, fd)
	if err := d.setUp(); err != nil {
		return fail(errors.Join(err, d.release()))
	}
	return d, nil
}

// openDomain opens the device by the transport that is asked for, or the first that can be.
func openDomain(h *host, o *Options) (domain, int, error) {
	if o.Transport == IOMMUFD {
		return byNode(h)
	}
	dom, fd, err := byGroup(h, o)
	if err == nil || o.Transport != Auto || !nodeMissing(err) || h.deviceNode() == "" {
		return dom, fd, err
	}
	second, fd, other := byNode(h)
	if other != nil {
		return nil, -1, fmt.Errorf("neither transport works: type1: %w; iommufd: %w", err, other)
	}
	return second, fd, nil
}

func byNode(h *host) (domain, int, error) {
	d, fd, err := openIOMMUFD(h)
	if err != nil {
		return nil, -1, err
	}
	return d, fd, nil
}

func byGroup(h *host, o *Options) (domain, int, error) {
	g, err := ReadGroup(h.sys, h.address)
	if errors.Is(err, ErrNoGroup) {
		return nil, -1, &StateError{Fact: h.address + " is in no IOMMU group: the IOMMU is off",
			Fix: "turn VT-d or AMD-Vi on in the firmware and boot with intel_iommu=on", Err: ErrNoGroup}
	}
	if err != nil {
		return nil, -1, fmt.Errorf("%w; do: splicectl card list", err)
	}
	if g.NoIOMMU && !o.NoIOMMU {
		return nil, -1, &StateError{Fact: fmt.Sprintf("%s has no IOMMU (noiommu group %d): its DMA would reach all memory, and opening it taints the kernel", h.address, g.Number),
			Fix: "turn the IOMMU on, or ask for it by name: --noiommu, which gives registers only", Err: device.ErrNotSupported}
	}
	dom, err := openContainer(h, g)
	if err != nil {
		return nil, -1, err
	}
	fd, err := dom.openDevice(o.VFToken)
	if err != nil {
		return nil, -1, errors.Join(err, dom.close())
	}
	return dom, fd, nil
}

// nodeMissing says whether an error is that a transport's nodes are not there, or not for this user.
func nodeMissing(err error) bool {
	var e *CallError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Errno {
	case syscall.ENOENT, syscall.ENODEV, syscall.EACCES, syscall.EPERM:
		return e.Call == "open"
	}
	return false
}

// Handed is a device that another process opened and gives away, or shares. FromFD takes the descriptors over where it
// succeeds; where it fails they stay the caller's.
type Handed struct {
	Address string // PCI address
	Device  int    // the device

	// The domain: Container of type1 with its Group where the receiver shall keep it, or an IOMMUFD with an address space.
	// All zero: the device is used for its registers only, while somebody else maps memory and takes interrupts.
	Container, Group int
	IOMMUFD          int
	IOAS             uint32

	// Shared leaves what belongs to the giver as it is: the command register, notices, and interrupts that were not set up
	// here. False: the giver is done with the device.
	Shared bool
}

// FromFD makes a Device of descriptors that were opened elsewhere. The container has its IOMMU set, or the device is
// attached to the address space; Options.Transport and VFToken mean nothing here.
func FromFD(given Handed, o Options) (*Device, error) {
	fail := func(err error) (*Device, error) {
		return nil, &device.OpError{Op: "take device over", Dev: "vfio:" + given.Address, Err: err}
	}
	address, err := ParseAddress(given.Address)
	if err != nil {
		return fail(err)
	}
	h, err := o.host(address)
	if err != nil {
		return fail(err)
	}
	d := newDevice(h, o, nil, given.Device)
	d.shared = given.Shared
	none := func(fd int) int {
		if fd == 0 {
			return -1
		}
		return fd
	}
	switch {
	case given.IOMMUFD != 0:
		d.dom = &ioas{h: h, fd: given.IOMMUFD, id: given.IOAS, attached: !given.Shared, own: !given.Shared}
	case given.Container != 0:
		d.dom = &container{h: h, fd: given.Container, group: none(given.Group), kind: extType1v2}
	default:
		d.dom = &registersOnly{kind: Registers, h: h, container: -1, group: none(given.Group), why: "no container came with the device"}
		d.shared = true
	}
	if err := d.setUp(); err != nil {
		return fail(errors.Join(err, d.unwind()))
	}
	return d, nil
}

func newDevice(h *host, o Options, dom domain, fd int) *Device {
	d := &Device{host: h, o: o, dom: dom, fd: fd, name: "vfio:" + h.address, down: make(chan struct{})}
	d.on = "device " + h.address
	return d
}

// setUp reads what the device is, maps its BARs, asks for notices and turns it on.
func (d *Device) setUp() error {
	if err := d.readInfo(); err != nil {
		return err
	}
	if err := d.readRegions(); err != nil {
		return err
	}
	if err := d.readIDs(); err != nil {
		return err
	}
	if err := d.readIRQs(); err != nil {
		return err
	}
	w, err := d.dom.windows()
	if err != nil {
		return err
	}
	d.windows = w
	d.space = newSpace(w.ranges, max(w.page, uint64(os.Getpagesize())), d.o.NoGuard)
	d.info.IOVA = w.ranges
	if err := d.mapBARs(); err != nil {
		return err
	}
	if !d.shared {
		if err := d.startNotices(); err != nil {
			return err
		}
		return d.turnOn()
	}
	return nil
}

func (d *Device) readInfo() error {
	b, err := d.query(d.fd, d.on, deviceGetInfo, 24, -1)
	if err != nil {
		return err
	}
	// Kernels before capabilities answer four words, those since six.
	d.flags = binary.NativeEndian.Uint32(b[4:])
	d.regions = min(binary.NativeEndian.Uint32(b[8:]), regionConfig+1)
	d.irqs = binary.NativeEndian.Uint32(b[12:])
	if d.flags&deviceFlagPCI == 0 {
		return &StateError{Fact: d.address + " is no PCI device to the kernel", Fix: "name another one", Err: device.ErrNotSupported}
	}
	if d.regions <= regionConfig {
		return &ReplyError{deviceGetInfo.String(), fmt.Sprintf("a PCI device with %d regions", d.regions)}
	}
	d.info = device.Info{Name: d.name, Body: "vfio", NUMANode: -1}
	if n, err := strconv.Atoi(attribute(d.device(), "numa_node")); err == nil {
		d.info.NUMANode = n
	}
	return nil
}
