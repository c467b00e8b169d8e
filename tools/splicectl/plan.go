package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"splicenic/tools/bench"
	"splicenic/tools/control"
)

func planCommand(e *env) *cobra.Command {
	var o control.PlanOptions
	var name string
	var measure bool
	c := leaf("plan", "What a director carries: throughput, servers, lives, floods, ports and silicon; needs neither card nor runtime", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		if name != "" {
			f, err := control.ReadFile(name, e.in)
			if err != nil {
				return err
			}
			o.Config = &f
		}
		if measure {
			o.Measure = func() (float64, float64, error) {
				r, err := bench.Datapath(ctx, bench.Config{Frames: 2_000_000, Rounds: 3, Loads: 1_000_000, Lives: 50_000, SYNs: 500_000, Progress: e.progress})
				return r.NsPerPacket, r.CookieMpps * 1e6, err
			}
		}
		p, err := o.Plan()
		if err != nil {
			return err
		}
		return say(e, p, func(w io.Writer, p control.Plan) { fmt.Fprint(w, p.Text()) })
	})
	c.Long = c.Short + ".\n\nThe figures are those of the documents that the card was designed after, unless they are given."
	f := c.Flags()
	f.StringVarP(&name, "config", "c", "", "take servers and methods from a configuration file; -: standard input")
	f.BoolVar(&measure, "measure", false, "measure what a packet costs the emulated card on one core of this machine")
	f.StringVar(&o.Cost, "cost", "", "of rewriting one packet (60us)")
	f.StringVar(&o.Packet, "packet", "", "payload of a packet (536B)")
	f.StringVar(&o.ServerRate, "server-rate", "", "what a server sends (0.8MB/s)")
	f.StringVar(&o.PortRate, "port-rate", "", "what a port of the card carries (1Gbit/s)")
	f.StringVar(&o.Goal, "goal", "", "what all directors are to carry together, such as 40MB/s")
	f.StringVar(&o.Pages, "pages", "", "pages of the card (288Ki)")
	f.StringVar(&o.Rate, "rate", "", "new connections (21k/s)")
	f.StringVar(&o.SYNs, "syns", "", "SYNs of a flood (1.488Mpps, what 1 Gbit/s carries)")
	f.StringVar(&o.Locals, "locals", "", "local addresses that a FULLNAT server is reached from (1)")
	f.StringVar(&o.Servers, "servers", "", "servers (1)")
	return c
}
