package urltable

import (
	"bytes"
	"math/bits"

	"splicenic/regs"
)

// The bounds of a match.
const (
	MaxCandidates = 16 // rules looked at, over all states
	MaxConditions = 8  // of a rule
	MaxRoots      = 8  // states before a path that are tried: that of the very host, of wildcards, of every host
)

// maxProbes is how many nodes of a block a way out is looked for in.
const maxProbes = 16

const (
	entryWords = regs.UrlNodeWords
	maxHost    = 253 // bytes of a host that a rule may name (RFC 1035 2.3.4)
	maxLabels  = 31  // of a wildcard
	maxSuffix  = 32  // bytes of the end of a segment
)

// Tables are the memories that a match reads, one bank of each.
type Tables struct {
	Nodes []uint32 // the URL table
	Rules []uint32 // the rule table
}

// An Outcome is what came of a match.
type Outcome uint8

// The outcomes.
const (
	None    Outcome = iota // no rule takes the request
	Matched                // the rule takes it
	Host                   // only the host can tell: a rule that it has to test comes first, or a bound of the card was met
)

// A state is what a walk stands at: a node, by its words. The way into a wide node goes on behind them.
type state []uint32

// Match finds the first rule in the order of precedence that takes a request: it walks the automaton at root over the
// host, and from the states before a path that this leads to, one after the other, over the path. Of the rules that the
// state behind the path lists the first counts whose conditions are fulfilled. rule means nothing with None; with Host it
// is the rule to be tested. With Matched it lies in the rule table; where nothing had to be tested its entry was not read.
func Match(t *Tables, root uint32, r *Request) (rule uint32, v Outcome) {
	left := MaxCandidates
	s := t.host(t.node(root), r.Host)
	for range MaxRoots {
		if s == nil {
			return 0, None
		}
		if end := t.path(s, r.Path); end != nil {
			if rule, v = t.first(end, r, &left); v != None {
				return rule, v
			}
		}
		s = t.next(s)
	}
	if s == nil {
		return 0, None
	}
	return 0, Host
}

// next is the state before a path that is tried after s.
func (t *Tables) next(s state) state {
	if w := s[regs.UrlNodeNext]; regs.UrlNodeNextValid(w) != 0 {
		return t.node(regs.UrlNodeNextNode(w))
	}
	return nil
}

// host finds the first state before a path: that of the very host, of the longest wildcard, of every host.
func (t *Tables) host(root state, host []byte) state {
	if root == nil {
		return nil
	}
	if len(host) <= maxHost && len(host) > 0 {
		var buf [maxHost + 3]byte
		name := buf[:len(host)]
		lower(name, host)
		if s, _ := t.child(root, hash(name), name, true); s != nil {
			return s
		}
		if s := t.wildcard(root, name); s != nil {
			return s
		}
	}
	return t.next(root)
}

// wildcard finds the state of the longest suffix of name that is one and begins behind a dot.
func (t *Tables) wildcard(root state, name []byte) state {
	if regs.UrlNodeControlOtherwise(root[regs.UrlNodeControl]) != regs.UrlNodeControlOtherwiseSuffix {
		return nil
	}
	by := t.node(regs.UrlNodeOtherwiseNode(root[regs.UrlNodeOtherwise]))
	if by == nil {
		return nil
	}
	var begins [maxLabels + 1]uint8 // of the last i labels
	n := 0
	for i := len(name) - 1; i > 0 && n < maxLabels; i-- {
		if name[i] == '.' {
			n++
			begins[n] = uint8(i + 1)
		}
	}
	for left := by[regs.UrlNodeNext] & (1<<n - 1); left != 0; {
		i := bits.Len32(left)
		left &^= 1 << (i - 1)
		end := name[begins[i]:]
		if s, _ := t.child(by, hash(end), end, true); s != nil {
			return s
		}
	}
	return nil
}

// path walks from a state before a path over the path. It returns nil where no rule is left on the way.
func (t *Tables) path(s state, path []byte) state {
	for i := 0; i < len(path); {
		if s[regs.UrlNodeControl]&regs.UrlNodeControlFinalMask != 0 {
			return s
		}
		i++ // over the slash
		rest := path[i:]
		n := bytes.IndexByte(rest, '/')
		if n < 0 {
			n = len(rest)
		}
		if s, n = t.step(s, rest, n); s == nil {
			return nil
		}
		i += n
	}
	return s
}

// step goes one way out of a state: the segment of n bytes that rest begins with, and perhaps more. It returns where that
// leads and how many bytes it took.
func (t *Tables) step(s state, rest []byte, n int) (to state, taken int) {
	h := hash(rest[:n])
	for range 2 {
		if c, taken := t.child(s, h, rest, false); c != nil {
			return c, taken
		}
		other := t.node(regs.UrlNodeOtherwiseNode(s[regs.UrlNodeOtherwise]))
		switch regs.UrlNodeControlOtherwise(s[regs.UrlNodeControl]) {
		case regs.UrlNodeControlOtherwiseState:
			return other, n
		case regs.UrlNodeControlOtherwiseSuffix:
			return t.suffix(other, rest[:n]), n
		case regs.UrlNodeControlOtherwiseNone:
			return nil, 0
		}
		if s = other; s == nil {
			break
		}
	}
	return nil, 0
}

