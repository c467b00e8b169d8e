package program

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"splicenic/emu/flash"
)

func mustRecords(t *testing.T, p *board) *Records {
	t.Helper()
	r, err := OpenRecords(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func someRecord(n byte) SlotRecord {
	return SlotRecord{State: Try, Bytes: 1000 + uint32(n), SHA256: hex.EncodeToString(append(make([]byte, 31), n)), Version: "1.2.3",
		DataPathDigest: 0xdecade, Rollback: uint32(n), Signed: true, Source: "build-" + string('a'+rune(n%26)) + ".spl"}
}

func TestRecordsAreKept(t *testing.T) {
	p := newBoard(t, small)
	r := mustRecords(t, p)
	if got := r.Slot(1); got.State != Empty || r.Floor() != 0 || r.Note != "" {
		t.Fatalf("a blank flash: slot 1 %+v, floor %d, note %q", got, r.Floor(), r.Note)
	}
	want := someRecord(7)
	if err := r.Set(t.Context(), 1, want); err != nil {
		t.Fatal(err)
	}
	if err := r.SetState(t.Context(), 1, Good); err != nil {
		t.Fatal(err)
	}
	want.State = Good
	for _, r := range []*Records{r, mustRecords(t, p)} {
		if got := r.Slot(1); got != want || r.Floor() != 7 {
			t.Errorf("got %+v, floor %d\nwant %+v, floor 7", got, r.Floor(), want)
		}
	}
	if err := r.Raise(t.Context(), 3); err != nil || mustRecords(t, p).Floor() != 7 {
		t.Errorf("raising to less: %v, floor %d, want 7", err, mustRecords(t, p).Floor())
	}
}

func TestRecordsRefuse(t *testing.T) {
	r := mustRecords(t, newBoard(t, small))
	for _, tt := range []struct {
		name string
		slot int
		s    SlotRecord
		want string
	}{
		{"slot", 3, someRecord(1), "the card has 3"},
		{"state", 1, SlotRecord{State: "odd"}, `state "odd"`},
		{"version", 1, SlotRecord{State: Try, Version: "1.2"}, "major.minor.patch"},
		{"large version", 1, SlotRecord{State: Try, Version: "128.0.0"}, "major.minor.patch"},
		{"sha", 1, SlotRecord{State: Try, SHA256: "abcd"}, "64 hexadecimal digits"},
	} {
		if err := r.Set(t.Context(), tt.slot, tt.s); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want something about %q", tt.name, err, tt.want)
		}
	}
}

// TestRecordsSurviveCompaction fills the log several times over.
func TestRecordsSurviveCompaction(t *testing.T) {
	p := newBoard(t, small)
	r := mustRecords(t, p)
	for i := range 500 {
		n := byte(i)
		if err := r.Set(t.Context(), 1+i%2, someRecord(n)); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			again := mustRecords(t, p)
			if got := again.Slot(1 + i%2); got != someRecord(n) || again.Slot(2-i%2) != r.Slot(2-i%2) {
				t.Fatalf("after %d: %+v, want %+v", i, got, someRecord(n))
			}
		}
	}
	if r.sequence < 10 {
		t.Errorf("the log was compacted %d times; this test wants more", r.sequence)
	}
}

