package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"splicenic/runtime/admin"
	"splicenic/tools/control"
	"splicenic/tools/show"
)

func ipvsCommand(e *env) *cobra.Command {
	return parent("ipvs", "For users of the Linux Virtual Server", ipvsImportCommand(e), ipvsListCommand(e))
}

func ipvsListCommand(e *env) *cobra.Command {
	var stats, rate bool
	var interval time.Duration
	c := leaf("list", "The running services with their servers, in the layout of ipvsadm -L -n", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		switch {
		case stats && rate:
			return control.Usage("--stats and --rate are two tables", "ask for one of them")
		case interval < time.Millisecond || interval > time.Hour:
			return control.Usage("--interval is not between 1ms and 1h", "leave it out for one second")
		case stats:
			return get(ctx, e, "services", url.Values{"traffic": {"1"}}, show.IPVSStats)
		case !rate:
			return get(ctx, e, "services", nil, show.IPVS)
		}
		return e.ask(ctx, func(c *control.Client) error {
			doc, t, err := c.Rates(ctx, interval)
			if err != nil {
				return err
			}
			return show.Answer(e.out, e.json(), doc, t, show.IPVSRate)
		})
	})
	f := c.Flags()
	f.BoolVar(&stats, "stats", false, "connections, packets and bytes instead, since the runtime began")
	f.BoolVar(&rate, "rate", false, "the same in a second")
	f.DurationVar(&interval, "interval", time.Second, "with --rate, how long to look")
	return c
}

func ipvsImportCommand(e *env) *cobra.Command {
	var partial bool
	var marks []string
	c := leaf("import FILE...", "Services and groups from what ipvsadm -S -n printed, and from keepalived.conf; -: standard input", cobra.MinimumNArgs(1), func(_ context.Context, args []string) error {
		var files []admin.File
		in := e.in
		for _, name := range args {
			text, err := control.ReadFile(name, in)
			if err != nil {
				return err
			}
			if name == "-" {
				in = nil
			}
			files = append(files, text)
		}
		r, err := control.ImportIPVS(files, marks)
		if err != nil {
			return err
		}
		for _, l := range r.Left {
			e.warn("not carried: " + l)
		}
		if len(r.Left) > 0 && !partial {
			return control.Refuse("import "+strings.Join(args, " "), fmt.Sprintf("%d things in it cannot be said in a configuration", len(r.Left)), "look at them, and add --partial to go without them")
		}
		return say(e, r, func(w io.Writer, r control.Imported) { fmt.Fprint(w, r.YAML) })
	})
	c.Long = c.Short + ".\n\nWhat is written lacks card and ports. Each thing that a configuration cannot say is named on standard error, and with --partial\nstands as a comment in what is written."
	f := c.Flags()
	f.BoolVar(&partial, "partial", false, "write what can be said, though something is not carried")
	f.StringArrayVar(&marks, "fwmark", nil, "which packets have a firewall mark, such as 3=198.18.0.80:80,198.18.0.80:53/udp; as often as wanted")
	c.ValidArgsFunction = nil // files
	return c
}
