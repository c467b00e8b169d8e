package control

import (
	"context"
	"strings"

	"splicenic/regs"
	"splicenic/runtime/view"
)

// RegisterNames returns the registers whose names begin with what was typed.
func RegisterNames(typed string) []string { return beginning(regs.Names(), typed) }

// CheckRegisters refuses names that are neither a register or field nor a block or instance of registers.
func CheckRegisters(names []string) error {
	for _, n := range names {
		if _, ok := regs.LookupRegister(n); !ok && len(RegisterNames(strings.TrimSuffix(n, ".")+".")) == 0 {
			return Usage("there is no register, field or block "+n, "splicectl reg list names them all")
		}
	}
	return nil
}

// FieldNames returns registers, and the fields of a register that was typed whole.
func FieldNames(typed string) []string {
	list := RegisterNames(typed)
	at := strings.LastIndexByte(typed, '.')
	if at < 0 {
		return list
	}
	l, ok := regs.LookupRegister(typed[:at])
	if !ok || l.Field != nil {
		return list
	}
	for i := range l.Register.Fields {
		f := l
		f.Field = &l.Register.Fields[i]
		list = append(list, f.Name())
	}
	return beginning(list, typed)
}

// StorableNames returns the registers and fields that a store changes.
func StorableNames(typed string) []string {
	var list []string
	for _, name := range FieldNames(typed) {
		l, _ := regs.LookupRegister(name)
		if l.Field != nil && l.Field.Access.Writable() || l.Field == nil && l.Register.Access.Writable() {
			list = append(list, name)
		}
	}
	return list
}

// ValueNames returns the names of a field's values.
func ValueNames(field string) []string {
	l, ok := regs.LookupRegister(field)
	if !ok || l.Field == nil {
		return nil
	}
	var list []string
	for _, v := range l.Field.Values {
		list = append(list, v.Name)
	}
	return list
}

// ConnectionNames returns what names the connections of a running card: handles and client addresses. It is silent where
// no runtime answers.
func ConnectionNames(ctx context.Context, cfg Config) []string {
	c, err := Runtime(ctx, cfg)
	if err != nil || c == nil {
		return nil
	}
	defer c.Close()
	var cs []view.Connection
	if _, err := c.Get(ctx, "connections", nil, &cs); err != nil {
		return nil
	}
	var list []string
	for _, x := range cs {
		list = append(list, x.ID, x.Client)
	}
	return list
}

func beginning(list []string, typed string) []string {
	var found []string
	for _, s := range list {
		if strings.HasPrefix(s, typed) {
			found = append(found, s)
		}
	}
	return found
}
