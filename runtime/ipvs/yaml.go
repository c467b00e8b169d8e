package ipvs

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// YAML writes what was imported as the services and groups of a configuration, which lacks card and ports. Names have only
// letters, digits and a few signs, and every text from a file that is more than that stands in quotes.
func (g *Imported) YAML() string {
	var b strings.Builder
	for _, p := range g.Left {
		fmt.Fprintf(&b, "# not carried: %s\n", line(p.String()))
	}
	list := func(key string, n int) {
		b.WriteString(key + ":" + map[bool]string{true: " []"}[n == 0] + "\n")
	}
	list("services", len(g.Services))
	for i := range g.Services {
		g.Services[i].write(&b)
	}
	list("groups", len(g.Groups))
	for i := range g.Groups {
		g.Groups[i].write(&b)
	}
	return b.String()
}

// line is a text as one line of a comment.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func (s *Service) write(b *strings.Builder) {
	fmt.Fprintf(b, "  - name: %s  # %s\n", quoted(s.Name), line(s.From))
	var listen []string
	for _, l := range s.Listen {
		listen = append(listen, address(l.String()))
	}
	fmt.Fprintf(b, "    listen: [%s]\n    mode: %s\n    protocol: %s\n    default: %s\n", strings.Join(listen, ", "), s.Mode, s.Protocol, quoted(s.Group))
	if s.OnePacket {
		b.WriteString("    one_packet: true\n")
	}
	if s.FTP {
		b.WriteString("    module: ftp\n")
	}
	if p := s.Persistence; p != nil {
		f := flow{}
		f.add(true, "time", strconv.FormatUint(uint64(p.Seconds), 10)+"s")
		f.add(p.Netmask != 32, "netmask", p.Netmask)
		f.add(p.Netmask6 != 128, "netmask6", p.Netmask6)
		f.add(p.All, "ports", "all")
		fmt.Fprintf(b, "    persistence: %s\n", f)
	}
}

func (g *Group) write(b *strings.Builder) {
	fmt.Fprintf(b, "  - name: %s\n    scheduler: %s\n", quoted(g.Name), g.Scheduler)
	if g.Port || g.Fallback {
		f := flow{}
		f.add(g.Port, "port", true)
		f.add(g.Fallback, "fallback", true)
		fmt.Fprintf(b, "    hash: %s\n", f)
	}
	fmt.Fprintf(b, "    method: %s\n", g.Method)
	if g.Tunnel != (Tunnel{}) {
		fmt.Fprintf(b, "    tunnel: %s\n", g.Tunnel.flow())
	}
	if g.Check != nil {
		fmt.Fprintf(b, "    check: %s\n", g.Check.flow())
	}
	if g.Quorum > 0 {
		fmt.Fprintf(b, "    quorum: %d\n", g.Quorum)
	}
	if g.Hysteresis > 0 {
		fmt.Fprintf(b, "    hysteresis: %d\n", g.Hysteresis)
	}
	if g.Sorry != "" {
		fmt.Fprintf(b, "    sorry: %s\n", quoted(g.Sorry))
	}
	b.WriteString("    servers:\n")
	for i := range g.Servers {
		s := &g.Servers[i]
		f := flow{}
		f.add(true, "address", address(endpoint(s.Addr, s.Port)))
		f.add(true, "weight", s.Weight)
		f.add(s.Method != "", "method", s.Method)
		f.add(s.Upper > 0, "upper", s.Upper)
		f.add(s.Lower > 0, "lower", s.Lower)
		f.add(s.Tunnel != Tunnel{}, "tunnel", s.Tunnel.flow())
		fmt.Fprintf(b, "      - %s\n", f)
	}
}

func (t Tunnel) flow() flow {
	f := flow{}
	kind := t.Type
	if kind == "" {
		kind = "ipip"
	}
	f.add(true, "type", kind)
	f.add(t.Port != 0, "port", t.Port)
	f.add(t.Checksum != "", "checksum", t.Checksum)
	return f
}

func (c *Check) flow() flow {
	f := flow{}
	f.add(true, "type", c.Type)
	f.add(c.Port != 0, "port", c.Port)
	f.add(c.Path != "", "path", strconv.Quote(c.Path))
	f.add(c.Host != "", "host", strconv.Quote(c.Host))
	f.add(len(c.Status) > 0, "status", "["+strings.Join(c.Status, ", ")+"]")
	f.add(c.Send != "", "send", strconv.Quote(c.Send))
	f.add(c.Expect != "", "expect", strconv.Quote(c.Expect))
	f.add(c.Interval > 0, "interval", millis(c.Interval))
	f.add(c.Timeout > 0, "timeout", millis(c.Timeout))
	f.add(c.Type != "none", "rise", 1) // keepalived takes a server back at its first answer
	f.add(c.Fall > 0, "fall", c.Fall)
	f.add(c.Down, "start", "down")
	return f
}

// millis writes milliseconds as a duration.
func millis(ms uint32) string {
	if ms%1000 == 0 {
		return strconv.FormatUint(uint64(ms/1000), 10) + "s"
	}
	return strconv.FormatUint(uint64(ms), 10) + "ms"
}

// flow is a mapping on one line.
type flow []string

func (f *flow) add(is bool, key string, value any) {
	if is {
		*f = append(*f, fmt.Sprintf("%s: %v", key, value))
	}
}

// String returns the mapping.
func (f flow) String() string { return "{" + strings.Join(f, ", ") + "}" }

// address writes an address in a list: with brackets or a star in it, it would be something else of YAML.
func address(s string) string {
	if strings.ContainsAny(s, "[*") {
		return strconv.Quote(s)
	}
	return s
}

// quoted writes a name: one that begins with no letter may be a number, and one such as "true" is no text.
func quoted(s string) string {
	switch strings.ToLower(s) {
	case "", "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		return strconv.Quote(s)
	}
	if c := s[0] | 0x20; c < 'a' || c > 'z' {
		return strconv.Quote(s)
	}
	return s
}
