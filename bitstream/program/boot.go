package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"splicenic/driver/device"
)

// An Opened is a card for as long as its bus has it.
type Opened interface {
	Card
	io.Closer
}

// A Measure is taken before the card leaves its bus and taken back at the end, whatever happened.
type Measure struct {
	Plan string // in words
	// Take returns what takes it back; nil: nothing has to be. A nil Take: there is nothing to do, and Plan says why.
	Take func(ctx context.Context) (back func(ctx context.Context) error, err error)
}

// An Expectation is what the new image has to say about itself. Zero fields are not compared.
type Expectation struct {
	Name, Version               string
	UserCode                    *uint32
	ShellDigest, DataPathDigest uint32
}

// differs says what an identity lacks; empty: nothing.
func (x *Expectation) differs(id *Identity) string {
	var list []string
	say := func(what string, want, got any) {
		list = append(list, fmt.Sprintf("%s %v instead of %v", what, got, want))
	}
	if x.Name != "" && x.Name != id.Name {
		say("name", fmt.Sprintf("%q", x.Name), fmt.Sprintf("%q", id.Name))
	}
	if x.Version != "" && x.Version != id.Version {
		say("version", x.Version, id.Version)
	}
	if x.UserCode != nil && *x.UserCode != id.UserCode {
		say("user code", fmt.Sprintf("%#08x", *x.UserCode), fmt.Sprintf("%#08x", id.UserCode))
	}
	if x.ShellDigest != 0 && x.ShellDigest != id.ShellDigest {
		say("shell digest", fmt.Sprintf("%#08x", x.ShellDigest), fmt.Sprintf("%#08x", id.ShellDigest))
	}
	if x.DataPathDigest != 0 && x.DataPathDigest != id.DataPathDigest {
		say("data-path digest", fmt.Sprintf("%#08x", x.DataPathDigest), fmt.Sprintf("%#08x", id.DataPathDigest))
	}
	return strings.Join(list, ", ")
}

// A BootSequence has a card boot another slot, and stays with it only if what comes up is what was expected and passes the
// gate. Else the card goes back to the slot before, and to golden where that does not help. A power cut at any time finds a
// boot_next that leads to an image that ran, but for the time from the boot's start until the card answers again.
type BootSequence struct {
	Slot int
	Want Expectation
	// Open opens the card as the bus has it now. It is called again, after pauses, for as long as the card does not answer.
	Open func(ctx context.Context) (Opened, error)
	// Measures are taken in this order, and back in the opposite one.
	Measures []Measure
	// Reset tries to bring a card back that does not answer in time. nil: nothing can be done.
	Reset func(ctx context.Context) error
	// Gate says whether an image may stay. nil: what identifies itself may.
	Gate func(ctx context.Context, c Opened) error
	// Mark records what became of a slot's image. nil: nobody does.
	Mark func(ctx context.Context, c Opened, slot int, good bool) error
	// Say is told each step as it begins. nil: nobody is.
	Say func(step string)

	Leave       time.Duration // a card that boots leaves its bus within this; zero: 2 s
	Return      time.Duration // and answers again within this; zero: 30 s
	GateTimeout time.Duration // zero: 60 s
	Pause       time.Duration // between two looks; zero: 50 ms
}

const (
	defaultLeave  = 2 * time.Second
	defaultReturn = 30 * time.Second
	defaultGate   = 60 * time.Second
	defaultPause  = 50 * time.Millisecond
	goldenSlot    = 0
)

// An Outcome is what runs at the end, and why.
type Outcome struct {
	Slot     int       `json:"slot"`     // asked for
	Previous int       `json:"previous"` // ran before
	Booted   bool      `json:"booted"`   // the slot's image runs and stays
	Answers  bool      `json:"answers"`  // the card is on its bus
	Running  int       `json:"running"`  // slot, where it answers
	Fallback bool      `json:"fallback"` // of the card's own: what runs was its way back
	Next     int       `json:"next"`     // slot that the next power-on tries first, as far as is known
	Identity *Identity `json:"identity"` // of what runs; null: nothing answers
	Why      string    `json:"why"`      // why it is not the slot's image; empty: it is
	Advice   string    `json:"advice"`   // what to do; empty: nothing
}

// ErrNotBack is the error of a card that did not come back to its bus. It is a device.ErrDeviceLost.
var ErrNotBack = fmt.Errorf("the card did not come back to its bus: %w", device.ErrDeviceLost)

