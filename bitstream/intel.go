package bitstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// Intel's (Altera's) raw images, .rbf. All CRCs are CRC-16 with the polynomial a001 from ffff on, low byte first.
//
// Cyclone III, IV and 10 LP:
//
//	32 × ff, 6a
//	a frame of L bytes: 40 of options, their CRC, ff
//	blocks of four frames side by side: 4 bytes, then byte i of frame k at 4i+k; each frame ends in its CRC
//	frames: a byte, then L bytes that end in their CRC
//	59 × ff
//
// Cyclone V:
//
//	128 × ff, 6a 6a 6a 6a
//	160 bytes of options, 2 bytes, their CRC at 162, ff up to byte L+104
//	frames of L bytes that end in their CRC: the periphery's up to one that starts with 2a c5 01, then the core's up to one
//	that starts with 42 9f 00. Compressed, the core's are coded by halves of bytes: a key says which of the next four are
//	not 0.
//	ec 64 …, with a CRC; ae fb and eight bytes, with a CRC; ff
//
// The options are strips of 40 bits side by side, 8 or 32 of them: bit i of strip k is in byte i (of group k/8), at the
// place k%8 from the top. Strip 6 holds eight bits of the IDCODE from bit 19 on.

const (
	intelFF   = 32  // at least so many before 6a
	intelVFF  = 128 // before 6a 6a 6a 6a
	intelStrp = 40
)

// intelParts by the eight bits. The family is not told apart where dies are the same.
var intelParts = map[byte]struct {
	part string
	id   uint32
}{
	0xf1: {"EP4CE6, EP4CE10, 10CL006, 10CL010", 0x020f10dd},
	0xf2: {"EP4CE15, 10CL016", 0x020f20dd},
	0xf3: {"EP3C25, EP4CE22, 10CL025", 0x020f30dd},
	0xf4: {"EP4CE30, EP4CE40, 10CL040", 0x020f40dd},
	0xf5: {"EP4CE55, 10CL055", 0x020f50dd},
	0xf6: {"EP4CE75, 10CL080", 0x020f60dd},
	0xf7: {"EP4CE115, 10CL120", 0x020f70dd},
}

// intelVParts by the eight bits and the length of frames: families share the bits.
var intelVParts = map[[2]int]struct {
	part  string
	id    uint32
	loose bool // not all frames have a check that is known
}{
	{0x15, 524}:  {"5CEA2", 0x02b150dd, false},
	{0x05, 524}:  {"5CEA4", 0x02b050dd, false},
	{0x22, 700}:  {"5CEA5", 0x02b220dd, false},
	{0x14, 1276}: {"5CEA9", 0x02b140dd, false},
	{0x02, 916}:  {"5CSEA6", 0x02d020dd, false},
	{0x07, 1188}: {"5SGSD5", 0x029070dd, true},
}

func intelCRC(p []byte) uint16 { return crcLsb(crcA001, 0xffff, p) }

// intelAgrees says whether a frame's last two bytes are its CRC.
func intelAgrees(p []byte) bool {
	return intelCRC(p[:len(p)-2]) == binary.LittleEndian.Uint16(p[len(p)-2:])
}

// rbfHead finds where 6a stands; v: of Cyclone V's kind. The CRC of the options is the proof; v needs none, as 132 bytes
// are proof enough, and is told when its CRC is wrong.
func rbfHead(data []byte) (at int, v, ok bool) {
	for at < len(data) && data[at] == 0xff {
		at++
	}
	if at >= intelVFF && bytes.HasPrefix(data[at:], []byte("jjjj")) {
		return at, true, len(data) >= at+168
	}
	ok = at >= intelFF && len(data) >= at+43 && data[at] == 0x6a && intelAgrees(data[at+1:at+43])
	return at, false, ok
}

func isRBF(head []byte) bool {
	_, _, ok := rbfHead(head)
	return ok
}

func readRBF(data []byte) (*Image, error) {
	at, v, ok := rbfHead(data)
	if !ok {
		return nil, bad(IntelRbf, at, "there is no header whose CRC agrees")
	}
	img := &Image{Format: IntelRbf, Vendor: "intel", Order: AsIs, Whole: true, Check: Integrity{State: Valid}}
	img.Payload = Span{0, int64(len(data))}
	img.Segments = []Segment{{0, data}}
	if at > intelVFF || !v && at > intelFF {
		img.Field("fill before the image", fmt.Sprintf("%d bytes", at))
	}
	w := rbfWalk{img: img, data: data, at: at}
	if v {
		w.five()
	} else {
		w.four()
	}
	return img, nil
}

