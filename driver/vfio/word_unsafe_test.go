package vfio

import "unsafe"

// wordOf returns the word at the front of memory from mmap, at an address that is a multiple of 4.
func wordOf(b []byte) *uint32 {
	_ = b[3]
	return (*uint32)(unsafe.Pointer(&b[0]))
}
