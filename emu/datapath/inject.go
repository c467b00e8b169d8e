package datapath

import (
	"splicenic/emu/frame"
	"splicenic/regs"
)

const (
	reasonModule     = regs.ExceptionReasonReasonModule
	reasonFragmented = regs.ExceptionReasonReasonFragmented
)

// injected is what the host asks for with the frame at hand. The zero value is that of a frame from a wire.
type injected struct {
	back   bool // what would go to a wire comes back, however long
	done   bool // the host has seen the payload
	cookie uint32
}

// Reinject takes frames of the host through the pipeline as if they had come from a port's wire.
func (c *Core) Reinject(e *regs.InjectEntry, fs []frame.Frame, out *Output) {
	c.asked = injected{back: e.FlagsBack != 0, done: e.FlagsModuleDone != 0, cookie: e.Cookie}
	c.Process(int(e.ControlPort), fs, out)
	c.asked = injected{}
}

// handBack gives the host a frame instead of a port. It knows how to cut what is too long for one.
func (c *Core) handBack(f *frame.Frame, port uint32) {
	c.count(regs.PassBack)
	e := &c.given
	*e = regs.ExceptionEntry{ControlType: regs.ExceptionControlTypeFrame, ControlPort: port, Tick: c.tick, ReasonReason: reasonFragmented, Back: c.asked.cookie}
	c.host.Exception(f.Bytes(), e)
}

// modular says whether payload of a connection goes by way of the host.
func modular(control uint32) bool { return regs.PageControlHostReason(control) == reasonModule }

// toModule gives the host a segment with payload of such a connection, which comes back with inject.flags.module_done.
func (c *Core) toModule(p *packet) {
	c.count(regs.PassModule)
	p.reason = reasonModule
	c.exception(p, p.handle)
}
