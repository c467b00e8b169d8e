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
	asked chan admin.BootRequest // at most one

	mu    sync.Mutex
	state admin.BootState
	told  chan struct{} // closed when the end was told; nil: it has not come
}

func newBooter(log *slog.Logger) *booter {
	return &booter{log: log, asked: make(chan admin.BootRequest, 1), state: admin.BootState{State: admin.BootNone}}
}

// Ask has the card boot, soon.
func (b *booter) Ask(q admin.BootRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.Over() {
		return fmt.Errorf("a boot of slot %d is going on: %w", b.state.Slot, device.ErrBusy)
	}
	now := time.Now()
	b.state = admin.BootState{State: admin.BootDraining, Slot: q.Slot, Began: &now}
	b.asked <- q // there is room: whoever takes it is done with the one before
	return nil
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

// over ends a boot. In another state than BootDone the runtime ends, too: it waits a while until that was told.
func (b *booter) over(state string) {
	told := make(chan struct{})
	b.change(func(st *admin.BootState) {
		now := time.Now()
		st.State, st.Step, st.Ended = state, "", &now
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
		patience := q.Drain
		if patience == 0 {
			patience = defaultDrain
		}
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

// exchange boots, while nobody has the card. The error is nil where some image runs that a daemon may be started on.
func (r *runner) exchange(ctx context.Context) error {
	b, q := r.body, r.request
	cfg := boot.Config{Slot: q.Slot, Choice: b.choice, Drained: "services are drained, and the runtime has let go of the card"}
	if q.Expect != nil {
		cfg.Expect = *q.Expect
	}
	var moving sync.WaitGroup
	defer moving.Wait()
	move, halt := context.WithCancel(context.WithoutCancel(ctx))
	defer halt()
	switch {
	case b.Emulated():
		cfg.Card = b.Card
		moving.Go(func() { _ = b.Run(move) })
	case b.socket != "" && b.choice.Body != open.VFIO:
		cfg.Choice = open.Choice{Body: open.VFIOUser, Name: b.socket}
	default:
		cfg.Open = open.Config{VFIO: r.cfg.VFIO, Machine: r.cfg.Machine}
	}
	cfg.Say = func(step string) {
		r.cfg.Log.Info("boot: " + step)
		r.boots.change(func(st *admin.BootState) { st.Step = step })
	}
	var out program.Outcome
	s, err := boot.Sequence(cfg)
	if err == nil {
		out, err = s.Run(ctx)
	}
	lost := errors.Is(err, device.ErrDeviceLost) && !out.Answers
	r.boots.change(func(st *admin.BootState) {
		st.State, st.Step, st.Outcome, st.Lost = admin.BootStarting, "", &out, lost
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
		r.boots.change(func(st *admin.BootState) {
			if st.Error == "" && err != nil {
				st.Error = err.Error()
			}
		})
		r.boots.over(admin.BootEnded)
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
