package ring

import (
	"fmt"
	"unsafe"
)

// view returns memory as 32-bit words; hosts are little-endian as the card is.
//
// Bounds: the words end with the bytes. Alignment: checked here. Lifetime: mem is DMA memory, which its owner keeps
// mapped while the ring is in use and which no garbage collector moves.
func view(mem []byte) ([]uint32, error) {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%4 != 0 {
		return nil, fmt.Errorf("memory at %#x is not aligned", uintptr(p))
	}
	return unsafe.Slice((*uint32)(p), len(mem)/4), nil
}
