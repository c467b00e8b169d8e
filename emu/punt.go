package emu

import (
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
)

// punt hands the host a frame that carries an offload header, as the wire frames it stands for: the exception ring has
// no place for the header. What the cutter does not understand goes as it is.
func (c *Card) punt(f *frame.Frame, e *regs.ExceptionEntry) {
	if _, v := c.cutter.Begin(f); v != port.Good {
		c.host.Exception(f.Bytes(), e)
		return
	}
	if c.punted.Buf == nil {
		c.punted.Buf = make([]byte, frame.Headroom+frame.MaxBytes)
	}
	c.punted.Start = frame.Headroom
	for c.cutter.Next(&c.punted) {
		one := *e
		c.host.Exception(c.punted.Bytes(), &one)
	}
}
