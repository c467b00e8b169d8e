package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"splicenic/bitstream/program"
	"splicenic/tools/control"
	"splicenic/tools/slots"
)

// openSlots opens the card whose slots a command is about.
func (e *env) openSlots(ctx context.Context, write bool) (*slots.Session, error) {
	return slots.Open(ctx, slots.Config{Card: e.card, Socket: e.socket, VFIO: e.vfio, Machine: e.machine, Write: write, Note: e.warn})
}

// bar shows what a load is at: a line that is written over on a terminal, lines of JSON with -o json, and else a line for
// each tenth.
func (e *env) bar() func(program.Event) {
	if e.json() {
		return func(v program.Event) { _ = json.NewEncoder(e.err).Encode(v) }
	}
	terminal := false
	if f, ok := e.err.(*os.File); ok {
		s, err := f.Stat()
		terminal = err == nil && s.Mode()&os.ModeCharDevice != 0
	}
	phase, tenth := "", int64(-1)
	return func(v program.Event) {
		if v.Phase != phase {
			phase, tenth = v.Phase, -1
		}
		line := fmt.Sprintf("%-7s %3d %%  %.1f of %.1f MiB, %.2f MiB/s, %s left", v.Phase, 100*v.Done/max(v.Total, 1), mib(v.Done), mib(v.Total), v.Rate/(1<<20), time.Duration(v.ETA*float64(time.Second)).Round(time.Second))
		switch t := 10 * v.Done / max(v.Total, 1); {
		case terminal && v.Done == v.Total:
			fmt.Fprintf(e.err, "\r%-70s\n", line)
		case terminal:
			fmt.Fprintf(e.err, "\r%-70s", line)
		case t > tenth:
			tenth = t
			fmt.Fprintln(e.err, line)
		}
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// slotOf reads the name of a slot.
func slotOf(s string) (int, error) {
	if s == "auto" {
		return program.Auto, nil
	}
	n, err := strconv.ParseUint(s, 10, 4)
	if err != nil {
		return 0, control.Usage(fmt.Sprintf("slot %q is neither a number nor auto", s), "splicectl bitstream list shows the slots")
	}
	return int(n), nil
}

func bitstreamLoadCommand(e *env) *cobra.Command {
	r := slots.Request{}
	var slot string
	var plan, yes bool
	c := leaf("load FILE", "Write an image into a slot of the card's flash; what runs goes on running", cobra.ExactArgs(1), func(ctx context.Context, args []string) (err error) {
		r.File = args[0]
		if r.Slot, err = slotOf(slot); err != nil {
			return err
		}
		img, err := slots.ReadImage(r, e.in)
		if err != nil {
			return err
		}
		s, err := e.openSlots(ctx, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		p, err := slots.Plan(ctx, s, img, r, e.bar())
		if err != nil {
			return err
		}
		if plan || !e.json() {
			if err := say(e, p, slots.Describe); err != nil || plan {
				return err
			}
		}
		if (r.Golden || r.Running || r.Raw) && !yes && !p.Nothing() {
			return control.Refuse("this load takes away what the card falls back to, or what it runs", "a power cut in the midst of it can leave the card with nothing to boot", "say --yes if that is meant")
		}
		if err := slots.Run(ctx, p, e.bar()); err != nil {
			return err
		}
		return say(e, p, func(w io.Writer, p *program.Plan) {
			if p.Slot < 0 {
				fmt.Fprintln(w, "written and read back")
				return
			}
			fmt.Fprintf(w, "slot %d holds the image, written and read back; splicectl bitstream boot %d tries it\n", p.Slot, p.Slot)
		})
	})
	c.Long = c.Short + ".\n\nThe plan is printed first. Only sectors that differ are erased and written, each is read back, and a load that was cut short\ngoes on when it is given again. Until its last step the slot holds nothing that could boot. Signatures count as with verify."
	c.ValidArgsFunction = nil // files
	f := c.Flags()
	f.StringVar(&slot, "slot", "auto", "slot to write; auto: one that is neither golden nor running")
	f.BoolVar(&plan, "plan", false, "only say what would be done")
	f.BoolVar(&yes, "yes", false, "write the golden slot, the running one or raw bytes without a further word")
	f.StringArrayVar(&r.Keys, "key", nil, "file with a trusted public key; may be given several times")
	f.BoolVar(&r.Unsigned, "unsigned", false, "take an image that nobody signed")
	f.BoolVar(&r.Golden, "force-golden", false, "the golden slot may be written")
	f.BoolVar(&r.Running, "force-running", false, "the slot whose image runs may be written")
	f.StringVar(&r.ForHost, "for-host", "", "release of this program that will drive the image, if not this one")
	f.BoolVar(&r.Raw, "raw", false, "write the bytes of the file, whatever they are, at --offset of the flash")
	f.Uint32Var(&r.Offset, "offset", 0, "with --raw, where in the flash")
	return c
}

func bitstreamListCommand(e *env) *cobra.Command {
	return leaf("list", "The card's slots: which runs, which is next, and what the records say is in them", cobra.NoArgs, func(ctx context.Context, _ []string) (err error) {
		s, err := e.openSlots(ctx, false)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		l, err := slots.Look(ctx, s)
		if err != nil {
			return err
		}
		return say(e, l, func(w io.Writer, l *slots.List) { l.Text(w) })
	})
}

func bitstreamReadbackCommand(e *env) *cobra.Command {
	var to string
	c := leaf("readback SLOT", "Read a slot's image into a file, and compare it with what the records say", cobra.ExactArgs(1), func(ctx context.Context, args []string) (err error) {
		slot, err := slotOf(args[0])
		if err != nil {
			return err
		}
		if to == "" || slot == program.Auto {
			return control.Usage("readback needs the number of a slot and --to", "splicectl bitstream readback 1 --to slot1.bin")
		}
		s, err := e.openSlots(ctx, false)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		c, b, err := slots.Readback(ctx, s, slot, e.bar())
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return control.Usage(err.Error(), "name a file that can be written")
		}
		if err := say(e, c, func(w io.Writer, c *slots.Copy) {
			fmt.Fprintf(w, "slot %d: %d bytes, ended %s, SHA-256 %s\n", c.Slot, c.Bytes, c.Ends, c.SHA256)
		}); err != nil {
			return err
		}
		if c.Recorded != "" && c.Recorded != c.SHA256 {
			return fmt.Errorf("slot %d does not hold what was loaded: its SHA-256 is %s, the records say %s; load it again", slot, c.SHA256, c.Recorded)
		}
		return nil
	})
	c.Flags().StringVar(&to, "to", "", "file to write")
	return c
}
