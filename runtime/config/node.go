package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A decoder walks the syntax tree and collects what is wrong.
type decoder struct {
	file     string
	problems Problems
	warnings Problems
	said     map[string]Position // where keys are given, of those whose absence means something else than their default
	runs     map[Position][]row  // lines of lists that the parser did not see, by the item that they come behind
}

// A value is a node of the tree with the path that leads to it.
type value struct {
	node ast.Node
	key  string
	at   Position
}

// A field is one key of a mapping. Without decode the key is known, but not supported yet.
type field struct {
	key    string
	decode func(v value)
}

// maxProblems is how many problems are worth a report.
const maxProblems = 200

func (d *decoder) problem(at Position, key, format string, args ...any) *Problem {
	if len(d.problems) == maxProblems {
		return new(Problem)
	}
	d.problems = append(d.problems, Problem{File: d.file, Line: at.Line, Column: at.Column, Key: key, Message: fmt.Sprintf(format, args...)})
	return &d.problems[len(d.problems)-1]
}

func (d *decoder) warn(at Position, key, format string, args ...any) {
	d.warnings = append(d.warnings, Problem{File: d.file, Line: at.Line, Column: at.Column, Key: key, Message: fmt.Sprintf(format, args...)})
}

// near finds the nearest candidate while the answer may still be reported.
func (d *decoder) near(word string, candidates []string) string {
	if len(d.problems) == maxProblems {
		return ""
	}
	return Near(word, candidates)
}

// position is where a node begins.
func position(n ast.Node) Position {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && m.Start != nil && m.Start.Value != "{" {
		return position(m.Values[0].Key)
	}
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return Position{1, 1}
	}
	return Position{t.Position.Line, t.Position.Column}
}

// describe names what a node is, for messages.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.IntegerNode, *ast.FloatNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.StringNode:
		return strconv.Quote(clip(n.Value))
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		return "an anchor, alias, merge key or tag, which this file may not have"
	}
	return "something else"
}

// clip keeps messages readable.
func clip(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}

// mapping decodes a mapping by its fields; false where v is none.
func (d *decoder) mapping(v value, what string, fields []field) bool {
	pairs, ok := pairsOf(v.node)
	if !ok {
		d.problem(v.at, v.key, "wants a mapping (%s: %s), got %s", what, keysOf(fields), describe(v.node))
		return false
	}
	seen := map[string]Position{}
	for _, p := range pairs {
		d.pair(v, p, what, fields, seen)
	}
	return true
}

// keysOf lists the keys that this build supports.
func keysOf(fields []field) string {
	var names []string
	for _, f := range fields {
		if f.decode != nil {
			names = append(names, f.key)
		}
	}
	return strings.Join(names, ", ")
}

// pairsOf returns what a mapping holds; false where n is none.
func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// entries decodes a mapping whose keys are names of the user's own. Whether one is given twice is the caller's question.
func (d *decoder) entries(v value, what string, each func(name string, at Position, v value)) {
	pairs, ok := pairsOf(v.node)
	if !ok || len(pairs) == 0 {
		d.problem(v.at, v.key, "wants a mapping (%s), got %s", what, describe(v.node))
		return
	}
	for _, p := range pairs {
		at := position(p.Key)
		name, ok := p.Key.(*ast.StringNode)
		if !ok {
			d.problem(at, v.key, "wants a word as key, in quotes if need be, got %s", describe(p.Key))
			continue
		}
		key := join(v.key, clip(name.Value))
		switch p.Value.(type) {
		case nil, *ast.NullNode:
			d.problem(at, key, "has no value")
			continue
		}
		each(name.Value, at, value{p.Value, key, position(p.Value)})
	}
}

func (d *decoder) pair(v value, p *ast.MappingValueNode, what string, fields []field, seen map[string]Position) {
	at := position(p.Key)
	name, ok := p.Key.(*ast.StringNode)
	if !ok {
		d.problem(at, v.key, "wants a word as key of %s, got %s", what, describe(p.Key))
		return
	}
	key := join(v.key, clip(name.Value))
	if first, ok := seen[name.Value]; ok {
		d.problem(at, key, "is given twice, first at line %d", first.Line)
		return
	}
	seen[name.Value] = at
	i := slices.IndexFunc(fields, func(f field) bool { return f.key == name.Value })
	if i < 0 {
		names := make([]string, len(fields))
		for i := range fields {
			names[i] = fields[i].key
		}
		if near := d.near(name.Value, names); near != "" {
			d.problem(at, key, "unknown key of %s", what).Near = near
		} else {
			d.problem(at, key, "unknown key of %s; there is %s", what, keysOf(fields))
		}
		return
	}
	if fields[i].decode == nil {
		d.problem(at, key, "not supported yet by this build")
		return
	}
	switch p.Value.(type) {
	case nil, *ast.NullNode:
		d.problem(at, key, "has no value")
		return
	}
	fields[i].decode(value{p.Value, key, position(p.Value)})
}

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// list decodes a list; one value without brackets is no list.
func (d *decoder) list(v value, each func(v value)) {
	n, ok := v.node.(*ast.SequenceNode)
	if !ok {
		hint := ""
		switch v.node.(type) {
		case *ast.StringNode, *ast.IntegerNode:
			hint = ": write [" + clip(v.node.GetToken().Value) + "]"
		}
		d.problem(v.at, v.key, "wants a list, got %s%s", describe(v.node), hint)
		return
	}
	i := -1
	for _, item := range n.Values {
		i++
		key := v.key + "[" + strconv.Itoa(i) + "]"
		if item == nil {
			d.problem(v.at, key, "has no value")
			continue
		}
		if _, ok := item.(*ast.NullNode); ok {
			d.problem(position(item), key, "has no value")
			continue
		}
		if joined := plain(item); joined != nil {
			item = joined
		}
		at := position(item)
		each(value{item, key, at})
		if n.IsFlowStyle {
			continue
		}
		for _, r := range d.runs[at] {
			i++
			item := rowNode(r.text, r.line)
			each(value{item, v.key + "[" + strconv.Itoa(i) + "]", position(item)})
		}
	}
}

