package datapath

import (
	"encoding/binary"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// Codepoints of the IP header (RFC 3168, 5).
const (
	ecnMask = 3
	ecnCE   = 3
)

// flagAE is the bit below the data offset: accurate ECN's (RFC 9768), and before that the nonce sum.
const flagAE = 1

// ecn returns the ECN codepoint of the IP header.
func (p *packet) ecn() uint8 {
	if p.kind == kindIPv6 {
		return p.b[p.ip+1] >> 4 & ecnMask
	}
	return p.b[p.ip+1] & ecnMask
}

// marked says whether anything of a segment speaks of ECN.
func (p *packet) marked() bool {
	return p.flags&(flagECE|flagCWR) != 0 || p.b[p.tcp+12]&flagAE != 0 || p.ecn() != 0
}

// clearECN takes a segment's marks off: the end it goes to does not do ECN, and would neither answer a mark nor
// understand the answer to one. It returns the TCP checksum's difference; that of the IPv4 header is computed anew later.
func (c *Core) clearECN(p *packet) uint64 {
	c.count(regs.PmuEcnCleared)
	if p.kind == kindIPv6 {
		p.b[p.ip+1] &^= ecnMask << 4
	} else {
		p.b[p.ip+1] &^= ecnMask
	}
	p.f.Offload.GSOType &^= frame.GSOECN
	t := p.b[p.tcp+12 : p.tcp+14]
	old := binary.BigEndian.Uint16(t)
	now := old &^ (flagAE<<8 | flagECE | flagCWR)
	binary.BigEndian.PutUint16(t, now)
	return uint64(frame.Difference(uint64(old), uint64(now)))
}
