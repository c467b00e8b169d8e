// Package host is the runtime's process: it finds its card or starts a card process for it, brings the card up or takes it
// over as a predecessor left it, runs the daemon and its socket, and comes to an orderly end. Card side and runtime meet at
// the device contract only; with Config.InProcess both are in this process.
//
// What Run starts it ends, with one exception that is meant: a card process outlives a runtime that is killed, and one that
// is told to keep its card.
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
	"splicenic/driver/device"
	"splicenic/runtime/admin"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/tools/card"
	"splicenic/tools/control"
	"splicenic/tools/open"
)

// How long the end of the card's rings may take. A card that has to be given back is taken away by its process soon after.
const (
	shutdownTimeout = 5 * time.Second
	giveBackTimeout = 1500 * time.Millisecond
)

// Config says what to run.
type Config struct {
	File      string           // the configuration file
	Card      string           // instead of the file's card; empty: the file's
	Socket    string           // instead of the file's and the default path; empty: those
	InProcess bool             // the card is in this process and ends with it
	Keep      bool             // at the end the card goes on as it is, for the next Run. False: a card process of this name ends
	Hangup    <-chan os.Signal // the file is applied again; nil: never
	Log       *slog.Logger
	Ready     func(Ready) // called once, when connections are taken and the socket answers; nil: not at all
	VFIO      open.VFIOOptions
	Machine   open.Machine
	Command   []string // starts a card process, before its flags; empty: this program's own
}

