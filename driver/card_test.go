package driver

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splicenic/driver/device"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/regs"
)

// counting counts accesses and remembers the first store and what was loaded before it.
type counting struct {
	device.Device
	loads, stores int
	before        []uint64 // offsets loaded in BAR0 before the first store
}

func (c *counting) Load32(region int, off uint64) uint32 {
	c.loads++
	if c.stores == 0 && region == device.Bar0 {
		c.before = append(c.before, off)
	}
	return c.Device.Load32(region, off)
}

func (c *counting) Store32(region int, off uint64, v uint32) {
	c.stores++
	c.Device.Store32(region, off, v)
}

func (c *counting) Load64(region int, off uint64) uint64 {
	c.loads++
	return c.Device.Load64(region, off)
}

func (c *counting) Store64(region int, off uint64, v uint64) {
	c.stores++
	c.Device.Store64(region, off, v)
}

func TestOpen(t *testing.T) {
	c, f := testCard(t, Config{})
	id := c.Identity()
	if id.Name != "fake" || id.Serial != 0x0123456789abcdef || id.Image.String() != "1.2.3" || id.VendorID != regs.VendorID || id.DeviceID != regs.DeviceID {
		t.Errorf("Identity = %+v", id)
	}
	if len(id.Blocks) != len(regs.Blocks) {
		t.Fatalf("%d blocks, want %d", len(id.Blocks), len(regs.Blocks))
	}
	for i, b := range id.Blocks {
		if !b.Known || b.Name != regs.Blocks[i].Name || b.Offset != regs.Blocks[i].Offset {
			t.Errorf("block %d = %+v", i, b)
		}
	}
	if g := c.Geometry(); g.Pages != 5000 || g.Servers != 8 || g.Slots != 32 {
		t.Errorf("Geometry = %+v", g)
	}
	if got := c.Memory(regs.MemSlot).Entries; got != 2*4*32 {
		t.Errorf("%d slots, want %d", got, 2*4*32)
	}
	if f.config[configCommand]&(memorySpace|busMaster) != memorySpace|busMaster {
		t.Errorf("command register %#x", f.config[configCommand])
	}
	for i := range regs.RingInstances {
		if f.get(ringReg(regs.RingStatus, i)) != 1 || f.get64(ringReg(regs.RingIova, i))%64 != 0 {
			t.Errorf("ring %s does not run", ringNames[i])
		}
	}
	if err := c.Mismatch(); err != nil {
		t.Errorf("Mismatch = %v", err)
	}
}

// TestAccesses: bring-up, re-attach, reset and shutdown take at most 400 BAR accesses each, and the magic is seen before
// the first store.
func TestAccesses(t *testing.T) {
	const limit = 400
	for _, adopt := range []bool{false, true} {
		f := newFakeCard()
		if adopt {
			f.configure()
		}
		d := &counting{Device: vfiousertest.Join(t, f)}
		defer d.Close()
		step := func(what string) {
			t.Logf("adopt %v: %s: %d loads, %d stores", adopt, what, d.loads, d.stores)
			if n := d.loads + d.stores; n > limit {
				t.Errorf("%s took %d accesses, want at most %d", what, n, limit)
			}
			d.loads, d.stores = 0, 0
		}
		c, err := Open(t.Context(), d, Config{Adopt: adopt, Pump: f.step, Timers: Timers{Idle: time.Second, Quarantine: time.Millisecond}, Ports: [2]PortConfig{{Enable: true}, {Enable: true, MTU: 9000}}})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.before) == 0 || d.before[0] != uint64(regs.DirectoryMagic) {
			t.Errorf("loaded before the first store: %#x, want the magic first", d.before)
		}
		step("Open")
		if err := c.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		step("Reset")
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		step("Shutdown")
	}
}

