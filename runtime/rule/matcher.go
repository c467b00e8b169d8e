package rule

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// A Request is what rules look at: a request head, or a ClientHello.
type Request struct {
	Method string
	Host   string              // without port and final dot, in any case; of a ClientHello the server's name
	Path   string              // normalised, without query; empty: there is none
	Query  string              // as sent
	Header map[string][]string // values by the name in lower case, in the order of the head
	Source netip.Addr
	ALPN   []string // of a ClientHello
	TLS    bool     // a ClientHello: there is neither method nor path nor header
}

// A Matcher finds the rule that takes a request, one rule after the other. It is what the card's automata have to agree
// with, and what decides where the card cannot. It may be used from several goroutines.
type Matcher struct {
	list []matched        // in the order of precedence
	of   map[string][]int // places in list by the rule's host
}

// matched is a route in its place, with its regular expressions compiled.
type matched struct {
	place int // in the order of the file
	*Match
	path   *regexp.Regexp
	values []*regexp.Regexp // by condition; nil where it is none
}

// NewMatcher makes a matcher of routes in the order of the file. A regular expression that is none matches nothing.
func NewMatcher(routes []Route) *Matcher {
	m := &Matcher{list: make([]matched, len(routes)), of: map[string][]int{}}
	for i, at := range order(routes) {
		r := matched{place: at, Match: &routes[at].Match}
		if r.Path.Kind == RegexpPath {
			r.path, _ = compileRegexp(r.Path.Text)
		}
		for k := range r.Conditions {
			if r.Conditions[k].Test == Matches {
				if r.values == nil {
					r.values = make([]*regexp.Regexp, len(r.Conditions))
				}
				r.values[k], _ = compileRegexp(r.Conditions[k].Value)
			}
		}
		m.list[i] = r
		m.of[r.Host] = append(m.of[r.Host], i)
	}
	return m
}

// Match returns the place, in the order of the file, of the first rule in the order of precedence that takes the request.
func (m *Matcher) Match(r *Request) (place int, ok bool) {
	host := strings.ToLower(r.Host)
	for _, of := range hostsOf(host) {
		for _, i := range m.of[of] {
			if m.list[i].misses(r, host) == "" {
				return m.list[i].place, true
			}
		}
	}
	return 0, false
}

// hostsOf lists the hosts of rules that take a host, in the order of precedence. A host that is longer than a name can be
// is none's in particular.
func hostsOf(host string) []string {
	if host == "" || len(host) > maxHost {
		return []string{""}
	}
	list := []string{host}
	for i := 1; i < len(host); i++ {
		if host[i] == '.' {
			list = append(list, "*"+host[i:])
		}
	}
	return append(list, "")
}

// Why says what became of a rule.
type Why struct {
	Place  int // in the order of the file
	Took   bool
	Missed string // what did not fit first, such as "host" or "header x-canary"; empty: the rule would take the request
}

// Explain tells of every rule, in the order of precedence, why it does not take the request. A rule that would, if another
// did not come before it, has "a rule before it".
func (m *Matcher) Explain(r *Request) []Why {
	host := strings.ToLower(r.Host)
	taken := false
	whys := make([]Why, len(m.list))
	for i := range m.list {
		w := Why{Place: m.list[i].place, Missed: m.list[i].misses(r, host)}
		switch {
		case w.Missed == "" && taken:
			w.Missed = "a rule before it"
		case w.Missed == "":
			w.Took, taken = true, true
		}
		whys[i] = w
	}
	return whys
}

// misses says what of a rule does not fit a request; nothing where it fits.
func (m *matched) misses(r *Request, host string) string {
	if !hostFits(m.Host, host) {
		return "host"
	}
	if !m.pathFits(r.Path) {
		return "path"
	}
	if len(m.Methods) > 0 && (r.Method == "" || !slices.Contains(m.Methods, r.Method)) {
		return "method"
	}
	for i := range m.Conditions {
		c := &m.Conditions[i]
		var re *regexp.Regexp
		if c.Test == Matches {
			if re = m.values[i]; re == nil {
				return c.about()
			}
		}
		if !c.fits(r, re) {
			return c.about()
		}
	}
	return ""
}

