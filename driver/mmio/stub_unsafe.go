//go:build amd64 || arm64

package mmio

import "unsafe"

const supported = true

// The stubs trust their caller: p is mapped, aligned to the width of the access, and is not retained.

// Load32 loads one 32-bit word.
//
//go:noescape
func Load32(p unsafe.Pointer) uint32

// Store32 stores one 32-bit word.
//
//go:noescape
func Store32(p unsafe.Pointer, v uint32)

// Load64 loads one 64-bit word.
//
//go:noescape
func Load64(p unsafe.Pointer) uint64

// Store64 stores one 64-bit word.
//
//go:noescape
func Store64(p unsafe.Pointer, v uint64)