func TestOpenSettings(t *testing.T) {
	random := bytes.Repeat([]byte{1, 2, 3, 4}, 20)
	_, f := testCard(t, Config{
		Random: bytes.NewReader(random),
		Timers: Timers{Idle: 90 * time.Second, RetransmitLimit: 5},
		Ports:  [2]PortConfig{{Enable: true, MAC: [6]byte{2, 0, 0, 0xaa, 0xbb, 0xcc}, MTU: 9000}, {Promiscuous: true}},
	})
	rows := []struct {
		reg  regs.Reg
		want uint32
	}{
		{regs.TimerIdle, 90_000}, {regs.TimerRetransmitLimit, 5}, {regs.TimerQuarantine, 1000},
		{regs.PortControl, 1}, {regs.PortMtu, 9000}, {regs.PortMacLo, 0x00aabbcc}, {regs.PortMacHi, 0x0200},
		{regs.PortControl.At(regs.PortServer, regs.PortStride), 4}, {regs.PortMtu.At(regs.PortServer, regs.PortStride), 1500},
		{regs.CamHashKey, 0x04030201}, {regs.TransmitIsnKey.At(1, regs.TransmitStride).At(3, regs.TransmitIsnKeyStride), 0x04030201},
		{regs.DefenceKey.At(3, regs.DefenceKeyStride), 0x04030201},
	}
	for _, row := range rows {
		if got := f.get(row.reg); got != row.want {
			t.Errorf("%s = %#x, want %#x", row.reg.Name(), got, row.want)
		}
	}
}

// TestOpenAdopt: without a predecessor's memory the card is adopted, and its rings start anew.
func TestOpenAdopt(t *testing.T) {
	f := newFakeCard()
	f.set(regs.CamHashKey, 0x1234)
	f.bar2[5] = 55
	f.configure()
	for range 3 { // the second host finds indexes that went on
		c := openFake(t, f, Config{Adopt: true, Pump: f.step, Rings: Rings{Event: 2, Command: 4, Completion: 4}})
		for range 7 {
			f.event(regs.EventEntry{ControlType: 1})
			if n := c.Events(make([]regs.EventEntry, 4)); n != 1 {
				t.Fatalf("%d events, want 1", n)
			}
			c.CommitEvents()
			if err := c.Clear(t.Context(), 64, 4); err != nil {
				t.Fatal(err)
			}
		}
		if !c.Adopted() || c.Continued() {
			t.Errorf("Adopted = %v, Continued = %v", c.Adopted(), c.Continued())
		}
		if s := c.Stats(); s != (Stats{}) {
			t.Errorf("Stats = %+v", s)
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if f.get(regs.CamHashKey) != 0x1234 || f.bar2[5] != 55 {
		t.Error("Adopt did not keep the data path as it was")
	}
}

func TestOpenErrors(t *testing.T) {
	rows := []struct {
		name  string
		spoil func(*fakeCard)
		cfg   Config
		want  error
		says  string
	}{
		{"lost", func(f *fakeCard) { f.lost = true }, Config{}, device.ErrDeviceLost, "directory.magic"},
		{"another card", func(f *fakeCard) { f.set(regs.DirectoryMagic, 0x1234) }, Config{}, ErrMapMismatch, "directory.magic of the card is 0x00001234"},
		{"another shell", func(f *fakeCard) { f.set(regs.DirectoryShellDigest, 0x1234) }, Config{}, ErrMapMismatch, "shell digest of the card is 0x00001234"},
		{"too many blocks", func(f *fakeCard) { f.set(regs.DirectoryEntries, 65) }, Config{}, ErrMapMismatch, "directory.entries"},
		{"page size", func(f *fakeCard) { f.set(regs.GeometryPageBytes, 512) }, Config{}, ErrMapMismatch, "geometry.page_bytes"},
		{"more pages than room", func(f *fakeCard) { f.set(regs.GeometryPages, 1<<20) }, Config{}, ErrMapMismatch, "memory page"},
		{"more slots than room", func(f *fakeCard) { f.set(regs.GeometrySlots, 1<<30) }, Config{}, ErrMapMismatch, "memory slot"},
		{"reset hangs", func(f *fakeCard) { f.stuck = true }, Config{}, ErrTimeout, "control.reset"},
		{"fault", func(f *fakeCard) { f.set(regs.ControlStatus, 4); f.set(regs.ControlFault, 9) }, Config{}, ErrFault, "code 9"},
		{"timer", func(f *fakeCard) {}, Config{Timers: Timers{Idle: time.Microsecond}}, device.ErrRange, "timer.idle"},
		{"retransmit limit", func(f *fakeCard) {}, Config{Timers: Timers{RetransmitLimit: 16}}, device.ErrRange, "timer.retransmit_limit"},
		{"ring size", func(f *fakeCard) {}, Config{Rings: Rings{Event: 100}}, nil, "power of two"},
		{"buffer size", func(f *fakeCard) {}, Config{Rings: Rings{FrameBytes: 100}}, device.ErrRange, "100 bytes"},
		{"keys", func(f *fakeCard) {}, Config{Random: strings.NewReader("short")}, nil, "draw keys"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := newFakeCard()
			row.spoil(f)
			d := &counting{Device: vfiousertest.Join(t, f)}
			defer d.Close()
			row.cfg.Pump, row.cfg.PumpLimit = f.step, 100
			_, err := Open(t.Context(), d, row.cfg)
			if err == nil || row.want != nil && !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) {
				t.Fatalf("Open = %v, want %v that says %q", err, row.want, row.says)
			}
			if errors.Is(err, ErrMapMismatch) && d.stores != 0 {
				t.Errorf("%d stores to a card of another map", d.stores)
			}
			if f.config[configCommand]&busMaster != 0 {
				t.Error("bus mastering is left on")
			}
		})
	}
}

