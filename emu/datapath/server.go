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
	c.learn(n, w, &o)
	if o.mss < regs.PageClientMacHiMss(w[regs.PageClientMacHi]) || link&regs.PageClientLinkTimestampsMask != 0 && !o.timestamps {
		c.count(regs.ConnectionServerProfile)
		c.refuseServer(p, w, out)
		c.serverFailed(p, n, w, reasonAbortProfile, out)
		return
	}
	w[regs.PageALocal] = regs.SetPageALocalMss(w[regs.PageALocal], o.mss)
	w[regs.PageAServerIsn] = p.seq
	w[regs.PageAScale] = c.scales(w, &o)
	// The window of a SYN-ACK is never scaled (RFC 7323, 2.2); the page keeps windows as later segments carry them.
	window := shiftWindow(p.window(), -int32(regs.PageAScaleServerWscale(w[regs.PageAScale])))
	w[regs.PageAWindow] = regs.SetPageAWindowServer(w[regs.PageAWindow], window)
	if link&regs.PageClientLinkTimestampsMask != 0 {
		w[regs.PageATimestampServer] = w[regs.PageTimestampBase] - o.tsval
	}
	w[regs.PagePacketsServer] += p.segs
	w[regs.PageLastSeen] = c.tick
	c.splice(n, w, c.measured(w), out)
}

// measured is the first retransmission time-out after the server's handshake. A SYN that was sent once measured the
// round trip R: R plus four times its deviation of R/2 (RFC 6298, 2.2). One that was sent again measured nothing, and the
// path is slow or bad (5.7).
func (c *Core) measured(w *page) uint32 {
	if regs.PageOptionsRetries(w[regs.PageOptions]) != 0 {
		return 3 * c.ticks(regs.TimerRetransmit)
	}
	return max(3*(c.tick-w[regs.PageOpened]), c.ticks(regs.TimerRetransmitMin))
}

// learn tells the host where a SYN-ACK differs from the server's profile. What our SYN did not offer the SYN-ACK does not
// tell; a profile becomes known by one that answers everything a profile needs.
func (c *Core) learn(n uint32, w *page, o *options) {
	link := w[regs.PageClientLink]
	before := c.server(regs.PageAIndexServer(w[regs.PageAIndex]))[regs.ServerProfile]
	now := regs.SetServerProfileMss(before, o.mss)
	if link&regs.PageClientLinkWscaleMask != 0 {
		now &^= regs.ServerProfileWscaleMask | regs.ServerProfileWscaleOnMask
		if o.hasWscale {
			now |= regs.ServerProfileWscaleOnMask | o.wscale<<regs.ServerProfileWscaleShift
		}
	}
	for _, x := range [...]struct {
		offered, profile uint32
		kept             bool
	}{
		{regs.PageClientLinkSackMask, regs.ServerProfileSackMask, o.sack},
		{regs.PageClientLinkTimestampsMask, regs.ServerProfileTimestampsMask, o.timestamps},
		{regs.PageClientLinkEcnMask, regs.ServerProfileEcnMask, o.ecn},
	} {
		if link&x.offered == 0 {
			continue
		}
		now &^= x.profile
		if x.kept {
			now |= x.profile
		}
	}
	const needed = regs.PageClientLinkWscaleMask | regs.PageClientLinkSackMask | regs.PageClientLinkTimestampsMask
	if link&needed == needed {
		now |= regs.ServerProfileKnownMask
	}
	if now != before {
		c.count(regs.ConnectionServerLearned)
		c.eventWith(regs.EventControlTypeProfile, 0, n, w, now)
	}
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
	if link&regs.PageClientLinkEcnMask != 0 && o.ecn {
		s |= regs.PageAScaleEcnMask
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

// splice arms the page, sends what is held, and tells the client the server's window in place of the head buffer's. Also
// the host's arm_and_send ends here.
func (c *Core) splice(n uint32, w *page, timeout uint32, out *Output) {
	c.settleLast(w)
	first, held := heldFirst(w), w[regs.PageHeldBoundary]
	w[regs.PageADeltaServer] = w[regs.PageIsn] - w[regs.PageAServerIsn]
	w[regs.PageAChecksum] = c.differences(w)
	w[regs.PageAScale] |= regs.PageAScaleArmedMask | regs.PageAScaleChecksumReadyMask
	w[regs.PageASeqClient] = held
	w[regs.PageAAckClient] = w[regs.PageIsn] + 1
	w[regs.PageASeqServer] = w[regs.PageIsn] + 1
	w[regs.PageAAckServer] = first
	w[regs.PageARto] = 0
	c.setState(w, Spliced)
	if regs.ServiceControlModule(c.serviceControl(w)) != 0 {
		w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl], reasonModule)
	}
	if w[regs.PageClientLink]&regs.PageClientLinkFinClientMask != 0 {
		w[regs.PageFinClient] = held
		c.setState(w, Closing)
	}
	c.count(regs.ConnectionSpliced)
	c.splicedEvent(n, w)
	c.disarm(w)
	if held == first {
		c.releaseHead(w)
		c.ackServer(w, 0, out)
	} else {
		w[regs.PageControl] |= regs.PageControlHeldMask
		c.sendHeld(w, 0, out)
		c.expect(w, timeout)
	}
	c.count(regs.TransmitWindow + clientEnd)
	c.ackClient(w, out)
}

