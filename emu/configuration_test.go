package emu_test

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/flash"
	"splicenic/emu/image"
	"splicenic/emu/port"
	"splicenic/regs"
)

// The configuration port, operation by operation:
//
//	flash_command   read, program, erase, protect, unprotect   done at once, busy for the part's time
//	                while busy                                 ignored
//	                no power in its midst                      off the bus until the power cycle
//	boot_next       any slot                                   kept over resets, boots and power cycles
//	boot_command    a slot there is                            off the bus; then its image, or golden and why
//	                another slot                               refused, nothing else happens
//	icap_command    words                                      to the configuration logic; IPROG boots the slot at WBSTAR
const second = 16 << 20 // where slot 1 starts

// watch is a clock that tests move.
type watch struct{ now time.Duration }

func (w *watch) clock() time.Duration { return w.now }

// board is a card whose control plane goes by a clock that tests move.
type board struct {
	*bench
	watch watch
}

func newBoard(t testing.TB, cfg emu.Config) *board {
	b := &board{}
	cfg.Clock, cfg.BootTime = b.watch.clock, time.Second
	b.bench = newBench(t, cfg, port.MemConfig{})
	return b
}

func flashCommand(operation uint32, n int) uint32 {
	return regs.SetConfigurationFlashCommandLength(regs.SetConfigurationFlashCommandOperation(0, operation), uint32(n))
}

// operate gives the flash controller a command and returns the error it ends with.
func (b *board) operate(operation, at uint32, n int) uint32 {
	b.Helper()
	b.store(regs.ConfigurationFlashAddress, at)
	b.store(regs.ConfigurationFlashCommand, flashCommand(operation, n))
	b.watch.now += time.Second
	w := b.load(regs.ConfigurationFlashStatus)
	if regs.ConfigurationFlashStatusBusy(w) != 0 {
		b.Error("the flash is busy still")
	}
	return regs.ConfigurationFlashStatusError(w)
}

func (b *board) setWindow(p []byte) {
	b.Helper()
	p = append(bytes.Clone(p), 0, 0, 0)
	if err := b.card.WriteRegion(device.Bar0, uint64(regs.ConfigurationFlashWindow), p[:len(p)&^3]); err != nil {
		b.Fatal(err)
	}
}

func (b *board) window(n int) []byte {
	b.Helper()
	p := make([]byte, 256)
	if err := b.card.ReadRegion(device.Bar0, uint64(regs.ConfigurationFlashWindow), p); err != nil {
		b.Fatal(err)
	}
	return p[:n]
}

// write erases what an image needs in the flash and programs it there.
func (b *board) write(at uint32, p []byte) {
	b.Helper()
	for off := 0; off < len(p); off += 64 << 10 {
		if e := b.operate(regs.ConfigurationFlashCommandOperationErase, at+uint32(off), 0); e != 0 {
			b.Fatalf("erase: error %d", e)
		}
	}
	for off := 0; off < len(p); off += 256 {
		page := p[off:min(len(p), off+256)]
		b.setWindow(page)
		if e := b.operate(regs.ConfigurationFlashCommandOperationProgram, at+uint32(off), len(page)); e != 0 {
			b.Fatalf("program: error %d", e)
		}
	}
}

// other is an image with another geometry than small's.
func other() image.Params {
	g := small()
	g.Pages, g.Heads = 2048, 32
	return image.Params{Name: "other", Version: image.Version{2, 3, 4}, UserCode: 0x1234, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry(g)}
}

