package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception"
	"splicenic/runtime/health"
	"splicenic/runtime/neighbour"
	"splicenic/runtime/rule"
	"splicenic/runtime/schedule"
)

// Room is how many entries the card's tables have.
type Room struct {
	Listeners, Services, Groups, Servers, NextHops, VIPs, Rules, URLNodes, Slots uint32
}

// Inputs is everything that the tables depend on.
type Inputs struct {
	Config *config.Config
	Room   Room
	MTU    [2]uint16 // of the ports

	// Down are servers that take no new connections in whatever group.
	Down map[netip.AddrPort]bool
	// Dead are members of groups that their group's checks found dead.
	Dead map[member]bool
	// Quorums says which groups have enough that is healthy; a group without an entry has.
	Quorums map[string]health.Quorum
	// Weights are the operator's, in place of the configuration's.
	Weights map[netip.AddrPort]uint16
	// Profiles are the servers' as they were learned.
	Profiles map[netip.AddrPort]config.Profile
	// Neighbours are the next hops that are resolved.
	Neighbours map[config.Hop]neighbour.MAC
	// PathMTU are the next hops behind which less fits than through their port.
	PathMTU map[config.Hop]uint16
}

// hold says whether the card still uses an entry that is out of the configuration. A nil function of it means yes.
type hold func(index uint32) bool

// held are the holds of the tables that connections name.
type held struct {
	vips, services, groups, servers, rules hold
}

// A table is the words of a memory from its first entry.
type table []uint32

// entry returns the words of an entry, which the table grows to hold.
func (t *table) entry(index, words uint32) []uint32 {
	if need := int((index + 1) * words); len(*t) < need {
		*t = append(*t, make([]uint32, need-len(*t))...)
	}
	return (*t)[index*words : (index+1)*words]
}

// place is a server's entry, kept while connections name it.
type place struct {
	addr    netip.AddrPort
	hop     hop
	profile config.Profile
	left    []uint32 // as a predecessor left it in the card, where it is out of the configuration since then; nil: none did
}

// A hop is a next hop. One that a predecessor left in the card and nobody can name is known by its entry.
type hop struct {
	config.Hop
	nameless bool
	index    uint32 // of the entry, where nameless
	left     [regs.NextHopWords]uint32
}

// name is unique among hops.
func (h *hop) name() string {
	if h.nameless {
		return rule.Nameless(h.index)
	}
	return hopName(h.Hop)
}

// indexes are the stable places of everything, with what the retired ones stand for.
type indexes struct {
	vips, services, groups, servers, hops, rules rule.Indexes

	vipAt    map[uint32]netip.Addr
	serverAt map[uint32]place
	hopAt    map[uint32]hop

	compiled *compiled
}

// compiled are the rules of a configuration. Names in use keep their indexes, so that as long as a configuration is in
// force its rules come out the same: whatever else changes does not have them compiled again.
type compiled struct {
	of    *config.Config
	room  Room
	image *rule.Image
}

// Image is what all tables should hold.
type Image struct {
	// Banked tables.
	url, rules, listeners, services, groups table
	// Tables that are in force as they are.
	vips, servers, hops table
	// slots are the slot areas by group index; nil where the group is not in use.
	slots []schedule.Slots

	list []rule.Rule // the rules, for display
	ix   indexes
}

// images computes the tables. old are the indexes in force. It changes nothing and depends on nothing else.
func images(in *Inputs, old *indexes, keep *held) (*Image, error) {
	im := &Image{}
	if err := im.assign(in, old, keep); err != nil {
		return nil, err
	}
	im.addresses(old, keep)
	im.nextHops(in)
	if err := im.groupTables(in); err != nil {
		return nil, err
	}
	if err := im.serviceTables(in, old, keep); err != nil {
		return nil, err
	}
	return im, nil
}

