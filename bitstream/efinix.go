package bitstream

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Efinix's files are one byte in hexadecimal a line, or these bytes: lines of text, filled up with ends of line, the word
// 168a2236, and a stream whose layout and checks nobody has described.
var efinixSync = []byte{0x16, 0x8a, 0x22, 0x36}

const efinixHead = 1 << 10 // where the text ends at the latest; tools make it 256 bytes

// isEfinix wants the word behind lines of text. What they tell may be missing.
func isEfinix(head []byte) bool {
	text, _, ok := bytes.Cut(head[:min(len(head), efinixHead)], efinixSync)
	return ok && bytes.HasSuffix(text, []byte("\n")) && isText(text)
}

// isEfinixHex wants lines of two digits each that stand for such bytes.
func isEfinixHex(head []byte) bool {
	d := make([]byte, 0, efinixHead)
	for len(d) < efinixHead {
		line, rest, ok := bytes.Cut(head, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if !ok || len(line) != 2 || !isHex(line) {
			break
		}
		d, head = append(d, nibble[line[0]]<<4|nibble[line[1]]), rest
	}
	return isEfinix(d)
}

func readEfinixHex(r io.Reader, limit int64) (*decoded, error) {
	l := newLines(r)
	m := memory{limit: limit}
	for {
		line, err := l.read(Efinix)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		if len(line) != 2 || !isHex(line) {
			return nil, l.bad(Efinix, "%.20q, wanted two hexadecimal digits: it is damaged, or cut off", line)
		}
		if err := m.put(uint32(m.bytes), []byte{nibble[line[0]]<<4 | nibble[line[1]]}, l.number); err != nil {
			return nil, err
		}
	}
	segments, err := m.segments()
	if err != nil {
		return nil, err
	}
	return &decoded{segments: segments}, nil
}

func readEfinix(data []byte) (*Image, error) {
	text, _, ok := bytes.Cut(data[:min(len(data), efinixHead)], efinixSync)
	if !ok {
		return nil, bad(EfinixBin, 0, "no word 168a2236 in the first %d bytes", efinixHead)
	}
	img := &Image{Format: EfinixBin, Vendor: "efinix", Order: AsIs, Whole: true}
	img.Payload = Span{int64(len(text)), int64(len(data) - len(text))}
	img.Check = Integrity{State: NotCheckable, Why: "how an Efinix stream is built and checked is not public: nothing behind its text was looked at"}
	passive := false
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Version":
			img.Tool = "Efinity " + value
		case "Generated":
			img.Date = value
		case "Project": // a path on the machine that made it
			img.Design = value[strings.LastIndexAny(value, `/\`)+1:]
		case "Device":
			img.Part = value
		case "Family", "Width", "Die Name":
			img.Field(strings.ToLower(key), value)
		case "Mode":
			img.Field("mode", value)
			passive = value == "passive"
		}
	}
	if passive {
		img.Note("passive: for a host that feeds the device; to write one to a flash, make it for active mode")
	} else {
		img.Segments = []Segment{{0, data}}
	}
	img.Note(fmt.Sprintf("nothing says how long the stream is: whether its %d bytes are all cannot be known", img.Payload.Bytes))
	return img, nil
}
