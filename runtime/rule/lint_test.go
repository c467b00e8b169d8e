package rule

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustPath(s string) Path {
	if expr, ok := strings.CutPrefix(s, "~"); ok {
		return Path{RegexpPath, expr}
	}
	p, err := Pattern(s)
	if err != nil {
		panic(err)
	}
	return p
}

func has(s Subject, name string, t Test, value string) Condition {
	return Condition{Subject: s, Name: name, Test: t, Value: value}
}

func from(nets ...string) Condition {
	c := Condition{Subject: Source}
	for _, n := range nets {
		c.Nets = append(c.Nets, netip.MustParsePrefix(n))
	}
	return c
}

func when(path string, methods string, conditions ...Condition) Match {
	m := Match{Path: mustPath(path), Conditions: conditions}
	if methods != "" {
		m.Methods = strings.Split(methods, ",")
	}
	return m
}

func TestLint(t *testing.T) {
	at := func(host string, m Match) Match { m.Host = host; return m }
	none := []Finding(nil)
	for _, tt := range []struct {
		name    string
		matches []Match
		want    []Finding
	}{
		{"nothing", nil, none},
		{"the same", []Match{when("/a", ""), when("/b", ""), when("/a", "")}, []Finding{{Place: 2, By: 0, Same: true}}},
		{"the same everything", []Match{{}, {}}, []Finding{{Place: 1, By: 0, Same: true}}},
		{"the same with conditions", []Match{when("/a", "GET", has(Header, "x", Equal, "1")), when("/a", "GET", has(Header, "x", Equal, "1"))}, []Finding{{Place: 1, By: 0, Same: true}}},
		{"other hosts", []Match{at("a", when("/a", "")), at("b", when("/a", "")), at("*.b", when("/a", "")), when("/a", "")}, none},
		{"every request first", []Match{{}, when("/a/*", ""), when("/a/b", ""), when("/a", "GET")}, none},
		{"wildcard host first", []Match{at("*.example", Match{}), at("a.example", Match{}), at("*.a.example", Match{})}, none},

		{"one method of two", []Match{when("/a", "GET,POST"), when("/a", "GET")}, []Finding{{Place: 1, By: 0}}},
		{"one method of two before", []Match{when("/a", "GET"), when("/a", "GET,POST")}, none},
		{"present before exact", []Match{when("/a", "", has(Header, "x", Present, "")), when("/a", "", has(Header, "x", Equal, "1"))}, []Finding{{Place: 1, By: 0}}},
		{"exact before present", []Match{when("/a", "", has(Header, "x", Equal, "1")), when("/a", "", has(Header, "x", Present, ""))}, none},
		{"present before regular expression", []Match{when("/a", "", has(Header, "x", Present, "")), when("/a", "", has(Header, "x", Matches, "1"))}, []Finding{{Place: 1, By: 0}}},
		{"prefix before exact", []Match{when("/a", "", has(Query, "x", HasPrefix, "v")), when("/a", "", has(Query, "x", Equal, "v1"))}, []Finding{{Place: 1, By: 0}}},
		{"prefix before another", []Match{when("/a", "", has(Query, "x", HasPrefix, "v")), when("/a", "", has(Query, "x", Equal, "w1"))}, none},
		{"cookie and header", []Match{when("/a", "", has(Cookie, "x", Present, "")), when("/a", "", has(Header, "x", Equal, "1"))}, none},
		{"one more condition goes first", []Match{when("/a", "", has(Header, "x", Present, "")), when("/a", "", has(Header, "x", Equal, "1"), has(Header, "y", Equal, "1"))}, none},
		{"the first of two covers half", []Match{when("/a", "", has(Header, "x", Present, ""), has(Header, "y", Equal, "1")), when("/a", "", has(Header, "x", Equal, "1"), has(Header, "y", Equal, "2"))}, none},
		{"larger network first", []Match{when("/a", "", from("10.0.0.0/8")), when("/a", "", from("10.1.0.0/16", "10.2.0.0/16"))}, []Finding{{Place: 1, By: 0}}},
		{"smaller network first", []Match{when("/a", "", from("10.1.0.0/16")), when("/a", "", from("10.0.0.0/8"))}, none},
		{"one network of two", []Match{when("/a", "", from("10.0.0.0/8")), when("/a", "", from("10.1.0.0/16", "192.0.2.0/24"))}, none},
		{"an address of two networks", []Match{when("/a", "", from("10.0.0.0/8", "192.0.2.0/24")), when("/a", "", from("192.0.2.1/32"))}, []Finding{{Place: 1, By: 0}}},
		{"alpn", []Match{when("/*", "", has(ALPN, "", Equal, "h2")), when("/*", "", has(ALPN, "", Equal, "h3"))}, none},

		{"pattern with more bytes than a prefix", []Match{when("/b/*", ""), when("/**/b/*", "")}, []Finding{{Place: 0, By: 1}}},
		{"pattern and a prefix of another", []Match{when("/c/*", ""), when("/**/b/*", "")}, none},
		{"any number before one", []Match{when("/a/**/b", ""), when("/a/*/b", "")}, []Finding{{Place: 1, By: 0}}},
		{"one before any number", []Match{when("/a/*/b", ""), when("/a/**/b", "")}, none},
		{"suffix before a longer one", []Match{when("/a/*.jpg", ""), when("/a/*x.jpg", "")}, none},
		{"suffix and an exact path", []Match{when("*.jpg", ""), when("/a.jpg", "")}, none},
		{"pattern for one method", []Match{when("/b/*", ""), when("/**/b/*", "GET")}, none},
		{"pattern without a method", []Match{when("/b/*", "GET", has(Header, "x", Equal, "1")), when("/**/b/*", "")}, []Finding{{Place: 0, By: 1}}},
		{"pattern with a condition", []Match{when("/b/*", ""), when("/**/b/*", "", has(Header, "x", Present, ""))}, none},
		{"pattern of another host", []Match{at("a", when("/b/*", "")), when("/**/b/*", "")}, none},

		{"path without a slash", []Match{when("~a.*", "")}, []Finding{{Place: 0, By: noRequest, Why: `its path begins with "a", and every path with a slash`}}},
		{"path with a slash", []Match{when("~/a.*", ""), when("~.*", "")}, none},
		{"connect with a path", []Match{when("/a", "CONNECT")}, []Finding{{Place: 0, By: noRequest, Why: "a CONNECT request has no path"}}},
		{"connect", []Match{when("/*", "CONNECT")}, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			routes := make([]Route, len(tt.matches))
			for i, m := range tt.matches {
				routes[i] = Route{Match: m, Group: uint32(i)}
			}
			got, complete := Lint(routes)
			if diff := cmp.Diff(tt.want, got); diff != "" || !complete {
				t.Errorf("complete %v, (-want +got):\n%s", complete, diff)
			}
		})
	}
}

