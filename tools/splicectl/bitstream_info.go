package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"splicenic/tools/imagefile"
)

func bitstreamInfoCommand(e *env) *cobra.Command {
	c := leaf("info FILE...", "What image files hold: format, design, part, date, IDCODEs, and whether they are whole; -: standard input", cobra.MinimumNArgs(1), func(ctx context.Context, args []string) error {
		reports, fault := imagefile.Info(args, imagefile.Until(ctx, e.in), func(text string) { fmt.Fprintln(e.err, "error:", text) })
		if len(reports) > 0 || e.json() {
			if err := say(e, reports, imagefile.Text); err != nil {
				return err
			}
		}
		return fault
	})
	c.Long = c.Short + ".\n\nThe content decides what a file is, never its name. A file whose own checks fail is described, and the exit code is 1;\na file that is no image is named, and the exit code is 2. integrity is one of: valid, with how many checks agree; invalid;\nabsent, where the file has no check; not checkable, where the file has one that needs a key."
	c.ValidArgsFunction = nil // files
	return c
}
