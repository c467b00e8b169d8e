package exception

import (
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// An icmpError is an ICMP error as far as the two families agree.
type icmpError struct {
	word   uint32 // the second word of the header: MTU, pointer, length of the quote
	quoted []byte
	tooBig bool
	mtu    uint32 // with tooBig; zero: not said

	unreachable, parameter bool
}

// readError reads an error that ends of a connection are told about: unreachable, time exceeded, parameter problem, and
// over IPv6 packet too big. Redirects and source quench are not (RFC 1122 3.2.2.2, RFC 6633).
func readError(p *packet) (e icmpError, ok bool) {
	if p.is(layers.LayerTypeICMPv4) {
		switch p.icmp4.TypeCode.Type() {
		case layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeTimeExceeded, layers.ICMPv4TypeParameterProblem:
		default:
			return e, false
		}
		e = icmpError{word: uint32(p.icmp4.Id)<<16 | uint32(p.icmp4.Seq), quoted: p.icmp4.Payload, mtu: uint32(p.icmp4.Seq)}
		e.unreachable = p.icmp4.TypeCode.Type() == layers.ICMPv4TypeDestinationUnreachable
		e.parameter = p.icmp4.TypeCode.Type() == layers.ICMPv4TypeParameterProblem
		e.tooBig = p.icmp4.TypeCode == layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded)
		return e, true
	}
	if !p.is(layers.LayerTypeICMPv6) || len(p.icmp6.Payload) < 4 {
		return e, false
	}
	kind := p.icmp6.TypeCode.Type()
	if kind < layers.ICMPv6TypeDestinationUnreachable || kind > layers.ICMPv6TypeParameterProblem {
		return e, false
	}
	b := p.icmp6.Payload
	e.word = uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	e.quoted, e.tooBig, e.mtu = b[4:], kind == layers.ICMPv6TypePacketTooBig, e.word
	e.unreachable, e.parameter = kind == layers.ICMPv6TypeDestinationUnreachable, kind == layers.ICMPv6TypeParameterProblem
	return e, true
}

// splice deals with an ICMP error about a packet of a connection, spliced or passed on, found by what is quoted of it
// (RFC 5508, REQ-3 to 5). It returns false for what is about other traffic. No error ends a connection here: only its ends decide.
func (h *Handler) splice(p *packet) bool {
	e, ok := readError(p)
	if !ok {
		return false
	}
	q, whole := readQuote(e.quoted, p.src.Is4())
	toClient, toServer := h.vips[q.src.Addr()], h.servers[q.dst] || h.servers[netip.AddrPortFrom(q.dst.Addr(), 0)]
	direct := !toClient && h.vips[q.dst.Addr()]
	switch {
	case !whole:
		if !h.ours(p.dst) {
			return false
		}
		h.count(DropICMPQuote)
		return true
	case h.tunnelled(p, &e, &q):
		return true
	case q.protocol != layers.IPProtocolTCP && q.protocol != layers.IPProtocolUDP || !toClient && !toServer && !direct:
		return false
	case p.dst != q.src.Addr() || !p.icmpIntact(): // an error goes to who sent what it is about
		h.count(DropICMPQuote)
		return true
	case !h.lookups.take(h.now):
		h.count(DropICMPLimited)
		return true
	}
	if direct {
		h.aboutDirect(p, &e, &q)
		return true
	}
	side, flow := serverSide, Flow{Protocol: uint8(q.protocol), VLAN: p.vlan(), Near: q.dst, Far: q.src}
	if toClient {
		side, flow.Near, flow.Far = clientSide, q.src, q.dst
	}
	c, found := h.cfg.Find(side, flow)
	switch {
	case !found && !toClient && h.st.Config.Client.Forward && h.st.Config.Ports()[p.port].Forward:
		return false // who reaches the server without a service may have a connection to it
	case !found:
		h.count(DropICMPUnknown)
	case toClient:
		h.aboutClient(p, &e, &q, &c)
	default:
		h.aboutServer(p, &e, &q, &c)
	}
	return true
}

// maxReply bounds what the card itself sends a client: an answer out of a head buffer, SYN and FIN.
const maxReply = regs.HeadBytes + 2

// aboutClient deals with an error about a segment that went to a client.
func (h *Handler) aboutClient(p *packet, e *icmpError, q *quote, c *Connection) {
	l := c.leg(c.Page.ControlLegB != 0 && int32(q.seq-c.Page.BoundaryServer) >= 0)
	switch {
	case int(c.Page.ControlPort) != p.port:
		h.count(DropICMPUnknown)
	case c.direct() && c.Page.ClientLinkPassed != 0:
		h.toServerDirect(p, e, q, c)
	case l.server.Addr.Addr().Is4() != q.src.Addr().Is4():
		h.count(DropICMPMethod)
	case c.datagrams():
		h.translateToServer(p, e, q, c, &l)
	case !l.armed && q.seq-c.Page.Isn <= maxReply:
		h.count(ICMPOwn)
	case c.Page.ClientLinkPassed != 0 && q.seq+1 == l.ackClient: // the server's SYN-ACK
		h.translateToServer(p, e, q, c, &l)
	case !l.armed || q.seq-l.ackClient > l.seqServer-l.ackClient:
		h.count(DropICMPWindow)
	case !l.server.Resolved:
		h.count(DropNextHop)
	default:
		h.translateToServer(p, e, q, c, &l)
	}
}

