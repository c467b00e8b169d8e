package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"splicenic/tools/capture"
	"splicenic/tools/control"
)

func captureCommand(e *env) *cobra.Command {
	var listeners []string
	cfg := capture.Config{}
	check := leaf("check CLIENT.pcap SERVER.pcap", "What no honest splice does, in captures of both wires of a card", cobra.ExactArgs(2), func(_ context.Context, args []string) error {
		for _, l := range listeners {
			a, err := netip.ParseAddrPort(l)
			if err != nil {
				return control.Usage(fmt.Sprintf("listener %q is no ADDRESS:PORT", l), "say --listen 198.18.0.80:80")
			}
			cfg.Listeners = append(cfg.Listeners, a)
		}
		r, err := capture.Check(args[0], args[1], cfg)
		if err != nil {
			return control.Usage(err.Error(), "name two captures that were taken at the card at the same time, by tcpdump or as the card's own wires write them")
		}
		if err := say(e, r, capture.Text); err != nil {
			return err
		}
		if len(r.Violations) > 0 {
			return exitStatus(control.ExitFailed)
		}
		return nil
	})
	check.Long = `What no honest splice does, in captures of both wires of a card, taken at the same time: bytes that differ between the
two connections of a splice, segments beyond a window, acknowledgements of what nobody holds, wrong options and so on.
Exit code 1 tells that something was found.

What a service puts before or into its clients' heads (proxy, forwarded, requests: close) is taken for a fault: name the
other listeners by --listen.`
	f := check.Flags()
	f.StringArrayVar(&listeners, "listen", nil, "only connections to this ADDRESS:PORT; may be said several times")
	f.BoolVar(&cfg.Partial, "partial", false, "the captures end in the middle of the traffic")
	f.IntVar(&cfg.Most, "limit", 100, "show at most this many findings; 0: all that are kept")
	check.ValidArgsFunction = nil
	return parent("capture", "Captures of a card's wires", check)
}
