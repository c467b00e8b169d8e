package spec

import (
	"cmp"
	"slices"
)

// Format finds a format by its name; nil where there is none.
func (m *Map) Format(name string) *Format {
	for i := range m.Formats {
		if m.Formats[i].Name == name {
			return &m.Formats[i]
		}
	}
	return nil
}

// Sorted returns the registers in order of offset.
func (b *Block) Sorted() []Register {
	return slices.SortedFunc(slices.Values(b.Registers), func(x, y Register) int { return cmp.Compare(x.Offset, y.Offset) })
}

// Elements returns how many elements a register has.
func (r *Register) Elements() uint32 { return max(r.Count, 1) }

// Bytes returns the size of one element.
func (r *Register) Bytes() uint32 {
	if r.Wide {
		return 8
	}
	return 4
}

// ElementStride returns the bytes from one element to the next.
func (r *Register) ElementStride() uint32 {
	if r.Stride != 0 {
		return r.Stride
	}
	return r.Bytes()
}

// ResetValue returns the low word after a reset, put together from the fields.
func (r *Register) ResetValue() uint32 {
	v := r.Reset
	for _, fd := range r.Fields {
		v |= fd.Reset << fd.Lsb
	}
	return v
}

// Elements returns how many words of one meaning there are.
func (w *Word) Elements() uint32 { return max(w.Count, 1) }

// Reserved says whether the word is kept for later: it is zero and has no place in a decoded entry.
func (w *Word) Reserved() bool { return w.Name == "reserved" }

// BankCount returns how many banks a memory has.
func (m *Memory) BankCount() uint32 { return max(m.Banks, 1) }

// InstanceNames returns the names of a block's instances; a block with one is its own instance.
func (b *Block) InstanceNames() []string {
	if len(b.Instances) == 0 {
		return []string{b.Name}
	}
	return b.Instances
}

// Mask returns the field's bits in place.
func (fd *Field) Mask() uint32 { return uint32(uint64(1)<<fd.Width-1) << fd.Lsb }

// String returns the access kind as documents write it.
func (a Access) String() string {
	return [...]string{"none", "ro", "rw", "wo", "w1c", "w1s"}[min(a, W1S+1)%(W1S+1)]
}

// String returns the class as documents write it.
func (c Class) String() string {
	return [...]string{"none", "identity", "control", "status", "counter", "window", "key", "pointer"}[min(c, Pointer+1)%(Pointer+1)]
}