// expression is a pattern as a regular expression, made in another way than covers compares.
func (p Path) expression() *regexp.Regexp {
	text := ""
	switch p.Kind {
	case AnyPath:
		return regexp.MustCompile(`.*`)
	case ExactPath:
		return regexp.MustCompile(`\A` + regexp.QuoteMeta(p.Text) + `\z`)
	case PrefixPath:
		return regexp.MustCompile(`\A` + regexp.QuoteMeta(p.Text) + `(/.*)?\z`)
	}
	for _, s := range strings.Split(p.Text[1:], "/") {
		switch {
		case s == "**":
			text += `(/[^/]*)*`
		case s == "*":
			text += `/[^/]+`
		case strings.HasPrefix(s, "*"):
			text += `/[^/]*` + regexp.QuoteMeta(s[1:])
		default:
			text += "/" + regexp.QuoteMeta(s)
		}
	}
	return regexp.MustCompile(`\A` + text + `\z`)
}

// TestLintIsRight: what is said to take no request takes none of many, tried one by one.
func TestLintIsRight(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	words := []string{"a", "b", "a.jpg", "*", "**", ""}
	path := func() Path {
		for {
			var parts []string
			for range 1 + rnd.IntN(3) {
				parts = append(parts, words[rnd.IntN(len(words))])
			}
			if rnd.IntN(4) == 0 {
				parts[len(parts)-1] = "*.jpg"
			}
			if p, err := Pattern("/" + strings.Join(parts, "/")); err == nil {
				return p
			}
		}
	}
	var paths []string
	for _, a := range []string{"a", "b", "a.jpg", "c.jpg", ""} {
		paths = append(paths, "/"+a)
		for _, b := range []string{"a", "b", "a.jpg", "c", ""} {
			paths = append(paths, "/"+a+"/"+b)
			for _, c := range []string{"a", "b", "c.jpg", ""} {
				paths = append(paths, "/"+a+"/"+b+"/"+c)
			}
		}
	}
	findings := 0
	for range 1500 {
		var routes []Route
		for range 2 + rnd.IntN(4) {
			m := Match{Path: path()}
			if rnd.IntN(3) == 0 {
				m.Methods = []string{"GET"}
			}
			if rnd.IntN(3) == 0 {
				m.Conditions = []Condition{has(Header, "x", Test(rnd.IntN(3)), [...]string{"v", "v1"}[rnd.IntN(2)])}
			}
			routes = append(routes, Route{Match: m})
		}
		order := make([]int, len(routes))
		exprs := make([]*regexp.Regexp, len(routes))
		for i := range order {
			order[i], exprs[i] = i, routes[i].Path.expression()
		}
		slices.SortStableFunc(order, func(a, b int) int { return Precedence(&routes[a].Match, &routes[b].Match) })
		took := map[int]string{}
		for _, p := range paths {
			for _, method := range []string{"GET", "PUT"} {
				for _, x := range []string{"-", "", "v", "v1", "w"} {
					for _, i := range order {
						m := &routes[i].Match
						if !exprs[i].MatchString(p) || len(m.Methods) > 0 && method != "GET" {
							continue
						}
						if len(m.Conditions) > 0 {
							c := &m.Conditions[0]
							if x == "-" || c.Test == Equal && x != c.Value || c.Test == HasPrefix && !strings.HasPrefix(x, c.Value) {
								continue
							}
						}
						took[i] = fmt.Sprintf("%s %s, x %s", method, p, x)
						break
					}
				}
			}
		}
		found, _ := Lint(routes)
		for _, f := range found {
			findings++
			if request, ok := took[f.Place]; ok {
				for i := range routes {
					t.Logf("%d: %s", i, routes[i].String())
				}
				t.Fatalf("route %d is said to take nothing because of %d, but takes %s", f.Place, f.By, request)
			}
		}
	}
	if findings < 50 {
		t.Errorf("only %d findings: the routes are too far apart to show anything", findings)
	}
}

