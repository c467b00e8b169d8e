package vfio

import (
	"errors"
	"testing"

	"splicenic/driver/device"
)

// FuzzCapabilities: whatever configuration space says, the walk ends, stays inside and finds nothing twice.
func FuzzCapabilities(f *testing.F) {
	f.Add(configOf(256, map[int][]byte{6: {statusCapList}, 0x34: {0x40}, 0x40: {0x05, 0x50}, 0x50: {0x11, 0x40, 3, 0}}))
	f.Add(configOf(4096, map[int][]byte{0x100: ext(1, 2, 0x140), 0x140: ext(3, 1, 0x100)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		cs, err := Capabilities(b)
		if len(cs) > capSteps+extCapSteps {
			t.Fatalf("%d entries", len(cs))
		}
		seen := map[Capability]bool{}
		for _, c := range cs {
			if int(c.Offset)+2 > len(b) || c.Offset < configHeader || c.Offset%4 != 0 || c.Extended != (c.Offset >= configStandard) {
				t.Errorf("entry %+v in %d bytes", c, len(b))
			}
			if seen[c] {
				t.Errorf("entry %+v twice", c)
			}
			seen[c] = true
			_ = c.String()
		}
		if err != nil && !errors.Is(err, ErrCapabilityCut) && !errors.Is(err, ErrCapabilityLoop) && !errors.Is(err, device.ErrDeviceLost) {
			t.Errorf("error %v", err)
		}
		spans, n := msixTables(b, cs)
		if n < 0 || n > 2048 {
			t.Errorf("%d vectors", n)
		}
		for bar, ss := range spans {
			r := bar
			x := barOf(1<<29, ss)
			for _, a := range x.mappable(4096) {
				if a.Size == 0 || a.Offset%4096 != 0 || a.Offset+a.Size > 1<<29 {
					t.Errorf("BAR %d: part %+v", r, a)
				}
				for _, s := range ss {
					if s.overlaps(a.Offset, a.Size) {
						t.Errorf("BAR %d: part %+v holds the table %+v", r, a, s)
					}
				}
			}
		}
	})
}

func barOf(size uint64, table []span) *bar {
	return &bar{info: region{flags: regionFlagMmap, size: size}, table: table}
}

// FuzzRegionInfo: an answer about a region is refused or true to itself.
func FuzzRegionInfo(f *testing.F) {
	f.Add(append(encodeInfo(regionInfo{Argsz: 80, Flags: regionFlagCaps | regionFlagMmap, Size: 0x4000, CapOffset: 32}),
		append(encodeInfo(capHeader{ID: regionCapSparse, Version: 1}), encodeInfo([10]uint32{2, 0, 0, 0, 0x1000, 0, 0x2000, 0, 0x2000, 0})...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRegion(b, 0, 4096)
		if err != nil {
			return
		}
		end := uint64(0)
		for _, a := range r.areas {
			if a.Offset < end || a.Size == 0 || a.Offset%4096 != 0 || a.Offset+a.Size > r.size || a.Offset+a.Size < a.Offset {
				t.Errorf("area %+v in %#x bytes", a, r.size)
			}
			end = a.Offset + a.Size
		}
		if int64(r.offset+r.size) < 0 {
			t.Errorf("%#x bytes at %#x", r.size, r.offset)
		}
	})
}

// FuzzIOMMUInfo: an answer about an IOMMU is refused or gives ranges an allocator can work with.
func FuzzIOMMUInfo(f *testing.F) {
	f.Add(append(encodeInfo(iommuInfo{Argsz: 72, Flags: iommuFlagPageSizes | iommuFlagCaps, PageSizes: 0x40201000, CapOffset: 24}),
		append(encodeInfo(capHeader{ID: iommuCapRanges, Version: 1}), encodeInfo([10]uint32{2, 0, 0, 0, 0xfedf_ffff, 0, 0xfef0_0000, 0, 0xffff_ffff, 0xffff})...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := parseIOMMU(b)
		if err != nil {
			return
		}
		s := newSpace(w.ranges, w.page, false)
		var last uint64
		for range 4 {
			n, _ := up(8192, w.page)
			iova, ok := s.take(n, w.page)
			if !ok {
				break
			}
			if iova == 0 || iova%w.page != 0 || iova+(n-1) < iova || iova == last {
				t.Errorf("%#x bytes at %#x, page %#x", n, iova, w.page)
			}
			last = iova
		}
	})
}

// FuzzAddress: an address is refused or canonical.
func FuzzAddress(f *testing.F) {
	f.Add("0000:3b:00.0")
	f.Add("10001:80:05.0")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		if again, err := ParseAddress(a); err != nil || again != a {
			t.Errorf("ParseAddress(%q) = %q, which parses as %q, %v", s, a, again, err)
		}
	})
}
