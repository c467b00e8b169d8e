package datapath

import (
	"encoding/binary"

	"splicenic/emu/frame"
	"splicenic/regs"
)

const (
	hopLimit    = 64
	maxOptions  = 40
	maxHeadroom = 14 + 4 + 40 + 20 + maxOptions
)

// route is everything below TCP of a segment that a transmit end makes.
type route struct {
	src, dst     address
	srcLo, srcHi uint32 // MAC addresses as numbers
	dstLo, dstHi uint32
	vlan         uint32
	port         uint32
	mtu          uint32
	kind         uint8
	tagged       bool
	sport, dport uint32
	tunnel, hop  []uint32 // the server behind a tunnel, and its next hop; nil: none
}

// segment is the TCP part of it.
type segment struct {
	seq, ack uint32
	window   uint32
	flags    uint8
	nopt     int
	opt      [maxOptions]byte
}

func (s *segment) add(b ...byte) {
	s.nopt += copy(s.opt[s.nopt:], b)
}

func (s *segment) addMSS(mss uint32) { s.add(2, 4, byte(mss>>8), byte(mss)) }

func (s *segment) addTimestamps(val, ecr uint32) {
	s.add(1, 1, 8, 10)
	binary.BigEndian.PutUint32(s.opt[s.nopt:], val)
	binary.BigEndian.PutUint32(s.opt[s.nopt+4:], ecr)
	s.nopt += 8
}

// make builds a segment with full checksums. It returns nil, counted, where the batch's output is used up.
func (c *Core) make(r *route, s *segment, payload []byte, out *Output) *frame.Frame {
	ipBytes := 20
	if r.kind == kindIPv6 {
		ipBytes = 40
	}
	at := 14
	if r.tagged {
		at = 18
	}
	tcp := at + ipBytes
	end := tcp + 20 + s.nopt + len(payload)
	f := out.take(end)
	if f == nil {
		c.count(regs.ConnectionDropOutputFull)
		return nil
	}
	b := f.Bytes()
	putMAC(b, r.dstHi, r.dstLo)
	putMAC(b[6:], r.srcHi, r.srcLo)
	if r.tagged {
		binary.BigEndian.PutUint16(b[12:], etherVLAN)
		binary.BigEndian.PutUint16(b[14:], uint16(r.vlan))
	}
	ip, t := b[at:], b[tcp:]
	length := len(t)
	var pseudo uint64
	if r.kind == kindIPv6 {
		binary.BigEndian.PutUint16(b[at-2:], etherIPv6)
		binary.BigEndian.PutUint32(ip, 6<<28)
		binary.BigEndian.PutUint16(ip[4:], uint16(length))
		ip[6], ip[7] = protocolTCP, hopLimit
		store6(ip[8:], &r.src)
		store6(ip[24:], &r.dst)
		pseudo = frame.Pseudo6(ip, protocolTCP, length)
	} else {
		binary.BigEndian.PutUint16(b[at-2:], etherIPv4)
		binary.BigEndian.PutUint16(ip, 0x4500)
		binary.BigEndian.PutUint16(ip[2:], uint16(20+length))
		binary.BigEndian.PutUint32(ip[4:], 0x4000) // don't fragment
		ip[8], ip[9], ip[10], ip[11] = hopLimit, protocolTCP, 0, 0
		binary.BigEndian.PutUint32(ip[12:], r.src[0])
		binary.BigEndian.PutUint32(ip[16:], r.dst[0])
		binary.BigEndian.PutUint16(ip[10:], ^frame.Fold(frame.Sum(ip[:20], 0)))
		pseudo = frame.Pseudo4(ip, protocolTCP, length)
	}
	binary.BigEndian.PutUint16(t, uint16(r.sport))
	binary.BigEndian.PutUint16(t[2:], uint16(r.dport))
	binary.BigEndian.PutUint32(t[4:], s.seq)
	binary.BigEndian.PutUint32(t[8:], s.ack)
	t[12], t[13] = byte(20+s.nopt)<<2, s.flags
	binary.BigEndian.PutUint16(t[14:], uint16(s.window))
	binary.BigEndian.PutUint32(t[16:], 0)
	copy(t[20:], s.opt[:s.nopt])
	copy(t[20+s.nopt:], payload)
	binary.BigEndian.PutUint16(t[16:], ^frame.Fold(frame.Sum(t, pseudo)))
	if r.tunnel != nil {
		in := inner{f.Start + uint32(at), f.Start + uint32(tcp), f.End, r.kind}
		c.wrapMade(f, &in, r, out)
		return f
	}
	c.send(f, r.port, out)
	return f
}

