package rule

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Finding is a route that takes no request.
type Finding struct {
	Place int  // of the route in the list
	By    int  // place of the route that takes its requests; negative: no request is like that
	Same  bool // both ask the same
	Why   string
}

// maxPairs bounds how many pairs of routes Lint compares.
const maxPairs = 4_000_000

// Lint finds the routes of a service that take no request, in the order of the list. Those that no single other route
// stands in the way of, but several together do, are not found, and regular expressions are compared as texts only.
// complete is false where more routes were alike than can be compared with each other.
func Lint(routes []Route) (found []Finding, complete bool) {
	l := linter{routes: routes, by: make([]int, len(routes)), left: maxPairs}
	for i := range l.by {
		l.by[i] = nobody
	}
	l.impossible()
	l.same()
	l.alike()
	l.patterns()
	for i, by := range l.by {
		if by != nobody {
			_, twice := slices.BinarySearch(l.twice, i)
			f := Finding{Place: i, By: by, Same: twice}
			if by < 0 {
				f.Why = never(&routes[i].Match)
			}
			found = append(found, f)
		}
	}
	return found, l.left >= 0
}

// nobody stands in the way of a route; noRequest is there that it could take.
const nobody, noRequest = -2, -1

type linter struct {
	routes []Route
	by     []int // by place: who takes its requests
	twice  []int // places of routes that ask the same as one before, ascending
	left   int   // pairs that may still be compared
}

func (l *linter) impossible() {
	for i := range l.routes {
		if never(&l.routes[i].Match) != "" {
			l.by[i] = noRequest
		}
	}
}

// never says why no request fulfils a match.
func never(m *Match) string {
	if m.Path.Kind == RegexpPath {
		if p := literalPrefix(m.Path.Text); p != "" && p[0] != '/' {
			return "its path begins with " + strconv.Quote(p[:1]) + ", and every path with a slash"
		}
	}
	if len(m.Methods) == 1 && m.Methods[0] == "CONNECT" && m.Path.Kind != AnyPath {
		return "a CONNECT request has no path"
	}
	return ""
}

// same finds routes that ask the same as an earlier one.
func (l *linter) same() {
	first := make(map[string]int, len(l.routes))
	for i := range l.routes {
		text := l.routes[i].String()
		if k, ok := first[text]; ok {
			l.by[i] = k
			l.twice = append(l.twice, i)
			continue
		}
		first[text] = i
	}
}

// alike compares the routes of one host and path that test the same names: only there can one that is less exact come
// first. A route whose tests are all for exact values takes nothing of another's but its own.
func (l *linter) alike() {
	type group struct{ all, wide []int }
	groups := map[string]*group{}
	var order []*group
	for i := range l.routes {
		if l.by[i] != nobody {
			continue
		}
		m := &l.routes[i].Match
		key := names(m)
		g := groups[key]
		if g == nil {
			g = &group{}
			groups[key] = g
			order = append(order, g)
		}
		g.all = append(g.all, i)
		if wide(m) {
			g.wide = append(g.wide, i)
		}
	}
	for _, g := range order {
		if len(g.all) > 1 {
			l.compare(g.wide, g.all, func(a, b *Match) bool { return true })
		}
	}
}

// names is the same for matches of one host and path that test the same names.
func names(m *Match) string {
	var b strings.Builder
	b.WriteString(m.Host)
	b.WriteByte(0)
	b.WriteByte(byte(m.Path.Kind))
	b.WriteString(m.Path.Text)
	if len(m.Methods) > 0 {
		b.WriteByte(0)
	}
	list := make([]string, len(m.Conditions))
	for i := range m.Conditions {
		list[i] = "\x00" + string(rune('a'+m.Conditions[i].Subject)) + m.Conditions[i].Name
	}
	slices.Sort(list)
	for _, n := range list {
		b.WriteString(n)
	}
	return b.String()
}

// wide says whether a match takes more than one text each asks for.
func wide(m *Match) bool {
	if len(m.Methods) > 1 {
		return true
	}
	for i := range m.Conditions {
		c := &m.Conditions[i]
		if c.Subject == Source || c.Test == HasPrefix || c.Test == Present {
			return true
		}
	}
	return false
}

// patterns compares the patterns of a host with its other paths: a pattern may be less exact than a path and yet hold more
// bytes.
func (l *linter) patterns() {
	type group struct{ wild, all []int }
	hosts := map[string]*group{}
	var order []*group
	for i := range l.routes {
		m := &l.routes[i].Match
		if l.by[i] != nobody || m.Path.Kind != PrefixPath && m.Path.Kind != PatternPath {
			continue
		}
		g := hosts[m.Host]
		if g == nil {
			g = &group{}
			hosts[m.Host] = g
			order = append(order, g)
		}
		g.all = append(g.all, i)
		if m.Path.Kind == PatternPath {
			g.wild = append(g.wild, i)
		}
	}
	for _, g := range order {
		l.compare(g.wild, g.all, func(a, b *Match) bool { return a.Path.covers(b.Path) })
	}
}

