package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// keepalived reads keepalived.conf.
func (m *Importer) keepalived(text []byte) {
	k := keepalived{Importer: m, groups: map[string]*statement{}}
	list := m.statements(text)
	if len(m.errors) > 0 {
		return
	}
	for i := range list {
		if s := &list[i]; s.key() == "virtual_server_group" {
			if _, ok := k.groups[s.arg(0)]; ok {
				k.leave(s.at, s.key(), "group %q stands twice; the first one counts", clip(s.arg(0)))
				continue
			}
			k.groups[s.arg(0)] = s
		}
	}
	for i := range list {
		if k.top(&list[i]); len(m.errors) >= maxErrors {
			return
		}
	}
}

// keepalived is the state of reading one.
type keepalived struct {
	*Importer
	groups map[string]*statement
}

// top reads a statement that stands in no block.
func (k *keepalived) top(s *statement) {
	switch key := s.key(); {
	case key == "":
		k.leave(s.at, `""`, "says nothing")
	case key == "virtual_server":
		k.virtualServer(s)
	case key == "virtual_server_group":
	case strings.HasPrefix(key, "include"):
		k.leave(s.at, key, "%q is not read: import it too, behind this file", clip(s.arg(0)))
	case key[0] == '$':
		k.leave(s.at, clip(key), "parameters are not replaced: write their values where they stand")
	case key[0] == '@':
		k.leave(s.at, clip(key), "a line for one director only is not carried: %q", clip(strings.Join(s.words[1:], " ")))
	case key == "global_defs" || strings.HasPrefix(key, "vrrp_") || strings.HasPrefix(key, "static_") || strings.HasPrefix(key, "track_") || key == "bfd_instance" || key == "net_namespace" || key == "linkbeat_interfaces" || key == "garp_group":
		k.leave(s.at, strings.TrimSpace(key+" "+clip(s.arg(0))), "is about the director itself, not about its services")
	default:
		k.leave(s.at, clip(key), "cannot be said in a configuration")
	}
}

// fields maps the keys of a block to what reads them. Of a key that is none of them the statement is left out by name.
type fields map[string]func(s *statement)

func (k *keepalived) block(list []statement, key string, f fields) {
	for i := range list {
		s := &list[i]
		read := f[s.key()]
		switch {
		case read != nil && parameter(s):
			k.leave(s.at, key+"."+s.key(), "parameters are not replaced: write the value in the place of %q", clip(strings.Join(s.words[1:], " ")))
		case read != nil:
			read(s)
		case strings.HasPrefix(s.key(), "include"):
			k.leave(s.at, key+"."+clip(s.key()), "%q is not read: write what is in it here", clip(s.arg(0)))
		case s.open:
			k.leave(s.at, key+"."+clip(s.key()), "the block cannot be said in a configuration")
		default:
			k.leave(s.at, key+"."+clip(s.key()), "cannot be said in a configuration")
		}
	}
}

// parameter says whether a statement has a parameter in it.
func parameter(s *statement) bool {
	for _, w := range s.words[1:] {
		if strings.HasPrefix(w, "$") || strings.Contains(w, "${") || strings.HasPrefix(w, "~SEQ") {
			return true
		}
	}
	return false
}

// checking is what a virtual server says for the checks of its servers.
type checking struct {
	interval, timeout uint32 // milliseconds; zero: not said
	retry             int    // negative: not said
	host              string
	alpha             bool
}

