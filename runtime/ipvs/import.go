package ipvs

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"splicenic/runtime/config"
)

// The bounds of what is read. A text within config.MaxBytes could still ask for much more than it has bytes, by ranges of
// addresses and groups that many virtual servers name.
const (
	maxLine      = 64 << 10 // bytes of a line
	maxDepth     = 16       // blocks within blocks
	maxListeners = 1024     // of a service, as in a configuration
	maxAll       = 65536    // listeners and servers of everything
	maxLeft      = 1000     // things not carried that are listed; one more line counts the others
	maxErrors    = 20
)

// Imported is what files of the Linux Virtual Server come to.
type Imported struct {
	Services []Service
	Groups   []Group
	Left     config.Problems // what was not carried, each with its place
}

// An Importer reads files one after the other, so that what they name stays apart.
type Importer struct {
	marks map[uint32][]Listen

	file    string
	errors  config.Problems
	left    config.Problems
	more    int // beyond maxLeft
	all     int // listeners and servers
	virtual []virtual
}

// NewImporter makes an Importer. marks says which packets have which firewall mark; nil: nobody knows.
func NewImporter(marks map[uint32][]Listen) *Importer { return &Importer{marks: marks} }

// Add reads a file: keepalived.conf, or what ipvsadm -S printed. The error is of type config.Problems: the text is neither,
// and nothing of it was taken.
func (m *Importer) Add(file string, text []byte) error {
	m.file, m.errors = file, nil
	before := len(m.virtual)
	if m.screen(text); len(m.errors) == 0 {
		if isDump(text) {
			m.dump(text)
		} else {
			m.keepalived(text)
		}
	}
	if len(m.errors) == 0 && len(m.virtual) == before {
		m.fail(place{1, 1}, "", "holds no virtual server: what ipvsadm -S -n prints is wanted, or keepalived.conf")
	}
	if len(m.errors) > 0 {
		m.virtual = m.virtual[:before]
		inOrder(m.errors)
		return m.errors
	}
	return nil
}

// place is a line and a column, counted from one.
type place struct{ line, column int }

// fail notes what makes the file none.
func (m *Importer) fail(at place, key, format string, args ...any) {
	if len(m.errors) < maxErrors {
		m.errors = append(m.errors, m.problem(at, key, format, args))
	}
}

// leave notes what is not carried.
func (m *Importer) leave(at place, key, format string, args ...any) {
	if len(m.left) == maxLeft {
		m.more++
		return
	}
	m.left = append(m.left, m.problem(at, key, format, args))
}

// problem makes one whose texts are of one line, whatever stands in a name.
func (m *Importer) problem(at place, key, format string, args []any) config.Problem {
	return config.Problem{File: m.file, Line: at.line, Column: at.column, Key: line(key), Message: line(fmt.Sprintf(format, args...))}
}

// count counts listeners and servers, and says whether there is room for them.
func (m *Importer) count(at place, n int) bool {
	if m.all += n; m.all > maxAll {
		m.fail(at, "", "is beyond the %d listeners and servers that are imported at once", maxAll)
	}
	return m.all <= maxAll
}

func inOrder(p config.Problems) {
	slices.SortStableFunc(p, func(a, b config.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// screen refuses what is no text, before anything is made of it.
func (m *Importer) screen(text []byte) {
	if len(text) > config.MaxBytes {
		m.fail(place{1, 1}, "", "the file is larger than %d bytes", config.MaxBytes)
		return
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if len(line) > maxLine {
			m.fail(place{n, 1}, "", "the line has %d bytes; at most %d are read", len(line), maxLine)
			return
		}
		for i := 0; i < len(line); {
			r, size := utf8.DecodeRune(line[i:])
			if r == utf8.RuneError && size == 1 {
				m.fail(place{n, i + 1}, "", "byte %#02x is no UTF-8", line[i])
				return
			}
			if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f {
				m.fail(place{n, i + 1}, "", "holds the control character %U", r)
				return
			}
			i += size
		}
	}
}

// clip shortens a text for a message.
func clip(s string) string {
	if len(s) > 60 {
		cut := 57
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		return s[:cut] + "..."
	}
	return s
}
