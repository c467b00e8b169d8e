package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"splicenic/tools/control"
	"splicenic/tools/open"
	"splicenic/tools/show"
)

// env is what all commands share.
type env struct {
	in       io.Reader
	out, err io.Writer
	output   string // text or json
	card     string
	socket   string
	vfio     open.VFIOOptions
	machine  open.Machine
}

func (e *env) json() bool { return e.output == "json" }

// warn says something that is no part of the answer.
func (e *env) warn(text string) { fmt.Fprintln(e.err, "note:", text) }

// progress says what long work is at: a line of text, or of JSON.
func (e *env) progress(text string) {
	if e.json() {
		_ = json.NewEncoder(e.err).Encode(map[string]string{"progress": text})
		return
	}
	fmt.Fprintln(e.err, text)
}

// run is the program: it returns the exit code.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	e := &env{in: in, out: out, err: errs}
	root := newRoot(e)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return control.ExitOK
	}
	var status exitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	var f *control.Failure
	if !errors.As(err, &f) { // cobra's own: flags, arguments, names of commands
		f = control.Usage(err.Error(), "see "+cmd.CommandPath()+" --help")
	}
	f.Print(errs, cmd.CommandPath())
	return f.Exit
}

// exitStatus is the exit code of a command that has said everything itself.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "splicectl",
		Short:         "Drive cards that splice TCP connections",
		Long:          "splicectl drives cards that splice TCP connections, and the emulated card.\n\nExit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 no usable card,\n4 card lost or mismatch, 5 busy, 6 refused.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	f := root.PersistentFlags()
	f.StringVarP(&e.output, "output", "o", "text", "text or json: one document on stdout")
	f.StringVar(&e.card, "card", os.Getenv("SPLICE_CARD"), "auto, emu, vfio:ADDRESS or vfio-user:PATH, where no runtime answers (SPLICE_CARD)")
	f.StringVar(&e.socket, "socket", os.Getenv("SPLICE_SOCKET"), "the runtime's socket (SPLICE_SOCKET); empty: the default path")
	f.StringVar(&e.vfio.Transport, "transport", "auto", "how a card is opened over VFIO: auto, type1 or iommufd")
	f.BoolVar(&e.vfio.NoIOMMU, "noiommu", false, "open a card that no IOMMU confines, for its registers only")
	f.StringVar(&e.vfio.VFToken, "vf-token", "", "UUID that the owner of the card's physical function set")
	f.StringVar(&e.machine.Root, "machine", "", "tree with sys, dev, proc and run instead of this machine's")
	_ = f.MarkHidden("machine")
	complete(root, "transport", "auto", "type1", "iommufd")
	complete(root, "output", "text", "json")
	complete(root, "card", "auto", "emu", "vfio:", "vfio-user:")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if e.output != "text" && e.output != "json" {
			return control.Usage(fmt.Sprintf("output %q is neither text nor json", e.output), "use -o json")
		}
		return nil
	}
	root.AddCommand(runCommand(e), demoCommand(e), configCommand(e), cardCommand(e), portCommand(e), regCommand(e), camCommand(e),
		pageCommand(e), ruleCommand(e), connCommand(e), explainCommand(e), captureCommand(e), statsCommand(e), dnsCommand(e), ipvsCommand(e), bitstreamCommand(e), planCommand(e), benchCommand(e), versionCommand(e), completionCommand(e))
	return root
}

// complete gives a flag a fixed list of values.
func complete(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// parent is a command that only has others below it.
func parent(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return control.Usage(fmt.Sprintf("%s has no command %q", c.CommandPath(), args[0]), "see "+c.CommandPath()+" --help")
		}
		return control.Usage(c.CommandPath()+" needs a command", "see "+c.CommandPath()+" --help")
	}
	c.AddCommand(below...)
	return c
}

// leaf is a command that does something. Whatever goes wrong in it becomes a control.Failure.
func leaf(use, short string, args cobra.PositionalArgs, do func(ctx context.Context, args []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: args, ValidArgsFunction: cobra.NoFileCompletions}
	c.RunE = func(c *cobra.Command, args []string) error {
		err := do(c.Context(), args)
		var status exitStatus
		if err == nil || errors.As(err, &status) {
			return err
		}
		return control.Explain(c.CommandPath(), err)
	}
	return c
}

// ask asks the runtime, or the card where there is none, brought up for the purpose.
func (e *env) ask(ctx context.Context, use func(c *control.Client) error) error {
	return e.asking(ctx, false, use)
}

// askRegisters asks the runtime, or the card where there is none, left as it is.
func (e *env) askRegisters(ctx context.Context, use func(c *control.Client) error) error {
	return e.asking(ctx, true, use)
}

func (e *env) asking(ctx context.Context, shell bool, use func(c *control.Client) error) (err error) {
	c, err := control.Open(ctx, control.Config{Card: e.card, Socket: e.socket, Shell: shell, Note: e.warn, VFIO: e.vfio, Machine: e.machine})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return use(c)
}

// get asks for a document and prints it: as it came for JSON, by text else.
func get[T any](ctx context.Context, e *env, path string, query url.Values, text func(w io.Writer, v T)) error {
	return e.ask(ctx, answer(ctx, e, path, query, text))
}

// getRegisters does the same without bringing the card up.
func getRegisters[T any](ctx context.Context, e *env, path string, query url.Values, text func(w io.Writer, v T)) error {
	return e.askRegisters(ctx, answer(ctx, e, path, query, text))
}

func answer[T any](ctx context.Context, e *env, path string, query url.Values, text func(w io.Writer, v T)) func(c *control.Client) error {
	return func(c *control.Client) error {
		var v T
		doc, err := c.Get(ctx, path, query, &v)
		if err != nil {
			return err
		}
		return show.Answer(e.out, e.json(), doc, v, text)
	}
}
