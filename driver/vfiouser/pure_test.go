package vfiouser

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"splicenic/driver/device"
)

// TestFindFLR: case D07, capability chains that point at themselves, out of the space, or are all ones.
func TestFindFLR(t *testing.T) {
	config := func(status byte, at byte, set map[int][]byte) []byte {
		b := make([]byte, 256)
		b[cfgStatus], b[cfgCapabilities] = status, at
		for i, v := range set {
			copy(b[i:], v)
		}
		return b
	}
	express := []byte{capExpress, 0, 2, 0, 0, 0, 0, 0x10}
	for _, row := range []struct {
		name   string
		config []byte
		want   uint32
	}{
		{"offered", config(statusCaps, 0x40, map[int][]byte{0x40: {0x11, 0x60}, 0x60: express}), 0x69},
		{"low bits of pointers", config(statusCaps, 0x43, map[int][]byte{0x40: {0x11, 0x63}, 0x60: express}), 0x69},
		{"not offered", config(statusCaps, 0x40, map[int][]byte{0x40: {capExpress, 0}}), 0},
		{"no list", config(0, 0x40, map[int][]byte{0x40: express}), 0},
		{"loop", config(statusCaps, 0x40, map[int][]byte{0x40: {5, 0x50}, 0x50: {0x10 + 1, 0x40}}), 0},
		{"self", config(statusCaps, 0x40, map[int][]byte{0x40: {5, 0x40}}), 0},
		{"into the header", config(statusCaps, 0x10, map[int][]byte{0x10: express}), 0},
		{"cut by the end", config(statusCaps, 0xf8, map[int][]byte{0xf8: express}), 0},
		{"all ones", slices.Repeat([]byte{0xff}, 256), 0},
		{"short", nil, 0},
	} {
		if got := findFLR(row.config); got != row.want {
			t.Errorf("%s: %#x, want %#x", row.name, got, row.want)
		}
	}
}

func FuzzFindFLR(f *testing.F) {
	f.Add(slices.Repeat([]byte{0xff}, 256))
	f.Add(slices.Repeat([]byte{0x40}, 256))
	f.Fuzz(func(t *testing.T, b []byte) {
		if at := findFLR(b); at != 0 && (at < 0x40 || at >= 256) {
			t.Errorf("at %#x", at)
		}
	})
}

// refSpace is a space as one flag for each page.
type refSpace struct {
	used  []bool
	guard int
}

func (r *refSpace) free(at, n int) bool {
	for i := at - r.guard; i < at+n+r.guard; i++ {
		if i >= 0 && i < len(r.used) && r.used[i] {
			return false
		}
	}
	return true
}

func (r *refSpace) take(ranges [][2]int, n, align int) (int, bool) {
	for _, g := range ranges {
		for at := (max(g[0], 1) + align - 1) / align * align; at+n-1 <= g[1]; at += align {
			if r.free(at, n) {
				return at, true
			}
		}
	}
	return 0, false
}

// TestSpace compares the allocator with a slow one over random requests.
func TestSpace(t *testing.T) {
	const page = 0x1000
	ranges := [][2]int{{0, 40}, {64, 127}}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		guard := int(seed % 2)
		s := newSpace([]device.IOVARange{{First: 64 * page, Last: 128*page - 1}, {First: 0, Last: 41*page - 1}}, page, uint64(guard)*page)
		ref := refSpace{make([]bool, 128), guard}
		held := map[uint64]int{}
		mark := func(at uint64, n int, v bool) {
			for i := range n {
				ref.used[int(at/page)+i] = v
			}
		}
		for range 200 {
			n, align := 1+rng.IntN(6), 1<<rng.IntN(4)
			if len(held) > 0 && rng.IntN(3) == 0 {
				for at, n := range held {
					s.give(at)
					mark(at, n, false)
					delete(held, at)
					break
				}
				continue
			}
			want, wantOK := ref.take(ranges, n, align)
			got, ok := s.take(uint64(n)*page, uint64(align)*page)
			if ok != wantOK || ok && got != uint64(want)*page {
				t.Fatalf("seed %d: take(%d, %d) = %#x, %v, want %#x, %v", seed, n, align, got, ok, want*page, wantOK)
			}
			if ok {
				held[got] = n
				mark(got, n, true)
			}
		}
	}
}