func encode(t testing.TB, p image.Params) []byte {
	t.Helper()
	s, err := image.Encode(p, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// boot boots a slot and sees the card leave the bus and come back.
func (b *board) boot(slot uint32) {
	b.Helper()
	b.store(regs.ConfigurationBootNext, slot)
	b.store(regs.ConfigurationBootCommand, 1)
	b.away()
	b.watch.now += time.Second
}

// away checks that nothing is on the bus.
func (b *board) away() {
	b.Helper()
	for _, r := range []regs.Reg{regs.DirectoryMagic, regs.IdentityPciId, regs.ConfigurationBootStatus, regs.AmuFree} {
		b.want(r, ^uint32(0))
	}
	b.store(regs.ControlScratch, 5)
	p := make([]byte, 4)
	for _, region := range []int{device.Bar2, device.Bar4} {
		if err := b.card.ReadRegion(region, 0, p); err != nil || binary.LittleEndian.Uint32(p) != ^uint32(0) {
			b.Errorf("region %d reads % x, %v", region, p, err)
		}
	}
	if err := b.card.ReadConfig(0, p); err != nil || binary.LittleEndian.Uint32(p) != ^uint32(0) {
		b.Errorf("configuration space reads % x, %v", p, err)
	}
	if err := b.card.Reset(); err == nil {
		b.Error("a card that is off the bus was reset")
	}
}

// runs checks where the running image came from.
func (b *board) runs(name string, boot, failed uint32) {
	b.Helper()
	p := make([]byte, 32)
	if err := b.card.ReadRegion(device.Bar0, uint64(regs.IdentityName), p); err != nil {
		b.Fatal(err)
	}
	if got := string(bytes.TrimRight(p, "\x00")); got != name {
		b.Errorf("image %q runs, want %q", got, name)
	}
	b.want(regs.IdentityBoot, boot)
	b.want(regs.ConfigurationBootStatus, failed<<regs.ConfigurationBootStatusErrorShift)
}

const (
	golden   = regs.IdentityBootGoldenMask
	fallback = regs.IdentityBootGoldenMask | regs.IdentityBootFallbackMask
)

func TestConfigurationFacts(t *testing.T) {
	b := newBoard(t, emu.Config{})
	for r, v := range map[regs.Reg]uint32{
		regs.ConfigurationFlashId: 0x20ba20, regs.ConfigurationFlashSize: 64 << 20, regs.ConfigurationFlashSector: 64 << 10, regs.ConfigurationFlashPage: 256,
		regs.ConfigurationBootSlots: 3, regs.ConfigurationBootNext: 0, regs.ConfigurationFlashStatus: 0, regs.ConfigurationIcapStatus: 0,
		regs.ConfigurationBootOffset: 0, regs.ConfigurationBootOffset + 4: second, regs.ConfigurationBootOffset + 8: 2 * second, regs.ConfigurationBootOffset + 12: 0,
		regs.ConfigurationBootBytes: second, regs.ConfigurationBootBytes + 4: second, regs.ConfigurationBootBytes + 8: second, regs.ConfigurationBootBytes + 12: 0,
		regs.IdentityIdcode: 0x13636093, regs.IdentityImageVersion: 1 << 24, regs.IdentityUserCode: 1, regs.ControlStatus: 1, regs.ControlFault: 0,
		regs.DirectoryDataPathDigest: regs.DataPathDigest,
	} {
		b.want(r, v)
	}
	b.runs("emulator", golden, regs.ConfigurationBootStatusErrorNone)
}

func TestFlashOperations(t *testing.T) {
	b := newBoard(t, emu.Config{})
	text := []byte("some bytes, not a multiple of 4")
	b.setWindow(text)
	if e := b.operate(regs.ConfigurationFlashCommandOperationProgram, second+3, len(text)); e != 0 {
		t.Fatalf("program: error %d", e)
	}
	b.setWindow(make([]byte, 256))
	if e := b.operate(regs.ConfigurationFlashCommandOperationRead, second+2, len(text)+2); e != 0 {
		t.Fatalf("read: error %d", e)
	}
	if got := b.window(40); !bytes.Equal(got, append(append([]byte{0xff}, text...), 0xff, 0, 0, 0, 0, 0, 0, 0)) {
		t.Errorf("read %q: what is beyond its length has changed, or what is within is wrong", got)
	}
	b.want(regs.ConfigurationFlashCommand, 0)

	b.store(regs.ConfigurationFlashAddress, second)
	b.store(regs.ConfigurationFlashCommand, flashCommand(regs.ConfigurationFlashCommandOperationErase, 0))
	b.want(regs.ConfigurationFlashStatus, regs.ConfigurationFlashStatusBusyMask)
	b.store(regs.ConfigurationFlashCommand, flashCommand(regs.ConfigurationFlashCommandOperationRead, 4)) // is ignored
	b.watch.now += 1499 * time.Microsecond                                                                // a hundredth of what the part takes
	b.want(regs.ConfigurationFlashStatus, regs.ConfigurationFlashStatusBusyMask)
	b.watch.now += time.Microsecond
	b.want(regs.ConfigurationFlashStatus, 0)
	if got := b.window(1); got[0] != 0xff {
		t.Errorf("the window is % x: a command took effect while the flash was busy", got)
	}
	if e := b.operate(regs.ConfigurationFlashCommandOperationRead, second+2, 3); e != 0 || !bytes.Equal(b.window(3), []byte{0xff, 0xff, 0xff}) {
		t.Errorf("error %d, erased flash is % x", e, b.window(3))
	}
}

func TestFlashErrors(t *testing.T) {
	b := newBoard(t, emu.Config{})
	const (
		read, program, erase     = regs.ConfigurationFlashCommandOperationRead, regs.ConfigurationFlashCommandOperationProgram, regs.ConfigurationFlashCommandOperationErase
		none, address, protected = regs.ConfigurationFlashStatusErrorNone, regs.ConfigurationFlashStatusErrorAddress, regs.ConfigurationFlashStatusErrorProtected
	)
	b.setWindow([]byte{0})
	b.card.WithFlash(func(f *flash.Flash) { f.Break(second>>16, true) })
	for _, x := range []struct {
		name          string
		operation, at uint32
		n             int
		want          uint32
	}{
		{"read behind the end", read, 64<<20 - 1, 2, address},
		{"read too much", read, 0, 257, address},
		{"read nothing", read, 0, 0, address},
		{"program behind the end", program, 64 << 20, 1, address},
		{"program too much", program, 0, 511, address},
		{"erase behind the end", erase, 1<<31 - 1, 0, address},
		{"no operation", 9, 0, 0, address},
		{"nothing", regs.ConfigurationFlashCommandOperationNone, 0, 0, none},
		{"program a bad sector", program, second + 1, 1, regs.ConfigurationFlashStatusErrorProgramFailed},
		{"erase a bad sector", erase, second, 0, regs.ConfigurationFlashStatusErrorEraseFailed},
		{"protect", regs.ConfigurationFlashCommandOperationProtect, 0, 0, none},
		{"program", program, 2 * second, 1, protected},
		{"erase", erase, 2 * second, 0, protected},
		{"read", read, 2 * second, 1, none},
	} {
		if got := b.operate(x.operation, x.at, x.n); got != x.want {
			t.Errorf("%s: error %d, want %d", x.name, got, x.want)
		}
	}
	b.want(regs.ConfigurationFlashStatus, regs.ConfigurationFlashStatusProtectedMask)
	if err := b.card.Reset(); err != nil {
		t.Fatal(err)
	}
	b.want(regs.ConfigurationFlashStatus, regs.ConfigurationFlashStatusProtectedMask)
	if e := b.operate(regs.ConfigurationFlashCommandOperationUnprotect, 0, 0); e != none {
		t.Errorf("unprotect: error %d", e)
	}
	b.want(regs.ConfigurationFlashStatus, 0)
}

// TestBoot: another image makes another card of it, and nothing of the one before is left.
func TestBoot(t *testing.T) {
	b := newBoard(t, emu.Config{Seed: 1, Serial: 7})
	b.serve()
	b.write(second, encode(t, other()))
	if err := b.card.WriteConfig(4, []byte{6, 0}); err != nil {
		t.Fatal(err)
	}
	if err := b.card.SetVectors(make([]func(), 3)); err != nil {
		t.Fatal(err)
	}
	b.store(regs.RingEntries, 256)
	b.store(regs.ControlScratch, 9)
	fresh := make([]byte, 4096)
	if err := newBoard(t, emu.Config{Serial: 7}).card.ReadConfig(0, fresh); err != nil {
		t.Fatal(err)
	}
	b.boot(1)
	b.runs("other", 1, regs.ConfigurationBootStatusErrorNone)
	for r, v := range map[regs.Reg]uint32{
		regs.IdentityImageVersion: 2<<24 | 3<<16 | 4, regs.IdentityUserCode: 0x1234, regs.IdentitySerial: 7,
		regs.GeometryPages: 2048, regs.GeometryHeads: 32, regs.AmuFree: 2048, regs.HeadFree: 32,
		regs.ControlScratch: 0, regs.RingEntries: 0, regs.PortControl: 0, regs.ControlStatus: 1, regs.ConfigurationBootNext: 1,
	} {
		b.want(r, v)
	}
	now := make([]byte, 4096)
	if err := b.card.ReadConfig(0, now); err != nil || !bytes.Equal(now, fresh) {
		t.Errorf("configuration space is not as after power-on, %v", err)
	}
	page := make([]byte, 4)
	last := regs.Memories[regs.MemPage].At(0, 2047)
	if err := b.card.WriteRegion(device.Bar2, last, []byte{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	if err := b.card.ReadRegion(device.Bar2, last, page); err != nil || !bytes.Equal(page, []byte{1, 2, 3, 4}) {
		t.Errorf("page 2047 holds % x, %v: the memories are not the new image's", page, err)
	}
	b.serve()
	b.splice(t)

	if err := b.card.Reset(); err != nil { // a reset of the function boots nothing
		t.Fatal(err)
	}
	b.runs("other", 1, regs.ConfigurationBootStatusErrorNone)
	b.want(regs.GeometryPages, 2048)
	b.boot(0)
	b.runs("emulator", golden, regs.ConfigurationBootStatusErrorNone)
	b.want(regs.GeometryPages, 1024)
	b.want(regs.AmuFree, 1024)
}

// TestBootForeign: an image of another map has a shell like every other, and a data path that is not there.
func TestBootForeign(t *testing.T) {
	b := newBoard(t, emu.Config{})
	b.serve()
	p := other()
	p.DataPathDigest = 0xdead0001
	b.write(second, encode(t, p))
	b.boot(1)
	b.runs("other", 1, regs.ConfigurationBootStatusErrorNone)
	b.want(regs.DirectoryDataPathDigest, 0xdead0001)
	b.want(regs.DirectoryShellDigest, regs.ShellDigest)
	b.want(regs.ControlFault, 0)
	b.silent()
	b.boot(0)
	b.want(regs.DirectoryDataPathDigest, regs.DataPathDigest)
	b.want(regs.DirectoryEntries, uint32(len(regs.Blocks)))
	b.serve()
	b.splice(t)
}

// silent checks that the shell is all there is.
func (b *board) silent() {
	b.Helper()
	b.want(regs.ControlStatus&^0, b.load(regs.ControlStatus)&^regs.ControlStatusReadyMask)
	n := b.load(regs.DirectoryEntries)
	for i := range n {
		if off := b.load(regs.DirectoryEntryOffset.At(int(i), regs.DirectoryEntryOffsetStride)); off > uint32(regs.SensorBase) {
			b.Errorf("directory entry %d leads to %#x", i, off)
		}
	}
	if n != 5 {
		b.Errorf("%d directory entries, the shell has 5", n)
	}
	b.store(portReg(regs.PortControl, 0), regs.PortControlEnableMask)
	b.store(regs.AmuControl, regs.AmuControlEnableMask)
	b.store(regs.ControlReset, 3)
	b.store(regs.ControlInterruptTest, 7)
	for _, r := range []regs.Reg{regs.AmuControl, regs.AmuFree, regs.GeometryPages, regs.PortControl, regs.PortMacLo, regs.PortMtu, regs.HostifInterrupts, regs.ControlReset} {
		b.want(r, 0)
	}
	if err := b.card.WriteRegion(device.Bar2, 0, []byte{1, 2, 3, 4}); err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 4)
	if err := b.card.ReadRegion(device.Bar2, 0, p); err != nil || !bytes.Equal(p, make([]byte, 4)) {
		b.Errorf("BAR2 holds % x, %v", p, err)
	}
	for i := range 100 {
		b.send(0, syn(uint16(1000+i), 1).build(false), noOffload)
		b.step()
	}
	if out := b.drain(); len(out) != 0 {
		b.Errorf("%d frames came out", len(out))
	}
	b.store(regs.ControlScratch, 77)
	b.want(regs.ControlScratch, 77)
	if err := b.card.Restore(b.card.Snapshot()); err != nil {
		b.Error(err)
	}
	b.want(regs.ControlScratch, 77)
	if err := b.card.Reset(); err != nil {
		b.Error(err)
	}
	b.want(regs.AmuFree, 0)
}

// TestFallback: whatever is in the next slot, golden runs when that does not load, and the card says why.
func TestFallback(t *testing.T) {
	b := newBoard(t, emu.Config{})
	good := encode(t, other())
	damaged := bytes.Clone(good)
	damaged[bytes.Index(damaged, []byte("other"))] ^= 1
	wrong := bytes.Clone(good)
	wrong[bytes.Index(wrong, []byte{0x30, 0x01, 0x80, 0x01})+7] ^= 1
	tooLarge := other()
	tooLarge.Geometry.Pages = 1 << 31
	for _, x := range []struct {
		name   string
		stream []byte
		failed uint32
	}{
		{"blank", nil, regs.ConfigurationBootStatusErrorNoSync},
		{"damaged", damaged, regs.ConfigurationBootStatusErrorCrc},
		{"other part", wrong, regs.ConfigurationBootStatusErrorIdcode},
		{"half", good[:len(good)/2], regs.ConfigurationBootStatusErrorCrc},
		{"geometry that no card has", encode(t, tooLarge), regs.ConfigurationBootStatusErrorCrc},
	} {
		t.Run(x.name, func(t *testing.T) {
			b.write(2*second, append(bytes.Clone(x.stream), 0xff))
			b.boot(2)
			b.runs("emulator", fallback, x.failed)
			b.want(regs.ControlStatus, regs.ControlStatusReadyMask)
			b.want(regs.ConfigurationBootNext, 2)
		})
	}
	b.boot(0)
	b.runs("emulator", golden, regs.ConfigurationBootStatusErrorNone)
}

func TestBootSlotRefused(t *testing.T) {
	b := newBoard(t, emu.Config{})
	b.store(regs.ConfigurationBootNext, 3)
	b.store(regs.ConfigurationBootCommand, 1)
	b.want(regs.ConfigurationBootCommand, 0)
	b.runs("emulator", golden, regs.ConfigurationBootStatusErrorSlot)
	b.want(regs.AmuFree, 1024)
	if err := b.card.PowerCycle(); err != nil { // power-on does not ask
		t.Fatal(err)
	}
	b.runs("emulator", fallback, regs.ConfigurationBootStatusErrorSlot)
}

// TestBareShell: without any image that loads the shell answers, so that the flash can be written.
func TestBareShell(t *testing.T) {
	empty, err := flash.New(flash.Config{Scale: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	b := newBoard(t, emu.Config{Flash: empty})
	bare := func() {
		t.Helper()
		b.runs("", golden, regs.ConfigurationBootStatusErrorNoSync)
		b.want(regs.ControlStatus, regs.ControlStatusFaultMask)
		b.want(regs.ControlFault, 1)
		b.want(regs.DirectoryDataPathDigest, 0)
		b.want(regs.IdentityPciId, regs.VendorID|regs.DeviceID<<16)
		b.silent()
	}
	bare()
	b.boot(1) // neither
	b.runs("", fallback, regs.ConfigurationBootStatusErrorNoSync)
	b.boot(0)
	bare()
	b.write(0, encode(t, other()))
	b.boot(0)
	b.runs("other", golden, regs.ConfigurationBootStatusErrorNone)
	b.want(regs.ControlStatus, regs.ControlStatusReadyMask)
	b.want(regs.ControlFault, 0)
	b.serve()
	b.splice(t)
}

// TestBootNextKept: the board keeps it over everything.
func TestBootNextKept(t *testing.T) {
	b := newBoard(t, emu.Config{})
	b.write(second, encode(t, other()))
	b.store(regs.ConfigurationBootNext, 1)
	if err := b.card.Reset(); err != nil {
		t.Fatal(err)
	}
	b.want(regs.ConfigurationBootNext, 1)
	b.runs("emulator", golden, regs.ConfigurationBootStatusErrorNone)
	if err := b.card.PowerCycle(); err != nil {
		t.Fatal(err)
	}
	b.want(regs.ConfigurationBootNext, 1)
	b.runs("other", 1, regs.ConfigurationBootStatusErrorNone)
	b.boot(1)
	b.want(regs.ConfigurationBootNext, 1)
}

// TestFlashFile: a card is what the file makes it, next slot included, and a new file gets golden.
func TestFlashFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "card.flash")
	b := newBoard(t, emu.Config{FlashFile: path})
	b.runs("emulator", golden, regs.ConfigurationBootStatusErrorNone)
	if _, err := emu.New(emu.Config{Client: b.near[0], FlashFile: path}); err == nil {
		t.Error("two cards have one flash")
	}
	b.write(second, encode(t, other()))
	b.store(regs.ConfigurationBootNext, 1)
	if err := b.card.Close(); err != nil {
		t.Fatal(err)
	}
	b = newBoard(t, emu.Config{FlashFile: path})
	b.runs("other", 1, regs.ConfigurationBootStatusErrorNone)
	b.want(regs.GeometryPages, 2048)
	b.want(regs.AmuFree, 2048)
	b.serve()
	b.splice(t)
}

// TestPowerFails: power fails in the midst of a command, the card is gone until it is back, and the sector is half done.
func TestPowerFails(t *testing.T) {
	b := newBoard(t, emu.Config{})
	stream := encode(t, other())
	b.write(second, stream)
	b.store(regs.ConfigurationBootNext, 1)
	b.card.WithFlash(func(f *flash.Flash) { f.CutAfter(0) })
	b.setWindow(make([]byte, 256))
	b.store(regs.ConfigurationFlashAddress, second)
	b.store(regs.ConfigurationFlashCommand, flashCommand(regs.ConfigurationFlashCommandOperationProgram, 256))
	b.away()
	b.watch.now += time.Hour
	b.away()
	if b.step() {
		t.Error("a card without power works")
	}
	if err := b.card.PowerCycle(); err != nil {
		t.Fatal(err)
	}
	b.runs("emulator", fallback, regs.ConfigurationBootStatusErrorNoSync)
	want := append(make([]byte, 128), stream[128:256]...)
	if e := b.operate(regs.ConfigurationFlashCommandOperationRead, second, 256); e != 0 || !bytes.Equal(b.window(256), want) {
		t.Errorf("error %d, the page holds % x", e, b.window(256))
	}
}

// TestAddressWrap: a flash that ignores an address line is no other card, only a wrong one: the host has to find out.
func TestAddressWrap(t *testing.T) {
	b := newBoard(t, emu.Config{})
	b.card.WithFlash(func(f *flash.Flash) { f.Wrap(1 << 21) })
	b.setWindow([]byte{0x42})
	if e := b.operate(regs.ConfigurationFlashCommandOperationProgram, second+1<<21, 1); e != 0 {
		t.Fatalf("error %d", e)
	}
	for _, at := range []uint32{second, second + 1<<21} {
		if e := b.operate(regs.ConfigurationFlashCommandOperationRead, at, 1); e != 0 || b.window(1)[0] != 0x42 {
			t.Errorf("at %#x: % x, error %d", at, b.window(1), e)
		}
	}
}

func TestBootInRun(t *testing.T) {
	b := newBench(t, emu.Config{BootTime: 5 * time.Millisecond}, port.MemConfig{})
	b.store(regs.ConfigurationBootCommand, 1)
	b.want(regs.DirectoryMagic, ^uint32(0))
	deadline := time.Now().Add(10 * time.Second)
	for b.load(regs.DirectoryMagic) != regs.Magic {
		if time.Now().After(deadline) {
			t.Fatal("the card does not come back")
		}
		time.Sleep(time.Millisecond)
	}
	b.want(regs.AmuFree, 1024)
}

// icap sends words to the configuration logic.
func (b *board) icap(words ...uint32) {
	b.Helper()
	for i, w := range words {
		b.store(regs.ConfigurationIcapWindow.At(i, regs.ConfigurationIcapWindowStride), w)
	}
	b.store(regs.ConfigurationIcapCommand, uint32(len(words)))
}

func TestICAP(t *testing.T) {
	const (
		sync, nop, desync      = 0xaa995566, 0x20000000, 13
		cmd, idcode, wbstar    = 0x30008001, 0x30018001, 0x30020001
		synced                 = regs.ConfigurationIcapStatusSyncedMask
		errorShift             = regs.ConfigurationIcapStatusErrorShift
		badID, badCRC, badWord = regs.ConfigurationIcapStatusErrorIdcode << errorShift, regs.ConfigurationIcapStatusErrorCrc << errorShift, regs.ConfigurationIcapStatusErrorCommand << errorShift
	)
	b := newBoard(t, emu.Config{})
	for _, x := range []struct {
		name  string
		words []uint32
		want  uint32
	}{
		{"no sync", []uint32{0xffffffff, nop, cmd, 15}, 0},
		{"sync", []uint32{0xffffffff, sync, nop}, synced},
		{"own part", []uint32{idcode, 0x03636093}, synced},
		{"other part", []uint32{idcode, 0x0362d093}, badID},
		{"unsynced after it", []uint32{cmd, 15}, badID},
		{"sync forgets", []uint32{sync}, synced},
		{"crc", []uint32{0x30000001, 0x12345678}, badCRC},
		{"no packet", []uint32{sync, 0xffffffff}, badWord},
		{"desync", []uint32{sync, cmd, desync}, 0},
		{"iprog without sync", []uint32{cmd, 15}, 0},
	} {
		b.icap(x.words...)
		if got := b.load(regs.ConfigurationIcapStatus); got != x.want {
			t.Errorf("%s: status %#x, want %#x", x.name, got, x.want)
		}
	}
	b.store(regs.ConfigurationIcapCommand, 65)
	b.want(regs.ConfigurationIcapStatus, badWord)
	b.want(regs.ConfigurationIcapCommand, 0)

	b.write(second, encode(t, other()))
	b.icap(0xffffffff, sync, nop, wbstar, second, cmd, 15, nop)
	b.away()
	b.watch.now += time.Second
	b.runs("other", 1, regs.ConfigurationBootStatusErrorNone)
	b.want(regs.ConfigurationBootNext, 0)
	b.want(regs.ConfigurationIcapStatus, 0)
	b.icap(sync, wbstar, second+256, cmd, 15)
	b.watch.now += time.Second
	b.runs("emulator", fallback, regs.ConfigurationBootStatusErrorSlot)
	b.icap(sync, cmd)
	b.icap(15) // WBSTAR is 0: golden
	b.watch.now += time.Second
	b.runs("emulator", golden, regs.ConfigurationBootStatusErrorNone)
}

func TestSensors(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	hot, low := uint32(regs.SensorAlarmTemperatureMask), uint32(regs.SensorAlarmVccintMask|regs.SensorAlarmVccauxMask)
	h.want(regs.SensorAlarm, 0)
	h.card.SetSensors(emu.Sensors{Temperature: -20_000, Vccint: 949, Vccaux: 1709})
	h.want(regs.SensorTemperature, 0xffb1e0)
	h.want(regs.SensorVccint, 949)
	h.want(regs.SensorAlarm, low)
	h.want(regs.HostifCause, regs.HostifCauseSensorMask)
	h.store(regs.HostifCause, regs.HostifCauseSensorMask)
	h.store(regs.SensorAlarm, low) // comes back, for it holds, and is no news
	h.want(regs.SensorAlarm, low)
	h.want(regs.HostifCause, 0)
	h.store(regs.SensorVccintLow, 900)
	h.store(regs.SensorAlarm, low)
	h.want(regs.SensorAlarm, regs.SensorAlarmVccauxMask)
	h.card.SetSensors(emu.Sensors{Temperature: 85_001, Vccint: 1000, Vccaux: 1710})
	h.want(regs.SensorAlarm, regs.SensorAlarmVccauxMask|hot) // seen since it was cleared
	h.want(regs.HostifCause, regs.HostifCauseSensorMask)
	h.store(regs.SensorAlarm, regs.SensorAlarmVccauxMask)
	h.want(regs.SensorAlarm, hot)
	h.store(regs.SensorTemperatureLimit, 85_001)
	h.store(regs.SensorAlarm, hot)
	h.want(regs.SensorAlarm, 0)
	h.store(regs.SensorTemperatureLimit, 0xffffff) // below zero
	h.want(regs.SensorAlarm, hot)
	if err := h.card.Reset(); err != nil {
		t.Fatal(err)
	}
	h.want(regs.SensorTemperature, 85_001) // it is as hot as before
	h.want(regs.SensorTemperatureLimit, 85_000)
	h.want(regs.SensorAlarm, hot)
}

// FuzzConfiguration stores anything into the configuration port and the sensors, moves time and cuts the power. Whatever
// it is, the card comes back, and a power cycle brings golden or what lies in a slot.
func FuzzConfiguration(f *testing.F) {
	op := func(a, b uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, a), b)
	}
	f.Add(op(uint32(regs.ConfigurationFlashCommand), flashCommand(regs.ConfigurationFlashCommandOperationErase, 0)))
	f.Add(append(op(uint32(regs.ConfigurationBootNext), 1), op(uint32(regs.ConfigurationBootCommand), 1)...))
	f.Add(append(op(uint32(regs.ConfigurationIcapWindow), 0xaa995566), op(uint32(regs.ConfigurationIcapCommand), 64)...))
	f.Add(append(op(uint32(regs.SensorTemperatureLimit), 0xffffff), op(uint32(regs.SensorAlarm), 7)...))
	f.Add(append(op(0xc000_0000, 0), op(uint32(regs.ConfigurationFlashCommand), flashCommand(regs.ConfigurationFlashCommandOperationProgram, 256))...))
	b := newBoard(f, emu.Config{Strict: true}) // one for all: a card is made much slower than its power is cycled
	first := image.Params{Name: "emulator", DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry(small())}
	f.Fuzz(func(t *testing.T, in []byte) {
		b.TB, b.now = t, 0
		if err := b.card.PowerCycle(); err != nil {
			t.Fatal(err)
		}
		b.operate(regs.ConfigurationFlashCommandOperationUnprotect, 0, 0)
		b.store(regs.ConfigurationBootNext, 0)
		b.write(0, encode(t, first))
		b.write(second, encode(t, other()))
		if err := b.card.PowerCycle(); err != nil {
			t.Fatal(err)
		}
		for n := 0; len(in) >= 8 && n < 64; n++ {
			at, v := binary.LittleEndian.Uint32(in), binary.LittleEndian.Uint32(in[4:])
			in = in[8:]
			switch at >> 30 {
			case 3:
				b.card.WithFlash(func(f *flash.Flash) { f.CutAfter(int(v % 4)) })
			case 2:
				b.watch.now += time.Duration(v)
				b.step()
			default:
				b.store(regs.Reg(0x4000+at%0x3000)&^3, v)
			}
		}
		b.watch.now += time.Hour
		b.step()
		if err := b.card.PowerCycle(); err != nil {
			t.Fatal(err)
		}
		b.want(regs.DirectoryMagic, regs.Magic)
		b.want(regs.ControlReset, 0)
		if st := b.load(regs.ControlStatus); st != regs.ControlStatusReadyMask && (st != regs.ControlStatusFaultMask || b.load(regs.ControlFault) != 1) {
			t.Errorf("status %#x, fault %d", st, b.load(regs.ControlFault))
		}
	})
}
