package rule

import (
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"splicenic/regs"
)

// What the card's formats have room for.
const (
	maxCandidates = 16 // rules of a list
	maxConditions = 8  // of a rule
	maxProbes     = 16 // nodes of a block that a label is looked for in
	maxLabels     = 31 // of a wildcard
	maxSuffix     = 32 // bytes of the end of a segment
	maxNets       = 32 // of a condition
	maxText       = 1<<16 - 1
	maxLog2       = 19
)

const (
	narrowLabel = 4 * regs.UrlNodeLabelCount // bytes of a label in a node
	wideLabel   = narrowLabel + regs.UrlNodeBytes
)

// A layout is an image while it grows. Past max entries it only counts.
type layout struct {
	max, used uint32
	nodes     []uint32
	rules     []uint32          // the rule table
	lists     map[string]uint32 // take words by the list they stand for
	freeAt    uint32            // word of the table that the next list may begin at
	freeEnd   uint32            // where the entry ends that it is in
}

// allocate takes n adjacent entries from an index that is a multiple of align.
func (l *layout) allocate(n, align uint32) uint32 {
	at := (l.used + align - 1) / align * align
	l.used = at + n
	if need := int(l.used) * regs.UrlNodeWords; l.used <= l.max && need > len(l.nodes) {
		l.nodes = append(l.nodes, make([]uint32, max(need-len(l.nodes), len(l.nodes)/2))...)
	}
	return at
}

// words returns n words from an entry on; where there is no room for them they go nowhere.
func (l *layout) words(at, n uint32) []uint32 {
	i := uint64(at) * regs.UrlNodeWords
	if i+uint64(n) > uint64(len(l.nodes)) {
		return make([]uint32, n)
	}
	return l.nodes[i : i+uint64(n)]
}

// text puts a text into entries of its own.
func (l *layout) text(s string) (at uint32) {
	n := uint32(len(s)+regs.UrlTextBytes-1) / regs.UrlTextBytes
	at = l.allocate(max(n, 1), 1)
	pack(l.words(at, n*regs.UrlTextWords), s)
	return at
}

// pack puts the bytes of a text into words that are zero.
func pack(words []uint32, s string) {
	for i := range len(s) {
		words[i/4] |= uint32(s[i]) << (i % 4 * 8)
	}
}

// list returns what a state's take word is for a list of rules, each the index and perhaps a bit.
func (l *layout) list(rules []uint32) (take uint32) {
	switch len(rules) {
	case 0:
		return 0
	case 1:
		return regs.SetUrlNodeTakeCount(rules[0], 1)
	}
	var key strings.Builder
	for _, r := range rules {
		key.Write([]byte{byte(r), byte(r >> 8), byte(r >> 16), byte(r >> 24)})
	}
	if take, ok := l.lists[key.String()]; ok {
		return take
	}
	n := uint32(len(rules))
	if l.freeEnd-l.freeAt < n {
		entries := (n + regs.UrlTextWords - 1) / regs.UrlTextWords
		l.freeAt = l.allocate(entries, 1) * regs.UrlTextWords
		l.freeEnd = l.freeAt + entries*regs.UrlTextWords
	}
	if uint64(l.freeEnd) <= uint64(len(l.nodes)) {
		copy(l.nodes[l.freeAt:], rules)
	}
	take = regs.SetUrlNodeTakeCount(l.freeAt, n)
	l.freeAt += n
	l.lists[key.String()] = take
	return take
}

