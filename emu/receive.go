package emu

import (
	"encoding/binary"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// receive takes one batch from a port through filter and data path, and says whether there was one.
func (c *Card) receive(i int) bool {
	w := &c.wires[i]
	if w.port == nil {
		return false
	}
	for j := range w.frames {
		w.frames[j].Start = frame.Headroom
	}
	n := w.port.Receive(w.frames)
	if n == 0 {
		return false
	}
	c.take(i, w.frames[:n])
	return true
}

// take carries frames that arrived at a port through the card.
func (c *Card) take(i int, fs []frame.Frame) {
	w := &c.wires[i]
	control := c.reg.Get(regs.PortControl + w.base)
	if control&regs.PortControlEnableMask == 0 {
		c.reg.Add64(regs.PortRxDisabled+w.base, uint64(len(fs)))
		return
	}
	fs = c.filter(w, fs, control&regs.PortControlPromiscuousMask != 0)
	if len(fs) > 0 {
		c.core.Process(i, fs, c.out)
	}
	c.transmit()
}

// filter counts frames and keeps, in order, those that fit their buffer and are for this station or a group.
func (c *Card) filter(w *wire, fs []frame.Frame, promiscuous bool) []frame.Frame {
	mac := uint64(c.reg.Get(regs.PortMacHi+w.base))<<32 | uint64(c.reg.Get(regs.PortMacLo+w.base))
	var t tally
	var oversize, filtered uint64
	kept := 0
	for i := range fs {
		f := &fs[i]
		if int(f.End) > len(f.Buf) {
			oversize++
			continue
		}
		t.add(f.Len(), w.wireFrames(f))
		if b := f.Bytes(); !promiscuous && len(b) >= 6 && b[0]&1 == 0 && station(b) != mac {
			filtered++
			continue
		}
		if kept != i {
			fs[kept], fs[i] = fs[i], fs[kept]
		}
		kept++
	}
	t.publish(c.reg, regs.PortRxFrames+w.base, regs.PortRxSegments+w.base, regs.PortRxBytes+w.base, regs.PortRxSize+w.base)
	if oversize != 0 {
		c.reg.Add64(regs.PortRxOversize+w.base, oversize)
	}
	if filtered != 0 {
		c.reg.Add64(regs.PortRxFiltered+w.base, filtered)
	}
	return fs[:kept]
}

// station is a frame's destination as a number.
func station(b []byte) uint64 {
	return uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
}