// TestUnknownDataPath: the shell goes on working and everything else names both digests.
func TestUnknownDataPath(t *testing.T) {
	f := newFakeCard()
	f.set(regs.DirectoryDataPathDigest, 0xabcd)
	f.set(regs.DirectoryEntryDigest.At(6, regs.DirectoryEntryDigestStride), 1)
	// Another host has set it up, and its rings run.
	f.configure()
	f.config[configCommand] = busMaster
	d := &counting{Device: device.Local(f, device.LocalConfig{})}
	defer d.Close()
	c, err := Open(t.Context(), d, Config{Adopt: true, Pump: f.step})
	if err != nil || c.Adopted() {
		t.Fatalf("Open: %v, Adopted = %v", err, c.Adopted())
	}
	if d.stores != 0 || f.config[configCommand] != busMaster || f.get(regs.HostifControl) != 0 {
		t.Error("a card of another map was changed")
	}
	if c.Identity().Name != "fake" {
		t.Errorf("Identity = %+v", c.Identity())
	}
	ctx := t.Context()
	ops := map[string]func() error{
		"WriteTable":  func() error { return c.WriteTable(ctx, 0, make([]uint32, 1)) },
		"bulk write":  func() error { return c.WriteTable(ctx, 0, make([]uint32, 100)) },
		"ReadTable":   func() error { return c.ReadTable(ctx, 0, make([]uint32, 1)) },
		"Clear":       func() error { return c.Clear(ctx, 0, 4) },
		"SwitchBank":  func() error { return c.SwitchBank(1, 1) },
		"WaitBank":    func() error { return c.WaitBankIdle(ctx, 1) },
		"Page":        func() error { _, err := c.Page(ctx, 0); return err },
		"Connections": func() error { return c.Connections(ctx, func(uint32, *regs.PageEntry) bool { return true }) },
		"CAMEntries":  func() error { return c.CAMEntries(ctx, 0, func(CAMEntry) bool { return true }) },
		"Counters":    func() error { _, err := c.Counters(ctx); return err },
		"Allocate":    func() error { _, err := c.Allocate(ctx); return err },
		"Emit":        func() error { return c.Emit(0, []byte("frame")) },
		"SetPort":     func() error { return c.SetPort(0, PortConfig{}) },
		"Accept":      func() error { return c.Accept(true) },
		"SetDefence":  func() error { return c.SetDefence(Defence{}) },
		"Mismatch":    c.Mismatch,
	}
	for name, op := range ops {
		err := op()
		var m *MismatchError
		if !errors.As(err, &m) || !errors.Is(err, ErrMapMismatch) || m.Card != 0xabcd || m.Host != regs.DataPathDigest || !slices.Equal(m.Blocks, []string{regs.Blocks[6].Name}) {
			t.Errorf("%s = %v", name, err)
		}
	}
	if c.Exceptions(make([]Exception, 1)) != 0 || c.Events(make([]regs.EventEntry, 1)) != 0 {
		t.Error("a card that is not up gave descriptors")
	}
	c.CommitExceptions()
	c.CommitEvents()
	c.Store(regs.ControlScratch, 7)
	if got := c.Load(regs.ControlScratch); got != 7 {
		t.Errorf("scratch = %d, want 7", got)
	}
	if err := c.Reset(ctx); err != nil {
		t.Errorf("Reset: %v", err)
	}
	if err := errors.Join(c.Leave(ctx), c.Shutdown(ctx)); err != nil {
		t.Errorf("Leave, Shutdown: %v", err)
	}
	if f.config[configCommand] != busMaster {
		t.Error("a card of another map lost its bus mastering")
	}
}

