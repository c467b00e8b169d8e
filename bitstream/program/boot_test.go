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
	seated  int  // generation of what is on the bus: earlier handles are dead

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
func (h *handle) Read(context.Context, uint32, []byte) error    { panic("flash") }
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
	if steps := strings.Join(s.Steps(1), "\n"); !strings.Contains(steps, "drain\nno upstream port") || !strings.Contains(steps, "back to slot 1") {
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
