package port

import (
	"encoding/binary"

	"splicenic/emu/frame"
)

// virtioBytes is the size of the virtio-net header (virtio 1.2, 5.1.6) that the kernel's sockets and TAPs use: without
// the number of buffers, in the byte order of the machine.
//
//	0 flags · 1 gso_type · 2 hdr_len · 4 gso_size · 6 csum_start · 8 csum_offset
const virtioBytes = 10

// decodeOffload reads the header of a frame that was received.
func decodeOffload(b *[virtioBytes]byte) frame.Offload {
	return frame.Offload{
		Flags:      b[0],
		GSOType:    b[1],
		HdrLen:     binary.NativeEndian.Uint16(b[2:]),
		GSOSize:    binary.NativeEndian.Uint16(b[4:]),
		CsumStart:  binary.NativeEndian.Uint16(b[6:]),
		CsumOffset: binary.NativeEndian.Uint16(b[8:]),
	}
}

// encodeOffload writes the header for a frame that is transmitted.
func encodeOffload(b *[virtioBytes]byte, f *frame.Frame) {
	o := &f.Offload
	b[0] = o.Flags & frame.NeedsChecksum // DataValid is for receivers
	b[1] = o.GSOType
	binary.NativeEndian.PutUint16(b[2:], headerBytes(f))
	binary.NativeEndian.PutUint16(b[4:], o.GSOSize)
	binary.NativeEndian.PutUint16(b[6:], o.CsumStart)
	binary.NativeEndian.PutUint16(b[8:], o.CsumOffset)
}

// headerBytes is the length of a coalesced frame's headers. The one in the offload header is a hint of whoever sent the
// frame, often far too long; the kernel makes that much of a frame one piece of memory.
func headerBytes(f *frame.Frame) uint16 {
	o := &f.Offload
	if o.GSOType&^frame.GSOECN == frame.GSONone {
		return 0
	}
	b := f.Bytes()
	if tcp := int(o.CsumStart); o.Flags&frame.NeedsChecksum != 0 && tcp+tcpBytes <= len(b) {
		return uint16(min(tcp+int(b[tcp+12]>>4)*4, len(b)))
	}
	return uint16(min(int(o.HdrLen), len(b)))
}

// putTag puts a VLAN tag that the kernel has taken out back into a frame, which begins four bytes earlier from then on.
func putTag(f *frame.Frame, tpid, tci uint16) {
	f.Start -= tagBytes
	b := f.Buf[f.Start:f.End]
	copy(b[:12], b[tagBytes:]) // both addresses
	binary.BigEndian.PutUint16(b[12:], tpid)
	binary.BigEndian.PutUint16(b[14:], tci)
	// The offload header counts from the first byte of the frame.
	o := &f.Offload
	if o.Flags&frame.NeedsChecksum != 0 {
		o.CsumStart += tagBytes
	}
	if o.HdrLen != 0 {
		o.HdrLen += tagBytes
	}
}
