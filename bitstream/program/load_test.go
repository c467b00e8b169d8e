package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"splicenic/bitstream"
	"splicenic/driver/device"
	"splicenic/emu/flash"
)

func hexSum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func mustPlan(t *testing.T, c Card, image []byte, o Options) *Plan {
	t.Helper()
	p, err := NewPlan(t.Context(), c, image, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustLoad(t *testing.T, c Card, image []byte, o Options) *Plan {
	t.Helper()
	p := mustPlan(t, c, image, o)
	if err := p.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLoad(t *testing.T) {
	b := newBoard(t, small)
	b.put(t, 0, noise(1, 7*4096))
	golden := b.sum(t, 0)
	image := noise(2, 5*4096+1000)
	about := About{Version: "2.1.0", DataPathDigest: 77, Rollback: 3, Signed: true, Source: "lb.spl"}

	p := mustPlan(t, b, image, Options{Slot: Auto, About: about})
	if p.Slot != 1 || p.Write != 6 || p.Erase != 1 || p.Skip != 0 || p.Resumes || p.Nothing() || p.SHA256 != hexSum(image) {
		t.Errorf("a first plan: %+v", p)
	}
	var events []Event
	if err := p.Run(t.Context(), func(e Event) { events = append(events, e) }); err != nil {
		t.Fatal(err)
	}
	if got := b.bytes(t, b.slots[1].Offset, uint32(len(image))); !bytes.Equal(got, image) {
		t.Error("the flash does not hold the image")
	}
	want := SlotRecord{State: Try, Bytes: uint32(len(image)), SHA256: hexSum(image), Version: "2.1.0", DataPathDigest: 77, Rollback: 3, Signed: true, Source: "lb.spl"}
	if got := mustRecords(t, b).Slot(1); got != want {
		t.Errorf("record %+v, want %+v", got, want)
	}
	if last := events[len(events)-1]; last.Done != last.Total || last.Total != int64(len(image)) || last.ETA != 0 {
		t.Errorf("last event %+v, want all of %d", last, len(image))
	}
	if b.sum(t, 0) != golden {
		t.Error("the golden slot has changed")
	}

	b.boot.Next = 1
	if p := mustLoad(t, b, image, Options{Slot: Auto}); !p.Nothing() || p.Slot != 1 || p.Skip != 6 {
		t.Errorf("the same image again: %+v, want nothing to do in slot 1", p)
	}
	if got := mustRecords(t, b).Slot(1); got != want {
		t.Errorf("record %+v, want %+v as it was", got, want)
	}

	other := bytes.Clone(image)
	other[3*4096+5] ^= 1
	erases := b.flash.Counts().Erases
	p = mustLoad(t, b, other, Options{Slot: 1})
	if p.Write != 2 || p.Erase != 2 || p.Skip != 4 {
		t.Errorf("one byte differs: %d written, %d erased, %d skipped; want the sector of the byte and the first one", p.Write, p.Erase, p.Skip)
	}
	for i, n := range b.flash.Counts().Erases[7:13] {
		if want := map[int]uint32{0: 1, 3: 1}[i]; n-erases[7+i] != want {
			t.Errorf("sector %d was erased %d times, want %d", i, n-erases[7+i], want)
		}
	}
	if got := b.bytes(t, b.slots[1].Offset, uint32(len(image))); !bytes.Equal(got, other) {
		t.Error("the flash does not hold the second image")
	}
}

// TestLoadOrder: the first sector is erased first and written last, and its first word last of all.
func TestLoadOrder(t *testing.T) {
	b := newBoard(t, small)
	b.put(t, b.slots[1].Offset, noise(1, 7*4096))
	image := noise(2, 3*4096)
	copy(image, "head")
	p := mustPlan(t, b, image, Options{Slot: 1})
	type op struct {
		op flash.Operation
		at uint32
	}
	var ops []op
	b.flash.Cut(func(o flash.Operation, at uint32) bool {
		if at < recordsStart(p.g) {
			ops = append(ops, op{o, at})
		}
		return false
	})
	if err := p.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	first, last := ops[0], ops[len(ops)-1]
	at := b.slots[1].Offset
	if first != (op{flash.Erase, at}) || last != (op{flash.Program, at}) {
		t.Errorf("first %v, last %v; want the erase of %#x and its first word", first, last, at)
	}
	for _, o := range ops[1:] {
		if o.op == flash.Program && o.at < at+4096 {
			break
		}
		if o.at < at+4096 {
			t.Errorf("%v %#x before the other sectors", o.op, o.at)
		}
	}
}

func TestRefusals(t *testing.T) {
	image := noise(1, 4096)
	for _, tt := range []struct {
		name  string
		image []byte
		o     Options
		set   func(b *board)
		rule  string
		says  string
	}{
		{"golden", image, Options{}, func(b *board) { b.boot.Running = 1 }, "golden slot", "slot 0"},
		{"running", image, Options{Slot: 1}, func(b *board) { b.boot.Running = 1 }, "running slot", "slot 1"},
		{"golden that runs", image, Options{Golden: true}, nil, "running slot", "slot 0"},
		{"no such slot", image, Options{Slot: 3}, nil, "slot", "0 to 2, not 3"},
		{"large", make([]byte, 7*4096+1), Options{Slot: 1}, nil, "blank image", "28673 bytes are 00"},
		{"larger", noise(1, 7*4096+1), Options{Slot: 1}, nil, "slot size", "28673 bytes, slot 1 has room for 28672"},
		{"blank", bytes.Repeat([]byte{0xff}, 100), Options{Slot: 1}, nil, "blank image", "100 bytes are ff"},
		{"nothing", nil, Options{Slot: 1}, nil, "blank image", "0 bytes"},
		{"hot", image, Options{Slot: 1}, func(b *board) { b.hot = true }, "temperature", "91.5 °C"},
		{"rollback", image, Options{Slot: 1, About: About{Signed: true, Rollback: 4}}, func(b *board) {
			if err := mustRecords(t, b).Raise(context.Background(), 5); err != nil {
				t.Fatal(err)
			}
		}, "rollback", "counter is 4, this card has accepted 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBoard(t, small)
			if tt.set != nil {
				tt.set(b)
			}
			erases := b.flash.Counts().Operations[flash.Erase]
			_, err := NewPlan(t.Context(), b, tt.image, tt.o)
			var r *Refused
			if !errors.As(err, &r) || r.Rule != tt.rule || !strings.Contains(r.What, tt.says) || r.Do == "" {
				t.Errorf("%v, want rule %q with %q and something to do", err, tt.rule, tt.says)
			}
			if b.flash.Counts().Operations[flash.Erase] != erases {
				t.Error("something was erased")
			}
		})
	}
	b := newBoard(t, small)
	mustLoad(t, b, image, Options{Golden: true, Running: true})
	b.boot.Running = 1
	mustLoad(t, b, noise(2, 4096), Options{Slot: 1, Running: true})
}

// TestRecordsOfTheSameBytes: another manifest of the bytes that a slot holds is recorded, and the slot is to be tried again.
func TestRecordsOfTheSameBytes(t *testing.T) {
	b := newBoard(t, small)
	image := noise(1, 3*4096)
	about := About{Version: "2.0.1", Rollback: 1, Signed: true, Source: "r1.spl"}
	if p := mustLoad(t, b, image, Options{Slot: 1, About: about}); p.Outcome != Written || p.State != Try {
		t.Errorf("the first load: %q, state %q", p.Outcome, p.State)
	}
	if err := Mark(t.Context(), b, 1, Good); err != nil {
		t.Fatal(err)
	}
	newer := About{Version: "2.0.3", Rollback: 3, Signed: true, Source: "r3.spl"}
	for _, tt := range []struct {
		name    string
		about   About
		outcome Ending
		want    SlotRecord
	}{
		{"the same", about, Unchanged, SlotRecord{State: Good, Version: "2.0.1", Rollback: 1, Signed: true, Source: "r1.spl"}},
		{"a bare image", About{Source: "next.bit"}, Unchanged, SlotRecord{State: Good, Version: "2.0.1", Rollback: 1, Signed: true, Source: "r1.spl"}},
		{"another name", About{Version: "2.0.1", Rollback: 1, Signed: true, Source: "copy.spl"}, Recorded, SlotRecord{State: Good, Version: "2.0.1", Rollback: 1, Signed: true, Source: "copy.spl"}},
		{"another manifest", newer, Recorded, SlotRecord{State: Try, Version: "2.0.3", Rollback: 3, Signed: true, Source: "r3.spl"}},
		{"that again", newer, Unchanged, SlotRecord{State: Try, Version: "2.0.3", Rollback: 3, Signed: true, Source: "r3.spl"}},
	} {
		p := mustPlan(t, b, image, Options{Slot: 1, About: tt.about})
		if !p.Nothing() || p.Outcome != Planned || p.Record != (tt.outcome == Recorded) {
			t.Errorf("%s: the plan writes %d sectors, outcome %q, record %v", tt.name, p.Write, p.Outcome, p.Record)
		}
		if err := p.Run(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		tt.want.Bytes, tt.want.SHA256 = uint32(len(image)), hexSum(image)
		r := mustRecords(t, b)
		if got := r.Slot(1); got != tt.want || p.State != got.State || p.Outcome != tt.outcome || r.Floor() != 1 {
			t.Errorf("%s: %+v, outcome %q, state %q, floor %d\nwant %+v, outcome %q, floor 1", tt.name, got, p.Outcome, p.State, r.Floor(), tt.want, tt.outcome)
		}
	}
	if err := Mark(t.Context(), b, 1, Good); err != nil {
		t.Fatal(err)
	}
	if floor := mustRecords(t, b).Floor(); floor != 3 {
		t.Errorf("after the newer one ran the floor is %d, want 3", floor)
	}
}

func TestAutoSlot(t *testing.T) {
	for _, tt := range []struct{ running, next, want int }{{0, 0, 1}, {0, 1, 2}, {1, 1, 2}, {2, 2, 1}, {1, 2, 2}, {2, 1, 1}} {
		b := newBoard(t, small)
		b.boot = Boot{Running: tt.running, Next: tt.next}
		if p := mustPlan(t, b, noise(1, 4096), Options{Slot: Auto}); p.Slot != tt.want {
			t.Errorf("slot %d runs, %d is next: auto is %d, want %d", tt.running, tt.next, p.Slot, tt.want)
		}
	}
}

// TestAutoSlotKeepsTheGoodImage: the last image that ran well is overwritten only where there is nothing else.
func TestAutoSlotKeepsTheGoodImage(t *testing.T) {
	for _, tt := range []struct {
		one, two State
		next     int
		want     int
	}{
		{Good, Bad, 0, 2}, {Bad, Good, 0, 1}, {Good, Try, 0, 2}, {Try, Bad, 0, 2}, {Bad, Empty, 0, 2}, {Good, Empty, 0, 2},
		{Good, Bad, 2, 2}, {Good, Good, 1, 2}, {Good, Good, 2, 1}, {Good, Writing, 0, 2},
	} {
		b := newBoard(t, small)
		b.boot = Boot{Next: tt.next}
		r := mustRecords(t, b)
		for i, state := range []State{tt.one, tt.two} {
			if s := someRecord(byte(i)); state != Empty {
				s.State = state
				if err := r.Set(t.Context(), i+1, s); err != nil {
					t.Fatal(err)
				}
			}
		}
		if p := mustPlan(t, b, noise(1, 4096), Options{Slot: Auto}); p.Slot != tt.want {
			t.Errorf("slot 1 %s, 2 %s, %d is next: auto is %d, want %d", tt.one, tt.two, tt.next, p.Slot, tt.want)
		}
	}
}

func TestProtectionIsPutBack(t *testing.T) {
	b := newBoard(t, small)
	if _, err := b.flash.Protect(true); err != nil {
		t.Fatal(err)
	}
	mustLoad(t, b, noise(1, 5000), Options{Slot: 1})
	if on, err := b.flash.Protected(); !on || err != nil {
		t.Errorf("protected afterwards: %v, %v", on, err)
	}
}

// TestCancel ends a load before every one of its sectors: there is no image in the slot then, and the next load finishes.
func TestCancel(t *testing.T) {
	image := noise(1, 6*4096)
	for n := range 6 {
		b := newBoard(t, small)
		b.put(t, b.slots[1].Offset, noise(9, 7*4096))
		ctx, cancel := context.WithCancel(t.Context())
		p := mustPlan(t, b, image, Options{Slot: 1})
		seen := 0
		err := p.Run(ctx, func(Event) {
			if seen++; seen == n+1 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "run the same command again") {
			t.Fatalf("after %d: %v, want %v and what to do", n, err, context.Canceled)
		}
		if !blank(b.bytes(t, b.slots[1].Offset, 4096)) {
			t.Fatalf("after %d: the first sector is not blank", n)
		}
		p = mustPlan(t, b, image, Options{Slot: Auto})
		if !p.Resumes || p.Slot != 1 || p.Written != n || p.Skip < n-1 {
			t.Errorf("after %d: the next plan is %+v", n, p)
		}
		if err := p.Run(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := b.bytes(t, b.slots[1].Offset, uint32(len(image))); !bytes.Equal(got, image) {
			t.Fatalf("after %d: the flash does not hold the image", n)
		}
	}
}

// TestAddressWrap is a flash that ignores an address line inside a slot: 3 MiB fail at 2 MiB, with both values.
func TestAddressWrap(t *testing.T) {
	b := newBoard(t, flash.Part{JEDEC: 0x20ba18, Bytes: 16 << 20, SectorBytes: 64 << 10, PageBytes: 256}, Slot{0, 4 << 20}, Slot{4 << 20, 4 << 20}, Slot{8 << 20, 4 << 20})
	b.flash.Wrap(0x200000)
	image := noise(1, 3<<20)
	image[0] = 0x5a
	p := mustPlan(t, b, image, Options{Slot: 1})
	err := p.Run(t.Context(), nil)
	var m *MismatchError
	if !errors.As(err, &m) || m.Offset != 0x200000 || m.Address != 0x600000 || !strings.Contains(m.Suspect, "address wrap or flash size") || bytes.Equal(m.Want, m.Got) {
		t.Errorf("%v, want a mismatch at 0x200000 with both values and a suspicion", err)
	}
	if got := mustRecords(t, b).Slot(1).State; got != Writing {
		t.Errorf("slot 1 is %q, want %q", got, Writing)
	}

	// A line that tells slots apart: nothing is erased.
	b = newBoard(t, flash.Part{JEDEC: 0x20ba18, Bytes: 16 << 20, SectorBytes: 64 << 10, PageBytes: 256}, Slot{0, 4 << 20}, Slot{4 << 20, 4 << 20}, Slot{8 << 20, 4 << 20})
	b.put(t, 0, noise(3, 4<<20))
	b.flash.Wrap(0x400000)
	golden := b.sum(t, 0)
	err = mustPlan(t, b, image, Options{Slot: 1}).Run(t.Context(), nil)
	var a *AliasError
	if !errors.As(err, &a) || b.sum(t, 0) != golden {
		t.Errorf("%v, golden unchanged %v; want an AliasError", err, b.sum(t, 0) == golden)
	}
}

// TestVerifyNamesTheEarlierWrite has the flash give, where a sector should be, what was written a power of two before it.
func TestVerifyNamesTheEarlierWrite(t *testing.T) {
	b := &echo{board: newBoard(t, small)}
	err := mustPlan(t, b, noise(1, 6*4096), Options{Slot: 1}).Run(t.Context(), nil)
	var m *MismatchError
	if !errors.As(err, &m) || m.Offset != 5*4096 || !strings.Contains(m.Suspect, "written 0x4000 bytes before") {
		t.Errorf("%v, want a mismatch in the sixth sector, and the distance", err)
	}
}

// echo reads the second sector of slot 1 in place of the sixth.
type echo struct{ *board }

func (e *echo) Read(ctx context.Context, off uint32, b []byte) error {
	if off == e.slots[1].Offset+5*4096 {
		off -= 4 * 4096
	}
	return e.board.Read(ctx, off, b)
}

func TestBadSector(t *testing.T) {
	b := newBoard(t, small)
	b.flash.Break(9, true)
	err := mustPlan(t, b, noise(1, 5*4096), Options{Slot: 1}).Run(t.Context(), nil)
	if !errors.Is(err, flash.ErrProgram) || !strings.Contains(err.Error(), "0x9000") {
		t.Errorf("%v, want %v at 0x9000", err, flash.ErrProgram)
	}
	if !blank(b.bytes(t, b.slots[1].Offset, 4096)) {
		t.Error("the first sector is not blank")
	}
}

// TestCardGone has the card leave the bus at every sector: reads are ones then, and erases and programs say nothing.
func TestCardGone(t *testing.T) {
	image := noise(1, 5*4096)
	for n := range 5 {
		b := newBoard(t, small)
		seen := 0
		err := mustPlan(t, b, image, Options{Slot: 1}).Run(t.Context(), func(Event) {
			if seen++; seen == n+1 {
				b.gone = true
			}
		})
		if !errors.Is(err, device.ErrDeviceLost) {
			t.Errorf("gone after %d sectors: %v, want %v", n, err, device.ErrDeviceLost)
		}
	}
	b := newBoard(t, small)
	b.gone = true
	if _, err := NewPlan(t.Context(), b, image, Options{Slot: 1}); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("gone before: %v, want %v", err, device.ErrDeviceLost)
	}
}

// TestPrediction: a flash that is ten times as slow as usual is believed after three sectors.
func TestPrediction(t *testing.T) {
	b := &slow{board: newBoard(t, small)}
	b.put(t, b.slots[1].Offset, noise(9, 7*4096))
	p := mustPlan(t, b, noise(1, 7*4096), Options{Slot: 1, Now: b.time})
	if p.Seconds < 0.5 || p.Seconds > 3 {
		t.Errorf("7 sectors are predicted to take %.2f s, want about 1 s as usual", p.Seconds)
	}
	var at, eta []float64
	if err := p.Run(t.Context(), func(e Event) {
		at, eta = append(at, b.now.Seconds()), append(eta, e.ETA)
	}); err != nil {
		t.Fatal(err)
	}
	left := at[len(at)-1] - at[3]
	if eta[3] < left*0.8 || eta[3] > left*1.2 {
		t.Errorf("after three sectors %.2f s were predicted, it took %.2f", eta[3], left)
	}
}

type slow struct {
	*board
	now time.Duration
}

func (s *slow) time() time.Time { return time.Unix(0, 0).Add(s.now) }
func (s *slow) Erase(ctx context.Context, off uint32) error {
	s.now += 1500 * time.Millisecond
	return s.board.Erase(ctx, off)
}
func (s *slow) Program(ctx context.Context, off uint32, b []byte) error {
	s.now += 2 * time.Millisecond
	return s.board.Program(ctx, off, b)
}

// TestRawRegions is a file with two regions and a gap, over a flash full of 5a.
func TestRawRegions(t *testing.T) {
	b := newBoard(t, flash.Part{JEDEC: 1, Bytes: 32 << 16, SectorBytes: 64 << 10, PageBytes: 256}, Slot{0, 16 << 16}, Slot{16 << 16, 8 << 16})
	b.put(t, 0, bytes.Repeat([]byte{0x5a}, 16<<16))
	segments := []bitstream.Segment{{Address: 0x70000, Data: []byte{0xb1, 0xb2}}, {Address: 0, Data: []byte{0xa1, 0xa2, 0xa3, 0xa4}}}
	if _, err := NewRawPlan(t.Context(), b, segments, Options{Running: true}); err == nil || !strings.Contains(err.Error(), "golden slot") {
		t.Errorf("%v, want the golden slot refused", err)
	}
	o := Options{Golden: true, Running: true}
	p, err := NewRawPlan(t.Context(), b, segments, o)
	if err != nil {
		t.Fatal(err)
	}
	if p.Erase != 2 || p.Write != 2 || p.Bytes != 6 {
		t.Errorf("%d erased, %d written, %d bytes; want 2, 2, 6", p.Erase, p.Write, p.Bytes)
	}
	if err := p.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{0x5a}, 16<<16)
	copy(want, []byte{0xa1, 0xa2, 0xa3, 0xa4})
	copy(want[0x70000:], []byte{0xb1, 0xb2})
	if !bytes.Equal(b.bytes(t, 0, 16<<16), want) {
		t.Error("the flash does not hold both regions and 5a beside them")
	}
	for i, n := range b.flash.Counts().Erases {
		if (n == 1) != (i == 0 || i == 7) && i < 24 {
			t.Errorf("sector %d was erased %d times", i, n)
		}
	}
	for _, tt := range []struct {
		name string
		s    []bitstream.Segment
		rule string
	}{
		{"overlap that differs", []bitstream.Segment{{Address: 10, Data: []byte{1, 2, 3}}, {Address: 12, Data: []byte{4}}}, "overlap"},
		{"behind the end", []bitstream.Segment{{Address: 32<<16 - 1, Data: []byte{1, 2}}}, "flash size"},
		{"into the records", []bitstream.Segment{{Address: 25 << 16, Data: []byte{1}}}, "records"},
		{"across the records", []bitstream.Segment{{Address: 20 << 16, Data: make([]byte, 8<<16)}}, "records"},
		{"nothing", nil, "blank image"},
	} {
		var r *Refused
		if _, err := NewRawPlan(t.Context(), b, tt.s, o); !errors.As(err, &r) || r.Rule != tt.rule {
			t.Errorf("%s: %v, want rule %q", tt.name, err, tt.rule)
		}
	}
	if _, err := NewRawPlan(t.Context(), b, []bitstream.Segment{{Address: 10, Data: []byte{1, 2, 3}}, {Address: 12, Data: []byte{3}}}, o); err != nil {
		t.Errorf("overlap that agrees: %v", err)
	}
}

// TestRawIntoASlot has the record of that slot's image go.
func TestRawIntoASlot(t *testing.T) {
	b := newBoard(t, small)
	mustLoad(t, b, noise(1, 5000), Options{Slot: 1})
	p, err := NewRawPlan(t.Context(), b, []bitstream.Segment{{Address: b.slots[1].Offset + 100, Data: []byte{0}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := mustRecords(t, b).Slot(1); got.State != Empty || got.SHA256 == hexSum(noise(1, 5000)) {
		t.Errorf("slot 1 is %+v, want it empty", got)
	}
}

// TestRawAddressWrap writes raw bytes outside all slots into a flash that ignores an address line: what they would go to in
// truth, which no plan knows, is seen to change, and no more than one sector of it.
func TestRawAddressWrap(t *testing.T) {
	part := flash.Part{JEDEC: 0x20ba18, Bytes: 16 << 20, SectorBytes: 64 << 10, PageBytes: 256}
	for _, tt := range []struct {
		name string
		wrap uint32
		at   uint32
		n    int
		old  bool   // something lies where the bytes go in truth
		off  int64  // of the mismatch
		says string // of the suspicion
	}{
		{"over something", 0x200000, 0xe00000, 3 << 16, true, 0, "changed 0xc00000, which lies 0x200000 before"},
		{"over nothing", 0x200000, 0xe00000, 3 << 16, false, 0, "changed 0xc00000, which lies 0x200000 before"},
		{"into a slot", 0x800000, 0x900000, 100, true, 0, "changed 0x100000, which lies 0x800000 before"},
		{"a smaller flash", 0xe00000, 0xe00000 + 70<<10, 100, true, 0, "changed 0xc11800, which lies 0x200000 before"},
		{"over itself", 0x200000, 0xc00000, 3 << 20, false, 0x200000, "changed 0xc00000, which lies 0x200000 before"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBoard(t, part, Slot{0, 2 << 20}, Slot{2 << 20, 2 << 20})
			b.flash.Wrap(tt.wrap)
			if tt.old {
				b.put(t, 0, bytes.Repeat([]byte{0x3c}, 2<<20))
				b.put(t, 0xc00000, bytes.Repeat([]byte{0x3c}, 3<<16))
			}
			data := noise(1, tt.n)
			data[max(0, tt.n-1<<20)], data[0] = 0xa5, 0x5a
			p, err := NewRawPlan(t.Context(), b, []bitstream.Segment{{Address: tt.at, Data: data}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			done := false
			before := b.flash.Counts().Operations[flash.Erase]
			err = p.Run(t.Context(), func(e Event) { done = done || e.Done == e.Total })
			var m *MismatchError
			if !errors.As(err, &m) || m.Offset != tt.off || int64(m.Address) != int64(tt.at)+tt.off || !strings.Contains(m.Suspect, "address wrap or flash size: ") || !strings.Contains(m.Suspect, tt.says) || bytes.Equal(m.Want, m.Got) {
				t.Errorf("%v, want a mismatch at offset %#x with both values, and that it %s", err, tt.off, tt.says)
			}
			if done {
				t.Error("progress said that all was done")
			}
			if n := b.flash.Counts().Operations[flash.Erase] - before; n > 1 {
				t.Errorf("%d sectors were erased", n)
			}
		})
	}

	b := newBoard(t, part, Slot{0, 2 << 20}, Slot{2 << 20, 2 << 20})
	b.put(t, 0, noise(3, 2<<20))
	p, err := NewRawPlan(t.Context(), b, []bitstream.Segment{{Address: 0xc00000, Data: noise(1, 3<<20)}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context(), nil); err != nil {
		t.Errorf("a flash that has all its lines: %v", err)
	}
}