// TestRecordsSurvivePowerCuts lets the power fail in the midst of every program and erase of 150 changes, compactions
// among them: what is read afterwards is what stood before the change or after it.
func TestRecordsSurvivePowerCuts(t *testing.T) {
	change := func(r *Records, i int) error {
		if i%7 == 3 {
			return r.Raise(context.Background(), uint32(i))
		}
		return r.Set(context.Background(), 1+i%2, someRecord(byte(i)))
	}
	p := newBoard(t, small)
	r := mustRecords(t, p)
	cuts := 0
	for i := range 150 {
		for n := 0; ; n++ {
			before, floor := [2]SlotRecord{r.Slot(1), r.Slot(2)}, r.Floor()
			p.flash.CutAfter(n)
			err := change(r, i)
			done := !p.flash.Dark()
			p.flash.PowerOn()
			if !done && !errors.Is(err, flash.ErrPower) {
				t.Fatalf("change %d, cut %d: %v, want %v", i, n, err, flash.ErrPower)
			}
			r = mustRecords(t, p)
			if r.Note != "" {
				t.Fatalf("change %d, cut %d: %s", i, n, r.Note)
			}
			if done {
				if err != nil {
					t.Fatalf("change %d: %v", i, err)
				}
				break
			}
			cuts++
			for k, was := range before {
				got, want := r.Slot(k+1), someRecord(byte(i))
				noName := want // the state is in force before the name
				noName.Source = ""
				if got != was && (k != i%2 || got != want && got != noName) {
					t.Fatalf("change %d, cut %d: slot %d is %+v, was %+v, should become %+v", i, n, k+1, got, was, want)
				}
			}
			if r.Floor() != floor && r.Floor() != uint32(i) {
				t.Fatalf("change %d, cut %d: floor %d, was %d", i, n, r.Floor(), floor)
			}
		}
	}
	t.Logf("%d cuts, %d logs", cuts, r.sequence)
	if cuts < 300 || r.sequence < 3 {
		t.Errorf("%d cuts over %d logs; this test wants more", cuts, r.sequence)
	}
}

func TestRecordsOfGarbage(t *testing.T) {
	p := newBoard(t, small)
	start := recordsStart(Geometry{SectorBytes: small.SectorBytes, Slots: p.slots})
	p.put(t, start, noise(3, 4096))
	p.put(t, start+4096, noise(4, 4096))
	r := mustRecords(t, p)
	if !strings.Contains(r.Note, "unreadable") {
		t.Errorf("note %q does not say that the records are unreadable", r.Note)
	}
	if err := r.Set(t.Context(), 1, someRecord(1)); err != nil {
		t.Fatal(err)
	}
	if r = mustRecords(t, p); r.Note != "" || r.Slot(1) != someRecord(1) {
		t.Errorf("afterwards: note %q, %+v", r.Note, r.Slot(1))
	}
}

// TestRecordsOfNoise has the log itself damaged at random places: nothing is invented, and changes still take.
func TestRecordsOfNoise(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		p := newBoard(t, small)
		r := mustRecords(t, p)
		known := map[SlotRecord]bool{{State: Empty}: true}
		for i := range 20 {
			s := someRecord(byte(i))
			known[s] = true
			s.Source = ""
			known[s] = true
			if err := r.Set(t.Context(), 1, someRecord(byte(i))); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 { // bits fall to 0
			p.put(t, r.base[0]+64+uint32(rnd.IntN(40*64)), []byte{byte(rnd.Uint32())})
		}
		r = mustRecords(t, p)
		got := r.Slot(1)
		if !known[got] {
			other := got
			other.Source = "" // a name may be that of a load before, where the state between was lost
			if !known[other] {
				t.Fatalf("%+v was never recorded", got)
			}
		}
		if err := r.Set(t.Context(), 1, someRecord(99)); err != nil {
			t.Fatal(err)
		}
		if got := mustRecords(t, p).Slot(1); got != someRecord(99) {
			t.Fatalf("%+v, want %+v", got, someRecord(99))
		}
	}
}

// TestRecordsOfAnAlias: where the records show something that lies elsewhere too, nothing is erased.
func TestRecordsOfAnAlias(t *testing.T) {
	p := newBoard(t, flash.Part{JEDEC: 1, Bytes: 32 * 4096, SectorBytes: 4096, PageBytes: 256}, Slot{0, 8 * 4096}, Slot{8 * 4096, 8 * 4096})
	p.put(t, 0, noise(1, 8*4096))
	p.flash.Wrap(16 * 4096) // records start there
	was := p.sum(t, 0)
	r := mustRecords(t, p)
	var alias *AliasError
	if err := r.Set(t.Context(), 1, someRecord(1)); !errors.As(err, &alias) || alias.Same != 0 {
		t.Errorf("%v, want an AliasError with address 0", err)
	}
	if p.sum(t, 0) != was {
		t.Error("the golden slot was changed")
	}
}

