package oracle

import (
	"encoding/binary"
	"net/netip"

	"splicenic/emu/frame"
)

// TCP flags.
const (
	fin = 1 << iota
	syn
	rst
	psh
	ack
)

// Kinds of options.
const (
	optionEnd        = 0
	optionNop        = 1
	optionMSS        = 2
	optionScale      = 3
	optionSACKOK     = 4
	optionSACK       = 5
	optionTimestamps = 8
)

// segment is a TCP segment; data points into the frame.
type segment struct {
	src, dst netip.AddrPort
	seq, ack uint32
	flags    uint8
	window   int64 // unscaled
	data     []byte
	options
}

// options are those of one segment.
type options struct {
	kinds      [4]uint64 // bit n: kind n is there
	mss        int
	scale      uint8
	val, echo  uint32
	blocks     [4][2]uint32
	blockCount int
}

func (o *options) has(kind uint8) bool { return o.kinds[kind/64]>>(kind%64)&1 != 0 }

// length is what the segment takes of the sequence space.
func (s *segment) length() int64 {
	return int64(len(s.data)) + int64(s.flags&fin) + int64(s.flags&syn)>>1
}

// verdict says what parse found.
type verdict uint8

const (
	other     verdict = iota // no TCP segment, or a fragment of one
	good                     // a segment
	partial                  // a segment whose checksum is that of the pseudo-header alone, to be completed
	badSum                   // a checksum is wrong
	malformed                // lengths or options do not fit
)

// parse reads a frame.
func parse(b []byte, s *segment) verdict {
	if len(b) < 14 {
		return other
	}
	at, etherType := 14, binary.BigEndian.Uint16(b[12:])
	for ; etherType == 0x8100 || etherType == 0x88a8; at += 4 {
		if len(b) < at+4 {
			return other
		}
		etherType = binary.BigEndian.Uint16(b[at+2:])
	}
	switch b = b[at:]; {
	case etherType == 0x0800 && len(b) >= 20:
		return parse4(b, s)
	case etherType == 0x86dd && len(b) >= 40:
		return parse6(b, s)
	}
	return other
}

func parse4(b []byte, s *segment) verdict {
	header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case b[0]>>4 != 4 || header < 20 || header > len(b):
		return malformed
	case frame.Fold(frame.Sum(b[:header], 0)) != 0xffff:
		return badSum
	case b[9] != 6 || binary.BigEndian.Uint16(b[6:])&0x3fff != 0:
		return other
	case total < header || total > len(b):
		return malformed
	}
	s.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:])), 0)
	s.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:])), 0)
	return parseTCP(b[header:total], frame.Pseudo4(b, 6, total-header), s)
}

func parse6(b []byte, s *segment) verdict {
	end := 40 + int(binary.BigEndian.Uint16(b[4:]))
	if b[0]>>4 != 6 || end > len(b) {
		return malformed
	}
	next, at := b[6], 40
	for next == 0 || next == 60 { // hop-by-hop and destination options
		if at+8 > end {
			return malformed
		}
		next, at = b[at], at+8+int(b[at+1])*8
	}
	if next != 6 || at > end {
		return other
	}
	s.src = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:])), 0)
	s.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[24:])), 0)
	return parseTCP(b[at:end], frame.Pseudo6(b, 6, end-at), s)
}

func parseTCP(t []byte, pseudo uint64, s *segment) verdict {
	if len(t) < 20 {
		return malformed
	}
	v := good
	if frame.Fold(frame.Sum(t, pseudo)) != 0xffff {
		if v = badSum; binary.BigEndian.Uint16(t[16:]) == frame.Fold(pseudo) {
			v = partial
		}
	}
	header := int(t[12]>>4) * 4
	if header < 20 || header > len(t) {
		return malformed
	}
	s.src = netip.AddrPortFrom(s.src.Addr(), binary.BigEndian.Uint16(t))
	s.dst = netip.AddrPortFrom(s.dst.Addr(), binary.BigEndian.Uint16(t[2:]))
	s.seq, s.ack = binary.BigEndian.Uint32(t[4:]), binary.BigEndian.Uint32(t[8:])
	s.flags, s.window, s.data = t[13], int64(binary.BigEndian.Uint16(t[14:])), t[header:]
	if !s.read(t[20:header]) {
		return malformed
	}
	return v
}

// read parses the options.
func (o *options) read(b []byte) bool {
	*o = options{}
	for len(b) > 0 && b[0] != optionEnd {
		if b[0] == optionNop {
			b = b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return false
		}
		kind, v := b[0], b[2:b[1]]
		b = b[b[1]:]
		switch {
		case kind == optionMSS && len(v) == 2:
			o.mss = int(binary.BigEndian.Uint16(v))
		case kind == optionScale && len(v) == 1:
			o.scale = min(v[0], 14)
		case kind == optionTimestamps && len(v) == 8:
			o.val, o.echo = binary.BigEndian.Uint32(v), binary.BigEndian.Uint32(v[4:])
		case kind == optionSACK && len(v)%8 == 0 && len(v) <= 32:
			for ; len(v) > 0; v = v[8:] {
				o.blocks[o.blockCount] = [2]uint32{binary.BigEndian.Uint32(v), binary.BigEndian.Uint32(v[4:])}
				o.blockCount++
			}
		}
		o.kinds[kind/64] |= 1 << (kind % 64)
	}
	return true
}
