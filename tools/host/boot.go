package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"splicenic/bitstream/program"
	"splicenic/driver/device"
	"splicenic/runtime/admin"
	"splicenic/runtime/config"
	"splicenic/tools/boot"
	"splicenic/tools/open"
)

// A boot takes the card away from the daemon, which ends; when it is over another daemon starts with the same
// configuration. Nothing of the old one is kept: the image may be another, and the card is as after power-on in any case.

// errBoot is why a daemon ends whose card is to boot.
var errBoot = errors.New("the card is to boot")

const (
	defaultDrain = 10 * time.Second
	// lastWord is how long a runtime that ends after a boot waits for somebody to ask what came of it.
	lastWord = 3 * time.Second
)

// booter is what the socket says of boots. It outlives the daemons.
type booter struct {
	log   *slog.Logger
	plan  func(admin.BootRequest) boot.Config // how its card would be booted
	asked chan admin.BootRequest              // at most one

	mu    sync.Mutex
	state admin.BootState
	told  chan struct{} // closed when the end was told; nil: it has not come
}

func newBooter(log *slog.Logger) *booter {
	return &booter{log: log, asked: make(chan admin.BootRequest, 1), state: admin.BootState{State: admin.BootNone, Steps: []string{}}}
}

// Ask has the card boot, soon.
func (b *booter) Ask(q admin.BootRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.Over() {
		return fmt.Errorf("a boot of slot %d is going on: %w", b.state.Slot, device.ErrBusy)
	}
	now := time.Now()
	b.state = admin.BootState{State: admin.BootDraining, Slot: q.Slot, Steps: []string{"drain the services"}, Began: &now}
	b.asked <- q // there is room: whoever takes it is done with the one before
	return nil
}

// Plan says what a boot would do.
func (b *booter) Plan(ctx context.Context, q admin.BootRequest, c program.Card) (*program.BootPlan, error) {
	cfg := b.plan(q)
	patience := drainTime(q)
	cfg.Drained = fmt.Sprintf("drain the services: new connections are refused, those there are have %v to end; then the runtime lets go of the card", patience)
	s, err := boot.Sequence(cfg)
	if err != nil {
		return nil, err
	}
	s.Open = func(context.Context) (program.Opened, error) { return kept{c}, nil }
	p, err := s.Plan(ctx)
	if p != nil {
		p.AtMost += patience.Seconds()
	}
	return p, err
}

// kept is a card that stays open.
type kept struct{ program.Card }

func (kept) Close() error { return nil }

// Alarms are asked of cards that know them.
func (k kept) Alarms(ctx context.Context) (program.Alarms, error) {
	if s, ok := k.Card.(program.Sensor); ok {
		return s.Alarms(ctx)
	}
	return program.Alarms{}, nil
}

// drainTime is how long connections may take to end.
func drainTime(q admin.BootRequest) time.Duration {
	if q.Drain == 0 {
		return defaultDrain
	}
	return q.Drain
}

// State returns how far the last boot has come.
func (b *booter) State() admin.BootState {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Over() && b.told != nil {
		close(b.told)
		b.told = nil
	}
	return b.state
}

// change changes the state.
func (b *booter) change(f func(*admin.BootState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.state)
}

// lost says whether the card did not come back.
func (b *booter) lost() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.Lost
}

// idle says whether no boot is going on.
func (b *booter) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.Over()
}

// stopped ends a boot after which no services run. err is why; nil: the runtime was told to end.
func (b *booter) stopped(err error) {
	why := "the runtime was told to end"
	if err != nil {
		why = err.Error()
	}
	b.change(func(st *admin.BootState) {
		if st.Error == "" {
			st.Error = why
		} else if st.Error != why {
			st.Error += "; and services do not run: " + why
		}
		st.Lost = st.Lost || errors.Is(err, device.ErrDeviceLost)
	})
	b.over(admin.BootEnded)
}

// over ends a boot. In another state than BootDone the runtime ends, too: it waits a while until that was told.
func (b *booter) over(state string) {
	told := make(chan struct{})
	b.change(func(st *admin.BootState) {
		now := time.Now()
		st.State, st.Ended = state, &now
		b.told = told
	})
	if state == admin.BootDone {
		return
	}
	select {
	case <-told:
	case <-time.After(lastWord):
	}
}

