package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"splicenic/tools/bench"
)

func benchCommand(e *env) *cobra.Command {
	var cfg bench.Config
	datapath := leaf("datapath", "Translated frames, whole connections and SYN cookies a second, on one core", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		cfg.Progress = e.progress
		r, err := bench.Datapath(ctx, cfg)
		if err != nil {
			return err
		}
		return say(e, r, func(w io.Writer, r bench.Result) { fmt.Fprint(w, r.Text()) })
	})
	f := datapath.Flags()
	f.Uint32Var(&cfg.Flows, "flows", 0, "live connections; 0: as many as the card has pages")
	f.IntVar(&cfg.Frames, "frames", 0, "translated frames of one round; 0: 6,000,000")
	f.IntVar(&cfg.Rounds, "rounds", 0, "rounds, of which the median counts; 0: 5")
	f.IntVar(&cfg.Lives, "connections", 0, "whole connections of one round; 0: 300,000")
	f.IntVar(&cfg.SYNs, "syns", 0, "SYNs answered with cookies in one round; 0: 3,000,000")
	return parent("bench", "Benchmarks", datapath)
}
