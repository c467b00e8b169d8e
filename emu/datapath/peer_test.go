package datapath

import (
	"math/rand/v2"

	"github.com/google/gopacket/layers"
)

// peer plays both ends of one address pair loosely: mostly the right segment, sometimes any other.
type peer struct {
	conn
	phase int // how far the ends are
}

var looseOptions = []layers.TCPOption{optMSS(1460), optSACK, optTS(1, 0), optNop, optWscale(2)}

// step sends one segment of one end and takes in what comes back.
func (p *peer) step(r *rand.Rand) {
	b := p.b
	switch k := r.IntN(20); {
	case k == 0:
		p.phase = 0
		p.cseq += 1000
	case k == 1: // a blind segment
		port := r.IntN(2)
		b.note(p, port, p.raw(port, uint8(r.IntN(64)), r.IntN(3), r.Uint32()>>uint(r.IntN(32))))
		return
	case k == 2:
		p.phase = r.IntN(9)
	}
	switch p.phase {
	case 0:
		if r.IntN(3) == 0 {
			p.cseq += uint32(r.IntN(100_000))
		}
		b.note(p, 0, p.client(flagSYN, "", looseOptions...))
	case 1:
		b.note(p, 0, p.client(flagACK, ""))
	case 2:
		b.note(p, 0, p.client(flagACK|flagPSH|uint8(r.IntN(8)/7), request))
	case 3:
		p.sseq = r.Uint32()
		b.note(p, 1, p.server(flagSYN|flagACK, "", looseOptions...))
	case 4:
		b.note(p, 1, p.server(flagACK, "response"))
	case 5:
		b.note(p, 0, p.client(flagACK, "more"))
	case 6:
		b.note(p, 1, p.server(flagACK|flagFIN, ""))
	case 7:
		if r.IntN(4) == 0 {
			b.note(p, 0, p.client(flagRST, ""))
		} else {
			b.note(p, 0, p.client(flagACK|flagFIN, ""))
		}
	case 8:
		b.note(p, 1, p.server(flagACK, ""))
	}
	if p.phase++; p.phase > 8 {
		p.phase = 0
	}
}

// raw is any segment of an end, off by some.
func (p *peer) raw(port int, flags uint8, n int, off uint32) []byte {
	x := p.conn
	x.cseq, x.sseq = x.cseq+off, x.sseq+off
	payload := []string{"", "x", request}[n]
	if port == 0 {
		return x.client(flags, payload)
	}
	return x.server(flags, payload)
}

// note sends a frame and takes the numbers of what comes back into the peer.
func (b *bench) note(p *peer, port int, raw []byte) {
	out := b.push(port, raw)
	for _, s := range out[0] {
		p.takeClient(s)
	}
	for _, s := range out[1] {
		p.takeServer(s)
	}
}

// takeClient and takeServer are the ends of the peer: they take a SYN, and what follows in order.
func (p *peer) takeClient(s tcp) {
	if s.to == p.w.client && s.dport == p.port && s.flags&flagRST == 0 && (s.flags&flagSYN != 0 || s.seq == p.cack) {
		p.cack = s.end()
	}
}

func (p *peer) takeServer(s tcp) {
	if s.to == p.w.server && s.sport == p.port && s.flags&flagRST == 0 && (s.flags&flagSYN != 0 || s.seq == p.sack) {
		p.sack = s.end()
	}
}

// end is the sequence number behind a segment.
func (s tcp) end() uint32 {
	return s.seq + uint32(len(s.payload)) + uint32(s.flags&flagFIN) + uint32(s.flags&flagSYN>>1)
}
