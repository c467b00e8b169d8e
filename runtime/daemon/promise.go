package daemon

import (
	"slices"

	"splicenic/regs"
	"splicenic/runtime/config"
)

// What a host may be sent without having said so (RFC 9293 3.7.1, RFC 8200 5).
const (
	defaultMSS4 = 536
	defaultMSS6 = 1220
)

// leastMSS keeps a server that says nonsense from taking the others with it: connections to it fail instead.
const leastMSS = 64

// maxShift is the largest scale promised: a window of the whole head buffer is a multiple of its unit.
const maxShift = 13

// The head buffer holds a whole number of units of every scale that may be promised.
const _ = uint(0 - regs.HeadBytes%(1<<maxShift))

// A promise is what a service may tell its clients before it knows which server will serve them.
type promise struct {
	mss4, mss6            uint16
	wscale                uint8
	wscaleOn              bool
	sack, timestamps, ecn bool
}

// promised is what the profiles of all servers that a request of the service can reach leave, by the service's policies.
// The MSS also fits into the MTU of both ports and of the paths. A server without a profile takes the default MSS and keeps nothing else.
//
// What is preserved is promised where every server keeps it. What is rewritten is promised whatever they do, except where a
// server is known to lack what nobody can make up for: timestamps, or room for a larger MSS. The window scale is the
// smallest of all, zero where a server has none or is not known: a server with a larger one has its windows clamped, which
// holds back bytes but never invites more than it takes.
func promised(in *Inputs, s *config.Service) promise {
	p := promise{mss4: 65535, mss6: 65535, wscale: maxShift, wscaleOn: true, sack: true, timestamps: true, ecn: true}
	servers := 0
	for _, g := range in.Config.Reachable(s) {
		pool := in.Config.Pool(s, g)
		for i := range g.Servers {
			server := &g.Servers[i]
			four := server.Addr.Addr().Is4()
			p.meet(in.profile(server), four, s)
			p.fit(in, server, pool.Method(server) == config.Tun)
			crosses := slices.ContainsFunc(s.Listen, func(l config.Listen) bool { return l.Addr.Addr().Is4() != four })
			if crosses && pool.Method(server) != config.Tun { // what clients of the other family send has to fit as well
				p.meet(in.profile(server), !four, s)
				least := min(p.mss4, p.mss6, uint16(max(int(in.MTU[0]), 60+leastMSS)-60))
				p.mss4, p.mss6 = least, least
			}
			servers++
		}
	}
	o := &s.Options
	switch {
	case servers == 0:
		p = promise{mss4: defaultMSS4, mss6: defaultMSS6}
	case o.MSS == config.Strip: // an MSS that is not told is the default
		p.mss4, p.mss6 = min(p.mss4, defaultMSS4), min(p.mss6, defaultMSS6)
	}
	p.wscaleOn = p.wscaleOn && o.WScale != config.Strip
	p.sack = p.sack && o.SACK != config.Strip
	p.timestamps = p.timestamps && o.Timestamps != config.Strip
	p.ecn = p.ecn && o.ECN != config.Strip
	if !p.wscaleOn {
		p.wscale = 0
	}
	least := in.MTU[0]
	if !in.Config.OneArmed {
		least = min(in.MTU[0], in.MTU[1])
	}
	p.mss4, p.mss6 = min(p.mss4, max(least, 40)-40), min(p.mss6, max(least, 60)-60)
	return p
}

// meet leaves of the promise what one more server keeps.
func (p *promise) meet(k config.Profile, four bool, s *config.Service) {
	o, mss := &s.Options, max(k.MSS, leastMSS)
	switch {
	case k.MSS != 0:
	case s.MSS != 0, o.MSS == config.Rewrite:
		mss = 65535
	case four:
		mss = defaultMSS4
	default:
		mss = defaultMSS6
	}
	if s.MSS != 0 {
		p.mss4, p.mss6 = min(p.mss4, s.MSS), min(p.mss6, s.MSS)
	}
	if four {
		p.mss4 = min(p.mss4, mss)
	} else {
		p.mss6 = min(p.mss6, mss)
	}
	p.wscaleOn = p.wscaleOn && (k.WScaleOn || o.WScale == config.Rewrite)
	p.wscale = min(p.wscale, k.WScale)
	p.sack = p.sack && (k.SACK || o.SACK == config.Rewrite)
	p.timestamps = p.timestamps && (k.Timestamps || o.Timestamps == config.Rewrite && !k.Known)
	p.ecn = p.ecn && k.ECN
}

// fit lowers the MSS to what fits the path to a server, so that clients do not begin with segments of which a router is
// known to say that they are too big, or that a tunnel makes so.
func (p *promise) fit(in *Inputs, s *config.Server, tunnel bool) {
	a := s.Addr.Addr()
	hop, _ := in.Config.Route(a)
	mtu := int(in.PathMTU[hop])
	if tunnel { // within it, both families
		if mtu == 0 {
			mtu = int(in.MTU[hop.Port])
		}
		mtu -= s.Tunnel.Overhead(a.Is4())
		p.mss4, p.mss6 = uint16(min(int(p.mss4), max(mtu, 40+leastMSS)-40)), uint16(min(int(p.mss6), max(mtu, 60+leastMSS)-60))
		return
	}
	switch {
	case mtu == 0:
	case a.Is4():
		p.mss4 = min(p.mss4, uint16(max(mtu, 40)-40))
	default:
		p.mss6 = min(p.mss6, uint16(max(mtu, 60)-60))
	}
}

// profile is what is known of a server: what the configuration says, else what was learned.
func (in *Inputs) profile(s *config.Server) config.Profile {
	if s.Profile.Known {
		return s.Profile
	}
	return in.Profiles[s.Addr]
}
