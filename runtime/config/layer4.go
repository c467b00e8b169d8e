package config

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Bounds of what services of layer 4 say.
const (
	maxSources     = 32   // nets of a service (regs: service.source)
	maxAsked       = 4    // services of one listener
	maxPorts       = 1024 // listeners that ranges of a service come to
	maxLocal       = 1024 // local addresses of a group
	maxConnections = 1<<31 - 1
)

// modeOf reads the mode of a service before the keys that it decides on. What is wrong with it is said in its turn.
func modeOf(v value) Mode {
	pairs, _ := pairsOf(v.node)
	for _, p := range pairs {
		if key, ok := p.Key.(*ast.StringNode); !ok || key.Value != "mode" {
			continue
		}
		if s, ok := p.Value.(*ast.StringNode); ok {
			return Mode(max(slices.Index(modes[:], s.Value), 0))
		}
	}
	return Splice
}

// say notes that a key is given.
func (d *decoder) say(v value) {
	if d.said == nil {
		d.said = map[string]Position{}
	}
	d.said[v.key] = v.at
}

// spliced are the keys of a service that mean nothing where the card reads nothing and answers nobody.
var spliced = []string{"routes", "server_first", "fallback", "requests", "proxy", "forwarded", "limits", "isn", "mss", "wscale", "sack", "timestamps", "ecn"}

// passed are those that mean nothing where it does.
var passed = []string{"one_packet", "sloppy", "expire_quiescent", "expire_nodest", "conn_reuse", "module"}

// byMode refuses the keys of a service that do not go with its mode.
func (d *decoder) byMode(s *Service, fields []field) []field {
	for i := range fields {
		f := &fields[i]
		switch {
		case s.Layer4() && slices.Contains(spliced, f.key):
			f.decode = func(v value) {
				d.problem(v.at, v.key, "is for services that are spliced; with mode: %s the card reads nothing of what clients say and passes it on: remove it, or write mode: splice", s.Mode)
			}
		case !s.Layer4() && slices.Contains(passed, f.key):
			f.decode = func(v value) {
				d.problem(v.at, v.key, "is for services whose connections are passed on at once: it needs mode: nat, fullnat, tun or dr")
			}
		}
	}
	return fields
}

func (d *decoder) protocol(v value, s *Service) {
	words := protocols[:]
	if s.Layer4() {
		words = protocols[TCP:]
	}
	if text, ok := v.node.(*ast.StringNode); ok {
		switch {
		case text.Value == "udp" && !s.Layer4():
			d.problem(v.at, v.key, "datagrams cannot be spliced: protocol: udp needs mode: nat, fullnat, tun or dr")
			return
		case s.Layer4() && slices.Contains(protocols[:TCP], text.Value):
			d.problem(v.at, v.key, "with mode: %s nobody reads %s: protocol is tcp or udp, or mode is splice", s.Mode, text.Value)
			return
		}
	}
	d.word(v, "protocol", words, nil)
}

// layer4 are the keys of a service about connections that are passed on, and about which clients it takes.
func (d *decoder) layer4(s *Service) []field {
	return []field{
		{"mode", func(v value) { d.way(v, "mode", modes[:]) }},
		{"source", func(v value) { s.Source = d.sources(v) }},
		{"one_packet", func(v value) {
			d.say(v)
			s.OnePacket = d.boolean(v)
		}},
		{"sloppy", func(v value) {
			if s.Sloppy = d.boolean(v); s.Sloppy && s.Protocol == UDP {
				d.problem(v.at, v.key, "is about segments without SYN; datagrams have none")
			}
		}},
		{"persistence", func(v value) { d.persistence(v, s) }},
		{"expire_quiescent", func(v value) { s.ExpireQuiescent = d.boolean(v) }},
		{"expire_nodest", func(v value) { s.ExpireNodest = d.boolean(v) }},
		{"conn_reuse", func(v value) { s.KeepServer = !d.boolean(v) && !d.complains(v.key) }},
		{"module", func(v value) { d.module(v, s) }},
	}
}

