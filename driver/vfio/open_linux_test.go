package vfio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// says fails the test unless err says all of it.
func says(t *testing.T, err error, all ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", all)
	}
	for _, s := range all {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %v\ndoes not say %q", err, s)
		}
	}
}

func openFails(t *testing.T, k *fakeKernel, change func(o *Options)) error {
	t.Helper()
	o := k.options()
	o.Transport = Type1
	if change != nil {
		change(&o)
	}
	d, err := Open(k.addr, o)
	if err == nil {
		d.Close()
		t.Fatal("Open: no error")
	}
	k.leaks()
	return err
}

// TestCaseD01: a group that is not viable names the device in the way and its driver, and never a bridge.
func TestCaseD01(t *testing.T) {
	k := newFake(t)
	k.viable = false
	k.member("0000:05:00.1", "snd_hda_intel", "0x040300")
	k.member("0000:04:00.0", "pcieport", "0x060400")
	k.member("0000:05:00.2", "", "0x0c0330")
	err := openFails(t, k, nil)
	says(t, err, "IOMMU group 14", "0000:05:00.1", "snd_hda_intel", "do: echo 0000:05:00.1 > /sys/bus/pci/devices/0000:05:00.1/driver/unbind")
	for _, innocent := range []string{"0000:04:00.0", "pcieport", "0000:05:00.2"} {
		if strings.Contains(err.Error(), innocent) {
			t.Errorf("error %v\nblames %s", err, innocent)
		}
	}
	var g *GroupError
	if !errors.As(err, &g) || g.Group != fakeGroup || len(g.Blocking) != 1 {
		t.Errorf("error %#v, want a GroupError with one member", g)
	}
}

