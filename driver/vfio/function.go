package vfio

import (
	"encoding/binary"
	"fmt"

	"splicenic/driver/device"
)

// A Function offers a Device as a device.Function, for the process that keeps the card and serves it to another one. The
// client's memory is mapped into the card's address space and its eventfds are given to the kernel, so that neither DMA nor
// interrupts pass through this process. The Device stays its owner's, who uses nothing else of it meanwhile.
type Function struct{ d *Device }

// Function returns the device's other face.
func (d *Device) Function() *Function { return &Function{d} }

var _ device.Function = (*Function)(nil)

// Info describes the device.
func (f *Function) Info() device.Info { return f.d.Info() }

// ReadConfig reads configuration space.
func (f *Function) ReadConfig(off uint32, p []byte) error { return f.d.ReadConfig(off, p) }

// WriteConfig writes configuration space.
func (f *Function) WriteConfig(off uint32, p []byte) error { return f.d.WriteConfig(off, p) }

// check refuses what a client asks for beyond a region before it could end the device.
func (f *Function) check(op string, region int, off uint64, n int) error {
	if err := f.d.Err(); err != nil {
		return err
	}
	if region < 0 || region >= device.Regions {
		return f.d.fault(access(op, region, off), device.ErrRange)
	}
	size := f.d.bars[region].info.size
	if n == 0 || n%4 != 0 || off%4 != 0 || uint64(n) > size || off > size-uint64(n) {
		return f.d.fault(fmt.Sprintf("%s, %d bytes", access(op, region, off), n), device.ErrRange)
	}
	return nil
}

// ReadRegion reads words of a region: aligned 64-bit ones where they fit, else 32-bit ones.
func (f *Function) ReadRegion(region int, off uint64, p []byte) error {
	if err := f.check("load from", region, off, len(p)); err != nil {
		return err
	}
	for len(p) > 0 {
		if off%8 == 0 && len(p) >= 8 {
			binary.LittleEndian.PutUint64(p, f.d.Load64(region, off))
			off, p = off+8, p[8:]
			continue
		}
		binary.LittleEndian.PutUint32(p, f.d.Load32(region, off))
		off, p = off+4, p[4:]
	}
	return f.d.Err()
}

// WriteRegion writes words of a region.
func (f *Function) WriteRegion(region int, off uint64, p []byte) error {
	if err := f.check("store to", region, off, len(p)); err != nil {
		return err
	}
	for len(p) > 0 {
		if off%8 == 0 && len(p) >= 8 {
			f.d.Store64(region, off, binary.LittleEndian.Uint64(p))
			off, p = off+8, p[8:]
			continue
		}
		f.d.Store32(region, off, binary.LittleEndian.Uint32(p))
		off, p = off+4, p[4:]
	}
	return f.d.Err()
}

// MapDMA fails: an address alone is not enough, the kernel needs the memory.
func (f *Function) MapDMA(iova, size uint64) error {
	return f.d.fault(fmt.Sprintf("map %#x bytes at %#x without memory", size, iova), device.ErrNotSupported)
}

// MapMemory maps memory of the client.
func (f *Function) MapMemory(iova uint64, mem []byte, write bool) error {
	return f.d.MapMemory(iova, mem, write)
}

// UnmapDMA takes it back.
func (f *Function) UnmapDMA(iova, size uint64) error { return f.d.UnmapMemory(iova, size) }

// SetHost has nothing to do: the card reaches its host through the IOMMU.
func (f *Function) SetHost(device.Memory) {}

// SetVectors turns interrupts off; a function to raise one is nothing the kernel could call.
func (f *Function) SetVectors(raise []func()) error {
	for _, r := range raise {
		if r != nil {
			return f.d.fault("set vectors without eventfds", device.ErrNotSupported)
		}
	}
	return f.SetEventfds(nil)
}

// SetEventfds lets the kernel raise the client's eventfds.
func (f *Function) SetEventfds(fds []int) error { return f.d.SetVectorFDs(fds) }

// Reset resets the device and takes its vectors away. What is mapped stays mapped.
func (f *Function) Reset() error { return f.d.reset(true) }
