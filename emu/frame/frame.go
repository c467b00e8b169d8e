// Package frame holds what the emulated card's blocks pass to one another: an Ethernet frame in a caller's buffer with
// its virtio-net offload header, and checksum arithmetic over its bytes.
//
// It knows offsets and sums only. Nothing here allocates, and no function keeps a buffer.
package frame

// Headroom is the space kept free before a received frame, for tags the card adds.
const Headroom = 64

// MaxBytes is the largest frame a port hands over: a 64 KiB coalesced segment with its Ethernet header and VLAN tag.
const MaxBytes = 65_535 + 18

// Frame is one Ethernet frame, from the destination MAC address up to the FCS, with its VLAN tag in place.
// The buffer belongs to whoever made it; a Frame only points into it.
type Frame struct {
	Buf        []byte
	Start, End uint32 // the frame is Buf[Start:End]
	Offload    Offload
}

// Bytes is the frame itself.
func (f *Frame) Bytes() []byte { return f.Buf[f.Start:f.End:f.End] }

// Len is the length of the frame in bytes.
func (f *Frame) Len() int { return int(f.End - f.Start) }

// Offload is the virtio-net header of a frame (virtio 1.2, 5.1.6). The zero value means a plain wire frame.
// CsumStart counts from the first byte of the frame, VLAN tag included.
type Offload struct {
	Flags      uint8
	GSOType    uint8
	HdrLen     uint16 // bytes of headers before the payload; a hint
	GSOSize    uint16 // payload bytes of one wire segment
	CsumStart  uint16 // where summing starts
	CsumOffset uint16 // where the sum goes, from CsumStart
}

// Values of Offload.Flags and Offload.GSOType.
const (
	NeedsChecksum = 1 // the field holds the sum of the pseudo-header only
	DataValid     = 2 // somebody below has checked the sums

	GSONone = 0
	GSOTCP4 = 1
	GSOUDP  = 3
	GSOTCP6 = 4
	GSOECN  = 0x80 // flag beside a type: the first segment carries CWR
)