// suffix goes the way out of a node that fits the end of a segment, the longest that does.
func (t *Tables) suffix(by state, segment []byte) state {
	if by == nil {
		return nil
	}
	lengths := by[regs.UrlNodeNext]
	if len(segment) < maxSuffix {
		lengths &= 1<<len(segment) - 1
	}
	for lengths != 0 {
		i := bits.Len32(lengths)
		lengths &^= 1 << (i - 1)
		end := segment[len(segment)-i:]
		if s, _ := t.child(by, hash(end), end, true); s != nil {
			return s
		}
	}
	if regs.UrlNodeControlOtherwise(by[regs.UrlNodeControl]) == regs.UrlNodeControlOtherwiseState {
		return t.node(regs.UrlNodeOtherwiseNode(by[regs.UrlNodeOtherwise]))
	}
	return nil
}

// node returns a node of the image, nil where the image does not reach.
func (t *Tables) node(index uint32) state {
	i := uint64(index) * entryWords
	if i+entryWords > uint64(len(t.Nodes)) {
		return nil
	}
	return t.Nodes[i : i+entryWords]
}

// child finds the way out of s whose label s begins with text and ends where a segment does, or is all of text. It returns
// where the way leads and the length of the label. h is the hash of the text, or of its first segment.
func (t *Tables) child(s state, h uint64, text []byte, whole bool) (to state, taken int) {
	if s[regs.UrlNodeControl]&regs.UrlNodeControlChildrenMask == 0 {
		return nil, 0
	}
	w := s[regs.UrlNodeChildren]
	wide := regs.UrlNodeChildrenWide(w)
	last := uint32(1)<<regs.UrlNodeChildrenLog2(w) - 1
	at := uint32(h >> regs.UrlNodeChildrenShift(w))
	for range min(maxProbes, last+1) {
		at &= last
		i := (uint64(regs.UrlNodeChildrenFirst(w)) + uint64(at)<<wide) * entryWords
		end := i + entryWords<<wide
		if end > uint64(len(t.Nodes)) {
			return nil, 0
		}
		c := state(t.Nodes[i:end])
		control := c[regs.UrlNodeControl]
		if control&regs.UrlNodeControlUsedMask == 0 {
			return nil, 0
		}
		n := int(regs.UrlNodeControlLabelBytes(control))
		if n == len(text) || !whole && n < len(text) && text[n] == '/' {
			label := c[regs.UrlNodeLabel:]
			if control&regs.UrlNodeControlFarMask != 0 {
				label = t.far(label[0], n)
			}
			if equal(label, text[:n]) {
				if control&regs.UrlNodeControlAliasMask != 0 {
					return t.node(regs.UrlNodeOtherwiseNode(c[regs.UrlNodeOtherwise])), n
				}
				return c, n
			}
		}
		at++
	}
	return nil, 0
}

// far returns the words of a text of n bytes that begins at an entry.
func (t *Tables) far(index uint32, n int) []uint32 {
	i := uint64(index) * entryWords
	end := i + uint64(n+3)/4
	if end > uint64(len(t.Nodes)) {
		return nil
	}
	return t.Nodes[i:end]
}

// first finds the first of a state's rules that takes the request. left is how many may still be looked at.
func (t *Tables) first(s state, r *Request, left *int) (rule uint32, v Outcome) {
	take := s[regs.UrlNodeTake]
	count := regs.UrlNodeTakeCount(take)
	if count == 0 {
		return 0, None
	}
	list := []uint32{take}
	if count > 1 {
		i := uint64(regs.UrlNodeTakeIndex(take))
		if i+uint64(count) > uint64(len(t.Nodes)) {
			return 0, None
		}
		list = t.Nodes[i : i+uint64(count)]
	}
	for _, w := range list {
		rule = regs.UrlNodeTakeIndex(w)
		if *left--; *left < 0 {
			return rule, Host
		}
		at := uint64(rule) * regs.RuleWords
		if at+regs.RuleWords > uint64(len(t.Rules)) {
			continue
		}
		if w&(regs.UrlNodeTakeSureMask|regs.UrlNodeTakeHostMask) == regs.UrlNodeTakeSureMask {
			return rule, Matched
		}
		e := t.Rules[at : at+regs.RuleWords]
		control := e[regs.RuleControl]
		switch {
		case control&regs.RuleControlValidMask == 0:
		case w&regs.UrlNodeTakeHostMask != 0:
			return rule, Host
		case e[regs.RuleConditions] != 0 && !t.fulfils(e[regs.RuleConditions], r):
		case control&regs.RuleControlHostMask != 0:
			return rule, Host
		default:
			return rule, Matched
		}
	}
	return 0, None
}
