package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"splicenic/regs"
)

// A checker compares the parts of a configuration whose parts are right each for itself.
type checker struct {
	*decoder
	c     *Config
	asked map[Listener][]*Service // in the order of the file
}

func (d *decoder) check(c *Config) {
	k := checker{d, c, map[Listener][]*Service{}}
	k.card()
	k.ports()
	k.translation()
	k.names()
	k.listeners()
	k.defence()
	k.routes()
	k.answers()
	k.servers()
	k.checks()
	k.layer4()
	k.options()
	k.sizes()
	k.dns()
}

func (k *checker) card() {
	c := k.c
	wired := c.Emu.At != Position{}
	if wired && c.Emu.Client.Kind == "" {
		k.problem(c.Emu.At, "emu", "client is missing: say what the client port is wired to")
	}
	if wired && (c.Card.Body == VFIO || c.Card.Body == VFIOUser) {
		k.problem(c.Emu.At, "emu", "wires the emulated card, but card is %s (line %d): remove one of them", c.Card, c.Card.At.Line)
	}
	if !wired && c.Card.Body == Emulator {
		k.problem(c.Card.At, "card", "the emulated card needs wires: add emu: {client: ..., server: ...}")
	}
	two := c.Emu.Server.Kind != ""
	if wired && two && c.OneArmed {
		k.problem(c.Emu.Server.At, "emu.server", "is wired, but ports.server has no addresses: add it, or wire one port only")
	}
	if wired && !two && !c.OneArmed {
		k.problem(c.Server.At, "ports.server", "has addresses, but emu.server is not wired: wire it, or give all subnets to ports.client")
	}
	if two {
		k.wires(c.Emu.Client, c.Emu.Server)
	}
}

// wires refuses two wires that would get into each other's way.
func (k *checker) wires(client, server Wire) {
	const key = "emu.server"
	pcaps := client.Kind == Pcap && server.Kind == Pcap
	same := func(a, b string) bool { return pcaps && sameFile(a, b) }
	kernel := func(w Wire) bool { return w.Kind == Interface || w.Kind == TAP }
	switch {
	case same(client.Out, server.Out):
		k.problem(server.At, key, "writes %s as emu.client at line %d does: give each wire a file of its own", server.Out, client.At.Line)
	case same(client.Out, server.Name):
		k.problem(server.At, key, "reads %s, which emu.client at line %d writes", server.Name, client.At.Line)
	case same(client.Name, server.Out):
		k.problem(server.At, key, "writes %s, which emu.client at line %d reads", server.Out, client.At.Line)
	case kernel(client) && kernel(server) && client.Name == server.Name:
		k.problem(server.At, key, "is wired to %s as emu.client is at line %d", server, client.At.Line)
	}
}

// sameFile says whether two names lead to one file that both its users would change. What is no file on a disk stays.
func sameFile(a, b string) bool {
	a, b = filepath.Clean(a), filepath.Clean(b)
	return a == b && a != os.DevNull
}

// portKey names a port as the file does.
func portKey(i int) string { return [...]string{"ports.client", "ports.server"}[i] }

// maxAddresses is how many addresses a port may have.
const maxAddresses = 256

func (k *checker) ports() {
	if (k.c.Client.At == Position{}) {
		k.problem(Position{1, 1}, "ports.client", "is missing: give the card an address on the client side")
		return
	}
	type subnet struct {
		Address
		key string
	}
	var all []subnet
	for i, p := range k.c.Ports() {
		if n := len(p.Addresses); n == 0 || n > maxAddresses {
			k.problem(p.At, portKey(i), "has %d addresses; it may have 1 to %d", n, maxAddresses)
			continue
		}
		for n, a := range p.Addresses {
			key := fmt.Sprintf("%s.addresses[%d]", portKey(i), n)
			for _, b := range all {
				if b.Prefix.Addr() == a.Prefix.Addr() {
					k.problem(a.At, key, "%s is the address at line %d too", a.Prefix.Addr(), b.At.Line)
				} else if b.Prefix.Overlaps(a.Prefix) && (b.Prefix.Masked() != a.Prefix.Masked() || b.VLAN != a.VLAN || !strings.HasPrefix(b.key, portKey(i))) {
					k.problem(a.At, key, "subnet %s overlaps %s at line %d: nobody could tell where a packet goes", a.Prefix.Masked(), b.Prefix.Masked(), b.At.Line)
				}
			}
			all = append(all, subnet{a, key})
		}
		k.gateways(i, p)
	}
	if k.c.OneArmed {
		k.oneArmed()
	}
}

