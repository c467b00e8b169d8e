package decap

import "encoding/binary"

// maxGathered is how many packets are gathered at a time. There is no time limit: when they are all taken, all are forgotten.
const maxGathered = 64

// gather puts fragments of outer packets together, in whatever order they come. The zero value is ready.
type gather struct {
	packets map[string]*gathered // by source, destination, protocol and identification
}

// gathered is a packet of which not everything has come.
type gathered struct {
	head  []byte // IP header, of the first fragment
	body  []byte
	have  int // bytes, each counted once where no fragments overlap
	total int // bytes; zero: not known yet
}

// add takes a packet. Where it is a fragment, whole is the packet that it completed, or nil.
func (g *gather) add(p []byte) (whole []byte, fragment bool) {
	o, reason := parse(p)
	if reason != None || !o.fragment || o.badHeader {
		return nil, false
	}
	six := p[0]>>4 == 6
	word := binary.BigEndian.Uint16(p[6:])
	at, more, id := int(word&0x1fff)*8, word&0x2000 != 0, p[4:6]
	if six { // the fragment header is the last one
		word = binary.BigEndian.Uint16(p[o.at-6:])
		at, more, id = int(word&0xfff8), word&1 != 0, p[o.at-4:o.at]
	}
	key := string(o.src) + string(o.dst) + string(o.proto) + string(id)
	w := g.packets[key]
	if w == nil {
		if g.packets == nil || len(g.packets) == maxGathered {
			g.packets = map[string]*gathered{}
		}
		w = new(gathered)
		g.packets[key] = w
	}
	if need := at + len(o.payload) - len(w.body); need > 0 {
		w.body = append(w.body, make([]byte, need)...)
	}
	copy(w.body[at:], o.payload)
	w.have += len(o.payload)
	if at == 0 {
		w.head = append([]byte(nil), p[:o.at]...)
		if six {
			w.head = w.head[:40]
			w.head[6] = o.proto
		}
	}
	if !more {
		w.total = at + len(o.payload)
	}
	if w.head == nil || w.total == 0 || w.have < w.total {
		return nil, true
	}
	delete(g.packets, key)
	if w.have != w.total || len(w.body) != w.total || len(w.head)+w.total > 65535 {
		return nil, true
	}
	whole = append(w.head, w.body...)
	if six {
		binary.BigEndian.PutUint16(whole[4:], uint16(w.total))
		return whole, true
	}
	binary.BigEndian.PutUint16(whole[2:], uint16(len(whole)))
	clear(whole[6:8])
	clear(whole[10:12])
	binary.BigEndian.PutUint16(whole[10:], ^fold(sum(whole[:len(w.head)], 0)))
	return whole, true
}
