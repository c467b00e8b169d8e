package emu

import (
	"encoding/binary"

	"splicenic/emu/datapath"
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
)

// maxLoops bounds how often one step takes a frame back in through a port in loopback.
const maxLoops = 4

// transmit sends what a batch has put out, and takes back in what a port in loopback sent.
func (c *Card) transmit() {
	c.spill(c.out)
	for i := range c.wires {
		if len(c.wires[i].looped) > 0 {
			c.loopBack(i)
		}
	}
}

// spill sends what an output holds, port by port, and empties it.
func (c *Card) spill(out *datapath.Output) {
	for i := range out.Ports {
		if fs := out.Ports[i]; len(fs) > 0 {
			c.send(&c.wires[i], fs)
		}
	}
	out.Reset()
}

func (c *Card) send(w *wire, fs []*frame.Frame) {
	control := c.reg.Get(regs.PortControl + w.base)
	switch {
	case w.port == nil || control&regs.PortControlEnableMask == 0:
		c.reg.Add64(regs.PortTxDisabled+w.base, uint64(len(fs)))
	case control&regs.PortControlLoopbackMask != 0:
		c.loop(w, fs)
	case plain(fs):
		c.hand(w, fs)
	default:
		c.prepare(w, fs)
	}
}

// plain says whether no frame of a batch needs work before a port without offloads could take it.
func plain(fs []*frame.Frame) bool {
	for _, f := range fs {
		if f.Offload.GSOType != frame.GSONone || f.Offload.Flags&frame.NeedsChecksum != 0 {
			return false
		}
	}
	return true
}

// hand gives a batch to the port and counts it.
func (c *Card) hand(w *wire, fs []*frame.Frame) {
	n := w.port.Transmit(fs)
	var t tally
	for _, f := range fs[:n] {
		t.add(f.Len(), w.wireFrames(f))
	}
	t.publish(c.reg, regs.PortTxFrames+w.base, regs.PortTxSegments+w.base, regs.PortTxBytes+w.base, regs.PortTxSize+w.base)
	if n < len(fs) {
		c.drop(w, len(fs)-n)
	}
}

func (c *Card) drop(w *wire, n int) { c.reg.Add64(regs.PortTxDropped+w.base, uint64(n)) }

// prepare does for each frame what its port does not: completes sums, cuts coalesced frames. The order stays.
func (c *Card) prepare(w *wire, fs []*frame.Frame) {
	for _, f := range fs {
		switch {
		case f.Offload.GSOType != frame.GSONone:
			if size := c.segmentSize(w, f); !w.offloads.Segmentation || size < int(f.Offload.GSOSize) {
				f.Offload.GSOSize = uint16(min(size, int(f.Offload.GSOSize)))
				c.cutUp(w, f)
				continue
			}
		case f.Offload.Flags&frame.NeedsChecksum != 0 && !w.offloads.Checksum:
			if port.Complete(f) != port.Good {
				c.drop(w, 1)
				continue
			}
		}
		c.enqueue(w, f)
	}
	c.flush(w)
}

func (c *Card) enqueue(w *wire, f *frame.Frame) {
	if len(w.queue) == cap(w.queue) {
		c.flush(w)
	}
	w.queue = append(w.queue, f)
}

func (c *Card) flush(w *wire) {
	if len(w.queue) > 0 {
		c.hand(w, w.queue)
		w.queue = w.queue[:0]
	}
}

// cutUp puts the wire frames of a coalesced frame into the queue.
func (c *Card) cutUp(w *wire, f *frame.Frame) {
	c.flush(w) // the buffers of an earlier cut are free again
	n, v := w.cutter.Begin(f)
	if v != port.Good {
		c.drop(w, 1)
		return
	}
	c.reg.Add64(regs.PortTxCut+w.base, 1)
	for i := range int(n) {
		s := &w.cut[i%len(w.cut)]
		s.Start = frame.Headroom
		if i > 0 && i%len(w.cut) == 0 {
			c.flush(w)
		}
		if !w.cutter.Next(s) {
			break
		}
		c.enqueue(w, s)
	}
	c.flush(w)
}

// segmentSize is how much payload a wire frame of this port has room for behind the headers of a coalesced frame. A
// frame whose headers make no sense is left to the cutter.
func (c *Card) segmentSize(w *wire, f *frame.Frame) int {
	b := f.Bytes()
	l3, tcp := 14, int(f.Offload.CsumStart)
	if len(b) >= linkHeader && binary.BigEndian.Uint16(b[12:]) == 0x8100 {
		l3 = linkHeader
	}
	if f.Offload.Flags&frame.NeedsChecksum == 0 || tcp < l3 || tcp+20 > len(b) {
		return 0
	}
	mtu := min(int(c.reg.Get(regs.PortMtu+w.base)&regs.PortMtuBytesMask), w.port.MTU())
	return max(mtu-(tcp-l3)-int(b[tcp+12]>>4)*4, 0)
}

// loop keeps copies of frames that a port in loopback transmits, to be received after this batch.
func (c *Card) loop(w *wire, fs []*frame.Frame) {
	if w.looped == nil {
		w.looped = newFrames(batch, w.port.BufferBytes())[:0]
	}
	var t tally
	for i, f := range fs {
		if w.loops == maxLoops || len(w.looped) == cap(w.looped) {
			c.drop(w, len(fs)-i)
			break
		}
		w.looped = w.looped[:len(w.looped)+1]
		to := &w.looped[len(w.looped)-1]
		to.Start, to.Offload = frame.Headroom, f.Offload
		to.End = to.Start + uint32(copy(to.Buf[to.Start:], f.Bytes()))
		t.add(f.Len(), w.wireFrames(f))
	}
	t.publish(c.reg, regs.PortTxFrames+w.base, regs.PortTxSegments+w.base, regs.PortTxBytes+w.base, regs.PortTxSize+w.base)
}

// loopBack receives what a port in loopback has transmitted. Its own output may loop again, a bounded number of times.
func (c *Card) loopBack(i int) {
	w := &c.wires[i]
	fs := w.looped
	w.looped = nil
	w.loops++
	c.take(i, fs)
	w.loops--
	w.looped = fs[:0]
}
