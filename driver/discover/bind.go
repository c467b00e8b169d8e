package discover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"splicenic/driver/device"
	"splicenic/driver/vfio"
)

// BindOptions says how Bind and Release work. The zero value suits.
type BindOptions struct {
	// DryRun plans and writes nothing.
	DryRun bool
	// Any takes every PCI function. False: only cards of the Config's id.
	Any bool
	// Driver is whom Release gives the card to; NoDriver: nobody. Empty: whoever had it before Bind.
	Driver string
}

// NoDriver stands for no driver at all.
const NoDriver = "none"

// A Write is one write to an attribute of sysfs.
type Write struct{ Path, Value string }

// String returns the shell's words for it.
func (w Write) String() string {
	if v := strings.TrimSpace(w.Value); v != "" {
		return "echo " + v + " > " + w.Path
	}
	return "echo > " + w.Path
}

// A Change is what Bind or Release did, or would do.
type Change struct {
	Address  string
	From, To string // drivers; empty: none
	Writes   []Write
	Journal  string // file that remembers From; empty: none is touched
}

// A BindError says why a card's driver was not changed as asked, and what it has now.
type BindError struct {
	Address string
	Step    string // empty: refused before the first write
	Err     error
	Undo    error  // why it could not be undone whole; nil: it was, or there was nothing to undo
	Driver  string // what the card has now; empty: none
	Fix     string
}

func (e *BindError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "change driver of %s: ", e.Address)
	if e.Step != "" {
		fmt.Fprintf(&s, "%s: ", e.Step)
	}
	fmt.Fprintf(&s, "%v", e.Err)
	if e.Step != "" {
		driver := e.Driver
		if driver == "" {
			driver = "no driver"
		}
		fmt.Fprintf(&s, "; it has %s now", driver)
	}
	if e.Undo != nil {
		fmt.Fprintf(&s, "; undone only in part: %v", e.Undo)
	}
	fmt.Fprintf(&s, "; do: %s", e.Fix)
	return s.String()
}

// Unwrap returns the causes.
func (e *BindError) Unwrap() []error {
	if e.Undo != nil {
		return []error{e.Err, e.Undo}
	}
	return []error{e.Err}
}

// ErrRefused: the change was refused before anything was written.
var ErrRefused = errors.New("refused")

// Bind gives a card to vfio-pci. The driver it had is written to the journal before the first write, and is what Release
// gives it back to. A step that fails undoes those before it: whatever happens, the card ends with its old driver or with
// vfio-pci. ctx is looked at between two writes; a write itself takes as long as the old driver takes to let go.
func Bind(ctx context.Context, cfg Config, address string, o BindOptions) (Change, error) {
	t, err := begin(ctx, cfg, address, o)
	if err != nil {
		return Change{}, err
	}
	t.change.From, t.change.To = t.driver(), vfioDriver
	if t.change.From == vfioDriver {
		return t.change, nil
	}
	if err := t.bindable(o); err != nil {
		return Change{}, err
	}
	t.change.Journal = t.journalPath()
	if !o.DryRun {
		if err := t.writeJournal(entry{Address: t.address, Driver: t.change.From}); err != nil {
			return Change{}, t.refuse(err, "mkdir -p "+t.cfg.Run)
		}
	}
	err = t.move(vfioDriver)
	if err != nil && !o.DryRun && t.driver() != vfioDriver {
		_ = t.removeJournal() // nothing was changed: there is nothing to remember
	}
	return t.change, err
}

// Release gives a card back to the driver it had before Bind, or to the one that is asked for. It refuses while a process
// has the card open: the kernel would wait for that process. A step that fails undoes those before it.
func Release(ctx context.Context, cfg Config, address string, o BindOptions) (Change, error) {
	t, err := begin(ctx, cfg, address, o)
	if err != nil {
		return Change{}, err
	}
	t.change.From = t.driver()
	old, forgotten := t.readJournal()
	known := forgotten == nil
	to, err := t.releaseTo(o, old, forgotten)
	if err != nil {
		return Change{}, err
	}
	t.change.To = to
	if known {
		t.change.Journal = t.journalPath()
	}
	if t.change.From != vfioDriver {
		if o.Driver != "" && o.Driver != t.change.From && (o.Driver != NoDriver || t.change.From != "") {
			return Change{}, t.refuse(fmt.Errorf("%s has it, not %s: %w", orNone(t.change.From), vfioDriver, ErrRefused), "splicectl card list")
		}
		t.change.To = t.change.From // it was given back already
		return t.change, nil
	}
	if err := t.unused(); err != nil {
		return Change{}, err
	}
	if err := t.move(to); err != nil {
		return t.change, err
	}
	if known && !o.DryRun {
		if err := t.removeJournal(); err != nil {
			return t.change, t.failed("forget the old driver", err, nil, "rm "+t.journalPath())
		}
	}
	return t.change, nil
}

