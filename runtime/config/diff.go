package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Change is one difference between two configurations.
type Change struct {
	Op   string `json:"op"`   // "add", "remove" or "change"
	Kind string `json:"kind"` // "setting", "port", "vip", "listener", "service", "rule", "group" or "server"
	Name string `json:"name"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Diff tells what b has other than a, in a fixed order. Either may be nil: nothing.
func Diff(a, b *Config) []Change {
	from, to := facts(a), facts(b)
	changes := []Change{}
	for _, key := range sortedKeys(from, to) {
		f, had := from[key]
		t, has := to[key]
		c := Change{Kind: key.kind, Name: key.name, From: f, To: t}
		switch {
		case !had:
			c.Op = "add"
		case !has:
			c.Op = "remove"
		case f != t:
			c.Op = "change"
		default:
			continue
		}
		changes = append(changes, c)
	}
	return changes
}

// A fact is something a configuration says, under a name.
type fact struct{ kind, name string }

var kindOrder = []string{"setting", "port", "vip", "listener", "service", "rule", "group", "server"}

func sortedKeys(maps ...map[fact]string) []fact {
	var keys []fact
	for _, m := range maps {
		for k := range m {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b fact) int {
		return cmp.Or(cmp.Compare(slices.Index(kindOrder, a.kind), slices.Index(kindOrder, b.kind)), cmp.Compare(a.name, b.name))
	})
	return slices.Compact(keys)
}

// facts spells a configuration out.
func facts(c *Config) map[fact]string {
	m := map[fact]string{}
	if c == nil {
		return m
	}
	m[fact{"setting", "card"}] = c.Card.String()
	m[fact{"setting", "seed"}] = strconv.FormatUint(c.Seed, 10)
	m[fact{"setting", "socket"}] = c.Socket
	m[fact{"setting", "defence"}] = c.Defence.describe()
	if c.DNS != nil {
		m[fact{"setting", "dns"}] = c.DNS.describe()
	}
	m[fact{"setting", "log"}] = c.Log.describe()
	m[fact{"setting", "emu"}] = strings.TrimSuffix(c.Emu.Client.String()+" "+c.Emu.Server.String(), " ")
	if c.Emu.Flash != "" {
		m[fact{"setting", "emu.flash"}] = c.Emu.Flash
	}
	for i, p := range c.Ports() {
		m[fact{"port", portKey(i)}] = p.describe()
	}
	for i := range c.Services {
		c.Services[i].facts(m)
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		m[fact{"group", g.Name}] = "scheduler " + string(g.Scheduler) + g.spread() + g.checked()
		if !g.Sorry.Nowhere() {
			m[fact{"group", g.Name}] += ", sorry " + g.Sorry.describe()
		}
		for _, s := range g.Servers {
			m[fact{"server", g.Name + " " + s.Name()}] = fmt.Sprintf("weight %d%s%s", s.Weight, s.way(), s.Profile.describe())
		}
	}
	return m
}

func (s *Service) facts(m map[fact]string) {
	to := "no default"
	if !s.Default.Nowhere() {
		to = "default " + s.Default.describe()
	}
	m[fact{"service", s.Name}] = fmt.Sprintf("%s, isn %s, defence %s%s, idle %v, wait_head %v, reset %v%s%s", to, s.ISN, s.Defence, s.promise(), s.Idle, s.WaitHead, !s.IdleSilent, s.spoken(), s.carried())
	for _, l := range s.Listeners() {
		key := fact{"listener", strings.TrimSuffix(listenerName(l), "/tcp")}
		if first, ok := m[key]; ok {
			m[key] = first + ", " + s.Name
		} else {
			m[key] = s.Name
		}
		m[fact{"vip", l.Addr.Addr().String()}] = ""
	}
	for i, r := range s.Routes {
		name := s.Name + " " + cmp.Or(r.Match.String(), "/*")
		if _, twice := m[fact{"rule", name}]; twice {
			name += " (" + strconv.Itoa(i) + ")"
		}
		m[fact{"rule", name}] = r.To.describe()
	}
}

// spoken names what a service makes of its clients' words, where that is not as ever.
func (s *Service) spoken() string {
	text := ""
	for _, x := range []struct {
		differs bool
		what    string
	}{
		{s.Protocol != HTTP && !s.Layer4(), "protocol " + s.Protocol.String()},
		{s.H2C != "", "h2c " + s.H2C},
		{s.ServerFirst, "server_first"},
		{s.Fallback != 0, "fallback " + s.Fallback.String()},
		{s.Requests != First, "requests " + s.Requests.String()},
		{s.Proxy, "proxy v2"},
		{s.Forwarded != NoForwarded, "forwarded " + s.Forwarded.String() + " " + s.Existing.String()},
		{s.MaxTarget != 0, "target " + strconv.Itoa(s.MaxTarget)},
		{s.MaxHead != 0, "head " + strconv.Itoa(s.MaxHead)},
	} {
		if x.differs {
			text += ", " + x.what
		}
	}
	return text
}

// carried names how connections are passed on, and which.
func (s *Service) carried() string {
	p := &s.Persistence
	text := ""
	for _, x := range []struct {
		differs bool
		what    string
	}{
		{s.Layer4(), "mode " + s.Mode.String() + " " + s.Protocol.String()},
		{len(s.Source) > 0, "source " + words(s.Source)},
		{s.OnePacket, "one_packet"},
		{s.Sloppy, "sloppy"},
		{p.On(), fmt.Sprintf("persistence %v /%d /%d", p.Time, p.Netmask, p.Netmask6)},
		{p.AllPorts, "ports all"},
		{p.Cookie != "", "persistence cookie " + p.Cookie},
		{s.ExpireQuiescent, "expire_quiescent"},
		{s.ExpireNodest, "expire_nodest"},
		{s.KeepServer, "no conn_reuse"},
		{s.Module != "", "module " + s.Module},
	} {
		if x.differs {
			text += ", " + x.what
		}
	}
	return text
}

// words writes values with spaces between them.
func words[T fmt.Stringer](list []T) string {
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = list[i].String()
	}
	return strings.Join(texts, " ")
}

// spread names what a group says beside its scheduler and servers.
func (g *Group) spread() string {
	text := ""
	for _, x := range []struct {
		differs bool
		what    string
	}{
		{g.Hash.Port, "hash port"},
		{g.Hash.Fallback, "hash fallback"},
		{len(g.Local) > 0, "local " + words(g.Local)},
		{g.SlowStart != 0, "slow_start " + g.SlowStart.String()},
		{g.Drain != 0, "drain " + g.Drain.String()},
	} {
		if x.differs {
			text += ", " + x.what
		}
	}
	return text
}

// way names how a server is reached, and how much it takes.
func (s *Server) way() string {
	text := ""
	for _, x := range []struct {
		differs bool
		what    string
	}{
		{s.Method != Splice && s.Method != NAT, "method " + s.Method.String()},
		{s.Tunnel != Tunnel{At: s.Tunnel.At}, s.Tunnel.String()},
		{s.Return, "return card"},
		{s.Upper != 0, fmt.Sprintf("upper %d lower %d", s.Upper, s.Lower)},
		{s.Cookie != "", "cookie " + s.Cookie},
	} {
		if x.differs {
			text += ", " + x.what
		}
	}
	return text
}

// describe spells a target out, so that two that differ look so.
func (t Target) describe() string {
	r := t.Reply
	if r == nil {
		return t.Group
	}
	text := t.String()
	if r.ContentType != "" {
		text += " " + r.ContentType
	}
	if r.Body != "" {
		text += " " + strconv.Quote(r.Body)
	}
	if to := r.Redirect; to != nil {
		text += fmt.Sprintf(" redirect scheme %q, host %q, port %d, path %q, prefix %v", to.Scheme, to.Host, to.Port, to.Path, to.ReplacePrefix)
	}
	return text
}

func (l Log) describe() string {
	if l.File == "" {
		return ""
	}
	return fmt.Sprintf("%s, size %d, keep %d", l.File, l.Bytes, l.Keep)
}

func (p Pressure) describe() string {
	var parts []string
	for _, x := range []struct {
		name string
		n    uint32
	}{{"rate_on", p.RateOn}, {"rate_off", p.RateOff}, {"source_rate", p.SourceRate}, {"source_burst", p.SourceBurst}} {
		if x.n != 0 {
			parts = append(parts, x.name+" "+strconv.FormatUint(uint64(x.n), 10))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *Port) describe() string {
	var b strings.Builder
	for _, a := range p.Addresses {
		b.WriteString(a.Prefix.String())
		if a.VLAN != 0 {
			fmt.Fprintf(&b, " vlan %d", a.VLAN)
		}
		b.WriteString(", ")
	}
	for _, g := range p.Gateways {
		fmt.Fprintf(&b, "gateway %s, ", g.Address)
	}
	b.WriteString(strings.TrimPrefix(p.SNAT.describe()+", ", ", "))
	if p.Forward {
		return b.String() + "forward routed"
	}
	return b.String() + "forward off"
}

func (p Profile) describe() string {
	if !p.Known {
		return ""
	}
	return strings.TrimSuffix(", profile "+p.String(), " ")
}

// String returns what is kept, in words.
func (p Profile) String() string {
	s := ""
	if p.MSS != 0 {
		s += fmt.Sprintf(" mss %d", p.MSS)
	}
	if p.WScaleOn {
		s += fmt.Sprintf(" wscale %d", p.WScale)
	}
	if p.SACK {
		s += " sack"
	}
	if p.Timestamps {
		s += " timestamps"
	}
	if p.ECN {
		s += " ecn"
	}
	return strings.TrimPrefix(s, " ")
}

// promise names how TCP options are treated, where that is not as ever.
func (s *Service) promise() string {
	text := ""
	if s.MSS != 0 {
		text = fmt.Sprintf(", mss %d", s.MSS)
	}
	for _, o := range []struct {
		name string
		p    Policy
	}{{"mss", s.Options.MSS}, {"wscale", s.Options.WScale}, {"sack", s.Options.SACK}, {"timestamps", s.Options.Timestamps}, {"ecn", s.Options.ECN}} {
		if o.p != Preserve {
			text += ", " + o.name + " " + o.p.String()
		}
	}
	return text
}
