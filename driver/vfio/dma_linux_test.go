package vfio

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// TestFact23Quota: under each limit of locked memory and of mappings, what does not fit is refused before the kernel is
// asked, and the message says need, have and fix.
func TestFact23Quota(t *testing.T) {
	for _, limit := range []uint64{64 << 10, 256 << 10, 1 << 20, 8 << 20} {
		for _, tr := range []Transport{Type1, IOMMUFD} {
			k := newFake(t)
			k.limit = limit
			k.status(16)
			d := k.mustOpen(tr)
			have := limit - 16<<10
			if _, err := d.AllocDMA("fits", int(have)); err != nil {
				t.Errorf("limit %d: %d bytes: %v", limit, have, err)
			}
			maps := len(k.log("VFIO_IOMMU_MAP", "IOMMU_IOAS_MAP"))
			k.status(int(limit >> 10))
			_, err := d.AllocDMA("beyond", 8192)
			says(t, err, fmt.Sprintf("locked memory: need 8192 bytes, have 0 (RLIMIT_MEMLOCK is %d", limit), fmt.Sprintf("do: prlimit --memlock=%d", limit+8192))
			var q *QuotaError
			if !errors.As(err, &q) || q.Need != 8192 || q.Have != 0 || !errors.Is(err, device.ErrDMA) {
				t.Errorf("limit %d: %#v", limit, err)
			}
			if len(k.log("VFIO_IOMMU_MAP", "IOMMU_IOAS_MAP")) != maps {
				t.Errorf("limit %d: the kernel was asked", limit)
			}
			if d.Err() != nil {
				t.Errorf("limit %d: Err = %v", limit, d.Err())
			}
		}
	}
	for avail := 1; avail <= 4; avail++ {
		k := newFake(t)
		k.entryLimit = avail
		d := k.mustOpen(Type1)
		var last *device.DMA
		for i := range avail {
			m, err := d.AllocDMA("fits", 4096)
			if err != nil {
				t.Fatalf("%d mappings: mapping %d: %v", avail, i, err)
			}
			last = m
		}
		_, err := d.AllocDMA("beyond", 4096)
		says(t, err, fmt.Sprintf("dma mappings: need 1 mappings, have 0 (%d in use by this process); do: echo", avail), "dma_entry_limit")
		if err := last.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.AllocDMA("fits", 4096); err != nil {
			t.Errorf("%d mappings: after one was given back: %v", avail, err)
		}
	}
}

// TestQuotaUnknown: a kernel that tells nothing is asked, and its refusal explained.
func TestQuotaUnknown(t *testing.T) {
	k := newFake(t)
	k.tellAvail, k.entryLimit = false, 1
	d := k.mustOpen(Type1)
	if _, err := d.AllocDMA("a", 4096); err != nil {
		t.Fatal(err)
	}
	_, err := d.AllocDMA("b", 4096)
	says(t, err, "(ENOSPC)", "dma_entry_limit")

	k = newFake(t)
	k.status(0)
	k.limit = 4096
	k.write("../proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n") // CAP_IPC_LOCK: the limit means nothing to it
	d = k.mustOpen(Type1)
	_, err = d.AllocDMA("a", 8192) // but this kernel counts all the same
	says(t, err, "(ENOMEM)", "locked memory", "do: raise the limit")
}

