package regs

import (
	"strconv"
	"strings"
)

// All is the Element of a Location that names an array as a whole.
const All = -1

// A Location is what a dotted name stands for.
type Location struct {
	Block    *BlockInfo
	Instance int
	Register *RegisterInfo
	Element  int        // All: the whole array, of more than one element
	High     bool       // the high word alone of a wide register
	Low      bool       // the low word alone of a wide register
	Field    *FieldInfo // nil: all of it
}

// Reg returns the offset of the location's first word.
func (l Location) Reg() Reg {
	off := l.Block.Offset + uint32(l.Instance)*l.Block.Stride + l.Register.Offset + uint32(max(l.Element, 0))*l.Register.Stride
	if l.High {
		off += 4
	}
	return Reg(off)
}

// Wide says whether the location is a pair of words.
func (l Location) Wide() bool { return l.Register.Wide && !l.High && !l.Low }

// Name returns the location's dotted name; LookupRegister gives the location back.
func (l Location) Name() string {
	b := make([]byte, 0, 48)
	b = append(b, l.Block.Name...)
	if len(l.Block.Instances) > 1 {
		b = append(append(b, '.'), l.Block.Instances[l.Instance]...)
	}
	b = append(append(b, '.'), l.Register.Name...)
	if l.Register.Count > 1 && l.Element != All {
		b = append(strconv.AppendInt(append(b, '['), int64(l.Element), 10), ']')
	}
	switch {
	case l.High:
		b = append(b, ".hi"...)
	case l.Low:
		b = append(b, ".lo"...)
	}
	if l.Field != nil {
		b = append(append(b, '.'), l.Field.Name...)
	}
	return string(b)
}

// LookupRegister finds a register by its dotted name: block, instance where the block has several, register, and if
// wanted a field. An instance is a name or an index, an element of an array is an index:
//
//	amu.free   port.client.rx_frames   port[1].rx_frames   geometry.cycles[3]   amu.control.enable
//
// The halves of a wide register are .lo and .hi. An array without an index stands for all its elements.
func LookupRegister(name string) (Location, bool) {
	part, rest, _ := strings.Cut(name, ".")
	l, rest, ok := lookupInstance(part, rest)
	if !ok {
		return Location{}, false
	}
	part, rest, more := strings.Cut(rest, ".")
	if !l.lookupElement(part) {
		return Location{}, false
	}
	if more && !l.lookupPart(rest) {
		return Location{}, false
	}
	return l, true
}

// lookupInstance finds block and instance and returns what is left of the name.
func lookupInstance(part, rest string) (Location, string, bool) {
	base, index, ok := cutIndex(part)
	b := blockNamed(base)
	if !ok || b == nil {
		return Location{}, "", false
	}
	l := Location{Block: b, Instance: index}
	if index != All {
		return l, rest, index < len(b.Instances)
	}
	l.Instance = 0
	if len(b.Instances) == 1 {
		return l, rest, true
	}
	inst, rest, _ := strings.Cut(rest, ".")
	for i, n := range b.Instances {
		if n == inst {
			l.Instance = i
			return l, rest, true
		}
	}
	return Location{}, "", false
}

func (l *Location) lookupElement(part string) bool {
	base, index, ok := cutIndex(part)
	if !ok {
		return false
	}
	for i := range l.Block.Registers {
		r := &l.Block.Registers[i]
		if r.Name != base {
			continue
		}
		l.Register, l.Element = r, index
		if r.Count == 1 {
			l.Element = 0
			return index == All
		}
		return index < int(r.Count)
	}
	return false
}

// lookupPart finds a field, or half of a wide register, which has no fields.
func (l *Location) lookupPart(part string) bool {
	if l.Register.Wide {
		l.Low, l.High = part == "lo", part == "hi"
		return l.Low || l.High
	}
	var ok bool
	l.Field, ok = l.Register.Field(part)
	return ok
}

// cutIndex takes "name[12]" apart; the index is All where there is none. One number has one spelling.
func cutIndex(s string) (base string, index int, ok bool) {
	base, num, found := strings.Cut(s, "[")
	if !found {
		return s, All, true
	}
	num, found = strings.CutSuffix(num, "]")
	if !found || len(num) > 6 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(num, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != num {
		return "", 0, false
	}
	return base, int(n), true
}

func blockNamed(name string) *BlockInfo {
	for i := range Blocks {
		if Blocks[i].Name == name {
			return &Blocks[i]
		}
	}
	return nil
}

// At finds the register that holds the word at a BAR0 offset. The name is dotted; at the high word of a wide register it
// ends in .hi. An instance or element there is only one of has index 0.
func At(offset uint32) (name string, r *RegisterInfo, instance, element int, ok bool) {
	if offset%4 != 0 {
		return "", nil, 0, 0, false
	}
	for i := range Blocks {
		b := &Blocks[i]
		at := offset - b.Offset
		if offset < b.Offset || at >= b.Stride*uint32(len(b.Instances)) {
			continue
		}
		l := Location{Block: b, Instance: int(at / b.Stride)}
		if !l.find(at % b.Stride) {
			return "", nil, 0, 0, false
		}
		return l.Name(), l.Register, l.Instance, l.Element, true
	}
	return "", nil, 0, 0, false
}

// find sets the register of the word at an offset of the instance.
func (l *Location) find(at uint32) bool {
	for i := range l.Block.Registers {
		r := &l.Block.Registers[i]
		if at < r.Offset || at >= r.Offset+r.Count*r.Stride {
			continue
		}
		if at = at - r.Offset; at%r.Stride >= r.Bytes() {
			at += r.Offset // between the elements of this array lie those of another
			continue
		}
		l.Register, l.Element, l.High = r, int(at/r.Stride), at%r.Stride == 4
		return true
	}
	return false
}

// Names returns the dotted names of all registers in order of offset, for completion.
func Names() []string {
	var names []string
	for i := range Blocks {
		b := &Blocks[i]
		for inst := range b.Instances {
			for j := range b.Registers {
				l := Location{Block: b, Instance: inst, Register: &b.Registers[j]}
				if l.Register.Count > 1 {
					l.Element = All
				}
				names = append(names, l.Name())
			}
		}
	}
	return names
}

// LookupFormat finds a format by its name.
func LookupFormat(name string) (*FormatInfo, bool) {
	for i := range Formats {
		if Formats[i].Name == name {
			return &Formats[i], true
		}
	}
	return nil, false
}

// LookupMemory finds a memory by its name.
func LookupMemory(name string) (*Memory, bool) {
	for i := range Memories {
		if Memories[i].Name == name {
			return &Memories[i], true
		}
	}
	return nil, false
}

func hex(v uint32) string { return "0x" + strconv.FormatUint(uint64(v), 16) }
