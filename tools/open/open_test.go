package open

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/discover"
	"splicenic/emu"
)

// addCard puts a card into a fake sysfs tree; driver is who has it, empty for nobody.
func addCard(t *testing.T, root, address, driver string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(root, "bus/pci/devices", address)
	must(os.MkdirAll(dir, 0o755))
	for name, text := range map[string]string{
		"vendor": "0x1234\n", "device": "0x5c1c\n", "class": "0x020000\n", "irq": "11\n", "power_state": "D0\n", "numa_node": "0\n",
		"resource": "0x00000000e0000000 0x00000000e00fffff 0x0000000000040200\n0x0000000000000000 0x0000000000000000 0x0000000000000000",
		"config":   "\x34\x12\x1c\x5c\x06\x00\x10\x00\x00\x00\x00\x02\x00\x00\x00\x00",
	} {
		must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	link := func(to, name string) {
		must(os.MkdirAll(to, 0o755))
		must(os.Symlink(to, filepath.Join(dir, name)))
	}
	if driver != "" {
		link(filepath.Join(root, "bus/pci/drivers", driver), "driver")
	}
	group := filepath.Join(root, "kernel/iommu_groups", address[5:7])
	link(group, "iommu_group")
	must(os.MkdirAll(filepath.Join(group, "devices"), 0o755))
	must(os.Symlink(dir, filepath.Join(group, "devices", address)))
}

// TestChoose covers every case of auto, and the names of cards.
func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cards map[string]string // address to driver
		card  string
		want  string   // empty: an error
		says  []string // in the note or the error
	}{
		{name: "auto, no card", card: "auto", want: "emu", says: []string{"no card found"}},
		{name: "empty is auto", want: "emu", says: []string{"no card found"}},
		{name: "auto, one usable", cards: map[string]string{"0000:65:00.0": "vfio-pci"}, card: "auto", want: "vfio:0000:65:00.0"},
		{name: "auto, one usable of two", cards: map[string]string{"0000:65:00.0": "vfio-pci", "0000:66:00.0": ""}, card: "auto", want: "vfio:0000:65:00.0"},
		{name: "auto, none usable", cards: map[string]string{"0000:65:00.0": ""}, card: "auto", says: []string{"0000:65:00.0", "no driver has it", "next: "}},
		{name: "auto, another driver", cards: map[string]string{"0000:65:00.0": "xdma"}, card: "auto", says: []string{"driver xdma has it", "next: "}},
		{name: "auto, several", cards: map[string]string{"0000:65:00.0": "vfio-pci", "0000:66:00.0": "vfio-pci"}, card: "auto", says: []string{"2 are usable", "--card vfio:0000:65:00.0", "--card vfio:0000:66:00.0"}},
		{name: "emulator beside a card", cards: map[string]string{"0000:65:00.0": "vfio-pci"}, card: "emu", want: "emu"},
		{name: "vfio by name", card: "vfio:0000:65:00.0", want: "vfio:0000:65:00.0"},
		{name: "vfio-user by name", card: "vfio-user:/run/splice/card.sock", want: "vfio-user:/run/splice/card.sock"},
		{name: "vfio by a short name", card: "vfio:65:00.0", want: "vfio:0000:65:00.0"},
		{name: "vfio with nonsense", card: "vfio:board", says: []string{"no such card"}},
		{name: "vfio without address", card: "vfio:", says: []string{"no such card"}},
		{name: "emulator with a name", card: "emu:1", says: []string{"no such card"}},
		{name: "auto with a name", card: "auto:1", says: []string{"no such card"}},
		{name: "nonsense", card: "board", says: []string{"no such card"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.MkdirAll(filepath.Join(root, "bus/pci/devices"), 0o755); err != nil {
				t.Fatal(err)
			}
			for address, driver := range tt.cards {
				addCard(t, root, address, driver)
			}
			got, err := Choose(tt.card, discover.Config{Root: root})
			text := got.Note
			if err != nil {
				text = err.Error()
				if e, ok := errors.AsType[*Error](err); !ok || e.Next == "" {
					t.Errorf("error %v names no next step", err)
				}
			}
			if (err != nil) != (tt.want == "") || err == nil && got.String() != tt.want {
				t.Fatalf("got %v, %v, want %q", got, err, tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(text, s) {
					t.Errorf("%q does not say %q", text, s)
				}
			}
		})
	}
}

// TestOpen opens cards of every kind, and says what keeps it from one.
func TestOpen(t *testing.T) {
	small := emu.Geometry{Pages: 64, Heads: 4}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	addCard(t, filepath.Join(root, "sys"), "0000:65:00.0", "vfio-pci")
	machine := Machine{Root: root}
	for _, tt := range []struct {
		name   string
		choice Choice
		cfg    Config
		want   error
	}{
		{"emulator", Choice{Body: Emulator}, Config{Geometry: small}, nil},
		{"one-armed", Choice{Body: Emulator}, Config{Geometry: small, Client: "mem"}, nil},
		{"vfio without its node", Choice{Body: VFIO, Name: "0000:65:00.0"}, Config{Machine: machine}, os.ErrNotExist},
		{"vfio over what there is not", Choice{Body: VFIO, Name: "0000:65:00.0"}, Config{VFIO: VFIOOptions{Transport: "usb"}}, ErrName},
		{"nobody serves", Choice{Body: VFIOUser, Name: filepath.Join(root, "no.sock")}, Config{}, os.ErrNotExist},
		{"no such interface", Choice{Body: Emulator}, Config{Client: "mem", Server: "pcap:/no/such/file,"}, os.ErrNotExist},
		{"no such body", Choice{Body: "board"}, Config{}, ErrName},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Open(t.Context(), tt.choice, tt.cfg)
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if tt.want != nil {
				if _, ok := errors.AsType[*Error](err); !ok {
					t.Errorf("%v is no *Error", err)
				}
				return
			}
			if i := c.Info(); i.Body != "emu" || i.Regions[device.Bar0].Size == 0 || c.Outlives() || !c.Emulated() || c.Bus() != nil {
				t.Errorf("info %+v", i)
			}
			c.Step(time.Millisecond)
			if err := c.Detach(); err != nil { // in this process it is a close
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Errorf("second close: %v", err)
			}
		})
	}
}
