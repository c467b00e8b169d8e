package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"splicenic/tools/demo"
	"splicenic/tools/host"
)

func runCommand(e *env) *cobra.Command {
	cfg := host.Config{}
	c := leaf("run", "Run a card and its runtime in this process, until SIGINT or SIGTERM", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		cfg.Card, cfg.Socket, cfg.Hangup = e.card, e.socket, hangup
		cfg.Log = slog.New(slog.NewTextHandler(e.err, nil))
		cfg.Ready = func(r host.Ready) {
			_ = say(e, r, func(w io.Writer, r host.Ready) {
				fmt.Fprintf(w, "card %s runs %d services of %s; socket %s\n", r.Card, r.Services, r.File, r.Socket)
			})
		}
		return host.Run(ctx, cfg)
	})
	c.Long = "Run a card and its runtime in this process, until SIGINT or SIGTERM.\n\nSIGHUP applies the file again, like splicectl config apply: what is wrong in it changes nothing."
	c.Flags().StringVarP(&cfg.File, "config", "c", "", "the configuration file")
	_ = c.MarkFlagRequired("config")
	return c
}

func demoCommand(e *env) *cobra.Command {
	var requests int
	var memory bool
	c := leaf("demo", "A client, the card and three HTTP servers in namespaces of their own, and which server got which request", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		var live io.Writer
		if !e.json() {
			live = e.out
		}
		r, code, err := demo.Main(ctx, demo.Config{Requests: requests, Memory: memory, Live: live, Note: e.warn})
		if r == nil && err == nil {
			return exitStatus(code)
		}
		if r != nil {
			err = errors.Join(say(e, r, demo.Summary), err)
		}
		return err
	})
	c.Flags().IntVar(&requests, "requests", 300, "how many requests")
	c.Flags().BoolVar(&memory, "memory", false, "in memory, without namespaces")
	return c
}
