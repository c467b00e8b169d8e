package datapath

import "splicenic/regs"

// maxHeldSegments is geometry.max_held_segments: the initial window of RFC 6928.
const maxHeldSegments = 10

// serverSynAck completes the server's handshake: check that it keeps what the client was promised, compute both deltas
// and both checksum differences, arm the page, and only then send the ACK, with the held bytes.
func (c *Core) serverSynAck(p *packet, w *page, out *Output) {
	n := p.handle & handleMask
	if p.ack != w[regs.PageAIsn]+1 {
		c.serverStale(p, w, out)
		return
	}
	o := p.options()
	link := w[regs.PageClientLink]
	if !o.hasMSS {
		o.mss = defaultMSS(p.kind)
	}
	if o.mss < regs.PageClientMacHiMss(w[regs.PageClientMacHi]) || link&regs.PageClientLinkTimestampsMask != 0 && !o.timestamps {
		c.serverFailed(w)
		c.replyRST(p, p.ack, 0, flagRST, out)
		c.resetClient(w, out)
		c.abort(n, w, reasonAbortProfile)
		return
	}
	w[regs.PageALocal] = regs.SetPageALocalMss(w[regs.PageALocal], o.mss)
	w[regs.PageAServerIsn] = p.seq
	w[regs.PageAScale] = c.scales(w, &o)
	// The window of a SYN-ACK is never scaled (RFC 7323, 2.2); the page keeps windows as later segments carry them.
	window := shiftWindow(p.window(), -int32(regs.PageAScaleServerWscale(w[regs.PageAScale])))
	w[regs.PageAWindow] = regs.SetPageAWindowServer(w[regs.PageAWindow], window)
	if link&regs.PageClientLinkTimestampsMask != 0 {
		w[regs.PageATimestampServer] = w[regs.PageTimestampBase] + c.tick - o.tsval
	}
	w[regs.PagePacketsServer] += p.segs
	w[regs.PageLastSeen] = c.tick
	c.splice(n, w, out)
}

// scales works out how window fields are shifted and which options the leg carries.
func (c *Core) scales(w *page, o *options) uint32 {
	link, opts := w[regs.PageClientLink], w[regs.PageOptions]
	s := regs.SetPageAScaleVlan(0, regs.PageAScaleVlan(w[regs.PageAScale]))
	if link&regs.PageClientLinkSackMask != 0 && o.sack {
		s |= regs.PageAScaleSackMask
	}
	if link&regs.PageClientLinkTimestampsMask != 0 {
		s |= regs.PageAScaleTimestampsMask
	}
	if link&regs.PageClientLinkWscaleMask == 0 {
		return s
	}
	promised := regs.PageOptionsPromisedWscale(opts)
	if !o.hasWscale { // the server scales neither way: its windows count bytes, and so must the client's
		s = regs.SetPageAScaleServer(s, -promised)
		return regs.SetPageAScaleClient(s, regs.PageOptionsClientWscale(opts))
	}
	s = regs.SetPageAScaleServerWscale(s, o.wscale)
	return regs.SetPageAScaleServer(s, o.wscale-promised)
}

