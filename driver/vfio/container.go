package vfio

import (
	"errors"
	"fmt"
	"os"

	"splicenic/driver/device"
)

// A groupDomain can open the device it is for.
type groupDomain interface {
	domain
	openDevice(token string) (fd int, err error)
}

// container is the domain of a device that was reached through its group.
type container struct {
	h         *host
	fd, group int
	kind      int // extType1v2 or extType1
	onGroup   string
}

// openContainer opens the container and the group of a device, in the order the kernel wants: version, extension, group,
// viable, container, IOMMU. The domain it returns may be mapped into.
func openContainer(h *host, g Group) (d groupDomain, err error) {
	c := &container{h: h, fd: -1, group: -1, onGroup: h.groupNode(g)}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.closeAll(c.group, c.fd))
		}
	}()
	if c.fd, err = h.open(h.containerNode(), os.O_RDWR); err != nil {
		c.fd = -1
		return nil, err
	}
	on := h.containerNode()
	v, err := h.ioctl(c.fd, on, getAPIVersion, "", nil)
	if err != nil {
		return nil, err
	}
	if v != apiVersion {
		return nil, &StateError{Fact: fmt.Sprintf("the kernel has version %d of the VFIO interface, this build knows %d", v, apiVersion),
			Fix: "take another kernel", Err: device.ErrNotSupported}
	}
	if c.kind, err = chooseType(h, c.fd, g.NoIOMMU); err != nil {
		return nil, err
	}
	if c.group, err = h.open(c.onGroup, os.O_RDWR); err != nil {
		c.group = -1
		return nil, h.busy(err, false, c.onGroup, h.deviceNode())
	}
	st := groupStatus{Argsz: 8}
	if _, err := h.ioctl(c.group, c.onGroup, groupGetStatus, "", &st); err != nil {
		return nil, err
	}
	if st.Flags&groupViable == 0 {
		return nil, &GroupError{Group: g.Number, Address: h.address, Blocking: g.Blocking()}
	}
	if st.Flags&groupContained != 0 {
		return nil, &StateError{Fact: fmt.Sprintf("IOMMU group %d has a container already", g.Number), Fix: fixRelease, Err: device.ErrBusy}
	}
	fd := int32(c.fd)
	if _, err := h.ioctl(c.group, c.onGroup, groupSetCont, "", &fd); err != nil {
		return nil, err
	}
	if _, err := h.ioctl(c.fd, on, setIOMMU, typeNames[c.kind], c.kind); err != nil {
		return nil, err
	}
	if c.kind == extNoIOMMU {
		return &registersOnly{kind: NoIOMMU, h: h, container: c.fd, group: c.group,
			why: "there is no IOMMU: nothing would keep the card from any memory of the machine, and the kernel maps nothing"}, nil
	}
	return c, nil
}

var typeNames = map[int]string{extType1: "type1", extType1v2: "type1v2", extNoIOMMU: "noiommu"}

// chooseType asks for what the kernel has, the better first: with type1, unmapping a part may succeed and unmap nothing.
func chooseType(h *host, fd int, noIOMMU bool) (int, error) {
	types := []int{extType1v2, extType1}
	if noIOMMU {
		types = []int{extNoIOMMU}
	}
	for _, t := range types {
		n, err := h.ioctl(fd, h.containerNode(), checkExtension, typeNames[t], t)
		if err != nil {
			return 0, err
		}
		if n > 0 {
			return t, nil
		}
	}
	return 0, &StateError{Fact: "the container offers none of the IOMMU types this build knows", Fix: fixModules, Err: device.ErrNotSupported}
}

// openDevice returns the device's descriptor.
func (c *container) openDevice(token string) (int, error) {
	return groupDevice(c.h, c.group, c.onGroup, token)
}

func (r *registersOnly) openDevice(token string) (int, error) {
	return groupDevice(r.h, r.group, "group of "+r.h.address, token)
}

func groupDevice(h *host, group int, on, token string) (int, error) {
	name := h.address
	if token != "" {
		name += " vf_token=" + token
	}
	fd, err := h.ioctl(group, on, groupGetDevice, h.address, name)
	if err != nil {
		return -1, h.busy(err, true, on, h.deviceNode())
	}
	return fd, nil
}

func (c *container) transport() Transport { return Type1 }
func (c *container) kindName() string     { return typeNames[c.kind] }

func (c *container) windows() (windows, error) {
	b, err := c.h.query(c.fd, c.h.containerNode(), iommuGetInfo, 24, -1)
	if err != nil {
		return windows{}, err
	}
	w, err := parseIOMMU(b)
	if err != nil {
		return w, &ReplyError{iommuGetInfo.String(), err.Error()}
	}
	return w, nil
}

func (c *container) mapMemory(iova uint64, mem []byte, write bool) error {
	m := dmaMapCall{dmaMap{Argsz: 32, Flags: mapFlagRead, IOVA: iova, Size: uint64(len(mem))}, mem}
	if write {
		m.Flags |= mapFlagWrite
	}
	_, err := c.h.ioctl(c.fd, c.h.containerNode(), iommuMapDMA, fmt.Sprintf("%#x bytes at %#x", len(mem), iova), &m)
	return err
}

func (c *container) unmapMemory(iova, n uint64) error {
	u := dmaUnmap{Argsz: 24, IOVA: iova, Size: n}
	if _, err := c.h.ioctl(c.fd, c.h.containerNode(), iommuUnmapDMA, fmt.Sprintf("%#x bytes at %#x", n, iova), &u); err != nil {
		return err
	}
	return unmapped(iommuUnmapDMA.String(), iova, n, u.Size)
}

// detach does nothing: a group leaves its container when its descriptor is closed, once no device of it is open.
func (c *container) detach(int) error { return nil }

func (c *container) close() error { return c.h.closeAll(c.group, c.fd) }
