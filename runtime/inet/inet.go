// Package inet lays out and reads the IP packets with which the runtime itself asks something. It is pure, and reads hostile
// bytes: what comes of them views the caller's memory. Byte order is the network's.
package inet

import (
	"encoding/binary"
	"net/netip"
)

// Hops is the TTL of packets that begin here.
const Hops = 64

// Sum adds the big-endian words of b to a one's complement sum (RFC 1071), and folds it to 16 bits.
func Sum(s uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
		s = s&0xffff + s>>16
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s&0xffff + s>>16
}

// Pseudo is the sum of the pseudo-header before so many bytes (RFC 9293, 3.1; RFC 8200, 8.1).
func Pseudo(from, to netip.Addr, protocol uint8, length int) uint32 {
	return Sum(Sum(uint32(length)+uint32(protocol), from.AsSlice()), to.AsSlice())
}

// Layout is an IP packet of its own memory, that is not to be fragmented. tos is the whole octet of DSCP and ECN.
func Layout(from, to netip.Addr, protocol, tos, ttl uint8, payload []byte) []byte {
	if to.Is4() {
		b := make([]byte, 20, 20+len(payload))
		b[0], b[1], b[6], b[8], b[9] = 0x45, tos, 0x40, ttl, protocol
		binary.BigEndian.PutUint16(b[2:], uint16(20+len(payload)))
		copy(b[12:], from.AsSlice())
		copy(b[16:], to.AsSlice())
		binary.BigEndian.PutUint16(b[10:], ^uint16(Sum(0, b)))
		return append(b, payload...)
	}
	b := make([]byte, 40, 40+len(payload))
	binary.BigEndian.PutUint32(b, 6<<28|uint32(tos)<<20)
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6], b[7] = protocol, ttl
	copy(b[8:], from.AsSlice())
	copy(b[24:], to.AsSlice())
	return append(b, payload...)
}

// A Packet is what an IP packet says. Header and Payload view it.
type Packet struct {
	From, To netip.Addr
	Protocol uint8
	TTL      uint8
	Cut      bool // not all of it is there
	Header   []byte
	Payload  []byte // as far as it is there
}

// Read reads an IP packet, or the beginning of one as ICMP errors quote it; false where it is none, or a fragment. What
// IPv6 extension headers there are belong to the payload. Checksums are the caller's to look at.
func Read(b []byte) (p Packet, ok bool) {
	header, total := 0, 0
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		header, total = int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if header < 20 || header > len(b) || total < header || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
			return p, false
		}
		p.From, p.To = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		p.TTL, p.Protocol = b[8], b[9]
	case len(b) >= 40 && b[0]>>4 == 6:
		header, total = 40, 40+int(binary.BigEndian.Uint16(b[4:]))
		p.From, p.To = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		p.TTL, p.Protocol = b[7], b[6]
	default:
		return p, false
	}
	p.Cut = total > len(b)
	p.Header, p.Payload = b[:header], b[header:min(total, len(b))]
	return p, true
}
