package exception

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception/reassembly"
)

// Servers by tun and dr get the client's packets as they are and answer past the card. An error about a packet that went to
// one quotes the client's own packet, with tun behind the outer header. One about an answer goes to the VIP, and so comes
// here: the server gets it as it gets everything else.

const (
	greBytes, greSumBytes = 4, 4
	udpBytes, gueBytes    = 8, 4
	greSum                = 0x80 // in the first byte: a checksum follows
	gueLength             = 0x1f // in the first byte: words behind the header
)

// direct says whether the answers of a connection's server go past the card.
func (c *Connection) direct() bool {
	m := c.Servers[0].Method
	return m == regs.MethodDr || m == regs.MethodTun
}

// byClient finds a connection by what its client sees, in whichever VLAN of the client side.
func (h *Handler) byClient(protocol uint8, client, vip netip.AddrPort) (c Connection, found bool) {
	var tried []uint16
	for _, a := range h.st.Config.Client.Addresses {
		if slices.Contains(tried, a.VLAN) {
			continue
		}
		tried = append(tried, a.VLAN)
		if c, found = h.cfg.Find(clientSide, Flow{Protocol: protocol, VLAN: a.VLAN, Near: vip, Far: client}); found {
			return c, true
		}
	}
	return c, false
}

// aboutDirect deals with an error about a packet that went to a server as the client sent it.
func (h *Handler) aboutDirect(p *packet, e *icmpError, q *quote) {
	c, found := h.byClient(uint8(q.protocol), q.src, q.dst)
	if !found {
		h.count(DropICMPUnknown)
		return
	}
	s := &c.Servers[0]
	switch {
	case s.Port != p.port || !c.direct():
		h.count(DropICMPUnknown)
		return
	case !c.datagrams() && c.Page.ASeqClient-q.seq > 1<<30: // of what the client has sent
		h.count(DropICMPWindow)
		return
	}
	if e.tooBig && s.Method == regs.MethodDr && h.learnPath(s, e.mtu, q.total) {
		h.count(PathMTU)
	}
	h.toClientAs(p, e, &c, q.ip)
}

// toClientAs passes an error on to the client of a connection. It comes from the VIP where the server itself sent it.
func (h *Handler) toClientAs(p *packet, e *icmpError, c *Connection, quoted []byte) {
	from := p.src
	if from == c.Servers[0].Addr.Addr() || from.Is4() != c.VIP.Is4() {
		from = c.VIP
	}
	to := c.client().Addr()
	if p.src.Is4() == to.Is4() {
		if h.passError(p, e, c.clientLink(), from, to, quoted) {
			h.count(ICMPToClient)
		}
		return
	}
	code4, code6, ok := e.otherFamily()
	if !ok {
		h.count(DropICMPMethod)
		return
	}
	if h.sendError(c.clientLink(), from, to, code4, code6, e.word, quoted) {
		h.count(ICMPToClient)
	}
}

// otherFamily is an error as the other family of addresses says it (RFC 2473 8, RFC 7915 4.2 and 5.2).
func (e *icmpError) otherFamily() (code4 layers.ICMPv4TypeCode, code6 layers.ICMPv6TypeCode, ok bool) {
	switch {
	case e.tooBig:
		return layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded), layers.CreateICMPv6TypeCode(layers.ICMPv6TypePacketTooBig, 0), true
	case e.unreachable:
		return layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeHost), layers.CreateICMPv6TypeCode(layers.ICMPv6TypeDestinationUnreachable, layers.ICMPv6CodeAddressUnreachable), true
	}
	return 0, 0, false
}

// sendError sends an error that is none of those that came in.
func (h *Handler) sendError(to link, from, dst netip.Addr, code4 layers.ICMPv4TypeCode, code6 layers.ICMPv6TypeCode, word uint32, quoted []byte) bool {
	if dst.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: hopLimit, Protocol: layers.IPProtocolICMPv4, SrcIP: from.AsSlice(), DstIP: dst.AsSlice()}
		return h.emitTo(to, layers.EthernetTypeIPv4, over(ip, []serializable{
			&layers.ICMPv4{TypeCode: code4, Id: uint16(word >> 16), Seq: uint16(word)}, gopacket.Payload(quoted[:min(len(quoted), quote4)]),
		})...)
	}
	ip := &layers.IPv6{Version: 6, HopLimit: hopLimit, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: dst.AsSlice()}
	body := append(binary.BigEndian.AppendUint32(nil, word), quoted[:min(len(quoted), quote6)]...)
	return h.emitTo(to, layers.EthernetTypeIPv6, over(ip, []serializable{&layers.ICMPv6{TypeCode: code6}, gopacket.Payload(body)})...)
}

