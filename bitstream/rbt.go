package bitstream

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const rbtTitle = "Xilinx ASCII "

func isRbt(head []byte) bool { return bytes.HasPrefix(head, []byte(rbtTitle)) }

// readRbt reads a stream as text: a few lines of facts, then a word of 8, 16 or 32 digits 0 and 1 a line, all of one width.
func readRbt(r io.Reader, limit int64) (*decoded, error) {
	l, m := newLines(r), memory{limit: limit}
	d := decoded{text: &Image{}}
	announced, width := -1, 0
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
			if strings.Contains(string(line), "CFI Deviceimage") {
				return nil, &NotImage{"a Versal device image as text", "its format is another; no card here takes it"}
			}
			if err := rbtFact(d.text, string(line), &announced); err != nil {
				return nil, l.bad(XilinxRbt, "%v", err)
			}
			continue
		}
		if n := len(line); width == 0 && (n == 8 || n == 16 || n == 32) {
			width = n
		}
		if !rbtWord(word[:width/8], line) {
			return nil, l.bad(XilinxRbt, "%.40q has %d characters, wanted %s: it is damaged, or cut off", line, len(line), rbtWanted(width))
		}
		if err := m.put(uint32(m.bytes), word[:width/8], l.number); err != nil {
			return nil, err
		}
	}
	if m.bytes == 0 {
		return nil, bad(XilinxRbt, 0, "no words: there is nothing in it")
	}
	if announced >= 0 && announced != 8*m.bytes {
		return nil, bad(XilinxRbt, l.next, "announces %d bits and holds %d: it is cut off, or was changed", announced, 8*m.bytes)
	}
	var err error
	d.segments, err = m.segments()
	return &d, err
}

// rbtWord sets word to what digits say.
func rbtWord(word, digits []byte) bool {
	if len(digits) != 8*len(word) {
		return false
	}
	for i, c := range digits {
		if c != '0' && c != '1' {
			return false
		}
		word[i/8] = word[i/8]<<1 | c&1
	}
	return len(word) > 0
}

func rbtWanted(width int) string {
	if width == 0 {
		return "8, 16 or 32 digits 0 and 1"
	}
	return fmt.Sprintf("%d digits 0 and 1", width)
}

// rbtFact reads a line of the header.
func rbtFact(img *Image, line string, bits *int) (err error) {
	key, value, _ := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch strings.ToLower(key) {
	case "design name":
		img.Design = value
	case "part":
		img.Part = value
	case "date":
		img.Date = value
	case "bits":
		if *bits, err = strconv.Atoi(value); err != nil || *bits < 0 {
			return fmt.Errorf("%.20q is no number of bits", value)
		}
	default:
		if tool, ok := strings.CutPrefix(line, "Created by "); ok {
			img.Tool = tool
		}
	}
	return nil
}
