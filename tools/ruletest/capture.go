package ruletest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/runtime/config"
	"splicenic/runtime/head"
)

// Bounds of what is kept of a capture.
const (
	maxStreams = 4096
	maxStart   = head.MaxHead // bytes of the start of a stream
	maxKept    = 64 << 20     // bytes of all: a segment far behind a gap makes room for the gap
)

// isCapture knows pcap files, of either byte order and resolution, and pcapng.
func isCapture(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	switch binary.LittleEndian.Uint32(b) {
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1, blockSection:
		return true
	}
	return false
}

// A stream is the start of one direction of a connection.
type stream struct {
	from, to netip.AddrPort
	began    bool   // its SYN was seen
	first    uint32 // sequence number of the first byte
	bytes    []byte
	have     []bool
}

// put keeps the bytes of a segment, as far as there is room; the first that came for a place stays.
func (s *stream) put(seq uint32, b []byte, room *int) {
	at := int(int32(seq - s.first))
	if at < 0 {
		return
	}
	b = b[:max(0, min(len(b), maxStart-at))]
	if len(b) == 0 {
		return
	}
	if need := at + len(b); need > len(s.bytes) {
		if *room -= need - len(s.bytes); *room < 0 {
			*room = 0
			return
		}
		s.bytes = append(s.bytes, make([]byte, need-len(s.bytes))...)
		s.have = append(s.have, make([]bool, need-len(s.have))...)
	}
	for i, c := range b {
		if !s.have[at+i] {
			s.bytes[at+i], s.have[at+i] = c, true
		}
	}
}

// start is what came without a gap.
func (s *stream) start() []byte {
	n := 0
	for n < len(s.have) && s.have[n] {
		n++
	}
	return s.bytes[:n]
}

// captured answers for each connection of a capture that leads to a listener of the configuration, or, where none does and
// a service is named, for each whose client was seen to begin.
func captured(c *config.Config, q *Question) ([]Answer, error) {
	streams, err := streamsOf(q.Input)
	if err != nil {
		return nil, fmt.Errorf("read capture: %w", err)
	}
	var named *config.Service
	if q.Service != "" {
		if named, err = service(c, q.Service); err != nil {
			return nil, err
		}
	}
	listens := map[netip.AddrPort]*config.Service{}
	for i := range c.Services {
		for _, l := range c.Services[i].Listen {
			listens[l.Addr] = &c.Services[i]
		}
	}
	answers, began := []Answer{}, []Answer{}
	for _, s := range streams {
		b := s.start()
		at := listens[s.to]
		switch {
		case len(b) == 0:
		case at != nil && (named == nil || at == named):
			answers = append(answers, answer(at, s.from.Addr(), b))
		case at == nil && named != nil && s.began:
			began = append(began, answer(named, s.from.Addr(), b))
		}
	}
	if len(answers) == 0 {
		answers = began
	}
	if len(answers) == 0 {
		return nil, fmt.Errorf("none of the %d streams of the capture leads to a listener of the configuration; name a service to try them all", len(streams))
	}
	return answers, nil
}

// streamsOf puts the starts of the TCP streams of a capture together, in the order in which they began.
func streamsOf(file []byte) ([]*stream, error) {
	t := table{of: map[[2]netip.AddrPort]*stream{}, room: maxKept}
	each := pcap
	if binary.LittleEndian.Uint32(file) == blockSection {
		each = pcapng
	}
	err := each(file, t.frame)
	return t.streams, err
}

// A table finds the stream of a segment.
type table struct {
	streams []*stream
	of      map[[2]netip.AddrPort]*stream
	room    int // for bytes
}

// frame takes a frame of a link type.
func (t *table) frame(link uint32, data []byte) {
	if link > 255 {
		return // none of those that carry packets
	}
	p := gopacket.NewPacket(data, layers.LinkType(link), gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	seg, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || p.NetworkLayer() == nil {
		return
	}
	flow := p.NetworkLayer().NetworkFlow()
	src, ok1 := netip.AddrFromSlice(flow.Src().Raw())
	dst, ok2 := netip.AddrFromSlice(flow.Dst().Raw())
	if !ok1 || !ok2 {
		return
	}
	seq := seg.Seq
	if seg.SYN {
		seq++
	}
	key := [2]netip.AddrPort{netip.AddrPortFrom(src, uint16(seg.SrcPort)), netip.AddrPortFrom(dst, uint16(seg.DstPort))}
	s := t.of[key]
	if seg.SYN && (s == nil || s.first != seq) || s == nil && len(seg.Payload) > 0 { // a SYN ends what these ports carried before
		if len(t.streams) == maxStreams {
			return
		}
		s = &stream{from: key[0], to: key[1], began: seg.SYN && !seg.ACK, first: seq}
		t.of[key] = s
		t.streams = append(t.streams, s)
	}
	if s != nil {
		s.put(seq, seg.Payload, &t.room)
	}
}

var errCapture = errors.New("a length in it leads beyond its end, or to nowhere")

// pcap calls each with the frames of a pcap file. One that was cut off is as good as what it holds.
func pcap(file []byte, each func(link uint32, data []byte)) error {
	const header, record = 24, 16
	var order binary.ByteOrder = binary.LittleEndian
	if magic := order.Uint32(file); magic == 0xd4c3b2a1 || magic == 0x4d3cb2a1 {
		order = binary.BigEndian
	}
	if len(file) < header {
		return errCapture
	}
	link := order.Uint32(file[20:]) & 0xffff
	for file = file[header:]; len(file) >= record; {
		n := order.Uint32(file[8:])
		if uint64(n) > uint64(len(file)-record) {
			return nil
		}
		each(link, file[record:record+n])
		file = file[record+n:]
	}
	return nil
}

// Blocks of a pcapng file.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockSimple    = 3
	blockEnhanced  = 6
)

// pcapng does the same with a pcapng file.
func pcapng(file []byte, each func(link uint32, data []byte)) error {
	var order binary.ByteOrder = binary.LittleEndian
	var links []uint32 // by interface of the section
	for len(file) >= 12 {
		kind := order.Uint32(file)
		if kind == blockSection {
			if order, links = binary.LittleEndian, nil; order.Uint32(file[8:]) != 0x1a2b3c4d {
				order = binary.BigEndian
			}
		}
		n := order.Uint32(file[4:])
		if n < 12 || n%4 != 0 {
			return errCapture
		}
		if uint64(n) > uint64(len(file)) {
			return nil
		}
		body := file[8 : n-4]
		file = file[n:]
		switch {
		case kind == blockInterface && len(body) >= 8:
			links = append(links, uint32(order.Uint16(body)))
		case kind == blockEnhanced && len(body) >= 20:
			at, size := order.Uint32(body), order.Uint32(body[12:])
			if uint64(at) >= uint64(len(links)) || uint64(size) > uint64(len(body)-20) {
				return errCapture
			}
			each(links[at], body[20:20+size])
		case kind == blockSimple && len(body) >= 4 && len(links) > 0:
			each(links[0], body[4:4+min(uint64(order.Uint32(body)), uint64(len(body)-4))])
		}
	}
	return nil
}
