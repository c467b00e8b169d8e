package datapath

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// sipReference is SipHash-2-4 of any message, written from the paper step by step.
func sipReference(k0, k1 uint64, m []byte) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	round := func(n int) {
		for range n {
			v[0] += v[1]
			v[2] += v[3]
			v[1] = bits.RotateLeft64(v[1], 13)
			v[3] = bits.RotateLeft64(v[3], 16)
			v[1] ^= v[0]
			v[3] ^= v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[1]
			v[0] += v[3]
			v[1] = bits.RotateLeft64(v[1], 17)
			v[3] = bits.RotateLeft64(v[3], 21)
			v[1] ^= v[2]
			v[3] ^= v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	padded := append([]byte(nil), m...)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(m)))
	for ; len(padded) > 0; padded = padded[8:] {
		w := binary.LittleEndian.Uint64(padded)
		v[3] ^= w
		round(2)
		v[0] ^= w
	}
	v[2] ^= 0xff
	round(4)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// TestSipReference checks the reference against published vectors: key 00 01 … 0f, message 00 01 … of the given length.
func TestSipReference(t *testing.T) {
	key := make([]byte, 16)
	message := make([]byte, 64)
	for i := range message {
		message[i] = byte(i)
	}
	copy(key, message)
	for _, tt := range []struct {
		bytes int
		want  uint64
	}{
		{0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd}, {7, 0xab0200f58b01d137}, {8, 0x93f5f5799a932462},
		{15, 0xa129ca6149be45e5}, {16, 0x3f2acc7f57c29bdb}, {31, 0x32d892fad841c342}, {32, 0x7127512f72f27cce}, {63, 0x958a324ceb064572},
	} {
		if got := sipReference(binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:]), message[:tt.bytes]); got != tt.want {
			t.Errorf("%d bytes: got %#x, want %#x", tt.bytes, got, tt.want)
		}
	}
}

func TestSipHash(t *testing.T) {
	k0, k1 := uint64(0x0706050403020100), uint64(0x0f0e0d0c0b0a0908)
	m := [4]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x1716151413121110, 0x1f1e1d1c1b1a1918}
	if got, want := sipHash(k0, k1, &m), uint64(0x7127512f72f27cce); got != want {
		t.Errorf("published vector of 32 bytes: got %#x, want %#x", got, want)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		k0, k1 = r.Uint64(), r.Uint64()
		b := make([]byte, 0, 32)
		for i := range m {
			m[i] = r.Uint64()
			b = binary.LittleEndian.AppendUint64(b, m[i])
		}
		if got, want := sipHash(k0, k1, &m), sipReference(k0, k1, b); got != want {
			t.Fatalf("key %#x %#x, message %x: got %#x, want %#x", k0, k1, b, got, want)
		}
	}
}
