package rule

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// A Match says which requests a rule takes: those for its host and path that fulfil every condition. The zero value takes
// every request.
type Match struct {
	Host       string // as Host returns it; "*.example" takes every name below example; empty: every host
	Path       Path
	Methods    []string    // one of them; empty: every method
	Conditions []Condition // all of them
}

// PathKind says how a path is compared.
type PathKind uint8

// The kinds of paths.
const (
	AnyPath     PathKind = iota // every path
	ExactPath                   // the very path
	PrefixPath                  // the path and everything below it, by segments
	PatternPath                 // with wildcards: "*" stands for a segment or its begin, "**" for any number of segments
	RegexpPath                  // a regular expression (RE2), anchored at both ends, on the normalised path
)

// Path is the path of a rule. Text is normalised as requests are; a prefix comes without its final slash and asterisk. In a
// pattern "*" stands for a segment that is not empty, "*x" for a segment that ends with x, "**" for any number of segments,
// none as well. A request without a path, such as one for "*", is taken only by rules for every path.
type Path struct {
	Kind PathKind
	Text string
}

// Subject is what of a request a condition looks at.
type Subject uint8

// The subjects.
const (
	Header Subject = iota
	Query          // a parameter of the query, percent-decoded; a plus sign is one
	Cookie         // a cookie of a Cookie field (RFC 6265, 4.2)
	Source         // the client's address
	ALPN           // a protocol that a ClientHello offers (RFC 7301)
)

// Test is how a condition compares.
type Test uint8

// The tests.
const (
	Equal     Test = iota
	HasPrefix      // the value begins with this
	Present        // the name is there, whatever its value
	Matches        // a regular expression (RE2), anchored at both ends
)

// A Condition is a test of a request beside its host, path and method. Where a name occurs several times one value that
// passes is enough.
type Condition struct {
	Subject Subject
	Name    string // Header: in lower case; Source and ALPN: empty
	Test    Test
	Value   string         // ALPN: the protocol
	Nets    []netip.Prefix // Source: one of them
}

// Precedence orders two rules of a service: negative where a goes before b, zero where only the file's order decides. The
// order is that of the Kubernetes Gateway API, which leaves wildcards and regular expressions open: an exact host before
// the longest wildcard before every host; an exact path before the one with more literal bytes, of these a prefix before a
// pattern before a regular expression; then a method, then more conditions on headers and cookies, on queries, on the
// rest.
func Precedence(a, b *Match) int {
	x, y := rank(a), rank(b)
	return slices.Compare(x[:], y[:])
}

// rank is lower for the rule that goes first, from the first number that differs.
func rank(m *Match) [8]int {
	headers, queries, rest := 0, 0, 0
	for i := range m.Conditions {
		switch m.Conditions[i].Subject {
		case Header, Cookie:
			headers++
		case Query:
			queries++
		default:
			rest++
		}
	}
	return [8]int{-hostRank(m.Host), flag(m.Path.Kind != ExactPath), -m.Path.literal(), pathRank[m.Path.Kind], flag(len(m.Methods) == 0), -headers, -queries, -rest}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// pathRank orders kinds of paths with equally many literal bytes.
var pathRank = [...]int{ExactPath: 0, PrefixPath: 1, PatternPath: 2, RegexpPath: 3, AnyPath: 4}

// maxHostRank is above every wildcard's.
const maxHostRank = 1 << 16

// hostRank is higher for the more specific of two hosts that both take a name.
func hostRank(host string) int {
	switch {
	case host == "":
		return 0
	case strings.HasPrefix(host, "*."):
		return len(host)
	}
	return maxHostRank
}

// literal is how many bytes of the path stand for themselves; of a regular expression those that it begins with.
func (p Path) literal() int {
	switch p.Kind {
	case PatternPath:
		return len(strings.ReplaceAll(p.Text, "*", ""))
	case RegexpPath:
		return len(literalPrefix(p.Text))
	}
	return len(p.Text)
}

// literalPrefix is what every text begins with that a regular expression matches.
func literalPrefix(expr string) string {
	re, err := regexp.Compile(expr) // not anchored: an anchor hides the prefix
	if err != nil {
		return ""
	}
	prefix, _ := re.LiteralPrefix()
	return prefix
}
