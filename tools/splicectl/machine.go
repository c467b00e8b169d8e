package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"splicenic/tools/card"
	"splicenic/tools/control"
	"splicenic/tools/show"
)

func serveCommand(e *env) *cobra.Command {
	var cfg card.Config
	c := leaf("serve", "Hold a card and offer it to one runtime after another, until SIGINT or SIGTERM", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		if cfg.Card == "" || cfg.Socket == "" {
			return control.Usage("card serve needs --card and --socket", "say --card emu --socket PATH")
		}
		cfg.VFIO, cfg.Machine, cfg.Log = e.vfio, e.machine, e.logger()
		cfg.Ready = func() {
			_ = say(e, control.Served{Card: cfg.Card, Socket: cfg.Socket, PID: os.Getpid()}, show.Served)
		}
		return card.Main(ctx, cfg)
	})
	c.Long = `Hold a card and offer it to one runtime after another, until SIGINT or SIGTERM.

splicectl run starts such a process by itself. The socket speaks vfio-user, so that a virtual machine can own the card as
a PCI device, too. Traffic flows as long as this process lives, with or without a client. A second client is refused.`
	cfg.Flags(c.Flags())
	_ = c.Flags().MarkHidden(card.ReadyFlag)
	complete(c, "card", "emu", "vfio:")
	return c
}

func bindCommand(e *env) *cobra.Command {
	var o control.BindOptions
	c := leaf("bind ADDRESS", "Give a card to the vfio-pci driver", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		change, err := control.Bind(ctx, e.machine, args[0], o)
		if err != nil {
			return err
		}
		return say(e, change, show.Binding)
	})
	c.Long = "Give a card to the vfio-pci driver. The driver it had is remembered, and splicectl card release gives the card back to\nit. If a step fails, those before it are undone."
	bindFlags(c, &o)
	return c
}

func releaseCommand(e *env) *cobra.Command {
	var o control.BindOptions
	c := leaf("release ADDRESS", "Give a card back to the driver it had", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		change, err := control.Release(ctx, e.machine, args[0], o)
		if err != nil {
			return err
		}
		return say(e, change, show.Binding)
	})
	bindFlags(c, &o)
	c.Flags().StringVar(&o.Driver, "driver", "", "another driver, or none; empty: the one it had")
	return c
}

func bindFlags(c *cobra.Command, o *control.BindOptions) {
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "print the writes, do none")
	c.Flags().BoolVar(&o.Any, "any", false, "any PCI function, not only cards")
}

func doctorCommand(e *env) *cobra.Command {
	var group string
	c := leaf("doctor", "What the machine and the neighbours of a card lack, with a number and the command for it", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		cfg := control.Config{Card: e.card, Socket: e.socket, VFIO: e.vfio, Machine: e.machine}
		if group != "" {
			text, err := control.UdevRule(cfg, group)
			if err != nil {
				return err
			}
			return say(e, text, show.Line)
		}
		checks, err := control.Doctor(ctx, cfg)
		if err != nil {
			return err
		}
		if err := say(e, checks, show.Checks); err != nil {
			return err
		}
		return control.RedFailure(checks)
	})
	c.Long = `What the machine lacks for a card, with a number and the command for it: IOMMU, modules, limits, permissions, and of
every card that can be opened each interrupt vector, raised by the kernel and by the card itself. What cannot apply says
why. The exit code is 1 if a check failed.

Where no --card is named and a runtime drives one, it is asked through its --socket what is around that: who else answers
for a VIP, which servers of dr and tun do not take packets for it, and how much fits the path to each server. That takes
a few seconds, in which traffic goes on.`
	c.Flags().StringVar(&group, "udev-rule", "", "print the lines for udev that give cards to a group of users, instead")
	return c
}
