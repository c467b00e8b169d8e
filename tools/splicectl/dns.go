package main

import (
	"context"

	"github.com/spf13/cobra"

	"splicenic/tools/show"
)

func dnsCommand(e *env) *cobra.Command {
	return parent("dns", "The zone that this director publishes",
		leaf("show", "The zone as served, as a zone file, and what the peers say", cobra.NoArgs, func(ctx context.Context, _ []string) error {
			return get(ctx, e, "dns", nil, show.Zone)
		}),
	)
}