// TestCaseD03 and fact 2: the order of calls, and no address in the window of interrupts.
func TestCaseD03(t *testing.T) {
	k := newFake(t)
	k.ranges = []device.IOVARange{{First: 0, Last: 0xfedf_ffff}, {First: 0xfef0_0000, Last: 1<<48 - 1}}
	d := k.mustOpen(Type1)
	if _, err := d.AllocDMA("ring", 4096); err != nil {
		t.Fatal(err)
	}
	got := k.log("open", "VFIO_GET_API", "VFIO_CHECK", "VFIO_GROUP", "VFIO_SET", "VFIO_IOMMU_MAP", "VFIO_DEVICE_GET_INFO")
	want := []string{"open vfio/vfio", "VFIO_GET_API_VERSION", "VFIO_CHECK_EXTENSION 3", "open vfio/14", "VFIO_GROUP_GET_STATUS",
		"VFIO_GROUP_SET_CONTAINER", "VFIO_SET_IOMMU 3", "VFIO_GROUP_GET_DEVICE_FD", "VFIO_DEVICE_GET_INFO", "VFIO_IOMMU_MAP_DMA 0x1000+0x1000"}
	if !slices.Equal(got, want) {
		t.Errorf("calls\n%q\nwant\n%q", got, want)
	}
	for n := uint64(0); n < 0xffff_ffff; { // fill the low four gigabytes
		m, err := d.AllocDMA("frames", 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		last := m.IOVA + uint64(len(m.Bytes)) - 1
		if m.IOVA <= 0xfeef_ffff && last >= 0xfee0_0000 {
			t.Errorf("memory at %#x-%#x reaches into the window of interrupts", m.IOVA, last)
		}
		n = last
	}
}

// TestFact04Type1: the first version of the IOMMU type is the second choice; what it leaves mapped is told.
func TestFact04Type1(t *testing.T) {
	k := newFake(t)
	k.types = []int{extType1}
	d := k.mustOpen(Auto)
	if d.IOMMU() != "type1" {
		t.Errorf("IOMMU = %s", d.IOMMU())
	}
	m, err := d.AllocDMA("ring", 4096)
	if err != nil {
		t.Fatal(err)
	}
	k.shortUnmap = true
	at := m.IOVA
	says(t, m.Close(), k.addr, "0x0 of 0x1000 bytes")
	k.shortUnmap = false
	m, err = d.AllocDMA("ring", 4096) // what is still mapped is not given out again
	if err != nil || m.IOVA == at {
		t.Errorf("AllocDMA after it = %+v, %v", m, err)
	}
	k.types = nil
	says(t, openFails(t, newFakeWith(t, func(k *fakeKernel) { k.types = nil }), nil), "none of the IOMMU types", "modprobe")
}

func newFakeWith(t *testing.T, change func(k *fakeKernel)) *fakeKernel {
	k := newFake(t)
	change(k)
	return k
}

// TestFact05IOMMUFD: the order of calls of the newer interface, and detach before close.
func TestFact05IOMMUFD(t *testing.T) {
	k := newFake(t)
	d := k.mustOpen(IOMMUFD)
	if _, err := d.AllocDMA("ring", 4096); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	got := k.log("open", "VFIO_DEVICE_BIND", "VFIO_DEVICE_ATT", "VFIO_DEVICE_DET", "IOMMU", "close ")
	want := []string{"open iommu", "open vfio/devices/vfio3", "VFIO_DEVICE_BIND_IOMMUFD", "IOMMU_IOAS_ALLOC", "VFIO_DEVICE_ATTACH_IOMMUFD_PT",
		"IOMMU_IOAS_IOVA_RANGES", "IOMMU_IOAS_IOVA_RANGES", // the first answer is that there are more
		"close memory", "IOMMU_IOAS_MAP 0x1000+0x1000", "IOMMU_IOAS_UNMAP", "VFIO_DEVICE_DETACH_IOMMUFD_PT", "close cdev", "IOMMU_DESTROY", "close iommufd"}
	if !slices.Equal(got, want) {
		t.Errorf("calls\n%q\nwant\n%q", got, want)
	}
}

// TestTransport has a row for each way the choice goes.
func TestTransport(t *testing.T) {
	rows := []struct {
		name         string
		type1, fd    bool
		noNode       bool
		asked, want  Transport
		failOn       string
		says         string
		errIs, notIs error
	}{
		{"auto, both", true, true, false, Auto, Type1, "", "", nil, nil},
		{"auto, no container", false, true, false, Auto, IOMMUFD, "", "", nil, nil},
		{"auto, group forbidden", true, true, false, Auto, IOMMUFD, "open vfio/14", "", nil, nil},
		{"auto, neither", false, false, false, Auto, "", "", "neither transport works", nil, nil},
		{"auto, neither, no node", false, false, true, Auto, "", "", "the vfio modules are not loaded", nil, nil},
		{"type1 forced", true, true, false, Type1, Type1, "", "", nil, nil},
		{"type1 forced, none", false, true, false, Type1, "", "", "modprobe vfio-pci", unix.ENOENT, nil},
		{"iommufd forced", true, true, false, IOMMUFD, IOMMUFD, "", "", nil, nil},
		{"iommufd forced, none", true, false, false, IOMMUFD, "", "", "no iommufd", unix.ENOENT, nil},
		{"iommufd forced, no node", true, true, true, IOMMUFD, "", "", "CONFIG_VFIO_DEVICE_CDEV", device.ErrNotSupported, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			k := newFake(t)
			k.type1, k.iommufd, k.failOn, k.failErr = row.type1, row.fd, row.failOn, unix.EACCES
			if row.noNode {
				if err := os.RemoveAll(filepath.Join(k.root, "sys/bus/pci/devices", k.addr, "vfio-dev")); err != nil {
					t.Fatal(err)
				}
			}
			o := k.options()
			o.Transport = row.asked
			d, err := Open(k.addr, o)
			if row.want == "" {
				says(t, err, row.says, "do: ")
				if row.errIs != nil && !errors.Is(err, row.errIs) {
					t.Errorf("Open = %v, want %v", err, row.errIs)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if d.Transport() != row.want {
				t.Errorf("transport %s, want %s", d.Transport(), row.want)
			}
		})
	}
	for s, want := range map[string]Transport{"": Auto, "auto": Auto, "type1": Type1, "iommufd": IOMMUFD} {
		if got, err := ParseTransport(s); err != nil || got != want {
			t.Errorf("ParseTransport(%q) = %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"noiommu", "registers", "TYPE1"} {
		if got, err := ParseTransport(s); err == nil {
			t.Errorf("ParseTransport(%q) = %q", s, got)
		}
	}
}

// TestFact07NoIOMMU: refused unless asked for by name; then there are registers, and the card is no bus master.
func TestFact07NoIOMMU(t *testing.T) {
	k := newFake(t)
	k.types = []int{extNoIOMMU}
	k.write(fmt.Sprintf("kernel/iommu_groups/%d/name", fakeGroup), "vfio-noiommu\n")
	err := openFails(t, k, nil)
	says(t, err, k.addr, "noiommu", "taints the kernel", "do: turn the IOMMU on, or ask for it by name")
	if !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("Open = %v", err)
	}
	if n := len(k.log("open")); n != 0 {
		t.Errorf("%d nodes were opened", n)
	}
	o := k.options()
	o.NoIOMMU = true
	d, err := Open(k.addr, o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got := k.log("open"); !slices.Equal(got, []string{"open vfio/vfio", "open vfio/noiommu-14"}) {
		t.Errorf("opened %q", got)
	}
	if d.Transport() != NoIOMMU || k.pci.command.Load() != commandMemory {
		t.Errorf("transport %s, command %#x", d.Transport(), k.pci.command.Load())
	}
	d.Store32(device.Bar0, 4, 7)
	if got := d.Load32(device.Bar0, 4); got != 7 {
		t.Errorf("scratch = %d", got)
	}
	_, err = d.AllocDMA("ring", 64)
	says(t, err, "there is no IOMMU", "do: ")
	says(t, d.EnableVectors(1), "there is no IOMMU", "do: ")
	if err := d.Err(); err != nil {
		t.Errorf("Err = %v", err)
	}
}

// TestFact30Busy: a group that another process has names that process.
func TestFact30Busy(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		k := newFake(t)
		k.mustOpen(tr)
		node := map[Transport]string{Type1: "dev/vfio/14", IOMMUFD: "dev/vfio/devices/vfio3"}[tr]
		dir := filepath.Join(k.root, "proc/4711")
		if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(k.root, node), filepath.Join(dir, "fd/9")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte("splicectl\x00card\x00serve\x00"), 0o644); err != nil {
			t.Fatal(err)
		}
		o := k.options()
		o.Transport = tr
		_, err := Open(k.addr, o)
		says(t, err, "process 4711 (splicectl card serve) has it", "kill 4711")
		if !errors.Is(err, device.ErrBusy) {
			t.Errorf("%s: %v is not %v", tr, err, device.ErrBusy)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		_, err = Open(k.addr, o)
		says(t, err, "/proc does not show this user which")
		if !errors.Is(err, device.ErrBusy) {
			t.Errorf("%s: %v is not %v", tr, err, device.ErrBusy)
		}
		other := map[Transport]Transport{Type1: IOMMUFD, IOMMUFD: Type1}[tr]
		o.Transport = other
		if _, err = Open(k.addr, o); !errors.Is(err, device.ErrBusy) {
			t.Errorf("%s over %s: %v is not %v", other, tr, err, device.ErrBusy)
		}
	}
}

// TestOpenRefused has a row for each fact that keeps a device from being opened.
func TestOpenRefused(t *testing.T) {
	rows := []struct {
		name   string
		change func(k *fakeKernel)
		token  string
		says   []string
		is     error
	}{
		{"other version", func(k *fakeKernel) { k.version = 1 }, "", []string{"version 1", "knows 0"}, device.ErrNotSupported},
		{"all ones", func(k *fakeKernel) {
			for i := range k.pci.config {
				k.pci.config[i] = 0xff
			}
		}, "", []string{"reads all ones", "rescan"}, device.ErrDeviceLost},
		{"token wanted", func(k *fakeKernel) { k.pci.token = "83f61d6f" }, "", []string{"--vf-token"}, unix.EACCES},
		{"no group", func(k *fakeKernel) { os.Remove(filepath.Join(k.root, "sys/bus/pci/devices", k.addr, "iommu_group")) }, "",
			[]string{"the IOMMU is off", "intel_iommu=on"}, ErrNoGroup},
		{"no device", func(k *fakeKernel) { os.RemoveAll(filepath.Join(k.root, "sys/bus/pci/devices", k.addr)) }, "",
			[]string{"no such device"}, os.ErrNotExist},
		{"not bound", func(k *fakeKernel) { k.failOn, k.failErr = "open vfio/14", unix.ENOENT }, "",
			[]string{"vfio-pci does not have the device", "splicectl card bind " + fakeAddress}, unix.ENOENT},
		{"interrupts not remapped", func(k *fakeKernel) { k.failOn, k.failErr = "VFIO_SET_IOMMU", unix.EPERM }, "",
			[]string{"allow_unsafe_interrupts"}, unix.EPERM},
		{"reserved memory", func(k *fakeKernel) { k.failOn, k.failErr = "VFIO_SET_IOMMU", unix.EINVAL }, "", []string{"dmesg"}, unix.EINVAL},
		{"no pci device", func(k *fakeKernel) { k.deviceInfo = func(b []byte) { b[4] = 0 } }, "", []string{"no PCI device"}, device.ErrNotSupported},
		{"few regions", func(k *fakeKernel) { k.deviceInfo = func(b []byte) { b[8] = 3 } }, "", []string{"makes no sense"}, nil},
		{"many vectors", func(k *fakeKernel) { k.pci.irqs[irqMSIX].Count = 4096 }, "", []string{"4096 vectors"}, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			k := newFake(t)
			row.change(k)
			err := openFails(t, k, func(o *Options) { o.VFToken = row.token })
			says(t, err, append(row.says, "do: ")...)
			if row.is != nil && !errors.Is(err, row.is) {
				t.Errorf("Open = %v, want %v", err, row.is)
			}
		})
	}
	k := newFake(t)
	k.pci.token = "83f61d6f"
	o := k.options()
	o.VFToken = k.pci.token
	d, err := Open(k.addr, o)
	if err != nil {
		t.Fatalf("Open with the token: %v", err)
	}
	d.Close()
	if _, err := Open("65:00", o); err == nil {
		t.Error("Open of half an address: no error")
	}
	o.Sysfs = "/nowhere"
	if _, err := Open("../../etc", o); err == nil {
		t.Error("Open of a path: no error")
	}
}

func TestInfo(t *testing.T) {
	k := newFake(t)
	i := k.mustOpen(Auto).Info()
	if i.Name != "vfio:"+k.addr || i.Body != "vfio" || i.NUMANode != 1 || i.VendorID != 0x1234 || i.DeviceID != 0x5c1c || i.Vectors != 4 {
		t.Errorf("Info = %+v", i)
	}
	if r := i.Regions[2]; r.Size != 4096 || r.Flags != device.RegionRead|device.RegionWrite|device.RegionMmap|device.RegionPrefetchable {
		t.Errorf("region 2 = %+v", r)
	}
	if r := i.Regions[1]; r.Size != 0 {
		t.Errorf("region 1 = %+v, want none", r)
	}
}
