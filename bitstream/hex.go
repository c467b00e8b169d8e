package bitstream

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// decoded are the bytes that a file of text stands for.
type decoded struct {
	segments []Segment // in order of addresses, apart from each other
	notes    []string
	fields   []Field
	text     *Image // what the text itself says: design, part, date
}

// nibble is the value of a hexadecimal digit; 255: it is none.
var nibble = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i := byte(0); i < 10; i++ {
		t['0'+i] = i
	}
	for i := byte(0); i < 6; i++ {
		t['a'+i], t['A'+i] = 10+i, 10+i
	}
	return t
}()

// lines gives lines of a bounded length and knows where they stand.
type lines struct {
	r      *bufio.Reader
	number int
	offset int // of the line given last
	next   int
}

const longest = 4 << 10 // bytes of a line

func newLines(r io.Reader) *lines {
	b, ok := r.(*bufio.Reader)
	if !ok || b.Size() < longest {
		b = bufio.NewReaderSize(r, headBytes)
	}
	return &lines{r: b}
}

// read gives the next line without its end, good until the next call.
func (l *lines) read(f Format) ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	l.number++
	l.offset = l.next
	l.next += len(line)
	if err == bufio.ErrBufferFull {
		return nil, bad(f, l.offset, "line %d is longer than %d bytes", l.number, len(line))
	}
	if err != nil && (err != io.EOF || len(line) == 0) {
		return nil, err
	}
	for len(line) > 0 && line[len(line)-1] <= ' ' {
		line = line[:len(line)-1]
	}
	for len(line) > 0 && line[0] <= ' ' {
		line = line[1:]
	}
	return line, nil
}

func (l *lines) bad(f Format, format string, args ...any) error {
	return bad(f, l.offset, "line %d: %s", l.number, fmt.Sprintf(format, args...))
}

// isIntelHex wants a record with its own checksum right on the first line that is not blank.
func isIntelHex(head []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(head, " \t\r\n"), []byte("\n"))
	line = bytes.TrimRight(line, " \t\r")
	if len(line) < 11 || line[0] != ':' || len(line)%2 == 0 || !isHex(line[1:]) {
		return false
	}
	return int(nibble[line[1]]<<4|nibble[line[2]]) == (len(line)-11)/2
}

// Record types of Intel HEX.
const (
	hexData    = 0
	hexEnd     = 1
	hexSegment = 2 // address of data: 16 times this, and the offset wraps at 64 KiB
	hexStart80 = 3 // where an 8086 starts: nothing for a flash
	hexUpper   = 4 // upper half of data's addresses
	hexStart   = 5 // where an 80386 starts
)

// hexBytes is how many bytes a record of a type has.
var hexBytes = [...]int{hexEnd: 0, hexSegment: 2, hexStart80: 4, hexUpper: 2, hexStart: 4}

