package datapath

import "splicenic/regs"

// hold puts payload into the head buffer and acknowledges it. When what the service decides by is complete the server end
// begins.
func (c *Core) hold(p *packet, w *page, out *Output) {
	p.request = true
	if gathers(w) {
		c.gather(p, w, out)
		return
	}
	if w[regs.PageControl]&regs.PageControlWaitingHostMask != 0 {
		c.count(regs.ConnectionDropWaitingHost)
		return
	}
	if !c.store(p, w, out) {
		return
	}
	n := p.handle & handleMask
	if heldBytes(w) == 0 { // a FIN behind bytes that came before the request
		c.resetClient(w, out)
		c.abort(n, w, reasonAbortClientGone)
		return
	}
	c.search(p, n, w, out)
}

func (c *Core) headBytes() uint32 { return regs.HeadBytes }

// store copies what is new of a segment behind what is held. The first accepted byte wins; bytes beyond a gap are not
// taken. It returns false where the segment brought nothing.
func (c *Core) store(p *packet, w *page, out *Output) bool {
	if p.ack == w[regs.PageIsn]+1 && p.seq-(w[regs.PageAAckServer]-c.headBytes()) <= c.headBytes() { // any other nobody may believe
		c.seenClient(p, w)
	}
	next := c.expected(w)
	skip := next - p.seq
	fin := p.flags&flagFIN != 0
	switch {
	case p.ack != w[regs.PageIsn]+1:
		return c.notStored(w, regs.ConnectionDropBadAck, out)
	case int32(skip) < 0:
		return c.notStored(w, regs.ConnectionDropOutOfOrder, out)
	case skip > p.length || skip == p.length && !fin || w[regs.PageClientLink]&regs.PageClientLinkFinClientMask != 0:
		return c.notStored(w, regs.ConnectionDropDuplicate, out)
	}
	if w[regs.PageControl]&regs.PageControlHeadMask == 0 && !c.takeHead(w) {
		return false
	}
	stored := heldBytes(w)
	fresh := p.b[p.payload+skip : p.payload+p.length]
	room := c.headBytes() - stored
	if uint32(len(fresh)) > room {
		fresh, fin = fresh[:room], false
	}
	if len(fresh) == 0 && !fin {
		return c.notStored(w, regs.ConnectionDropNoRoom, out)
	}
	copy(c.head(w)[stored:], fresh)
	w[regs.PageHead] = regs.SetPageHeadBytes(w[regs.PageHead], stored+uint32(len(fresh)))
	c.addBytes(w, regs.PageBytesClient, uint32(len(fresh)))
	w[regs.PageHeldBoundary] += uint32(len(fresh))
	if fin {
		w[regs.PageHeldBoundary]++
		w[regs.PageClientLink] |= regs.PageClientLinkFinClientMask
	}
	return true
}

// notStored answers a segment that brought nothing.
func (c *Core) notStored(w *page, counter regs.Reg, out *Output) bool {
	if c.outOfPlace(w, counter) {
		c.ackClient(w, out)
	}
	return false
}

// addBytes adds to one of the two payload counters of a page and says whether that carried into its upper bits.
func (c *Core) addBytes(w *page, word int, n uint32) (carry bool) {
	before := ld(w, word)
	st(w, word, before+n)
	if before+n >= before {
		return false
	}
	high := ld(w, regs.PageBytesHigh)
	if word == regs.PageBytesServer {
		high = regs.SetPageBytesHighServer(high, regs.PageBytesHighServer(high)+1)
	} else {
		high = regs.SetPageBytesHighClient(high, regs.PageBytesHighClient(high)+1)
	}
	st(w, regs.PageBytesHigh, high)
	return true
}

// appendHeld takes payload that arrives between the head's end and the splice, if it fits.
func (c *Core) appendHeld(p *packet, w *page, out *Output) {
	if c.boundHeld(p, w) && c.store(p, w, out) {
		c.ackClient(w, out)
	}
}

// waitForHost hands the decision to the host. Until its command, or the end of WAIT_HEAD, the client is not answered.
// Where no host takes exceptions, or has no room for one, the connection ends at once, as with handOver: nobody would
// decide, and the client's next segments do not ask again.
func (c *Core) waitForHost(p *packet, w *page, reason uint8, out *Output) {
	w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl]|regs.PageControlWaitingHostMask, uint32(reason))
	p.reason = reason
	n := p.handle & handleMask
	if !c.exception(p, handleOf(n, w)) {
		c.resetClient(w, out)
		c.abort(n, w, unserved(w, reasonExpiredWaitHead))
	}
}

// unserved is the reason by which a connection ends that nobody decided about in the card: otherwise, unless its request
// led to no server.
func unserved(w *page, otherwise uint32) uint32 {
	if w[regs.PageControl]&regs.PageControlWaitingHostMask == 0 {
		return otherwise
	}
	switch regs.PageControlHostReason(w[regs.PageControl]) {
	case reasonNoRule, reasonNoServer, reasonServerFailed:
		return reasonAbortNoServer
	case reasonKeyExists:
		return reasonAbortKeyExists
	}
	return otherwise
}

// hit counts a request that a rule took.
func (c *Core) hit(rule uint32) {
	hits := c.m.RuleCounter[rule*regs.RuleCounterWords : (rule+1)*regs.RuleCounterWords]
	if hits[regs.RuleCounterHitsLo]++; hits[regs.RuleCounterHitsLo] == 0 {
		hits[regs.RuleCounterHitsHi]++
	}
}
