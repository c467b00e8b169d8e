package health

import (
	"encoding/binary"
	"net/netip"
)

// Profile is what a server's SYN-ACKs keep. Its fields are those of config.Profile.
type Profile struct {
	Known      bool   // all of it; else at most the MSS
	MSS        uint16 // zero: not known
	WScale     uint8
	WScaleOn   bool
	SACK       bool
	Timestamps bool
	ECN        bool
}

// less says whether p keeps less than q in any respect.
func (p *Profile) less(q *Profile) bool {
	return p.MSS < q.MSS || !p.WScaleOn && q.WScaleOn || p.WScale < q.WScale || !p.SACK && q.SACK || !p.Timestamps && q.Timestamps || !p.ECN && q.ECN
}

// maxWscale is the largest window shift (RFC 7323, 2.3).
const maxWscale = 14

// defaultMSS is what a server that tells no MSS can take (RFC 9293, 3.7.1).
func defaultMSS(server netip.Addr) uint16 {
	if server.Is4() {
		return 536
	}
	return 1220
}

// Read reads the profile from the options of a SYN-ACK. An option of an impossible length ends the reading, and one that
// is there twice counts as it comes last. An MSS that is not there is zero.
func Read(options []byte) Profile {
	p := Profile{Known: true}
	for len(options) > 0 && options[0] != 0 {
		if options[0] == 1 {
			options = options[1:]
			continue
		}
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			break
		}
		o := options[:options[1]]
		options = options[len(o):]
		switch {
		case o[0] == 2 && len(o) == 4:
			p.MSS = binary.BigEndian.Uint16(o[2:])
		case o[0] == 3 && len(o) == 3:
			p.WScale, p.WScaleOn = min(o[2], maxWscale), true
		case o[0] == 4 && len(o) == 2:
			p.SACK = true
		case o[0] == 8 && len(o) == 10:
			p.Timestamps = true
		}
	}
	return p
}
