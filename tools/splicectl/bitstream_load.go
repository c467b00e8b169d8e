package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"splicenic/bitstream/program"
	"splicenic/tools/control"
	"splicenic/tools/imagefile"
	"splicenic/tools/slots"
)

// openSlots opens the card whose slots a command is about.
func (e *env) openSlots(ctx context.Context, write bool) (*slots.Session, error) {
	return slots.Open(ctx, slots.Config{Card: e.card, Socket: e.socket, VFIO: e.vfio, Machine: e.machine, Write: write, Note: e.warn})
}

// slotOf reads the name of a slot.
func slotOf(s string) (int, error) {
	if s == "auto" {
		return program.Auto, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, control.Usage(fmt.Sprintf("got %q, wanted the number of a slot, or auto", s), "splicectl bitstream list shows the slots")
	}
	return int(n), nil
}

// slotNames complete a slot, of which a card has four at most.
var slotNames = []string{"auto", "0", "1", "2", "3"}

// oneFile completes the name of a file, and nothing behind it.
func oneFile(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// free says of flags that no file completes them.
func free(c *cobra.Command, flags ...string) {
	for _, f := range flags {
		complete(c, f)
	}
}

// noArguments is cobra.NoArgs in words that name what was given.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return control.Usage(fmt.Sprintf("got %q, wanted no argument", args[0]), "see "+c.CommandPath()+" --help")
	}
	return nil
}

func bitstreamLoadCommand(e *env) *cobra.Command {
	r := slots.Request{}
	var slot string
	var offset uint32
	var plan, yes bool
	var c *cobra.Command
	c = leaf("load FILE", "Write an image into a slot of the card's flash; what runs goes on running", cobra.ExactArgs(1), func(ctx context.Context, args []string) (err error) {
		r.File = args[0]
		for _, asked := range []string{"slot", "key", "unsigned", "for-host"} {
			if r.Raw && c.Flags().Changed(asked) {
				return control.Usage("--"+asked+" does not go with --raw", "raw bytes go to --offset, and nothing is asked of them")
			}
		}
		if c.Flags().Changed("offset") {
			if !r.Raw {
				return control.Usage("--offset goes with --raw", "an image goes to a --slot, and its first byte to the slot's first")
			}
			r.Offset = &offset
		}
		if r.Slot, err = slotOf(slot); err != nil {
			return err
		}
		img, err := slots.ReadImage(r, imagefile.Until(ctx, e.in))
		if err != nil {
			return err
		}
		s, err := e.openSlots(ctx, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		told := slots.NewProgress(e.err, e.json())
		defer told.End()
		p, err := slots.Plan(ctx, s, img, r, told.Show)
		if err != nil {
			return err
		}
		if plan || !e.json() {
			if err := say(e, p, slots.Describe); err != nil || plan {
				return err
			}
		}
		if (r.Golden || r.Running || r.Raw) && !yes && !p.Nothing() {
			return control.Refuse("this load writes raw bytes, the golden slot or the one that runs", "a power cut in the midst of it can leave the card with nothing to boot", "say --yes if that is meant")
		}
		for _, n := range p.Notes {
			if strings.HasPrefix(n, "forced") && e.json() { // text has said it with the plan
				e.warn(n)
			}
		}
		if err := slots.Run(ctx, p, told.Show); err != nil {
			return err
		}
		return say(e, p, func(w io.Writer, p *program.Plan) {
			done := "written and read back"
			switch p.Outcome {
			case program.Recorded:
				done = "as it did before; its record is new"
			case program.Unchanged:
				done = "as it did before"
			}
			switch {
			case p.Slot < 0:
				fmt.Fprintf(w, "the flash holds these bytes, %s\n", done)
			case p.State == program.Good:
				fmt.Fprintf(w, "slot %d holds the image, %s; it is recorded good\n", p.Slot, done)
			default:
				fmt.Fprintf(w, "slot %d holds the image, %s; splicectl bitstream boot %d tries it\n", p.Slot, done, p.Slot)
			}
		})
	})
	c.Long = c.Short + ".\n\nThe plan is printed first. Only sectors that differ are erased and written, each is read back, and a load that was cut short\ngoes on when it is given again. Until its last step the slot holds nothing that could boot. Signatures count as with verify.\nThe content decides what a file is, and headers are not written.\n\nWith --raw nothing is asked of the bytes. Those of Intel HEX go to the addresses in the file, those of any other file to\n--offset. Sectors that they fill in part keep the rest."
	c.ValidArgsFunction = oneFile
	f := c.Flags()
	f.StringVar(&slot, "slot", "auto", "slot to write; auto: the one of the file's addresses, else one that is neither golden nor running, a good image last")
	f.BoolVar(&plan, "plan", false, "only say what would be done")
	f.BoolVar(&yes, "yes", false, "write the golden slot, the running one or raw bytes without a further word")
	f.StringArrayVar(&r.Keys, "key", nil, "file with a trusted public key; may be given several times")
	f.BoolVar(&r.Unsigned, "unsigned", false, "take an image that nobody signed")
	f.BoolVar(&r.Golden, "force-golden", false, "the golden slot may be written")
	f.BoolVar(&r.Running, "force-running", false, "the slot whose image runs may be written")
	f.StringVar(&r.ForHost, "for-host", "", "release of this program that will drive the image, if not this one")
	f.BoolVar(&r.Raw, "raw", false, "write bytes that need be no image, at --offset of the flash or where Intel HEX says")
	f.Uint32Var(&offset, "offset", 0, "with --raw, where in the flash, as 0x1100000")
	complete(c, "slot", slotNames...)
	free(c, "for-host", "offset")
	return c
}

func bitstreamListCommand(e *env) *cobra.Command {
	return leaf("list", "The card's slots: which runs, which is next, and what the records say is in them", noArguments, func(ctx context.Context, _ []string) (err error) {
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