// item lays out the entry and the conditions of a rule.
func (l *layout) item(r *Rule) *item {
	it := &item{Rule: r}
	var tests []regs.UrlConditionEntry
	var nets [][]netip.Prefix
	if len(r.Methods) > 0 {
		tests = append(tests, regs.UrlConditionEntry{ControlSubject: regs.UrlConditionControlSubjectMethod})
		nets = append(nets, nil)
	}
	texts := []string{strings.Join(r.Methods, ",")}[:len(tests)]
	if len(texts) == 1 {
		tests[0].LengthValue = uint32(len(texts[0]))
	}
	hard := r.Path.Kind == RegexpPath
	for i := range r.Conditions {
		c := &r.Conditions[i]
		if c.Test == Matches || len(c.Name) > maxText || len(c.Value) > maxText || len(c.Nets) > maxNets {
			hard = true
			continue
		}
		e := regs.UrlConditionEntry{ControlSubject: subjects[c.Subject], ControlTest: uint32(c.Test), LengthName: uint32(len(c.Name)), LengthValue: uint32(len(c.Value))}
		text := c.Name + c.Value
		if c.Subject == Source {
			e.LengthName, e.LengthValue, text = uint32(len(c.Nets)), 0, ""
		}
		tests, texts, nets = append(tests, e), append(texts, text), append(nets, c.Nets)
	}
	if len(tests) > maxConditions {
		tests, hard = tests[:maxConditions], true
	}
	it.tests = uint32(len(tests))
	e := regs.RuleEntry{ControlValid: 1, ControlAnswer: bit(r.Answer), ServiceService: r.Service, Order: r.Order, ConditionsCount: it.tests}
	if !r.Answer {
		e.ControlGroup = r.Group
	}
	if len(tests) > 0 {
		e.ConditionsFirst = l.allocate(it.tests, 1)
		for i := range tests {
			l.condition(e.ConditionsFirst+uint32(i), &tests[i], texts[i], nets[i])
		}
	}
	e.Encode(l.rules[r.Index*regs.RuleWords:])
	if hard {
		l.toHost(it)
	}
	if it.segments(); slices.ContainsFunc(it.path, func(e element) bool { return len(e.text) > maxSuffix && e.kind == ending }) {
		it.loosen()
		l.toHost(it)
	}
	return it
}

var subjects = [...]uint32{
	Header: regs.UrlConditionControlSubjectHeader, Query: regs.UrlConditionControlSubjectQuery, Cookie: regs.UrlConditionControlSubjectCookie,
	Source: regs.UrlConditionControlSubjectSource, ALPN: regs.UrlConditionControlSubjectAlpn,
}

// toHost leaves it to the host to tell whether the rule takes a request.
func (l *layout) toHost(it *item) {
	it.Slow, it.host = true, true
	l.rules[it.Index*regs.RuleWords+regs.RuleControl] |= regs.RuleControlHostMask
}

// condition writes a condition with its text or its networks.
func (l *layout) condition(at uint32, e *regs.UrlConditionEntry, text string, nets []netip.Prefix) {
	e.ControlValid = 1
	switch {
	case len(nets) > 0:
		e.AtNode = l.nets(nets)
	case len(text) > 4*regs.UrlConditionTextCount:
		e.ControlFar, e.AtNode = 1, l.text(text)
	default:
		pack(e.Text[:], text)
	}
	e.Encode(l.words(at, regs.UrlConditionWords))
}

// nets writes networks one after the other, and answers where; zero where there are none.
func (l *layout) nets(nets []netip.Prefix) uint32 {
	if len(nets) == 0 {
		return 0
	}
	at := l.allocate(uint32(len(nets)), 1)
	for i, n := range nets {
		e := netEntry(n)
		e.Encode(l.words(at+uint32(i), regs.UrlNetWords))
	}
	return at
}

func netEntry(n netip.Prefix) (e regs.UrlNetEntry) {
	e.ControlValid, e.ControlKind, e.ControlBits = 1, regs.KindIpv6, uint32(n.Bits())
	b := n.Addr().AsSlice()
	if n.Addr().Is4() {
		e.ControlKind = regs.KindIpv4
	}
	for i := range b {
		e.Address[i/4] |= uint32(b[len(b)-1-i]) << (i % 4 * 8)
	}
	return e
}

// place lays out what a state leads to, and then the state itself, whose own place is known.
func (l *layout) place(n *node) {
	if n.other != nil && !n.other.placed {
		l.alone(n.other)
	}
	if n.next != nil && !n.next.placed {
		l.alone(n.next)
	}
	var control, children uint32
	if len(n.edges) > 0 {
		children = l.block(n.edges)
		control |= regs.UrlNodeControlChildrenMask
	}
	next := n.lengths
	if n.next != nil {
		next = n.next.at | regs.UrlNodeNextValidMask
	}
	control = regs.SetUrlNodeControlOtherwise(control|regs.UrlNodeControlUsedMask, n.kind)
	if n.final {
		control |= regs.UrlNodeControlFinalMask
	}
	take := l.list(n.take)
	w := l.label(n.at, n.wide, control, n.label)
	w[regs.UrlNodeChildren], w[regs.UrlNodeTake], w[regs.UrlNodeNext] = children, take, next
	if n.other != nil {
		w[regs.UrlNodeOtherwise] = n.other.at
	}
}

