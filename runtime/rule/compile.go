package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"splicenic/regs"
)

// ErrTooBig is the error of routes that the URL table has no room for.
var ErrTooBig = errors.New("URL table too small")

// Service is the routes of a service in the order of the file.
type Service struct {
	Index   uint32 // in the service table
	Name    string
	Sources []netip.Prefix // networks of the clients that it takes
	Routes  []Route
}

// Route sends the requests that it takes to a group, or has the host answer them.
type Route struct {
	Match
	Group  uint32 // in the group table
	Answer bool   // the host answers; Group means nothing
}

// Rule is a route in its place.
type Rule struct {
	Index   uint32 // in the rule table
	Order   uint32 // place in the order of precedence within the service
	Service uint32
	Place   int // in the routes of its service
	Route
	// Slow says that it takes the host to tell whether the rule takes a request: it asks for what the card cannot test,
	// or more rules come before it than the card looks at.
	Slow bool
}

// Image is what the card is given.
type Image struct {
	Nodes   []uint32 // the URL table, from its first entry
	Sources []uint32 // first entry of its sources' networks, likewise
	Roots   []uint32 // index of the root, by the place of the service in the input
	Rules   []uint32 // the rule table, from its first entry
	List    []Rule   // by service in the order of the input, then in the order of precedence
	Indexes Indexes
}

// Bytes is how much memory of the card an image takes.
func (im *Image) Bytes() int { return 4 * (len(im.Nodes) + len(im.Rules)) }

// Compile lays out the automata of all services. old are the indexes in force and free says which retired ones may be
// used again. maxNodes is how many entries a bank of the URL table has; where that is too few the error is an ErrTooBig.
//
// The rules of the very host come before those of wildcards and of every host; each of these is an automaton over paths of
// its own, and they are tried in this order. So the order of precedence, which puts hosts first, holds.
func Compile(services []Service, old Indexes, maxNodes uint32, free func(index uint32) bool) (*Image, error) {
	var names []string
	for i := range services {
		names = append(names, keys(&services[i])...)
	}
	indexes, err := old.Next("rule", names, free)
	if err != nil {
		return nil, err
	}
	im := &Image{Indexes: indexes, Rules: make([]uint32, indexes.Bound()*regs.RuleWords)}
	l := &layout{max: maxNodes, rules: im.Rules, lists: map[string]uint32{}}
	for i := range services {
		s := &services[i]
		list := make([]Rule, len(s.Routes))
		for k, at := range order(s.Routes) {
			index, _ := indexes.Of(names[at])
			list[k] = Rule{Index: index, Order: uint32(k), Service: s.Index, Place: at, Route: s.Routes[at]}
		}
		names = names[len(s.Routes):]
		im.Roots = append(im.Roots, l.service(list))
		im.Sources = append(im.Sources, l.nets(s.Sources))
		im.List = append(im.List, list...)
	}
	if l.used > maxNodes {
		return nil, fmt.Errorf("%w: %d routes need %d entries, it has %d", ErrTooBig, len(im.List), l.used, maxNodes)
	}
	im.Nodes = l.nodes[:l.used*regs.UrlNodeWords]
	return im, nil
}

// keys names the rules of a service so that a rule keeps its index while what it asks for stays the same.
func keys(s *Service) []string {
	names := make([]string, len(s.Routes))
	times := make(map[string]int, len(s.Routes))
	var b strings.Builder
	for i := range s.Routes {
		b.Reset()
		s.Routes[i].key(&b, s.Name)
		key := b.String()
		names[i] = key
		if n := times[key]; n > 0 {
			names[i] += "\x00" + strconv.Itoa(n)
		}
		times[key]++
	}
	return names
}

// key writes what a rule asks for.
func (m *Match) key(b *strings.Builder, service string) {
	kind := "false"
	switch m.Path.Kind {
	case ExactPath:
		kind = "true"
	case PatternPath:
		kind = "pattern"
	case RegexpPath:
		kind = "regexp"
	}
	for i, s := range [...]string{service, m.Host, m.Path.Text, kind} {
		if i > 0 {
			b.WriteByte(0)
		}
		b.WriteString(s)
	}
	for _, p := range m.Parts() {
		b.WriteByte(0)
		b.WriteString(p)
	}
}

// service lays out the automata of one service, whose rules are in the order of precedence, and their entries in the rule
// table. It returns the root.
func (l *layout) service(list []Rule) (root uint32) {
	of := map[string][]*item{}
	for i := range list {
		it := l.item(&list[i])
		host, cut := lastLabels(it.Host)
		if cut {
			l.toHost(it)
		}
		of[host] = append(of[host], it)
	}
	return l.hosts(of)
}

func bit(b bool) uint32 { return uint32(flag(b)) }

// lastLabels cuts a wildcard that has more labels than the card compares.
func lastLabels(host string) (short string, cut bool) {
	name, ok := strings.CutPrefix(host, "*.")
	if !ok || strings.Count(name, ".") < maxLabels {
		return host, false
	}
	labels := strings.Split(name, ".")
	return "*." + strings.Join(labels[len(labels)-maxLabels:], "."), true
}

// hosts lays out the automaton over hosts.
func (l *layout) hosts(of map[string][]*item) (root uint32) {
	root = l.allocate(1, 1)
	names := make([]string, 0, len(of))
	for host := range of {
		if host != "" {
			names = append(names, host)
		}
	}
	slices.Sort(names)
	var exact, wild []edge
	states := make(map[string]*node, len(of))
	for _, host := range names {
		n := l.paths(of[host])
		states[host] = n
		if below, ok := strings.CutPrefix(host, "*."); ok {
			wild = append(wild, edge{below, n})
		} else {
			exact = append(exact, edge{host, n})
		}
	}
	top := &node{at: root, placed: true, edges: exact}
	if any := of[""]; any != nil {
		top.next = l.paths(any)
	}
	for host, n := range states {
		if n.next = states[above(host, states)]; n.next == nil {
			n.next = top.next
		}
	}
	if len(wild) > 0 {
		by := &node{edges: wild}
		for _, e := range wild {
			by.lengths |= 1 << strings.Count(e.text, ".")
		}
		top.kind, top.other = regs.UrlNodeControlOtherwiseSuffix, by
	}
	l.place(top)
	return root
}

// above is the longest wildcard that takes a host, or all that a wildcard takes.
func above(host string, states map[string]*node) string {
	name := strings.TrimPrefix(host, "*.")
	for i := 1; i < len(name); i++ {
		if name[i] == '.' {
			if w := "*" + name[i:]; states[w] != nil {
				return w
			}
		}
	}
	return "*"
}
