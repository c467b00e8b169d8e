package datapath

import (
	"encoding/binary"

	"splicenic/regs"
)

// Options of a SYN or SYN-ACK.
type options struct {
	mss        uint32
	wscale     uint32
	tsval      uint32
	tsecr      uint32
	hasMSS     bool
	hasWscale  bool
	sack       bool
	timestamps bool
	ecn        bool // not an option, but agreed upon like one
}

// maxWscale is the largest window shift (RFC 7323, 2.3).
const maxWscale = 14

// readOptions reads what this card implements and passes over everything else. Only a SYN was validated; elsewhere an
// impossible length ends the reading.
func readOptions(o []byte) (x options) {
	for len(o) > 0 && o[0] != 0 {
		if o[0] == 1 {
			o = o[1:]
			continue
		}
		if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
			return x
		}
		n := int(o[1])
		switch {
		case o[0] == 2 && n == 4:
			x.mss, x.hasMSS = uint32(binary.BigEndian.Uint16(o[2:])), true
		case o[0] == 3 && n == 3:
			x.wscale, x.hasWscale = min(uint32(o[2]), maxWscale), true
		case o[0] == 4 && n == 2:
			x.sack = true
		case o[0] == 8 && n == 10:
			x.tsval, x.tsecr, x.timestamps = binary.BigEndian.Uint32(o[2:]), binary.BigEndian.Uint32(o[6:]), true
		}
		o = o[n:]
	}
	return x
}

// options reads a segment's options. A SYN offers ECN with both flags, a SYN-ACK takes it with one (RFC 3168, 6.1.1);
// what else they may stand for, the receiver of a SYN that offers AccECN need not know (RFC 9768, 3.1.2).
func (p *packet) options() options {
	if p.kept {
		return p.syn
	}
	o := readOptions(p.b[p.tcp+20 : p.payload])
	want := uint8(flagECE | flagCWR)
	if p.segment == SYNACK {
		want = flagECE
	}
	o.ecn = p.flags&(flagECE|flagCWR) == want
	return o
}

func (p *packet) window() uint32 { return uint32(binary.BigEndian.Uint16(p.b[p.tcp+14:])) }

// open answers a client's SYN: a page, a client-side CAM entry, a SYN-ACK.
func (c *Core) open(p *packet, out *Output) {
	service := p.service
	if p.vip < 0 || service < 0 {
		c.exception(p, 0)
		return
	}
	if regs.AmuControlEnable(c.r.Get(regs.AmuControl)) == 0 {
		c.count(regs.AmuDisabled)
		c.refuse(p, out)
		return
	}
	if c.limited(p, uint32(service)) {
		return
	}
	n, ok := c.take(p)
	if !ok {
		c.refuse(p, out)
		return
	}
	w := c.page(n)
	c.fillPage(p, w, n, uint32(service))
	c.count(regs.ConnectionOpened)
	c.openedEvent(n, w)
	c.sendSynAck(n, w, out)
	c.expect(w, c.ticks(regs.TimerRetransmit))
}

