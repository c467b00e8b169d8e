package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"splicenic/tools/control"
)

func versionCommand(e *env) *cobra.Command {
	return leaf("version", "This program, and the register map it was built for", cobra.NoArgs, func(context.Context, []string) error {
		return say(e, control.ThisVersion(), func(w io.Writer, v control.Version) {
			fmt.Fprintf(w, "splicectl %s, %s, %s\nregister map: shell %s, data path %s\n", v.Version, v.Go, v.Platform, v.ShellDigest, v.DataPathDigest)
		})
	})
}
