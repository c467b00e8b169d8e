package discover

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/vfio"
)

// A bus is a tree that answers writes as the kernel's PCI core does.
type bus struct {
	*sysfs
	matches map[string]string // driver that takes a device without override, by address
	log     []string
	failAt  int // number of the write that fails; 0: none
	failOn  string
	err     error
	after   bool // the write that fails has had its effect
	deaf    bool // drivers_probe succeeds and binds nothing, as where the IOMMU is off
}

func newBus(t testing.TB) *bus {
	b := &bus{sysfs: &sysfs{t, t.TempDir()}, matches: map[string]string{card: "dfl-pci", "0000:66:00.0": "dfl-pci"}}
	for _, d := range []string{"vfio-pci", "dfl-pci", "other"} {
		b.must(os.MkdirAll(filepath.Join(b.root, "bus/pci/drivers", d), 0o755))
	}
	b.add(dev{address: card, driver: "dfl-pci", extra: map[string]string{"driver_override": "(null)"}})
	b.add(dev{address: "0000:66:00.0", driver: "dfl-pci", group: "8", extra: map[string]string{"driver_override": "(null)"}})
	return b
}

func (b *bus) config() Config {
	c := b.sysfs.config()
	c.write = b.write
	return c
}

func (b *bus) driverOf(address string) string {
	return link(filepath.Join(b.root, "bus/pci/devices", address), "driver")
}

func (b *bus) override() string {
	return overrideOf(text(filepath.Join(b.root, "bus/pci/devices", card), "driver_override"))
}

// write is a write to an attribute: perhaps it fails, before or after its effect.
func (b *bus) write(path, value string) error {
	rel, err := filepath.Rel(b.root, path)
	b.must(err)
	b.log = append(b.log, rel+" "+strings.TrimSpace(value))
	fails := b.failAt == len(b.log) || b.failOn != "" && strings.HasSuffix(rel, b.failOn)
	if fails && !b.after {
		return &os.PathError{Op: "write", Path: path, Err: b.err}
	}
	if err := b.effect(rel, value); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	if fails {
		return &os.PathError{Op: "write", Path: path, Err: b.err}
	}
	return nil
}

func (b *bus) effect(rel, value string) error {
	devices := filepath.Join(b.root, "bus/pci/devices")
	parts := strings.Split(rel, "/")
	switch {
	case strings.HasSuffix(rel, "/driver_override"):
		if !strings.HasSuffix(value, "\n") {
			b.Errorf("override %q without a line's end", value)
		}
		if value == "\n" {
			value = "(null)\n"
		}
		b.file(rel, value)
		return nil
	case strings.HasSuffix(rel, "/driver/unbind"):
		if b.driverOf(value) == "" || parts[3] != value {
			return unix.ENODEV
		}
		return os.Remove(filepath.Join(devices, value, "driver"))
	case strings.HasSuffix(rel, "/bind"):
		return b.attach(value, parts[3])
	case rel == "bus/pci/drivers_probe":
		if b.driverOf(value) != "" || b.deaf {
			return nil
		}
		d := overrideOf(text(filepath.Join(devices, value), "driver_override"))
		if d == "" {
			d = b.matches[value]
		}
		_ = b.attach(value, d) // no driver wants it: no error
		return nil
	}
	b.Errorf("a write to %s", rel)
	return unix.EACCES
}

func (b *bus) attach(address, driver string) error {
	o := overrideOf(text(filepath.Join(b.root, "bus/pci/devices", address), "driver_override"))
	if b.driverOf(address) != "" || driver == "" || o != driver && (o != "" || b.matches[address] != driver) {
		return unix.ENODEV
	}
	to := filepath.Join(b.root, "bus/pci/drivers", driver)
	if _, err := os.Stat(to); err != nil {
		return unix.ENODEV
	}
	return os.Symlink(to, filepath.Join(b.root, "bus/pci/devices", address, "driver"))
}

