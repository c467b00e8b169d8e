package main

import (
	"strings"

	"splicenic/regs/spec"
)

// maxCodecBytes is the largest format with a struct: beyond it a caller wants the bytes, not a copy.
const maxCodecBytes = 256

// formats writes word indexes and field accessors of every format.
func (g *goWriter) formats() {
	names, values, err := aliases(g.m)
	if err != nil {
		g.errs = append(g.errs, err)
		return
	}
	for _, alias := range names {
		g.p("// Values that several fields share.")
		g.p("const (")
		for _, v := range values[alias] {
			g.p("%s = %d", g.name("alias "+alias, alias, v.Name), v.Value)
		}
		g.p(")\n")
	}
	for i := range g.m.Formats {
		g.format(&g.m.Formats[i])
	}
}

func (g *goWriter) format(ft *spec.Format) {
	owner := "format " + ft.Name
	g.p("// Format %s. %s", ft.Name, oneLine(ft.Doc))
	g.p("const (")
	g.p("%s = %d", g.name(owner, ft.Name, "bytes"), ft.Bytes)
	g.p("%s = %d\n", g.name(owner, ft.Name, "words"), ft.Bytes/4)
	for i := range ft.Words {
		wd := &ft.Words[i]
		if wd.Reserved() {
			continue
		}
		owner := "word " + ft.Name + "." + wd.Name
		g.p("%s = %d // %s", g.name(owner, ft.Name, wd.Name), wd.Index, withUnit(wd.Doc, wd.Unit))
		if wd.Elements() > 1 {
			g.p("%s = %d", g.name(owner, ft.Name, wd.Name, "count"), wd.Elements())
		}
	}
	g.p(")\n")
	for i := range ft.Words {
		wd := &ft.Words[i]
		for j := range wd.Fields {
			g.field("field "+ft.Name+"."+wd.Name+"."+wd.Fields[j].Name, &wd.Fields[j], ft.Name, wd.Name)
		}
	}
}

// codecs writes a struct with Decode and Encode for every format that is not too long.
func (g *goWriter) codecs() {
	for i := range g.m.Formats {
		if g.m.Formats[i].Bytes <= maxCodecBytes {
			g.codec(&g.m.Formats[i])
		}
	}
}

func (g *goWriter) codec(ft *spec.Format) {
	name := g.name("codec of format "+ft.Name, ft.Name, "entry")
	words := camel(ft.Name, "words")
	recv := strings.ToLower(name[:1])
	if recv == "w" {
		recv = "e" // w is the slice
	}
	g.p("// %s is one decoded %s. Reserved bits are dropped by Decode and cleared by Encode.", name, ft.Name)
	g.p("type %s struct {", name)
	eachWord(ft, func(wd *spec.Word) {
		if wd.Elements() > 1 {
			g.p("%s [%d]uint32", camel(wd.Name), wd.Elements())
			return
		}
		if len(wd.Fields) == 0 {
			g.p("%s uint32", camel(wd.Name))
			return
		}
		for _, fd := range wd.Fields {
			g.p("%s uint32", camel(wd.Name, fd.Name))
		}
	})
	g.p("}\n")

	g.p("// Decode reads the entry from w, which holds at least %s words.", words)
	g.p("func (%s *%s) Decode(w []uint32) {", recv, name)
	g.p("_ = w[%s-1]", words)
	eachWord(ft, func(wd *spec.Word) {
		at := camel(ft.Name, wd.Name)
		if wd.Elements() > 1 {
			g.p("copy(%s.%s[:], w[%s:])", recv, camel(wd.Name), at)
			return
		}
		if len(wd.Fields) == 0 {
			g.p("%s.%s = w[%s]", recv, camel(wd.Name), at)
			return
		}
		for _, fd := range wd.Fields {
			g.p("%s.%s = %s(w[%s])", recv, camel(wd.Name, fd.Name), camel(ft.Name, wd.Name, fd.Name), at)
		}
	})
	g.p("}\n")

	g.p("// Encode writes the entry to w, which holds at least %s words. What does not fit its field is cut off.", words)
	g.p("func (%s *%s) Encode(w []uint32) {", recv, name)
	g.p("_ = w[%s-1]", words)
	for i := range ft.Words {
		g.encodeWord(recv, ft, &ft.Words[i])
	}
	g.p("}\n")
}

func (g *goWriter) encodeWord(recv string, ft *spec.Format, wd *spec.Word) {
	at := camel(ft.Name, wd.Name)
	if wd.Reserved() {
		g.p("clear(w[%d:%d])", wd.Index, wd.Index+wd.Elements())
		return
	}
	if wd.Elements() > 1 {
		g.p("copy(w[%s:], %s.%s[:])", at, recv, camel(wd.Name))
		return
	}
	if len(wd.Fields) == 0 {
		g.p("w[%s] = %s.%s", at, recv, camel(wd.Name))
		return
	}
	terms := make([]string, 0, len(wd.Fields))
	for _, fd := range wd.Fields {
		prefix := camel(ft.Name, wd.Name, fd.Name)
		terms = append(terms, shifted(recv+"."+camel(wd.Name, fd.Name), "<<", prefix+"Shift", fd.Lsb)+"&"+prefix+"Mask")
	}
	g.p("w[%s] = %s", at, strings.Join(terms, " |\n"))
}

// eachWord visits the words that have a meaning.
func eachWord(ft *spec.Format, visit func(*spec.Word)) {
	for i := range ft.Words {
		if !ft.Words[i].Reserved() {
			visit(&ft.Words[i])
		}
	}
}
