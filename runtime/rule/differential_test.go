package rule

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"splicenic/emu/urltable"
	"splicenic/regs"
)

// A draw makes rules and requests out of few words that are close to each other, so that they meet.
type draw struct{ *rand.Rand }

func (d draw) of(list ...string) string { return list[d.IntN(len(list))] }

// one says yes once in n times.
func (d draw) one(n int) bool { return d.IntN(n) == 0 }

func (d draw) name() string {
	s := d.of("a", "b", "ab", "example", "a-label-longer-than-a-node", "x")
	for !d.one(2) && len(s) < 100 {
		s += "." + d.of("a", "b", "example", "net")
	}
	return s
}

func (d draw) segment() string {
	return d.of("", "a", "a", "b", "b", "ab", "abc", "photos", "x.jpg", "y.jpg", ".jpg", "a-segment-longer-than-a-node-and-longer-than-a-wide-one", "%2F", "é")
}

func (d draw) ruleHost() string {
	switch d.IntN(6) {
	case 0:
		return ""
	case 1, 2:
		return "*." + d.name()
	case 3:
		return "[2001:db8::1]"
	}
	return d.name()
}

func (d draw) rulePath(wild bool) Path {
	var s []string
	for range 1 + d.IntN(4) {
		s = append(s, d.segment())
	}
	text := "/" + strings.Join(s, "/")
	switch n := d.IntN(10); {
	case n == 0:
		return Path{}
	case n < 4:
		return Path{ExactPath, text}
	case n < 7 || !wild:
		return Path{PrefixPath, strings.TrimRight(text, "/")}
	case n == 7:
		return Path{RegexpPath, d.of(`/a.*`, `/(a|b)/[a-z]+`, `.*\.jpg`, `/photos/x\.jpg`, `/`)}
	}
	for range 1 + d.IntN(2) {
		s[d.IntN(len(s))] = d.of("*", "**", "*", "**", "*.jpg", "*b")
	}
	if d.one(4) {
		s = append(s, "**")
	}
	return Path{PatternPath, "/" + strings.Join(s, "/")}
}

func (d draw) condition() Condition {
	t := Test(d.IntN(3))
	if d.one(8) {
		t = Matches
	}
	value := d.of("1", "12", "2", "a b", "é", "a-value-that-is-longer-than-there-is-room-for")
	switch d.IntN(5) {
	case 0:
		return Condition{Subject: Header, Name: d.of("x-canary", "user-agent", "cookie"), Test: t, Value: value}
	case 1:
		return Condition{Subject: Query, Name: d.of("q", "q q", "%"), Test: t, Value: value}
	case 2:
		return Condition{Subject: Cookie, Name: d.of("id", "Id"), Test: t, Value: value}
	case 3:
		c := Condition{Subject: Source}
		for range 1 + d.IntN(3) {
			c.Nets = append(c.Nets, netip.MustParsePrefix(d.of("192.0.2.0/24", "192.0.2.9/32", "0.0.0.0/0", "2001:db8::/33", "2001:db8:8000::/33", "::/0", "2001:db8::1/128")))
		}
		return c
	}
	return Condition{Subject: ALPN, Test: Test(d.IntN(2)), Value: d.of("h2", "http/1.1", "h")}
}

// service draws rules: a few or many, all of one host or of several, with or without conditions.
func (d draw) service() Service {
	s := Service{Name: "s"}
	hosts := []string{d.ruleHost(), d.ruleHost(), "", d.ruleHost()}[:1+d.IntN(4)]
	conditions, wild := d.IntN(4), d.one(2)
	for n := range 1 + d.IntN([...]int{4, 12, 40}[d.IntN(3)]) {
		r := Route{Match: Match{Host: d.of(hosts...), Path: d.rulePath(wild)}, Group: uint32(n)}
		if d.one(4) {
			r.Methods = strings.Split(d.of("GET", "GET,POST", "PURGE,GET,X"), ",")
		}
		for range d.IntN(1 + conditions) {
			r.Conditions = append(r.Conditions, d.condition())
		}
		if d.one(60) {
			for range 10 {
				r.Conditions = append(r.Conditions, Condition{Subject: Header, Name: "host", Test: Present})
			}
		}
		s.Routes = append(s.Routes, r)
	}
	return s
}

