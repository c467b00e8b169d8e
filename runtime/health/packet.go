package health

import (
	"encoding/binary"
	"net/netip"

	"splicenic/runtime/inet"
)

// Protocols of IP packets.
const (
	icmp4 = 1
	tcp   = 6
	udp   = 17
	icmp6 = 58
)

// An ipPacket is what an IP packet says. payload views it.
type ipPacket struct {
	from, to netip.Addr
	protocol uint8
	payload  []byte
}

// readIP reads an IP packet that is whole; false where it is none, a fragment, or one with extension headers.
func readIP(b []byte) (p ipPacket, ok bool) {
	x, ok := inet.Read(b)
	if !ok || x.Cut || x.From.Is4() && inet.Sum(0, x.Header) != 0xffff {
		return p, false
	}
	return packetOf(&x), true
}

// readQuote reads the beginning of an IP packet, as ICMP errors quote it.
func readQuote(b []byte) (p ipPacket, ok bool) {
	x, ok := inet.Read(b)
	return packetOf(&x), ok
}

func packetOf(x *inet.Packet) ipPacket { return ipPacket{x.From, x.To, x.Protocol, x.Payload} }

// intact says whether the checksum of what a packet carries is right.
func (p *ipPacket) intact() bool {
	switch {
	case p.protocol == icmp4 && p.from.Is4():
		return inet.Sum(0, p.payload) == 0xffff
	case p.protocol == udp && len(p.payload) >= 8:
		length := int(binary.BigEndian.Uint16(p.payload[4:]))
		if length < 8 || length > len(p.payload) {
			return false
		}
		if binary.BigEndian.Uint16(p.payload[6:]) == 0 {
			return p.from.Is4()
		}
		return inet.Sum(inet.Pseudo(p.from, p.to, udp, length), p.payload[:length]) == 0xffff
	case p.protocol == icmp6 && p.from.Is6():
		return inet.Sum(inet.Pseudo(p.from, p.to, icmp6, len(p.payload)), p.payload) == 0xffff
	}
	return false
}

// writeIP lays out an IP packet whose payload has its checksum, which begins as zero, at an offset.
func writeIP(from, to netip.Addr, protocol uint8, payload []byte, check int) []byte {
	s := uint32(0)
	if protocol != icmp4 {
		s = inet.Pseudo(from, to, protocol, len(payload))
	}
	c := ^uint16(inet.Sum(s, payload))
	if c == 0 && protocol == udp {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(payload[check:], c)
	return inet.Layout(from, to, protocol, 0, inet.Hops, payload)
}

// echo lays out an ICMP echo request.
func echo(from, to netip.Addr, id, seq uint16, payload []byte) []byte {
	kind, protocol := byte(8), uint8(icmp4)
	if to.Is6() {
		kind, protocol = 128, icmp6
	}
	b := append([]byte{kind, 0, 0, 0, byte(id >> 8), byte(id), byte(seq >> 8), byte(seq)}, payload...)
	return writeIP(from, to, protocol, b, 2)
}

// datagram lays out a UDP datagram.
func datagram(from, to netip.AddrPort, payload string) []byte {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b, from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	return writeIP(from.Addr(), to.Addr(), udp, append(b, payload...), 6)
}

// unreachable names an ICMP error that says that a packet did not arrive; empty: it is none. What says that a packet was
// too big tells nothing about a server.
func unreachable(six bool, kind, code uint8) string {
	if six {
		switch {
		case kind == 1 && code == 4:
			return "ICMP port unreachable"
		case kind == 1 && code == 1, kind == 1 && code == 6:
			return "ICMP administratively prohibited"
		case kind == 1 && code == 3:
			return "ICMP address unreachable"
		case kind == 1:
			return "ICMP no route"
		case kind == 3:
			return "ICMP time exceeded"
		case kind == 4:
			return "ICMP parameter problem"
		}
		return ""
	}
	switch {
	case kind == 3 && code == 4:
	case kind == 3 && code == 3:
		return "ICMP port unreachable"
	case kind == 3 && code == 2:
		return "ICMP protocol unreachable"
	case kind == 3 && (code == 9 || code == 10 || code == 13):
		return "ICMP administratively prohibited"
	case kind == 3 && (code == 1 || code == 7 || code == 8 || code == 12):
		return "ICMP host unreachable"
	case kind == 3:
		return "ICMP network unreachable"
	case kind == 11:
		return "ICMP time exceeded"
	case kind == 12:
		return "ICMP parameter problem"
	}
	return ""
}