// TestCaseD09 and fact 1: only the named function moves, there and back, and no override stays.
func TestCaseD09(t *testing.T) {
	b := newBus(t)
	ch, err := Bind(t.Context(), b.config(), "65:00.0", BindOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if b.driverOf(card) != "vfio-pci" || b.override() != "" || ch.From != "dfl-pci" || ch.To != "vfio-pci" {
		t.Errorf("after Bind: driver %q, override %q, %+v", b.driverOf(card), b.override(), ch)
	}
	dev := "bus/pci/devices/" + card
	want := []string{dev + "/driver_override vfio-pci", dev + "/driver/unbind " + card, "bus/pci/drivers_probe " + card, dev + "/driver_override "}
	if !slices.Equal(b.log, want) {
		t.Errorf("writes\n%q\nwant\n%q", b.log, want)
	}
	var e entry
	raw, err := os.ReadFile(ch.Journal)
	if err != nil || json.Unmarshal(raw, &e) != nil || e != (entry{card, "dfl-pci"}) {
		t.Errorf("journal %s, %v", raw, err)
	}
	if ch, err := Bind(t.Context(), b.config(), card, BindOptions{}); err != nil || len(ch.Writes) != 0 {
		t.Errorf("a second Bind = %+v, %v", ch, err)
	}
	b.log = nil
	ch, err = Release(t.Context(), b.config(), card, BindOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if b.driverOf(card) != "dfl-pci" || b.override() != "" || ch.To != "dfl-pci" {
		t.Errorf("after Release: driver %q, override %q, %+v", b.driverOf(card), b.override(), ch)
	}
	if _, err := os.Stat(ch.Journal); err == nil {
		t.Error("the journal stays after Release")
	}
	if ch, err := Release(t.Context(), b.config(), card, BindOptions{}); err != nil || len(ch.Writes) != 0 || ch.To != "dfl-pci" {
		t.Errorf("a second Release = %+v, %v", ch, err)
	}
	if b.driverOf("0000:66:00.0") != "dfl-pci" || slices.ContainsFunc(b.log, func(s string) bool { return strings.Contains(s, "66:00.0") }) {
		t.Error("the second card was touched")
	}
}

// ends checks what holds whatever happened: the card has one of its two drivers, and the other card its own.
func (b *bus) ends(what string, allowed ...string) {
	b.Helper()
	if d := b.driverOf(card); !slices.Contains(allowed, d) {
		b.Errorf("%s: the card ends with driver %q\nwrites %q", what, d, b.log)
	}
	if d := b.driverOf("0000:66:00.0"); d != "dfl-pci" {
		b.Errorf("%s: the second card ends with driver %q", what, d)
	}
}

// TestBindInject makes every write fail, with and without having had its effect, once and for ever.
func TestBindInject(t *testing.T) {
	verbs := []struct {
		name string
		run  func(ctx context.Context, cfg Config, address string, o BindOptions) (Change, error)
		from string
		to   string
	}{{"bind", Bind, "dfl-pci", "vfio-pci"}, {"release", Release, "vfio-pci", "dfl-pci"}}
	for _, v := range verbs {
		start := func() *bus {
			b := newBus(t)
			if v.name == "release" {
				if _, err := Bind(t.Context(), b.config(), card, BindOptions{}); err != nil {
					t.Fatal(err)
				}
				b.log = nil
			}
			return b
		}
		clean := start()
		if _, err := v.run(t.Context(), clean.config(), card, BindOptions{}); err != nil {
			t.Fatal(err)
		}
		for step := range clean.log {
			for _, errno := range []unix.Errno{unix.EBUSY, unix.EINVAL, unix.ENODEV, unix.EPERM, unix.EACCES, unix.EIO, unix.ENOMEM} {
				for _, after := range []bool{false, true} {
					b := start()
					b.failAt, b.err, b.after = step+1, errno, after
					_, err := v.run(t.Context(), b.config(), card, BindOptions{})
					what := v.name + " fails at " + clean.log[step] + " with " + errno.Error()
					b.ends(what, v.from, v.to)
					last := step == len(clean.log)-1 // clearing the override is tried again
					if (err == nil) != last {
						t.Errorf("%s: %v", what, err)
					}
					if err != nil {
						b.explained(what, err, errno)
						if b.driverOf(card) != v.from {
							t.Errorf("%s: not undone: driver %q", what, b.driverOf(card))
						}
					}
					if o := b.override(); o != "" {
						t.Errorf("%s: override %q stays", what, o)
					}
					// What is remembered fits what is: the driver to go back to, while vfio-pci has the card.
					_, statErr := os.Stat(filepath.Join(b.root, "run", card+".json"))
					if remembered := statErr == nil; remembered != (b.driverOf(card) == "vfio-pci") {
						t.Errorf("%s: driver %q, journal %v", what, b.driverOf(card), statErr)
					}
				}
			}
		}
		for _, on := range []string{"/driver_override", "/driver/unbind", "/drivers_probe", "/dfl-pci/bind", "/vfio-pci/bind"} {
			for _, after := range []bool{false, true} {
				b := start()
				b.failOn, b.err, b.after = on, unix.EIO, after
				_, err := v.run(t.Context(), b.config(), card, BindOptions{})
				b.ends(v.name+" with "+on+" always failing", v.from, v.to)
				if err != nil {
					b.explained(v.name+" with "+on, err, unix.EIO)
				}
			}
		}
	}
}

func (b *bus) explained(what string, err error, errno unix.Errno) {
	b.Helper()
	var e *BindError
	if !errors.As(err, &e) || !errors.Is(err, errno) {
		b.Errorf("%s: %v is no BindError of %v", what, err, errno)
		return
	}
	if e.Driver != b.driverOf(card) || e.Fix == "" {
		b.Errorf("%s: error %+v, the card has %q", what, e, b.driverOf(card))
	}
	for _, s := range []string{card, errno.Error(), "do: ", "it has "} {
		if !strings.Contains(err.Error(), s) {
			b.Errorf("%s: %v\ndoes not say %q", what, err, s)
		}
	}
}

// TestBindDeaf: the kernel accepts everything and binds nothing; the card gets its old driver back.
func TestBindDeaf(t *testing.T) {
	b := newBus(t)
	b.deaf = true
	_, err := Bind(t.Context(), b.config(), card, BindOptions{})
	if err == nil || !strings.Contains(err.Error(), "the kernel accepted every write, but no driver has it and not vfio-pci; it has dfl-pci now") {
		t.Errorf("Bind = %v", err)
	}
	if b.driverOf(card) != "dfl-pci" || b.override() != "" {
		t.Errorf("driver %q, override %q", b.driverOf(card), b.override())
	}
}

func TestBindCancelled(t *testing.T) {
	for n := range 4 {
		b := newBus(t)
		ctx, cancel := context.WithCancel(t.Context())
		cfg := b.config()
		cfg.write = func(path, value string) error {
			err := b.write(path, value)
			if len(b.log) == n+1 {
				cancel()
			}
			return err
		}
		_, err := Bind(ctx, cfg, card, BindOptions{})
		b.ends("cancelled", "dfl-pci", "vfio-pci")
		if n < 2 && (!errors.Is(err, context.Canceled) || b.driverOf(card) != "dfl-pci" || b.override() != "") {
			t.Errorf("cancelled after write %d: %v, driver %q, override %q", n, err, b.driverOf(card), b.override())
		}
		cancel()
	}
}

func TestBindDryRun(t *testing.T) {
	b := newBus(t)
	ch, err := Bind(t.Context(), b.config(), card, BindOptions{DryRun: true})
	if err != nil || len(b.log) != 0 || b.driverOf(card) != "dfl-pci" {
		t.Fatalf("dry run: %v, writes %q", err, b.log)
	}
	if _, err := os.Stat(ch.Journal); ch.Journal == "" || err == nil {
		t.Errorf("journal %q: %v", ch.Journal, err)
	}
	var said []string
	for _, w := range ch.Writes {
		said = append(said, strings.ReplaceAll(w.String(), b.root, ""))
	}
	dev := "/bus/pci/devices/" + card
	want := []string{"echo vfio-pci > " + dev + "/driver_override", "echo " + card + " > " + dev + "/driver/unbind", "echo " + card + " > /bus/pci/drivers_probe", "echo > " + dev + "/driver_override"}
	if !slices.Equal(said, want) {
		t.Errorf("%q\nwant %q", said, want)
	}
	// What it says it would do is what it does.
	planned := len(ch.Writes)
	ch, err = Bind(t.Context(), b.config(), card, BindOptions{})
	if err != nil || len(ch.Writes) != planned {
		t.Errorf("Bind = %+v, %v", ch, err)
	}
	b.log = nil
	if ch, err := Release(t.Context(), b.config(), card, BindOptions{DryRun: true}); err != nil || len(b.log) != 0 || len(ch.Writes) != 4 || ch.To != "dfl-pci" {
		t.Errorf("Release = %+v, %v", ch, err)
	}
}

// TestBindRefused has a row for each reason, all before the first write.
func TestBindRefused(t *testing.T) {
	dev := filepath.Join("bus/pci/devices", card)
	rows := []struct {
		name    string
		change  func(b *bus)
		address string
		release bool
		o       BindOptions
		says    string
		is      error
	}{
		{"not an address", nil, "65:00", false, BindOptions{}, "parse pci address", nil},
		{"a path", nil, "../../x:00.0", false, BindOptions{}, "parse pci address", nil},
		{"not there", nil, "0000:77:00.0", false, BindOptions{}, "no such device", os.ErrNotExist},
		{"not ours", func(b *bus) { b.file(dev+"/vendor", "0x8086\n") }, card, false, BindOptions{}, "it is 8086:5c1c, no card of 1234:5c1c", ErrRefused},
		{"bridge", func(b *bus) { b.file(dev+"/config", strings.Repeat("\x01", 64)) }, card, false, BindOptions{}, "bridge", ErrRefused},
		{"virtual functions", func(b *bus) { b.file(dev+"/sriov_numvfs", "3\n") }, card, false, BindOptions{}, "3 virtual functions", device.ErrBusy},
		{"no iommu", func(b *bus) { b.must(os.Remove(filepath.Join(b.root, dev, "iommu_group"))) }, card, false, BindOptions{}, "intel_iommu=on", vfio.ErrNoGroup},
		{"module not loaded", func(b *bus) { b.must(os.Remove(filepath.Join(b.root, "bus/pci/drivers/vfio-pci"))) }, card, false, BindOptions{}, "do: modprobe vfio-pci", os.ErrNotExist},
		{"no configuration space", func(b *bus) { b.must(os.Remove(filepath.Join(b.root, dev, "config"))) }, card, false, BindOptions{}, "configuration space cannot be read", os.ErrNotExist},
		{"no room for a journal", func(b *bus) { b.file("run", "") }, card, false, BindOptions{}, "journal the old driver", unix.ENOTDIR},
		{"release, unknown", func(b *bus) { bound(b, false) }, card, true, BindOptions{}, "nothing tells which driver it had", ErrRefused},
		{"release to a path", func(b *bus) { bound(b, true) }, card, true, BindOptions{Driver: "../x"}, `driver "../x"`, ErrRefused},
		{"release to vfio", func(b *bus) { bound(b, true) }, card, true, BindOptions{Driver: "vfio-pci"}, "name another driver", ErrRefused},
		{"release, not loaded", func(b *bus) { bound(b, true) }, card, true, BindOptions{Driver: "xdma"}, "do: modprobe xdma", os.ErrNotExist},
		{"release, another has it", nil, card, true, BindOptions{Driver: "other"}, "dfl-pci has it, not vfio-pci", ErrRefused},
		{"release, in use", func(b *bus) {
			bound(b, true)
			b.file("proc/99/comm", "qemu\n")
			b.must(os.MkdirAll(filepath.Join(b.root, "proc/99/fd"), 0o755))
			b.must(os.Symlink(filepath.Join(b.root, "dev/vfio/7"), filepath.Join(b.root, "proc/99/fd/3")))
		}, card, true, BindOptions{}, "process 99 (qemu) has it", device.ErrBusy},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := newBus(t)
			if row.change != nil {
				row.change(b)
			}
			before := b.driverOf(card)
			b.log = nil
			run := Bind
			if row.release {
				run = Release
			}
			_, err := run(t.Context(), b.config(), row.address, row.o)
			if err == nil || !strings.Contains(err.Error(), row.says) || row.is != nil && !errors.Is(err, row.is) {
				t.Errorf("error %v, want one that says %q and is %v", err, row.says, row.is)
			}
			if len(b.log) != 0 || b.driverOf(card) != before {
				t.Errorf("writes %q, driver %q", b.log, b.driverOf(card))
			}
		})
	}
}

