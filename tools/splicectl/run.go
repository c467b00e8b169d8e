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

	"splicenic/tools/control"
	"splicenic/tools/demo"
	"splicenic/tools/host"
)

// logger writes what a long-running command says beside its answer.
func (e *env) logger() *slog.Logger { return slog.New(slog.NewTextHandler(e.err, nil)) }

func runCommand(e *env) *cobra.Command {
	cfg := host.Config{}
	var onExit string
	c := leaf("run", "Run the runtime on its card, until SIGINT or SIGTERM", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		if onExit != "stop" && onExit != "keep" {
			return control.Usage(fmt.Sprintf("--on-exit %q is neither stop nor keep", onExit), "use --on-exit keep to leave the card running")
		}
		if cfg.Keep = onExit == "keep"; cfg.Keep && cfg.InProcess {
			return control.Usage("a card in this process cannot outlive it", "leave --in-process or --on-exit keep out")
		}
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		cfg.Card, cfg.Socket, cfg.Hangup, cfg.VFIO, cfg.Machine, cfg.Log = e.card, e.socket, hangup, e.vfio, e.machine, e.logger()
		cfg.Ready = func(r host.Ready) { _ = say(e, r, sayReady) }
		return host.Run(ctx, cfg)
	})
	c.Long = `Run the runtime on its card, until SIGINT or SIGTERM.

The card is in a process of its own, which splicectl card serve is too: it is started where none runs, and outlives a
runtime that is killed. The next run attaches to it and goes on; connections notice nothing. At an orderly end it ends
too, unless --on-exit keep leaves it running. Its files lie beside the runtime's socket: NAME.card.sock, NAME.card.log,
NAME.card.json, NAME.dma and NAME.state.json.

SIGHUP applies the file again, like splicectl config apply: what is wrong in it changes nothing. The file is not watched.`
	f := c.Flags()
	f.StringVarP(&cfg.File, "config", "c", "", "the configuration file")
	f.BoolVar(&cfg.InProcess, "in-process", false, "the card in this process, without a card process")
	f.StringVar(&onExit, "on-exit", "stop", "what becomes of the card process at an orderly end: stop or keep")
	complete(c, "on-exit", "stop", "keep")
	_ = c.MarkFlagRequired("config")
	return c
}

func sayReady(w io.Writer, r host.Ready) {
	fmt.Fprintf(w, "card %s runs %d services of %s; socket %s\n", r.Card, r.Services, r.File, r.Socket)
	if r.CardProcess != 0 {
		fmt.Fprintf(w, "card process %d at %s; %s\n", r.CardProcess, r.CardSocket, r.Attached)
	}
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
		if errors.Is(err, demo.ErrRequests) {
			return control.Usage(err.Error(), fmt.Sprintf("say --requests with a number from 1 to %d", demo.MaxRequests))
		}
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
