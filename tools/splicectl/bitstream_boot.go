package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"splicenic/bitstream/program"
	"splicenic/runtime/admin"
	"splicenic/tools/boot"
	"splicenic/tools/control"
	"splicenic/tools/open"
	"splicenic/tools/slots"
)

func bitstreamBootCommand(e *env) *cobra.Command {
	var live bool
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
			return e.bootByRuntime(ctx, cl, admin.BootRequest{Slot: slot, Live: live})
		}
		choice, err := open.Choose(e.card, e.machine.Discover())
		if err != nil {
			return err
		}
		if choice.Body == open.Emulator {
			return control.Refuse("a fresh emulated card has one image", "it ends with this command", "name a card process with --card vfio-user:PATH, or start a runtime")
		}
		s, err := boot.Sequence(boot.Config{Slot: slot, Choice: choice, Open: open.Config{VFIO: e.vfio, Machine: e.machine}, Say: e.progress})
		if err != nil {
			return err
		}
		out, err := s.Run(ctx)
		return e.booted(out, err)
	})
	c.Long = c.Short + ".\n\nThe card leaves its bus and comes back. Its new image has to say that it is the one asked for, and to pass the health gate:\nself-test, interrupts, links, sensors, and a connection spliced inside the card. If it does not, the slot that ran before is\nbooted again, then golden, and the exit code says so. With a runtime --live is needed: services are drained, and start again."
	c.Flags().BoolVar(&live, "live", false, "services run, and may be interrupted")
	return c
}

// bootByRuntime asks the runtime to boot its card.
func (e *env) bootByRuntime(ctx context.Context, cl *control.Client, q admin.BootRequest) error {
	defer cl.Close()
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
	return e.booted(*st.Outcome, err)
}

// booted says what a boot came to.
func (e *env) booted(out program.Outcome, err error) error {
	if err == nil {
		return say(e, out, func(w io.Writer, o program.Outcome) { fmt.Fprintln(w, boot.Explain(o)) })
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