// sources decodes the clients that a service takes.
func (d *decoder) sources(v value) (nets []netip.Prefix) {
	d.say(v)
	d.oneOrMore(v, maxSources, func(v value) {
		s, ok := d.text(v, "a network")
		if !ok {
			return
		}
		net, err := network(s)
		switch {
		case err != nil:
			d.problem(v.at, v.key, "%v", err)
		case slices.Contains(nets, net):
			d.problem(v.at, v.key, "%s is given twice", net)
		default:
			nets = append(nets, net)
		}
	})
	slices.SortFunc(nets, func(a, b netip.Prefix) int { return a.Compare(b) })
	return nets
}

// persistence decodes how clients come again to where they were. A mask of no bits would make all clients one.
func (d *decoder) persistence(v value, s *Service) {
	p := Persistence{At: v.at, Netmask: 32, Netmask6: 128}
	cookie := func(v value) {
		name, ok := d.text(v, "the name of a cookie")
		switch {
		case s.Layer4() || s.Protocol != HTTP:
			d.problem(v.at, v.key, "a cookie is part of a request: it needs mode: splice and protocol: http")
		case ok && !cookieToken(name):
			d.problem(v.at, v.key, "%q is no name of a cookie", clip(name))
		}
		p.Cookie = name
	}
	byAddress := func(decode func(v value)) func(v value) {
		if s.Layer4() {
			return decode
		}
		return func(v value) {
			d.problem(v.at, v.key, "is for services whose connections are passed on at once (mode: nat, fullnat, tun or dr); a spliced service persists by cookie")
		}
	}
	ok := d.mapping(v, "persistence", []field{
		{"time", byAddress(func(v value) { d.duration(v, &p.Time) })},
		{"netmask", byAddress(func(v value) { p.Netmask = d.netmask(v) })},
		{"netmask6", byAddress(func(v value) { p.Netmask6 = uint8(d.number(v, "netmask6", 1, 128)) })},
		{"ports", byAddress(func(v value) { p.AllPorts = d.word(v, "ports", []string{"each", "all"}, nil) == "all" })},
		{"cookie", cookie},
	})
	switch {
	case !ok || d.complains(v.key):
	case s.Layer4() && !p.On():
		d.problem(v.at, v.key, "time is missing: say how long after its last connection a client comes to the same server")
	case !s.Layer4() && p.Cookie == "":
		d.problem(v.at, v.key, "cookie is missing: name the cookie whose value names the server")
	}
	s.Persistence = p
}

// cookieToken says whether s can be the name of a cookie (RFC 6265 4.1.1).
func cookieToken(s string) bool {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) }
	return s != "" && len(s) <= 256 && !strings.ContainsFunc(s, bad)
}

