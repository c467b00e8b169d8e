package driver

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/flash"
	"splicenic/emu/image"
	"splicenic/emu/port"
	"splicenic/regs"
)

// emulated is an emulated card behind its device, opened for its shell.
func emulated(t testing.TB, cfg emu.Config) (*Card, *emu.Card) {
	t.Helper()
	cfg.Geometry = emu.Geometry{Pages: 1024, Heads: 16, CamClientWords: 4096, CamServerWords: 8192, UrlNodes: 256}
	cfg.Client, _ = port.Pair(port.MemConfig{})
	e, err := emu.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return shell(t, e), e
}

func shell(t testing.TB, e *emu.Card) *Card {
	t.Helper()
	d := device.Local(e, device.LocalConfig{})
	t.Cleanup(func() { d.Close() })
	c, err := Open(context.Background(), d, Config{Shell: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFlashGeometry(t *testing.T) {
	c, _ := emulated(t, emu.Config{})
	g, err := c.FlashGeometry()
	if err != nil || g.JEDEC != 0x20ba20 || g.Bytes != 64<<20 || g.SectorBytes != 64<<10 || g.PageBytes != 256 || len(g.Slots) != 3 || g.Slots[1] != (FlashSlot{16 << 20, 16 << 20}) {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestFlashGeometryRefused: what a card says about its flash is checked before anybody divides by it.
func TestFlashGeometryRefused(t *testing.T) {
	c, f := testCard(t, Config{})
	if _, err := c.FlashGeometry(); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("no flash: %v", err)
	}
	good := map[regs.Reg]uint32{
		regs.ConfigurationFlashSize: 1 << 20, regs.ConfigurationFlashSector: 4096, regs.ConfigurationFlashPage: 256, regs.ConfigurationBootSlots: 1,
		regs.ConfigurationBootOffset: 4096, regs.ConfigurationBootBytes: 8192,
	}
	for r, v := range map[regs.Reg]uint32{
		regs.ConfigurationFlashSector: 1000, regs.ConfigurationFlashPage: 512, regs.ConfigurationBootSlots: 5,
		regs.ConfigurationBootOffset: 100, regs.ConfigurationBootBytes: 1 << 20, regs.ConfigurationFlashSize: 5000,
	} {
		for r, v := range good {
			f.set(r, v)
		}
		if g, err := c.FlashGeometry(); err != nil {
			t.Fatalf("%+v, %v", g, err)
		}
		f.set(r, v)
		if g, err := c.FlashGeometry(); err == nil {
			t.Errorf("%s = %d: %+v", r.Name(), v, g)
		}
	}
}

func TestFlashReadProgramErase(t *testing.T) {
	c, _ := emulated(t, emu.Config{})
	ctx := t.Context()
	const at = 16<<20 + 512
	want := make([]byte, 3*256-7)
	for i := range want {
		want[i] = byte(i*7 + i>>8)
	}
	for off := 0; off < len(want); off += 256 {
		if err := c.ProgramFlash(ctx, at+uint32(off), want[off:min(len(want), off+256)]); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len(want)+20)
	if err := c.ReadFlash(ctx, at-10, got); err != nil {
		t.Fatal(err)
	}
	if edge := bytes.Repeat([]byte{0xff}, 10); !bytes.Equal(got, append(append(edge, want...), edge...)) {
		t.Error("what was read is not what was programmed")
	}
	if err := c.EraseFlash(ctx, at); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadFlash(ctx, at-10, got); err != nil || len(bytes.Trim(got, "\xff")) != 0 {
		t.Errorf("the sector is not blank, %v", err)
	}
}

func TestFlashErrors(t *testing.T) {
	c, e := emulated(t, emu.Config{})
	ctx := t.Context()
	const sector = 16 << 20
	e.WithFlash(func(f *flash.Flash) { f.Break(sector>>16, true) })
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, x := range []struct {
		name string
		do   func() error
		is   error
		says string
	}{
		{"bad sector", func() error { return c.EraseFlash(ctx, sector) }, nil, "erase flash at 0x1000000: erase_failed"},
		{"bad page", func() error { return c.ProgramFlash(ctx, sector, []byte{0}) }, nil, "program flash at 0x1000000: program_failed"},
		{"behind the end", func() error { return c.EraseFlash(ctx, 64<<20) }, device.ErrRange, "erase flash at 0x4000000: address"},
		{"far behind", func() error { return c.EraseFlash(ctx, 1<<31) }, device.ErrRange, "erase flash at 0x80000000: address"},
		{"read over the end", func() error { return c.ReadFlash(ctx, 64<<20-256, make([]byte, 512)) }, device.ErrRange, "read flash at 0x4000000"},
		{"over the page", func() error { return c.ProgramFlash(ctx, 255, []byte{1, 2}) }, device.ErrRange, "end of the page"},
		{"too much", func() error { return c.ProgramFlash(ctx, 0, make([]byte, 257)) }, device.ErrRange, "257 bytes"},
		{"nothing", func() error { return c.ProgramFlash(ctx, 0, nil) }, device.ErrRange, "0 bytes"},
		{"ctx", func() error { return c.EraseFlash(ended, sector) }, context.Canceled, "erase flash at 0x1000000"},
	} {
		err := x.do()
		var failed *FlashError
		if !errors.As(err, &failed) || x.is != nil && !errors.Is(err, x.is) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	if on, err := c.FlashProtected(); on || err != nil {
		t.Errorf("protected = %v, %v", on, err)
	}
	if err := c.ProtectFlash(ctx, true); err != nil {
		t.Fatal(err)
	}
	var failed *FlashError
	if err := c.EraseFlash(ctx, 0); !errors.As(err, &failed) || !failed.Protected() || failed.Address != 0 {
		t.Errorf("erase while protected: %v", err)
	}
	if on, err := c.FlashProtected(); !on || err != nil {
		t.Errorf("protected = %v, %v", on, err)
	}
	if err := errors.Join(c.ProtectFlash(ctx, false), c.EraseFlash(ctx, 0)); err != nil {
		t.Error(err)
	}
}

// TestFlashBusyForever: a controller that does not come to an end is an error after its time, not a host that hangs. What
// it says of an earlier operation is not taken for the next one's.
func TestFlashBusyForever(t *testing.T) {
	c, f := testCard(t, Config{})
	f.set(regs.ConfigurationFlashStatus, regs.SetConfigurationFlashStatusError(0, regs.ConfigurationFlashStatusErrorEraseFailed))
	if err := c.idleFlash(t.Context(), 0); err != nil {
		t.Errorf("an old error: %v", err)
	}
	f.set(regs.ConfigurationFlashStatus, regs.ConfigurationFlashStatusBusyMask)
	start := time.Now()
	err := c.awaitFlash(t.Context(), regs.ConfigurationFlashCommandOperationProgram, 0x100)
	if took := time.Since(start); !errors.Is(err, ErrTimeout) || took < time.Second {
		t.Errorf("%v after %v", err, took)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := c.EraseFlash(ctx, 0); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("after ctx: %v", err)
	}
}

// TestFlashLost: a card that vanishes ends every wait at once.
func TestFlashLost(t *testing.T) {
	for name, do := range map[string]func(*Card, context.Context) error{
		"geometry": func(c *Card, _ context.Context) error { _, err := c.FlashGeometry(); return err },
		"read":     func(c *Card, ctx context.Context) error { return c.ReadFlash(ctx, 0, make([]byte, 300)) },
		"program":  func(c *Card, ctx context.Context) error { return c.ProgramFlash(ctx, 0, []byte{1}) },
		"erase":    func(c *Card, ctx context.Context) error { return c.EraseFlash(ctx, 0) },
		"protect":  func(c *Card, ctx context.Context) error { return c.ProtectFlash(ctx, true) },
		"state":    func(c *Card, _ context.Context) error { _, err := c.BootState(); return err },
		"next":     func(c *Card, _ context.Context) error { return c.SetBootNext(0) },
		"boot":     func(c *Card, ctx context.Context) error { return c.StartBoot(ctx) },
		"icap":     func(c *Card, ctx context.Context) error { return c.SendICAP(ctx, []uint32{1}) },
		"sensors":  func(c *Card, _ context.Context) error { _, err := c.Sensors(); return err },
	} {
		c, f := testCard(t, Config{})
		f.mu.Lock()
		f.lost = true
		f.mu.Unlock()
		start := time.Now()
		if err := do(c, t.Context()); !errors.Is(err, device.ErrDeviceLost) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("%s: noticed after %v", name, took)
		}
	}
}

// TestBlankReadIsNoLoss: all ones in the window are blank flash while the card answers.
func TestBlankReadIsNoLoss(t *testing.T) {
	c, e := emulated(t, emu.Config{})
	p := make([]byte, 1000)
	if err := c.ReadFlash(t.Context(), 32<<20, p); err != nil || len(bytes.Trim(p, "\xff")) != 0 {
		t.Errorf("blank flash: %v", err)
	}
	e.Lose()
	if err := c.ReadFlash(t.Context(), 32<<20, p); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("lost card: %v", err)
	}
}

func testImage(t testing.TB, digest uint32) []byte {
	t.Helper()
	b, err := image.Encode(image.Params{Name: "other", Version: image.Version{1, 2, 3}, UserCode: 77, DataPathDigest: digest, Geometry: image.Geometry{Pages: 2048}}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBoot writes an image and boots it, from the card's own data path to another map's, whose shell boots back.
func TestBoot(t *testing.T) {
	c, e := emulated(t, emu.Config{BootTime: time.Millisecond})
	ctx := t.Context()
	stream := testImage(t, regs.DataPathDigest^1)
	for off := 0; off < len(stream); off += 256 {
		if err := c.ProgramFlash(ctx, 16<<20+uint32(off), stream[off:min(len(stream), off+256)]); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.SetBootNext(3); !errors.Is(err, device.ErrRange) {
		t.Errorf("slot 3: %v", err)
	}
	if err := errors.Join(c.SetBootNext(1), c.StartBoot(ctx)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond) // the card is away for one
	c = shell(t, e)
	if id := c.Identity(); c.Mismatch() == nil || id.Name != "other" || id.UserCode != 77 || id.Slot != 1 || id.IDCode != 0x13636093 || id.DataPathDigest != regs.DataPathDigest^1 {
		t.Errorf("identity %+v, mismatch %v", id, c.Mismatch())
	}
	if s, err := c.BootState(); err != nil || s != (BootState{Slot: 1, Next: 1, Error: "none"}) {
		t.Errorf("%+v, %v", s, err)
	}
	if err := errors.Join(c.EraseFlash(ctx, 16<<20), c.StartBoot(ctx)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	c = shell(t, e)
	if s, err := c.BootState(); err != nil || s != (BootState{Golden: true, Fallback: true, Next: 1, Error: "no_sync"}) {
		t.Errorf("%+v, %v", s, err)
	}
	if c.Mismatch() != nil {
		t.Errorf("golden: %v", c.Mismatch())
	}
}

// TestBareShell: a card without an image can be opened for its shell and given one.
func TestBareShell(t *testing.T) {
	c, e := emulated(t, emu.Config{BootTime: time.Millisecond})
	ctx := t.Context()
	if err := errors.Join(c.EraseFlash(ctx, 0), c.StartBoot(ctx)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	c = shell(t, e)
	if !errors.Is(c.Mismatch(), ErrMapMismatch) {
		t.Errorf("a bare shell: %v", c.Mismatch())
	}
	stream := testImage(t, regs.DataPathDigest)
	for off := 0; off < len(stream); off += 256 {
		if err := c.ProgramFlash(ctx, uint32(off), stream[off:min(len(stream), off+256)]); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.StartBoot(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	if c = shell(t, e); c.Mismatch() != nil || c.Identity().Name != "other" {
		t.Errorf("%+v, %v", c.Identity(), c.Mismatch())
	}
}

func TestSendICAP(t *testing.T) {
	c, e := emulated(t, emu.Config{BootTime: time.Millisecond})
	ctx := t.Context()
	long := append([]uint32{0xffffffff, 0xaa995566}, make([]uint32, 200)...)
	for i := range long[2:] {
		long[2+i] = 0x20000000
	}
	if err := c.SendICAP(ctx, append(long, 0x30018001, 0x03636093)); err != nil {
		t.Errorf("own IDCODE: %v", err)
	}
	var refused *ICAPError
	if err := c.SendICAP(ctx, []uint32{0x30018001, 0x0362d093}); !errors.As(err, &refused) || refused.Reason != "idcode" {
		t.Errorf("another IDCODE: %v", err)
	}
	if err := c.SendICAP(ctx, []uint32{0xaa995566, 0x30020001, 0, 0x30008001, 15}); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("IPROG: %v", err)
	}
	time.Sleep(5 * time.Millisecond)
	if s, err := shell(t, e).BootState(); err != nil || s != (BootState{Golden: true, Error: "none"}) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSensors(t *testing.T) {
	c, e := emulated(t, emu.Config{})
	want := Sensors{Temperature: 45_000, TemperatureLimit: 85_000, Vccint: 1000, VccintLow: 950, Vccaux: 1800, VccauxLow: 1710}
	if got, err := c.Sensors(); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	e.SetSensors(emu.Sensors{Temperature: -5, Vccint: 900, Vccaux: 1000})
	want.Temperature, want.Vccint, want.Vccaux, want.VccintFell, want.VccauxFell = -5, 900, 1000, true, true
	if got, err := c.Sensors(); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	e.SetSensors(emu.Sensors{Temperature: 90_000, Vccint: 1000, Vccaux: 1800})
	c.ClearAlarms()
	if got, err := c.Sensors(); !got.Hot || got.VccintFell || got.VccauxFell || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// BenchmarkProgramSlot erases and programs 16 MiB.
func BenchmarkProgramSlot(b *testing.B) {
	c, _ := emulated(b, emu.Config{})
	ctx := b.Context()
	p := bytes.Repeat([]byte{0x5a}, 256)
	b.SetBytes(16 << 20)
	for b.Loop() {
		for at := uint32(16 << 20); at < 32<<20; at += 64 << 10 {
			if err := c.EraseFlash(ctx, at); err != nil {
				b.Fatal(err)
			}
			for off := at; off < at+64<<10; off += 256 {
				if err := c.ProgramFlash(ctx, off, p); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}

// BenchmarkReadSlot reads 16 MiB.
func BenchmarkReadSlot(b *testing.B) {
	c, _ := emulated(b, emu.Config{})
	p := make([]byte, 64<<10)
	b.SetBytes(16 << 20)
	for b.Loop() {
		for at := uint32(16 << 20); at < 32<<20; at += 64 << 10 {
			if err := c.ReadFlash(b.Context(), at, p); err != nil {
				b.Fatal(err)
			}
		}
	}
}
