package bitstream

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Files for Lattice's iCE40:
//
//	ff 00 text NUL … 00 ff     comments
//	7e aa 99 7e                the preamble
//	commands: the high half of a byte says which, the low half how many bytes follow
//
// A CRC counts everything from its reset on, and is 0 behind its own two bytes. A file with several images begins with
// five vectors of 32 bytes, which are images that only say where to go on. There is no IDCODE.

var ice40Preamble = []byte{0x7e, 0xaa, 0x99, 0x7e}

const ice40Vector = 32

// ice40Parts by the width of the configuration memory. HX and LP parts of one size differ in speed only.
var ice40Parts = map[int]string{182: "lp384", 332: "hx1k, lp1k", 692: "up5k", 872: "hx8k, lp8k, hx4k"}

// isICE40 wants a preamble, behind nothing but comments and fill, and a command that may follow it.
func isICE40(head []byte) bool {
	at := bytes.Index(head, ice40Preamble)
	if at < 0 || at+6 > len(head) {
		return false
	}
	for _, c := range head[:at] {
		if c != 0xff && c != 0 && c < ' ' && c != '\n' && c != '\r' && c != '\t' || c > '~' && c != 0xff {
			return false
		}
	}
	switch head[at+4] {
	case 0x51, 0x92, 0x01:
		return true
	}
	return false
}

func readICE40(data []byte) (*Image, error) {
	at := bytes.Index(data, ice40Preamble)
	if at < 0 {
		return nil, bad(ICE40, 0, "there is no preamble (7e aa 99 7e)")
	}
	img := &Image{Format: ICE40, Vendor: "lattice", Order: AsIs, Whole: true, Check: Integrity{State: Valid}}
	img.Payload = Span{0, int64(len(data))}
	if at > 1 && data[0] == 0xff && data[1] == 0 {
		for n, line := range bytes.Split(bytes.TrimSuffix(data[2:at], []byte{0xff}), []byte{0}) {
			if s := strings.TrimSpace(string(line[:min(len(line), 256)])); s != "" && n < 64 {
				img.Field("comment", s)
			}
		}
	}
	var walks []*ice40Walk
	w := &ice40Walk{data: data, pos: at + 4}
	w.walk()
	if w.vector {
		img.Variant = "multiboot"
		walks = ice40Vectors(img, data, at)
	} else {
		w.start = 0
		walks = []*ice40Walk{w}
	}
	if walks == nil {
		return img, nil
	}
	end := 0
	for _, w := range walks {
		w.report(img, len(walks) > 1 || img.Variant == "multiboot")
		end = max(end, w.pos)
	}
	for end < len(data) && (data[end] == 0 || data[end] == 0xff) { // fill
		end++
	}
	if img.Whole && end < len(data) {
		img.Note(fmt.Sprintf("%d bytes behind the image, from byte %d, are not read", len(data)-end, end))
	}
	if img.Check.State == Valid && img.Check.Checks == 0 {
		img.Check = Integrity{State: Absent, Why: "no command in it checks a CRC"}
	}
	img.Segments = []Segment{{0, data}}
	return img, nil
}

// ice40Vectors follows the vectors at the start of a file. Nil: they lead nowhere, as img says.
func ice40Vectors(img *Image, data []byte, pos int) (walks []*ice40Walk) {
	var vectors []string
	var targets []int
	for n := 0; n < 5 && bytes.HasPrefix(data[min(pos, len(data)):], ice40Preamble); n++ {
		v := &ice40Walk{data: data, pos: pos + 4}
		v.walk()
		if !v.vector {
			break
		}
		if v.target >= len(data) {
			img.Whole = false
			img.Check = Integrity{State: Invalid, Why: fmt.Sprintf("vector %d leads to byte %d, the file has %d: it is cut off, or an image was left out", n, v.target, len(data))}
			return nil
		}
		vectors = append(vectors, fmt.Sprintf("%#06x", v.target))
		if !slices.Contains(targets, v.target) {
			targets = append(targets, v.target)
		}
		pos += ice40Vector
	}
	img.Field("vectors", strings.Join(vectors, " "))
	slices.Sort(targets)
	for i, at := range targets {
		end := len(data)
		if i+1 < len(targets) {
			end = targets[i+1]
		}
		p := bytes.Index(data[at:end], ice40Preamble)
		if p < 0 {
			img.Whole = false
			img.Check = Integrity{State: Invalid, Why: fmt.Sprintf("a vector leads to byte %d, where no preamble is", at)}
			return nil
		}
		w := &ice40Walk{data: data, start: at, pos: at + p + 4}
		w.walk()
		walks = append(walks, w)
	}
	return walks
}

