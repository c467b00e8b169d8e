package config

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"

	"splicenic/runtime/rule"
)

// config decodes the top level.
func (d *decoder) config(c *Config, v value) {
	c.Card = Card{Body: Auto}
	d.mapping(v, "the configuration", []field{
		{"card", func(v value) { d.card(&c.Card, v) }},
		{"emu", func(v value) { d.emu(&c.Emu, v) }},
		{"ports", func(v value) {
			d.mapping(v, "ports", []field{
				{"client", func(v value) { d.port(&c.Client, v) }},
				{"server", func(v value) { d.port(&c.Server, v) }},
			})
		}},
		{"services", func(v value) {
			d.list(v, func(v value) { c.Services = append(c.Services, d.service(v)) })
		}},
		{"groups", func(v value) {
			d.list(v, func(v value) { c.Groups = append(c.Groups, d.group(v)) })
		}},
		{"defence", func(v value) { d.pressure(&c.Defence, v) }},
		{"log", func(v value) { d.log(&c.Log, v) }},
		{"dns", func(v value) { d.dns(c, v) }},
		{"seed", func(v value) { c.Seed = d.number(v, "seed", 0, 1<<64-1) }},
		{"socket", func(v value) { c.Socket = d.path(v, "path of a socket", 107) }},
	})
	c.OneArmed = c.Server.At == Position{}
	c.groups = make(map[string]*Group, len(c.Groups))
	for i := range c.Groups {
		c.groups[c.Groups[i].Name] = &c.Groups[i]
	}
}

func (d *decoder) card(c *Card, v value) {
	s, ok := d.text(v, "a card")
	if !ok {
		return
	}
	c.At = v.at
	body, name, named := strings.Cut(s, ":")
	c.Body, c.Name = Body(body), name
	switch {
	case !named && (c.Body == Auto || c.Body == Emulator):
	case named && c.Body == VFIO && pciAddress(name):
	case named && c.Body == VFIOUser && filepath.IsAbs(name) && !strings.ContainsRune(name, 0):
	default:
		d.problem(v.at, v.key, "%q is no card: write auto, emu, vfio:0000:65:00.0 or vfio-user:/path/of/socket", clip(s)).
			Near = Near(body, []string{"auto", "emu", "vfio", "vfio-user"})
	}
}

// pciAddress checks "[domain:]bus:device.function".
func pciAddress(s string) bool {
	parts := strings.Split(s, ":")
	slot, function, ok := strings.Cut(parts[len(parts)-1], ".")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return false
	}
	if len(parts) == 3 && !hex(parts[0], 4, 8) {
		return false
	}
	return hex(parts[len(parts)-2], 2, 2) && hex(slot, 2, 2) && (slot[0] == '0' || slot[0] == '1') && len(function) == 1 && function[0] >= '0' && function[0] <= '7'
}

func hex(s string, lo, hi int) bool {
	return len(s) >= lo && len(s) <= hi && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

func (d *decoder) emu(e *Emu, v value) {
	e.At = v.at
	d.mapping(v, "emu", []field{
		{"client", func(v value) { e.Client = d.wire(v) }},
		{"server", func(v value) { e.Server = d.wire(v) }},
		{"flash", func(v value) { e.Flash = d.fileName(v) }},
	})
}

func (d *decoder) fileName(v value) string {
	s, ok := d.text(v, "a file")
	switch {
	case !ok:
		return ""
	case s == "":
		d.problem(v.at, v.key, "is empty: name a file, or leave it out")
	case strings.ContainsRune(s, 0):
		d.problem(v.at, v.key, "%q holds a NUL byte, which no file name has", clip(s))
	}
	return s
}

func (d *decoder) wire(v value) Wire {
	s, ok := d.text(v, "a wire")
	if !ok {
		return Wire{}
	}
	w := Wire{At: v.at, Kind: Interface, Name: s}
	kind, rest, named := strings.Cut(s, ":")
	switch {
	case s == "mem":
		return Wire{At: v.at, Kind: Memory}
	case named && kind == "tap":
		w.Kind, w.Name = TAP, rest
	case named && kind == "pcap":
		in, out, two := strings.Cut(rest, ",")
		if !two || in == "" || out == "" || strings.Contains(out, ",") {
			d.problem(v.at, v.key, "%q wants two files: pcap:IN,OUT", clip(s))
		} else if strings.ContainsRune(rest, 0) {
			d.problem(v.at, v.key, "%q holds a NUL byte, which no file name has", clip(s))
		} else if sameFile(in, out) {
			d.problem(v.at, v.key, "%q reads and writes one file", clip(s))
		}
		return Wire{At: v.at, Kind: Pcap, Name: in, Out: out}
	case named && kind == "xdp":
		d.problem(v.at, v.key, "wire %q is not supported yet by this build", clip(s))
		return Wire{}
	case named:
		d.problem(v.at, v.key, "%q is no wire: write an interface, tap:NAME, pcap:IN,OUT or mem", clip(s)).Near = d.near(kind, []string{"tap", "pcap"})
		return Wire{}
	}
	if !interfaceName(w.Name) {
		d.problem(v.at, v.key, "%q is no name of an interface: it has 1 to 15 bytes, no slash, colon, space or control character", clip(w.Name))
	}
	return w
}

// interfaceName checks a name as the kernel does.
func interfaceName(s string) bool {
	odd := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) }
	return len(s) >= 1 && len(s) <= 15 && s != "." && s != ".." && !strings.ContainsFunc(s, odd)
}