// hostFits compares a host in lower case with a rule's.
func hostFits(rule, host string) bool {
	if len(host) > maxHost {
		return rule == ""
	}
	if below, ok := strings.CutPrefix(rule, "*"); ok {
		return len(host) > len(below) && strings.HasSuffix(host, below)
	}
	return rule == "" || rule == host
}

// pathFits compares a normalised path with the rule's.
func (m *matched) pathFits(path string) bool {
	p := m.Path
	switch p.Kind {
	case ExactPath:
		return path == p.Text
	case PrefixPath:
		return path == p.Text || strings.HasPrefix(path, p.Text+"/")
	case PatternPath:
		return path != "" && fitAll(strings.Split(p.Text[1:], "/"), strings.Split(path[1:], "/"), segmentFits)
	case RegexpPath:
		return path != "" && m.path != nil && m.path.MatchString(path)
	}
	return true
}

// fitAll says whether a pattern takes a list of segments: "**" stands for any number of them, and of the pattern's other
// segments fits says which one of the list they take.
func fitAll(pattern, list []string, fits func(want, have string) bool) bool {
	// from is which begins of the list the pattern so far takes, by their number of segments.
	from := make([]bool, len(list)+1)
	from[0] = true
	for _, want := range pattern {
		to := make([]bool, len(list)+1)
		for i := range from {
			if want == "**" {
				to[i] = from[i] || i > 0 && to[i-1]
			} else {
				to[i] = i > 0 && from[i-1] && fits(want, list[i-1])
			}
		}
		from = to
	}
	return from[len(list)]
}

// segmentFits compares a segment with one of a pattern: "*" stands for any that is not empty, "*x" for one that ends with
// x.
func segmentFits(want, have string) bool {
	end, wild := strings.CutPrefix(want, "*")
	switch {
	case want == "*":
		return have != ""
	case wild:
		return strings.HasSuffix(have, end)
	}
	return have == want
}

// about names what the condition looks at.
func (c *Condition) about() string {
	return strings.TrimSuffix(c.Subject.String()+" "+c.Name, " ")
}

// fits tests a condition; re is its regular expression where it has one.
func (c *Condition) fits(r *Request, re *regexp.Regexp) bool {
	passes := func(value string) bool {
		switch c.Test {
		case Equal:
			return value == c.Value
		case HasPrefix:
			return strings.HasPrefix(value, c.Value)
		case Matches:
			return re.MatchString(value)
		}
		return true
	}
	switch c.Subject {
	case Header:
		return slices.ContainsFunc(r.Header[c.Name], passes)
	case Query:
		return slices.ContainsFunc(strings.Split(r.Query, "&"), func(one string) bool {
			name, value, _ := strings.Cut(one, "=")
			return one != "" && unescape(name) == c.Name && passes(unescape(value))
		})
	case Cookie:
		return slices.ContainsFunc(r.Header["cookie"], func(field string) bool {
			return slices.ContainsFunc(strings.Split(field, ";"), func(one string) bool {
				one = strings.Trim(one, " \t")
				name, value, _ := strings.Cut(one, "=")
				return one != "" && name == c.Name && passes(value)
			})
		})
	case Source:
		return slices.ContainsFunc(c.Nets, func(n netip.Prefix) bool { return n.Contains(r.Source.Unmap()) })
	}
	return slices.ContainsFunc(r.ALPN, passes)
}

// unescape decodes percent-encoded bytes. What is none stays.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+3 <= len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			b.WriteByte(hexValue(s[i+1])<<4 | hexValue(s[i+2]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isHex(b byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", b) >= 0 }

func hexValue(b byte) byte {
	if b <= '9' {
		return b - '0'
	}
	return b&^0x20 - 'A' + 10
}

// order returns the places of routes in the order of precedence.
func order(routes []Route) []int {
	type ranked struct {
		place int
		rank  [8]int
	}
	list := make([]ranked, len(routes))
	for i := range routes {
		list[i] = ranked{i, rank(&routes[i].Match)}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		for i := range a.rank {
			if a.rank[i] != b.rank[i] {
				return cmp.Compare(a.rank[i], b.rank[i])
			}
		}
		return cmp.Compare(a.place, b.place)
	})
	places := make([]int, len(list))
	for i := range list {
		places[i] = list[i].place
	}
	return places
}