// compare tries which of the routes a take all requests of which of the routes b, where their paths allow it.
func (l *linter) compare(a, b []int, paths func(a, b *Match) bool) {
	for _, i := range a {
		if l.left -= len(b); l.left < 0 {
			return
		}
		x := &l.routes[i].Match
		for _, k := range b {
			y := &l.routes[k].Match
			if i == k || l.by[k] != nobody || !x.Path.mayCover(y.Path) || !implied(x, y) || !paths(x, y) {
				continue
			}
			if order := Precedence(x, y); order < 0 || order == 0 && i < k {
				l.by[k] = i
			}
		}
	}
}

// implied says whether a request that fulfils b's method and conditions fulfils those of a.
func implied(a, b *Match) bool {
	if len(a.Methods) > 0 {
		if len(b.Methods) == 0 {
			return false
		}
		for _, m := range b.Methods {
			if !slices.Contains(a.Methods, m) {
				return false
			}
		}
	}
	for i := range a.Conditions {
		if !slices.ContainsFunc(b.Conditions, func(c Condition) bool { return follows(&a.Conditions[i], &c) }) {
			return false
		}
	}
	return true
}

// follows says whether condition a holds wherever b does.
func follows(a, b *Condition) bool {
	if a.Subject != b.Subject || a.Name != b.Name {
		return false
	}
	switch {
	case a.Subject == Source:
		return !slices.ContainsFunc(b.Nets, func(n netip.Prefix) bool { return !within(n, a.Nets) })
	case a.Subject == ALPN:
		return a.Value == b.Value
	case a.Test == Present:
		return true
	case a.Test == HasPrefix:
		return (b.Test == Equal || b.Test == HasPrefix) && strings.HasPrefix(b.Value, a.Value)
	}
	return a.Test == b.Test && a.Value == b.Value
}

// within says whether one of some networks holds another.
func within(n netip.Prefix, nets []netip.Prefix) bool {
	return slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Bits() <= n.Bits() && p.Contains(n.Addr()) })
}

// mayCover is a quick look before covers.
func (p Path) mayCover(other Path) bool {
	if p.Kind != PatternPath || p == other {
		return true
	}
	literal, _, _ := strings.Cut(p.Text, "*")
	literal = strings.TrimSuffix(literal, "/") // "/a/**" takes /a
	return strings.HasPrefix(other.Text, literal)
}

// covers says whether a pattern takes every path that another, or a prefix, takes. It compares segment by segment, a
// wildcard of the other as a segment that only a wildcard takes.
func (p Path) covers(other Path) bool {
	text := other.Text
	if other.Kind == PrefixPath {
		text += "/**"
	}
	return fitAll(strings.Split(p.Text[1:], "/"), strings.Split(text[1:], "/"), segmentCovers)
}

// segmentCovers compares one segment of a pattern, which is not "**".
func segmentCovers(want, have string) bool {
	switch {
	case have == "**":
		return false
	case want == have:
		return true
	case want == "*":
		return have != ""
	case want != "" && want[0] == '*':
		return strings.HasSuffix(strings.TrimPrefix(have, "*"), want[1:])
	}
	return false
}

// Slow says why only the host can test a rule, empty where the card does.
func (m *Match) Slow() string {
	if m.Path.Kind == RegexpPath {
		return "its path is a regular expression"
	}
	if end := m.Path.Text[strings.LastIndexByte(m.Path.Text, '/')+1:]; m.Path.Kind == PatternPath && len(end) > maxSuffix+1 && end[0] == '*' {
		return "the end of its path has more than the " + strconv.Itoa(maxSuffix) + " bytes that the card compares"
	}
	tests := 0
	if len(m.Methods) > 0 {
		tests++
	}
	for i := range m.Conditions {
		c := &m.Conditions[i]
		if c.Test == Matches {
			return c.Subject.String() + " " + c.Name + " is compared with a regular expression"
		}
		if len(c.Nets) > maxNets {
			return "it has " + strconv.Itoa(len(c.Nets)) + " networks, and the card tests " + strconv.Itoa(maxNets)
		}
		tests++
	}
	if tests > maxConditions {
		return "it has " + strconv.Itoa(tests) + " conditions, and the card tests " + strconv.Itoa(maxConditions)
	}
	return ""
}
