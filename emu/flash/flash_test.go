package flash

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tiny is a part that tests can look at as a whole.
var tiny = Part{JEDEC: 0x20ba20, Bytes: 64 << 10, SectorBytes: 4 << 10, PageBytes: 256, Times: MT25QL512.Times}

func newFlash(t testing.TB, cfg Config) *Flash {
	t.Helper()
	if cfg.Part == (Part{}) {
		cfg.Part = tiny
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *Flash) mustProgram(t testing.TB, off uint32, p []byte) {
	t.Helper()
	if _, err := f.Program(off, p); err != nil {
		t.Fatal(err)
	}
}

func (f *Flash) want(t testing.TB, off uint32, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := f.Read(off, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("at %#x: % x, want % x", off, got, want)
	}
}

func TestBitsGoToZeroOnly(t *testing.T) {
	f := newFlash(t, Config{})
	f.want(t, 0, []byte{0xff, 0xff})
	f.mustProgram(t, 0, []byte{0xf0, 0x5a})
	f.mustProgram(t, 0, []byte{0x3c, 0xff})
	f.want(t, 0, []byte{0x30, 0x5a, 0xff})
	if _, err := f.Erase(0x123); err != nil {
		t.Fatal(err)
	}
	f.want(t, 0, []byte{0xff, 0xff, 0xff})
}

func TestPageWraps(t *testing.T) {
	f := newFlash(t, Config{})
	f.mustProgram(t, 0x2fe, []byte{1, 2, 3, 4})
	f.want(t, 0x2fe, []byte{1, 2, 0xff})
	f.want(t, 0x200, []byte{3, 4, 0xff})
}

func TestEraseKeepsNeighbours(t *testing.T) {
	f := newFlash(t, Config{})
	for _, off := range []uint32{0xfff, 0x1000, 0x1fff, 0x2000} {
		f.mustProgram(t, off, []byte{0})
	}
	if _, err := f.Erase(0x1800); err != nil {
		t.Fatal(err)
	}
	f.want(t, 0xfff, []byte{0, 0xff})
	f.want(t, 0x1fff, []byte{0xff, 0})
	if c := f.Counts(); c.Erases[1] != 1 || c.Erases[0] != 0 || c.Operations[Erase] != 1 || c.Operations[Program] != 4 {
		t.Errorf("counts %+v", c)
	}
}

func TestRange(t *testing.T) {
	f := newFlash(t, Config{})
	long := make([]byte, 257)
	for name, err := range map[string]error{
		"read beyond":     second(f.Read(tiny.Bytes-1, make([]byte, 2))),
		"read far":        second(f.Read(1<<31-1, make([]byte, 1))),
		"read nothing":    second(f.Read(0, nil)),
		"program beyond":  second(f.Program(tiny.Bytes, long[:1])),
		"program much":    second(f.Program(0, long)),
		"program nothing": second(f.Program(0, nil)),
		"erase beyond":    second(f.Erase(tiny.Bytes)),
	} {
		if !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, p := range []Part{
		{Bytes: 4096, SectorBytes: 4096}, {Bytes: 4096, PageBytes: 256}, {SectorBytes: 4096, PageBytes: 256},
		{Bytes: 5000, SectorBytes: 4096, PageBytes: 256}, {Bytes: 4096, SectorBytes: 4096, PageBytes: 257},
	} {
		if _, err := New(Config{Part: p}); err == nil {
			t.Errorf("%+v: made", p)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestBusy(t *testing.T) {
	f := newFlash(t, Config{Scale: 0.5})
	p := make([]byte, 512)
	for _, x := range []struct {
		name string
		do   func() (time.Duration, error)
		want time.Duration
	}{
		{"erase", func() (time.Duration, error) { return f.Erase(0) }, 75 * time.Millisecond},
		{"program", func() (time.Duration, error) { return f.Program(0, p[:1]) }, 60 * time.Microsecond},
		{"read", func() (time.Duration, error) { return f.Read(0, p) }, 8 * time.Microsecond},
		{"protect", func() (time.Duration, error) { return f.Protect(true) }, 60 * time.Microsecond},
		{"protect again", func() (time.Duration, error) { return f.Protect(true) }, 0},
	} {
		if got, err := x.do(); got != x.want || err != nil {
			t.Errorf("%s: busy for %v, %v, want %v", x.name, got, err, x.want)
		}
	}
}

func TestProtection(t *testing.T) {
	f := newFlash(t, Config{})
	if _, err := f.Protect(true); err != nil {
		t.Fatal(err)
	}
	if err := second(f.Program(0, []byte{0})); !errors.Is(err, ErrProtected) {
		t.Errorf("program: %v", err)
	}
	if err := second(f.Erase(0)); !errors.Is(err, ErrProtected) {
		t.Errorf("erase: %v", err)
	}
	f.want(t, 0, []byte{0xff})
	f.PowerOff()
	f.PowerOn()
	if on, err := f.Protected(); !on || err != nil {
		t.Errorf("protected = %v, %v after a power cycle", on, err)
	}
	if _, err := f.Protect(false); err != nil {
		t.Fatal(err)
	}
	f.mustProgram(t, 0, []byte{0})
}

// TestWrap: the part ignores an address bit, so that what lies above it is what lies below.
func TestWrap(t *testing.T) {
	f := newFlash(t, Config{})
	f.Wrap(0x2000)
	f.mustProgram(t, 0x2010, []byte{0x12})
	f.want(t, 0x10, []byte{0x12})
	f.want(t, 0x1ff0, append(bytes.Repeat([]byte{0xff}, 32), 0x12)[:16])
	f.want(t, 0x200f, []byte{0xff, 0x12, 0xff})
	if _, err := f.Erase(0x2000); err != nil {
		t.Fatal(err)
	}
	f.want(t, 0x10, []byte{0xff})
	f.Wrap(0)
	f.mustProgram(t, 0x2010, []byte{0x34})
	f.want(t, 0x10, []byte{0xff})
}

func TestBadSector(t *testing.T) {
	f := newFlash(t, Config{})
	f.mustProgram(t, 0x1000, []byte{7})
	f.Break(1, true)
	if err := second(f.Program(0x1fff, []byte{0})); !errors.Is(err, ErrProgram) {
		t.Errorf("program: %v", err)
	}
	if err := second(f.Erase(0x1000)); !errors.Is(err, ErrErase) {
		t.Errorf("erase: %v", err)
	}
	f.want(t, 0x1000, []byte{7, 0xff})
	f.mustProgram(t, 0x2000, []byte{0})
	f.Break(1, false)
	if _, err := f.Erase(0x1000); err != nil {
		t.Error(err)
	}
}

// TestPowerCut: an operation stops half-way, and nothing goes until power is back.
func TestPowerCut(t *testing.T) {
	f := newFlash(t, Config{})
	whole := bytes.Repeat([]byte{0x11}, 256)
	for off := uint32(0); off < 0x1000; off += 256 {
		f.mustProgram(t, off, whole)
	}
	f.CutAfter(1)
	f.mustProgram(t, 0x1000, whole)
	if err := second(f.Program(0x1100, whole)); !errors.Is(err, ErrPower) || !f.Dark() {
		t.Fatalf("program: %v", err)
	}
	for name, err := range map[string]error{
		"read": second(f.Read(0, make([]byte, 1))), "program": second(f.Program(0, whole)), "erase": second(f.Erase(0)),
		"protect": second(f.Protect(true)), "board": f.SetBoard(Board{Next: 1}),
	} {
		if !errors.Is(err, ErrPower) {
			t.Errorf("%s without power: %v", name, err)
		}
	}
	f.PowerOn()
	f.want(t, 0x1100, append(bytes.Repeat([]byte{0x11}, 128), bytes.Repeat([]byte{0xff}, 128)...))
	f.Cut(func(op Operation, off uint32) bool { return op == Erase })
	if err := second(f.Erase(0)); !errors.Is(err, ErrPower) {
		t.Fatalf("erase: %v", err)
	}
	f.PowerOn()
	f.want(t, 0, bytes.Repeat([]byte{0xff}, 0x800))
	f.want(t, 0x800, bytes.Repeat([]byte{0x11 | 0xa5}, 256))
	f.want(t, 0x900, bytes.Repeat([]byte{0x11}, 0x700))
	f.CutAfter(0)
	if err := second(f.Protect(true)); !errors.Is(err, ErrPower) {
		t.Fatalf("protect: %v", err)
	}
	f.PowerOn()
	if on, err := f.Protected(); on || err != nil {
		t.Errorf("protected = %v, %v", on, err)
	}
}

// TestGivenContent: what a flash starts with is read from where it lies, and changed in a copy.
func TestGivenContent(t *testing.T) {
	content := bytes.Repeat([]byte{0x5a}, 5000)
	f := newFlash(t, Config{Store: NewMemory(tiny, content)})
	f.want(t, 4990, append(bytes.Repeat([]byte{0x5a}, 10), 0xff, 0xff))
	f.mustProgram(t, 4999, []byte{0, 1})
	f.mustProgram(t, 0, []byte{0})
	f.want(t, 4998, []byte{0x5a, 0, 1, 0xff})
	if content[0] != 0x5a || content[4999] != 0x5a {
		t.Error("the content given was written to")
	}
	if _, err := f.Erase(0); err != nil {
		t.Fatal(err)
	}
	f.want(t, 0, []byte{0xff})
}

// TestFile: a file keeps what a flash holds, is a plain dump, and belongs to one flash at a time.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "card.flash")
	s, fresh, err := OpenFile(path, tiny)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	if _, _, err := OpenFile(path, tiny); err == nil {
		t.Error("two flashes have one file")
	}
	f, err := New(Config{Part: tiny, Store: s})
	if err != nil {
		t.Fatal(err)
	}
	f.mustProgram(t, 0x3010, []byte{9})
	if err := f.SetBoard(Board{Next: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Protect(true); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	dump, err := os.ReadFile(path)
	if err != nil || len(dump) != 0x3100 || dump[0x3010] != 9 || len(bytes.Trim(dump[:0x3010], "\xff")) != 0 {
		t.Errorf("the file has %d bytes, %v", len(dump), err)
	}
	if s, fresh, err = OpenFile(path, tiny); err != nil || fresh {
		t.Fatal(fresh, err)
	}
	f = newFlash(t, Config{Part: tiny, Store: s})
	f.want(t, 0x3010, []byte{9, 0xff})
	f.want(t, 0xff00, []byte{0xff})
	if b, err := f.Board(); b != (Board{Next: 2, Protected: true}) || err != nil {
		t.Errorf("board %+v, %v", b, err)
	}
}

func TestFileRefused(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string][]byte{"long": make([]byte, tiny.Bytes+1)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := OpenFile(path, tiny); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	for _, board := range []string{"x", "next 77\nprotected 0\n", "next 1\nprotected 2\n"} {
		path := filepath.Join(dir, "board")
		if err := os.WriteFile(path+".board", []byte(board), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := OpenFile(path, tiny); err == nil {
			t.Errorf("%q: opened", board)
		}
	}
	if _, _, err := OpenFile(dir, tiny); err == nil {
		t.Error("a directory: opened")
	}
}

// TestStoresAgree: both stores are the same flash, whatever is done to it.
func TestStoresAgree(t *testing.T) {
	s, _, err := OpenFile(filepath.Join(t.TempDir(), "f"), tiny)
	if err != nil {
		t.Fatal(err)
	}
	fs := [2]*Flash{newFlash(t, Config{}), newFlash(t, Config{Store: s})}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		op, off, p := rng.IntN(8), rng.Uint32N(tiny.Bytes), make([]byte, 1+rng.IntN(256))
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		cut := rng.IntN(50) == 0
		for _, f := range fs {
			if cut {
				f.CutAfter(0)
			}
			if op == 0 {
				_, err = f.Erase(off)
			} else {
				_, err = f.Program(off, p)
			}
			if (err != nil) != cut {
				t.Fatal(err)
			}
			f.PowerOn()
		}
	}
	var all [2][]byte
	for i, f := range fs {
		all[i] = make([]byte, tiny.Bytes)
		if _, err := f.Read(0, all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("the stores differ")
	}
}

// TestBlankCostsNothing: a flash of full size is made of pointers.
func TestBlankCostsNothing(t *testing.T) {
	if n := testing.AllocsPerRun(10, func() {
		if _, err := New(Config{}); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("%v allocations", n)
	}
}