// ice40Walk goes through one image's commands.
type ice40Walk struct {
	data       []byte
	start, pos int
	crc        uint16
	checks     int

	width, height, offset, bank int
	cramWidth, cramHeight       int
	bram, nosleep, warmboot     bool
	vector                      bool // it only leads to target
	target                      int
	broken                      string
	wrong                       string
}

func (w *ice40Walk) take(n int, where string) []byte {
	if n > len(w.data)-w.pos {
		w.broken = fmt.Sprintf("the file ends at byte %d, %s: it is cut off, fetch it again", len(w.data), where)
		w.pos = len(w.data)
		return nil
	}
	p := w.data[w.pos : w.pos+n]
	w.crc = crcMsb(crc1021, w.crc, p)
	w.pos += n
	return p
}

func (w *ice40Walk) walk() {
	for w.broken == "" {
		at := w.pos
		p := w.take(1, "before the command that starts the device (01 06)")
		if p == nil {
			return
		}
		command := p[0]
		value := 0
		if n := int(command & 15); n > 4 {
			w.unknown(command, at)
			return
		} else if p = w.take(n, fmt.Sprintf("in the command %02x", command)); p == nil {
			return
		}
		for _, b := range p {
			value = value<<8 | int(b)
		}
		switch command >> 4 {
		case 0:
			if w.action(value, at) {
				return
			}
		case 1:
			w.bank = value
		case 2:
			if w.crc == 0 {
				w.checks++
			} else if w.wrong == "" {
				w.wrong = fmt.Sprintf("the CRC at byte %d is %04x, which its bytes do not have", at, value)
			}
		case 4:
			w.target = value & 0xffffff
		case 5: // the oscillator's frequency
			if value > 2 && w.wrong == "" {
				w.wrong = fmt.Sprintf("the command at byte %d asks for oscillator range %d; there are 0 to 2", at, value)
			}
		case 6:
			w.width = value + 1
		case 7:
			w.height = value
		case 8:
			w.offset = value
		case 9:
			w.nosleep, w.warmboot = value&1 != 0, value&0x20 != 0
		default:
			w.unknown(command, at)
		}
	}
}

// action is a command 0; true: the image ends.
func (w *ice40Walk) action(what, at int) (end bool) {
	switch what {
	case 1, 3:
		kind := "configuration memory"
		if what == 1 {
			w.cramWidth = max(w.cramWidth, w.width)
			w.cramHeight = max(w.cramHeight, w.offset+w.height)
		} else {
			kind = "block memory"
			w.bram = true
		}
		where := fmt.Sprintf("in the %s of bank %d", kind, w.bank)
		if w.take(w.width*w.height/8, where) == nil {
			return true
		}
		if p := w.take(2, where); p == nil {
			return true
		} else if p[0]|p[1] != 0 {
			w.broken = fmt.Sprintf("byte %d, %s: the data do not end in 00 00, but in % x", w.pos-2, where, p)
		}
	case 5:
		w.crc = 0xffff
	case 6:
		if w.pos < len(w.data) && w.data[w.pos] == 0 { // one byte of fill belongs to it
			w.pos++
		}
		return true
	case 8:
		w.vector = true
		return true
	default:
		w.unknown(1, at)
	}
	return false
}

func (w *ice40Walk) unknown(command byte, at int) {
	w.broken = fmt.Sprintf("byte %d: %02x starts no command that an iCE40 has", at, command)
}

func (w *ice40Walk) report(img *Image, several bool) {
	if w.broken == "" && w.cramWidth == 0 {
		w.broken = fmt.Sprintf("the image at byte %d has no configuration memory in it", w.start)
	}
	part := ice40Parts[w.cramWidth]
	if part == "" && w.cramWidth > 0 {
		part = fmt.Sprintf("%d by %d", w.cramWidth, w.cramHeight)
	}
	if part != "" {
		part += " (geometry only)"
	}
	if img.Part == "" {
		img.Part = part
	}
	var kind []string
	if w.nosleep {
		kind = append(kind, "nosleep")
	}
	if !w.bram && w.cramWidth > 0 {
		kind = append(kind, "no-bram")
	}
	if several {
		img.Inner = append(img.Inner, Inner{Span: Span{int64(w.start), int64(w.pos - w.start)}, Part: part})
	} else {
		img.Variant = strings.Join(kind, " ")
	}
	if w.warmboot {
		img.Field("warm boot", "enabled")
	}
	c := &img.Check
	c.Checks += w.checks
	why := w.wrong
	if w.broken != "" {
		img.Whole = false
		why = w.broken
	}
	if why != "" && c.State == Valid {
		c.State, c.Why = Invalid, why
	}
}
