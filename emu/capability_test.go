package emu_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/vfio"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// space is the whole configuration space.
func (b *bench) space() []byte {
	b.Helper()
	p := make([]byte, 4096)
	if err := b.card.ReadConfig(0, p); err != nil {
		b.Fatal(err)
	}
	return p
}

// capabilities walks the lists as the driver does.
func (b *bench) capabilities() map[string]uint32 {
	b.Helper()
	cs, err := vfio.Capabilities(b.space())
	if err != nil {
		b.Fatal(err)
	}
	at := map[string]uint32{}
	for _, c := range cs {
		at[c.String()] = uint32(c.Offset)
	}
	return at
}

// capability returns where one begins.
func (b *bench) capability(name string) uint32 {
	b.Helper()
	at := b.capabilities()[name]
	if at == 0 {
		b.Fatalf("no capability %s", name)
	}
	return at
}

const (
	powerName, expressName, msixName = "power management", "PCI Express", "MSI-X"
	errorsName, serialName           = "advanced error reporting", "serial number"
)

// TestCapabilities: both lists, and every field of every capability after power-on.
func TestCapabilities(t *testing.T) {
	const serial = 0x0102_0304_a5b6_c7d8
	b := newBench(t, emu.Config{Serial: serial}, port.MemConfig{})
	at := b.capabilities()
	got := slices.Sorted(maps.Keys(at))
	if want := slices.Sorted(slices.Values([]string{powerName, expressName, msixName, errorsName, serialName})); !slices.Equal(got, want) {
		t.Fatalf("capabilities %v, want %v", got, want)
	}
	vectors := uint32(b.card.Info().Vectors)
	for _, x := range []struct {
		name       string
		capability string
		off        uint32
		mask, want uint32
	}{
		{"header type 0, no self test", "", 0x0c, 0xffff_0000, 0},
		{"revision and class", "", 0x08, ^uint32(0), 0x028000<<8 | 1},
		{"subsystem", "", 0x2c, ^uint32(0), regs.VendorID | 1<<16},
		{"no interrupt pin", "", 0x3c, 0xff00, 0},
		{"command clear, status with a list", "", 0x04, ^uint32(0), 1 << 20},
		{"power: version 3, no D1, no D2, no wake-up", powerName, 0, 0xffff_0000, 3 << 16},
		{"power: D0, state kept in D3hot", powerName, 4, ^uint32(0), 8},
		{"express: version 2 endpoint, no interrupt message", powerName, 0, 0, 0},
		{"express: version 2, endpoint", expressName, 0, 0xffff_0000, 2 << 16},
		{"express: payload 256", expressName, 0x04, 7, 1},
		{"express: role-based errors", expressName, 0x04, 1 << 15, 1 << 15},
		{"express: function-level reset", expressName, 0x04, 1 << 28, 1 << 28},
		{"express: control after reset", expressName, 0x08, 0xffff, 0x2810},
		{"express: nothing pending, no error", expressName, 0x08, 0xffff_0000, 0},
		{"express: link can do 5 GT/s by 4", expressName, 0x0c, 0x3ff, 0x42},
		{"express: no active-state power management", expressName, 0x0c, 3 << 10, 0},
		{"express: link runs at 5 GT/s by 4", expressName, 0x10, 0x3ff << 16, 0x42 << 16},
		{"express: completion time-out can be disabled", expressName, 0x24, ^uint32(0), 1 << 4},
		{"express: 2.5 and 5 GT/s", expressName, 0x2c, 0xff, 6},
		{"express: target 5 GT/s", expressName, 0x30, 0xf, 2},
		{"msi-x: vectors, off", msixName, 0, 0xffff_0000, (vectors - 1) << 16},
		{"msi-x: table", msixName, 4, ^uint32(0), device.Bar4},
		{"msi-x: pending bits", msixName, 8, ^uint32(0), 0x8000 | device.Bar4},
		{"errors: version 2", errorsName, 0, 0xf_ffff, 1 | 2<<16},
		{"errors: none", errorsName, 4, ^uint32(0), 0},
		{"errors: none masked", errorsName, 8, ^uint32(0), 0},
		{"errors: severity", errorsName, 0xc, ^uint32(0), 0x0006_2010},
		{"errors: none corrected", errorsName, 0x10, ^uint32(0), 0},
		{"errors: advisory ones masked", errorsName, 0x14, ^uint32(0), 1 << 13},
		{"errors: no check sums end to end", errorsName, 0x18, ^uint32(0), 0},
		{"serial: version 1, last", serialName, 0, ^uint32(0), 3 | 1<<16},
		{"serial: low", serialName, 4, ^uint32(0), serial & 0xffff_ffff},
		{"serial: high", serialName, 8, ^uint32(0), serial >> 32},
	} {
		if got := b.config(at[x.capability]+x.off) & x.mask; got != x.want {
			t.Errorf("%s: %#x, want %#x", x.name, got, x.want)
		}
	}
	if b.want(regs.IdentitySerial, serial&0xffff_ffff); b.load(regs.IdentitySerial+4) != serial>>32 {
		t.Error("identity.serial is another")
	}
}

