package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/emu/flash"
)

// A machine is a card of three slots that boots what a test says.
type machine struct {
	images  [3]machineImage
	running int
	back    bool // identity.boot.fallback
	failure string
	next    int
	away    int  // times that Open fails before the card is back; -1: for good
	slow    int  // times that an image still answers after its boot was started
	pending bool // a boot waits for that
	revive  bool // a reset brings the card back
	records []byte
	blank   [3]bool // slots of whose flash nothing was written
	alarms  Alarms
	seated  int // generation of what is on the bus: earlier handles are dead

	cut int   // calls after which the host ends; 0: it does not
	end error // what it panics with then

	fail map[string]error // by what is called, "set 2" or "mark bad"
	once map[string]bool  // which of these fail only once
	log  []string
}

// A machineImage is what a slot holds.
type machineImage struct {
	id   Identity
	fail string // why it does not load; empty: it does
	sick bool   // the gate does not let it pass
	dead bool   // the card does not come back with it
}

func newMachine() *machine {
	m := &machine{running: 1, next: 1, fail: map[string]error{}, once: map[string]bool{}}
	for i, name := range []string{"golden", "old", "new"} {
		m.images[i].id = Identity{Board: 1, IDCode: 0x13636093, UserCode: uint32(100 + i), Name: name, Version: fmt.Sprintf("%d.0.0", i), ShellDigest: 7, DataPathDigest: uint32(70 + i)}
	}
	return m
}

func (m *machine) did(what string) error {
	m.log = append(m.log, what)
	if m.cut > 0 && len(m.log) > m.cut {
		m.log = m.log[:m.cut]
		panic(m.end)
	}
	err := m.fail[what]
	if m.once[what] {
		delete(m.fail, what)
	}
	return err
}

// boots loads what is next.
func (m *machine) boots() {
	m.seated++
	m.pending = false
	m.running, m.back, m.failure = m.next, false, "none"
	if f := m.images[m.next].fail; f != "" {
		m.running, m.back, m.failure = 0, true, f
	}
	m.away = 2
	if m.images[m.running].dead {
		m.away = -1
	}
}

func (m *machine) open(context.Context) (Opened, error) {
	if m.away != 0 {
		if m.away > 0 {
			m.away--
		}
		return nil, device.ErrDeviceLost
	}
	return &handle{m, m.seated, false}, m.fail["open"]
}

// A handle is a machine as it was opened once.
type handle struct {
	*machine
	seat   int
	closed bool
}

func (h *handle) gone() error {
	if h.closed {
		panic("used after Close")
	}
	if h.pending {
		if h.slow--; h.slow < 0 {
			h.boots()
		}
	}
	if h.seat != h.seated {
		return device.ErrDeviceLost
	}
	return nil
}

func (h *handle) Geometry(context.Context) (Geometry, error) {
	return Geometry{JEDEC: 0x20ba20, Bytes: 64 << 20, SectorBytes: 64 << 10, PageBytes: 256, Slots: []Slot{{0, 16 << 20}, {16 << 20, 16 << 20}, {32 << 20, 16 << 20}}}, h.gone()
}
func (h *handle) Read(_ context.Context, at uint32, p []byte) error {
	for i := range p {
		p[i] = 0xff
	}
	if at == 48<<20 { // the first sector of records
		copy(p, h.records)
	}
	for i, blank := range h.blank {
		if at == uint32(i)*16<<20 && !blank {
			p[len(p)/2] = 0xaa
		}
	}
	return h.gone()
}
func (h *handle) Erase(context.Context, uint32) error           { panic("flash") }
func (h *handle) Program(context.Context, uint32, []byte) error { panic("flash") }
func (h *handle) Protected(context.Context) (bool, error)       { panic("flash") }
func (h *handle) Protect(context.Context, bool) error           { panic("flash") }

func (h *handle) Identity(context.Context) (Identity, error) {
	if err := h.gone(); err != nil {
		return Identity{}, err
	}
	return h.images[h.running].id, h.fail["identity"]
}

func (h *handle) Boot(context.Context) (Boot, error) {
	if err := h.gone(); err != nil {
		return Boot{}, err
	}
	return Boot{Running: h.running, Golden: h.running == 0, Fallback: h.back, Next: h.next, Error: h.failure}, h.fail["boot"]
}

