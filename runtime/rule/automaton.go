package rule

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"splicenic/regs"
)

// An item is a rule with its path as a pattern.
type item struct {
	*Rule
	path  []element
	some  bool   // takes no request without a path, whatever the pattern says
	tests uint32 // conditions that the card tests
	host  bool   // the host has to test it too
}

// An element is a part of a pattern.
type element struct {
	kind elementKind
	text string // of literal and ending
}

type elementKind uint8

const (
	literal elementKind = iota // a segment
	any1                       // a segment that is not empty
	ending                     // a segment that ends with the text
	many                       // any number of segments
)

// segments turns the path of a rule into a pattern. A regular expression becomes what is sure to take all that it takes.
func (it *item) segments() {
	p := it.Path
	text := p.Text
	switch p.Kind {
	case RegexpPath:
		text = literalPrefix(text)
		text = text[:max(strings.LastIndexByte(text, '/'), 0)]
		if !strings.HasPrefix(text, "/") {
			text = ""
		}
		it.some = true
	case PatternPath:
		it.some = true
	case AnyPath:
		text = ""
	}
	it.path = nil
	if text != "" {
		for _, s := range strings.Split(text[1:], "/") {
			e := element{literal, s}
			if end, wild := strings.CutPrefix(s, "*"); wild && p.Kind == PatternPath {
				switch {
				case s == "**":
					e = element{kind: many}
				case s == "*":
					e = element{kind: any1}
				default:
					e = element{ending, end}
				}
			}
			if n := len(it.path); e.kind != many || n == 0 || it.path[n-1].kind != many {
				it.path = append(it.path, e)
			}
		}
	}
	if p.Kind != ExactPath && p.Kind != PatternPath {
		it.path = append(it.path, element{kind: many})
	}
}

// plain says whether the pattern is a path, or a path and everything below it.
func (it *item) plain() bool {
	for i, e := range it.path {
		if e.kind != literal && (e.kind != many || i+1 < len(it.path)) {
			return false
		}
	}
	return true
}

// loosen makes the pattern plain: it takes all that it took, and more, which the host sorts out.
func (it *item) loosen() {
	for i, e := range it.path {
		if e.kind != literal {
			it.path = append(it.path[:i:i], element{kind: many})
			return
		}
	}
}

// A node is a state of an automaton, with its ways out.
type node struct {
	take    []uint32 // rules in the order of precedence, as words of a list
	edges   []edge
	kind    uint32 // of other
	other   *node
	next    *node  // state before a path
	lengths uint32 // of the labels, where the ends of segments or of hosts are looked for
	final   bool

	at     uint32
	placed bool
	wide   bool
	label  string
}

// An edge is a way from a state to another: a host, or a segment and perhaps more.
type edge struct {
	text string
	to   *node
}

// A position is how far a path has come in a rule's pattern.
type position struct {
	*item
	at int
}

func (p position) end() bool { return p.at == len(p.path) }

func (p position) is(k elementKind) bool { return p.at < len(p.path) && p.path[p.at].kind == k }

// lasts says whether the rule takes whatever follows.
func (p position) lasts() bool { return p.is(many) && p.at+1 == len(p.path) }

// A builder makes the automaton over paths of one host. A state is a set of positions, in the order of their rules: what
// rules still can take the path.
type builder struct {
	l     *layout
	plain bool
	memo  map[string]*node
	left  int // states that may still be made
}

// paths makes the automaton of rules in the order of precedence. Wildcards may multiply the states; where that goes too
// far, the host tests the rules that have them.
func (l *layout) paths(rules []*item) *node {
	b := builder{l: l, plain: true, left: 1024}
	for _, it := range rules {
		b.left += 8 * len(it.path)
		b.plain = b.plain && it.plain()
	}
	root := b.root(rules)
	if b.left >= 0 || b.plain {
		return root
	}
	for _, it := range rules {
		if !it.plain() {
			it.loosen()
			l.toHost(it)
		}
	}
	b.plain = true
	return b.root(rules)
}