func (k *checker) gateways(i int, p *Port) {
	for n, g := range p.Gateways {
		key := portKey(i) + ".gateway"
		own, ok := p.subnet(g.Address)
		if !ok {
			k.problem(g.At, key, "%s lies in no subnet of this port", g.Address)
			continue
		}
		if own.Prefix.Addr() == g.Address {
			k.problem(g.At, key, "%s is the port's own address", g.Address)
		}
		for _, other := range p.Gateways[:n] {
			if other.Address.Is4() == g.Address.Is4() {
				k.problem(g.At, key, "is the second gateway of one family, after %s at line %d", other.Address, other.At.Line)
			}
		}
	}
}

func (k *checker) oneArmed() {
	subnets := map[netip.Prefix]bool{}
	for _, a := range k.c.Client.Addresses {
		subnets[a.Prefix.Masked()] = true
	}
	if len(subnets) == 1 {
		k.problem(k.c.Client.At, portKey(0), "one port with one subnet needs fullnat, which is not supported yet by this build: "+
			"the servers would answer the clients past the card. Give the servers a subnet of their own, or add ports.server")
	}
}

// unique reports names that are given twice or differ in case only.
func (k *checker) unique(what string, n int, name func(int) (string, Position)) {
	seen := map[string]int{}
	for i := range n {
		s, at := name(i)
		key := fmt.Sprintf("%ss[%d]", what, i)
		if s == "" {
			k.problem(at, key, "name is missing")
			continue
		}
		first, ok := seen[strings.ToLower(s)]
		if !ok {
			seen[strings.ToLower(s)] = i
			continue
		}
		other, where := name(first)
		if other == s {
			k.problem(at, key+".name", "%s %s is at line %d already", what, s, where.Line)
			continue
		}
		k.problem(at, key+".name", "%s %s differs from %s at line %d in case only", what, s, other, where.Line)
	}
}

func (k *checker) names() {
	c := k.c
	k.unique("service", len(c.Services), func(i int) (string, Position) { return c.Services[i].Name, c.Services[i].At })
	k.unique("group", len(c.Groups), func(i int) (string, Position) { return c.Groups[i].Name, c.Groups[i].At })
}

// listeners checks where services listen. One listener may have several, if all but the last take certain clients only.
func (k *checker) listeners() {
	for i := range k.c.Services {
		s := &k.c.Services[i]
		key := fmt.Sprintf("services[%d].listen", i)
		if len(s.Listen) == 0 {
			k.problem(s.At, key, "is missing: say where service %s listens", s.Name)
		}
		for n, l := range s.Listeners() {
			at, item := s.Listen[n].At, fmt.Sprintf("%s[%d]", key, n)
			if asked := k.asked[l]; len(asked) > 0 {
				last := asked[len(asked)-1]
				if len(last.Source) == 0 || last == s {
					behind := ""
					if last != s && len(s.Source) > 0 {
						behind = fmt.Sprintf(", by service %s for every client: put %s before it", last.Name, s.Name)
					}
					k.problem(at, item, "%s is listened on at line %d already%s", listenerName(l), last.listen(l).At.Line, behind)
					continue
				}
			}
			k.asked[l] = append(k.asked[l], s)
			if len(k.asked[l]) > 1 {
				continue
			}
			k.notSubnet(at, item, l.Addr.Addr())
			for _, p := range k.c.Ports() {
				for _, g := range p.Gateways {
					if g.Address == l.Addr.Addr() {
						k.problem(at, item, "%s is the gateway at line %d", g.Address, g.At.Line)
					}
				}
			}
		}
	}
}