func (h *handle) SetNext(_ context.Context, slot int) error {
	if err := h.gone(); err != nil {
		return err
	}
	if err := h.did(fmt.Sprintf("set %d", slot)); err != nil {
		return err
	}
	h.next = slot
	return nil
}

func (h *handle) Start(context.Context) error {
	if err := h.did("start"); err != nil {
		return err
	}
	h.pending = true
	if h.slow == 0 {
		h.boots()
	}
	return nil
}

func (h *handle) Close() error {
	h.closed = true
	return nil
}

func (m *machine) sequence() *BootSequence {
	measure := func(name string) Measure {
		return Measure{Plan: name, Take: func(context.Context) (func(context.Context) error, error) {
			return func(context.Context) error { return m.did("back " + name) }, m.did(name)
		}}
	}
	code := uint32(102)
	return &BootSequence{
		Slot: 2, Want: Expectation{Name: "new", Version: "2.0.0", UserCode: &code, DataPathDigest: 72},
		Open:     m.open,
		Measures: []Measure{measure("drain"), {Plan: "no upstream port: nothing to mask"}, measure("mask")},
		Gate: func(ctx context.Context, c Opened) error {
			if err := m.did("gate"); err != nil {
				return err
			}
			if m.images[m.running].sick {
				return errors.New("canary: no answer")
			}
			return nil
		},
		Mark: func(_ context.Context, _ Opened, slot int, good bool) error {
			return m.did(fmt.Sprintf("mark %d %v", slot, good))
		},
		Reset: func(context.Context) error {
			if m.revive {
				m.away = 0
			}
			return m.did("reset")
		},
		Leave: 20 * time.Millisecond, Return: 20 * time.Millisecond, Pause: time.Millisecond / 4, GateTimeout: time.Second,
	}
}

// A trier is a handle of a card that boots a slot without it being next.
type trier struct{ *handle }

func (t trier) Try(_ context.Context, slot int) error {
	if err := t.did(fmt.Sprintf("try %d", slot)); err != nil {
		return err
	}
	next := t.next
	t.next = slot
	t.boots()
	t.next = next
	return nil
}

func (t trier) Alarms(context.Context) (Alarms, error) { return t.alarms, nil }

// tries has the machine's card be a Trier.
func (m *machine) tries(s *BootSequence) {
	s.Open = func(ctx context.Context) (Opened, error) {
		c, err := m.open(ctx)
		if err != nil {
			return nil, err
		}
		return trier{c.(*handle)}, nil
	}
}