// Steps are what Run does, in words.
func (s *BootSequence) Steps(previous int) []string {
	var steps []string
	for _, m := range s.Measures {
		steps = append(steps, m.Plan)
	}
	steps = append(steps,
		fmt.Sprintf("set boot_next to slot %d and start the boot: the card leaves its bus", s.Slot),
		fmt.Sprintf("wait up to %v until it answers", orElse(s.Return, defaultReturn)))
	if s.Reset != nil {
		steps = append(steps, "reset it if it does not, and wait once more")
	}
	return append(steps,
		fmt.Sprintf("set boot_next back to slot %d", previous),
		"compare what it says about itself, and let it pass the health gate",
		fmt.Sprintf("set boot_next to slot %d and record it good; on any failure record it bad and boot slot %d, then golden", s.Slot, previous))
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// booting is one Run.
type booting struct {
	*BootSequence
	out    Outcome
	before Identity // what ran before
	card   Opened   // nil: none is open
	left   bool     // the card was seen to leave for the boot that is going on
}

// Run boots. Until the boot begins the end of ctx ends it with nothing changed; from then on the card is not left alone
// before it is known what runs, which every step's own timeout bounds. The Outcome counts in either case; without error it
// is Booted.
func (s *BootSequence) Run(ctx context.Context) (out Outcome, err error) {
	b := &booting{BootSequence: s, out: Outcome{Slot: s.Slot}}
	defer func() { err = errors.Join(err, b.close()); out = b.out }()
	if err := b.look(ctx); err != nil {
		return b.stays(err)
	}
	var back []func(context.Context) error
	defer func() {
		for i := len(back) - 1; i >= 0; i-- {
			err = errors.Join(err, back[i](context.WithoutCancel(ctx)))
		}
	}()
	for _, m := range s.Measures {
		b.say(m.Plan)
		if m.Take == nil {
			continue
		}
		undo, err := m.Take(ctx)
		if undo != nil {
			back = append(back, undo)
		}
		if err != nil {
			return b.stays(fmt.Errorf("%s: %w", m.Plan, err))
		}
	}
	if err := ctx.Err(); err != nil {
		return b.stays(context.Cause(ctx))
	}
	ctx = context.WithoutCancel(ctx)
	if err := b.start(ctx, s.Slot); err != nil {
		if b.card != nil { // it did not leave: what is next must not be an image that nobody tried
			if e := b.card.SetNext(ctx, b.out.Previous); e != nil {
				err = errors.Join(err, fmt.Errorf("set boot_next back to slot %d: %w", b.out.Previous, e))
			} else {
				b.out.Next = b.out.Previous
			}
		}
		return b.stays(err)
	}
	if err := b.prove(ctx); err != nil {
		return b.out, b.retreat(ctx, err)
	}
	return b.out, b.keep(ctx)
}

func (b *booting) say(step string) {
	if b.Say != nil {
		b.Say(step)
	}
}

// close lets the card go, where one is open.
func (b *booting) close() error {
	if b.card == nil {
		return nil
	}
	c := b.card
	b.card = nil
	if err := c.Close(); err != nil && !errors.Is(err, device.ErrDeviceLost) {
		return fmt.Errorf("let the card go: %w", err)
	}
	return nil
}

// look finds out what runs.
func (b *booting) look(ctx context.Context) (err error) {
	if b.card, err = b.Open(ctx); err != nil {
		b.card = nil
		return err
	}
	if b.before, err = b.card.Identity(ctx); err != nil {
		return fmt.Errorf("identify the card: %w", err)
	}
	st, err := b.card.Boot(ctx)
	if err != nil {
		return fmt.Errorf("read the boot state: %w", err)
	}
	b.out.Previous = st.Running
	b.note(b.before, st)
	g, err := geometry(ctx, b.card)
	if err != nil {
		return err
	}
	if b.Slot < 0 || b.Slot >= len(g.Slots) {
		return refuse("slot", fmt.Sprintf("there is no slot %d: the card has slots 0 to %d", b.Slot, len(g.Slots)-1), "splicectl bitstream list shows them")
	}
	return nil
}

// note keeps what runs for the outcome.
func (b *booting) note(id Identity, st Boot) {
	b.out.Answers, b.out.Identity = true, &id
	b.out.Running, b.out.Fallback, b.out.Next = st.Running, st.Fallback, st.Next
}

// stays is the outcome of a boot that did not begin.
func (b *booting) stays(err error) (Outcome, error) {
	b.out.Why = "nothing was booted: " + err.Error()
	return b.out, err
}

// start makes the card leave. It is open afterwards only where it did not.
func (b *booting) start(ctx context.Context, slot int) error {
	b.say(fmt.Sprintf("boot slot %d", slot))
	if err := b.card.SetNext(ctx, slot); err != nil {
		return fmt.Errorf("set boot_next to slot %d: %w", slot, err)
	}
	b.out.Next = slot
	st, err := b.card.Boot(ctx)
	if err != nil {
		return fmt.Errorf("read boot_next back: %w", err)
	}
	if st.Next != slot {
		return fmt.Errorf("boot_next is slot %d after slot %d was stored", st.Next, slot)
	}
	if err := b.card.Start(ctx); err != nil && !errors.Is(err, device.ErrDeviceLost) {
		return fmt.Errorf("start the boot of slot %d: %w", slot, err)
	}
	b.out.Answers, b.out.Identity = false, nil
	b.left = b.leaves(ctx)
	return b.close()
}

// leaves waits for a while until the card is gone, so that what it says afterwards is known to be of after its boot.
func (b *booting) leaves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, orElse(b.Leave, defaultLeave))
	defer cancel()
	for {
		if id, err := b.card.Identity(ctx); err != nil || absent(&id) {
			return ctx.Err() == nil
		}
		if !b.rest(ctx) {
			return false
		}
	}
}