// assign gives everything its index.
func (im *Image) assign(in *Inputs, old *indexes, keep *held) (err error) {
	c, r := in.Config, in.Room
	var vips, services, groups, servers []string
	im.ix = indexes{vipAt: map[uint32]netip.Addr{}, serverAt: map[uint32]place{}, hopAt: map[uint32]hop{}}
	places := map[string]place{}
	seen := map[string]bool{}
	for _, s := range c.Services {
		services = append(services, s.Name)
		for _, l := range s.Listen {
			if name := l.Addr.Addr().String(); !seen[name] {
				seen[name] = true
				vips = append(vips, name)
			}
		}
	}
	for _, g := range c.Groups {
		groups = append(groups, g.Name)
		for _, s := range g.Servers {
			name := serverName(s.Addr)
			if _, ok := places[name]; ok {
				continue
			}
			to, ok := c.Route(s.Addr.Addr())
			if !ok {
				return fmt.Errorf("no port's subnet holds server %s and no gateway leads there", s.Addr)
			}
			servers = append(servers, name)
			places[name] = place{addr: s.Addr, hop: hop{Hop: to}, profile: in.profile(&s)}
		}
	}
	for _, t := range []struct {
		name  string
		from  rule.Indexes
		room  uint32
		names []string
		held  hold
		to    *rule.Indexes
	}{
		{"VIP", old.vips, r.VIPs, vips, keep.vips, &im.ix.vips},
		{"service", old.services, r.Services, services, keep.services, &im.ix.services},
		{"group", old.groups, r.Groups, groups, keep.groups, &im.ix.groups},
		{"server", old.servers, r.Servers, servers, keep.servers, &im.ix.servers},
	} {
		t.from.Size = t.room
		if *t.to, err = t.from.Next(t.name, t.names, t.held.free); err != nil {
			return err
		}
	}
	for _, n := range im.ix.vips.Used() {
		im.ix.vipAt[n.Index] = netip.MustParseAddr(n.Name)
	}
	for _, n := range im.ix.servers.Used() {
		im.ix.serverAt[n.Index] = places[n.Name]
	}
	for _, n := range im.ix.servers.Retired() {
		if p, ok := old.serverAt[n.Index]; ok && !keep.servers.free(n.Index) {
			im.ix.serverAt[n.Index] = p
		}
	}
	return im.assignHops(in, old)
}

// free is the other way round: nobody uses the entry any more.
func (h hold) free(index uint32) bool { return h != nil && !h(index) }

func serverName(a netip.AddrPort) string { return a.String() + serverSuffix }

const serverSuffix = "/tcp"

// hopName is unique among hops.
func hopName(h config.Hop) string {
	return strconv.Itoa(h.Port) + "/" + strconv.Itoa(int(h.VLAN)) + "/" + h.Neighbor.String()
}

// assignHops gives the next hops of all servers that still have an entry their indexes. A next hop is in use while one of
// these servers names it.
func (im *Image) assignHops(in *Inputs, old *indexes) (err error) {
	hops := map[string]hop{}
	for _, p := range im.ix.serverAt {
		hops[p.hop.name()] = p.hop
	}
	names := make([]string, 0, len(hops))
	for n := range hops {
		names = append(names, n)
	}
	slices.Sort(names)
	from := old.hops
	from.Size = in.Room.NextHops
	if im.ix.hops, err = from.Next("next hop", names, func(uint32) bool { return true }); err != nil {
		return err
	}
	for _, n := range im.ix.hops.Used() {
		im.ix.hopAt[n.Index] = hops[n.Name]
	}
	return nil
}

// addresses lays out the VIP memory. The VIPs that are out of the configuration stay while connections name them.
func (im *Image) addresses(old *indexes, keep *held) {
	for _, n := range im.ix.vips.Retired() {
		if a, ok := old.vipAt[n.Index]; ok && !keep.vips.free(n.Index) {
			im.ix.vipAt[n.Index] = a
		}
	}
	im.vips.entry(max(im.ix.vips.Bound(), 1)-1, regs.AddressWords)
	for i, a := range im.ix.vipAt {
		kind, words := driver.AddressWords(a)
		e := regs.AddressEntry{ControlValid: 1, ControlKind: kind, Address: words}
		e.Encode(im.vips.entry(i, regs.AddressWords))
	}
}

