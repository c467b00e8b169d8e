package main

import (
	_ "embed"
	"fmt"

	"github.com/spf13/cobra"

	"splicenic/tools/control"
)

var (
	//go:embed completion.bash
	bashScript string
	//go:embed completion.zsh
	zshScript string
)

func completionCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "A script that completes splicectl's commands and names in a shell",
		Long:      "Print a completion script. For this shell:\n\n  bash: source <(splicectl completion bash)\n  zsh:  source <(splicectl completion zsh)\n  fish: splicectl completion fish | source",
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		switch args[0] {
		case "bash":
			fmt.Fprint(e.out, bashScript)
		case "zsh":
			fmt.Fprint(e.out, zshScript)
		default:
			return c.Root().GenFishCompletion(e.out, true)
		}
		return nil
	}
	return c
}

// completion is what cobra calls to complete an argument.
type completion = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// names completes arguments, at most limit of them (negative: any number), from what list returns for the text typed so
// far.
func names(limit int, list func(typed string) []string) completion {
	return func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if limit >= 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list(typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// setNames completes the register and then the value of `reg set`.
func setNames(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return control.StorableNames(typed), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return control.ValueNames(args[0]), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// connections completes connections by their handles and clients, where a runtime answers.
func (e *env) connections(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return control.ConnectionNames(c.Context(), control.Config{Card: e.card, Socket: e.socket}), cobra.ShellCompDirectiveNoFileComp
}
