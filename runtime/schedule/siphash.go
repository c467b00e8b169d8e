package schedule

import (
	"encoding/binary"
	"math/bits"
)

// sipHash is SipHash-2-4 (Aumasson and Bernstein 2012) of any number of bytes, written after the paper. The card has its
// own for a fixed length; the two are held together by the published vectors.
func sipHash(k0, k1 uint64, b []byte) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		v = compress(v, binary.LittleEndian.Uint64(b))
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v = compress(v, last)
	v[2] ^= 0xff
	for range 4 {
		v = sipRound(v)
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func compress(v [4]uint64, m uint64) [4]uint64 {
	v[3] ^= m
	v = sipRound(sipRound(v))
	v[0] ^= m
	return v
}

func sipRound(v [4]uint64) [4]uint64 {
	v[0] += v[1]
	v[2] += v[3]
	v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
	v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
	v[0] = bits.RotateLeft64(v[0], 32)
	v[2] += v[1]
	v[0] += v[3]
	v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
	v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
	v[2] = bits.RotateLeft64(v[2], 32)
	return v
}
