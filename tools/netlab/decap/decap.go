package decap

import (
	"encoding/binary"
	"net/netip"
)

// Kind is how a packet came.
type Kind string

// The kinds. With GRE and GUE the checksum that protected the packet is part of it.
const (
	IPv4      Kind = "ipv4"       // IPv4 in IPv4 or IPv6 (protocol 4)
	IPv6      Kind = "ipv6"       // IPv6 in IPv4 or IPv6 (protocol 41)
	GRE       Kind = "gre"        // without a checksum (RFC 2784)
	GREFull   Kind = "gre-full"   // with a checksum
	GUE       Kind = "gue"        // variant 0, UDP checksum zero (draft-ietf-intarea-gue)
	GUEFull   Kind = "gue-full"   // variant 0, with a UDP checksum
	GUERemote Kind = "gue-remote" // variant 0, with a UDP checksum and remote checksum offload
	GUEDirect Kind = "gue-direct" // variant 1: the packet stands behind the UDP header
	DSCP      Kind = "dscp"       // L3DSR: no header, the VIP is told by DSCP
)

// Reason is why a packet was refused.
type Reason string

// The reasons. Foreign is no fault: the packet is not for a tunnel.
const (
	None              Reason = ""
	Foreign           Reason = "foreign"
	Short             Reason = "short"               // a header or a length goes beyond the packet
	OuterHeader       Reason = "outer_header"        // the checksum of the IPv4 header
	OuterFragment     Reason = "outer_fragment"      // nobody puts fragments together here
	Coalesced         Reason = "coalesced"           // segments that should have been cut before encapsulation
	GREKey            Reason = "gre_key"             // has a key
	GRESequence       Reason = "gre_sequence"        // has a sequence number
	GREVersion        Reason = "gre_version"         // another version, or routing
	GREChecksum       Reason = "gre_checksum"        // wrong
	UDPChecksum       Reason = "udp_checksum"        // wrong
	UDPLength         Reason = "udp_length"          // not that of the packet
	GUEVariant        Reason = "gue_variant"         // neither 0 nor 1
	GUEControl        Reason = "gue_control"         // a control message
	GUEFlags          Reason = "gue_flags"           // flags or options that are not known
	GUERemoteChecksum Reason = "gue_remote_checksum" // offload without a UDP checksum, or beyond the packet
	InnerProtocol     Reason = "inner_protocol"      // neither IPv4 nor IPv6, or not what the header before says
	InnerHeader       Reason = "inner_header"        // length or checksum of the packet's IP header
	InnerChecksum     Reason = "inner_checksum"      // of the packet's TCP, UDP or ICMPv6
)

// Rules says what is taken. The zero value takes every tunnel, GUE at port 6080, and no L3DSR.
type Rules struct {
	Port uint16                 // UDP port of GUE; 0: 6080
	DSCP map[uint8][]netip.Addr // VIPs by DSCP value (6 bits), one for each family
}

const (
	protoICMP   = 1
	protoIPv4   = 4
	protoTCP    = 6
	protoUDP    = 17
	protoIPv6   = 41
	protoGRE    = 47
	protoICMPv6 = 58
)

// Open takes a packet, which begins with its outer IP header, and returns the one within, which shares its memory and may have
// been changed in it. Checksums of p are complete. reason is None exactly where there is an inner packet.
func (r *Rules) Open(p []byte) (inner []byte, kind Kind, reason Reason) {
	o, reason := parse(p)
	if reason != None {
		return nil, "", reason
	}
	if vip, ok := r.vip(&o); ok {
		return r.restore(p, &o, vip)
	}
	tunnel := o.proto == protoIPv4 || o.proto == protoIPv6 || o.proto == protoGRE || o.proto == protoUDP && r.forGUE(o.payload)
	if o.fragment { // of a later one nobody can tell what is in it; those of tunnels with a number of their own are named
		if tunnel {
			return nil, "", OuterFragment
		}
		return nil, "", Foreign
	}
	if !tunnel {
		return nil, "", Foreign
	}
	if o.badHeader {
		return nil, "", OuterHeader
	}
	var version byte
	switch o.proto {
	case protoIPv4:
		inner, kind, version = o.payload, IPv4, 4
	case protoIPv6:
		inner, kind, version = o.payload, IPv6, 6
	case protoGRE:
		inner, kind, version, reason = openGRE(o.payload)
	case protoUDP:
		inner, kind, version, reason = openUDP(&o)
	}
	if reason != None {
		return nil, kind, reason
	}
	inner, reason = check(inner, version)
	return inner, kind, reason
}

// outer is what an IP header says.
type outer struct {
	src, dst  []byte
	proto     byte
	at        int // of the payload
	payload   []byte
	dscp      byte
	fragment  bool
	later     bool // a fragment without the beginning
	badHeader bool
}

