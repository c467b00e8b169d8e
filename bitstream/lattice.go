package bitstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// Lattice's files for ECP5, Nexus and MachXO2:
//
//	[LSCC] ff 00 text NUL text NUL … ff      a header for people; raw files lack it
//	ff ff bd b3                              the preamble; bf b3: encrypted; be b3: encrypted, Nexus
//	commands: one byte, three of information, operands, and a CRC where bit 23 of the information says so
//
// The CRC counts every byte but the dummy command ff, starts anew with the reset command and after each check. Frames have
// their own. Several images may lie in one file, each with its header, filled up with ff.

// Commands.
const (
	latticeDictionary = 0x02
	latticeControl    = 0x22
	latticeResetCRC   = 0x3b
	latticeInit       = 0x46
	latticePower      = 0x56
	latticeDone       = 0x5e
	latticeBusWrite   = 0x72
	latticeSPIMode    = 0x79
	latticeJump       = 0x7e
	latticeFrames     = 0x82
	latticeSED        = 0xa2
	latticeBlockRAM   = 0xb2
	latticeAddress    = 0xb4
	latticePacked     = 0xb8
	latticeUserCode   = 0xc2
	latticeSecurity   = 0xce
	latticeVerifyID   = 0xe2
	latticeRAMAddress = 0xf6
	latticeDummy      = 0xff
)

// latticeOperands is how many bytes follow the information.
var latticeOperands = map[byte]int{
	latticeDictionary: 8, latticeControl: 4, latticeResetCRC: 0, latticeInit: 0, latticePower: 0, latticeDone: 0,
	latticeSPIMode: 0, latticeJump: 4, latticeSED: 4, latticeAddress: 4, latticeUserCode: 4, latticeSecurity: 0,
	latticeVerifyID: 4, latticeRAMAddress: 4,
}

var latticeSPIModes = map[byte]string{0x49: "fast read", 0x51: "dual", 0x59: "quad"}

// A latticeDevice is what the frames' walk has to know.
type latticeDevice struct {
	name          string
	frames, bytes int
}

// latticeDevices by the whole IDCODE: with ECP5 only the version nibble tells some parts from each other.
var latticeDevices = map[uint32]latticeDevice{
	0x21111043: {"LFE5U-12F", 7562, 74},
	0x41111043: {"LFE5U-25F", 7562, 74},
	0x41112043: {"LFE5U-45F", 9470, 106},
	0x41113043: {"LFE5U-85F", 13294, 142},
	0x01111043: {"LFE5UM-25F", 7562, 74},
	0x01112043: {"LFE5UM-45F", 9470, 106},
	0x01113043: {"LFE5UM-85F", 13294, 142},
	0x81111043: {"LFE5UM5G-25F", 7562, 74},
	0x81112043: {"LFE5UM5G-45F", 9470, 106},
	0x81113043: {"LFE5UM5G-85F", 13294, 142},
	0x012b8043: {"LCMXO2-256HC", 186, 63},
	0x012b9043: {"LCMXO2-640HC", 209, 111},
	0x012ba043: {"LCMXO2-1200HC", 333, 135},
}

// isLattice says whether an image of these families starts here, perhaps behind the ff that flash tools put before it.
func isLattice(head []byte) bool {
	h, ok := latticeHead(head, 0)
	return ok && h.key != 0
}

// A latticeHeader is where an image starts.
type latticeHeader struct {
	start    int // of the header for people, or of the preamble
	text     []byte
	preamble int  // of its ff ff
	key      byte // bd, bf or be; 0: the data end before it
	radiant  bool
}

