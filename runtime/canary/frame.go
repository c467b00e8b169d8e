package canary

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"splicenic/runtime/inet"
)

// TCP flags.
const (
	fin = 1 << iota
	syn
	rst
	psh
	ack
)

const (
	etherBytes = 14
	protocol   = 6 // TCP
	window     = 0xffff
)

// A segment is what a TCP segment says.
type segment struct {
	from, to netip.AddrPort
	seq, ack uint32
	flags    byte
	hops     byte
	mss      uint16 // of a SYN; zero: no option
	payload  []byte
}

// frame lays a segment out for a port with a MAC.
func (s *segment) frame(mac [6]byte, etherType uint32) []byte {
	header := 20
	if s.mss != 0 {
		header = 24
	}
	t := make([]byte, header, header+len(s.payload))
	binary.BigEndian.PutUint16(t, s.from.Port())
	binary.BigEndian.PutUint16(t[2:], s.to.Port())
	binary.BigEndian.PutUint32(t[4:], s.seq)
	binary.BigEndian.PutUint32(t[8:], s.ack)
	t[12], t[13] = byte(header/4)<<4, s.flags
	binary.BigEndian.PutUint16(t[14:], window)
	if s.mss != 0 {
		t[20], t[21] = 2, 4
		binary.BigEndian.PutUint16(t[22:], s.mss)
	}
	t = append(t, s.payload...)
	sum := inet.Sum(inet.Pseudo(s.from.Addr(), s.to.Addr(), protocol, len(t)), t)
	binary.BigEndian.PutUint16(t[16:], ^uint16(sum))
	b := make([]byte, etherBytes)
	copy(b, mac[:])
	copy(b[6:], peerMAC[:])
	binary.BigEndian.PutUint16(b[12:], uint16(etherType))
	return append(b, inet.Layout(s.from.Addr(), s.to.Addr(), protocol, 0, inet.Hops, t)...)
}

// read reads a frame of the card; the error says what is wrong with it as it stands: type, lengths, checksums.
func read(b []byte, etherType uint32) (s segment, err error) {
	if len(b) < etherBytes {
		return s, fmt.Errorf("a frame of %d bytes", len(b))
	}
	if got := binary.BigEndian.Uint16(b[12:]); uint32(got) != etherType {
		return s, fmt.Errorf("a frame of type %#04x", got)
	}
	p, ok := inet.Read(b[etherBytes:])
	if !ok || p.Cut || p.Protocol != protocol || len(p.Payload) < 20 {
		return s, fmt.Errorf("a frame that is no TCP over IP: % x", b[:min(len(b), 64)])
	}
	if p.From.Is4() {
		if sum := inet.Sum(0, p.Header); sum != 0xffff {
			return s, fmt.Errorf("an IP header whose checksum is off by %#04x", 0xffff-sum)
		}
	}
	t := p.Payload
	header := int(t[12]>>4) * 4
	if header < 20 || header > len(t) {
		return s, fmt.Errorf("a TCP header of %d bytes in %d", header, len(t))
	}
	s = segment{
		from: netip.AddrPortFrom(p.From, binary.BigEndian.Uint16(t)), to: netip.AddrPortFrom(p.To, binary.BigEndian.Uint16(t[2:])),
		seq: binary.BigEndian.Uint32(t[4:]), ack: binary.BigEndian.Uint32(t[8:]), flags: t[13], hops: p.TTL,
		payload: append([]byte(nil), t[header:]...),
	}
	if sum := inet.Sum(inet.Pseudo(p.From, p.To, protocol, len(t)), t); sum != 0xffff {
		return s, fmt.Errorf("%s with a TCP checksum that is off by %#04x", s.String(), 0xffff-sum)
	}
	return s, nil
}

// String returns the segment in a line.
func (s *segment) String() string {
	var names []string
	for _, f := range []struct {
		bit  byte
		name string
	}{{syn, "SYN"}, {fin, "FIN"}, {rst, "RST"}, {psh, "PSH"}, {ack, "ACK"}} {
		if s.flags&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	return fmt.Sprintf("%s %v > %v seq %#08x ack %#08x, %d bytes", strings.Join(names, "|"), s.from, s.to, s.seq, s.ack, len(s.payload))
}
