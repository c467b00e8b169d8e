// Package host runs a card with its runtime in one process: the emulated card's loop, the driver, the daemon and its
// socket, from the configuration file to an orderly end. Card side and runtime meet at the device contract only.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"splicenic/driver"
	"splicenic/driver/discover"
	"splicenic/runtime/admin"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/tools/control"
	"splicenic/tools/open"
)

// shutdownTimeout bounds the end of the card's rings.
const shutdownTimeout = 5 * time.Second

// Config says what to run.
type Config struct {
	File   string           // the configuration file
	Card   string           // instead of the file's card; empty: the file's
	Socket string           // instead of the file's and the default path; empty: those
	Hangup <-chan os.Signal // the file is applied again; nil: never
	Log    *slog.Logger
	Ready  func(Ready) // called once, when connections are taken and the socket answers; nil: not at all
	Sysfs  string      // where cards are looked for; empty: /sys
}

// Ready says what runs.
type Ready struct {
	Card     string `json:"card"`
	Socket   string `json:"socket"`
	File     string `json:"file"`
	Services int    `json:"services"`
	PID      int    `json:"pid"`
}

// Run runs until ctx ends, which is no error, or until the card is lost.
func Run(ctx context.Context, cfg Config) error {
	file, err := control.ReadFile(cfg.File, os.Stdin)
	if err != nil {
		return err
	}
	c, err := config.Load(file.File, []byte(file.Text))
	if err != nil {
		return err
	}
	for _, w := range c.Warnings {
		cfg.Log.Warn(w.String())
	}
	socket := firstOf(cfg.Socket, c.Socket, admin.DefaultSocket(control.DefaultName))
	listener, err := admin.Listen(socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	card, err := openCard(cfg, c)
	if err != nil {
		return err
	}
	r := &runner{cfg: cfg, card: card, listener: listener}
	err = r.run(ctx, c, Ready{Card: card.Choice.String(), Socket: socket, File: cfg.File, Services: len(c.Services), PID: os.Getpid()})
	return errors.Join(err, card.Close())
}

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}

// openCard opens the card that flag or file name.
func openCard(cfg Config, c *config.Config) (*open.Card, error) {
	choice, err := open.Choose(firstOf(cfg.Card, c.Card.String()), discover.Config{Root: cfg.Sysfs})
	if err != nil {
		return nil, err
	}
	if choice.Note != "" {
		cfg.Log.Warn(choice.Note)
	}
	wires := open.Config{Client: c.Emu.Client.String(), Server: c.Emu.Server.String(), Seed: c.Seed}
	if choice.Body == open.Emulator && wires.Client == "" {
		return nil, control.Usage(cfg.File+": the emulated card needs wires", "add emu: {client: eth1, server: eth2} to the file")
	}
	if choice.Body != open.Emulator && wires.Client != "" {
		cfg.Log.Warn("emu: is not used: the card is " + choice.String())
	}
	return open.Open(choice, wires)
}

// runner is what runs at the same time.
type runner struct {
	cfg      Config
	card     *open.Card
	listener *admin.Listener
	daemon   *daemon.Daemon
}

// run starts everything from the card upwards and ends it in the opposite order.
func (r *runner) run(ctx context.Context, c *config.Config, ready Ready) error {
	cardContext, stopCard := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer stopCard()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	group.Go(func() {
		if err := r.card.Run(cardContext); err != nil && cardContext.Err() == nil {
			stop(fmt.Errorf("card: %w", err))
		}
	})
	drv, err := driver.Open(ctx, r.card, driver.Config{})
	if err != nil {
		return r.cause(ctx, fmt.Errorf("bring card up: %w", err))
	}
	defer func() {
		end, cancel := context.WithTimeout(cardContext, shutdownTimeout)
		defer cancel()
		if err := drv.Shutdown(end); err != nil {
			r.cfg.Log.Error("card not shut down", "error", err)
		}
	}()
	if r.daemon, err = daemon.New(daemon.Config{Card: drv, Log: r.cfg.Log}); err != nil {
		return err
	}
	if _, err := r.daemon.Apply(ctx, c); err != nil {
		return r.cause(ctx, fmt.Errorf("apply %s: %w", r.cfg.File, err))
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop(nil)
	serving.Go(func() { stop(unlessOver(ctx, r.daemon.Run(ctx))) })
	serving.Go(func() { stop(unlessOver(ctx, admin.Serve(ctx, r.listener, r.daemon))) })
	if r.cfg.Ready != nil {
		r.cfg.Ready(ready)
	}
	r.reload(ctx)
	return r.cause(ctx, nil)
}

// unlessOver is nil for an error that is only the end of ctx.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// cause is why everything ends: an error of a part, if one came first, else err.
func (r *runner) cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
		return why
	}
	return err
}

// reload applies the file again at each hangup, until ctx ends. A file that is wrong changes nothing; the daemon logs and
// remembers why.
func (r *runner) reload(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.cfg.Hangup:
			file, err := control.ReadFile(r.cfg.File, nil)
			if err != nil {
				r.cfg.Log.Error("configuration not read; the one before stays in force", "error", err)
				continue
			}
			_, _ = r.daemon.Load(ctx, file.File, []byte(file.Text)) // the daemon logs it, and its status says so
		}
	}
}
