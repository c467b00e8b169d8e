package datapath

import (
	"encoding/binary"

	"splicenic/emu/cam"
	"splicenic/emu/frame"
	"splicenic/regs"
)

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8

	protocolTCP = 6
	protocolUDP = 17

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagPSH = 0x08
	flagACK = 0x10
	flagURG = 0x20
	flagECE = 0x40
	flagCWR = 0x80
)

// maxExtensionHeaders is geometry.max_extension_headers.
const maxExtensionHeaders = 8

// class of a frame after the receive parser.
type class uint8

const (
	classDropped class = iota // counted already
	classPunted               // to the host, for reason
	classTCP                  // checked TCP segment
	classUDP                  // checked datagram
)

// packet is what the pipeline knows of one frame of a batch. Offsets count from the first byte of the frame.
type packet struct {
	f        *frame.Frame
	b        []byte
	ip       uint32 // IP header
	tcp      uint32 // TCP header
	payload  uint32 // TCP payload
	end      uint32 // end of the IP packet; Ethernet padding follows
	length   uint32 // payload bytes
	segs     uint32 // segments on a wire
	seq      uint32
	ack      uint32
	src      address
	dst      address
	sport    uint32
	dport    uint32
	vip      int32 // VIP index of dst, or −1
	server   int32 // server index of src and sport, or −1
	handle   uint32
	hash     [sides]uint64
	key      [sides]cam.Key
	vlan     uint32
	port     uint8
	class    class
	passed   bool  // hit a connection that was opened toward its server at its first segment
	reason   uint8 // of an exception
	kind     uint8 // ipv4 or ipv6, as in the page
	flags    uint8
	segment  Kind
	side     Side
	tagged   bool
	local    bool // from a server to a local address
	hit      bool
	legB     bool
	kept     bool  // syn stands for the options
	expected int32 // the server of what the host expects, where guard found that; else −1
	syn      options
	service  int32  // of the listener, where guard found one
	request  bool   // payload for a connection that waits for its head
	given    bool   // to the host
	mtu      uint32 // of an exception too_big: what would have gone on
}

// Exception reasons.
const (
	reasonNotIP     = regs.ExceptionReasonReasonNotIp
	reasonICMP      = regs.ExceptionReasonReasonIcmp
	reasonFragment  = regs.ExceptionReasonReasonFragment
	reasonOption    = regs.ExceptionReasonReasonOption
	reasonProtocol  = regs.ExceptionReasonReasonProtocol
	reasonVLAN      = regs.ExceptionReasonReasonVlan
	reasonTTL       = regs.ExceptionReasonReasonTtl
	reasonNoMatch   = regs.ExceptionReasonReasonNoMatch
	reasonBad       = regs.ExceptionReasonReasonBadRequest
	reasonNoRule    = regs.ExceptionReasonReasonNoRule
	reasonNoServer  = regs.ExceptionReasonReasonNoServer
	reasonHeadLarge = regs.ExceptionReasonReasonHeadTooLarge
	reasonTooBig    = regs.ExceptionReasonReasonTooBig

	reasonHeadMore     = regs.ExceptionReasonReasonHeadMore
	reasonHeldMore     = regs.ExceptionReasonReasonHeldMore
	reasonServerFailed = regs.ExceptionReasonReasonServerFailed
	reasonKeyExists    = regs.ExceptionReasonReasonKeyExists

	kindIPv4 = regs.PageControlKindIpv4
	kindIPv6 = regs.PageControlKindIpv6
)

// drop counts a frame that the parser of a port refuses.
func (c *Core) drop(p *packet, counter regs.Reg) {
	p.class = classDropped
	c.r.Add64(counter+regs.Reg(p.port)*regs.ParserStride, 1)
}

func (c *Core) punt(p *packet, reason uint8) {
	p.class, p.reason = classPunted, reason
}