// TestLadder: memory comes in the largest pages that make sense and that there are.
func TestLadder(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	rows := []struct {
		name        string
		size        int
		huge        map[uint64]uint64
		limit       uint64
		no          bool
		bytes, page uint64
	}{
		{"small", 8192, map[uint64]uint64{2 * mib: gib}, 0, false, 8192, 4096},
		{"wasteful", 3 * mib, map[uint64]uint64{2 * mib: gib}, 0, false, 3 * mib, 4096},
		{"2 MiB", 32 * mib, map[uint64]uint64{2 * mib: gib}, 0, false, 32 * mib, 2 * mib},
		{"rounded up", 32*mib + 1, map[uint64]uint64{2 * mib: gib}, 0, false, 34 * mib, 2 * mib},
		{"1 GiB", gib, map[uint64]uint64{gib: gib, 2 * mib: gib}, 0, false, gib, gib},
		{"1 GiB taken, 2 MiB left", gib, map[uint64]uint64{gib: 0, 2 * mib: gib}, 0, false, gib, 2 * mib},
		{"too few", 32 * mib, map[uint64]uint64{2 * mib: 16 * mib}, 0, false, 32 * mib, 4096},
		{"none configured", 32 * mib, nil, 0, false, 32 * mib, 4096},
		{"not wanted", 32 * mib, map[uint64]uint64{2 * mib: gib}, 0, true, 32 * mib, 4096},
		{"rounding beyond the limit", 32*mib + 1, map[uint64]uint64{2 * mib: gib}, 33 * mib, false, 32*mib + 4096, 4096},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			k := newFake(t)
			for p, n := range row.huge {
				k.huge[p] = n
			}
			if row.limit != 0 {
				k.limit = row.limit
			}
			o := k.options()
			o.NoHugePages = row.no
			d, err := Open(k.addr, o)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			m, err := d.AllocDMA("frames", row.size)
			if err != nil {
				t.Fatal(err)
			}
			us := d.Memory()
			if len(us) != 1 || us[0] != (Use{"frames", row.bytes, m.IOVA, row.page}) || m.IOVA%row.page != 0 {
				t.Errorf("Memory = %+v, want %d bytes in pages of %d", us, row.bytes, row.page)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			for p, n := range row.huge {
				if k.huge[p] != n {
					t.Errorf("%d bytes in pages of %d are left, want %d", k.huge[p], p, n)
				}
			}
		})
	}
}

// TestFact22Align: memory and addresses are multiples of the IOMMU's smallest page.
func TestFact22Align(t *testing.T) {
	k := newFake(t)
	k.pageSizes = 1<<16 | 1<<29
	k.ranges = []device.IOVARange{{First: 0, Last: 1<<40 - 1}}
	d := k.mustOpen(Type1)
	for _, n := range []int{1, 4096, 65537} {
		m, err := d.AllocDMA("ring", n)
		if err != nil {
			t.Fatal(err)
		}
		if m.IOVA%(1<<16) != 0 || len(m.Bytes)%(1<<16) != 0 {
			t.Errorf("AllocDMA(%d): %d bytes at %#x", n, len(m.Bytes), m.IOVA)
		}
	}
}

// TestFact24Ranges: a kernel that tells no ranges is given none of the window of interrupts; ranges that make no sense are refused.
func TestFact24Ranges(t *testing.T) {
	k := newFake(t)
	k.noRanges = true
	d := k.mustOpen(Type1)
	if got := d.Info().IOVA; !slices.Equal(got, fullRange()) {
		t.Errorf("ranges %#x", got)
	}
	for _, tr := range []Transport{Type1, IOMMUFD} {
		k = newFake(t)
		k.ranges = []device.IOVARange{{First: 9, Last: 8}}
		o := k.options()
		o.Transport = tr
		_, err := Open(k.addr, o)
		says(t, err, "makes no sense", "from 0x9 to 0x8")
	}
	k = newFake(t)
	k.ranges = []device.IOVARange{{First: 0x1000, Last: 0x4fff}}
	d = k.mustOpen(IOMMUFD)
	for range 2 {
		if _, err := d.AllocDMA("ring", 4096); err != nil {
			t.Fatal(err)
		}
	}
	_, err := d.AllocDMA("ring", 4096)
	says(t, err, "no room for 4096 bytes")
	if !errors.Is(err, device.ErrDMA) {
		t.Errorf("AllocDMA = %v", err)
	}
	if _, err := d.AllocDMA("a/b", 4096); !errors.Is(err, device.ErrRange) {
		t.Errorf("AllocDMA with a path for a name = %v", err)
	}
}

