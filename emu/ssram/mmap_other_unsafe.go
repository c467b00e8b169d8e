//go:build !linux

package ssram

import "unsafe"

// reserve allocates size bytes; the system backs them where they are used.
func reserve(size int) (words []uint32, release func() error, err error) {
	return make([]uint32, size/4), func() error { return nil }, nil
}

func hugePages([]uint32) {}

func zero(words []uint32) { clear(words) }

// bytesOf views words as bytes. The view lies inside words and keeps them alive; bytes need no alignment.
func bytesOf(words []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*4)
}
