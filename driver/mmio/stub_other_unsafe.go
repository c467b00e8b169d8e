//go:build !amd64 && !arm64

package mmio

import "unsafe"

const supported = false

// No Region exists on this architecture, so nothing reaches the stubs but a caller that ignored ErrNotSupported.

// Load32 panics.
func Load32(unsafe.Pointer) uint32 { panic(ErrNotSupported) }

// Store32 panics.
func Store32(unsafe.Pointer, uint32) { panic(ErrNotSupported) }

// Load64 panics.
func Load64(unsafe.Pointer) uint64 { panic(ErrNotSupported) }

// Store64 panics.
func Store64(unsafe.Pointer, uint64) { panic(ErrNotSupported) }
