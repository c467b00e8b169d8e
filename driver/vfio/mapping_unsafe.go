package vfio

import "unsafe"

// address returns where mem lies. It is compared with the address of a fault and never made a pointer again.
func address(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }
