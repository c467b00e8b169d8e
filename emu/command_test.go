package emu_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// memory returns a run of BAR2.
func (b *bench) memory(off uint64, n int) []byte {
	b.Helper()
	p := make([]byte, n)
	if err := b.card.ReadRegion(device.Bar2, off, p); err != nil {
		b.Fatal(err)
	}
	return p
}

func pattern(n int, seed uint32) []byte {
	p := make([]byte, n)
	for i := 0; i < n; i += 4 {
		seed = seed*1664525 + 1013904223
		binary.LittleEndian.PutUint32(p[i:], seed)
	}
	return p
}

// TestBulk moves more than one step's bytes with every bulk verb.
func TestBulk(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	const n = 500_004 // not a multiple of any chunk
	m := h.alloc("data", n)
	off := regs.MemHeadOffset + 8
	want := pattern(n, 1)
	copy(m.Bytes, want)
	steps := h.now
	h.mustDo(bulk(regs.CommandControlTypeWrite, off, n, m.IOVA))
	if got := h.memory(off, n); !bytes.Equal(got, want) {
		t.Error("written bytes differ")
	}
	if got := (h.now - steps).Milliseconds(); got < 2 {
		t.Errorf("a write of %d bytes in %d steps: not spread", n, got)
	}
	clear(m.Bytes)
	h.mustDo(bulk(regs.CommandControlTypeRead, off, n, m.IOVA))
	if !bytes.Equal(m.Bytes[:n], want) || m.Bytes[n] != 0 {
		t.Error("read bytes differ")
	}
	e := bulk(regs.CommandControlTypeFill, off+4, n-8, 0)
	e.Value = 0x01020304
	h.mustDo(e)
	copy(want[4:n-4], bytes.Repeat([]byte{4, 3, 2, 1}, n/4))
	if got := h.memory(off, n); !bytes.Equal(got, want) {
		t.Error("filled bytes differ")
	}
	h.mustDo(bulk(regs.CommandControlTypeClear, off+8, n-16, 0))
	clear(want[8 : n-8])
	if got := h.memory(off, n); !bytes.Equal(got, want) {
		t.Error("cleared bytes differ")
	}
	h.mustDo(bulk(regs.CommandControlTypeClear, 0, 0, 0))
	h.want(regs.AmuCommands, 5)
	h.want(regs.AmuCommandError, 0)
	for r := regs.AmuBulkSequence; r <= regs.AmuBulkCookie; r += 4 {
		h.want(r, 0)
	}
}

func TestBulkRefused(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	m := h.alloc("data", 4096)
	for _, x := range []struct {
		name   string
		e      regs.CommandEntry
		status uint32
	}{
		{"offset not a multiple of 4", bulk(regs.CommandControlTypeRead, 2, 4, m.IOVA), regs.CompletionControlStatusArgument},
		{"length not a multiple of 4", bulk(regs.CommandControlTypeRead, 0, 6, m.IOVA), regs.CompletionControlStatusArgument},
		{"beyond BAR2", bulk(regs.CommandControlTypeClear, regs.Bar2Bytes-4, 8, 0), regs.CompletionControlStatusArgument},
		{"length wraps", bulk(regs.CommandControlTypeClear, 8, 1<<32-4, 0), regs.CompletionControlStatusArgument},
		{"read to nowhere", bulk(regs.CommandControlTypeRead, 0, 64, 0x10), regs.CompletionControlStatusDma},
		{"write from nowhere", bulk(regs.CommandControlTypeWrite, 0, 64, 0x10), regs.CompletionControlStatusDma},
		{"write past the mapping", bulk(regs.CommandControlTypeWrite, 0, 8192, m.IOVA), regs.CompletionControlStatusDma},
		{"snapshot beyond BAR0", regs.CommandEntry{ControlType: regs.CommandControlTypeSnapshot, Bar2Offset: regs.Bar0Bytes - 4, Length: 8}, regs.CompletionControlStatusArgument},
		{"snapshot to nowhere", regs.CommandEntry{ControlType: regs.CommandControlTypeSnapshot, Length: 64, IovaLo: 16}, regs.CompletionControlStatusDma},
		{"no verb", regs.CommandEntry{HandleGeneration: 0}, regs.CompletionControlStatusStaleHandle},
	} {
		t.Run(x.name, func(t *testing.T) {
			if got := h.command(x.e); got.ControlStatus != x.status {
				t.Errorf("status = %d, want %d", got.ControlStatus, x.status)
			}
		})
	}
	h.want(regs.AmuCommands, 10)
	h.want(regs.AmuCommandError, 9)
	h.want(regs.AmuStatus, 0)
	h.mustDo(bulk(regs.CommandControlTypeRead, 0, 64, m.IOVA))
}

