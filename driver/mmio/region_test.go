package mmio

import (
	"encoding/binary"
	"testing"
)

// testBytes returns n bytes aligned to 8.
func testBytes(n int) []byte {
	b := make([]byte, n+8)
	for i := range 8 {
		if _, err := NewRegion(b[i:]); err == nil {
			return b[i:][:n:n]
		}
	}
	panic("no aligned address in eight")
}

func testRegion(t testing.TB, n int) (Region, []byte) {
	t.Helper()
	if !supported {
		t.Skip(ErrNotSupported)
	}
	b := testBytes(n)
	r, err := NewRegion(b)
	if err != nil {
		t.Fatalf("NewRegion: %v", err)
	}
	return r, b
}

func TestAccess(t *testing.T) {
	r, b := testRegion(t, 64)
	fill := func() {
		for i := range b {
			b[i] = byte(i*7 + 1)
		}
	}
	for off := uint64(0); off < 64; off += 4 {
		fill()
		if v, ok := r.Load32(off); !ok || v != binary.LittleEndian.Uint32(b[off:]) {
			t.Errorf("Load32(%d) = %#x, %v", off, v, ok)
		}
		want := append([]byte(nil), b...)
		binary.LittleEndian.PutUint32(want[off:], 0xdead_beef)
		if !r.Store32(off, 0xdead_beef) || string(b) != string(want) {
			t.Errorf("Store32(%d): %x, want %x", off, b, want)
		}
	}
	for off := uint64(0); off < 64; off += 8 {
		fill()
		if v, ok := r.Load64(off); !ok || v != binary.LittleEndian.Uint64(b[off:]) {
			t.Errorf("Load64(%d) = %#x, %v", off, v, ok)
		}
		want := append([]byte(nil), b...)
		binary.LittleEndian.PutUint64(want[off:], 0xfeed_f00d_dead_beef)
		if !r.Store64(off, 0xfeed_f00d_dead_beef) || string(b) != string(want) {
			t.Errorf("Store64(%d): %x, want %x", off, b, want)
		}
	}
}

func TestBounds(t *testing.T) {
	r, b := testRegion(t, 20)
	rows := []struct {
		off  uint64
		n    int
		want bool
	}{
		{0, 4, true}, {16, 4, true}, {20, 4, false}, {18, 4, false}, {2, 4, false}, {^uint64(3), 4, false}, {1 << 63, 4, false},
		{0, 8, true}, {8, 8, true}, {16, 8, false}, {4, 8, false}, {^uint64(7), 8, false},
	}
	for _, row := range rows {
		clear(b)
		var load, store bool
		if row.n == 4 {
			_, load = r.Load32(row.off)
			store = r.Store32(row.off, 1)
		} else {
			_, load = r.Load64(row.off)
			store = r.Store64(row.off, 1)
		}
		if load != row.want || store != row.want {
			t.Errorf("%d bytes at %#x: load %v, store %v, want %v", row.n, row.off, load, store, row.want)
		}
		if !row.want && string(b) != string(make([]byte, len(b))) {
			t.Errorf("%d bytes at %#x: refused, but stored", row.n, row.off)
		}
	}
	var zero Region
	if _, ok := zero.Load32(0); ok || zero.Store64(0, 1) || zero.Bytes() != 0 {
		t.Error("the zero Region takes accesses")
	}
	if _, err := NewRegion(b[4:]); err == nil {
		t.Error("NewRegion took an address that is not aligned")
	}
}

func BenchmarkAccess(b *testing.B) {
	r, _ := testRegion(b, 64)
	b.Run("load32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Load32(8)
		}
	})
	b.Run("store32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Store32(8, 1)
		}
	})
}
