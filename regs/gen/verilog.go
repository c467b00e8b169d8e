package main

import "splicenic/regs/spec"

// systemVerilog writes the map as constants of a package, with the names of the C header. Upper case keeps them apart from
// the language's keywords.
func systemVerilog(m *spec.Map) []byte {
	w := &textWriter{}
	w.p("// %s", header)
	w.p(`// Register map of the card. A register's constant is the BAR0 offset of instance 0 and element 0; a wide register has its
// high word at +4. A word's constant is its index in an entry; a field has its lowest bit, its width and its mask in place.
package splicenic_pkg;
`)
	w.param(spec.Bar0Bytes, "bar0_bytes")
	w.param(spec.Bar2Bytes, "bar2_bytes")
	w.param(spec.Bar4Bytes, "bar4_bytes")
	w.param(spec.Magic, "magic")
	w.param(spec.VendorID, "vendor_id")
	w.param(spec.DeviceID, "device_id")
	w.param(spec.Digest(m.CanonicalShell()), "shell_digest")
	w.param(spec.Digest(m.CanonicalDataPath()), "data_path_digest")
	for i := range m.Blocks {
		w.svBlock(&m.Blocks[i])
	}
	for i := range m.Formats {
		w.svFormat(&m.Formats[i])
	}
	for i := range m.Memories {
		mem := &m.Memories[i]
		w.p("\n  // Memory %s. %s", mem.Name, oneLine(mem.Doc))
		w.param(uint32(mem.Offset), "mem", mem.Name, "offset") // BAR2 is smaller than 4 GiB
		w.param(mem.Count, "mem", mem.Name, "count")
		w.param(mem.Max, "mem", mem.Name, "max")
		w.param(mem.BankCount(), "mem", mem.Name, "banks")
		w.param(mem.Max*m.Format(mem.Format).Bytes, "mem", mem.Name, "bank_bytes")
	}
	w.p("\nendpackage")
	return w.b.Bytes()
}

func (w *textWriter) param(v uint32, names ...string) {
	w.p("  localparam logic [31:0] %s = 32'h%08x;", upper(names...), v)
}

func (w *textWriter) svBlock(b *spec.Block) {
	w.p("\n  // Block %s. %s", b.Name, oneLine(b.Doc))
	w.param(uint32(b.Type), "block", b.Name, "type")
	w.param(uint32(b.Version), "block", b.Name, "version")
	w.param(spec.Digest(b.Canonical()), "block", b.Name, "digest")
	w.param(b.Offset, b.Name, "base")
	w.param(b.Stride, b.Name, "stride")
	w.param(uint32(len(b.InstanceNames())), b.Name, "instances")
	for i, name := range b.Instances {
		w.param(uint32(i), b.Name, name)
	}
	for _, r := range b.Sorted() {
		w.p("  // %s, %s: %s", r.Name, r.Access, withUnit(r.Doc, r.Unit))
		w.param(b.Offset+r.Offset, b.Name, r.Name)
		if r.Elements() > 1 {
			w.param(r.ElementStride(), b.Name, r.Name, "stride")
			w.param(r.Elements(), b.Name, r.Name, "count")
		}
		if v := r.ResetValue(); v != 0 {
			w.param(v, b.Name, r.Name, "reset_value")
		}
		w.svFields(r.Fields, b.Name, r.Name)
	}
}

func (w *textWriter) svFields(fs []spec.Field, prefix ...string) {
	for _, fd := range sortedFields(fs) {
		p := append(prefix[:len(prefix):len(prefix)], fd.Name)
		with := func(suffix string) []string { return append(p[:len(p):len(p)], suffix) }
		w.param(uint32(fd.Lsb), with("lsb")...)
		w.param(uint32(fd.Width), with("width")...)
		w.param(fd.Mask(), with("mask")...)
		for _, v := range fd.Values {
			w.param(v.Value, with(v.Name)...)
		}
	}
}

func (w *textWriter) svFormat(ft *spec.Format) {
	w.p("\n  // Format %s. %s", ft.Name, oneLine(ft.Doc))
	w.param(ft.Bytes, ft.Name, "bytes")
	w.param(ft.Bytes/4, ft.Name, "words")
	for i := range ft.Words {
		wd := &ft.Words[i]
		if wd.Reserved() {
			continue
		}
		w.param(wd.Index, ft.Name, wd.Name)
		w.svFields(wd.Fields, ft.Name, wd.Name)
	}
}
