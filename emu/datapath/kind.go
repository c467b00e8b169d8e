package datapath

import "splicenic/regs"

// refine tells apart the kinds that flags and length do not. It looks into the page, so act calls it only where a row
// depends on it: no data and no ACK of a splice comes here.
func (c *Core) refine(p *packet, w *page, state State) Kind {
	if p.segment == RST {
		low, high, seq, ok := c.rangeOfRST(p, w, state)
		switch {
		case !ok, seq-low > high-low:
			return RSTOutOfRange
		case seq == low || state >= Spliced && seq == high:
			return RST
		}
		return RSTInRange
	}
	switch next := c.expected(w); { // of the client, whose bytes this card takes itself
	case p.seq == next-1 && p.length <= 1:
		return KeepAlive
	case p.seq == next && p.length == 1 && c.room(w) == 0:
		return ZeroWindowProbe
	}
	return p.segment
}

// rangeOfRST gives the numbers from low to high, both included, that put a RST in range, and the RST's own (RFC 5961,
// 3.2). Before the splice a client's is in range up to the end of the window that this card gives, and exact at the
// next number alone. Of a splice the range is what is on its way: from the highest number that the other end has
// acknowledged to the highest that went on to it, and either end is exact, because what is between may or may not be
// there already. In SERVER_SYN no number of the server is known: exact is what acknowledges our SYN (RFC 9293,
// 3.10.7.3), what acknowledges nothing is in range.
func (c *Core) rangeOfRST(p *packet, w *page, state State) (low, high, seq uint32, ok bool) {
	if state == PassedSynRcvd {
		if low, high = ld(w, regs.PageClientIsn)+1, ld(w, regs.PageASeqClient); p.side == ClientSide {
			return low, high, p.seq, true
		}
		return low, high, p.ack - ld(w, regs.PageADeltaClient), p.flags&flagACK != 0
	}
	switch {
	case state < Spliced && p.side == ClientSide:
		low = c.expected(w)
		return low, low + c.promised(w, low), p.seq, true
	case state < Spliced:
		low = ld(w, regs.PageAIsn) + 1
		if p.flags&flagACK == 0 {
			return low, low + 1, low + 1, true
		}
		return low, low, p.ack, true
	}
	if p.passed && c.oneSided(w) { // the end of what the client has sent is all that is known
		high = ld(w, regs.PageASeqClient)
		return high, high, p.seq, p.side == ClientSide
	}
	control := ld(w, regs.PageControl)
	if p.side == ClientSide {
		leg := clientLeg(p, w, control)
		return ld(w, regs.PageAAckServer+leg), ld(w, regs.PageASeqClient+leg), p.seq, leg == inForce(control)
	}
	leg := 0
	if p.legB {
		leg = legWords
	}
	seq = p.seq + ld(w, regs.PageADeltaServer+leg)
	if modular(control) {
		seq = pivotOf(w, ServerSide).forth(seq)
	}
	return ld(w, regs.PageAAckClient+leg), ld(w, regs.PageASeqServer+leg), seq, leg == inForce(control)
}

// maxAnswers is geometry.max_answers.
const maxAnswers = 7

// outOfPlace counts a segment that is out of place and says whether it is answered: a connection is given so many
// answers between two looks of the timer scan, lest this card and an end answer each other for ever. What is beyond
// counts as storm.
func (c *Core) outOfPlace(w *page, counter regs.Reg) bool {
	link := ld(w, regs.PageClientLink)
	answers := regs.PageClientLinkAnswers(link)
	if answers >= maxAnswers {
		c.count(regs.ConnectionDropStorm)
		return false
	}
	st(w, regs.PageClientLink, regs.SetPageClientLinkAnswers(link, answers+1))
	c.count(counter)
	return true
}

// challenge answers a RST that is not exact with what its sender would make an exact one of, if it means it (RFC 5961,
// 3.2).
func (c *Core) challenge(p *packet, w *page, counter regs.Reg, out *Output) {
	if c.outOfPlace(w, counter) {
		c.ackClient(w, out)
	}
}
