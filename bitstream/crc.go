package bitstream

// Tables of the 16-bit CRCs that formats here use. Msb: the highest bit of a byte goes first.
var (
	crc8005 = crcTable(0x8005, true)  // Lattice ECP5
	crc1021 = crcTable(0x1021, true)  // iCE40
	crcA001 = crcTable(0xa001, false) // Gowin, Intel
	crc8408 = crcTable(0x8408, false) // GateMate
)

func crcTable(poly uint16, msb bool) *[256]uint16 {
	var t [256]uint16
	for i := range t {
		c := uint16(i)
		if msb {
			c <<= 8
		}
		for range 8 {
			switch {
			case msb && c&0x8000 != 0:
				c = c<<1 ^ poly
			case msb:
				c <<= 1
			case c&1 != 0:
				c = c>>1 ^ poly
			default:
				c >>= 1
			}
		}
		t[i] = c
	}
	return &t
}

func crcMsb(t *[256]uint16, crc uint16, p []byte) uint16 {
	for _, b := range p {
		crc = crc<<8 ^ t[byte(crc>>8)^b]
	}
	return crc
}

func crcLsb(t *[256]uint16, crc uint16, p []byte) uint16 {
	for _, b := range p {
		crc = crc>>8 ^ t[byte(crc)^b]
	}
	return crc
}
