package bitstream

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// An xclbin is XRT's container. Numbers are little-endian:
//
//	0    "xclbin2" NUL
//	8    length of a signature behind everything; -1: none
//	304  length of the file, the signature counted; then times and versions
//	352  platform, 64 bytes of text
//	416  uuid, 16 bytes
//	448  how many sections
//	456  sections, each of 40 bytes: kind, name of 16 bytes, 4 of nothing, offset, length
const (
	xclbinHead    = 456
	xclbinSection = 40
	xclbinMost    = 512 // sections: real files have less than 40
)

// Kinds of sections that hold what a device is loaded with. All others are for the driver.
const (
	xclbinBitstream  = 0
	xclbinClearing   = 1
	xclbinPDI        = 18
	xclbinPartialPDI = 19
)

func isXclbin(head []byte) bool {
	return len(head) > 8 && bytes.HasPrefix(head, []byte("xclbin")) && head[6] >= '0' && head[6] <= '2' && head[7] == 0
}

// readXclbin reads the sections. What a stream in them says is the image's; the container itself has no checks.
func readXclbin(data []byte) (*Image, error) {
	if data[6] != '2' {
		return nil, &NotImage{"an xclbin of an old kind (" + string(data[:7]) + ")", "make it again with a newer xclbinutil"}
	}
	if len(data) < xclbinHead {
		return nil, bad(Xclbin, len(data), "the file ends in its header: fetch it again")
	}
	img := &Image{Format: Xclbin, Vendor: "xilinx", Order: AsIs, Whole: true, Payload: Span{0, int64(len(data))}}
	size, count := binary.LittleEndian.Uint64(data[304:]), uint64(binary.LittleEndian.Uint32(data[448:]))
	if size > uint64(len(data)) {
		return nil, bad(Xclbin, 304, "the header announces %d bytes, the file has %d: it is cut off, fetch it again", size, len(data))
	}
	if count > xclbinMost || count*xclbinSection > uint64(len(data)-xclbinHead) {
		return nil, bad(Xclbin, 448, "the header announces %d sections, the file has %d bytes: it is damaged, fetch it again", count, len(data))
	}
	platform, _, _ := bytes.Cut(data[352:416], []byte{0})
	img.Field("platform", strings.ToValidUTF8(string(platform), "?"))
	img.Field("uuid", hex.EncodeToString(data[416:432]))
	if n := int32(binary.LittleEndian.Uint32(data[8:])); n >= 0 {
		img.Field("signature", fmt.Sprintf("%d bytes, not checked here: the driver has the key", n))
	}
	if extra := uint64(len(data)) - size; extra > 0 {
		img.Note(fmt.Sprintf("%d bytes stand behind the %d that the header announces", extra, size))
	}

	end := uint64(0) // of the stream before: two in the same bytes would be read twice
	for i := range int(count) {
		at := xclbinHead + xclbinSection*i
		h := data[at : at+xclbinSection]
		kind, offset, n := binary.LittleEndian.Uint32(h), binary.LittleEndian.Uint64(h[24:]), binary.LittleEndian.Uint64(h[32:])
		if offset > uint64(len(data)) || n > uint64(len(data))-offset {
			return nil, bad(Xclbin, at, "section %d is said to be %d bytes at %d, the file has %d: it is cut off, fetch it again", i, n, offset, len(data))
		}
		in := Inner{Span: Span{int64(offset), int64(n)}}
		section := data[offset : offset+n : offset+n]
		switch kind {
		case xclbinBitstream, xclbinClearing:
			if offset < end {
				return nil, bad(Xclbin, at, "section %d begins at %d, inside the stream before it, which ends at %d: it is damaged, fetch it again", i, offset, end)
			}
			end = offset + n
			if !isBit(section) {
				in.Format, in.Check = Unknown, Integrity{State: NotCheckable, Why: "no .bit file: it starts with " + first(section)}
				break
			}
			stream, err := readBit(section)
			if err != nil {
				return nil, fmt.Errorf("section %d, at byte %d: %w", i, offset, err)
			}
			in.take(stream)
			if img.IDCodes == nil {
				img.Variant, img.Order, img.Design, img.Part, img.Date, img.Tool = stream.Variant, stream.Order, stream.Design, stream.Part, stream.Date, stream.Tool
				img.IDCodes, img.UserCode, img.Packed, img.Secret, img.Partial = stream.IDCodes, stream.UserCode, stream.Packed, stream.Secret, stream.Partial
				img.Payload = in.Span
			}
			img.Whole = img.Whole && stream.Whole
			img.Notes = append(img.Notes, stream.Notes...)
		case xclbinPDI, xclbinPartialPDI:
			in.Format, in.Check = "pdi", Integrity{State: NotCheckable, Why: "an image for Versal is not read here"}
		default:
			continue
		}
		img.Inner = append(img.Inner, in)
	}
	img.Field("sections", fmt.Sprintf("%d, of which %d are loaded into the device", count, len(img.Inner)))
	img.Check = together(img.Inner, "the container has no checks, and nothing in it is loaded into a device")
	if img.Check.State == Valid && int(count) > len(img.Inner) {
		img.Note("the checks are the stream's: the container's other sections have none")
	}
	img.Note("XRT loads it; it is not written to a flash")
	return img, nil
}
