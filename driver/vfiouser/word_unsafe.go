package vfiouser

import (
	"sync/atomic"
	"unsafe"
)

// word returns the 32-bit word at offset off of a mapping.
//
// Bounds: indexing the last byte panics where the word is not wholly inside. Lifetime: mem is memory from mmap, which no
// garbage collector moves, and the caller holds hostMemory.mu, so it stays mapped. Alignment: a mapping starts at a page
// and at a page's IOVA, and off is a multiple of 4 where iova is.
func word(mem []byte, off uint64) *uint32 {
	_ = mem[off+3]
	return (*uint32)(unsafe.Pointer(&mem[off]))
}

func loadWord(mem []byte, off uint64) uint32     { return atomic.LoadUint32(word(mem, off)) }
func storeWord(mem []byte, off uint64, v uint32) { atomic.StoreUint32(word(mem, off), v) }
