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

// with is x and, where x says nothing, what a slot's record says of the image in it.
func (x Expectation) with(r SlotRecord) Expectation {
	if r.State == Empty || r.State == Writing {
		return x
	}
	if x.Version == "" {
		x.Version = r.Version
	}
	if x.DataPathDigest == 0 {
		x.DataPathDigest = r.DataPathDigest
	}
	return x
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

// An OutsideError is the error of a gate that failed for something the image need not be to blame for.
type OutsideError struct {
	Err error
	// Still says whether it is so under the image before, too. Then the new image is not to blame.
	Still func(ctx context.Context, c Opened) bool
	What  string // what is to blame then, and what to do about it
}

func (e *OutsideError) Error() string { return e.Err.Error() }

// Unwrap returns what failed.
func (e *OutsideError) Unwrap() error { return e.Err }

// A Trier is a card that can be started with a slot's image whatever boot_next is, which stays.
type Trier interface {
	Try(ctx context.Context, slot int) error
}

// A BootSequence has a card boot another slot, and stays with it only if what comes up is what was expected and passes the
// gate. Else the card goes back to the slot before, and to golden where that does not help.
//
// A power cut at any time, or the end of this process, finds a boot_next that leads to an image that ran, or to golden. With
// a card that is no Trier there is an exception: the time from the boot's start until the card answers again.
type BootSequence struct {
	Slot int
	Want Expectation // and what the slot's record says of its image
	Bad  bool        // boot the slot even though its image is recorded bad
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
		fmt.Sprintf("boot slot %d: the card leaves its bus", s.Slot),
		fmt.Sprintf("wait up to %v until it answers", orElse(s.Return, defaultReturn)))
	if s.Reset != nil {
		steps = append(steps, "reset it if it does not, and wait once more")
	}
	return append(steps,
		fmt.Sprintf("have the next power-on try slot %d as long as nothing is known of slot %d", previous, s.Slot),
		"compare what it says about itself, and let it pass the health gate",
		fmt.Sprintf("set boot_next to slot %d and record it good; on any failure record it bad and boot slot %d, then golden", s.Slot, previous))
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// A BootPlan is what a boot would do.
type BootPlan struct {
	Slot     int        `json:"slot"`
	Previous int        `json:"previous"` // runs now
	Image    SlotRecord `json:"image"`    // what the records say of the slot's image
	Steps    []string   `json:"steps"`
	Reset    string     `json:"reset"`   // whether the function or the bus is reset
	Seconds  float64    `json:"seconds"` // that services are expected to be away
	AtMost   float64    `json:"at_most"` // seconds until it is known what runs, if everything fails
}

// What a boot usually takes: an image comes out of the flash by four wires at 50 MHz, and what looks at it takes its time.
const (
	loadRate  = 25e6 // bytes a second
	gateTakes = 2    // seconds
)

// Plan says what Run would do, and fails where Run would begin nothing. It looks at the card and changes nothing.
func (s *BootSequence) Plan(ctx context.Context) (p *BootPlan, err error) {
	b := &booting{BootSequence: s, out: Outcome{Slot: s.Slot}}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.look(ctx); err != nil {
		return nil, err
	}
	p = &BootPlan{Slot: s.Slot, Previous: b.out.Previous, Image: b.record, Steps: s.Steps(b.out.Previous), Reset: "neither the function nor its bus is reset"}
	if s.Reset != nil {
		p.Reset = "the bus below the card's port is reset, but only if the card does not come back by itself"
	}
	bytes := b.record.Bytes
	if b.record.State == Empty || b.record.State == Writing || bytes == 0 {
		bytes = b.room
	}
	p.Seconds = float64(bytes)/loadRate + gateTakes
	once := orElse(s.Leave, defaultLeave) + orElse(s.Return, defaultReturn)
	if s.Reset != nil {
		once += orElse(s.Return, defaultReturn)
	}
	p.AtMost = (4*once + orElse(s.GateTimeout, defaultGate)).Seconds()
	return p, nil
}

// booting is one Run.
type booting struct {
	*BootSequence
	out    Outcome
	before Identity // what ran before
	want   Expectation
	record SlotRecord // of the slot
	room   uint32     // bytes of the slot
	safe   int        // slot that may be next while nothing is known of the new one
	card   Opened     // nil: none is open
	left   bool       // the card was seen to leave for the boot that is going on
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
	if err := b.try(ctx); err != nil {
		if b.card != nil { // it did not leave: what is next must not be an image that nobody tried
			err = errors.Join(err, b.secure(ctx))
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
	b.room = g.Slots[b.Slot].Bytes
	if err := CheckAlarms(ctx, b.card, "a boot"); err != nil {
		return err
	}
	b.want, b.safe = b.Want, st.Running
	r, err := OpenRecords(ctx, b.card)
	if _, without := errors.AsType[*Refused](err); without { // there is no room for records
		return b.holds(ctx, g.Slots[b.Slot], st)
	}
	if err != nil {
		return err
	}
	b.record = r.Slot(b.Slot)
	if err := b.holds(ctx, g.Slots[b.Slot], st); err != nil {
		return err
	}
	b.want = b.Want.with(b.record)
	if before := r.Slot(st.Running); before.State == Try || before.State == Bad { // who tried it did not come to the end
		b.safe = goldenSlot
	}
	return nil
}

// forceGolden is what a load of the golden slot needs besides.
const forceGolden = " --force-golden --yes"

// Bare says whether an identity is of a card's shell alone: no image was loaded, not even golden.
func (id *Identity) Bare() bool { return id.Name == "" && (id.Version == "" || id.Version == "0.0.0") }

// blankLook is how much of a slot is read to see whether it is blank. A load writes the first sector last.
const blankLook = 4096

// holds refuses a slot from which nothing can boot. What is lost otherwise is the time without services.
func (b *booting) holds(ctx context.Context, at Slot, st Boot) error {
	if b.Slot == st.Running && !st.Fallback && (st.Error == "" || st.Error == "none") {
		return nil // it has booted
	}
	load := fmt.Sprintf("load an image first: splicectl bitstream load FILE --slot %d", b.Slot)
	if b.Slot == goldenSlot {
		load += forceGolden
	}
	switch b.record.State {
	case Writing:
		return refuse("image", fmt.Sprintf("slot %d is half written: a load of it has not come to its end", b.Slot),
			fmt.Sprintf("give the load again, it goes on: splicectl bitstream load FILE --slot %d", b.Slot))
	case Bad:
		if !b.Bad {
			return refuse("image", fmt.Sprintf("the image in slot %d is recorded bad: it was booted and did not pass", b.Slot),
				fmt.Sprintf("load another image: splicectl bitstream load FILE --slot %d; or try this one once more with --force-bad", b.Slot))
		}
	}
	head := make([]byte, min(blankLook, at.Bytes))
	if err := b.card.Read(ctx, at.Offset, head); err != nil {
		return fmt.Errorf("look whether slot %d is blank: %w", b.Slot, err)
	}
	if blank(head) && (b.record.State == Empty || b.record.State == Bad) {
		return refuse("image", fmt.Sprintf("slot %d is empty: nothing was loaded into it, and its first bytes are blank", b.Slot), load)
	}
	return nil
}

// secure has the next power-on boot something that is known to run.
func (b *booting) secure(ctx context.Context) error {
	if err := b.card.SetNext(ctx, b.safe); err != nil {
		return fmt.Errorf("set boot_next back to slot %d: %w", b.safe, err)
	}
	b.out.Next = b.safe
	return nil
}

// try starts the new image.
func (b *booting) try(ctx context.Context) error {
	c, ok := b.card.(Trier)
	if !ok {
		return b.start(ctx, b.Slot)
	}
	b.say(fmt.Sprintf("boot slot %d", b.Slot))
	if b.out.Next != b.safe {
		if err := b.secure(ctx); err != nil {
			return err
		}
	}
	err := c.Try(ctx, b.Slot)
	if err != nil && !errors.Is(err, device.ErrDeviceLost) {
		return fmt.Errorf("start the boot of slot %d: %w", b.Slot, err)
	}
	return b.departs(ctx)
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
	return b.departs(ctx)
}

// departs waits until a card that was told to boot is gone, and closes what was open.
func (b *booting) departs(ctx context.Context) error {
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
	if b.out.Next != b.safe {
		if err := b.secure(ctx); err != nil {
			return err
		}
	}
	b.say("compare the image with what was expected")
	if err := b.booted(ctx, b.Slot); err != nil {
		return err
	}
	if diff := b.want.differs(b.out.Identity); diff != "" {
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
	if b.lost(ctx) {
		// What takes the card off its bus after it was back may be over, or end with a reset.
		b.left = true
		if err := b.await(ctx, b.Slot, b.out.Previous); err != nil {
			why = errors.Join(why, err)
		}
	}
	b.out.Why = why.Error()
	if b.card == nil {
		return b.gone(why)
	}
	outside, doubt := errors.AsType[*OutsideError](why)
	if !doubt {
		why = b.blame(ctx, why)
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
			switch {
			case !doubt || slot == b.Slot:
			case outside.Still(ctx, b.card):
				b.out.Advice = fmt.Sprintf("it is so under slot %d, too, so that slot %d is not to blame: %s; then splicectl bitstream boot %d again", slot, b.Slot, outside.What, b.Slot)
			default:
				why = b.blame(ctx, why)
			}
			return fmt.Errorf("%w; %s", why, b.runs())
		}
		b.out.Why += fmt.Sprintf("; and slot %d: %v", slot, err)
		why = errors.Join(why, fmt.Errorf("boot slot %d instead: %w", slot, err))
		b.lost(ctx)
		if b.card == nil {
			return b.gone(why)
		}
	}
	b.out.Advice = "no slot holds an image that works; the card's shell answers: splicectl bitstream load FILE --slot N writes another, splicectl bitstream boot N tries it"
	if b.out.Identity != nil && b.out.Identity.Bare() {
		b.out.Advice += ". Golden does not load: splicectl bitstream load FILE --slot 0" + forceGolden + " writes it anew"
	}
	return fmt.Errorf("%w; %s", why, b.runs())
}

// lost closes a card that is open and does not answer any more, and says whether it did.
func (b *booting) lost(ctx context.Context) bool {
	if b.card == nil {
		return false
	}
	id, err := b.card.Identity(ctx)
	if !errors.Is(err, device.ErrDeviceLost) && (err != nil || !absent(&id)) {
		return false
	}
	_ = b.close()
	return true
}

// blame records that the new image is bad, and returns why.
func (b *booting) blame(ctx context.Context, why error) error {
	if b.Mark == nil {
		return why
	}
	b.say(fmt.Sprintf("record slot %d bad", b.Slot))
	if err := b.Mark(ctx, b.card, b.Slot, false); err != nil {
		return errors.Join(why, fmt.Errorf("slot %d is not recorded bad: %w", b.Slot, err))
	}
	return why
}

// runs says in words what runs.
func (b *booting) runs() string {
	if b.out.Identity == nil {
		return "nothing runs"
	}
	if b.out.Identity.Bare() {
		return "only the card's shell runs: no image is loaded"
	}
	name := fmt.Sprintf("slot %d", b.out.Running)
	if b.out.Running == goldenSlot {
		name = "golden"
	}
	return fmt.Sprintf("%s runs: %q %s", name, b.out.Identity.Name, b.out.Identity.Version)
}

func (b *booting) advice() string {
	do := fmt.Sprintf("load another image into slot %d: splicectl bitstream load FILE --slot %d", b.Slot, b.Slot)
	if b.Slot == goldenSlot {
		do += forceGolden
	}
	return do
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
	if b.out.Identity != nil && b.out.Identity.Bare() && !b.before.Bare() {
		return fmt.Errorf("slot %d did not load either: only the card's shell runs", slot)
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
