package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

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
	Listeners, Services, Groups, Servers, NextHops, VIPs, LocalAddresses, Rules, URLNodes, Slots uint32
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
	// Up is since when servers with a slow start take connections, where it is not for ever.
	Up map[member]time.Time
	// Loads are what the card counts of servers, by their indexes in force.
	Loads []Load
	// Plans are what schedulers remember, by pool.
	Plans map[string]*schedule.Memory
	// Now is the time by which slow starts and schedulers go.
	Now time.Time
	// Profiles are the servers' as they were learned.
	Profiles map[netip.AddrPort]config.Profile
	// Neighbours are the next hops that are resolved.
	Neighbours map[config.Hop]neighbour.MAC
	// PathMTU are the next hops behind which less fits than through their port.
	PathMTU map[config.Hop]uint16
}

// Load is what the card counts of a server.
type Load struct {
	Active, Inactive uint32
	Overloaded       bool
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
	vips, services, groups, servers, hops, rules, locals rule.Indexes

	vipAt    map[uint32]netip.Addr
	localAt  map[uint32]netip.Addr
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
	vips, servers, hops, locals table
	// slots are the slot areas by group index; nil where the group is not in use.
	slots []schedule.Slots
	// plans are what the slots are made by, by group index, and pools the pools they are for.
	plans []schedule.Plan
	pools []config.Pool
	// limits are upper and lower of servers, by index.
	limits map[uint32][2]uint32

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
	im.ix = indexes{vipAt: map[uint32]netip.Addr{}, localAt: map[uint32]netip.Addr{}, serverAt: map[uint32]place{}, hopAt: map[uint32]hop{}}
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
	for _, pool := range c.Pools() {
		groups = append(groups, c.PoolName(pool))
		four := slices.ContainsFunc(c.Users(pool), func(s *config.Service) bool {
			return slices.ContainsFunc(s.Listen, func(l config.Listen) bool { return l.Addr.Addr().Is4() })
		})
		for i := range pool.Group.Servers {
			s := &pool.Group.Servers[i]
			p, ok := in.serverPlace(pool, s)
			if !ok {
				return fmt.Errorf("no port's subnet holds server %s and no gateway leads there", s.Addr)
			}
			p.nat64 = p.method == config.NAT && s.Addr.Addr().Is6() && four
			all := []place{p}
			if modular(c, pool) {
				all = append(all, p.everyPort(p.udp))
			}
			for _, p := range all {
				name := p.name()
				if first, ok := places[name]; ok {
					first.nat64, first.drain = first.nat64 || p.nat64, max(first.drain, p.drain)
					places[name] = first
					continue
				}
				servers = append(servers, name)
				places[name] = p
			}
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
	if err := im.assignLocals(in, old); err != nil {
		return err
	}
	return im.assignHops(in, old)
}

// modular says whether a service with an application module uses a pool.
func modular(c *config.Config, pool config.Pool) bool {
	return slices.ContainsFunc(c.Users(pool), func(s *config.Service) bool { return s.Module != "" })
}

// assignLocals gives the local addresses of all servers that still have an entry their indexes.
func (im *Image) assignLocals(in *Inputs, old *indexes) (err error) {
	var names []string
	seen := map[string]bool{}
	for _, i := range sorted(im.ix.serverAt) {
		for _, a := range im.ix.serverAt[i].locals {
			if name := a.String(); !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	from := old.locals
	from.Size = in.Room.LocalAddresses
	if im.ix.locals, err = from.Next("local address", names, func(i uint32) bool { return true }); err != nil {
		return err
	}
	for _, n := range im.ix.locals.Used() {
		im.ix.localAt[n.Index] = netip.MustParseAddr(n.Name)
	}
	return nil
}

// free is the other way round: nobody uses the entry any more.
func (h hold) free(index uint32) bool { return h != nil && !h(index) }

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
	if im.ix.locals.Bound() > 0 {
		im.locals.entry(im.ix.locals.Bound()-1, regs.AddressWords)
	}
	for i, a := range im.ix.localAt {
		kind, words := driver.AddressWords(a)
		e := regs.AddressEntry{ControlValid: 1, ControlKind: kind, Address: words}
		e.Encode(im.locals.entry(i, regs.AddressWords))
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
		e := p.entry()
		e.RouteNextHop, _ = im.ix.hops.Of(p.hop.name())
		if len(p.locals) > 0 {
			e.RouteLocalAddress, _ = im.ix.locals.Of(p.locals[0].String())
		}
		if at, ok := im.ix.servers.Of(p.name()); !ok || at != i || dead[p.addr] {
			e.ControlClosed = 1
		}
		e.Encode(im.servers.entry(i, regs.ServerWords))
	}
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
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
	asked := chainsOf(in.Config)
	for i := range in.Config.Services {
		s := &in.Config.Services[i]
		at, _ := im.ix.services.Of(s.Name)
		e := im.service(in, s)
		e.UrlRoot = rules.image.Roots[i]
		if len(s.Source) > 0 {
			e.SourceFirst, e.SourceCount = rules.image.Sources[i], uint32(len(s.Source))
		}
		if next := asked.after(s); next != nil {
			e.OtherwiseService, _ = im.ix.services.Of(next.Name)
			e.OtherwiseValid = 1
		}
		e.Encode(im.services.entry(at, regs.ServiceWords))
	}
	return im.listenerTable(in, asked)
}

// compile compiles the rules of all services.
func (im *Image) compile(in *Inputs, old *indexes, keep *held) (*rule.Image, error) {
	c := in.Config
	routes := make([]rule.Service, len(c.Services))
	for i := range c.Services {
		s := &c.Services[i]
		at, _ := im.ix.services.Of(s.Name)
		routes[i] = rule.Service{Index: at, Name: s.Name, Sources: s.Source, Routes: make([]rule.Route, len(s.Routes))}
		for n, r := range s.Routes {
			group, _ := im.group(c, s, r.To.Group)
			routes[i].Routes[n] = rule.Route{Match: r.Match, Group: group, Answer: r.To.Reply != nil}
		}
	}
	from := old.rules
	from.Size = in.Room.Rules
	return rule.Compile(routes, from, in.Room.URLNodes, keep.rules.free)
}

// protocols are how the card reads what clients of a service send.
var protocols = [...]uint32{
	config.HTTP: regs.ServiceControlProtocolHttp, config.TLS: regs.ServiceControlProtocolTls, config.TCP: regs.ServiceControlProtocolTcp, config.UDP: regs.ServiceControlProtocolUdp,
}

// serviceModes are what becomes of a service's connections.
var serviceModes = [...]uint32{
	config.Splice: regs.ServiceControlModeSplice, config.NAT: regs.ServiceControlModeNat, config.FullNAT: regs.ServiceControlModeFullnat,
	config.Tun: regs.ServiceControlModeTun, config.DR: regs.ServiceControlModeDr,
}

// group is the index of a group as a service uses it.
func (im *Image) group(c *config.Config, s *config.Service, name string) (uint32, bool) {
	if g := c.Group(name); name != "" && g != nil {
		return im.ix.groups.Of(c.PoolName(c.Pool(s, g)))
	}
	return 0, false
}

func (im *Image) service(in *Inputs, s *config.Service) regs.ServiceEntry {
	e := regs.ServiceEntry{
		ControlValid: 1, ControlMode: serviceModes[s.Mode], ControlProtocol: protocols[s.Protocol],
		Idle: uint32(s.Idle.Milliseconds()), WaitHead: uint32(s.WaitHead.Milliseconds()), Fallback: uint32(s.Fallback.Milliseconds()),
		ControlIdleSilent: bit(s.IdleSilent), ControlServerFirst: bit(s.ServerFirst), ControlRewrite: bit(exception.Alters(s)),
	}
	if g, ok := im.group(in.Config, s, s.H2C); ok {
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
	if g, ok := im.group(in.Config, s, s.Default.Group); ok {
		e.ControlHasDefault, e.DefaultGroup = 1, g
	}
	if s.Layer4() {
		passedOn(&e, s)
	}
	p := promised(in, s)
	e.PromiseMssIpv4, e.PromiseMssIpv6 = uint32(p.mss4), uint32(p.mss6)
	e.PromiseWscale, e.PromiseWscaleOn, e.PromiseSack, e.PromiseTimestamps = uint32(p.wscale), bit(p.wscaleOn), bit(p.sack), bit(p.timestamps)
	e.PromiseEcn = bit(p.ecn)
	return e
}

// Idle times of connections that are passed on, where a service names none. Datagrams have a register of their own.
const passedIdle = 15 * time.Minute

// passedOn is what a service says about connections that are passed on.
func passedOn(e *regs.ServiceEntry, s *config.Service) {
	e.ControlOnePacket, e.ControlSloppy, e.ControlModule = bit(s.OnePacket), bit(s.Sloppy), bit(s.Module != "")
	e.ControlExpireQuiescent, e.ControlExpireNodest, e.ControlKeepServer = bit(s.ExpireQuiescent), bit(s.ExpireNodest), bit(s.KeepServer)
	if s.Idle == 0 && s.Protocol == config.TCP {
		e.Idle = uint32(passedIdle.Milliseconds())
	}
	if p := &s.Persistence; p.On() {
		e.Persistence, e.ControlAnyPort = uint32(p.Time.Milliseconds()), bit(p.AllPorts)
		e.PersistenceNetIpv4, e.PersistenceNetIpv6 = uint32(p.Netmask), uint32(p.Netmask6)
	}
}

// chains are the services of each listener, in the order in which they are asked.
type chains map[config.Listener][]*config.Service

func chainsOf(c *config.Config) chains {
	asked := chains{}
	for i := range c.Services {
		for _, l := range c.Services[i].Listeners() {
			asked[l] = append(asked[l], &c.Services[i])
		}
	}
	return asked
}

// after is who is asked where a service does not take a client: the same for all its listeners.
func (c chains) after(s *config.Service) *config.Service {
	for _, l := range s.Listeners() {
		list := c[l]
		if i := slices.Index(list, s); i+1 < len(list) {
			return list[i+1]
		}
	}
	return nil
}

// listenerTable lays out the listener memory, densely: nobody keeps a listener's place.
func (im *Image) listenerTable(in *Inputs, asked chains) error {
	n := uint32(0)
	for i := range in.Config.Services {
		s := &in.Config.Services[i]
		service, _ := im.ix.services.Of(s.Name)
		for _, l := range s.Listeners() {
			if asked[l][0] != s {
				continue
			}
			vip, _ := im.ix.vips.Of(l.Addr.Addr().String())
			e := regs.ListenerEntry{ControlValid: 1, ControlProtocol: protocolTCP, ControlPort: uint32(l.Addr.Port()), IndexVip: vip, IndexService: service}
			if l.UDP {
				e.ControlProtocol = protocolUDP
			}
			e.Encode(im.listeners.entry(n, regs.ListenerWords))
			n++
		}
	}
	if n > in.Room.Listeners {
		return fmt.Errorf("the configuration has %d listeners, the card has room for %d", n, in.Room.Listeners)
	}
	return nil
}
