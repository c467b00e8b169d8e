package exception

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/runtime/neighbour"
)

// icmp answers ICMP for our addresses: echo, and neighbour discovery by unicast.
func (h *Handler) icmp(p *packet) {
	if !p.icmpIntact() {
		h.count(DropMalformed)
		return
	}
	four, six := p.is(layers.LayerTypeICMPv4), p.is(layers.LayerTypeICMPv6)
	switch {
	case p.is(layers.LayerTypeICMPv6NeighborSolicitation), p.is(layers.LayerTypeICMPv6NeighborAdvertisement):
		h.ndp(p)
	case four && p.icmp4.TypeCode == layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0),
		six && p.icmp6.TypeCode == layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0):
		h.echo(p)
	case p.icmpError():
		h.count(DropICMPError)
	default:
		h.count(DropIgnored)
	}
}

func (h *Handler) echo(p *packet) {
	if !answerable(p.src) {
		h.count(DropSource)
		return
	}
	if !h.echoes.take(h.now) {
		h.count(DropLimited)
		return
	}
	h.count(EchoReply)
	if p.src.Is4() {
		h.reply(p, layers.IPProtocolICMPv4,
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoReply, 0), Id: p.icmp4.Id, Seq: p.icmp4.Seq}, gopacket.Payload(p.icmp4.Payload))
		return
	}
	h.reply(p, layers.IPProtocolICMPv6,
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoReply, 0)}, gopacket.Payload(p.icmp6.Payload))
}

// answerable says whether an address can be that of one station.
func answerable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !(a.Is4() && a.As4()[0] >= 240)
}

// Bytes of a packet that an error quotes: of IPv4 so that the error stays within 576 bytes (RFC 1812 4.3.2.3), of IPv6 within
// 1280 (RFC 4443 2.4).
const (
	quote4 = 576 - 20 - 8
	quote6 = 1280 - 40 - 8
)

// tell sends an ICMP error about p, from an address of ours on p's port, where such errors may be sent at all
// (RFC 1122 3.2.2, RFC 4443 2.4). value is the second word of the header.
func (h *Handler) tell(p *packet, done Reason, code4 layers.ICMPv4TypeCode, code6 layers.ICMPv6TypeCode, value uint32) {
	from, ok := h.errorSource(p)
	_, later := p.fragment()
	if !ok || later || p.icmpError() || !answerable(p.src) || !answerable(p.dst) || p.eth.DstMAC[0]&1 != 0 {
		h.count(DropSource)
		return
	}
	if !h.errors.take(h.now) {
		h.count(DropLimited)
		return
	}
	h.count(done)
	to := neighbour.MAC(p.eth.SrcMAC)
	if p.src.Is4() {
		quoted := p.ip[:min(len(p.ip), quote4)]
		ip := &layers.IPv4{Version: 4, TTL: hopLimit, Protocol: layers.IPProtocolICMPv4, SrcIP: from.AsSlice(), DstIP: p.ip4.SrcIP}
		h.emit(p.port, p.vlan(), to, layers.EthernetTypeIPv4, over(ip, []serializable{
			&layers.ICMPv4{TypeCode: code4, Id: uint16(value >> 16), Seq: uint16(value)}, gopacket.Payload(quoted),
		})...)
		return
	}
	quoted := p.ip[:min(len(p.ip), quote6)]
	body := make([]byte, 4, 4+len(quoted))
	binary.BigEndian.PutUint32(body, value)
	ip := &layers.IPv6{Version: 6, HopLimit: hopLimit, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: p.ip6.SrcIP}
	h.emit(p.port, p.vlan(), to, layers.EthernetTypeIPv6, over(ip, []serializable{
		&layers.ICMPv6{TypeCode: code6}, gopacket.Payload(append(body, quoted...)),
	})...)
}

// errorSource is the address an error about p comes from: p's destination where that is ours, else the port's address in
// the subnet of p's source, else any of the port in p's family.
func (h *Handler) errorSource(p *packet) (from netip.Addr, ok bool) {
	if h.ours(p.dst) {
		return p.dst, true
	}
	return h.portAddress(p.port, p.src)
}

// portAddress is a port's address in the subnet of another, else any it has of that family.
func (h *Handler) portAddress(port int, to netip.Addr) (from netip.Addr, ok bool) {
	for _, a := range h.st.Config.Ports()[port].Addresses {
		if own := a.Prefix.Addr(); own.Is4() == to.Is4() {
			if a.Prefix.Contains(to) {
				return own, true
			}
			if !ok {
				from, ok = own, true
			}
		}
	}
	return from, ok
}

func (h *Handler) timeExceeded(p *packet) {
	h.tell(p, TimeExceeded,
		layers.CreateICMPv4TypeCode(layers.ICMPv4TypeTimeExceeded, layers.ICMPv4CodeTTLExceeded),
		layers.CreateICMPv6TypeCode(layers.ICMPv6TypeTimeExceeded, layers.ICMPv6CodeHopLimitExceeded), 0)
}

// closedTCP refuses a segment that belongs to no connection (RFC 9293 3.10.7.1).
func (h *Handler) closedTCP(p *packet) {
	t := &p.tcp
	if t.RST {
		h.count(DropReset)
		return
	}
	if !answerable(p.src) || p.eth.DstMAC[0]&1 != 0 {
		h.count(DropSource)
		return
	}
	if !h.resets.take(h.now) {
		h.count(DropLimited)
		return
	}
	r := &layers.TCP{SrcPort: t.DstPort, DstPort: t.SrcPort, RST: true}
	if t.ACK {
		r.Seq = t.Ack
	} else {
		r.ACK = true
		r.Ack = t.Seq + uint32(len(t.Payload))
		if t.SYN {
			r.Ack++
		}
		if t.FIN {
			r.Ack++
		}
	}
	if h.reply(p, layers.IPProtocolTCP, r) {
		h.count(Reset)
	}
}

// closedOther refuses what is neither TCP nor ICMP.
func (h *Handler) closedOther(p *packet) {
	switch protocol := p.protocol(); {
	case protocol == layers.IPProtocolTCP, protocol == layers.IPProtocolICMPv4, protocol == layers.IPProtocolICMPv6,
		protocol == layers.IPProtocolUDP && !p.is(layers.LayerTypeUDP):
		h.count(DropMalformed) // its header could not be read
		return
	case p.src.Is6() && (protocol == layers.IPProtocolIPv6HopByHop || protocol == layers.IPProtocolIPv6Routing || protocol == layers.IPProtocolIPv6Destination ||
		protocol == layers.IPProtocolNoNextHeader): // nothing follows, which is no error (RFC 8200, 4.7)
		h.count(DropIgnored)
		return
	}
	code4, code6, value := uint8(layers.ICMPv4CodePort), uint8(layers.ICMPv6CodePortUnreachable), uint32(0)
	kind6 := uint8(layers.ICMPv6TypeDestinationUnreachable)
	if !p.is(layers.LayerTypeUDP) {
		code4 = layers.ICMPv4CodeProtocol
		kind6, code6, value = layers.ICMPv6TypeParameterProblem, layers.ICMPv6CodeUnrecognizedNextHeader, 6
		if p.src.Is4() {
			value = 0
		}
	}
	h.tell(p, Unreachable, layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, code4), layers.CreateICMPv6TypeCode(kind6, code6), value)
}