// latticeHead finds the header that comes next, behind ff only.
func latticeHead(data []byte, pos int) (h latticeHeader, ok bool) {
	h.radiant = bytes.HasPrefix(data[pos:], []byte("LSCC\xff\x00"))
	i := pos
	if h.radiant {
		i += 4
	}
	for i < len(data) && data[i] == 0xff {
		i++
	}
	h.start = i - 1
	if h.radiant {
		h.start = pos
	}
	if i < len(data) && data[i] == 0 && i > pos {
		i++
		n := bytes.IndexByte(data[i:], 0xff)
		if n < 0 {
			return h, false
		}
		h.text = data[i : i+n]
		for _, c := range h.text {
			if c != 0 && c != '\n' && c != '\r' && c != '\t' && c < ' ' {
				return h, false
			}
		}
		for i += n; i < len(data) && data[i] == 0xff; {
			i++
		}
	} else {
		h.start = i - 2
	}
	if i+1 >= len(data) {
		return h, h.text != nil
	}
	h.preamble = i - 2
	if h.start < pos || h.preamble < pos || data[i-1] != 0xff || data[i-2] != 0xff || data[i+1] != 0xb3 {
		return h, false
	}
	switch data[i] {
	case 0xbd, 0xbf, 0xbe:
		h.key = data[i]
		return h, true
	}
	return h, false
}

// latticeMost is how many images a file may have: flash tools make five at most.
const latticeMost = 64

func readLattice(data []byte) (*Image, error) {
	img := &Image{Format: LatticeECP5, Vendor: "lattice", Order: AsIs, Whole: true, Check: Integrity{State: Valid}}
	pos := 0
	for n := 0; ; n++ {
		h, ok := latticeHead(data, pos)
		if !ok {
			if n == 0 {
				return nil, bad(LatticeECP5, pos, "no preamble (ff ff bd b3) behind the header")
			}
			for pos < len(data) && data[pos] == 0xff {
				pos++
			}
			if pos < len(data) {
				img.Note(fmt.Sprintf("%d bytes behind the image, from byte %d, are none of its commands", len(data)-pos, pos))
			}
			break
		}
		if h.key == 0 {
			return nil, bad(LatticeECP5, len(data), "the file ends before the preamble (ff ff bd b3): fetch it again")
		}
		if n == latticeMost {
			return nil, bad(LatticeECP5, h.start, "more than %d images: no tool makes such a file", latticeMost)
		}
		if n == 0 && h.start > 0 {
			img.Variant = "flash"
		}
		w := latticeWalk{img: img, data: data, pos: h.preamble + 4, first: n == 0}
		w.header(h)
		w.walk()
		w.finish(h)
		if n > 0 && h.start > pos {
			img.Gaps = append(img.Gaps, Span{int64(pos), int64(h.start - pos)})
		}
		pos = w.pos
		img.Inner = append(img.Inner, Inner{Span: Span{int64(h.start), int64(pos - h.start)}, Part: w.part, IDCodes: w.ids})
		img.IDCodes = append(img.IDCodes, w.ids...)
		if w.broken != "" || w.opaque != "" {
			break
		}
	}
	if len(img.Inner) > 1 {
		img.Variant = "multiboot"
		img.Payload = Span{0, int64(len(data))}
	}
	if len(img.Inner) == 1 {
		img.Inner = nil
	}
	if img.Check.State == Valid && img.Check.Checks == 0 {
		img.Check = Integrity{State: Absent, Why: "no command in it asks for a CRC"}
	}
	if img.Partial {
		img.Note("only some frames are in it: it changes a running configuration and does not start one")
		return img, nil
	}
	img.Segments = []Segment{{0, data[img.Payload.Offset : img.Payload.Offset+img.Payload.Bytes]}}
	return img, nil
}

// latticeWalk goes through one image's commands.
type latticeWalk struct {
	img   *Image
	data  []byte
	pos   int
	first bool // of the file

	part   string
	ids    []IDCode
	device latticeDevice
	crc    uint16
	packed bool // a dictionary was given

	frames int
	asked  bool // some frames have CRCs
	jumps  bool
	ended  bool
	broken string // the walk cannot go on: damage
	opaque string // the walk cannot go on: unknown, but maybe right
	wrong  string // the first CRC that disagrees
}

