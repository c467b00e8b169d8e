package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A lint looks at a whole map for one kind of mistake and returns a line for each one it finds.
type lint struct {
	name  string
	check func(*Map) []string
}

// lints is the whole list. lint_broken_test.go proves that each can fail.
var lints = []lint{
	{"blocks", lintBlocks},
	{"registers", lintRegisters},
	{"fields", lintFields},
	{"all ones", lintAllOnes},
	{"access", lintAccess},
	{"documented", lintDocumented},
	{"names", lintNames},
	{"formats", lintFormats},
	{"memories", lintMemories},
	{"page", lintPage},
	{"shell", lintShell},
}

// findings collects what a lint has to say.
type findings []string

func (fs *findings) add(format string, args ...any) { *fs = append(*fs, fmt.Sprintf(format, args...)) }

// A span is a run of bytes with an owner.
type span struct {
	start, end uint64
	owner      string
}

// overlaps reports every pair of neighbours that share bytes.
func (fs *findings) overlaps(spans []span) {
	slices.SortFunc(spans, func(a, b span) int {
		if a.start != b.start {
			return int(int64(a.start) - int64(b.start))
		}
		return strings.Compare(a.owner, b.owner)
	})
	for i := 1; i < len(spans); i++ {
		if spans[i].start < spans[i-1].end {
			fs.add("%s and %s overlap at %#x", spans[i-1].owner, spans[i].owner, spans[i].start)
		}
	}
}

// lintBlocks: blocks are aligned, do not overlap and lie in BAR0; each type is given once.
func lintBlocks(m *Map) []string {
	var fs findings
	var spans []span
	types := map[uint16]string{}
	for i := range m.Blocks {
		b := &m.Blocks[i]
		end := uint64(b.Offset) + uint64(b.Stride)*uint64(len(b.InstanceNames()))
		spans = append(spans, span{uint64(b.Offset), end, b.Name})
		if b.Stride == 0 || b.Stride%0x100 != 0 || b.Offset%0x100 != 0 {
			fs.add("%s: offset %#x and stride %#x must be multiples of 0x100", b.Name, b.Offset, b.Stride)
		}
		if end > Bar0Bytes {
			fs.add("%s: ends at %#x, beyond BAR0", b.Name, end)
		}
		if other, ok := types[b.Type]; ok || b.Type == 0 {
			fs.add("%s: type %d is zero or that of %s", b.Name, b.Type, other)
		}
		if b.Version == 0 || b.Version >= 1<<15 {
			fs.add("%s: version %d does not fit the directory", b.Name, b.Version)
		}
		types[b.Type] = b.Name
	}
	fs.overlaps(spans)
	return fs
}

// lintRegisters: registers are aligned to their size, do not overlap and lie in their block's instance.
func lintRegisters(m *Map) []string {
	var fs findings
	for i := range m.Blocks {
		b := &m.Blocks[i]
		var spans []span
		for j := range b.Registers {
			r := &b.Registers[j]
			name := b.Name + "." + r.Name
			if r.Offset%r.Bytes() != 0 || r.ElementStride()%r.Bytes() != 0 {
				fs.add("%s: offset %#x and stride %d must be multiples of %d", name, r.Offset, r.ElementStride(), r.Bytes())
			}
			if r.ElementStride() < r.Bytes() {
				fs.add("%s: elements overlap", name)
			}
			if r.Count == 1 || (r.Count == 0 && r.Stride != 0) {
				fs.add("%s: one element is written without count and stride", name)
			}
			for e := range r.Elements() {
				start := uint64(r.Offset) + uint64(e)*uint64(r.ElementStride())
				spans = append(spans, span{start, start + uint64(r.Bytes()), fmt.Sprintf("%s[%d]", name, e)})
			}
			if end := spans[len(spans)-1].end; end > uint64(b.Stride) {
				fs.add("%s: ends at %#x, beyond its instance of %#x bytes", name, end, b.Stride)
			}
		}
		fs.overlaps(spans)
	}
	return fs
}

// lintFields: no field crosses 32 bits or another field; resets and values fit; a wide register is one number.
func lintFields(m *Map) []string {
	var fs findings
	eachRegister(m, func(name string, r *Register) {
		if r.Wide && len(r.Fields) > 0 {
			fs.add("%s: a wide register has no fields", name)
		}
		if r.Reset != 0 && len(r.Fields) > 0 {
			fs.add("%s: the reset value belongs to the fields", name)
		}
		fs.fields(name, r.Fields)
	})
	eachWord(m, func(name string, _ *Format, wd *Word) {
		if wd.Elements() > 1 && len(wd.Fields) > 0 {
			fs.add("%s: words of one meaning have no fields", name)
		}
		fs.fields(name, wd.Fields)
	})
	return fs
}

func (fs *findings) fields(name string, fields []Field) {
	var taken uint32
	for i := range fields {
		fd := &fields[i]
		if fd.Width == 0 || int(fd.Lsb)+int(fd.Width) > 32 {
			fs.add("%s.%s: bits %d to %d cross the word", name, fd.Name, fd.Lsb, int(fd.Lsb)+int(fd.Width)-1)
			continue
		}
		if taken&fd.Mask() != 0 {
			fs.add("%s.%s: shares bits with another field", name, fd.Name)
		}
		taken |= fd.Mask()
		limit := uint64(1)<<fd.Width - 1
		if uint64(fd.Reset) > limit {
			fs.add("%s.%s: reset %d does not fit", name, fd.Name, fd.Reset)
		}
		seen := map[uint32]bool{}
		for _, v := range fd.Values {
			if uint64(v.Value) > limit || seen[v.Value] {
				fs.add("%s.%s: value %s=%d does not fit or is given twice", name, fd.Name, v.Name, v.Value)
			}
			seen[v.Value] = true
		}
	}
}