// root makes the state before a path. Where no path follows, only rules for every path take the request.
func (b *builder) root(rules []*item) *node {
	b.memo = map[string]*node{}
	set := make([]position, 0, len(rules))
	var pathless []position
	some := false
	for _, it := range rules {
		set = append(set, position{it, 0})
		switch last := len(it.path); {
		case last > 0 && it.path[0].kind != many:
		case it.some:
			some = true
		case last < 2:
			pathless = append(pathless, position{it, last})
		}
	}
	set = b.close(set)
	if !some {
		return b.state(set)
	}
	n := &node{}
	b.fill(n, set)
	n.take = b.l.rulesOf(pathless)
	if n.final { // other rules where a path follows
		n.final, n.other = false, b.state(set)
	}
	return n
}

// close adds the positions that are reached without a segment, in place, and leaves away those that no path makes count:
// of the rules that last, those behind one that always takes the request, and those behind as many as the card looks at.
func (b *builder) close(set []position) []position {
	closed := make([]position, 0, len(set)+4)
	lasting, sure := 0, false
	for _, p := range set {
		if p.lasts() {
			if sure || lasting > maxCandidates {
				p.Slow = p.Slow || !sure
				continue
			}
			lasting++
			sure = p.tests == 0
		}
		closed = append(closed, p)
		for p.is(many) {
			p.at++
			closed = append(closed, p)
		}
	}
	return slices.CompactFunc(closed, func(a, b position) bool { return a == b })
}

// rulesOf lists the rules that take a path which ends here.
func (l *layout) rulesOf(set []position) (list []uint32) {
	var last position
	for _, p := range set {
		if !p.end() {
			continue
		}
		if len(list) == maxCandidates {
			list[maxCandidates-1] |= regs.UrlNodeTakeHostMask
			last.Slow, p.Slow = true, true
			continue
		}
		word := p.Index
		if p.tests == 0 && !p.host {
			word |= regs.UrlNodeTakeSureMask
		}
		list, last = append(list, word), p
		if p.tests == 0 {
			break
		}
	}
	return list
}

// key tells sets apart.
func key(set []position) string {
	b := make([]byte, 0, 6*len(set))
	for _, p := range set {
		b = binary.LittleEndian.AppendUint32(b, p.Order)
		b = binary.LittleEndian.AppendUint16(b, uint16(p.at))
	}
	return string(b)
}

// loops keeps the positions that every segment leads back to.
func loops(set []position) (kept []position) {
	for _, p := range set {
		if p.is(many) {
			kept = append(kept, p)
		}
	}
	return kept
}

// state makes the state of a closed set, once where sets may come again.
func (b *builder) state(set []position) *node {
	if b.plain && slices.ContainsFunc(set, func(p position) bool { return p.is(literal) || p.end() && (p.at == 0 || p.path[p.at-1].kind != many) }) {
		n := &node{}
		b.fill(n, set)
		return n
	}
	k := key(set)
	if n := b.memo[k]; n != nil {
		return n
	}
	n := &node{}
	b.memo[k] = n
	b.fill(n, set)
	return n
}

// fill makes the ways out of a state.
func (b *builder) fill(n *node, set []position) {
	n.take = b.l.rulesOf(set)
	if b.left -= 1 + len(set)/8; b.left < 0 && !b.plain {
		return
	}
	lasting := b.close(loops(set))
	own := less(set, lasting)
	switch {
	case len(own) == 0 && !slices.ContainsFunc(set, position.moves):
		if len(set) > 0 {
			n.kind, n.other, n.final = regs.UrlNodeControlOtherwiseState, n, true
		}
		return
	case len(own) == 0 || slices.ContainsFunc(own, position.wild) || !slices.ContainsFunc(lasting, position.moves):
		b.otherwise(n, set, lasting)
		b.literals(n, set, set)
	default:
		n.kind, n.other = regs.UrlNodeControlOtherwiseAgain, b.state(lasting)
		b.literals(n, own, set)
	}
	n.shorten()
}

// moves says whether a segment leads on from here.
func (p position) moves() bool { return p.is(literal) || p.wild() }

func (p position) wild() bool { return p.is(any1) || p.is(ending) }

