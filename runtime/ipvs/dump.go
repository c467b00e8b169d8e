package ipvs

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"splicenic/runtime/config"
)

// isDump says whether a text looks like what ipvsadm prints or takes, by its first line that is no comment.
func isDump(text []byte) bool {
	for line := range bytes.Lines(text) {
		if words := commandWords(string(line)); len(words) > 0 {
			return words[0].text[0] == '-'
		}
	}
	return false
}

// word is a part of a line with the column it begins in.
type word struct {
	text   string
	column int
}

// commandWords splits a line of a dump, or a call of ipvsadm in a script.
func commandWords(line string) (words []word) {
	line, _, _ = strings.Cut(line, "#")
	begin := -1
	for i, r := range line + " " {
		switch space := unicode.IsSpace(r); {
		case space && begin >= 0:
			words = append(words, word{line[begin:i], begin + 1})
			begin = -1
		case !space && begin < 0:
			begin = i
		}
	}
	for len(words) > 0 && (words[0].text == "sudo" || words[0].text == "ipvsadm" || strings.HasSuffix(words[0].text, "/ipvsadm")) {
		words = words[1:]
	}
	return words
}

// An argument says what follows an option.
type argument uint8

const (
	alone argument = iota
	wanted
	possible // taken where the next word is no option
)

// options are those of ipvsadm 1.31 that say something about services and servers. Every other one is a command.
var options = []struct {
	short    string
	long     string
	argument argument
}{
	{"A", "add-service", alone}, {"E", "edit-service", alone}, {"a", "add-server", alone}, {"e", "edit-server", alone},
	{"C", "clear", alone}, {"R", "restore", alone}, {"n", "numeric", alone}, {"S", "save", alone}, {"Z", "zero", alone},
	{"D", "delete-service", alone}, {"d", "delete-server", alone},
	{"t", "tcp-service", wanted}, {"u", "udp-service", wanted}, {"", "sctp-service", wanted}, {"f", "fwmark-service", wanted},
	{"s", "scheduler", wanted}, {"b", "sched-flags", wanted}, {"p", "persistent", possible}, {"M", "netmask", wanted},
	{"", "pe", wanted}, {"o", "ops", alone}, {"6", "ipv6", alone},
	{"r", "real-server", wanted}, {"g", "gatewaying", alone}, {"i", "ipip", alone}, {"m", "masquerading", alone},
	{"w", "weight", wanted}, {"x", "u-threshold", wanted}, {"y", "l-threshold", wanted},
	{"", "tun-type", wanted}, {"", "tun-port", wanted}, {"", "tun-nocsum", alone}, {"", "tun-csum", alone}, {"", "tun-remcsum", alone},
	{"", "set", alone}, {"", "start-daemon", wanted}, {"", "stop-daemon", wanted}, {"", "mcast-interface", wanted}, {"", "syncid", wanted},
	{"", "sync-maxlen", wanted}, {"", "mcast-group", wanted}, {"", "mcast-port", wanted}, {"", "mcast-ttl", wanted},
}

// given is an option with its argument.
type given struct {
	name string // the long one
	word word   // the argument, or the option itself
}

// dump reads what ipvsadm -S printed.
func (m *Importer) dump(text []byte) {
	d := dump{Importer: m, services: map[string]int{}}
	for line := range bytes.Lines(text) {
		d.line++
		if words := commandWords(string(line)); len(words) > 0 {
			d.command(words)
		}
		if len(m.errors) >= maxErrors {
			return
		}
	}
}

// dump is the state of reading one.
type dump struct {
	*Importer
	line     int
	services map[string]int // by "-t ADDRESS:PORT": place in virtual
}

func (d *dump) at(w word) place { return place{d.line, w.column} }

// parse reads the options of a line.
func (d *dump) parse(words []word) (list []given, ok bool) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		name, value, attached := w.text, "", false
		var kind argument
		found := false
		for _, o := range options {
			switch {
			case strings.HasPrefix(name, "--"):
				long, v, eq := strings.Cut(name[2:], "=")
				if long == o.long {
					found, value, attached = true, v, eq
				}
			case o.short != "" && len(name) > 1 && name[0] == '-' && name[1:2] == o.short:
				found, value, attached = true, strings.TrimPrefix(name[2:], "="), len(name) > 2
			}
			if found {
				name, kind = o.long, o.argument
				break
			}
		}
		switch {
		case !found && len(list) > 0 && list[len(list)-1].name == "set": // its numbers
			continue
		case !found:
			d.fail(d.at(w), "", "%q is no option of ipvsadm", clip(w.text))
			return nil, false
		case attached && kind == alone:
			d.fail(d.at(w), "", "%q: the option takes no argument", clip(w.text))
			return nil, false
		case attached:
			w.text = value
		case kind == wanted && i+1 == len(words):
			d.fail(d.at(w), "", "%s wants an argument, and the line ends", clip(w.text))
			return nil, false
		case kind == wanted, kind == possible && i+1 < len(words) && words[i+1].text[0] != '-':
			i++
			w = words[i]
		case kind == possible:
			w.text = ""
		}
		list = append(list, given{name, w})
	}
	return list, true
}

