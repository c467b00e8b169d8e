package datapath

import "splicenic/regs"

// A passed connection has its page from its SYN on, and one of which nothing more is heard holds it until timer.syn_rcvd.
// With nat and fullnat SYN cookies keep pages from those who only send SYNs; with tun and dr nothing can, since the server
// answers past the card. So under the low watermark the oldest half-open connections make room: each SYN is remembered in
// the half-open list, whose entries outlive what they stand for and are passed over then.

// maxHalfOpenSkips bounds how many entries an allocation may pass over to find a connection that is still half-open.
const maxHalfOpenSkips = 8

// rememberSyn appends a page whose SYN went to its server. Where the list is full of what is over, the oldest entry goes.
func (c *Core) rememberSyn(n uint32, w *page) {
	if c.r.Get(regs.AmuHalfOpen) == c.m.Geometry.Pages {
		c.forgetSyn()
	}
	tail := c.r.Get(regs.AmuHalfOpenTail)
	c.m.HalfOpenList[c.slot(tail)] = handleOf(n, w)
	c.r.Set(regs.AmuHalfOpenTail, c.next(tail))
	c.r.Set(regs.AmuHalfOpen, c.r.Get(regs.AmuHalfOpen)+1)
}

// forgetSyn takes the oldest entry off the list.
func (c *Core) forgetSyn() (handle uint32) {
	head := c.r.Get(regs.AmuHalfOpenHead)
	c.r.Set(regs.AmuHalfOpenHead, c.next(head))
	c.r.Set(regs.AmuHalfOpen, c.r.Get(regs.AmuHalfOpen)-1)
	return c.m.HalfOpenList[c.slot(head)]
}

// endOldestHalfOpen frees the page of the oldest half-open connection, if the next entries of the list lead to one.
func (c *Core) endOldestHalfOpen() {
	for range maxHalfOpenSkips {
		if c.r.Get(regs.AmuHalfOpen) == 0 {
			return
		}
		handle := c.forgetSyn()
		n := handle & handleMask
		if n >= c.m.Geometry.Pages {
			continue
		}
		w := c.page(n)
		if handleOf(n, w) != handle || w[regs.PageControl]&regs.PageControlValidMask == 0 || !isPassed(w) || State(regs.PageControlState(w[regs.PageControl])) != SynRcvd {
			continue
		}
		c.count(regs.AmuHalfOpenEarly)
		c.abort(n, w, reasonExpiredSynRcvd)
		return
	}
}
