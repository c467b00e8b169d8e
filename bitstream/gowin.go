package bitstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Gowin's .fs is text: comments behind //, and lines of 0 and 1. Behind lines of ones and the line a5c3 come lines that
// are known by their first byte, the last of which, 3b, says how many rows follow and whether they have CRCs. A row ends in its
// CRC, low byte first, and six bytes of ff. The first CRC counts the lines from a5c3 on too, but d2; the later ones the six
// ff before their row.

const gowinTail = 6 // bytes of ff behind a row

// A gowinDevice says how many bits at the start of a row are fill, plain and compressed.
type gowinDevice struct {
	name       string
	pad, zpad  int
	mayDisobey bool // the family's rows may be checked in another way
}

// gowinDevices by IDCODE without the version nibble.
var gowinDevices = map[uint32]gowinDevice{
	0x0100581b: {"GW1N-9", 4, 44, false},
	0x0100481b: {"GW1N-9C", 4, 44, false},
	0x0900281b: {"GW1N-1", 0, 0, false},
	0x0100381b: {"GW1N-4", 0, 8, false},
	0x0100681b: {"GW1NZ-1", 0, 0, false},
	0x0100981b: {"GW1NS-4", 0, 8, false},
	0x0000081b: {"GW2A-18", 0, 16, false},
	0x0001281b: {"GW5A-25A", 3, 43, true},
	0x0001081b: {"GW5AST-138C", 3, 43, true},
}

var gowinPreamble = []byte("1010010111000011") // a5c3

// isGowin wants the preamble as a line, and nothing but such lines and comments before it.
func isGowin(head []byte) bool {
	for len(head) > 0 {
		line, rest, _ := bytes.Cut(head, []byte("\n"))
		head = rest
		line = bytes.TrimSpace(line)
		if bytes.Equal(line, gowinPreamble) {
			return true
		}
		if !bytes.HasPrefix(line, []byte("//")) && len(bytes.Trim(line, "01")) > 0 {
			return false
		}
	}
	return false
}

func readGowin(data []byte) (*Image, error) {
	g := gowinWalk{img: &Image{Format: GowinFS, Vendor: "gowin", Order: AsIs, Check: Integrity{State: Valid}}, comment: -1}
	g.img.Payload = Span{0, int64(len(data))}
	var row []byte
	for at, n := 0, 1; at < len(data); n++ {
		line := data[at:]
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line = line[:end]
		}
		next := at + len(line) + 1
		line = bytes.TrimSpace(line)
		if bytes.HasPrefix(line, []byte("//")) {
			g.remark(string(line[2:min(len(line), 300)]))
		} else if len(line) > 0 {
			var ok bool
			if row, ok = gowinBytes(row[:0], line); !ok {
				return nil, bad(GowinFS, at, "line %d is neither a comment nor whole bytes of 0 and 1: %.40q", n, line)
			}
			g.line(row, line, n)
		}
		at = next
	}
	g.finish()
	return g.img, nil
}

// gowinBytes reads a line of bits.
func gowinBytes(row, line []byte) ([]byte, bool) {
	if len(line)%8 != 0 {
		return row, false
	}
	for ; len(line) > 0; line = line[8:] {
		v := binary.BigEndian.Uint64(line) ^ 0x3030303030303030
		if v&^0x0101010101010101 != 0 {
			return row, false
		}
		row = append(row, byte(v*0x0102040810204080>>56)) // gathers the lowest bits of eight bytes
	}
	return row, true
}

type gowinWalk struct {
	img      *Image
	began    bool // the preamble was there
	rows     int  // announced, -1 after the first line behind them
	inRows   bool
	seen     int
	crcOn    bool
	device   gowinDevice
	packed   [3]byte // bytes that stand for 8, 4 and 2 of 0; 0: none
	crc      uint16
	length   int    // of the first row
	wrong    string // the first CRC
	rowWrong int
	broken   string

	sum     uint16 // over the rows' content, 16 bits each
	word    uint32
	bits    int
	comment int // the sum a comment tells; -1: none does
}

// remark takes a comment.
func (g *gowinWalk) remark(s string) {
	key, value, ok := strings.Cut(s, ":")
	key, value = strings.TrimSpace(key), strings.TrimSpace(strings.ToValidUTF8(value, "?"))
	switch {
	case !ok || value == "":
	case key == "Part Number":
		g.img.Part = value
	case key == "Tool Version":
		g.img.Tool = value
	case key == "Created Time":
		g.img.Date = value
	case key == "CheckSum":
		if v, err := strconv.ParseUint(value, 0, 16); err == nil {
			g.comment = int(v)
		} else {
			g.img.Note(fmt.Sprintf("the comment's CheckSum %.20q is no number of 16 bits", value))
		}
	case len(g.img.Fields) < 50:
		g.img.Field(key, value)
	}
}

func (g *gowinWalk) line(row, text []byte, n int) {
	switch {
	case !g.began:
		if bytes.Equal(text, gowinPreamble) {
			g.began = true
		} else if len(bytes.Trim(text, "1")) > 0 && len(g.img.Fields) < 50 {
			g.img.Field("line before the preamble", fmt.Sprintf("%.64s", text))
		}
	case g.inRows && g.seen < g.rows:
		g.row(row, n)
	case g.inRows:
		if len(row) == 8 && row[0]&0x7f == 0x0a {
			code := binary.BigEndian.Uint32(row[4:])
			g.img.UserCode = &code
		}
	default:
		g.head(row)
	}
}