// parse takes one frame through the receive state machine.
func (c *Core) parse(port int, f *frame.Frame, p *packet) {
	b := f.Bytes()
	p.f, p.b, p.port, p.segs, p.vlan, p.tagged, p.hit, p.vip, p.server, p.handle = f, b, uint8(port), 1, 0, false, false, -1, -1, 0
	p.side, p.request, p.given, p.kept, p.passed, p.local = ClientSide, false, false, false, false, false
	if len(b) < 14 {
		c.drop(p, regs.ParserDropTruncated)
		return
	}
	ether := binary.BigEndian.Uint16(b[12:])
	p.ip = 14
	if ether == etherVLAN {
		if len(b) < 18 {
			c.drop(p, regs.ParserDropTruncated)
			return
		}
		p.vlan, p.tagged = uint32(binary.BigEndian.Uint16(b[14:])&0xfff), true
		ether = binary.BigEndian.Uint16(b[16:])
		p.ip = 18
	}
	switch ether {
	case etherIPv4:
		c.parseIPv4(p)
	case etherIPv6:
		c.parseIPv6(p)
	case etherVLAN, etherQinQ:
		c.punt(p, reasonVLAN)
	default:
		c.punt(p, reasonNotIP)
	}
}

func (c *Core) parseIPv4(p *packet) {
	if len(p.b) < int(p.ip)+20 {
		c.drop(p, regs.ParserDropTruncated)
		return
	}
	ip := p.b[p.ip:]
	hlen := uint32(ip[0]&15) * 4
	if ip[0]>>4 != 4 || hlen < 20 {
		c.drop(p, regs.ParserDropIpHeader)
		return
	}
	total := uint32(binary.BigEndian.Uint16(ip[2:]))
	if total < hlen {
		c.drop(p, regs.ParserDropIpHeader)
		return
	}
	if uint32(len(ip)) < total {
		c.drop(p, regs.ParserDropTruncated)
		return
	}
	if frame.Fold(frame.Sum(ip[:hlen], 0)) != 0xffff {
		c.drop(p, regs.ParserDropIpChecksum)
		return
	}
	p.kind = kindIPv4
	p.src = address{binary.BigEndian.Uint32(ip[12:])}
	p.dst = address{binary.BigEndian.Uint32(ip[16:])}
	if s := p.src[0]; s>>28 >= 14 || s>>24 == 127 || s == 0 && p.dst[0] != 0xffffffff {
		c.drop(p, regs.ParserDropIpSource)
		return
	}
	p.tcp, p.end = p.ip+hlen, p.ip+total
	switch {
	case binary.BigEndian.Uint16(ip[6:])&0x3fff != 0:
		c.punt(p, reasonFragment)
	case ip[9] == protocolTCP && hlen > 20:
		c.punt(p, reasonOption)
	case ip[9] == protocolTCP:
		c.parseTCP(p, frame.Pseudo4(ip, protocolTCP, int(total-hlen)))
	case ip[9] == protocolUDP:
		c.parseUDP(p, frame.Pseudo4(ip, protocolUDP, int(total-hlen)))
	case ip[9] == 1:
		c.punt(p, reasonICMP)
	default:
		c.punt(p, reasonProtocol)
	}
}