// remember has the machine's flash hold records of slots.
func (m *machine) remember(t *testing.T, records map[int]SlotRecord) {
	t.Helper()
	b := &board{slots: []Slot{{0, 16 << 20}, {16 << 20, 16 << 20}, {32 << 20, 16 << 20}}}
	var err error
	if b.flash, err = flash.New(flash.Config{Part: flash.MT25QL512}); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRecords(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for slot, x := range records {
		if err := r.Set(t.Context(), slot, x); err != nil {
			t.Fatal(err)
		}
	}
	m.records = b.bytes(t, 48<<20, 4096)
}

// TestTrial: a card that can boot a slot once is never left with a boot_next that nobody knows to run, wherever the host
// ends. It is cut off after each call in turn, then the power goes.
func TestTrial(t *testing.T) {
	errCut := errors.New("the host ends")
	for _, tt := range []struct {
		name string
		sick bool
		next int // before
		want []string
	}{
		{"well", false, 1, []string{"drain", "mask", "try 2", "gate", "set 2", "mark 2 true", "back mask", "back drain"}},
		{"sick", true, 1, []string{"drain", "mask", "try 2", "gate", "mark 2 false", "set 1", "start", "set 1", "back mask", "back drain"}},
		{"the new one is next already", false, 2, []string{"drain", "mask", "set 1", "try 2", "gate", "set 2", "mark 2 true", "back mask", "back drain"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole := newMachine()
			whole.next, whole.images[2].sick = tt.next, tt.sick
			s := whole.sequence()
			whole.tries(s)
			if out, err := s.Run(t.Context()); out.Booted == tt.sick {
				t.Fatalf("%v, %+v", err, out)
			}
			if !slices.Equal(whole.log, tt.want) {
				t.Fatalf("did %q\nwant %q", whole.log, tt.want)
			}
			for n := range tt.want {
				m := newMachine()
				m.next, m.images[2].sick = tt.next, tt.sick
				m.cut = n + 1
				s := m.sequence()
				m.tries(s)
				func() {
					defer func() {
						if r := recover(); r != nil && r != errCut {
							panic(r)
						}
					}()
					m.end = errCut
					_, _ = s.Run(t.Context())
				}()
				started := slices.Contains(m.log, "try 2")
				m.boots()
				if proved := slices.Contains(m.log, "set 2"); started && m.running == 2 && (tt.sick || !proved) || started && m.running == 0 {
					t.Errorf("ended after %q: power boots slot %d", m.log, m.running)
				}
			}
		})
	}
}

// TestTrialFromUnproven: what runs and never passed is not what the next power-on should try.
func TestTrialFromUnproven(t *testing.T) {
	m := newMachine()
	m.remember(t, map[int]SlotRecord{1: {State: Try, Bytes: 1}})
	s := m.sequence()
	m.tries(s)
	gate := s.Gate
	s.Gate = func(ctx context.Context, c Opened) error {
		if m.next != 0 {
			t.Errorf("boot_next is slot %d while slot 2 is tried from slot 1, which nobody knows", m.next)
		}
		return gate(ctx, c)
	}
	if out, err := s.Run(t.Context()); err != nil || !out.Booted || m.next != 2 {
		t.Errorf("%v, %+v", err, out)
	}
}

// TestBootRecorded: the image that answers has to be the one that was loaded.
func TestBootRecorded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		record SlotRecord
		why    string
	}{
		{"the same", SlotRecord{State: Try, Bytes: 1, Version: "2.0.0", DataPathDigest: 72}, ""},
		{"nothing known", SlotRecord{State: Try, Bytes: 1}, ""},
		{"another version", SlotRecord{State: Try, Bytes: 1, Version: "2.1.0"}, "version 2.0.0 instead of 2.1.0"},
		{"another version, once good", SlotRecord{State: Good, Bytes: 1, Version: "2.1.0"}, "version 2.0.0 instead of 2.1.0"},
		{"another data path", SlotRecord{State: Try, Bytes: 1, DataPathDigest: 73}, "data-path digest 0x00000048 instead of 0x00000049"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			m.remember(t, map[int]SlotRecord{2: tt.record})
			s := m.sequence()
			s.Want = Expectation{}
			out, err := s.Run(t.Context())
			if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), "slot 2 holds another image than expected: "+tt.why) {
				t.Errorf("error %v", err)
			}
			if out.Booted != (tt.why == "") || !out.Booted && (out.Running != 1 || m.next != 1 || !slices.Contains(m.log, "mark 2 false")) {
				t.Errorf("outcome %+v, %q", out, m.log)
			}
		})
	}
}

// TestBootPlan: a plan says what would be done and does nothing of it.
func TestBootPlan(t *testing.T) {
	m := newMachine()
	m.remember(t, map[int]SlotRecord{2: {State: Try, Bytes: 10_000_000, Version: "2.0.0"}})
	s := m.sequence()
	p, err := s.Plan(t.Context())
	if err != nil || len(m.log) != 0 || m.next != 1 || m.running != 1 {
		t.Fatalf("%v; did %q", err, m.log)
	}
	if p.Slot != 2 || p.Previous != 1 || p.Image.Version != "2.0.0" || !slices.Equal(p.Steps, s.Steps(1)) || !strings.Contains(p.Reset, "only if the card does not come back") {
		t.Errorf("%+v", p)
	}
	if p.Seconds != 0.4+gateTakes || p.AtMost <= p.Seconds-2 {
		t.Errorf("%v s, at most %v s", p.Seconds, p.AtMost)
	}
	s.Reset = nil
	if p, err := s.Plan(t.Context()); err != nil || !strings.Contains(p.Reset, "neither") {
		t.Errorf("%+v, %v", p, err)
	}
	s.Slot = 3
	if _, err := s.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), "slots 0 to 2") {
		t.Errorf("error %v", err)
	}
}

