package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
)

// Limits of the input. Some 60,000 routes fit; the parser needs a stack frame for each line.
const (
	MaxBytes   = 4 << 20
	maxNesting = 32
	maxKeys    = 1000 // of one mapping
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
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Load(name, text)
}

// Load reads and checks a configuration. name stands in messages. The error is of type Problems.
func Load(name string, text []byte) (*Config, error) {
	d := &decoder{file: name}
	if at, ok := tooLarge(text); ok {
		d.problem(at, "", "the file is larger than %d bytes, nests deeper than %d, has a mapping of more than %d keys, or is no text", MaxBytes, maxNesting, maxKeys)
		return nil, d.problems
	}
	tree, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return nil, d.problems
	}
	if len(tree.Docs) != 1 || tree.Docs[0].Body == nil {
		d.problem(Position{1, 1}, "", "wants one document with a mapping, got %d", len(tree.Docs))
		return nil, d.problems
	}
	c := &Config{File: name, Text: string(text)}
	d.config(c, value{node: tree.Docs[0].Body, at: position(tree.Docs[0].Body)})
	if len(d.problems) == 0 {
		d.check(c)
	}
	inOrder(d.problems)
	inOrder(d.warnings)
	c.Warnings = d.warnings
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	return c, nil
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
		d.problem(Position{s.Token.Position.Line, s.Token.Position.Column}, "", "%s", s.Message)
		return
	}
	d.problem(Position{1, 1}, "", "%s", clip(err.Error()))
}

// tooLarge looks for what would only keep the parser busy: more bytes, brackets, dashes or keys of one mapping than a
// configuration needs, and bytes that are no text. The parser's time grows with the square of the keys of a mapping.
func tooLarge(text []byte) (at Position, bad bool) {
	if len(text) > MaxBytes {
		return Position{1, 1}, true
	}
	line := 0
	var blocks mappings
	var commas []int // of each bracket that is open; of a list they do not count
	for row := range bytes.Lines(text) {
		line++
		indent, dashes := margin(row)
		if dashes > maxNesting || indent < len(row) && row[indent] != '#' && blocks.add(indent, dashes) > maxKeys {
			return Position{line, 1}, true
		}
		for i, b := range row {
			last := len(commas) - 1
			switch {
			case b == '[':
				commas = append(commas, math.MinInt)
			case b == '{':
				commas = append(commas, 0)
			case last >= 0 && (b == ']' || b == '}'):
				commas = commas[:last]
			case last >= 0 && b == ',':
				commas[last]++
			}
			if n := len(commas); n > maxNesting || n > 0 && commas[n-1] > maxKeys || b < ' ' && b != '\t' && b != '\r' && b != '\n' || b == 0x7f {
				return Position{line, i + 1}, true
			}
		}
	}
	return Position{}, false
}

// margin is where the text of a line begins, and how many block indicators stand before it. An empty line has none.
func margin(row []byte) (indent, dashes int) {
	for i, b := range row {
		switch b {
		case '-', '?':
			dashes++
		case ' ', '\t', '\r', '\n':
		default:
			return i, dashes
		}
	}
	return len(row), dashes
}

// mappings counts the lines of each block mapping that is open, outermost first.
type mappings []struct{ indent, lines int }

// add takes in a line and returns how many lines its mapping has so far. An item of a list begins a new one.
func (m *mappings) add(indent, dashes int) int {
	s := *m
	for len(s) > 0 && (s[len(s)-1].indent > indent || dashes > 0 && s[len(s)-1].indent == indent) {
		s = s[:len(s)-1]
	}
	if len(s) == 0 || s[len(s)-1].indent < indent {
		s = append(s, struct{ indent, lines int }{indent, 0})
	}
	s[len(s)-1].lines++
	*m = s
	return s[len(s)-1].lines
}
