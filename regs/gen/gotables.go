package main

import (
	"fmt"
	"slices"
	"strings"

	"splicenic/regs/spec"
)

// memories writes the windows of BAR2 as constants and as a table.
func (g *goWriter) memories() {
	for i := range g.m.Memories {
		mem := &g.m.Memories[i]
		owner := "memory " + mem.Name
		ft := g.m.Format(mem.Format)
		g.p("// Memory %s. %s", mem.Name, oneLine(mem.Doc))
		g.p("const (")
		g.p("%s = %d // index in Memories", g.name(owner, "mem", mem.Name), i)
		g.p("%s uint64 = %#x", g.name(owner, "mem", mem.Name, "offset"), mem.Offset)
		g.p("%s = %d", g.name(owner, "mem", mem.Name, "count"), mem.Count)
		g.p("%s = %d", g.name(owner, "mem", mem.Name, "max"), mem.Max)
		g.p("%s = %d", g.name(owner, "mem", mem.Name, "banks"), mem.BankCount())
		g.p("%s uint64 = %#x", g.name(owner, "mem", mem.Name, "bank", "bytes"), uint64(mem.Max)*uint64(ft.Bytes))
		g.p(")\n")
	}
	g.p("// Memories are the windows of BAR2 in order of offset.")
	g.p("var %s = [...]Memory{", g.name("table of memories", "memories"))
	for i := range g.m.Memories {
		mem := &g.m.Memories[i]
		geometry := ""
		if mem.Geometry != "" {
			geometry = "Geometry: " + camel("geometry", mem.Geometry) + ","
		}
		g.p("{Name: %q, Format: %q, Offset: %s, Count: %s, Max: %s, Banks: %s, EntryBytes: %s, %s\nDoc: %q},", mem.Name, mem.Format,
			camel("mem", mem.Name, "offset"), camel("mem", mem.Name, "count"), camel("mem", mem.Name, "max"), camel("mem", mem.Name, "banks"),
			camel(mem.Format, "bytes"), geometry, oneLine(mem.Doc))
	}
	g.p("}")
}

// tables writes the description that tools read at run time.
func (g *goWriter) tables() {
	g.p("// Blocks are the register blocks of BAR0 in order of offset.")
	g.p("var %s = []BlockInfo{", g.name("table of blocks", "blocks"))
	for i := range g.m.Blocks {
		g.blockInfo(&g.m.Blocks[i])
	}
	g.p("}\n")
	g.p("// Formats are the layouts of memory entries and descriptors.")
	g.p("var %s = []FormatInfo{", g.name("table of formats", "formats"))
	for i := range g.m.Formats {
		ft := &g.m.Formats[i]
		g.p("{Name: %q, Bytes: %d, Doc: %q, Words: []WordInfo{", ft.Name, ft.Bytes, oneLine(ft.Doc))
		for j := range ft.Words {
			wd := &ft.Words[j]
			g.p("{Name: %q, Index: %d, Count: %d,%s Doc: %q%s},", wd.Name, wd.Index, wd.Elements(), unitInfo(wd.Unit), oneLine(wd.Doc), fieldInfos(wd.Fields, spec.RW))
		}
		g.p("}},")
	}
	g.p("}")
}

func (g *goWriter) blockInfo(b *spec.Block) {
	shell := ""
	if b.Shell {
		shell = " Shell: true,"
	}
	g.p("{Name: %q, Type: %#x, Version: %d, Offset: %#x, Stride: %#x, Instances: %#v,%s Digest: %#08x,\nDoc: %q,\nRegisters: []RegisterInfo{",
		b.Name, b.Type, b.Version, b.Offset, b.Stride, b.InstanceNames(), shell, spec.Digest(b.Canonical()), oneLine(b.Doc))
	for _, r := range b.Sorted() {
		extra := ""
		if r.Wide {
			extra += " Wide: true,"
		}
		if v := r.ResetValue(); v != 0 {
			extra += fmt.Sprintf(" Reset: %#x,", v)
		}
		if r.Max != 0 {
			extra += fmt.Sprintf(" Max: %#x,", r.Max)
		}
		g.p("{Name: %q, Offset: %#x, Count: %d, Stride: %d, Access: %s, Class: Class%s,%s%s Doc: %q%s},",
			r.Name, r.Offset, r.Elements(), r.ElementStride(), accessName(r.Access), camel(r.Class.String()), extra, unitInfo(r.Unit), oneLine(r.Doc), fieldInfos(r.Fields, r.Access))
	}
	g.p("}},")
}

func fieldInfos(fs []spec.Field, inherited spec.Access) string {
	if len(fs) == 0 {
		return ""
	}
	var t strings.Builder
	t.WriteString(", Fields: []FieldInfo{\n")
	for _, fd := range sortedFields(fs) {
		access := inherited
		if fd.Access != 0 {
			access = fd.Access
		}
		fmt.Fprintf(&t, "{Name: %q, Lsb: %d, Width: %d, Access: %s,", fd.Name, fd.Lsb, fd.Width, accessName(access))
		if fd.Reset != 0 {
			fmt.Fprintf(&t, " Reset: %#x,", fd.Reset)
		}
		fmt.Fprintf(&t, "%s Doc: %q", unitInfo(fd.Unit), oneLine(fd.Doc))
		if len(fd.Values) > 0 {
			t.WriteString(", Values: []ValueInfo{")
			for i, v := range fd.Values {
				if i > 0 {
					t.WriteString(", ")
				}
				fmt.Fprintf(&t, "{%d, %q}", v.Value, v.Name)
			}
			t.WriteString("}")
		}
		t.WriteString("},\n")
	}
	t.WriteString("}")
	return t.String()
}

func sortedFields(fs []spec.Field) []spec.Field {
	return slices.SortedFunc(slices.Values(fs), func(a, b spec.Field) int { return int(a.Lsb) - int(b.Lsb) })
}

func unitInfo(unit string) string {
	if unit == "" {
		return ""
	}
	return fmt.Sprintf(" Unit: %q,", unit)
}

func accessName(a spec.Access) string { return strings.ToUpper(a.String()) }
