package plan

import "splicenic/runtime/config"

// Configuration takes the servers of a configuration, by method. A server that several services lead to counts once for
// each method.
func (g *Given) Configuration(c *config.Config) {
	g.From, g.Servers = c.File, nil
	count := map[string]uint64{}
	type place struct{ method, address string }
	seen := map[place]bool{}
	for i := range c.Services {
		s := &c.Services[i]
		for _, group := range c.Reachable(s) {
			for k := range group.Servers {
				p := place{"splice", group.Servers[k].Addr.String()}
				if !seen[p] {
					seen[p] = true
					count[p.method]++
				}
			}
		}
	}
	for _, m := range methods {
		if count[m] > 0 {
			g.Servers = append(g.Servers, Servers{Method: m, Count: count[m]})
		}
	}
}
