package bitstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// A .bit file is a header of fields, then a configuration stream:
//
//	0009 0ff0 0ff0 0ff0 0ff0 00   a field of nine bytes
//	0001
//	'a' length16 text 00          design, with ;KEY=VALUE behind it
//	'b' length16 text 00          part
//	'c' length16 text 00          date yyyy/mm/dd
//	'd' length16 text 00          time
//	'e' length32 stream
//
// Numbers are big-endian. No field stands at a fixed place: the text before it decides.
var bitMagic = []byte{0, 9, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0, 0, 1}

func isBit(head []byte) bool { return bytes.HasPrefix(head, bitMagic) }

// A bitHeader is what stands before a stream.
type bitHeader struct {
	text  [4]string // of a, b, c and d; empty: not there
	start int       // of the stream
	bytes int       // of the stream, as announced
}

var bitFields = [4]string{"design", "part", "date", "time"}

// parseBit reads a header.
func parseBit(data []byte) (h bitHeader, err error) {
	at := len(bitMagic)
	if !isBit(data) {
		return h, bad(XilinxBit, 0, "no .bit header")
	}
	var seen [4]bool
	for {
		if at == len(data) {
			return h, bad(XilinxBit, at, "the file ends in its header, before the stream: it is cut off")
		}
		tag, rest := data[at], data[at+1:]
		if tag == 'e' {
			if len(rest) < 4 {
				return h, bad(XilinxBit, at, "the file ends inside the length of the stream: it is cut off")
			}
			h.start = at + 5
			n := binary.BigEndian.Uint32(rest)
			if have := len(data) - h.start; uint64(n) > uint64(have) {
				return h, bad(XilinxBit, at, "the header announces a stream of %d bytes and the file ends after %d of them: it is cut off", n, have)
			}
			h.bytes = int(n)
			return h, nil
		}
		i := int(tag) - 'a'
		if i < 0 || i >= len(seen) {
			return h, bad(XilinxBit, at, "field %02x, wanted one of a, b, c, d, e: the header is damaged", tag)
		}
		if seen[i] {
			return h, bad(XilinxBit, at, "field %c (%s) stands a second time: the header is damaged", tag, bitFields[i])
		}
		seen[i] = true
		if len(rest) < 2 {
			return h, bad(XilinxBit, at, "the file ends inside the length of field %c (%s): it is cut off", tag, bitFields[i])
		}
		n := int(binary.BigEndian.Uint16(rest))
		if rest = rest[2:]; n > len(rest) {
			return h, bad(XilinxBit, at, "field %c (%s) has %d bytes and the file ends after %d of them: it is cut off", tag, bitFields[i], n, len(rest))
		}
		text := rest[:n]
		if end := bytes.IndexByte(text, 0); end != n-1 || n == 0 {
			return h, bad(XilinxBit, at, "field %c (%s) of %d bytes has no NUL at its end alone: the header is damaged", tag, bitFields[i], n)
		}
		h.text[i] = string(text[:n-1])
		at += 3 + n
	}
}

func readBit(data []byte) (*Image, error) {
	h, err := parseBit(data)
	if crlf(data) {
		// Lengths may agree by accident; what was inserted has shifted the stream.
		return nil, bad(XilinxBit, 0, "every 0a byte has a 0d before it: the file was copied as text; copy it again as binary")
	}
	if err != nil {
		return nil, err
	}
	img := &Image{Format: XilinxBit, Vendor: "xilinx", Design: h.text[0], Part: h.text[1], Date: strings.TrimSpace(h.text[2] + " " + h.text[3])}
	img.Payload = Span{int64(h.start), int64(h.bytes)}
	keys(img)
	for i, what := range bitFields {
		if h.text[i] == "" {
			img.Note("the header says no " + what)
		}
	}
	if extra := len(data) - h.start - h.bytes; extra > 0 {
		img.Note(fmt.Sprintf("%d bytes stand behind the stream that the header announces; they are left out", extra))
	}
	if err := readXilinx(img, data[h.start:h.start+h.bytes], h.start); err != nil {
		return nil, err
	}
	return img, nil
}

// keys takes apart what follows the design's name: ;UserID=0XFFFFFFFF;COMPRESS=TRUE;Version=2019.2.1, in any order.
func keys(img *Image) {
	parts := strings.Split(img.Design, ";")
	if strings.HasSuffix(parts[0], ".ncd") {
		img.Tool = "ISE"
	}
	for _, p := range parts[1:] {
		key, value, _ := strings.Cut(p, "=")
		switch key {
		case "Version":
			img.Tool = "Vivado " + value
		case "Generator":
			img.Tool = value
		case "UserID":
			img.Field("user id", value)
		case "SW_CRC":
			img.Field("SW_CRC", value+" (not checked: how it is computed is not known)")
		}
	}
}

// crlf says whether bytes went through a copy that puts 0d before each 0a. Binary data have a 0a alone soon.
func crlf(data []byte) bool {
	lines := 0
	for at := 0; ; {
		i := bytes.IndexByte(data[at:], '\n')
		if i < 0 {
			return lines >= 8
		}
		if at += i; at == 0 || data[at-1] != '\r' {
			return false
		}
		at++
		lines++
	}
}

// damagedBit recognises what a careless copy makes of a .bit file, which no longer starts as one.
func damagedBit(head []byte) error {
	if i := bytes.Index(head, bitMagic); i > 0 {
		return bad(XilinxBit, i, "the .bit header starts here, behind %d bytes of something else: cut these off", i)
	}
	if bytes.HasPrefix(head, []byte("\x00\x09\x0f\xef\xbf\xbd")) || bytes.HasPrefix(head, []byte("\x00\x09\x0f\xc3\xb0")) {
		return bad(XilinxBit, 3, "the file went through a program that took it for UTF-8 text: fetch it again as binary")
	}
	return nil
}
