package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// layer4 checks that modes, methods, tunnels and addresses of services and groups go together.
func (k *checker) layer4() {
	for i := range k.c.Services {
		s := &k.c.Services[i]
		key := fmt.Sprintf("services[%d]", i)
		if s.Layer4() {
			k.passes(key, s)
		}
		for _, g := range k.c.Reachable(s) {
			for n := range g.Servers {
				if !k.reaches(s, g, &g.Servers[n], fmt.Sprintf("groups[%d].servers[%d]", k.place(g), n)) {
					break
				}
			}
		}
		k.guards(key, s)
		k.cookies(key, s)
	}
	for i := range k.c.Groups {
		k.locals(fmt.Sprintf("groups[%d]", i), &k.c.Groups[i])
	}
	k.chains()
}

// place is a group's place in the file.
func (k *checker) place(g *Group) int {
	return slices.IndexFunc(k.c.Groups, func(x Group) bool { return x.Name == g.Name })
}

// passes checks what a service says whose connections are passed on.
func (k *checker) passes(key string, s *Service) {
	if s.Default.Nowhere() {
		k.problem(s.At, key+".default", "is missing: with mode: %s the default is where every connection goes", s.Mode)
	}
	if s.OnePacket {
		at := k.said[key+".one_packet"]
		switch {
		case s.Protocol != UDP:
			k.problem(at, key+".one_packet", "is about datagrams: it needs protocol: udp")
		case s.Persistence.On():
			k.problem(at, key+".one_packet", "chooses a server for every datagram, persistence the same for all of a client: remove one of them")
		}
	}
}

// reaches checks one server that connections of a service can go to; false where the same would be said of the next.
func (k *checker) reaches(s *Service, g *Group, to *Server, key string) bool {
	m := k.c.Pool(s, g).Method(to)
	direct := m == DR || m == Tun && !to.Return
	switch {
	case !s.Layer4() && m == DR:
		k.problem(to.At, key+".method", "service %s (line %d) is spliced, and a splice needs the replies through the card; with dr they go past it: use nat, fullnat or tun with return: card", s.Name, s.At.Line)
		return false
	case !s.Layer4() && m == Tun && (direct || to.Tunnel.Type == DSCP):
		k.problem(to.At, key+".method", "service %s (line %d) is spliced, and a splice needs the replies through the card; with tun they go past it unless the server returns them: add return: card (with a type of tunnel that has a header), or use nat or fullnat", s.Name, s.At.Line)
		return false
	case m != Tun && to.Return:
		k.problem(to.At, key+".return", "is about servers behind a tunnel; with %s replies come back %s", m, map[bool]string{true: "directly", false: "through the card anyway"}[m == DR])
		return false
	case m != Tun && to.Tunnel != Tunnel{}:
		k.problem(to.Tunnel.At, key+".tunnel", "is for the method tun, and service %s (line %d) reaches server %s by %s", s.Name, s.At.Line, to.Addr, m)
		return false
	case s.OnePacket && m != Tun && m != DR:
		k.problem(to.At, key+".method", "one_packet of service %s (line %d) keeps no pages, and without one the answers of %s cannot be translated back with %s: use tun or dr, or remove one_packet", s.Name, s.At.Line, to.Addr, m)
		return false
	case s.Module != "" && (m == Tun || m == DR):
		k.problem(to.At, key+".method", "module: %s of service %s (line %d) reads along in both directions, and with %s the answers go past the card: use nat or fullnat, or persistence with ports: all and a listener \"*\"", s.Module, s.Name, s.At.Line, m)
		return false
	}
	return k.port(s, to, m, key) && k.crosses(s, g, to, m, key)
}

// port checks a server's port. What arrives by dr or tun is addressed to the VIP and its port still, so that the server
// cannot have another one.
func (k *checker) port(s *Service, to *Server, m Mode, key string) bool {
	for _, l := range s.Listen {
		switch at, port := l.Addr.Port(), to.Addr.Port(); {
		case (m == DR || m == Tun) && port != 0 && at == 0:
			k.problem(to.At, key, "port %d of server %s cannot serve every port of service %s (line %d): with %s packets keep the port that clients send them to; write the address alone",
				port, to.Addr, s.Name, l.At.Line, m)
			return false
		case (m == DR || m == Tun) && port != 0 && port != at:
			k.problem(to.At, key, "port %d of server %s is not port %d of service %s (line %d): with %s packets keep the port that clients send them to. Listen on port %d, or use nat",
				port, to.Addr, at, s.Name, l.At.Line, m, port)
			return false
		}
	}
	_, bare := k.said[key+".address"]
	switch {
	case bare && (m == NAT || m == FullNAT):
		k.problem(to.At, key+".address", "%q has no port: write %s, or %s for the port that clients send to", to.Addr.Addr(), netip.AddrPortFrom(to.Addr.Addr(), 80), anyPort(to.Addr.Addr()))
	case to.Addr.Port() == 0 && !s.Layer4():
		k.problem(to.At, key+".address", "service %s (line %d) is spliced: its servers have a port", s.Name, s.At.Line)
	default:
		return true
	}
	return false
}

// anyPort writes an address with every port.
func anyPort(a netip.Addr) string {
	return strings.TrimSuffix(netip.AddrPortFrom(a, 0).String(), "0") + "*"
}