func putMAC(b []byte, hi, lo uint32) {
	binary.BigEndian.PutUint16(b, uint16(hi))
	binary.BigEndian.PutUint32(b[2:], lo)
}

// clientRoute leads to the client the way its SYN came.
func (c *Core) clientRoute(w *page, r *route) {
	link := w[regs.PageClientLink]
	*r = route{
		src: c.vip(regs.PageIndexVip(w[regs.PageIndex])), dst: address(w[regs.PageClientAddress:]),
		dstLo: w[regs.PageClientMacLo], dstHi: regs.PageClientMacHiAddress(w[regs.PageClientMacHi]),
		vlan: regs.PageClientLinkVlan(link), tagged: link&regs.PageClientLinkTaggedMask != 0,
		port: regs.PageControlPort(w[regs.PageControl]), kind: uint8(regs.PageControlKind(w[regs.PageControl])),
		sport: regs.PagePortsVip(w[regs.PagePorts]), dport: regs.PagePortsClient(w[regs.PagePorts]),
	}
	r.srcLo, r.srcHi = c.mac(r.port)
}

func (c *Core) vip(i uint32) address {
	return address(entry(c.m.Vip, i, vipWords)[regs.AddressAddress:])
}

// serverRoute leads to the server of a leg. It returns false where the next hop is not known.
func (c *Core) serverRoute(w *page, leg int, r *route) bool {
	s := c.server(regs.PageAIndexServer(w[regs.PageAIndex+leg]))
	hop := c.hop(s)
	if hop == nil || regs.NextHopControlResolved(hop[regs.NextHopControl]) == 0 {
		c.count(regs.ConnectionDropNextHop)
		return false
	}
	h, e := hop[regs.NextHopControl], c.serverEnds(w, leg)
	*r = route{
		src: e.src, dst: e.dst,
		dstLo: hop[regs.NextHopMacLo], dstHi: regs.NextHopMacHiAddress(hop[regs.NextHopMacHi]),
		vlan: regs.NextHopControlVlan(h), tagged: regs.NextHopControlTagged(h) != 0,
		port: regs.NextHopControlPort(h), kind: uint8(e.kind),
		sport: e.sport, dport: e.dport,
	}
	if regs.ServerControlMethod(s[regs.ServerControl]) == methodTun {
		r.tunnel, r.hop = s, hop
	}
	r.srcLo, r.srcHi = c.mac(r.port)
	r.mtu = c.serverMTU(s, hop)
	return true
}

const (
	clientEnd = regs.Reg(regs.TransmitClientEnd) * regs.TransmitStride
	serverEnd = regs.Reg(regs.TransmitServerEnd) * regs.TransmitStride
)

// sendSynAck acts as the server in the client's handshake. Only options that the client offered and the service
// promises are in it.
func (c *Core) sendSynAck(n uint32, w *page, out *Output) {
	var r route
	c.clientRoute(w, &r)
	link := w[regs.PageClientLink]
	s := segment{seq: w[regs.PageIsn], ack: w[regs.PageClientIsn] + 1, flags: flagSYN | flagACK, window: min(c.headBytes(), 0xffff)}
	s.addMSS(regs.PageClientMacHiMss(w[regs.PageClientMacHi]))
	switch sack := link&regs.PageClientLinkSackMask != 0; {
	case link&regs.PageClientLinkTimestampsMask != 0:
		val, ecr := w[regs.PageTimestampBase], w[regs.PageClientTimestamp]
		if sack {
			s.add(4, 2, 8, 10)
		} else {
			s.add(1, 1, 8, 10)
		}
		s.add(byte(val>>24), byte(val>>16), byte(val>>8), byte(val), byte(ecr>>24), byte(ecr>>16), byte(ecr>>8), byte(ecr))
	case sack:
		s.add(1, 1, 4, 2)
	}
	if link&regs.PageClientLinkWscaleMask != 0 {
		s.add(1, 3, 3, byte(regs.PageOptionsPromisedWscale(w[regs.PageOptions])))
	}
	if link&regs.PageClientLinkEcnMask != 0 {
		s.flags |= flagECE
	}
	c.count(regs.TransmitSyn + clientEnd)
	c.make(&r, &s, nil, out)
}

