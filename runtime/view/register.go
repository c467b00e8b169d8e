package view

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"splicenic/regs"
)

// Register is a register's value. Value is nil where it cannot be read.
type Register struct {
	Name   string  `json:"name"`
	Offset uint32  `json:"offset"`
	Access string  `json:"access"`
	Class  string  `json:"class"`
	Unit   string  `json:"unit"`
	Value  *uint64 `json:"value"`
	Hex    string  `json:"hex"`
	Fields []Field `json:"fields"`
}

// Field is a field's value; Text is its name where it has one.
type Field struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
	Text  string `json:"text"`
}

// Registers reads registers by their dotted names. The name of a block or of an instance stands for all that lies below
// it; no name stands for everything.
func (v *View) Registers(names []string) ([]Register, error) {
	list := []Register{}
	if len(names) == 0 {
		names = []string{""}
	}
	for _, n := range names {
		n = strings.TrimSuffix(n, ".")
		if l, ok := regs.LookupRegister(n); ok {
			list = append(list, v.elements(l)...)
			continue
		}
		found := false
		for _, full := range regs.Names() {
			if l, ok := regs.LookupRegister(full); ok && (n == "" || below(full, n)) {
				list = append(list, v.elements(l)...)
				found = true
			}
		}
		if !found {
			return nil, fmt.Errorf("register %q: %w", n, ErrNotFound)
		}
	}
	return list, nil
}

// elements reads a register, or all elements of an array.
func (v *View) elements(l regs.Location) []Register {
	if l.Element != regs.All && l.Register.Count == 1 || l.Element >= 0 && l.Register.Count > 1 {
		return []Register{v.register(l)}
	}
	var list []Register
	for e := range int(l.Register.Count) {
		l.Element = e
		list = append(list, v.register(l))
	}
	return list
}

func (v *View) register(l regs.Location) Register {
	r := Register{
		Name: l.Name(), Offset: uint32(l.Reg()), Access: l.Register.Access.String(), Class: l.Register.Class.String(), Unit: l.Register.Unit,
		Fields: []Field{},
	}
	if !l.Register.Access.Readable() {
		return r
	}
	var value uint64
	if l.Wide() {
		value = v.Card.Load64(l.Reg())
		r.Hex = fmt.Sprintf("0x%016x", value)
	} else {
		value = uint64(v.Card.Load(l.Reg()))
		r.Hex = hex(uint32(value))
	}
	fields := l.Register.Fields
	if l.Field != nil {
		r.Access, fields = l.Field.Access.String(), nil
		if l.Field.Unit != "" {
			r.Unit = l.Field.Unit
		}
		value = uint64(l.Field.Get(uint32(value)))
		r.Hex = hex(uint32(value))
		r.Fields = []Field{{l.Field.Name, value, l.Field.ValueName(uint32(value))}}
	}
	r.Value = &value
	for i := range fields {
		f := &fields[i]
		x := f.Get(uint32(value))
		r.Fields = append(r.Fields, Field{f.Name, uint64(x), f.ValueName(x)})
	}
	return r
}

// SetRegister stores a value into a register or a field and returns what it reads afterwards. The value is a number, or
// the name of one where the field has names. What a store cannot change is refused, and what a runtime has in hand.
func (v *View) SetRegister(name, value string) (Register, error) {
	l, ok := regs.LookupRegister(name)
	if !ok {
		return Register{}, fmt.Errorf("register %q: %w", name, ErrNotFound)
	}
	if l.Element == regs.All && l.Register.Count > 1 {
		return Register{}, fmt.Errorf("register %s is an array: name an element, such as %s[0]: %w", name, name, ErrRefused)
	}
	n, err := parseValue(l, value)
	if err != nil {
		return Register{}, err
	}
	if err := guard(l, n); err != nil {
		return Register{}, err
	}
	if v.Driven {
		if err := inHand(l); err != nil {
			return Register{}, err
		}
	}
	switch {
	case l.Wide():
		v.Card.Store64(l.Reg(), n)
	case l.Field == nil:
		v.Card.Store(l.Reg(), uint32(n))
	default:
		v.Card.Store(l.Reg(), v.withField(l, uint32(n)))
	}
	if err := v.Card.Err(); err != nil {
		return Register{}, err
	}
	return v.register(l), nil
}

func parseValue(l regs.Location, s string) (uint64, error) {
	if l.Field != nil {
		for _, x := range l.Field.Values {
			if x.Name == s {
				return uint64(x.Value), nil
			}
		}
	}
	digits, base := s, 10
	if len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X") {
		digits, base = s[2:], 16
	}
	n, err := strconv.ParseUint(digits, base, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s does not fit %s: %w", s, l.Name(), ErrRefused)
	}
	if err != nil {
		return 0, fmt.Errorf("value %q of %s is no number: write it in decimal, or in hexadecimal after 0x%s: %w", s, l.Name(), orName(l), ErrUsage)
	}
	return n, nil
}

// orName offers the names that a field's values have.
func orName(l regs.Location) string {
	if l.Field == nil || len(l.Field.Values) == 0 {
		return ""
	}
	names := make([]string, len(l.Field.Values))
	for i, v := range l.Field.Values {
		names[i] = v.Name
	}
	return ", or as one of " + strings.Join(names, ", ")
}

// guard refuses stores that the access kind makes meaningless.
func guard(l regs.Location, n uint64) error {
	access, mask := l.Register.Access, uint64(l.Register.WriteMask())
	switch {
	case l.Field != nil:
		access, mask = l.Field.Access, uint64(l.Field.Mask()>>l.Field.Lsb)
	case l.Wide():
		mask = 1<<64 - 1
	case l.Register.Wide:
		mask = 1<<32 - 1
	}
	if !access.Writable() {
		return fmt.Errorf("%s is read-only (%s): %w", l.Name(), access, ErrRefused)
	}
	if n&^mask != 0 {
		return fmt.Errorf("%#x does not fit %s: the bits that can be stored are %#x: %w", n, l.Name(), mask, ErrRefused)
	}
	if access == regs.W1C && n == 0 {
		return fmt.Errorf("%s clears the bits that are stored as ones; zero does nothing: %w", l.Name(), ErrRefused)
	}
	if l.Field == nil && l.Register.Max != 0 && n > uint64(l.Register.Max) {
		return fmt.Errorf("%#x is more than %s may hold, %#x: %w", n, l.Name(), l.Register.Max, ErrRefused)
	}
	return nil
}

// withField is the word to store so that one field changes and nothing else happens: bits that act when stored as ones are
// zero.
func (v *View) withField(l regs.Location, n uint32) uint32 {
	word := uint32(0)
	if l.Register.Access.Readable() {
		word = v.Card.Load(l.Reg())
	}
	for i := range l.Register.Fields {
		f := &l.Register.Fields[i]
		if f.Access == regs.W1C || f.Access == regs.W1S {
			word = f.Set(word, 0)
		}
	}
	return l.Field.Set(word, n)
}