// listen is a service's place in the file where it has a listener.
func (s *Service) listen(l Listener) Listen {
	i := slices.IndexFunc(s.Listen, func(x Listen) bool { return x.Addr == l.Addr })
	return s.Listen[i]
}

// The card's own marks (regs: defence.rate_on, defence.rate_off).
const defaultRateOn, defaultRateOff = 20_000, 10_000

// defence refuses what defends nothing.
func (k *checker) defence() {
	p := k.c.Defence
	on, off := cmp.Or(p.RateOn, defaultRateOn), cmp.Or(p.RateOff, defaultRateOff)
	if on < off {
		given := func(n uint32) string {
			if n == 0 {
				return ", the default"
			}
			return ""
		}
		k.problem(p.At, "defence", "rate_on %d%s is less than rate_off %d%s: the stage would become active at a rate at which it ends", on, given(p.RateOn), off, given(p.RateOff))
	}
	if p.SourceBurst != 0 && p.SourceRate == 0 {
		k.problem(p.At, "defence", "source_burst limits nothing without source_rate: add it")
	}
	for i, s := range k.c.Services {
		if s.ISN == ByAddress && s.Defence != DefenceOff {
			k.problem(s.At, fmt.Sprintf("services[%d].isn", i), "isn: address and defence: %s do not go together: a cookie is the sequence number itself. Write isn: keyed, or defence: off", s.Defence)
		}
	}
}

// notSubnet refuses the addresses of a subnet that no station has.
func (k *checker) notSubnet(at Position, key string, a netip.Addr) {
	for _, p := range k.c.Ports() {
		own, ok := p.subnet(a)
		if ok && a.Is4() && own.Prefix.Bits() < 31 && (own.Prefix.Masked().Addr() == a || broadcast(own.Prefix) == a) {
			k.problem(at, key, "%s names subnet %s or its broadcast address, not a station", a, own.Prefix.Masked())
		}
	}
}

func (k *checker) routes() {
	names := make([]string, len(k.c.Groups))
	for i := range k.c.Groups {
		names[i] = k.c.Groups[i].Name
	}
	used := map[string]bool{}
	target := func(at Position, key, name string) {
		used[name] = true
		if name != "" && k.c.Group(name) == nil {
			k.problem(at, key, "there is no group %s", name).Near = k.near(name, names)
		}
	}
	for i := range k.c.Groups {
		g := &k.c.Groups[i]
		target(g.Sorry.At, fmt.Sprintf("groups[%d].sorry", i), g.Sorry.Group)
		k.sorry(i, g)
	}
	for i, s := range k.c.Services {
		key := fmt.Sprintf("services[%d]", i)
		target(s.At, key+".routes", s.H2C)
		k.content(key, &s)
		if s.Default.Nowhere() && len(s.Routes) == 0 && s.H2C == "" && s.Protocol != TCP && !s.Layer4() {
			k.problem(s.At, key, "service %s has neither routes nor default: no request would go anywhere", s.Name)
		}
		target(s.Default.At, key+".default", s.Default.Group)
		for _, r := range s.Routes {
			target(r.To.At, fmt.Sprintf("%s.routes[%d].to", key, r.item), r.To.Group)
		}
		k.lint(key, &s)
	}
	for i := range k.c.Groups {
		if g := &k.c.Groups[i]; !used[g.Name] {
			k.warn(g.At, fmt.Sprintf("groups[%d]", i), "no service uses group %s", g.Name)
		}
	}
}