// parse reads an IP header, IPv6 extension headers included.
func parse(p []byte) (o outer, reason Reason) {
	if len(p) < 1 {
		return o, Short
	}
	switch p[0] >> 4 {
	case 4:
		return parse4(p)
	case 6:
		return parse6(p)
	}
	return o, Foreign
}

func parse4(p []byte) (o outer, reason Reason) {
	if len(p) < 20 {
		return o, Short
	}
	header, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	if header < 20 || total < header || total > len(p) {
		return o, Short
	}
	fragment := binary.BigEndian.Uint16(p[6:])
	return outer{
		src: p[12:16], dst: p[16:20], proto: p[9], at: header, payload: p[header:total], dscp: p[1] >> 2,
		fragment: fragment&0x3fff != 0, later: fragment&0x1fff != 0, badHeader: fold(sum(p[:header], 0)) != 0xffff,
	}, None
}

// maxExtensions bounds the extension headers of a packet.
const maxExtensions = 8

func parse6(p []byte) (o outer, reason Reason) {
	if len(p) < 40 {
		return o, Short
	}
	total := 40 + int(binary.BigEndian.Uint16(p[4:]))
	if total > len(p) {
		return o, Short
	}
	o = outer{src: p[8:24], dst: p[24:40], proto: p[6], at: 40, dscp: byte(binary.BigEndian.Uint16(p)>>6) & 63}
	for range maxExtensions {
		var length int
		rest := p[o.at:total]
		switch o.proto {
		case 0, 43, 60: // hop by hop, routing, destination options
			if len(rest) < 8 {
				return o, Short
			}
			length = 8 + 8*int(rest[1])
		case 44:
			if len(rest) < 8 {
				return o, Short
			}
			length = 8
			offset := binary.BigEndian.Uint16(rest[2:])
			o.fragment, o.later = o.fragment || offset&0xfff9 != 0, o.later || offset&0xfff8 != 0
		default:
			o.payload = rest
			return o, None
		}
		if length > len(rest) {
			return o, Short
		}
		o.proto, o.at = rest[0], o.at+length
		if o.later {
			break
		}
	}
	o.payload = p[o.at:total]
	return o, None
}

// openGRE reads a GRE header (RFC 2784, 2.1).
func openGRE(p []byte) (inner []byte, kind Kind, version byte, reason Reason) {
	const hasChecksum, hasRouting, hasKey, hasSequence = 0x8000, 0x4000, 0x2000, 0x1000
	if len(p) < 4 {
		return nil, GRE, 0, Short
	}
	flags, length, kind := binary.BigEndian.Uint16(p), 4, GRE
	switch {
	case flags&7 != 0 || flags&hasRouting != 0:
		return nil, kind, 0, GREVersion
	case flags&hasKey != 0:
		return nil, kind, 0, GREKey
	case flags&hasSequence != 0:
		return nil, kind, 0, GRESequence
	}
	if flags&hasChecksum != 0 {
		kind, length = GREFull, 8
		if len(p) < length {
			return nil, kind, 0, Short
		}
		if fold(sum(p, 0)) != 0xffff {
			return nil, kind, 0, GREChecksum
		}
	}
	switch binary.BigEndian.Uint16(p[2:]) {
	case 0x0800:
		version = 4
	case 0x86dd:
		version = 6
	default:
		return nil, kind, 0, InnerProtocol
	}
	return p[length:], kind, version, None
}

// forGUE says whether a UDP datagram goes to the port of GUE.
func (r *Rules) forGUE(udp []byte) bool {
	port := r.Port
	if port == 0 {
		port = 6080
	}
	return len(udp) >= 8 && binary.BigEndian.Uint16(udp[2:]) == port
}

// openUDP reads UDP and GUE headers.
func openUDP(o *outer) (inner []byte, kind Kind, version byte, reason Reason) {
	udp := o.payload
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if length < 8 || length > len(udp) {
		return nil, GUE, 0, UDPLength
	}
	udp = udp[:length]
	covered := binary.BigEndian.Uint16(udp[6:]) != 0
	if covered && fold(sum(udp, pseudo(o.src, o.dst, protoUDP, length))) != 0xffff {
		return nil, GUEFull, 0, UDPChecksum
	}
	gue := udp[8:]
	if len(gue) < 1 {
		return nil, GUE, 0, Short
	}
	switch gue[0] >> 6 {
	case 0:
		return openGUE(gue, covered)
	case 1: // the first bits of an IP version
		return gue, GUEDirect, gue[0] >> 4, None
	}
	return nil, GUE, 0, GUEVariant
}

