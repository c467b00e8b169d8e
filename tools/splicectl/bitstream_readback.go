package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"splicenic/bitstream/program"
	"splicenic/tools/control"
	"splicenic/tools/imagefile"
	"splicenic/tools/slots"
)

func bitstreamReadbackCommand(e *env) *cobra.Command {
	const example = "splicectl bitstream readback 1 --to slot1.bin"
	var to string
	var force bool
	var offset, n uint32
	var c *cobra.Command
	c = leaf("readback SLOT|records|raw", "Read a slot's image into a file, and compare it with what the records say", cobra.ExactArgs(1), func(ctx context.Context, args []string) (err error) {
		if to == "" {
			return control.Usage("readback needs --to", example)
		}
		ranged := c.Flags().Changed("offset") || c.Flags().Changed("bytes")
		read := func(s *slots.Session, tell func(program.Event)) (*slots.Copy, []byte, error) {
			return slots.ReadRange(ctx, s, offset, n, tell)
		}
		if args[0] == "records" {
			read = func(s *slots.Session, tell func(program.Event)) (*slots.Copy, []byte, error) {
				return slots.ReadRecords(ctx, s, tell)
			}
		}
		if args[0] != "raw" && args[0] != "records" {
			slot, err := slotOf(args[0])
			if err != nil || slot == program.Auto {
				return control.Usage(fmt.Sprintf("got %q, wanted the number of a slot, records or raw", args[0]), example)
			}
			read = func(s *slots.Session, tell func(program.Event)) (*slots.Copy, []byte, error) {
				return slots.Readback(ctx, s, slot, tell)
			}
		}
		switch {
		case args[0] == "raw" && n == 0:
			return control.Usage("readback raw needs --offset and --bytes", "splicectl bitstream readback raw --offset 0x1000000 --bytes 65536 --to part.bin")
		case args[0] != "raw" && ranged:
			return control.Usage("--offset and --bytes go with readback raw", "splicectl bitstream readback raw --offset 0x1000000 --bytes 65536 --to part.bin")
		}
		if err := imagefile.Writable(to, force); err != nil {
			return err
		}
		s, err := e.openSlots(ctx, false)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		told := slots.NewProgress(e.err, e.json())
		defer told.End()
		c, b, err := read(s, told.Show)
		if err != nil {
			return err
		}
		if err := imagefile.Write(to, b, force); err != nil {
			return err
		}
		if err := say(e, c, func(w io.Writer, c *slots.Copy) { c.Text(w) }); err != nil {
			return err
		}
		if c.Recorded != "" && c.Recorded != c.SHA256 {
			return fmt.Errorf("slot %d does not hold what was loaded: its SHA-256 is %s, the records say %s; load it again", c.Slot, c.SHA256, c.Recorded)
		}
		return nil
	})
	c.Long = c.Short + ".\n\nThe file is written whole or not at all. With records it gets the two sectors in which the card's records stand, with raw\nthe --bytes of the flash from --offset on."
	c.ValidArgsFunction = names(1, func(string) []string { return append(slotNames[1:], "records", "raw") })
	f := c.Flags()
	f.StringVar(&to, "to", "", "file to write")
	f.BoolVar(&force, "force", false, "replace the file if it is there")
	f.Uint32Var(&offset, "offset", 0, "with raw, where in the flash, as 0x1000000")
	f.Uint32Var(&n, "bytes", 0, "with raw, how many")
	free(c, "offset", "bytes")
	return c
}
