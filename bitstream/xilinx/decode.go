package xilinx

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Decode reads the stream in data, which may begin anywhere before the sync word (within 4 KiB) and be in any of the four
// orders; data is not changed. With an error the Stream is what was read before it, nil when there was no sync word.
func Decode(data []byte) (*Stream, error) {
	sync, order, ok := DetectOrder(data)
	if !ok {
		return nil, &FormatError{0, fmt.Sprintf("no sync word with a legal packet behind it in the first %d bytes, in any byte order", min(len(data), syncWindow))}
	}
	if order != AsIs {
		// Words count from the sync word: what stands before it may be a header of any length.
		plain := bytes.Clone(data)
		Undo(order, plain[sync%4:])
		data = plain
	}
	d := decoder{data: data, s: &Stream{Order: order, Sync: sync, Dies: 1}}
	if binary.BigEndian.Uint32(data[sync:]) != syncWord {
		d.s.Family = Spartan3A
		return d.s, d.halves(sync + 2)
	}
	at := sync + 4
	switch {
	case legalStart32(be32(data, at)):
		d.s.Family, d.table = Words32, crc32C
		if d.isSpartan3(at) {
			d.s.Family, d.table = Spartan3, crc16
		}
		return d.s, d.words(at, len(data), 0)
	default:
		d.s.Family = Spartan6
		return d.s, d.halves(at)
	}
}

// be32 is the word at an offset, 0 where data ends before it does.
func be32(data []byte, at int) uint32 {
	if at+4 > len(data) {
		return 0
	}
	return binary.BigEndian.Uint32(data[at:])
}

type decoder struct {
	data  []byte // in the device's order
	s     *Stream
	table *crcTable
}

// truncated is the error for a packet longer than what is left.
func (d *decoder) truncated(at, end, need int, reg string) error {
	d.s.End = at
	what := "file"
	if end < len(d.data) {
		what = "nested image"
	}
	return &FormatError{at, fmt.Sprintf("the %s ends at %d, inside packet %d, which writes %s and needs %d bytes more", what, end, d.s.Packets, reg, need-end)}
}

// finish notes what lies behind the stream.
func (d *decoder) finish(end int) {
	d.s.End = end
	tail := d.data[end:]
	d.s.Trailing = len(tail)
	d.s.TrailingBlank = len(tail) > 0 && blank(tail)
}

func blank(p []byte) bool {
	if p[0] != 0 && p[0] != 0xff {
		return false
	}
	for _, b := range p {
		if b != p[0] {
			return false
		}
	}
	return true
}
