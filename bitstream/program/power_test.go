package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"splicenic/emu/flash"
)

// A plug is a load whose power fails.
type plug struct {
	*board
	t      *testing.T
	golden [32]byte
	old    []byte // in slot 1 before
	image  []byte
}

// newPlug has golden in slot 0, an image of an earlier load in slot 1, and its records.
func newPlug(t *testing.T, part flash.Part, n int) *plug {
	t.Helper()
	b := newBoard(t, part)
	b.put(t, 0, noise(1, n))
	p := &plug{board: b, t: t, old: noise(2, n-100), image: noise(3, n)}
	mustLoad(t, b, p.old, Options{Slot: 1, About: About{Source: "old.spl"}})
	if err := mustRecords(t, b).SetState(t.Context(), 1, Good); err != nil {
		t.Fatal(err)
	}
	p.golden = b.sum(t, 0)
	return p
}

// copy makes the same card again.
func (p *plug) copy() *plug {
	p.t.Helper()
	part := p.flash.Part()
	f, err := flash.New(flash.Config{Part: part, Store: flash.NewMemory(part, p.bytes(p.t, 0, part.Bytes))})
	if err != nil {
		p.t.Fatal(err)
	}
	c := *p
	c.board = &board{flash: f, slots: p.slots, boot: p.boot}
	return &c
}

// load lets the power fail in the midst of what fails names, and says whether it did.
func (p *plug) load(fails func(flash.Operation, uint32) bool) (cut bool) {
	p.t.Helper()
	p.flash.Cut(fails)
	plan, err := NewPlan(context.Background(), p, p.image, Options{Slot: 1, About: About{Source: "new.spl"}})
	if err == nil {
		err = plan.Run(context.Background(), nil)
	}
	cut = p.flash.Dark()
	p.flash.PowerOn()
	if cut != errors.Is(err, flash.ErrPower) || !cut && err != nil {
		p.t.Fatalf("cut %v, but %v", cut, err)
	}
	return cut
}

// healthy looks at the card as it is when power comes back: golden stands, slot 1 has a whole image or no sync word, and the
// records can be read and do not say of something broken that it is whole.
func (p *plug) healthy(when string) {
	p.t.Helper()
	if p.sum(p.t, 0) != p.golden {
		p.t.Fatalf("%s: the golden slot has changed", when)
	}
	slot := p.bytes(p.t, p.slots[1].Offset, p.slots[1].Bytes)
	whole := ""
	for _, image := range [][]byte{p.old, p.image} {
		if bytes.Equal(slot[:len(image)], image) {
			whole = hexSum(image)
		}
	}
	if whole == "" && bytes.Contains(slot[:p.flash.Part().SectorBytes/2], []byte{0xaa, 0x99, 0x55, 0x66}) {
		p.t.Fatalf("%s: slot 1 has a sync word and no whole image behind it", when)
	}
	r := mustRecords(p.t, p.board)
	if s := r.Slot(1); r.Note != "" || s.State != Writing && s.SHA256 != whole {
		p.t.Fatalf("%s: note %q, slot 1 is recorded as %+v, its image is %q", when, r.Note, s, whole)
	}
}

func (p *plug) complete(when string) {
	p.t.Helper()
	p.healthy(when)
	if !bytes.Equal(p.bytes(p.t, p.slots[1].Offset, uint32(len(p.image))), p.image) {
		p.t.Fatalf("%s: slot 1 does not hold the image", when)
	}
	if s := mustRecords(p.t, p.board).Slot(1); s.State != Try || s.SHA256 != hexSum(p.image) || s.Source != "new.spl" {
		p.t.Fatalf("%s: slot 1 is recorded as %+v", when, s)
	}
}

// after cuts the power at the operation that follows n others.
func after(n int) func(flash.Operation, uint32) bool {
	return func(flash.Operation, uint32) bool {
		n--
		return n < 0
	}
}

