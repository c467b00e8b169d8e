package daemon

import (
	"net/netip"
	"testing"

	"splicenic/runtime/config"
	"splicenic/runtime/neighbour"
)

// TestQuorum: whether a service would serve a new client, by the weights, the health and the next hops of its servers, and
// by who is sorry for them.
func TestQuorum(t *testing.T) {
	const text = `
services:
  - {name: s, listen: [198.18.0.80:80], default: app, routes: [{path: /x, to: other}]}
  - {name: routed, listen: [198.18.0.81:80], routes: [{path: /x, to: other}, {path: /y, to: {reply: 410}}]}
  - {name: routes, listen: [198.18.0.82:80], routes: [{path: /x, to: other}, {path: /y, to: app}]}
  - {name: answer, listen: [198.18.0.83:80], default: {reply: 404}}
groups:
  - {name: app, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80, weight: 0}]}
  - {name: other, servers: [{address: 198.18.1.21:80}], sorry: spare}
  - {name: spare, servers: [{address: 198.18.1.31:80}], sorry: last}
  - {name: last, servers: [{address: 198.18.1.41:80}]}
`
	for _, tt := range []struct {
		name       string
		down       []string // servers
		unresolved []string // next hops
		weights    map[string]uint16
		service    string
		want       bool
	}{
		{"all well", nil, nil, nil, "s", true},
		{"the server is down", []string{"198.18.1.11:80"}, nil, nil, "s", false},
		{"the server's next hop does not answer", nil, []string{"198.18.1.11"}, nil, "s", false},
		{"the operator took the weight", nil, nil, map[string]uint16{"198.18.1.11:80": 0}, "s", false},
		{"the operator gave the other one a weight", []string{"198.18.1.11:80"}, nil, map[string]uint16{"198.18.1.12:80": 1}, "s", true},
		{"a group of a route only", []string{"198.18.1.21:80"}, nil, nil, "s", true},
		{"a reply of a route", []string{"198.18.1.21:80", "198.18.1.31:80", "198.18.1.41:80"}, nil, nil, "routed", true},
		{"without default, one group of two", []string{"198.18.1.11:80"}, nil, nil, "routes", true},
		{"sorry for it", []string{"198.18.1.11:80", "198.18.1.21:80"}, nil, nil, "routes", true},
		{"sorry for the sorry", []string{"198.18.1.11:80", "198.18.1.21:80", "198.18.1.31:80"}, nil, nil, "routes", true},
		{"nobody is left", []string{"198.18.1.11:80", "198.18.1.21:80", "198.18.1.31:80", "198.18.1.41:80"}, nil, nil, "routes", false},
		{"an answer", nil, nil, nil, "answer", true},
		{"no such service", nil, nil, nil, "x", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := inputs(t, text)
			in.Down, in.Weights, in.Neighbours = map[netip.AddrPort]bool{}, map[netip.AddrPort]uint16{}, map[config.Hop]neighbour.MAC{}
			for _, g := range in.Config.Groups {
				for _, s := range g.Servers {
					h, _ := in.Config.Route(s.Addr.Addr())
					in.Neighbours[h] = neighbour.MAC{2, 0, 0, 0, 0, 1}
				}
			}
			for _, s := range tt.down {
				in.Down[netip.MustParseAddrPort(s)] = true
			}
			for s, w := range tt.weights {
				in.Weights[netip.MustParseAddrPort(s)] = w
			}
			for _, s := range tt.unresolved {
				h, _ := in.Config.Route(netip.MustParseAddr(s))
				delete(in.Neighbours, h)
			}
			im, err := images(in, &indexes{}, &held{})
			if err != nil {
				t.Fatal(err)
			}
			if got := im.quorum(in.Config, tt.service); got != tt.want {
				t.Errorf("quorum %v, want %v", got, tt.want)
			}
		})
	}
}