// command reads a line.
func (d *dump) command(words []word) {
	list, ok := d.parse(words)
	if !ok {
		return
	}
	switch list[0].name {
	case "add-service", "edit-service":
		d.service(list)
	case "add-server", "edit-server":
		d.server(list)
	case "set":
		d.leave(d.at(words[0]), "--set", "time-outs are said for each service: timeouts: {idle: 15m}")
	case "clear", "restore":
		if len(d.virtual) > 0 && list[0].name == "clear" {
			d.leave(d.at(words[0]), words[0].text, "clears what stands before it, which was read all the same")
		}
	default:
		d.leave(d.at(words[0]), clip(words[0].text), "says nothing about a service or a server that there is")
	}
}

// service reads -A.
func (d *dump) service(list []given) {
	v := virtual{file: d.file, at: place{d.line, list[0].word.column}, scheduler: "wlc", persistence: Persistence{Netmask: 32, Netmask6: 128}, six: has(list, "ipv6")}
	var address *given
	for i, g := range list[1:] {
		switch at := d.at(g.word); g.name {
		case "tcp-service", "udp-service", "sctp-service", "fwmark-service":
			address = &list[1+i]
		case "scheduler":
			v.scheduler, v.schedulerAt = g.word.text, at
		case "sched-flags":
			v.flags, v.flagsAt = strings.Split(g.word.text, ","), at
		case "persistent":
			v.persistent, v.persistence.Seconds = true, 300
			if g.word.text != "" {
				v.persistence.Seconds = d.number(g, 1, 1<<31-1)
			}
		case "netmask":
			d.netmask(&v, g.word.text, at)
		case "pe":
			d.leave(at, "--pe", "persistence engine %q cannot be said in a configuration", clip(g.word.text))
		case "ops":
			v.ops, v.opsAt = true, at
		case "ipv6":
		default:
			d.fail(at, "", "--%s says nothing about a service", g.name)
		}
	}
	if address == nil {
		d.fail(v.at, "", "names no service: -t, -u or -f is wanted")
		return
	}
	key := serviceKey(list)
	v.key, v.from = key, fmt.Sprintf("%s, line %d", key, d.line)
	d.address(&v, address)
	if _, ok := d.services[key]; ok && list[0].name == "add-service" {
		d.leave(v.at, key, "stands twice; the first one counts")
		return
	}
	d.services[key] = len(d.virtual)
	d.virtual = append(d.virtual, v)
}

// has says whether an option is given.
func has(list []given, name string) bool {
	for _, g := range list {
		if g.name == name {
			return true
		}
	}
	return false
}

// serviceKey is the service that a line is about, as ipvsadm prints it.
func serviceKey(list []given) string {
	short := map[string]string{"tcp-service": "-t", "udp-service": "-u", "sctp-service": "--sctp-service", "fwmark-service": "-f"}
	key := ""
	for _, g := range list {
		if s, ok := short[g.name]; ok {
			key = s + " " + clip(g.word.text)
		}
	}
	if has(list, "ipv6") && strings.HasPrefix(key, "-f") {
		key += " -6"
	}
	return key
}

// address reads what a service listens on.
func (d *dump) address(v *virtual, g *given) {
	at := d.at(g.word)
	switch g.name {
	case "sctp-service":
		v.out = "SCTP cannot be said in a configuration"
	case "fwmark-service":
		mark := d.number(*g, 1, 1<<32-1)
		d.mark(v, mark)
	default:
		l := Listen{Protocol: strings.TrimSuffix(g.name, "-service")}
		var err error
		l.Addr, l.Port, _, err = hostPort(g.word.text, l.Protocol)
		if name, ok := errors.AsType[nameError](err); ok {
			v.out = name.Error()
			return
		}
		if err != nil {
			d.fail(at, "", "%v", err)
			return
		}
		if d.count(at, 1) {
			v.listen = []Listen{l}
		}
	}
}

