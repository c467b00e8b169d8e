package rule

import (
	"strconv"
	"strings"
)

// String returns the path as a configuration writes it; empty for every path.
func (p Path) String() string {
	switch p.Kind {
	case AnyPath:
		return ""
	case PrefixPath:
		return p.Text + "/*"
	case RegexpPath:
		return "~" + p.Text
	}
	return p.Text
}

var subjectNames = [...]string{Header: "header", Query: "query", Cookie: "cookie", Source: "source", ALPN: "alpn"}

// String returns the subject as a configuration names it.
func (s Subject) String() string { return subjectNames[s] }

// text returns the condition for people: "header x-canary=1", "query q^=a" for a prefix, "cookie a~=b|c" for a regular
// expression, "header x" for what only has to be there.
func (c *Condition) text() string {
	text := c.Subject.String() + " "
	switch c.Subject {
	case Source:
		for i, n := range c.Nets {
			if i > 0 {
				text += ","
			}
			text += n.String()
		}
		return text
	case ALPN:
		return text + quote(c.Value)
	}
	return text + quote(c.Name) + [...]string{Equal: "=", HasPrefix: "^=", Present: "", Matches: "~="}[c.Test] + quote(c.Value)
}

// quote puts a word in quotes where it would not be seen as one.
func quote(s string) string {
	if q := strconv.Quote(s); len(q) != len(s)+2 || strings.ContainsAny(s, " =,~^") {
		return q
	}
	return s
}

// Parts returns what the match asks beside host and path, one part each.
func (m *Match) Parts() []string {
	var parts []string
	if len(m.Methods) > 0 {
		parts = append(parts, "method "+strings.Join(m.Methods, ","))
	}
	for i := range m.Conditions {
		parts = append(parts, m.Conditions[i].text())
	}
	return parts
}

// String returns all that the match asks, empty where it takes every request. Equal texts ask the same.
func (m *Match) String() string {
	text := m.Host + m.Path.String()
	for _, p := range m.Parts() {
		text += " " + p
	}
	return strings.TrimPrefix(text, " ")
}