// readHex reads Intel HEX records.
func readHex(r io.Reader, limit int64) (*decoded, error) {
	l := newLines(r)
	m := memory{limit: limit}
	var d decoded
	var record [5 + 255]byte
	var base uint32
	segmented, end, started := false, 0, false
	for {
		line, err := l.read(IntelHex)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		if end > 0 {
			d.notes = append(d.notes, fmt.Sprintf("line %d and what follows stand behind the end record of line %d; they are left out", l.number, end))
			if _, err := io.Copy(io.Discard, l.r); err != nil {
				return nil, err
			}
			break
		}
		if line[0] != ':' {
			return nil, l.bad(IntelHex, "starts with %q, wanted a colon", line[0])
		}
		digits := line[1:]
		if len(digits) < 10 || len(digits)%2 != 0 || len(digits) > 2*len(record) {
			return nil, l.bad(IntelHex, "%d hexadecimal digits, wanted an even number from 10 to %d", len(digits), 2*len(record))
		}
		n := len(digits) / 2
		var sum, wrong byte
		for i := range n {
			hi, lo := nibble[digits[2*i]], nibble[digits[2*i+1]]
			wrong |= hi | lo
			c := hi<<4 | lo
			record[i] = c
			sum += c
		}
		if wrong > 15 {
			return nil, l.bad(IntelHex, "has something other than hexadecimal digits")
		}
		data := record[4 : n-1]
		if int(record[0]) != len(data) {
			return nil, l.bad(IntelHex, "announces %d bytes and holds %d", record[0], len(data))
		}
		if sum != 0 {
			return nil, l.bad(IntelHex, "checksum %02x, computed %02x: the file is damaged", record[n-1], record[n-1]-sum)
		}
		offset := uint32(record[1])<<8 | uint32(record[2])
		kind := record[3]
		if kind != hexData && (int(kind) >= len(hexBytes) || hexBytes[kind] != len(data)) {
			return nil, l.bad(IntelHex, "record type %02x with %d bytes, which means nothing", kind, len(data))
		}
		switch kind {
		case hexData:
			if fit := 1<<16 - int(offset); segmented && len(data) > fit { // a segment's offset wraps
				if err = m.put(base+offset, data[:fit], l.number); err == nil {
					err = m.put(base, data[fit:], l.number)
				}
			} else {
				err = m.put(base+offset, data, l.number)
			}
			if err != nil {
				if _, ok := errors.AsType[errLimit](err); ok {
					return nil, err
				}
				return nil, l.bad(IntelHex, "%v", err)
			}
		case hexEnd:
			end = l.number
		case hexSegment:
			base, segmented = (uint32(data[0])<<8|uint32(data[1]))<<4, true
		case hexUpper:
			base, segmented = (uint32(data[0])<<8|uint32(data[1]))<<16, false
		default:
			started = true
		}
	}
	if end == 0 {
		d.notes = append(d.notes, "there is no end record: the file may be cut off")
	}
	if started {
		d.notes = append(d.notes, "a start address record is for processors; it is left out")
	}
	segments, err := m.segments()
	if err != nil {
		return nil, err
	}
	d.segments = segments
	if m.again > 0 {
		d.notes = append(d.notes, fmt.Sprintf("%d bytes are given twice, with the same value", m.again))
	}
	if m.back > 0 {
		d.notes = append(d.notes, "records are not in the order of their addresses")
	}
	if len(d.segments) == 0 {
		return nil, bad(IntelHex, 0, "no data records: there is nothing in it")
	}
	return &d, nil
}

// A memory collects bytes at addresses. What was put stays in one log in the order of the file; runs say where it belongs,
// and segments puts it there.
type memory struct {
	limit  int64
	bytes  int
	pieces [][]byte // the log: growth copies nothing
	runs   []run
	again  int // bytes given twice
	back   int // runs that stand before their predecessor
}

// A run is bytes of the log that follow each other in address as well.
type run struct {
	address   uint32
	line      int32
	at, bytes int // in the log
}

func (r run) end() uint64 { return uint64(r.address) + uint64(r.bytes) }

const (
	pieceBytes = 256 << 10
	maxRuns    = 1 << 16 // more than honest files have; a hostile one could have one a line
)

func (m *memory) put(address uint32, p []byte, line int) error {
	if len(p) == 0 {
		return nil
	}
	if uint64(address)+uint64(len(p)) > 1<<32 {
		return fmt.Errorf("%d bytes at address 0x%08x run past 4 GiB", len(p), address)
	}
	if int64(m.bytes)+int64(len(p)) > m.limit {
		return errLimit{m.limit, "the text stands for"}
	}
	if n := len(m.runs); n > 0 && m.runs[n-1].end() == uint64(address) {
		m.runs[n-1].bytes += len(p)
	} else {
		if n == maxRuns {
			return fmt.Errorf("more than %d regions apart from each other", maxRuns)
		}
		if n > 0 && address < m.runs[n-1].address {
			m.back++
		}
		m.runs = append(m.runs, run{address, int32(min(line, math.MaxInt32)), m.bytes, len(p)})
	}
	for len(p) > 0 {
		in := m.bytes % pieceBytes
		if in == 0 {
			m.pieces = append(m.pieces, make([]byte, pieceBytes))
		}
		n := copy(m.pieces[len(m.pieces)-1][in:], p)
		m.bytes += n
		p = p[n:]
	}
	return nil
}

