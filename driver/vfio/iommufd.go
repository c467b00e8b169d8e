package vfio

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"splicenic/driver/device"
)

// ioas is the domain of a device that was reached through its own node: an address space of an iommufd.
type ioas struct {
	h        *host
	fd       int
	id       uint32
	attached bool
	own      bool // made here, to be destroyed here
}

// openIOMMUFD opens a device's node, binds it to an iommufd and attaches it to a new address space. Before the bind
// nothing of the device can be used, before the attach it reaches no memory.
func openIOMMUFD(h *host) (d *ioas, dev int, err error) {
	dev = -1
	d = &ioas{h: h, fd: -1, own: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.undo(dev))
		}
	}()
	node := h.deviceNode()
	if node == "" {
		return d, dev, &StateError{Fact: h.address + " has no node of its own: vfio-pci does not have it, or the kernel has no CONFIG_VFIO_DEVICE_CDEV",
			Fix: "splicectl card bind " + h.address + ", or take --transport type1", Err: device.ErrNotSupported}
	}
	if d.fd, err = h.open(h.iommuNode(), os.O_RDWR); err != nil {
		d.fd = -1
		return d, dev, err
	}
	if dev, err = h.open(node, os.O_RDWR); err != nil {
		return d, -1, h.busy(err, false, node)
	}
	bind := bindIOMMUFD{Argsz: 16, IOMMUFD: int32(d.fd)}
	if _, err = h.ioctl(dev, node, deviceBind, "", &bind); err != nil {
		return d, dev, h.busy(err, true, node, h.groupOf())
	}
	alloc := ioasAllocate{Size: 12}
	if _, err = h.ioctl(d.fd, h.iommuNode(), ioasAlloc, "", &alloc); err != nil {
		return d, dev, err
	}
	d.id = alloc.ID
	attach := attachIOMMUFD{Argsz: attachBytes, PageTable: d.id}
	if _, err = h.ioctl(dev, node, deviceAttach, "", &attach); err != nil {
		return d, dev, err
	}
	d.attached = true
	return d, dev, nil
}

// undo takes back what was done before an error.
func (d *ioas) undo(dev int) error {
	return errors.Join(d.detach(dev), d.h.closeAll(dev), d.close())
}

func (d *ioas) transport() Transport { return IOMMUFD }
func (d *ioas) kindName() string     { return "iommufd" }

func (d *ioas) windows() (windows, error) {
	c := ioasRangesCall{ioasIOVARanges: ioasIOVARanges{Size: 32, ID: d.id}}
	for range 4 {
		c.Num, c.Allowed = uint32(len(c.ranges)), 0
		_, err := d.h.k.ioctl(d.fd, ioasRanges, &c)
		if errors.Is(err, syscall.EMSGSIZE) && c.Num > uint32(len(c.ranges)) {
			if c.Num > maxInfo/16 {
				return windows{}, &ReplyError{ioasRanges.String(), fmt.Sprintf("it has %d ranges", c.Num)}
			}
			c.ranges = make([]iovaRange, c.Num)
			continue
		}
		if err != nil {
			return windows{}, d.h.explain(ioasRanges.String(), d.h.iommuNode(), err)
		}
		if c.Num > uint32(len(c.ranges)) {
			return windows{}, &ReplyError{ioasRanges.String(), fmt.Sprintf("it has %d ranges and gave %d", c.Num, len(c.ranges))}
		}
		w := windows{page: max(c.Alignment, 1)}
		for _, r := range c.ranges[:c.Num] {
			w.ranges = append(w.ranges, device.IOVARange{First: r.First, Last: r.Last})
		}
		if err := w.check(); err != nil {
			return w, &ReplyError{ioasRanges.String(), err.Error()}
		}
		return w, nil
	}
	return windows{}, &ReplyError{ioasRanges.String(), "their number never settles"}
}

func (d *ioas) mapMemory(iova uint64, mem []byte, write bool) error {
	m := ioasMapCall{ioasMapMemory{Size: 40, Flags: ioasFixed | ioasReadable, ID: d.id, Length: uint64(len(mem)), IOVA: iova}, mem}
	if write {
		m.Flags |= ioasWritable
	}
	_, err := d.h.ioctl(d.fd, d.h.iommuNode(), ioasMap, fmt.Sprintf("%#x bytes at %#x", len(mem), iova), &m)
	return err
}

func (d *ioas) unmapMemory(iova, n uint64) error {
	u := ioasUnmapMemory{Size: 24, ID: d.id, IOVA: iova, Length: n}
	if _, err := d.h.ioctl(d.fd, d.h.iommuNode(), ioasUnmap, fmt.Sprintf("%#x bytes at %#x", n, iova), &u); err != nil {
		return err
	}
	return unmapped(ioasUnmap.String(), iova, n, u.Length)
}

// detach blocks the device's DMA.
func (d *ioas) detach(dev int) error {
	if !d.attached {
		return nil
	}
	d.attached = false
	a := detachIOMMUFD{Argsz: detachBytes}
	_, err := d.h.ioctl(dev, "the node of "+d.h.address, deviceDetach, "", &a)
	return err
}

func (d *ioas) close() error {
	var err error
	if d.own && d.id != 0 && d.fd >= 0 {
		x := destroyObject{Size: 8, ID: d.id}
		_, err = d.h.ioctl(d.fd, d.h.iommuNode(), iommufdDestroy, "", &x)
		d.id = 0
	}
	err = errors.Join(err, d.h.closeAll(d.fd))
	d.fd = -1
	return err
}
