package port

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"

	"splicenic/emu/frame"
)

// A FormatError says where a capture file is not one.
type FormatError struct {
	Off int64 // of the record or block
	Msg string
}

func (e *FormatError) Error() string { return fmt.Sprintf("offset %d: %s", e.Off, e.Msg) }

// A Capture reads the frames of a pcap or pcapng file with their times.
type Capture struct {
	r   *captureReader
	buf []byte
}

// NewCapture reads the file's header.
func NewCapture(r io.Reader) (*Capture, error) {
	c, err := newCaptureReader(r)
	if err != nil {
		return nil, err
	}
	return &Capture{r: c, buf: make([]byte, frame.MaxBytes)}, nil
}

// Next returns the next frame and when it was captured, in nanoseconds since 1970; io.EOF after the last one. The bytes
// are valid until the next call.
func (c *Capture) Next() (b []byte, at int64, err error) {
	if err := c.r.next(); err != nil {
		return nil, 0, err
	}
	b = c.buf[:c.r.bytes]
	return b, c.r.at, c.r.body(b)
}

const (
	microMagic = 0xa1b2c3d4 // pcap with microseconds
	nanoMagic  = 0xa1b23c4d // pcap with nanoseconds
	orderMagic = 0x1a2b3c4d // byte order of a pcapng section

	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 2 // obsolete, still written by old tools
	blockSimple    = 3
	blockEnhanced  = 6

	optionEnd        = 0
	optionResolution = 9  // if_tsresol
	optionOffset     = 14 // if_tsoffset

	ethernetLink = 1

	maxInterfaces     = 1024          // of one section
	maxInterfaceBytes = 1 << 16       // of one interface block, options included
	second            = 1_000_000_000 // in nanoseconds
	maxSeconds        = math.MaxInt64 / second
)

// captureReader reads the frames of a pcap or pcapng file, one after the other: next, then body. It trusts nothing in the
// file: no length in it is allocated, and every one is checked against what it lies in.
type captureReader struct {
	r          *bufio.Reader
	off        int64 // bytes read so far
	start      int64 // of the record or block at hand
	order      binary.ByteOrder
	next       func() error // reads up to the next frame's bytes; io.EOF at the end of the file
	nano       bool         // pcap with nanoseconds
	interfaces []captureInterface

	// The frame that next has found.
	at    int64 // nanoseconds since 1970
	bytes int
	tail  int // bytes behind it that belong to its block

	scratch [28]byte
}

// captureInterface is what times in the blocks of a pcapng interface mean: units of 10^-decimal or 2^-binary seconds.
type captureInterface struct {
	link    uint16
	units   uint64 // in a second
	seconds int64  // to add
}

// newCaptureReader reads the file's header.
func newCaptureReader(r io.Reader) (*captureReader, error) {
	c := &captureReader{r: bufio.NewReaderSize(r, 1<<16), order: binary.LittleEndian}
	magic, err := c.r.Peek(4)
	if err != nil {
		return nil, c.bad("too short for a capture file")
	}
	switch little, big := binary.LittleEndian.Uint32(magic), binary.BigEndian.Uint32(magic); {
	case little == blockSection:
		c.next = c.nextBlock
		return c, nil
	case big == microMagic || big == nanoMagic:
		c.order = binary.BigEndian
		c.nano = big == nanoMagic
	case little == microMagic || little == nanoMagic:
		c.nano = little == nanoMagic
	default:
		return nil, c.bad("neither pcap nor pcapng: it begins with %x", magic)
	}
	c.next = c.nextRecord
	return c, c.fileHeader()
}

// bad is a FormatError at the record or block at hand.
func (c *captureReader) bad(format string, args ...any) error {
	return &FormatError{c.start, fmt.Sprintf(format, args...)}
}

// read fills p. The end of the file is an error here.
func (c *captureReader) read(p []byte) error {
	n, err := io.ReadFull(c.r, p)
	c.off += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return c.bad("the file is cut off here")
	}
	return err
}

// words reads n bytes, a few, into scratch. The next call overwrites them.
func (c *captureReader) words(n int) ([]byte, error) {
	p := c.scratch[:n]
	return p, c.read(p)
}

