package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"splicenic/bitstream"
	"splicenic/emu/flash"
)

// A plug is a load whose power fails.
type plug struct {
	*board
	t      *testing.T
	golden [32]byte
	old    []byte // in slot 1 before
	image  []byte
	boots  *booter
}

// sixteen is a flash of 16 sectors with three slots of four, records behind them.
var sixteen = flash.Part{JEDEC: 0x20ba13, Bytes: 16 * 4096, SectorBytes: 4096, PageBytes: 256, Times: flash.MT25QL512.Times}

// newPlug has golden in slot 0, an image of an earlier load in slot 1, and its records.
func newPlug(t *testing.T, part flash.Part, n int) *plug {
	t.Helper()
	b := newBoard(t, part)
	b.put(t, 0, stream(t, "golden", n))
	p := &plug{board: b, t: t, old: stream(t, "old", n-100), image: stream(t, "new", n), boots: newBooter(t)}
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

// healthy looks at the card as it is when power comes back: golden stands, the card boots what is whole in slot 1, or else
// golden, and the records can be read and do not say of something broken that it is whole.
func (p *plug) healthy(when string) {
	p.t.Helper()
	if p.sum(p.t, 0) != p.golden {
		p.t.Fatalf("%s: the golden slot has changed", when)
	}
	slot := p.bytes(p.t, p.slots[1].Offset, p.slots[1].Bytes)
	whole, name := "", "golden"
	for _, image := range [][]byte{p.old, p.image} {
		if bytes.Equal(slot[:len(image)], image) {
			whole = hexSum(image)
		}
		if at := bytes.Index(image, syncWord); bytes.Equal(slot[at:len(image)], image[at:]) { // what stands before is for wider buses
			name = map[bool]string{false: "new", true: "old"}[len(image) == len(p.old)]
		}
	}
	if name == "golden" && bytes.Contains(slot[:p.flash.Part().SectorBytes/2], syncWord) {
		p.t.Fatalf("%s: slot 1 has a sync word and no whole image behind it", when)
	}
	want := Boot{Running: 1, Next: 1, Error: "none"}
	if name == "golden" {
		want = Boot{Golden: true, Fallback: true, Next: 1, Error: "no_sync"}
	}
	if boot, id := p.boots.boot(p.t, p.board, 1); boot != want || id.Name != name {
		p.t.Fatalf("%s: the card boots %q, %+v; want %q, %+v", when, id.Name, boot, name, want)
	}
	r := mustRecords(p.t, p.board)
	if s := r.Slot(1); r.Note != "" || s.State != Writing && s.SHA256 != whole {
		p.t.Fatalf("%s: note %q, slot 1 is recorded as %+v, its image is %q", when, r.Note, s, whole)
	}
}

var syncWord = []byte{0xaa, 0x99, 0x55, 0x66}

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
// then in every fourth of the second run (in each of them: SPLICE_LONG).
func TestPowerCutEverywhere(t *testing.T) {
	fresh := newPlug(t, sixteen, 3*4096+700)
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
		step := 4
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
	if cuts < 100 || second < cuts {
		t.Errorf("%d and %d cuts; this test wants more", cuts, second)
	}
}

// flags are a plan's steps: of which sector, e for erase, w for write, - for neither.
func (p *Plan) flags() string {
	var list []string
	for _, s := range p.Steps {
		f := ""
		if s.Erase {
			f += "e"
		}
		if s.Write {
			f += "w"
		}
		if f == "" {
			f = "-"
		}
		list = append(list, fmt.Sprintf("%d%s", s.Address/p.g.SectorBytes-p.Offset/p.g.SectorBytes, f))
	}
	return strings.Join(list, " ")
}

// TestResumedPlan: what a cut may have left half done is never taken for done because it reads well. The sector in which
// the load was cut is written again even if it reads as wanted, and no sector counts as erased because it reads blank.
func TestResumedPlan(t *testing.T) {
	image := noise(1, 5*4096)
	records := recordsStart(Geometry{SectorBytes: small.SectorBytes, Slots: newBoard(t, small).slots})
	in := func(op flash.Operation, sector, n uint32) func(*board) func(flash.Operation, uint32) bool {
		return func(b *board) func(flash.Operation, uint32) bool {
			return func(o flash.Operation, at uint32) bool {
				if o == op && at>>12 == b.slots[1].Offset>>12+sector {
					n--
				}
				return n == 1<<32-1
			}
		}
	}
	// The journal's record that follows the last page of a sector.
	behind := func(sector uint32) func(*board) func(flash.Operation, uint32) bool {
		return func(b *board) func(flash.Operation, uint32) bool {
			written := false
			return func(o flash.Operation, at uint32) bool {
				written = written || o == flash.Program && at>>12 == b.slots[1].Offset>>12+sector
				return written && at >= records
			}
		}
	}
	other := noise(2, 5*4096) // as image in sector 2 alone
	copy(other[2*4096:3*4096], image[2*4096:])
	for _, tt := range []struct {
		name  string
		old   []byte
		cut   func(*board) func(flash.Operation, uint32) bool
		next  []byte
		first string // the plan that is cut
		again string // the plan after it
		done  int
	}{
		{"in a page", nil, in(flash.Program, 2, 7), image, "0e 1w 2w 3w 4w 0w", "0e 2ew 1- 3ew 4ew 0w", 1},
		{"in the first page of a sector", nil, in(flash.Program, 2, 0), image, "0e 1w 2w 3w 4w 0w", "0e 2ew 1- 3ew 4ew 0w", 1},
		{"before the journal says that a sector is done", nil, behind(2), image, "0e 1w 2w 3w 4w 0w", "0e 2ew 1- 3ew 4ew 0w", 1},
		{"the same, then another image", nil, behind(2), other, "0e 1w 2w 3w 4w 0w", "0e 2ew 1ew 3ew 4ew 0w", 0},
		{"in the erase of the first sector", noise(3, 5*4096), in(flash.Erase, 0, 0), image, "0e 1ew 2ew 3ew 4ew 0w", "0e 1ew 2ew 3ew 4ew 0w", 0},
		{"in the erase of another", noise(3, 5*4096), in(flash.Erase, 3, 0), image, "0e 1ew 2ew 3ew 4ew 0w", "0e 3ew 1- 2- 4ew 0w", 2},
		{"in the last word", nil, in(flash.Program, 0, 14+51), image, "0e 1w 2w 3w 4w 0w", "0e 1- 2- 3- 4- 0w", 4},
		{"before the journal says that all is done", nil, behind(0), image, "0e 1w 2w 3w 4w 0w", "0e 1- 2- 3- 4- 0w", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBoard(t, small)
			if tt.old != nil {
				mustLoad(t, b, tt.old, Options{Slot: 1})
			} else if err := mustRecords(t, b).Set(t.Context(), 2, someRecord(1)); err != nil { // so that there are records
				t.Fatal(err)
			}
			p := mustPlan(t, b, image, Options{Slot: 1})
			if got := p.flags(); got != tt.first {
				t.Errorf("the first plan is %s, want %s", got, tt.first)
			}
			b.flash.Cut(tt.cut(b))
			if err := p.Run(t.Context(), nil); !errors.Is(err, flash.ErrPower) {
				t.Fatalf("%v, want %v", err, flash.ErrPower)
			}
			b.flash.PowerOn()
			p = mustPlan(t, b, tt.next, Options{Slot: 1})
			if got := p.flags(); got != tt.again || p.Written != tt.done || p.Nothing() {
				t.Errorf("the plan after the cut is %s, %d sectors done; want %s, %d", got, p.Written, tt.again, tt.done)
			}
			// Cut again before anything of it is done: the plan stays what it is.
			for n := 0; ; n++ {
				k, erase := n, false
				b.flash.Cut(func(o flash.Operation, at uint32) bool {
					erase = erase || o == flash.Erase && at == b.slots[1].Offset
					k--
					return k < 0 || erase
				})
				if err := p.Run(t.Context(), nil); !errors.Is(err, flash.ErrPower) {
					t.Fatalf("%v, want %v", err, flash.ErrPower)
				}
				b.flash.PowerOn()
				p = mustPlan(t, b, tt.next, Options{Slot: 1})
				if got := p.flags(); got != tt.again {
					t.Errorf("the plan after a second cut is %s, want %s", got, tt.again)
				}
				if erase {
					break
				}
			}
			if err := p.Run(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b.bytes(t, b.slots[1].Offset, uint32(len(tt.next))), tt.next) {
				t.Error("the flash does not hold the image")
			}
			if p = mustPlan(t, b, tt.next, Options{Slot: 1}); !p.Nothing() {
				t.Errorf("there is more to do: %s", p.flags())
			}
		})
	}
}