// fillPage writes the client leg of a new connection.
func (c *Core) fillPage(p *packet, w *page, n, service uint32) {
	s := c.service(service)
	promise := s[regs.ServicePromise]
	o := p.options()

	w[regs.PageControl] = regs.SetPageControlKind(w[regs.PageControl], uint32(p.kind))
	w[regs.PageControl] = regs.SetPageControlPort(w[regs.PageControl], uint32(p.port))
	c.setState(w, SynRcvd)
	w[regs.PagePorts] = p.sport | p.dport<<16
	w[regs.PageIndex] = uint32(p.vip) | service<<16
	copy(w[regs.PageClientAddress:], p.src[:])
	link := p.vlan
	if p.tagged {
		link |= regs.PageClientLinkTaggedMask
	}
	mss := regs.ServicePromiseMssIpv4(s[regs.ServicePromiseMss])
	if p.kind == kindIPv6 {
		mss = regs.ServicePromiseMssIpv6(s[regs.ServicePromiseMss])
	}
	mss = min(mss, mssFor(c.mtu(uint32(p.port)), p.kind))
	var opts uint32
	if o.hasWscale {
		opts |= regs.PageOptionsWscaleOfferedMask | o.wscale<<regs.PageOptionsClientWscaleShift
		if regs.ServicePromiseWscaleOn(promise) != 0 {
			link |= regs.PageClientLinkWscaleMask | o.wscale<<regs.PageClientLinkClientWscaleShift
			opts = regs.SetPageOptionsPromisedWscale(opts, regs.ServicePromiseWscale(promise))
		}
	}
	if o.sack {
		opts |= regs.PageOptionsSackOfferedMask
		if regs.ServicePromiseSack(promise) != 0 {
			link |= regs.PageClientLinkSackMask
		}
	}
	if o.timestamps {
		opts |= regs.PageOptionsTimestampsOfferedMask
		if regs.ServicePromiseTimestamps(promise) != 0 {
			link |= regs.PageClientLinkTimestampsMask
		}
	}
	if o.ecn {
		opts |= regs.PageOptionsEcnOfferedMask
		if regs.ServicePromiseEcn(promise) != 0 {
			link |= regs.PageClientLinkEcnMask
		}
	}
	w[regs.PageClientLink] = link
	w[regs.PageOptions] = opts
	w[regs.PageClientMacLo] = binary.BigEndian.Uint32(p.b[8:])
	w[regs.PageClientMacHi] = uint32(binary.BigEndian.Uint16(p.b[6:])) | mss<<regs.PageClientMacHiMssShift
	w[regs.PageLastSeen] = c.tick
	w[regs.PagePacketsClient] = 1
	w[regs.PageClientIsn], w[regs.PageAIsn] = p.seq, p.seq
	w[regs.PageHeldBoundary] = p.seq + 1
	c.promise(w, c.headBytes())
	clientMSS := o.mss
	if !o.hasMSS || clientMSS == 0 {
		clientMSS = defaultMSS(p.kind)
	}
	w[regs.PageOffer] = clientMSS | p.window()<<regs.PageOfferWindowShift
	w[regs.PageClientTimestamp] = o.tsval

	isn, clock := c.isn(w)
	if regs.ServiceControlIsn(s[regs.ServiceControl]) == regs.ServiceControlIsnAddress {
		isn = n
	}
	w[regs.PageIsn] = isn
	w[regs.PageTimestampBase] = clock + c.tick
}

// defaultMSS is what an end that announces none can take (RFC 9293, 3.7.1).
func defaultMSS(kind uint8) uint32 {
	if kind == kindIPv6 {
		return 1220
	}
	return 536
}

// isn chooses a0 and the base of the timestamp clock (RFC 6528, 3): a clock of 4 microseconds plus a keyed hash of the
// connection.
func (c *Core) isn(w *page) (isn, clock uint32) {
	const key = regs.TransmitIsnKey + regs.TransmitClientEnd*regs.TransmitStride
	k0 := uint64(c.r.Get(key)) | uint64(c.r.Get(key+4))<<32
	k1 := uint64(c.r.Get(key+8)) | uint64(c.r.Get(key+12))<<32
	a := w[regs.PageClientAddress:]
	m := [4]uint64{uint64(a[0]) | uint64(a[1])<<32, uint64(a[2]) | uint64(a[3])<<32,
		uint64(w[regs.PagePorts]) | uint64(regs.PageIndexVip(w[regs.PageIndex]))<<32, uint64(regs.PageControlKind(w[regs.PageControl]))}
	h := sipHash(k0, k1, &m)
	return uint32(h) + uint32(c.r.Get64(regs.TimerNow)/4), uint32(h >> 32)
}

// refuse answers a SYN that cannot be taken with RST.
func (c *Core) refuse(p *packet, out *Output) {
	c.replyRST(p, 0, p.seq+1+p.length, flagRST|flagACK, out)
}

// synAgain answers a repeated SYN with the same SYN-ACK. A SYN with another sequence number is a new attempt of the
// client: the half-open connection starts over on the same page.
func (c *Core) synAgain(p *packet, w *page, out *Output) {
	n := p.handle & handleMask
	c.countSyn()
	if p.seq != w[regs.PageClientIsn] {
		service := regs.PageIndexService(w[regs.PageIndex])
		keep := w[regs.PageControl] & (regs.PageControlGenerationMask | regs.PageControlValidMask)
		*w = page{}
		w[regs.PageControl] = keep
		c.fillPage(p, w, n, service)
		c.expect(w, c.ticks(regs.TimerRetransmit))
	}
	w[regs.PageLastSeen] = c.tick
	c.count(regs.TransmitResentSyn + regs.TransmitClientEnd*regs.TransmitStride)
	c.sendSynAck(n, w, out)
}

// establish completes the client's handshake. Payload of the same segment is the beginning of the request.
func (c *Core) establish(p *packet, w *page, out *Output) {
	if p.ack != w[regs.PageIsn]+1 {
		if c.outOfPlace(w, regs.ConnectionDropBadAck) {
			c.replyRST(p, p.ack, 0, flagRST, out)
		}
		return
	}
	c.setState(w, WaitHead)
	c.count(regs.ConnectionEstablished)
	w[regs.PageOptions] = regs.SetPageOptionsRetries(w[regs.PageOptions], 0)
	c.seenClient(p, w)
	c.arm(w, c.tick+c.waitHead(w))
	if c.tells(regs.HostifEventsEstablishedMask) {
		c.event(regs.EventControlTypeEstablished, 0, p.handle&handleMask, w)
	}
	switch p.segment {
	case Data, URG, FINData:
		w[regs.PagePacketsClient] -= p.segs // hold counts the segment
		c.hold(p, w, out)
	case FIN:
		c.clientGone(p, w, out)
	}
	c.greet(p, w, out)
}

// waitHead is the time-out of WAIT_HEAD of the page's service.
func (c *Core) waitHead(w *page) uint32 {
	if t := c.service(regs.PageIndexService(w[regs.PageIndex]))[regs.ServiceWaitHead]; t != 0 {
		return t
	}
	return c.ticks(regs.TimerWaitHead)
}

// seenClient notes what a client segment before the splice tells: that it lives, its window, its clock, and whether the
// network was crowded on its way.
func (c *Core) seenClient(p *packet, w *page) {
	w[regs.PageLastSeen] = c.tick
	w[regs.PagePacketsClient] += p.segs
	w[regs.PageAWindow] = regs.SetPageAWindowClient(w[regs.PageAWindow], p.window())
	if w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0 {
		if o := p.options(); o.timestamps && int32(o.tsval-w[regs.PageClientTimestamp]) > 0 {
			w[regs.PageClientTimestamp] = o.tsval
		}
	}
	if w[regs.PageClientLink]&regs.PageClientLinkEcnMask != 0 {
		if p.flags&flagCWR != 0 {
			w[regs.PageClientLink] &^= regs.PageClientLinkCongestionMask
		}
		if p.ecn() == ecnCE {
			w[regs.PageClientLink] |= regs.PageClientLinkCongestionMask
		}
	}
}

// reopen gives a newer SYN of the same client port a connection of its own. In quarantine both ends are done; a SYN is
// newer with a higher sequence number or a newer timestamp. After a RST no end keeps the old connection's numbers, and a
// SYN is newer with any but its own.
func (c *Core) reopen(p *packet, w *page, out *Output) {
	const fins = regs.PageClientLinkFinClientAckedMask | regs.PageClientLinkFinServerAckedMask
	newer := int32(p.seq-w[regs.PageASeqClient+inForce(w[regs.PageControl])]) > 0 ||
		w[regs.PageClientLink]&fins != fins && p.seq != w[regs.PageClientIsn]
	if o := p.options(); !newer && o.timestamps && w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0 {
		newer = int32(o.tsval-w[regs.PageClientTimestamp]) > 0
	}
	if !newer {
		c.count(regs.ConnectionDropOldSyn)
		return
	}
	c.count(regs.ConnectionReused)
	c.recycle(p.handle&handleMask, w)
	p.hit = false
	c.begin(p, out)
}

