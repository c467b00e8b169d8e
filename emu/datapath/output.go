package datapath

import (
	"splicenic/emu/frame"
	"splicenic/regs"
)

// scratchFrames bounds what one batch may make beside the frames it forwards: every frame may start one burst of held
// segments and one answer.
const scratchFrames = BatchMax * (maxHeldSegments + 2)

// Output collects what a batch transmits, by port, in order.
type Output struct {
	Ports   [2][]*frame.Frame
	scratch []frame.Frame
	used    int
}

// NewOutput makes an Output whose own frames have room for maxFrame bytes, the VLAN tag included.
func NewOutput(maxFrame int) *Output {
	o := &Output{scratch: make([]frame.Frame, scratchFrames)}
	size := (frame.Headroom+maxFrame+63)&^63 + 64 // an odd number of lines, so that frames spread over the cache's sets
	slab := make([]byte, size*scratchFrames)
	for i := range o.scratch {
		o.scratch[i].Buf = slab[i*size : (i+1)*size : (i+1)*size]
	}
	for i := range o.Ports {
		o.Ports[i] = make([]*frame.Frame, 0, BatchMax+scratchFrames)
	}
	return o
}

// Reset empties the output; the frames it made are reused.
func (o *Output) Reset() {
	o.Ports[0], o.Ports[1], o.used = o.Ports[0][:0], o.Ports[1][:0], 0
}

// room tells how many frames can still be made.
func (o *Output) room() int { return len(o.scratch) - o.used }

// take gives an empty frame with n bytes after the headroom, or nil.
func (o *Output) take(n int) *frame.Frame {
	if o.used == len(o.scratch) || frame.Headroom+n > len(o.scratch[o.used].Buf) {
		return nil
	}
	f := &o.scratch[o.used]
	o.used++
	f.Start, f.End, f.Offload = frame.Headroom, uint32(frame.Headroom+n), frame.Offload{}
	return f
}

// send queues a frame for a port. A one-armed card has only the client's.
func (c *Core) send(f *frame.Frame, port uint32, out *Output) {
	if c.asked.back {
		c.handBack(f, port)
		return
	}
	if c.oneArm {
		port = regs.PortClient
	}
	out.Ports[port] = append(out.Ports[port], f)
}

// mac returns a port's MAC address as a number.
func (c *Core) mac(port uint32) (lo, hi uint32) {
	if c.oneArm {
		port = regs.PortClient
	}
	at := regs.Reg(port) * regs.PortStride
	return c.r.Get(regs.PortMacLo + at), c.r.Get(regs.PortMacHi+at) & 0xffff
}

// mtu returns a port's MTU.
func (c *Core) mtu(port uint32) uint32 {
	if c.oneArm {
		port = regs.PortClient
	}
	return c.r.Get(regs.PortMtu+regs.Reg(port)*regs.PortStride) & regs.PortMtuBytesMask
}

// hopMTU returns what fits on the way to a next hop.
func (c *Core) hopMTU(hop []uint32) uint32 {
	return min(c.mtu(regs.NextHopControlPort(hop[regs.NextHopControl])), pathMTU(hop))
}

// pathMTU returns what fits on the path behind a next hop, where that is known to be less than its port's MTU.
func pathMTU(hop []uint32) uint32 {
	if mtu := regs.NextHopMacHiMtu(hop[regs.NextHopMacHi]); mtu != 0 {
		return mtu
	}
	return anyMTU
}

// anyMTU is no limit.
const anyMTU = 0xffff