func (d *decoder) path(v value, what string, limit int) string {
	s, ok := d.text(v, "a "+what)
	if ok && (!filepath.IsAbs(s) || len(s) > limit || strings.ContainsRune(s, 0)) {
		d.problem(v.at, v.key, "%q is no %s: it begins with a slash, has at most %d bytes and no NUL among them", clip(s), what, limit)
	}
	return s
}

func (d *decoder) port(p *Port, v value) {
	p.At = v.at
	d.mapping(v, "a port", []field{
		{"addresses", func(v value) {
			d.list(v, func(v value) { p.Addresses = append(p.Addresses, d.address(v)) })
		}},
		{"gateway", func(v value) {
			if _, ok := v.node.(*ast.SequenceNode); ok {
				d.list(v, func(v value) { p.Gateways = append(p.Gateways, Gateway{v.at, d.addr(v)}) })
				return
			}
			p.Gateways = append(p.Gateways, Gateway{v.at, d.addr(v)})
		}},
		{"forward", func(v value) { p.Forward = d.word(v, "forward", []string{"off", "routed"}, nil) == "routed" }},
		{"snat", func(v value) { d.translation(&p.SNAT, v) }},
	})
}

func (d *decoder) address(v value) Address {
	a := Address{At: v.at}
	if _, ok := v.node.(ast.ScalarNode); ok {
		a.Prefix = d.prefix(v)
		return a
	}
	given := false
	ok := d.mapping(v, "an address", []field{
		{"address", func(v value) { a.Prefix, given = d.prefix(v), true }},
		{"vlan", func(v value) { a.VLAN = uint16(d.number(v, "vlan", 1, 4094)) }},
	})
	if ok && !given {
		d.problem(v.at, v.key, "address is missing")
	}
	return a
}

// prefix decodes an address with the length of its subnet.
func (d *decoder) prefix(v value) netip.Prefix {
	s, ok := d.text(v, "an address with its subnet")
	if !ok {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		d.problem(v.at, v.key, "%q is no address with its subnet, such as 198.18.0.1/24", clip(s))
		return netip.Prefix{}
	}
	if p.Bits() == 0 {
		d.problem(v.at, v.key, "%s takes the whole address space as its subnet", s)
		return p
	}
	if why := impossible(p.Addr()); why != "" {
		d.problem(v.at, v.key, "%s %s", p.Addr(), why)
	} else if p.Addr().Is4() && p.Bits() < 31 && (p.Masked().Addr() == p.Addr() || broadcast(p) == p.Addr()) {
		d.problem(v.at, v.key, "%s names the subnet or its broadcast address, not a station", s)
	}
	return p
}

// broadcast is the last address of an IPv4 subnet.
func broadcast(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(a)
}

func (d *decoder) addr(v value) netip.Addr {
	s, ok := d.text(v, "an address")
	if !ok {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		d.problem(v.at, v.key, "%q is no address", clip(s))
		return netip.Addr{}
	}
	if why := impossible(a); why != "" {
		d.problem(v.at, v.key, "%s %s", a, why)
	}
	return a
}

