package health

import (
	"encoding/binary"
	"net/netip"
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
func readIP(b []byte) (p ipPacket, ok bool) { return headerOf(b, false) }

// readQuote reads the beginning of an IP packet, as ICMP errors quote it.
func readQuote(b []byte) (p ipPacket, ok bool) { return headerOf(b, true) }

func headerOf(b []byte, cut bool) (p ipPacket, ok bool) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if header < 20 || header > len(b) || total < header || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
			return p, false
		}
		if !cut && (total > len(b) || sum(0, b[:header]) != 0xffff) {
			return p, false
		}
		p.from, p.to = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		p.protocol, p.payload = b[9], b[header:min(total, len(b))]
		return p, true
	case len(b) >= 40 && b[0]>>4 == 6:
		total := 40 + int(binary.BigEndian.Uint16(b[4:]))
		if !cut && total > len(b) {
			return p, false
		}
		p.from, p.to = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		p.protocol, p.payload = b[6], b[40:min(total, len(b))]
		return p, true
	}
	return p, false
}

// sum adds the big-endian words of b to a one's complement sum (RFC 1071).
func sum(s uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
		s = s&0xffff + s>>16
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return uint16(s&0xffff + s>>16)
}

// pseudo is the sum of a pseudo-header.
func pseudo(from, to netip.Addr, protocol uint8, length int) uint32 {
	s := uint32(sum(uint32(sum(uint32(length)&0xffff+uint32(length)>>16, from.AsSlice())), to.AsSlice()))
	return s + uint32(protocol)
}

// intact says whether the checksum of what a packet carries is right.
func (p *ipPacket) intact() bool {
	switch {
	case p.protocol == icmp4 && p.from.Is4():
		return sum(0, p.payload) == 0xffff
	case p.protocol == udp && len(p.payload) >= 8:
		length := int(binary.BigEndian.Uint16(p.payload[4:]))
		if length < 8 || length > len(p.payload) {
			return false
		}
		if binary.BigEndian.Uint16(p.payload[6:]) == 0 {
			return p.from.Is4()
		}
		return sum(pseudo(p.from, p.to, udp, length), p.payload[:length]) == 0xffff
	case p.protocol == icmp6 && p.from.Is6():
		return sum(pseudo(p.from, p.to, icmp6, len(p.payload)), p.payload) == 0xffff
	}
	return false
}

// hops is the TTL of packets that begin here.
const hops = 64

// writeIP lays out an IP packet whose payload has its checksum, which begins as zero, at an offset.
func writeIP(from, to netip.Addr, protocol uint8, payload []byte, check int) []byte {
	s := uint32(0)
	if protocol != icmp4 {
		s = pseudo(from, to, protocol, len(payload))
	}
	c := ^sum(s, payload)
	if c == 0 && protocol == udp {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(payload[check:], c)
	if to.Is4() {
		b := make([]byte, 20, 20+len(payload))
		b[0], b[6], b[8], b[9] = 0x45, 0x40, hops, protocol
		binary.BigEndian.PutUint16(b[2:], uint16(20+len(payload)))
		copy(b[12:], from.AsSlice())
		copy(b[16:], to.AsSlice())
		binary.BigEndian.PutUint16(b[10:], ^sum(0, b))
		return append(b, payload...)
	}
	b := make([]byte, 40, 40+len(payload))
	b[0], b[6], b[7] = 0x60, protocol, hops
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	copy(b[8:], from.AsSlice())
	copy(b[24:], to.AsSlice())
	return append(b, payload...)
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