type rbfWalk struct {
	img  *Image
	data []byte
	at   int // of 6a
	pos  int
}

// strip reads one of the options' strips out of groups of bytes.
func strip(options []byte, k, groups int) (v uint64) {
	for i := range intelStrp {
		v |= uint64(options[i*groups+k/8]>>(7-k%8)&1) << i
	}
	return v
}

func (w *rbfWalk) part(name string, id uint32, code byte) {
	if name == "" {
		w.img.Field("device code", fmt.Sprintf("%02x", code))
		w.img.Note(fmt.Sprintf("the device with code %02x is not known here", code))
		return
	}
	w.img.Part = name
	names := strings.Split(name, ", ")
	w.img.IDCodes = []IDCode{{id, names}}
}

func (w *rbfWalk) invalid(format string, args ...any) {
	if c := &w.img.Check; c.State != Invalid {
		c.State, c.Why = Invalid, fmt.Sprintf(format, args...)
	}
}

func (w *rbfWalk) cut(format string, args ...any) {
	w.img.Whole = false
	w.invalid("the file ends at byte %d, %s: it is cut off, fetch it again", len(w.data), fmt.Sprintf(format, args...))
}

// check counts a frame's CRC.
func (w *rbfWalk) check(frame []byte, what string, args ...any) {
	if intelAgrees(frame) {
		w.img.Check.Checks++
		return
	}
	w.invalid("%s: the CRC is %04x in the file, %04x over its bytes", fmt.Sprintf(what, args...), binary.LittleEndian.Uint16(frame[len(frame)-2:]), intelCRC(frame[:len(frame)-2]))
}

// four reads Cyclone III, IV and 10 LP.
func (w *rbfWalk) four() {
	head := w.at + 1
	options := w.data[head : head+intelStrp]
	w.check(w.data[head:head+42], "the options")
	code := byte(strip(options, 6, 1) >> 19)
	p := intelParts[code]
	w.part(p.part, p.id, code)
	size := w.at - intelFF + int(strip(options, 5, 1)>>16)/4 + 1 // counted in two bits, without the first byte
	length := w.fourLength(head)
	if length == 0 {
		c := &w.img.Check
		if size > len(w.data) {
			w.img.Whole = false
			c.State, c.Why = NotCheckable, fmt.Sprintf("the header tells of %d bytes, the file has %d: it is compressed, or cut off", size, len(w.data))
			return
		}
		c.State, c.Why = NotCheckable, "the header's CRC agrees; the frames are compressed, or of another kind than Cyclone IV's"
		return
	}
	w.pos = head + length
	blocks := 0
	for ; w.pos+4+4*length <= len(w.data); blocks++ { // four frames side by side, as long as one of the four agrees
		lanes := w.data[w.pos+4 : w.pos+4+4*length]
		var sums [4]uint16
		for i := 0; i < 4*(length-2); i += 4 {
			for k := range sums {
				s := sums[k]
				if i == 0 {
					s = 0xffff
				}
				sums[k] = s>>8 ^ crcA001[byte(s)^lanes[i+k]]
			}
		}
		good := 0
		tail := lanes[4*(length-2):]
		for k := range sums {
			if uint16(tail[k])|uint16(tail[4+k])<<8 == sums[k] {
				good++
			}
		}
		if good == 0 {
			break
		}
		w.img.Check.Checks += good
		if good < 4 {
			w.invalid("the block of frames at byte %d: the CRC of %d of four is wrong", w.pos, 4-good)
		}
		w.pos += 4 + 4*length
	}
	frames := 0
	for ; w.pos+1+length <= len(w.data); frames++ {
		frame := w.data[w.pos+1 : w.pos+1+length]
		if frame[0] == 0xff && allFF(frame) {
			break
		}
		w.check(frame, "frame %d, at byte %d", frames, w.pos+1)
		w.pos += 1 + length
	}
	w.img.Field("frames", fmt.Sprintf("%d and four times %d, of %d bytes", frames, blocks, length))
	rest := w.data[w.pos:]
	switch {
	case size > len(w.data):
		w.cut("where the header tells of %d bytes", size)
	case !allFF(rest):
		w.img.Note(fmt.Sprintf("%d bytes behind the last frame, from byte %d, are not ff", len(rest), w.pos))
	}
}