// TestBootAlarm: a card that is too hot is not booted.
func TestBootAlarm(t *testing.T) {
	for _, a := range []Alarms{{Temperature: true, Celsius: 99}, {Voltage: true}} {
		m := newMachine()
		m.alarms = a
		s := m.sequence()
		m.tries(s)
		_, err := s.Run(t.Context())
		if _, refused := errors.AsType[*Refused](err); !refused || len(m.log) != 0 {
			t.Errorf("%+v: %v, did %q", a, err, m.log)
		}
	}
}

// TestOutside: what is the same under the image before is not the new image's fault.
func TestOutside(t *testing.T) {
	for _, still := range []bool{true, false} {
		m := newMachine()
		s := m.sequence()
		s.Gate = func(context.Context, Opened) error {
			return fmt.Errorf("gate: %w", &OutsideError{Err: errors.New("no link"), What: "look at the cable",
				Still: func(context.Context, Opened) bool {
					if m.running != 1 {
						t.Errorf("asked under slot %d", m.running)
					}
					return still
				}})
		}
		out, err := s.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no link; slot 1 runs") || out.Running != 1 || m.next != 1 {
			t.Errorf("%v, %+v", err, out)
		}
		if bad := slices.Contains(m.log, "mark 2 false"); bad == still {
			t.Errorf("still %v, recorded bad %v", still, bad)
		}
		if told := strings.Contains(out.Advice, "look at the cable"); told != still {
			t.Errorf("still %v, advice %q", still, out.Advice)
		}
	}
}

// TestBootOrder: each step comes in its place, and what was taken is taken back at the end.
func TestBootOrder(t *testing.T) {
	m := newMachine()
	s := m.sequence()
	var said []string
	s.Say = func(step string) { said = append(said, step) }
	out, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"drain", "mask", "set 2", "start", "set 1", "gate", "set 2", "mark 2 true", "back mask", "back drain"}
	if !slices.Equal(m.log, want) {
		t.Errorf("did %q\nwant %q", m.log, want)
	}
	if !out.Booted || !out.Answers || out.Running != 2 || out.Previous != 1 || out.Next != 2 || out.Identity.Name != "new" || out.Why != "" || out.Advice != "" {
		t.Errorf("outcome %+v", out)
	}
	if m.next != 2 || len(said) < 6 || !slices.Contains(said, "no upstream port: nothing to mask") {
		t.Errorf("next %d, said %q", m.next, said)
	}
	if steps := strings.Join(s.Steps(1), "\n"); !strings.Contains(steps, "drain\nno upstream port") || !strings.Contains(steps, "try slot 1 as long as") {
		t.Errorf("steps %s", steps)
	}
}

