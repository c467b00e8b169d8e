package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"splicenic/runtime/config"
)

// A virtual is a virtual server as either kind of file says it.
type virtual struct {
	file      string
	at        place
	key, from string
	name      string // which it had; empty: it is named by what it listens on
	out       string // why it is left out; empty: it is not

	mark   uint32
	six    bool // of a mark: IPv6
	listen []Listen

	scheduler   string
	schedulerAt place
	flags       []string
	flagsAt     place
	persistent  bool
	persistence Persistence
	ops         bool
	opsAt       place
	quorum      uint32
	hysteresis  uint32
	sorry       *server
	servers     []server
}

// A server is a real server with what stands at it.
type server struct {
	Server
	at    place
	key   string
	check *Check
}

// mark finds what packets have a mark.
func (m *Importer) mark(v *virtual, mark uint32) {
	v.mark = mark
	list, ok := m.marks[mark]
	for _, l := range list {
		if l.Addr.Is6() == v.six {
			v.listen = append(v.listen, l)
		}
	}
	family := map[bool]string{false: "IPv4", true: "IPv6"}[v.six]
	example := map[bool]string{false: "198.18.0.80:80", true: "[2001:db8::80]:80"}[v.six]
	switch {
	case !ok:
		v.out = fmt.Sprintf("which packets have firewall mark %d stands in the packet filter's rules, not here: say it with --fwmark %d=%s", mark, mark, example)
	case len(v.listen) == 0:
		v.out = fmt.Sprintf("none of the addresses given for firewall mark %d is %s: add one, such as --fwmark %d=%s", mark, family, mark, example)
	default:
		m.count(v.at, len(v.listen))
	}
}

// builder makes services and groups.
type builder struct {
	*Importer
	out   Imported
	names map[string]bool
	taken map[Listen]string // by whom
	sorry map[string]string // names of groups by what is in them
}

// Finish makes services and groups of all that was read.
func (m *Importer) Finish() *Imported {
	b := builder{Importer: m, names: map[string]bool{}, taken: map[Listen]string{}, sorry: map[string]string{}}
	for i := range m.virtual {
		v := &m.virtual[i]
		m.file = v.file
		b.virtual(v)
	}
	b.out.Left = m.left
	inOrder(b.out.Left)
	if m.more > 0 {
		b.out.Left = append(b.out.Left, config.Problem{File: m.file, Line: 1, Column: 1, Message: fmt.Sprintf("%d more things like these are not carried", m.more)})
	}
	return &b.out
}

func (b *builder) virtual(v *virtual) {
	b.free(v)
	switch {
	case v.out != "":
	case len(v.listen) == 0:
		v.out = "what it listens on stands before it already"
	case len(v.servers) == 0 && v.sorry == nil:
		v.out = "it has no server"
	}
	if v.out != "" {
		with := ""
		if n := len(v.servers); n > 0 {
			with = fmt.Sprintf(" with its %d servers", n)
		}
		b.leave(v.at, v.key, "%s; it is left out%s", v.out, with)
		return
	}
	var protocols []string
	for _, l := range v.listen {
		if !slices.Contains(protocols, l.Protocol) {
			protocols = append(protocols, l.Protocol)
		}
	}
	base := b.unique(cmp.Or(identifier(v.name), defaultName(v)))
	g := b.group(v, base)
	if len(g.Servers) == 0 {
		b.leave(v.at, v.key, "no server is left; it is left out")
		return
	}
	b.out.Groups = append(b.out.Groups, g)
	for i, protocol := range protocols {
		s := Service{Name: base, From: v.from, Mode: g.Method, Protocol: protocol, Group: base}
		if i > 0 { // a mark of both: services are of one
			s.Name = b.unique(base + "-" + protocol)
		}
		for _, l := range v.listen {
			if l.Protocol == protocol {
				s.Listen = append(s.Listen, l)
			}
		}
		if i == 0 && v.persistent && len(protocols) > 1 {
			b.leave(v.at, v.key, "a client is kept at a server in each protocol by itself, not across TCP and UDP")
		}
		b.options(v, &g, &s)
		b.out.Services = append(b.out.Services, s)
	}
}