// TestConfigMasks: all ones stored to every word change what a host may change, and nothing else; all zeros undo it.
func TestConfigMasks(t *testing.T) {
	b := newBench(t, emu.Config{Serial: 7}, port.MemConfig{})
	before := b.space()
	at := b.capabilities()
	want := map[uint32]uint32{ // bits that can be set
		0x04: 0x546, 0x0c: 0xff, 0x10: 0xfff0_0000, 0x18: 0xe000_0000, 0x1c: ^uint32(0), 0x20: 0xffff_0000, 0x3c: 0xff,
		at[powerName] + 4: 3, at[msixName]: 0xc000_0000,
		at[expressName] + 0x08: 0x79ff, at[expressName] + 0x10: 0xc8, at[expressName] + 0x28: 1 << 4, at[expressName] + 0x30: 0xf,
		at[errorsName] + 0x08: 0x17_f010, at[errorsName] + 0x0c: 0x17_f010, at[errorsName] + 0x14: 0x31c1,
	}
	for off := uint32(0); off < 4096; off += 4 {
		old := binary.LittleEndian.Uint32(before[off:])
		v := ^uint32(0)
		if off == at[expressName]+8 {
			v &^= 1 << 15 // would reset the function
		}
		b.setConfig(off, v)
		if got := b.config(off); got != old|want[off] {
			t.Errorf("%#x: %#x after all ones, want %#x", off, got, old|want[off])
		}
		b.setConfig(off, 0)
		if got := b.config(off); got != old&^want[off] {
			t.Errorf("%#x: %#x after zeros, want %#x", off, got, old&^want[off])
		}
	}
}

// TestPowerState: asleep the card answers configuration space alone, keeps its state, forwards, and lets interrupts wait.
func TestPowerState(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	pm, express, aer := h.capability(powerName)+4, h.capability(expressName)+8, h.capability(errorsName)
	raised := 0
	if err := h.card.SetVectors([]func(){func() { raised++ }}); err != nil {
		t.Fatal(err)
	}
	h.serve()
	h.store(regs.ControlScratch, 77)
	for _, state := range []uint32{1, 2} { // D1 and D2 do not exist
		h.setConfig(pm, state)
		if got := h.config(pm); got != 8 {
			t.Errorf("D%d: power register %#x", state, got)
		}
	}
	sequence := h.post(bulk(regs.CommandControlTypeClear, 0, 4, 0))
	h.setConfig(pm, 3)
	if got := h.config(pm); got != 8|3 {
		t.Fatalf("power register %#x in D3hot", got)
	}
	h.store(regs.ControlScratch, 1) // comes to nothing
	h.store(regs.ControlInterruptTest, 1)
	if got := h.load(regs.ControlScratch); got != ^uint32(0) {
		t.Errorf("a load reads %#x", got)
	}
	if got := h.config(0); got != regs.VendorID|regs.DeviceID<<16 {
		t.Errorf("ids = %#x", got)
	}
	h.send(0, syn(1000, clientISN).build(false), noOffload)
	h.settle()
	if len(h.drain()) != 1 {
		t.Error("forwarding has stopped")
	}
	if len(h.rings[regs.RingCompletion].Bytes) == 0 || h.rings[regs.RingCompletion].Bytes[0] != 0 {
		t.Error("DMA in D3hot")
	}
	// The load was advised of, the store was an error, unsupported requests both.
	if got := h.config(express) >> 16; got != 1|2|8 {
		t.Errorf("device status %#x", got)
	}
	if u, c, first := h.config(aer+4), h.config(aer+0x10), h.config(aer+0x18)&31; u != 1<<20 || c != 1<<13 || first != 20 {
		t.Errorf("errors %#x, the first %d, corrected %#x", u, first, c)
	}
	h.setConfig(pm, 0)
	h.want(regs.ControlScratch, 77)
	h.settle()
	if done := h.completions(); len(done) != 1 || done[0].Sequence != sequence {
		t.Errorf("completions after waking up: %+v", done)
	}
	if raised != 0 {
		t.Errorf("vector 0 raised %d times by a store that came to nothing", raised)
	}
	// The bits are cleared by storing 1, and only so.
	for _, off := range []uint32{express, aer + 4, aer + 0x10} {
		v := h.config(off)
		keep := uint32(0)
		if off == express {
			keep = 0xffff
		}
		h.setConfig(off, v&keep)
		if got := h.config(off); got != v {
			t.Errorf("%#x: %#x after storing 0 over %#x", off, got, v)
		}
		h.setConfig(off, v)
		if got := h.config(off); got != v&keep {
			t.Errorf("%#x: %#x after storing %#x", off, got, v)
		}
	}
}

