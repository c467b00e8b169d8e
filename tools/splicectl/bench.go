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
	return parent("bench", "Benchmarks", datapath, benchRules(e))
}

func benchRules(e *env) *cobra.Command {
	var cfg bench.RulesConfig
	rules := leaf("rules", "Rules compiled, and request heads read and matched, on one core", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		cfg.Progress = e.progress
		r, err := bench.Rules(ctx, cfg)
		if err != nil {
			return err
		}
		return say(e, r, func(w io.Writer, r bench.RulesResult) { fmt.Fprint(w, r.Text()) })
	})
	f := rules.Flags()
	f.IntVar(&cfg.Rules, "rules", 0, "rules, with a tenth as many hosts; 0: 100,000")
	f.IntVar(&cfg.Heads, "heads", 0, "request heads of one round; 0: 200,000")
	f.IntVar(&cfg.Rounds, "rounds", 0, "rounds, of which the median counts; 0: 7")
	return rules
}
