package show

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"splicenic/regs"
	"splicenic/runtime/view"
)

// Registers writes a line a register, its fields behind it.
func Registers(w io.Writer, rs []view.Register) {
	table(w, "REGISTER OFFSET ACCESS VALUE FIELDS", func(row func(...any)) {
		for i := range rs {
			r := &rs[i]
			row(r.Name, fmt.Sprintf("%#05x", r.Offset), r.Access, registerText(r), fieldsText(r))
		}
	})
}

func registerText(r *view.Register) string {
	switch {
	case r.Value == nil:
		return ""
	case r.Unit != "":
		return fmt.Sprintf("%d %s", *r.Value, r.Unit)
	case r.Hex != "" && *r.Value > 9 && len(r.Fields) > 0:
		return r.Hex
	}
	return fmt.Sprint(*r.Value)
}

func fieldsText(r *view.Register) string {
	var b strings.Builder
	for i, f := range r.Fields {
		if i > 0 {
			b.WriteByte(' ')
		}
		if f.Text != "" {
			fmt.Fprintf(&b, "%s=%s", f.Name, f.Text)
		} else {
			fmt.Fprintf(&b, "%s=%d", f.Name, f.Value)
		}
	}
	return b.String()
}

// A RegisterDoc describes a register, without a card.
type RegisterDoc struct {
	Name   string     `json:"name"`
	Offset uint32     `json:"offset"`
	Count  uint32     `json:"count"`
	Wide   bool       `json:"wide"`
	Access string     `json:"access"`
	Class  string     `json:"class"`
	Reset  uint32     `json:"reset"`
	Unit   string     `json:"unit"`
	Doc    string     `json:"doc"`
	Fields []FieldDoc `json:"fields"`
}

// A FieldDoc describes a field.
type FieldDoc struct {
	Name   string   `json:"name"`
	Lsb    uint8    `json:"lsb"`
	Width  uint8    `json:"width"`
	Access string   `json:"access"`
	Unit   string   `json:"unit"`
	Values []string `json:"values"`
	Doc    string   `json:"doc"`
}

// RegisterDocs describes the registers whose names begin with prefix.
func RegisterDocs(prefix string) []RegisterDoc {
	docs := []RegisterDoc{}
	for _, name := range regs.Names() {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		l, _ := regs.LookupRegister(name)
		r := l.Register
		d := RegisterDoc{Name: name, Offset: uint32(l.Reg()), Count: r.Count, Wide: r.Wide, Access: r.Access.String(), Class: r.Class.String(),
			Reset: r.Reset, Unit: r.Unit, Doc: r.Doc, Fields: []FieldDoc{}}
		for i := range r.Fields {
			f := &r.Fields[i]
			fd := FieldDoc{Name: f.Name, Lsb: f.Lsb, Width: f.Width, Access: f.Access.String(), Unit: f.Unit, Doc: f.Doc, Values: []string{}}
			for _, v := range f.Values {
				fd.Values = append(fd.Values, v.Name)
			}
			d.Fields = append(d.Fields, fd)
		}
		docs = append(docs, d)
	}
	return docs
}

// DescribeRegisters writes a line a register, its fields indented below it.
func DescribeRegisters(w io.Writer, docs []RegisterDoc) {
	table(w, "REGISTER OFFSET ACCESS CLASS UNIT DOCUMENTATION", func(row func(...any)) {
		for _, d := range docs {
			name := d.Name
			if d.Count > 1 {
				name = fmt.Sprintf("%s[%d]", name, d.Count)
			}
			row(name, fmt.Sprintf("%#05x", d.Offset), d.Access, d.Class, d.Unit, d.Doc)
			for _, f := range d.Fields {
				doc := f.Doc
				if len(f.Values) > 0 {
					doc += " " + strings.Join(f.Values, " ")
				}
				row("  ."+f.Name, fmt.Sprintf("%d:%d", f.Lsb+f.Width-1, f.Lsb), f.Access, "", f.Unit, doc)
			}
		}
	})
}

// A Change is a register whose value is not what it was.
type Change struct {
	Name string  `json:"name"`
	From *uint64 `json:"from"`
	To   *uint64 `json:"to"`
}

// DiffRegisters compares two dumps, in the order of the second. counters says whether counters take part, which nearly
// always differ.
func DiffRegisters(from, to []view.Register, counters bool) []Change {
	was := map[string]*view.Register{}
	for i := range from {
		was[from[i].Name] = &from[i]
	}
	changes := []Change{}
	for i := range to {
		r := &to[i]
		old, ok := was[r.Name]
		delete(was, r.Name)
		if r.Class == regs.ClassCounter.String() && !counters {
			continue
		}
		switch {
		case !ok && r.Value != nil && r.Class != regs.ClassIdentity.String():
			changes = append(changes, Change{Name: r.Name, To: r.Value})
		case !ok:
		case old.Value != nil && r.Value != nil && *old.Value != *r.Value:
			changes = append(changes, Change{r.Name, old.Value, r.Value})
		}
	}
	var gone []string
	for name := range was {
		gone = append(gone, name)
	}
	slices.Sort(gone)
	for _, name := range gone {
		changes = append(changes, Change{Name: name, From: was[name].Value})
	}
	return changes
}

// Changes writes a line a change.
func Changes(w io.Writer, cs []Change) {
	value := func(v *uint64) string {
		if v == nil {
			return ""
		}
		return fmt.Sprintf("%#x", *v)
	}
	table(w, "REGISTER FROM TO", func(row func(...any)) {
		for _, c := range cs {
			row(c.Name, value(c.From), value(c.To))
		}
	})
}
