package xilinx

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// crcSlow is the definition: 32 data bits, then 5 register bits, least significant first.
func crcSlow(poly, c, reg, word uint32) uint32 {
	v := uint64(reg)<<32 | uint64(word)
	for i := range 37 {
		bit := c&1 ^ uint32(v>>i)&1
		c >>= 1
		if bit != 0 {
			c ^= poly
		}
	}
	return c
}

func TestCRCTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range []struct {
		table *crcTable
		poly  uint32
	}{{crc32C, 0x82f63b78}, {crc16, 0xa001}} {
		for range 1000 {
			c, reg := r.Uint32(), r.Uint32N(32)
			if k.poly == 0xa001 {
				c &= 0xffff
			}
			data := make([]byte, 4*r.IntN(6))
			want := c
			for i := 0; i < len(data); i += 4 {
				w := r.Uint32()
				binary.BigEndian.PutUint32(data[i:], w)
				if got := k.table.word(want, reg, w); got != crcSlow(k.poly, want, reg, w) {
					t.Fatalf("poly %x, state %08x, register %d, word %08x: %08x, want %08x", k.poly, want, reg, w, got, crcSlow(k.poly, want, reg, w))
				}
				want = crcSlow(k.poly, want, reg, w)
			}
			if got := k.table.words(c, reg, data); got != want {
				t.Fatalf("poly %x, state %08x, register %d, %x: %08x, want %08x", k.poly, c, reg, data, got, want)
			}
		}
	}
}

func TestCRC22(t *testing.T) {
	want := map[uint16]uint32{0x1234: 0x121234, 0xffff: 0x12ffff}
	for w, v := range want {
		if got := crc22(0, 0x12, w); got != v {
			t.Errorf("crc22(0, 12, %04x) = %06x, want %06x", w, got, v)
		}
	}
	if got := crc22(0x200000, 0, 0); got != 0x9081 {
		t.Errorf("crc22 of a top bit is %06x, want 9081", got)
	}
}