// ackClient acknowledges what is held, with the room that is left, or, after the splice, what the server owes.
func (c *Core) ackClient(w *page, out *Output) {
	var r route
	c.clientRoute(w, &r)
	s := segment{seq: w[regs.PageIsn] + 1, ack: c.expected(w), flags: flagACK}
	if w[regs.PageAScale]&regs.PageAScaleArmedMask != 0 {
		scale := w[regs.PageAScale]
		s.seq, s.ack = w[regs.PageASeqServer], w[regs.PageHeldBoundary]
		s.window = regs.PageAWindowServer(w[regs.PageAWindow])
		s.window = shiftWindow(s.window-min(s.window, windowBelow(s.ack-w[regs.PageAAckServer], scale)), int32(regs.PageAScaleServer(scale)<<27)>>27)
	} else {
		s.window = c.promised(w, s.ack)
		if w[regs.PageClientLink]&regs.PageClientLinkWscaleMask != 0 { // rounded up: what does not fit is not acknowledged
			s.window = shiftWindow(s.window, -int32(regs.PageOptionsPromisedWscale(w[regs.PageOptions])))
		}
		s.window = min(s.window, 0xffff)
	}
	if w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0 {
		s.addTimestamps(w[regs.PageTimestampBase], w[regs.PageClientTimestamp])
	}
	if w[regs.PageClientLink]&regs.PageClientLinkCongestionMask != 0 {
		s.flags |= flagECE
	}
	c.count(regs.TransmitAck + clientEnd)
	c.make(&r, &s, nil, out)
}

// resetClient sends the client an exact RST.
func (c *Core) resetClient(w *page, out *Output) {
	var r route
	c.clientRoute(w, &r)
	s := segment{seq: w[regs.PageIsn] + 1, ack: c.expected(w), flags: flagRST | flagACK}
	if leg := inForce(w[regs.PageControl]); w[regs.PageAScale+leg]&regs.PageAScaleArmedMask != 0 {
		s.seq, s.ack = w[regs.PageASeqServer+leg], serverHas(w, leg)
	} else if replies(w) {
		s.seq, s.ack = w[regs.PageASeqServer], w[regs.PageASeqClient]
	}
	c.count(regs.TransmitRst + clientEnd)
	c.make(&r, &s, nil, out)
}

// resetServer sends the server of a leg a RST with the given sequence number.
func (c *Core) resetServer(w *page, leg int, seq uint32, out *Output) {
	var r route
	if !c.serverRoute(w, leg, &r) {
		return
	}
	s := segment{seq: seq, flags: flagRST}
	c.count(regs.TransmitRst + serverEnd)
	c.make(&r, &s, nil, out)
}

// sendServerSyn acts as the client in the server's handshake. It offers what was promised to the client, with the
// client's own values; the MSS also fits the link to the client.
func (c *Core) sendServerSyn(w *page, out *Output) {
	var r route
	if !c.serverRoute(w, 0, &r) {
		return
	}
	link, opts := w[regs.PageClientLink], w[regs.PageOptions]
	window := regs.PageAWindowClient(w[regs.PageAWindow])
	if link&regs.PageClientLinkWscaleMask != 0 {
		window <<= regs.PageOptionsClientWscale(opts)
	}
	s := segment{seq: w[regs.PageAIsn], flags: flagSYN, window: min(window, 0xffff)}
	s.addMSS(min(regs.PageOfferMss(w[regs.PageOffer]), mssFor(r.mtu, r.kind), mssFor(c.mtu(regs.PageControlPort(w[regs.PageControl])), uint8(regs.PageControlKind(w[regs.PageControl])))))
	switch sack := link&regs.PageClientLinkSackMask != 0; {
	case link&regs.PageClientLinkTimestampsMask != 0:
		if val := w[regs.PageClientTimestamp] + w[regs.PageATimestampClient]; sack {
			s.add(4, 2, 8, 10, byte(val>>24), byte(val>>16), byte(val>>8), byte(val), 0, 0, 0, 0)
		} else {
			s.addTimestamps(val, 0)
		}
	case sack:
		s.add(1, 1, 4, 2)
	}
	if link&regs.PageClientLinkWscaleMask != 0 {
		s.add(1, 3, 3, byte(regs.PageOptionsClientWscale(opts)))
	}
	if link&regs.PageClientLinkEcnMask != 0 {
		s.flags |= flagECE | flagCWR
	}
	c.count(regs.TransmitSyn + serverEnd)
	c.make(&r, &s, nil, out)
}

