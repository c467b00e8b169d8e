package rule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/emu/urltable"
	"splicenic/regs"
)

func TestHost(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{"b.example", "b.example", ""},
		{"B.Example.", "b.example", ""},
		{"a_b.example", "a_b.example", ""},
		{"2001:DB8::a", "[2001:db8::a]", ""},
		{"[2001:db8::A]", "[2001:db8::a]", ""},
		{"", "", "empty"},
		{"a.example:80", "", `':'`},
		{"a b", "", `' '`},
		{"..", "", "empty label"},
		{".a", "", "empty label"},
		{"a..b", "", "empty label"},
		{"a.b..", "", "empty label"},
		{"[::1", "", "brackets"},
		{"[fe80::1%eth0]", "", "brackets"},
		{strings.Repeat("a", 254), "", "254 characters"},
	} {
		got, err := Host(tt.in)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("Host(%q) = %q, %v; want %q, %q", tt.in, got, err, tt.want, tt.err)
		}
	}
}

func TestPattern(t *testing.T) {
	for _, tt := range []struct {
		in, path string
		exact    bool
		err      string
	}{
		{"/photos/*", "/photos", false, ""},
		{"/photos/", "/photos/", true, ""},
		{"/photos", "/photos", true, ""},
		{"/*", "", false, ""},
		{"/", "/", true, ""},
		{"/a/../b/./*", "/b", false, ""},
		{"/a/../*", "", false, ""},
		{"/%61%2f%20", "/a%2F ", true, ""},
		{"photos", "", false, "slash"},
		{"", "", false, "slash"},
		{"/a//*", "", false, "empty segment"},
		{"/a///../*", "", false, "empty segment"},
		{"/a//../*", "/a", false, ""},
		{"/a*", "", false, "asterisk"},
		{"/a*/*", "", false, "asterisk"},
		{"/a?b", "", false, "query"},
		{"/a b", "", false, "percent-encoded"},
		{"/%zz", "", false, "percent sign"},
		{strings.Repeat("/a", 33), "", false, "33 segments"},
	} {
		p, err := Pattern(tt.in)
		path, exact := p.Text, p.Kind == ExactPath
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("Pattern(%q): error %v, want %q", tt.in, err, tt.err)
			continue
		}
		if err == nil && (path != tt.path || exact != tt.exact) {
			t.Errorf("Pattern(%q) = %q, %v; want %q, %v", tt.in, path, exact, tt.path, tt.exact)
		}
	}
}

// lookup sends a request through the compiled image.
func lookup(t testing.TB, im *Image, service int, host, path string) (uint32, bool) {
	t.Helper()
	var r urltable.Request
	head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
	if v := urltable.ParseHead([]byte(head), &r); v != urltable.OK {
		t.Fatalf("head %q: %v", head, v)
	}
	return match(im, service, &r)
}

// match matches as the card does, where no rule takes the host.
func match(im *Image, service int, r *urltable.Request) (uint32, bool) {
	rule, v := urltable.Match(&urltable.Tables{Nodes: im.Nodes, Rules: im.Rules}, im.Roots[service], r)
	return rule, v == urltable.Matched
}