func TestShell(t *testing.T) {
	f := newFakeCard()
	d := &counting{Device: vfiousertest.Join(t, f)}
	defer d.Close()
	c, err := Open(t.Context(), d, Config{Shell: true})
	if err != nil || d.stores != 0 || c.Mismatch() != nil {
		t.Fatalf("Open: %v, %d stores, mismatch %v", err, d.stores, c.Mismatch())
	}
	if err := c.WriteTable(t.Context(), 0, make([]uint32, 1)); !errors.Is(err, ErrShellOnly) {
		t.Errorf("WriteTable = %v, want %v", err, ErrShellOnly)
	}
}

// TestLost: all ones is checked once; only a card whose identity is gone, too, is lost.
func TestLost(t *testing.T) {
	c, f := testCard(t, Config{})
	f.set(regs.PortRxFrames, allOnes) // a counter may read so
	f.accesses.Store(0)
	if got := c.Load(regs.PortRxFrames); got != allOnes || c.Err() != nil || f.accesses.Load() != 2 {
		t.Errorf("counter = %#x, Err = %v, %d accesses, want one check", got, c.Err(), f.accesses.Load())
	}
	f.mu.Lock()
	f.lost = true
	f.mu.Unlock()
	if got := c.Load(regs.ControlStatus); got != allOnes || !errors.Is(c.Err(), device.ErrDeviceLost) {
		t.Errorf("status = %#x, Err = %v", got, c.Err())
	}
	f.accesses.Store(0)
	c.Load(regs.ControlStatus)
	c.Store(regs.ControlScratch, 1)
	if n := f.accesses.Load(); n != 0 {
		t.Errorf("%d accesses to a lost card", n)
	}
	if _, err := c.Page(t.Context(), 0); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("Page = %v, want %v", err, device.ErrDeviceLost)
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown of a lost card: %v", err)
	}
}

// TestLostWhileWaiting: a card that dies during a command is noticed without a register access that fails.
func TestLostWhileWaiting(t *testing.T) {
	f := newFakeCard()
	c := openFake(t, f, Config{})
	f.mu.Lock()
	f.lost = true
	f.mu.Unlock()
	if err := c.Clear(t.Context(), 0, 4); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("Clear = %v, want %v", err, device.ErrDeviceLost)
	}
}

// TestWaitLost: who waits for an interrupt of a card that dies does not wait for ever.
func TestWaitLost(t *testing.T) {
	f := newFakeCard()
	c := openFake(t, f, Config{})
	f.mu.Lock()
	f.lost = true
	f.mu.Unlock()
	if err := c.Wait(t.Context(), VectorException); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("Wait = %v, want %v", err, device.ErrDeviceLost)
	}
}