// lintAllOnes: no legal value of an identity, control or status register is all ones, so that all ones means a lost
// device. Such a register has a reserved bit or a documented maximum.
func lintAllOnes(m *Map) []string {
	var fs findings
	eachRegister(m, func(name string, r *Register) {
		if r.Class > Status {
			return
		}
		if r.Wide {
			fs.add("%s: class %s cannot be wide, its low word may read all ones", name, r.Class)
		}
		if len(r.Fields) == 0 {
			if r.Max == 0 || r.Max == 1<<32-1 {
				fs.add("%s: class %s without fields needs a maximum below all ones", name, r.Class)
			}
			return
		}
		var taken uint32
		for i := range r.Fields {
			taken |= r.Fields[i].Mask()
		}
		if taken == 1<<32-1 {
			fs.add("%s: class %s needs a reserved bit", name, r.Class)
		}
	})
	return fs
}

// lintAccess: every register and field has one of the five access kinds, none of which does anything on a load, and one
// that goes with its class.
func lintAccess(m *Map) []string {
	var fs findings
	allowed := map[Class][]Access{
		Identity: {RO}, Status: {RO, W1C}, Counter: {RO}, Control: {RW, WO, W1S},
		Window: {RO, RW, WO}, Key: {RW, WO}, Pointer: {RO, RW, WO},
	}
	eachRegister(m, func(name string, r *Register) {
		if !slices.Contains(allowed[r.Class], r.Access) {
			fs.add("%s: class %d cannot have access %d", name, r.Class, r.Access)
		}
		for _, fd := range r.Fields {
			if fd.Access > W1S {
				fs.add("%s.%s: unknown access %d", name, fd.Name, fd.Access)
			}
		}
	})
	return fs
}

// lintDocumented: everything is documented in one line that is a sentence.
func lintDocumented(m *Map) []string {
	var fs findings
	doc := func(name, doc string) {
		if len(doc) < 4 || strings.ContainsAny(doc, "\n\t|") || !strings.HasSuffix(doc, ".") {
			fs.add("%s: wants one line of documentation that ends in a full stop, has %q", name, doc)
		}
	}
	fields := func(name string, fields []Field) {
		for _, fd := range fields {
			doc(name+"."+fd.Name, fd.Doc)
		}
	}
	for _, b := range m.Blocks {
		doc(b.Name, b.Doc)
	}
	eachRegister(m, func(name string, r *Register) { doc(name, r.Doc); fields(name, r.Fields) })
	for _, ft := range m.Formats {
		doc(ft.Name, ft.Doc)
	}
	eachWord(m, func(name string, _ *Format, wd *Word) { doc(name, wd.Doc); fields(name, wd.Fields) })
	for _, mem := range m.Memories {
		doc(mem.Name, mem.Doc)
	}
	return fs
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// lintNames: names are snake_case and unique where they are looked up. An instance's name must not be a register's: a
// dotted name could mean either.
func lintNames(m *Map) []string {
	var fs findings
	unique := func(scope string, names []string) {
		seen := map[string]bool{}
		for _, n := range names {
			if !snakeCase.MatchString(n) {
				fs.add("%s: name %q is not snake_case", scope, n)
			}
			if seen[n] {
				fs.add("%s: name %q is given twice", scope, n)
			}
			seen[n] = true
		}
	}
	fields := func(name string, fields []Field) {
		unique(name, collect(fields, func(fd Field) string { return fd.Name }))
		for _, fd := range fields {
			unique(name+"."+fd.Name, collect(fd.Values, func(v Value) string { return v.Name }))
		}
	}
	unique("blocks", collect(m.Blocks, func(b Block) string { return b.Name }))
	unique("formats", collect(m.Formats, func(ft Format) string { return ft.Name }))
	unique("memories", collect(m.Memories, func(mem Memory) string { return mem.Name }))
	for _, b := range m.Blocks {
		unique(b.Name, append(collect(b.Registers, func(r Register) string { return r.Name }), b.Instances...))
	}
	for _, ft := range m.Formats {
		unique(ft.Name, collect(ft.Words, func(wd Word) string { return wd.Name }))
	}
	eachRegister(m, func(name string, r *Register) { fields(name, r.Fields) })
	eachWord(m, func(name string, _ *Format, wd *Word) { fields(name, wd.Fields) })
	return fs
}

func collect[T any](xs []T, name func(T) string) []string {
	names := make([]string, 0, len(xs))
	for _, x := range xs {
		names = append(names, name(x))
	}
	return names
}

func eachRegister(m *Map, visit func(name string, r *Register)) {
	for i := range m.Blocks {
		for j := range m.Blocks[i].Registers {
			visit(m.Blocks[i].Name+"."+m.Blocks[i].Registers[j].Name, &m.Blocks[i].Registers[j])
		}
	}
}

func eachWord(m *Map, visit func(name string, ft *Format, wd *Word)) {
	for i := range m.Formats {
		for j := range m.Formats[i].Words {
			visit(m.Formats[i].Name+"."+m.Formats[i].Words[j].Name, &m.Formats[i], &m.Formats[i].Words[j])
		}
	}
}
