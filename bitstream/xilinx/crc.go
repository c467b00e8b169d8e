package xilinx

import "encoding/binary"

// A check covers every word written to a register together with the register's number: 32 data bits and then 5 register
// bits, least significant first, shifted through a reflected CRC that starts at 0 and is not inverted.
//
// Shifting is linear, so a word's 37 steps are one look-up for each byte of data xor register state, and one for the
// register's number.
type crcTable struct {
	data [4][256]uint32 // byte i of (state xor word), moved through the rest of the word and the register's 5 bits
	reg  [32]uint32
}

func newCRCTable(poly uint32) *crcTable {
	shift := func(c uint32, bits int) uint32 {
		for range bits {
			c = c>>1 ^ poly&-(c&1)
		}
		return c
	}
	t := new(crcTable)
	for i := range t.data {
		for b := range t.data[i] {
			t.data[i][b] = shift(uint32(b)<<(8*i), 32+5)
		}
	}
	for r := range t.reg {
		t.reg[r] = shift(uint32(r), 5)
	}
	return t
}

var (
	crc32C = newCRCTable(0x82f63b78) // Virtex-4 and later
	crc16  = newCRCTable(0xa001)     // Virtex-II, Spartan-3, Spartan-3E
)

// word is c after word was written to register reg.
func (t *crcTable) word(c uint32, reg uint32, word uint32) uint32 {
	c ^= word
	return t.data[0][c&0xff] ^ t.data[1][c>>8&0xff] ^ t.data[2][c>>16&0xff] ^ t.data[3][c>>24] ^ t.reg[reg&31]
}

// words is c after all words of data, big-endian, were written to register reg.
func (t *crcTable) words(c uint32, reg uint32, data []byte) uint32 {
	r := t.reg[reg&31]
	for ; len(data) >= 4; data = data[4:] {
		c ^= binary.BigEndian.Uint32(data)
		c = t.data[0][c&0xff] ^ t.data[1][c>>8&0xff] ^ t.data[2][c>>16&0xff] ^ t.data[3][c>>24] ^ r
	}
	return c
}

// crc22 is the check of Spartan-3A and Spartan-6, a 22-bit register that takes a word of 16 bits and the register's 6
// bits at once.
func crc22(c uint32, reg uint32, word uint16) uint32 {
	return c<<1&0x3fffff ^ 0x9081&-(c>>21&1) ^ (reg&63)<<16 ^ uint32(word)
}
