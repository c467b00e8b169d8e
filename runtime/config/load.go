package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// ReadFile loads a file; "-" is the standard input.
func ReadFile(name string) (*Config, error) {
	f := os.Stdin
	if name != "-" {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, fmt.Errorf("open configuration: %w", err)
		}
		defer f.Close()
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1)) // Load refuses the last byte
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Load(name, text)
}

// Load reads and checks a configuration. name stands in messages. The error is of type Problems.
func Load(name string, text []byte) (*Config, error) {
	d := &decoder{file: name, runs: map[Position][]row{}}
	return d.load(d.parse(bytes.TrimPrefix(text, []byte("\ufeff"))), text) // a byte order mark says nothing
}

func (d *decoder) load(tree ast.Node, text []byte) (*Config, error) {
	if tree == nil {
		return nil, d.problems
	}
	c := &Config{File: d.file, Text: string(text)}
	d.config(c, value{node: tree, at: position(tree)})
	if len(d.problems) == 0 {
		c.pools = c.findPools()
		d.check(c)
	}
	inOrder(d.problems)
	inOrder(d.warnings)
	c.Warnings = d.warnings
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	c.comeBack()
	c.pools = c.findPools()
	return c, nil
}

// parse makes the tree of a text, nil with a problem where it makes none.
func (d *decoder) parse(text []byte) ast.Node {
	if at, why := screen(text); why != "" {
		d.problem(at, "", "%s", why)
		return nil
	}
	rest, runs := fold(text)
	tree := d.tree(rest)
	if len(runs) == 0 || tree != nil && unfolded(tree, runs) {
		for _, r := range runs {
			d.runs[r.at] = r.rows
		}
		return tree
	}
	d.problems = nil // of a text in which something else looked like a list
	return d.tree(text)
}

// tree makes the tree of a text as it stands.
func (d *decoder) tree(text []byte) ast.Node {
	if at, why := count(text); why != "" {
		d.problem(at, "", "%s", why)
		return nil
	}
	tokens := lexer.Tokenize(string(text))
	if at, why := measure(tokens); why != "" {
		d.problem(at, "", "%s", why)
		return nil
	}
	tree, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	switch {
	case err != nil:
		d.syntax(err)
	case len(tree.Docs) > 1:
		d.problem(Position{1, 1}, "", "wants one document with a mapping, got %d", len(tree.Docs))
	case len(tree.Docs) == 0 || nothing(tree.Docs[0].Body):
		d.problem(Position{1, 1}, "", "the file holds nothing: it wants ports, services and groups")
	default:
		return tree.Docs[0].Body
	}
	return nil
}

func nothing(n ast.Node) bool {
	return n == nil || n.Type() == ast.NullType || n.Type() == ast.CommentType
}

func inOrder(p Problems) {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// syntax turns an error of the YAML parser into a problem.
func (d *decoder) syntax(err error) {
	var s *yaml.SyntaxError
	if errors.As(err, &s) && s.Token != nil && s.Token.Position != nil {
		hint := ""
		if t := s.Token; t.Type == token.AliasType || t.Prev != nil && t.Prev.Type == token.AliasType {
			hint = ` (text that begins with an asterisk has to be quoted: "*.example")`
		} else if strings.Contains(s.Message, "'\t'") {
			hint = " (YAML is indented with spaces, no tabs)"
		} else if strings.Contains(s.Message, "not allowed in this context") {
			hint = " (is it indented like the lines it belongs to?)"
		}
		d.problem(Position{s.Token.Position.Line, s.Token.Position.Column}, "", "%s%s", s.Message, hint)
		return
	}
	d.problem(Position{1, 1}, "", "%s", clip(err.Error()))
}
