package bitstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// Quartus' containers SOF, POF and JIC are a name of four bytes, a number, how many packets there are, and packets: a tag
// of 16 bits, a length of 32, and so many bytes. The last one has tag 8 and a CRC over everything before the CRC itself; 0
// means that there is none. Numbers are little-endian.
const (
	quartusTool   = 1
	quartusPart   = 2
	quartusDesign = 3
	quartusEnd    = 8
	quartusData   = 17
)

func readQuartus(f Format) func([]byte) (*Image, error) {
	name := strings.ToUpper(strings.TrimPrefix(string(f), "intel-"))
	return func(data []byte) (*Image, error) {
		img := &Image{Format: f, Vendor: "intel", Order: AsIs, Payload: Span{0, int64(len(data))}}
		img.Note(name + " container: convert it to a raw image first (quartus_cpf -c)")
		img.Check = quartusWalk(img, data)
		return img, nil
	}
}

// quartusCRC is HDLC's: the polynomial 8408, low bit first, from ffff on, inverted.
func quartusCRC(p []byte) uint16 { return ^crcLsb(crc8408, 0xffff, p) }

// quartusWalk goes through the packets.
func quartusWalk(img *Image, data []byte) Integrity {
	cut := func(format string, args ...any) Integrity {
		return Integrity{State: Invalid, Why: fmt.Sprintf(format, args...) + ": it is cut off, or of a layout that is not known here"}
	}
	if len(data) < 12 {
		return cut("the file ends in its header")
	}
	count := binary.LittleEndian.Uint32(data[8:])
	at := 12
	for n := uint32(1); ; n++ {
		if n > count {
			return cut("none of the %d packets that the header announces is the last one", count)
		}
		if len(data)-at < 6 {
			return cut("the file ends at byte %d, before packet %d of %d", len(data), n, count)
		}
		tag, length := binary.LittleEndian.Uint16(data[at:]), binary.LittleEndian.Uint32(data[at+2:])
		if at += 6; uint64(length) > uint64(len(data)-at) {
			return cut("the file ends at byte %d, inside packet %d of %d, which has %d bytes from byte %d on", len(data), n, count, length, at)
		}
		body := data[at : at+int(length)]
		switch tag {
		case quartusTool:
			img.Tool = quartusText(body)
		case quartusPart:
			img.Part = quartusText(body)
		case quartusDesign:
			img.Design = quartusText(body)
		case quartusData:
			if len(img.Fields) < 16 {
				img.Field("data", fmt.Sprintf("%d bytes at %d", length, at))
			}
		case quartusEnd:
			if length != 2 {
				return cut("the last packet has %d bytes, wanted 2", length)
			}
			if extra := len(data) - at - 2; extra > 0 {
				img.Note(fmt.Sprintf("%d bytes stand behind the last packet", extra))
			}
			img.Whole = n == count
			stored, computed := binary.LittleEndian.Uint16(body), quartusCRC(data[:at])
			switch {
			case n != count:
				return cut("packet %d is the last one, the header announces %d", n, count)
			case stored == 0:
				return Integrity{State: Absent, Why: "the CRC of the container is 0, which stands for none"}
			case stored != computed:
				return Integrity{State: Invalid, Why: fmt.Sprintf("the CRC is %04x in the file, %04x over its bytes", stored, computed)}
			}
			return Integrity{State: Valid, Checks: 1}
		}
		at += int(length)
	}
}

// quartusText is text up to its NUL, of a length that a report can bear.
func quartusText(p []byte) string {
	p, _, _ = bytes.Cut(p[:min(len(p), 256)], []byte{0})
	return strings.ToValidUTF8(string(p), "?")
}
