package control

import (
	"context"
	"errors"
	"time"

	"splicenic/driver"
	"splicenic/driver/discover"
	"splicenic/runtime/admin"
	"splicenic/tools/open"
)

// DefaultName is what a runtime is called that nobody gave a name.
const DefaultName = "splice"

// Config says whom to ask.
type Config struct {
	Card   string // empty: auto
	Socket string // empty: the default path
	Shell  bool   // registers are enough: without a runtime nothing is stored into the card
	Note   func(text string)
	Sysfs  string // where cards are looked for; empty: /sys
}

// Open finds the runtime, or where none listens opens the card itself. An emulated card is then a fresh one, at its reset
// values, and Note is told so.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	c, err := runtimeClient(ctx, cfg)
	if c != nil || err != nil {
		return c, err
	}
	choice, err := open.Choose(cfg.Card, discover.Config{Root: cfg.Sysfs})
	if err != nil {
		return nil, err
	}
	card, err := open.Open(choice, open.Config{})
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	drv, err := driver.Open(ctx, card, driver.Config{Shell: cfg.Shell, Pump: func() { card.Step(time.Since(begin)) }})
	if err != nil {
		return nil, errors.Join(err, card.Close())
	}
	if cfg.Note != nil {
		if choice.Note != "" {
			cfg.Note(choice.Note)
		}
		cfg.Note("no runtime at " + socketPath(cfg) + ": this is a fresh emulated card at its reset values")
	}
	c = &Client{Where: choice.String(), close: func() error {
		if !cfg.Shell {
			err = drv.Shutdown(context.Background())
		}
		return errors.Join(err, card.Close())
	}}
	c.http.Transport = handled{admin.Handler(admin.Bare(drv), nil)}
	return c, nil
}

// runtimeClient returns a client of the runtime, nil where none listens.
func runtimeClient(ctx context.Context, cfg Config) (*Client, error) {
	return dialSocket(ctx, socketPath(cfg))
}

func socketPath(cfg Config) string {
	if cfg.Socket != "" {
		return cfg.Socket
	}
	return admin.DefaultSocket(DefaultName)
}

// Cards lists the cards of this machine.
func Cards(sysfs string) ([]Found, error) {
	list, err := discover.List(discover.Config{Root: sysfs})
	if err != nil {
		return nil, err
	}
	found := []Found{}
	for i := range list {
		c := &list[i]
		found = append(found, Found{Name: c.Name(), Body: open.VFIO, Driver: c.Driver, Group: c.Group, NUMANode: c.NUMANode, Usable: c.Usable, Why: c.Why, Next: c.Next})
	}
	return append(found, Found{Name: open.Emulator, Body: open.Emulator, Group: -1, NUMANode: -1, Usable: true}), nil
}

// Found is a card of this machine.
type Found struct {
	Name     string `json:"name"` // as --card takes it
	Body     string `json:"body"`
	Driver   string `json:"driver"`
	Group    int    `json:"group"`
	NUMANode int    `json:"numa_node"`
	Usable   bool   `json:"usable"`
	Why      string `json:"why"`  // why not
	Next     string `json:"next"` // the command that helps
}
