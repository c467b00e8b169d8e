package flash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"splicenic/bitstream/program"
	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/emu"
	"splicenic/emu/image"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/runtime/flash"
)

var geometry = emu.Geometry{Pages: 64, Heads: 16, CamClientWords: 1024, CamServerWords: 1024}

// bench is an emulated card, which is opened again and again.
type bench struct {
	*testing.T
	card *emu.Card
}

func newBench(t *testing.T) *bench {
	t.Helper()
	client, _ := port.Pair(port.MemConfig{})
	server, _ := port.Pair(port.MemConfig{})
	c, err := emu.New(emu.Config{Geometry: geometry, Client: client, Server: server, Serial: 0x1122334455667788, BootTime: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &bench{t, c}
}

func (b *bench) open() (flash.Card, func()) {
	b.Helper()
	dev := vfiousertest.Join(b.T, b.card)
	c, err := driver.Open(b.Context(), dev, driver.Config{Shell: true})
	if err != nil {
		b.Fatal(err)
	}
	return flash.Of(c), func() { _ = dev.Close() }
}

// TestFlash reads, erases and programs, and meets what is refused.
func TestFlash(t *testing.T) {
	ctx := t.Context()
	c, done := newBench(t).open()
	defer done()
	g, err := c.Geometry(ctx)
	want := []program.Slot{{Offset: 0, Bytes: 16 << 20}, {Offset: 16 << 20, Bytes: 16 << 20}, {Offset: 32 << 20, Bytes: 16 << 20}}
	if err != nil || g.JEDEC != 0x20ba20 || g.Bytes != 64<<20 || g.SectorBytes != 64<<10 || g.PageBytes != 256 || fmt.Sprint(g.Slots) != fmt.Sprint(want) {
		t.Errorf("%+v, %v", g, err)
	}
	const at = 16<<20 + 250
	if err := c.Protect(ctx, true); err != nil {
		t.Error(err)
	}
	if on, err := c.Protected(ctx); err != nil || !on {
		t.Errorf("protected %v, %v", on, err)
	}
	protected, ok := errors.AsType[*driver.FlashError](c.Program(ctx, at, []byte("abc")))
	if !ok || !protected.Protected() {
		t.Errorf("program what is protected: %v", protected)
	}
	if err := c.Protect(ctx, false); err != nil {
		t.Error(err)
	}
	if err := c.Program(ctx, at, []byte("abc")); err != nil {
		t.Error(err)
	}
	if err := c.Program(ctx, at, bytes.Repeat([]byte{1}, 7)); !errors.Is(err, device.ErrRange) {
		t.Errorf("program over the end of a page: %v", err)
	}
	p := make([]byte, 1000)
	if err := c.Read(ctx, 16<<20, p); err != nil || string(p[250:253]) != "abc" || p[249] != 0xff || p[253] != 0xff {
		t.Errorf("% x, %v", p[240:260], err)
	}
	if err := c.Read(ctx, 64<<20-10, p); !errors.Is(err, device.ErrRange) {
		t.Errorf("read over the end: %v", err)
	}
	if err := c.Erase(ctx, 16<<20); err != nil {
		t.Error(err)
	}
	if err := c.Read(ctx, 16<<20, p); err != nil || !bytes.Equal(p, bytes.Repeat([]byte{0xff}, len(p))) {
		t.Errorf("erased: % x, %v", p[240:260], err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.Erase(ended, 16<<20); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("erase after the end of ctx: %v", err)
	}
}

// TestIdentity: the card says who it is, until it is gone or another.
func TestIdentity(t *testing.T) {
	ctx := t.Context()
	b := newBench(t)
	c, done := b.open()
	defer done()
	id, err := c.Identity(ctx)
	if err != nil || id.Name != "emulator" || id.Version != "1.0.0" || id.Serial != 0x1122334455667788 || id.IDCode != 0x13636093 || id.ShellDigest != regs.ShellDigest || id.DataPathDigest != regs.DataPathDigest {
		t.Errorf("%+v, %v", id, err)
	}
	b.card.Lose()
	if _, err := c.Identity(ctx); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("of a card that is gone: %v", err)
	}
	if _, err := c.Geometry(ctx); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("geometry of a card that is gone: %v", err)
	}
}

// TestAlarms: an alarm that is over is forgotten, one that holds is told.
func TestAlarms(t *testing.T) {
	ctx := t.Context()
	b := newBench(t)
	c, done := b.open()
	defer done()
	well := emu.Sensors{Temperature: 41_500, Vccint: 1000, Vccaux: 1800}
	for _, tt := range []struct {
		is   emu.Sensors
		want program.Alarms
	}{
		{well, program.Alarms{Celsius: 41.5}},
		{emu.Sensors{Temperature: 99_000, Vccint: 1000, Vccaux: 1800}, program.Alarms{Temperature: true, Celsius: 99}},
		{emu.Sensors{Temperature: -5_000, Vccint: 500, Vccaux: 1800}, program.Alarms{Voltage: true, Celsius: -5}},
		{emu.Sensors{Temperature: 20_000, Vccint: 1000, Vccaux: 900}, program.Alarms{Voltage: true, Celsius: 20}},
		{well, program.Alarms{Celsius: 41.5}},
	} {
		b.card.SetSensors(tt.is)
		if got, err := c.Alarms(ctx); err != nil || got != tt.want {
			t.Errorf("%+v: %+v, %v", tt.is, got, err)
		}
	}
}

// TestBoots: Start goes by what is next, Try by what it is given, and leaves alone what is next.
func TestBoots(t *testing.T) {
	ctx := t.Context()
	b := newBench(t)
	c, done := b.open()
	if err := c.Protect(ctx, false); err != nil {
		t.Fatal(err)
	}
	p, err := image.Encode(image.Params{Name: "one", Version: image.Version{1, 2, 3}, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry(geometry)}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(p); at += 256 {
		if err := c.Program(ctx, uint32(16<<20+at), p[at:min(at+256, len(p))]); err != nil {
			t.Fatal(err)
		}
	}
	for _, slot := range []int{-1, 3, 1 << 40} {
		if err := c.SetNext(ctx, slot); !errors.Is(err, device.ErrRange) {
			t.Errorf("slot %d is next: %v", slot, err)
		}
		if err := c.Try(ctx, slot); !errors.Is(err, device.ErrRange) {
			t.Errorf("slot %d is tried: %v", slot, err)
		}
	}
	for _, step := range []struct {
		how  string
		act  func() error
		want program.Boot
		name string
	}{
		{"try 1", func() error { return c.Try(ctx, 1) }, program.Boot{Running: 1, Next: 0, Error: "none"}, "one"},
		{"start", func() error { return c.Start(ctx) }, program.Boot{Running: 0, Golden: true, Next: 0, Error: "none"}, "emulator"},
		{"try 2, which is blank", func() error { return c.Try(ctx, 2) }, program.Boot{Running: 0, Golden: true, Fallback: true, Next: 0, Error: "no_sync"}, "emulator"},
		{"next 1, try 0", func() error { return errors.Join(c.SetNext(ctx, 1), c.Try(ctx, 0)) }, program.Boot{Running: 0, Golden: true, Next: 1, Error: "none"}, "emulator"},
		{"start 1", func() error { return c.Start(ctx) }, program.Boot{Running: 1, Next: 1, Error: "none"}, "one"},
	} {
		if err := step.act(); err != nil {
			t.Fatalf("%s: %v", step.how, err)
		}
		done()
		time.Sleep(20 * time.Millisecond)
		c, done = b.open()
		if got, err := c.Boot(ctx); err != nil || got != step.want {
			t.Errorf("%s: %+v, %v", step.how, got, err)
		}
		if id, err := c.Identity(ctx); err != nil || id.Name != step.name {
			t.Errorf("%s: %+v, %v", step.how, id, err)
		}
	}
	done()
}
