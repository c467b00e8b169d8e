package datapath

import (
	"encoding/binary"

	"splicenic/emu/frame"
)

// offload makes a plain frame with a full sum into a coalesced one: segments of size bytes, the pseudo-header's sum only.
func offload(f *frame.Frame, size uint16) {
	b := f.Bytes()
	at := uint32(14)
	if binary.BigEndian.Uint16(b[12:]) == etherVLAN {
		at = 18
	}
	ip := b[at:]
	var pseudo uint64
	tcp, kind := at+20, uint8(frame.GSOTCP4)
	if ip[0]>>4 == 6 {
		tcp, kind = at+40, frame.GSOTCP6
		pseudo = frame.Pseudo6(ip, protocolTCP, int(binary.BigEndian.Uint16(ip[4:])))
	} else {
		pseudo = frame.Pseudo4(ip, protocolTCP, int(binary.BigEndian.Uint16(ip[2:]))-20)
	}
	binary.BigEndian.PutUint16(b[tcp+16:], frame.Fold(pseudo))
	f.Offload = frame.Offload{Flags: frame.NeedsChecksum, GSOType: kind, GSOSize: size, CsumStart: uint16(tcp), CsumOffset: 16,
		HdrLen: uint16(tcp) + uint16(b[tcp+12]>>4)*4}
}
