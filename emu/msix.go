package emu

import (
	"encoding/binary"

	"splicenic/emu/hostif"
)

// msix is the interrupt table of BAR4 and its pending bits. Each vector has 16 bytes: message address, two words;
// message data; control, whose bit 0 masks it. How a message reaches the host is the business of whoever hosts the
// function: it gives a function for each vector.
type msix struct {
	table           [hostif.Vectors][4]uint32
	pending         uint32
	enabled, masked bool // as configuration space says; who is not bus master sends nothing
	raise           []func()
}

const vectorMasked = 1

// reset leaves only the way to the host.
func (m *msix) reset() {
	*m = msix{raise: m.raise}
	for v := range m.table {
		m.table[v][3] = vectorMasked
	}
}

// word is the 32-bit word at an offset of BAR4, or nil. The pending bits are not stored to.
func (m *msix) word(off uint64) *uint32 {
	if v := off / 16; v < hostif.Vectors {
		return &m.table[v][off%16/4]
	}
	if off == pbaOffset {
		return &m.pending
	}
	return nil
}

func (m *msix) load(off uint64, p []byte) {
	for i := 0; i < len(p); i += 4 {
		v := uint32(0)
		if w := m.word(off + uint64(i)); w != nil {
			v = *w
		}
		binary.LittleEndian.PutUint32(p[i:], v)
	}
}

func (m *msix) store(off uint64, v uint32) {
	w := m.word(off)
	switch {
	case w == nil || w == &m.pending:
		return
	case off%16 == 12:
		v &= vectorMasked
	}
	*w = v
}

// open says whether a message of vector v goes out now.
func (m *msix) open(v int) bool {
	return m.enabled && !m.masked && m.table[v][3]&vectorMasked == 0
}

func (m *msix) send(v int) {
	if v < len(m.raise) && m.raise[v] != nil {
		m.raise[v]()
	}
}

// SetVectors enables interrupts as a host's kernel does: MSI-X on, the vectors that have a function unmasked, the
// others masked; with none at all MSI-X goes off.
func (c *Card) SetVectors(raise []func()) error {
	c.lock()
	defer c.mu.Unlock()
	c.vectors.raise = append([]func(){}, raise...)
	flags := binary.LittleEndian.Uint16(c.config[cfgMsixFlags:]) &^ (msixEnable | msixMask)
	if len(raise) > 0 {
		flags |= msixEnable
	}
	binary.LittleEndian.PutUint16(c.config[cfgMsixFlags:], flags)
	for v := range c.vectors.table {
		c.vectors.table[v][3] = vectorMasked
		if v < len(raise) && raise[v] != nil {
			c.vectors.table[v][3] = 0
		}
	}
	if len(raise) == 0 {
		c.vectors.pending = 0
	}
	c.configured()
	return nil
}

// raise is how a block raises a vector: what is masked stays pending until it is not.
func (c *Card) raise(v int) {
	if c.faults.loseInterrupt(v) || !c.vectors.enabled {
		return
	}
	if !c.vectors.open(v) {
		c.vectors.pending |= 1 << v
		return
	}
	c.vectors.send(v)
}

// deliver sends what is pending and no longer masked.
func (c *Card) deliver() {
	for v := range c.vectors.table {
		if c.vectors.pending>>v&1 != 0 && c.vectors.open(v) {
			c.vectors.pending &^= 1 << v
			c.vectors.send(v)
		}
	}
}