// nextHops lays out the next-hop table and the servers that use it.
func (im *Image) nextHops(in *Inputs) {
	im.hops.entry(max(im.ix.hops.Bound(), 1)-1, regs.NextHopWords)
	for i, h := range im.ix.hopAt {
		if h.nameless {
			copy(im.hops.entry(i, regs.NextHopWords), h.left[:])
			continue
		}
		e := regs.NextHopEntry{ControlValid: 1, ControlPort: uint32(h.Port), ControlVlan: uint32(h.VLAN)}
		if h.VLAN != 0 {
			e.ControlTagged = 1
		}
		if mac, ok := in.Neighbours[h.Hop]; ok {
			e.ControlResolved = 1
			e.MacLo, e.MacHiAddress = driver.MACWords(mac)
		}
		e.MacHiMtu = uint32(in.PathMTU[h.Hop])
		e.Encode(im.hops.entry(i, regs.NextHopWords))
	}
	im.servers.entry(max(im.ix.servers.Bound(), 1)-1, regs.ServerWords)
	dead := in.dead()
	for i, p := range im.ix.serverAt {
		if p.left != nil {
			words := im.servers.entry(i, regs.ServerWords)
			copy(words, p.left)
			words[regs.ServerControl] = regs.SetServerControlClosed(words[regs.ServerControl], 1)
			continue
		}
		hop, _ := im.ix.hops.Of(p.hop.name())
		kind, words := driver.AddressWords(p.addr.Addr())
		e := regs.ServerEntry{
			ControlValid: 1, ControlKind: kind, ControlMethod: regs.MethodNat, ControlProtocol: protocolTCP, ControlPort: uint32(p.addr.Port()),
			RouteNextHop: hop, Address: words,
			ProfileMss: uint32(p.profile.MSS), ProfileWscale: uint32(p.profile.WScale), ProfileWscaleOn: bit(p.profile.WScaleOn),
			ProfileSack: bit(p.profile.SACK), ProfileTimestamps: bit(p.profile.Timestamps), ProfileKnown: bit(p.profile.Known), ProfileEcn: bit(p.profile.ECN),
		}
		if at, ok := im.ix.servers.Of(serverName(p.addr)); !ok || at != i || dead[p.addr] {
			e.ControlClosed = 1
		}
		e.Encode(im.servers.entry(i, regs.ServerWords))
	}
}

const protocolTCP = 6

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// groupTables lays out groups and their slots.
func (im *Image) groupTables(in *Inputs) error {
	im.groups.entry(max(im.ix.groups.Bound(), 1)-1, regs.GroupWords)
	im.slots = make([]schedule.Slots, im.ix.groups.Bound())
	for i := range in.Config.Groups {
		g := &in.Config.Groups[i]
		index, _ := im.ix.groups.Of(g.Name)
		var servers []schedule.Server
		if from := in.serving(g); from != nil {
			for n := range from.Servers {
				s := &from.Servers[n]
				name := serverName(s.Addr)
				at, _ := im.ix.servers.Of(name)
				servers = append(servers, schedule.Server{Index: at, Weight: in.weight(from, s), ID: name})
			}
		}
		p, err := schedule.Make(schedule.Kind(g.Scheduler), servers, schedule.Options{}, in.Room.Slots, nil)
		if err != nil {
			return fmt.Errorf("group %s: %w", g.Name, err)
		}
		im.slots[index] = p.Slots
		e := regs.GroupEntry{ControlValid: 1, ControlMethod: regs.MethodNat, ControlMeans: p.Means, ControlCompare: p.Compare, ControlHashKey: p.HashKey,
			ControlFallback: bit(p.Fallback), SeedLo: uint32(p.Seed), SeedHi: uint32(p.Seed >> 32)}
		e.Encode(im.groups.entry(index, regs.GroupWords))
	}
	return nil
}

// serviceTables lays out listeners, services and rules.
func (im *Image) serviceTables(in *Inputs, old *indexes, keep *held) error {
	rules := old.compiled
	if rules == nil || rules.of != in.Config || rules.room != in.Room {
		image, err := im.compile(in, old, keep)
		if err != nil {
			return err
		}
		rules = &compiled{in.Config, in.Room, image}
	}
	im.ix.compiled = rules
	im.url, im.rules, im.list, im.ix.rules = rules.image.Nodes, rules.image.Rules, rules.image.List, rules.image.Indexes
	im.services.entry(max(im.ix.services.Bound(), 1)-1, regs.ServiceWords)
	for i := range in.Config.Services {
		s := &in.Config.Services[i]
		at, _ := im.ix.services.Of(s.Name)
		e := im.service(in, s)
		e.UrlRoot = rules.image.Roots[i]
		e.Encode(im.services.entry(at, regs.ServiceWords))
	}
	return im.listenerTable(in)
}

