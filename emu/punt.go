package emu

import (
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
)

// punt hands the host a frame that carries an offload header, as the wire frames it stands for: the exception ring has
// no place for the header. Where the host is to decide about a request it gets the first: the frame is only how the card
// came to ask. What the cutter does not understand goes as it is. It returns false where the host took none.
func (c *Card) punt(f *frame.Frame, e *regs.ExceptionEntry) (taken bool) {
	if _, v := c.cutter.Begin(f); v != port.Good {
		return c.host.Exception(f.Bytes(), e)
	}
	if c.punted.Buf == nil {
		c.punted.Buf = make([]byte, frame.Headroom+frame.MaxBytes)
	}
	c.punted.Start = frame.Headroom
	for c.cutter.Next(&c.punted) {
		one := *e
		if c.host.Exception(c.punted.Bytes(), &one) {
			taken = true
		}
		if asks(e.ReasonReason) {
			break
		}
	}
	return taken
}

// asks says whether an exception with a frame asks what is to become of a connection.
func asks(reason uint32) bool {
	switch reason {
	case regs.ExceptionReasonReasonBadRequest, regs.ExceptionReasonReasonNoRule, regs.ExceptionReasonReasonNoServer,
		regs.ExceptionReasonReasonHeadTooLarge, regs.ExceptionReasonReasonNotHttp, regs.ExceptionReasonReasonNotTls,
		regs.ExceptionReasonReasonH2c, regs.ExceptionReasonReasonBadHello:
		return true
	}
	return false
}
