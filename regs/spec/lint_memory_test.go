package spec

import (
	"math/bits"
	"slices"
	"strings"
)

// lintFormats: words fill their format without overlap; an entry's size is a power of two, so that none crosses a page.
func lintFormats(m *Map) []string {
	var fs findings
	for i := range m.Formats {
		ft := &m.Formats[i]
		if ft.Bytes < 4 || bits.OnesCount32(ft.Bytes) != 1 {
			fs.add("%s: %d bytes is not a power of two of whole words", ft.Name, ft.Bytes)
		}
		var spans []span
		var words uint32
		for j := range ft.Words {
			wd := &ft.Words[j]
			end := uint64(wd.Index) + uint64(wd.Elements())
			spans = append(spans, span{uint64(wd.Index), end, ft.Name + "." + wd.Name})
			words += wd.Elements()
			if end*4 > uint64(ft.Bytes) {
				fs.add("%s.%s: word %d is beyond %d bytes", ft.Name, wd.Name, end-1, ft.Bytes)
			}
		}
		if words*4 != ft.Bytes {
			fs.add("%s: %d words do not fill %d bytes; name the others reserved", ft.Name, words, ft.Bytes)
		}
		fs.overlaps(spans)
		if !slices.ContainsFunc(m.Memories, func(mem Memory) bool { return mem.Format == ft.Name || slices.Contains(mem.Also, ft.Name) }) && !isRing(m, ft.Name) {
			fs.add("%s: no memory and no ring has this format", ft.Name)
		}
	}
	return fs
}

func isRing(m *Map, name string) bool {
	for _, b := range m.Blocks {
		if b.Name == "ring" {
			return slices.Contains(b.Instances, name)
		}
	}
	return false
}

// lintMemories: every memory has a format, a geometry register that is there, room for what the default geometry wants,
// and bytes of BAR2 of its own.
func lintMemories(m *Map) []string {
	var fs findings
	var geometry []string
	for _, b := range m.Blocks {
		if b.Name == "geometry" {
			geometry = collect(b.Registers, func(r Register) string { return r.Name })
		}
	}
	var spans []span
	for i := range m.Memories {
		mem := &m.Memories[i]
		ft := m.Format(mem.Format)
		if ft == nil {
			fs.add("%s: no format %q", mem.Name, mem.Format)
			continue
		}
		bytes := uint64(mem.Max) * uint64(ft.Bytes)
		if mem.Count == 0 || mem.Count > mem.Max {
			fs.add("%s: %d entries in a window for %d", mem.Name, mem.Count, mem.Max)
		}
		if mem.Offset%4096 != 0 || bytes%4096 != 0 {
			fs.add("%s: offset %#x and bank of %#x bytes must be multiples of 4096", mem.Name, mem.Offset, bytes)
		}
		end := mem.Offset + bytes*uint64(mem.BankCount())
		if end > Bar2Bytes {
			fs.add("%s: ends at %#x, beyond BAR2", mem.Name, end)
		}
		if mem.Geometry != "" && !slices.Contains(geometry, mem.Geometry) {
			fs.add("%s: no register geometry.%s", mem.Name, mem.Geometry)
		}
		if mem.Geometry == "" && !strings.Contains(mem.Doc, "geometry.") {
			fs.add("%s: neither a geometry register nor documentation that names one", mem.Name)
		}
		spans = append(spans, span{mem.Offset, end, mem.Name})
	}
	fs.overlaps(spans)
	return fs
}

// hotWords are the words of a page that a translated packet may touch beside its leg set.
var hotWords = []string{
	"control", "ports", "index", "client_link", "client_mac_lo", "client_mac_hi", "last_seen", "packets_client", "packets_server",
	"bytes_client", "bytes_server", "held_boundary", "client_address",
}

// lintPage: the common hot words and leg set A lie in bytes 0–127 of a page, leg set B in 128–191 and laid out the same.
func lintPage(m *Map) []string {
	var fs findings
	ft := m.Format("page")
	if ft == nil {
		return []string{"no format page"}
	}
	inside := func(wd *Word, first, end uint32) {
		if wd.Index < first || wd.Index+wd.Elements() > end {
			fs.add("page.%s: bytes %d to %d lie outside %d to %d", wd.Name, wd.Index*4, (wd.Index+wd.Elements())*4-1, first*4, end*4-1)
		}
	}
	found := map[string]uint32{}
	for i := range ft.Words {
		wd := &ft.Words[i]
		found[wd.Name] = wd.Index
		switch {
		case strings.HasPrefix(wd.Name, "a_"), slices.Contains(hotWords, wd.Name):
			inside(wd, 0, 32)
		case strings.HasPrefix(wd.Name, "b_"):
			inside(wd, 32, 48)
		default:
			inside(wd, 48, 64)
		}
	}
	for _, name := range hotWords {
		if _, ok := found[name]; !ok {
			fs.add("page.%s: hot word is missing", name)
		}
	}
	for name, at := range found {
		if b, ok := strings.CutPrefix(name, "a_"); ok && found["b_"+b] != at+16 {
			fs.add("page.%s: b_%s is not 64 bytes further on", name, b)
		}
	}
	return fs
}

// lintShell: the directory begins BAR0 with the magic and has an entry for every block; shell blocks come first and are
// the ones a host of any age knows.
func lintShell(m *Map) []string {
	var fs findings
	var shell []string
	for i := range m.Blocks {
		if !m.Blocks[i].Shell {
			continue
		}
		shell = append(shell, m.Blocks[i].Name)
		if i != len(shell)-1 {
			fs.add("%s: a shell block after a data-path block", m.Blocks[i].Name)
		}
	}
	if want := []string{"directory", "identity", "control", "configuration", "sensor"}; !slices.Equal(shell, want) {
		fs.add("shell blocks are %v, want %v", shell, want)
		return fs
	}
	dir := &m.Blocks[0]
	if dir.Offset != 0 || dir.Registers[0].Offset != 0 || dir.Registers[0].Reset != Magic {
		fs.add("directory: the first word of BAR0 is not the magic")
	}
	for i := range dir.Registers {
		r := &dir.Registers[i]
		if strings.HasPrefix(r.Name, "entry_") && int(r.Count) < len(m.Blocks) {
			fs.add("directory.%s: %d entries for %d blocks", r.Name, r.Count, len(m.Blocks))
		}
	}
	return fs
}