// piece is a part of the log from at, as long as it lies in one piece, at most n bytes.
func (m *memory) piece(at, n int) []byte {
	in := at % pieceBytes
	return m.pieces[at/pieceBytes][in:min(in+n, pieceBytes)]
}

// segments puts everything in order. Bytes that are given twice must agree.
func (m *memory) segments() ([]Segment, error) {
	slices.SortStableFunc(m.runs, func(a, b run) int { return cmp.Compare(a.address, b.address) })
	var out []Segment
	for i := 0; i < len(m.runs); {
		first, end, n := m.runs[i], m.runs[i].end(), i+1
		for n < len(m.runs) && uint64(m.runs[n].address) <= end {
			end = max(end, m.runs[n].end())
			n++
		}
		data := make([]byte, 0, end-uint64(first.address))
		from := first
		for _, r := range m.runs[i:n] {
			if err := m.lay(&data, first.address, r, from); err != nil {
				return nil, err
			}
			if r.end() >= from.end() {
				from = r
			}
		}
		out = append(out, Segment{first.address, data})
		i = n
	}
	return out, nil
}

// lay puts a run into a segment that begins at address and reaches up to the run or into it. The bytes before came from
// the run from, or from another before it.
func (m *memory) lay(data *[]byte, address uint32, r, from run) error {
	at := int(r.address - address)
	for done := 0; done < r.bytes; {
		p := m.piece(r.at+done, r.bytes-done)
		if have := len(*data) - at - done; have > 0 { // given before
			p = p[:min(len(p), have)]
			old := (*data)[at+done:][:len(p)]
			if !bytes.Equal(old, p) {
				k := 0
				for old[k] == p[k] {
					k++
				}
				return bad(IntelHex, 0, "address 0x%08x is given twice, as %02x and as %02x, by the records from line %d and from line %d on", r.address+uint32(done+k), old[k], p[k], from.line, r.line)
			}
			m.again += len(p)
		} else {
			*data = append(*data, p...)
		}
		done += len(p)
	}
	return nil
}

// isHexDump wants what bitparse of xc3sprog writes: a decimal offset, a colon, and up to sixteen bytes.
func isHexDump(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	at, data, ok := dumpLine(bytes.TrimSpace(line), nil)
	return ok && at == 0 && len(data) > 0
}

// dumpLine takes a line of a dump apart.
func dumpLine(line, into []byte) (at int, data []byte, ok bool) {
	i := bytes.IndexByte(line, ':')
	if i < 1 || i > 10 {
		return 0, nil, false
	}
	for _, c := range line[:i] {
		if c < '0' || c > '9' {
			return 0, nil, false
		}
		at = at*10 + int(c-'0')
	}
	data = into[:0]
	for line = line[i+1:]; ; line = line[2:] {
		for len(line) > 0 && line[0] == ' ' {
			line = line[1:]
		}
		if len(line) == 0 {
			return at, data, len(data) <= 16
		}
		if len(line) < 2 || len(line) > 2 && line[2] != ' ' || len(data) > 16 {
			return 0, nil, false
		}
		hi, lo := nibble[line[0]], nibble[line[1]]
		if hi|lo > 15 {
			return 0, nil, false
		}
		data = append(data, hi<<4|lo)
	}
}

func readHexDump(r io.Reader, limit int64) (*decoded, error) {
	l := newLines(r)
	m := memory{limit: limit}
	var room [32]byte
	for {
		line, err := l.read(HexDump)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		at, data, ok := dumpLine(line, room[:])
		if !ok {
			return nil, l.bad(HexDump, "%.20q is not an offset, a colon and up to 16 bytes", line)
		}
		if at != m.bytes {
			return nil, l.bad(HexDump, "stands for offset %d, the lines before end at %d: a line is missing, or one too many", at, m.bytes)
		}
		if err := m.put(uint32(at), data, l.number); err != nil {
			return nil, err
		}
	}
	segments, err := m.segments()
	if err != nil {
		return nil, err
	}
	return &decoded{segments: segments}, nil
}
