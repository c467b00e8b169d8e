package main

import "github.com/spf13/cobra"

func bitstreamCommand(e *env) *cobra.Command {
	boot := bitstreamBootCommand(e)
	boot.ValidArgsFunction = names(1, func(string) []string { return slotNames })
	return parent("bitstream", "FPGA images: what a file holds, and what a card runs",
		bitstreamInfoCommand(e), bitstreamVerifyCommand(e), bitstreamSignCommand(e), bitstreamKeygenCommand(e),
		bitstreamListCommand(e), bitstreamLoadCommand(e), bitstreamReadbackCommand(e), boot)
}