// begin marks the beginning of a record or block. io.EOF means that there is none.
func (c *captureReader) begin() error {
	c.start = c.off
	_, err := c.r.Peek(1)
	return err
}

func (c *captureReader) discard(n int) error {
	d, err := c.r.Discard(n)
	c.off += int64(d)
	if errors.Is(err, io.EOF) {
		return c.bad("the file is cut off here")
	}
	return err
}

// body reads the frame that next has found into p, which has room for it.
func (c *captureReader) body(p []byte) error {
	if err := c.read(p[:c.bytes]); err != nil {
		return err
	}
	return c.discard(c.tail)
}

// skip steps over the frame that next has found.
func (c *captureReader) skip() error { return c.discard(c.bytes + c.tail) }

// found takes down a frame's lengths.
func (c *captureReader) found(captured, original uint32, tail int) error {
	if captured > frame.MaxBytes {
		return c.bad("a frame of %d bytes; at most %d fit the card", captured, frame.MaxBytes)
	}
	if captured < original {
		return c.bad("only %d of a frame's %d bytes were captured: capture again with a larger snapshot length", captured, original)
	}
	c.bytes, c.tail = int(captured), tail
	return nil
}

// fileHeader reads the header of a pcap file.
func (c *captureReader) fileHeader() error {
	b, err := c.words(24)
	if err != nil {
		return err
	}
	if major, minor := c.order.Uint16(b[4:]), c.order.Uint16(b[6:]); major != 2 || minor > 4 {
		return c.bad("pcap version %d.%d; 2.4 is known", major, minor)
	}
	if link := c.order.Uint32(b[20:]); link != ethernetLink {
		return c.bad("link type %d; a port reads Ethernet (1) only", link)
	}
	return nil
}

// nextRecord reads a pcap record's header.
func (c *captureReader) nextRecord() error {
	if err := c.begin(); err != nil {
		return err
	}
	b, err := c.words(16)
	if err != nil {
		return err
	}
	fraction := int64(c.order.Uint32(b[4:]))
	if !c.nano {
		fraction *= 1000
	}
	c.at = int64(c.order.Uint32(b))*second + fraction
	return c.found(c.order.Uint32(b[8:]), c.order.Uint32(b[12:]), 0)
}

// nextBlock reads pcapng blocks up to one with a frame.
func (c *captureReader) nextBlock() error {
	for {
		if err := c.begin(); err != nil {
			return err
		}
		isFrame, err := c.block()
		if isFrame || err != nil {
			return err
		}
	}
}

// block reads one pcapng block, or the part of one before its frame.
func (c *captureReader) block() (isFrame bool, err error) {
	b, err := c.words(8)
	if err != nil {
		return false, err
	}
	// A section's type reads the same in both byte orders, and its order stands behind its length.
	if c.order.Uint32(b) == blockSection {
		return false, c.section([4]byte(b[4:]))
	}
	kind, total := c.order.Uint32(b), c.order.Uint32(b[4:])
	if err := c.blockLength(total); err != nil {
		return false, err
	}
	if kind != blockInterface && len(c.interfaces) == 0 && isPacket(kind) {
		return false, c.bad("a frame before the first interface")
	}
	rest := int(total) - 12 // without type and both lengths
	switch kind {
	case blockInterface:
		return false, c.anInterface(rest)
	case blockEnhanced:
		return true, c.packet(rest, false)
	case blockPacket:
		return true, c.packet(rest, true)
	case blockSimple:
		return true, c.simple(rest)
	}
	return false, c.discard(rest + 4)
}

func isPacket(kind uint32) bool {
	return kind == blockEnhanced || kind == blockPacket || kind == blockSimple
}

func (c *captureReader) blockLength(total uint32) error {
	if total < 12 || total%4 != 0 || total > math.MaxInt32 {
		return c.bad("a block of %d bytes", total)
	}
	return nil
}

