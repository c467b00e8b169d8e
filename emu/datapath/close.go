package datapath

import "splicenic/regs"

// takes says whether the end that a segment goes to takes it (RFC 9293, 3.10.7.4; RFC 5961, 5.2): it reaches into the
// window which that end advertised, and acknowledges what that end has sent, or something older by no more than a window.
// Any other segment goes on all the same, for its receiver to answer, but moves none of our marks: nobody who does not
// see a connection's numbers ends it. Both windows are the largest ever advertised, so that what was sent within an
// earlier, larger window counts. seq, end and ack are the client's numbers.
func takes(p *packet, w *page, leg int, scale, seq, end, ack uint32) bool {
	if p.flags&(flagSYN|flagRST|flagACK) != flagACK {
		return false
	}
	windows := ld(w, regs.PageAWindow+leg)
	own := regs.PageAWindowClient(windows) << regs.PageClientLinkClientWscale(ld(w, regs.PageClientLink))
	window := regs.PageAWindowServer(windows) << regs.PageAScaleServerWscale(scale)
	from, to := leg, leg+markWords
	if p.side == ServerSide {
		own, window, from, to = window, own, to, from
	}
	next := ld(w, regs.PageAAckClient+to)
	oldest := ld(w, regs.PageAAckClient+from) - own
	return end-next <= window+(end-seq) && ack-oldest <= ld(w, regs.PageASeqClient+to)-oldest
}

// markWords is how far the marks of the server lie behind those of the client.
const markWords = regs.PageASeqServer - regs.PageASeqClient

// mark notes how far an end is, by a segment of its that the other end takes. A FIN that acknowledges something new does
// not raise the window, so that no packet writes more than eight words.
func mark(p *packet, w *page, leg int, end, ack, window uint32) {
	from := leg + markWords*int(p.side)
	if int32(end-ld(w, regs.PageASeqClient+from)) > 0 {
		st(w, regs.PageASeqClient+from, end)
	}
	newer := int32(ack-ld(w, regs.PageAAckClient+from)) > 0
	if newer {
		st(w, regs.PageAAckClient+from, ack)
	}
	shift := regs.PageAWindowServerShift * uint32(p.side)
	windows := ld(w, regs.PageAWindow+leg)
	if window > windows>>shift&0xffff && !(newer && p.flags&flagFIN != 0) {
		st(w, regs.PageAWindow+leg, windows&^(0xffff<<shift)|window<<shift)
	}
}

// markHeld is mark while bytes are held. What this card sends then promises a window: that of the newest segment, with the
// acknowledgement that it came with. A FIN changes neither, and leaves a word for the clock.
func markHeld(p *packet, w *page, end, ack, window uint32) {
	from := markWords * int(p.side)
	next := int32(end - ld(w, regs.PageASeqClient+from))
	if next > 0 {
		st(w, regs.PageASeqClient+from, end)
	}
	if p.flags&flagFIN != 0 {
		return
	}
	shift := regs.PageAWindowServerShift * uint32(p.side)
	windows := ld(w, regs.PageAWindow)
	if newerWindow(int32(ack-ld(w, regs.PageAAckClient+from)), next, window, windows>>shift&0xffff) {
		st(w, regs.PageAAckClient+from, ack)
		st(w, regs.PageAWindow, windows&^(0xffff<<shift)|window<<shift)
	}
}

// newerWindow says whether a window is newer than the one that is known, by how far its segment is ahead in
// acknowledgement and sequence (RFC 9293, 3.10.7.4). Of two that acknowledge the same the larger one was promised too.
func newerWindow(ack, next int32, window, known uint32) bool {
	return ack > 0 || ack == 0 && (next >= 0 || window > known)
}

// inForce is the leg set that a connection has come to: the newer one, where it is in use.
func inForce(control uint32) int {
	if control&regs.PageControlLegBMask != 0 {
		return legWords
	}
	return 0
}

// clientLeg is the leg set that a segment of the client goes by.
func clientLeg(p *packet, w *page, control uint32) int {
	if control&regs.PageControlLegBMask != 0 && int32(p.seq-ld(w, regs.PageBoundaryClient)) >= 0 {
		return legWords
	}
	return 0
}

// closing follows a connection to its end: FINs, their acknowledgements and RST. p's numbers are the client's; end is
// the segment's end; taken tells what its receiver makes of it. A page in quarantine only translates, and so does a leg
// that another has taken the place of: its server's end is not the client's.
func (c *Core) closing(p *packet, w *page, v Verdict, control uint32, leg int, end uint32, taken bool) {
	state := State(regs.PageControlState(control))
	if state == Quarantine || state == Spliced && v == VerdictTranslate || leg != inForce(control) {
		return
	}
	n := p.handle & handleMask
	if v == VerdictTranslateRST {
		c.end(n, w, reasonRST)
		c.quarantine(n, w)
		return
	}
	if !taken {
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
			if p.passed {
				c.serverActive(w, -1)
			}
		}
	}
	if p.side == ClientSide && link&regs.PageClientLinkFinServerMask != 0 && int32(p.ack-ld(w, regs.PageFinServer)) >= 0 {
		link |= regs.PageClientLinkFinServerAckedMask
	}
	if p.side == ServerSide && link&regs.PageClientLinkFinClientMask != 0 && int32(p.ack-ld(w, regs.PageFinClient)) >= 0 &&
		control&regs.PageControlHeldMask == 0 {
		link |= regs.PageClientLinkFinClientAckedMask
	}
	if link != before {
		st(w, regs.PageClientLink, link)
	}
	const both = regs.PageClientLinkFinClientAckedMask | regs.PageClientLinkFinServerAckedMask
	if link&both == both {
		if regs.PageAIndexAnswers(ld(w, regs.PageAIndex+leg)) == answersLocal {
			c.lastStamp(p, w, leg)
		}
		c.end(n, w, reasonFIN)
		c.quarantine(n, w)
	}
}
