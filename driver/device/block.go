package device

import (
	"encoding/binary"
	"fmt"
)

// A BlockMover is a Device that moves many words of a region at once, which costs it one message instead of one a word.
type BlockMover interface {
	Device
	// LoadBlock and StoreBlock access the words of p, little-endian, in ascending order. off and len(p) are multiples of 8.
	// A word may be accessed a second time: they are for memories and for windows whose words have no side effects. A lost
	// device reads all ones.
	LoadBlock(region int, off uint64, p []byte)
	StoreBlock(region int, off uint64, p []byte)
}

// LoadBlock loads len(p) bytes of a region, at once if d is a BlockMover and else word by word. off and len(p) are
// multiples of 8; what is not sets the sticky error ErrRange and reads all ones.
func LoadBlock(d Device, region int, off uint64, p []byte) {
	if !aligned(d, "load", region, off, len(p)) {
		for i := range p {
			p[i] = 0xff
		}
		return
	}
	if m, ok := d.(BlockMover); ok {
		m.LoadBlock(region, off, p)
		return
	}
	for ; len(p) > 0; p, off = p[8:], off+8 {
		binary.LittleEndian.PutUint64(p, d.Load64(region, off))
	}
}

// StoreBlock stores p to a region; see LoadBlock.
func StoreBlock(d Device, region int, off uint64, p []byte) {
	if !aligned(d, "store", region, off, len(p)) {
		return
	}
	if m, ok := d.(BlockMover); ok {
		m.StoreBlock(region, off, p)
		return
	}
	for ; len(p) > 0; p, off = p[8:], off+8 {
		d.Store64(region, off, binary.LittleEndian.Uint64(p))
	}
}

func aligned(d Device, op string, region int, off uint64, n int) bool {
	if off%8 == 0 && n%8 == 0 {
		return true
	}
	d.Lose(fmt.Errorf("%s %d bytes of region %d at %#x: %w", op, n, region, off, ErrRange))
	return false
}