// free leaves the listeners to v that nobody before has.
func (b *builder) free(v *virtual) {
	var list []Listen
	for _, l := range v.listen {
		if by, ok := b.taken[l]; ok {
			if len(v.listen) > 1 {
				b.leave(v.at, v.key, "%s (%s) belongs to %s already", l, l.Protocol, by)
			}
			continue
		}
		b.taken[l] = v.from
		list = append(list, l)
	}
	v.listen = list
}

// options writes what a service has beside its servers.
func (b *builder) options(v *virtual, g *Group, s *Service) {
	// Whether the kernel has its FTP module is in neither file; behind NAT, FTP does not work without one.
	only := func(is bool) bool { // whether all servers, the sorry one too, are reached by NAT, or none is
		for i := range v.servers {
			if (v.servers[i].Method == nat) != is {
				return false
			}
		}
		return v.sorry == nil || (v.sorry.Method == nat) == is
	}
	s.FTP = only(true) && s.Protocol == "tcp" && s.Listen[0].Port == 21
	if v.ops {
		switch {
		case s.Protocol != "udp":
			b.leave(v.opsAt, v.key, "one-packet scheduling is of UDP, and says nothing about TCP")
		case !only(false):
			b.leave(v.opsAt, v.key, "one-packet scheduling needs tun or dr: the answers of nat need a connection")
		default:
			s.OnePacket = true
		}
	}
	if !v.persistent {
		return
	}
	if s.OnePacket {
		b.leave(v.opsAt, v.key, "every datagram chooses anew, which persistence would keep from it: it is left out")
		return
	}
	p := v.persistence
	p.All = v.mark != 0 || slices.ContainsFunc(s.Listen, func(l Listen) bool { return l.Port == 0 })
	if p.Seconds > maxSeconds {
		b.leave(v.at, v.key, "persistence of %d seconds is cut to %d", p.Seconds, maxSeconds)
		p.Seconds = maxSeconds
	}
	s.Persistence = &p
}

// maxSeconds is the longest duration of a configuration: 28 bits of milliseconds.
const maxSeconds = (1<<28 - 1) / 1000

// schedulers are those of the kernel, which a configuration has too.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "mh", "sed", "nq", "fo", "ovf", "twos"}

// group makes the group of a virtual server.
func (b *builder) group(v *virtual, name string) Group {
	g := Group{Name: name, Scheduler: v.scheduler, Quorum: v.quorum, Hysteresis: v.hysteresis}
	if !slices.Contains(schedulers, g.Scheduler) {
		near := ""
		if n := config.Near(g.Scheduler, schedulers); n != "" {
			near = fmt.Sprintf(" (did you mean %q?)", n)
		}
		b.leave(cmp.Or(v.schedulerAt, v.at), v.key, "scheduler %q is none of the kernel's; wlc stands in its place%s", clip(v.scheduler), near)
		g.Scheduler = "wlc"
	}
	for _, f := range v.flags {
		hash := g.Scheduler == "sh" || g.Scheduler == "mh"
		switch {
		case hash && (f == "flag-1" || f == g.Scheduler+"-fallback"):
			g.Fallback = true
		case hash && (f == "flag-2" || f == g.Scheduler+"-port"):
			g.Port = true
		default:
			b.leave(cmp.Or(v.flagsAt, v.at), v.key, "flag %q says nothing to scheduler %s", clip(f), g.Scheduler)
		}
	}
	g.Method = method(v)
	seen := map[netip.AddrPort]bool{}
	for i := range v.servers {
		if b.foreign(v, &v.servers[i]) {
			continue
		}
		s := b.server(v, &v.servers[i])
		if key := netip.AddrPortFrom(s.Addr, s.Port); seen[key] {
			b.leave(v.servers[i].at, v.servers[i].key, "stands twice; the first one counts")
			continue
		} else {
			seen[key] = true
		}
		if s.Method == g.Method {
			s.Method = ""
		}
		g.Servers = append(g.Servers, s)
	}
	b.tunnels(&g)
	b.check(v, &g)
	b.quorum(v, &g)
	if v.sorry == nil || b.foreign(v, v.sorry) {
		return g
	}
	spare := b.server(v, v.sorry)
	if len(g.Servers) == 0 {
		b.leave(v.sorry.at, v.sorry.key, "there is no other server: it serves all the time")
		g.Method, spare.Method = spare.Method, ""
		g.Servers = []Server{spare}
		return g
	}
	g.Sorry = b.sorryGroup(spare, name)
	return g
}