// TestPendingWhileAsleep: an interrupt of the data path waits until the card is awake.
func TestPendingWhileAsleep(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	raised := 0
	if err := b.card.SetVectors([]func(){nil, func() { raised++ }}); err != nil {
		t.Fatal(err)
	}
	pm := b.capability(powerName) + 4
	b.setConfig(4, 6)
	b.setConfig(pm, 3)
	b.card.SetLinkDown(0, true)
	b.settle()
	if raised != 0 {
		t.Error("raised in D3hot")
	}
	b.setConfig(pm, 0)
	if raised != 1 {
		t.Errorf("raised %d times after waking up", raised)
	}
}

// TestFunctionLevelReset: what it resets and what it must not, by the register and by Reset.
func TestFunctionLevelReset(t *testing.T) {
	for _, x := range []struct {
		name  string
		reset func(*host, uint32)
		given bool // memory and vectors stay given
	}{
		{"by device control", func(h *host, at uint32) { h.setConfig(at, 1<<15|0x5020) }, true},
		{"by one byte", func(h *host, at uint32) { _ = h.card.WriteConfig(at+1, []byte{0xd0}) }, true},
		{"by Reset", func(h *host, _ uint32) { _ = h.card.Reset() }, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := newHost(t, emu.Config{Serial: 5, Seed: 3}, port.MemConfig{})
			fresh := newBench(t, emu.Config{Serial: 5, Seed: 3}, port.MemConfig{})
			raised := 0
			if err := h.card.SetVectors([]func(){func() { raised++ }}); err != nil {
				t.Fatal(err)
			}
			h.splice(t)
			at := h.capabilities()
			express, aer := at[expressName], at[errorsName]
			sticky := map[uint32]uint32{ // word: value before
				express + 0x08: 1 << 5, express + 0x10: 0xc8, express + 0x30: 1,
				aer + 0x08: 1 << 12, aer + 0x0c: 1 << 14, aer + 0x14: 1,
			}
			for off, v := range sticky {
				h.setConfig(off, v)
			}
			h.setConfig(at[powerName]+4, 3)
			h.load(regs.ControlScratch) // an error of each kind
			h.store(regs.ControlScratch, 1)
			h.setConfig(at[powerName]+4, 0)
			for _, off := range []uint32{0x0c, 0x10, 0x18, 0x1c, 0x20, 0x3c} {
				h.setConfig(off, ^uint32(0))
			}
			h.store(regs.ControlScratch, 1)
			x.reset(h, express+8)

			want := fresh.space()
			for off, v := range sticky {
				word := binary.LittleEndian.Uint32(want[off:])
				switch off {
				case express + 0x08:
					word = word&^0xe0 | v
				case express + 0x10:
					word |= v
				default:
					word = v
				}
				binary.LittleEndian.PutUint32(want[off:], word)
			}
			binary.LittleEndian.PutUint32(want[aer+4:], 1<<20)
			binary.LittleEndian.PutUint32(want[aer+0x10:], 1<<13)
			binary.LittleEndian.PutUint32(want[aer+0x18:], 20)
			if got := h.space(); !bytes.Equal(got, want) {
				for off := 0; off < 4096; off += 4 {
					if g, w := binary.LittleEndian.Uint32(got[off:]), binary.LittleEndian.Uint32(want[off:]); g != w {
						t.Errorf("configuration space at %#x = %#x, want %#x", off, g, w)
					}
				}
			}
			got, first := h.card.Snapshot(), fresh.card.Snapshot()
			got.Config, first.Config = nil, nil
			compareState(t, got, first)
			// Once it is bus master again with MSI-X on, it reaches a host that has stayed.
			h.setConfig(at[msixName], 1<<31)
			h.setConfig(4, 6)
			unmask := make([]byte, 4)
			if err := h.card.WriteRegion(device.Bar4, 12, unmask); err != nil {
				t.Fatal(err)
			}
			h.store(regs.ControlInterruptTest, 1)
			if (raised == 1) != x.given {
				t.Errorf("vector 0 raised %d times after the reset", raised)
			}
		})
	}
}