// translateToServer passes an error on to the server that sent what it is about. The server sees it come to itself from
// who reports, and its own packet quoted.
func (h *Handler) translateToServer(p *packet, e *icmpError, q *quote, c *Connection, l *leg) {
	if !l.server.Resolved {
		h.count(DropNextHop)
		return
	}
	client := c.client().Addr()
	if c.Local.IsValid() && l.server == &c.Servers[0] {
		client = c.Local
	}
	quoted := q.translated(l.server.Addr, netip.AddrPortFrom(client, l.local), -l.deltaServer, l.deltaClient)
	if h.passError(p, e, l.server.link(), p.src, l.server.Addr.Addr(), quoted) {
		h.count(ICMPToServer)
	}
}

// aboutServer deals with an error about a segment that went to a server. What it says of the path's MTU holds for all that
// goes there.
func (h *Handler) aboutServer(p *packet, e *icmpError, q *quote, c *Connection) {
	l := c.leg(c.LegB)
	seq := q.seq - l.deltaClient
	own := !l.armed && q.seq == l.isn && !c.datagrams()
	switch {
	case l.server.Port != p.port:
		h.count(DropICMPUnknown)
		return
	case c.client().Addr().Is4() != q.src.Addr().Is4():
		h.count(DropICMPMethod)
		return
	case c.datagrams():
	case !own && (!l.armed || seq-l.ackOfServer > l.seqClient-l.ackOfServer):
		h.count(DropICMPWindow)
		return
	}
	if e.tooBig && h.learnPath(l.server, e.mtu, q.total) {
		h.count(PathMTU)
	}
	if own || c.Page.ControlHeld != 0 && int32(seq-c.Page.HeldBoundary) < 0 {
		h.count(ICMPOwn) // the client has been acknowledged it, and the card sends it again
		return
	}
	from := p.src
	if from == l.server.Addr.Addr() {
		from = c.VIP
	}
	quoted := q.translated(c.client(), c.vip(), -l.deltaClient, l.deltaServer)
	if h.passError(p, e, c.clientLink(), from, c.client().Addr(), quoted) {
		h.count(ICMPToClient)
	}
}

// passError sends an error on, its outer addresses and its quote replaced.
func (h *Handler) passError(p *packet, e *icmpError, to link, from, dst netip.Addr, quoted []byte) bool {
	if to.port >= len(h.st.Ports) || p.ttl() <= 1 {
		h.count(DropICMPError)
		return false
	}
	if from.IsLinkLocalUnicast() { // means nothing on another link (RFC 4291 2.5.6)
		var ok bool
		if from, ok = h.portAddress(to.port, dst); !ok {
			h.count(DropSource)
			return false
		}
	}
	room := int(h.st.Ports[to.port].MTU)
	if dst.Is4() {
		quoted = quoted[:min(len(quoted), max(room-28, 0))]
		ip := &layers.IPv4{Version: 4, TOS: p.ip4.TOS, TTL: p.ttl() - 1, Protocol: layers.IPProtocolICMPv4, SrcIP: from.AsSlice(), DstIP: dst.AsSlice(), Flags: layers.IPv4DontFragment}
		return h.emitTo(to, layers.EthernetTypeIPv4, over(ip, []serializable{
			&layers.ICMPv4{TypeCode: p.icmp4.TypeCode, Id: uint16(e.word >> 16), Seq: uint16(e.word)}, gopacket.Payload(quoted),
		})...)
	}
	body := []byte{byte(e.word >> 24), byte(e.word >> 16), byte(e.word >> 8), byte(e.word)}
	body = append(body, quoted[:min(len(quoted), max(room-48, 0))]...)
	ip := &layers.IPv6{Version: 6, TrafficClass: p.ip6.TrafficClass, HopLimit: p.ttl() - 1, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: dst.AsSlice()}
	return h.emitTo(to, layers.EthernetTypeIPv6, over(ip, []serializable{&layers.ICMPv6{TypeCode: p.icmp6.TypeCode}, gopacket.Payload(body)})...)
}

// tooBigFor tells the sender of a packet that the card found too large for the network it was to go to. One that may be sent
// in fragments is translated all the same and comes back to be cut.
func (h *Handler) tooBigFor(p *packet, e *regs.ExceptionEntry) {
	if !h.oversize.take(h.now) { // its own: a flood of errors must not keep senders from finding out
		h.count(DropLimited)
		return
	}
	c, ok := h.cfg.Connection(handleOf(e))
	if !ok {
		h.count(DropState) // it is over
		return
	}
	port, mtu := int(c.Page.ControlPort), 0
	if e.ReasonSide == clientSide {
		l := c.leg(c.Page.ControlLegB != 0 && p.is(layers.LayerTypeTCP) && int32(p.tcp.Seq-c.Page.BoundaryClient) >= 0)
		port, mtu = l.server.Port, int(h.paths.of(l.server.Hop))
	}
	if port >= len(h.st.Ports) {
		h.count(DropState)
		return
	}
	if own := int(h.st.Ports[port].MTU); mtu == 0 || own < mtu {
		mtu = own
	}
	if said := int(e.Mtu); said != 0 && said < mtu { // it takes off what a tunnel adds
		mtu = said
	}
	if len(p.ip) <= mtu { // the path has become wider since
		h.count(DropOversize)
		return
	}
	if p.cuttable() {
		h.reinjectBack(p.port, p.frame, uint32(p.ip4.Id))
		return
	}
	h.tooBig(p, mtu)
}
