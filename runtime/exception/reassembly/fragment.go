package reassembly

import (
	"encoding/binary"
	"net/netip"
)

// A Fragment is an IP packet that is a part of one.
type Fragment struct {
	Src, Dst netip.Addr
	id       uint32
	offset   int // of the data in the whole packet's
	more     bool
	ecn      byte
	header   []byte // what goes before the data in the whole packet; only the first one's counts
	data     []byte
}

const (
	protocolTCP      = 6
	nextFragment     = 44
	maxExtensions    = 8
	maxData          = 65535
	moreFragments    = 0x2000
	offsetMask       = 0x1fff
	fragmentHeader   = 8
	leastTCP         = 20
	ecnMask          = 3
	notECT, ecnCE    = 0, 3
	hopByHop         = 0
	routing          = 43
	destinationOpts  = 60
	ip4Least, ip6Len = 20, 40
)

// Parse reads an IP packet, from its header to its end. It returns false for what is no fragment, or not of TCP; a malformed
// fragment of TCP is one, and Add says so.
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
	if header < ip4Least || len(ip) < header || ip[9] != protocolTCP || field&(moreFragments|offsetMask) == 0 {
		return f, false
	}
	return Fragment{
		Src: netip.AddrFrom4([4]byte(ip[12:])), Dst: netip.AddrFrom4([4]byte(ip[16:])), id: uint32(binary.BigEndian.Uint16(ip[4:])),
		offset: int(field&offsetMask) * 8, more: field&moreFragments != 0, ecn: ip[1] & ecnMask, header: ip[:header], data: ip[header:],
	}, true
}

func parse6(ip []byte) (f Fragment, ok bool) {
	next, at := 6, ip6Len // where the number of the next header stands, and where that begins
	for range maxExtensions {
		switch ip[next] {
		case nextFragment:
			if len(ip) < at+fragmentHeader || ip[at] != protocolTCP {
				return f, false
			}
			header := append([]byte(nil), ip[:at]...)
			header[next] = ip[at]
			field := binary.BigEndian.Uint16(ip[at+2:])
			return Fragment{
				Src: netip.AddrFrom16([16]byte(ip[8:])), Dst: netip.AddrFrom16([16]byte(ip[24:])), id: binary.BigEndian.Uint32(ip[at+4:]),
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

// tiny says whether a first fragment has less than the TCP header (RFC 1858, RFC 7112), or one that is too short to be
// one.
func (f *Fragment) tiny() bool {
	if f.offset != 0 {
		return false
	}
	if len(f.data) < leastTCP {
		return true
	}
	header := int(f.data[12]>>4) * 4
	return header < leastTCP || len(f.data) < header
}
