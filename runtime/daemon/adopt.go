package daemon

import (
	"context"
	"net/netip"
	"slices"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/neighbour"
	"splicenic/runtime/rule"
)

// A predecessor is what another runtime left in the card: its tables, in a writer's shadow, and what its state file says
// about them.
//
// Whatever the tables hold has a meaning that connections rely on, so that no index may get another one. Addresses tell
// what VIPs and servers are. Services, groups, rules and next hops have their names from the state file; without one that
// is about these very tables, services are known by their listeners, groups by the services whose default they are, next
// hops by the servers behind them. What stays without a name is retired: no new connection comes to it, and its place is
// given to nobody else while a connection names it.
type predecessor struct {
	w     *writer
	state state // without names where the file does not tell them
	named bounds
}

// bounds are the numbers of places of which something is named, by table.
type bounds struct{ vips, services, groups, servers, hops, rules uint32 }

func (b *bounds) raise(to *uint32, index uint32) { *to = max(*to, index+1) }

// adopt takes over what a predecessor left in the card.
func (d *Daemon) adopt(ctx context.Context) error {
	bank, generation := d.card.Bank()
	w, err := readBack(ctx, d.card, bank, generation)
	if err != nil {
		return err
	}
	p := &predecessor{w: w}
	told := false
	if d.stateFile != "" {
		s, err := readState(d.stateFile, room(d.card.Geometry()))
		told = s != nil && s.tells(d.card.Identity().Serial, d.card.Identity().DataPathDigest, w.inForce())
		switch {
		case err != nil:
			d.log.Warn("state file not used; names come from the card's tables", "file", d.stateFile, "error", err)
		case s == nil:
			d.log.Warn("no state file; names come from the card's tables", "file", d.stateFile)
		case !told:
			d.log.Warn("state file not used; it is not about the tables in this card", "file", d.stateFile, "generation", generation)
		default:
			p.state = *s
		}
	}
	if p.named.servers, err = d.serversNamed(ctx); err != nil {
		return err
	}
	if !told {
		if err := d.pagesName(ctx, &p.named); err != nil {
			return err
		}
	}
	d.left, d.w = p, w
	d.log.Info("card adopted", "generation", generation, "names", map[bool]string{true: "state file", false: "tables"}[told])
	return nil
}

// serversNamed is the bound of the servers that connections name.
func (d *Daemon) serversNamed(ctx context.Context) (bound uint32, err error) {
	counts, err := d.useCounts(ctx, d.card.Memory(regs.MemServerState).Entries)
	for i, n := range counts {
		if n != 0 {
			bound = uint32(i) + 1
		}
	}
	return bound, err
}

// pagesName raises bounds above all that connections name.
func (d *Daemon) pagesName(ctx context.Context, b *bounds) error {
	if d.idle() {
		return nil
	}
	return d.card.Connections(ctx, func(_ uint32, p *regs.PageEntry) bool {
		b.raise(&b.vips, p.IndexVip)
		b.raise(&b.services, p.IndexService)
		b.raise(&b.groups, p.ChoiceGroup)
		if p.Rule != 0 {
			b.raise(&b.rules, p.Rule-1)
		}
		return true
	})
}

// indexes are the places of everything in the card's tables, all retired until a configuration names them. c helps to find
// out what they are.
func (p *predecessor) indexes(c *config.Config, room Room) *indexes {
	x := &indexes{vipAt: map[uint32]netip.Addr{}, localAt: map[uint32]netip.Addr{}, serverAt: map[uint32]place{}, hopAt: map[uint32]hop{}}
	b := p.named
	p.bound(&b)
	x.vips = restore(room.VIPs, b.vips, p.state.VIPs, p.addresses(regs.MemVip))
	x.locals = restore(room.LocalAddresses, p.entries(regs.MemLocalAddress), nil, p.addresses(regs.MemLocalAddress))
	services := p.services(c)
	x.services = restore(room.Services, b.services, p.state.Services, services)
	x.groups = restore(room.Groups, b.groups, p.state.Groups, p.groups(c, services))
	x.servers = restore(room.Servers, b.servers, p.state.Servers, p.servers())
	x.hops = restore(room.NextHops, b.hops, p.hopsTold(), p.hops(c))
	x.rules = restore(room.Rules, b.rules, p.state.Rules, nil)

	inCard := p.addresses(regs.MemVip)
	for _, n := range x.vips.Retired() {
		if inCard[n.Index] == n.Name {
			x.vipAt[n.Index] = netip.MustParseAddr(n.Name)
		}
	}
	for _, n := range x.hops.Retired() {
		h := hop{nameless: true, index: n.Index}
		copy(h.left[:], p.entry(regs.MemNextHop, n.Index))
		if known, ok := parseHop(n.Name); ok {
			h = hop{Hop: known}
		}
		x.hopAt[n.Index] = h
	}
	for i := range p.entries(regs.MemServer) {
		words := p.entry(regs.MemServer, i)
		var e regs.ServerEntry
		if e.Decode(words); e.ControlValid == 0 {
			continue
		}
		at, ok := p.place(i, &e)
		if !ok {
			at.addr = netip.AddrPort{}
		}
		at.left = slices.Clone(words)
		if at.hop, ok = x.hopAt[e.RouteNextHop]; !ok {
			at.hop = hop{nameless: true, index: e.RouteNextHop}
		}
		x.serverAt[i] = at
	}
	return x
}