// compile compiles the rules of all services.
func (im *Image) compile(in *Inputs, old *indexes, keep *held) (*rule.Image, error) {
	c := in.Config
	routes := make([]rule.Service, len(c.Services))
	for i := range c.Services {
		s := &c.Services[i]
		at, _ := im.ix.services.Of(s.Name)
		routes[i] = rule.Service{Index: at, Name: s.Name, Routes: make([]rule.Route, len(s.Routes))}
		for n, r := range s.Routes {
			group, _ := im.ix.groups.Of(r.To.Group)
			routes[i].Routes[n] = rule.Route{Match: r.Match, Group: group, Answer: r.To.Reply != nil}
		}
	}
	from := old.rules
	from.Size = in.Room.Rules
	return rule.Compile(routes, from, in.Room.URLNodes, keep.rules.free)
}

// protocols are how the card reads what clients of a service send.
var protocols = [...]uint32{
	config.HTTP: regs.ServiceControlProtocolHttp, config.TLS: regs.ServiceControlProtocolTls, config.TCP: regs.ServiceControlProtocolTcp,
}

func (im *Image) service(in *Inputs, s *config.Service) regs.ServiceEntry {
	e := regs.ServiceEntry{
		ControlValid: 1, ControlMode: regs.ServiceControlModeSplice, ControlProtocol: protocols[s.Protocol],
		Idle: uint32(s.Idle.Milliseconds()), WaitHead: uint32(s.WaitHead.Milliseconds()), Fallback: uint32(s.Fallback.Milliseconds()),
		ControlIdleSilent: bit(s.IdleSilent), ControlServerFirst: bit(s.ServerFirst), ControlRewrite: bit(exception.Alters(s)),
	}
	if g, ok := im.ix.groups.Of(s.H2C); ok && s.H2C != "" {
		e.ControlHasH2c, e.H2cGroup = 1, g
	}
	switch s.Defence {
	case config.DefenceAuto:
		e.ControlDefence = regs.ServiceControlDefenceAuto
	case config.DefenceAlways:
		e.ControlDefence = regs.ServiceControlDefenceAlways
	}
	if s.ISN == config.ByAddress {
		e.ControlIsn = regs.ServiceControlIsnAddress
	}
	if g, ok := im.ix.groups.Of(s.Default.Group); ok && s.Default.Group != "" {
		e.ControlHasDefault, e.DefaultGroup = 1, g
	}
	p := promised(in, s)
	e.PromiseMssIpv4, e.PromiseMssIpv6 = uint32(p.mss4), uint32(p.mss6)
	e.PromiseWscale, e.PromiseWscaleOn, e.PromiseSack, e.PromiseTimestamps = uint32(p.wscale), bit(p.wscaleOn), bit(p.sack), bit(p.timestamps)
	e.PromiseEcn = bit(p.ecn)
	return e
}

// listenerTable lays out the listener memory, densely: nobody keeps a listener's place.
func (im *Image) listenerTable(in *Inputs) error {
	n := uint32(0)
	for _, s := range in.Config.Services {
		service, _ := im.ix.services.Of(s.Name)
		for _, l := range s.Listen {
			vip, _ := im.ix.vips.Of(l.Addr.Addr().String())
			e := regs.ListenerEntry{ControlValid: 1, ControlProtocol: protocolTCP, ControlPort: uint32(l.Addr.Port()), IndexVip: vip, IndexService: service}
			e.Encode(im.listeners.entry(n, regs.ListenerWords))
			n++
		}
	}
	if n > in.Room.Listeners {
		return fmt.Errorf("the configuration has %d listeners, the card has room for %d", n, in.Room.Listeners)
	}
	return nil
}
