package xilinx

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// An Order is the order of bits and bytes in a file against the one the device takes.
type Order string

// Orders. Files for SelectMAP, BPI flash and ICAP have each byte's bits reversed; Zynq's driver wants words swapped.
const (
	AsIs          Order = "as is"
	BitsReversed  Order = "bits reversed in each byte"
	WordsSwapped  Order = "bytes swapped in each 32-bit word"
	HalvesSwapped Order = "bytes swapped in each 16-bit word"
)

const (
	syncWord   = 0xaa995566
	syncWindow = 4096 // padding and bus width words before a sync word are far fewer bytes
	nop32      = 0x20000000
	nop16      = 0x2000
)

// syncs are the sync word in each order. The short ones are Spartan-3A's, whose sync is one word of 16 bits; only the
// packet that always follows makes it a sign, so it stands here too.
var syncs = []struct {
	bytes []byte
	order Order
	skip  int // to the first packet
}{
	{[]byte{0xaa, 0x99, 0x55, 0x66}, AsIs, 4},
	{[]byte{0x55, 0x99, 0xaa, 0x66}, BitsReversed, 4},
	{[]byte{0x66, 0x55, 0x99, 0xaa}, WordsSwapped, 4},
	{[]byte{0x99, 0xaa, 0x66, 0x55}, HalvesSwapped, 4},
	{[]byte{0xaa, 0x99, 0x30, 0xa1, 0x00, 0x07}, AsIs, 2},
	{[]byte{0x55, 0x99, 0x0c, 0x85, 0x00, 0xe0}, BitsReversed, 2},
	{[]byte{0x99, 0xaa, 0xa1, 0x30, 0x07, 0x00}, HalvesSwapped, 2},
}

// DetectOrder looks for a sync word that a legal packet follows in the first 4 KiB of head, and says where it is and in
// which order the bytes are.
func DetectOrder(head []byte) (offset int, o Order, ok bool) {
	offset = -1
	for _, s := range syncs {
		// An earlier one of another order has been found already: only what lies before it matters.
		window := head[:min(len(head), syncWindow+len(s.bytes))]
		for from := 0; ; {
			i := bytes.Index(window[from:], s.bytes)
			if i < 0 {
				break
			}
			i += from
			if offset >= 0 && i >= offset {
				break
			}
			if legalStart(head[i+s.skip:], s.order) {
				offset, o, ok = i, s.order, true
				break
			}
			from = i + 1
		}
	}
	return offset, o, ok
}

// legalStart says whether the first packet after a sync word is one that starts a stream: no operation, or a write of at
// least one word to a register.
func legalStart(p []byte, o Order) bool {
	var first [4]byte
	if copy(first[:], p) < 4 {
		return false
	}
	Undo(o, first[:])
	return legalStart32(binary.BigEndian.Uint32(first[:])) || legalStart16(binary.BigEndian.Uint16(first[:]))
}

func legalStart32(w uint32) bool {
	return w == nop32 || w&^uint32(0x1f<<13|0x7ff) == 0x30000000 && w&0x7ff != 0
}

func legalStart16(w uint16) bool {
	return w == nop16 || w&^uint16(0x3f<<5|0x1f) == 0x3000 && w&0x1f != 0
}

// Undo puts the bytes of data, which are in order o, into the device's order, or the other way round: each order is its
// own inverse. Words count from the start of data; a last word that is cut off stays as it is.
func Undo(o Order, data []byte) {
	switch o {
	case BitsReversed:
		for i, b := range data {
			data[i] = bits.Reverse8(b)
		}
	case WordsSwapped:
		for ; len(data) >= 4; data = data[4:] {
			data[0], data[1], data[2], data[3] = data[3], data[2], data[1], data[0]
		}
	case HalvesSwapped:
		for ; len(data) >= 2; data = data[2:] {
			data[0], data[1] = data[1], data[0]
		}
	}
}