// foreign says whether a server is of another family than its clients, which the kernel allows for tunnels only.
func (b *builder) foreign(v *virtual, s *server) bool {
	is := s.Method != tun && slices.ContainsFunc(v.listen, func(l Listen) bool { return l.Addr.Is4() != s.Addr.Is4() })
	if is {
		b.leave(s.at, s.key, "server and clients are of different families, which is for tunnels only; the server is left out")
	}
	return is
}

// quorum cuts a quorum that all servers together would not reach again.
func (b *builder) quorum(v *virtual, g *Group) {
	sum := uint64(0)
	for i := range g.Servers {
		sum += uint64(g.Servers[i].Weight)
	}
	if need := uint64(max(g.Quorum, 1)) + uint64(g.Hysteresis); g.Quorum+g.Hysteresis == 0 || need <= sum {
		return
	}
	b.leave(v.at, v.key, "quorum %d with hysteresis %d is more than all weights together (%d): it is left out", max(g.Quorum, 1), g.Hysteresis, sum)
	g.Quorum, g.Hysteresis = 0, 0
}

// sorryGroup names the group of one server that serves for others, the same for all that have it.
func (b *builder) sorryGroup(s Server, of string) string {
	key := fmt.Sprintf("%+v", s)
	name, ok := b.sorry[key]
	if !ok {
		name = b.unique(of + "-sorry")
		b.sorry[key] = name
		g := Group{Name: name, Scheduler: "rr", Method: s.Method, Tunnel: s.Tunnel}
		s.Method, s.Tunnel = "", Tunnel{}
		g.Servers = []Server{s}
		b.out.Groups = append(b.out.Groups, g)
	}
	return name
}

// method is the method that most servers have, of several the one that comes first.
func method(v *virtual) string {
	count := map[string]int{}
	best := ""
	for i := range v.servers {
		m := v.servers[i].Method
		if count[m]++; best == "" {
			best = m
		}
	}
	for _, m := range []string{nat, tun, dr} {
		if count[m] > count[best] {
			best = m
		}
	}
	if best == "" && v.sorry != nil {
		best = v.sorry.Method
	}
	return best
}

// maxConnections is the largest threshold of a configuration.
const maxConnections = 1<<31 - 1

// server writes a server as a configuration has it. Direct routing and tunnels leave ports alone, whatever the kernel's
// table says.
func (b *builder) server(v *virtual, of *server) Server {
	s := of.Server
	if s.Weight > 65535 {
		b.leave(of.at, of.key, "weight %d is cut to 65535", s.Weight)
		s.Weight = 65535
	}
	if s.Upper > maxConnections {
		s.Upper = maxConnections
	}
	if s.Lower > 0 && s.Lower >= s.Upper {
		b.leave(of.at, of.key, "lower threshold %d is not below the upper one (%d): it is left out", s.Lower, s.Upper)
		s.Lower = 0
	}
	s.Tunnel = b.tunnel(of)
	if s.Method == nat {
		if s.Port == 0 && len(v.listen) == 1 {
			s.Port = v.listen[0].Port
		}
		return s
	}
	port := v.listen[0].Port
	for _, l := range v.listen {
		if l.Port != port {
			port = 0
		}
	}
	if s.Port != port && s.Port != 0 {
		to := "the port that the client asked for"
		if port != 0 {
			to = strconv.Itoa(int(port))
		}
		b.leave(of.at, of.key, "port %d is not used by method %s, which leaves ports as they are: it is written as %s", s.Port, s.Method, to)
	}
	s.Port = port
	return s
}