// header takes the text for people.
func (w *latticeWalk) header(h latticeHeader) {
	if h.radiant || h.key == 0xbe {
		w.img.Format = LatticeNexus
	}
	for n, line := range bytes.Split(h.text, []byte{0}) {
		s := strings.TrimSpace(strings.ToValidUTF8(string(line[:min(len(line), 256)]), "?"))
		key, value, ok := strings.Cut(s, ":")
		value = strings.TrimSpace(value)
		if key == "Part" && ok {
			w.part = value
		}
		if !w.first || s == "" || n >= 64 {
			continue
		}
		switch {
		case !ok:
			w.img.Field("header", s)
		case key == "Part":
			w.img.Part = value
		case key == "Design name":
			w.img.Design = value
		case key == "Date":
			w.img.Date = value
		case key == "Version":
			w.img.Tool = value
		default:
			w.img.Field(key, value)
		}
	}
	if h.key != 0xbd {
		w.img.Secret = true
		w.opaque = "encrypted: only the device's key can check it"
		w.pos = len(w.data)
	}
}

func (w *latticeWalk) walk() {
	for w.broken == "" && w.opaque == "" && !w.ended {
		if w.pos >= len(w.data) {
			w.cut("before the command that ends an image (5e)")
			return
		}
		command := w.data[w.pos]
		if command == latticeDummy {
			w.pos++
			continue
		}
		switch command {
		case latticeFrames, latticePacked, latticeBlockRAM, latticeBusWrite:
			w.bulk(command)
			continue
		}
		operands, ok := latticeOperands[command]
		if !ok {
			w.opaque = fmt.Sprintf("the command %02x at byte %d is not known: what follows is passed on as it is, unchecked", command, w.pos)
			return
		}
		at := w.pos
		p := w.take(4+operands, fmt.Sprintf("in the command %02x", command))
		if p == nil {
			return
		}
		w.command(command, p[1:4], p[4:])
		if command != latticeSPIMode && p[1]&0x80 != 0 {
			w.check(fmt.Sprintf("command %02x at byte %d", command, at))
		}
	}
}

// take counts n bytes and gives them; nil: they are not there.
func (w *latticeWalk) take(n int, where string) []byte {
	if n > len(w.data)-w.pos {
		w.cut(where)
		return nil
	}
	p := w.data[w.pos : w.pos+n]
	w.crc = crcMsb(crc8005, w.crc, p)
	w.pos += n
	return p
}

// check compares the CRC that comes next.
func (w *latticeWalk) check(where string) bool {
	if len(w.data)-w.pos < 2 {
		w.cut("in the CRC of " + where)
		return false
	}
	got := binary.BigEndian.Uint16(w.data[w.pos:])
	w.pos += 2
	ok := got == w.crc
	if ok {
		w.img.Check.Checks++
	} else if w.wrong == "" {
		w.wrong = fmt.Sprintf("%s: the CRC is %04x in the file, %04x over its bytes", where, got, w.crc)
	}
	w.crc = 0
	return ok
}

func (w *latticeWalk) cut(where string) {
	w.broken = fmt.Sprintf("the file ends at byte %d, %s: it is cut off, fetch it again", len(w.data), where)
	w.pos = len(w.data)
}

func (w *latticeWalk) command(command byte, info, operand []byte) {
	switch command {
	case latticeResetCRC:
		w.crc = 0
	case latticeVerifyID:
		id := binary.BigEndian.Uint32(operand)
		w.device = latticeDevices[id]
		names := []string(nil)
		if w.device.name != "" {
			names = []string{w.device.name}
		}
		if len(w.ids) < 16 {
			w.ids = append(w.ids, IDCode{id, names})
		}
		if strings.HasPrefix(w.device.name, "LCMXO2") && w.first {
			w.img.Format = LatticeMachXO2
		}
	case latticeControl:
		w.field("control register", fmt.Sprintf("%#08x", binary.BigEndian.Uint32(operand)))
	case latticeUserCode:
		if w.first {
			code := binary.BigEndian.Uint32(operand)
			w.img.UserCode = &code
		}
	case latticeDictionary:
		w.packed = true
	case latticeSPIMode:
		mode, ok := latticeSPIModes[info[0]]
		if !ok {
			mode = fmt.Sprintf("%#02x", info[0])
		}
		w.field("spi mode", mode)
	case latticeSecurity:
		w.field("security", "readback is locked")
	case latticeJump:
		w.jumps, w.ended = true, true
		w.field("jump", fmt.Sprintf("to %#06x of the flash", binary.BigEndian.Uint32(operand)&0xffffff))
	case latticeDone:
		w.ended = true
		if !bytes.Equal(info, []byte{0, 0, 0}) && w.wrong == "" { // no CRC follows that would say so
			w.wrong = fmt.Sprintf("command 5e before byte %d carries % x instead of zeros", w.pos, info)
		}
	}
}

func (w *latticeWalk) field(name, value string) {
	if w.first && len(w.img.Fields) < 100 {
		w.img.Field(name, value)
	}
}

// bulk reads a command with frames: flags, how many, then the frames.
func (w *latticeWalk) bulk(command byte) {
	at := w.pos
	where := fmt.Sprintf("in the command %02x at byte %d", command, at)
	p := w.take(4, where)
	if p == nil {
		return
	}
	flags, count := p[1], int(binary.BigEndian.Uint16(p[2:]))
	each, once := flags&0xc0 == 0x80, flags&0xc0 == 0xc0
	dummy := int(flags & 15)
	var length int
	switch command {
	case latticeFrames, latticePacked:
		w.frames += count
		w.asked = w.asked || each || once
		length = w.device.bytes
		if command == latticePacked {
			w.img.Packed = true
			if !w.packed {
				w.broken = where + ": compressed frames without a dictionary before them"
				return
			}
		}
		if length == 0 && command == latticeFrames && each && count > 0 {
			length = w.infer(count, dummy)
		}
		if length == 0 {
			w.opaque = where + ": the length of this device's frames is not known; they are passed on unchecked"
			return
		}
		w.field("frames", fmt.Sprintf("%d of %d bytes", count, length))
	case latticeBlockRAM:
		length = 9
	case latticeBusWrite:
		if length = w.inferBus(count); length == 0 && count > 0 {
			w.opaque = where + ": the length of its data is not known; they are passed on unchecked"
			return
		}
	}
	for i := range count {
		in := fmt.Sprintf
		if command == latticePacked {
			used, ok := latticeUnpack(w.data[w.pos:], (length+7)/8*8)
			if !ok {
				w.cut(in("in frame %d of %d", i, count))
				return
			}
			w.crc = crcMsb(crc8005, w.crc, w.data[w.pos:w.pos+used])
			w.pos += used
		} else if length > len(w.data)-w.pos {
			w.cut(in("in frame %d of %d", i, count))
			return
		} else {
			w.crc = crcMsb(crc8005, w.crc, w.data[w.pos:w.pos+length])
			w.pos += length
		}
		if each || once && i == count-1 {
			if !w.agree(command, i, count) {
				return
			}
		}
		if dummy > len(w.data)-w.pos {
			w.cut(in("behind frame %d of %d", i, count))
			return
		}
		w.crc = crcMsb(crc8005, w.crc, w.data[w.pos:w.pos+dummy])
		w.pos += dummy
	}
}

// agree is check for a frame. Where compressed frames are damaged, nobody knows where the next one starts.
func (w *latticeWalk) agree(command byte, i, count int) bool {
	if len(w.data)-w.pos >= 2 && binary.BigEndian.Uint16(w.data[w.pos:]) == w.crc {
		w.pos, w.crc = w.pos+2, 0
		w.img.Check.Checks++
		return true
	}
	where := fmt.Sprintf("frame %d of %d, which ends at byte %d", i, count, w.pos)
	if !w.check(where) && command == latticePacked && w.broken == "" {
		w.broken = w.wrong
	}
	return w.broken == ""
}

