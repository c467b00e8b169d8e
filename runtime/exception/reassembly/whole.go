package reassembly

import (
	"encoding/binary"
)

// A Whole is a packet put together, its TCP or UDP checksum found right.
type Whole struct {
	link, header []byte
	segment      []byte // what was cut
	protocol     uint8
	id           uint32
}

// TCP says whether Segments can be asked, and Frame else.
func (w *Whole) TCP() bool { return w.protocol == protocolTCP }

// ID is the identification of the packet's fragments.
func (w *Whole) ID() uint32 { return w.id }

const (
	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagPSH = 0x08
	flagURG = 0x20
	flagCWR = 0x80
)

// finish makes a packet of its parts. seen are the ECN code points of its fragments: one that met congestion did so for all,
// unless another says that its sender does not do ECN (RFC 3168 5.3).
func finish(link, header, segment []byte, protocol uint8, id uint32, seen byte) (w Whole, v Verdict) {
	ce := seen&(1<<ecnCE) != 0
	if ce && seen&(1<<notECT) != 0 {
		return w, Overlap // nobody sends such a packet: it is of two
	}
	w = Whole{append([]byte(nil), link...), append([]byte(nil), header...), segment, protocol, id}
	if ce {
		if w.four() {
			w.header[1] |= ecnCE
		} else {
			w.header[1] |= ecnCE << 4
		}
	}
	if !w.intact() {
		return Whole{}, Checksum
	}
	return w, Complete
}

// intact checks what was cut as far as its protocol lets it be checked. A UDP datagram over IPv4 may have no checksum.
func (w *Whole) intact() bool {
	switch w.protocol {
	case protocolTCP:
		return w.sum(w.segment) == 0xffff
	case protocolUDP:
		if int(binary.BigEndian.Uint16(w.segment[4:])) != len(w.segment) {
			return false
		}
		if w.segment[6]|w.segment[7] == 0 {
			return w.four()
		}
		return w.sum(w.segment) == 0xffff
	}
	return true
}

func (w *Whole) four() bool { return w.header[0]>>4 == 4 }

// sum adds up a segment and its pseudo-header.
func (w *Whole) sum(segment []byte) uint32 {
	at := 8
	if w.four() {
		at = 12
	}
	end := at + 32
	if w.four() {
		end = at + 8
	}
	return Sum(segment, Sum(w.header[at:end], uint32(len(segment))+uint32(w.protocol)))
}

// Sum is the one's complement sum of b and a start value (RFC 1071).
func Sum(b []byte, s uint32) uint32 {
	for len(b) >= 2 {
		s += uint32(b[0])<<8 | uint32(b[1])
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return s
}

// Segments calls f with the frames that carry the packet, as TCP segments in IP packets of at most mtu bytes. It returns
// false where the packet cannot be cut so. A frame is valid during the call.
func (w *Whole) Segments(mtu int, f func(frame []byte)) bool {
	header := int(w.segment[12]>>4) * 4
	payload := w.segment[header:]
	room := mtu - len(w.header) - header
	flags := w.segment[13]
	if len(payload) <= room {
		f(w.frame(w.segment, 0))
		return true
	}
	if room < 1 || flags&(flagSYN|flagRST) != 0 {
		return false
	}
	urgent := int(binary.BigEndian.Uint16(w.segment[18:]))
	segment := make([]byte, 0, header+room)
	for at, n := 0, 0; at < len(payload); n++ {
		part := payload[at:min(at+room, len(payload))]
		segment = append(append(segment[:0], w.segment[:header]...), part...)
		binary.BigEndian.PutUint32(segment[4:], binary.BigEndian.Uint32(segment[4:])+uint32(at))
		if at > 0 {
			segment[13] &^= flagCWR
		}
		if at+len(part) < len(payload) {
			segment[13] &^= flagFIN | flagPSH
		}
		if flags&flagURG != 0 { // it counts from the segment's first byte
			if urgent > at {
				binary.BigEndian.PutUint16(segment[18:], uint16(urgent-at))
			} else {
				segment[13] &^= flagURG
				segment[18], segment[19] = 0, 0
			}
		}
		segment[16], segment[17] = 0, 0
		binary.BigEndian.PutUint16(segment[16:], ^uint16(w.sum(segment)))
		f(w.frame(segment, n))
		at += len(part)
	}
	return true
}

// Frame is the packet in one piece, however long.
func (w *Whole) Frame() []byte { return w.frame(w.segment, 0) }

// frame puts link and IP header before the nth segment.
func (w *Whole) frame(segment []byte, n int) []byte {
	b := make([]byte, 0, len(w.link)+len(w.header)+len(segment))
	b = append(append(append(b, w.link...), w.header...), segment...)
	ip := b[len(w.link):]
	if !w.four() {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-ip6Len))
		return b
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(n))
	ip[6], ip[7], ip[10], ip[11] = 0, 0, 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^uint16(Sum(ip[:len(w.header)], 0)))
	return b
}

// Bytes is the length of the packet's TCP payload.
func (w *Whole) Bytes() int { return len(w.segment) - int(w.segment[12]>>4)*4 }
