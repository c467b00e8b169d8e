package main

import "github.com/spf13/cobra"

func bitstreamCommand(e *env) *cobra.Command {
	return parent("bitstream", "FPGA images: what a file holds, and what a card runs",
		bitstreamInfoCommand(e), bitstreamVerifyCommand(e), bitstreamSignCommand(e), bitstreamKeygenCommand(e),
		bitstreamListCommand(e), bitstreamLoadCommand(e), bitstreamReadbackCommand(e), bitstreamBootCommand(e))
}
