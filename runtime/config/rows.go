package config

import (
	"bytes"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A long list of routes is mostly lines such as
//
//	- {host: a.example, path: /x/*, to: app}
//
// which the YAML parser takes some twenty microseconds and three kilobytes each to read. So the parser is given the first
// line of such a run only. The others, which are items of the same list if that one is, are read here when their turn comes,
// and into the same nodes. What is written in any other way is left to the parser.

// A run is a run of such lines behind the first one.
type run struct {
	at   Position // of the brace in the first line
	rows []row
}

type row struct {
	line int
	text []byte
}

// maxRows bounds what the lines of runs take.
const maxRows = 1 << 18

// fold takes the runs out of a text and leaves empty lines in their place.
func fold(text []byte) (rest []byte, runs []run) {
	var indent, last int // of the line before; the line of the first of a run
	inRun, line, n := false, 0, 0
	rest = make([]byte, 0, len(text))
	for l := range bytes.Lines(text) {
		line++
		at := bytes.IndexByte(l, '-')
		node := rowNode(l, line)
		switch {
		case node == nil || n == maxRows:
			inRun = false
		case !inRun || at != indent:
			inRun, indent, last = true, at, line
		default:
			if len(runs) == 0 || runs[len(runs)-1].at.Line != last {
				runs = append(runs, run{at: Position{last, indent + 3}})
			}
			r := &runs[len(runs)-1]
			r.rows = append(r.rows, row{line, l})
			n++
			rest = append(rest, '\n')
			continue
		}
		rest = append(rest, l...)
	}
	return rest, runs
}

// plainText are the bytes of a word that means itself in YAML wherever it stands; it begins with a letter or a slash.
const plainText = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"

// reserved are words that YAML, in one version or another, takes for something else.
var reserved = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// rowNode reads a line of a run; nil where it is none.
func rowNode(l []byte, line int) ast.Node {
	s := strings.TrimRight(string(l), "\n")
	body := strings.TrimLeft(s, " ")
	column := len(s) - len(body) + 1
	tok := func(text string) *token.Token {
		return token.String(text, text, &token.Position{Line: line, Column: column})
	}
	next := func(prefix string) bool {
		rest, ok := strings.CutPrefix(body, prefix)
		if ok {
			body = rest
			column += len(prefix)
		}
		return ok
	}
	if !next("- ") || !strings.HasPrefix(body, "{") {
		return nil
	}
	brace := tok("{")
	brace.Type = token.MappingStartType
	m := ast.Mapping(brace, true)
	next("{")
	for {
		name := word(body, plainText)
		if name == "" || slices.Contains(reserved, strings.ToLower(name)) {
			return nil
		}
		key := ast.String(tok(name))
		next(name)
		if !next(": ") {
			return nil
		}
		text, raw := scalar(body)
		if raw == "" {
			return nil
		}
		value := tok(text)
		value.Origin = raw
		if raw != text {
			value.Indicator, value.Type = token.QuotedScalarIndicator, token.DoubleQuoteType
		}
		m.Values = append(m.Values, ast.MappingValue(tok(":"), key, ast.String(value)))
		next(raw)
		if next(", ") {
			continue
		}
		if body == "}" {
			return m
		}
		return nil
	}
}

// word returns what a text begins with, of a letter or a slash and the given bytes.
func word(s, of string) string {
	if s == "" || s[0] != '/' && (s[0]|0x20 < 'a' || s[0]|0x20 > 'z') {
		return ""
	}
	n := strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune(of, r) })
	if n < 0 {
		n = len(s)
	}
	return s[:n]
}

// scalar returns a word that s begins with, and how it is written; raw is empty where s begins with anything else.
func scalar(s string) (text, raw string) {
	if rest, ok := strings.CutPrefix(s, `"`); ok {
		n := strings.IndexFunc(rest, func(r rune) bool { return r == '"' || r == '\\' || r < ' ' || r > '~' })
		if n < 0 || rest[n] != '"' {
			return "", ""
		}
		return rest[:n], s[:n+2]
	}
	raw = word(s, plainText+"*")
	if slices.Contains(reserved, strings.ToLower(raw)) {
		return "", ""
	}
	return raw, raw
}

// unfolded says whether a text, without its runs, made a tree in which each of them has its list.
func unfolded(tree ast.Node, runs []run) bool {
	v := items{}
	ast.Walk(v, tree)
	for i := range runs {
		if !v[runs[i].at] {
			return false
		}
	}
	return true
}

// items collects where the mappings in lists by indentation are.
type items map[Position]bool

func (v items) Visit(n ast.Node) ast.Visitor {
	if s, ok := n.(*ast.SequenceNode); ok && !s.IsFlowStyle {
		for _, item := range s.Values {
			if m, ok := item.(*ast.MappingNode); ok && m.IsFlowStyle {
				v[position(m)] = true
			}
		}
	}
	return v
}
