//go:build linux

package ssram

import (
	"syscall"
	"unsafe"
)

const hugePage = 2 << 20

// reserve maps size bytes of zeros, aligned to a huge page, and returns how to unmap them.
//
// The mapping is private and anonymous, one huge page larger than asked for, and lives until release: words lies
// inside it at an address rounded up to a huge page, hence aligned for uint32. Its memory is not the Go heap's and
// holds no pointers, so the collector does not look at it.
func reserve(size int) (words []uint32, release func() error, err error) {
	b, err := syscall.Mmap(-1, 0, size+hugePage, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, nil, err
	}
	skip := -uintptr(unsafe.Pointer(&b[0])) % hugePage
	words = unsafe.Slice((*uint32)(unsafe.Pointer(&b[skip])), size/4)
	_ = syscall.Madvise(b, syscall.MADV_NOHUGEPAGE) // a kernel without huge pages refuses the advice, and needs none
	return words, func() error { return syscall.Munmap(b) }, nil
}

// hugePages asks for huge pages behind words, if they fill at least one.
func hugePages(words []uint32) {
	if len(words)*4 >= hugePage {
		_ = syscall.Madvise(bytesOf(words), syscall.MADV_HUGEPAGE)
	}
}

// zero clears words; where they cover whole huge pages those go back to the system, which hands out zeros.
func zero(words []uint32) {
	b := bytesOf(words)
	if len(b) < 2*hugePage {
		clear(b)
		return
	}
	head := int(-uintptr(unsafe.Pointer(&b[0])) % hugePage)
	tail := head + (len(b)-head)/hugePage*hugePage
	clear(b[:head])
	if syscall.Madvise(b[head:tail], syscall.MADV_DONTNEED) != nil {
		clear(b[head:tail])
	}
	clear(b[tail:])
}

// bytesOf views words as bytes. The view lies inside words and lives as long; bytes need no alignment.
func bytesOf(words []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*4)
}
