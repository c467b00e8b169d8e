package datapath

import "splicenic/regs"

// The held stream is what the server is owed before the client's own segments may follow: what the client sent up to H,
// altered by the host or not. It begins k bytes before the client's first, where the host inserted k; our sequence number
// toward the server begins as much earlier, so that the numbers of both legs are the same from H on. The head buffer holds
// one part of it: the stream is cut at multiples of the buffer's size, and the part is the one that the server's
// acknowledgement is in.
//
//	client_isn+1−k         client_isn+1                          H
//	|      inserted        |      from the client               |
//	|  part 0  |  part 1  |  part 2  | part 3                   |

// maxHeldStream bounds it: a head of 64 KiB, and a buffer's worth each of what is inserted, of what came with its end and
// of what came behind that.
const maxHeldStream = 64<<10 + 3*regs.HeadBytes

// heldPart is the held stream seen from the part that the head buffer is for; all counts are from its begin on.
type heldPart struct {
	base   uint32 // of the part in the stream
	acked  uint32 // bytes that the server has acknowledged
	stored uint32 // bytes in the head buffer
	left   uint32 // bytes of the stream
	end    uint32 // what may be sent: the bytes stored, and behind the last of the stream a held FIN
}

// heldFirst is where the held stream begins, in the client's numbers.
func heldFirst(w *page) uint32 { return w[regs.PageAIsn] + 1 - w[regs.PageADeltaClient] }

// held works out the part that the head buffer is for, of a connection that is spliced.
func (c *Core) held(w *page) (h heldPart) {
	first, boundary := heldFirst(w), w[regs.PageHeldBoundary]
	total := boundary - first
	fin := w[regs.PageClientLink]&regs.PageClientLinkFinClientMask != 0 && w[regs.PageFinClient] == boundary
	if fin {
		total--
	}
	acked := min(w[regs.PageAAckServer]-first, total)
	h.base = acked &^ (c.headBytes() - 1)
	h.acked, h.left = acked-h.base, total-h.base
	h.stored = min(heldBytes(w), h.left)
	if h.end = h.stored; fin && h.stored == h.left {
		h.end++
	}
	return h
}

// wants says whether the host has to give the part's bytes.
func (h *heldPart) wants() bool { return h.stored == 0 && h.left != 0 }

// heldSent says whether an acknowledgement, in the client's numbers, is of what the server may have got: nothing beyond
// what the host has given so far.
func (c *Core) heldSent(w *page, ack uint32) bool {
	h := c.held(w)
	return h.stored == h.left || int32(ack-heldFirst(w)-h.base-h.stored) <= 0
}

// turnHeld empties the head buffer where the server has acknowledged its part to the end, and asks for the next.
func (c *Core) turnHeld(n uint32, w *page) {
	h := c.held(w)
	if h.acked != 0 || h.base == 0 {
		return
	}
	w[regs.PageHead] = regs.SetPageHeadBytes(w[regs.PageHead], 0)
	w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], 0)
	if h.left != 0 {
		c.askHeld(n, w)
	}
}

// askHeld asks the host for the next part. A question that finds no room is put again with the time-out.
func (c *Core) askHeld(n uint32, w *page) {
	e := &c.given
	*e = regs.ExceptionEntry{
		ControlType: regs.ExceptionControlTypeFrame, ControlPort: regs.PageControlServerPort(w[regs.PageControl]), Tick: c.tick,
		HandleN: n, HandleGeneration: regs.PageControlGeneration(w[regs.PageControl]), ReasonReason: reasonHeldMore, ReasonSide: uint32(ServerSide),
		ReasonState:  regs.PageControlState(w[regs.PageControl]),
		IndexService: regs.PageIndexService(w[regs.PageIndex]), IndexServer: regs.PageAIndexServer(w[regs.PageAIndex]),
	}
	c.host.Exception(nil, e)
}

// commandFeed puts the next part of the held stream into the head buffer.
func (c *Core) commandFeed(e *regs.CommandEntry, w *page, state State, out *Output) uint32 {
	h := c.held(w)
	const owed = regs.PageControlHeldMask | regs.PageControlHeadMask
	switch {
	case state != Spliced && state != Closing || w[regs.PageControl]&owed != owed || !h.wants():
		return statusState
	case e.Length != min(h.left, c.headBytes()):
		return statusArgument
	case !c.host.Read(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, c.answer[:e.Length]):
		return statusDMA
	}
	copy(c.head(w), c.answer[:e.Length])
	w[regs.PageHead] = regs.SetPageHeadBytes(w[regs.PageHead], e.Length)
	w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], 0)
	c.count(regs.ConnectionFed)
	c.progress(w)
	c.sendHeld(w, 0, out)
	return statusOK
}

// gathers says whether the host collects the request, which outgrows the head buffer.
func gathers(w *page) bool {
	return regs.PageControlHostReason(w[regs.PageControl]) == reasonHeadMore
}

// gather stores a segment of a request that the host collects, and lets the host know. It is the host's next take that
// acknowledges it.
func (c *Core) gather(p *packet, w *page, out *Output) {
	if !c.store(p, w, out) {
		return
	}
	c.count(regs.ConnectionGathered)
	if w[regs.PageControl]&regs.PageControlWaitingHostMask == 0 {
		c.handOver(p, p.handle&handleMask, w, reasonHeadMore, reasonExpiredWaitHead, out)
	}
}

// commandTake gives the host what the head buffer holds. Unless the buffer keeps it, the host gathers from then on: the
// buffer is empty again, and the client may send as much as it takes. A host that has the whole head takes what comes
// behind it and lets the buffer keep it: the client can send no more than that buffer takes, and so the host connects at
// last.
func (c *Core) commandTake(e *regs.CommandEntry, done *regs.CompletionEntry, w *page, state State, out *Output) uint32 {
	stored := heldBytes(w)
	switch {
	case state != WaitHead || w[regs.PageControl]&regs.PageControlWaitingHostMask == 0 && !gathers(w):
		return statusState
	case stored > e.Length:
		return statusArgument
	case stored != 0 && !c.host.Write(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, c.head(w)[:stored]):
		return statusDMA
	}
	done.Length, done.Result[0] = stored, w[regs.PageHeldBoundary]
	if e.FlagsKeep != 0 {
		if gathers(w) {
			w[regs.PageOptions] = regs.SetPageOptionsHeadScan(w[regs.PageOptions], stored)
		}
		return statusOK
	}
	w[regs.PageHead] = regs.SetPageHeadBytes(w[regs.PageHead], 0)
	w[regs.PageOptions] = regs.SetPageOptionsHeadScan(w[regs.PageOptions], 0)
	w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl]&^regs.PageControlWaitingHostMask, reasonHeadMore)
	c.promise(w, c.headBytes())
	c.ackClient(w, out)
	return statusOK
}
