package doctor

import (
	"encoding/binary"
	"net/netip"

	"splicenic/runtime/config"
	"splicenic/runtime/inet"
)

// EtherTypes and protocols.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherIPv6 = 0x86dd

	protocolICMP4 = 1
	protocolIPv4  = 4
	protocolTCP   = 6
	protocolUDP   = 17
	protocolIPv6  = 41
	protocolGRE   = 47
	protocolICMP6 = 58
)

const (
	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10

	lastHop = 1   // for who is asked, and nobody behind
	ndHops  = 255 // of neighbour discovery (RFC 4861 7.1)
)

// MAC is an Ethernet address.
type MAC [6]byte

// String writes the address in hexadecimal.
func (m MAC) String() string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, x := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, digits[x>>4], digits[x&15])
	}
	return string(b)
}

var everybody = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// segment lays out a TCP segment without options or payload. seen is the address that its checksum is about.
func segment(from, to netip.AddrPort, seen netip.Addr, seq, ack uint32, flags uint8) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
	binary.BigEndian.PutUint32(b[4:], seq)
	binary.BigEndian.PutUint32(b[8:], ack)
	b[12], b[13] = 5<<4, flags
	if flags&flagSYN != 0 {
		binary.BigEndian.PutUint16(b[14:], 65535)
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(inet.Sum(inet.Pseudo(from.Addr(), seen, protocolTCP, len(b)), b)))
	return b
}

// echo lays out an ICMP echo request of so many bytes with its IP header.
func echo(from, to netip.Addr, id, seq uint16, nonce [8]byte, bytes int) []byte {
	kind, protocol, header := byte(8), uint8(protocolICMP4), 20
	if to.Is6() {
		kind, protocol, header = 128, protocolICMP6, 40
	}
	b := make([]byte, max(bytes-header, 16))
	b[0] = kind
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], seq)
	copy(b[8:], nonce[:])
	s := uint32(0)
	if to.Is6() {
		s = inet.Pseudo(from, to, protocol, len(b))
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(inet.Sum(s, b)))
	return inet.Layout(from, to, protocol, 0, inet.Hops, b)
}

// wrap puts a packet into a tunnel. A remote checksum is sent as a full one, which every receiver of either takes.
func wrap(t *config.Tunnel, from, to netip.Addr, port uint16, inner []byte) []byte {
	protocol, ether := uint8(protocolIPv4), uint16(etherIPv4)
	if inner[0]>>4 == 6 {
		protocol, ether = protocolIPv6, etherIPv6
	}
	full := t.Checksum != config.NoChecksum
	switch t.Type {
	case config.GRE:
		b := make([]byte, 4, 8+len(inner))
		binary.BigEndian.PutUint16(b[2:], ether)
		if full {
			b[0] = 0x80
			b = append(b, 0, 0, 0, 0)
		}
		b = append(b, inner...)
		if full {
			binary.BigEndian.PutUint16(b[4:], ^uint16(inet.Sum(0, b)))
		}
		return inet.Layout(from, to, protocolGRE, 0, inet.Hops, b)
	case config.GUE:
		b := make([]byte, 12, 12+len(inner))
		binary.BigEndian.PutUint16(b, port)
		binary.BigEndian.PutUint16(b[2:], t.Port)
		binary.BigEndian.PutUint16(b[4:], uint16(12+len(inner)))
		b[9] = protocol
		b = append(b, inner...)
		if full {
			c := ^uint16(inet.Sum(inet.Pseudo(from, to, protocolUDP, len(b)), b))
			if c == 0 {
				c = 0xffff // zero means none (RFC 768)
			}
			binary.BigEndian.PutUint16(b[6:], c)
		}
		return inet.Layout(from, to, protocolUDP, 0, inet.Hops, b)
	}
	return inet.Layout(from, to, protocol, 0, inet.Hops, inner)
}

// ethernet lays out a frame.
func ethernet(from, to MAC, vlan, kind uint16, payload []byte) []byte {
	b := append(append(make([]byte, 0, 18+len(payload)), to[:]...), from[:]...)
	if vlan != 0 {
		b = binary.BigEndian.AppendUint16(b, etherVLAN)
		b = binary.BigEndian.AppendUint16(b, vlan)
	}
	return append(binary.BigEndian.AppendUint16(b, kind), payload...)
}

