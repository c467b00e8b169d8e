package exception

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/gopacket/layers"

	"splicenic/runtime/config"
	"splicenic/runtime/exception/reassembly"
	"splicenic/runtime/exception/snat"
)

// Traffic that servers start leaves the client side with addresses of a pool, where the configuration has one.

const (
	clientPort = 0
	serverPort = 1
)

// pooled says whether an address is one of the pool's.
func (h *Handler) pooled(a netip.Addr) bool { return h.pool[a] }

// leaves says whether a packet that goes to a hop gets another source address.
func (h *Handler) leaves(p *packet, hop config.Hop) bool {
	return p.port == serverPort && hop.Port == clientPort && h.nat.Has(p.src)
}

// talk is the two ends of a packet as the table of translations counts them.
type talk struct {
	protocol snat.Protocol
	src, dst netip.AddrPort
	segment  snat.Segment
}

// talk reads what the table wants to know of a packet; false where it has no ports, or is an error. An echo request has
// its identifier as its source port, an echo reply as its destination port.
func (p *packet) talk() (e talk, ok bool) {
	var sport, dport uint16
	part, later := p.fragment()
	switch {
	case part && later, part && p.src.Is6():
		return e, false
	case p.is(layers.LayerTypeTCP):
		t := &p.tcp
		e.protocol, e.segment = snat.TCP, snat.Segment{SYN: t.SYN, ACK: t.ACK, FIN: t.FIN, RST: t.RST}
		sport, dport = uint16(t.SrcPort), uint16(t.DstPort)
	case p.is(layers.LayerTypeUDP):
		e.protocol, sport, dport = snat.UDP, uint16(p.udp.SrcPort), uint16(p.udp.DstPort)
	case p.is(layers.LayerTypeICMPv4) && p.icmpIntact():
		e.protocol = snat.Echo
		switch p.icmp4.TypeCode.Type() {
		case layers.ICMPv4TypeEchoRequest:
			sport = p.icmp4.Id
		case layers.ICMPv4TypeEchoReply:
			dport = p.icmp4.Id
		default:
			return e, false
		}
	case p.is(layers.LayerTypeICMPv6) && p.icmpIntact() && len(p.icmp6.Payload) >= 4:
		e.protocol = snat.Echo
		switch p.icmp6.TypeCode.Type() {
		case layers.ICMPv6TypeEchoRequest:
			sport = binary.BigEndian.Uint16(p.icmp6.Payload)
		case layers.ICMPv6TypeEchoReply:
			dport = binary.BigEndian.Uint16(p.icmp6.Payload)
		default:
			return e, false
		}
	default:
		return e, false
	}
	e.src, e.dst = netip.AddrPortFrom(p.src, sport), netip.AddrPortFrom(p.dst, dport)
	return e, true
}

// outward routes a packet that a server starts, by another source. What answers a client of a service and is of no
// connection any more is dropped: its client would not know it by that source.
func (h *Handler) outward(p *packet, hop config.Hop) {
	if p.icmpError() {
		h.outwardError(p, hop)
		return
	}
	e, ok := p.talk()
	switch {
	case !ok:
		h.count(DropSNATProtocol)
		return
	case e.protocol == snat.TCP && !(e.segment.SYN && !e.segment.ACK) && h.servers[e.src], e.protocol == snat.UDP && h.servers[e.src]:
		h.count(DropState)
		return
	case e.protocol == snat.Echo && e.dst.Port() != 0:
		h.count(DropSNATUnknown) // a reply that nobody waits for
		return
	}
	to, v := h.nat.Out(e.protocol, e.src, e.dst, e.segment, h.now)
	if v != snat.Translated {
		h.count(snatReasons[v])
		return
	}
	h.count(SNATOut)
	if q := h.renamed(p, true, to); q != nil {
		h.toward(q, hop, p)
	}
}

var snatReasons = [...]Reason{snat.NoPort: DropSNATPort, snat.Full: DropSNATFull, snat.Unknown: DropSNATUnknown, snat.Filtered: DropSNATUnknown, snat.NoPool: DropSNATProtocol}

// inward takes in what comes to an address of the pool; false for what the address answers itself.
func (h *Handler) inward(p *packet) bool {
	if !h.pooled(p.dst) {
		return false
	}
	if p.port == serverPort { // between servers, by way of the address outside
		if p.is(layers.LayerTypeICMPv6NeighborSolicitation) || p.is(layers.LayerTypeICMPv6NeighborAdvertisement) {
			return false
		}
		h.count(DropSNATHairpin)
		return true
	}
	if p.icmpError() {
		h.inwardError(p)
		return true
	}
	e, ok := p.talk()
	if !ok || e.protocol == snat.Echo && e.dst.Port() == 0 && e.src.Port() != 0 {
		return false // echo requests, neighbour discovery, fragments and other protocols
	}
	to, v := h.nat.In(e.protocol, e.src, e.dst, e.segment, h.now)
	if v != snat.Translated {
		h.count(snatReasons[v])
		return true
	}
	if p.ttl() <= 1 {
		h.timeExceeded(p)
		return true
	}
	hop, ok := h.st.Config.Route(to.Addr())
	if !ok {
		h.count(DropNoRoute)
		return true
	}
	h.count(SNATIn)
	if q := h.renamed(p, false, to); q != nil {
		h.toward(q, hop, p)
	}
	return true
}