func orNone(driver string) string {
	if driver == "" {
		return "no driver"
	}
	return driver
}

// A transaction changes the driver of one card.
type transaction struct {
	ctx     context.Context
	cfg     Config
	address string
	dir     string
	dry     bool
	change  Change
}

func begin(ctx context.Context, cfg Config, address string, o BindOptions) (*transaction, error) {
	at, err := vfio.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	t := &transaction{ctx: ctx, cfg: cfg, address: at, dir: cfg.device(at), dry: o.DryRun, change: Change{Address: at}}
	if _, err := os.Stat(t.dir); err != nil {
		return nil, t.refuse(fmt.Errorf("there is no such device: %w", err), "splicectl card list")
	}
	vendor, dev := hex(t.dir, "vendor"), hex(t.dir, "device")
	if !o.Any && (vendor != uint64(cfg.VendorID) || dev != uint64(cfg.DeviceID)) {
		return nil, t.refuse(fmt.Errorf("it is %04x:%04x, no card of %04x:%04x: %w", vendor, dev, cfg.VendorID, cfg.DeviceID, ErrRefused), "splicectl card list")
	}
	return t, nil
}

func (t *transaction) refuse(err error, fix string) error {
	return &BindError{Address: t.address, Err: err, Driver: t.driver(), Fix: fix}
}

func (t *transaction) failed(step string, err, undo error, fix string) error {
	return &BindError{Address: t.address, Step: step, Err: err, Undo: undo, Driver: t.driver(), Fix: fix}
}

// driver is what the card has now.
func (t *transaction) driver() string { return link(t.dir, "driver") }

// bindable refuses what vfio-pci would not take, before the old driver is taken away.
func (t *transaction) bindable(o BindOptions) error {
	config, err := readConfig(t.dir)
	if err != nil {
		return t.refuse(fmt.Errorf("its configuration space cannot be read: %w", err), "ls -l "+t.dir+"/config")
	}
	vfs := text(t.dir, "sriov_numvfs")
	_, groupErr := vfio.ReadGroup(t.cfg.Root, t.address)
	_, driverErr := os.Stat(t.cfg.driver(vfioDriver))
	switch {
	case config[14]&0x7f != 0:
		return t.refuse(fmt.Errorf("it is a bridge, which cannot be given to a process: %w", ErrRefused), "splicectl card list")
	case vfs != "" && vfs != "0":
		return t.refuse(fmt.Errorf("%s virtual functions of it are enabled: %w", vfs, device.ErrBusy), fmt.Sprintf("echo 0 > %s/sriov_numvfs", t.dir))
	case errors.Is(groupErr, vfio.ErrNoGroup):
		return t.refuse(fmt.Errorf("the IOMMU is off, and vfio-pci would not take it: %w", groupErr), "boot with intel_iommu=on or amd_iommu=on")
	case groupErr != nil:
		return t.refuse(groupErr, "splicectl card list")
	case driverErr != nil:
		return t.refuse(fmt.Errorf("the driver is not loaded: %w", driverErr), "modprobe "+vfioDriver)
	}
	return nil
}

// releaseTo decides who gets the card back: whom the journal tells, where nobody is asked for. forgotten is why it does not.
func (t *transaction) releaseTo(o BindOptions, old entry, forgotten error) (string, error) {
	to := o.Driver
	switch {
	case to == NoDriver:
		return "", nil
	case to == "" && forgotten == nil:
		to = old.Driver
	case to == "" && t.driver() == vfioDriver:
		why := "nothing tells which driver it had"
		if !errors.Is(forgotten, os.ErrNotExist) {
			why += ": " + forgotten.Error()
		}
		return "", t.refuse(fmt.Errorf("%s: %w", why, ErrRefused), "name it: splicectl card release --driver NAME, or --driver none")
	}
	if to == "" {
		return "", nil
	}
	if strings.ContainsAny(to, "/\x00\n") || to == "." || to == ".." || to == vfioDriver {
		return "", t.refuse(fmt.Errorf("driver %q: %w", to, ErrRefused), "name another driver")
	}
	if _, err := os.Stat(t.cfg.driver(to)); err != nil && t.driver() == vfioDriver {
		return "", t.refuse(fmt.Errorf("driver %s is not loaded: %w", to, err), "modprobe "+to)
	}
	return to, nil
}

