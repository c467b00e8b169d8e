package plan

import (
	"net/netip"

	"splicenic/runtime/config"
)

// Configuration takes the servers of a configuration by the method that reaches them, spliced ones as "splice". A server
// counts once for each, however many services lead to it. Those of fullnat have the ports that the runtime gives them.
func (g *Given) Configuration(c *config.Config) {
	g.From, g.Servers, g.LocalPorts = c.File, nil, config.LocalPorts
	type place struct {
		method string
		addr   netip.AddrPort
		udp    bool
	}
	seen := map[place]bool{}
	sums := map[string]*Servers{}
	for i := range c.Services {
		s := &c.Services[i]
		for _, group := range c.Reachable(s) {
			pool := c.Pool(s, group)
			for k := range group.Servers {
				server := &group.Servers[k]
				method := pool.Method(server)
				name := method.String()
				if s.Mode == config.Splice && method == config.NAT {
					name = "splice"
				}
				p := place{name, server.Addr, pool.UDP}
				if seen[p] {
					continue
				}
				seen[p] = true
				sum := sums[name]
				if sum == nil {
					sum = &Servers{Method: name}
					sums[name] = sum
				}
				sum.Count++
				if n := uint64(len(c.LocalFor(group, server.Addr.Addr()))); method == config.FullNAT && n > 0 && (sum.Locals == 0 || n < sum.Locals) {
					sum.Locals = n
				}
			}
		}
	}
	for _, m := range methods {
		if sums[m] != nil {
			g.Servers = append(g.Servers, *sums[m])
		}
	}
}
