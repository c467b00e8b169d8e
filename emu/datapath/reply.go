package datapath

import "splicenic/regs"

// An answer of the card's own: the host gives its bytes, the card is the server for them. The page is in CLOSING with
// control.reply set and the server's FIN on its way; the marks of leg set A count in it as in a splice: seq_client is
// the client's next number, ack_client what it acknowledged, seq_server ours, fin_server the end of the answer. No
// server-side key leads to it.

// commandReply answers a client in the server's place. What the client sent is dropped from the head buffer, which takes
// the answer.
func (c *Core) commandReply(e *regs.CommandEntry, n uint32, w *page, state State, out *Output) uint32 {
	switch {
	case state != WaitHead:
		return statusState
	case e.Length == 0 || e.Length > c.headBytes():
		return statusArgument
	case !c.host.Read(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, c.answer[:e.Length]):
		return statusDMA
	}
	next := c.expected(w)
	if w[regs.PageControl]&regs.PageControlHeadMask == 0 && !c.takeHead(w) {
		return statusNoPlace
	}
	copy(c.head(w), c.answer[:e.Length])
	w[regs.PageHead] = regs.SetPageHeadBytes(w[regs.PageHead], e.Length)
	w[regs.PageASeqClient] = next
	w[regs.PageAAckClient], w[regs.PageASeqServer] = w[regs.PageIsn]+1, w[regs.PageIsn]+1
	w[regs.PageFinServer] = w[regs.PageIsn] + 1 + e.Length + 1
	w[regs.PageARto] = 0
	if w[regs.PageClientLink] |= regs.PageClientLinkFinServerMask; w[regs.PageClientLink]&regs.PageClientLinkFinClientMask != 0 {
		w[regs.PageFinClient] = next
		w[regs.PageClientLink] |= regs.PageClientLinkFinClientAckedMask
	}
	w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl]&^regs.PageControlWaitingHostMask|regs.PageControlReplyMask, 0)
	c.setState(w, Closing)
	c.count(regs.ConnectionReplied)
	c.sendReply(w, 0, out)
	c.expect(w, c.ticks(regs.TimerRetransmit))
	return statusOK
}

// replies says whether the card is the server of a page.
func replies(w *page) bool { return w[regs.PageControl]&regs.PageControlReplyMask != 0 }

// replySegment fills in what every segment of an answer has in common. The window stays where the handshake left its
// right edge, for a FIN to fit in: nobody takes more of the client's bytes.
func (c *Core) replySegment(w *page, s *segment) {
	s.ack = w[regs.PageASeqClient]
	s.flags |= flagACK
	s.window = max(c.promised(w, s.ack), 1)
	if w[regs.PageClientLink]&regs.PageClientLinkWscaleMask != 0 {
		s.window = shiftWindow(s.window, -int32(regs.PageOptionsPromisedWscale(w[regs.PageOptions])))
	}
	if w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0 {
		s.addTimestamps(w[regs.PageTimestampBase], w[regs.PageClientTimestamp])
	}
}

// sendReply sends what of an answer is not sent yet, in segments of the client's MSS, within its window and the initial
// window, but at least a number of bytes. The FIN goes with the last byte.
func (c *Core) sendReply(w *page, least uint32, out *Output) {
	var r route
	c.clientRoute(w, &r)
	mss := max(min(regs.PageOfferMss(w[regs.PageOffer]), mssFor(c.mtu(r.port), r.kind)), 1)
	if w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0 {
		mss -= min(mss-1, 12)
	}
	first := w[regs.PageIsn] + 1
	stored, total := heldBytes(w), w[regs.PageFinServer]-first
	acked := min(w[regs.PageAAckClient]-first, total)
	sent := max(regs.PageARtoSent(w[regs.PageARto]), acked)
	window := regs.PageAWindowClient(w[regs.PageAWindow]) << regs.PageClientLinkClientWscale(w[regs.PageClientLink])
	limit := acked + max(min(window, maxHeldSegments*mss), least)
	head := c.head(w)
	for sent < total && sent < limit {
		s := segment{seq: first + sent}
		c.replySegment(w, &s)
		payload := head[min(sent, stored):][:min(mss, stored-min(sent, stored), limit-sent)]
		if sent += uint32(len(payload)); sent == stored {
			s.flags |= flagPSH | flagFIN
			sent++
		}
		c.count(regs.TransmitReply + clientEnd)
		if c.make(&r, &s, payload, out) == nil {
			break
		}
	}
	w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], sent)
	if end := first + sent; int32(end-w[regs.PageASeqServer]) > 0 {
		w[regs.PageASeqServer] = end
	}
}