// head takes a line before the rows.
func (g *gowinWalk) head(row []byte) {
	if row[0] != 0xd2 {
		g.crc = crcLsb(crcA001, g.crc, row)
	}
	key := row[0] & 0x7f
	if len(row) < 8 && key != 0x3b && key != 0x0b {
		return
	}
	switch key {
	case 0x06:
		id := binary.BigEndian.Uint32(row[4:])
		g.device = gowinDevices[id&0x0fffffff]
		var names []string
		if g.device.name != "" {
			names = []string{g.device.name}
		}
		if len(g.img.IDCodes) == 0 {
			g.img.IDCodes = []IDCode{{id, names}}
		}
	case 0x10:
		g.img.Packed = row[6]&0x20 != 0
	case 0x51:
		g.packed = [3]byte(row[5:8])
	case 0x0b:
		g.img.Field("security", "readback is locked")
	case 0x52:
		g.img.Field("flash address", fmt.Sprintf("%#08x", binary.BigEndian.Uint32(row[4:])))
	case 0x3b:
		if len(row) < 4 {
			return
		}
		g.inRows = true
		g.crcOn = row[len(row)-3]&0x80 != 0
		g.rows = int(binary.BigEndian.Uint16(row[len(row)-2:]))
		g.img.Field("rows", fmt.Sprint(g.rows))
	}
}

func (g *gowinWalk) row(row []byte, n int) {
	if g.broken != "" {
		return
	}
	tail := gowinTail
	if g.crcOn {
		tail += 2
	}
	if g.seen == 0 {
		g.length = len(row)
	}
	if len(row) < tail || !g.img.Packed && len(row) != g.length || !allFF(row[len(row)-gowinTail:]) {
		g.broken = fmt.Sprintf("line %d is no row, where row %d of %d should be", n, g.seen, g.rows)
		return
	}
	content := row[:len(row)-tail]
	if g.crcOn {
		g.crc = crcLsb(crcA001, g.crc, content)
		if got := binary.LittleEndian.Uint16(row[len(content):]); got == g.crc {
			g.img.Check.Checks++
		} else {
			if g.rowWrong++; g.wrong == "" {
				g.wrong = fmt.Sprintf("line %d, row %d of %d: the CRC is %04x in the file, %04x over its bytes", n, g.seen, g.rows, got, g.crc)
			}
		}
		g.crc = crcLsb(crcA001, 0, row[len(row)-gowinTail:])
	}
	g.seen++
	g.add(content)
}

// allFF is no bytes.Trim: that takes every byte that is no UTF-8 for ff.
func allFF(p []byte) bool {
	for _, b := range p {
		if b != 0xff {
			return false
		}
	}
	return true
}

// add sums a row's content, as the tools' CheckSum does: without the fill, unpacked, all rows in one run of bits.
func (g *gowinWalk) add(content []byte) {
	skip := g.device.pad
	if g.img.Packed {
		skip = g.device.zpad
	}
	for _, b := range content {
		n := 1
		if g.img.Packed && b != 0 {
			switch b {
			case g.packed[0]:
				b, n = 0, 8
			case g.packed[1]:
				b, n = 0, 4
			case g.packed[2]:
				b, n = 0, 2
			}
		}
		for range n {
			take := 8
			if skip > 0 {
				take = max(0, 8-skip)
				skip -= 8 - take
			}
			g.word = g.word<<take | uint32(b)&(1<<take-1)
			if g.bits += take; g.bits >= 16 {
				g.bits -= 16
				g.sum += uint16(g.word >> g.bits)
			}
		}
	}
}

func (g *gowinWalk) finish() {
	img, c := g.img, &g.img.Check
	if g.bits > 0 {
		g.sum += uint16(g.word << (16 - g.bits))
	}
	img.Whole = g.broken == "" && g.inRows && g.rows > 0 && g.seen == g.rows
	switch {
	case g.broken != "":
		c.Why = g.broken
	case !g.inRows:
		c.Why = "there is no line that announces rows (3b): the file is cut off, or no tool finished it"
	case g.rows == 0:
		c.Why = "it announces no rows: nothing would be configured"
	case g.seen < g.rows:
		c.Why = fmt.Sprintf("the file ends behind %d of %d rows: it is cut off, fetch it again", g.seen, g.rows)
	case g.wrong != "" && g.device.mayDisobey && g.rowWrong == g.seen:
		c.State, c.Checks, c.Why = NotCheckable, 0, "the rows of this family have checks that cannot be computed here"
	case g.wrong != "":
		c.Why = g.wrong
	case !g.crcOn:
		c.State, c.Why = Absent, "its rows have no CRC"
	}
	if c.State == Valid && c.Why != "" {
		c.State = Invalid
	}
	if img.Whole {
		g.checkSum()
	}
	img.Note("text for the vendor's programmer: it is not written to a flash as it is")
}

// checkSum compares the sum with the comment that tells it.
func (g *gowinWalk) checkSum() {
	img, c := g.img, &g.img.Check
	switch {
	case g.device.name == "":
		img.Field("checksum", "not checked: the geometry of this device is not known")
	case g.comment < 0:
		img.Field("checksum", fmt.Sprintf("%04x; not checked: no comment tells it", g.sum))
	case g.comment == int(g.sum):
		img.Field("checksum", fmt.Sprintf("%04x, as the comment says", g.sum))
		if c.State == Absent {
			c.State, c.Why = Valid, ""
		}
		if c.State == Valid {
			c.Checks++
		}
	default:
		why := fmt.Sprintf("the comment tells the checksum %04x, the rows have %04x", g.comment, g.sum)
		if c.State == Invalid {
			img.Note(why)
		} else {
			c.State, c.Why = Invalid, why
		}
	}
}