func TestSpaceTakeAt(t *testing.T) {
	s := newSpace([]device.IOVARange{{First: 0, Last: 1<<20 - 1}}, 0x1000, 0x1000)
	for _, row := range []struct {
		name    string
		iova, n uint64
		want    bool
	}{
		{"free", 0x4000, 0x2000, true},
		{"the same", 0x4000, 0x2000, false},
		{"tail", 0x5000, 0x1000, false},
		{"over it", 0x3000, 0x4000, false},
		{"behind it, no gap", 0x6000, 0x1000, true},
		{"before it", 0x3000, 0x1000, true},
		{"outside the ranges", 1 << 40, 0x1000, true},
		{"zero", 0, 0x1000, false},
		{"empty", 0x10000, 0, false},
		{"half a page", 0x10800, 0x1000, false},
		{"wraps", 0xfffffffffffff000, 0x2000, false},
		{"the last page", 0xfffffffffffff000, 0x1000, true},
	} {
		if got := s.takeAt(row.iova, row.n); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
	if at, ok := s.take(0x1000, 0x1000); !ok || at != 0x1000 {
		t.Errorf("take = %#x, %v", at, ok)
	}
	if at, ok := s.take(0x1000, 0x1000); !ok || at != 0x8000 {
		t.Errorf("take = %#x, %v", at, ok)
	}
}

func TestState(t *testing.T) {
	dirs := []string{"/run/card"}
	good := []entry{{"ring", 0, "/run/card", 0x1000, 0x2000, 0x1000}, {"ring", 1, "/run/card", 0x200000, 0x200000, 0x200000}}
	b, err := encodeState(good)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeState(b, dirs)
	if err != nil || !slices.Equal(got, good) {
		t.Errorf("%+v, %v", got, err)
	}
	if n := got[1].fileName(); n != "dma-ring.1" {
		t.Errorf("file name %s", n)
	}
	for name, text := range map[string]string{
		"no json":         `{`,
		"version":         `{"version":2}`,
		"path in a name":  `{"version":1,"memory":[{"name":"../x","dir":"/run/card","iova":4096,"bytes":4096,"page_bytes":4096}]}`,
		"other directory": `{"version":1,"memory":[{"name":"x","dir":"/etc","iova":4096,"bytes":4096,"page_bytes":4096}]}`,
		"iova 0":          `{"version":1,"memory":[{"name":"x","dir":"/run/card","iova":0,"bytes":4096,"page_bytes":4096}]}`,
		"wraps":           `{"version":1,"memory":[{"name":"x","dir":"/run/card","iova":18446744073709547520,"bytes":8192,"page_bytes":4096}]}`,
		"odd pages":       `{"version":1,"memory":[{"name":"x","dir":"/run/card","iova":4096,"bytes":4096,"page_bytes":5000}]}`,
		"odd bytes":       `{"version":1,"memory":[{"name":"x","dir":"/run/card","iova":4096,"bytes":100,"page_bytes":4096}]}`,
		"huge":            `{"version":1,"memory":[{"name":"x","dir":"/run/card","iova":4096,"bytes":1099511627776,"page_bytes":4096}]}`,
		"negative":        `{"version":1,"memory":[{"name":"x","n":-1,"dir":"/run/card","iova":4096,"bytes":4096,"page_bytes":4096}]}`,
		"twice": `{"version":1,"memory":[{"name":"x","dir":"/run/card","iova":4096,"bytes":4096,"page_bytes":4096},` +
			`{"name":"x","dir":"/run/card","iova":40960,"bytes":4096,"page_bytes":4096}]}`,
		"many": `{"version":1,"memory":[` + strings.Repeat("{},", maxEntries) + `{}]}`,
		"long": strings.Repeat(" ", maxState+1),
	} {
		if es, err := decodeState([]byte(text), dirs); err == nil {
			t.Errorf("%s: taken: %+v", name, es)
		}
	}
}

func FuzzState(f *testing.F) {
	b, _ := encodeState([]entry{{"ring", 0, "/run/card", 0x1000, 0x2000, 0x1000}})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		es, err := decodeState(b, []string{"/run/card"})
		if err != nil {
			return
		}
		for _, e := range es {
			if strings.ContainsAny(e.fileName(), "/\x00") || e.Dir != "/run/card" || e.Bytes > maxAlloc {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestCleanName(t *testing.T) {
	for name, want := range map[string]string{"ring-0": "ring-0", "a/b": "a-b", "..": "--", "": "memory", "ü": "-", strings.Repeat("x", 100): strings.Repeat("x", 64)} {
		if got := cleanName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestDebt(t *testing.T) {
	var d debt
	if d.wait() != nil {
		t.Error("something is owed at the start")
	}
	d.add()
	d.add()
	a, b := d.wait(), d.wait()
	d.pay()
	select {
	case <-a:
		t.Error("one of two replies is not all")
	default:
	}
	d.pay()
	<-a
	<-b
	if d.wait() != nil {
		t.Error("something is owed at the end")
	}
}

// FuzzPayloads: whatever decodes encodes to the same value again, and nothing panics.
func FuzzPayloads(f *testing.F) {
	f.Add(appendDMAMap(nil, dmaMap{32, 3, 0, 0x1000, 0x1000}))
	f.Add(appendDMAUnmap(nil, dmaUnmap{24, 0, 0x1000, 0x1000}))
	f.Add(appendRegionInfo(nil, regionInfo{80, 15, 0, 32, 0x4000, 0, []Area{{0, 0x1000}, {0x2000, 0x2000}}}))
	f.Add(appendIRQSet(nil, irqSet{22, setBool | setTrigger, irqMSIX, 1, 2, []byte{1, 0}}))
	f.Add(appendRegionAccess(nil, regionAccess{0x24, 2, 4, []byte{1, 2, 3, 4}}))
	f.Add(append([]byte{0, 0, 1, 0}, qemuVersion...))
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeHeader(b)
		decodeDMAWritten(b)
		for name, both := range codecs {
			wire, _, err := both(b)
			if err != nil || name == "region info" { // a capability list has many forms
				continue
			}
			again, _, err := both(wire)
			if err != nil || !slices.Equal(wire, again) {
				t.Errorf("%s: %x became %x, %v", name, wire, again, err)
			}
		}
		if i, err := decodeRegionInfo(b); err == nil && len(i.areas) > maxAreas {
			t.Errorf("%d areas", len(i.areas))
		}
		v, err := decodeVersion(b)
		if err != nil {
			return
		}
		if wire, err := appendVersion(nil, v); err != nil {
			t.Errorf("encode: %v", err)
		} else if _, err := decodeVersion(wire); err != nil && len(wire) <= maxVersion {
			t.Errorf("decode again: %v", err)
		}
		answer(v, device.Info{})
	})
}
