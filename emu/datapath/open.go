package datapath

import (
	"encoding/binary"

	"splicenic/emu/cam"
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

func (p *packet) options() options { return readOptions(p.b[p.tcp+20 : p.payload]) }

func (p *packet) window() uint32 { return uint32(binary.BigEndian.Uint16(p.b[p.tcp+14:])) }

// open answers a client's SYN: a page, a client-side CAM entry, a SYN-ACK.
func (c *Core) open(p *packet, out *Output) {
	service := int32(-1)
	if p.vip >= 0 {
		service = c.findService(uint32(p.vip), p.dport)
	}
	if service < 0 {
		c.exception(p, 0)
		return
	}
	if regs.AmuControlEnable(c.r.Get(regs.AmuControl)) == 0 {
		c.count(regs.AmuDisabled)
		c.refuse(p, out)
		return
	}
	n, ok := c.allocate()
	if !ok {
		c.count(regs.AmuNoPage)
		c.refuse(p, out)
		return
	}
	w := c.page(n)
	if c.cams[ClientSide].Insert(&p.key[ClientSide], p.hash[ClientSide], handleOf(n, w), false) != cam.OK {
		c.count(regs.AmuNoCamPlace)
		c.r.Set(regs.AmuLive, c.r.Get(regs.AmuLive)-1)
		c.release(n, w)
		c.refuse(p, out)
		return
	}
	c.fillPage(p, w, n, uint32(service))
	c.count(regs.ConnectionOpened)
	c.event(regs.EventControlTypeOpened, 0, n, w)
	c.sendSynAck(n, w, out)
	c.arm(w, c.tick+c.ticks(regs.TimerRetransmit))
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
	w[regs.PageClientLink] = link
	w[regs.PageOptions] = opts
	w[regs.PageClientMacLo] = binary.BigEndian.Uint32(p.b[8:])
	w[regs.PageClientMacHi] = uint32(binary.BigEndian.Uint16(p.b[6:])) | mss<<regs.PageClientMacHiMssShift
	w[regs.PageLastSeen] = c.tick
	w[regs.PagePacketsClient] = 1
	w[regs.PageClientIsn] = p.seq
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
	w[regs.PageTimestampBase] = clock
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
	if p.seq != w[regs.PageClientIsn] {
		service := regs.PageIndexService(w[regs.PageIndex])
		keep := w[regs.PageControl] & (regs.PageControlGenerationMask | regs.PageControlValidMask)
		*w = page{}
		w[regs.PageControl] = keep
		c.fillPage(p, w, n, service)
		c.arm(w, c.tick+c.ticks(regs.TimerRetransmit))
	}
	w[regs.PageLastSeen] = c.tick
	c.count(regs.TransmitResentSyn + regs.TransmitClientEnd*regs.TransmitStride)
	c.sendSynAck(n, w, out)
}

// establish completes the client's handshake. Payload of the same segment is the beginning of the request.
func (c *Core) establish(p *packet, w *page, out *Output) {
	if p.ack != w[regs.PageIsn]+1 {
		c.count(regs.ConnectionDropBadAck)
		c.replyRST(p, p.ack, 0, flagRST, out)
		return
	}
	c.setState(w, WaitHead)
	c.count(regs.ConnectionEstablished)
	w[regs.PageOptions] = regs.SetPageOptionsRetries(w[regs.PageOptions], 0)
	c.seenClient(p, w)
	c.arm(w, c.tick+c.waitHead(w))
	switch p.segment {
	case Data, FINData:
		w[regs.PagePacketsClient] -= p.segs // hold counts the segment
		c.hold(p, w, out)
	case FIN:
		c.clientGone(p, w, out)
	}
}

// waitHead is the time-out of WAIT_HEAD of the page's service.
func (c *Core) waitHead(w *page) uint32 {
	if t := c.service(regs.PageIndexService(w[regs.PageIndex]))[regs.ServiceWaitHead]; t != 0 {
		return t
	}
	return c.ticks(regs.TimerWaitHead)
}

// seenClient notes what a client segment before the splice tells: that it lives, its window, its clock.
func (c *Core) seenClient(p *packet, w *page) {
	w[regs.PageLastSeen] = c.tick
	w[regs.PagePacketsClient] += p.segs
	w[regs.PageAWindow] = regs.SetPageAWindowClient(w[regs.PageAWindow], p.window())
	if w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0 {
		if o := p.options(); o.timestamps && int32(o.tsval-w[regs.PageClientTimestamp]) > 0 {
			w[regs.PageClientTimestamp] = o.tsval
		}
	}
}

// reopen gives a newer SYN of the same client port a connection of its own. In quarantine both ends are done; a SYN is
// newer with a higher sequence number or a newer timestamp.
func (c *Core) reopen(p *packet, w *page, out *Output) {
	newer := int32(p.seq-w[regs.PageASeqClient+inForce(w[regs.PageControl])]) > 0
	if o := p.options(); !newer && o.timestamps && w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0 {
		newer = int32(o.tsval-w[regs.PageClientTimestamp]) > 0
	}
	if !newer {
		c.count(regs.ConnectionDropOldSyn)
		return
	}
	c.count(regs.ConnectionReused)
	c.recycle(p.handle&handleMask, w)
	c.open(p, out)
}

// clientGone ends a connection whose client sent FIN before it made a request.
func (c *Core) clientGone(p *packet, w *page, out *Output) {
	n := p.handle & handleMask
	next := c.expected(w)
	if p.seq != next {
		c.probe(p, w, out)
		return
	}
	c.resetClient(w, out)
	c.abort(n, w, reasonAbortClientGone)
}

// clientReset ends a connection on an exact RST before the splice (RFC 5961, 3.2).
func (c *Core) clientReset(p *packet, w *page, out *Output) {
	if p.seq != c.expected(w) {
		c.count(regs.ConnectionDropRst)
		return
	}
	n := p.handle & handleMask
	if State(regs.PageControlState(w[regs.PageControl])) == ServerSyn {
		c.resetServer(w, 0, w[regs.PageAIsn]+1, out)
	}
	c.abort(n, w, reasonAbortClientGone)
}

// expected is the next sequence number of the client before the splice.
func (c *Core) expected(w *page) uint32 {
	next := w[regs.PageClientIsn] + 1
	if w[regs.PageControl]&regs.PageControlHeadMask != 0 {
		next += heldBytes(w)
	}
	if w[regs.PageClientLink]&regs.PageClientLinkFinClientMask != 0 {
		next++
	}
	return next
}

// probe answers a segment that brings nothing new: a repeated SYN or byte, a keep-alive probe, a wrong acknowledgement.
func (c *Core) probe(p *packet, w *page, out *Output) {
	next := c.expected(w)
	if p.segment == ACK && p.seq == next && p.ack == w[regs.PageIsn]+1 {
		c.seenClient(p, w)
		return
	}
	switch {
	case p.flags&flagACK != 0 && p.ack != w[regs.PageIsn]+1:
		c.count(regs.ConnectionDropBadAck)
	case int32(p.seq-next) > 0:
		c.count(regs.ConnectionDropOutOfOrder)
	default:
		c.count(regs.ConnectionDropDuplicate)
	}
	c.ackClient(w, out)
}

// arm sets the page's one deadline.
func (c *Core) arm(w *page, deadline uint32) {
	w[regs.PageControl] |= regs.PageControlDeadlineMask
	w[regs.PageDeadline] = deadline
}

func (c *Core) disarm(w *page) { w[regs.PageControl] &^= regs.PageControlDeadlineMask }

// ticks reads a time-out register.
func (c *Core) ticks(r regs.Reg) uint32 { return c.r.Get(r) & regs.TimerIdleTicksMask }