// tunnelled deals with an error about a packet that went to a server in a tunnel. It returns false for what is about other
// traffic.
func (h *Handler) tunnelled(p *packet, e *icmpError, q *quote) bool {
	if q.src.Addr() != p.dst || !h.ours(p.dst) || !h.serverHosts[q.dst.Addr()] {
		return false
	}
	at, ok := h.innerAt(q)
	if !ok {
		return false
	}
	if at >= len(q.ip) {
		h.count(DropICMPQuote)
		return true
	}
	inner, whole := readQuote(q.ip[at:], q.ip[at]>>4 == 4)
	switch {
	case !whole || !p.icmpIntact():
		h.count(DropICMPQuote)
		return true
	case !h.lookups.take(h.now):
		h.count(DropICMPLimited)
		return true
	}
	c, found := h.byClient(uint8(inner.protocol), inner.src, inner.dst)
	s := &c.Servers[0]
	switch {
	case !found || s.Method != regs.MethodTun || s.Addr.Addr() != q.dst.Addr() || s.Port != p.port:
		h.count(DropICMPUnknown)
		return true
	case !c.datagrams() && c.Page.ASeqClient-inner.seq > 1<<30:
		h.count(DropICMPWindow)
		return true
	}
	if e.tooBig {
		if h.learnPath(s, e.mtu, q.total) {
			h.count(PathMTU)
		}
		mtu := int(h.paths.of(s.Hop))
		if mtu == 0 {
			mtu = int(h.st.Ports[s.Port].MTU)
		}
		least := 68
		if inner.src.Addr().Is6() {
			least = leastPath6
		}
		e.word = uint32(max(mtu-at, least))
	} else if e.parameter { // of the outer header, which the client never saw
		h.count(DropICMPMethod)
		return true
	}
	h.toClientAs(p, e, &c, q.ip[at:])
	return true
}

// innerAt is where the inner packet of a quoted outer one begins, which may be behind what is quoted; false where it is none
// of a tunnel.
func (h *Handler) innerAt(q *quote) (at int, ok bool) {
	t := q.ip[q.tcp:] // eight bytes at least
	switch q.protocol {
	case layers.IPProtocolIPv4, layers.IPProtocolIPv6:
		return q.tcp, true
	case layers.IPProtocolGRE:
		at = q.tcp + greBytes
		if t[0]&greSum != 0 {
			at += greSumBytes
		}
		return at, true
	case layers.IPProtocolUDP:
		if !h.gue[q.dst.Port()] {
			return 0, false
		}
		at = q.tcp + udpBytes + gueBytes
		if len(t) > udpBytes {
			at += int(t[udpBytes]&gueLength) * 4
		}
		return at, true
	}
	return 0, false
}

// guePorts are the ports of a configuration's tunnels by gue.
func guePorts(c *config.Config) map[uint16]bool {
	ports := map[uint16]bool{}
	for i := range c.Groups {
		for _, s := range c.Groups[i].Servers {
			if s.Tunnel.Type == config.GUE && s.Tunnel.Port != 0 {
				ports[s.Tunnel.Port] = true
			}
		}
	}
	return ports
}

// toServerDirect passes an error about an answer that went past the card on to the server that sent it.
func (h *Handler) toServerDirect(p *packet, e *icmpError, q *quote, c *Connection) {
	s := &c.Servers[0]
	switch {
	case s.Port >= len(h.st.Ports) || !s.Resolved:
		h.count(DropNextHop)
	case p.ttl() <= 1:
		h.count(DropICMPError)
	case s.Method == regs.MethodDr:
		if h.passError(p, e, s.link(), p.src, p.dst, q.ip) {
			h.count(ICMPToServer)
		}
	case !s.Local.IsValid() || s.Local.Is4() != s.Addr.Addr().Is4() || s.Tunnel.TunnelType == regs.ServerTunnelTypeDscp:
		h.count(DropICMPMethod)
	default:
		h.wrapError(p, s)
	}
}

// wrapError sends an error, one hop older, to a server in its tunnel.
func (h *Handler) wrapError(p *packet, s *Server) {
	inner := append([]byte(nil), p.ip...)
	protocol, kind := layers.IPProtocolIPv4, layers.EthernetTypeIPv4
	if p.src.Is4() {
		inner[8]--
		inner[10], inner[11] = 0, 0
		binary.BigEndian.PutUint16(inner[10:], ^uint16(reassembly.Sum(inner[:int(inner[0]&15)*4], 0)))
	} else {
		inner[7]--
		protocol, kind = layers.IPProtocolIPv6, layers.EthernetTypeIPv6
	}
	var above []serializable
	sum := s.Tunnel.TunnelChecksum != regs.ServerTunnelChecksumNone
	switch s.Tunnel.TunnelType {
	case regs.ServerTunnelTypeGre:
		above = []serializable{&layers.GRE{Protocol: kind, ChecksumPresent: sum}, gopacket.Payload(inner)}
		protocol = layers.IPProtocolGRE
	case regs.ServerTunnelTypeGue:
		u := &layers.UDP{SrcPort: 0xc000, DstPort: layers.UDPPort(s.Tunnel.TunnelPort)}
		above = []serializable{&udpHeader{UDP: *u}, gopacket.Payload(append([]byte{0, byte(protocol), 0, 0}, inner...))}
		protocol = layers.IPProtocolUDP
	default:
		above = []serializable{gopacket.Payload(inner)}
	}
	l, laid := s.link(), false
	if s.Local.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: hopLimit, Protocol: protocol, SrcIP: s.Local.AsSlice(), DstIP: s.Addr.Addr().AsSlice(), Flags: layers.IPv4DontFragment}
		laid = h.lay(l, layers.EthernetTypeIPv4, over(ip, above)...)
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: hopLimit, NextHeader: protocol, SrcIP: s.Local.AsSlice(), DstIP: s.Addr.Addr().AsSlice()}
		laid = h.lay(l, layers.EthernetTypeIPv6, over(ip, above)...)
	}
	if !laid {
		return
	}
	frame := h.buf.Bytes()
	at, _ := networkAt(frame)
	if h.sendCut(l.port, frame[:at], frame[at:], h.mtuTo(l.port, frame[at:]), h.nextID()) {
		h.count(ICMPToServer)
	}
}
