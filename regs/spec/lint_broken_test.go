package spec

import (
	"strings"
	"testing"
)

// One mistake per row; the lint named must find it and say so.
func TestLintsFindMistakes(t *testing.T) {
	tests := []struct {
		lint, name string
		mistake    func(*Map)
		want       string
	}{
		{"blocks", "overlap", func(m *Map) { block(m, "parser").Offset = 0x12000 }, "port and parser overlap at 0x12000"},
		{"blocks", "overlap of an instance", func(m *Map) { block(m, "port").Instances = []string{"a", "b", "c", "d"} }, "port and parser overlap at 0x14000"},
		{"blocks", "beyond the BAR", func(m *Map) { block(m, "ring").Offset = Bar0Bytes - 0x100 }, "ring: ends at 0x100400, beyond BAR0"},
		{"blocks", "offset not aligned", func(m *Map) { block(m, "ring").Offset += 4 }, "ring: offset 0x31004 and stride 0x100 must be multiples"},
		{"blocks", "no stride", func(m *Map) { block(m, "ring").Stride = 0 }, "ring: offset 0x31000 and stride 0x0 must be multiples"},
		{"blocks", "type given twice", func(m *Map) { block(m, "ring").Type = 0x1c }, "ring: type 28 is zero or that of hostif"},
		{"blocks", "version too large", func(m *Map) { block(m, "ring").Version = 1 << 15 }, "ring: version 32768 does not fit"},

		{"registers", "overlap", func(m *Map) { register(m, "amu", "free").Offset = 0x14 }, "overlap at 0x14"},
		{"registers", "overlap of a high word", func(m *Map) { register(m, "timer", "tick").Offset = 4 }, "timer.now[0] and timer.tick[0] overlap at 0x4"},
		{"registers", "overlap of an element", func(m *Map) { register(m, "directory", "entry_offset").Offset = 0x120 }, "directory.entry_offset[0] and directory.entry_type[1] overlap at 0x120"},
		{"registers", "not aligned", func(m *Map) { register(m, "amu", "free").Offset = 0x1a }, "amu.free: offset 0x1a"},
		{"registers", "wide and not aligned", func(m *Map) { register(m, "timer", "now").Offset = 0x84 }, "timer.now: offset 0x84"},
		{"registers", "beyond the instance", func(m *Map) { register(m, "ring", "sequence").Offset = 0x100 }, "ring.sequence: ends at 0x104, beyond its instance of 0x100 bytes"},
		{"registers", "elements overlap", func(m *Map) { register(m, "port", "rx_size").Stride = 4 }, "port.rx_size: elements overlap"},
		{"registers", "array of one", func(m *Map) { register(m, "port", "mtu").Count = 1 }, "port.mtu: one element is written without count"},

		{"fields", "beyond bit 31", func(m *Map) { register(m, "port", "status").Fields[2].Lsb = 13 }, "port.status.speed: bits 13 to 32 cross"},
		{"fields", "no bits", func(m *Map) { register(m, "port", "status").Fields[2].Width = 0 }, "port.status.speed: bits 8 to 7 cross"},
		{"fields", "shared bits", func(m *Map) { register(m, "port", "status").Fields[1].Lsb = 0 }, "port.status.present: shares bits"},
		{"fields", "reset too large", func(m *Map) { register(m, "port", "mtu").Fields[0].Reset = 1 << 16 }, "port.mtu.bytes: reset 65536 does not fit"},
		{"fields", "value too large", func(m *Map) { word(m, "group", "control").Fields[1].Width = 1 }, "group.control.means: value compare=2 does not fit"},
		{"fields", "value given twice", func(m *Map) { word(m, "group", "control").Fields[1].Values[1].Value = 0 }, "group.control.means: value hash=0"},
		{"fields", "fields of a wide register", func(m *Map) { register(m, "port", "mtu").Wide = true }, "port.mtu: a wide register has no fields"},
		{"fields", "two reset values", func(m *Map) { register(m, "port", "mtu").Reset = 9000 }, "port.mtu: the reset value belongs"},
		{"fields", "fields of an array of words", func(m *Map) { word(m, "group", "control").Count = 2 }, "group.control: words of one meaning have no fields"},
		{"fields", "word field beyond bit 31", func(m *Map) { word(m, "page", "ports").Fields[1].Lsb = 17 }, "page.ports.vip: bits 17 to 32 cross"},

		{"all ones", "no maximum", func(m *Map) { register(m, "amu", "free").Max = 0 }, "amu.free: class status without fields needs a maximum"},
		{"all ones", "maximum is all ones", func(m *Map) { register(m, "geometry", "pages").Max = 1<<32 - 1 }, "geometry.pages: class identity without fields needs"},
		{"all ones", "no reserved bit", func(m *Map) { register(m, "identity", "pci_id").Fields[1].Width = 16 }, "identity.pci_id: class identity needs a reserved bit"},
		{"all ones", "wide status", func(m *Map) { register(m, "timer", "now").Class = Status }, "timer.now: class status cannot be wide"},

		{"access", "unknown kind", func(m *Map) { register(m, "amu", "free").Access = W1S + 1 }, "amu.free: class 3 cannot have access 6"},
		{"access", "no kind", func(m *Map) { register(m, "amu", "free").Access = 0 }, "amu.free: class 3 cannot have access 0"},
		{"access", "unknown kind of a field", func(m *Map) { register(m, "port", "mtu").Fields[0].Access = 9 }, "port.mtu.bytes: unknown access 9"},
		{"access", "counter that can be stored", func(m *Map) { register(m, "port", "rx_frames").Access = RW }, "port.rx_frames: class 4 cannot have access 2"},
		{"access", "no class", func(m *Map) { register(m, "amu", "free").Class = 0 }, "amu.free: class 0"},

		{"documented", "block", func(m *Map) { block(m, "amu").Doc = "" }, `amu: wants one line`},
		{"documented", "register", func(m *Map) { register(m, "amu", "free").Doc = "" }, "amu.free: wants"},
		{"documented", "field", func(m *Map) { register(m, "port", "mtu").Fields[0].Doc = "" }, "port.mtu.bytes: wants"},
		{"documented", "format", func(m *Map) { m.Format("page").Doc = "" }, "page: wants"},
		{"documented", "word", func(m *Map) { word(m, "page", "last_seen").Doc = "" }, "page.last_seen: wants"},
		{"documented", "memory", func(m *Map) { memory(m, "head").Doc = "" }, "head: wants"},
		{"documented", "two lines", func(m *Map) { block(m, "amu").Doc = "One.\nTwo." }, "amu: wants one line"},
		{"documented", "no full stop", func(m *Map) { block(m, "amu").Doc = "Address unit" }, "amu: wants one line"},

		{"names", "block", func(m *Map) { block(m, "amu").Name = "AMU" }, `blocks: name "AMU" is not snake_case`},
		{"names", "two blocks", func(m *Map) { block(m, "amu").Name = "port" }, `blocks: name "port" is given twice`},
		{"names", "register", func(m *Map) { register(m, "amu", "free").Name = "free__pages" }, `amu: name "free__pages" is not`},
		{"names", "two registers", func(m *Map) { register(m, "amu", "free").Name = "live" }, `amu: name "live" is given twice`},
		{"names", "instance like a register", func(m *Map) { block(m, "port").Instances[0] = "mtu" }, `port: name "mtu" is given twice`},
		{"names", "two fields", func(m *Map) { register(m, "port", "status").Fields[0].Name = "speed" }, `port.status: name "speed" is given twice`},
		{"names", "two values", func(m *Map) { word(m, "group", "control").Fields[1].Values[0].Name = "hash" }, `group.control.means: name "hash" is given twice`},
		{"names", "format", func(m *Map) { m.Format("page").Name = "1page" }, `formats: name "1page" is not`},
		{"names", "two words", func(m *Map) { word(m, "page", "last_seen").Name = "ports" }, `page: name "ports" is given twice`},
		{"names", "two memories", func(m *Map) { memory(m, "head").Name = "page" }, `memories: name "page" is given twice`},

		{"formats", "size", func(m *Map) { m.Format("rule").Bytes = 12 }, "rule: 12 bytes is not a power of two"},
		{"formats", "overlap", func(m *Map) { word(m, "rule", "service").Index = 0 }, "rule.control and rule.service overlap at 0x0"},
		{"formats", "beyond the end", func(m *Map) { word(m, "rule", "conditions").Index = 4 }, "rule.conditions: word 4 is beyond 16 bytes"},
		{"formats", "hole", func(m *Map) { ft := m.Format("rule"); ft.Words = ft.Words[:3] }, "rule: 3 words do not fill 16 bytes"},
		{"formats", "unused", func(m *Map) { m.Format("rule").Name = "other" }, "other: no memory and no ring"},

		{"memories", "no format", func(m *Map) { memory(m, "page").Format = "leaf" }, `page: no format "leaf"`},
		{"memories", "overlap", func(m *Map) { memory(m, "head").Offset -= 4096 }, "page and head overlap at 0x7fff000"},
		{"memories", "banks overlap the next", func(m *Map) { memory(m, "url").Banks = 3 }, "url and rule overlap"},
		{"memories", "beyond the BAR", func(m *Map) { memory(m, "head").Offset = Bar2Bytes - 4096 }, "head: ends at 0x27fff000, beyond BAR2"},
		{"memories", "more entries than room", func(m *Map) { memory(m, "head").Count = 1<<14 + 1 }, "head: 16385 entries in a window for 16384"},
		{"memories", "no such geometry", func(m *Map) { memory(m, "head").Geometry = "heaps" }, "head: no register geometry.heaps"},
		{"memories", "no geometry", func(m *Map) { memory(m, "head").Geometry = "" }, "head: neither a geometry register"},
		{"memories", "not aligned", func(m *Map) { memory(m, "head").Offset += 32 }, "head: offset 0x8000020"},

		{"page", "hot word is cold", func(m *Map) { word(m, "page", "last_seen").Index = 60 }, "page.last_seen: bytes 240 to 243 lie outside 0 to 127"},
		{"page", "leg A is cold", func(m *Map) { word(m, "page", "a_index").Index = 32 }, "page.a_index: bytes 128 to 131 lie outside 0 to 127"},
		{"page", "leg B is elsewhere", func(m *Map) { word(m, "page", "b_index").Index = 48 }, "page.b_index: bytes 192 to 195 lie outside 128 to 191"},
		{"page", "legs differ", func(m *Map) { word(m, "page", "b_index").Index, word(m, "page", "b_local").Index = 33, 32 }, "page.a_index: b_index is not 64 bytes further on"},
		{"page", "cold word is hot", func(m *Map) { word(m, "page", "deadline").Index = 3 }, "lie outside 192 to 255"},
		{"page", "hot word is missing", func(m *Map) { word(m, "page", "control").Name = "start" }, "page.control: hot word is missing"},
		{"page", "no page", func(m *Map) { m.Format("page").Name = "leaf" }, "no format page"},

		{"shell", "block left out", func(m *Map) { block(m, "sensor").Shell = false }, "shell blocks are [directory identity control configuration]"},
		{"shell", "block after the data path", func(m *Map) { block(m, "ring").Shell = true }, "ring: a shell block after a data-path block"},
		{"shell", "magic elsewhere", func(m *Map) { register(m, "directory", "magic").Offset = 0x14 }, "the first word of BAR0 is not the magic"},
		{"shell", "directory too small", func(m *Map) { register(m, "directory", "entry_type").Count = 8 }, "directory.entry_type: 8 entries for "},
	}
	tested := map[string]bool{}
	for _, tt := range tests {
		tested[tt.lint] = true
		t.Run(tt.lint+"/"+tt.name, func(t *testing.T) {
			m := Card()
			tt.mistake(m)
			got := strings.Join(lintNamed(t, tt.lint).check(m), "\n")
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want a line with %q", got, tt.want)
			}
		})
	}
	for _, l := range lints {
		if !tested[l.name] {
			t.Errorf("lint %q: no row shows that it can fail", l.name)
		}
	}
}

func lintNamed(t *testing.T, name string) lint {
	t.Helper()
	for _, l := range lints {
		if l.name == name {
			return l
		}
	}
	t.Fatalf("no lint %q", name)
	return lint{}
}
