package slots

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"splicenic/bitstream"
	"splicenic/bitstream/container"
	"splicenic/bitstream/program"
	"splicenic/bitstream/xilinx"
	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/emu"
	emuflash "splicenic/emu/flash"
	"splicenic/emu/image"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/runtime/flash"
	"splicenic/tools/control"
	"splicenic/tools/signing"
)

// A bench is an emulated card and a key that it trusts.
type bench struct {
	*testing.T
	emu *emu.Card
	s   *Session
	key ed25519.PrivateKey
	pub string // file
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, pub: filepath.Join(t.TempDir(), "release.pub")}
	var err error
	if _, b.key, err = ed25519.GenerateKey(nil); err != nil {
		t.Fatal(err)
	}
	_, text, err := container.MarshalKey(b.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.pub, text, 0o644); err != nil {
		t.Fatal(err)
	}
	wire, _ := port.Pair(port.MemConfig{})
	if b.emu, err = emu.New(emu.Config{Client: wire, Geometry: emu.Geometry{Pages: 1024}}); err != nil {
		t.Fatal(err)
	}
	dev := device.Local(b.emu, device.LocalConfig{})
	t.Cleanup(func() {
		if err := errors.Join(dev.Close(), b.emu.Close()); err != nil {
			t.Error(err)
		}
	})
	drv, err := driver.Open(t.Context(), dev, driver.Config{Shell: true})
	if err != nil {
		t.Fatal(err)
	}
	b.s = &Session{flash.Of(drv), "emu", func() error { return nil }}
	return b
}

// load is a load of a file with this content, as the command does it.
func (b *bench) load(file []byte, r Request) error {
	b.Helper()
	r.File, r.Keys, r.Slot = "-", []string{b.pub}, 1
	img, err := ReadImage(r, bytes.NewReader(file))
	if err != nil {
		return err
	}
	p, err := Plan(b.Context(), b.s, img, r, nil)
	if err != nil {
		return err
	}
	return Run(b.Context(), p, nil)
}

// changes are how often the card's flash was erased and programmed.
func (b *bench) changes() (erases, programs uint64) {
	b.Helper()
	b.emu.WithFlash(func(f *emuflash.Flash) {
		n := f.Counts().Operations
		erases, programs = n[emuflash.Erase], n[emuflash.Program]
	})
	return erases, programs
}

// refused wants an error that says all of these, and an untouched flash.
func (b *bench) refused(what string, err error, says ...string) {
	b.Helper()
	b.refusedAfter(what, err, 0, 0, says...)
}

// refusedAfter is refused on a flash that was erased and programmed so often before.
func (b *bench) refusedAfter(what string, err error, e0, p0 uint64, says ...string) {
	b.Helper()
	if err == nil {
		b.Fatalf("%s: loaded", what)
	}
	text := err.Error()
	if f, ok := errors.AsType[*control.Failure](err); ok {
		text = f.What + ": " + f.Why
	}
	for _, s := range says {
		if !strings.Contains(text, s) {
			b.Errorf("%s: %q does not say %q", what, text, s)
		}
	}
	if e, p := b.changes(); e != e0 || p != p0 {
		b.Fatalf("%s: refused after %d erases and %d programs", what, e-e0, p-p0)
	}
}

// params are those of a small image.
func params(name string) image.Params {
	return image.Params{Name: name, Version: image.Version{2, 0, 0}, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry{Pages: 1024}}
}

// signed is a small image in a container.
func (b *bench) signed(r signing.Request) []byte {
	b.Helper()
	bit, err := image.EncodeBit(params("next"), image.Options{}, "2026/01/02", "03:04:05")
	if err != nil {
		b.Fatal(err)
	}
	return b.sign(bit, r)
}

func (b *bench) sign(bit []byte, r signing.Request) []byte {
	b.Helper()
	img, err := bitstream.Read(bytes.NewReader(bit), bitstream.Options{})
	if err != nil {
		b.Fatal(err)
	}
	r.Version, r.Created = "2.0.0", time.Unix(1_700_000_000, 0)
	if r.Board == 0 {
		r.Board = 1
	}
	if r.Name == "" {
		r.Name = "next"
	}
	spl, err := signing.Sign(img, r, b.key)
	if err != nil {
		b.Fatal(err)
	}
	return spl
}

// TestStrangersManifest: what a container says that nobody trusted has signed is not recorded, least of all its counter.
func TestStrangersManifest(t *testing.T) {
	b := newBench(t)
	own := b.key
	if _, b.key, _ = ed25519.GenerateKey(nil); b.key == nil {
		t.Fatal("no key")
	}
	file := b.signed(signing.Request{Rollback: 1<<32 - 1})
	b.key = own
	if err := b.load(file, Request{Unsigned: true}); err != nil {
		t.Fatal(err)
	}
	if err := program.Mark(t.Context(), b.s.Card, 1, program.Good); err != nil { // as a boot does
		t.Fatal(err)
	}
	r, err := program.OpenRecords(t.Context(), b.s.Card)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Slot(1); s.Signed || s.Rollback != 0 || s.Version != "" || s.State != program.Good || r.Floor() != 0 {
		t.Errorf("recorded %+v, floor %d: want an unsigned image without a counter", s, r.Floor())
	}
	if err := b.load(b.signed(signing.Request{Rollback: 1}), Request{}); err != nil {
		t.Errorf("afterwards a trusted image is refused: %v", err)
	}
}

