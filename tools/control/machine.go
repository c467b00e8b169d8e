package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"splicenic/driver/discover"
	"splicenic/driver/vfio"
	"splicenic/tools/open"
)

// BindOptions say how a card's driver is changed.
type BindOptions = discover.BindOptions

// Binding is what changed a card's driver, or would.
type Binding struct {
	Address string   `json:"address"`
	From    string   `json:"from"` // drivers; empty: none
	To      string   `json:"to"`
	DryRun  bool     `json:"dry_run"`
	Writes  []string `json:"writes"` // as a shell would do them, in order
}

func newBinding(c discover.Change, o BindOptions) Binding {
	b := Binding{Address: c.Address, From: c.From, To: c.To, DryRun: o.DryRun, Writes: []string{}}
	for _, w := range c.Writes {
		b.Writes = append(b.Writes, w.String())
	}
	return b
}

// Bind gives a card to vfio-pci.
func Bind(ctx context.Context, m open.Machine, address string, o BindOptions) (Binding, error) {
	return change(ctx, discover.Bind, m, address, o)
}

// Release gives a card back to the driver it had.
func Release(ctx context.Context, m open.Machine, address string, o BindOptions) (Binding, error) {
	return change(ctx, discover.Release, m, address, o)
}

func change(ctx context.Context, do func(context.Context, discover.Config, string, BindOptions) (discover.Change, error), m open.Machine, address string, o BindOptions) (Binding, error) {
	address, err := vfio.ParseAddress(strings.TrimPrefix(address, open.VFIO+":"))
	if err != nil {
		return Binding{}, Usage(err.Error(), "splicectl card list names the cards")
	}
	c, err := do(ctx, m.Discover(), address, o)
	if err != nil {
		return Binding{}, err
	}
	return newBinding(c, o), nil
}

// explainBind puts the parts of a BindError where a reader looks for them.
func explainBind(f *Failure, e *discover.BindError) {
	f.Where, f.Do, f.Why = e.Address, e.Fix, strings.TrimSuffix(f.Why, "; do: "+e.Fix)
	switch {
	case errors.Is(e, discover.ErrRefused):
		f.Exit = ExitRefused
	case e.Step == "" && errors.Is(e, fs.ErrNotExist):
		f.Exit = ExitNoCard
	}
}

// UdevRule returns the lines for udev that give a card to a group of users: the card that is named, else the only one.
func UdevRule(cfg Config, group string) (string, error) {
	list, err := discover.List(cfg.Machine.Discover())
	if err != nil {
		return "", err
	}
	var names []string
	for i := range list {
		if c := &list[i]; c.Name() == cfg.Card || len(list) == 1 && !strings.HasPrefix(cfg.Card, open.VFIO+":") {
			return discover.UdevRule(group, c), nil
		}
		names = append(names, list[i].Name())
	}
	if len(names) == 0 {
		return "", &open.Error{Card: firstOf(cfg.Card, open.Auto), Err: fmt.Errorf("no card found in this machine")}
	}
	return "", Usage("which card is not clear", "name it: --card "+strings.Join(names, " or --card "))
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