func mustCompile(t testing.TB, services []Service) *Image {
	t.Helper()
	im, err := Compile(services, Indexes{Size: 1 << 17}, 1<<19, nil)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func route(host, pattern string, group uint32) Route {
	p, err := Pattern(pattern)
	if err != nil {
		panic(err)
	}
	if host != "" {
		if host, err = Host(host); err != nil {
			panic(err)
		}
	}
	return Route{Match: Match{Host: host, Path: p}, Group: group}
}

func TestPrecedence(t *testing.T) {
	im := mustCompile(t, []Service{
		{Index: 3, Name: "web", Routes: []Route{
			0:  route("", "/photos/*", 0),
			1:  route("", "/photos/new", 1),
			2:  route("", "/photos/new/*", 2),
			3:  route("img.example", "/photos/*", 3),
			4:  route("img.example", "/photos/*", 4), // never reached
			5:  route("B.Example", "/*", 5),
			6:  route("img.example", "/a/very/long/path/beyond/one/node", 6),
			7:  route("a.very.long.host.name.beyond.one.node.example", "/*", 7),
			8:  route("", "/photosynthesis", 8),
			9:  route("[2001:db8::a]", "/*", 9),
			10: route("", "/slash/", 10),
		}},
		{Index: 5, Name: "empty"},
	})
	for _, tt := range []struct {
		host, path string
		want       int // -1: none
	}{
		{"x.example", "/photos", 0},
		{"x.example", "/photos/", 0},
		{"x.example", "/photos/old", 0},
		{"x.example", "/photos/new", 1},
		{"x.example", "/photos/new/", 2},
		{"x.example", "/photos/new/x?q=/photos/new", 2},
		{"x.example", "/photos/newer", 0},
		{"x.example", "/photosynthesis", 8},
		{"x.example", "/photosyn", -1},
		{"x.example", "/other", -1},
		{"x.example", "/", -1},
		{"img.example", "/photos/new", 3},
		{"IMG.Example.:80", "/photos/new", 3},
		{"img.example", "/photosynthesis", 8},
		{"img.example", "/a/very/long/path/beyond/one/node", 6},
		{"img.example", "/a/very/long/path/beyond/one/nod", -1},
		{"img.example", "/a/very/long/path/beyond/one/node/", -1},
		{"mg.example", "/photos", 0},
		{"b.eXample", "/", 5},
		{"b.exampl", "/", -1},
		{"b.examples", "/", -1},
		{"a.very.long.host.name.beyond.one.node.example", "/photos", 7},
		{"[2001:db8::a]:8080", "/x", 9},
		{"[2001:DB8::A]", "/x", 9},
		{"x", "/slash/", 10},
		{"x", "/slash", -1},
		{"x", "/photos/%2e%2e/slash/", 10},
		{"x", "/photos%2Fold", -1},
		{"x", "/%70hotos/old", 0},
		{"", "/photos/old", 0},
	} {
		got, ok := lookup(t, im, 0, tt.host, tt.path)
		if !ok && tt.want != -1 || ok && int(got) != tt.want {
			t.Errorf("%q %q: rule %d, %v; want %d", tt.host, tt.path, got, ok, tt.want)
		}
		if got, ok := lookup(t, im, 1, tt.host, tt.path); ok {
			t.Errorf("%q %q: a service without routes chose rule %d", tt.host, tt.path, got)
		}
	}
	var order []uint32
	for _, r := range im.List {
		order = append(order, r.Index)
		var e regs.RuleEntry
		e.Decode(im.Rules[r.Index*regs.RuleWords:])
		if e.ControlValid != 1 || e.ControlGroup != r.Group || e.ServiceService != 3 || e.Order != r.Order {
			t.Errorf("rule %d: entry %+v", r.Index, e)
		}
	}
	if diff := cmp.Diff([]uint32{6, 3, 4, 5, 7, 9, 8, 1, 10, 2, 0}, order); diff != "" {
		t.Errorf("order of precedence (-want +got):\n%s", diff)
	}
}

func TestRequestsWithoutPath(t *testing.T) {
	im := mustCompile(t, []Service{{Name: "s", Routes: []Route{{Match: Match{Host: "a"}, Group: 0}, route("b", "/*", 1), route("c", "/x/*", 2)}}})
	for host, want := range map[string]bool{"a": true, "b": true, "c": false} {
		var r urltable.Request
		if v := urltable.ParseHead([]byte("OPTIONS * HTTP/1.1\r\nHost: "+host+"\r\n\r\n"), &r); v != urltable.OK {
			t.Fatal(v)
		}
		if _, ok := match(im, 0, &r); ok != want {
			t.Errorf("OPTIONS * for %s: %v, want %v", host, ok, want)
		}
	}
}

// reference matches as the text of the rules says, without any automaton.
func reference(s *Service, host, path string) (best int, ok bool) {
	for _, mine := range []string{host, ""} {
		best = -1
		for i, r := range s.Routes {
			if r.Host != mine || !r.matches(path) {
				continue
			}
			if best < 0 || better(&r, &s.Routes[best]) {
				best = i
			}
		}
		if best >= 0 {
			return best, true
		}
	}
	return 0, false
}

func (r *Route) matches(path string) bool {
	if r.Path.Kind == ExactPath {
		return path == r.Path.Text
	}
	return path == r.Path.Text || strings.HasPrefix(path, r.Path.Text+"/")
}

func better(a, b *Route) bool {
	return Precedence(&a.Match, &b.Match) < 0
}

// words are what generated hosts and paths are made of; close to each other on purpose.
var (
	hosts    = []string{"a.example", "b.example", "ab.example", "a.example.net", "a", "aa", "[2001:db8::1]", "very-long-name-of-a-host.example"}
	segments = []string{"", "a", "b", "ab", "abc", "photos", "photosynthesis", "a-segment-longer-than-a-node", "%2F", "%25", ".", "..", "%C3%A9", "x y"}
)

func randomPath(rnd *rand.Rand) string {
	var b strings.Builder
	for range 1 + rnd.IntN(4) {
		b.WriteByte('/')
		b.WriteString(segments[rnd.IntN(len(segments))])
	}
	return strings.ReplaceAll(b.String(), " ", "%20")
}

func randomService(rnd *rand.Rand) Service {
	s := Service{Name: "s"}
	for n := range rnd.IntN(30) {
		host := ""
		if rnd.IntN(3) > 0 {
			host = hosts[rnd.IntN(len(hosts))]
		}
		path := randomPath(rnd)
		if _, err := Pattern(path + "/*"); err == nil && rnd.IntN(2) == 0 {
			path += "/*"
		}
		s.Routes = append(s.Routes, route(host, path, uint32(n)))
	}
	return s
}

func TestAgainstReference(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	for range rounds {
		s := randomService(rnd)
		im := mustCompile(t, []Service{{Name: "other", Routes: randomService(rnd).Routes}, s})
		shift := uint32(im.Indexes.Bound()) - uint32(len(s.Routes))
		for range 50 {
			host, path := hosts[rnd.IntN(len(hosts))], randomPath(rnd)
			if len(s.Routes) > 0 && rnd.IntN(2) == 0 {
				r := s.Routes[rnd.IntN(len(s.Routes))]
				path = strings.NewReplacer(" ", "%20", "é", "%C3%A9").Replace(r.Path.Text) + [...]string{"", "/", "/x", "x"}[rnd.IntN(4)]
				if !strings.HasPrefix(path, "/") {
					continue
				}
			}
			normal, err := Normalise(path)
			if err != nil {
				t.Fatalf("path %q: %v", path, err)
			}
			want, wantOK := reference(&s, host, normal)
			got, ok := lookup(t, im, 1, strings.ToUpper(host), path)
			if ok != wantOK || ok && got-shift != uint32(want) {
				t.Fatalf("host %q path %q: rule %d %v, want %d %v\nroutes %+v", host, path, got-shift, ok, want, wantOK, s.Routes)
			}
		}
	}
}

func TestNormaliseAgainstCard(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	alphabet := []string{"/", "/", ".", "..", "a", "%2e", "%2F", "%25", "%41", "%C3", "%C3%A9", "%20", "//"}
	for range 20000 {
		path := "/"
		for range rnd.IntN(12) {
			path += alphabet[rnd.IntN(len(alphabet))]
		}
		want, err := Normalise(path)
		if err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		var r urltable.Request
		if v := urltable.ParseHead([]byte("GET "+path+" HTTP/1.0\r\n\r\n"), &r); v != urltable.OK {
			t.Fatalf("%q: %v", path, v)
		}
		if string(r.Path) != want {
			t.Fatalf("%q: card has %q, compiler %q", path, r.Path, want)
		}
	}
}

func TestCompileIsDeterministic(t *testing.T) {
	s := []Service{randomService(rand.New(rand.NewPCG(5, 6))), {Name: "t", Routes: randomService(rand.New(rand.NewPCG(7, 8))).Routes}}
	a, b := mustCompile(t, s), mustCompile(t, s)
	if diff := cmp.Diff(a.Nodes, b.Nodes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(a.Rules, b.Rules); diff != "" {
		t.Error(diff)
	}
}

func TestRuleIndexesStay(t *testing.T) {
	a, b, c := route("", "/a", 0), route("", "/b", 0), route("", "/c", 0)
	old := Indexes{Size: 3}
	steps := []struct {
		name   string
		routes []Route
		free   func(uint32) bool
		want   []uint32 // index by place in routes; nil: no room
	}{
		{"first", []Route{a, b, c}, nil, []uint32{0, 1, 2}},
		{"order changes", []Route{c, a, b}, nil, []uint32{2, 0, 1}},
		{"removed", []Route{c, b}, nil, []uint32{2, 1}},
		{"no place while connections name the removed one", []Route{c, b, route("", "/d", 0)}, nil, nil},
		{"it returns", []Route{a, c, b}, nil, []uint32{0, 2, 1}},
		{"removed again", []Route{c, b}, nil, []uint32{2, 1}},
		{"place given up", []Route{route("", "/d", 0), c, b}, func(i uint32) bool { return i == 0 }, []uint32{0, 2, 1}},
	}
	for _, st := range steps {
		im, err := Compile([]Service{{Name: "s", Routes: st.routes}}, old, 1000, st.free)
		if st.want == nil {
			if err == nil {
				t.Errorf("%s: no error", st.name)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", st.name, err)
		}
		for i, r := range st.routes {
			for _, l := range im.List {
				if l.Path == r.Path && l.Index != st.want[i] {
					t.Errorf("%s: %s has index %d, want %d", st.name, r.Path.Text, l.Index, st.want[i])
				}
			}
		}
		old = im.Indexes
	}
}

func TestCompileRefusesTooManyNodes(t *testing.T) {
	_, err := Compile([]Service{{Name: "s", Routes: []Route{route("", "/a/long/path/of/several/nodes", 0)}}}, Indexes{Size: 9}, 3, nil)
	if !errors.Is(err, ErrTooBig) || !strings.Contains(err.Error(), "1 routes need 4 entries, it has 3") {
		t.Errorf("error %v", err)
	}
}

func FuzzRules(f *testing.F) {
	f.Add(uint64(1), "a.example", "/photos/x")
	f.Add(uint64(2), "A.EXAMPLE.", "/a/../%2e/b")
	f.Add(uint64(99), "[2001:db8::1]:80", "/a%2Fb")
	f.Fuzz(func(t *testing.T, seed uint64, host, path string) {
		var r urltable.Request
		head := "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
		if urltable.ParseHead([]byte(head), &r) != urltable.OK {
			return
		}
		s := randomService(rand.New(rand.NewPCG(seed, 0)))
		// Now and then the very path of the request becomes a rule.
		if p, err := Pattern(strings.SplitN(path, "?", 2)[0]); err == nil && seed%2 == 0 {
			s.Routes = append(s.Routes, Route{Match: Match{Path: p}, Group: 7})
		}
		im := mustCompile(t, []Service{s})
		want, wantOK := reference(&s, strings.ToLower(string(r.Host)), string(r.Path))
		got, ok := match(im, 0, &r)
		if ok != wantOK || ok && got != uint32(want) {
			t.Fatalf("host %q path %q: rule %d %v, want %d %v", r.Host, r.Path, got, ok, want, wantOK)
		}
	})
}

// TestIndexesGoByConditions: rules for the same path keep their indexes by what else they ask for, whatever their order.
func TestIndexesGoByConditions(t *testing.T) {
	with := func(value string, methods ...string) Route {
		r := route("a.example", "/x", 0)
		r.Methods, r.Conditions = methods, []Condition{{Subject: Header, Name: "x-canary", Value: value}}
		return r
	}
	routes := []Route{with("1"), with("2"), with("1", "GET"), route("a.example", "/x", 0)}
	old := mustCompile(t, []Service{{Name: "s", Routes: routes}})
	slices.Reverse(routes)
	im, err := Compile([]Service{{Name: "s", Routes: routes}}, old.Indexes, 1<<19, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range old.List {
		for _, b := range im.List {
			if a.Match.String() == b.Match.String() && a.Index != b.Index {
				t.Errorf("%s had index %d and has %d", a.Match.String(), a.Index, b.Index)
			}
		}
	}
}

// TestRestore: names get the indexes of a list back, the index of an unknown name goes to nobody as long as it is used.
func TestRestore(t *testing.T) {
	x := Restore(5, []string{"a", "", "c"})
	if got := x.Names(); !slices.Equal(got, []string{"a", "", "c"}) || x.Bound() != 3 || len(x.Used()) != 0 {
		t.Errorf("restored %q, bound %d, used %v", got, x.Bound(), x.Used())
	}
	x, err := x.Next("t", []string{"d", "c"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Named{{"c", 2}, {"d", 3}}
	if got := x.Used(); !slices.Equal(got, want) {
		t.Errorf("used %v, want %v", got, want)
	}
	if got := x.Names(); !slices.Equal(got, []string{"a", "", "c", "d"}) {
		t.Errorf("names %q", got)
	}
	if got := x.Retired(); !slices.Equal(got, []Named{{"a", 0}, {Nameless(1), 1}}) {
		t.Errorf("retired %v", got)
	}
	if _, err := x.Next("t", []string{"d", "c", "e", "f"}, func(i uint32) bool { return i != 0 && i != 1 }); !errors.Is(err, ErrFull) {
		t.Errorf("error %v", err)
	}
	x, err = x.Next("t", []string{"d", "c", "e", "f"}, func(i uint32) bool { return i == 1 })
	if i, ok := x.Of("f"); err != nil || !ok || i != 1 {
		t.Errorf("f has index %d, %v, %v", i, ok, err)
	}
}
