package emu_test

import (
	"context"
	"encoding/binary"
	"testing"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

func (b *bench) config(off uint32) uint32 {
	b.Helper()
	var p [4]byte
	if err := b.card.ReadConfig(off, p[:]); err != nil {
		b.Fatal(err)
	}
	return binary.LittleEndian.Uint32(p[:])
}

func (b *bench) setConfig(off, v uint32) {
	b.Helper()
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], v)
	if err := b.card.WriteConfig(off, p[:]); err != nil {
		b.Fatal(err)
	}
}

// TestConfigurationSpace reads the header as a BIOS does.
func TestConfigurationSpace(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	if got := b.config(0); got != regs.VendorID|regs.DeviceID<<16 {
		t.Errorf("ids = %#x", got)
	}
	b.setConfig(0, 0)
	if got := b.config(0); got != regs.VendorID|regs.DeviceID<<16 {
		t.Errorf("ids after a store = %#x", got)
	}
	for _, x := range []struct {
		name string
		off  uint32
		want uint32 // what is left of all ones: the size and the kind
	}{
		{"BAR0, 32 bits, 1 MiB", 0x10, 0xfff0_0000}, {"BAR1, none", 0x14, 0},
		{"BAR2, 64 bits, prefetchable, 512 MiB", 0x18, 0xe000_000c}, {"BAR2 upper half", 0x1c, 0xffff_ffff},
		{"BAR4, 32 bits, 64 KiB", 0x20, 0xffff_0000}, {"BAR5, none", 0x24, 0}, {"ROM, none", 0x30, 0},
	} {
		b.setConfig(x.off, ^uint32(0))
		if got := b.config(x.off); got != x.want {
			t.Errorf("%s: reads %#x, want %#x", x.name, got, x.want)
		}
	}
	var b1 [1]byte // a byte in the middle of a word
	if err := b.card.ReadConfig(0x19, b1[:]); err != nil || b1[0] != byte(b.config(0x18)>>8) {
		t.Errorf("byte 0x19 = %#x, %v", b1, err)
	}
}

// TestMasks: a masked vector stays pending, in the table, by the function's mask, or with MSI-X off not at all.
func TestMasks(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	var raised [3]int
	if err := b.card.SetVectors([]func(){func() { raised[0]++ }, func() { raised[1]++ }, nil}); err != nil {
		t.Fatal(err)
	}
	const function, enable = 1 << 30, 1 << 31
	flags := b.capability("MSI-X")
	b.setConfig(4, 4) // messages are a bus master's
	test := func(v int) { b.store(regs.ControlInterruptTest, 1<<v) }
	table := func(v int, mask uint32) {
		var p [4]byte
		binary.LittleEndian.PutUint32(p[:], mask)
		if err := b.card.WriteRegion(device.Bar4, uint64(16*v+12), p[:]); err != nil {
			t.Fatal(err)
		}
	}
	want := func(pending uint32, r ...int) {
		t.Helper()
		var p [4]byte
		if err := b.card.ReadRegion(device.Bar4, 0x8000, p[:]); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(p[:]); got != pending || raised != [3]int(r) {
			t.Errorf("pending %#x, raised %v; want %#x, %v", got, raised, pending, r)
		}
	}
	test(0)
	test(1)
	want(0, 1, 1, 0)
	test(2) // without a function: masked, as the kernel leaves it
	want(4, 1, 1, 0)
	table(1, 1)
	test(1)
	test(1)
	test(0)
	want(6, 2, 1, 0)
	table(1, 0)
	want(4, 2, 2, 0)
	b.setConfig(flags, b.config(flags)|function)
	test(0)
	want(5, 2, 2, 0)
	b.setConfig(flags, b.config(flags)&^function)
	want(4, 3, 2, 0)
	b.setConfig(flags, b.config(flags)&^enable)
	test(0)
	want(4, 3, 2, 0)
	b.setConfig(flags, b.config(flags)|enable)
	b.card.LoseInterrupts(0, 1)
	test(0)
	want(4, 3, 2, 0)
	test(0)
	want(4, 4, 2, 0)
	b.setConfig(4, 0)
	test(1)
	want(6, 4, 2, 0)
	b.setConfig(4, 4)
	want(4, 4, 3, 0)
	b.want(regs.ControlInterruptTest, 0)
	// Message address and data read back.
	if err := b.card.WriteRegion(device.Bar4, 16, []byte{1, 2, 3, 4, 5, 6, 7, 8}); err != nil {
		t.Fatal(err)
	}
	var p [8]byte
	if err := b.card.ReadRegion(device.Bar4, 16, p[:]); err != nil || p != [8]byte{1, 2, 3, 4, 5, 6, 7, 8} {
		t.Errorf("message of vector 1 = %x, %v", p, err)
	}
}

// TestBusMaster: without it the card does not touch host memory; with it, it goes on.
func TestBusMaster(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.setConfig(4, 2)
	h.post(bulk(regs.CommandControlTypeClear, 0, 4, 0))
	h.settle()
	h.want(regs.AmuCommands, 0)
	h.setConfig(4, 6)
	h.settle()
	h.want(regs.AmuCommands, 1)
	if len(h.completions()) != 1 {
		t.Error("no completion")
	}
}

// TestVectors: each ring raises its own vector, once per step.
func TestVectors(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	if err := h.dev.EnableVectors(3); err != nil {
		t.Fatal(err)
	}
	h.serve()
	h.send(0, syn(1000, 1).build(false), noOffload)                                 // event: opened
	h.send(0, append(peerFrame(clientMAC, 0x0806), make([]byte, 46)...), noOffload) // exception: ARP
	h.post(bulk(regs.CommandControlTypeClear, 0, 4, 0))
	h.settle()
	for v := range 3 {
		if n, err := h.dev.Wait(context.Background(), v); n != 1 || err != nil {
			t.Errorf("vector %d: %d, %v", v, n, err)
		}
	}
	h.want(regs.HostifInterrupts, 3)
	var e regs.ExceptionEntry
	h.get(regs.RingException, 0, &e)
	if e.ControlPhase != 1 || e.ReasonReason != regs.ExceptionReasonReasonNotIp || e.Length != 60 {
		t.Errorf("exception %+v", e)
	}
}
