// Package boot has a card boot another image: it joins the sequence of package program to cards as users name them, and
// says which image is well.
//
// The card is nobody else's meanwhile. What it ran before ends; nothing of a runtime is started.
package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"splicenic/bitstream"
	"splicenic/bitstream/program"
	"splicenic/driver"
	"splicenic/driver/discover"
	"splicenic/runtime/flash"
	"splicenic/tools/open"
)

// Config says what to boot and how the card is reached.
type Config struct {
	Slot   int
	Expect program.Expectation
	Bad    bool // boot an image that is recorded bad
	// Drained says in the plan what became of the services. Empty: none ran.
	Drained string
	Choice  open.Choice
	Open    open.Config
	// Card is an emulated card in this process, which has to move meanwhile: somebody runs it. nil: Choice is opened.
	Card *open.Card
	Say  func(step string)

	Return time.Duration // zero: 30 s
}

// session is a card as it was opened once.
type session struct {
	flash.Card
	dev *open.Card
}

func (s session) Close() error { return s.dev.Close() }

// opener opens the card again and again.
func (cfg *Config) opener() func(context.Context) (*open.Card, error) {
	if cfg.Card != nil {
		return func(context.Context) (*open.Card, error) { return cfg.Card.Again() }
	}
	return func(ctx context.Context) (*open.Card, error) {
		if cfg.Choice.Body == open.VFIO {
			if err := discover.Revive(ctx, cfg.Open.Machine.Discover(), cfg.Choice.Name); err != nil {
				return nil, err
			}
		}
		return open.Open(ctx, cfg.Choice, cfg.Open)
	}
}

// Sequence makes the sequence. It looks at the bus, and opens nothing yet.
func Sequence(cfg Config) (*program.BootSequence, error) {
	openCard := cfg.opener()
	var before *links
	s := &program.BootSequence{
		Slot: cfg.Slot, Want: cfg.Expect, Bad: cfg.Bad, Say: cfg.Say, Return: cfg.Return,
		Open: func(ctx context.Context) (program.Opened, error) {
			dev, err := openCard(ctx)
			if err != nil {
				return nil, err
			}
			drv, err := driver.Open(ctx, dev, driver.Config{Shell: true})
			if err != nil {
				return nil, errors.Join(err, dev.Close())
			}
			if before == nil {
				before = linksOf(drv)
			}
			return session{flash.Of(drv), dev}, nil
		},
		Gate: func(ctx context.Context, c program.Opened) error { return gate(ctx, c.(session).dev, *before) },
		Mark: mark,
	}
	drained := cfg.Drained
	if drained == "" {
		drained = "no services run: nothing to drain"
	}
	s.Measures = append(s.Measures, program.Measure{Plan: drained})
	if cfg.Card != nil || cfg.Choice.Body != open.VFIO {
		s.Measures = append(s.Measures, program.Measure{Plan: "the card is on no bus of this machine: there is no port above it to keep quiet"})
		return s, nil
	}
	quiet, err := discover.Upstream(cfg.Open.Machine.Discover(), cfg.Choice.Name)
	switch {
	case errors.Is(err, discover.ErrNoPort):
		s.Measures = append(s.Measures, program.Measure{Plan: "keep no port quiet: " + err.Error()})
	case err != nil:
		return nil, err
	default:
		s.Measures = append(s.Measures, program.Measure{Plan: quiet.Plan(), Take: func(context.Context) (func(context.Context) error, error) {
			return func(context.Context) error { return quiet.Restore() }, quiet.Mask()
		}})
		s.Reset = quiet.Reset
	}
	return s, nil
}

// mark records in the card's flash what became of a slot's image. The factory's golden image needs no record; one that was
// loaded has a rollback counter, which has to count once it ran.
func mark(ctx context.Context, c program.Opened, slot int, good bool) error {
	if slot == 0 {
		r, err := program.OpenRecords(ctx, c)
		if err != nil || r.Slot(0).State == program.Empty {
			return err
		}
	}
	state := program.Bad
	if good {
		state = program.Good
	}
	return program.Mark(ctx, c, slot, state)
}

// Describe writes a plan for a person.
func Describe(w io.Writer, p *program.BootPlan) {
	image := "of which the card's records say nothing"
	if p.Image.State != program.Empty {
		image = fmt.Sprintf("recorded %s: version %s, from %s", p.Image.State, orUnknown(p.Image.Version), orUnknown(p.Image.Source))
	}
	fmt.Fprintf(w, "boot slot %d, %s; slot %d runs now\n", p.Slot, image, p.Previous)
	for _, s := range p.Steps {
		fmt.Fprintln(w, "  "+s)
	}
	fmt.Fprintf(w, "%s; the card is away for about %.1f s, and within %.0f s it is known what runs\n", p.Reset, p.Seconds, p.AtMost)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return bitstream.Printable(s)
}

// Explain says in a sentence what a sequence came to.
func Explain(out program.Outcome) string {
	switch {
	case out.Booted:
		return fmt.Sprintf("slot %d runs: %q %s", out.Running, out.Identity.Name, out.Identity.Version)
	case !out.Answers:
		return "the card does not answer"
	case out.Identity != nil && out.Identity.Bare():
		return "only the card's shell runs: no image is loaded"
	}
	return fmt.Sprintf("slot %d runs, not slot %d", out.Running, out.Slot)
}
