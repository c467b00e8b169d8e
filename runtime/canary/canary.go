// Package canary proves that a card splices: it takes one connection of each family through a card from both ends, without
// any wire and without anything of a runtime, and does the arithmetic again by itself. It is what a new image has to pass
// before it may serve.
//
// The card is the caller's, brought up and not in use: Run writes tables of its own, with the ports off, and leaves the
// data path reset.
package canary

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"splicenic/driver"
	"splicenic/regs"
)

// Config says how to wait for the card. The zero value waits for a card that works by itself.
type Config struct {
	// Pump moves a card that only moves when stepped; nil: it works by itself.
	Pump func()
	// Timeout bounds the wait for one answer of a card without Pump. Zero: 3 s.
	Timeout time.Duration
}

const (
	defaultTimeout = 3 * time.Second
	pumpLimit      = 20_000 // calls of Pump while one answer is waited for
)

// ErrInUse is the error of a card that has connections, or takes them.
var ErrInUse = errors.New("the card is in use")

// A StepError says at which step a card went wrong.
type StepError struct {
	Family string // IPv4 or IPv6
	Step   string
	Want   string
	Got    string
	Err    error // what is behind it; nil: what came was wrong
}

// Error names the step, what was expected and what came.
func (e *StepError) Error() string {
	s := fmt.Sprintf("canary over %s: %s: want %s, got %s", e.Family, e.Step, e.Want, e.Got)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns what is behind it.
func (e *StepError) Unwrap() error { return e.Err }

// A Result says what was proved.
type Result struct {
	Families []Spliced     `json:"families"`
	Took     time.Duration `json:"took_ns"`
}

// Spliced is a connection that went through.
type Spliced struct {
	Family string `json:"family"`
	Delta  uint32 `json:"delta"` // a = a0 − a1
	Frames int    `json:"frames"`
}

// family is a network that exists in frames only.
type family struct {
	name                string
	client, vip, server netip.Addr
	kind, etherType     uint32
	mss                 uint16
}

var families = [...]family{
	{"IPv4", netip.MustParseAddr("198.18.0.100"), netip.MustParseAddr("198.18.0.80"), netip.MustParseAddr("198.18.1.11"), regs.KindIpv4, 0x0800, 1460},
	{"IPv6", netip.MustParseAddr("2001:db8::100"), netip.MustParseAddr("2001:db8::80"), netip.MustParseAddr("2001:db8:1::11"), regs.KindIpv6, 0x86dd, 1440},
}

// Run splices a connection of each family. The error is a *StepError where a card answered, or did not.
func Run(ctx context.Context, c *driver.Card, cfg Config) (r Result, err error) {
	began := time.Now()
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if err := c.Mismatch(); err != nil {
		return r, fmt.Errorf("canary: %w", err)
	}
	live, taking := c.Load(regs.AmuLive), regs.AmuControlEnable(c.Load(regs.AmuControl))
	if err := c.Err(); err != nil {
		return r, fmt.Errorf("canary: %w", err)
	}
	if live != 0 || taking != 0 {
		return r, fmt.Errorf("canary: %w: %d connections", ErrInUse, live)
	}
	defer func() {
		if lost := c.Err(); lost != nil {
			if err == nil {
				err = fmt.Errorf("canary: %w", lost)
			}
			return
		}
		if err1 := c.Reset(context.WithoutCancel(ctx)); err1 != nil {
			err = errors.Join(err, fmt.Errorf("canary: leave the data path reset: %w", err1))
		}
	}()
	if err := prepare(ctx, c); err != nil {
		return r, fmt.Errorf("canary: write tables: %w", err)
	}
	free, heads := c.Load(regs.AmuFree), c.Load(regs.HeadFree)
	for i := range families {
		b := &bird{ctx: ctx, c: c, cfg: cfg, family: &families[i]}
		if err := b.fly(); err != nil {
			return r, err
		}
		if err := b.home(free, heads); err != nil {
			return r, err
		}
		r.Families = append(r.Families, Spliced{Family: b.name, Delta: b.delta(), Frames: b.frames})
	}
	r.Took = time.Since(began)
	return r, nil
}