// TestLeave: a card that was left is as it was, but for who may use it.
func TestLeave(t *testing.T) {
	c, f := testCard(t, Config{})
	if err := c.Emit(0, []byte("queued")); err != nil {
		t.Fatal(err)
	}
	f.hold, f.drop = 2, 0
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Clear(ctx, 0, 4); err == nil { // nobody waits for it any more
		t.Fatal("Clear was waited for")
	}
	for range 2 {
		if err := c.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.step()
	if len(f.injected) != 1 || len(f.verbs) != c.sent(f) {
		t.Errorf("injected %v, commands %v", f.injected, f.verbs)
	}
	for i := range regs.RingInstances {
		if f.get(ringReg(regs.RingStatus, i)) != 1 {
			t.Errorf("ring %s was stopped", ringNames[i])
		}
	}
	if f.config[configCommand]&busMaster == 0 {
		t.Error("bus mastering was taken away")
	}
	if err := c.Clear(t.Context(), 0, 4); !errors.Is(err, ErrShellOnly) {
		t.Errorf("Clear = %v, want %v", err, ErrShellOnly)
	}
	if c.Exceptions(make([]Exception, 1)) != 0 {
		t.Error("exceptions after Leave")
	}
	if err := c.Shutdown(t.Context()); err != nil || f.get(ringReg(regs.RingStatus, 0)) != 1 {
		t.Errorf("Shutdown = %v", err)
	}
}

// sent is how many commands the card was given.
func (c *Card) sent(f *fakeCard) int {
	return int(f.get(ringReg(regs.RingProducer, regs.RingCommand)))
}

func TestLoad64(t *testing.T) {
	f := newFakeCard()
	d := &carrying{Device: vfiousertest.Join(t, f)}
	defer d.Close()
	c, err := Open(t.Context(), d, Config{Shell: true})
	if err != nil {
		t.Fatal(err)
	}
	d.on = true // the low word wraps between the loads of the two halves
	if got, want := c.Load64(regs.PortRxFrames), uint64(6)<<32|3; got != want {
		t.Errorf("Load64 = %#x, want %#x", got, want)
	}
}

// carrying is a device with a counter that carries into its high word after the first load.
type carrying struct {
	device.Device
	on   bool
	next int
}

func (d *carrying) Load32(region int, off uint64) uint32 {
	if !d.on {
		return d.Device.Load32(region, off)
	}
	d.next++
	if off == uint64(regs.PortRxFrames) {
		return uint32(d.next) - 1 // 1 after the carry, then 3
	}
	if d.next == 1 {
		return 5
	}
	return 6
}

func TestShutdown(t *testing.T) {
	var order []string
	f := newFakeCard()
	d := &ordering{Device: vfiousertest.Join(t, f), order: &order}
	defer d.Close()
	c, err := Open(t.Context(), d, Config{Pump: f.step})
	if err != nil {
		t.Fatal(err)
	}
	order = order[:0]
	for range 2 {
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	order = slices.Compact(order)
	want := []string{"stop ring", "idle?", "interface off", "flush", "config"}
	if d := cmp.Diff(want, order[:len(want)]); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
	if f.config[configCommand]&busMaster != 0 {
		t.Error("bus mastering is left on")
	}
	if err := c.Clear(t.Context(), 0, 4); !errors.Is(err, ErrShellOnly) {
		t.Errorf("Clear after Shutdown = %v, want %v", err, ErrShellOnly)
	}
	if err := c.Emit(0, []byte("x")); !errors.Is(err, ErrShellOnly) {
		t.Errorf("Emit after Shutdown = %v, want %v", err, ErrShellOnly)
	}
}

// ordering notes the steps of a tear-down.
type ordering struct {
	device.Device
	order *[]string
}

func (d *ordering) note(s string) { *d.order = append(*d.order, s) }

func (d *ordering) Store32(region int, off uint64, v uint32) {
	switch {
	case off == uint64(regs.HostifControl):
		d.note("interface off")
	case off >= uint64(regs.RingBase):
		d.note("stop ring")
	}
	d.Device.Store32(region, off, v)
}

func (d *ordering) Load32(region int, off uint64) uint32 {
	if off == uint64(regs.HostifControl) {
		d.note("flush")
	} else {
		d.note("idle?")
	}
	return d.Device.Load32(region, off)
}

func (d *ordering) WriteConfig(off uint32, p []byte) error {
	d.note("config")
	return d.Device.WriteConfig(off, p)
}

func TestReset(t *testing.T) {
	c, f := testCard(t, Config{})
	ctx := t.Context()
	if err := c.WriteTable(ctx, 64, []uint32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if err := c.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	got := []uint32{9, 9}
	if err := c.ReadTable(ctx, 64, got); err != nil || !slices.Equal(got, []uint32{0, 0}) {
		t.Errorf("table after Reset = %v, %v", got, err)
	}
	f.event(regs.EventEntry{ControlType: 1})
	if n := c.Events(make([]regs.EventEntry, 2)); n != 1 {
		t.Errorf("%d events after Reset, want 1", n)
	}
}

func TestCauses(t *testing.T) {
	c, f := testCard(t, Config{})
	f.set(regs.HostifCause, 5)
	if got := c.Causes(); got != 5 || f.get(regs.HostifCause) != 0 {
		t.Errorf("Causes = %#x, left %#x", got, f.get(regs.HostifCause))
	}
}

func TestWait(t *testing.T) {
	c, f := testCard(t, Config{})
	f.event(regs.EventEntry{})
	if err := c.Wait(t.Context(), VectorEvent); err != nil {
		t.Errorf("Wait: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ctx, VectorEvent); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v, want %v", err, context.Canceled)
	}
}
