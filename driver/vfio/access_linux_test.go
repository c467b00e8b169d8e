package vfio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
)

// shaped is the scratch card with other regions.
type shaped struct {
	*devicetest.Card
	bars map[int]uint64
}

func (s shaped) Info() device.Info {
	i := s.Card.Info()
	for n, size := range s.bars {
		i.Regions[n] = device.Region{Size: size}
	}
	return i
}

// TestCaseD05 and fact 11: of a sparse region only the listed areas are mapped; the rest goes through the descriptor.
func TestCaseD05(t *testing.T) {
	k := newFakeOf(t, shaped{devicetest.NewCard(), map[int]uint64{0: 0x4000}})
	k.pci.back(0)
	k.pci.regions[0].caps = []fakeCap{{77, []byte{1}}, {regionCapSparse, areasBody(sparseArea{0, 0x1000}, sparseArea{0x2000, 0x2000})}}
	d := k.mustOpen(Type1)
	if got := k.log("mmap"); !slices.Equal(got, []string{"mmap 0x1000", "mmap 0x2000", "mmap 0x1000"}) {
		t.Errorf("mappings %q, want two of BAR0 and one of BAR2", got)
	}
	rows := []struct {
		off    uint64
		direct bool
	}{{0, true}, {0xffc, true}, {0x1000, false}, {0x1008, false}, {0x1ffc, false}, {0x2000, true}, {0x3ffc, true}}
	for i, row := range rows {
		before := len(k.log("pread", "pwrite"))
		v := uint32(i) * 0x01010101
		d.Store32(0, row.off, v)
		if got := d.Load32(0, row.off); got != v {
			t.Errorf("word at %#x = %#x, want %#x", row.off, got, v)
		}
		if direct := len(k.log("pread", "pwrite")) == before; direct != row.direct {
			t.Errorf("access at %#x: direct %v, want %v", row.off, direct, row.direct)
		}
	}
	if _, parts, err := d.RegionFile(0); err != nil || !slices.Equal(parts, []Part{{0, 0x1000}, {0x2000, 0x2000}}) {
		t.Errorf("RegionFile = %v, %v", parts, err)
	}
	d.Load32(0, 0x4000)
	if !errors.Is(d.Err(), device.ErrRange) {
		t.Errorf("Err after an access past the end = %v", d.Err())
	}
}

// msixConfig puts an MSI-X capability of n vectors into configuration space.
func msixConfig(k *fakeKernel, n int, table, pending uint32) {
	c := k.pci.config
	c[offStatus] |= statusCapList
	c[offCapList] = 0x40
	c[0x40], c[0x41] = CapMSIX, 0
	binary.LittleEndian.PutUint16(c[0x42:], uint16(n-1))
	binary.LittleEndian.PutUint32(c[0x44:], table)
	binary.LittleEndian.PutUint32(c[0x48:], pending)
}

// TestFact11MSIXTable: what lies around the table is mapped, all of it where the kernel says so; the table itself is never
// touched through a mapping.
func TestFact11MSIXTable(t *testing.T) {
	rows := []struct {
		name     string
		mappable bool
		parts    []Part
		direct   map[uint64]bool
	}{
		{"not mappable", false, []Part{{0, 0x1000}, {0x3000, 0x1000}, {0x5000, 0xb000}}, map[uint64]bool{0: true, 0x1ff0: false, 0x2000: false, 0x3000: true, 0x4000: false, 0x5000: true}},
		{"mappable", true, []Part{{0, 0x10000}}, map[uint64]bool{0: true, 0x1000: false, 0x103c: false, 0x1040: true, 0x2000: true, 0x4000: false, 0x4008: true}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			k := newFakeOf(t, shaped{devicetest.NewCard(), map[int]uint64{4: 0x10000}})
			k.pci.back(4)
			if row.mappable {
				k.pci.regions[4].caps = []fakeCap{{regionCapMSIX, nil}}
				msixConfig(k, 4, 4|0x1000, 4|0x4000)
			} else {
				msixConfig(k, 0x1000/16+1, 4|0x1000, 4|0x4000) // one entry reaches into the second page
			}
			d := k.mustOpen(IOMMUFD)
			if _, parts, _ := d.RegionFile(4); !slices.Equal(parts, row.parts) {
				t.Errorf("parts %#x, want %#x", parts, row.parts)
			}
			for off, want := range row.direct {
				before := len(k.log("pread"))
				d.Load32(4, off)
				if direct := len(k.log("pread")) == before; direct != want {
					t.Errorf("load at %#x: direct %v, want %v", off, direct, want)
				}
			}
		})
	}
}

