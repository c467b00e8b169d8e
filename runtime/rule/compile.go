package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"splicenic/regs"
)

// Service is the routes of a service in the order of the file.
type Service struct {
	Index  uint32 // in the service table
	Name   string
	Routes []Route
}

// Route sends requests for a host and a path, both as Host and Pattern return them, to a group.
type Route struct {
	Host  string // empty: every host
	Path  string // with Exact false: a prefix, empty for every path
	Exact bool
	Group uint32 // in the group table
}

// Rule is a route in its place.
type Rule struct {
	Index   uint32 // in the rule table
	Order   uint32 // place in the order of precedence within the service
	Service uint32
	Route
}

// Image is what the card is given.
type Image struct {
	Nodes   []uint32 // the URL table, from its first node
	Roots   []uint32 // node index of the host automaton, by the place of the service in the input
	Rules   []uint32 // the rule table, from its first entry
	List    []Rule   // by service in the order of the input, then in the order of precedence
	Indexes Indexes
}

// Compile lays out the automata of all services. old are the indexes in force and free says which retired ones may be
// used again. maxNodes is how many nodes a bank has.
//
// A request takes the rules of its very host before those of every host, the rule of its exact path before that of the
// longest prefix, and the earlier of two equal ones.
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
	for i := range services {
		s := &services[i]
		list := make([]Rule, len(s.Routes))
		for n, r := range s.Routes {
			index, _ := indexes.Of(names[n])
			list[n] = Rule{Index: index, Service: s.Index, Route: r}
		}
		names = names[len(s.Routes):]
		im.Roots = append(im.Roots, im.hosts(list))
		if uint32(len(im.Nodes)/regs.UrlNodeWords) > maxNodes {
			return nil, fmt.Errorf("the routes up to service %s need more than the %d nodes of the URL table", s.Name, maxNodes)
		}
		im.List = append(im.List, im.order(list)...)
	}
	return im, nil
}

// keys names the rules of a service so that a rule keeps its index while its host and path stay the same.
func keys(s *Service) []string {
	names := make([]string, len(s.Routes))
	times := map[string]int{}
	for i, r := range s.Routes {
		key := strings.Join([]string{s.Name, r.Host, r.Path, strconv.FormatBool(r.Exact)}, "\x00")
		names[i] = key
		if n := times[key]; n > 0 {
			names[i] += "\x00" + strconv.Itoa(n)
		}
		times[key]++
	}
	return names
}

// order sorts rules by precedence and writes their entries.
func (im *Image) order(list []Rule) []Rule {
	slices.SortStableFunc(list, func(a, b Rule) int {
		return cmp.Or(first(a.Host != "", b.Host != ""), first(a.Exact, b.Exact), cmp.Compare(len(b.Path), len(a.Path)))
	})
	for i := range list {
		r := &list[i]
		r.Order = uint32(i)
		entry := regs.RuleEntry{ControlValid: 1, ControlGroup: r.Group, ServiceService: r.Service, Order: r.Order}
		entry.Encode(im.Rules[r.Index*regs.RuleWords:])
	}
	return list
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// An item is one string of an automaton with what is taken where it ends.
type item struct {
	key           string
	exact, prefix *uint32 // rules
	path          *uint32 // root of a path automaton
}

// hosts lays out the automata of one service, whose rules are in the order of the file.
func (im *Image) hosts(list []Rule) (root uint32) {
	root = im.allocate(1)
	of := map[string][]Rule{}
	for _, r := range list {
		of[r.Host] = append(of[r.Host], r)
	}
	var items []item
	for _, host := range sortedKeys(of) {
		at := im.paths(of[host])
		items = append(items, item{key: host, path: &at})
	}
	im.fill(root, "", items)
	return root
}

// paths lays out the path automaton of one host.
func (im *Image) paths(list []Rule) (root uint32) {
	root = im.allocate(1)
	of := map[string]*item{}
	for _, r := range list {
		it := of[r.Path]
		if it == nil {
			it = &item{key: r.Path}
			of[r.Path] = it
		}
		place := &it.prefix
		if r.Exact {
			place = &it.exact
		}
		if *place == nil {
			index := r.Index
			*place = &index
		}
	}
	items := make([]item, 0, len(of))
	for _, key := range sortedKeys(of) {
		items = append(items, *of[key])
	}
	im.fill(root, "", items)
	return root
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// allocate takes n adjacent nodes.
func (im *Image) allocate(n int) uint32 {
	at := uint32(len(im.Nodes) / regs.UrlNodeWords)
	im.Nodes = append(im.Nodes, make([]uint32, n*regs.UrlNodeWords)...)
	return at
}

// fill writes the node at an index: its label, and the items below it, which are sorted and whose keys count from the end
// of the label.
func (im *Image) fill(at uint32, label string, items []item) {
	var e regs.UrlNodeEntry
	rest := ""
	if room := 4 * regs.UrlNodeLabelCount; len(label) > room {
		label, rest = label[:room], label[room:]
	}
	e.ControlLabelBytes = uint32(len(label))
	for i := range len(label) {
		e.Label[i/4] |= uint32(label[i]) << (i % 4 * 8)
	}
	if rest != "" {
		e.ControlChildren, e.FirstChild = 1, im.allocate(1)
		e.Encode(im.Nodes[at*regs.UrlNodeWords:])
		im.fill(e.FirstChild, rest, items)
		return
	}
	if len(items) > 0 && items[0].key == "" {
		it := &items[0]
		e.ControlExact, e.ExactRule = take(it.exact)
		e.ControlPrefix, e.PrefixRule = take(it.prefix)
		e.ControlPath, e.PathRoot = take(it.path)
		items = items[1:]
	}
	children := branches(items)
	e.ControlChildren = uint32(len(children))
	if len(children) > 0 {
		e.FirstChild = im.allocate(len(children))
	}
	e.Encode(im.Nodes[at*regs.UrlNodeWords:])
	for i, below := range children {
		n := common(below[0].key, below[len(below)-1].key)
		label := below[0].key[:n]
		for k := range below {
			below[k].key = below[k].key[n:]
		}
		im.fill(e.FirstChild+uint32(i), label, below)
	}
}

func take(v *uint32) (valid, value uint32) {
	if v == nil {
		return 0, 0
	}
	return 1, *v
}

// branches cuts sorted items into runs that begin with the same byte.
func branches(items []item) (runs [][]item) {
	for len(items) > 0 {
		n := 1
		for n < len(items) && items[n].key[0] == items[0].key[0] {
			n++
		}
		runs = append(runs, items[:n])
		items = items[n:]
	}
	return runs
}

// common is the length of the longest common prefix.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