// bound gives the card to vfio-pci, with or without a journal.
func bound(b *bus, journal bool) {
	ch, err := Bind(context.Background(), b.config(), card, BindOptions{})
	b.must(err)
	if !journal {
		b.must(os.Remove(ch.Journal))
	}
}

// TestReleaseTo: a card without a driver before has none after; one can be named; a journal that makes no sense is none.
func TestReleaseTo(t *testing.T) {
	rows := []struct {
		name   string
		change func(b *bus)
		o      BindOptions
		want   string
		says   string
	}{
		{"none before", func(b *bus) {
			b.must(os.Remove(filepath.Join(b.root, "bus/pci/devices", card, "driver")))
			bound(b, true)
		}, BindOptions{}, "", ""},
		{"named", func(b *bus) { bound(b, false) }, BindOptions{Driver: "other"}, "other", ""},
		{"named over the journal", func(b *bus) { bound(b, true) }, BindOptions{Driver: "other"}, "other", ""},
		{"none named", func(b *bus) { bound(b, true) }, BindOptions{Driver: NoDriver}, "", ""},
		{"journal of another", func(b *bus) { bound(b, true); b.file("run/"+card+".json", `{"address":"x","driver":"dfl-pci"}`) }, BindOptions{}, "vfio-pci", "nothing tells"},
		{"broken journal", func(b *bus) { bound(b, true); b.file("run/"+card+".json", `{`) }, BindOptions{}, "vfio-pci", "nothing tells"},
		{"huge journal", func(b *bus) { bound(b, true); b.file("run/"+card+".json", strings.Repeat(" ", 5000)) }, BindOptions{}, "vfio-pci", "nothing tells"},
		{"journal names a path", func(b *bus) { bound(b, true); b.file("run/"+card+".json", `{"address":"`+card+`","driver":"../x"}`) }, BindOptions{}, "vfio-pci", "refused"},
		{"journal names a folder", func(b *bus) { bound(b, true); b.file("run/"+card+".json", `{"address":"`+card+`","driver":".."}`) }, BindOptions{}, "vfio-pci", "refused"},
		{"this folder named", func(b *bus) { bound(b, false) }, BindOptions{Driver: "."}, "vfio-pci", "refused"},
		{"folder above named", func(b *bus) { bound(b, false) }, BindOptions{Driver: ".."}, "vfio-pci", "refused"},
		{"two lines named", func(b *bus) { bound(b, false) }, BindOptions{Driver: "other\nx"}, "vfio-pci", "refused"},
		{"NUL named", func(b *bus) { bound(b, false) }, BindOptions{Driver: "other\x00"}, "vfio-pci", "refused"},
		{"journal is a pipe", func(b *bus) {
			bound(b, false)
			b.must(unix.Mkfifo(filepath.Join(b.root, "run", card+".json"), 0o600))
		}, BindOptions{}, "vfio-pci", "no regular file; remove it"},
		{"journal is a link", func(b *bus) {
			bound(b, false)
			b.file("elsewhere", `{"address":"`+card+`","driver":"dfl-pci"}`)
			b.must(os.Symlink(filepath.Join(b.root, "elsewhere"), filepath.Join(b.root, "run", card+".json")))
		}, BindOptions{}, "vfio-pci", "no regular file; remove it"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := newBus(t)
			row.change(b)
			_, err := Release(t.Context(), b.config(), card, row.o)
			if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("Release = %v, want %q", err, row.says)
			}
			if d := b.driverOf(card); d != row.want || b.override() != "" {
				t.Errorf("driver %q, override %q, want %q", d, b.override(), row.want)
			}
		})
	}
}

// TestBindKeepsOverride: an override that was there before comes back when Bind is undone.
func TestBindKeepsOverride(t *testing.T) {
	b := newBus(t)
	b.file(filepath.Join("bus/pci/devices", card, "driver_override"), "dfl-pci\n")
	b.deaf = true
	if _, err := Bind(t.Context(), b.config(), card, BindOptions{}); err == nil {
		t.Fatal("no error")
	}
	if b.override() != "dfl-pci" || b.driverOf(card) != "dfl-pci" {
		t.Errorf("override %q, driver %q", b.override(), b.driverOf(card))
	}
}

func TestWriteAttribute(t *testing.T) {
	p := filepath.Join(t.TempDir(), "x")
	if err := writeAttribute(p, "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("write to nothing = %v", err)
	}
	if err := os.WriteFile(p, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeAttribute(p, "1"); err != nil || text(filepath.Dir(p), "x") != "1" {
		t.Errorf("write = %v", err)
	}
}