// TestFact09Regions: offsets are told, sizes are believed only where they make sense, a region of size 0 is not there.
func TestFact09Regions(t *testing.T) {
	k := newFake(t)
	d := k.mustOpen(Auto)
	if off, parts, err := d.RegionFile(2); err != nil || off != fakeOffset+2<<36 || len(parts) != 1 {
		t.Errorf("RegionFile = %#x %v, %v", off, parts, err)
	}
	if _, parts, err := d.RegionFile(1); err != nil || len(parts) != 0 {
		t.Errorf("RegionFile of an absent region = %v, %v", parts, err)
	}
	if _, _, err := d.RegionFile(7); !errors.Is(err, device.ErrRange) {
		t.Errorf("RegionFile(7) = %v", err)
	}
}

// TestFact10SubPage: a BAR smaller than a page that may not be mapped, and one that may: the mapping is a page, the region
// is not.
func TestFact10SubPage(t *testing.T) {
	k := newFakeOf(t, shaped{devicetest.NewCard(), map[int]uint64{2: 0x100}})
	d := k.mustOpen(Auto)
	if got := k.log("mmap"); !slices.Equal(got, []string{"mmap 0x1000"}) {
		t.Errorf("mappings %q", got)
	}
	d.Store32(2, 0xfc, 3)
	if d.Load32(2, 0xfc) != 3 || d.Err() != nil {
		t.Errorf("last word: %v", d.Err())
	}
	d.Load32(2, 0x100)
	if !errors.Is(d.Err(), device.ErrRange) {
		t.Errorf("Err = %v", d.Err())
	}
}