// obey waits for somebody who asks for a boot, lets the connections end, and ends the daemon.
func (r *runner) obey(ctx context.Context, stop context.CancelCauseFunc) {
	select {
	case q := <-r.boots.asked:
		r.request = q
		patience := drainTime(q)
		r.cfg.Log.Info("the card is to boot", "slot", q.Slot, "drain", patience)
		drain, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		left, err := r.daemon.Rest(drain)
		if err != nil {
			r.cfg.Log.Error("services not drained", "error", err)
		}
		r.boots.change(func(st *admin.BootState) {
			st.State, st.Drained, st.Cut = admin.BootBooting, err == nil && left == 0, left
		})
		stop(errBoot)
	case <-ctx.Done():
	}
}

// bootConfig is how the card is booted.
func (r *runner) bootConfig(q admin.BootRequest) boot.Config {
	b := r.body
	cfg := boot.Config{Slot: q.Slot, Bad: q.Bad, Choice: b.choice, Drained: "services are drained, and the runtime has let go of the card"}
	if q.Expect != nil {
		cfg.Expect = *q.Expect
	}
	switch {
	case b.Emulated():
		cfg.Card = b.Card
	case b.socket != "" && b.choice.Body != open.VFIO:
		cfg.Choice = open.Choice{Body: open.VFIOUser, Name: b.socket}
	default:
		cfg.Open = open.Config{VFIO: r.cfg.VFIO, Machine: r.cfg.Machine}
	}
	return cfg
}

// exchange boots, while nobody has the card. The error is nil where some image runs that a daemon may be started on.
func (r *runner) exchange(ctx context.Context) error {
	b, q := r.body, r.request
	cfg := r.bootConfig(q)
	var moving sync.WaitGroup
	defer moving.Wait()
	move, halt := context.WithCancel(context.WithoutCancel(ctx))
	defer halt()
	if b.Emulated() {
		moving.Go(func() { _ = b.Run(move) })
	}
	cfg.Say = func(step string) {
		r.cfg.Log.Info("boot: " + step)
		r.boots.change(func(st *admin.BootState) { st.Steps = append(st.Steps, step) })
	}
	var out program.Outcome
	s, err := boot.Sequence(cfg)
	if err == nil {
		out, err = s.Run(ctx)
	}
	lost := errors.Is(err, device.ErrDeviceLost) && !out.Answers
	r.boots.change(func(st *admin.BootState) {
		st.State, st.Outcome, st.Lost = admin.BootStarting, &out, lost
		if !lost {
			st.Steps = append(st.Steps, "start the services")
		}
		if err != nil {
			st.Error = err.Error()
		}
	})
	switch {
	case err == nil:
		r.cfg.Log.Info("boot: " + boot.Explain(out))
	case lost && out.Advice != "":
		return fmt.Errorf("boot slot %d: %w; do: %s", q.Slot, err, out.Advice)
	case lost:
		return fmt.Errorf("boot slot %d: %w", q.Slot, err)
	default:
		r.cfg.Log.Error("boot: "+boot.Explain(out), "error", err, "do", out.Advice)
	}
	return nil
}

// warnOfTrial says so where a boot was cut short: its image runs, and nobody has looked whether it is well.
func (r *runner) warnOfTrial() {
	st, err := r.card.BootState()
	if err != nil || st.Slot == st.Next || st.Fallback {
		return
	}
	r.cfg.Log.Warn("the card runs an image that has not been confirmed: a boot was cut short, or another slot was made the next one",
		"runs", st.Slot, "next power-on", st.Next, "do", fmt.Sprintf("splicectl bitstream boot %d --live lets it pass the health gate and stay; boot %d goes back", st.Slot, st.Next))
}

// serveBoot answers on the socket while no daemon does. The function it returns ends that.
func (r *runner) serveBoot(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := admin.ServeBoot(ctx, r.listener, r.boots); err != nil {
			r.cfg.Log.Error("the socket is not served while the card boots", "error", err)
		}
	})
	return func() {
		cancel()
		serving.Wait()
	}
}

// again boots the card and opens it for the next daemon. c is the configuration that was in force.
func (r *runner) again(ctx context.Context, c *config.Config) error {
	quiet := r.serveBoot(ctx)
	err := r.exchange(ctx)
	if err == nil && ctx.Err() == nil {
		if r.body.Emulated() {
			err = r.body.Renew()
		} else {
			r.body.forget()
			var b *body
			if b, err = openBody(ctx, r.cfg, c, r.place); err == nil {
				r.body = b
			}
		}
	}
	if err != nil || ctx.Err() != nil {
		if r.boots.lost() {
			r.boots.over(admin.BootEnded) // why was told
		} else {
			r.boots.stopped(err)
		}
		quiet()
		if err == nil {
			err = r.body.end(context.WithoutCancel(ctx), stopAll)
		}
		return err
	}
	r.quietBoot = quiet
	r.card, r.daemon, r.ready, r.booted = nil, nil, false, true
	return nil
}
