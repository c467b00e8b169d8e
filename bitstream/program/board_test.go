package program

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"testing"

	"splicenic/driver/device"
	"splicenic/emu/flash"
)

// A board is a card's shell over a flash model: what a load needs of a card, and no more.
type board struct {
	flash *flash.Flash
	slots []Slot
	boot  Boot
	gone  bool // everything reads as ones
	hot   bool
}

// small is a flash of 24 sectors with three slots of seven, records behind them.
var small = flash.Part{JEDEC: 0x20ba13, Bytes: 24 * 4096, SectorBytes: 4096, PageBytes: 256, Times: flash.MT25QL512.Times}

func newBoard(t *testing.T, p flash.Part, slots ...Slot) *board {
	t.Helper()
	f, err := flash.New(flash.Config{Part: p})
	if err != nil {
		t.Fatal(err)
	}
	if slots == nil {
		n := p.Bytes / p.SectorBytes / 3 * p.SectorBytes
		n -= p.SectorBytes
		slots = []Slot{{0, n}, {n, n}, {2 * n, n}}
	}
	return &board{flash: f, slots: slots, boot: Boot{Running: 0, Golden: true}}
}

func (p *board) Geometry(context.Context) (Geometry, error) {
	if p.gone {
		return Geometry{JEDEC: 0xffffff, Bytes: 1<<32 - 1, SectorBytes: 1<<32 - 1, PageBytes: 1<<32 - 1}, nil
	}
	f := p.flash.Part()
	return Geometry{JEDEC: f.JEDEC, Bytes: f.Bytes, SectorBytes: f.SectorBytes, PageBytes: f.PageBytes, Slots: p.slots}, nil
}

func (p *board) Read(_ context.Context, off uint32, b []byte) error {
	if p.gone {
		for i := range b {
			b[i] = 0xff
		}
		return nil
	}
	_, err := p.flash.Read(off, b)
	return err
}

func (p *board) Erase(_ context.Context, off uint32) error {
	if p.gone {
		return nil
	}
	_, err := p.flash.Erase(off)
	return err
}

func (p *board) Program(_ context.Context, off uint32, b []byte) error {
	if p.gone {
		return nil
	}
	if ps := p.flash.Part().PageBytes; len(b) == 0 || off/ps != (off+uint32(len(b))-1)/ps {
		return errors.New("a program operation leaves its page")
	}
	_, err := p.flash.Program(off, b)
	return err
}

func (p *board) Protected(context.Context) (bool, error) { return p.flash.Protected() }
func (p *board) Protect(_ context.Context, on bool) error {
	_, err := p.flash.Protect(on)
	return err
}
func (p *board) Identity(context.Context) (Identity, error) {
	if p.gone {
		return Identity{}, device.ErrDeviceLost
	}
	return Identity{Board: 1, IDCode: 0x13636093}, nil
}
func (p *board) Boot(context.Context) (Boot, error) { return p.boot, nil }
func (p *board) SetNext(_ context.Context, slot int) error {
	p.boot.Next = slot
	return nil
}
func (p *board) Start(context.Context) error { return errors.New("this card cannot boot") }
func (p *board) Alarms(context.Context) (Alarms, error) {
	return Alarms{Temperature: p.hot, Celsius: 91.5}, nil
}

// bytes reads what lies in the flash, power or not.
func (p *board) bytes(t *testing.T, off, n uint32) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := p.flash.Read(off, b); err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *board) sum(t *testing.T, slot int) [32]byte {
	t.Helper()
	return sha256.Sum256(p.bytes(t, p.slots[slot].Offset, p.slots[slot].Bytes))
}

// put lays bytes into the flash as if they had always been there.
func (p *board) put(t *testing.T, off uint32, b []byte) {
	t.Helper()
	for i := 0; i < len(b); i += 256 {
		if _, err := p.flash.Program(off+uint32(i), b[i:min(i+256, len(b))]); err != nil {
			t.Fatal(err)
		}
	}
}

// noise is an image of n bytes: padding, a sync word, and bytes that depend on the seed, a blank page among them.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for i := range b[:min(n, 48)] {
		b[i] = 0xff
	}
	copy(b[min(n, 48):], []byte{0xaa, 0x99, 0x55, 0x66})
	if n > 1024 {
		for i := 512; i < 768; i++ {
			b[i] = 0xff
		}
	}
	return b
}