// TestResumedRaw: nobody records the end of raw writes, so that whatever lies in a slot that they went to may be half erased.
func TestResumedRaw(t *testing.T) {
	b := newBoard(t, small)
	if err := mustRecords(t, b).Set(t.Context(), 2, someRecord(1)); err != nil {
		t.Fatal(err)
	}
	raw := func() *Plan {
		t.Helper()
		p, err := NewRawPlan(t.Context(), b, []bitstream.Segment{{Address: b.slots[1].Offset + 100, Data: noise(4, 2*4096)}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := raw()
	if got := p.flags(); got != "0w 1w 2w" {
		t.Errorf("the first plan is %s", got)
	}
	b.flash.Cut(func(o flash.Operation, at uint32) bool { return at>>12 == b.slots[1].Offset>>12+1 })
	if err := p.Run(t.Context(), nil); !errors.Is(err, flash.ErrPower) {
		t.Fatalf("%v, want %v", err, flash.ErrPower)
	}
	b.flash.PowerOn()
	if got := raw().flags(); got != "0- 1ew 2ew" {
		t.Errorf("the plan after the cut is %s, want every sector that differs erased", got)
	}
	if got := mustPlan(t, b, noise(1, 5*4096), Options{Slot: 1}).flags(); got != "0e 1ew 2ew 3ew 4ew 0w" {
		t.Errorf("the plan of an image after the cut is %s, want every sector erased", got)
	}
	mustLoad(t, b, noise(1, 2*4096), Options{Slot: 1})
	if got := mustPlan(t, b, noise(2, 3*4096), Options{Slot: 1}).flags(); got != "0e 1ew 2w 0w" {
		t.Errorf("the plan after a load that ended is %s", got)
	}
}

// TestPowerCutInCompaction has the records' sector fill up in the midst of a load, and cuts all that has to do with records.
func TestPowerCutInCompaction(t *testing.T) {
	fresh := newPlug(t, sixteen, 3*4096)
	start := recordsStart(Geometry{SectorBytes: sixteen.SectorBytes, Slots: fresh.slots})
	for fill := range 7 {
		full := fresh.copy()
		r := mustRecords(t, full.board)
		if err := r.Set(t.Context(), 2, someRecord(byte(fill))); err != nil {
			t.Fatal(err)
		}
		for r.used < 64-fill {
			if err := r.setJournal(t.Context(), 2, journal{next: -1}); err != nil {
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
	b.put(t, 0, stream(t, "golden", 1<<18))
	p := &plug{board: b, t: t, old: stream(t, "old", n-4096), image: stream(t, "new", n), golden: b.sum(t, 0), boots: newBooter(t)}
	mustLoad(t, b, p.old, Options{Slot: 1})
	type cut struct {
		op     flash.Operation
		sector uint32
	}
	step := uint32(16)
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