// restore gives names their indexes: those of the card's entries first, then those of a list. Indexes below bound are
// taken, whether they have names or not.
func restore(size, bound uint32, list []string, card map[uint32]string) rule.Indexes {
	n := max(bound, uint32(len(list)))
	taken := map[string]bool{}
	for _, i := range sorted(card) {
		n = max(n, i+1)
	}
	names := make([]string, min(n, size))
	for _, i := range sorted(card) {
		if name := card[i]; name != "" && !taken[name] && i < uint32(len(names)) {
			names[i], taken[name] = name, true
		}
	}
	for i, name := range list {
		if _, there := card[uint32(i)]; !there && !taken[name] && i < len(names) {
			names[i] = name
		}
	}
	return rule.Restore(size, names)
}

// entries is how many entries of a memory without banks may hold something.
func (p *predecessor) entries(index int) uint32 {
	return uint32(len(p.w.shadow[memory{index, 0}])) / (p.w.card.Memory(index).EntryBytes / 4)
}

// entry is an entry of a memory without banks; nil beyond those that may hold something.
func (p *predecessor) entry(index int, i uint32) []uint32 {
	if i >= p.entries(index) {
		return nil
	}
	words := p.w.card.Memory(index).EntryBytes / 4
	return p.w.shadow[memory{index, 0}][i*words : (i+1)*words : (i+1)*words]
}

// bound raises bounds above all that the tables hold.
func (p *predecessor) bound(b *bounds) {
	for bank := range uint32(2) {
		b.services = max(b.services, uint32(len(p.w.shadow[memory{regs.MemService, bank}]))/regs.ServiceWords)
		b.groups = max(b.groups, uint32(len(p.w.shadow[memory{regs.MemGroup, bank}]))/regs.GroupWords)
		b.rules = max(b.rules, uint32(len(p.w.shadow[memory{regs.MemRule, bank}]))/regs.RuleWords)
		p.listeners(bank, func(e *regs.ListenerEntry) { b.raise(&b.services, e.IndexService) })
	}
	b.groups = max(b.groups, uint32(len(p.w.selector)))
	b.vips, b.servers, b.hops = max(b.vips, p.entries(regs.MemVip)), max(b.servers, p.entries(regs.MemServer)), max(b.hops, p.entries(regs.MemNextHop))
	for i := range p.entries(regs.MemServer) {
		if w := p.entry(regs.MemServer, i); regs.ServerControlValid(w[regs.ServerControl]) != 0 {
			b.raise(&b.hops, regs.ServerRouteNextHop(w[regs.ServerRoute]))
		}
	}
}

// listeners calls f for the valid listeners of a bank.
func (p *predecessor) listeners(bank uint32, f func(*regs.ListenerEntry)) {
	t := p.w.shadow[memory{regs.MemListener, bank}]
	for at := 0; at < len(t); at += regs.ListenerWords {
		var e regs.ListenerEntry
		if e.Decode(t[at:]); e.ControlValid != 0 {
			f(&e)
		}
	}
}

// addresses names the card's VIPs or local addresses; one that is no address has the empty name.
func (p *predecessor) addresses(index int) map[uint32]string {
	names := map[uint32]string{}
	for i := range p.entries(index) {
		var e regs.AddressEntry
		if e.Decode(p.entry(index, i)); e.ControlValid != 0 {
			names[i] = ""
			if a := driver.Address(e.ControlKind, e.Address); a.IsValid() {
				names[i] = a.String()
			}
		}
	}
	return names
}

// servers names the card's servers; one that no configuration makes has the empty name.
func (p *predecessor) servers() map[uint32]string {
	names := map[uint32]string{}
	for i := range p.entries(regs.MemServer) {
		var e regs.ServerEntry
		if e.Decode(p.entry(regs.MemServer, i)); e.ControlValid != 0 {
			names[i] = ""
			if at, ok := p.place(i, &e); ok {
				names[i] = at.name()
			}
		}
	}
	return names
}

// place is what a server's entry says, with what other tables say about it.
func (p *predecessor) place(i uint32, e *regs.ServerEntry) (place, bool) {
	at, ok := placeOf(e, func() []netip.Addr { return p.w.listed(context.Background(), i) })
	if at.method == config.Tun {
		if a, err := netip.ParseAddr(p.addresses(regs.MemLocalAddress)[e.RouteLocalAddress]); err == nil {
			at.locals = []netip.Addr{a}
		}
	}
	return at, ok
}

func serverAddress(e *regs.ServerEntry) (netip.AddrPort, bool) {
	a := driver.Address(e.ControlKind, e.Address)
	return netip.AddrPortFrom(a, uint16(e.ControlPort)), a.IsValid() && (e.ControlProtocol == protocolTCP || e.ControlProtocol == protocolUDP)
}

