package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"splicenic/runtime/admin"
	"splicenic/tools/control"
	"splicenic/tools/show"
)

// number writes how many there are of something.
func number(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func configCommand(e *env) *cobra.Command {
	file := func(use, short string, do func(ctx context.Context, text admin.File) error) *cobra.Command {
		var name string
		c := leaf(use+" [FILE]", short, cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
			name := name
			switch {
			case len(args) == 0 && name == "":
				return control.Usage("no configuration file is named", "give it as -c FILE; - is standard input")
			case len(args) > 0 && name != "":
				return control.Usage("two configuration files are named: "+name+" and "+args[0], "name one")
			case len(args) > 0:
				name = args[0]
			}
			text, err := control.ReadFile(name, e.in)
			if err != nil {
				return err
			}
			return do(ctx, text)
		})
		c.Flags().StringVarP(&name, "config", "c", "", "the configuration file; -: standard input")
		c.ValidArgsFunction = nil // files
		return c
	}
	ask := func(path string) func(ctx context.Context, text admin.File) error {
		return func(ctx context.Context, text admin.File) error {
			return e.ask(ctx, func(c *control.Client) error {
				var v control.Changes
				doc, err := c.Send(ctx, "POST", path, text, &v)
				if err != nil {
					return err
				}
				for _, w := range v.Warnings {
					e.warn(w)
				}
				return show.Answer(e.out, e.json(), doc, v, show.Changed)
			})
		}
	}
	return parent("config", "The configuration",
		file("check", "Check a file; needs neither card nor runtime", func(_ context.Context, text admin.File) error {
			r, err := control.Check(text)
			if err != nil {
				if e.json() && len(r.Errors) > 0 {
					return errors.Join(say(e, r, nil), err)
				}
				return err
			}
			for _, w := range r.Warnings {
				e.warn(w)
			}
			return say(e, r, func(w io.Writer, r control.Checked) {
				fmt.Fprintf(w, "%s: %s, %s, no error\n", r.File, number(r.Services, "service"), number(r.Groups, "group"))
			})
		}),
		file("diff", "What apply would change", ask("config/diff")),
		file("apply", "Make the running card follow a file; SIGHUP to the runtime does the same", ask("config/apply")),
	)
}
