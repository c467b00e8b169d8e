package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// CheckType is a way to ask servers whether they work.
type CheckType string

// The types of checks.
const (
	NoCheck   CheckType = ""
	TCPCheck  CheckType = "tcp"
	HTTPCheck CheckType = "http"
	PingCheck CheckType = "ping"
	UDPCheck  CheckType = "udp"
)

// Check says how the servers of a group are asked whether they work. Zeros: what package health says.
type Check struct {
	At                Position
	Type              CheckType
	Port              uint16 // zero: the server's
	Interval, Timeout time.Duration
	Rise, Fall        int
	StartDown         bool // servers are down until checks say something else
	Path, Host        string
	Status            []StatusRange // that are good; empty: 200 to 399
	Send, Expect      string
}

// StatusRange is HTTP statuses from First to Last.
type StatusRange struct{ First, Last uint16 }

// String returns the range as the file writes it.
func (r StatusRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Bounds of a check.
const (
	minCheckInterval = 10 * time.Millisecond
	maxCheckInterval = 24 * time.Hour
	maxCheckRow      = 100
	maxCheckRanges   = 8
	maxCheckText     = 512 // bytes of a text: it goes into one packet
)

// checkKeys are the keys of a group that say how servers are asked, and what becomes of the answers.
func (d *decoder) checkKeys(g *Group) []field {
	return []field{
		{"check", func(v value) { g.Check = d.checkOf(v) }},
		{"quorum", func(v value) { g.Quorum = d.number(v, "quorum", 1, 1<<32-1) }},
		{"hysteresis", func(v value) { g.Hysteresis = d.number(v, "hysteresis", 0, 1<<32-1) }},
	}
}

func (d *decoder) checkOf(v value) Check {
	c := Check{At: v.at}
	given := map[string]value{}
	note := func(key string, decode func(v value)) field {
		return field{key, func(v value) {
			given[key] = v
			decode(v)
		}}
	}
	none := false
	ok := d.mapping(v, "a check", []field{
		note("type", func(v value) {
			t := d.word(v, "type of a check", []string{"tcp", "http", "ping", "udp", "none"}, nil)
			if none = t == "none"; !none {
				c.Type = CheckType(t)
			}
		}),
		note("port", func(v value) { c.Port = uint16(d.number(v, "port", 0, 65535)) }),
		note("interval", func(v value) { c.Interval = d.checkTime(v, "interval") }),
		note("timeout", func(v value) { c.Timeout = d.checkTime(v, "timeout") }),
		note("rise", func(v value) { c.Rise = int(d.number(v, "rise", 1, maxCheckRow)) }),
		note("fall", func(v value) { c.Fall = int(d.number(v, "fall", 1, maxCheckRow)) }),
		note("start", func(v value) { c.StartDown = d.word(v, "start", []string{"up", "down"}, nil) == "down" }),
		note("path", func(v value) { c.Path = d.checkPath(v) }),
		note("host", func(v value) { c.Host = d.checkWord(v, "host") }),
		note("status", func(v value) { c.Status = d.statuses(v) }),
		note("send", func(v value) { c.Send = d.checkText(v) }),
		note("expect", func(v value) { c.Expect = d.checkText(v) }),
	})
	if _, typed := given["type"]; ok && !typed {
		d.problem(v.at, v.key, "type is missing: tcp, http, ping, udp or none")
		return c
	}
	for _, k := range []struct {
		keys []string
		of   []CheckType
	}{
		{[]string{"path", "host", "status"}, []CheckType{HTTPCheck}},
		{[]string{"send", "expect"}, []CheckType{UDPCheck}},
		{[]string{"port"}, []CheckType{TCPCheck, HTTPCheck, UDPCheck}},
	} {
		for _, key := range k.keys {
			x, has := given[key]
			if !has || none || d.complains(join(v.key, "type")) {
				continue
			}
			takes := false
			var names []string
			for _, t := range k.of {
				takes = takes || t == c.Type
				names = append(names, string(t))
			}
			if !takes {
				d.problem(x.at, x.key, "means nothing to a check of type %s, only to %s", c.Type, strings.Join(names, ", "))
			}
		}
	}
	return c
}

// checkTime decodes a time of a check.
func (d *decoder) checkTime(v value, what string) time.Duration {
	var t time.Duration
	d.duration(v, &t)
	if !d.complains(v.key) && t != 0 && (t < minCheckInterval || t > maxCheckInterval) {
		d.problem(v.at, v.key, "%s is %v; it may be %v to %v", what, t, minCheckInterval, maxCheckInterval)
	}
	return t
}

// checkText decodes a text that goes into a datagram, or is expected in one.
func (d *decoder) checkText(v value) string {
	s, ok := d.text(v, "a text")
	if ok && len(s) > maxCheckText {
		d.problem(v.at, v.key, "has %d bytes; %d are the most", len(s), maxCheckText)
	}
	return s
}

// checkWord decodes what goes into a request as it is: nothing that could end its line.
func (d *decoder) checkWord(v value, what string) string {
	s, ok := d.text(v, "a "+what)
	switch {
	case !ok:
	case s == "" || len(s) > maxCheckText:
		d.problem(v.at, v.key, "has %d bytes; it may have 1 to %d", len(s), maxCheckText)
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		d.problem(v.at, v.key, "%q holds a space, a control character or one beyond ASCII, which no request may hold", clip(s))
	}
	return s
}

func (d *decoder) checkPath(v value) string {
	s := d.checkWord(v, "path")
	if s != "" && s[0] != '/' && !d.complains(v.key) {
		d.problem(v.at, v.key, "%q does not begin with a slash", clip(s))
	}
	return s
}

// statuses decodes a list such as [200-299, 404].
func (d *decoder) statuses(v value) (list []StatusRange) {
	d.list(v, func(v value) {
		text := ""
		switch n := v.node.(type) {
		case *ast.StringNode:
			text = n.Value
		case *ast.IntegerNode:
			text = n.GetToken().Value
		}
		first, last, two := strings.Cut(text, "-")
		if !two {
			last = first
		}
		a, ok := status(first)
		b, fine := status(last)
		if !ok || !fine || a > b {
			d.problem(v.at, v.key, "wants a status or a range of them, 100 to 599, such as 200-399; got %s", describe(v.node))
			return
		}
		list = append(list, StatusRange{a, b})
	})
	if len(list) > maxCheckRanges {
		d.problem(v.at, v.key, "has %d ranges; %d are the most", len(list), maxCheckRanges)
	}
	return list
}

func status(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && decimal(s) && n >= 100 && n <= 599
}

// checks compares what checks and quorums say with the servers there are.
func (k *checker) checks() {
	for i := range k.c.Groups {
		g := &k.c.Groups[i]
		key := fmt.Sprintf("groups[%d]", i)
		sum := uint64(0)
		for _, s := range g.Servers {
			sum += uint64(s.Weight)
			if s.Addr.IsValid() && s.Addr.Port() == 0 && g.Check.Port == 0 && g.Check.Type != NoCheck && g.Check.Type != PingCheck {
				k.problem(g.Check.At, key+".check", "server %s (line %d) has no port to be asked at: give the check a port", s.Addr, s.At.Line)
			}
		}
		if sum == 0 { // said elsewhere
			continue
		}
		if need := max(g.Quorum, 1) + g.Hysteresis; need > sum {
			k.problem(g.At, key+".quorum", "%d with hysteresis %d is more than all weights of group %s together (%d): it would never be reached again", max(g.Quorum, 1), g.Hysteresis, g.Name, sum)
		}
	}
}

// checked is what a group's check and quorum are, for comparisons; empty: as ever.
func (g *Group) checked() string {
	text := ""
	if c := &g.Check; c.Type != NoCheck {
		text += ", check " + string(c.Type)
		for _, x := range []struct {
			differs bool
			what    string
		}{
			{c.Port != 0, "port " + strconv.Itoa(int(c.Port))},
			{c.Interval != 0, "interval " + c.Interval.String()},
			{c.Timeout != 0, "timeout " + c.Timeout.String()},
			{c.Rise != 0, "rise " + strconv.Itoa(c.Rise)},
			{c.Fall != 0, "fall " + strconv.Itoa(c.Fall)},
			{c.StartDown, "start down"},
			{c.Path != "", "path " + c.Path},
			{c.Host != "", "host " + c.Host},
			{len(c.Status) > 0, fmt.Sprintf("status %v", c.Status)},
			{c.Send != "", "send " + strconv.Quote(c.Send)},
			{c.Expect != "", "expect " + strconv.Quote(c.Expect)},
		} {
			if x.differs {
				text += " " + x.what
			}
		}
	}
	if g.Quorum != 0 {
		text += ", quorum " + strconv.FormatUint(g.Quorum, 10)
	}
	if g.Hysteresis != 0 {
		text += ", hysteresis " + strconv.FormatUint(g.Hysteresis, 10)
	}
	return text
}