// section begins a section: a byte order, and interfaces numbered anew.
func (c *captureReader) section(length [4]byte) error {
	b, err := c.words(4)
	if err != nil {
		return err
	}
	switch uint32(orderMagic) {
	case binary.LittleEndian.Uint32(b):
		c.order = binary.LittleEndian
	case binary.BigEndian.Uint32(b):
		c.order = binary.BigEndian
	default:
		return c.bad("a section with byte-order magic %x", b)
	}
	total := c.order.Uint32(length[:])
	if err := c.blockLength(total); err != nil {
		return err
	}
	if b, err = c.words(4); err != nil {
		return err
	}
	if major := c.order.Uint16(b); major != 1 {
		return c.bad("pcapng version %d.%d; 1.0 is known", major, c.order.Uint16(b[2:]))
	}
	const fixed = 28 // with the section length, which is not needed
	if total < fixed {
		return c.bad("a section header of %d bytes", total)
	}
	c.interfaces = c.interfaces[:0]
	return c.discard(int(total) - 16)
}

// anInterface reads an interface description.
func (c *captureReader) anInterface(rest int) error {
	if rest < 8 || rest > maxInterfaceBytes {
		return c.bad("an interface block of %d bytes", rest+12)
	}
	if len(c.interfaces) == maxInterfaces {
		return c.bad("more than %d interfaces", maxInterfaces)
	}
	b, err := c.words(8)
	if err != nil {
		return err
	}
	i := captureInterface{link: c.order.Uint16(b), units: 1e6}
	for rest -= 8; rest >= 4; {
		if b, err = c.words(4); err != nil {
			return err
		}
		rest -= 4
		code, length := c.order.Uint16(b), int(c.order.Uint16(b[2:]))
		padded := (length + 3) &^ 3
		if code == optionEnd {
			break
		}
		if padded > rest {
			return c.bad("option %d of %d bytes runs past its interface block", code, length)
		}
		rest -= padded
		if err := c.option(&i, code, length, padded); err != nil {
			return err
		}
	}
	c.interfaces = append(c.interfaces, i)
	return c.discard(rest + 4)
}

// option reads one option of an interface.
func (c *captureReader) option(i *captureInterface, code uint16, length, padded int) error {
	switch {
	case code == optionResolution && length == 1:
		b, err := c.words(4)
		if err != nil {
			return err
		}
		power, binaryPower := b[0]&0x7f, b[0]&0x80 != 0
		if power > 19 && !binaryPower || power > 63 {
			return c.bad("time resolution %#x", b[0])
		}
		i.units = 1 << power
		if !binaryPower {
			i.units = 1
			for range power {
				i.units *= 10
			}
		}
	case code == optionOffset && length == 8:
		b, err := c.words(8)
		if err != nil {
			return err
		}
		i.seconds = int64(c.order.Uint64(b))
	default:
		return c.discard(padded)
	}
	return nil
}

// packet reads the head of an enhanced or an obsolete packet block. They differ in how the interface is written.
func (c *captureReader) packet(rest int, obsolete bool) error {
	const fixed = 20
	if rest < fixed {
		return c.bad("a packet block of %d bytes", rest+12)
	}
	b, err := c.words(fixed)
	if err != nil {
		return err
	}
	n := c.order.Uint32(b)
	if obsolete {
		n = uint32(c.order.Uint16(b))
	}
	if err := c.useInterface(n); err != nil {
		return err
	}
	units := uint64(c.order.Uint32(b[4:]))<<32 | uint64(c.order.Uint32(b[8:]))
	at, ok := c.interfaces[n].time(units)
	if !ok {
		return c.bad("a time outside the years 1970 to 2262")
	}
	c.at = at
	captured, original := c.order.Uint32(b[12:]), c.order.Uint32(b[16:])
	if uint64(captured) > uint64(rest-fixed) {
		return c.bad("a frame of %d bytes in a block with room for %d", captured, rest-fixed)
	}
	return c.found(captured, original, rest-fixed-int(captured)+4)
}

// simple reads the head of a simple packet block. It has no time: the frame came with the one before it.
func (c *captureReader) simple(rest int) error {
	if rest < 4 {
		return c.bad("a packet block of %d bytes", rest+12)
	}
	b, err := c.words(4)
	if err != nil {
		return err
	}
	if err := c.useInterface(0); err != nil {
		return err
	}
	original := c.order.Uint32(b)
	room := uint32(rest - 4)
	return c.found(min(original, room), original, rest-4-int(min(original, room))+4)
}