// ackReply tells the client how far we are.
func (c *Core) ackReply(w *page, out *Output) {
	var r route
	c.clientRoute(w, &r)
	s := segment{seq: w[regs.PageASeqServer]}
	c.replySegment(w, &s)
	c.count(regs.TransmitAck + clientEnd)
	c.make(&r, &s, nil, out)
}

// replied takes a client's segment where the card is the server: acknowledgements, the FIN, an exact RST. Payload is not
// taken, and so not acknowledged: nobody would read it.
func (c *Core) replied(p *packet, w *page, out *Output) {
	n := p.handle & handleMask
	closing := State(regs.PageControlState(w[regs.PageControl])) == Closing
	next := w[regs.PageASeqClient]
	switch {
	case p.flags&flagRST != 0:
		switch {
		case p.seq == next && closing:
			c.end(n, w, reasonRST)
			c.quarantine(n, w)
		case p.seq-next >= c.headBytes() || !closing:
			c.count(regs.ConnectionDropRst)
		case c.outOfPlace(w, regs.ConnectionDropRst):
			c.ackReply(w, out)
		}
		return
	case p.flags&(flagSYN|flagACK) != flagACK:
		c.count(regs.ConnectionDropState)
		return
	case p.ack-w[regs.PageAAckClient] > w[regs.PageASeqServer]-w[regs.PageAAckClient]:
		// Neither new nor the latest: an older one may be a repetition, whose sender learns where we are.
		if c.outOfPlace(w, regs.ConnectionDropBadAck) {
			c.ackReply(w, out)
		}
		return
	}
	c.seenClient(p, w)
	if p.ack != w[regs.PageAAckClient] {
		w[regs.PageAAckClient] = p.ack
		c.progress(w)
	}
	link := w[regs.PageClientLink]
	switch end := p.seq + p.length; {
	case p.seq == next && p.length == 0 && p.flags&flagFIN != 0 && link&regs.PageClientLinkFinClientMask == 0:
		w[regs.PageFinClient], w[regs.PageASeqClient] = next+1, next+1
		link |= regs.PageClientLinkFinClientMask | regs.PageClientLinkFinClientAckedMask
		c.ackReply(w, out)
	case p.seq == next && p.length == 0 && p.flags&flagFIN == 0: // nothing but an acknowledgement
	case int32(end-next) > 0:
		c.count(regs.ConnectionDropNoRoom)
	default: // a keep-alive probe, or a FIN whose acknowledgement was lost
		if c.outOfPlace(w, regs.ConnectionDropDuplicate) {
			c.ackReply(w, out)
		}
		link = link&^regs.PageClientLinkAnswersMask | w[regs.PageClientLink]&regs.PageClientLinkAnswersMask
	}
	if w[regs.PageAAckClient] == w[regs.PageFinServer] {
		link |= regs.PageClientLinkFinServerAckedMask
		c.releaseHead(w)
		c.disarm(w)
	}
	w[regs.PageClientLink] = link
	const both = regs.PageClientLinkFinClientAckedMask | regs.PageClientLinkFinServerAckedMask
	switch {
	case !closing:
	case link&both == both:
		c.end(n, w, reasonFIN)
		c.quarantine(n, w)
	case link&regs.PageClientLinkFinServerAckedMask == 0:
		c.sendReply(w, 0, out)
	}
}

// expireReply sends again what the client has not acknowledged of an answer, until the closing time-out ends it.
func (c *Core) expireReply(n uint32, w *page, out *Output) {
	switch {
	case c.tick-w[regs.PageOpened] >= c.ticks(regs.TimerClosing):
	case !c.due(w):
		return
	case c.again(w):
		c.count(regs.TimerExpired)
		w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], 0)
		const sent, again = regs.TransmitReply + clientEnd, regs.TransmitResentReply + clientEnd
		before := c.r.Get64(sent)
		c.sendReply(w, 1, out)
		c.r.Add64(again, c.r.Get64(sent)-before)
		return
	}
	c.count(regs.TimerExpired)
	c.resetClient(w, out)
	c.abort(n, w, reasonExpiredClosing)
}