// TestEveryByteIsCovered changes a bit of every byte of a container, and cuts it everywhere: nothing is loaded, and the
// flash is not touched. SPLICE_LONG: each bit.
func TestEveryByteIsCovered(t *testing.T) {
	b := newBench(t)
	spl := b.signed(signing.Request{})
	flips := 0
	for i := range spl {
		for bit := range 8 {
			if os.Getenv("SPLICE_LONG") == "" && bit != i*5%8 {
				continue
			}
			bad := bytes.Clone(spl)
			bad[i] ^= 1 << bit
			b.refused("bit flipped at "+where(spl, i), b.load(bad, Request{}))
			if i >= payloadAt(spl) { // whoever signed it
				b.refused("bit flipped, unsigned, at "+where(spl, i), b.load(bad, Request{Unsigned: true}))
			}
			flips++
		}
	}
	for n := range spl {
		b.refused("cut before "+where(spl, n), b.load(spl[:n], Request{}))
	}
	b.refused("one byte more", b.load(append(bytes.Clone(spl), 0xff), Request{}))
	t.Logf("%d bytes, %d bits flipped: none loaded, nothing erased, nothing programmed", len(spl), flips)

	if err := b.load(spl, Request{}); err != nil {
		t.Fatalf("the container as it is: %v", err)
	}
	if erases, programs := b.changes(); erases == 0 || programs == 0 {
		t.Errorf("%d erases, %d programs by a load", erases, programs)
	}
}

// payloadAt is where a container's payload starts.
func payloadAt(spl []byte) int {
	return 16 + int(binary.LittleEndian.Uint32(spl[12:])) + ed25519.PublicKeySize + ed25519.SignatureSize
}

// where names a place in a container.
func where(spl []byte, i int) string {
	p := payloadAt(spl)
	part, at := "head", i
	switch {
	case i >= p:
		part, at = "payload", i-p
	case i >= p-ed25519.SignatureSize:
		part, at = "signature", i-p+ed25519.SignatureSize
	case i >= p-ed25519.SignatureSize-ed25519.PublicKeySize:
		part, at = "key", i-p+ed25519.SignatureSize+ed25519.PublicKeySize
	case i >= 16:
		part, at = "manifest", i-16
	}
	return fmt.Sprintf("%s+%d", part, at)
}

// TestOtherCards: what is well signed and for something else is refused with both values, and nothing is erased.
func TestOtherCards(t *testing.T) {
	b := newBench(t)
	zeros, ones := strings.Repeat("0", 64), strings.Repeat("1", 64)
	b.refused("board", b.load(b.signed(signing.Request{Board: 2}), Request{}), "board", "board 2", "board 1")
	b.refused("shell digest", b.load(b.signed(signing.Request{ShellDigest: zeros}), Request{}), "shell digest", zeros, regs.ShellDigest256)
	b.refused("data-path digest", b.load(b.signed(signing.Request{DataPathDigest: ones}), Request{}), "data-path digest", ones, regs.DataPathDigest256)

	other := xilinx.Encoder{IDCode: 0x03631093, Runs: []xilinx.Run{{Words: make([]uint32, xilinx.FrameWords)}}} // XC7A100T
	foreign := other.Append(nil)
	b.refused("part", b.load(b.sign(foreign, signing.Request{}), Request{}), "3631093", "3636093")
	b.refused("part, unsigned", b.load(foreign, Request{Unsigned: true}), "3631093", "3636093")

	// The manifest tells of this card's part, what is signed with it is for another one.
	mine, err := container.Open(b.signed(signing.Request{}))
	if err != nil {
		t.Fatal(err)
	}
	lie, err := container.Sign(mine.Manifest, foreign, b.key)
	if err != nil {
		t.Fatal(err)
	}
	b.refused("another part than the manifest's", b.load(lie, Request{}), "3631093")

	// A card that took counter 5.
	if err := b.load(b.signed(signing.Request{Rollback: 5}), Request{}); err != nil {
		t.Fatal(err)
	}
	if err := program.Mark(t.Context(), b.s, 1, program.Good); err != nil {
		t.Fatal(err)
	}
	e, p := b.changes()
	for _, unsigned := range []bool{false, true} { // a signed image's counter counts whatever is said
		b.refusedAfter("rollback", b.load(b.signed(signing.Request{Rollback: 4, Name: "older"}), Request{Unsigned: unsigned}), e, p, "rollback", "counter is 4", "5")
	}
	if err := b.load(b.signed(signing.Request{Rollback: 5}), Request{}); err != nil {
		t.Errorf("the same counter again: %v", err)
	}
}

// TestMissingAddressLine: a flash that ignores address line 21 fails an image of 3 MiB where the line first counts, in a slot
// and raw bytes behind all slots, with offset, both values and a suspicion.
func TestMissingAddressLine(t *testing.T) {
	stream, err := image.Encode(params("next"), image.Options{Bytes: 3 << 20})
	if err != nil {
		t.Fatal(err)
	}
	raw := bytes.Repeat([]byte{0x5a, 0xc3}, 3<<19)
	raw[2<<20] = 0x33
	for name, tt := range map[string]struct {
		file []byte
		r    Request
		at   uint32
	}{
		"slot": {stream, Request{Unsigned: true}, 0x1200000},
		"raw":  {raw, Request{Raw: true, Offset: new(uint32(0x3400000))}, 0x3600000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.emu.WithFlash(func(f *emuflash.Flash) { f.Wrap(0x200000) })
			err := b.load(tt.file, tt.r)
			m, ok := errors.AsType[*program.MismatchError](err)
			if !ok || m.Offset < 0x200000 || m.Offset >= 0x200000+256 || m.Address&^0xff != tt.at || bytes.Equal(m.Want, m.Got) || len(m.Want) == 0 || !strings.Contains(m.Suspect, "address wrap or flash size") {
				t.Errorf("%v, want a mismatch in the page at offset 0x200000, with both values and a suspicion", err)
			}
		})
	}
}