// TestBootFails: whatever fails, the outcome is true of the card, boot_next leads to what runs, and nothing that was taken
// is kept.
func TestBootFails(t *testing.T) {
	lost := fmt.Errorf("read: %w", device.ErrDeviceLost)
	boom := errors.New("boom")
	for _, tt := range []struct {
		name    string
		change  func(*machine, *BootSequence)
		runs    int // slot; -1: nothing answers
		next    int
		bad     bool // slot 2 is recorded bad
		why     string
		advice  string
		started int // boots
		booted  bool
	}{
		{"open", func(m *machine, _ *BootSequence) { m.fail["open"] = boom }, 1, 1, false, "boom", "", 0, false},
		{"identity before", func(m *machine, _ *BootSequence) { m.fail["identity"] = boom }, 1, 1, false, "boom", "", 0, false},
		{"boot state before", func(m *machine, _ *BootSequence) { m.fail["boot"] = boom }, 1, 1, false, "boom", "", 0, false},
		{"no such slot", func(_ *machine, s *BootSequence) { s.Slot = 3 }, 1, 1, false, "slots 0 to 2", "", 0, false},
		{"a negative slot", func(_ *machine, s *BootSequence) { s.Slot = -1 }, 1, 1, false, "no slot -1", "", 0, false},
		{"drain", func(m *machine, _ *BootSequence) { m.fail["drain"] = boom }, 1, 1, false, "boom", "", 0, false},
		{"mask", func(m *machine, _ *BootSequence) { m.fail["mask"] = boom }, 1, 1, false, "boom", "", 0, false},
		{"next not stored", func(m *machine, _ *BootSequence) { m.fail["set 2"] = boom }, 1, 1, false, "boom", "", 0, false},
		{"start", func(m *machine, _ *BootSequence) { m.fail["start"] = boom }, 1, 1, false, "boom", "", 1, false},
		{"start, and the card is off", func(m *machine, _ *BootSequence) { m.fail["start"] = lost; m.once["start"] = true }, -1, 2, false, "has not left", "power", 1, false},
		{"another identity", func(m *machine, _ *BootSequence) { m.images[2].id.Version = "2.0.1" }, 1, 1, true, "version 2.0.1 instead of 2.0.0", "load FILE --slot 2", 2, false},
		{"another user code", func(m *machine, _ *BootSequence) { m.images[2].id.UserCode = 1 }, 1, 1, true, "user code 0x00000001", "", 2, false},
		{"another digest", func(m *machine, _ *BootSequence) { m.images[2].id.DataPathDigest = 1 }, 1, 1, true, "data-path digest", "", 2, false},
		{"it does not load", func(m *machine, _ *BootSequence) { m.images[2].fail = "crc" }, 1, 1, true, "slot 2 did not load: crc; the card fell back to slot 0", "", 2, false},
		{"gate", func(m *machine, _ *BootSequence) { m.images[2].sick = true }, 1, 1, true, "health gate: canary", "load FILE", 2, false},
		{"trial not taken back", func(m *machine, _ *BootSequence) { m.fail["set 1"] = boom; m.once["set 1"] = true }, 1, 1, true, "boot_next back to slot 1: boom", "", 2, false},
		{"kept not stored", func(m *machine, s *BootSequence) {
			gate := s.Gate
			s.Gate = func(ctx context.Context, c Opened) error { m.fail["set 2"] = boom; return gate(ctx, c) }
		}, 1, 1, true, "for good: boom", "", 2, false},
		{"good not recorded", func(m *machine, _ *BootSequence) { m.fail["mark 2 true"] = boom }, 2, 2, false, "not recorded good", "", 1, true},
		{"bad not recorded", func(m *machine, _ *BootSequence) { m.images[2].sick = true; m.fail["mark 2 false"] = boom }, 1, 1, true, "not recorded bad", "", 2, false},
		{"never back", func(m *machine, _ *BootSequence) { m.images[2].dead = true }, -1, 2, false, "did not come back", "power the machine off", 1, false},
		{"never back, and no reset", func(m *machine, s *BootSequence) { m.images[2].dead = true; s.Reset = nil }, -1, 2, false, "did not come back", "tries slot 2", 1, false},
		{"reset fails", func(m *machine, _ *BootSequence) { m.images[2].dead = true; m.fail["reset"] = boom }, -1, 2, false, "reset the card: boom", "", 1, false},
		{"reset brings it back", func(m *machine, _ *BootSequence) { m.images[2].dead, m.revive = true, true }, 2, 2, false, "", "", 1, true},
		{"the old one is dead, too", func(m *machine, _ *BootSequence) { m.images[2].sick, m.images[1].dead = true, true }, -1, 1, true, "did not come back", "tries slot 1", 2, false},
		{"the old one does not load", func(m *machine, _ *BootSequence) { m.images[2].sick, m.images[1].fail = true, "no_sync" }, 0, 0, true, "slot 1: slot 1 did not load: no_sync", "", 2, false},
		{"the old one is another", func(m *machine, s *BootSequence) {
			gate := s.Gate
			m.images[2].sick = true
			s.Gate = func(ctx context.Context, c Opened) error { m.images[1].id.Name = "x"; return gate(ctx, c) }
		}, 0, 0, true, "not what ran before", "", 3, false},
		{"golden is dead, too", func(m *machine, _ *BootSequence) {
			m.images[2].sick, m.images[1].fail, m.images[0].dead = true, "crc", true
		}, -1, 1, true, "did not come back", "tries slot 1", 2, false},
		{"golden cannot be booted", func(m *machine, s *BootSequence) {
			gate := s.Gate
			m.images[2].sick = true
			s.Gate = func(ctx context.Context, c Opened) error {
				m.fail["start"] = boom
				return gate(ctx, c)
			}
		}, 2, 0, true, "boom", "no slot holds", 3, false},
		{"from golden", func(m *machine, _ *BootSequence) { m.running, m.next, m.images[2].sick = 0, 0, true }, 0, 0, true, "health gate", "", 2, false},
		{"the same slot again", func(m *machine, s *BootSequence) { m.running, m.next = 2, 2 }, 2, 2, false, "", "", 1, true},
		{"the same slot, sick", func(m *machine, s *BootSequence) { m.running, m.next, m.images[2].sick = 2, 2, true }, 0, 0, true, "health gate", "", 2, false},
		{"after a fallback", func(m *machine, _ *BootSequence) { m.running, m.back, m.failure, m.next = 0, true, "crc", 0 }, 2, 2, false, "", "", 1, true},
		{"the same fallback again", func(m *machine, _ *BootSequence) {
			m.running, m.back, m.failure, m.next, m.images[2].fail = 0, true, "crc", 0, "crc"
		}, 0, 0, true, "slot 2 did not load: crc", "", 1, false},
		{"leaves late", func(m *machine, _ *BootSequence) { m.slow = 5 }, 2, 2, false, "", "", 1, true},
		{"leaves later than that is waited for", func(m *machine, s *BootSequence) { m.slow, s.Leave = 20, time.Nanosecond }, 2, 2, false, "", "", 1, true},
		{"mask not taken back", func(m *machine, _ *BootSequence) { m.fail["back mask"] = boom }, 2, 2, false, "boom", "", 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			s := m.sequence()
			tt.change(m, s)
			out, err := s.Run(t.Context())
			if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error()+out.Why, tt.why) {
				t.Errorf("error %v", err)
			}
			if out.Booted != tt.booted {
				t.Errorf("Booted = %v; %v", out.Booted, err)
			}
			answers := tt.runs >= 0
			if errors.Is(err, device.ErrDeviceLost) == answers {
				t.Errorf("answers %v, error %v", answers, err)
			}
			if answers && (out.Running != tt.runs && tt.started > 0 || m.running != tt.runs) || out.Answers != answers && tt.started > 0 || answers != (m.away == 0) && tt.name != "start, and the card is off" {
				t.Errorf("outcome %+v of slot %d, away %d; want slot %d", out, m.running, m.away, tt.runs)
			}
			if m.next != tt.next || tt.started > 0 && out.Next != tt.next {
				t.Errorf("boot_next is %d, outcome says %d, want %d", m.next, out.Next, tt.next)
			}
			if n := strings.Count(strings.Join(m.log, "\n"), "start"); n != tt.started {
				t.Errorf("%d boots, want %d: %q", n, tt.started, m.log)
			}
			if got := slices.Contains(m.log, "mark 2 false"); got != tt.bad {
				t.Errorf("recorded bad: %v", got)
			}
			if !strings.Contains(out.Advice, tt.advice) || tt.booted && out.Advice != "" {
				t.Errorf("advice %q", out.Advice)
			}
			for _, taken := range []string{"drain", "mask"} {
				if slices.Contains(m.log, taken) != slices.Contains(m.log, "back "+taken) {
					t.Errorf("%s is not taken back: %q", taken, m.log)
				}
			}
		})
	}
}

