package main

import (
	"context"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"splicenic/runtime/view"
	"splicenic/tools/capture"
	"splicenic/tools/control"
	"splicenic/tools/show"
)

func explainCommand(e *env) *cobra.Command {
	var page, client, server string
	c := leaf("explain [N|N.GENERATION|CLIENT:PORT]", "Why a connection goes where it goes, and what becomes of each field of its segments", cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
		switch {
		case page != "" && len(args) > 0:
			return control.Usage("a connection and a page that was saved: one of them is to be explained", "leave --page or the connection out")
		case page != "":
			return e.explainSaved(page, client, server)
		case client+server != "":
			return control.Usage("captures tell of a connection whose page was saved", "say --page, too")
		case len(args) == 0:
			return control.Usage("no connection is named", "splicectl conn list shows them all; --page names a page that was saved")
		}
		return e.ask(ctx, func(c *control.Client) error {
			id, err := c.ConnectionID(ctx, args[0])
			if err != nil {
				return err
			}
			var x view.Explanation
			doc, err := c.Get(ctx, "explain", url.Values{"connection": {id}}, &x)
			if err != nil {
				return err
			}
			return show.Answer(e.out, e.json(), doc, x, show.Explanation)
		})
	})
	c.Long = `Why a connection goes where it goes, and what becomes of each field of its segments: each with the page words, table
entries and registers that say so. L+0x4c is a word of the connection's page, server[3]+0x10 one of a table's entry,
BAR0+0x12008 a register.

With --page a page is explained that was saved before, by: splicectl page show N -o json > FILE. What lies in tables and
registers is not at hand then. With captures of both wires, too, the connection's segments are shown: which became which, and
whether each field is what the page says.`
	f := c.Flags()
	f.StringVar(&page, "page", "", "explain the page that a file shows; -: standard input")
	f.StringVar(&client, "client", "", "with --page: capture of the client's wire")
	f.StringVar(&server, "server", "", "with --page: capture of the server's wire")
	c.ValidArgsFunction = e.connections
	return c
}

// captured is a connection whose page was saved, with its segments.
type captured struct {
	view.Explanation
	Segments []capture.Segment `json:"segments"`
}

// explainSaved explains a page that was saved, with its segments where captures are named.
func (e *env) explainSaved(page, client, server string) error {
	p, x, err := control.ReadPage(page, e.in)
	switch {
	case err != nil:
		return err
	case client == "" && server == "":
		return say(e, x, show.Explanation)
	case client == "" || server == "":
		return control.Usage("one wire alone does not show what became of a segment", "say both --client and --server")
	}
	entry, err := p.Decode()
	if err != nil {
		return err
	}
	list, err := capture.Trace(client, server, &entry)
	if err != nil {
		return control.Usage(err.Error(), "name two captures that were taken at the card at the same time")
	}
	return say(e, captured{x, list}, func(w io.Writer, c captured) {
		show.Explanation(w, c.Explanation)
		capture.TraceText(w, c.Segments)
	})
}