// TestPowerCutEverywhere lets the power fail in the midst of every program and every erase of a load, records included, and
// then in every tenth of the second run (in each of them: SPLICE_LONG).
func TestPowerCutEverywhere(t *testing.T) {
	fresh := newPlug(t, small, 6*4096+700)
	cuts, second := 0, 0
	for n := 0; ; n++ {
		p := fresh.copy()
		when := fmt.Sprintf("cut %d", n)
		if !p.load(after(n)) {
			p.complete("no cut")
			break
		}
		cuts++
		p.healthy(when)
		step := 10
		if long() {
			step = 1
		}
		for k := n % step; ; k += step {
			q := p.copy()
			if !q.load(after(k)) {
				q.complete(when)
				break
			}
			second++
			q.healthy(fmt.Sprintf("%s, then cut %d", when, k))
			if k%3 == 0 {
				q.load(nil)
				q.complete(fmt.Sprintf("%s, cut %d, third run", when, k))
			}
		}
	}
	t.Logf("%d cuts in the first run, %d in the second", cuts, second)
	if cuts < 150 || second < cuts {
		t.Errorf("%d and %d cuts; this test wants more", cuts, second)
	}
}

// TestPowerCutInCompaction has the records' sector fill up in the midst of a load, and cuts all that has to do with records.
func TestPowerCutInCompaction(t *testing.T) {
	fresh := newPlug(t, small, 6*4096)
	start := recordsStart(Geometry{SectorBytes: small.SectorBytes, Slots: fresh.slots})
	for fill := range 9 {
		full := fresh.copy()
		r := mustRecords(t, full.board)
		for r.used < 64-fill {
			if err := r.Set(t.Context(), 2, someRecord(byte(r.used))); err != nil {
				t.Fatal(err)
			}
		}
		other, floor := r.Slot(2), r.Floor()
		for n := 0; ; n++ {
			p := full.copy()
			k := n
			cut := p.load(func(_ flash.Operation, at uint32) bool {
				if at >= start {
					k--
				}
				return k < 0
			})
			when := fmt.Sprintf("%d places left, cut %d", fill, n)
			p.healthy(when)
			if r := mustRecords(t, p.board); r.Slot(2) != other || r.Floor() != floor {
				t.Fatalf("%s: slot 2 is %+v, was %+v", when, r.Slot(2), other)
			}
			p.load(nil)
			p.complete(when)
			if !cut {
				if got := mustRecords(t, p.board).sequence; got == r.sequence {
					t.Fatalf("%s: there was no compaction", when)
				}
				break
			}
		}
	}
}

// TestPowerCutAtSectors cuts the erase and the writing of sectors of a load of 16 MiB, one after the other: each run goes on
// where the one before was cut. All sectors with SPLICE_LONG, some else.
func TestPowerCutAtSectors(t *testing.T) {
	part := flash.MT25QL512
	const n = 16 << 20
	f, err := flash.New(flash.Config{Part: part})
	if err != nil {
		t.Fatal(err)
	}
	b := &board{flash: f, slots: []Slot{{0, 1 << 20}, {16 << 20, n}, {32 << 20, n}}, boot: Boot{Golden: true}}
	b.put(t, 0, noise(1, 1<<20))
	p := &plug{board: b, t: t, old: noise(2, n), image: noise(3, n), golden: b.sum(t, 0)}
	mustLoad(t, b, p.old, Options{Slot: 1})
	type cut struct {
		op     flash.Operation
		sector uint32
	}
	step := uint32(64)
	if long() {
		step = 1
	}
	cuts := []cut{{flash.Erase, 0}}
	for k := step; k < 256; k += step {
		cuts = append(cuts, cut{flash.Erase, k}, cut{flash.Program, k})
	}
	for _, c := range append(cuts, cut{flash.Program, 0}) {
		seen := 0
		if !p.load(func(o flash.Operation, at uint32) bool {
			if o == c.op && (at-p.slots[1].Offset)>>16 == c.sector {
				seen++
			}
			return seen > 100 || c.op == flash.Erase && seen > 0
		}) {
			t.Fatalf("%v of sector %d: there was none", c.op, c.sector)
		}
		p.healthy(fmt.Sprintf("%v of sector %d", c.op, c.sector))
	}
	p.load(nil)
	p.complete("the last run")
}

func long() bool { return os.Getenv("SPLICE_LONG") != "" }
