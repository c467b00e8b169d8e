package main

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"

	"splicenic/regs/spec"
)

// A goWriter writes the Go files. It knows every name of the package, so that two parts of the map cannot claim one.
type goWriter struct {
	m    *spec.Map
	b    bytes.Buffer
	seen map[string]string // name → what declared it
	errs []error
}

// reserve takes the names that the package declares by hand.
func (g *goWriter) reserve() {
	for _, name := range []string{
		"Reg", "Access", "RO", "RW", "WO", "W1C", "W1S", "Class", "ClassIdentity", "ClassControl", "ClassStatus", "ClassCounter",
		"ClassWindow", "ClassKey", "ClassPointer", "BlockInfo", "RegisterInfo", "FieldInfo", "ValueInfo", "FormatInfo", "WordInfo",
		"Memory", "Location", "LookupRegister", "LookupFormat", "LookupMemory", "At", "All", "Names",
	} {
		g.seen[name] = "package regs itself"
	}
}

// name claims a Go name for a part of the map.
func (g *goWriter) name(owner string, parts ...string) string {
	n := camel(parts...)
	if other, ok := g.seen[n]; ok {
		g.errs = append(g.errs, fmt.Errorf("%s and %s both need the Go name %s: rename one of them in regs/spec", other, owner, n))
	}
	g.seen[n] = owner
	return n
}

func (g *goWriter) p(format string, args ...any) { fmt.Fprintf(&g.b, format+"\n", args...) }

// file runs one part and returns what it wrote as a formatted file, or nothing once a name clash has been found: then
// the parts run only to find the others.
func (g *goWriter) file(part func()) ([]byte, error) {
	g.b.Reset()
	g.p("// %s\n", header)
	g.p("package regs\n")
	part()
	if len(g.errs) > 0 {
		return nil, nil
	}
	src, err := format.Source(g.b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("format generated code: %w", err)
	}
	return src, nil
}

// registers writes offsets and field accessors of every block.
func (g *goWriter) registers() {
	g.p("// What belongs to the card as a whole.")
	g.p("const (")
	g.p("Bar0Bytes = %#x", spec.Bar0Bytes)
	g.p("Bar2Bytes = %#x", spec.Bar2Bytes)
	g.p("Bar4Bytes = %#x\n", spec.Bar4Bytes)
	g.p("// Magic is the first word of BAR0.")
	g.p("Magic uint32 = %#x\n", spec.Magic)
	g.p("// PCI identity of the default image.")
	g.p("VendorID = %#x", spec.VendorID)
	g.p("DeviceID = %#x", spec.DeviceID)
	g.p(")\n")
	g.p("// Digests of the two halves of the map: 32 bits as the directory holds them, 256 bits in hexadecimal as manifests do.")
	g.p("const (")
	shell, path := g.m.CanonicalShell(), g.m.CanonicalDataPath()
	g.p("ShellDigest uint32 = %#08x", spec.Digest(shell))
	g.p("DataPathDigest uint32 = %#08x", spec.Digest(path))
	g.p("ShellDigest256 = %q", spec.Digest256(shell))
	g.p("DataPathDigest256 = %q", spec.Digest256(path))
	g.p(")\n")
	for _, n := range []string{"Bar0Bytes", "Bar2Bytes", "Bar4Bytes", "Magic", "VendorID", "DeviceID", "ShellDigest", "DataPathDigest", "ShellDigest256", "DataPathDigest256"} {
		g.seen[n] = "the card as a whole"
	}
	for i := range g.m.Blocks {
		g.block(&g.m.Blocks[i])
	}
}

func (g *goWriter) block(b *spec.Block) {
	g.p("// Block %s. %s", b.Name, oneLine(b.Doc))
	g.p("const (")
	owner := "block " + b.Name
	g.p("%s Reg = %#x", g.name(owner, b.Name, "base"), b.Offset)
	g.p("%s Reg = %#x", g.name(owner, b.Name, "stride"), b.Stride)
	g.p("%s = %d", g.name(owner, b.Name, "instances"), len(b.InstanceNames()))
	if len(b.Instances) > 1 {
		g.p("")
		for i, n := range b.Instances {
			g.p("%s = %d", g.name("instance "+b.Name+"."+n, b.Name, n), i)
		}
	}
	g.p("")
	for i := range b.Registers {
		r := &b.Registers[i]
		owner := "register " + b.Name + "." + r.Name
		g.p("%s Reg = %#x // %s", g.name(owner, b.Name, r.Name), b.Offset+r.Offset, withUnit(r.Doc, r.Unit))
		if r.Elements() > 1 {
			g.p("%s Reg = %#x", g.name(owner, b.Name, r.Name, "stride"), r.ElementStride())
			g.p("%s = %d", g.name(owner, b.Name, r.Name, "count"), r.Elements())
		}
	}
	g.p(")\n")
	for i := range b.Registers {
		r := &b.Registers[i]
		for j := range r.Fields {
			g.field("field "+b.Name+"."+r.Name+"."+r.Fields[j].Name, &r.Fields[j], b.Name, r.Name)
		}
	}
}

// field writes shift, mask, values and accessors of one field.
func (g *goWriter) field(owner string, fd *spec.Field, prefix ...string) {
	prefix = append(prefix[:len(prefix):len(prefix)], fd.Name)
	with := func(suffix string) []string { return append(prefix[:len(prefix):len(prefix)], suffix) }
	shift, mask := g.name(owner, with("shift")...), g.name(owner, with("mask")...)
	g.p("const (")
	g.p("%s = %d", shift, fd.Lsb)
	g.p("%s uint32 = %#x", mask, fd.Mask())
	for _, v := range fd.Values {
		g.p("%s = %d", g.name(owner, with(v.Name)...), v.Value)
	}
	g.p(")\n")

	get := g.name(owner, prefix...)
	g.p("// %s is %s of w: %s", get, strings.Join(prefix, "."), withUnit(fd.Doc, fd.Unit))
	g.p("func %s(w uint32) uint32 { return %s }\n", get, shifted("w & "+mask, ">>", shift, fd.Lsb))
	set := g.name(owner, append([]string{"set"}, prefix...)...)
	g.p("// %s puts v into w; what does not fit is cut off.", set)
	g.p("func %s(w, v uint32) uint32 { return w&^%s | %s }\n", set, mask, shifted("v", "<<", shift, fd.Lsb)+"&"+mask)
}

// shifted leaves out a shift by zero.
func shifted(x, op, by string, bits uint8) string {
	if bits == 0 {
		return x
	}
	return x + " " + op + " " + by
}
