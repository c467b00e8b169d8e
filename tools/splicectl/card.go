package main

import (
	"context"

	"github.com/spf13/cobra"

	"splicenic/runtime/view"
	"splicenic/tools/control"
	"splicenic/tools/show"
)

func cardCommand(e *env) *cobra.Command {
	return parent("card", "The card itself",
		leaf("list", "Cards of this machine, and which of them auto would take", cobra.NoArgs, func(context.Context, []string) error {
			cards, err := control.Cards(e.machine)
			if err != nil {
				return err
			}
			return say(e, cards, show.Cards)
		}),
		leaf("info", "Who the card is, its geometry, and what silicon that stands for", cobra.NoArgs, func(ctx context.Context, _ []string) error {
			return e.askRegisters(ctx, func(c *control.Client) error {
				var v view.Card
				doc, err := c.Get(ctx, "card", nil, &v)
				if err != nil {
					return err
				}
				if doc, err = show.With(doc, "silicon", show.SiliconOf(v.Geometry)); err != nil {
					return err
				}
				return show.Answer(e.out, e.json(), doc, v, show.CardInfo)
			})
		}),
		leaf("reset", "Reset the data path: connections are lost, the runtime writes its tables again", cobra.NoArgs, func(ctx context.Context, _ []string) error {
			return e.ask(ctx, func(c *control.Client) error {
				doc, err := c.Send(ctx, "POST", "card/reset", struct{}{}, nil)
				if err != nil {
					return err
				}
				return show.Answer(e.out, e.json(), doc, "card reset", show.Line)
			})
		}),
		serveCommand(e), bindCommand(e), releaseCommand(e), doctorCommand(e),
	)
}

func portCommand(e *env) *cobra.Command {
	return parent("port", "The card's Ethernet ports",
		leaf("list", "Ports with link, addresses and counters", cobra.NoArgs, func(ctx context.Context, _ []string) error {
			return get(ctx, e, "ports", nil, show.Ports)
		}),
	)
}

func statsCommand(e *env) *cobra.Command {
	return leaf("stats [NAME]", "Every counter, or those below a dotted name such as pages or ports.client", cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
		return e.ask(ctx, func(c *control.Client) error {
			var all any
			doc, err := c.Get(ctx, "stats", nil, &all)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return show.Answer(e.out, e.json(), doc, all, show.Document)
			}
			part, ok := show.Select(all, args[0])
			if !ok {
				return control.Usage("there is no counter named "+args[0], "splicectl stats lists them all")
			}
			return say(e, part, show.Document)
		})
	})
}
