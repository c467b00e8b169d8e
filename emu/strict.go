package emu

import (
	"fmt"

	"splicenic/driver/device"
	"splicenic/regs"
)

// A Violation is an access that the map does not allow.
type Violation struct {
	Region int
	Off    uint64
	Store  bool
	Value  uint32 // of a store to a register
	Why    string
}

// String says it in one line.
func (v Violation) String() string {
	what, name := "load from", fmt.Sprintf("region %d at %#x", v.Region, v.Off)
	if v.Region == device.Bar0 {
		name = regs.Reg(v.Off).Name()
	}
	if v.Store {
		what = fmt.Sprintf("store of %#x to", v.Value)
	}
	return fmt.Sprintf("%s %s: %s", what, name, v.Why)
}

// record keeps the first violations.
type record struct {
	kept  []Violation
	total uint64
}

const maxViolations = 1024

// note records an access if strict mode is on and the map does not allow it.
func (c *Card) note(region int, off uint64, v uint32, store bool) {
	if !c.cfg.Strict {
		return
	}
	why := ""
	switch region {
	case device.Bar0:
		why = c.reg.Violation(uint32(off), v, store)
	case device.Bar2:
		if !c.mem.Mapped(off) {
			why = "no memory"
		}
	}
	if why == "" {
		return
	}
	c.strict.total++
	if len(c.strict.kept) < maxViolations {
		c.strict.kept = append(c.strict.kept, Violation{Region: region, Off: off, Store: store, Value: v, Why: why})
	}
}

// Violations returns what strict mode has recorded, and how many there were.
func (c *Card) Violations() (kept []Violation, total uint64) {
	c.lock()
	defer c.mu.Unlock()
	return append([]Violation{}, c.strict.kept...), c.strict.total
}
