package main

import (
	"bytes"
	"fmt"
	"strings"

	"splicenic/regs/spec"
)

// intro says how to read the rest; everything that differs from map to map follows it.
const intro = `# The register map

BAR0 holds registers, BAR2 memories, BAR4 the MSI-X table. Everything is little-endian. The atom is an aligned 32-bit
word; a 64-bit register is two words, the low one first, and no access needs both at once.

Access kinds: **ro** stores are ignored, **rw** reads back what was stored, **wo** reads zero, **w1c** storing a one clears
the bit, **w1s** storing a one starts an action or sets the bit. No load has a side effect. Bits that no field names are
reserved: they read zero and ignore stores. An empty reset value is zero; what an image decides reads as the default
image's value. No identity, control or status register ever reads all ones, so all ones there means a lost device.

Instance *i* of a block starts at offset + *i* × stride. In dotted names an instance has a name or an index:
` + "`port.client.rx_frames`, `port[1].rx_frames`, `geometry.cycles[3]`, `amu.control.enable`" + `.

A digest is the SHA-256 of the canonical text: names, offsets, widths, access kinds, formats. Registers hold its first
32 bits. Where they would be zero or all ones the next 32 bits stand in.
`

// markdown writes the map as tables for people.
func markdown(m *spec.Map) []byte {
	w := &textWriter{}
	w.p("<!-- %s -->", header)
	w.p("%s", intro)
	w.p("| part | digest |\n|---|---|")
	w.p("| shell | `%s` |", spec.Digest256(m.CanonicalShell()))
	w.p("| data path | `%s` |", spec.Digest256(m.CanonicalDataPath()))
	w.p("\n| BAR | bytes | what |\n|---|---|---|")
	w.p("| 0 | %#x | registers |", spec.Bar0Bytes)
	w.p("| 2 | %#x | memories |", spec.Bar2Bytes)
	w.p("| 4 | %#x | MSI-X |", spec.Bar4Bytes)

	w.p("\n## Blocks\n")
	w.p("| offset | block | type | version | stride | instances | digest | |\n|---|---|---|---|---|---|---|---|")
	for i := range m.Blocks {
		b := &m.Blocks[i]
		part := ""
		if b.Shell {
			part = "shell"
		}
		w.p("| `0x%05x` | [%s](#block-%s) | %#x | %d | %#x | %s | `%08x` | %s |", b.Offset, b.Name, b.Name, b.Type, b.Version, b.Stride,
			strings.Join(b.InstanceNames(), ", "), spec.Digest(b.Canonical()), part)
	}
	for i := range m.Blocks {
		w.markdownBlock(&m.Blocks[i])
	}
	w.p("\n## Memories\n")
	w.p("The card's geometry may have fewer entries than the default, never more than the window has room for.\n")
	w.p("| offset in BAR2 | memory | format | entry | default | room | banks | entries of this image | |\n|---|---|---|---|---|---|---|---|---|")
	for i := range m.Memories {
		mem := &m.Memories[i]
		geometry := ""
		if mem.Geometry != "" {
			geometry = "geometry." + mem.Geometry
		}
		w.p("| `0x%08x` | %s | [%s](#format-%s) | %d | %d | %d | %d | %s | %s |", mem.Offset, mem.Name, mem.Format, mem.Format,
			m.Format(mem.Format).Bytes, mem.Count, mem.Max, mem.BankCount(), geometry, oneLine(mem.Doc))
	}
	w.p("\n## Formats")
	for i := range m.Formats {
		w.markdownFormat(&m.Formats[i])
	}
	return w.b.Bytes()
}

func (w *textWriter) markdownBlock(b *spec.Block) {
	w.p("\n### Block %s\n\n%s\n", b.Name, oneLine(b.Doc))
	w.p("| offset | register or bits | access | class | reset | |\n|---|---|---|---|---|---|")
	for _, r := range b.Sorted() {
		limit := ""
		if r.Max != 0 && r.Max != r.Reset {
			limit = fmt.Sprintf(" At most %#x.", r.Max)
		}
		w.p("| `0x%03x` | **%s**%s | %s | %s | %s | %s%s |", r.Offset, r.Name, shape(&r), r.Access, r.Class, nonZero(r.ResetValue()), withUnit(r.Doc, r.Unit), limit)
		for _, fd := range sortedFields(r.Fields) {
			access := ""
			if fd.Access != 0 {
				access = fd.Access.String()
			}
			w.p("| | %s %s | %s | | %s | %s%s |", bitRange(&fd), fd.Name, access, nonZero(fd.Reset), withUnit(fd.Doc, fd.Unit), valueList(&fd))
		}
	}
}

func (w *textWriter) markdownFormat(ft *spec.Format) {
	w.p("\n### Format %s\n\n%s %d bytes.\n", ft.Name, oneLine(ft.Doc), ft.Bytes)
	w.p("| word | byte | name or bits | |\n|---|---|---|---|")
	for i := range ft.Words {
		wd := &ft.Words[i]
		name := "**" + wd.Name + "**"
		if wd.Elements() > 1 {
			name += fmt.Sprintf(" × %d", wd.Elements())
		}
		w.p("| %d | %d | %s | %s |", wd.Index, wd.Index*4, name, withUnit(wd.Doc, wd.Unit))
		for _, fd := range sortedFields(wd.Fields) {
			w.p("| | | %s %s | %s%s |", bitRange(&fd), fd.Name, withUnit(fd.Doc, fd.Unit), valueList(&fd))
		}
	}
}

// shape says what is not one 32-bit word.
func shape(r *spec.Register) string {
	s := ""
	if r.Elements() > 1 {
		s += fmt.Sprintf("[%d]", r.Elements())
		if r.Stride != 0 {
			s += fmt.Sprintf(" every %#x", r.Stride)
		}
	}
	if r.Wide {
		s += " 64 bits"
	}
	return s
}

func bitRange(fd *spec.Field) string {
	if fd.Width == 1 {
		return fmt.Sprintf("`%d`", fd.Lsb)
	}
	return fmt.Sprintf("`%d:%d`", fd.Lsb+fd.Width-1, fd.Lsb)
}

func valueList(fd *spec.Field) string {
	if len(fd.Values) == 0 {
		return ""
	}
	names := make([]string, 0, len(fd.Values))
	for _, v := range fd.Values {
		names = append(names, fmt.Sprintf("%d %s", v.Value, v.Name))
	}
	return " Values: " + strings.Join(names, ", ") + "."
}

func nonZero(v uint32) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("`%#x`", v)
}

// A textWriter writes the files that are not Go.
type textWriter struct{ b bytes.Buffer }

func (w *textWriter) p(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }
