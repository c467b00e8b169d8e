package datapath

import "splicenic/regs"

// closing follows a connection to its end: FINs, their acknowledgements and RST. p's numbers are the client's; end is
// the segment's end. A page in quarantine only translates.
func (c *Core) closing(p *packet, w *page, v Verdict, control, end uint32) {
	state := State(regs.PageControlState(control))
	if state == Quarantine || state == Spliced && v == VerdictTranslate {
		return
	}
	n := p.handle & handleMask
	if v == VerdictTranslateRST {
		if c.exactRST(p, w) {
			c.end(n, w, reasonRST)
			c.quarantine(n, w)
		}
		return
	}
	link := ld(w, regs.PageClientLink)
	before := link
	if v == VerdictTranslateFIN {
		if p.side == ClientSide {
			link |= regs.PageClientLinkFinClientMask
			st(w, regs.PageFinClient, end)
		} else {
			link |= regs.PageClientLinkFinServerMask
			st(w, regs.PageFinServer, end)
		}
		if state == Spliced { // what is opened at the splice stays as it is: clocks count from it
			st(w, regs.PageControl, regs.SetPageControlState(ld(w, regs.PageControl), uint32(Closing)))
		}
	}
	if p.flags&flagACK != 0 {
		if p.side == ClientSide && link&regs.PageClientLinkFinServerMask != 0 && int32(p.ack-ld(w, regs.PageFinServer)) >= 0 {
			link |= regs.PageClientLinkFinServerAckedMask
		}
		if p.side == ServerSide && link&regs.PageClientLinkFinClientMask != 0 && int32(p.ack-ld(w, regs.PageFinClient)) >= 0 &&
			control&regs.PageControlHeldMask == 0 {
			link |= regs.PageClientLinkFinClientAckedMask
		}
	}
	if link != before {
		st(w, regs.PageClientLink, link)
	}
	const both = regs.PageClientLinkFinClientAckedMask | regs.PageClientLinkFinServerAckedMask
	if link&both == both {
		c.end(n, w, reasonFIN)
		c.quarantine(n, w)
	}
}

// exactRST says whether a RST that passed has the sequence number its receiver expects (RFC 5961, 3.2): the highest the
// receiver has acknowledged, or, where that ACK may be on its way, the highest that was sent to it.
func (c *Core) exactRST(p *packet, w *page) bool {
	if p.side == ClientSide {
		return p.seq == ld(w, regs.PageAAckServer) || p.seq == ld(w, regs.PageASeqClient)
	}
	return p.seq == ld(w, regs.PageAAckClient) || p.seq == ld(w, regs.PageASeqServer)
}
