package tcppeer

import (
	"encoding/binary"
	"net/netip"

	"splicenic/emu/frame"
)

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherIPv6 = 0x86dd

	protocolTCP    = 6
	protocolICMPv6 = 58

	ttl = 64
)

// TCP flags.
const (
	fin = 1 << iota
	syn
	rst
	psh
	ack
)

// Options as RFC 9293 and RFC 7323 number them.
const (
	optionEnd        = 0
	optionNop        = 1
	optionMSS        = 2
	optionScale      = 3
	optionSACKOK     = 4
	optionSACK       = 5
	optionTimestamps = 8
)

// addr holds an address as 16 bytes; IPv4 as ::ffff:a.b.c.d.
type addr [16]byte

func toAddr(a netip.Addr) addr { return a.As16() }

// segment is a received TCP segment; data points into the frame.
type segment struct {
	key      key // local is the destination
	mac      [6]byte
	seq, ack uint32
	window   uint32
	flags    uint8
	data     []byte

	mss           uint16
	scale         uint8
	scaleOn       bool
	sackOK        bool
	timestamps    bool
	tsval, tsecho uint32
}

// packet is an IP packet found in a frame.
type packet struct {
	mac      [6]byte
	six      bool
	protocol uint8
	ip, body []byte // the packet from its IP header on, and what follows the header
}

// parseIP finds the IP packet of b and checks lengths and the header checksum.
func parseIP(b []byte, at int, etherType uint16) (p packet, ok bool) {
	copy(p.mac[:], b[6:12])
	b = b[at:]
	switch {
	case etherType == etherIPv4 && len(b) >= 20:
		header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if b[0]>>4 != 4 || header < 20 || total < header || total > len(b) || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 ||
			frame.Fold(frame.Sum(b[:header], 0)) != 0xffff {
			return p, false
		}
		p.ip, p.body, p.protocol = b[:total], b[header:total], b[9]
		return p, true
	case etherType == etherIPv6 && len(b) >= 40:
		total := 40 + int(binary.BigEndian.Uint16(b[4:]))
		if b[0]>>4 != 6 || total > len(b) {
			return p, false
		}
		p.six, p.ip, p.body, p.protocol = true, b[:total], b[40:total], b[6]
		return p, true
	}
	return p, false
}

// addresses returns source and destination.
func (p *packet) addresses() (src, dst addr) {
	if p.six {
		return addr(p.ip[8:24]), addr(p.ip[24:40])
	}
	src[10], src[11], dst[10], dst[11] = 0xff, 0xff, 0xff, 0xff
	copy(src[12:], p.ip[12:16])
	copy(dst[12:], p.ip[16:20])
	return src, dst
}

// sum is the one's complement sum of body and pseudo-header; 0xffff where the checksum is right.
func (p *packet) sum() uint16 {
	if p.six {
		return frame.Fold(frame.Sum(p.body, frame.Pseudo6(p.ip, p.protocol, len(p.body))))
	}
	return frame.Fold(frame.Sum(p.body, frame.Pseudo4(p.ip, p.protocol, len(p.body))))
}

// parseTCP reads the segment in p, whose checksum the caller has checked.
func parseTCP(p *packet, s *segment) bool {
	b := p.body
	if len(b) < 20 {
		return false
	}
	header := int(b[12]>>4) * 4
	if header < 20 || header > len(b) {
		return false
	}
	*s = segment{mac: p.mac, seq: binary.BigEndian.Uint32(b[4:]), ack: binary.BigEndian.Uint32(b[8:]),
		window: uint32(binary.BigEndian.Uint16(b[14:])), flags: b[13], data: b[header:]}
	s.key.remote, s.key.local = p.addresses()
	s.key.remotePort, s.key.localPort = binary.BigEndian.Uint16(b[0:]), binary.BigEndian.Uint16(b[2:])
	return parseOptions(b[20:header], s)
}

