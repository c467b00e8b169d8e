package frame

import (
	"math/rand/v2"
	"testing"
)

// sumRef is RFC 1071 word by word.
func sumRef(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		if s += w; s > 0xffff {
			s -= 0xffff
		}
	}
	return uint16(s)
}

func TestSumAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 9001)
	for n := range b {
		b[n] = byte(r.Uint32())
		if n%7 == 0 {
			b[n] = 0xff
		}
		if got, want := Fold(Sum(b[:n], 0)), sumRef(b[:n]); got != want {
			t.Fatalf("length %d: got %#04x, want %#04x", n, got, want)
		}
	}
	for i := range b {
		b[i] = 0xff
	}
	for n := range 200 {
		if got, want := Fold(Sum(b[:n], 0)), sumRef(b[:n]); got != want {
			t.Fatalf("ones, length %d: got %#04x, want %#04x", n, got, want)
		}
	}
}

func TestUpdateAgainstRecomputing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, 40)
	for range 200_000 {
		for i := range b {
			b[i] = byte(r.Uint32() >> (r.Uint32() % 9))
		}
		before := ^Fold(Sum(b, 0))
		old := Sum(b[8:16], 0)
		for i := 8; i < 16; i++ {
			b[i] = byte(r.Uint32())
		}
		got, want := Update(before, uint64(Difference(old, Sum(b[8:16], 0)))), ^Fold(Sum(b, 0))
		if got != want {
			t.Fatalf("bytes %x: got %#04x, want %#04x", b, got, want)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{20, 40, 1460, 9000, 65000} {
		p := make([]byte, n)
		b.Run("", func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			var s uint64
			for b.Loop() {
				s += Sum(p, 0)
			}
			_ = s
		})
	}
}