// TestBootEnds: the end of the context before the boot changes nothing, and after its begin does not end it.
func TestBootEnds(t *testing.T) {
	m := newMachine()
	ctx, cancel := context.WithCancel(t.Context())
	s := m.sequence()
	s.Measures = append(s.Measures, Measure{Plan: "end", Take: func(context.Context) (func(context.Context) error, error) { cancel(); return nil, nil }})
	out, err := s.Run(ctx)
	if !errors.Is(err, context.Canceled) || out.Booted || m.next != 1 || !slices.Equal(m.log, []string{"drain", "mask", "back mask", "back drain"}) {
		t.Errorf("%v, %+v, %q", err, out, m.log)
	}
	m = newMachine()
	ctx, cancel = context.WithCancel(t.Context())
	s = m.sequence()
	gate := s.Gate
	s.Gate = func(gctx context.Context, c Opened) error {
		cancel()
		return errors.Join(gctx.Err(), gate(gctx, c))
	}
	if out, err := s.Run(ctx); err != nil || !out.Booted {
		t.Errorf("%v, %+v", err, out)
	}
}

// TestGateTimeout: a gate that does not end is ended.
func TestGateTimeout(t *testing.T) {
	m := newMachine()
	s := m.sequence()
	s.GateTimeout = time.Millisecond
	s.Gate = func(ctx context.Context, _ Opened) error { <-ctx.Done(); return ctx.Err() }
	out, err := s.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "longer than 1ms") || out.Running != 1 {
		t.Errorf("%v, %+v", err, out)
	}
}