// TestLintBounded: as many routes as a card holds are compared in a bounded number of steps, and what was left out is said.
func TestLintBounded(t *testing.T) {
	const n = 30_000
	for _, tt := range []struct {
		name     string
		match    func(i int) Match
		complete bool
		found    int
	}{
		{"many hosts", func(i int) Match {
			return Match{Host: fmt.Sprintf("h%d.example", i/10), Path: mustPath(fmt.Sprintf("/%d/*", i))}
		}, true, 0},
		{"one header", func(i int) Match { return when("/a", "", has(Header, "x", Equal, fmt.Sprint(i))) }, true, 0},
		{"all the same", func(i int) Match { return when("/a", "") }, true, n - 1},
		{"many networks", func(i int) Match {
			a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			return Match{Conditions: []Condition{{Subject: Source, Nets: []netip.Prefix{netip.PrefixFrom(a, 32)}}}}
		}, false, 0},
		{"many patterns", func(i int) Match { return when(fmt.Sprintf("/**/%d/a", i), "") }, false, 0},
		{"patterns of many hosts", func(i int) Match {
			return Match{Host: fmt.Sprintf("h%d.example", i/10), Path: mustPath(fmt.Sprintf("/**/%d/a", i))}
		}, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			routes := make([]Route, n)
			for i := range routes {
				routes[i].Match = tt.match(i)
			}
			found, complete := Lint(routes)
			if complete != tt.complete || len(found) != tt.found {
				t.Errorf("complete %v, %d findings; want %v, %d", complete, len(found), tt.complete, tt.found)
			}
		})
	}
}

// TestSlow names why the host has to test a rule.
func TestSlow(t *testing.T) {
	var eight, nine []Condition
	for i := range 9 {
		if i < 8 {
			eight = append(eight, has(Header, fmt.Sprint("x", i), Present, ""))
		}
		nine = append(nine, has(Query, fmt.Sprint("x", i), Present, ""))
	}
	for _, tt := range []struct {
		m    Match
		want string
	}{
		{Match{}, ""},
		{when("/**/a", "GET", has(Header, "x", HasPrefix, "1")), ""},
		{when("~/a", ""), "its path is a regular expression"},
		{when("/a", "", has(Cookie, "x", Matches, "1")), "cookie x is compared with a regular expression"},
		{when("/a", "", eight...), ""},
		{when("/a", "GET", eight...), "it has 9 conditions, and the card tests 8"},
		{when("/a/*"+strings.Repeat("x", 32), ""), ""},
		{when("/a/*"+strings.Repeat("x", 33), ""), "the end of its path has more than the 32 bytes that the card compares"},
		{when("/a/"+strings.Repeat("x", 99), ""), ""},
		{when("/a", "", Condition{Subject: Source, Nets: make([]netip.Prefix, 32)}), ""},
		{when("/a", "", Condition{Subject: Source, Nets: make([]netip.Prefix, 33)}), "it has 33 networks, and the card tests 32"},
		{when("/a", "", nine...), "it has 9 conditions, and the card tests 8"},
	} {
		if got := tt.m.Slow(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.m.String(), got, tt.want)
		}
	}
}

// TestSlowAsCompiled: what is said to be slow is what the compiler leaves to the host.
func TestSlowAsCompiled(t *testing.T) {
	var nine []Condition
	for i := range 9 {
		nine = append(nine, has(Query, fmt.Sprint("x", i), Present, ""))
	}
	for _, m := range []Match{
		{}, when("/a/**/b", "GET,PUT"), when("*.jpg", ""), when("~/a", ""), when("/a", "", has(Header, "x", Matches, "1")), when("/a", "", nine...), when("/a", "", nine[:8]...),
		when("/a", "GET", nine[:8]...), when("/a/*"+strings.Repeat("x", 32), ""), when("/a/*"+strings.Repeat("x", 33), ""),
	} {
		im := mustCompile(t, []Service{{Name: "s", Routes: []Route{{Match: m}}}})
		if got, want := im.List[0].Slow, m.Slow() != ""; got != want {
			t.Errorf("%q: the compiler says slow %v, Slow %q", m.String(), got, m.Slow())
		}
	}
}
