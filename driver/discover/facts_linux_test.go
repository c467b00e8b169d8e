package discover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/vfio"
)

// TestCaseD01: the device in the way is named with its driver, the bridge beside it is not.
func TestCaseD01(t *testing.T) {
	s := &sysfs{t, t.TempDir()}
	s.add(dev{address: "0000:05:00.0", group: "14"})
	s.add(dev{address: "0000:05:00.1", group: "14", id: "8086 a348", driver: "snd_hda_intel", class: "0x040300"})
	s.add(dev{address: "0000:04:00.0", group: "14", id: "8086 1901", driver: "pcieport", class: "0x060400"})
	cs, err := List(s.config())
	if err != nil || len(cs) != 1 {
		t.Fatalf("List = %+v, %v", cs, err)
	}
	c := cs[0]
	if c.Usable || c.Why != "its IOMMU group 14 also holds 0000:05:00.1, which driver snd_hda_intel has" || !strings.HasSuffix(c.Next, "0000:05:00.1/driver/unbind") {
		t.Errorf("List = %+v", c)
	}
	for _, k := range Doctor(s.config()) {
		if strings.HasSuffix(k.Name, "group") && k.Status != NA {
			if k.Status != Fail || !strings.Contains(k.Why, "0000:05:00.1 has driver snd_hda_intel") || k.Number != "group 14, 3 devices" {
				t.Errorf("Doctor: %+v", k)
			}
		}
		if strings.Contains(k.Why+k.Fix, "04:00.0") || strings.Contains(k.Why+k.Fix, "pcieport") {
			t.Errorf("Doctor blames the bridge: %+v", k)
		}
	}
}

// space is a configuration space of n bytes with a standard list of two entries and an extended one of one.
func space(n int) string {
	b := make([]byte, 4096)
	copy(b, []byte{0x34, 0x12, 0x1c, 0x5c, 6, 0, 0x10, 0})
	b[0x34] = 0x40
	copy(b[0x40:], []byte{0x11, 0x60, 3, 0})
	copy(b[0x60:], []byte{0x10, 0})
	if n > 256 {
		binary.LittleEndian.PutUint32(b[0x100:], 3|1<<16)
	}
	return string(b[:n])
}

// TestCaseD19: as much of configuration space as there is, or as this user is shown, is read and no more.
func TestCaseD19(t *testing.T) {
	rows := []struct {
		bytes int
		caps  string
		note  string
	}{
		{64, "", "capabilities need root"},
		{256, "MSI-X, PCI Express", ""},
		{4096, "MSI-X, PCI Express, serial number", ""},
	}
	for _, row := range rows {
		s := &sysfs{t, t.TempDir()}
		s.add(dev{address: card, config: space(row.bytes)})
		cs, err := List(s.config())
		if err != nil || len(cs) != 1 {
			t.Fatalf("%d bytes: List = %+v, %v", row.bytes, cs, err)
		}
		c := cs[0]
		var names []string
		for _, x := range c.Capabilities {
			names = append(names, x.String())
		}
		if got := strings.Join(names, ", "); got != row.caps || c.Note != row.note || c.ConfigBytes != row.bytes {
			t.Errorf("%d bytes: %q, note %q, %d bytes read; want %q, %q", row.bytes, got, c.Note, c.ConfigBytes, row.caps, row.note)
		}
		if !c.Usable || c.VendorID != 0x1234 || c.DeviceID != 0x5c1c || len(c.BARs) != 1 {
			t.Errorf("%d bytes: ids and BARs are not shown: %+v", row.bytes, c)
		}
	}
	s := &sysfs{t, t.TempDir()}
	looped := []byte(space(256))
	looped[0x61] = 0x40
	s.add(dev{address: card, config: string(looped)})
	s.add(dev{address: "0000:66:00.0", group: "8", config: space(256)[:128]})
	cs, err := List(s.config())
	if err != nil || len(cs) != 2 || cs[0].Note != "its capability list has a loop" || cs[1].Note != "" || len(cs[1].Capabilities) != 2 {
		t.Errorf("List = %+v, %v", cs, err)
	}
}