// TestMapMemory: a process that serves the device maps memory of its client where the client wants it.
func TestMapMemory(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		k := newFake(t)
		d := k.mustOpen(tr)
		mem, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(mem)
		if err := d.MapMemory(0x10000, mem, true); err != nil {
			t.Fatal(err)
		}
		for _, iova := range []uint64{0x10000, 0x11000, 0xf000, 0x10008, 1 << 39 << 2, ^uint64(0xfff)} {
			if err := d.MapMemory(iova, mem, true); !errors.Is(err, device.ErrDMA) {
				t.Errorf("%s: MapMemory at %#x = %v", tr, iova, err)
			}
		}
		m, err := d.AllocDMA("own", 1<<16-0x1000)
		if err != nil || m.IOVA < 0x13000 && m.IOVA+uint64(len(m.Bytes)) > 0xf000 {
			t.Errorf("%s: own memory at %#x, %v", tr, m.IOVA, err)
		}
		if err := d.UnmapMemory(0x10000, 4096); !errors.Is(err, device.ErrDMA) {
			t.Errorf("%s: UnmapMemory of a part = %v", tr, err)
		}
		if err := d.UnmapMemory(0x10000, 8192); err != nil {
			t.Errorf("%s: UnmapMemory = %v", tr, err)
		}
		if err := d.MapMemory(0x10000, mem, true); err != nil {
			t.Errorf("%s: MapMemory again = %v", tr, err)
		}
		if err := d.Reset(); err != nil {
			t.Fatal(err)
		}
		if err := d.UnmapMemory(0x10000, 8192); !errors.Is(err, device.ErrDMA) {
			t.Errorf("%s: UnmapMemory after Reset = %v", tr, err)
		}
		if err := d.MapMemory(0x10000, mem, true); err != nil {
			t.Errorf("%s: MapMemory after Reset = %v", tr, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := d.UnmapMemory(0x10000, 8192); !errors.Is(err, device.ErrClosed) {
			t.Errorf("%s: UnmapMemory after Close = %v", tr, err)
		}
		mem[8191] = 1 // still the caller's
	}
}

func TestReadLocked(t *testing.T) {
	k := newFake(t)
	rows := []struct {
		text string
		want Locked
	}{
		{"VmLck:\t      64 kB\nVmPin:\t       4 kB\nCapEff:\t0000000000000000\n", Locked{Used: 68 << 10}},
		{"CapEff:\t000001ffffffffff\n", Locked{Unlimited: true}},
		{"CapEff:\t0000000000004000\n", Locked{Unlimited: true}},
		{"VmLck:\nVmPin: x kB\nCapEff: y\n", Locked{}},
		{"", Locked{}},
	}
	for _, row := range rows {
		k.write("../proc/self/status", row.text)
		if got, err := readLocked(k.options().Proc); err != nil || got != row.want {
			t.Errorf("%q: %+v, %v, want %+v", row.text, got, err, row.want)
		}
	}
	if _, err := readLocked("/nowhere"); err == nil {
		t.Error("no error without /proc")
	}
}

// TestSpace has a row per decision of the allocator.
func TestSpace(t *testing.T) {
	type op struct {
		n, align uint64
		want     uint64 // 0: refused
	}
	const top = ^uint64(0)
	rows := []struct {
		name   string
		ranges []device.IOVARange
		guard  bool
		ops    []op
	}{
		{"page zero is kept", []device.IOVARange{{First: 0, Last: 0xffff}}, true, []op{{0x1000, 0, 0x1000}, {0x1000, 0, 0x3000}, {0x2000, 0, 0x5000}}},
		{"adjacent", []device.IOVARange{{First: 0, Last: 0x4fff}}, false, []op{{0x1000, 0, 0x1000}, {0x2000, 0, 0x2000}, {0x1000, 0, 0x4000}, {0x1000, 0, 0}}},
		{"over the hole", []device.IOVARange{{First: 0, Last: 0x2fff}, {First: 0x5000, Last: 0x8fff}}, true, []op{{0x2000, 0, 0x1000}, {0x2000, 0, 0x5000}, {0x2000, 0, 0}, {0x1000, 0, 0x8000}}},
		{"unsorted", []device.IOVARange{{First: 0x8000, Last: 0xffff}, {First: 0x1000, Last: 0x1fff}}, true, []op{{0x1000, 0, 0x1000}, {0x1000, 0, 0x8000}}},
		{"aligned", []device.IOVARange{{First: 0, Last: 1<<32 - 1}}, true, []op{{0x1000, 0, 0x1000}, {2 << 20, 2 << 20, 2 << 20}, {0x1000, 0, 0x3000}, {2 << 20, 2 << 20, 6 << 20}}},
		{"odd edges", []device.IOVARange{{First: 0x1001, Last: 0x3ffe}}, true, []op{{0x2000, 0, 0}, {0x1000, 0, 0x2000}}},
		{"at the top", []device.IOVARange{{First: top - 0x2fff, Last: top}}, true, []op{{0x1000, 0, top - 0x2fff}, {0x1000, 0, top - 0xfff}, {0x1000, 0, 0}}},
		{"too large", []device.IOVARange{{First: 0, Last: 0xffff}}, true, []op{{1 << 32, 0, 0}, {0xf000, 0, 0x1000}}},
		{"none", nil, true, []op{{0x1000, 0, 0}}},
	}
	for _, row := range rows {
		s := newSpace(row.ranges, 4096, !row.guard)
		for i, o := range row.ops {
			got, ok := s.take(o.n, o.align)
			if ok != (o.want != 0) || got != o.want {
				t.Errorf("%s: %d: take(%#x, %#x) = %#x, %v, want %#x", row.name, i, o.n, o.align, got, ok, o.want)
			}
		}
	}
	s := newSpace([]device.IOVARange{{First: 0, Last: 0x8fff}}, 4096, false)
	a, _ := s.take(0x1000, 0)
	b, _ := s.take(0x1000, 0)
	s.give(a)
	if c, _ := s.take(0x1000, 0); c != a {
		t.Errorf("a place given back was not given again: %#x, want %#x", c, a)
	}
	if c, _ := s.take(0x2000, 0); c != b+0x2000 {
		t.Errorf("take = %#x, want %#x", c, b+0x2000)
	}
	if s.claim(b, 0x1000) || s.claim(0x7000, 0) || s.claim(0x7800, 0x1000) || s.claim(0x8000, 0x2000) || !s.claim(0x8000, 0x1000) {
		t.Error("claim")
	}
}

// TestErrorTexts fixes what errors say, whole.
func TestErrorTexts(t *testing.T) {
	n := &nodes{address: fakeAddress, dev: "/dev"}
	rows := []struct {
		err  error
		want string
	}{
		{n.explain("open", "/dev/vfio/vfio", unix.ENOENT),
			"open on /dev/vfio/vfio: no such file or directory (ENOENT): the vfio modules are not loaded; do: modprobe vfio-pci vfio_iommu_type1"},
		{n.explain("open", "/dev/vfio/14", unix.EACCES),
			"open on /dev/vfio/14: permission denied (EACCES): this user may not open the node; do: splicectl card doctor prints the udev rule"},
		{n.explain("VFIO_DEVICE_RESET", "device "+fakeAddress, unix.ENOTTY),
			"VFIO_DEVICE_RESET on device 0000:65:00.0: inappropriate ioctl for device (ENOTTY): the function has no reset of its own; do: cat /sys/bus/pci/devices/0000:65:00.0/reset_method"},
		{n.explain("munmap", "region 2 of "+fakeAddress, unix.EINVAL),
			"munmap on region 2 of 0000:65:00.0: invalid argument (EINVAL); do: dmesg | grep -i -e vfio -e iommu -e DMAR"},
		{&ReplyError{"VFIO_DEVICE_GET_INFO", "a PCI device with 3 regions"},
			"VFIO_DEVICE_GET_INFO: the kernel's answer makes no sense: a PCI device with 3 regions; do: report it with the output of uname -r"},
		{&GroupError{Group: 7, Address: fakeAddress, Blocking: []Member{{Address: "a", Driver: "x"}, {Address: "b", Driver: "y"}}},
			"IOMMU group 7 of 0000:65:00.0 is not viable: driver x has a, driver y has b; do: echo a > /sys/bus/pci/devices/a/driver/unbind && echo b > /sys/bus/pci/devices/b/driver/unbind"},
		{&GroupError{Group: 7, Address: fakeAddress},
			"IOMMU group 7 of 0000:65:00.0 is not viable: the kernel says so, though no device of the group has a driver other than vfio; do: splicectl card list"},
		{&StateError{Fact: "fact", Fix: "fix"}, "fact; do: fix"},
		{&StateError{Fact: "fact", Fix: "fix", Err: device.ErrBusy}, "device busy: fact; do: fix"},
	}
	for _, row := range rows {
		if got := row.err.Error(); got != row.want {
			t.Errorf("got  %s\nwant %s", got, row.want)
		}
	}
	if err := n.explain("open", "/dev/vfio/14", nil); err != nil {
		t.Errorf("explain of no error = %v", err)
	}
	if err := n.explain("open", "x", errors.New("odd")); !strings.Contains(err.Error(), "odd") {
		t.Errorf("explain = %v", err)
	}
	if !errors.Is(n.explain("x", "y", unix.ENOTTY), device.ErrNotSupported) || !errors.Is(n.explain("x", "y", unix.ENXIO), device.ErrDeviceLost) {
		t.Error("an errno has not the sentinel it stands for")
	}
	for _, a := range advices {
		if a.fix == "" || strings.HasSuffix(a.fix, ".") || strings.HasSuffix(a.fact, ".") {
			t.Errorf("advice %+v", a)
		}
	}
}