// A guess is that an index has a name.
type guess struct {
	index uint32
	name  string
}

// sure keeps of the guesses those that no other contradicts.
func sure(guesses []guess) map[uint32]string {
	names, at := map[uint32]map[string]bool{}, map[string]map[uint32]bool{}
	for _, g := range guesses {
		if names[g.index] == nil {
			names[g.index] = map[string]bool{}
		}
		if at[g.name] == nil {
			at[g.name] = map[uint32]bool{}
		}
		names[g.index][g.name], at[g.name][g.index] = true, true
	}
	known := map[uint32]string{}
	for _, g := range guesses {
		if len(names[g.index]) == 1 && len(at[g.name]) == 1 {
			known[g.index] = g.name
		}
	}
	return known
}

// services knows services by their listeners, where no state file tells their names.
func (p *predecessor) services(c *config.Config) map[uint32]string {
	if p.state.Version != 0 {
		return nil
	}
	at := map[config.Listener]uint32{}
	p.listeners(p.w.bank, func(e *regs.ListenerEntry) {
		var vip regs.AddressEntry
		if words := p.entry(regs.MemVip, e.IndexVip); words != nil && (e.ControlProtocol == protocolTCP || e.ControlProtocol == protocolUDP) {
			vip.Decode(words)
			key := netip.AddrPortFrom(driver.Address(vip.ControlKind, vip.Address), uint16(e.ControlPort))
			at[config.Listener{Addr: key, UDP: e.ControlProtocol == protocolUDP}] = e.IndexService
		}
	})
	var guesses []guess
	asked := chainsOf(c)
	for i := range c.Services {
		s := &c.Services[i]
		for _, l := range s.Listeners() {
			if i, ok := at[l]; ok && asked[l][0] == s {
				guesses = append(guesses, guess{i, s.Name})
			}
		}
	}
	return sure(guesses)
}

// groups knows groups by the services whose default they are, where no state file tells their names.
func (p *predecessor) groups(c *config.Config, services map[uint32]string) map[uint32]string {
	of := map[string]string{}
	for i := range c.Services {
		if s := &c.Services[i]; s.Default.Group != "" && c.Group(s.Default.Group) != nil {
			of[s.Name] = c.PoolName(c.Pool(s, c.Group(s.Default.Group)))
		}
	}
	var guesses []guess
	t := p.w.shadow[memory{regs.MemService, p.w.bank}]
	for i, name := range services {
		var e regs.ServiceEntry
		if at := int(i) * regs.ServiceWords; at < len(t) {
			e.Decode(t[at:])
		}
		if e.ControlHasDefault != 0 && of[name] != "" {
			guesses = append(guesses, guess{e.DefaultGroup, of[name]})
		}
	}
	return sure(guesses)
}

// hopsTold are the next hops that the state file tells, but for those that the card has elsewhere.
func (p *predecessor) hopsTold() []string {
	list := make([]string, len(p.state.Hops))
	for i, n := range p.state.Hops {
		if h, ok := parseHop(n); ok && p.leadsTo(uint32(i), h) {
			list[i] = n
		}
	}
	return list
}

// leadsTo says whether a next-hop entry may be that of a hop, from what it tells.
func (p *predecessor) leadsTo(i uint32, h config.Hop) bool {
	words := p.entry(regs.MemNextHop, i)
	if words == nil {
		return true
	}
	var e regs.NextHopEntry
	e.Decode(words)
	return e.ControlValid == 0 || e.ControlPort == uint32(h.Port) && e.ControlVlan == uint32(h.VLAN) && e.ControlTagged == bit(h.VLAN != 0)
}

// hops knows next hops by the servers behind them, where no state file tells them.
func (p *predecessor) hops(c *config.Config) map[uint32]string {
	told := map[string]bool{}
	list := p.hopsTold()
	for _, n := range list {
		told[n] = true
	}
	var guesses []guess
	for i := range p.entries(regs.MemServer) {
		var e regs.ServerEntry
		e.Decode(p.entry(regs.MemServer, i))
		at := e.RouteNextHop
		if a, ok := serverAddress(&e); ok && e.ControlValid != 0 && (at >= uint32(len(list)) || list[at] == "") {
			if h, ok := c.Route(a.Addr()); ok && !told[hopName(h)] && p.leadsTo(at, h) {
				guesses = append(guesses, guess{at, hopName(h)})
			}
		}
	}
	return sure(guesses)
}

// seed tells the neighbours which next hops the card has resolved.
func (d *Daemon) seed(x *indexes) {
	for _, i := range sorted(x.hopAt) {
		h := x.hopAt[i]
		var e regs.NextHopEntry
		if words := d.left.entry(regs.MemNextHop, i); words != nil {
			e.Decode(words)
		}
		if !h.nameless && e.ControlValid != 0 && e.ControlResolved != 0 {
			k := neighbour.Key{Port: h.Port, VLAN: h.VLAN, Addr: h.Neighbor}
			d.h.Neighbours().Seed(k, driver.MAC(e.MacLo, e.MacHiAddress), d.now)
		}
	}
}
