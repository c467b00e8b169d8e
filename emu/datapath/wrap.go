package datapath

import (
	"encoding/binary"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// A server behind a tunnel gets the client's packet as it is, one hop older, in a packet of this card:
//
//	ipip  | IP |                    | IP | TCP or UDP …      RFC 2003, RFC 4213, RFC 2473
//	gre   | IP | GRE [sum]          | IP | …                 RFC 2784
//	gue   | IP | UDP | GUE [remote] | IP | …                 draft-ietf-intarea-gue-09, variant 0
//
// The outer header says: from the local address of the server's route to the server; 64 hops; DSCP and ECN those of the
// inner packet (RFC 2983, RFC 6040). Over IPv4 it is never to be fragmented and its identification zero (RFC 6864, 4.1),
// as Linux's tunnels are with pmtudisc: what does not fit the path goes to the host, which tells the sender, or cuts what
// may be cut. Over IPv6 the flow label, and with gue the source port, are a hash of the inner addresses and ports, so that
// routers on the way spread connections (RFC 6438); the UDP checksum may be zero (RFC 6935).
//
// With dscp there is no tunnel (L3DSR): the packet goes to the server's own address, and its DSCP tells the server which
// VIP to put back.

const (
	methodNAT     = regs.ServerControlMethodNat
	methodFullNAT = regs.ServerControlMethodFullnat
	methodTun     = regs.ServerControlMethodTun
	methodDR      = regs.ServerControlMethodDr

	protocolIPv4 = 4 // IP in IP
	protocolIPv6 = 41
	protocolGRE  = 47

	greBytes    = 4
	greSumBytes = 4
	udpBytes    = 8
	gueBytes    = 4
	remoteBytes = 8 // private flags and the place of the inner checksum

	outerHops      = 64
	maxOuter       = 40 + udpBytes + gueBytes + remoteBytes
	flowPorts      = 0xc000 // the ephemeral ports (RFC 8086, 3.1.1)
	guePrivate     = 0x0001 // flags: private flags follow
	gueRemote      = 1 << 31
	greSum         = 0x8000 // flags: a checksum follows
	maxTotalLength = 0xffff
)

// overhead is how many bytes a packet for a server grows on its way out.
func (c *Core) overhead(s []uint32) uint32 {
	if regs.ServerControlMethod(s[regs.ServerControl]) != methodTun {
		return 0
	}
	return outerBytes(s)
}

// outerBytes is the length of the outer headers of a server's tunnel.
func outerBytes(s []uint32) uint32 {
	n, t := uint32(20), s[regs.ServerTunnel]
	if regs.ServerControlKind(s[regs.ServerControl]) == kindIPv6 {
		n = 40
	}
	sum := regs.ServerTunnelChecksum(t)
	switch regs.ServerTunnelType(t) {
	case regs.ServerTunnelTypeIpip:
		return n
	case regs.ServerTunnelTypeGre:
		if sum != regs.ServerTunnelChecksumNone {
			n += greSumBytes
		}
		return n + greBytes
	case regs.ServerTunnelTypeGue:
		if sum == regs.ServerTunnelChecksumRemote {
			n += remoteBytes
		}
		return n + udpBytes + gueBytes
	}
	return 0
}

// serverMTU is the longest packet of a client that can go on to a server by a next hop.
func (c *Core) serverMTU(s, hop []uint32) uint32 {
	mtu, more := c.hopMTU(hop), c.overhead(s)
	return mtu - min(mtu, more)
}

// inner is the packet that is wrapped. Offsets are those of its frame's buffer.
type inner struct {
	ip, transport, end uint32
	kind               uint8
}

// wrap sends a packet, whose bytes are as the server is to get them, to a server behind a tunnel. A coalesced one is cut
// before.
func (c *Core) wrap(p *packet, s, hop []uint32, out *Output) {
	if regs.ServerTunnelType(s[regs.ServerTunnel]) == regs.ServerTunnelTypeDscp {
		c.markDSCP(p, s, hop, out)
		return
	}
	if !c.hasOuter(s) {
		c.count(regs.PassDropFamily)
		return
	}
	if p.f.Offload.GSOType != frame.GSONone {
		c.wrapSegments(p, s, hop, out)
		return
	}
	f := p.f
	in := inner{f.Start + p.ip, f.Start + p.tcp, f.Start + p.end, p.kind}
	if in.ip < maxOuter+18 { // somebody left no room before the frame
		n := in.end - in.ip
		to := out.take(int(maxOuter + 18 + n))
		if to == nil {
			c.count(regs.ConnectionDropOutputFull)
			return
		}
		at := to.Start + maxOuter + 18
		copy(to.Buf[at:], f.Buf[in.ip:in.end])
		f, in = to, inner{at, at + in.transport - in.ip, at + n, in.kind}
	}
	c.envelop(f, &in, s, hop, out)
}

// hasOuter says whether the addresses of an outer header are there.
func (c *Core) hasOuter(s []uint32) bool {
	l := c.local(regs.ServerRouteLocalAddress(s[regs.ServerRoute]))
	return regs.AddressControlValid(l[regs.AddressControl]) != 0 &&
		regs.AddressControlKind(l[regs.AddressControl]) == regs.ServerControlKind(s[regs.ServerControl])
}

// local returns the words of a local address.
func (c *Core) local(i uint32) []uint32 { return entry(c.m.LocalAddress, i, regs.AddressWords) }

// envelop writes outer and link headers before an inner packet and queues the frame. What is before the inner packet in
// the buffer is overwritten.
func (c *Core) envelop(f *frame.Frame, in *inner, s, hop []uint32, out *Output) {
	t, wide := s[regs.ServerTunnel], regs.ServerControlKind(s[regs.ServerControl]) == kindIPv6
	ip := f.Buf[in.ip:in.end:in.end]
	protocol, ether, tos := uint8(protocolIPv4), uint16(etherIPv4), uint8(0)
	if in.kind == kindIPv6 {
		protocol, ether, tos = protocolIPv6, etherIPv6, uint8(binary.BigEndian.Uint16(ip)>>4)
	} else {
		tos = ip[1]
	}
	flow := flowHash(ip, f.Buf[in.transport:in.end], in.kind)
	at := in.ip // where what is written so far begins
	switch sum := regs.ServerTunnelChecksum(t); regs.ServerTunnelType(t) {
	case regs.ServerTunnelTypeGre:
		at = putGRE(f.Buf, in, ether, sum != regs.ServerTunnelChecksumNone)
		protocol = protocolGRE
		c.count(regs.PassWrappedGre)
	case regs.ServerTunnelTypeGue:
		at = c.putGUE(f.Buf, in, s, protocol, sum, flow)
		protocol = protocolUDP
		c.count(regs.PassWrappedGue)
	default:
		c.count(regs.PassWrappedIpip)
	}
	length := in.end - at
	headers := uint32(20)
	if wide {
		headers = 40
	}
	if length+headers > maxTotalLength {
		c.count(regs.PassDropOversize)
		return
	}
	at -= headers
	l := address(c.local(regs.ServerRouteLocalAddress(s[regs.ServerRoute]))[regs.AddressAddress:])
	o := f.Buf[at : at+headers : at+headers]
	if wide {
		label := flow>>12 | 1 // zero says there is none
		binary.BigEndian.PutUint32(o, 6<<28|uint32(tos)<<20|label)
		binary.BigEndian.PutUint32(o[4:], length<<16|uint32(protocol)<<8|outerHops)
		store6(o[8:], &l)
		store6(o[24:], (*address)(s[regs.ServerAddress:]))
	} else {
		binary.BigEndian.PutUint32(o, 0x45<<24|uint32(tos)<<16|(length+20))
		binary.BigEndian.PutUint32(o[4:], dontFragment<<8)
		binary.BigEndian.PutUint32(o[8:], outerHops<<24|uint32(protocol)<<16)
		binary.BigEndian.PutUint32(o[12:], l[0])
		binary.BigEndian.PutUint32(o[16:], s[regs.ServerAddress])
		binary.BigEndian.PutUint16(o[10:], ^frame.Fold(frame.Sum(o, 0)))
	}
	c.link(f, at, in.end, wide, hop, out)
}

// link writes the link header of a packet that lies in a frame's buffer, and queues the frame.
func (c *Core) link(f *frame.Frame, at, end uint32, wide bool, hop []uint32, out *Output) {
	h := hop[regs.NextHopControl]
	ether := uint16(etherIPv4)
	if wide {
		ether = etherIPv6
	}
	at -= 2
	binary.BigEndian.PutUint16(f.Buf[at:], ether)
	if regs.NextHopControlTagged(h) != 0 {
		at -= 4
		binary.BigEndian.PutUint32(f.Buf[at:], etherVLAN<<16|regs.NextHopControlVlan(h))
	}
	f.Start, f.End, f.Offload = at-12, end, frame.Offload{}
	b, port := f.Bytes(), regs.NextHopControlPort(h)
	putMAC(b, regs.NextHopMacHiAddress(hop[regs.NextHopMacHi]), hop[regs.NextHopMacLo])
	lo, hi := c.mac(port)
	putMAC(b[6:], hi, lo)
	c.send(f, port, out)
}

// putGRE writes a GRE header before the inner packet and returns where it begins.
func putGRE(b []byte, in *inner, ether uint16, sum bool) uint32 {
	if !sum {
		at := in.ip - greBytes
		binary.BigEndian.PutUint32(b[at:], uint32(ether))
		return at
	}
	at := in.ip - greBytes - greSumBytes
	binary.BigEndian.PutUint32(b[at:], greSum<<16|uint32(ether))
	s := uint64(greSum) + uint64(ether) + in.sum(b)
	binary.BigEndian.PutUint32(b[at+4:], uint32(^frame.Fold(s))<<16)
	return at
}

// putGUE writes the UDP and GUE headers before the inner packet and returns where they begin. With remote the inner
// checksum becomes the sum of its pseudo-header alone, and the header says where the receiver computes the rest; the outer
// checksum covers both, as Linux has it.
func (c *Core) putGUE(b []byte, in *inner, s []uint32, protocol uint8, kind, flow uint32) uint32 {
	at := in.ip - udpBytes - gueBytes
	field := in.checksum(b)
	remote := kind == regs.ServerTunnelChecksumRemote && field != 0
	full := kind != regs.ServerTunnelChecksumNone
	if remote {
		at -= remoteBytes
	}
	var content uint64
	if full {
		content = in.sum(b)
	}
	length := in.end - at
	g := b[at:in.ip:in.ip]
	binary.BigEndian.PutUint32(g, (flowPorts|flow&^flowPorts&0xffff)<<16|regs.ServerTunnelPort(s[regs.ServerTunnel]))
	binary.BigEndian.PutUint32(g[4:], length<<16)
	if remote {
		start := in.transport - in.ip
		binary.BigEndian.PutUint32(g[8:], remoteBytes/4<<24|uint32(protocol)<<16|guePrivate)
		binary.BigEndian.PutUint32(g[12:], gueRemote)
		binary.BigEndian.PutUint32(g[16:], start<<16|(start+field-in.transport))
		pseudo := frame.Fold(in.pseudo(b))
		before := binary.BigEndian.Uint16(b[field:])
		binary.BigEndian.PutUint16(b[field:], pseudo)
		content += uint64(frame.Difference(uint64(before), uint64(pseudo)))
	} else {
		binary.BigEndian.PutUint32(g[8:], uint32(protocol)<<16)
	}
	if !full {
		return at
	}
	l := address(c.local(regs.ServerRouteLocalAddress(s[regs.ServerRoute]))[regs.AddressAddress:])
	d := address(s[regs.ServerAddress:])
	sum := ^frame.Fold(frame.Sum(g, content+sumAddress(&l)+sumAddress(&d)+protocolUDP+uint64(length)))
	if sum == 0 {
		sum = 0xffff // zero means none (RFC 768)
	}
	binary.BigEndian.PutUint16(g[6:], sum)
	return at
}

// transportProtocol is the protocol behind the IP header and its extensions.
func (in *inner) transportProtocol(b []byte) uint8 {
	if in.kind != kindIPv6 {
		return b[in.ip+9]
	}
	next, at := b[in.ip+6], in.ip+40
	for range maxExtensionHeaders {
		if at >= in.transport {
			break
		}
		next, at = b[at], at+8+uint32(b[at+1])*8
	}
	return next
}

// checksum is where the inner checksum is, zero where there is none.
func (in *inner) checksum(b []byte) uint32 {
	switch in.transportProtocol(b) {
	case protocolTCP:
		return in.transport + 16
	case protocolUDP:
		if at := in.transport + 6; binary.BigEndian.Uint16(b[at:]) != 0 {
			return at
		}
	}
	return 0
}

// pseudo is the sum of the inner pseudo-header.
func (in *inner) pseudo(b []byte) uint64 {
	ip, n := b[in.ip:in.end], int(in.end-in.transport)
	if in.kind == kindIPv6 {
		return frame.Pseudo6(ip, in.transportProtocol(b), n)
	}
	return frame.Pseudo4(ip, b[in.ip+9], n)
}

// sum is the sum of the whole inner packet. Its payload is not looked at: what is under a right checksum sums to the
// complement of its pseudo-header, and an IPv4 header to nothing.
func (in *inner) sum(b []byte) uint64 {
	head := frame.Sum(b[in.ip:in.transport], 0)
	if in.checksum(b) == 0 {
		return frame.Sum(b[in.transport:in.end], head)
	}
	return head + uint64(^frame.Fold(in.pseudo(b)))
}

// flowHash spreads connections; nobody has to guess it, so it has no key.
func flowHash(ip, transport []byte, kind uint8) uint32 {
	const odd = 0x9e3779b97f4a7c15
	h := uint64(binary.BigEndian.Uint32(transport)) * odd
	if kind == kindIPv6 {
		for at := 8; at < 40; at += 8 {
			h = (h ^ h>>32 ^ binary.BigEndian.Uint64(ip[at:])) * odd
		}
	} else {
		h = (h ^ h>>32 ^ binary.BigEndian.Uint64(ip[12:])) * odd
	}
	return uint32(h >> 32)
}

// wrapSegments cuts a coalesced packet to what the tunnel takes and wraps each segment, with a whole checksum. A packet
// has at most 65,535 bytes and a segment at least minCut.
func (c *Core) wrapSegments(p *packet, s, hop []uint32, out *Output) {
	headers := p.payload - p.ip
	mtu := c.serverMTU(s, hop)
	size := min(uint32(p.f.Offload.GSOSize), mtu-min(mtu, headers))
	if size < minCut {
		c.count(regs.PassDropOversize)
		return
	}
	if c.spill != nil && uint32(out.room()) < p.length/size+1 {
		c.spill(out)
	}
	c.count(regs.PassCut)
	const before = maxOuter + 18
	for i, at := uint32(0), uint32(0); i == 0 || at < p.length; i, at = i+1, at+size {
		n := min(size, p.length-at)
		f := out.take(int(before + headers + n))
		if f == nil {
			c.count(regs.ConnectionDropOutputFull)
			return
		}
		in := inner{f.Start + before, f.Start + before + p.tcp - p.ip, f.Start + before + headers + n, p.kind}
		b := f.Buf[in.ip:in.end]
		copy(b, p.b[p.ip:p.payload])
		copy(b[headers:], p.b[p.payload+at:p.payload+at+n])
		if p.kind == kindIPv6 {
			binary.BigEndian.PutUint16(b[4:], uint16(headers+n-40))
		} else {
			binary.BigEndian.PutUint16(b[2:], uint16(headers+n))
			binary.BigEndian.PutUint16(b[4:], binary.BigEndian.Uint16(b[4:])+uint16(i))
			binary.BigEndian.PutUint16(b[10:], 0)
			binary.BigEndian.PutUint16(b[10:], ^frame.Fold(frame.Sum(b[:p.tcp-p.ip], 0)))
		}
		t := f.Buf[in.transport:in.end]
		binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])+at)
		if i != 0 {
			t[13] &^= flagCWR
		}
		if at+n != p.length {
			t[13] &^= flagFIN | flagPSH
		}
		binary.BigEndian.PutUint16(t[16:], 0)
		binary.BigEndian.PutUint16(t[16:], ^frame.Fold(frame.Sum(t, in.pseudo(f.Buf))))
		c.envelop(f, &in, s, hop, out)
	}
}