// TestFloorSurvivesDamage: the rollback floor stays as it is when the first record of one log rots, or those of both.
func TestFloorSurvivesDamage(t *testing.T) {
	for _, tt := range []struct {
		name string
		both bool
		note string
	}{{"one", false, "older ones"}, {"both", true, "rollback counter 77"}} {
		p := newBoard(t, small)
		r := mustRecords(t, p)
		if err := r.Raise(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		for i := 0; r.sequence < 2; i++ { // the older log is full, and says 3
			if err := r.Set(t.Context(), 1, someRecord(byte(i))); err != nil {
				t.Fatal(err)
			}
		}
		for _, err := range []error{r.Raise(t.Context(), 77), r.Set(t.Context(), 2, someRecord(9))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, base := range r.base {
			if tt.both || i == r.active {
				p.put(t, base+60, make([]byte, 4))
			}
		}
		r = mustRecords(t, p)
		if r.Floor() != 77 || !strings.Contains(r.Note, tt.note) {
			t.Errorf("%s: floor %d, note %q; want 77 and something about %q", tt.name, r.Floor(), r.Note, tt.note)
		}
		if err := r.Set(t.Context(), 1, someRecord(1)); err != nil {
			t.Fatal(err)
		}
		if r = mustRecords(t, p); r.Floor() != 77 || r.Slot(1) != someRecord(1) {
			t.Errorf("%s, after another record: floor %d, %+v", tt.name, r.Floor(), r.Slot(1))
		}
	}
}

// TestFloorOfTwins: of two logs with one sequence number the higher floor counts.
func TestFloorOfTwins(t *testing.T) {
	for _, floors := range [][2]uint32{{5, 9}, {9, 5}} {
		p := newBoard(t, small)
		start := recordsStart(Geometry{SectorBytes: small.SectorBytes, Slots: p.slots})
		for i, floor := range floors {
			p.put(t, start+uint32(i)*small.SectorBytes, append(record('H', 0, 0, 4), record('F', 0, 0, floor)...))
		}
		if r := mustRecords(t, p); r.Floor() != 9 {
			t.Errorf("floors %d: %d, want 9", floors, r.Floor())
		}
	}
}

// TestSequenceWraps: the log after the one with the highest sequence number is in force.
func TestSequenceWraps(t *testing.T) {
	p := newBoard(t, small)
	p.put(t, recordsStart(Geometry{SectorBytes: small.SectorBytes, Slots: p.slots}), record('H', 0, 0, 1<<32-1))
	r := mustRecords(t, p)
	for i := 0; r.active == 0; i++ {
		if err := r.Set(t.Context(), 1, someRecord(byte(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Set(t.Context(), 1, someRecord(200)); err != nil {
		t.Fatal(err)
	}
	if got := mustRecords(t, p); got.active != 1 || got.Slot(1) != someRecord(200) {
		t.Errorf("log %d is in force with %+v, want 1 with %+v", got.active, got.Slot(1), someRecord(200))
	}
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(record('H', 0, 0, 1), record('F', 0, 0, 5)...))
	s, err := slotRecord(1, someRecord(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(append(record('H', 0, 0, 9), s...), journalRecord(1, journal{3, 4})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), 8192)]
		for i := 0; i+recordBytes <= len(b); i += recordBytes { // a fuzzer finds no CRC
			if b[i]%2 == 0 {
				b[i+3] = recordLayout
				seal(b[i : i+recordBytes])
			}
		}
		p := newBoard(t, small)
		p.put(t, recordsStart(Geometry{SectorBytes: small.SectorBytes, Slots: p.slots}), b)
		r, err := OpenRecords(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Set(t.Context(), 2, someRecord(5)); err != nil {
			t.Fatal(err)
		}
		if got := mustRecords(t, p).Slot(2); got != someRecord(5) {
			t.Fatalf("%+v, want %+v", got, someRecord(5))
		}
	})
}