// tunnel is a server's tunnel without what its type does not have.
func (b *builder) tunnel(of *server) Tunnel {
	t := of.Tunnel
	plain := t.Type == "" || t.Type == "ipip"
	switch {
	case t == (Tunnel{}):
	case of.Method != tun:
		b.leave(of.at, of.key, "a tunnel's options say nothing about method %s", of.Method)
		t = Tunnel{}
	case plain && (t.Port != 0 || t.Checksum != ""):
		b.leave(of.at, of.key, "a tunnel of type ipip has neither port nor checksum")
		t.Port, t.Checksum = 0, ""
	case t.Type == "gre" && (t.Port != 0 || t.Checksum == "remote"):
		b.leave(of.at, of.key, "a tunnel of type gre has no port and no remote checksum")
		if t.Port = 0; t.Checksum == "remote" {
			t.Checksum = ""
		}
	}
	return t
}

// tunnels moves the tunnel that all servers have to the group.
func (b *builder) tunnels(g *Group) {
	var first *Tunnel
	for i := range g.Servers {
		s := &g.Servers[i]
		if cmp.Or(s.Method, g.Method) != tun {
			continue
		}
		if first == nil {
			first = &s.Tunnel
		}
		if s.Tunnel != *first {
			return
		}
	}
	if first == nil {
		return
	}
	g.Tunnel = *first
	for i := range g.Servers {
		g.Servers[i].Tunnel = Tunnel{}
	}
}

// check gives the group the check that most of its servers have: a configuration has one for all.
func (b *builder) check(v *virtual, g *Group) {
	keys := make([]string, len(v.servers))
	count := map[string]int{}
	best := -1
	for i := range v.servers {
		s := &v.servers[i]
		if s.check != nil && s.check.Port == s.Port {
			s.check.Port = 0
		}
		if s.check != nil {
			keys[i] = fmt.Sprintf("%+v", *s.check)
		}
		count[keys[i]]++
	}
	for i := range keys {
		if v.servers[i].check != nil && (best < 0 || count[keys[i]] > count[keys[best]]) {
			best = i
		}
	}
	if best < 0 {
		return
	}
	g.Check = v.servers[best].check
	b.askable(v, g, &v.servers[best])
	for i := range keys {
		if keys[i] != keys[best] {
			b.leave(v.servers[i].at, v.servers[i].key, "servers of a group are checked alike: this one as that of line %d", v.servers[best].at.line)
		}
	}
}

// askable gives a check a port where servers have none of their own.
func (b *builder) askable(v *virtual, g *Group, of *server) {
	c := g.Check
	if c.Type == "ping" || c.Port != 0 || !slices.ContainsFunc(g.Servers, func(s Server) bool { return s.Port == 0 }) {
		return
	}
	for _, l := range v.listen {
		if l.Port != 0 {
			c.Port = l.Port
			b.leave(of.at, of.key, "names no port to be checked: it is port %d", c.Port)
			return
		}
	}
	b.leave(of.at, of.key, "names no port to be checked: that the server answers pings is checked in its place")
	*c = Check{Type: "ping", Interval: c.Interval, Timeout: c.Timeout, Fall: c.Fall, Down: c.Down}
}

// unique makes a name that nothing has yet.
func (b *builder) unique(name string) string {
	try := name
	for i := 2; b.names[try]; i++ {
		try = name + "-" + strconv.Itoa(i)
	}
	b.names[try] = true
	return try
}

// maxBase leaves room in the 64 characters of a name for what is put behind it.
const maxBase = 48

// identifier makes a name for a configuration of one of a file.
func identifier(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", r) {
			return r
		}
		return '_'
	}, s[:min(len(s), maxBase)])
}

// defaultName names a virtual server by what it listens on.
func defaultName(v *virtual) string {
	if v.mark != 0 {
		return "fwmark-" + strconv.FormatUint(uint64(v.mark), 10) + map[bool]string{true: "-6"}[v.six]
	}
	l := v.listen[0]
	port := "any"
	if l.Port != 0 {
		port = strconv.Itoa(int(l.Port))
	}
	return identifier(l.Protocol + "-" + l.Addr.String() + "-" + port)
}