// stubborn is the file of a BAR as sysfs behaves: memory refuses read and write, ports refuse mmap.
type stubborn struct {
	ports  bool
	memory []byte
	closed *int
	refuse error
}

func (f stubborn) ReadAt(p []byte, off int64) (int, error) {
	if !f.ports || f.refuse != nil {
		return 0, errors.Join(unix.EIO, f.refuse)
	}
	return copy(p, f.memory[off:]), nil
}

func (f stubborn) WriteAt(p []byte, off int64) (int, error) {
	if !f.ports || f.refuse != nil {
		return 0, errors.Join(unix.EIO, f.refuse)
	}
	return copy(f.memory[off:], p), nil
}

func (f stubborn) mmap(n int) ([]byte, error) {
	if f.ports || f.refuse != nil {
		return nil, errors.Join(unix.EINVAL, f.refuse)
	}
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
}

func (f stubborn) Close() error { *f.closed++; return nil }

// TestCaseD21: memory is mapped and never read, ports are read and never mapped; a refusal says which, and the situation.
func TestCaseD21(t *testing.T) {
	s := &sysfs{t, t.TempDir()}
	s.add(dev{address: card, driver: "xdma", power: "D3hot", extra: map[string]string{"enable": "0"}})
	s.file(filepath.Join("bus/pci/devices", card, "resource"), strings.Join([]string{
		"0x00000000e0000000 0x00000000e0000fff 0x0000000000040200", "0x0 0x0 0x0", "0x000000000000e000 0x000000000000e01f 0x0000000000040101", "0x1 0x2", "0x1 0xx 0x1"}, "\n"))
	closed := 0
	var refuse error
	cfg := s.config()
	cfg.resource = func(path string) (barFile, error) {
		return stubborn{strings.HasSuffix(path, "resource2"), make([]byte, 32), &closed, refuse}, nil
	}
	for _, row := range []struct {
		bar   int
		io    bool
		bytes uint64
	}{{0, false, 4096}, {2, true, 32}} {
		b, err := OpenBAR(cfg, card, row.bar)
		if err != nil {
			t.Fatal(err)
		}
		if b.IO != row.io || b.Bytes() != row.bytes {
			t.Errorf("BAR%d: ports %v, %d bytes", row.bar, b.IO, b.Bytes())
		}
		if err := b.Store32(28, 0x12345678); err != nil {
			t.Errorf("BAR%d: store: %v", row.bar, err)
		}
		if v, err := b.Load32(28); err != nil || v != 0x12345678 {
			t.Errorf("BAR%d: load = %#x, %v", row.bar, v, err)
		}
		for _, off := range []uint64{row.bytes, 2, ^uint64(3)} {
			if _, err := b.Load32(off); !errors.Is(err, device.ErrRange) {
				t.Errorf("BAR%d: load at %#x: %v", row.bar, off, err)
			}
		}
		for range 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := b.Store32(0, 1); !errors.Is(err, device.ErrClosed) {
			t.Errorf("BAR%d: store after Close: %v", row.bar, err)
		}
	}
	refuse = unix.EPERM
	for bar, kind := range map[int]string{0: "map BAR0 of " + card + " (memory, which is mapped", 2: "load from BAR2 of " + card + " (ports, which are read and written"} {
		b, err := OpenBAR(cfg, card, bar)
		if err == nil {
			_, err = b.Load32(0)
			b.Close()
		}
		for _, says := range []string{kind, "driver xdma has the device", "its power state is D3hot", "its memory space is off"} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("BAR%d: %v\ndoes not say %q", bar, err, says)
			}
		}
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("BAR%d: %v", bar, err)
		}
	}
	if closed != 4 {
		t.Errorf("%d of 4 files were closed", closed)
	}
	for _, bar := range []int{-1, 1, 3, 4, 5, 6} {
		if b, err := OpenBAR(cfg, card, bar); err == nil {
			t.Errorf("OpenBAR(%d) = %+v", bar, b)
		}
	}
	if _, err := OpenBAR(cfg, "0000:77:00.0", 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("OpenBAR of no device = %v", err)
	}
	if _, err := OpenBAR(cfg, "x", 0); err == nil {
		t.Error("OpenBAR of no address: no error")
	}
	// The real file, as far as a plain one behaves like it.
	p := filepath.Join("bus/pci/devices", card, "resource0")
	s.file(p, string(make([]byte, 4096)))
	b, err := OpenBAR(s.config(), card, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Store32(0, 7); err != nil {
		t.Error(err)
	}
	s.must(os.Truncate(filepath.Join(s.root, p), 0)) // the device goes away
	if _, err := b.Load32(0); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("load of what is gone = %v", err)
	}
	if err := b.Store32(0, 1); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("store to what is gone = %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestDoctor has a row for each line that can be red, and what it says.
func TestDoctor(t *testing.T) {
	good := func(s *sysfs) Config {
		s.add(dev{address: card, config: space(256)})
		for name, content := range map[string]string{
			"module/vfio/parameters/enable_unsafe_noiommu_mode": "N", "module/vfio_pci/x": "", "module/vfio_iommu_type1/parameters/allow_unsafe_interrupts": "N",
			"module/vfio_iommu_type1/parameters/dma_entry_limit": "65535", "kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "64",
			"kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "64", "dev/vfio/7": "", "dev/iommu": "",
			"bus/pci/devices/" + card + "/vfio-dev/vfio0/dev": "", "dev/vfio/devices/vfio0": "",
			"bus/pci/devices/" + card + "/current_link_speed": "8.0 GT/s PCIe", "bus/pci/devices/" + card + "/current_link_width": "4",
			"bus/pci/devices/" + card + "/max_link_speed": "8.0 GT/s PCIe", "bus/pci/devices/" + card + "/max_link_width": "8",
		} {
			s.file(name, content+"\n")
		}
		cfg := s.config()
		cfg.memlock = func(string) (vfio.Locked, error) { return vfio.Locked{Limit: 1 << 30}, nil }
		return cfg
	}
	byName := func(cs []Check, name string) Check {
		for _, c := range cs {
			if c.Name == name {
				return c
			}
		}
		return Check{}
	}
	s := &sysfs{t, t.TempDir()}
	checks := Doctor(good(s))
	if len(checks) != 18 {
		t.Errorf("%d checks", len(checks))
	}
	for _, c := range checks {
		if c.Status != OK || c.Number == "" || c.Why != "" || c.Fix != "" {
			t.Errorf("all is well: %+v", c)
		}
	}
	if c := byName(checks, card+" link"); c.Number != "8.0 GT/s PCIe x4 (can do 8.0 GT/s PCIe x8)" {
		t.Errorf("link: %+v", c)
	}
	rows := []struct {
		change func(s *sysfs, c *Config)
		want   Check
	}{
		{func(s *sysfs, _ *Config) { s.must(os.RemoveAll(filepath.Join(s.root, "kernel/iommu_groups"))) },
			Check{"iommu", Fail, "0 groups", "the IOMMU is off, or there is none", "intel_iommu=on"}},
		{func(s *sysfs, _ *Config) { s.file("module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n") },
			Check{"noiommu mode", Fail, "Y", "would reach all memory", "echo N > "}},
		{func(s *sysfs, _ *Config) { s.must(os.RemoveAll(filepath.Join(s.root, "module/vfio/parameters"))) },
			Check{"noiommu mode", NA, "", "no such mode", ""}},
		{func(s *sysfs, _ *Config) { s.file("module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y\n") },
			Check{"interrupt remapping", Fail, "allow_unsafe_interrupts=Y", "forge interrupts", "echo N > "}},
		{func(s *sysfs, _ *Config) { s.must(os.RemoveAll(filepath.Join(s.root, "module/vfio"))) },
			Check{"module vfio", Fail, "not loaded", "cannot be opened without", "modprobe vfio"}},
		{func(s *sysfs, _ *Config) {
			s.must(os.RemoveAll(filepath.Join(s.root, "module/vfio_pci")))
			s.must(os.RemoveAll(filepath.Join(s.root, "bus/pci/drivers/vfio-pci")))
		}, Check{"module vfio_pci", Fail, "not loaded", "cannot be opened without", "modprobe vfio-pci"}},
		{func(s *sysfs, _ *Config) { s.must(os.RemoveAll(filepath.Join(s.root, "module/vfio_iommu_type1"))) },
			Check{"module vfio_iommu_type1", NA, "not loaded", "opened with iommufd", ""}},
		{func(s *sysfs, _ *Config) {
			s.must(os.RemoveAll(filepath.Join(s.root, "module/vfio_iommu_type1")))
			s.must(os.Remove(filepath.Join(s.root, "dev/iommu")))
		}, Check{"module vfio_iommu_type1", Fail, "not loaded", "containers need it", "modprobe vfio_iommu_type1"}},
		{func(s *sysfs, _ *Config) { s.must(os.Remove(filepath.Join(s.root, "dev/iommu"))) },
			Check{"iommufd", NA, "not there", "this kernel is without it", ""}},
		{func(s *sysfs, _ *Config) { s.file("module/vfio_iommu_type1/parameters/dma_entry_limit", "4\n") },
			Check{"dma mappings", Fail, "need 16, have 4", "fewer than the rings take", "echo 65535 > "}},
		{func(_ *sysfs, c *Config) {
			c.memlock = func(string) (vfio.Locked, error) { return vfio.Locked{Limit: 8 << 20, Used: 4096}, nil }
		},
			Check{"locked memory", Fail, "need 83886080 bytes, limit 8388608, 4096 in use", "RLIMIT_MEMLOCK", "ulimit -l 81924, or LimitMEMLOCK=83890176 in the unit"}},
		{func(_ *sysfs, c *Config) {
			c.memlock = func(string) (vfio.Locked, error) { return vfio.Locked{Unlimited: true}, nil }
		},
			Check{"locked memory", OK, "no limit for this process", "", ""}},
		{func(_ *sysfs, c *Config) {
			c.memlock = func(string) (vfio.Locked, error) { return vfio.Locked{Limit: ^uint64(0)}, nil }
		},
			Check{"locked memory", OK, "no limit", "", ""}},
		{func(_ *sysfs, c *Config) {
			c.memlock = func(string) (vfio.Locked, error) { return vfio.Locked{}, io.EOF }
		},
			Check{"locked memory", NA, "", "EOF", ""}},
		{func(s *sysfs, _ *Config) { s.file("kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "24\n") },
			Check{"huge pages", NA, "24 free of 2 MiB, 40 would hold all", "not needed", "echo 80 > "}},
		{func(s *sysfs, _ *Config) { s.must(os.RemoveAll(filepath.Join(s.root, "kernel/mm"))) },
			Check{"huge pages", NA, "", "has none of 2 MiB", ""}},
		{func(s *sysfs, _ *Config) { s.must(os.RemoveAll(filepath.Join(s.root, "bus/pci/devices", card))) },
			Check{"cards", NA, "0 cards", "no device of this machine is a 1234:5c1c", ""}},
		{func(_ *sysfs, c *Config) {
			c.writable = func(path string) error { return &os.PathError{Op: "open", Path: path, Err: unix.EACCES} }
		}, Check{card + " group node", Fail, "dev/vfio/7", "permission denied", "60-splicenic.rules"}},
		{func(_ *sysfs, c *Config) {
			c.writable = func(path string) error { return &os.PathError{Op: "open", Path: path, Err: unix.EACCES} }
		}, Check{card + " card", Fail, "not usable", "this user may not open its node", "splicectl card doctor"}},
		{func(s *sysfs, _ *Config) { s.must(os.Remove(filepath.Join(s.root, "dev/vfio/7"))) },
			Check{card + " group node", NA, "dev/vfio/7", "shows none", ""}},
		{func(s *sysfs, _ *Config) {
			s.must(os.RemoveAll(filepath.Join(s.root, "bus/pci/devices", card, "vfio-dev")))
		},
			Check{card + " device node", NA, "", "this kernel makes none", ""}},
		{func(s *sysfs, _ *Config) { s.must(os.Remove(filepath.Join(s.root, "bus/pci/devices", card, "driver"))) },
			Check{card + " group node", NA, "", "vfio-pci does not have the card", ""}},
		{func(s *sysfs, _ *Config) {
			s.must(os.Remove(filepath.Join(s.root, "bus/pci/devices", card, "iommu_group")))
		},
			Check{card + " group", NA, "", "the card is in none", ""}},
		{func(s *sysfs, _ *Config) { s.file("bus/pci/devices/"+card+"/power_state", "D3cold\n") },
			Check{card + " power", Fail, "D3cold", "powered down", "echo on > "}},
		{func(s *sysfs, _ *Config) {
			s.must(os.Remove(filepath.Join(s.root, "bus/pci/devices", card, "power_state")))
		},
			Check{card + " power", NA, "", "does not tell", ""}},
		{func(s *sysfs, _ *Config) { s.file("bus/pci/devices/"+card+"/current_link_width", "0\n") },
			Check{card + " link", NA, "", "no PCI Express link", ""}},
		{func(s *sysfs, _ *Config) { s.file("bus/pci/devices/"+card+"/numa_node", "-1\n") },
			Check{card + " numa node", NA, "", "one node", ""}},
		{func(s *sysfs, _ *Config) { s.file("bus/pci/devices/"+card+"/config", space(64)) },
			Check{card + " capabilities", NA, "0 in 64 bytes", "capabilities need root", ""}},
	}
	for _, row := range rows {
		t.Run(row.want.Name+" "+row.want.Status.String(), func(t *testing.T) {
			s := &sysfs{t, t.TempDir()}
			cfg := good(s)
			row.change(s, &cfg)
			got := byName(Doctor(cfg), row.want.Name)
			if got.Status != row.want.Status || !strings.Contains(got.Number, row.want.Number) || !strings.Contains(got.Why, row.want.Why) || !strings.Contains(got.Fix, row.want.Fix) {
				t.Errorf("got  %+v\nwant %+v", got, row.want)
			}
			if (got.Status == OK) != (got.Why == "") || got.Status == Fail && got.Fix == "" {
				t.Errorf("%+v: a line that is not ok says why, and a red one what to do", got)
			}
		})
	}
	for _, c := range Doctor(Config{}) { // this machine: whatever it has is no panic
		t.Logf("%-28s %-4s %s %s %s", c.Name, c.Status, c.Number, c.Why, c.Fix)
	}
}

func TestUdevRule(t *testing.T) {
	got := UdevRule("splice", &Candidate{Address: card, Group: 14})
	want := `SUBSYSTEM=="vfio", KERNEL=="14", GROUP="splice", MODE="0660"
SUBSYSTEM=="vfio-dev", KERNELS=="0000:65:00.0", GROUP="splice", MODE="0660"
KERNEL=="iommu", SUBSYSTEM=="misc", GROUP="splice", MODE="0660"`
	if got != want {
		t.Errorf("UdevRule:\n%s\nwant\n%s", got, want)
	}
}

// FuzzConfigSpace: whatever a card's configuration space holds, looking at it ends and says something that makes sense.
func FuzzConfigSpace(f *testing.F) {
	f.Add([]byte(space(4096)))
	f.Add([]byte(space(64)))
	f.Add(bytes.Repeat([]byte{0xff}, 256))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < configMin || len(b) > configBytes {
			return
		}
		c := Candidate{Address: card, Driver: vfioDriver, Group: 7}
		cfg := (&sysfs{t, "/nowhere"}).config().filled()
		c.capabilities(b)
		c.judge(&cfg, b, nil)
		if c.Usable == (c.Why != "") || (c.Why == "") != (c.Next == "") {
			t.Errorf("%+v", c)
		}
	})
}