// markDSCP sends a packet to the address of its server, whose DSCP takes the place of the packet's; what the network says
// about congestion stays.
func (c *Core) markDSCP(p *packet, s, hop []uint32, out *Output) {
	if uint32(p.kind) != regs.ServerControlKind(s[regs.ServerControl]) {
		c.count(regs.PassDropFamily)
		return
	}
	dscp := uint16(regs.ServerTunnelDscp(s[regs.ServerTunnel]))
	ip := p.b[p.ip:]
	in := inner{p.ip, p.tcp, p.end, p.kind}
	before := in.pseudo(p.b)
	if p.kind == kindIPv6 {
		binary.BigEndian.PutUint16(ip, binary.BigEndian.Uint16(ip)&^0x0fc0|dscp<<6)
		store6(ip[24:], (*address)(s[regs.ServerAddress:]))
	} else {
		old := uint64(binary.BigEndian.Uint16(ip)) + uint64(binary.BigEndian.Uint32(ip[16:]))
		ip[1] = ip[1]&3 | uint8(dscp<<2)
		binary.BigEndian.PutUint32(ip[16:], s[regs.ServerAddress])
		d := frame.Difference(old, uint64(binary.BigEndian.Uint16(ip))+uint64(binary.BigEndian.Uint32(ip[16:])))
		binary.BigEndian.PutUint16(ip[10:], frame.Update(binary.BigEndian.Uint16(ip[10:]), uint64(d)))
	}
	if p.f.Offload.GSOType != frame.GSONone {
		c.finishOffload(p, anyMTU, pathMTU(hop))
	} else if at := in.checksum(p.b); at != 0 {
		sum := frame.Update(binary.BigEndian.Uint16(p.b[at:]), uint64(frame.Difference(before, in.pseudo(p.b))))
		if sum == 0 && at == p.tcp+6 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(p.b[at:], sum)
	}
	c.count(regs.PassMarkedDscp)
	c.emitHop(p, hop, out)
}

// wrapMade sends a segment of this card's own to a server behind a tunnel.
func (c *Core) wrapMade(f *frame.Frame, in *inner, r *route, out *Output) {
	if regs.ServerTunnelType(r.tunnel[regs.ServerTunnel]) == regs.ServerTunnelTypeDscp || !c.hasOuter(r.tunnel) {
		c.count(regs.PassDropFamily)
		return
	}
	c.envelop(f, in, r.tunnel, r.hop, out)
}

// bothMSS is the largest MSS that the ways of a client and its server leave, both families' headers taken off.
func (c *Core) bothMSS(port uint32, kind uint8, s, hop []uint32) uint32 {
	return min(mssFor(c.mtu(port), kind), mssFor(c.serverMTU(s, hop), uint8(legKind(s, uint32(kind)))))
}
