package mmio

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrNotSupported says that this architecture has no access stubs.
var ErrNotSupported = errors.New("memory-mapped device access is not supported on this architecture")

// A Region is device memory mapped into this process. The zero Region is empty.
type Region struct{ mem []byte }

// NewRegion wraps a mapping, which stays mapped as long as the Region is used.
func NewRegion(mem []byte) (Region, error) {
	if !supported {
		return Region{}, ErrNotSupported
	}
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(mem))); at%8 != 0 { // looks at the address only
		return Region{}, fmt.Errorf("map region: address %#x is not aligned", at)
	}
	return Region{mem}, nil
}

// Bytes returns the size of the region.
func (r Region) Bytes() uint64 { return uint64(len(r.mem)) }

// inside says whether n bytes at off are in the region and aligned.
func (r Region) inside(off, n uint64) bool {
	size := uint64(len(r.mem))
	return off%n == 0 && n <= size && off <= size-n
}

// at returns the address of offset off.
//
// Bounds and alignment: every caller has asked inside, and the region starts at a multiple of 8. Lifetime: mem comes
// from mmap, so it does not move, and its owner keeps it mapped.
func (r Region) at(off uint64) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.mem)), off)
}

// Load32 loads one word; ok is false, and the device not touched, where it is not in the region or not aligned.
func (r Region) Load32(off uint64) (v uint32, ok bool) {
	if !r.inside(off, 4) {
		return 0, false
	}
	return Load32(r.at(off)), true
}

// Store32 stores one word and says whether it did.
func (r Region) Store32(off uint64, v uint32) (ok bool) {
	if !r.inside(off, 4) {
		return false
	}
	Store32(r.at(off), v)
	return true
}

// Load64 loads one 64-bit word; ok is false, and the device not touched, where it is not in the region or not aligned.
func (r Region) Load64(off uint64) (v uint64, ok bool) {
	if !r.inside(off, 8) {
		return 0, false
	}
	return Load64(r.at(off)), true
}

// Store64 stores one 64-bit word and says whether it did.
func (r Region) Store64(off uint64, v uint64) (ok bool) {
	if !r.inside(off, 8) {
		return false
	}
	Store64(r.at(off), v)
	return true
}
