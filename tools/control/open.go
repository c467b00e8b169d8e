package control

import (
	"context"
	"errors"
	"time"

	"splicenic/driver"
	"splicenic/runtime/admin"
	"splicenic/tools/open"
)

// DefaultName is what a runtime is called that nobody gave a name.
const DefaultName = "splice"

// Config says whom to ask.
type Config struct {
	Card    string // empty: auto
	Socket  string // empty: the default path
	Shell   bool   // registers are enough: without a runtime nothing is stored into the card
	Note    func(text string)
	VFIO    open.VFIOOptions
	Machine open.Machine
}

// Open finds the runtime, or where none listens opens the card itself, for this process alone. An emulated card is then a
// fresh one, at its reset values, and Note is told so. A card that a runtime has left running is left running.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	c, err := Runtime(ctx, cfg)
	if c != nil || err != nil {
		return c, err
	}
	choice, err := open.Choose(cfg.Card, cfg.Machine.Discover())
	if err != nil {
		return nil, err
	}
	note := func(text string) {
		if cfg.Note != nil && text != "" {
			cfg.Note(text)
		}
	}
	note(choice.Note)
	card, err := open.Open(ctx, choice, open.Config{VFIO: cfg.VFIO, Machine: cfg.Machine})
	if err != nil {
		return nil, err
	}
	drv, err := driver.Open(ctx, card, bare(card, cfg.Shell))
	if err != nil {
		return nil, errors.Join(err, card.Detach())
	}
	if card.Emulated() {
		note("no runtime at " + socketPath(cfg) + ": this is a fresh emulated card at its reset values")
	}
	c = &Client{Where: choice.String(), close: func() error { return leave(card, drv, cfg.Shell) }}
	c.http.Transport = handled{admin.Handler(admin.Bare(drv), nil)}
	return c, nil
}

// bare is how a card is opened for a few questions. Its rings are small, and never those that a runtime has left behind:
// the next runtime sees that by their sizes.
func bare(card *open.Card, shell bool) driver.Config {
	cfg := driver.Config{Shell: shell, Adopt: card.Outlives(), Rings: driver.Rings{Exception: 16, Event: 16, Completion: 16, Inject: 16, Command: 16, FrameBytes: 16384}}
	if card.Emulated() {
		begin := time.Now()
		cfg.Pump = func() { card.Step(time.Since(begin)) }
	}
	return cfg
}

// leave lets a card go after a few questions.
func leave(card *open.Card, drv *driver.Card, shell bool) error {
	switch {
	case shell:
		return card.Detach()
	case drv.Adopted():
		return errors.Join(drv.Leave(context.Background()), card.Detach())
	}
	return errors.Join(drv.Shutdown(context.Background()), card.Close())
}

// Runtime returns a client of the runtime, nil where none listens.
func Runtime(ctx context.Context, cfg Config) (*Client, error) {
	return dialSocket(ctx, socketPath(cfg))
}

func socketPath(cfg Config) string {
	if cfg.Socket != "" {
		return cfg.Socket
	}
	return admin.DefaultSocket(DefaultName)
}
