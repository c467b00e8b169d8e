package config

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// Bounds of the input. The parser takes some 700 bytes for a node, and time that grows with the square of the keys of a
// mapping. 60,000 routes of three keys are 420,000 nodes, unless each is one line (see fold).
const (
	MaxBytes   = 16 << 20
	maxNodes   = 500_000
	maxNesting = 32
	maxKeys    = 1000 // of one mapping
)

// tooManyNodes is the one reason that is found at two places: about, before the text is split, and exactly after that.
var tooManyNodes = fmt.Sprintf("the file has more than %d nodes (keys, values, list items and comments)", maxNodes)

// screen says where a text is none, or longer than it may be, at the price of one look at each byte.
func screen(text []byte) (at Position, why string) {
	if len(text) > MaxBytes {
		return Position{1, 1}, fmt.Sprintf("the file is larger than %d bytes", MaxBytes)
	}
	line := 0
	for row := range bytes.Lines(text) {
		line++
		if i, why := foreign(row); why != "" {
			return Position{line, i + 1}, why
		}
	}
	return Position{}, ""
}

// count says where a text has more nodes than it may have, by a look at each byte.
func count(text []byte) (at Position, why string) {
	n := census{nodes: 1}
	line := 0
	for row := range bytes.Lines(text) {
		line++
		if n.add(row); n.nodes > maxNodes {
			return Position{line, 1}, tooManyNodes
		}
	}
	return Position{}, ""
}

// foreign finds what no line of text holds.
func foreign(row []byte) (i int, why string) {
	for i < len(row) {
		r, size := utf8.DecodeRune(row[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return i, fmt.Sprintf("byte %#02x is not UTF-8: save the file as UTF-8 text", row[i])
		case r < ' ' && r != '\t' && r != '\r' && r != '\n', r == 0x7f:
			return i, fmt.Sprintf("byte %#02x is no text: a configuration holds no control characters", row[i])
		}
		i += size
	}
	return 0, ""
}

// A census counts the nodes of a text by the marks between them. Those in quotes and remarks count as well, so that
// nothing is counted too low for long.
type census struct{ nodes, open int }

func (n *census) add(row []byte) {
	if text := bytes.TrimLeft(row, " \t"); len(text) > 0 && text[0] == '#' {
		n.nodes++
		return
	}
	for i, b := range row {
		spaced := i+1 == len(row) || row[i+1] <= ' '
		switch {
		case b == '[' || b == '{':
			n.open++
			n.nodes++
		case (b == ']' || b == '}') && n.open > 0:
			n.open--
		case b == ']' || b == '}':
			n.nodes++
		case n.open > 0 && (b == ',' || b == ':'), spaced && (b == '-' || b == '?'), (b == '&' || b == '*' || b == '!') && (i == 0 || row[i-1] <= ' '):
			n.nodes++
		case spaced && b == ':':
			n.nodes += 2
		}
	}
}

// measure says where tokens make a tree that is deeper, wider or larger than it may be.
func measure(tokens token.Tokens) (at Position, why string) {
	m := meter{}
	for _, t := range tokens {
		m.add(t)
		switch top := m.top(); {
		case m.nodes > maxNodes:
			why = tooManyNodes
		case len(m.levels) > maxNesting:
			why = fmt.Sprintf("nests deeper than %d levels", maxNesting)
		case top.mapping && top.members > maxKeys:
			why = fmt.Sprintf("is one of more than %d keys of one mapping", maxKeys)
		default:
			continue
		}
		return Position{t.Position.Line, t.Position.Column}, why
	}
	return Position{}, ""
}

// A level is a collection that is open.
type level struct {
	flow    bool // in brackets or braces, else by indentation
	mapping bool
	column  int
	members int
}

// A meter follows the tokens through the tree that they will make.
type meter struct {
	nodes  int
	levels []level
	line   int  // of the token before
	begin  int  // column at which the node began that a colon would make a key
	opened bool // an indicator came before: another node begins
}

func (m *meter) top() level {
	if len(m.levels) == 0 {
		return level{}
	}
	return m.levels[len(m.levels)-1]
}

func (m *meter) add(t *token.Token) {
	if m.opened || t.Position.Line != m.line {
		m.begin = t.Position.Column
	}
	m.line, m.opened = t.Position.Line, false
	flow := m.top().flow
	switch t.Type {
	case token.DocumentHeaderType, token.DocumentEndType: // of another document
		m.levels, m.opened = m.levels[:0], true
	case token.SequenceStartType, token.MappingStartType:
		m.push(level{flow: true, mapping: t.Type == token.MappingStartType, members: 1})
	case token.SequenceEndType, token.MappingEndType:
		if flow {
			m.levels = m.levels[:len(m.levels)-1]
		}
	case token.CollectEntryType:
		if flow {
			m.levels[len(m.levels)-1].members++
		}
	case token.SequenceEntryType, token.MappingKeyType:
		m.opened = true
		if !flow {
			m.enter(m.begin, t.Type == token.MappingKeyType)
		}
	case token.MappingValueType:
		m.opened = true
		if !flow {
			m.enter(m.begin, true)
			m.levels[len(m.levels)-1].members++
		}
	default:
		m.nodes++
	}
}

func (m *meter) push(l level) {
	m.levels = append(m.levels, l)
	m.nodes++
}

// enter goes to the collection by indentation that begins at a column. A list may begin where its key does.
func (m *meter) enter(column int, mapping bool) {
	for top := m.top(); len(m.levels) > 0 && (top.column > column || top.column == column && mapping && !top.mapping); top = m.top() {
		m.levels = m.levels[:len(m.levels)-1]
	}
	if top := m.top(); len(m.levels) == 0 || top.column < column || top.mapping != mapping {
		m.push(level{mapping: mapping, column: column})
	}
}