// absent says whether an identity is what reads of a card say that is not there.
func absent(id *Identity) bool { return id.ShellDigest == 1<<32-1 || id.IDCode == 1<<32-1 }

// rest pauses between two looks; false at the end of ctx.
func (b *booting) rest(ctx context.Context) bool {
	t := time.NewTimer(orElse(b.Pause, defaultPause))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// await waits until the card answers after the boot of a slot. from is the slot it left: an answer from there that tells of
// no failure is of before it left.
func (b *booting) await(ctx context.Context, slot, from int) error {
	b.say("wait for the card")
	err := b.poll(ctx, slot, from)
	if err == nil || b.Reset == nil {
		return err
	}
	b.say("reset the card, which does not answer")
	if e := b.Reset(ctx); e != nil {
		return errors.Join(err, fmt.Errorf("reset the card: %w", e))
	}
	return b.poll(ctx, slot, from)
}

// poll opens the card until it answers.
func (b *booting) poll(ctx context.Context, slot, from int) error {
	limit := orElse(b.Return, defaultReturn)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		if err := b.answer(ctx, slot, from); err == nil {
			return nil
		} else if ctx.Err() == nil || last == nil {
			last = err
		}
		if !b.rest(ctx) {
			return fmt.Errorf("%w within %v (at the last look: %w)", ErrNotBack, limit, last)
		}
	}
}

var errNotLeft = errors.New("it has not left yet")

// answer opens the card and asks who it is.
func (b *booting) answer(ctx context.Context, slot, from int) error {
	c, err := b.Open(ctx)
	if err != nil {
		return err
	}
	id, err := c.Identity(ctx)
	var st Boot
	if err == nil {
		st, err = c.Boot(ctx)
	}
	switch {
	case err != nil:
	case absent(&id):
		err = fmt.Errorf("it reads all ones: %w", device.ErrDeviceLost)
	case !b.left && slot != from && st.Running == from && !st.Fallback && (st.Error == "" || st.Error == "none"):
		err = errNotLeft
	}
	if err != nil {
		_ = c.Close()
		return err
	}
	b.card = c
	b.note(id, st)
	return nil
}

// prove waits for the new image, takes the trial back at once, and looks whether it is what was wanted and well.
func (b *booting) prove(ctx context.Context) error {
	if err := b.await(ctx, b.Slot, b.out.Previous); err != nil {
		return err
	}
	if err := b.card.SetNext(ctx, b.out.Previous); err != nil {
		return fmt.Errorf("set boot_next back to slot %d: %w", b.out.Previous, err)
	}
	b.out.Next = b.out.Previous
	b.say("compare the image with what was expected")
	if err := b.booted(ctx, b.Slot); err != nil {
		return err
	}
	if diff := b.Want.differs(b.out.Identity); diff != "" {
		return fmt.Errorf("slot %d holds another image than expected: %s", b.Slot, diff)
	}
	if b.Gate == nil {
		return nil
	}
	b.say("health gate")
	limit := orElse(b.GateTimeout, defaultGate)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer cancel()
	if err := b.Gate(ctx, b.card); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		return fmt.Errorf("health gate: %w", err)
	}
	return nil
}

