package reassembly

import (
	"encoding/binary"
	"net/netip"
)

// A Fragment is an IP packet that is a part of one.
type Fragment struct {
	Src, Dst netip.Addr
	Protocol uint8  // of what was cut
	ID       uint32 // the same in all fragments of a packet; 16 bits of it with IPv4
	offset   int    // of the data in the whole packet's
	more     bool
	ecn      byte
	header   []byte // what goes before the data in the whole packet; only the first one's counts
	data     []byte
}

const (
	protocolICMP     = 1
	protocolIPIP     = 4
	protocolTCP      = 6
	protocolUDP      = 17
	protocolIPv6     = 41
	protocolGRE      = 47
	protocolICMPv6   = 58
	nextFragment     = 44
	maxExtensions    = 8
	maxData          = 65535
	moreFragments    = 0x2000
	offsetMask       = 0x1fff
	fragmentHeader   = 8
	leastTCP         = 20
	leastUDP         = 8
	leastTunnel      = 4
	ecnMask          = 3
	notECT, ecnCE    = 0, 3
	hopByHop         = 0
	routing          = 43
	destinationOpts  = 60
	ip4Least, ip6Len = 20, 40
)

// taken says whether packets of a protocol are put together: those that connections are made of, and echoes.
func taken(protocol uint8) bool {
	switch protocol {
	case protocolTCP, protocolUDP, protocolIPIP, protocolIPv6, protocolGRE, protocolICMP, protocolICMPv6:
		return true
	}
	return false
}

// Parse reads an IP packet, from its header to its end. It returns false for what is no fragment, or not of TCP, UDP, ICMP or a
// tunnel; a malformed fragment of those is one, and Add says so.
func Parse(ip []byte) (f Fragment, ok bool) {
	switch {
	case len(ip) >= ip4Least && ip[0]>>4 == 4:
		return parse4(ip)
	case len(ip) >= ip6Len && ip[0]>>4 == 6:
		return parse6(ip)
	}
	return f, false
}

func parse4(ip []byte) (f Fragment, ok bool) {
	header := int(ip[0]&15) * 4
	field := binary.BigEndian.Uint16(ip[6:])
	if header < ip4Least || len(ip) < header || !taken(ip[9]) || field&(moreFragments|offsetMask) == 0 {
		return f, false
	}
	return Fragment{
		Src: netip.AddrFrom4([4]byte(ip[12:])), Dst: netip.AddrFrom4([4]byte(ip[16:])), Protocol: ip[9], ID: uint32(binary.BigEndian.Uint16(ip[4:])),
		offset: int(field&offsetMask) * 8, more: field&moreFragments != 0, ecn: ip[1] & ecnMask, header: ip[:header], data: ip[header:],
	}, true
}

func parse6(ip []byte) (f Fragment, ok bool) {
	next, at := 6, ip6Len // where the number of the next header stands, and where that begins
	for range maxExtensions {
		switch ip[next] {
		case nextFragment:
			if len(ip) < at+fragmentHeader || !taken(ip[at]) {
				return f, false
			}
			header := append([]byte(nil), ip[:at]...)
			header[next] = ip[at]
			field := binary.BigEndian.Uint16(ip[at+2:])
			return Fragment{
				Src: netip.AddrFrom16([16]byte(ip[8:])), Dst: netip.AddrFrom16([16]byte(ip[24:])), Protocol: ip[at], ID: binary.BigEndian.Uint32(ip[at+4:]),
				offset: int(field &^ 7), more: field&1 != 0, ecn: ip[1] >> 4 & ecnMask, header: header, data: ip[at+fragmentHeader:],
			}, true
		case hopByHop, routing, destinationOpts:
			if len(ip) < at+8 {
				return f, false
			}
			next, at = at, at+8+int(ip[at+1])*8
			if len(ip) < at {
				return f, false
			}
		default:
			return f, false
		}
	}
	return f, false
}

// whole says whether the packet is all there: IPv6 allows a fragment header on such (RFC 6946).
func (f *Fragment) whole() bool { return f.offset == 0 && !f.more }

// wrong says whether a fragment cannot be one.
func (f *Fragment) wrong() bool {
	return len(f.data) == 0 || f.more && len(f.data)%8 != 0 || len(f.header)+f.offset+len(f.data) > maxData
}

// tiny says whether a first fragment has less than the header of what was cut (RFC 1858, RFC 7112), or one that is too
// short to be one.
func (f *Fragment) tiny() bool {
	if f.offset != 0 {
		return false
	}
	switch f.Protocol {
	case protocolTCP:
		if len(f.data) < leastTCP {
			return true
		}
		header := int(f.data[12]>>4) * 4
		return header < leastTCP || len(f.data) < header
	case protocolUDP:
		return len(f.data) < leastUDP
	}
	return len(f.data) < leastTunnel
}