// request draws a head or a hello that comes close to a rule, and says what it is in both forms.
func (d draw) request(t testing.TB, s *Service, card *urltable.Request) Request {
	near := s.Routes[d.IntN(len(s.Routes))].Match
	r := Request{Host: d.name(), Source: netip.MustParseAddr(d.of("192.0.2.9", "198.51.100.1", "2001:db8::1", "2001:db8:8000::"))}
	if !d.one(4) && near.Host != "" {
		r.Host = strings.ReplaceAll(near.Host, "*", d.of("a", "b.a", "a.b"))
	}
	sent := r.Host
	if d.one(3) {
		sent = strings.ToUpper(sent)
	}
	card.IPv6 = r.Source.Is6()
	card.Source = [4]uint32{}
	for i, b := range r.Source.AsSlice() {
		k := len(r.Source.AsSlice()) - 1 - i
		card.Source[k/4] |= uint32(b) << (k % 4 * 8)
	}
	if d.one(8) {
		h := urltable.Hello{SNI: []byte(sent)}
		for range d.IntN(3) {
			p := d.of("h2", "http/1.1", "x")
			r.ALPN = append(r.ALPN, p)
			h.ALPN = append(append(h.ALPN, byte(len(p))), p...)
		}
		r.TLS = true
		card.SetHello(&h)
		return r
	}
	r.Method = d.of("GET", "GET", "POST", "PUT", "PURGE")
	path := ""
	for range 1 + d.IntN(5) {
		path += "/" + d.segment()
	}
	if !d.one(3) && near.Path.Kind != RegexpPath && near.Path.Text != "" {
		path = near.Path.Text
		for strings.Contains(path, "*") {
			path = strings.Replace(path, d.of("**", "*"), d.of("a", "b", "", "a/b"), 1)
		}
		path += d.of("", "", "/", "/x.jpg", "/a/b", "x")
	}
	if r.Path, _ = Normalise(path); r.Path == "" {
		t.Fatalf("path %q", path)
	}
	var query []string
	for range d.IntN(3) {
		query = append(query, d.of("q=1", "q=12", "q", "q%20q=a%20b", "%25=%C3%A9", "p=1", "", "=", "q=%zz", "q=2=3"))
	}
	r.Query = strings.Join(query, "&")
	r.Header = map[string][]string{"host": {sent}}
	head := "Host: " + sent + "\r\n"
	for range d.IntN(4) {
		name := d.of("X-Canary", "x-canary", "User-Agent", "Cookie")
		value := d.of("1", "12", "2", "a b", "", "é", "id=1", "id=2; Id=12", " id=1;id=2 ", "Id=a b; x=1", "a-value-that-is-longer-than-there-is-room-for and more")
		head += name + ":" + d.of("", " ", "\t ") + value + "\r\n"
		name = strings.ToLower(name)
		r.Header[name] = append(r.Header[name], strings.Trim(value, " \t"))
	}
	target := strings.ReplaceAll(strings.ReplaceAll(path, " ", "%20"), "é", "%C3%A9")
	if len(query) > 0 {
		target += "?" + r.Query
	}
	if d.one(40) {
		r.Method, r.Path, r.Query, target = "OPTIONS", "", "", "*"
	}
	head = r.Method + " " + target + " HTTP/1.1\r\n" + head + "\r\n"
	if v := urltable.ParseHead([]byte(head), card); v != urltable.OK {
		t.Fatalf("head %q: %v", head, v)
	}
	return r
}