// fourLength finds the length of frames: the one at which the first block's agree.
func (w *rbfWalk) fourLength(head int) int {
	for n := 44; n < 1500 && head+5*n+4 <= len(w.data); n++ {
		lanes := w.data[head+n+4 : head+5*n+4]
		s := uint16(0xffff)
		for i := 0; i < 4*(n-2); i += 4 {
			s = s>>8 ^ crcA001[byte(s)^lanes[i]]
		}
		if uint16(lanes[4*(n-2)])|uint16(lanes[4*(n-1)])<<8 != s {
			continue
		}
		s = 0xffff
		for i := 1; i < 4*(n-2); i += 4 {
			s = s>>8 ^ crcA001[byte(s)^lanes[i]]
		}
		if uint16(lanes[4*(n-2)+1])|uint16(lanes[4*(n-1)+1])<<8 == s {
			return n
		}
	}
	return 0
}

// five reads Cyclone V.
func (w *rbfWalk) five() {
	head := w.at + 4
	options := w.data[head : head+160]
	code := byte(strip(options, 6, 4) >> 19)
	w.check(w.data[head:head+164], "the options")
	begin := w.at - intelVFF + 104
	length := w.fiveLength(begin, code)
	p := intelVParts[[2]int{int(code), length}]
	w.part(p.part, p.id, code)
	if length == 0 {
		if w.img.Check.State == Valid {
			c := &w.img.Check
			c.State, c.Why = NotCheckable, "the header's CRC agrees; frames of this family are not known here"
			if begin+2*300 > len(w.data) {
				w.cut("before the first frames")
			}
		}
		return
	}
	w.pos = begin + length
	periphery, core, last := 0, 0, false
	for marked := false; !marked; periphery++ {
		frame := w.frame(length, "in frame %d of the periphery", periphery)
		if frame == nil {
			return
		}
		w.check(frame, "frame %d of the periphery, at byte %d", periphery, w.pos-length)
		marked = bytes.HasPrefix(frame, []byte{0x2a, 0xc5, 0x01})
		if periphery >= 1<<12 {
			w.img.Whole = false
			w.invalid("no frame starts with 2a c5 01: the periphery has no end")
			return
		}
	}
	w.img.Packed = w.pos+length > len(w.data) || !intelAgrees(w.data[w.pos:w.pos+length]) && !bytes.HasPrefix(w.data[w.pos:], []byte{0x84, 0x3e, 0x01})
	half := halves{data: w.data, pos: 2 * w.pos}
	unpacked := make([]byte, length) // found by a CRC, at most some thousand
	for ; !last; core++ {
		frame := unpacked
		at := w.pos
		if w.img.Packed {
			at = half.pos / 2
			if !half.unpack(unpacked) {
				w.cut("in the compressed frame %d of the core", core)
				return
			}
		} else if frame = w.frame(length, "in frame %d of the core", core); frame == nil {
			return
		}
		if !intelAgrees(frame) && w.img.Packed { // nobody knows where the next one starts
			w.img.Whole = false
			w.check(frame, "the compressed frame %d of the core, at byte %d", core, at)
			return
		}
		if p.part == "" || p.loose {
			if !intelAgrees(frame) {
				c := &w.img.Check
				if c.State == Valid {
					c.State, c.Why = NotCheckable, fmt.Sprintf("%d checks agree; from byte %d on the frames have none, or one that is not known here", c.Checks, at)
				}
				return
			}
		}
		w.check(frame, "frame %d of the core, at byte %d", core, at)
		last = bytes.HasPrefix(frame, []byte{0x42, 0x9f, 0x00})
	}
	if w.img.Packed {
		w.pos = (half.pos + 1) / 2
	}
	w.img.Field("frames", fmt.Sprintf("%d and %d, of %d bytes", periphery, core, length))
	w.fiveEnd()
}

