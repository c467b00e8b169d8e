package devicetest

import (
	"bytes"
	"os"
	"testing"

	"splicenic/driver/device"
)

func alloc(t *testing.T, h Harness, n int) *device.DMA {
	t.Helper()
	m, err := h.Device.AllocDMA("test", n)
	if err != nil {
		t.Fatalf("AllocDMA(%d): %v", n, err)
	}
	return m
}

func needCopy(t *testing.T, h Harness) {
	t.Helper()
	if h.Copy == nil {
		t.Skip("the harness has no Copy")
	}
}

func inRanges(i device.Info, m *device.DMA) bool {
	for _, r := range i.IOVA {
		if m.IOVA >= r.First && m.IOVA <= r.Last && uint64(len(m.Bytes)) <= r.Last-m.IOVA+1 {
			return true
		}
	}
	return false
}

func testMemory(t *testing.T, h Harness) {
	var ms []*device.DMA
	for _, n := range []int{1, 64, 4096, 4097, 1 << 20} {
		m := alloc(t, h, n)
		ms = append(ms, m)
		if len(m.Bytes) < n {
			t.Errorf("AllocDMA(%d) gave %d bytes", n, len(m.Bytes))
		}
		if m.IOVA == 0 || m.IOVA%4096 != 0 {
			t.Errorf("AllocDMA(%d): iova %#x", n, m.IOVA)
		}
		if !inRanges(h.Device.Info(), m) {
			t.Errorf("AllocDMA(%d): iova %#x is outside Info().IOVA", n, m.IOVA)
		}
		if !bytes.Equal(m.Bytes, make([]byte, len(m.Bytes))) {
			t.Errorf("AllocDMA(%d): not zeroed", n)
		}
		for i := range m.Bytes {
			m.Bytes[i] = byte(n)
		}
	}
	for i, a := range ms {
		for _, b := range ms[:i] {
			if a.IOVA < b.IOVA+uint64(len(b.Bytes)) && b.IOVA < a.IOVA+uint64(len(a.Bytes)) {
				t.Errorf("buffers at %#x and %#x overlap", a.IOVA, b.IOVA)
			}
		}
		if err := a.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := a.Close(); err != nil || a.Bytes != nil {
			t.Errorf("second Close: %v, bytes %v", err, a.Bytes != nil)
		}
	}
}

func fill(b []byte, seed uint64) {
	for i := range b {
		b[i] = byte(pattern(seed+uint64(i)/4) >> (i % 4 * 8))
	}
}

func testCopy(t *testing.T, h Harness) {
	needCopy(t, h)
	src, dst := alloc(t, h, 16384), alloc(t, h, 16384)
	for seed, n := range []int{4, 64, 1500, 4096, 4100, 16384} {
		fill(src.Bytes, uint64(seed)<<20)
		clear(dst.Bytes)
		if err := h.Copy(dst.IOVA, src.IOVA, n); err != nil {
			t.Fatalf("Copy of %d bytes: %v", n, err)
		}
		if !bytes.Equal(dst.Bytes[:n], src.Bytes[:n]) {
			t.Errorf("Copy of %d bytes: the bytes differ", n)
		}
		if n < len(dst.Bytes) && dst.Bytes[n] != 0 {
			t.Errorf("Copy of %d bytes wrote more", n)
		}
	}
}

// testCopyOrder: a store follows earlier writes to DMA memory, a load precedes later reads of it.
func testCopyOrder(t *testing.T, h Harness) {
	needCopy(t, h)
	src, dst := alloc(t, h, 4096), alloc(t, h, 4096)
	for round := range uint64(500) {
		fill(src.Bytes[:64], round*64)
		if err := h.Copy(dst.IOVA, src.IOVA, 64); err != nil {
			t.Fatalf("Copy: %v", err)
		}
		if !bytes.Equal(dst.Bytes[:64], src.Bytes[:64]) {
			t.Fatalf("round %d: the card copied other bytes than were written", round)
		}
	}
}