// agree compares the card with the reference and returns what the card said.
func agree(t testing.TB, s *Service, im *Image, m *Matcher, r *Request, card *urltable.Request) urltable.Outcome {
	t.Helper()
	place, ok := m.Match(r)
	got, v := urltable.Match(&urltable.Tables{Nodes: im.Nodes, Rules: im.Rules}, im.Roots[0], card)
	want, wantOrder := uint32(0), uint32(len(s.Routes))
	var puntOrder uint32
	slow := false
	for _, l := range im.List {
		if ok && l.Group == uint32(place) {
			want, wantOrder = l.Index, l.Order
		}
		if l.Index == got {
			puntOrder, slow = l.Order, l.Slow
		}
	}
	switch {
	case v == urltable.None && !ok, v == urltable.Matched && ok && got == want:
	case v == urltable.Host && slow && puntOrder <= wantOrder:
	default:
		var routes strings.Builder
		for _, l := range im.List {
			fmt.Fprintf(&routes, "\n%d: group %d slow %v %+v", l.Index, l.Group, l.Slow, l.Match)
		}
		t.Fatalf("the card says %d %v, the reference %d %v\nrequest %+v\nrules%s", got, v, want, ok, r, &routes)
	}
	return v
}

// TestAgainstMatcher: on generated rules and requests the card's walk over the compiled image and the plain matcher agree.
func TestAgainstMatcher(t *testing.T) {
	sets, heads := 6000, 25
	if testing.Short() {
		sets = 600
	}
	var outcomes [3]int
	card := new(urltable.Request)
	for seed := range sets {
		d := draw{rand.New(rand.NewPCG(uint64(seed), 55))}
		s := d.service()
		im := mustCompile(t, []Service{s})
		m := NewMatcher(s.Routes)
		for range heads {
			r := d.request(t, &s, card)
			outcomes[agree(t, &s, im, m, &r, card)]++
		}
	}
	t.Logf("%d requests: %d without a rule, %d taken, %d for the host", sets*heads, outcomes[urltable.None], outcomes[urltable.Matched], outcomes[urltable.Host])
	for v, n := range outcomes {
		if n < sets {
			t.Errorf("outcome %d came %d times in %d requests: the test shows little", v, n, sets*heads)
		}
	}
}

