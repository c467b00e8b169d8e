package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"splicenic/bitstream/program"
	"splicenic/runtime/admin"
	"splicenic/tools/boot"
	"splicenic/tools/control"
	"splicenic/tools/open"
	"splicenic/tools/slots"
)

func bitstreamBootCommand(e *env) *cobra.Command {
	var live, plan, bad bool
	var drain time.Duration
	c := leaf("boot SLOT", "Boot another slot, and stay there only with an image that is well; auto: the newest loaded", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		slot, err := slotOf(args[0])
		if err != nil {
			return err
		}
		if slot == program.Auto {
			if slot, err = e.untried(ctx); err != nil {
				return err
			}
		}
		cl, err := control.Runtime(ctx, control.Config{Socket: e.socket})
		if err != nil {
			return err
		}
		if cl != nil {
			if !plan {
				unlock, err := slots.LockRuntime(slots.Config{Socket: e.socket})
				if err != nil {
					return errors.Join(err, cl.Close())
				}
				defer unlock()
			}
			return e.bootByRuntime(ctx, cl, admin.BootRequest{Slot: slot, Live: live, Bad: bad, Drain: drain}, plan)
		}
		choice, err := open.Choose(e.card, e.machine.Discover())
		if err != nil {
			return err
		}
		if choice.Body == open.Emulator {
			return control.Refuse("a fresh emulated card has one image", "it ends with this command", "name a card process with --card vfio-user:PATH, or start a runtime")
		}
		if !plan {
			unlock, err := slots.LockCard(slots.Config{Socket: e.socket}, choice)
			if err != nil {
				return err
			}
			defer unlock()
		}
		s, err := boot.Sequence(boot.Config{Slot: slot, Bad: bad, Choice: choice, Open: open.Config{VFIO: e.vfio, Machine: e.machine}, Say: e.progress})
		if err != nil {
			return err
		}
		if plan || !e.json() {
			p, err := s.Plan(ctx)
			if err != nil {
				return refusal(err)
			}
			if err := say(e, p, boot.Describe); err != nil || plan {
				return err
			}
		}
		out, err := s.Run(ctx)
		return e.booted(out, err)
	})
	c.Long = c.Short + ".\n\nThe card leaves its bus and comes back. Its new image has to say that it is the one asked for, and to pass the health gate:\nself-test, interrupts, links, sensors, and a connection spliced inside the card. If it does not, the slot that ran before is\nbooted again, then golden, and the exit code says so. An empty or half-written slot is refused. With a runtime --live is needed: services are drained, and start again."
	c.Flags().BoolVar(&plan, "plan", false, "only say what would be done")
	c.Flags().BoolVar(&live, "live", false, "services run, and may be interrupted")
	c.Flags().BoolVar(&bad, "force-bad", false, "boot an image that was booted before and did not pass")
	c.Flags().DurationVar(&drain, "drain", 10*time.Second, "how long connections may take to end, where services run")
	return c
}

// bootByRuntime asks the runtime to boot its card.
func (e *env) bootByRuntime(ctx context.Context, cl *control.Client, q admin.BootRequest, plan bool) error {
	defer cl.Close()
	if plan || q.Live && !e.json() {
		p, err := cl.BootPlan(ctx, q)
		if err != nil {
			return err
		}
		if err := say(e, p, boot.Describe); err != nil || plan {
			return err
		}
	}
	st, err := cl.Boot(ctx, q, e.progress)
	if err != nil {
		return err
	}
	if st.Error != "" {
		err = errors.New(st.Error)
		if st.Lost {
			err = fmt.Errorf("%w: %s", program.ErrNotBack, st.Error)
		}
	}
	if st.Outcome == nil {
		if err == nil {
			err = errors.New("the runtime does not say what became of it")
		}
		return err
	}
	if st.State == admin.BootEnded && st.Outcome.Booted {
		return servicesGone(st)
	}
	return e.booted(*st.Outcome, err)
}

// servicesGone is the failure of a boot whose image runs, and whose runtime ended before services ran on it.
func servicesGone(st admin.BootState) error {
	why := st.Error
	if why == "" {
		why = "the runtime ended and did not say why"
	}
	f := control.Explain(boot.Explain(*st.Outcome)+", but services did not start again", errors.New(why))
	f.Exit, f.Do = control.ExitFailed, "read what the runtime logged last, mend it, and start the runtime again: splicectl run"
	if st.Lost {
		f.Exit, f.Do = control.ExitCard, "splicectl card list says whether the card is there; power the machine off and on if it is not, then start the runtime again: splicectl run"
	}
	return f
}

// refusal makes the engine's refusal the command's.
func refusal(err error) error {
	if r, ok := errors.AsType[*program.Refused](err); ok {
		return control.Refuse("nothing is booted", r.Error(), r.Do)
	}
	return err
}

// booted says what a boot came to.
func (e *env) booted(out program.Outcome, err error) error {
	if err == nil {
		return say(e, out, func(w io.Writer, o program.Outcome) { fmt.Fprintln(w, boot.Explain(o)) })
	}
	if _, refused := errors.AsType[*program.Refused](err); refused {
		return refusal(err)
	}
	f := control.Explain(boot.Explain(out), err)
	if out.Answers {
		f.Exit = control.ExitFailed // the card is well, whatever its other image is
	}
	if out.Advice != "" {
		f.Do = out.Advice
	}
	return f
}

// untried is the slot that was loaded and never booted; of several the one with the higher number.
func (e *env) untried(ctx context.Context) (slot int, err error) {
	s, err := e.openSlots(ctx, false)
	if err != nil {
		return 0, err
	}
	l, err := slots.Look(ctx, s)
	if err = errors.Join(err, s.Close()); err != nil {
		return 0, err
	}
	for _, x := range l.Slots {
		if x.State == program.Try && !x.Running {
			slot = x.Slot
		}
	}
	if slot == 0 {
		return 0, control.Refuse("no slot waits to be tried", "auto is a slot that was loaded and not booted since", "splicectl bitstream list shows the slots; name one")
	}
	return slot, nil
}