// plain puts a scalar such as 198.18.0.80:80 together again. In a list within braces the parser takes it for a mapping,
// though YAML wants a space after the colon of one (YAML 1.2.2, 7.3.3). It returns nil where item is something else.
func plain(item ast.Node) ast.Node {
	m, ok := item.(*ast.MappingNode)
	if !ok || len(m.Values) != 1 || m.Start == nil || m.Start.Value == "{" || m.Values[0].Value == nil {
		return nil
	}
	key, colon, rest := m.Values[0].Key.GetToken(), m.Values[0].Start, m.Values[0].Value.GetToken()
	if key == nil || colon == nil || rest == nil || key.Indicator == token.QuotedScalarIndicator || rest.Indicator != token.NotIndicator {
		return nil
	}
	if rest.Position.Line != colon.Position.Line || rest.Position.Column != colon.Position.Column+1 {
		return nil
	}
	text := key.Value + ":" + rest.Value
	return ast.String(token.String(text, text, key.Position))
}

// text decodes a string.
func (d *decoder) text(v value, what string) (string, bool) {
	n, ok := v.node.(*ast.StringNode)
	if !ok {
		d.problem(v.at, v.key, "wants %s, got %s", what, describe(v.node))
		return "", false
	}
	return n.Value, true
}

// number decodes a whole number in decimal.
func (d *decoder) number(v value, what string, lo, hi uint64) uint64 {
	if _, ok := v.node.(*ast.IntegerNode); !ok {
		d.problem(v.at, v.key, "wants %s (%d to %d), got %s", what, lo, hi, describe(v.node))
		return lo
	}
	digits := v.node.GetToken().Value
	if unsigned := strings.TrimPrefix(digits, "-"); !decimal(unsigned) {
		d.problem(v.at, v.key, "%s is %s; write it in plain decimal digits, without a leading zero, sign, prefix or underscore", what, clip(digits))
		return lo
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n < lo || n > hi {
		d.problem(v.at, v.key, "%s is %s; it may be %d to %d", what, clip(digits), lo, hi)
		return lo
	}
	return n
}

// decimal says whether a number is written in the one way that means the same to everybody.
func decimal(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == "" && (s[0] != '0' || len(s) == 1)
}

func (d *decoder) boolean(v value) bool {
	n, ok := v.node.(*ast.BoolNode)
	if !ok {
		d.problem(v.at, v.key, "wants true or false, got %s", describe(v.node))
		return false
	}
	return n.Value
}

// word decodes one of several words; those in later are known but not supported yet.
func (d *decoder) word(v value, what string, words, later []string) string {
	s, ok := d.text(v, what+" ("+strings.Join(words, ", ")+")")
	if !ok || slices.Contains(words, s) {
		return s
	}
	if slices.Contains(later, s) {
		d.problem(v.at, v.key, "%s %q is not supported yet by this build; there is %s", what, s, strings.Join(words, ", "))
		return words[0]
	}
	d.problem(v.at, v.key, "%q is no %s; there is %s", clip(s), what, strings.Join(words, ", ")).Near = d.near(s, slices.Concat(words, later))
	return words[0]
}

// identifier decodes a name.
func (d *decoder) identifier(v value, what string) string {
	s, ok := d.text(v, "a "+what)
	if !ok {
		return ""
	}
	for _, r := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", r) {
			d.problem(v.at, v.key, "%s %q holds %q; letters, digits, dash, dot and underscore are allowed", what, clip(s), r)
			return ""
		}
	}
	if len(s) == 0 || len(s) > 64 {
		d.problem(v.at, v.key, "%s %q has %d characters; it may have 1 to 64", what, clip(s), len(s))
		return ""
	}
	return s
}