// TestFact12Revoked: a BAR whose mapping the kernel takes away under an access ends the device, not the process. It does so
// from whichever goroutine, for loads and stores of both widths.
func TestFact12Revoked(t *testing.T) {
	rows := []struct {
		name   string
		access func(d *Device) uint64
		ones   bool
	}{
		{"load 32", func(d *Device) uint64 { return uint64(d.Load32(2, 16)) | 0xffff_ffff<<32 }, true},
		{"load 64", func(d *Device) uint64 { return d.Load64(2, 16) }, true},
		{"store 32", func(d *Device) uint64 { d.Store32(2, 16, 1); return 0 }, false},
		{"store 64", func(d *Device) uint64 { d.Store64(2, 16, 1); return 0 }, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			k := newFake(t)
			d := k.mustOpen(Type1)
			d.Store32(2, 16, 1)
			k.pci.revoke(2)
			done := make(chan uint64)
			go func() { done <- row.access(d) }()
			if v := <-done; row.ones && v != ^uint64(0) {
				t.Errorf("value %#x, want all ones", v)
			}
			err := d.Err()
			if !errors.Is(err, device.ErrDeviceLost) {
				t.Fatalf("Err = %v", err)
			}
			says(t, err, k.addr, "region 2 at 0x10", "took the mapping away")
			if err := d.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// TestFenceOnlyDevice: a fault elsewhere is the program's own, also while an access could be fenced.
func TestFenceOnlyDevice(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	m, err := NewMapping(mem, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a foreign panic was swallowed")
		}
	}()
	ok := true
	m.fence(false, errors.New("foreign"), &ok)
}

func TestNewMapping(t *testing.T) {
	for _, n := range []uint64{0, 9} {
		if _, err := NewMapping(make([]byte, 8), n); !errors.Is(err, device.ErrRange) {
			t.Errorf("NewMapping of %d bytes = %v", n, err)
		}
	}
}

// TestSilent: a device that stops answering the descriptor ends with ErrDeviceLost; another refusal with its own error.
func TestSilent(t *testing.T) {
	for _, row := range []struct {
		errno unix.Errno
		lost  bool
	}{{unix.EIO, true}, {unix.ENODEV, true}, {unix.EINVAL, false}, {unix.EFAULT, false}} {
		for _, store := range []bool{false, true} {
			k := newFake(t)
			d := k.mustOpen(Type1)
			k.pci.regions[0].fail = row.errno
			if store {
				d.Store32(0, 4, 1)
			} else if v := d.Load32(0, 4); v != ^uint32(0) {
				t.Errorf("%v: value %#x", row.errno, v)
			}
			says(t, d.Err(), k.addr, "region 0 at 0x4", row.errno.Error())
			if got := errors.Is(d.Err(), device.ErrDeviceLost); got != row.lost {
				t.Errorf("%v: lost %v, want %v: %v", row.errno, got, row.lost, d.Err())
			}
		}
	}
}

// TestFact13Config: configuration space is reached by the descriptor alone, as much of it as there is.
func TestFact13Config(t *testing.T) {
	for _, size := range []int{64, 256, 4096} {
		k := newFake(t)
		k.pci.config = append(k.pci.config, make([]byte, 4096)...)[:size]
		d := k.mustOpen(Auto)
		b := make([]byte, 4)
		if err := d.ReadConfig(uint32(size)-4, b); err != nil {
			t.Errorf("%d bytes: the last word: %v", size, err)
		}
		if err := d.ReadConfig(uint32(size)-2, b); !errors.Is(err, device.ErrRange) {
			t.Errorf("%d bytes: beyond: %v", size, err)
		}
		if d.Err() != nil {
			t.Errorf("Err = %v", d.Err())
		}
	}
	k := newFake(t)
	k.pci.config = k.pci.config[:32]
	says(t, openFails(t, k, nil), "configuration space of 32 bytes")
}

// TestCaseD17 and fact 14: memory space and bus master are turned on before anything else can be done, and off at close.
func TestCaseD17(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		k := newFake(t)
		d := k.mustOpen(tr)
		if got := k.pci.command.Load(); got != 0x0006 {
			t.Errorf("command after open = %#06x", got)
		}
		if err := d.EnableVectors(2); err != nil {
			t.Fatal(err)
		}
		if _, err := d.AllocDMA("ring", 4096); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		unmap := map[Transport]string{Type1: "VFIO_IOMMU_UNMAP_DMA", IOMMUFD: "IOMMU_IOAS_UNMAP"}[tr]
		got := k.log("pwrite region 7", "VFIO_DEVICE_SET_IRQS MSI-X", unmap, "munmap")
		want := []string{"pwrite region 7 0x4+2 0600", "VFIO_DEVICE_SET_IRQS MSI-X 0x24 0+2 [0 0]",
			"pwrite region 7 0x4+2 0200", "VFIO_DEVICE_SET_IRQS MSI-X 0x21 0+0 []", unmap, "munmap", "pwrite region 7 0x4+2 0000", "munmap"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: calls\n%q\nwant\n%q", tr, got, want)
		}
	}
}

// TestCloseWaits: Close during accesses ends them and never takes a mapping from under one.
func TestCloseWaits(t *testing.T) {
	k := newFake(t)
	d := k.mustOpen(Type1)
	var wg sync.WaitGroup
	for _, bar := range []int{0, 2} {
		wg.Go(func() {
			for d.Err() == nil {
				d.Store32(bar, 4, 1)
				d.Load32(bar, 4)
			}
		})
	}
	for d.Load32(2, 4) != 1 { // the other goroutine is at work
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if !errors.Is(d.Err(), device.ErrClosed) {
		t.Errorf("Err = %v", d.Err())
	}
}

func TestAccessAllocs(t *testing.T) {
	k := newFake(t)
	d := k.mustOpen(Type1)
	if n := testing.AllocsPerRun(1000, func() {
		d.Store32(2, 0, d.Load32(2, 4))
		d.Store64(2, 8, d.Load64(2, 16))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAccess(b *testing.B) {
	k := newFake(b)
	d := k.mustOpen(Type1)
	for _, row := range []struct {
		name string
		do   func()
	}{{"load32", func() { d.Load32(2, 0) }}, {"store32", func() { d.Store32(2, 0, 1) }}} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				row.do()
			}
		})
	}
}

// TestFact08Answers: an answer that wants more room is asked for again, with a limit; chains stay inside and end.
func TestFact08Answers(t *testing.T) {
	k := newFake(t)
	k.pci.regions[2].caps = []fakeCap{{99, bytes.Repeat([]byte{1}, 200)}, {regionCapMSIX, nil}}
	d := k.mustOpen(Type1)
	if n := len(k.log("VFIO_DEVICE_GET_REGION_INFO 2")); n != 2 {
		t.Errorf("region 2 was asked for %d times", n)
	}
	d.Close()

	head := func(argsz, capAt uint32) []byte {
		return encodeInfo(regionInfo{Argsz: argsz, Flags: regionFlagCaps, Size: 0x4000, CapOffset: capAt})
	}
	link := func(id uint16, next uint32, body ...byte) []byte {
		return append(encodeInfo(capHeader{id, 1, next}), body...)
	}
	rows := []struct {
		name string
		b    []byte
		says string // empty: good
	}{
		{"no capability", head(32, 0), ""},
		{"one", append(head(40, 32), link(9, 0)...), ""},
		{"short", head(32, 0)[:20], "too short"},
		{"other region", encodeInfo(regionInfo{Index: 3}), "about region 3"},
		{"into the structure", append(head(40, 8), link(9, 0)...), "a capability at 8"},
		{"not aligned", append(head(42, 34), make([]byte, 10)...), "a capability at 34"},
		{"past the end", head(32, 64), "a capability at 64"},
		{"to itself", append(head(40, 32), link(9, 32)...), "comes twice"},
		{"loop of two", append(append(head(48, 32), link(9, 40)...), link(9, 32)...), "comes twice"},
		{"sparse, no count", append(head(40, 32), link(regionCapSparse, 0)...), "too short"},
		{"sparse, too many", append(head(48, 32), link(regionCapSparse, 0, encodeInfo([2]uint32{1 << 31, 0})...)...), "areas in"},
		{"sparse, outside", append(head(64, 32), link(regionCapSparse, 0, areasBody(sparseArea{0x3000, 0x2000})...)...), "area 0"},
		{"sparse, wraps", append(head(64, 32), link(regionCapSparse, 0, areasBody(sparseArea{0x1000, ^uint64(0)})...)...), "area 0"},
		{"sparse, overlap", append(head(80, 32), link(regionCapSparse, 0, areasBody(sparseArea{0, 0x2000}, sparseArea{0x1000, 0x1000})...)...), "area 1"},
		{"sparse, not a page", append(head(64, 32), link(regionCapSparse, 0, areasBody(sparseArea{0x10, 0x1000})...)...), "area 0"},
		{"sparse, empty area", append(head(64, 32), link(regionCapSparse, 0, areasBody(sparseArea{0, 0})...)...), ""},
	}
	for _, row := range rows {
		_, err := parseRegion(row.b, 0, 4096)
		if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.says)
		}
	}
}
