package discover

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/driver/vfio"
)

// A sysfs is a fake tree.
type sysfs struct {
	testing.TB
	root string
}

// A dev is a device of the tree; its zero value is one of ours that vfio-pci has, alone in its group.
type dev struct {
	address string
	id      string // vendor and device; empty: 1234 5c1c
	class   string // empty: 0x020000
	driver  string // empty: vfio-pci; "-": none
	group   string // empty: 7; "-": none
	config  string // empty: a normal header
	power   string
	numa    string
	without []string // attributes to leave out
	extra   map[string]string
	noIOMMU bool
	holder  string // command line of a process that has its group's node open
}

// config looks into the tree and nowhere else.
func (s *sysfs) config() Config {
	return Config{Root: s.root, Dev: filepath.Join(s.root, "dev"), Proc: filepath.Join(s.root, "proc"), Run: filepath.Join(s.root, "run")}
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func (s *sysfs) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *sysfs) add(d dev) {
	s.Helper()
	dir := filepath.Join(s.root, "bus/pci/devices", d.address)
	s.must(os.MkdirAll(dir, 0o755))
	id := strings.Fields(or(d.id, "1234 5c1c"))
	files := map[string]string{
		"vendor": "0x" + id[0] + "\n", "device": "0x" + id[1] + "\n", "class": or(d.class, "0x020000") + "\n", "irq": "11\n",
		"resource":    "0x00000000e0000000 0x00000000e00fffff 0x0000000000040200\n0x0000000000000000 0x0000000000000000 0x0000000000000000",
		"config":      or(d.config, "\x34\x12\x1c\x5c\x06\x00\x10\x00\x00\x00\x00\x02\x00\x00\x00\x00"),
		"power_state": or(d.power, "D0") + "\n", "numa_node": or(d.numa, "1") + "\n",
	}
	for _, name := range d.without {
		delete(files, name)
	}
	for name, content := range d.extra {
		files[name] = content + "\n"
	}
	for name, content := range files {
		s.must(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	if driver := or(d.driver, "vfio-pci"); driver != "-" {
		to := filepath.Join(s.root, "bus/pci/drivers", driver)
		s.must(os.MkdirAll(to, 0o755))
		s.must(os.Symlink(to, filepath.Join(dir, "driver")))
	}
	if group := or(d.group, "7"); group != "-" {
		to := filepath.Join(s.root, "kernel/iommu_groups", group)
		s.must(os.MkdirAll(filepath.Join(to, "devices"), 0o755))
		s.must(os.Symlink(dir, filepath.Join(to, "devices", d.address)))
		s.must(os.Symlink(to, filepath.Join(dir, "iommu_group")))
		if d.noIOMMU {
			s.must(os.WriteFile(filepath.Join(to, "name"), []byte("vfio-noiommu\n"), 0o644))
		}
		if d.holder != "" {
			s.file("proc/4711/cmdline", d.holder)
			s.must(os.MkdirAll(filepath.Join(s.root, "proc/4711/fd"), 0o755))
			s.must(os.Symlink(filepath.Join(s.root, "dev/vfio", group), filepath.Join(s.root, "proc/4711/fd/5")))
		}
	}
}

const card = "0000:65:00.0"

// file makes or replaces a file of the tree.
func (s *sysfs) file(name, content string) {
	s.Helper()
	p := filepath.Join(s.root, name)
	s.must(os.MkdirAll(filepath.Dir(p), 0o755))
	s.must(os.WriteFile(p, []byte(content), 0o644))
}

func TestList(t *testing.T) {
	rows := []struct {
		name string
		devs []dev
		why  string // empty: usable
		next string
	}{
		{"usable", []dev{{}}, "", ""},
		{"no driver", []dev{{driver: "-"}}, "no driver has it",
			"modprobe vfio-pci && splicectl card bind 0000:65:00.0"},
		{"another driver", []dev{{driver: "xdma"}}, "driver xdma has it",
			"modprobe vfio-pci && splicectl card bind 0000:65:00.0"},
		{"no iommu", []dev{{group: "-"}}, "it has no IOMMU group: the IOMMU is off",
			"enable the IOMMU in the firmware and boot with intel_iommu=on or amd_iommu=on, then: splicectl card list"},
		{"dead", []dev{{config: strings.Repeat("\xff", 64)}}, "it does not answer: its configuration space reads all ones",
			"echo 1 > DEV/remove && echo 1 > ROOT/bus/pci/rescan"},
		{"bridge header", []dev{{config: strings.Repeat("\x01", 64)}}, "its header is that of a bridge, which cannot be given to a process", "lspci -vv -s 0000:65:00.0"},
		{"multifunction header", []dev{{config: strings.Repeat("\x80", 64)}}, "", ""},
		{"powered down", []dev{{power: "D3cold"}}, "it is powered down (D3cold)", "echo on > DEV/power/control"},
		{"virtual functions on", []dev{{extra: map[string]string{"sriov_numvfs": "2"}}}, "2 virtual functions of it are enabled", "echo 0 > DEV/sriov_numvfs"},
		{"asleep", []dev{{power: "D3hot"}}, "", ""},
		{"no iommu, made-up group", []dev{{noIOMMU: true}}, "it has no IOMMU (noiommu): it would give registers only, and taint the kernel", "turn the IOMMU on, then: splicectl card list"},
		{"in use", []dev{{holder: "splicectl\x00run\x00"}}, "process 4711 (splicectl run) has it", "use that process's socket, or end it: kill 4711"},
		{"another driver, module loaded", []dev{{driver: "xdma"}, {address: "0000:66:00.0", group: "8", id: "8086 1521"}}, "driver xdma has it", "splicectl card bind 0000:65:00.0"},
		{"sibling in use", []dev{{}, {address: "0000:65:00.1", id: "8086 1521", driver: "igb"}},
			"its IOMMU group 7 also holds 0000:65:00.1, which driver igb has", "echo 0000:65:00.1 > ROOT/bus/pci/devices/0000:65:00.1/driver/unbind"},
		{"sibling without driver", []dev{{}, {address: "0000:65:00.1", id: "8086 1521", driver: "-"}}, "", ""},
		{"sibling on vfio", []dev{{}, {address: "0000:65:00.1", id: "8086 1521"}}, "", ""},
		{"sibling bridge", []dev{{}, {address: "0000:64:00.0", id: "8086 1234", driver: "pcieport", class: "0x060400"}}, "", ""},
		{"no configuration space", []dev{{without: []string{"config"}}},
			"its configuration space cannot be read: open DEV/config: no such file or directory", "ls -l DEV/config"},
		{"short configuration space", []dev{{config: "\x34\x12"}}, "its configuration space cannot be read: unexpected EOF", "ls -l DEV/config"},
		{"broken entry", []dev{{without: []string{"resource"}}},
			"its sysfs entry cannot be read: open DEV/resource: no such file or directory", "ls -l DEV"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := &sysfs{t, t.TempDir()}
			row.devs[0].address = card
			for _, d := range row.devs {
				s.add(d)
			}
			cs, err := List(s.config())
			if err != nil || len(cs) != 1 {
				t.Fatalf("List = %+v, %v, want one card", cs, err)
			}
			dir := filepath.Join(s.root, "bus/pci/devices", card)
			expand := strings.NewReplacer("DEV", dir, "ROOT", s.root).Replace
			c := cs[0]
			if c.Address != card || c.Name() != "vfio:"+card || c.Usable != (row.why == "") || c.Why != expand(row.why) || c.Next != expand(row.next) {
				t.Errorf("List = %+v,\nwant why  %q\n     next %q", c, expand(row.why), expand(row.next))
			}
		})
	}
}

func TestListFacts(t *testing.T) {
	s := &sysfs{t, t.TempDir()}
	s.add(dev{address: "0000:b3:00.0", group: "9", numa: "-1"})
	s.add(dev{address: card, class: "0x120000"})
	for name, content := range map[string]string{"current_link_speed": "8.0 GT/s PCIe", "max_link_speed": "16.0 GT/s PCIe", "current_link_width": "8",
		"max_link_width": "16", "sriov_totalvfs": "4", "sriov_numvfs": "0", "reset_method": "flr bus", "vfio-dev/vfio2/dev": "511:2"} {
		s.file(filepath.Join("bus/pci/devices", card, name), content+"\n")
	}
	s.add(dev{address: "0000:65:00.1", id: "8086 1521"})
	s.add(dev{address: "0000:01:00.0", id: "1234 1111", group: "1"}) // not ours
	// A device that went away while the bus was listed: its link leads nowhere.
	s.must(os.Symlink("nowhere", filepath.Join(s.root, "bus/pci/devices/0000:66:00.0")))
	cs, err := List(s.config())
	if err != nil {
		t.Fatal(err)
	}
	bars := []BARInfo{{Index: 0, Bytes: 1 << 20}}
	want := []Candidate{
		{Address: card, VendorID: 0x1234, DeviceID: 0x5c1c, Class: 0x120000, Driver: "vfio-pci", Group: 7, Siblings: []string{"0000:65:00.1"}, NUMANode: 1, Usable: true,
			Members:   []vfio.Member{{Address: card, Driver: "vfio-pci", Class: 0x120000}, {Address: "0000:65:00.1", Driver: "vfio-pci", Class: 0x020000}},
			GroupNode: filepath.Join(s.root, "dev/vfio/7"), DeviceNode: filepath.Join(s.root, "dev/vfio/devices/vfio2"), Power: "D0", BARs: bars, ConfigBytes: 16,
			Link: Link{"8.0 GT/s PCIe", "16.0 GT/s PCIe", 8, 16}, VFs: VFs{0, 4, ""}, Resets: "flr bus"},
		{Address: "0000:b3:00.0", VendorID: 0x1234, DeviceID: 0x5c1c, Class: 0x020000, Driver: "vfio-pci", Group: 9, NUMANode: -1, Usable: true,
			Members:   []vfio.Member{{Address: "0000:b3:00.0", Driver: "vfio-pci", Class: 0x020000}},
			GroupNode: filepath.Join(s.root, "dev/vfio/9"), Power: "D0", BARs: bars, ConfigBytes: 16},
	}
	if d := cmp.Diff(want, cs); d != "" {
		t.Errorf("List (-want +got):\n%s", d)
	}
	cfg := s.config()
	cfg.VendorID, cfg.DeviceID = 0x8086, 0x1521
	cs, err = List(cfg)
	if err != nil || len(cs) != 1 || cs[0].Address != "0000:65:00.1" {
		t.Errorf("List of another id = %+v, %v", cs, err)
	}
}

// TestAuto has a row for each way the choice can go.
func TestAuto(t *testing.T) {
	rows := []struct {
		name string
		devs []dev
		want string // address; empty: none
		says []string
	}{
		{"no pci at all", nil, "", nil},
		{"none found", []dev{{address: "0000:01:00.0", id: "8086 1521"}}, "", nil},
		{"exactly one usable", []dev{{address: card}}, card, nil},
		{"one usable, one not", []dev{{address: card}, {address: "0000:b3:00.0", group: "9", driver: "-"}}, card, nil},
		{"one found, not usable", []dev{{address: card, driver: "-"}}, "", []string{"one was found, and it is not usable", "no driver has it; next: modprobe vfio-pci"}},
		{"found, none usable", []dev{{address: card, driver: "xdma"}, {address: "0000:b3:00.0", group: "-"}}, "",
			[]string{"2 were found, none is usable", card + ": driver xdma has it; next: ", "0000:b3:00.0: it has no IOMMU group"}},
		{"several usable", []dev{{address: card}, {address: "0000:b3:00.0", group: "9"}, {address: "0000:b4:00.0", group: "-"}}, "",
			[]string{"2 are usable", "--card vfio:0000:65:00.0", "--card vfio:0000:b3:00.0"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := &sysfs{t, t.TempDir()}
			for _, d := range row.devs {
				s.add(d)
			}
			c, err := Auto(s.config())
			got := ""
			if c != nil {
				got = c.Address
			}
			if got != row.want {
				t.Errorf("Auto = %q, want %q", got, row.want)
			}
			var choice *AutoError
			if errors.As(err, &choice) != (row.says != nil) {
				t.Fatalf("Auto: %v", err)
			}
			for _, says := range row.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("Auto: %v\nwant it to say %q", err, says)
				}
			}
			if row.name == "several usable" && strings.Contains(err.Error(), "0000:b4") {
				t.Errorf("Auto: %v\nnames a card that is not usable", err)
			}
		})
	}
}

func TestListRefused(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "bus/pci"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bus/pci/devices"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if cs, err := List(Config{Root: root}); err == nil {
		t.Errorf("List of a file = %v, want an error", cs)
	}
	if _, err := Auto(Config{Root: root}); err == nil {
		t.Error("Auto of a file: no error")
	}
}

// TestListHost lists this machine: whatever it has must not be an error.
func TestListHost(t *testing.T) {
	cs, err := List(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		t.Logf("%+v", c)
	}
}
