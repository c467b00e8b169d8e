package ipvs

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A statement is a line of keepalived.conf with the block behind it.
type statement struct {
	at    place
	words []string
	block []statement
	open  bool // it has a block, which may be empty
}

// key is the statement's first word.
func (s *statement) key() string { return s.words[0] }

// arg is word i behind the first; empty: there is none.
func (s *statement) arg(i int) string {
	if i+1 < len(s.words) {
		return s.words[i+1]
	}
	return ""
}

// tree is the state of making statements of keepalived.conf.
type tree struct {
	*Importer
	line    int
	stack   []*[]statement // the lists that are open, the outermost first
	opened  []place        // of each but the outermost
	current *statement     // being read; nil: none on this line yet
	last    []bool         // by depth: the last statement of the list may still get a block
}

// statements reads a text: words, of which those in quotes may hold anything, comments from ! or # to the end of the line,
// and blocks in braces. A brace may stand behind a statement or on a line of its own.
func (m *Importer) statements(text []byte) []statement {
	var top []statement
	t := tree{Importer: m, stack: []*[]statement{&top}, last: []bool{false}}
	joined := false // the line before ended with a backslash
	for row := range bytes.Lines(text) {
		t.line++
		if !joined {
			t.current = nil
		}
		if joined = t.row(strings.TrimRight(string(row), "\r\n")); len(m.errors) > 0 {
			return nil
		}
	}
	if n := len(t.opened); n > 0 {
		m.fail(t.opened[n-1], "", "the brace is not closed")
	}
	return top
}

// row reads a line and says whether it goes on in the next one.
func (t *tree) row(row string) (joined bool) {
	for i := 0; i < len(row); {
		switch c := row[i]; {
		case c == ' ' || c == '\t':
			i++
		case c == '!' || c == '#':
			return false
		case c == '\\' && strings.TrimSpace(row[i+1:]) == "":
			return true
		case c == '{':
			t.begin(place{t.line, i + 1})
			i++
		case c == '}':
			t.end(place{t.line, i + 1})
			i++
		default:
			text, n := t.word(row, i)
			t.add(text, place{t.line, i + 1})
			i = n
		}
		if len(t.errors) > 0 {
			return false
		}
	}
	return false
}

// word reads a word from i on, and says where it ends.
func (t *tree) word(row string, i int) (string, int) {
	var b strings.Builder
	quoted := -1 // where the quote began
	for ; i < len(row); i++ {
		switch c := row[i]; {
		case c == '"':
			if quoted >= 0 {
				quoted = -1
			} else {
				quoted = i
			}
		case c == '\\' && i+1 < len(row):
			i++
			_, size := utf8.DecodeRuneInString(row[i:])
			switch e := row[i]; {
			case quoted >= 0 && e == 'n':
				b.WriteByte('\n')
			case quoted >= 0 && e == 'r':
				b.WriteByte('\r')
			case quoted >= 0 && e == 't':
				b.WriteByte('\t')
			default:
				b.WriteString(row[i : i+size])
			}
			i += size - 1
		case quoted >= 0:
			b.WriteByte(c)
		case c == '$' && i+1 < len(row) && row[i+1] == '{': // a parameter, which is refused where its value matters
			end := strings.IndexByte(row[i:], '}')
			if end < 0 {
				t.fail(place{t.line, i + 1}, "", "the brace is not closed")
				return "", len(row)
			}
			b.WriteString(row[i : i+end+1])
			i += end
		case strings.IndexByte(" \t!#{}", c) >= 0:
			return b.String(), i
		default:
			b.WriteByte(c)
		}
	}
	if quoted >= 0 {
		t.fail(place{t.line, quoted + 1}, "", "the quote is not closed on its line")
	}
	return b.String(), i
}

// list is the innermost list that is open.
func (t *tree) list() *[]statement { return t.stack[len(t.stack)-1] }

func (t *tree) add(text string, at place) {
	if t.current == nil {
		l := t.list()
		*l = append(*l, statement{at: at})
		t.current = &(*l)[len(*l)-1]
		t.last[len(t.last)-1] = true
	}
	t.current.words = append(t.current.words, text)
}

func (t *tree) begin(at place) {
	l := t.list()
	if !t.last[len(t.last)-1] {
		t.fail(at, "", "the brace opens a block of nothing: a keyword is wanted before it")
		return
	}
	if len(t.opened) == maxDepth {
		t.fail(at, "", "nests deeper than %d blocks", maxDepth)
		return
	}
	s := &(*l)[len(*l)-1]
	s.open, t.last[len(t.last)-1], t.current = true, false, nil
	t.stack, t.opened, t.last = append(t.stack, &s.block), append(t.opened, at), append(t.last, false)
}

func (t *tree) end(at place) {
	n := len(t.opened)
	if n == 0 {
		t.fail(at, "", "the brace closes nothing")
		return
	}
	t.stack, t.opened, t.last, t.current = t.stack[:n], t.opened[:n-1], t.last[:n], nil
}