// alone places a state that no label leads to, as far as is known.
func (l *layout) alone(n *node) {
	n.at, n.placed = l.allocate(1, 1), true
	l.place(n)
}

// label writes a node's control word and label.
func (l *layout) label(at uint32, wide bool, control uint32, label string) []uint32 {
	room, words := narrowLabel, uint32(regs.UrlNodeWords)
	if wide {
		room, words = wideLabel, 2*regs.UrlNodeWords
	}
	far := uint32(0)
	if len(label) > room {
		far = l.text(label)
		control |= regs.UrlNodeControlFarMask
	}
	w := l.words(at, words)
	w[regs.UrlNodeControl] = regs.SetUrlNodeControlLabelBytes(control, uint32(len(label)))
	if len(label) > room {
		w[regs.UrlNodeLabel] = far
	} else {
		pack(w[regs.UrlNodeLabel:], label)
	}
	return w
}

// block lays out the ways out of a state and what they lead to, and returns the word that tells where.
func (l *layout) block(edges []edge) (children uint32) {
	long := 0
	for _, e := range edges {
		if len(e.text) > narrowLabel {
			long++
		}
	}
	wide := uint32(0)
	if 4*long >= len(edges) {
		wide = 1
	}
	log2, shift, slots := arrange(edges)
	if slots == nil {
		l.used = max(l.used, l.max) + 1
		return 0
	}
	first := l.allocate(uint32(1)<<log2<<wide, 1<<wide)
	var fresh []*node
	for slot, k := range slots {
		if k < 0 {
			l.words(first+uint32(slot)<<wide, 1)[regs.UrlNodeControl] = regs.UrlNodeControlVacantMask
			continue
		}
		at, to := first+uint32(slot)<<wide, edges[k].to
		if to.placed {
			w := l.label(at, wide == 1, regs.UrlNodeControlUsedMask|regs.UrlNodeControlAliasMask, edges[k].text)
			w[regs.UrlNodeOtherwise] = to.at
			continue
		}
		to.at, to.placed, to.wide, to.label = at, true, wide == 1, edges[k].text
		fresh = append(fresh, to)
	}
	for _, n := range fresh {
		l.place(n)
	}
	children = regs.SetUrlNodeChildrenLog2(first, log2)
	children = regs.SetUrlNodeChildrenShift(children, shift)
	return regs.SetUrlNodeChildrenWide(children, wide)
}

// arrange finds a block in which every label stands near the place that its hash says: the number of nodes and the part of
// the hash to go by, and which edge stands where.
func arrange(edges []edge) (log2, shift uint32, slots []int32) {
	n := uint32(len(edges))
	hashes := make([]uint64, n)
	for i, e := range edges {
		segment, _, _ := strings.Cut(e.text, "/")
		hashes[i] = hash(segment)
	}
	log2 = uint32(bits.Len32(n - 1))
	if n > 8 {
		log2 = uint32(bits.Len32(n*5/4 - 1))
	}
	tries := uint32(2)
	if n <= 16 {
		tries = 12
	}
	for ; log2 <= maxLog2; log2++ {
		best := -1
		for i := range tries {
			s, far := fill(hashes, log2, 3*i)
			if far >= 0 && (best < 0 || far < best) {
				best, shift, slots = far, 3*i, s
			}
			if best == 0 {
				break
			}
		}
		if best >= 0 {
			return log2, shift, slots
		}
	}
	return 0, 0, nil // more than maxProbes have the same hash
}

// fill puts edges where their hashes say, or behind: the one that is farther from its place goes before the nearer. It
// returns how far all are away together, less than zero where one is too far.
func fill(hashes []uint64, log2, shift uint32) (slots []int32, far int) {
	last := uint32(1)<<log2 - 1
	slots = make([]int32, last+1)
	for i := range slots {
		slots[i] = -1
	}
	for k := range hashes {
		at, d, mine := uint32(hashes[k]>>shift)&last, uint32(0), int32(k)
		for slots[at] >= 0 {
			if its := (at - uint32(hashes[slots[at]]>>shift)) & last; its < d {
				slots[at], mine, d = mine, slots[at], its
			}
			at, d = (at+1)&last, d+1
			far++
			if d == maxProbes {
				return nil, -1
			}
		}
		slots[at] = mine
	}
	return slots, far
}