// who asks a subnet for an address: by ARP (RFC 826), or by a neighbour solicitation (RFC 4861 4.3).
func who(l *Link, own, target netip.Addr) []byte {
	if target.Is4() {
		b := make([]byte, 28)
		copy(b, []byte{0, 1, 8, 0, 6, 4, 0, 1})
		copy(b[8:], l.MAC[:])
		copy(b[14:], own.AsSlice())
		copy(b[24:], target.AsSlice())
		return ethernet(l.MAC, everybody, l.VLAN, etherARP, b)
	}
	t := target.As16()
	group := netip.AddrFrom16([16]byte{0xff, 0x02, 11: 0x01, 12: 0xff, 13: t[13], 14: t[14], 15: t[15]})
	b := make([]byte, 32)
	b[0] = 135
	copy(b[8:], t[:])
	b[24], b[25] = 1, 1
	copy(b[26:], l.MAC[:])
	binary.BigEndian.PutUint16(b[2:], ^uint16(inet.Sum(inet.Pseudo(own, group, protocolICMP6, len(b)), b)))
	return ethernet(l.MAC, MAC{0x33, 0x33, 0xff, t[13], t[14], t[15]}, l.VLAN, etherIPv6, inet.Layout(own, group, protocolICMP6, 0, ndHops, b))
}

// A packetIn is what a frame carries. payload views it.
type packetIn struct {
	mac      MAC // of who sent it
	vlan     uint16
	kind     uint16
	from, to netip.Addr
	protocol uint8
	ttl      uint8
	cut      bool // not all of it is there
	payload  []byte
}

// readFrame reads a frame with one VLAN tag or none.
func readFrame(b []byte) (p packetIn, ok bool) {
	if len(b) < 14 {
		return p, false
	}
	p.mac, p.kind = MAC(b[6:]), binary.BigEndian.Uint16(b[12:])
	at := 14
	if p.kind == etherVLAN && len(b) >= 18 {
		p.vlan, p.kind = binary.BigEndian.Uint16(b[14:])&0xfff, binary.BigEndian.Uint16(b[16:])
		at = 18
	}
	switch p.kind {
	case etherARP:
		p.payload = b[at:]
		return p, len(p.payload) >= 28
	case etherIPv4, etherIPv6:
		return p, p.ip(b[at:]) && !p.cut && (p.kind == etherIPv4) == p.from.Is4()
	}
	return p, false
}

// ip reads an IP packet, or the beginning of one; false where it is none, a fragment, or one with extension headers before
// what we know.
func (p *packetIn) ip(b []byte) bool {
	x, ok := inet.Read(b)
	if !ok {
		return false
	}
	p.from, p.to, p.protocol, p.ttl, p.cut, p.payload = x.From, x.To, x.Protocol, x.TTL, x.Cut, x.Payload
	return true
}

// intact says whether the checksum of a TCP segment or ICMP message that is all there is right.
func (p *packetIn) intact() bool {
	s := uint32(0)
	if p.protocol != protocolICMP4 {
		s = inet.Pseudo(p.from, p.to, p.protocol, len(p.payload))
	}
	return uint16(inet.Sum(s, p.payload)) == 0xffff
}

// A says is an ICMP error in words; what is too big says how much fits, zero where it does not.
type says struct {
	words  string
	tooBig bool
	mtu    int
}

// errorIn reads an ICMP error, and the packet that it quotes; false where it is none.
func errorIn(p *packetIn) (s says, quoted packetIn, ok bool) {
	if len(p.payload) < 8 {
		return s, quoted, false
	}
	kind, code, word := p.payload[0], p.payload[1], binary.BigEndian.Uint32(p.payload[4:])
	switch {
	case p.protocol == protocolICMP4 && kind == 3 && code == 4:
		s = says{"ICMP fragmentation needed", true, int(word & 0xffff)}
	case p.protocol == protocolICMP4 && kind == 3:
		s.words = "ICMP " + wordsOf(unreachable4[:], code)
	case p.protocol == protocolICMP4 && kind == 11, p.protocol == protocolICMP6 && kind == 3:
		s.words = expired
	case p.protocol == protocolICMP4 && kind == 12, p.protocol == protocolICMP6 && kind == 4:
		s.words = "ICMP parameter problem"
	case p.protocol == protocolICMP6 && kind == 2:
		s = says{"ICMP packet too big", true, int(min(word, 0xffff))}
	case p.protocol == protocolICMP6 && kind == 1:
		s.words = "ICMP " + wordsOf(unreachable6[:], code)
	default:
		return s, quoted, false
	}
	return s, quoted, quoted.ip(p.payload[8:])
}

const expired = "ICMP time exceeded"

var (
	unreachable4 = [...]string{"network unreachable", "host unreachable", "protocol unreachable", "port unreachable", "", "source route failed",
		"network unknown", "host unknown", "source isolated", "network prohibited", "host prohibited", "network unreachable for this service", "host unreachable for this service", "administratively prohibited"}
	unreachable6 = [...]string{"no route", "administratively prohibited", "beyond the scope of the source", "address unreachable", "port unreachable", "source address refused", "route rejected"}
)

func wordsOf(list []string, code byte) string {
	if int(code) < len(list) && list[code] != "" {
		return list[code]
	}
	return "destination unreachable"
}
