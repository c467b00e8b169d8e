package frame

import (
	"encoding/binary"
	"math/bits"
)

// Sum adds the bytes of b as big-endian 16-bit words to a one's complement sum (RFC 1071). An odd last byte counts as
// the upper half of a word. The result is folded by Fold; sums of pieces of even length may be added.
func Sum(b []byte, sum uint64) uint64 {
	var carry uint64
	for len(b) >= 32 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), 0)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[8:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[16:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[24:]), carry)
		sum += carry
		b = b[32:]
	}
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), 0)
		sum += carry
		b = b[8:]
	}
	// Fewer than 8 bytes are left; fold once so that the additions below cannot overflow.
	sum = sum>>32 + sum&0xffffffff
	if len(b) >= 4 {
		sum += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		sum += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	return sum
}

// Fold brings a sum down to 16 bits.
func Fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>32 + sum&0xffffffff
	s := uint32(sum>>16) + uint32(sum&0xffff)
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s&0xffff)
}

// Word sums the two halves of a 32-bit number.
func Word(v uint32) uint64 { return uint64(v>>16) + uint64(v&0xffff) }

// Pseudo4 is the sum of the IPv4 pseudo-header (RFC 9293, 3.1); ip starts at the IPv4 header.
func Pseudo4(ip []byte, protocol uint8, length int) uint64 {
	_ = ip[19]
	return uint64(binary.BigEndian.Uint32(ip[12:])) + uint64(binary.BigEndian.Uint32(ip[16:])) + uint64(protocol) + uint64(length)
}

// Pseudo6 is the sum of the IPv6 pseudo-header (RFC 8200, 8.1); ip starts at the IPv6 header.
func Pseudo6(ip []byte, protocol uint8, length int) uint64 {
	return Sum(ip[8:40], uint64(protocol)+uint64(length))
}

// Difference is the one's complement difference to − from of two sums, folded: adding it to a sum that holds from
// gives the sum that holds to.
func Difference(from, to uint64) uint16 {
	return Fold(uint64(Fold(to)) + uint64(^Fold(from)))
}

// Update applies a one's complement difference to a checksum field (RFC 1624, equation 3). A result of 0xffff, which
// no sender computes over a header with any bit set, comes out as 0.
func Update(check uint16, difference uint64) uint16 {
	c := ^Fold(uint64(^check) + difference)
	if c == 0xffff {
		return 0
	}
	return c
}