// TestBulkOrder: commands behind a bulk command wait for it, its progress shows in registers.
func TestBulkOrder(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	const n = 1 << 20
	m := h.alloc("data", n)
	first := h.post(bulk(regs.CommandControlTypeRead, regs.MemHeadOffset, n, m.IOVA))
	second := h.post(regs.CommandEntry{ControlType: regs.CommandControlTypeSnapshot, Length: 64, IovaLo: uint32(m.IOVA), IovaHi: uint32(m.IOVA >> 32)})
	h.step()
	h.want(regs.AmuStatus, regs.AmuStatusBulkBusyMask)
	h.want(regs.AmuBulkSequence, first)
	h.want(regs.AmuBulkCookie, ^first)
	h.want(regs.AmuBulkVerb, regs.CommandControlTypeRead)
	left := h.load(regs.AmuBulkLeft)
	if left == 0 || left >= n {
		t.Errorf("bulk_left = %d after one step", left)
	}
	h.want(regs.AmuBulkOffset, uint32(regs.MemHeadOffset)+n-left)
	if got := h.load64(regs.AmuBulkIova); got != m.IOVA+uint64(n-left) {
		t.Errorf("bulk_iova = %#x", got)
	}
	if done := h.completions(); len(done) != 0 {
		t.Fatalf("completions %+v", done)
	}
	h.settle()
	done := h.completions()
	if len(done) != 2 || done[0].Sequence != first || done[1].Sequence != second {
		t.Errorf("completions %+v, want those of %d and %d", done, first, second)
	}
}

func TestSnapshotCommand(t *testing.T) {
	h := newHost(t, emu.Config{Seed: 3}, port.MemConfig{})
	m := h.alloc("data", regs.Bar0Bytes)
	d := h.mustDo(regs.CommandEntry{ControlType: regs.CommandControlTypeSnapshot, Length: regs.Bar0Bytes, IovaLo: uint32(m.IOVA), IovaHi: uint32(m.IOVA >> 32)})
	if got, want := uint64(d.Result[0])|uint64(d.Result[1])<<32, uint64(h.now.Microseconds()); got != want {
		t.Errorf("time = %d µs, want %d", got, want)
	}
	word := func(r regs.Reg) uint32 { return binary.LittleEndian.Uint32(m.Bytes[r:]) }
	for _, r := range []regs.Reg{regs.DirectoryMagic, regs.IdentityPciId, regs.AmuFree, regs.CamHashKey, regs.GeometryPages} {
		if word(r) != h.load(r) || word(r) == 0 {
			t.Errorf("%s = %#x in the snapshot, %#x in BAR0", r.Name(), word(r), h.load(r))
		}
	}
	if word(regs.TransmitIsnKey) != 0 {
		t.Error("a secret in a snapshot")
	}
	h.mustDo(regs.CommandEntry{ControlType: regs.CommandControlTypeSnapshot, Bar2Offset: uint32(regs.PortRxFrames), Length: 8, IovaLo: uint32(m.IOVA), IovaHi: uint32(m.IOVA >> 32)})
}

// TestCAMCounts: whatever a host stores into a CAM's window, by register access or in bulk, free and entries follow.
func TestCAMCounts(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	free, used := regs.CamFree.At(regs.CamServer, regs.CamStride), regs.CamEntries.At(regs.CamServer, regs.CamStride)
	h.want(free, 8192)
	word := regs.CamWordEntry{ControlValid: 1, ControlKind: regs.KindIpv4}
	h.entry(regs.MemCamServer, 0, 17, &word)
	word.ControlKind = regs.KindIpv6
	h.entry(regs.MemCamServer, 0, 20, &word)
	word.ControlSecond = 1
	h.entry(regs.MemCamServer, 0, 21, &word)
	h.want(free, 8189)
	h.want(used, 2)
	// One 32-bit store that takes the valid bit away.
	h.dev.Store32(device.Bar2, regs.Memories[regs.MemCamServer].At(0, 17), 0)
	h.want(free, 8190)
	h.want(used, 1)
	h.mustDo(bulk(regs.CommandControlTypeClear, regs.MemCamClientOffset, int(regs.MemCamServerOffset+8192*32-regs.MemCamClientOffset), 0))
	h.want(free, 8192)
	h.want(used, 0)
	e := bulk(regs.CommandControlTypeFill, regs.MemCamServerOffset+36, 60, 0)
	e.Value = 1 // valid in word 0 of CAM words 2; of CAM word 1 only its other words
	h.mustDo(e)
	h.want(free, 8191)
	h.want(used, 1)
	h.want(regs.CamFree, 4096)
}

func TestDropCompletions(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.card.DropCompletions(1)
	h.post(bulk(regs.CommandControlTypeClear, 0, 4, 0))
	h.settle()
	if done := h.completions(); len(done) != 0 {
		t.Errorf("completions %+v", done)
	}
	h.mustDo(bulk(regs.CommandControlTypeClear, 0, 4, 0))
}
