package vfio

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"splicenic/driver/device"
	"splicenic/driver/mmio"
)

// A Mapping is device memory in this process, made of bytes that mmap returned. Its owner keeps them mapped while it is in
// use. An access that faults, because the kernel took the mapping away, fails and does not end the process: each access is
// fenced by itself, so that a fault anywhere else in the program stays the program's own.
type Mapping struct {
	region      mmio.Region
	first, last uintptr // addresses
}

// NewMapping wraps the first n bytes of mem.
func NewMapping(mem []byte, n uint64) (*Mapping, error) {
	if n == 0 || n > uint64(len(mem)) {
		return nil, fmt.Errorf("wrap %d of %d mapped bytes: %w", n, len(mem), device.ErrRange)
	}
	r, err := mmio.NewRegion(mem[:n:n])
	if err != nil {
		return nil, err
	}
	first := address(mem)
	return &Mapping{region: r, first: first, last: first + uintptr(len(mem)) - 1}, nil
}

// fence is deferred around one access: it undoes the goroutine's setting and makes a fault inside the mapping a false ok.
func (m *Mapping) fence(old bool, r any, ok *bool) {
	debug.SetPanicOnFault(old)
	if r == nil {
		return
	}
	fault, isFault := r.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !isFault || fault.Addr() < m.first || fault.Addr() > m.last {
		panic(r)
	}
	*ok = false
}

// Load32 loads a word. ok is false where the access is outside, not aligned, or faulted.
func (m *Mapping) Load32(off uint64) (v uint32, ok bool) {
	old := debug.SetPanicOnFault(true)
	defer func() { m.fence(old, recover(), &ok) }()
	return m.region.Load32(off)
}

// Store32 stores a word and says whether it did.
func (m *Mapping) Store32(off uint64, v uint32) (ok bool) {
	old := debug.SetPanicOnFault(true)
	defer func() { m.fence(old, recover(), &ok) }()
	return m.region.Store32(off, v)
}

// Load64 loads a 64-bit word. ok is false where the access is outside, not aligned, or faulted.
func (m *Mapping) Load64(off uint64) (v uint64, ok bool) {
	old := debug.SetPanicOnFault(true)
	defer func() { m.fence(old, recover(), &ok) }()
	return m.region.Load64(off)
}

// Store64 stores a 64-bit word and says whether it did.
func (m *Mapping) Store64(off uint64, v uint64) (ok bool) {
	old := debug.SetPanicOnFault(true)
	defer func() { m.fence(old, recover(), &ok) }()
	return m.region.Store64(off, v)
}
