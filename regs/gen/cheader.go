package main

import (
	"fmt"

	"splicenic/regs/spec"
)

const cPrefix = "splicenic"

// cHeader writes the map for C11: macros for registers, fields, words and memories, structs for formats. The names are
// those of the Go package, so a clash there would be one here.
func cHeader(m *spec.Map) []byte {
	w := &textWriter{}
	w.p("/* %s */", header)
	w.p(`/*
 * Register map of the card. All words are little-endian; structs show memory as a little-endian CPU sees it.
 * A register's macro is the BAR0 offset of instance 0 and element 0; a wide register has its high word at +4.
 */
#ifndef SPLICENIC_H
#define SPLICENIC_H

#include <stddef.h>
#include <stdint.h>

/* Takes a field out of a word and puts it in: SPLICENIC_GET(PORT_STATUS_SPEED, w). */
#define SPLICENIC_GET(field, w) (((uint32_t)(w) & SPLICENIC_##field##_MASK) >> SPLICENIC_##field##_SHIFT)
#define SPLICENIC_SET(field, w, v) \
	(((uint32_t)(w) & ~SPLICENIC_##field##_MASK) | \
	 (((uint32_t)(v) << SPLICENIC_##field##_SHIFT) & SPLICENIC_##field##_MASK))
`)
	w.define(spec.Bar0Bytes, "bar0_bytes")
	w.define(spec.Bar2Bytes, "bar2_bytes")
	w.define(spec.Bar4Bytes, "bar4_bytes")
	w.define(spec.Magic, "magic")
	w.define(spec.VendorID, "vendor_id")
	w.define(spec.DeviceID, "device_id")
	w.define(spec.Digest(m.CanonicalShell()), "shell_digest")
	w.define(spec.Digest(m.CanonicalDataPath()), "data_path_digest")
	for i := range m.Blocks {
		w.cBlock(&m.Blocks[i])
	}
	for i := range m.Formats {
		w.cFormat(&m.Formats[i])
	}
	for i := range m.Memories {
		mem := &m.Memories[i]
		w.p("\n/* Memory %s. %s */", mem.Name, oneLine(mem.Doc))
		w.define(uint32(mem.Offset), "mem", mem.Name, "offset") // BAR2 is smaller than 4 GiB
		w.define(mem.Count, "mem", mem.Name, "count")
		w.define(mem.Max, "mem", mem.Name, "max")
		w.define(mem.BankCount(), "mem", mem.Name, "banks")
		w.define(mem.Max*m.Format(mem.Format).Bytes, "mem", mem.Name, "bank_bytes")
	}
	w.p("\n#endif")
	return w.b.Bytes()
}

func (w *textWriter) define(v uint32, names ...string) {
	w.p("#define %s %#xu", upper(append([]string{cPrefix}, names...)...), v)
}

func (w *textWriter) cBlock(b *spec.Block) {
	w.p("\n/* Block %s. %s */", b.Name, oneLine(b.Doc))
	w.define(b.Offset, b.Name, "base")
	w.define(b.Stride, b.Name, "stride")
	w.define(uint32(len(b.InstanceNames())), b.Name, "instances")
	for i, name := range b.Instances {
		w.define(uint32(i), b.Name, name)
	}
	for _, r := range b.Sorted() {
		w.p("/* %s: %s */", r.Name, withUnit(r.Doc, r.Unit))
		w.define(b.Offset+r.Offset, b.Name, r.Name)
		if r.Elements() > 1 {
			w.define(r.ElementStride(), b.Name, r.Name, "stride")
			w.define(r.Elements(), b.Name, r.Name, "count")
		}
		w.cFields(r.Fields, b.Name, r.Name)
	}
}

func (w *textWriter) cFields(fs []spec.Field, prefix ...string) {
	for _, fd := range sortedFields(fs) {
		p := append(prefix[:len(prefix):len(prefix)], fd.Name)
		with := func(suffix string) []string { return append(p[:len(p):len(p)], suffix) }
		w.define(uint32(fd.Lsb), with("shift")...)
		w.define(fd.Mask(), with("mask")...)
		for _, v := range fd.Values {
			w.define(v.Value, with(v.Name)...)
		}
	}
}

func (w *textWriter) cFormat(ft *spec.Format) {
	w.p("\n/* Format %s. %s */", ft.Name, oneLine(ft.Doc))
	w.define(ft.Bytes, ft.Name, "bytes")
	w.define(ft.Bytes/4, ft.Name, "words")
	for i := range ft.Words {
		wd := &ft.Words[i]
		if wd.Reserved() {
			continue
		}
		w.define(wd.Index, ft.Name, wd.Name)
		w.cFields(wd.Fields, ft.Name, wd.Name)
	}
	name := "struct " + cPrefix + "_" + ft.Name
	w.p("%s {", name)
	for i := range ft.Words {
		wd := &ft.Words[i]
		array := ""
		if wd.Elements() > 1 {
			array = fmt.Sprintf("[%d]", wd.Elements())
		}
		w.p("\tuint32_t %s%s; /* %s */", member(wd.Name), array, withUnit(wd.Doc, wd.Unit))
	}
	w.p("};")
	w.p("_Static_assert(sizeof(%s) == %d, \"size of %s\");", name, ft.Bytes, ft.Name)
	for i := range ft.Words {
		wd := &ft.Words[i]
		w.p("_Static_assert(offsetof(%s, %s) == %d, \"offset of %s.%s\");", name, member(wd.Name), wd.Index*4, ft.Name, wd.Name)
	}
}

// member makes a word's name a C identifier: default is the one keyword among them. The compiler would find another.
func member(name string) string {
	if name == "default" {
		return "default_"
	}
	return name
}