// TestDeviceReset: a device joined by Local, reset by its owner, comes up again.
func TestDeviceReset(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.serve()
	if err := h.dev.Reset(); err != nil {
		t.Fatal(err)
	}
	if got := h.config(4); got != 1<<20 {
		t.Errorf("command and status %#x after the reset", got)
	}
	h.start()
	h.mustDo(bulk(regs.CommandControlTypeClear, 0, 4, 0))
}

// FuzzConfigSpace: accesses of any size at any place of configuration space. Whatever they are, nothing panics, what is
// read-only stays, the lists can be walked, a read has no effect, and a snapshot holds it all.
func FuzzConfigSpace(f *testing.F) {
	op := func(off uint16, p ...byte) []byte {
		return append([]byte{byte(off), byte(off >> 8), byte(len(p))}, p...)
	}
	f.Add(op(4, 6, 0))
	f.Add(op(0x44, 3))
	f.Add(append(op(0x68, 0xff, 0xff, 0xff, 0xff), op(0x104, 0xff, 0xff, 0xff, 0xff)...))
	f.Add(op(0x69, 0x80))
	f.Add(op(0xffe, 1, 2, 3))
	f.Add(op(0x32, 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, in []byte) {
		b := newBench(t, emu.Config{Serial: 0x1122_3344_5566_7788}, port.MemConfig{})
		first := b.space()
		list := b.capabilities()
		for len(in) >= 3 {
			off, n := uint32(in[0])|uint32(in[1]&0x1f)<<8, min(int(in[2]), len(in)-3)
			p := bytes.Clone(in[3 : 3+n])
			in = in[3+n:]
			before := b.space()
			err := b.card.WriteConfig(off, p)
			if inside := int(off)+n <= 4096; (err == nil) != inside {
				t.Fatalf("%d bytes at %#x: %v", n, off, err)
			}
			if err != nil && !bytes.Equal(before, b.space()) {
				t.Fatalf("%d bytes at %#x were refused and changed something", n, off)
			}
			// In D3hot or not, it answers here, and BAR0 answers accordingly.
			asleep := b.config(list[powerName]+4)&3 == 3
			if got := b.load(regs.DirectoryMagic); (got == ^uint32(0)) != asleep || !asleep && got != regs.Magic {
				t.Fatalf("magic %#x, asleep %t", got, asleep)
			}
		}
		got := b.space()
		if again := b.space(); !bytes.Equal(got, again) {
			t.Fatal("a read had an effect")
		}
		for _, off := range []uint32{0x00, 0x08, 0x2c, 0x34, list[powerName], list[expressName], list[expressName] + 4,
			list[expressName] + 0xc, list[msixName] + 4, list[msixName] + 8, list[errorsName], list[serialName], list[serialName] + 4, list[serialName] + 8} {
			if !bytes.Equal(got[off:off+2], first[off:off+2]) {
				t.Errorf("read-only word at %#x changed", off)
			}
		}
		if again := b.capabilities(); !maps.Equal(again, list) {
			t.Errorf("capabilities %v became %v", list, again)
		}
		state := b.card.Snapshot()
		other := newBench(t, emu.Config{}, port.MemConfig{})
		if err := other.card.Restore(state); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(other.space(), got) {
			t.Error("configuration space is not in the snapshot")
		}
	})
}
