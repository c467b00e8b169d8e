package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/runtime/config"
	"splicenic/tools/card"
	"splicenic/tools/control"
	"splicenic/tools/open"
)

// A place is where the files of a runtime of one name are, all beside its socket.
type place struct {
	socket string // NAME.sock
	card   string // NAME.card.sock: the card process
	log    string // NAME.card.log: what it says
	dma    string // NAME.dma: memory that card and runtime share
	state  string // NAME.state.json: names of table indexes
}

func placeOf(socket string) place {
	stem := strings.TrimSuffix(socket, ".sock")
	return place{socket, stem + ".card.sock", stem + ".card.log", stem + ".dma", stem + ".state.json"}
}

// An ending is what becomes of the card when a runtime ends.
type ending int

const (
	stopAll  ending = iota // rings down; a card process of this name ends
	keepOn                 // it goes on as it is
	giveBack               // rings down; the card process ends by itself
	lost                   // it is no use any more; whoever has it is left alone
	away                   // rings down; it boots
)

// A body is an open card, with the process that has it.
type body struct {
	*open.Card
	choice  open.Choice   // as the user named it
	socket  string        // of the card process; empty: the card is in this process
	process *card.Process // nil: none that belongs to this name
	started bool          // by us
	place   place
	state   string
}

// forget closes what b knows its card's process by.
func (b *body) forget() {
	if b.process != nil {
		b.process.Close()
	}
}

// openBody opens the card that flag or file name: in this process, in the card process of this name, which is started where
// none runs, or in somebody else's.
func openBody(ctx context.Context, cfg Config, c *config.Config, p place) (_ *body, err error) {
	name := firstOf(cfg.Card, c.Card.String())
	b := &body{place: p}
	defer func() {
		if err != nil {
			b.forget()
		}
	}()
	if !cfg.InProcess && !strings.HasPrefix(name, open.VFIOUser+":") {
		if b.process, err = card.Find(ctx, p.card); err != nil {
			return nil, err
		}
		if b.process != nil && (name == "" || name == open.Auto) {
			name = b.process.Card // which others now see as busy
		}
	}
	if b.choice, err = open.Choose(name, cfg.Machine.Discover()); err != nil {
		return nil, err
	}
	if b.choice.Note != "" {
		cfg.Log.Warn(b.choice.Note)
	}
	want := card.Config{Card: b.choice.String(), Socket: p.card, VFIO: cfg.VFIO, Machine: cfg.Machine}
	wired := c.Emu.Client.String() != ""
	switch {
	case b.choice.Body == open.Emulator && !wired:
		return nil, control.Usage(cfg.File+": the emulated card needs wires", "add emu: {client: eth1, server: eth2} to the file")
	case b.choice.Body == open.Emulator:
		want.Client, want.Server, want.Seed, want.Flash = c.Emu.Client.String(), c.Emu.Server.String(), c.Seed, c.Emu.Flash
	case wired:
		cfg.Log.Warn("emu: is not used: the card is " + b.choice.String())
	}
	if cfg.InProcess && b.choice.Body != open.VFIOUser {
		b.Card, err = open.Open(ctx, b.choice, open.Config{Client: want.Client, Server: want.Server, Seed: want.Seed, Flash: want.Flash, VFIO: cfg.VFIO, Machine: cfg.Machine})
		return b, err
	}
	return b, b.connect(ctx, cfg, want)
}

// connect opens the card behind a socket.
func (b *body) connect(ctx context.Context, cfg Config, want card.Config) error {
	b.socket, b.state = want.Socket, b.place.state
	if b.choice.Body == open.VFIOUser {
		b.socket = b.choice.Name
	} else if err := b.needProcess(ctx, cfg, want); err != nil {
		return err
	}
	choice := open.Choice{Body: open.VFIOUser, Name: b.socket}
	var err error
	b.Card, err = open.Open(ctx, choice, open.Config{Dir: b.place.dma, Reattach: !b.started})
	if err != nil && ctx.Err() == nil && b.memoryToBlame(err) {
		cfg.Log.Warn("the memory of the runtime before cannot be taken over; rings start anew", "error", err)
		b.Card, err = open.Open(ctx, choice, open.Config{Dir: b.place.dma})
	}
	if err == nil {
		return nil
	}
	err = b.explain(err)
	if b.started {
		err = errors.Join(err, b.process.Stop(context.WithoutCancel(ctx)))
	}
	return err
}

// memoryToBlame says whether a card could not be opened because of what a predecessor left of its memory.
func (b *body) memoryToBlame(err error) bool {
	_, missing := os.Stat(filepath.Join(b.place.dma, "dma.json"))
	return !b.started && missing == nil && !errors.Is(err, device.ErrBusy) && !errors.Is(err, device.ErrDeviceLost) && !errors.Is(err, syscall.ECONNREFUSED)
}

// needProcess sees to it that the card process of this name serves the card that is wanted.
func (b *body) needProcess(ctx context.Context, cfg Config, want card.Config) error {
	if b.process == nil {
		var err error
		b.process, err = card.Start(ctx, want, card.Launch{Command: cfg.Command, Log: b.place.log})
		b.started = err == nil
		return err
	}
	if other := b.process.Differs(&want); other != "" {
		return control.Refused(fmt.Sprintf("attach to the card process of this name: %s", other), b.socket,
			fmt.Sprintf("traffic goes on; to end it: kill %d, or run with the configuration it was started with", b.process.PID))
	}
	if b.process.Stopped() {
		return b.explain(fmt.Errorf("open card %s: %w", b.choice, device.ErrDeviceLost))
	}
	return nil
}

// explain adds what is known about the card process to an error that may come from it.
func (b *body) explain(err error) error {
	if b.process == nil || !errors.Is(err, device.ErrDeviceLost) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	state := "the card of " + b.process.String()
	switch {
	case b.process.Stopped():
		state = fmt.Sprintf("%s does not answer; let it go on with: kill -CONT %d", b.process, b.process.PID)
	case b.process.Ended(deathbed):
		state = fmt.Sprintf("card process %d ended, see %s; splicectl run starts another", b.process.PID, b.place.log)
	}
	return &card.StateError{State: state, Err: err}
}

// deathbed is how long a process may take to end after its sockets have been closed.
const deathbed = time.Second

// driverConfig says how the card is brought up: one in another process is taken over as a predecessor left it.
func (b *body) driverConfig() driver.Config {
	if !b.Outlives() {
		return driver.Config{}
	}
	return driver.Config{Adopt: true, Kept: b.Kept}
}

// end lets the card go, and ends its process where that is meant.
func (b *body) end(ctx context.Context, how ending) error {
	if how == keepOn {
		return b.Detach()
	}
	if how == away && b.Emulated() {
		return b.Device.Close() // the card goes on
	}
	err := b.Close()
	if how != stopAll && (how != away || b.choice.Body != open.VFIO) || b.process == nil {
		return err
	}
	if err1 := b.process.Stop(ctx); err1 != nil {
		return errors.Join(err, err1)
	}
	for _, name := range []string{b.place.state, filepath.Join(b.place.dma, "lock"), b.place.dma} {
		_ = os.Remove(name) // where it is there, and a folder is empty
	}
	return err
}