func (c *captureReader) useInterface(n uint32) error {
	if n >= uint32(len(c.interfaces)) {
		return c.bad("a frame of interface %d; %d are described", n, len(c.interfaces))
	}
	if link := c.interfaces[n].link; link != ethernetLink {
		return c.bad("link type %d; a port reads Ethernet (1) only", link)
	}
	return nil
}

// time turns units since the interface's epoch into nanoseconds since 1970, within int64.
func (i *captureInterface) time(units uint64) (int64, bool) {
	seconds, rest := units/i.units, units%i.units
	if seconds > maxSeconds || i.seconds > maxSeconds || i.seconds < -maxSeconds {
		return 0, false
	}
	hi, lo := bits.Mul64(rest, second)
	fraction, _ := bits.Div64(hi, lo, i.units) // rest < units, so the quotient is below 10^9
	whole := int64(seconds) + i.seconds
	if whole < 0 || whole >= maxSeconds {
		return 0, false
	}
	return whole*second + int64(fraction), true
}

// captureWriter writes frames to a pcap file with nanoseconds or, by the file's name, to a pcapng one.
type captureWriter struct {
	w       *bufio.Writer
	ng      bool
	scratch [32]byte
}

func newCaptureWriter(w io.Writer, ng bool) *captureWriter {
	c := &captureWriter{w: bufio.NewWriterSize(w, 1<<18), ng: ng}
	var b []byte
	le := binary.LittleEndian
	if !ng {
		b = le.AppendUint32(b, nanoMagic)
		b = append(b, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0) // version 2.4, UTC
		b = le.AppendUint32(b, 1<<18)                     // snapshot length: tools refuse a frame beyond it
		b = le.AppendUint32(b, ethernetLink)
	} else {
		b = le.AppendUint32(b, blockSection)
		b = le.AppendUint32(b, 28)
		b = le.AppendUint32(b, orderMagic)
		b = le.AppendUint32(b, 1)              // version 1.0
		b = le.AppendUint64(b, math.MaxUint64) // length of the section: not given
		b = le.AppendUint32(b, 28)
		b = le.AppendUint32(b, blockInterface)
		b = le.AppendUint32(b, 32)
		b = le.AppendUint32(b, ethernetLink)
		b = le.AppendUint32(b, 0) // no snapshot length
		b = append(b, optionResolution, 0, 1, 0, 9, 0, 0, 0)
		b = append(b, optionEnd, 0, 0, 0)
		b = le.AppendUint32(b, 32)
	}
	_, _ = c.w.Write(b) // a bufio.Writer keeps its first error for Flush
	return c
}

// write appends one frame of time at, in nanoseconds since 1970.
func (c *captureWriter) write(b []byte, at int64) error {
	le := binary.LittleEndian
	if !c.ng {
		h := c.scratch[:16]
		le.PutUint32(h, uint32(at/second))
		le.PutUint32(h[4:], uint32(at%second))
		le.PutUint32(h[8:], uint32(len(b)))
		le.PutUint32(h[12:], uint32(len(b)))
		_, _ = c.w.Write(h)
		_, err := c.w.Write(b)
		return err
	}
	pad := -len(b) & 3
	total := uint32(32 + len(b) + pad)
	h := c.scratch[:28]
	le.PutUint32(h, blockEnhanced)
	le.PutUint32(h[4:], total)
	le.PutUint32(h[8:], 0) // interface
	le.PutUint32(h[12:], uint32(at>>32))
	le.PutUint32(h[16:], uint32(at))
	le.PutUint32(h[20:], uint32(len(b)))
	le.PutUint32(h[24:], uint32(len(b)))
	_, _ = c.w.Write(h)
	_, _ = c.w.Write(b)
	end := c.scratch[:pad+4]
	clear(end)
	le.PutUint32(end[pad:], total)
	_, err := c.w.Write(end)
	return err
}

func (c *captureWriter) flush() error { return c.w.Flush() }