// Ready says what runs.
type Ready struct {
	Card        string `json:"card"`
	Socket      string `json:"socket"`
	File        string `json:"file"`
	Services    int    `json:"services"`
	PID         int    `json:"pid"`
	CardSocket  string `json:"card_socket"`  // empty: the card is in this process
	CardProcess int    `json:"card_process"` // 0: none that belongs to this name
	Attached    string `json:"attached"`     // reset, adopted or continued
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
	p := placeOf(firstOf(cfg.Socket, c.Socket, admin.DefaultSocket(control.DefaultName)))
	listener, err := admin.Listen(p.socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	b, err := openBody(ctx, cfg, c, p)
	if err != nil {
		return err
	}
	r := &runner{cfg: cfg, body: b, place: p, listener: listener, boots: newBooter(cfg.Log)}
	r.boots.plan = r.bootConfig
	defer func() { r.body.forget() }()
	for {
		err := r.run(ctx, c)
		if !errors.Is(err, errBoot) {
			r.ended(ctx, err)
			return err
		}
		c = r.inForce
		if err := r.again(ctx, c); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}

// runner is what runs at the same time.
type runner struct {
	cfg      Config
	body     *body
	place    place
	listener *admin.Listener
	card     *driver.Card
	daemon   *daemon.Daemon
	ready    bool // it has been

	boots     *booter
	request   admin.BootRequest // of the boot that ended the daemon
	inForce   *config.Config    // when it ended
	booted    bool              // this daemon is not the first
	quietBoot func()            // ends what answers on the socket until the daemon does; nil: nothing
}

// ended tells who waits for a boot that its daemon did not come up, and why.
func (r *runner) ended(ctx context.Context, err error) {
	if r.boots.idle() {
		return
	}
	if r.quietBoot == nil { // the daemon answered on the socket already
		r.quietBoot = r.serveBoot(ctx)
	}
	r.boots.stopped(err)
	r.hush()
}

// hush ends what answers on the socket while the card boots.
func (r *runner) hush() {
	if r.quietBoot != nil {
		r.quietBoot()
		r.quietBoot = nil
	}
}

// run starts everything from the card upwards and ends it in the opposite order.
func (r *runner) run(ctx context.Context, c *config.Config) error {
	moving, halt := context.WithCancel(context.WithoutCancel(ctx))
	defer halt()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var group sync.WaitGroup
	group.Go(func() {
		if err := r.body.Run(moving); err != nil && moving.Err() == nil {
			stop(fmt.Errorf("card: %w", err))
		}
	})
	err := r.operate(ctx, stop, c)
	how := r.ending(err)
	err = errors.Join(err, r.quiet(moving, how))
	halt()
	group.Wait()
	return errors.Join(err, r.body.end(context.WithoutCancel(ctx), how))
}

// operate brings the card up and serves until ctx ends. When it returns nobody uses the card any more.
func (r *runner) operate(ctx context.Context, stop context.CancelCauseFunc, c *config.Config) (err error) {
	if r.card, err = driver.Open(ctx, r.body, r.body.driverConfig()); err != nil {
		return r.cause(ctx, fmt.Errorf("bring card up: %w", r.body.explain(err)))
	}
	if err := r.card.Mismatch(); err != nil {
		return err
	}
	r.warnOfTrial()
	if err := r.body.ReleaseUnclaimed(); err != nil {
		r.cfg.Log.Warn("memory of the runtime before is not all given back", "error", err)
	}
	if r.daemon, err = daemon.New(daemon.Config{Card: r.card, Log: r.cfg.Log, State: r.body.state}); err != nil {
		return err
	}
	defer r.daemon.Close()
	if _, err := r.daemon.Apply(ctx, c); err != nil {
		return r.cause(ctx, fmt.Errorf("apply %s: %w", r.cfg.File, err))
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop(nil)
	r.hush()
	serving.Go(func() { stop(unlessOver(ctx, r.daemon.Run(ctx))) })
	serving.Go(func() {
		stop(unlessOver(ctx, admin.Serve(ctx, r.listener, r.daemon, r.boots)))
		if !errors.Is(context.Cause(ctx), errBoot) && r.boots.idle() {
			r.listener.Close()
		}
	})
	serving.Go(func() { r.obey(ctx, stop) })
	defer func() { r.inForce = r.daemon.Configuration() }()
	serving.Go(func() { r.watch(ctx, stop) })
	r.ready = true
	serving.Go(func() {
		select {
		case <-r.daemon.Accepting():
			if r.booted {
				r.cfg.Log.Info("services run again")
				r.boots.over(admin.BootDone)
			} else if r.cfg.Ready != nil {
				r.cfg.Ready(r.describe(c))
			}
		case <-ctx.Done():
		}
	})
	r.reload(ctx)
	return r.cause(ctx, nil)
}

func (r *runner) describe(c *config.Config) Ready {
	ready := Ready{
		Card: r.body.choice.String(), Socket: r.place.socket, File: r.cfg.File, Services: len(c.Services), PID: os.Getpid(),
		Attached: r.daemon.Status().Attached,
	}
	if r.body.Outlives() {
		ready.CardSocket = r.body.socket
	}
	if r.body.process != nil {
		ready.CardProcess = r.body.process.PID
	}
	return ready
}

// watch ends everything when the machine wants the card back, or has seen it fail.
func (r *runner) watch(ctx context.Context, stop context.CancelCauseFunc) {
	select {
	case <-r.body.RemovalRequested():
		stop(card.ErrRemoved)
	case <-r.body.ErrorNotice():
		stop(fmt.Errorf("the bus reported an error of the card: %w", device.ErrDeviceLost))
	case <-ctx.Done():
	}
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
		return r.body.explain(why)
	}
	return err
}

// ending decides what becomes of the card. Traffic matters most: whatever goes wrong above a card that works, it is left
// to go on, for the next runtime.
func (r *runner) ending(err error) ending {
	switch {
	case errors.Is(err, errBoot):
		return away
	case errors.Is(err, card.ErrRemoved):
		return giveBack
	case errors.Is(err, device.ErrDeviceLost):
		return lost
	case !r.ready && r.body.started, !r.body.Outlives():
		return stopAll
	case r.cfg.Keep, err != nil:
		return keepOn
	}
	return stopAll
}

// quiet ends the runtime's use of the card, while the card still works.
func (r *runner) quiet(ctx context.Context, how ending) error {
	if r.card == nil || how == lost || r.card.Mismatch() != nil {
		return nil
	}
	patience := shutdownTimeout
	if how == giveBack {
		patience = giveBackTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if how == keepOn {
		return r.card.Leave(ctx)
	}
	if err := r.card.Shutdown(ctx); err != nil {
		r.cfg.Log.Error("card not shut down", "error", err)
	}
	return nil
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
