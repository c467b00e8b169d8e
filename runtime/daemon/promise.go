package daemon

import "splicenic/runtime/config"

// What a host may be sent without having said so (RFC 9293 3.7.1, RFC 8200 5).
const (
	defaultMSS4 = 536
	defaultMSS6 = 1220
)

// A promise is what a service may tell its clients before it knows which server will serve them: what every one of them
// keeps.
type promise struct {
	mss4, mss6       uint16
	wscale           uint8
	wscaleOn         bool
	sack, timestamps bool
}

// promised intersects the profiles of all servers that a request of the service can reach. The MSS also fits into the
// MTU of both ports. A server without a profile keeps the default MSS and nothing else. The window scale is the smallest
// of all: a server with a larger one has its windows clamped, which holds back bytes but never invites more than it takes.
func promised(c *config.Config, s *config.Service, mtu [2]uint16) promise {
	p := promise{mss4: 65535, mss6: 65535, wscale: 14, wscaleOn: true, sack: true, timestamps: true}
	servers := 0
	for _, g := range reachable(c, s) {
		for i := range g.Servers {
			p.meet(&g.Servers[i])
			servers++
		}
	}
	if servers == 0 {
		p = promise{mss4: defaultMSS4, mss6: defaultMSS6}
	}
	if !p.wscaleOn {
		p.wscale = 0
	}
	if s.MSS != 0 {
		p.mss4, p.mss6 = s.MSS, s.MSS
	}
	least := mtu[0]
	if !c.OneArmed {
		least = min(mtu[0], mtu[1])
	}
	p.mss4, p.mss6 = min(p.mss4, max(least, 40)-40), min(p.mss6, max(least, 60)-60)
	return p
}

// meet leaves of the promise what one more server keeps.
func (p *promise) meet(s *config.Server) {
	mss, four := s.Profile.MSS, s.Addr.Addr().Is4()
	switch {
	case mss == 0 && four:
		mss = defaultMSS4
	case mss == 0:
		mss = defaultMSS6
	}
	if four {
		p.mss4 = min(p.mss4, mss)
	} else {
		p.mss6 = min(p.mss6, mss)
	}
	p.wscaleOn = p.wscaleOn && s.Profile.WScaleOn
	p.wscale = min(p.wscale, s.Profile.WScale)
	p.sack = p.sack && s.Profile.SACK
	p.timestamps = p.timestamps && s.Profile.Timestamps
}

// reachable returns the groups that a request of the service can go to, each once.
func reachable(c *config.Config, s *config.Service) []*config.Group {
	var groups []*config.Group
	seen := map[string]bool{"": true}
	add := func(name string) {
		if g := c.Group(name); g != nil && !seen[name] {
			groups = append(groups, g)
		}
		seen[name] = true
	}
	add(s.Default)
	for _, r := range s.Routes {
		add(r.Group)
	}
	return groups
}
