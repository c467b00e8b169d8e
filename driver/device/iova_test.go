package device

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

func TestSpace(t *testing.T) {
	p := pageBytes
	rows := []struct {
		name    string
		ranges  []IOVARange
		noGuard bool
		takes   []uint64 // pages
		want    []uint64 // pages; 0: refused
	}{
		{"page zero is kept back", []IOVARange{{0, 16*p - 1}}, false, []uint64{1}, []uint64{1}},
		{"guard between", []IOVARange{{0, 16*p - 1}}, false, []uint64{1, 2, 1}, []uint64{1, 3, 6}},
		{"no guard", []IOVARange{{0, 16*p - 1}}, true, []uint64{1, 2, 1}, []uint64{1, 2, 4}},
		{"last page is inclusive", []IOVARange{{p, 3*p - 1}}, false, []uint64{2}, []uint64{1}},
		{"too large", []IOVARange{{p, 3*p - 2}}, false, []uint64{2}, []uint64{0}},
		{"second range", []IOVARange{{100 * p, 200*p - 1}, {p, 3*p - 1}}, false, []uint64{2, 5}, []uint64{1, 100}},
		{"start is rounded up", []IOVARange{{p + 1, 4*p - 1}}, false, []uint64{1}, []uint64{2}},
		{"top of the address space", []IOVARange{{^uint64(0) - p + 1, ^uint64(0)}}, false, []uint64{1, 1}, []uint64{(^uint64(0) - p + 1) / p, 0}},
		{"nothing", nil, false, []uint64{1}, []uint64{0}},
		{"unaligned end of the address space", []IOVARange{{^uint64(0) - 1, ^uint64(0)}}, false, []uint64{1}, []uint64{0}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := newSpace(row.ranges, row.noGuard)
			for i, n := range row.takes {
				got, ok := s.take(n * p)
				if ok != (row.want[i] != 0) || got != row.want[i]*p {
					t.Errorf("take %d: %#x, %v, want page %#x", i, got, ok, row.want[i])
				}
			}
		})
	}
}

// TestSpaceReference takes and gives at random and checks every place against a map of pages.
func TestSpaceReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	p := pageBytes
	const pages = 64
	s := newSpace([]IOVARange{{0, pages*p - 1}}, false)
	var busy [pages + 1]bool // with guards behind
	live := map[uint64]uint64{}
	fits := func(at, n uint64) bool {
		if at < 1 || at+n > pages || busy[at-1] && !guardOf(live, at-1) {
			return false
		}
		for i := at; i < at+n; i++ {
			if busy[i] {
				return false
			}
		}
		return at+n == pages || !startsAt(live, at+n)
	}
	for range 5000 {
		n := 1 + rng.Uint64N(8)
		if rng.IntN(2) == 0 {
			for at := range live {
				s.give(at * p)
				for i := at; i <= at+live[at]; i++ {
					busy[i] = false
				}
				delete(live, at)
				break
			}
			continue
		}
		want, ok := uint64(0), false
		for at := uint64(1); at < pages && !ok; at++ {
			if fits(at, n) {
				want, ok = at, true
			}
		}
		got, gotOK := s.take(n * p)
		if gotOK != ok || got != want*p {
			t.Fatalf("take %d pages: page %d, %v, want %d, %v (live %v)", n, got/p, gotOK, want, ok, live)
		}
		if !ok {
			continue
		}
		live[want] = n
		for i := want; i <= want+n; i++ {
			busy[i] = true
		}
	}
}

// guardOf says whether page at is the guard behind a live range, startsAt whether a live range starts there.
func guardOf(live map[uint64]uint64, at uint64) bool {
	for first, n := range live {
		if first+n == at {
			return true
		}
	}
	return false
}

func startsAt(live map[uint64]uint64, at uint64) bool { _, ok := live[at]; return ok }

func TestHostMemory(t *testing.T) {
	var h hostMemory
	a, b, c := []byte("aaaaaaaa"), []byte("bbbbbbbb"), []byte("cccccccc")
	h.add(0x108, b)
	h.add(0x100, a)
	h.add(0x120, c)
	rows := []struct {
		name string
		iova uint64
		n    int
		want string // empty: refused
	}{
		{"whole", 0x100, 8, "aaaaaaaa"},
		{"inside", 0x102, 2, "aa"},
		{"two mappings", 0x104, 8, "aaaabbbb"},
		{"all of both", 0x100, 16, "aaaaaaaabbbbbbbb"},
		{"into the gap", 0x10c, 8, ""},
		{"over the gap", 0x10c, 24, ""},
		{"before", 0xff, 2, ""},
		{"in the gap", 0x118, 1, ""},
		{"last", 0x120, 8, "cccccccc"},
		{"past the end", 0x121, 8, ""},
		{"far", 1 << 63, 1, ""},
		{"wraps", ^uint64(0), 2, ""},
	}
	for _, row := range rows {
		got := make([]byte, row.n)
		err := h.Read(row.iova, got)
		if row.want == "" {
			if !errors.Is(err, ErrDMA) {
				t.Errorf("%s: Read = %v, want %v", row.name, err, ErrDMA)
			}
			if err := h.Write(row.iova, got); !errors.Is(err, ErrDMA) || !bytes.Equal(a, []byte("aaaaaaaa")) {
				t.Errorf("%s: Write = %v, want %v and nothing changed", row.name, err, ErrDMA)
			}
			continue
		}
		if err != nil || string(got) != row.want {
			t.Errorf("%s: Read = %q, %v, want %q", row.name, got, err, row.want)
		}
	}
	if err := h.Write(0x106, []byte("1234")); err != nil || string(a)+string(b) != "aaaaaa1234bbbbbb" {
		t.Errorf("Write over two mappings: %v, %q %q", err, a, b)
	}
	if err := h.Read(0x500, nil); err != nil {
		t.Errorf("Read of nothing: %v", err)
	}
	for _, iova := range []uint64{0x101, 0x110, 0x0} {
		if _, err := h.Load32(iova); !errors.Is(err, ErrDMA) {
			t.Errorf("Load32(%#x) = %v, want %v", iova, err, ErrDMA)
		}
		if err := h.Store32(iova, 1); !errors.Is(err, ErrDMA) {
			t.Errorf("Store32(%#x) = %v, want %v", iova, err, ErrDMA)
		}
	}
	h.remove(0x100)
	if err := h.Read(0x100, make([]byte, 1)); !errors.Is(err, ErrDMA) {
		t.Errorf("Read after remove = %v, want %v", err, ErrDMA)
	}
}