// mssFor is what an MTU leaves beside the IP and TCP headers; options are not taken off (RFC 9293, 3.7.1).
func mssFor(mtu uint32, kind uint8) uint32 {
	headers := uint32(40)
	if kind == kindIPv6 {
		headers = 60
	}
	return max(mtu, headers) - headers
}

// toServerSegment fills in what every segment to an armed server has in common.
func (c *Core) toServerSegment(w *page, leg int, s *segment) {
	scale := w[regs.PageAScale+leg]
	s.ack = w[regs.PageAAckClient+leg] - w[regs.PageADeltaServer+leg]
	s.window = shiftWindow(regs.PageAWindowClient(w[regs.PageAWindow+leg]), int32(regs.PageAScaleClient(scale)<<27)>>27)
	s.flags |= flagACK
	if scale&regs.PageAScaleTimestampsMask != 0 {
		s.addTimestamps(w[regs.PageClientTimestamp]+w[regs.PageATimestampClient+leg], w[regs.PageTimestampBase]-w[regs.PageATimestampServer+leg])
	}
}

// ackServer sends the server of a leg an ACK without payload.
func (c *Core) ackServer(w *page, leg int, out *Output) {
	var r route
	if !c.serverRoute(w, leg, &r) {
		return
	}
	s := segment{seq: serverHas(w, leg) + w[regs.PageADeltaClient+leg]}
	c.toServerSegment(w, leg, &s)
	c.count(regs.TransmitAck + serverEnd)
	c.make(&r, &s, nil, out)
}

// sendHeld sends what is held and not sent yet, in segments of the server's MSS, within its window and the initial
// window, but at least a number of bytes: one probes a closed window. A held FIN goes with the last byte.
func (c *Core) sendHeld(w *page, least uint32, out *Output) {
	var r route
	if !c.serverRoute(w, 0, &r) {
		return
	}
	scale := w[regs.PageAScale]
	mss := max(min(regs.PageALocalMss(w[regs.PageALocal]), mssFor(r.mtu, r.kind)), 1)
	if scale&regs.PageAScaleTimestampsMask != 0 {
		mss -= min(mss-1, 12)
	}
	h := c.held(w)
	sent := max(regs.PageARtoSent(w[regs.PageARto]), h.acked)
	window := regs.PageAWindowServer(w[regs.PageAWindow]) << regs.PageAScaleServerWscale(scale)
	limit := h.acked + max(min(window, maxHeldSegments*mss), least)
	head := c.head(w)
	for sent < h.end && sent < limit {
		s := segment{seq: w[regs.PageAIsn] + 1 + h.base + sent}
		c.toServerSegment(w, 0, &s)
		n := min(mss, h.stored-min(sent, h.stored), limit-sent)
		payload := head[min(sent, h.stored):][:n]
		sent += n
		if sent == h.stored && h.stored == h.left {
			if n != 0 {
				s.flags |= flagPSH
			}
			if h.end > h.stored {
				s.flags |= flagFIN
				sent++
			}
		}
		c.count(regs.TransmitHeld + serverEnd)
		if c.make(&r, &s, payload, out) == nil {
			break
		}
	}
	w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], sent)
}

// replyRST answers a segment with RST from where it was sent to.
func (c *Core) replyRST(p *packet, seq, ack uint32, flags uint8, out *Output) {
	r := route{
		src: p.dst, dst: p.src, sport: p.dport, dport: p.sport, kind: p.kind, vlan: p.vlan, tagged: p.tagged, port: uint32(p.port),
		dstLo: binary.BigEndian.Uint32(p.b[8:]), dstHi: uint32(binary.BigEndian.Uint16(p.b[6:])),
	}
	r.srcLo, r.srcHi = c.mac(r.port)
	s := segment{seq: seq, ack: ack, flags: flags}
	c.count(regs.TransmitRst + regs.Reg(p.side)*regs.TransmitStride)
	c.make(&r, &s, nil, out)
}