// virtualServer reads a virtual server with its real servers.
func (k *keepalived) virtualServer(s *statement) {
	v := virtual{file: k.file, at: s.at, scheduler: "wlc", persistence: Persistence{Netmask: 32, Netmask6: 128}}
	what := clip(strings.Join(s.words[1:], " "))
	v.key, v.from = "virtual_server "+what, fmt.Sprintf("virtual_server %s, line %d", what, s.at.line)
	common := checking{retry: -1}
	protocol, sctp := "tcp", false
	method := server{Server: Server{Weight: 1, Method: nat}}
	noted := func(to *string) func(s *statement) { return func(s *statement) { *to = s.arg(0) } }
	schedule := func(s *statement) { v.scheduler, v.schedulerAt = s.arg(0), s.at }
	kind := func(s *statement) { k.method(s, &method) }
	flag := func(s *statement) { v.flags, v.flagsAt = append(v.flags, s.key()), s.at }
	number := func(to *uint32) func(s *statement) { return func(s *statement) { *to = k.number(s, 0, 1<<31-1) } }
	nothing := func(*statement) {}
	family := ""

	// First what everything else depends on, in whatever order it stands.
	k.pick(s.block, v.key, fields{
		"lb_kind": kind, "lvs_method": kind,
		"protocol": func(s *statement) {
			switch protocol = strings.ToLower(s.arg(0)); protocol {
			case "tcp", "udp":
			case "sctp":
				sctp = true
			default:
				k.fail(s.at, v.key+".protocol", "%q is none of TCP, UDP, SCTP", clip(s.arg(0)))
			}
		},
		"ip_family":       noted(&family),
		"delay_loop":      func(s *statement) { common.interval = k.seconds(s) },
		"connect_timeout": func(s *statement) { common.timeout = k.seconds(s) },
		"retry":           func(s *statement) { common.retry = int(k.number(s, 0, 1000)) },
		"virtualhost":     noted(&common.host),
		"alpha":           func(s *statement) { common.alpha = k.boolean(s) },
	})
	k.listen(s, &v, protocol, family)
	if sctp {
		v.out, v.listen = "SCTP cannot be said in a configuration", nil
	}
	k.block(s.block, v.key, fields{
		"lb_kind": nothing, "lvs_method": nothing, "protocol": nothing, "ip_family": nothing, "delay_loop": nothing, "connect_timeout": nothing,
		"retry": nothing, "virtualhost": nothing, "alpha": nothing,
		"lb_algo": schedule, "lvs_sched": schedule,
		"sh-port": flag, "sh-fallback": flag, "mh-port": flag, "mh-fallback": flag, "flag-1": flag, "flag-2": flag, "flag-3": flag,
		"ops": func(s *statement) { v.ops, v.opsAt = true, s.at },
		"persistence_timeout": func(s *statement) {
			v.persistent, v.persistence.Seconds = true, 360
			if s.arg(0) != "" {
				v.persistence.Seconds = k.number(s, 1, 1<<31-1)
			}
		},
		"persistence_granularity": func(s *statement) { k.netmask(&v, s.arg(0), s.at) },
		"quorum":                  number(&v.quorum),
		"hysteresis":              number(&v.hysteresis),
		"omega": func(s *statement) {
			k.leave(s.at, v.key+".omega", "what is done at the end is not said: connections go on")
		},
		"inhibit_on_failure":      func(s *statement) { k.inhibit(s, &v, v.key) },
		"sorry_server":            func(s *statement) { k.sorry(s, &v, method) },
		"sorry_server_lvs_method": nothing,
		"real_server":             func(s *statement) { k.realServer(s, &v, method, common) },
	})
	k.pick(s.block, v.key, fields{"sorry_server_lvs_method": func(s *statement) {
		if v.sorry != nil {
			k.method(s, v.sorry)
		}
	}})
	if len(k.errors) == 0 {
		k.virtual = append(k.virtual, v)
	}
}

// pick reads only some keys of a block.
func (k *keepalived) pick(list []statement, key string, f fields) {
	for i := range list {
		if s := &list[i]; f[s.key()] != nil && !parameter(s) {
			f[s.key()](s)
		}
	}
}

// listen reads what a virtual server listens on: an address, a mark, or a group of both.
func (k *keepalived) listen(s *statement, v *virtual, protocol, family string) {
	v.six = family == "inet6"
	if parameter(s) {
		v.out = "parameters are not replaced: write their values in their place"
		return
	}
	switch s.arg(0) {
	case "fwmark":
		k.fwmark(s, s.arg(1), v, protocol)
	case "group":
		name := s.arg(1)
		v.name = name
		g := k.groups[name]
		if g == nil {
			v.out = fmt.Sprintf("the file has no virtual_server_group %q", clip(name))
			return
		}
		for i := range g.block {
			if m := &g.block[i]; m.key() == "fwmark" {
				k.fwmark(m, m.arg(0), v, protocol)
			} else {
				k.members(m, m.words, v, protocol)
			}
			if len(k.errors) > 0 {
				return
			}
		}
		if v.mark != 0 && len(v.listen) > 0 {
			v.out = "" // what other marks are is named by itself
		}
	default:
		k.members(s, s.words[1:], v, protocol)
	}
}

// fwmark adds what has a mark.
func (k *keepalived) fwmark(s *statement, text string, v *virtual, protocol string) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		k.fail(s.at, v.key, "firewall mark %q is no number from 1 on", clip(text))
		return
	}
	had := len(v.listen)
	k.mark(v, uint32(n))
	if had > 0 && v.out != "" {
		k.leave(s.at, v.key, "%s; it is left out", v.out)
		v.out = ""
	}
}

