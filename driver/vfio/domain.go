package vfio

import (
	"errors"
	"fmt"

	"splicenic/driver/device"
)

// A Transport is the way to the kernel's IOMMU.
type Transport string

// Transports. Auto, the zero value, takes the group and its container where their nodes can be opened, as every
// distribution's kernel offers them, and the iommufd otherwise.
const (
	Auto    Transport = ""
	Type1   Transport = "type1"
	IOMMUFD Transport = "iommufd"
	// NoIOMMU and Registers are told by Device.Transport, never chosen: a group without IOMMU, and a device that was
	// handed over without a container.
	NoIOMMU   Transport = "noiommu"
	Registers Transport = "registers"
)

// ParseTransport takes the name a user gives.
func ParseTransport(s string) (Transport, error) {
	switch t := Transport(s); t {
	case Auto, Type1, IOMMUFD:
		return t, nil
	case "auto":
		return Auto, nil
	}
	return Auto, fmt.Errorf("transport %q: want auto, type1 or iommufd", s)
}

// A domain is the address space a device sees, and the descriptors that stand for it.
type domain interface {
	transport() Transport
	kindName() string // "type1v2"
	windows() (windows, error)
	mapMemory(iova uint64, mem []byte, write bool) error // write: by the device
	unmapMemory(iova, n uint64) error
	// detach ends the device's use of the domain; dev is still open. close lets the descriptors go.
	detach(dev int) error
	close() error
}

// registersOnly is the domain of a device that gets no DMA.
type registersOnly struct {
	kind      Transport
	h         *host
	container int // -1: none
	group     int
	why       string
}

func (r *registersOnly) transport() Transport      { return r.kind }
func (r *registersOnly) kindName() string          { return string(r.kind) }
func (r *registersOnly) windows() (windows, error) { return windows{page: 4096}, nil }
func (r *registersOnly) detach(int) error          { return nil }

// refuse is the answer to whatever goes beyond registers.
func (r *registersOnly) refuse() error {
	return &StateError{Fact: r.why, Fix: "use it for registers only", Err: device.ErrNotSupported}
}

func (r *registersOnly) mapMemory(uint64, []byte, bool) error { return r.refuse() }

func (r *registersOnly) unmapMemory(uint64, uint64) error { return device.ErrNotSupported }

func (r *registersOnly) close() error { return r.h.closeAll(r.group, r.container) }

// closeAll closes descriptors; -1 is none.
func (h *host) closeAll(fds ...int) error {
	var err error
	for _, fd := range fds {
		if fd >= 0 {
			err = errors.Join(err, h.explain("close", fmt.Sprintf("descriptor %d of %s", fd, h.address), h.k.close(fd)))
		}
	}
	return err
}

// unmapped compares what was unmapped with what was asked for: an IOMMU of the first type may answer success and less.
func unmapped(call string, iova, want, got uint64) error {
	if got == want {
		return nil
	}
	return &ReplyError{call, fmt.Sprintf("it unmapped %#x of %#x bytes at %#x", got, want, iova)}
}