// splice arms the page and sends what is held. Also the host's arm_and_send ends here.
func (c *Core) splice(n uint32, w *page, out *Output) {
	held := c.heldEnd(w) - w[regs.PageClientIsn] - 1
	w[regs.PageADeltaServer] = w[regs.PageIsn] - w[regs.PageAServerIsn]
	w[regs.PageADeltaClient] = w[regs.PageAIsn] - w[regs.PageClientIsn]
	w[regs.PageAChecksum] = c.differences(w)
	w[regs.PageAScale] |= regs.PageAScaleArmedMask | regs.PageAScaleChecksumReadyMask
	w[regs.PageASeqClient] = c.heldEnd(w)
	w[regs.PageAAckClient] = w[regs.PageIsn] + 1
	w[regs.PageASeqServer] = w[regs.PageIsn] + 1
	w[regs.PageAAckServer] = w[regs.PageClientIsn] + 1
	w[regs.PageARto] = 0
	w[regs.PageOptions] = regs.SetPageOptionsRetries(w[regs.PageOptions], 0)
	c.setState(w, Spliced)
	if w[regs.PageClientLink]&regs.PageClientLinkFinClientMask != 0 {
		w[regs.PageFinClient] = c.heldEnd(w)
		c.setState(w, Closing)
	}
	c.count(regs.ConnectionSpliced)
	c.event(regs.EventControlTypeSpliced, 0, n, w)
	c.disarm(w)
	if held == 0 {
		c.ackServer(w, 0, out)
		return
	}
	w[regs.PageHeldBoundary] = c.heldEnd(w)
	w[regs.PageControl] |= regs.PageControlHeldMask
	c.sendHeld(w, 0, out)
	c.arm(w, c.tick+c.ticks(regs.TimerRetransmit))
}

// heldEnd is the client's next sequence number at the splice: behind the held bytes and a held FIN.
func (c *Core) heldEnd(w *page) uint32 { return c.expected(w) }

// serverRefused ends a connection whose server answered our SYN with RST.
func (c *Core) serverRefused(p *packet, w *page, out *Output) {
	if p.flags&flagACK == 0 || p.ack != w[regs.PageAIsn]+1 {
		c.count(regs.ConnectionDropRst)
		return
	}
	c.serverFailed(w)
	c.resetClient(w, out)
	c.abort(p.handle&handleMask, w, reasonAbortRefused)
}

// serverStale answers what belongs to an older connection of the same four-tuple with RST, as the server expects from a
// client in SYN-SENT (RFC 9293, 3.10.7.3); our SYN is sent again by the timer.
func (c *Core) serverStale(p *packet, _ *page, out *Output) {
	c.count(regs.ConnectionDropBadAck)
	c.replyRST(p, p.ack, 0, flagRST, out)
}

func (c *Core) serverFailed(w *page) {
	c.serverState(w)[regs.ServerStateFailed]++
}

// serverAckAgain repeats the ACK of the server's handshake.
func (c *Core) serverAckAgain(p *packet, w *page, out *Output) {
	w[regs.PageLastSeen] = c.tick
	w[regs.PagePacketsServer] += p.segs
	leg := 0
	if p.legB {
		leg = legWords
	}
	c.ackServer(w, leg, out)
}

// heldAcked takes in a server acknowledgement while bytes are held. ack is in the client's numbers. It returns true
// where the boundary is reached and the head buffer is free again.
func (c *Core) heldAcked(p *packet, w *page, ack uint32, out *Output) bool {
	if int32(ack-ld(w, regs.PageHeldBoundary)) >= 0 {
		st(w, regs.PageControl, ld(w, regs.PageControl)&^(regs.PageControlHeldMask|regs.PageControlDeadlineMask))
		c.releaseHead(w)
		return true
	}
	c.heldProgress(p, w, ack, out)
	return false
}

// heldProgress takes in an acknowledgement below H at the transmit end: it drives our timer, and makes room for what is
// not sent yet. A server that answers with its window closed is alive; where it opens, what probed it is sent again.
func (c *Core) heldProgress(p *packet, w *page, ack uint32, out *Output) {
	window := p.window()
	if regs.PageAWindowServer(w[regs.PageAWindow]) == 0 {
		w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], 0)
	}
	w[regs.PageAWindow] = regs.SetPageAWindowServer(w[regs.PageAWindow], window)
	if newer := int32(ack-w[regs.PageAAckServer]) > 0; newer || window == 0 {
		if newer {
			w[regs.PageAAckServer] = ack
			c.arm(w, c.tick+c.ticks(regs.TimerRetransmit))
		}
		w[regs.PageOptions] = regs.SetPageOptionsRetries(w[regs.PageOptions], 0)
	}
	c.sendHeld(w, 0, out)
}
