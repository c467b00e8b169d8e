package datapath

import (
	"encoding/binary"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// Where client and server are of different families the IP header is translated (RFC 7915): DSCP and ECN stay, one hop is
// taken off, and extension headers, which have nothing to say behind this card, end here. Over IPv4 a packet is never to be
// fragmented and its identification is zero: an IPv6 sender does not expect fragments, and a number that has to be unique
// would be hidden state. Addresses count in the ready checksum difference; the rest of both pseudo-headers is the same sum.
// Fragments and ICMP are the host's.

// wellKnownPrefix is 64:ff9b::/96 (RFC 6052, 2.1): an IPv4 client as an IPv6 server sees it.
const wellKnownPrefix = 0x0064ff9b

// embed is an IPv4 address within the well-known prefix.
func embed(a address) address { return address{a[0], 0, 0, wellKnownPrefix} }

// crossMTU is the longest packet of one family that goes on to a network of that MTU in another.
func crossMTU(from, to, mtu uint32) uint32 {
	switch {
	case from == to:
		return mtu
	case from == kindIPv4:
		return mtu - min(mtu, 20)
	default:
		return min(mtu+20, anyMTU)
	}
}

// legKind is the family of the packets that a server gets: a tunnel leaves them as they are.
func legKind(s []uint32, kind uint32) uint32 {
	if regs.ServerControlMethod(s[regs.ServerControl]) >= methodTun {
		return kind
	}
	return regs.ServerControlKind(s[regs.ServerControl])
}

// clientMTU is the longest packet of a client's family that goes on to its server.
func (c *Core) clientMTU(kind uint32, s, hop []uint32) uint32 {
	return crossMTU(kind, legKind(s, kind), c.serverMTU(s, hop))
}

// ends are the addresses and ports of a leg as its server sees them.
type ends struct {
	src, dst     address
	sport, dport uint32
	kind         uint32
}

func (c *Core) serverEnds(w *page, leg int) (e ends) {
	index, kind := w[regs.PageAIndex+leg], regs.PageControlKind(w[regs.PageControl])
	s := c.server(regs.PageAIndexServer(index))
	client := address(w[regs.PageClientAddress:])
	if regs.PageAIndexAnswers(index) == answersVIP || regs.ServerControlMethod(s[regs.ServerControl]) >= methodTun {
		ports := w[regs.PagePorts]
		return ends{client, c.vip(regs.PageIndexVip(w[regs.PageIndex])), regs.PagePortsClient(ports), regs.PagePortsVip(ports), kind}
	}
	e = ends{client, address(s[regs.ServerAddress:]), regs.PageALocalPort(w[regs.PageALocal+leg]), c.serverPort(s, w), legKind(s, kind)}
	switch {
	case regs.PageAIndexAnswers(index) == answersLocal:
		e.src = address(c.local(regs.PageAIndexLocalAddress(index))[regs.AddressAddress:])
	case e.kind != kind:
		e.src = embed(client)
	}
	return e
}

// suits says whether a server can have clients of a family.
func suits(server []uint32, kind uint32) bool {
	is, t := regs.ServerControlKind(server[regs.ServerControl]), server[regs.ServerTunnel]
	if is == kind {
		return true
	}
	switch regs.ServerControlMethod(server[regs.ServerControl]) {
	case methodNAT:
		return is == kindIPv6 && regs.ServerTunnelNat64(t) != 0
	case methodFullNAT:
		return true
	case methodTun:
		return regs.ServerTunnelType(t) != regs.ServerTunnelTypeDscp
	}
	return false
}

// cross puts a packet, whose transport is translated, into the other family, with new addresses.
func (c *Core) cross(p *packet, kind uint8, src, dst *address) bool {
	f, old := p.f, p.b[p.ip:]
	var tos, hops uint8
	if p.kind == kindIPv6 {
		tos, hops = uint8(binary.BigEndian.Uint16(old)>>4), old[7]
	} else {
		tos, hops = old[1], old[8]
	}
	hops--
	headers := uint32(20)
	if kind == kindIPv6 {
		headers = 40
	}
	n, protocol := p.end-p.tcp, uint8(p.protocol())
	grows := int32(headers) - int32(p.tcp-p.ip)
	if int32(f.Start) < grows || headers == 20 && headers+n > maxTotalLength {
		c.count(regs.PassDropFamily)
		return false
	}
	start := uint32(int32(f.Start) - grows)
	copy(f.Buf[start:start+p.ip], p.b[:p.ip])
	f.Start = start
	f.End = uint32(int32(p.end)+grows) + start
	p.b = f.Bytes()
	move := func(at uint32) uint32 { return uint32(int32(at) + grows) }
	p.tcp, p.payload, p.end, p.kind = move(p.tcp), move(p.payload), move(p.end), kind
	ip := p.b[p.ip:p.end:p.end]
	if o := &f.Offload; o.GSOType != frame.GSONone {
		o.HdrLen, o.CsumStart = uint16(move(uint32(o.HdrLen))), uint16(move(uint32(o.CsumStart)))
		o.GSOType = o.GSOType&frame.GSOECN | frame.GSOTCP4
		if kind == kindIPv6 {
			o.GSOType = o.GSOType&frame.GSOECN | frame.GSOTCP6
		}
	}
	if kind == kindIPv4 {
		binary.BigEndian.PutUint16(p.b[p.ip-2:], etherIPv4)
		binary.BigEndian.PutUint32(ip, 0x45<<24|uint32(tos)<<16|(20+n))
		binary.BigEndian.PutUint32(ip[4:], dontFragment<<8)
		binary.BigEndian.PutUint32(ip[8:], uint32(hops)<<24|uint32(protocol)<<16)
		binary.BigEndian.PutUint32(ip[12:], src[0])
		binary.BigEndian.PutUint32(ip[16:], dst[0])
		binary.BigEndian.PutUint16(ip[10:], ^frame.Fold(frame.Sum(ip[:20], 0)))
		return true
	}
	binary.BigEndian.PutUint16(p.b[p.ip-2:], etherIPv6)
	binary.BigEndian.PutUint32(ip, 6<<28|uint32(tos)<<20)
	binary.BigEndian.PutUint32(ip[4:], n<<16|uint32(protocol)<<8|uint32(hops))
	store6(ip[8:], src)
	store6(ip[24:], dst)
	if t := ip[40:]; protocol == protocolUDP && binary.BigEndian.Uint16(t[6:]) == 0 { // IPv6 does not do without (RFC 7915, 4.5)
		sum := ^frame.Fold(frame.Sum(t, frame.Pseudo6(ip, protocolUDP, len(t))))
		if sum == 0 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(t[6:], sum)
	}
	return true
}

// readdressServer gives a packet of a client, whose transport is translated, the addresses that its server sees, and takes
// one hop off.
func (c *Core) readdressServer(p *packet, w *page, index uint32, s []uint32) bool {
	answers := regs.PageAIndexAnswers(index)
	if answers == answersVIP {
		c.oneHop(p)
		return true
	}
	if kind := uint8(regs.ServerControlKind(s[regs.ServerControl])); kind != p.kind {
		src := p.src
		if answers == answersLocal {
			src = address(c.local(regs.PageAIndexLocalAddress(index))[regs.AddressAddress:])
		} else {
			src = embed(src)
		}
		return c.cross(p, kind, &src, (*address)(s[regs.ServerAddress:]))
	}
	if p.kind == kindIPv6 {
		if answers == answersLocal {
			store6(p.b[p.ip+8:], (*address)(c.local(regs.PageAIndexLocalAddress(index))[regs.AddressAddress:]))
		}
		store6(p.b[p.ip+24:], (*address)(s[regs.ServerAddress:]))
		p.b[p.ip+7]--
		return true
	}
	if answers == answersLocal {
		binary.BigEndian.PutUint32(p.b[p.ip+12:], c.local(regs.PageAIndexLocalAddress(index))[regs.AddressAddress])
	}
	binary.BigEndian.PutUint32(p.b[p.ip+16:], s[regs.ServerAddress])
	c.finishIPv4(p)
	return true
}

// readdressClient gives a packet of a server, whose transport is translated, the addresses that the client knows, and takes
// one hop off. kind is the client's.
func (c *Core) readdressClient(p *packet, w *page, kind uint8) bool {
	vip := (*address)(entry(c.m.Vip, regs.PageIndexVip(ld(w, regs.PageIndex)), vipWords)[regs.AddressAddress:])
	if kind != p.kind {
		client := clientAddress(w, kind)
		return c.cross(p, kind, vip, &client)
	}
	if p.kind == kindIPv6 {
		store6(p.b[p.ip+8:], vip)
		if p.local {
			client := clientAddress(w, kind)
			store6(p.b[p.ip+24:], &client)
		}
		p.b[p.ip+7]--
		return true
	}
	binary.BigEndian.PutUint32(p.b[p.ip+12:], vip[0])
	if p.local {
		binary.BigEndian.PutUint32(p.b[p.ip+16:], ld(w, regs.PageClientAddress))
	}
	c.finishIPv4(p)
	return true
}

func clientAddress(w *page, kind uint8) (a address) {
	a[0] = ld(w, regs.PageClientAddress)
	if kind == kindIPv6 {
		a[1], a[2], a[3] = ld(w, regs.PageClientAddress+1), ld(w, regs.PageClientAddress+2), ld(w, regs.PageClientAddress+3)
	}
	return a
}

// answersOf says how the answers of a server are known by which a splice goes.
func answersOf(s []uint32) uint32 {
	switch regs.ServerControlMethod(s[regs.ServerControl]) {
	case methodFullNAT:
		return answersLocal
	case methodTun:
		return answersVIP
	}
	return answersClient
}