// renamed is a packet with another source or destination, its checksums changed by the difference. It is the handler's until
// the next one.
func (h *Handler) renamed(p *packet, source bool, to netip.AddrPort) *packet {
	h.spare = append(h.spare[:0], p.frame...)
	ip := h.spare[14+4*p.tags:][:len(p.ip)]
	addr, size := 12, 4
	if p.src.Is6() {
		addr, size = 8, 16
	}
	at, field, checksum := p.transportAt(), 0, 0 // where the transport header begins, and in it the port or identifier
	pseudo := true
	switch {
	case p.is(layers.LayerTypeTCP):
		checksum = 16
	case p.is(layers.LayerTypeUDP):
		checksum = 6
	default:
		field, checksum, pseudo = 4, 2, p.src.Is6()
	}
	if !source {
		addr += size
		if field == 0 {
			field = 2
		}
	}
	address, port := ip[addr:addr+size], ip[at+field:at+field+2]
	before := reassembly.Sum(address, 0)
	whole := reassembly.Sum(port, 0)
	if pseudo {
		whole = reassembly.Sum(port, before)
	}
	copy(address, to.Addr().AsSlice())
	binary.BigEndian.PutUint16(port, to.Port())
	after := reassembly.Sum(address, 0)
	sum := reassembly.Sum(port, 0)
	if pseudo {
		sum = reassembly.Sum(port, after)
	}
	if c := ip[at+checksum : at+checksum+2]; checksum != 6 || c[0]|c[1] != 0 {
		update(c, whole, sum)
		if checksum == 6 && c[0]|c[1] == 0 {
			c[0], c[1] = 0xff, 0xff
		}
	}
	if p.src.Is4() {
		update(ip[10:], before, after)
	}
	q := h.q
	if !q.decode(p.port, h.spare) {
		h.count(DropMalformed)
		return nil
	}
	q.whole = p.whole
	return q
}

// transportAt is where in the IP packet the transport header begins, which was decoded.
func (p *packet) transportAt() int {
	switch {
	case p.src.Is4():
		return int(p.ip4.IHL) * 4
	case p.is(layers.LayerTypeTCP):
		return len(p.ip) - len(p.tcp.Contents) - len(p.tcp.Payload)
	case p.is(layers.LayerTypeUDP):
		return len(p.ip) - len(p.udp.Contents) - len(p.udp.Payload)
	}
	return len(p.ip) - len(p.icmp6.Contents) - len(p.icmp6.Payload)
}

// quotedEnds are the ends of a packet that an error quotes, as quoted, and of what protocol they are.
func quotedEnds(q *quote) (p snat.Protocol, ok bool) {
	switch q.protocol {
	case layers.IPProtocolTCP:
		return snat.TCP, true
	case layers.IPProtocolUDP:
		return snat.UDP, true
	}
	return snat.Echo, q.echo
}

// translatedError reads an error about a translated packet that its receiver sent. One that is not to be looked up is counted
// as dropped.
func (h *Handler) translatedError(p *packet) (e icmpError, q quote, protocol snat.Protocol, ok bool) {
	e, ok = readError(p)
	q, whole := readQuote(e.quoted, p.src.Is4())
	protocol, known := quotedEnds(&q)
	if !ok || !whole || !known || q.src.Addr() != p.dst || !p.icmpIntact() {
		h.count(DropICMPQuote)
		return e, q, protocol, false
	}
	if !h.lookups.take(h.now) {
		h.count(DropICMPLimited)
		return e, q, protocol, false
	}
	return e, q, protocol, true
}

// inwardError passes an error about a packet that left with an address of the pool on to who sent it (RFC 5508 REQ-4).
func (h *Handler) inwardError(p *packet) {
	e, q, protocol, ok := h.translatedError(p)
	if !ok {
		return
	}
	to, ok := h.nat.Inside(protocol, q.src, q.dst)
	if !ok {
		h.count(DropICMPUnknown)
		return
	}
	hop, ok := h.st.Config.Route(to.Addr())
	if !ok {
		h.count(DropNoRoute)
		return
	}
	h.errorOn(p, &e, hop, p.src, to.Addr(), q.translated(to, q.dst, 0, 0))
}

// outwardError passes an error of a server, or of a router before it, about a packet that came in by an address of the pool
// on to who sent that (RFC 5508 REQ-5 and 6).
func (h *Handler) outwardError(p *packet, hop config.Hop) {
	e, q, protocol, ok := h.translatedError(p)
	if !ok {
		return
	}
	from, ok := h.nat.Outside(protocol, q.dst, q.src)
	if !ok {
		h.count(DropICMPUnknown)
		return
	}
	h.errorOn(p, &e, hop, from.Addr(), p.dst, q.translated(q.src, from, 0, 0))
}

// errorOn sends an error on to a hop that is resolved; who lost a packet sends it again, and hears of it then.
func (h *Handler) errorOn(p *packet, e *icmpError, hop config.Hop, from, to netip.Addr, quoted []byte) {
	mac, state := h.table.Lookup(keyOf(hop), h.now)
	if !state.Usable() {
		h.count(DropNextHop)
		return
	}
	if h.passError(p, e, link{hop.Port, hop.VLAN, hop.VLAN != 0, mac}, from, to, quoted) {
		h.count(SNATError)
	}
}
