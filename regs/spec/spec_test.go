package spec

import (
	"crypto/sha256"
	"strings"
	"testing"
)

func TestCardIsClean(t *testing.T) {
	m := Card()
	for _, l := range lints {
		t.Run(l.name, func(t *testing.T) {
			for _, line := range l.check(m) {
				t.Error(line)
			}
		})
	}
}

// The shell never changes: a host of any release identifies, resets and loads a card of any other. This number is not
// edited to make the test pass.
func TestShellNeverChanges(t *testing.T) {
	const want = "baa5fcbf63a74b75b6c6ea40d0d53db90e87a1c4a436cfbdd48e20561ad13f51"
	if got := Digest256(Card().CanonicalShell()); got != want {
		t.Errorf("digest of the shell: got %s, want %s; text:\n%s", got, want, Card().CanonicalShell())
	}
}

// What a digest covers, one change per row.
func TestDigestCovers(t *testing.T) {
	tests := []struct {
		name        string
		change      func(*Map)
		shell, path bool // which digest changes
	}{
		{"nothing", func(*Map) {}, false, false},
		{"documentation", func(m *Map) { block(m, "amu").Registers[0].Doc = "Other words." }, false, false},
		{"unit", func(m *Map) { register(m, "amu", "free").Unit = "furlongs" }, false, false},
		{"class", func(m *Map) { register(m, "amu", "free").Class = Pointer }, false, false},
		{"maximum", func(m *Map) { register(m, "amu", "free").Max = 3 }, false, false},
		{"reset value", func(m *Map) { register(m, "timer", "idle").Fields[0].Reset = 1 }, false, false},
		{"PCI id of the image", func(m *Map) { register(m, "identity", "pci_id").Fields[0].Reset = 0x10ee }, false, false},
		{"entries of this image", func(m *Map) { memory(m, "page").Count = 1024 }, false, false},
		{"register name", func(m *Map) { register(m, "amu", "free").Name = "idle" }, false, true},
		{"register offset", func(m *Map) { register(m, "amu", "free").Offset = 0x80 }, false, true},
		{"register width", func(m *Map) { register(m, "timer", "now").Wide = false }, false, true},
		{"register access", func(m *Map) { register(m, "amu", "free").Access = RW }, false, true},
		{"elements", func(m *Map) { register(m, "geometry", "cycles").Count = 8 }, false, true},
		{"field width", func(m *Map) { register(m, "timer", "idle").Fields[0].Width = 27 }, false, true},
		{"field access", func(m *Map) { register(m, "timer", "idle").Fields[0].Access = RO }, false, true},
		{"value name", func(m *Map) { word(m, "group", "control").Fields[1].Values[0].Name = "run" }, false, true},
		{"instances", func(m *Map) { block(m, "port").Instances = []string{"client"} }, false, true},
		{"new block", func(m *Map) { m.Blocks = append(m.Blocks, Block{Name: "new", Offset: 0x80000}) }, false, true},
		{"word index", func(m *Map) { word(m, "page", "client_link").Index = 9 }, false, true},
		{"format size", func(m *Map) { m.Format("page").Bytes = 512 }, false, true},
		{"memory offset", func(m *Map) { memory(m, "head").Offset += 4096 }, false, true},
		{"memory banks", func(m *Map) { memory(m, "head").Banks = 2 }, false, true},
		{"shell register", func(m *Map) { register(m, "control", "scratch").Offset = 0x14 }, true, false},
		{"block leaves the shell", func(m *Map) { block(m, "sensor").Shell = false }, true, true},
	}
	shell, path := Card().CanonicalShell(), Card().CanonicalDataPath()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := Card()
			tt.change(m)
			if got := m.CanonicalShell() != shell; got != tt.shell {
				t.Errorf("shell changes: got %v, want %v", got, tt.shell)
			}
			if got := m.CanonicalDataPath() != path; got != tt.path {
				t.Errorf("data path changes: got %v, want %v", got, tt.path)
			}
		})
	}
}

func TestShorten(t *testing.T) {
	ones := strings.Repeat("\xff", 4)
	tests := []struct {
		name string
		sum  string
		want uint32
	}{
		{"first word", "\x12\x34\x56\x78", 0x12345678},
		{"zero is skipped", "\x00\x00\x00\x00\x00\x00\x00\x02", 2},
		{"all ones are skipped", ones + "\x00\x00\x00\x03", 3},
		{"last word", strings.Repeat(ones, 7) + "\x00\x00\x00\x04", 4},
		{"nothing left", strings.Repeat(ones, 8), 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var sum [sha256.Size]byte
			copy(sum[:], tt.sum)
			if got := shorten(sum); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
}

func TestStrings(t *testing.T) {
	for a, want := range map[Access]string{0: "none", RO: "ro", W1S: "w1s", W1S + 1: "none", 255: "none"} {
		if got := a.String(); got != want {
			t.Errorf("access %d: got %q, want %q", a, got, want)
		}
	}
	for c, want := range map[Class]string{0: "none", Identity: "identity", Pointer: "pointer", Pointer + 1: "none", 255: "none"} {
		if got := c.String(); got != want {
			t.Errorf("class %d: got %q, want %q", c, got, want)
		}
	}
}

func block(m *Map, name string) *Block {
	for i := range m.Blocks {
		if m.Blocks[i].Name == name {
			return &m.Blocks[i]
		}
	}
	panic("no block " + name)
}

func register(m *Map, in, name string) *Register {
	b := block(m, in)
	for i := range b.Registers {
		if b.Registers[i].Name == name {
			return &b.Registers[i]
		}
	}
	panic("no register " + in + "." + name)
}

func word(m *Map, in, name string) *Word {
	ft := m.Format(in)
	for i := range ft.Words {
		if ft.Words[i].Name == name {
			return &ft.Words[i]
		}
	}
	panic("no word " + in + "." + name)
}

func memory(m *Map, name string) *Memory {
	for i := range m.Memories {
		if m.Memories[i].Name == name {
			return &m.Memories[i]
		}
	}
	panic("no memory " + name)
}