// cookieValue decodes a value that a cookie can have (RFC 6265 4.1.1).
func (d *decoder) cookieValue(v value) string {
	s := d.headerText(v, "the value of a cookie")
	bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`",;\`, r) }
	if !d.complains(v.key) && (s == "" || strings.ContainsFunc(s, bad)) {
		d.problem(v.at, v.key, "%q is no value of a cookie: it has no space, quote, comma, semicolon or backslash", clip(s))
	}
	return s
}

func (d *decoder) module(v value, s *Service) {
	s.Module = d.word(v, "module", []string{"ftp", "tftp"}, nil)
	wants := map[string]Protocol{"ftp": TCP, "tftp": UDP}
	if p, ok := wants[s.Module]; ok && p != s.Protocol && !d.complains(v.key) {
		d.problem(v.at, v.key, "%s is spoken over %s, and the service is protocol: %s", s.Module, p, s.Protocol)
	}
}

// listens decodes where a service listens: an address and a port, a range of ports, or * for every one.
func (d *decoder) listens(v value, s *Service) []Listen {
	text, ok := d.text(v, "an address and a port")
	if !ok {
		return nil
	}
	colon := strings.LastIndexByte(text, ':')
	low, high, isRange := strings.Cut(text[colon+1:], "-")
	switch {
	case colon < 0 || !isRange && low != "*":
		return []Listen{{v.at, d.addrPort(v)}}
	case low == "*" && !isRange:
		a, ok := d.addrBefore(v, text[:colon])
		if ok && !s.Layer4() {
			d.problem(v.at, v.key, "every port of an address is listened on with mode: nat, fullnat, tun or dr; a spliced service names its ports")
		}
		return []Listen{{v.at, netip.AddrPortFrom(a, 0)}}
	}
	a, ok := d.addrBefore(v, text[:colon])
	from, errFrom := strconv.ParseUint(low, 10, 16)
	to, errTo := strconv.ParseUint(high, 10, 16)
	switch {
	case !ok:
		return nil
	case errFrom != nil || errTo != nil || !decimal(low) || !decimal(high) || from == 0:
		d.problem(v.at, v.key, "%q is no range of ports, such as 8000-8003", clip(text[colon+1:]))
		return nil
	case from > to:
		d.problem(v.at, v.key, "the range %s ends before it begins", text[colon+1:])
		return nil
	case int(to-from)+1+len(s.Listen) > maxPorts:
		d.problem(v.at, v.key, "comes to %d listeners with those before it; a service may have %d: write \"%s:*\" for every port", int(to-from)+1+len(s.Listen), maxPorts, text[:colon])
		return nil
	}
	var list []Listen
	for p := from; p <= to; p++ {
		list = append(list, Listen{v.at, netip.AddrPortFrom(a, uint16(p))})
	}
	return list
}

// addrBefore reads the address in front of a colon; one of IPv6 stands in brackets.
func (d *decoder) addrBefore(v value, s string) (netip.Addr, bool) {
	text := s
	six := strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]")
	if six {
		text = s[1 : len(s)-1]
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Is4() == six {
		d.problem(v.at, v.key, "%q is no address in front of a port, such as 198.18.0.80 or [2001:db8::80]", clip(s))
		return netip.Addr{}, false
	}
	if why := impossible(a); why != "" {
		d.problem(v.at, v.key, "%s %s", a, why)
		return netip.Addr{}, false
	}
	return a, true
}

// serverAddress decodes where a server is. Without a port, or with *, it is the client's packet that says it.
func (d *decoder) serverAddress(v value, s *Server) {
	text, ok := d.text(v, "an address and a port")
	if !ok {
		return
	}
	host, port := text, ""
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		host, port = text[:i], text[i+1:]
	}
	a, err := netip.ParseAddr(text)
	switch {
	case err == nil:
		d.say(v)
		if why := impossible(a); why != "" {
			d.problem(v.at, v.key, "%s %s", a, why)
		}
	case port == "*" || port == "0":
		a, _ = d.addrBefore(v, host)
	default:
		s.Addr = d.addrPort(v)
		return
	}
	s.Addr = netip.AddrPortFrom(a, 0)
}

func (d *decoder) scheduler(v value) Scheduler {
	if s := d.word(v, "scheduler", schedulers, nil); s != "maglev" {
		return Scheduler(s)
	}
	return Maglev
}

func (d *decoder) hash(v value) (h Hash) {
	d.say(v)
	d.mapping(v, "hash", []field{
		{"port", func(v value) { h.Port = d.boolean(v) }},
		{"fallback", func(v value) { h.Fallback = d.boolean(v) }},
	})
	return h
}

// hashes refuses what only schedulers that hash clients know.
func (d *decoder) hashes(v value, g *Group) {
	if at, ok := d.said[v.key+".hash"]; ok && g.Scheduler != SourceHash && g.Scheduler != Maglev {
		d.problem(at, v.key+".hash", "is for the schedulers sh and mh; this one is %s", g.Scheduler)
	}
}

// method decodes how packets reach servers.
func (d *decoder) method(v value) Mode {
	return Mode(max(slices.Index(modes[:], d.way(v, "method", modes[NAT:])), 0))
}

func (d *decoder) returns(v value) bool {
	return d.word(v, "return", []string{"direct", "card"}, nil) == "card"
}

func (d *decoder) tunnel(v value) Tunnel {
	t := Tunnel{At: v.at}
	port, checksum, dscp := false, false, false
	ok := d.mapping(v, "a tunnel", []field{
		{"type", func(v value) {
			t.Type = TunnelType(max(slices.Index(tunnelTypes[:], d.word(v, "type", tunnelTypes[:], nil)), 0))
		}},
		{"port", func(v value) { t.Port, port = uint16(d.number(v, "port", 1, 65535)), true }},
		{"checksum", func(v value) {
			t.Checksum, checksum = Checksum(max(slices.Index(checksums[:], d.word(v, "checksum", checksums[:], nil)), 0)), true
		}},
		{"dscp", func(v value) { t.DSCP, dscp = uint8(d.number(v, "dscp", 1, 63)), true }},
	})
	switch {
	case !ok || d.complains(v.key):
	case port && t.Type != GUE:
		d.problem(v.at, v.key, "port is that of gue; %s has none", t.Type)
	case checksum && t.Type != GRE && t.Type != GUE:
		d.problem(v.at, v.key, "checksum is that of gre and gue; %s has none", t.Type)
	case t.Type == GRE && t.Checksum == RemoteChecksum:
		d.problem(v.at, v.key, "checksum: remote is an option of gue; gre has none and full")
	case dscp && t.Type != DSCP:
		d.problem(v.at, v.key, "dscp is for type: dscp; %s wraps the packet with the DSCP that it has", t.Type)
	case t.Type == DSCP && !dscp:
		d.problem(v.at, v.key, "dscp is missing: say which one tells the server the VIP (1 to 63)")
	}
	if t.Type == GUE && !port {
		t.Port = DefaultGUEPort
	}
	return t
}

// locals decodes addresses, single ones and ranges.
func (d *decoder) locals(v value) (list []netip.Addr) {
	d.say(v)
	d.list(v, func(v value) {
		text, ok := d.text(v, "an address, or two with a dash between them")
		if !ok {
			return
		}
		low, high, isRange := strings.Cut(text, "-")
		from, err := netip.ParseAddr(low)
		to := from
		if isRange && err == nil {
			to, err = netip.ParseAddr(high)
		}
		if err != nil || from.Is4() != to.Is4() || to.Less(from) {
			d.problem(v.at, v.key, "%q is no address and no range of addresses, such as 198.18.1.100-198.18.1.104", clip(text))
			return
		}
		for a := from; ; a = a.Next() {
			switch why := impossible(a); {
			case why != "":
				d.problem(v.at, v.key, "%s %s", a, why)
				return
			case len(list) == maxLocal:
				d.problem(v.at, v.key, "makes more than %d local addresses", maxLocal)
				return
			case slices.Contains(list, a):
				d.problem(v.at, v.key, "%s is given twice", a)
				return
			}
			list = append(list, a)
			if a == to {
				return
			}
		}
	})
	return list
}

// inherit takes what the group says for all servers where a server says nothing itself.
func (s *Server) inherit(all *Server, own map[string]bool) {
	if !own["method"] {
		s.Method = all.Method
	}
	if !own["tunnel"] {
		s.Tunnel = all.Tunnel
	}
	if !own["return"] {
		s.Return = all.Return
	}
	if !own["profile"] {
		s.Profile = all.Profile
	}
}

// netmask decodes how many bits of an IPv4 address count. As four numbers, as ipvsadm has it, it is an error that says how
// many bits these are.
func (d *decoder) netmask(v value) uint8 {
	if n, ok := v.node.(*ast.StringNode); ok {
		if a, err := netip.ParseAddr(n.Value); err == nil && a.Is4() {
			b := a.As4()
			m := binary.BigEndian.Uint32(b[:])
			if ones := bits.LeadingZeros32(^m); ones > 0 && m<<ones == 0 {
				d.problem(v.at, v.key, "wants the number of bits: for %s write %d", n.Value, ones)
				return 32
			}
		}
	}
	return uint8(d.number(v, "netmask", 1, 32))
}

// others are the words that other programs have for the modes, which no edit distance leads to.
var others = map[string]Mode{"masq": NAT, "masquerade": NAT, "masquerading": NAT, "route": DR, "droute": DR, "gate": DR, "gateway": DR, "direct": DR, "tunnel": Tun, "tunneling": Tun, "ipip": Tun, "fnat": FullNAT}

// way decodes a mode.
func (d *decoder) way(v value, what string, words []string) string {
	before := len(d.problems)
	got := d.word(v, what, words, nil)
	if s, ok := v.node.(*ast.StringNode); ok && len(d.problems) > before {
		if m, ok := others[strings.ToLower(s.Value)]; ok {
			d.problems[before].Near = m.String()
		}
	}
	return got
}