func (d *decoder) addrPort(v value) netip.AddrPort {
	s, ok := d.text(v, "an address and a port")
	if !ok {
		return netip.AddrPort{}
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		if bare, err := netip.ParseAddr(s); err == nil {
			d.problem(v.at, v.key, "%q has no port: write %s", s, netip.AddrPortFrom(bare, 80))
			return netip.AddrPort{}
		}
		d.problem(v.at, v.key, "%q is no address and port, such as 198.18.0.80:80 or [2001:db8::80]:80", clip(s))
		return netip.AddrPort{}
	}
	if why := impossible(a.Addr()); why != "" {
		d.problem(v.at, v.key, "%s %s", a.Addr(), why)
	}
	if a.Port() == 0 {
		d.problem(v.at, v.key, "port 0 cannot be connected to")
	}
	return a
}

// impossible says why no single station on a network can have an address.
func impossible(a netip.Addr) string {
	switch {
	case a.Is4In6():
		return "is an IPv4 address in IPv6 form; write " + a.Unmap().String()
	case a.Zone() != "":
		return "has a zone, which means nothing to the card"
	case a.IsUnspecified():
		return "is the unspecified address"
	case a.IsLoopback():
		return "is a loopback address"
	case a.IsMulticast():
		return "is a multicast address"
	case a.IsLinkLocalUnicast() && a.Is6():
		return "is a link-local address"
	case a.Is4() && (a.As4()[0] == 0 || a.As4()[0] >= 240):
		return "is reserved and cannot be a station"
	}
	return ""
}

func (d *decoder) service(v value) Service {
	s := Service{At: v.at, Mode: modeOf(v), Protocol: protocolOf(v)}
	s.ServerFirst = s.Protocol == TCP && !s.Layer4()
	fields := append(d.content(&s), []field{
		{"name", func(v value) { s.Name = d.identifier(v, "name") }},
		{"listen", func(v value) {
			d.list(v, func(v value) { s.Listen = append(s.Listen, d.listens(v, &s)...) })
		}},
		{"isn", func(v value) {
			if d.word(v, "isn", []string{"keyed", "address"}, nil) == "address" {
				s.ISN = ByAddress
			}
		}},
		{"mss", func(v value) {
			if n, ok := v.node.(*ast.StringNode); ok {
				if decimal(n.Value) {
					d.problem(v.at, v.key, "mss %q is in quotes; write it without", clip(n.Value))
					return
				}
				s.Options.MSS = d.policy(v, "mss")
				return
			}
			s.MSS = uint16(d.number(v, "mss", minMSS, 65495))
		}},
		{"wscale", func(v value) { s.Options.WScale = d.policy(v, "wscale") }},
		{"sack", func(v value) { s.Options.SACK = d.policy(v, "sack") }},
		{"timestamps", func(v value) { s.Options.Timestamps = d.policy(v, "timestamps") }},
		{"ecn", func(v value) {
			if s.Options.ECN = d.policy(v, "ecn"); s.Options.ECN == Rewrite {
				d.problem(v.at, v.key, "ecn cannot be rewritten: what the network says about congestion goes from end to end or is not asked for; write preserve or strip")
			}
		}},
		{"defence", func(v value) {
			d.say(v)
			s.Defence = Defence(max(slices.Index(defences[:], d.word(v, "defence", defences[:], nil)), 0))
		}},
		{"timeouts", func(v value) {
			d.mapping(v, "timeouts", []field{
				{"idle", func(v value) { d.duration(v, &s.Idle) }},
				{"wait_head", func(v value) { d.duration(v, &s.WaitHead) }},
				{"reset", func(v value) { s.IdleSilent = !d.boolean(v) }},
				{"syn_rcvd", nil}, {"server_syn", nil}, {"closing", nil}, {"quarantine", nil},
			})
		}},
		{"idle", func(v value) {
			d.problem(v.at, v.key, "is written timeouts: {idle: %s}", clip(v.node.GetToken().Value))
		}},
	}...)
	fields = append(fields, d.layer4(&s)...)
	d.mapping(v, "a service", d.byMode(&s, fields))
	return s
}

// policy decodes how an option is treated.
func (d *decoder) policy(v value, what string) Policy {
	switch d.word(v, what, []string{"preserve", "rewrite", "strip"}, nil) {
	case "rewrite":
		return Rewrite
	case "strip":
		return Strip
	}
	return Preserve
}

// maxRate fits the card's registers.
const maxRate = 1<<28 - 1

// pressure decodes what the SYN defence of the whole card goes by.
func (d *decoder) pressure(p *Pressure, v value) {
	p.At = v.at
	rate := func(what string, to *uint32) field {
		return field{what, func(v value) { *to = uint32(d.number(v, what, 1, maxRate)) }}
	}
	d.mapping(v, "defence", []field{
		rate("rate_on", &p.RateOn), rate("rate_off", &p.RateOff), rate("source_rate", &p.SourceRate), rate("source_burst", &p.SourceBurst),
	})
}

