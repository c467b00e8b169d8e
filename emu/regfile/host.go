package regfile

import "splicenic/regs"

// HostLoad is a host's load of the word at a BAR0 offset. Secrets, holes and what lies beyond BAR0 read 0.
func (f *File) HostLoad(off uint32) uint32 {
	if off >= regs.Bar0Bytes {
		return 0
	}
	return f.word[off/4] & f.rule[off/4].read
}

// HostStore is a host's store. The effect says which block has to act on it now; the register holds what was stored
// until that block is done.
func (f *File) HostStore(off, v uint32) Effect {
	if off >= regs.Bar0Bytes {
		return None
	}
	w := &f.rule[off/4]
	if w.effect == HashKey && f.Get(camEntries(off)) != 0 {
		return None
	}
	p := &f.word[off/4]
	*p = (*p&^w.write|v&w.write)&^(v&w.clear) | v&w.set
	return w.effect
}

// Mapped says whether the map has a register at a BAR0 offset.
func (f *File) Mapped(off uint32) bool { return off < regs.Bar0Bytes && f.rule[off/4].mapped }

// Violation says in words what the map does not allow about a store of v, or about a load; empty: it is allowed.
func (f *File) Violation(off, v uint32, store bool) string {
	if off%4 != 0 || !f.Mapped(off) {
		return "no register"
	}
	w := &f.rule[off/4]
	bits := w.write | w.clear | w.set
	switch {
	case !store:
		return ""
	case bits == 0:
		return "store to a read-only register"
	case v&^(bits|w.read) != 0:
		return "store to reserved bits"
	case w.effect == HashKey && f.Get(camEntries(off)) != 0:
		return "hash key stored while the CAM holds entries"
	}
	return ""
}

// camEntries is the entry count of the CAM whose hash key lies at off.
func camEntries(off uint32) regs.Reg {
	return regs.CamEntries.At(int((regs.Reg(off)-regs.CamBase)/regs.CamStride), regs.CamStride)
}