// TestBootLostInGate: a card that leaves its bus while the gate looks at it is lost, not a card whose images are all bad;
// and one that comes back goes to the image before.
func TestBootLostInGate(t *testing.T) {
	for _, tt := range []struct {
		name string
		away int
	}{{"for good", -1}, {"for a while", 3}} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			s := m.sequence()
			s.Reset = nil
			s.Gate = func(context.Context, Opened) error {
				m.away = tt.away
				m.seated++
				return fmt.Errorf("self-test: %w", device.ErrDeviceLost)
			}
			out, err := s.Run(t.Context())
			if err == nil || out.Booted {
				t.Fatalf("booted: %+v", out)
			}
			if tt.away < 0 {
				if out.Answers || out.Identity != nil || !errors.Is(err, ErrNotBack) || !strings.Contains(err.Error(), "nothing answers") || !strings.Contains(out.Advice, "off its bus") {
					t.Errorf("%v, %+v", err, out)
				}
			} else if !out.Answers || out.Running != 1 || m.next != 1 || !slices.Contains(m.log, "mark 2 false") {
				t.Errorf("%v, %+v, did %q", err, out, m.log)
			}
		})
	}
}

// TestBootNothing: a slot from which nothing can boot is refused before anything is taken, and a bad image has to be asked
// for.
func TestBootNothing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slot  int
		state State
		blank bool
		bad   bool   // asked for
		want  string // refused so; empty: booted
		do    string
	}{
		{"blank", 2, "", true, false, "slot 2 is empty", "load FILE --slot 2"},
		{"blank golden", 0, "", true, false, "slot 0 is empty", "--force-golden"},
		{"no record, not blank", 2, "", false, false, "", ""},
		{"half written", 2, Writing, false, false, "slot 2 is half written", "it goes on"},
		{"half written, bad asked for", 2, Writing, true, true, "slot 2 is half written", "it goes on"},
		{"bad", 2, Bad, false, false, "recorded bad", "--force-bad"},
		{"bad, asked for", 2, Bad, false, true, "", ""},
		{"what runs", 1, Bad, false, false, "", ""},
		{"golden", 0, "", false, false, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			if tt.state != "" {
				m.remember(t, map[int]SlotRecord{tt.slot: {State: tt.state, Bytes: 1}})
			}
			m.blank[tt.slot] = tt.blank
			s := m.sequence()
			s.Slot, s.Want, s.Bad = tt.slot, Expectation{}, tt.bad
			_, planned := s.Plan(t.Context())
			out, err := s.Run(t.Context())
			if tt.want == "" {
				if planned != nil || err != nil || !out.Booted {
					t.Errorf("%v, %v, %+v", planned, err, out)
				}
				return
			}
			for _, err := range []error{planned, err} {
				r, refused := errors.AsType[*Refused](err)
				if !refused || !strings.Contains(err.Error(), tt.want) || !strings.Contains(r.Do, tt.do) {
					t.Errorf("error %v, %+v", err, r)
				}
			}
			if len(m.log) != 0 {
				t.Errorf("did %q", m.log)
			}
		})
	}
}

// TestBootBare: a card that has no image at all is not said to run golden, and golden is written with words of its own.
func TestBootBare(t *testing.T) {
	m := newMachine()
	m.images[2].sick, m.images[1].fail, m.images[0].fail = true, "crc", "no_sync"
	s := m.sequence()
	gate := s.Gate
	s.Gate = func(ctx context.Context, c Opened) error {
		m.images[0].id.Name, m.images[0].id.Version = "", "0.0.0"
		return gate(ctx, c)
	}
	out, err := s.Run(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "; only the card's shell runs: no image is loaded") || !strings.Contains(out.Advice, "load FILE --slot 0 --force-golden --yes") {
		t.Errorf("%v, advice %q", err, out.Advice)
	}

	m = newMachine()
	m.running, m.next, m.images[0].sick = 0, 0, true
	s = m.sequence()
	s.Slot, s.Want = 0, Expectation{}
	if out, err := s.Run(t.Context()); err == nil || !strings.Contains(out.Advice, "--slot 0 --force-golden --yes") {
		t.Errorf("golden is sick: %v, advice %q", err, out.Advice)
	}
}
