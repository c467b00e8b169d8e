package vfio

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

func (k *fakeKernel) pread(fd int, b []byte, off int64) (int, error) {
	return k.transfer("pread", fd, b, off, k.pci.read)
}

func (k *fakeKernel) pwrite(fd int, b []byte, off int64) (int, error) {
	return k.transfer("pwrite", fd, b, off, k.pci.write)
}

// transfer calls the card without the kernel's lock: it may raise vectors and copy.
func (k *fakeKernel) transfer(call string, fd int, b []byte, off int64, do func(i int, rel uint64, b []byte) error) (int, error) {
	k.mu.Lock()
	i, rel, ok := k.pci.at(uint64(off), uint64(len(b)))
	name := fmt.Sprintf("%s region %d %#x+%d", call, i, rel, len(b))
	if i == regionConfig && call == "pwrite" {
		name += fmt.Sprintf(" %x", b)
	}
	err := k.step(name)
	gone := k.gone > 0 && len(k.calls) >= k.gone
	f := k.files[fd]
	var fail error
	if i < regionConfig {
		fail = k.pci.regions[i].fail
	}
	k.mu.Unlock()
	switch {
	case err != nil:
		return -1, err
	case f == nil:
		return -1, unix.EBADF
	case !ok:
		return -1, unix.EINVAL
	case fail != nil:
		return -1, fail
	case gone: // as a bus answers for a device that is not there any more
		if call == "pread" {
			for j := range b {
				b[j] = 0xff
			}
		}
		return len(b), nil
	case i < regionConfig && k.pci.command.Load()&commandMemory == 0:
		return -1, unix.EIO
	}
	if err := do(i, rel, b); err != nil {
		return -1, unix.EIO
	}
	return len(b), nil
}

func (p *fakePCI) read(i int, rel uint64, b []byte) error {
	if i == regionConfig {
		p.k.mu.Lock()
		defer p.k.mu.Unlock()
		copy(b, p.config[rel:])
		if p.k.deaf > 0 && p.resets > 0 && rel == 0 && len(b) == configHeader {
			p.k.deaf--
			for i := range b {
				b[i] = 0xff
			}
		}
		return nil
	}
	if r := p.regions[i]; r.memory >= 0 {
		_, err := unix.Pread(r.memory, b, int64(rel))
		return err
	}
	return p.k.fn.ReadRegion(i, rel, b)
}

func (p *fakePCI) write(i int, rel uint64, b []byte) error {
	if i == regionConfig {
		p.k.mu.Lock()
		defer p.k.mu.Unlock()
		if rel == offCommand && len(b) == 2 {
			p.setCommand(binary.LittleEndian.Uint16(b))
		}
		return nil
	}
	if r := p.regions[i]; r.memory >= 0 {
		_, err := unix.Pwrite(r.memory, b, int64(rel))
		return err
	}
	return p.k.fn.WriteRegion(i, rel, b)
}