func (k *checker) servers() {
	own := map[netip.Addr]Position{}
	for _, p := range k.c.Ports() {
		for _, a := range p.Addresses {
			own[a.Prefix.Addr()] = a.At
		}
	}
	for _, s := range k.c.Services {
		for _, l := range s.Listen {
			own[l.Addr.Addr()] = l.At
		}
	}
	first := map[netip.AddrPort]Server{}
	for i, g := range k.c.Groups {
		key := fmt.Sprintf("groups[%d].servers", i)
		if len(g.Servers) == 0 {
			k.problem(g.At, key, "is missing or empty: group %s has no server", g.Name)
		}
		seen, weights := map[netip.AddrPort]Position{}, 0
		for n, s := range g.Servers {
			item := fmt.Sprintf("%s[%d]", key, n)
			weights += int(s.Weight)
			if at, ok := seen[s.Addr]; ok {
				k.problem(s.At, item, "server %s is in group %s at line %d already", s.Addr, g.Name, at.Line)
				continue
			}
			seen[s.Addr] = s.At
			if at, ok := own[s.Addr.Addr()]; ok {
				k.problem(s.At, item, "%s is an address of the card itself (line %d)", s.Addr.Addr(), at.Line)
				continue
			}
			if _, ok := k.c.Route(s.Addr.Addr()); !ok {
				k.problem(s.At, item, "no port's subnet holds %s and no gateway leads there: correct it, or add an address or a gateway to ports", s.Addr.Addr())
			}
			k.notSubnet(s.At, item, s.Addr.Addr())
			if other, ok := first[s.Addr]; ok && other.Profile != s.Profile {
				k.problem(s.At, item, "server %s has another profile at line %d: one server keeps one set of options", s.Addr, other.At.Line)
			}
			first[s.Addr] = s
		}
		if weights == 0 && len(g.Servers) > 0 {
			k.warn(g.At, key, "every weight of group %s is 0: it takes no new connections", g.Name)
		}
	}
}

// options tells where a policy will not do what it says: nobody can make up for timestamps that a server does not send.
func (k *checker) options() {
	for i, s := range k.c.Services {
		if s.Options.Timestamps != Rewrite {
			continue
		}
		for _, g := range k.c.Reachable(&s) {
			if n := slices.IndexFunc(g.Servers, func(to Server) bool { return to.Profile.Known && !to.Profile.Timestamps }); n >= 0 {
				k.warn(s.At, fmt.Sprintf("services[%d].timestamps", i), "rewrite promises nothing: by its profile server %s (line %d) sends no timestamps, and nobody else can",
					g.Servers[n].Addr, g.Servers[n].At.Line)
				break
			}
		}
	}
}

// place is what makes a server one of its own on the card, but for its tunnel.
type place struct {
	addr   netip.AddrPort
	udp    bool
	method Mode
}

// sizes refuses what no card has room for.
func (k *checker) sizes() {
	listeners, routes := 0, 0
	vips, servers, pools := map[netip.Addr]bool{}, map[place]bool{}, k.c.Pools()
	for _, s := range k.c.Services {
		listeners += len(s.Listen)
		routes += len(s.Routes)
		for _, l := range s.Listen {
			vips[l.Addr.Addr()] = true
		}
	}
	for _, p := range pools {
		for i := range p.Group.Servers {
			s := &p.Group.Servers[i]
			servers[place{s.Addr, p.UDP, p.Method(s)}] = true
		}
	}
	for _, n := range []struct {
		what       string
		have, room int
	}{
		{"services", len(k.c.Services), regs.MemServiceMax},
		{"listeners", listeners, regs.MemListenerMax},
		{"routes", routes, regs.MemRuleMax},
		{"groups", len(pools), regs.MemGroupMax},
		{"servers", len(servers), regs.MemServerMax},
		{"VIPs", len(vips), regs.MemVipMax},
	} {
		if n.have > n.room {
			k.problem(Position{1, 1}, "", "%d %s are more than any card has room for (%d)", n.have, n.what, n.room)
		}
	}
}
