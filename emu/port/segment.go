package port

import (
	"encoding/binary"

	"splicenic/emu/frame"
)

// A Verdict says what is wrong with the offload header of a frame. Such a header comes from a peer, so a bad one is
// counted and its frame dropped.
type Verdict uint8

// The verdicts.
const (
	Good        Verdict = iota
	BadChecksum         // the checksum's place is outside the frame, or is not the TCP header's; or the sum is wrong
	BadType             // coalesced, but not as TCP over IPv4 or IPv6
	BadSize             // a segment size below MinSegment
	BadHeaders          // not the headers that the type promises, or they run past the frame
)

var verdictNames = [...]string{"good", "bad checksum offload", "bad segmentation type", "bad segment size", "bad headers"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "unknown verdict"
}

// MinSegment is the smallest segment size a frame is cut to. It bounds the segments of one frame at 65,535 / 8; a Linux
// sender stays above it (tcp_min_snd_mss is 48, options take at most 40 bytes of it).
const MinSegment = 8

const (
	ethernetBytes = 14
	tagBytes      = 4
	maxTags       = 2
	ip4Bytes      = 20
	ip6Bytes      = 40
	tcpBytes      = 20
	maxExtensions = 8 // options headers of IPv6

	typeIP4        = 0x0800
	typeIP6        = 0x86dd
	typeTag        = 0x8100
	typeServiceTag = 0x88a8

	protocolTCP = 6

	tcpChecksum = 16 // offset of the checksum in a TCP header
	udpChecksum = 6  // and in a UDP header

	flagFIN = 0x01
	flagPSH = 0x08
	flagCWR = 0x80
)

// Complete turns the partial checksum of a plain frame into a full one, in place, and clears the offload header. Bytes
// beyond the IP packet, the padding of a short frame, stay out of the sum.
func Complete(f *frame.Frame) Verdict {
	if f.Offload.GSOType&^frame.GSOECN != frame.GSONone {
		return BadType
	}
	if f.Offload.Flags&frame.NeedsChecksum == 0 {
		f.Offload = frame.Offload{}
		return Good
	}
	b := f.Bytes()
	if !checksumInside(b, &f.Offload) {
		return BadChecksum
	}
	complete(b, &f.Offload)
	f.Offload = frame.Offload{}
	return Good
}

// checksumInside says whether the sum's first byte and its field lie in the frame, behind the Ethernet header.
func checksumInside(b []byte, o *frame.Offload) bool {
	return o.CsumStart >= ethernetBytes && int(o.CsumStart)+int(o.CsumOffset)+2 <= len(b)
}

// complete sums and writes. The offload header has been found good.
func complete(b []byte, o *frame.Offload) {
	start, field := int(o.CsumStart), int(o.CsumStart)+int(o.CsumOffset)
	end := len(b)
	if e := packetEnd(b); e >= field+2 && e < end {
		end = e
	}
	// The field holds the sum of the pseudo-header and is summed with the rest.
	sum := ^frame.Fold(frame.Sum(b[start:end], 0))
	if sum == 0 && o.CsumOffset == udpChecksum {
		sum = 0xffff // zero means "no checksum" in UDP (RFC 768)
	}
	binary.BigEndian.PutUint16(b[field:], sum)
}

// network returns the EtherType behind the tags of a frame and where its payload begins.
func network(b []byte) (etherType uint16, l3 int, ok bool) {
	if len(b) < ethernetBytes {
		return 0, 0, false
	}
	l3 = ethernetBytes
	etherType = binary.BigEndian.Uint16(b[12:])
	for range maxTags {
		if etherType != typeTag && etherType != typeServiceTag {
			break
		}
		if len(b) < l3+tagBytes {
			return 0, 0, false
		}
		etherType = binary.BigEndian.Uint16(b[l3+2:])
		l3 += tagBytes
	}
	return etherType, l3, true
}

// packetEnd is where the IP packet of a frame says it ends, or 0 if there is none that says so.
func packetEnd(b []byte) int {
	etherType, l3, ok := network(b)
	switch {
	case ok && etherType == typeIP4 && len(b) >= l3+ip4Bytes:
		return l3 + int(binary.BigEndian.Uint16(b[l3+2:]))
	case ok && etherType == typeIP6 && len(b) >= l3+ip6Bytes:
		return l3 + ip6Bytes + int(binary.BigEndian.Uint16(b[l3+4:]))
	}
	return 0
}

// A Cutter cuts a coalesced frame into the wire frames it stands for:
//
//	n, v := c.Begin(f)
//	for v == Good && c.Next(dst) { … }
//
// The segments have complete checksums. IPv4 identifications count up from the frame's; FIN and PSH stand in the last
// segment only, CWR in the first only. A frame that is not coalesced comes out as itself, its checksum completed.
//
// A Cutter keeps no buffer of its own and may be used again; between Begin and the last Next it reads the frame's.
type Cutter struct {
	frame   []byte // up to the end of the IP packet, or all of a plain frame
	offload frame.Offload
	plain   bool
	ip6     bool
	l3, l4  int // where the IP and TCP headers begin
	payload int // where the TCP payload begins
	size    int // payload bytes of a segment
	at      int // where the next segment's payload begins
	index   int // of the next segment
	count   int
}

// Begin looks at a frame and returns how many wire frames it is.
func (c *Cutter) Begin(f *frame.Frame) (count uint32, v Verdict) {
	*c = Cutter{frame: f.Bytes(), offload: f.Offload}
	switch f.Offload.GSOType &^ frame.GSOECN {
	case frame.GSONone:
		v = c.beginPlain()
	case frame.GSOTCP4:
		v = c.beginTCP(typeIP4)
	case frame.GSOTCP6:
		v = c.beginTCP(typeIP6)
	default:
		v = BadType
	}
	if v != Good {
		*c = Cutter{}
	}
	return uint32(c.count), v
}

