package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"splicenic/tools/control"
	"splicenic/tools/ruletest"
	"splicenic/tools/show"
)

func ruleCommand(e *env) *cobra.Command {
	return parent("rule", "Rules",
		leaf("list", "Rules as the hardware holds them, with hit counters", cobra.NoArgs, func(ctx context.Context, _ []string) error {
			return get(ctx, e, "rules", nil, show.Rules)
		}),
		ruleTestCommand(e), ruleImportCommand(e),
	)
}

func ruleTestCommand(e *env) *cobra.Command {
	var q ruletest.Question
	var name, url, method, client string
	var fields, alpn []string
	var typed bool
	c := leaf("test -c FILE [INPUT]", "Which rule of a file takes a request, and why each other one does not; needs neither card nor runtime", cobra.MaximumNArgs(1), func(_ context.Context, args []string) error {
		if name == "" {
			return control.Usage("no configuration file is named", "give it as -c FILE; - is standard input")
		}
		if (len(args) == 0) == (url == "") {
			return control.Usage("one request is wanted", "name a file that holds a head, a hello or a capture (-: standard input), or give --url")
		}
		if len(args) > 0 && (len(fields) > 0 || method != "GET") {
			return control.Usage("a request in a file has its own method and header", "leave out --method and --header")
		}
		if len(args) > 0 && len(alpn) > 0 {
			return control.Usage("a hello in a file offers its own protocols", "leave out --alpn")
		}
		if client != "" {
			var err error
			if q.Client, err = netip.ParseAddr(client); err != nil {
				return control.Usage(fmt.Sprintf("client %q is no address", client), "write --client 192.0.2.9")
			}
		}
		text, err := control.ReadFile(name, e.in)
		if err != nil {
			return err
		}
		if url != "" {
			if q.Input, err = ruletest.Head(method, url, fields); err != nil {
				return control.Usage(err.Error(), "see splicectl rule test --help")
			}
			if q.ALPN = len(alpn) > 0; strings.Contains(url, "://") {
				if q.Hello, err = ruletest.Hello(url, alpn); err != nil {
					return control.Usage(err.Error(), "see splicectl rule test --help")
				}
			}
		} else {
			in := e.in
			if name == "-" {
				in = nil
			}
			input, err := control.ReadFile(args[0], in)
			if err != nil {
				return err
			}
			if q.Input = []byte(input.Text); typed {
				q.Input = ruletest.Typed(input.Text)
			}
		}
		answers, err := ruletest.Test(text.File, text.Text, &q)
		if err != nil {
			return err
		}
		return say(e, answers, ruletest.Write)
	})
	c.Long = c.Short + ".\n\nINPUT is a request head or a TLS ClientHello as it is on the wire, or a pcap or pcapng file of connections to the\nfile's listeners."
	f := c.Flags()
	f.StringVarP(&name, "config", "c", "", "the configuration file; -: standard input")
	f.StringVar(&q.Service, "service", "", "the service, where the file has several")
	f.StringVar(&client, "client", "", "the client's address, for rules with source")
	f.StringVar(&url, "url", "", "instead of INPUT: a request for it, such as http://img.example/photos/7; of a TLS service a hello for its host")
	f.StringVar(&method, "method", "GET", "of the request for --url")
	f.StringArrayVarP(&fields, "header", "H", nil, "a field of the request for --url, such as 'Cookie: a=b'; as often as wanted")
	f.StringSliceVar(&alpn, "alpn", nil, "protocols that the hello for --url offers, such as h2,http/1.1")
	f.BoolVar(&typed, "text", false, "INPUT is a head as an editor writes it: line ends become those of HTTP")
	c.ValidArgsFunction = nil // files
	return c
}

func ruleImportCommand(e *env) *cobra.Command {
	var partial bool
	c := leaf("import FILE", "Services and groups from HTTPRoutes and TLSRoutes of the Kubernetes Gateway API; -: standard input", cobra.ExactArgs(1), func(_ context.Context, args []string) error {
		text, err := control.ReadFile(args[0], e.in)
		if err != nil {
			return err
		}
		r, err := control.Import(text)
		if err != nil {
			return err
		}
		for _, l := range r.Left {
			e.warn("left out: " + l)
		}
		if len(r.Left) > 0 && !partial {
			return control.Refuse("import "+text.File, fmt.Sprintf("%d things in it cannot be said in a configuration", len(r.Left)), "look at them, and add --partial to go without them")
		}
		return say(e, r, func(w io.Writer, r control.Imported) { fmt.Fprint(w, r.YAML) })
	})
	c.Flags().BoolVar(&partial, "partial", false, "write what can be said, though something is left out")
	c.ValidArgsFunction = nil // files
	return c
}