// members adds an address, or a range of its last part, with a port: "198.18.0.80-83 80".
func (k *keepalived) members(s *statement, words []string, v *virtual, protocol string) {
	if len(words) == 0 {
		k.fail(s.at, v.key, "names no address")
		return
	}
	text, portText := words[0], "0"
	if len(words) > 1 {
		portText = words[1]
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		k.fail(s.at, v.key, "port %q is no number up to 65535", clip(portText))
		return
	}
	if len(words) > 2 {
		k.leave(s.at, v.key, "%q cannot be said in a configuration", clip(strings.Join(words[2:], " ")))
	}
	first, last, err := addressRange(text)
	if name, ok := errors.AsType[nameError](err); ok {
		k.leave(s.at, v.key, "%q is a name, and names are not looked up: write its address", clip(string(name)))
		return
	}
	if err != nil {
		k.fail(s.at, v.key, "%v", err)
		return
	}
	for a := first; ; a = a.Next() {
		if len(v.listen) == maxListeners {
			k.fail(s.at, v.key, "has more than %d addresses", maxListeners)
			return
		}
		if !k.count(s.at, 1) {
			return
		}
		v.listen = append(v.listen, Listen{Addr: a, Port: uint16(port), Protocol: protocol})
		if a == last {
			return
		}
	}
}

// addressRange reads "198.18.0.80" or "198.18.0.80-83"; the end of an IPv6 range is hexadecimal.
func addressRange(text string) (first, last netip.Addr, err error) {
	low, high, isRange := strings.Cut(text, "-")
	first, err = netip.ParseAddr(low)
	if err != nil && isName(text) {
		return first, last, nameError(text)
	}
	if err != nil || first.Zone() != "" {
		return first, last, fmt.Errorf("%q is no address", clip(text))
	}
	if !isRange {
		return first, first, nil
	}
	if first.Is4() {
		n, err := strconv.ParseUint(high, 10, 8)
		b := first.As4()
		if err != nil || uint8(n) < b[3] {
			return first, last, fmt.Errorf("%q is no range of addresses such as 198.18.0.80-83", clip(text))
		}
		b[3] = uint8(n)
		return first, netip.AddrFrom4(b), nil
	}
	n, err := strconv.ParseUint(high, 16, 16)
	b := first.As16()
	if err != nil || uint16(n) < uint16(b[14])<<8|uint16(b[15]) {
		return first, last, fmt.Errorf("%q is no range of addresses such as 2001:db8::10-1f", clip(text))
	}
	b[14], b[15] = byte(n>>8), byte(n)
	return first, netip.AddrFrom16(b), nil
}

// method reads NAT, DR or TUN with the tunnel's options.
func (k *keepalived) method(s *statement, to *server) {
	kind, ok := map[string]string{"NAT": nat, "DR": dr, "TUN": tun}[strings.ToUpper(s.arg(0))]
	if !ok {
		k.fail(s.at, s.key(), "%q is none of NAT, DR, TUN", clip(s.arg(0)))
		return
	}
	to.Method, to.Tunnel = kind, Tunnel{}
	words := s.words[2:]
	for len(words) > 0 {
		switch w := words[0]; {
		case w == "type" && len(words) > 1 && (words[1] == "ipip" || words[1] == "gre" || words[1] == "gue"):
			to.Tunnel.Type, words = words[1], words[1:]
		case w == "port" && len(words) > 1:
			n, err := strconv.ParseUint(words[1], 10, 16)
			if err != nil || n == 0 {
				k.fail(s.at, s.key(), "port %q is no number from 1 to 65535", clip(words[1]))
			}
			to.Tunnel.Port, words = uint16(n), words[1:]
		case w == "nocsum":
			to.Tunnel.Checksum = "none"
		case w == "csum":
			to.Tunnel.Checksum = "full"
		case w == "remcsum":
			to.Tunnel.Checksum = "remote"
		default:
			k.fail(s.at, s.key(), "%q is none of type ipip|gue|gre, port NUMBER, nocsum, csum, remcsum", clip(w))
			return
		}
		words = words[1:]
	}
}