func (c *Core) parseIPv6(p *packet) {
	if len(p.b) < int(p.ip)+40 {
		c.drop(p, regs.ParserDropTruncated)
		return
	}
	ip := p.b[p.ip:]
	if ip[0]>>4 != 6 {
		c.drop(p, regs.ParserDropIpHeader)
		return
	}
	total := 40 + uint32(binary.BigEndian.Uint16(ip[4:]))
	if uint32(len(ip)) < total {
		c.drop(p, regs.ParserDropTruncated)
		return
	}
	p.kind = kindIPv6
	p.src, p.dst = load6(ip[8:]), load6(ip[24:])
	if p.src[3]>>24 == 0xff || p.src == (address{1}) {
		c.drop(p, regs.ParserDropIpSource)
		return
	}
	p.end = p.ip + total
	next, at, option := ip[6], uint32(40), false
	for walked := 0; ; walked++ {
		if !isExtension(next) {
			break
		}
		if next == 44 { // fragment
			c.punt(p, reasonFragment)
			return
		}
		if walked == maxExtensionHeaders || at+8 > total {
			c.drop(p, regs.ParserDropExtensionHeader)
			return
		}
		if next == 43 && ip[at+3] != 0 { // a route not yet at its end
			option = true
		}
		n := 8 + uint32(ip[at+1])*8
		if at+n > total {
			c.drop(p, regs.ParserDropExtensionHeader)
			return
		}
		next, at = ip[at], at+n
	}
	p.tcp = p.ip + at
	switch {
	case p.src == (address{}) && next != 58:
		c.drop(p, regs.ParserDropIpSource)
	case option:
		c.punt(p, reasonOption)
	case next == protocolTCP:
		c.parseTCP(p, frame.Pseudo6(ip, protocolTCP, int(total-at)))
	case next == protocolUDP:
		c.parseUDP(p, frame.Pseudo6(ip, protocolUDP, int(total-at)))
	case next == 58:
		c.punt(p, reasonICMP)
	default:
		c.punt(p, reasonProtocol)
	}
}

// isExtension tells the IPv6 extension headers the parser walks (RFC 8200, 4): hop-by-hop options, routing, fragment
// and destination options.
func isExtension(next uint8) bool {
	return next == 0 || next == 43 || next == 44 || next == 60
}

func load6(b []byte) address {
	_ = b[15]
	return address{binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b)}
}

func store6(b []byte, a *address) {
	_ = b[15]
	binary.BigEndian.PutUint32(b[12:], a[0])
	binary.BigEndian.PutUint32(b[8:], a[1])
	binary.BigEndian.PutUint32(b[4:], a[2])
	binary.BigEndian.PutUint32(b, a[3])
}

// parseTCP checks the header and its checksum; pseudo is the sum of the pseudo-header.
func (c *Core) parseTCP(p *packet, pseudo uint64) {
	n := p.end - p.tcp
	if n < 20 {
		c.drop(p, regs.ParserDropTruncated)
		return
	}
	t := p.b[p.tcp:p.end:p.end]
	hlen := uint32(t[12]>>4) * 4
	if hlen < 20 || hlen > n {
		c.drop(p, regs.ParserDropTcpHeader)
		return
	}
	p.flags = t[13]
	p.payload, p.length = p.tcp+hlen, n-hlen
	if !c.checkSum(p, t, 16, pseudo) {
		return
	}
	p.segment = classify(p.flags, p.length)
	if p.segment == SYNFIN {
		c.drop(p, regs.ParserDropTcpFlags)
		return
	}
	if p.segment <= SYNData && !validOptions(t[20:hlen]) {
		c.drop(p, regs.ParserDropTcpOption)
		return
	}
	p.sport, p.dport = uint32(binary.BigEndian.Uint16(t)), uint32(binary.BigEndian.Uint16(t[2:]))
	p.seq, p.ack = binary.BigEndian.Uint32(t[4:]), binary.BigEndian.Uint32(t[8:])
	p.class = classTCP
}

// classify tells the kind of a segment as far as flags and length do.
func classify(flags uint8, length uint32) Kind {
	switch {
	case flags&(flagFIN|flagSYN|flagRST|flagPSH|flagACK|flagURG) == 0, flags&flagSYN != 0 && flags&(flagFIN|flagRST) != 0:
		return SYNFIN
	case flags&flagRST != 0:
		return RST
	case flags&(flagSYN|flagACK) == flagSYN|flagACK:
		return SYNACK
	case flags&flagSYN != 0 && length != 0:
		return SYNData
	case flags&flagSYN != 0:
		return SYN
	case flags&flagACK == 0:
		return NoACK
	case flags&flagFIN != 0 && length != 0:
		return FINData
	case flags&flagFIN != 0:
		return FIN
	case length == 0:
		return ACK
	case flags&flagURG != 0:
		return URG
	default:
		return Data
	}
}

