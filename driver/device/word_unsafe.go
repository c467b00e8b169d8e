package device

import (
	"sync/atomic"
	"unsafe"
)

// word returns the 32-bit word at offset off of a mapping.
//
// Bounds: indexing the last byte panics where the word is not wholly inside. Lifetime: mem is memory from mmap, which no
// garbage collector moves, and the caller keeps it mapped. Alignment: a mapping starts at a page
// and at a page's IOVA, and off is a multiple of 4 where iova is.
func word(mem []byte, off uint64) *uint32 {
	_ = mem[off+3]
	return (*uint32)(unsafe.Pointer(&mem[off]))
}

// LoadWord and StoreWord are the atomic accesses of a Memory, for whoever implements one over mappings. mem is a whole
// mapping, off a multiple of 4 inside it; the caller keeps it mapped meanwhile.
func LoadWord(mem []byte, off uint64) uint32 { return atomic.LoadUint32(word(mem, off)) }

// StoreWord: see LoadWord.
func StoreWord(mem []byte, off uint64, v uint32) { atomic.StoreUint32(word(mem, off), v) }