func (c *Cutter) beginPlain() Verdict {
	if c.offload.Flags&frame.NeedsChecksum != 0 && !checksumInside(c.frame, &c.offload) {
		return BadChecksum
	}
	c.plain, c.count = true, 1
	return Good
}

func (c *Cutter) beginTCP(want uint16) Verdict {
	etherType, l3, ok := network(c.frame)
	if !ok || etherType != want {
		return BadHeaders
	}
	c.l3, c.ip6 = l3, want == typeIP6
	if !c.findTCP() {
		return BadHeaders
	}
	if v := c.checksum(); v != Good {
		return v
	}
	c.size = int(c.offload.GSOSize)
	if c.size < MinSegment {
		return BadSize
	}
	bytes := len(c.frame) - c.payload
	c.count = max(1, (bytes+c.size-1)/c.size)
	c.at = c.payload
	return Good
}

// findTCP finds the TCP header and its payload, and cuts the padding off the frame.
func (c *Cutter) findTCP() bool {
	end := packetEnd(c.frame)
	if end < c.l3+ip4Bytes || end > len(c.frame) {
		return false
	}
	c.frame = c.frame[:end]
	if c.ip6 {
		c.l4 = tcpOver6(c.frame, c.l3)
	} else {
		c.l4 = tcpOver4(c.frame, c.l3)
	}
	if c.l4 == 0 || c.l4+tcpBytes > end {
		return false
	}
	header := int(c.frame[c.l4+12]>>4) * 4
	c.payload = c.l4 + header
	return header >= tcpBytes && c.payload <= end
}

// tcpOver4 is where the TCP header of an IPv4 packet begins, or 0.
func tcpOver4(b []byte, l3 int) int {
	header := int(b[l3]&15) * 4
	fragment := binary.BigEndian.Uint16(b[l3+6:]) & 0x3fff // MF and the offset
	if b[l3]>>4 != 4 || header < ip4Bytes || fragment != 0 || b[l3+9] != protocolTCP {
		return 0
	}
	return l3 + header
}

// tcpOver6 is where the TCP header of an IPv6 packet begins, or 0. It steps over hop-by-hop and destination options. A
// fragment is never coalesced; behind a routing header the pseudo-header would have another destination.
func tcpOver6(b []byte, l3 int) int {
	if b[l3]>>4 != 6 {
		return 0
	}
	next, at := b[l3+6], l3+ip6Bytes
	for range maxExtensions {
		if next == protocolTCP {
			return at
		}
		if next != 0 && next != 60 || at+8 > len(b) {
			return 0
		}
		next, at = b[at], at+8+int(b[at+1])*8
	}
	if next == protocolTCP {
		return at
	}
	return 0
}

// checksum says whether the TCP checksum may be made anew: it is partial, or somebody has checked it, or it is right.
func (c *Cutter) checksum() Verdict {
	switch o := &c.offload; {
	case o.Flags&frame.NeedsChecksum != 0:
		if int(o.CsumStart) != c.l4 || o.CsumOffset != tcpChecksum {
			return BadChecksum
		}
	case o.Flags&frame.DataValid == 0:
		if frame.Fold(c.sum(c.frame)) != 0xffff {
			return BadChecksum
		}
	}
	return Good
}

// sum is the sum of a packet's pseudo-header, TCP header and payload.
func (c *Cutter) sum(b []byte) uint64 {
	length := len(b) - c.l4
	var pseudo uint64
	if c.ip6 {
		pseudo = frame.Pseudo6(b[c.l3:], protocolTCP, length)
	} else {
		pseudo = frame.Pseudo4(b[c.l3:], protocolTCP, length)
	}
	return frame.Sum(b[c.l4:], pseudo)
}

// Next writes the next wire frame into dst.Buf from dst.Start on and sets End and Offload; false means there is none
// left. No wire frame is longer than the frame they come from: that much room must be in dst.
func (c *Cutter) Next(dst *frame.Frame) bool {
	if c.index == c.count {
		return false
	}
	dst.Offload = frame.Offload{}
	out := dst.Buf[dst.Start:]
	if c.plain {
		dst.End = dst.Start + uint32(copy(out[:len(c.frame)], c.frame))
		if c.offload.Flags&frame.NeedsChecksum != 0 {
			complete(dst.Bytes(), &c.offload)
		}
		c.index++
		return true
	}
	to := min(c.at+c.size, len(c.frame))
	out = out[:c.payload+to-c.at]
	copy(out, c.frame[:c.payload])
	copy(out[c.payload:], c.frame[c.at:to])
	c.fix(out)
	dst.End = dst.Start + uint32(len(out))
	c.at = to
	c.index++
	return true
}

// fix brings the copied headers of one segment in line with its place among the segments.
func (c *Cutter) fix(b []byte) {
	ip, tcp := b[c.l3:], b[c.l4:]
	if c.ip6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-ip6Bytes))
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(c.index))
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], ^frame.Fold(frame.Sum(ip[:c.l4-c.l3], 0)))
	}
	binary.BigEndian.PutUint32(tcp[4:], binary.BigEndian.Uint32(tcp[4:])+uint32(c.at-c.payload))
	if c.index != 0 {
		tcp[13] &^= flagCWR
	}
	if c.index != c.count-1 {
		tcp[13] &^= flagFIN | flagPSH
	}
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], 0)
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], ^frame.Fold(c.sum(b)))
}