// minMSS is the least MSS a host may be given without being asked (RFC 9293 3.7.1, IPv4).
const minMSS = 536

func (d *decoder) duration(v value, to *time.Duration) {
	switch v.node.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
	default:
		d.problem(v.at, v.key, "wants a duration, got %s", describe(v.node))
		return
	}
	t, err := ParseDuration(v.node.GetToken().Value)
	if err != nil {
		d.problem(v.at, v.key, "%v", err)
		return
	}
	*to = t
}

// complains says whether something at or below a key was wrong already.
func (d *decoder) complains(key string) bool {
	for i := range d.problems {
		if strings.HasPrefix(d.problems[i].Key, key) {
			return true
		}
	}
	return false
}

// group decodes a group. A server has what the group says for all where it says nothing itself.
func (d *decoder) group(v value) Group {
	g := Group{At: v.at, Scheduler: WeightedRoundRobin}
	all := Server{}
	var own []map[string]bool // keys that a server has itself
	d.mapping(v, "a group", append(d.checkKeys(&g), []field{
		{"name", func(v value) { g.Name = d.identifier(v, "name") }},
		{"scheduler", func(v value) { g.Scheduler = d.scheduler(v) }},
		{"hash", func(v value) { g.Hash = d.hash(v) }},
		{"method", func(v value) { all.Method = d.method(v) }},
		{"tunnel", func(v value) { all.Tunnel = d.tunnel(v) }},
		{"return", func(v value) { all.Return = d.returns(v) }},
		{"local", func(v value) { g.Local = d.locals(v) }},
		{"profile", func(v value) { all.Profile = d.profile(v) }},
		{"servers", func(v value) {
			d.list(v, func(v value) {
				s, keys := d.server(v)
				own = append(own, keys)
				g.Servers = append(g.Servers, s)
			})
		}},
		{"sorry", func(v value) { g.Sorry = d.target(v, rule.Path{Kind: rule.RegexpPath}) }},
		{"slow_start", func(v value) { d.duration(v, &g.SlowStart) }},
		{"drain", func(v value) { d.duration(v, &g.Drain) }},
	}...))
	for i := range g.Servers {
		g.Servers[i].inherit(&all, own[i])
	}
	d.hashes(v, &g)
	return g
}

func (d *decoder) profile(v value) Profile {
	p := Profile{Known: true}
	d.mapping(v, "a profile", []field{
		{"mss", func(v value) { p.MSS = uint16(d.number(v, "mss", minMSS, 65495)) }},
		{"wscale", func(v value) { p.WScale, p.WScaleOn = uint8(d.number(v, "wscale", 0, 14)), true }},
		{"sack", func(v value) { p.SACK = d.boolean(v) }},
		{"timestamps", func(v value) { p.Timestamps = d.boolean(v) }},
		{"ecn", func(v value) { p.ECN = d.boolean(v) }},
	})
	return p
}

// server decodes a server, and returns the keys that it has itself.
func (d *decoder) server(v value) (s Server, own map[string]bool) {
	s, own = Server{At: v.at, Weight: 1}, map[string]bool{}
	said := func(key string, decode func(v value)) field {
		return field{key, func(v value) { own[key] = true; decode(v) }}
	}
	ok := d.mapping(v, "a server", []field{
		said("address", func(v value) { d.serverAddress(v, &s) }),
		{"weight", func(v value) { s.Weight = uint16(d.number(v, "weight", 0, 65535)) }},
		said("method", func(v value) { s.Method = d.method(v) }),
		said("tunnel", func(v value) { s.Tunnel = d.tunnel(v) }),
		said("return", func(v value) { s.Return = d.returns(v) }),
		said("profile", func(v value) { s.Profile = d.profile(v) }),
		{"upper", func(v value) { s.Upper = uint32(d.number(v, "upper", 1, maxConnections)) }},
		{"lower", func(v value) { s.Lower = uint32(d.number(v, "lower", 1, maxConnections)) }},
		{"cookie", func(v value) { s.Cookie = d.cookieValue(v) }},
	})
	if ok && !own["address"] {
		d.problem(v.at, v.key, "address is missing")
	}
	if s.Lower != 0 && s.Lower >= s.Upper && !d.complains(v.key) {
		d.problem(v.at, v.key, "lower %d is not less than upper %d: the server would be full and free at once", s.Lower, s.Upper)
	}
	return s, own
}