// crosses checks that a method leads from the family of a VIP to that of a server.
func (k *checker) crosses(s *Service, g *Group, to *Server, m Mode, key string) bool {
	four := to.Addr.Addr().Is4()
	if m == FullNAT && len(k.c.LocalFor(g, to.Addr.Addr())) == 0 {
		k.problem(to.At, key, "fullnat to server %s needs an address of its family: add one to local of group %s, or to the port", to.Addr, g.Name)
		return false
	}
	i := slices.IndexFunc(s.Listen, func(l Listen) bool { return l.Addr.Addr().Is4() != four })
	if i < 0 || m == FullNAT || m == NAT && !four && s.Layer4() || m == Tun && to.Tunnel.Type != DSCP {
		return true
	}
	why, instead := "", "use fullnat"
	switch m {
	case NAT:
		why = "nat keeps the client's address"
	case DR, Tun:
		why, instead = m.String()+" leaves the packet as it is", "use tun with a header, or fullnat"
	}
	k.problem(to.At, key, "server %s cannot serve %s of service %s (line %d): %s, so both must be IPv4 or both IPv6, or %s", to.Addr, s.Listen[i].Addr, s.Name, s.Listen[i].At.Line, why, instead)
	return false
}

// guards settles the SYN defence. A cookie is answered before there is a server, and where replies go past the card its
// sequence numbers cannot be translated.
func (k *checker) guards(key string, s *Service) {
	at, given := k.said[key+".defence"]
	if s.Protocol == UDP {
		if given && s.Defence != DefenceOff {
			k.problem(at, key+".defence", "cookies answer SYNs, and datagrams have none: remove it")
		}
		s.Defence = DefenceOff
		return
	}
	if !s.Layer4() {
		return
	}
	for _, g := range k.c.Reachable(s) {
		for n := range g.Servers {
			to := &g.Servers[n]
			m := k.c.Pool(s, g).Method(to)
			if m != Tun && m != DR {
				continue
			}
			if given && s.Defence != DefenceOff {
				k.problem(at, key+".defence", "%s cannot be: with %s (server %s, line %d) replies go past the card, which could not translate the sequence number of a cookie. Write off, or use nat or fullnat", s.Defence, m, to.Addr, to.At.Line)
			}
			s.Defence = DefenceOff
			return
		}
	}
}

// cookies checks the values that lead to servers.
func (k *checker) cookies(key string, s *Service) {
	if s.Persistence.Cookie == "" {
		return
	}
	values := map[string]bool{}
	for _, g := range k.c.Reachable(s) {
		seen := map[string]Position{}
		for n := range g.Servers {
			to := &g.Servers[n]
			if to.Cookie == "" {
				continue
			}
			values[to.Cookie] = true
			if first, ok := seen[to.Cookie]; ok {
				k.problem(to.At, fmt.Sprintf("groups[%d].servers[%d].cookie", k.place(g), n), "%q leads to the server at line %d already", clip(to.Cookie), first.Line)
				return
			}
			seen[to.Cookie] = to.At
		}
	}
	if len(values) == 0 {
		k.problem(s.Persistence.At, key+".persistence.cookie", "leads nowhere: no server of service %s has a cookie: the value with which clients come back to it", s.Name)
	}
}

// locals refuses local addresses that are somebody's already, and those that lead nowhere.
func (k *checker) locals(key string, g *Group) {
	at, ok := k.said[key+".local"]
	if !ok {
		return
	}
	taken := map[netip.Addr]Position{}
	for _, s := range k.c.Services {
		for _, l := range s.Listen {
			taken[l.Addr.Addr()] = l.At
		}
	}
	for i := range k.c.Groups {
		for _, s := range k.c.Groups[i].Servers {
			taken[s.Addr.Addr()] = s.At
		}
	}
	for _, a := range g.Local {
		if other, ok := taken[a]; ok {
			k.problem(at, key+".local", "%s is a VIP or a server at line %d: replies to it would go astray", a, other.Line)
		}
		k.notSubnet(at, key+".local", a)
	}
	full := slices.ContainsFunc(k.c.Pools(), func(p Pool) bool {
		return p.Group == g && slices.ContainsFunc(g.Servers, func(s Server) bool { return p.Method(&s) == FullNAT })
	})
	if !full {
		k.warn(at, key+".local", "is for fullnat, by which no server of group %s is reached", g.Name)
	}
}

// chains checks the services that share a listener. They are asked in their order, and who is asked next is a matter of the
// service, not of the listener.
func (k *checker) chains() {
	next := map[string]*Service{}
	for i := range k.c.Services {
		s := &k.c.Services[i]
		for n, l := range s.Listeners() {
			asked := k.asked[l]
			at := slices.Index(asked, s)
			var after *Service
			if at+1 < len(asked) {
				after = asked[at+1]
			}
			key := fmt.Sprintf("services[%d].listen", i)
			if at == maxAsked {
				k.problem(s.Listen[n].At, key, "%s has %d services; one listener may have %d", listenerName(l), len(asked), maxAsked)
				return
			}
			if other, ok := next[s.Name]; ok && other != after {
				k.problem(s.Listen[n].At, key, "who is asked after service %s has to be the same for all its listeners: at %s it is %s, at %s %s", s.Name, listenerName(l), nameOf(after), s.Listen[0].Addr, nameOf(other))
				return
			}
			next[s.Name] = after
		}
	}
}

func nameOf(s *Service) string {
	if s == nil {
		return "nobody"
	}
	return s.Name
}

// listenerName writes a listener for people.
func listenerName(l Listener) string {
	protocol := "/tcp"
	if l.UDP {
		protocol = "/udp"
	}
	if l.Addr.Port() == 0 {
		return anyPort(l.Addr.Addr()) + protocol
	}
	return l.Addr.String() + protocol
}
