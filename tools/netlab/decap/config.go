package decap

import (
	"encoding/binary"
	"maps"
	"net/netip"

	"splicenic/tools/netlab"
)

// Config says where the far end of a tunnel is.
type Config struct {
	Namespace *netlab.Namespace // of the server
	Interface string            // where outer packets arrive
	TUN       string            // device that is made; empty: decap0
	VIPs      []string          // put on lo, with their prefix length; none: they are there already
	Rules     Rules
}

// Counters are what came.
type Counters struct {
	Kinds       map[Kind]uint64 // packets that the kernel got, by how they came
	Packets     uint64          // all of these
	Bytes       uint64          // of the packets within
	Refused     map[Reason]uint64
	Undelivered uint64 // the TUN device did not take them
	Foreign     uint64 // packets to this host of no tunnel
}

func newCounters() Counters {
	return Counters{Kinds: map[Kind]uint64{}, Refused: map[Reason]uint64{}}
}

func (c *Counters) clone() Counters {
	n := *c
	n.Kinds, n.Refused = maps.Clone(c.Kinds), maps.Clone(c.Refused)
	return n
}

// restorePartial makes the VIP the destination of coalesced segments, whose checksum field holds the sum of the pseudo-header
// as it stands, for the kernel to complete.
func restorePartial(p []byte, o *outer, vip netip.Addr) []byte {
	difference := sum(vip.AsSlice(), 0) + uint64(^fold(sum(o.dst, 0)))
	if at, ok := checksumAt(o); ok {
		field := o.payload[at:]
		binary.BigEndian.PutUint16(field, fold(uint64(binary.BigEndian.Uint16(field))+difference))
	}
	copy(o.dst, vip.AsSlice())
	if p[0]>>4 == 4 {
		adjust(p[10:], difference, false)
	}
	return p[:o.at+len(o.payload)]
}
