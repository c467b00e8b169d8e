package bitstream

import (
	"bytes"
	"io"
	"strconv"
	"strings"
)

const rbtTitle = "Xilinx ASCII "

func isRbt(head []byte) bool { return bytes.HasPrefix(head, []byte(rbtTitle)) }

// readRbt reads a stream as text: a few lines of facts, then a word of 0 and 1 a line.
func readRbt(r io.Reader, limit int64) (*decoded, error) {
	l := newLines(r)
	m := memory{limit: limit}
	d := decoded{text: &Image{}}
	announced, width := int64(-1), 0
	var word [4]byte
	for {
		line, err := l.read(XilinxRbt)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		if width == 0 && line[0] != '0' && line[0] != '1' {
			if err := rbtFact(d.text, string(line), &announced); err != nil {
				return nil, l.bad(XilinxRbt, "%v", err)
			}
			continue
		}
		if width == 0 {
			width = len(line)
		}
		if len(line) != width || width != 32 && width != 16 && width != 8 {
			return nil, l.bad(XilinxRbt, "%d digits, wanted %s", len(line), map[bool]string{true: "8, 16 or 32", false: strconv.Itoa(width)}[l.number == 0 || len(line) == width])
		}
		var bits uint32
		for _, c := range line {
			if c != '0' && c != '1' {
				return nil, l.bad(XilinxRbt, "has %q among its 0 and 1", c)
			}
			bits = bits<<1 | uint32(c-'0')
		}
		for i := range width / 8 {
			word[i] = byte(bits >> (width - 8 - 8*i))
		}
		if err := m.put(uint32(m.bytes), word[:width/8], l.number); err != nil {
			return nil, err
		}
	}
	if m.bytes == 0 {
		return nil, bad(XilinxRbt, 0, "no words: there is nothing in it")
	}
	if announced >= 0 && announced != int64(m.bytes)*8 {
		return nil, bad(XilinxRbt, l.next, "announces %d bits and holds %d: it is cut off, or was changed", announced, m.bytes*8)
	}
	segments, err := m.segments()
	if err != nil {
		return nil, err
	}
	d.segments = segments
	return &d, nil
}

// rbtFact reads a line of the header.
func rbtFact(img *Image, line string, bits *int64) error {
	key, value, _ := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch {
	case strings.Contains(line, "CFI Deviceimage"):
		return &NotImage{"a Versal device image as text", "its format is another; no card here takes it"}
	case strings.HasPrefix(line, "Created by "):
		img.Tool = strings.TrimPrefix(line, "Created by ")
	case strings.EqualFold(key, "Design name"):
		img.Design = value
	case strings.EqualFold(key, "Part"):
		img.Part = value
	case strings.EqualFold(key, "Date"):
		img.Date = value
	case strings.EqualFold(key, "Bits"):
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return err
		}
		*bits = n
	}
	return nil
}
