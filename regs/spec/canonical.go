package spec

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// The canonical text is what a digest covers: names, offsets, widths, access kinds and formats. It leaves out
// documentation, units, classes, reset values and the number of entries an image has, because a host built from another
// such description still drives the card right. Its form is part of the shell: changing it changes every digest.

// Canonical returns the canonical text of one block.
func (b *Block) Canonical() string {
	var t strings.Builder
	fmt.Fprintf(&t, "block %s type=%d version=%d offset=%#x stride=%#x instances=%s\n",
		b.Name, b.Type, b.Version, b.Offset, b.Stride, strings.Join(b.InstanceNames(), ","))
	for i := range b.Registers {
		r := &b.Registers[i]
		fmt.Fprintf(&t, "register %s offset=%#x count=%d stride=%d bits=%d access=%s\n",
			r.Name, r.Offset, r.Elements(), r.ElementStride(), r.Bytes()*8, r.Access)
		for _, fd := range r.Fields {
			fd.canonical(&t, r.Access)
		}
	}
	return t.String()
}

func (fd *Field) canonical(t *strings.Builder, inherited Access) {
	access := fd.Access
	if access == 0 {
		access = inherited
	}
	fmt.Fprintf(t, "field %s lsb=%d width=%d access=%s\n", fd.Name, fd.Lsb, fd.Width, access)
	for _, v := range fd.Values {
		fmt.Fprintf(t, "value %s=%d\n", v.Name, v.Value)
	}
}

// Canonical returns the canonical text of a format. Memory can be read and written throughout.
func (ft *Format) Canonical() string {
	var t strings.Builder
	fmt.Fprintf(&t, "format %s bytes=%d\n", ft.Name, ft.Bytes)
	for i := range ft.Words {
		wd := &ft.Words[i]
		fmt.Fprintf(&t, "word %s index=%d count=%d\n", wd.Name, wd.Index, wd.Elements())
		for _, fd := range wd.Fields {
			fd.canonical(&t, RW)
		}
	}
	return t.String()
}

// Canonical returns the canonical text of a memory.
func (m *Memory) Canonical() string {
	return fmt.Sprintf("memory %s format=%s offset=%#x max=%d banks=%d geometry=%s\n",
		m.Name, m.Format, m.Offset, m.Max, m.BankCount(), m.Geometry)
}

// CanonicalShell returns the canonical text of the shell: the BAR sizes and every block of it.
func (m *Map) CanonicalShell() string {
	var t strings.Builder
	fmt.Fprintf(&t, "shell bar0=%d bar2=%d bar4=%d\n", Bar0Bytes, Bar2Bytes, Bar4Bytes)
	for i := range m.Blocks {
		if m.Blocks[i].Shell {
			t.WriteString(m.Blocks[i].Canonical())
		}
	}
	return t.String()
}

// CanonicalDataPath returns the canonical text of the data path: every other block, the formats and the memories.
func (m *Map) CanonicalDataPath() string {
	var t strings.Builder
	t.WriteString("data path\n")
	for i := range m.Blocks {
		if !m.Blocks[i].Shell {
			t.WriteString(m.Blocks[i].Canonical())
		}
	}
	for i := range m.Formats {
		t.WriteString(m.Formats[i].Canonical())
	}
	for i := range m.Memories {
		t.WriteString(m.Memories[i].Canonical())
	}
	return t.String()
}

// Digest256 returns the digest of a canonical text at full length, in hexadecimal.
func Digest256(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}

// Digest returns the digest of a canonical text as registers hold it.
func Digest(text string) uint32 {
	return shorten(sha256.Sum256([]byte(text)))
}

// shorten takes the first 32 bits, so that the number's eight hexadecimal digits begin the full digest. Where they are
// 0 (no entry) or all ones (no device), the next 32 bits stand in; a digest of nothing but such words becomes 1.
func shorten(sum [sha256.Size]byte) uint32 {
	for i := 0; i < len(sum); i += 4 {
		if d := binary.BigEndian.Uint32(sum[i:]); d != 0 && d != 1<<32-1 {
			return d
		}
	}
	return 1
}