// infer finds the length of plain frames by their CRCs: the one at which the first two agree.
func (w *latticeWalk) infer(count, dummy int) int {
	p := w.data[w.pos:]
	crc := w.crc
	for n := 0; n+2+dummy <= len(p) && n < 1024; n++ {
		if n > 8 && binary.BigEndian.Uint16(p[n:]) == crc {
			if count == 1 {
				return n
			}
			second := n + 2 + dummy
			if second+n+2 <= len(p) {
				c := crcMsb(crc8005, 0, p[n+2:second+n])
				if binary.BigEndian.Uint16(p[second+n:]) == c {
					return n
				}
			}
		}
		crc = crcMsb(crc8005, crc, p[n:n+1])
	}
	return 0
}

// inferBus does so for writes to a bus, which have one CRC over all.
func (w *latticeWalk) inferBus(count int) int {
	p := w.data[w.pos:]
	crc, done := w.crc, 0
	for n := 1; n <= 64 && count > 0 && n*count+2 <= len(p); n++ {
		crc = crcMsb(crc8005, crc, p[done:n*count])
		done = n * count
		if binary.BigEndian.Uint16(p[done:]) == crc {
			return n
		}
	}
	return 0
}

// latticeUnpack goes over the codes of n bytes, which end at a whole byte: 0 is a zero byte, 100 and three bits one with a
// single bit set, 101 and three bits one of the dictionary, 11 and eight bits any other. What the bytes are is no matter here:
// the CRC is over the codes.
func latticeUnpack(p []byte, n int) (used int, ok bool) {
	var acc uint64 // the next bits, at the top
	have := 0
	for n > 0 {
		for have <= 56 && used < len(p) {
			acc |= uint64(p[used]) << (56 - have)
			used++
			have += 8
		}
		if zeros := min(bits.LeadingZeros64(acc), have, n); zeros > 0 {
			acc <<= zeros
			have -= zeros
			n -= zeros
			continue
		}
		code := 6
		if acc>>62 == 3 {
			code = 10
		}
		if code > have {
			return 0, false
		}
		acc <<= code
		have -= code
		n--
	}
	return used - have/8, true
}

// finish puts what was found into the Image.
func (w *latticeWalk) finish(h latticeHeader) {
	img := w.img
	if w.ended { // the ff that belong to the image's end
		for n := 0; n < 4 && w.pos < len(w.data) && w.data[w.pos] == 0xff; n++ {
			w.pos++
		}
	}
	if w.first {
		img.Payload = Span{int64(h.preamble), int64(w.pos - h.preamble)}
	}
	if w.device.name != "" && w.part != "" && !strings.HasPrefix(strings.ToUpper(w.part), w.device.name) {
		img.Note(fmt.Sprintf("the header says %s, the bits say %s (%08x): the bits count", w.part, w.device.name, w.ids[len(w.ids)-1].Value))
	}
	if w.ended && !w.jumps && w.frames == 0 && w.broken == "" {
		w.broken = "there are no frames between the preamble and the end: nothing would be configured"
	}
	if w.ended && w.device.frames != 0 && w.frames != 0 && w.frames < w.device.frames {
		img.Partial = true
	}
	if w.ended && w.device.frames != 0 && w.frames > w.device.frames {
		w.broken = fmt.Sprintf("%d frames, where the device has %d", w.frames, w.device.frames)
	}
	if w.broken != "" || w.opaque != "" && !img.Secret {
		img.Whole = false
	}
	c := &img.Check
	switch {
	case c.State == Invalid:
	case w.wrong != "":
		c.State, c.Why = Invalid, w.wrong
	case w.broken != "":
		c.State, c.Why = Invalid, w.broken
	case w.opaque != "":
		c.State, c.Why = NotCheckable, w.opaque
	case w.frames > 0 && !w.asked && c.State == Valid:
		c.State, c.Why = Absent, "the frames have no CRC"
	}
}
