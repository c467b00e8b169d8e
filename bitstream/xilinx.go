package bitstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"splicenic/bitstream/xilinx"
)

// isXilinxBin wants a sync word with a legal packet behind it, in any order of bytes. Files of other formats hold whole
// streams, so it counts only where nothing else is known.
func isXilinxBin(head []byte) bool {
	_, _, ok := xilinx.DetectOrder(head)
	return ok
}

// readXilinxBin reads a stream without a header: .bin, the content of a .mcs, or what was read from a flash.
func readXilinxBin(data []byte) (*Image, error) {
	if err := damagedBit(data[:min(len(data), headBytes)]); err != nil {
		return nil, err
	}
	img := &Image{Format: XilinxBin, Vendor: "xilinx"}
	if err := readXilinx(img, data, 0); err != nil {
		return nil, err
	}
	img.Payload = Span{0, int64(len(img.Segments[0].Data))}
	return img, nil
}

// readXilinx reads a configuration stream, which began at byte start of the file, into an Image that has the header's
// facts, if there is a header. The order of bytes is undone in data.
func readXilinx(img *Image, data []byte, start int) error {
	sync, order, ok := xilinx.DetectOrder(data)
	if !ok {
		if len(data) == 0 {
			return bad(img.Format, start, "the stream has no bytes")
		}
		return bad(img.Format, start, "no sync word with a packet behind it in the first 4 KiB: it starts with %s", first(data))
	}
	// Words count from the sync word; a header before it may have any length.
	xilinx.Undo(order, data[sync%4:])
	s, err := xilinx.Decode(data)
	if err != nil {
		if f, ok := errors.AsType[*xilinx.FormatError](err); ok {
			return bad(img.Format, start+f.Off, "%s", f.Msg)
		}
		return bad(img.Format, start, "%v", err)
	}
	img.Variant, img.Order = string(s.Family), Order(order)
	for _, id := range s.IDCodes {
		img.IDCodes = append(img.IDCodes, IDCode{Value: id, Names: Names(id)})
	}
	img.UserCode = s.UserAccess
	img.Packed, img.Secret, img.Partial, img.Whole = s.Compressed(), s.Encrypted, s.Partial(), s.Desynced || s.Encrypted
	img.Check = xilinxCheck(s, start)

	payload := data
	switch {
	case s.TrailingBlank && img.Format != XilinxBit:
		payload = data[:s.End]
		img.Note(fmt.Sprintf("%d blank bytes behind the stream are left out", s.Trailing))
	case s.Trailing > 0 && !s.TrailingBlank:
		img.Note(fmt.Sprintf("%d bytes that are no packets stand behind the stream, from byte %d on", s.Trailing, start+s.End))
	}
	img.Segments = []Segment{{0, payload}}

	img.Field("sync word", fmt.Sprintf("byte %d", start+s.Sync))
	img.Field("packets", fmt.Sprint(s.Packets))
	words := fmt.Sprint(s.FrameWords)
	if s.Dies > 1 {
		img.Field("dies", fmt.Sprint(s.Dies))
		words += fmt.Sprintf(", by die %v", s.DieWords)
	}
	img.Field("frame words", words)
	if s.Repeats > 0 {
		img.Field("frames written again", fmt.Sprint(s.Repeats))
	}
	if s.Debug > 0 {
		img.Field("debug", fmt.Sprintf("%d frames say where they are", s.Debug))
	}
	if order != xilinx.AsIs {
		img.Note(fmt.Sprintf("%s; undone for the flash", order))
	}
	if junk := foreign(data[:s.Sync]); junk > 0 {
		img.Note(fmt.Sprintf("%d bytes before the sync word are no padding; the device skips them", junk))
	}
	for _, to := range s.Reloads {
		img.Jumps = append(img.Jumps, Jump{to, true})
		img.Note(fmt.Sprintf("the image goes to WBSTAR 0x%08x by itself (IPROG): the device loads what is there, and this image only where that fails", to))
	}
	for _, to := range s.Jumps {
		if slices.Contains(s.Reloads, to) {
			continue
		}
		img.Jumps = append(img.Jumps, Jump{to, false})
		img.Note(fmt.Sprintf("the image sets WBSTAR to 0x%08x: a fallback, or IPROG, goes there", to))
	}
	if img.Partial {
		img.Note(fmt.Sprintf("a partial image, for frame addresses 0x%08x to 0x%08x of a running design", s.LowFAR, s.HighFAR))
	}
	if says := strings.Contains(img.Design, "COMPRESS=TRUE"); says && !s.Compressed() && !s.Encrypted {
		img.Note("the header says COMPRESS=TRUE, the stream is not compressed")
	}
	crossCheck(img)
	return nil
}

func xilinxCheck(s *xilinx.Stream, start int) Integrity {
	i := Integrity{State: Valid, Checks: s.Good}
	fault := s.Fault()
	if fault != "" && start > 0 {
		fault = fmt.Sprintf("counted from byte %d, where the stream starts: %s", start, fault)
	}
	switch {
	case s.Encrypted && s.Bad == 0:
		i.State, i.Why = NotCheckable, "encrypted: only the device's key opens it"
	case fault != "":
		i.State, i.Why = Invalid, fault
	case s.Checks() == 0:
		i.State, i.Why = Absent, "the stream writes no CRC: only a hash from elsewhere says whether it is whole"
	}
	return i
}

// foreign counts the bytes that have no business before a sync word: padding of ff and 00 and the words for the bus
// width have.
func foreign(p []byte) (n int) {
	for _, c := range p {
		switch c {
		case 0xff, 0, 0xbb, 0x11, 0x22, 0x44:
		default:
			n++
		}
	}
	return n
}

// crossCheck notes where a header's text and the IDCODE in the stream name different parts. The device looks at the
// IDCODE alone.
func crossCheck(img *Image) {
	if img.Part == "" || len(img.IDCodes) == 0 || len(img.IDCodes[0].Names) == 0 || samePart(img.Part, img.IDCodes[0].Names) {
		return
	}
	img.Note(fmt.Sprintf("the header says %s, the stream's IDCODE 0x%08x is %s: the IDCODE counts", img.Part, img.IDCodes[0].Value, strings.Join(img.IDCodes[0].Names, ", ")))
}