// TestExplain: the first rule of the explanation that takes the request is the one that Match finds, and the others tell
// why they do not.
func TestExplain(t *testing.T) {
	s := []Route{
		route("", "/*", 0),
		route("a.example", "/x/*", 1),
		route("a.example", "/x/*", 2),
		{Match: Match{Host: "a.example", Path: Path{ExactPath, "/x"}, Methods: []string{"POST"}}},
		{Match: Match{Host: "a.example", Path: Path{ExactPath, "/x"}, Conditions: []Condition{{Subject: Header, Name: "x-canary", Value: "1"}}}},
		route("b.example", "/*", 5),
		route("a.example", "/y", 6),
		{Match: Match{Host: "a.example", Path: Path{ExactPath, "/x"}, Conditions: []Condition{{Subject: Source, Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}}},
	}
	m := NewMatcher(s)
	r := &Request{Method: "GET", Host: "A.example", Path: "/x", Source: netip.MustParseAddr("192.0.2.1")}
	want := map[int]string{0: "a rule before it", 1: "took", 2: "a rule before it", 3: "method", 4: "header x-canary", 5: "host", 6: "path", 7: "source"}
	for _, w := range m.Explain(r) {
		got := w.Missed
		if w.Took {
			got += "took"
		}
		if got != want[w.Place] {
			t.Errorf("rule %d: %q, want %q", w.Place, got, want[w.Place])
		}
		delete(want, w.Place)
	}
	if place, ok := m.Match(r); !ok || place != 1 || len(want) > 0 {
		t.Errorf("place %d, %v; not explained: %v", place, ok, want)
	}
}

// TestHashAgainstCard: both sides put a label into the same place.
func TestHashAgainstCard(t *testing.T) {
	for n := range 70 {
		a, b := strings.Repeat("x", n)+"/y", strings.Repeat("x", n)+"z"
		im := mustCompile(t, []Service{{Routes: []Route{route("", "/"+a, 0), route("", "/"+b, 1)}}})
		for path, want := range map[string]uint32{"/" + a: 0, "/" + b: 1} {
			if got, ok := lookup(t, im, 0, "h", path); !ok || got != want {
				t.Errorf("path %q: rule %d, %v", path, got, ok)
			}
		}
	}
}

// TestManyRulesOnOnePath: behind as many rules as the card looks at the host decides, and the list of rules says so.
func TestManyRulesOnOnePath(t *testing.T) {
	for _, n := range []int{maxCandidates, maxCandidates + 1, 40} {
		var s Service
		for i := range n {
			s.Routes = append(s.Routes, Route{Group: uint32(i), Match: Match{Path: Path{ExactPath, "/a"}, Conditions: []Condition{{Subject: Header, Name: "n", Value: fmt.Sprint(i)}}}})
		}
		im := mustCompile(t, []Service{s})
		for _, l := range im.List {
			if want := n > maxCandidates && l.Order >= maxCandidates-1; l.Slow != want {
				t.Errorf("%d rules: slow of rule %d is %v", n, l.Order, l.Slow)
			}
		}
		for i := range n + 1 {
			var r urltable.Request
			if v := urltable.ParseHead(fmt.Appendf(nil, "GET /a HTTP/1.1\r\nHost: x\r\nN: %d\r\n\r\n", i), &r); v != urltable.OK {
				t.Fatal(v)
			}
			want := urltable.Matched
			switch {
			case n > maxCandidates && i >= maxCandidates-1:
				want = urltable.Host
			case i == n:
				want = urltable.None
			}
			got, v := urltable.Match(&urltable.Tables{Nodes: im.Nodes, Rules: im.Rules}, im.Roots[0], &r)
			if v != want || v == urltable.Matched && got != im.List[i].Index {
				t.Errorf("%d rules, request %d: rule %d, %v; want %v", n, i, got, v, want)
			}
		}
	}
}

// TestWildcardsStayBounded: patterns that would multiply the states are left to the host, and the image stays small.
func TestWildcardsStayBounded(t *testing.T) {
	var s Service
	for i := range 60 {
		seg := make([]string, 12)
		for k := range seg {
			seg[k] = "*"
		}
		seg[i%12], seg[i/12+1] = "**", string(rune('a'+i%5))
		s.Routes = append(s.Routes, Route{Group: uint32(i), Match: Match{Path: Path{PatternPath, "/" + strings.Join(seg, "/")}}})
	}
	im := mustCompile(t, []Service{s})
	if n := len(im.Nodes) / regs.UrlNodeWords; n > 20000 {
		t.Errorf("%d entries", n)
	}
	d := draw{rand.New(rand.NewPCG(1, 1))}
	card := new(urltable.Request)
	m := NewMatcher(s.Routes)
	for range 200 {
		r := d.request(t, &s, card)
		agree(t, &s, im, m, &r, card)
	}
}

// FuzzPattern: a path that a configuration may hold, among generated rules, takes what the plain matcher says.
func FuzzPattern(f *testing.F) {
	f.Add(uint64(1), "/a/**/*.jpg", "/a/b/c/x.jpg")
	f.Add(uint64(2), "/**/a/*/b", "/a/a/a/b")
	f.Add(uint64(3), "*.tar.gz", "/x.gz/y.tar.gz")
	f.Add(uint64(4), "/*/*", "//a")
	f.Add(uint64(5), "/a/**/**", "/a")
	f.Fuzz(func(t *testing.T, seed uint64, pattern, path string) {
		p, err := Pattern(pattern)
		if err != nil {
			return
		}
		card := new(urltable.Request)
		if urltable.ParseHead([]byte("GET "+path+" HTTP/1.1\r\nHost: a.b.example\r\n\r\n"), card) != urltable.OK {
			return
		}
		d := draw{rand.New(rand.NewPCG(seed, 56))}
		s := d.service()
		for range 2 {
			s.Routes = append(s.Routes, Route{Match: Match{Host: d.of("", "*.example"), Path: p, Conditions: []Condition{d.condition()}[:d.IntN(2)]}, Group: uint32(len(s.Routes))})
		}
		im := mustCompile(t, []Service{s})
		r := &Request{Method: "GET", Host: string(card.Host), Path: string(card.Path), Query: string(card.Query), Header: map[string][]string{"host": {"a.b.example"}}, Source: netip.IPv4Unspecified()}
		agree(t, &s, im, NewMatcher(s.Routes), r, card)
	})
}