// fiveEnd reads what follows the frames.
func (w *rbfWalk) fiveEnd() {
	rest := w.data[w.pos:]
	if !bytes.HasPrefix(rest, []byte{0xec, 0x64}) {
		if len(rest) < 2 {
			w.cut("before ec 64, which follows the frames")
			return
		}
		w.invalid("byte %d: % x, where ec 64 follows the frames", w.pos, rest[:2])
		return
	}
	crc := uint16(0xffff)
	for n := 0; n+16 <= len(rest) && n < 4096; n++ {
		if n > 2 && binary.LittleEndian.Uint16(rest[n:]) == crc && rest[n+2] == 0xae && rest[n+3] == 0xfb {
			w.img.Check.Checks++
			w.check(rest[n+2:n+14], "the end, at byte %d", w.pos+n+2)
			w.pos += n + 14
			if !allFF(w.data[w.pos:]) {
				w.img.Note(fmt.Sprintf("%d bytes behind the image, from byte %d, are not ff", len(w.data)-w.pos, w.pos))
			}
			return
		}
		crc = crcLsb(crcA001, crc, rest[n:n+1])
	}
	if len(rest) < 300 {
		w.cut("in the block behind the frames")
		return
	}
	w.invalid("the block behind the frames, at byte %d, has no CRC that agrees before ae fb", w.pos)
}

func (w *rbfWalk) frame(length int, what string, args ...any) []byte {
	if w.pos+length > len(w.data) {
		w.cut(what, args...)
		return nil
	}
	w.pos += length
	return w.data[w.pos-length : w.pos]
}

// fiveLength finds the length of frames: the one at which the first two agree, or at which some of the first do where the
// device with the code is known to have it.
func (w *rbfWalk) fiveLength(begin int, code byte) int {
	agrees := func(i, n int) bool {
		return begin+(i+1)*n <= len(w.data) && intelAgrees(w.data[begin+i*n:begin+(i+1)*n])
	}
	for n := 300; n < 2400; n += 4 {
		if agrees(1, n) && agrees(2, n) {
			return n
		}
	}
	for known := range intelVParts {
		if known[0] != int(code) {
			continue
		}
		good := 0
		for i := 1; i < 16; i++ {
			if agrees(i, known[1]) {
				good++
			}
		}
		if good >= 2 {
			return known[1]
		}
	}
	return 0
}

// halves reads halves of bytes, the lower one first.
type halves struct {
	data []byte
	pos  int
}

// unpack fills p: a key of four bits says which of the four halves that stand for two bytes follow; the others are 0.
func (h *halves) unpack(p []byte) bool {
	for i := 0; i+1 < len(p); i += 2 {
		if h.pos+5 > 2*len(h.data) {
			need := 1
			if h.pos < 2*len(h.data) {
				need += bits.OnesCount8(h.half(h.pos))
			}
			if h.pos+need > 2*len(h.data) {
				return false
			}
		}
		key := h.half(h.pos)
		h.pos++
		var v [4]byte
		for k := range v {
			if key>>k&1 != 0 {
				v[k] = h.half(h.pos)
				h.pos++
			}
		}
		p[i], p[i+1] = v[0]|v[1]<<4, v[2]|v[3]<<4
	}
	return true
}

func (h *halves) half(at int) byte {
	b := h.data[at>>1]
	if at&1 != 0 {
		return b >> 4
	}
	return b & 15
}

// isRPD knows an image in the order of a serial flash, bits reversed in each byte.
func isRPD(head []byte) bool {
	if len(head) < 256 || head[0] != 0xff {
		return false
	}
	at := 0
	for at < len(head) && head[at] == 0xff {
		at++
	}
	if at == len(head) || head[at] != 0x56 { // 6a, reversed
		return false
	}
	return isRBF(reversed(head[:min(len(head), at+256)]))
}

func reversed(p []byte) []byte {
	r := make([]byte, len(p))
	for i, b := range p {
		r[i] = bits.Reverse8(b)
	}
	return r
}

func readRPD(data []byte) (*Image, error) {
	img, err := readRBF(reversed(data))
	if err != nil {
		return nil, err
	}
	img.Format, img.Order = IntelRpd, BitsReversed
	img.Segments = []Segment{{0, data}} // a flash takes it as it is
	return img, nil
}