// testBounds: an access that leaves its mapping fails as a whole.
func testBounds(t *testing.T, h Harness) {
	needCopy(t, h)
	if h.Adjacent {
		t.Skip("buffers have no guard gaps")
	}
	src, dst := alloc(t, h, 8192), alloc(t, h, 4096)
	fill(src.Bytes, 1)
	end := dst.IOVA + uint64(len(dst.Bytes))
	rows := []struct {
		name     string
		dst, src uint64
		n        int
	}{
		{"destination runs past its end", end - 64, src.IOVA, 128},
		{"destination starts before", dst.IOVA - 64, src.IOVA, 128},
		{"source runs past its end", dst.IOVA, src.IOVA + uint64(len(src.Bytes)) - 64, 128},
		{"source unmapped", dst.IOVA, 0, 64},
		{"destination unmapped", end, src.IOVA, 64},
		{"source wraps", dst.IOVA, ^uint64(0) - 63, 128},
	}
	for _, row := range rows {
		if err := h.Copy(row.dst, row.src, row.n); err == nil {
			t.Errorf("%s: copied", row.name)
		}
		if !bytes.Equal(dst.Bytes, make([]byte, len(dst.Bytes))) {
			t.Errorf("%s: changed memory", row.name)
		}
	}
}

func testUnmapped(t *testing.T, h Harness) {
	needCopy(t, h)
	src, dst := alloc(t, h, 4096), alloc(t, h, 4096)
	iova := src.IOVA
	if err := h.Copy(dst.IOVA, iova, 64); err != nil {
		t.Fatalf("Copy: %v", err)
	}
	if err := src.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := h.Copy(dst.IOVA, iova, 64); err == nil {
		t.Error("the card copied from memory that was closed")
	}
}

func testAcross(t *testing.T, h Harness) {
	needCopy(t, h)
	if !h.Adjacent {
		t.Skip("buffers have guard gaps")
	}
	page := os.Getpagesize()
	a, b, c := alloc(t, h, page), alloc(t, h, page), alloc(t, h, page)
	dst := alloc(t, h, 4*page)
	if b.IOVA != a.IOVA+uint64(page) || c.IOVA != b.IOVA+uint64(page) {
		t.Fatalf("buffers at %#x, %#x, %#x are not adjacent", a.IOVA, b.IOVA, c.IOVA)
	}
	for i, m := range []*device.DMA{a, b, c} {
		fill(m.Bytes, uint64(i)<<20)
	}
	n := page + 128
	if err := h.Copy(dst.IOVA, a.IOVA+uint64(page)-64, n); err != nil {
		t.Fatalf("Copy from three mappings: %v", err)
	}
	want := bytes.Join([][]byte{a.Bytes[page-64:], b.Bytes, c.Bytes[:64]}, nil)
	if !bytes.Equal(dst.Bytes[:n], want) {
		t.Error("Copy from three mappings: the bytes differ")
	}
	fill(dst.Bytes, 7<<20)
	if err := h.Copy(a.IOVA+uint64(page)-64, dst.IOVA, n); err != nil {
		t.Fatalf("Copy to three mappings: %v", err)
	}
	got := bytes.Join([][]byte{a.Bytes[page-64:], b.Bytes, c.Bytes[:64]}, nil)
	if !bytes.Equal(got, dst.Bytes[:n]) {
		t.Error("Copy to three mappings: the bytes differ")
	}
	if err := b.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	clear(a.Bytes)
	if err := h.Copy(a.IOVA+uint64(page)-64, dst.IOVA, n); err == nil || !bytes.Equal(a.Bytes, make([]byte, page)) {
		t.Errorf("Copy over a hole: %v, or it changed what lies before", err)
	}
}

// testReuse: addresses come back, so that their number never runs out.
func testReuse(t *testing.T, h Harness) {
	const n = 128 << 10
	for range 100 {
		a, b := alloc(t, h, n), alloc(t, h, n)
		for _, m := range []*device.DMA{a, b} {
			if err := m.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
		}
	}
}

func testRefused(t *testing.T, h Harness) {
	for _, n := range []int{0, -1, 1 << 62} {
		if m, err := h.Device.AllocDMA("test", n); err == nil {
			t.Errorf("AllocDMA(%d) gave %d bytes", n, len(m.Bytes))
		}
	}
	if err := h.Device.Err(); err != nil {
		t.Errorf("Err after refused allocations: %v", err)
	}
}