// openGUE reads the header of variant 0: two bits of variant, one for control messages, five of the options' length in 32-bit
// words; the protocol; 16 flags. Of these Linux knows the last one, for a word of private flags, and among those the
// first, for remote checksum offload (include/net/gue.h): 16 bits each of where the checksum begins and where it is stored,
// counted from behind the GUE header. What is stored there before is the sum of the pseudo-header.
func openGUE(gue []byte, covered bool) (inner []byte, kind Kind, version byte, reason Reason) {
	const control, private, remote = 0x20, 0x0001, 0x80000000
	if kind = GUE; covered {
		kind = GUEFull
	}
	if len(gue) < 4 {
		return nil, kind, 0, Short
	}
	header := 4 + 4*int(gue[0]&31)
	if header > len(gue) {
		return nil, kind, 0, Short
	}
	flags, options := binary.BigEndian.Uint16(gue[2:]), gue[4:header]
	switch {
	case gue[0]&control != 0:
		return nil, kind, 0, GUEControl
	case flags&^private != 0:
		return nil, kind, 0, GUEFlags
	}
	inner = gue[header:]
	switch {
	case flags == 0 && len(options) == 0:
	case flags == private && len(options) == 4 && binary.BigEndian.Uint32(options) == 0:
	case flags == private && len(options) == 8 && binary.BigEndian.Uint32(options) == remote:
		kind = GUERemote
		start, offset := int(binary.BigEndian.Uint16(options[4:])), int(binary.BigEndian.Uint16(options[6:]))
		if !covered || start > len(inner) || offset+2 > len(inner) || offset < start {
			return nil, kind, 0, GUERemoteChecksum
		}
		binary.BigEndian.PutUint16(inner[offset:], ^fold(sum(inner[start:], 0)))
	default:
		return nil, kind, 0, GUEFlags
	}
	switch gue[1] {
	case protoIPv4:
		version = 4
	case protoIPv6:
		version = 6
	default:
		return nil, kind, 0, InnerProtocol
	}
	return inner, kind, version, None
}

// check verifies a packet that came out of a tunnel, and cuts what is behind it.
func check(p []byte, version byte) ([]byte, Reason) {
	if len(p) < 1 || p[0]>>4 != version || version != 4 && version != 6 {
		return nil, InnerProtocol
	}
	o, reason := parse(p)
	if reason != None || o.badHeader {
		return nil, InnerHeader
	}
	p = p[:o.at+len(o.payload)]
	if o.fragment {
		return p, None // nobody can tell before it is whole
	}
	n := len(o.payload)
	switch {
	case o.proto == protoTCP && n < 20, o.proto == protoUDP && n < 8, o.proto == protoICMPv6 && n < 4:
		return nil, InnerHeader
	case o.proto == protoUDP && version == 4 && binary.BigEndian.Uint16(o.payload[6:]) == 0:
	case o.proto == protoTCP, o.proto == protoUDP, o.proto == protoICMPv6 && version == 6:
		if fold(sum(o.payload, pseudo(o.src, o.dst, o.proto, n))) != 0xffff {
			return nil, InnerChecksum
		}
	}
	return p, None
}

// vip is the address that a packet's DSCP value stands for.
func (r *Rules) vip(o *outer) (netip.Addr, bool) {
	for _, a := range r.DSCP[o.dscp] {
		if a.BitLen() == 8*len(o.dst) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// restore makes the VIP a packet's destination.
func (r *Rules) restore(p []byte, o *outer, vip netip.Addr) ([]byte, Kind, Reason) {
	p = p[:o.at+len(o.payload)]
	if o.badHeader {
		return nil, DSCP, OuterHeader
	}
	if !o.fragment {
		if _, reason := check(p, p[0]>>4); reason != None {
			return nil, DSCP, reason
		}
	}
	// The difference of the two addresses goes into every checksum that covers them (RFC 1624).
	difference := sum(vip.AsSlice(), 0) + uint64(^fold(sum(o.dst, 0)))
	if at, ok := checksumAt(o); ok {
		adjust(o.payload[at:], difference, o.proto == protoUDP)
	}
	copy(o.dst, vip.AsSlice())
	if p[0]>>4 == 4 {
		adjust(p[10:], difference, false)
	}
	return p, DSCP, None
}

// checksumAt is where the transport's checksum lies, if it has one that covers addresses.
func checksumAt(o *outer) (at int, ok bool) {
	switch {
	case o.later:
	case o.proto == protoTCP:
		at = 16
	case o.proto == protoUDP:
		at = 6
	case o.proto == protoICMPv6 && len(o.dst) == 16:
		at = 2
	}
	if at == 0 || at+2 > len(o.payload) {
		return 0, false
	}
	return at, o.proto != protoUDP || binary.BigEndian.Uint16(o.payload[at:]) != 0
}

// adjust adds a difference to what a checksum covers.
func adjust(field []byte, difference uint64, udp bool) {
	c := ^fold(uint64(^binary.BigEndian.Uint16(field)) + difference)
	if c == 0 && udp {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(field, c)
}

// sum adds 16-bit words, big-endian; an odd last byte is the upper one of its word (RFC 1071).
func sum(b []byte, s uint64) uint64 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(b[0])<<8 | uint64(b[1])
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// pseudo is the sum of a pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1).
func pseudo(src, dst []byte, proto byte, length int) uint64 {
	return sum(src, sum(dst, uint64(proto)+uint64(length)>>16+uint64(length)&0xffff))
}