// clientGone ends a connection whose client sent FIN before it made a request. Whether it has made one that the host
// gathers the host knows.
func (c *Core) clientGone(p *packet, w *page, out *Output) {
	n := p.handle & handleMask
	next := c.expected(w)
	if gathers(w) {
		c.gather(p, w, out)
		return
	}
	if p.seq != next {
		c.probe(p, w, out)
		return
	}
	if w[regs.PageControl]&regs.PageControlWaitingHostMask != 0 { // the end of a request, which the client sends again
		c.count(regs.ConnectionDropWaitingHost)
		return
	}
	c.resetClient(w, out)
	c.abort(n, w, reasonAbortClientGone)
}

// clientReset ends a connection on an exact RST before the splice (RFC 5961, 3.2).
func (c *Core) clientReset(p *packet, w *page, out *Output) {
	n := p.handle & handleMask
	if State(regs.PageControlState(w[regs.PageControl])) == ServerSyn {
		c.resetServer(w, 0, w[regs.PageAIsn]+1, out)
	}
	c.abort(n, w, reasonAbortClientGone)
}

// room is how much the head buffer still takes.
func (c *Core) room(w *page) uint32 {
	if w[regs.PageControl]&regs.PageControlHeadMask == 0 {
		return c.headBytes()
	}
	return c.headBytes() - heldBytes(w)
}

// expected is the next sequence number of the client before the splice: H.
func (c *Core) expected(w *page) uint32 { return w[regs.PageHeldBoundary] }

// promise notes the right edge of the window that the client is given, so many bytes beyond H. It lies where the head
// buffer ends, and stays there when what is inserted leaves less room: what does not fit then is not acknowledged.
func (c *Core) promise(w *page, n uint32) { w[regs.PageAAckServer] = w[regs.PageHeldBoundary] + n }

// promised is how much the client may send from a number of its own on, by the window that it was given before the splice.
func (c *Core) promised(w *page, from uint32) uint32 {
	if left := w[regs.PageAAckServer] - from; left <= c.headBytes() {
		return left
	}
	return 0
}

// probe answers a segment that brings nothing new: a repeated SYN or byte, a keep-alive probe, a wrong acknowledgement.
func (c *Core) probe(p *packet, w *page, out *Output) {
	next := c.expected(w)
	if p.segment == ACK && p.seq == next && p.ack == w[regs.PageIsn]+1 {
		c.seenClient(p, w)
		return
	}
	counter := regs.ConnectionDropDuplicate
	switch {
	case p.flags&flagACK != 0 && p.ack != w[regs.PageIsn]+1:
		counter = regs.ConnectionDropBadAck
	case int32(p.seq-next) > 0:
		counter = regs.ConnectionDropOutOfOrder
	case p.segment == Data && p.seq == next:
		counter = regs.ConnectionDropNoRoom
	}
	if c.outOfPlace(w, counter) {
		c.ackClient(w, out)
	}
}

// arm sets the page's one deadline.
func (c *Core) arm(w *page, deadline uint32) {
	w[regs.PageControl] |= regs.PageControlDeadlineMask
	w[regs.PageDeadline] = deadline
}

func (c *Core) disarm(w *page) { w[regs.PageControl] &^= regs.PageControlDeadlineMask }

// ticks reads a time-out register.
func (c *Core) ticks(r regs.Reg) uint32 { return c.r.Get(r) & regs.TimerIdleTicksMask }
