package main

import (
	"context"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"splicenic/runtime/view"
	"splicenic/tools/control"
	"splicenic/tools/show"
)

func connCommand(e *env) *cobra.Command {
	var limit uint32
	var service, state string
	list := leaf("list", "Connections that have a page", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		q := url.Values{"limit": {strconv.FormatUint(uint64(limit), 10)}}
		for k, v := range map[string]string{"service": service, "state": state} {
			if v != "" {
				q.Set(k, v)
			}
		}
		return get(ctx, e, "connections", q, show.Connections)
	})
	list.Flags().Uint32Var(&limit, "limit", 1000, "print at most this many; 0: all")
	list.Flags().StringVar(&service, "service", "", "only of this service")
	list.Flags().StringVar(&state, "state", "", "only in this state")
	complete(list, "state", view.States()...)

	one := leaf("show N|N.GENERATION|CLIENT:PORT", "Everything about one connection", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return e.ask(ctx, func(c *control.Client) error {
			id, err := c.ConnectionID(ctx, args[0])
			if err != nil {
				return err
			}
			var v any
			doc, err := c.Get(ctx, "connections/"+url.PathEscape(id), nil, &v)
			if err != nil {
				return err
			}
			return show.Answer(e.out, e.json(), doc, v, show.Document)
		})
	})
	one.ValidArgsFunction = e.connections
	return parent("conn", "Connections", list, one)
}

func pageCommand(e *env) *cobra.Command {
	one := leaf("show N", "The page of address n, at L = n × m, and its head buffer, decoded by name", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		n, err := control.PageNumber(args[0])
		if err != nil {
			return err
		}
		return e.ask(ctx, func(c *control.Client) error {
			var p view.Page
			doc, err := c.Get(ctx, "pages/"+n, url.Values{"head": {"1"}}, &p)
			if err != nil {
				return err
			}
			return show.Answer(e.out, e.json(), doc, p, show.PageText)
		})
	})
	return parent("page", "Pages: all the card knows about a connection", one)
}

func camCommand(e *env) *cobra.Command {
	var limit uint32
	list := leaf("list client|server", "Keys that a CAM holds", side, func(ctx context.Context, args []string) error {
		q := url.Values{"limit": {strconv.FormatUint(uint64(limit), 10)}}
		return get(ctx, e, "cam/"+args[0], q, show.CAM)
	})
	list.Flags().Uint32Var(&limit, "limit", 1000, "print at most this many; 0: all")

	var k control.Key
	lookup := leaf("lookup client|server", "The address n that a CAM answers for a key", side, func(ctx context.Context, args []string) error {
		q, err := k.Query(args[0])
		if err != nil {
			return err
		}
		return e.ask(ctx, func(c *control.Client) error {
			var entry view.CAMEntry
			doc, err := c.Get(ctx, "cam/"+args[0]+"/lookup", q, &entry)
			if err != nil {
				return err
			}
			return show.Answer(e.out, e.json(), doc, []view.CAMEntry{entry}, show.CAM)
		})
	})
	f := lookup.Flags()
	f.StringVar(&k.Client, "client", "", "client ADDRESS:PORT")
	f.StringVar(&k.VIP, "vip", "", "client side: VIP ADDRESS:PORT")
	f.StringVar(&k.Server, "server", "", "server side: server ADDRESS:PORT")
	f.Uint16Var(&k.VLAN, "vlan", 0, "VLAN; 0: untagged")
	for _, c := range []*cobra.Command{list, lookup} {
		c.ValidArgs = []string{"client", "server"}
		c.ValidArgsFunction = nil
	}
	return parent("cam", "Content-addressable memories: key to address n", list, lookup)
}

// side is the argument that names a CAM.
var side = cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)