// unused refuses to take the card from a process: the kernel would wait until it lets go.
func (t *transaction) unused() error {
	nodes := []string{vfio.DeviceNode(t.cfg.Root, t.cfg.Dev, t.address)}
	if g, err := vfio.ReadGroup(t.cfg.Root, t.address); err == nil {
		nodes = append(nodes, filepath.Join(t.cfg.Dev, "vfio", fmt.Sprint(g.Number)), filepath.Join(t.cfg.Dev, fmt.Sprintf("vfio/noiommu-%d", g.Number)))
	}
	for _, n := range nodes {
		if n == "" {
			continue
		}
		for _, o := range vfio.Owners(t.cfg.Proc, n) {
			return t.refuse(fmt.Errorf("process %d (%s) has it: %w", o.PID, o.Command, device.ErrBusy), fmt.Sprintf("end it: kill %d", o.PID))
		}
	}
	return nil
}

// write makes one write, or only notes it.
func (t *transaction) write(path, value string) error {
	t.change.Writes = append(t.change.Writes, Write{path, value})
	if t.dry {
		return nil
	}
	if err := t.ctx.Err(); err != nil {
		return err
	}
	return t.cfg.write(path, value)
}

// noOverride clears driver_override.
const noOverride = "\n"

// move takes the card from the driver it has to another one; empty is none. Steps that were made are undone where one fails.
func (t *transaction) move(to string) error {
	override := filepath.Join(t.dir, "driver_override")
	before := text(t.dir, "driver_override")
	from := t.driver()
	steps := []struct {
		name        string
		path, value string
		skip        bool
	}{
		{"name " + to + " for it", override, to + "\n", to == ""},
		{"name no driver for it", override, noOverride, to != ""},
		{"take it from " + from, filepath.Join(t.dir, "driver/unbind"), t.address, from == ""},
		{"give it to " + to, filepath.Join(t.cfg.Root, "bus/pci/drivers_probe"), t.address, to == ""},
	}
	for _, s := range steps {
		if s.skip {
			continue
		}
		if err := t.write(s.path, s.value); err != nil {
			return t.undo(s.name, err, from, to, before)
		}
	}
	if t.dry {
		if to != "" {
			t.change.Writes = append(t.change.Writes, Write{override, noOverride})
		}
		return nil
	}
	if now := t.driver(); now != to {
		return t.undo("check", fmt.Errorf("the kernel accepted every write, but %s has it and not %s", orNone(now), orNone(to)), from, to, before)
	}
	if to == "" {
		return nil
	}
	// The card has its driver. An override that stays would only keep it from another one later.
	if err := t.write(override, noOverride); err != nil {
		if e := t.cfg.write(override, noOverride); e != nil {
			return t.failed("clear the override", errors.Join(err, e), nil, fmt.Sprintf("echo > %s", override))
		}
	}
	return nil
}

// undo brings the card back to the driver it had, and where that cannot be to the other one, so that it is not left without
// any. What a write did is asked of sysfs, not believed. ctx does not end it.
func (t *transaction) undo(step string, cause error, from, to, override string) error {
	var errs []error
	try := func(path, value string) {
		if err := t.cfg.write(path, value); err != nil {
			errs = append(errs, err)
		}
	}
	name, probe := filepath.Join(t.dir, "driver_override"), filepath.Join(t.cfg.Root, "bus/pci/drivers_probe")
	leave := func(d string) {
		if now := t.driver(); now != "" && now != d {
			try(filepath.Join(t.dir, "driver/unbind"), t.address)
		}
	}
	if from == "" {
		leave("")
	}
	for _, d := range []string{from, to} {
		if from == "" || d == "" || t.driver() == d {
			break
		}
		leave(d)
		try(name, d+"\n")
		try(filepath.Join(t.cfg.driver(d), "bind"), t.address)
		if t.driver() != d {
			try(probe, t.address)
		}
		if t.driver() == d {
			break
		}
	}
	if overrideOf(text(t.dir, "driver_override")) != overrideOf(override) {
		try(name, overrideOf(override)+"\n")
	}
	fix := "correct the cause and try again"
	if t.driver() != from {
		fix = fmt.Sprintf("echo %s > %s && echo %s > %s", from, name, t.address, probe)
	}
	return t.failed(step, cause, errors.Join(errs...), fix)
}

// overrideOf returns the driver that an override names, as sysfs shows it.
func overrideOf(s string) string {
	if s == "(null)" {
		return ""
	}
	return s
}