// server reads -a.
func (d *dump) server(list []given) {
	at := place{d.line, list[0].word.column}
	key := serviceKey(list)
	i, ok := d.services[key]
	if key == "" || !has(list, "real-server") {
		d.fail(at, "", "names no service (-t, -u or -f) or no server (-r)")
		return
	}
	if !ok {
		d.leave(at, key, "the service does not stand before its server; the server is left out")
		return
	}
	v := &d.virtual[i]
	s := server{at: at, key: key, Server: Server{Weight: 1, Method: dr}}
	for _, g := range list[1:] {
		switch at := d.at(g.word); g.name {
		case "tcp-service", "udp-service", "sctp-service", "fwmark-service", "ipv6":
		case "real-server":
			s.key += " -r " + clip(g.word.text)
			protocol := "tcp"
			if strings.HasPrefix(key, "-u") {
				protocol = "udp"
			}
			addr, port, given, err := hostPort(g.word.text, protocol)
			if name, ok := errors.AsType[nameError](err); ok {
				d.leave(at, s.key, "%v", name)
				return
			}
			if err != nil {
				d.fail(at, "", "%v", err)
				return
			}
			if s.Addr, s.Port = addr, port; !given && len(v.listen) > 0 && v.mark == 0 {
				s.Port = v.listen[0].Port
			}
		case "gatewaying":
			s.Method = dr
		case "ipip":
			s.Method = tun
		case "masquerading":
			s.Method = nat
		case "weight":
			s.Weight = d.number(g, 0, 1<<31-1)
		case "u-threshold":
			s.Upper = d.number(g, 0, 1<<32-1)
		case "l-threshold":
			s.Lower = d.number(g, 0, 1<<32-1)
		case "tun-type":
			s.Tunnel.Type = g.word.text
			if g.word.text != "ipip" && g.word.text != "gre" && g.word.text != "gue" {
				d.fail(at, "", "tunnel type %q is none of ipip, gue, gre", clip(g.word.text))
			}
		case "tun-port":
			s.Tunnel.Port = uint16(d.number(g, 1, 65535))
		case "tun-nocsum":
			s.Tunnel.Checksum = "none"
		case "tun-csum":
			s.Tunnel.Checksum = "full"
		case "tun-remcsum":
			s.Tunnel.Checksum = "remote"
		default:
			d.fail(at, "", "--%s says nothing about a server", g.name)
		}
	}
	if list[0].name == "edit-server" {
		for k := range v.servers {
			if v.servers[k].Addr == s.Addr && v.servers[k].Port == s.Port {
				v.servers[k] = s
				return
			}
		}
	}
	if d.count(at, 1) {
		v.servers = append(v.servers, s)
	}
}

// number reads an option's number.
func (d *dump) number(g given, low, high uint64) uint32 {
	n, err := strconv.ParseUint(g.word.text, 10, 64)
	if err != nil || n < low || n > high {
		d.fail(d.at(g.word), "", "--%s %q: a number from %d to %d is wanted", g.name, clip(g.word.text), low, high)
		return 0
	}
	return uint32(n)
}

// netmask reads how much of a client's address persistence looks at: 255.255.255.0, or the bits of an IPv6 prefix.
func (m *Importer) netmask(v *virtual, text string, at place) {
	if n, err := strconv.ParseUint(text, 10, 8); err == nil && n >= 1 && n <= 128 {
		v.persistence.Netmask6 = uint8(n)
		return
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		m.fail(at, "", "netmask %q is neither one such as 255.255.255.0 nor the bits of an IPv6 prefix", clip(text))
		return
	}
	b := a.As4()
	mask := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	ones := bits.LeadingZeros32(^mask)
	if mask != ^uint32(0)<<(32-ones) || ones == 0 {
		m.fail(at, "", "netmask %s is no prefix of an address", a)
		return
	}
	v.persistence.Netmask = uint8(ones)
}

// A nameError is an address that only a name server knows.
type nameError string

func (e nameError) Error() string {
	return fmt.Sprintf("%q is a name, and names are not looked up: save the table with ipvsadm -S -n", clip(string(e)))
}

// hostPort reads an address with a port, which may be missing, or the name of a service.
func hostPort(text, protocol string) (a netip.Addr, port uint16, given bool, err error) {
	host, name := text, ""
	if a, err := netip.ParseAddr(text); err != nil || !a.Is6() { // an IPv6 address may stand without brackets
		if i := strings.LastIndexByte(text, ':'); i >= 0 {
			host, name, given = text[:i], text[i+1:], true
		}
		if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
			host = host[1 : n-1]
		}
	}
	if a, err = netip.ParseAddr(host); err != nil {
		if isName(host) {
			return a, 0, false, nameError(host)
		}
		return a, 0, false, fmt.Errorf("%q is no ADDRESS:PORT", clip(text))
	}
	if a.Zone() != "" {
		return a, 0, false, fmt.Errorf("address %q has a zone", clip(text))
	}
	if !given {
		return a.Unmap(), 0, false, nil
	}
	n, err := strconv.ParseUint(name, 10, 16)
	if err == nil {
		return a.Unmap(), uint16(n), true, nil
	}
	if p, ok := ports[name]; ok {
		return a.Unmap(), p, true, nil
	}
	if near := config.Near(name, portNames()); near != "" && isName(name) {
		return a, 0, false, fmt.Errorf("port %q of %q is no number and no service known here (did you mean %q?)", clip(name), clip(text), near)
	}
	return a, 0, false, fmt.Errorf("port %q of %q is no number and no service known here: save the table with ipvsadm -S -n", clip(name), clip(text))
}

// isName says whether a text could be a host's name.
func isName(s string) bool {
	letters := false
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			letters = true
		case r >= '0' && r <= '9', r == '-', r == '.', r == '_':
		default:
			return false
		}
	}
	return letters
}