// real reads the address of a server.
func (k *keepalived) real(s *statement, v *virtual, method server) (r server, ok bool) {
	r = method
	r.at, r.key = s.at, v.key+"."+s.key()+" "+clip(strings.Join(s.words[1:], " "))
	if parameter(s) {
		k.leave(s.at, r.key, "parameters are not replaced: write their values in their place; the server is left out")
		return r, false
	}
	a, err := netip.ParseAddr(s.arg(0))
	switch {
	case err != nil && isName(s.arg(0)):
		k.leave(s.at, r.key, "%q is a name, and names are not looked up: write its address; the server is left out", clip(s.arg(0)))
		return r, false
	case err != nil || a.Zone() != "":
		k.fail(s.at, r.key, "%q is no address", clip(s.arg(0)))
		return r, false
	}
	r.Addr = a.Unmap()
	if text := s.arg(1); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			k.fail(s.at, r.key, "port %q is no number up to 65535", clip(text))
			return r, false
		}
		r.Port = uint16(n)
	} else if v.mark == 0 && len(v.listen) > 0 {
		r.Port = v.listen[0].Port
	}
	return r, k.count(s.at, 1)
}

func (k *keepalived) sorry(s *statement, v *virtual, method server) {
	r, ok := k.real(s, v, method)
	if !ok {
		return
	}
	v.sorry = &r
	k.block(s.block, r.key, fields{})
}

// inhibit reads inhibit_on_failure: a server that is down keeps its connections, which it does here anyway. Only the
// clients that persistence has sent to it would go on coming, too.
func (k *keepalived) inhibit(s *statement, v *virtual, key string) {
	k.leave(s.at, key+".inhibit_on_failure", "a server that is down keeps its connections and gets no new ones, as said; but clients that persistence keeps at it go elsewhere")
}

// realServer reads a server with its checks.
func (k *keepalived) realServer(s *statement, v *virtual, method server, common checking) {
	r, ok := k.real(s, v, method)
	if !ok {
		return
	}
	own := common
	checks := fields{}
	nothing := func(*statement) {}
	for name := range checkers {
		checks[name] = nothing
	}
	checks["weight"] = func(s *statement) { r.Weight = k.number(s, 0, 1<<31-1) }
	checks["lvs_method"] = func(s *statement) { k.method(s, &r) }
	checks["uthreshold"] = func(s *statement) { r.Upper = k.number(s, 0, 1<<31-1) }
	checks["lthreshold"] = func(s *statement) { r.Lower = k.number(s, 0, 1<<31-1) }
	checks["inhibit_on_failure"] = func(s *statement) {
		if v.persistent || k.boolean(s) {
			k.inhibit(s, v, r.key)
		}
	}
	checks["delay_loop"] = func(s *statement) { own.interval = k.seconds(s) }
	checks["connect_timeout"] = func(s *statement) { own.timeout = k.seconds(s) }
	checks["retry"] = func(s *statement) { own.retry = int(k.number(s, 0, 1000)) }
	checks["virtualhost"] = func(s *statement) { own.host = s.arg(0) }
	checks["alpha"] = func(s *statement) { own.alpha = k.boolean(s) }
	k.block(s.block, r.key, checks)
	for i := range s.block {
		c := &s.block[i]
		if _, is := checkers[c.key()]; !is {
			continue
		}
		if r.check != nil {
			k.leave(c.at, r.key+"."+c.key(), "a server has one check; the first one counts")
			continue
		}
		r.check = k.check(c, &r, own, v)
	}
	v.servers = append(v.servers, r)
}

// number reads a statement's number.
func (k *keepalived) number(s *statement, low, high uint64) uint32 {
	n, err := strconv.ParseUint(s.arg(0), 10, 64)
	if err != nil || n < low || n > high {
		k.fail(s.at, clip(s.key()), "%q: a number from %d to %d is wanted", clip(s.arg(0)), low, high)
		return 0
	}
	return uint32(n)
}

// seconds reads a duration in seconds, such as 3 or 0.5, as milliseconds.
func (k *keepalived) seconds(s *statement) uint32 {
	n, err := strconv.ParseFloat(s.arg(0), 64)
	if err != nil || !(n >= 0.001 && n <= maxSeconds) {
		k.fail(s.at, clip(s.key()), "%q: seconds from 0.001 to %d are wanted", clip(s.arg(0)), maxSeconds)
		return 0
	}
	return uint32(n*1000 + 0.5)
}

// boolean reads a switch, which is on where nothing follows it.
func (k *keepalived) boolean(s *statement) bool {
	switch strings.ToLower(s.arg(0)) {
	case "", "on", "true", "yes":
		return true
	case "off", "false", "no":
		return false
	}
	k.fail(s.at, clip(s.key()), "%q is neither on nor off", clip(s.arg(0)))
	return false
}