// booted says why what runs is not a slot's image.
func (b *booting) booted(ctx context.Context, slot int) error {
	st, err := b.card.Boot(ctx)
	if err != nil {
		return fmt.Errorf("read the boot state: %w", err)
	}
	failed := ""
	if st.Error != "" && st.Error != "none" {
		failed = ": " + st.Error
	}
	switch {
	case st.Fallback:
		return fmt.Errorf("slot %d did not load%s; the card fell back to slot %d", slot, failed, st.Running)
	case failed != "":
		return fmt.Errorf("slot %d did not load%s", slot, failed)
	case st.Running != slot:
		return fmt.Errorf("slot %d runs after slot %d was booted", st.Running, slot)
	}
	return nil
}

// keep makes the new image the one that stays.
func (b *booting) keep(ctx context.Context) error {
	if err := b.card.SetNext(ctx, b.Slot); err != nil {
		return b.retreat(ctx, fmt.Errorf("set boot_next to slot %d for good: %w", b.Slot, err))
	}
	b.out.Next, b.out.Booted = b.Slot, true
	if b.Mark != nil {
		if err := b.Mark(ctx, b.card, b.Slot, true); err != nil {
			return fmt.Errorf("slot %d runs and is the one that boots, but is not recorded good: %w", b.Slot, err)
		}
	}
	return nil
}

// retreat goes back to an image that is known to work, and returns why with what came of that.
func (b *booting) retreat(ctx context.Context, why error) error {
	b.out.Why = why.Error()
	if b.card == nil {
		return b.gone(why)
	}
	if b.Mark != nil {
		b.say(fmt.Sprintf("record slot %d bad", b.Slot))
		if err := b.Mark(ctx, b.card, b.Slot, false); err != nil {
			why = errors.Join(why, fmt.Errorf("slot %d is not recorded bad: %w", b.Slot, err))
		}
	}
	ways := []int{b.out.Previous, goldenSlot}
	if b.out.Previous == goldenSlot {
		ways = ways[:1]
	}
	for i, slot := range ways {
		if slot == b.Slot && i < len(ways)-1 {
			continue // it is what has just failed
		}
		err := b.returnTo(ctx, slot)
		if err == nil {
			b.out.Advice = b.advice()
			return fmt.Errorf("%w; %s", why, b.runs())
		}
		b.out.Why += fmt.Sprintf("; and slot %d: %v", slot, err)
		why = errors.Join(why, fmt.Errorf("boot slot %d instead: %w", slot, err))
		if b.card == nil {
			return b.gone(why)
		}
	}
	b.out.Advice = "no slot holds an image that works; the card's shell answers: splicectl bitstream load FILE --slot N writes another, splicectl bitstream boot N tries it"
	return fmt.Errorf("%w; %s", why, b.runs())
}

// runs says in words what runs.
func (b *booting) runs() string {
	if b.out.Identity == nil {
		return "nothing runs"
	}
	name := fmt.Sprintf("slot %d", b.out.Running)
	if b.out.Running == goldenSlot {
		name = "golden"
	}
	return fmt.Sprintf("%s runs: %q %s", name, b.out.Identity.Name, b.out.Identity.Version)
}

func (b *booting) advice() string {
	return fmt.Sprintf("load another image into slot %d: splicectl bitstream load FILE --slot %d", b.Slot, b.Slot)
}

// returnTo has the card run a slot that ran before. Where the card fell back to it by itself nothing has to be booted.
func (b *booting) returnTo(ctx context.Context, slot int) error {
	if b.out.Running != slot {
		if err := b.start(ctx, slot); err != nil {
			return err
		}
		if err := b.await(ctx, slot, b.out.Running); err != nil {
			return err
		}
		if err := b.booted(ctx, slot); err != nil {
			return err
		}
	}
	if slot == b.out.Previous {
		x := Expectation{Name: b.before.Name, Version: b.before.Version, UserCode: &b.before.UserCode, ShellDigest: b.before.ShellDigest, DataPathDigest: b.before.DataPathDigest}
		if diff := x.differs(b.out.Identity); diff != "" {
			return fmt.Errorf("it is not what ran before: %s", diff)
		}
	}
	if err := b.card.SetNext(ctx, slot); err != nil {
		return fmt.Errorf("set boot_next to slot %d: %w", slot, err)
	}
	b.out.Next = slot
	return nil
}

// gone is the end where nothing answers.
func (b *booting) gone(why error) error {
	b.out.Answers, b.out.Identity = false, nil
	b.out.Advice = fmt.Sprintf("the card is off its bus. Its next power-on tries slot %d, and golden if that does not load: "+
		"power the machine off and on (a warm restart may not be enough), then splicectl card list and splicectl bitstream list say what runs", b.out.Next)
	return fmt.Errorf("%w; nothing answers", why)
}