// serverRefused takes in that the server answered our SYN with RST.
func (c *Core) serverRefused(p *packet, w *page, out *Output) {
	c.serverFailed(p, p.handle&handleMask, w, reasonAbortRefused, out)
}

// maxStale is how many SYNs a server may answer as part of an older connection before it counts as failed.
const maxStale = 3

// serverStale answers what belongs to an older connection of the same four-tuple with RST, as the server expects from a
// client in SYN-SENT (RFC 9293, 3.10.7.3). That usually ends the older connection, so our SYN is sent again at once, the
// first time. A SYN counts once, however much of the older connection is on its way.
func (c *Core) serverStale(p *packet, w *page, out *Output) {
	if !c.outOfPlace(w, regs.ConnectionDropBadAck) {
		return
	}
	c.refuseServer(p, w, out)
	stale, sent := regs.PageARtoSent(w[regs.PageARto])+1, regs.PageOptionsRetries(w[regs.PageOptions])+1
	if stale > sent {
		return
	}
	w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], stale)
	switch stale {
	case 1:
		c.count(regs.ConnectionServerStale)
		c.count(regs.TransmitResentSyn + serverEnd)
		c.sendServerSyn(w, out)
		c.await(w, regs.PageARtoInterval(w[regs.PageARto]))
		w[regs.PageOptions] = regs.SetPageOptionsRetries(w[regs.PageOptions], sent)
	case maxStale:
		c.serverFailed(p, p.handle&handleMask, w, reasonAbortRefused, out)
	}
}

// refuseServer answers a server's segment with the RST that it takes for exact. One behind a tunnel is not reached at the
// address that it answers from.
func (c *Core) refuseServer(p *packet, w *page, out *Output) {
	if regs.PageAIndexAnswers(w[regs.PageAIndex]) == answersVIP {
		c.resetServer(w, 0, p.ack, out)
		return
	}
	c.replyRST(p, p.ack, 0, flagRST, out)
}

// serverAckAgain repeats the ACK of the server's handshake. Any other SYN-ACK is no sign of life of this connection, and
// draws the same as a challenge (RFC 5961, 4).
func (c *Core) serverAckAgain(p *packet, w *page, counter regs.Reg, out *Output) {
	if !c.outOfPlace(w, counter) {
		return
	}
	leg := 0
	if p.legB {
		leg = legWords
	}
	if p.seq == w[regs.PageAServerIsn+leg] {
		w[regs.PageLastSeen] = c.tick
		w[regs.PagePacketsServer] += p.segs
	}
	c.ackServer(w, leg, out)
}

// heldAcked takes in a server acknowledgement while bytes are held, of a segment that ends at end. Both are in the
// client's numbers. It returns true where the boundary is reached and the head buffer is free again.
func (c *Core) heldAcked(p *packet, w *page, end, ack uint32, out *Output) bool {
	if int32(ack-ld(w, regs.PageHeldBoundary)) >= 0 {
		st(w, regs.PageControl, ld(w, regs.PageControl)&^(regs.PageControlHeldMask|regs.PageControlDeadlineMask))
		c.releaseHead(w)
		return true
	}
	c.heldProgress(p, w, end, ack, out)
	return false
}

// heldProgress takes in an acknowledgement below H at the transmit end: it drives our timer, and makes room for what is
// not sent yet. A server that answers with its window closed is alive; where it opens, what probed it is sent again.
func (c *Core) heldProgress(p *packet, w *page, end, ack uint32, out *Output) {
	window, known := p.window(), regs.PageAWindowServer(w[regs.PageAWindow])
	newer := int32(ack - w[regs.PageAAckServer])
	if !newerWindow(newer, int32(end-w[regs.PageASeqServer]), window, known) {
		return // overtaken by what told more
	}
	if known == 0 {
		w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], 0)
	}
	w[regs.PageAWindow] = regs.SetPageAWindowServer(w[regs.PageAWindow], window)
	switch {
	case newer > 0:
		w[regs.PageAAckServer] = ack
		c.progress(w)
		c.turnHeld(p.handle&handleMask, w)
	case window == 0:
		w[regs.PageOptions] = regs.SetPageOptionsRetries(w[regs.PageOptions], 0)
	}
	c.sendHeld(w, 0, out)
}