func parseOptions(o []byte, s *segment) bool {
	for len(o) > 0 {
		switch {
		case o[0] == optionEnd:
			return true
		case o[0] == optionNop:
			o = o[1:]
			continue
		case len(o) < 2 || o[1] < 2 || int(o[1]) > len(o):
			return false
		}
		v := o[2:o[1]]
		switch {
		case o[0] == optionMSS && len(v) == 2:
			s.mss = binary.BigEndian.Uint16(v)
		case o[0] == optionScale && len(v) == 1:
			s.scale, s.scaleOn = min(v[0], 14), true
		case o[0] == optionSACKOK && len(v) == 0:
			s.sackOK = true
		case o[0] == optionTimestamps && len(v) == 8:
			s.timestamps, s.tsval, s.tsecho = true, binary.BigEndian.Uint32(v), binary.BigEndian.Uint32(v[4:])
		}
		o = o[o[1]:]
	}
	return true
}

// header is what a segment to be sent says beside its data.
type header struct {
	key      *key
	mac      [6]byte
	seq, ack uint32
	window   uint16
	flags    uint8
	options  []byte
}

// build writes the segment into b and returns the frame.
func build(b []byte, from [6]byte, vlan uint16, h *header, data []byte) []byte {
	at := buildEthernet(b, h.mac, from, vlan, h.key.six())
	tcp := 20 + len(h.options)
	length := tcp + len(data)
	ip := b[at:]
	var sum uint64
	if h.key.six() {
		ip = ip[:40+length]
		buildIPv6(ip, protocolTCP, ttl, &h.key.local, &h.key.remote)
		sum = frame.Pseudo6(ip, protocolTCP, length)
	} else {
		ip = ip[:20+length]
		buildIPv4(ip, h.key)
		sum = frame.Pseudo4(ip, protocolTCP, length)
	}
	t := ip[len(ip)-length:]
	binary.BigEndian.PutUint16(t[0:], h.key.localPort)
	binary.BigEndian.PutUint16(t[2:], h.key.remotePort)
	binary.BigEndian.PutUint32(t[4:], h.seq)
	binary.BigEndian.PutUint32(t[8:], h.ack)
	t[12], t[13] = byte(tcp/4)<<4, h.flags
	binary.BigEndian.PutUint16(t[14:], h.window)
	binary.BigEndian.PutUint32(t[16:], 0)
	copy(t[20:], h.options)
	copy(t[tcp:], data)
	binary.BigEndian.PutUint16(t[16:], ^frame.Fold(frame.Sum(t, sum)))
	return b[:at+len(ip)]
}

func buildEthernet(b []byte, to, from [6]byte, vlan uint16, six bool) (at int) {
	copy(b[0:], to[:])
	copy(b[6:], from[:])
	at = 12
	if vlan != 0 {
		binary.BigEndian.PutUint16(b[12:], etherVLAN)
		binary.BigEndian.PutUint16(b[14:], vlan)
		at = 16
	}
	etherType := uint16(etherIPv4)
	if six {
		etherType = etherIPv6
	}
	binary.BigEndian.PutUint16(b[at:], etherType)
	return at + 2
}

func buildIPv4(ip []byte, k *key) {
	binary.BigEndian.PutUint32(ip[0:], 0x45<<24|uint32(len(ip)))
	binary.BigEndian.PutUint32(ip[4:], 0x4000) // do not fragment
	binary.BigEndian.PutUint32(ip[8:], ttl<<24|protocolTCP<<16)
	copy(ip[12:16], k.local[12:])
	copy(ip[16:20], k.remote[12:])
	binary.BigEndian.PutUint16(ip[10:], ^frame.Fold(frame.Sum(ip[:20], 0)))
}

func buildIPv6(ip []byte, protocol, hops uint8, src, dst *addr) {
	binary.BigEndian.PutUint32(ip[0:], 6<<28)
	binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	ip[6], ip[7] = protocol, hops
	copy(ip[8:24], src[:])
	copy(ip[24:40], dst[:])
}
