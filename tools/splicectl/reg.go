package main

import (
	"context"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"splicenic/runtime/view"
	"splicenic/tools/control"
	"splicenic/tools/show"
)

func regCommand(e *env) *cobra.Command {
	list := leaf("list [PREFIX]", "Registers and fields with their documentation; needs no card", cobra.MaximumNArgs(1), func(_ context.Context, args []string) error {
		return say(e, show.RegisterDocs(first(args)), show.DescribeRegisters)
	})
	list.ValidArgsFunction = names(1, control.RegisterNames)

	values := func(ctx context.Context, args []string) error {
		if err := control.CheckRegisters(args); err != nil {
			return err
		}
		return getRegisters(ctx, e, "registers", url.Values{"name": args}, show.Registers)
	}
	read := leaf("get NAME...", "Values of registers, fields, or whole blocks", cobra.MinimumNArgs(1), values)
	read.ValidArgsFunction = names(-1, control.FieldNames)

	set := leaf("set NAME VALUE", "Store into a register or field, as far as its access kind allows", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
		v, err := control.NewStore(args[0], args[1])
		if err != nil {
			return err
		}
		return e.askRegisters(ctx, func(c *control.Client) error {
			var r view.Register
			doc, err := c.Send(ctx, "PUT", "registers", v, &r)
			if err != nil {
				return err
			}
			return show.Answer(e.out, e.json(), doc, []view.Register{r}, show.Registers)
		})
	})
	set.Long = "Store into a register or field.\n\nA number is decimal, or hexadecimal after 0x; a field also takes the name of its value. Read-only registers are refused.\nStoring ones into a write-one-to-clear register clears these bits."
	set.ValidArgsFunction = setNames

	dump := leaf("dump [BLOCK]", "Values of all registers, or of a block", cobra.MaximumNArgs(1), values)
	dump.ValidArgsFunction = names(1, control.RegisterNames)

	counters := false
	diff := leaf("diff [FILE]", "Registers that differ from a dump (-o json), or from their reset values", cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
		from, err := control.ReadDump(first(args), e.in)
		if err != nil {
			return err
		}
		return e.askRegisters(ctx, func(c *control.Client) error {
			var to []view.Register
			if _, err := c.Get(ctx, "registers", nil, &to); err != nil {
				return err
			}
			return say(e, show.DiffRegisters(from, to, counters), show.Changes)
		})
	})
	diff.ValidArgsFunction = nil
	diff.Flags().BoolVar(&counters, "counters", false, "compare counters too")
	return parent("reg", "Registers by name", list, read, set, dump, diff)
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// say prints what a command found out itself.
func say[T any](e *env, v T, text func(io.Writer, T)) error {
	if e.json() {
		return show.JSON(e.out, v)
	}
	text(e.out, v)
	return nil
}
