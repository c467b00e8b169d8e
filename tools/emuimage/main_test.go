package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"splicenic/bitstream"
	"splicenic/emu"
	"splicenic/emu/image"
	"splicenic/emu/port"
	"splicenic/regs"
)

func TestBit(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.bit")
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	args := []string{"-o", name, "-name", "next", "-version", "2.1.3", "-pages", "4096", "-user-code", "0xbeef", "-digest", regs.DataPathDigest256, "-bytes", "100000"}
	if err := run(args, io.Discard, io.Discard, now); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := bitstream.Read(f, bitstream.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	if img.Format != bitstream.XilinxBit || img.Check.State != bitstream.Valid || !img.Whole || img.Partial || img.Part != image.Part ||
		len(img.IDCodes) != 1 || img.IDCodes[0].Value != image.IDCode || img.UserCode == nil || *img.UserCode != 0xbeef || len(img.Segments) != 1 {
		t.Fatalf("%+v", img)
	}
	p, _, err := image.Load(bytes.NewReader(img.Segments[0].Data), 0x13636093)
	want := image.Params{Name: "next", Version: image.Version{2, 1, 3}, UserCode: 0xbeef, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry{Pages: 4096}}
	if p != want || err != nil || len(img.Segments[0].Data) != 100_000 {
		t.Errorf("%d bytes load as %+v, %v", len(img.Segments[0].Data), p, err)
	}
}

// TestFlash: a card starts from the flash that was written, whatever an earlier one's board kept.
func TestFlash(t *testing.T) {
	name := filepath.Join(t.TempDir(), "card.flash")
	if err := os.WriteFile(name+".board", []byte("next 02\nprotected 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-flash", name, "-version", "0.9.0", "-older"}, io.Discard, io.Discard, time.Now()); err != nil {
		t.Fatal(err)
	}
	wire, _ := port.Pair(port.MemConfig{})
	c, err := emu.New(emu.Config{Client: wire, FlashFile: name})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := c.Snapshot()
	for r, want := range map[regs.Reg]uint32{
		regs.IdentityImageVersion: 9 << 16, regs.DirectoryDataPathDigest: older, regs.ConfigurationBootNext: 0, regs.IdentityBoot: regs.IdentityBootGoldenMask,
	} {
		if got := s.Registers[uint32(r)]; got != want {
			t.Errorf("%s = %#x, want %#x", r.Name(), got, want)
		}
	}
}

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{}, {"-o"}, {"-o", dir + "/x", "more"}, {"-x"}, {"-o", dir + "/x", "-older", "-digest", "12345678"}, {"-o", dir + "/x", "-digest", "1234"},
		{"-o", dir + "/x", "-version", "1.2"}, {"-o", dir + "/x", "-version", "1.2.x"}, {"-o", dir + "/x", "-user-code", "1e9"},
	} {
		if err := run(args, io.Discard, io.Discard, time.Now()); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, args := range [][]string{{"-o", dir + "/x", "-name", ""}, {"-o", dir + "/x", "-bytes", "8"}, {"-o", dir}, {"-o", dir + "/x", "-version", "200.0.0"}} {
		if err := run(args, io.Discard, io.Discard, time.Now()); err == nil || errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if _, err := os.Stat(dir + "/x"); !errors.Is(err, os.ErrNotExist) {
		t.Error("something was written")
	}
}