// checkSum verifies the checksum of a whole transport segment, whose field is at offset at. A plain frame that arrived
// with a partial sum, and says so, is completed here; a coalesced one must carry exactly such a sum.
func (c *Core) checkSum(p *packet, t []byte, at int, pseudo uint64) bool {
	o := &p.f.Offload
	if o.GSOType == frame.GSONone && o.Flags&frame.NeedsChecksum == 0 {
		if frame.Fold(frame.Sum(t, pseudo)) == 0xffff {
			return true
		}
		c.drop(p, regs.ParserDropTcpChecksum)
		return false
	}
	if uint32(o.CsumStart) != p.tcp || int(o.CsumOffset) != at || o.Flags&frame.NeedsChecksum == 0 ||
		binary.BigEndian.Uint16(t[at:]) != frame.Fold(pseudo) {
		c.drop(p, regs.ParserDropOffload)
		return false
	}
	if o.GSOType == frame.GSONone {
		binary.BigEndian.PutUint16(t[at:], 0)
		binary.BigEndian.PutUint16(t[at:], ^frame.Fold(frame.Sum(t, pseudo)))
		o.Flags = 0
		return true
	}
	want := uint8(frame.GSOTCP4)
	if p.kind == kindIPv6 {
		want = frame.GSOTCP6
	}
	if o.GSOType&^frame.GSOECN != want || o.GSOSize == 0 || at != 16 || p.flags&(flagSYN|flagRST) != 0 {
		c.drop(p, regs.ParserDropOffload)
		return false
	}
	if p.length > uint32(o.GSOSize) {
		p.segs = (p.length + uint32(o.GSOSize) - 1) / uint32(o.GSOSize)
	}
	return true
}

// parseUDP checks a datagram. What leads to no listener of datagrams and comes from no server is the host's.
func (c *Core) parseUDP(p *packet, pseudo uint64) {
	n := p.end - p.tcp
	if n < 8 {
		c.drop(p, regs.ParserDropTruncated)
		return
	}
	t := p.b[p.tcp:p.end:p.end]
	length := uint32(binary.BigEndian.Uint16(t[4:]))
	sum := binary.BigEndian.Uint16(t[6:])
	if length < 8 || length != n || binary.BigEndian.Uint16(t[2:]) == 0 || sum == 0 && p.kind == kindIPv6 {
		c.drop(p, regs.ParserDropUdpHeader)
		return
	}
	o := &p.f.Offload
	switch {
	case o.GSOType != frame.GSONone:
		c.drop(p, regs.ParserDropOffload)
		return
	case o.Flags&frame.NeedsChecksum != 0:
		if !c.checkSum(p, t, 6, pseudo) {
			return
		}
		if binary.BigEndian.Uint16(t[6:]) == 0 {
			binary.BigEndian.PutUint16(t[6:], 0xffff)
		}
	case sum != 0 && frame.Fold(frame.Sum(t, pseudo)) != 0xffff:
		c.drop(p, regs.ParserDropUdpChecksum)
		return
	}
	if p.kind == kindIPv4 && p.tcp-p.ip > 20 {
		c.punt(p, reasonOption)
		return
	}
	p.sport, p.dport = uint32(binary.BigEndian.Uint16(t)), uint32(binary.BigEndian.Uint16(t[2:]))
	p.payload, p.length, p.flags, p.seq, p.ack, p.segment = p.tcp+8, n-8, 0, 0, 0, Datagram
	p.class = classUDP
}

// protocol is the IP protocol of a segment or datagram.
func (p *packet) protocol() uint32 {
	if p.class == classUDP {
		return protocolUDP
	}
	return protocolTCP
}

// validOptions walks the options of a SYN: every length is at least 2 and stays inside the header (RFC 9293, MUST-7).
func validOptions(o []byte) bool {
	for len(o) > 0 {
		switch o[0] {
		case 0:
			return true
		case 1:
			o = o[1:]
			continue
		}
		if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
			return false
		}
		o = o[o[1]:]
	}
	return true
}
