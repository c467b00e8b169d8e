package datapath

import (
	"encoding/binary"
	"math/bits"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// The only request of a connection: with client_link.last_request no byte of the client's at boundary_client or behind it
// reaches a server. To the server the client looks like one that sent nothing more. The marks of the client keep counting
// what it really sent, since that is what its RST and its next SYN are judged by.

// lastRequest takes off a client's segment what lies behind the only request. It returns the verdict on what is left of
// it: VerdictDrop where nothing goes on. end and taken are the segment's as it came.
func (c *Core) lastRequest(p *packet, w *page, leg int, v Verdict, end uint32, taken bool, out *Output) Verdict {
	boundary := ld(w, regs.PageBoundaryClient)
	if int32(p.seq+p.length-boundary) <= 0 || p.flags&flagSYN != 0 {
		return v // a FIN at the boundary is one of a client that wants nothing more
	}
	// What carries no byte of the stream has the number of the client's next one all the same. Where it is to be believed
	// the server gets it with the number that it expects.
	known := boundary
	if ld(w, regs.PageClientLink)&regs.PageClientLinkFinClientMask != 0 {
		known = ld(w, regs.PageFinClient)
	}
	bare := p.length == 0 && p.flags&flagFIN == 0
	switch {
	case p.flags&flagRST != 0:
		if v == VerdictTranslateRST && int32(p.seq-known) > 0 {
			c.moveBack(p, known)
		}
		return v
	case bare:
		if taken && int32(p.seq-known) > 0 {
			c.moveBack(p, known)
		}
		return v
	}
	c.count(regs.ConnectionDropLastRequest)
	switch {
	case int32(p.seq-boundary) < 0:
		c.cutTail(p, boundary-p.seq)
	case !taken:
		return VerdictDrop
	case c.served(p, w):
		c.resetBoth(w, out)
		c.abort(p.handle&handleMask, w, reasonRST)
		return VerdictDrop
	case int32(p.ack-ld(w, regs.PageAAckClient+leg)) <= 0:
		if int32(end-ld(w, regs.PageASeqClient+leg)) > 0 {
			st(w, regs.PageASeqClient+leg, end)
		}
		st(w, regs.PageLastSeen, c.tick)
		return VerdictDrop
	default: // it acknowledges something new, which goes on alone
		c.cutTail(p, 0)
		c.moveBack(p, known)
	}
	if v == VerdictTranslateFIN {
		v = VerdictTranslate
	}
	return v
}

// served says whether the client has acknowledged the end of the response, by this segment at the latest. Its server has
// closed: whoever wants more of one that has gets a RST.
func (c *Core) served(p *packet, w *page) bool {
	link := ld(w, regs.PageClientLink)
	return link&regs.PageClientLinkFinServerMask != 0 &&
		State(regs.PageControlState(ld(w, regs.PageControl))) == Closing &&
		(link&regs.PageClientLinkFinServerAckedMask != 0 || int32(p.ack-ld(w, regs.PageFinServer)) >= 0)
}

// serverHas is the client's sequence number behind all that a server can have of it.
func serverHas(w *page, leg int) uint32 {
	end, link := w[regs.PageASeqClient+leg], w[regs.PageClientLink]
	if link&regs.PageClientLinkLastRequestMask == 0 {
		return end
	}
	limit := w[regs.PageBoundaryClient]
	if link&regs.PageClientLinkFinClientMask != 0 {
		limit = w[regs.PageFinClient]
	}
	if int32(end-limit) > 0 {
		return limit
	}
	return end
}

// boundHeld takes off a segment what the head buffer must not hold: bytes behind the only request. Those that it held
// before the host found out where that ends are in H, and behind H there is nothing more to come.
func (c *Core) boundHeld(p *packet, w *page) bool {
	if w[regs.PageClientLink]&regs.PageClientLinkLastRequestMask == 0 {
		return true
	}
	c.settleLast(w)
	boundary := w[regs.PageBoundaryClient]
	end := p.seq + p.length
	switch {
	case int32(end-boundary) <= 0:
		return true
	case int32(p.seq-boundary) < 0:
		c.count(regs.ConnectionDropLastRequest)
		c.cutTail(p, boundary-p.seq)
		return true
	}
	c.count(regs.ConnectionDropLastRequest)
	return false
}

// settleLast moves the end of the only request up to H, where H is beyond it: the server's numbers go on behind H.
func (c *Core) settleLast(w *page) {
	next, link := c.expected(w), w[regs.PageClientLink]
	if link&regs.PageClientLinkFinClientMask != 0 {
		next--
	}
	if link&regs.PageClientLinkLastRequestMask != 0 && int32(next-w[regs.PageBoundaryClient]) > 0 {
		w[regs.PageBoundaryClient] = next
	}
}

// cutTail takes the payload of a segment from keep on off it, with its FIN, and mends lengths and checksum.
func (c *Core) cutTail(p *packet, keep uint32) {
	t := p.b[p.tcp:p.end]
	cut := p.length - keep
	at := uint32(len(t)) - cut
	before := uint64(binary.BigEndian.Uint16(t[12:])) + uint64(len(t))
	flags := t[13] &^ flagFIN
	if flags&flagURG != 0 && uint32(binary.BigEndian.Uint16(t[18:])) > keep {
		flags &^= flagURG
	}
	if keep == 0 {
		flags &^= flagPSH | flagURG
	}
	t[13] = flags
	after := uint64(binary.BigEndian.Uint16(t[12:])) + uint64(at)
	gone := frame.Fold(frame.Sum(t[at:], 0))
	if at&1 != 0 { // its bytes counted in the other half of their words
		gone = bits.ReverseBytes16(gone)
	}
	ip := p.b[p.ip:]
	if p.kind == kindIPv6 {
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])-uint16(cut))
	} else {
		total := binary.BigEndian.Uint16(ip[2:])
		binary.BigEndian.PutUint16(ip[2:], total-uint16(cut))
		d := uint64(frame.Difference(uint64(total), uint64(total-uint16(cut))))
		binary.BigEndian.PutUint16(ip[10:], frame.Update(binary.BigEndian.Uint16(ip[10:]), d))
	}
	p.flags, p.length, p.end, p.segs = flags, keep, p.end-cut, 1
	p.segment = classify(flags, keep)
	switch o := &p.f.Offload; {
	case o.GSOType == frame.GSONone:
		d := uint64(frame.Difference(before+uint64(gone), after))
		binary.BigEndian.PutUint16(t[16:], frame.Update(binary.BigEndian.Uint16(t[16:]), d))
	case keep == 0: // nothing is left to be cut into segments
		*o = frame.Offload{}
		pseudo := frame.Pseudo4(ip, protocolTCP, int(at))
		if p.kind == kindIPv6 {
			pseudo = frame.Pseudo6(ip, protocolTCP, int(at))
		}
		binary.BigEndian.PutUint16(t[16:], 0)
		binary.BigEndian.PutUint16(t[16:], ^frame.Fold(frame.Sum(t[:at], pseudo)))
	default:
		p.segs = (keep + uint32(o.GSOSize) - 1) / uint32(o.GSOSize)
	}
}

// moveBack gives a segment without payload another sequence number.
func (c *Core) moveBack(p *packet, seq uint32) {
	t := p.b[p.tcp:p.payload]
	if p.f.Offload.GSOType == frame.GSONone {
		d := uint64(frame.Difference(frame.Word(p.seq), frame.Word(seq)))
		binary.BigEndian.PutUint16(t[16:], frame.Update(binary.BigEndian.Uint16(t[16:]), d))
	}
	binary.BigEndian.PutUint32(t[4:], seq)
	p.seq = seq
}
