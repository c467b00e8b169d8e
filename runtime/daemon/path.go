package daemon

import (
	"splicenic/runtime/config"
)

// fit lowers the MSS promised to what fits the paths to every server that a request of the service can reach, so that
// clients do not begin with segments of which a router is known to say that they are too big.
func (p *promise) fit(in *Inputs, s *config.Service) {
	for _, g := range in.Config.Reachable(s) {
		for i := range g.Servers {
			a := g.Servers[i].Addr.Addr()
			hop, _ := in.Config.Route(a)
			switch mtu := in.PathMTU[hop]; {
			case mtu == 0:
			case a.Is4():
				p.mss4 = min(p.mss4, max(mtu, 40)-40)
			default:
				p.mss6 = min(p.mss6, max(mtu, 60)-60)
			}
		}
	}
}
