package emu

import (
	"encoding/binary"

	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/emu/regfile"
	"splicenic/regs"
)

// wire is one port of the card: its MAC's registers and where its frames come from.
type wire struct {
	port     port.Port // nil: no such port
	base     regs.Reg  // where its registers are from port 0's
	frames   []frame.Frame
	offloads port.Offloads
	clock    port.Clocked // the port, if it goes by the card's clock
	refuser  port.Refuser // the port, if it tells of frames refused after it took them
	lost     uint64       // overruns the port has told of
	refused  uint64       // refusals it has told of

	cut    []frame.Frame  // buffers of the segments a coalesced frame is cut into
	queue  []*frame.Frame // what goes out in place of a batch that needed work
	cutter port.Cutter

	looped []frame.Frame // loopback: frames on their way back in
	loops  int
}

// newFrames makes frames of size bytes each in one slab, an odd number of cache lines apart, so that their first lines
// do not all fall to the same sets.
func newFrames(n, size int) []frame.Frame {
	stride := ((size+63)/64 | 1) * 64
	slab, fs := make([]byte, n*stride), make([]frame.Frame, n)
	for i := range fs {
		fs[i].Buf = slab[i*stride:][:size:size]
	}
	return fs
}

func (w *wire) init(i int, p port.Port) {
	w.base = regs.Reg(i) * regs.PortStride
	if p == nil {
		return
	}
	w.port, w.offloads, w.lost = p, p.Offloads(), p.Overruns()
	w.clock, _ = p.(port.Clocked)
	if w.refuser, _ = p.(port.Refuser); w.refuser != nil {
		w.refused = w.refuser.Refused()
	}
	w.frames = newFrames(batch, p.BufferBytes())
	w.cut = newFrames(batch, frame.Headroom+w.maxFrame())
	w.queue = make([]*frame.Frame, 0, batch)
}

// maxFrame is the largest wire frame with its Ethernet header and tag.
func (w *wire) maxFrame() int {
	if w.port == nil {
		return 0
	}
	return w.port.MTU() + linkHeader
}

const linkHeader = 18

// start gives the registers that depend on the wire their first values.
func (w *wire) start(r *regfile.File) {
	w.loops = 0
	if w.port == nil {
		return
	}
	mac := w.port.MAC()
	r.Set(regs.PortMacHi+w.base, uint32(binary.BigEndian.Uint16(mac[:])))
	r.Set(regs.PortMacLo+w.base, binary.BigEndian.Uint32(mac[2:]))
	r.Set(regs.PortMtu+w.base, uint32(w.port.MTU())&regs.PortMtuBytesMask)
	r.Set(regs.PortStatus+w.base, w.status(false))
}

// status is what port.status says now.
func (w *wire) status(down bool) uint32 {
	link := w.port.Link()
	s := regs.SetPortStatusPresent(0, 1)
	if link.Up && !down {
		s = regs.SetPortStatusSpeed(regs.SetPortStatusLink(s, 1), link.Mbps)
	}
	return s
}

// updateLink says whether the link went up or down.
func (w *wire) updateLink(r *regfile.File, down bool) bool {
	if w.port == nil {
		return false
	}
	old, now := r.Get(regs.PortStatus+w.base), w.status(down)
	if old == now {
		return false
	}
	r.Set(regs.PortStatus+w.base, now)
	if (old^now)&regs.PortStatusLinkMask == 0 {
		return false
	}
	r.Add64(regs.PortLinkChanges+w.base, 1)
	return true
}

func (w *wire) updateOverruns(r *regfile.File) {
	if w.port == nil {
		return
	}
	if n := w.port.Overruns(); n != w.lost {
		r.Add64(regs.PortRxOverrun+w.base, n-w.lost)
		w.lost = n
	}
	if w.refuser == nil {
		return
	}
	if n := w.refuser.Refused(); n != w.refused {
		r.Add64(regs.PortTxDropped+w.base, n-w.refused)
		w.refused = n
	}
}

// tally counts frames on their way through a port.
type tally struct {
	frames, segments, bytes uint64
	sizes                   [regs.PortRxSizeCount]uint64
}

// add counts one frame; segments is how many wire frames it stands for.
func (t *tally) add(n int, segments uint64) {
	t.frames++
	t.segments += segments
	t.bytes += uint64(n)
	t.sizes[sizeClass(n)]++
}

func sizeClass(n int) int {
	switch {
	case n <= 64:
		return 0
	case n <= 127:
		return 1
	case n <= 511:
		return 2
	case n <= 1023:
		return 3
	case n <= 1518:
		return 4
	}
	return 5
}

// publish adds the tally to a direction's registers, which have the same order in both.
func (t *tally) publish(r *regfile.File, frames, segments, bytes, sizes regs.Reg) {
	r.Add64(frames, t.frames)
	r.Add64(segments, t.segments)
	r.Add64(bytes, t.bytes)
	for i, n := range t.sizes {
		if n != 0 {
			r.Add64(sizes+regs.Reg(i)*regs.PortRxSizeStride, n)
		}
	}
}

// wireFrames is how many wire frames a frame stands for.
func (w *wire) wireFrames(f *frame.Frame) uint64 {
	if f.Offload.GSOType == frame.GSONone {
		return 1
	}
	n, _ := w.cutter.Begin(f)
	return uint64(max(n, 1))
}