// less is set without the positions of other; both are in the same order.
func less(set, other []position) (kept []position) {
	for _, p := range set {
		if len(other) > 0 && p == other[0] {
			other = other[1:]
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

// literals makes a way out for every segment that of names, with where it leads from set.
func (b *builder) literals(n *node, of, set []position) {
	var named []position
	wild := false
	for _, p := range of {
		if p.is(literal) {
			named = append(named, p)
		}
		wild = wild || p.wild()
	}
	slices.SortFunc(named, func(x, y position) int {
		return cmp.Or(strings.Compare(x.path[x.at].text, y.path[y.at].text), cmp.Compare(x.Order, y.Order), cmp.Compare(x.at, y.at))
	})
	if wild && (len(named) == 0 || named[0].path[named[0].at].text != "") { // where no wildcard leads
		n.edges = append(n.edges, edge{"", b.state(b.step(set, ""))})
	}
	lasting := loops(set)
	for len(named) > 0 {
		text := named[0].path[named[0].at].text
		k := 1
		for k < len(named) && named[k].path[named[k].at].text == text {
			k++
		}
		var to []position
		if b.plain {
			to = b.close(merge(named[:k], lasting))
		} else {
			to = b.step(set, text)
		}
		n.edges = append(n.edges, edge{text, b.state(to)})
		named = named[k:]
	}
}

// merge is where a segment leads to that the first list names: behind it there, and to the second list.
func merge(named, lasting []position) []position {
	to := make([]position, 0, len(named)+len(lasting))
	for _, p := range named {
		for len(lasting) > 0 && lasting[0].Order < p.Order {
			to, lasting = append(to, lasting[0]), lasting[1:]
		}
		to = append(to, position{p.item, p.at + 1})
	}
	return append(to, lasting...)
}

// step is where a segment leads from a set.
func (b *builder) step(set []position, segment string) []position {
	return b.along(set, func(e element) bool {
		switch e.kind {
		case literal:
			return e.text == segment
		case any1:
			return segment != ""
		}
		return strings.HasSuffix(segment, e.text)
	})
}

// along is where a segment leads from a set that fits some elements.
func (b *builder) along(set []position, fits func(element) bool) []position {
	var to []position
	for _, p := range set {
		switch {
		case p.is(many):
			to = append(to, p)
		case !p.end() && fits(p.path[p.at]):
			to = append(to, position{p.item, p.at + 1})
		}
	}
	slices.SortFunc(to, func(x, y position) int { return cmp.Or(cmp.Compare(x.Order, y.Order), cmp.Compare(x.at, y.at)) })
	return b.close(slices.Compact(to))
}

// otherwise makes the way out for segments that no literal names: by their end, where one is asked for, else to one state.
func (b *builder) otherwise(n *node, set, lasting []position) {
	rest := b.along(set, func(e element) bool { return e.kind == any1 })
	ends := map[string]bool{}
	for _, p := range set {
		if p.is(ending) {
			ends[p.path[p.at].text] = true
		}
	}
	to := n
	if len(ends) > 0 {
		by := &node{}
		n.kind, n.other, to = regs.UrlNodeControlOtherwiseSuffix, by, by
		for _, end := range sortedKeys(ends) {
			by.lengths |= 1 << (len(end) - 1)
			state := b.along(set, func(e element) bool {
				return e.kind == any1 || e.kind == ending && strings.HasSuffix(end, e.text)
			})
			by.edges = append(by.edges, edge{end, b.state(state)})
		}
	}
	if len(rest) > 0 {
		to.kind, to.other = regs.UrlNodeControlOtherwiseState, b.state(rest)
	}
}

// shorten joins ways that have no branch: a state in between that takes what the state otherwise takes is left away.
func (n *node) shorten() {
	var rest []uint32
	switch {
	case n.kind == regs.UrlNodeControlOtherwiseState && n.other.final:
		rest = n.other.take
	case n.kind != regs.UrlNodeControlOtherwiseNone:
		return
	}
	for i := range n.edges {
		e := &n.edges[i]
		for x := e.to; len(x.edges) == 1 && x.kind == n.kind && x.other == n.other && slices.Equal(x.take, rest); x = e.to {
			e.text, e.to = e.text+"/"+x.edges[0].text, x.edges[0].to
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
