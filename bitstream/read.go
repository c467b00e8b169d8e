package bitstream

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Options say what Read may know of a file beside its bytes. The zero value is right for a stream.
type Options struct {
	Name  string // for messages, and for the note that the suffix says something else; content alone decides
	Size  int64  // of the file, where it is known; 0: unknown. A hint for memory, never believed
	Limit int64  // most bytes that are held, unwrapped and decoded; 0: DefaultLimit

	// Raw takes the bytes as they are, for Offset in the flash, whatever they are.
	Raw    bool
	Offset uint32
}

// DefaultLimit is room for the largest device's image twice over.
const DefaultLimit = 256 << 20

const (
	headBytes = 64 << 10 // what detectors see
	maxDepth  = 3        // wrappings
	maxHint   = 32 << 20 // memory taken on the word of Options.Size
	textFold  = 40       // the most bytes of text that stand for one of data: .rbt with a comment a line
	zstdRoom  = 8 << 20  // window; what zstd's own levels up to 19 ask for

	// A wrapped file may give so much, and so many times its size: four times that for text, of which only what it stands
	// for is held. A small file that gives hundreds of megabytes of zeros is made to do harm; an image for the largest
	// parts that is nearly empty can be unpacked first.
	bombRoom = 24 << 20
	bombFold = 32
	bombText = 4
)

// A NotImage is the error about a file that is something else.
type NotImage struct{ Got, Do string }

func (e *NotImage) Error() string {
	s := "got " + e.Got + ", wanted an FPGA image"
	if e.Do != "" {
		s += ": " + e.Do
	}
	return s
}

// A FormatError is the error about a file of a known format that is broken.
type FormatError struct {
	Format Format
	Offset int64 // in the file, unwrapped
	What   string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s, at byte %d: %s", e.Format, e.Offset, e.What)
}

func bad(f Format, offset int, format string, args ...any) error {
	return &FormatError{f, int64(offset), fmt.Sprintf(format, args...)}
}

// errLimit is what a reader says that has given as much as it may.
type errLimit struct {
	limit int64
	what  string
}

func (e errLimit) Error() string {
	return fmt.Sprintf("%s more than %d bytes, the limit: no image is that large, unless the limit is raised", e.what, e.limit)
}

// errBomb is what a reader of a wrapping says that gives too much for its size.
type errBomb struct{ given, packed int64 }

func (e errBomb) Error() string {
	return fmt.Sprintf("%d packed bytes have given %d and more: if that is meant, unpack the file first", e.packed, e.given)
}

// limited gives at most left bytes of r, then an error where there are more. It hashes and counts what it gave.
type limited struct {
	r     io.Reader
	left  int64
	err   error
	count int64
	sum   hash.Hash // may be nil
	file  *limited  // what is unwrapped; nil: this is the file
	text  bool      // more may come
}

func (l *limited) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if l.left == 0 {
		if n, err := io.ReadFull(l.r, make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, l.err
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	l.count += int64(n)
	if l.sum != nil {
		l.sum.Write(p[:n])
	}
	if f := l.file; f != nil {
		most := bombRoom + bombFold*f.count
		if l.text {
			most *= bombText
		}
		if l.count > most {
			return 0, errBomb{l.count, f.count}
		}
	}
	return n, err
}

// Read reads an image. It reads r to its end; the Image holds what it needs of it and nothing else.
//
// Wrappings are taken off, at most three. Bytes as text (Intel HEX, hex dumps, .rbt) are turned into bytes while they are
// read, so that a file of text costs no more memory than what it stands for.
func Read(r io.Reader, o Options) (*Image, error) {
	if o.Limit <= 0 {
		o.Limit = DefaultLimit
	}
	file := &limited{r: r, left: o.Limit * textFold, err: errLimit{o.Limit * textFold, "the file has"}, sum: sha256.New()}
	img, err := unwrap(file, o)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, file); err != nil { // behind what a wrapping took
		return nil, fmt.Errorf("read the file to its end: %w", err)
	}
	img.SHA256 = hex.EncodeToString(file.sum.Sum(nil))
	if img.IDCodes == nil {
		img.IDCodes = []IDCode{}
	}
	for i := range img.IDCodes {
		if img.IDCodes[i].Names == nil {
			img.IDCodes[i].Names = Names(img.IDCodes[i].Value)
		}
	}
	clash(img, o.Name)
	return img, nil
}

// unwrap takes wrappings off and reads what is inside.
func unwrap(file *limited, o Options) (*Image, error) {
	in := file
	size := o.Size
	var wrapping []string
	for {
		b := bufio.NewReaderSize(in, headBytes)
		head, err := b.Peek(headBytes)
		if err != nil && err != io.EOF {
			return nil, reading(wrapping, in, err)
		}
		name := wrapper(head)
		if o.Raw {
			name = ""
		}
		if name == "" {
			img, err := inside(b, in, head, size, o)
			if err != nil {
				return nil, reading(wrapping, in, err)
			}
			img.Wrapping, img.FileSize = wrapping, in.count
			return img, nil
		}
		if len(wrapping) == maxDepth {
			return nil, &NotImage{fmt.Sprintf("%s inside %s", name, strings.Join(wrapping, ", ")), fmt.Sprintf("wrapped more than %d deep; unpack it first", maxDepth)}
		}
		wrapping = append(wrapping, name)
		r, done, err := open(name, b)
		if err != nil {
			return nil, reading(wrapping, in, err)
		}
		defer done()
		in = &limited{r: r, left: o.Limit * textFold, err: errLimit{o.Limit * textFold, "unpacked, the file has"}, file: file}
		size = 0
	}
}

// reading says where a reader's error came from.
func reading(wrapping []string, in *limited, err error) error {
	if _, ok := errors.AsType[*NotImage](err); ok {
		return err
	}
	if _, ok := errors.AsType[*FormatError](err); ok {
		return err
	}
	if _, ok := errors.AsType[errLimit](err); ok {
		return err
	}
	if _, ok := errors.AsType[errBomb](err); ok {
		return err
	}
	if len(wrapping) == 0 {
		return fmt.Errorf("read byte %d: %w", in.count, err)
	}
	if err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%s ends in the middle, after %d bytes unpacked: the file is cut off, fetch it again", wrapping[len(wrapping)-1], in.count)
	}
	return fmt.Errorf("unpack %s, after %d bytes: %w: the file is damaged, fetch it again", wrapping[len(wrapping)-1], in.count, err)
}

func wrapper(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b, 8}):
		return "gzip"
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	}
	return ""
}

func open(name string, r io.Reader) (io.Reader, func(), error) {
	if name == "gzip" {
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	}
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdRoom))
	if err != nil {
		return nil, nil, err
	}
	return z, z.Close, nil
}

// inside reads a file without wrapping, which r reads from in.
func inside(r *bufio.Reader, in *limited, head []byte, size int64, o Options) (*Image, error) {
	if o.Raw {
		data, err := readAll(r, size, o.Limit)
		if err != nil {
			return nil, err
		}
		if len(data) == 0 {
			return nil, &NotImage{"an empty file", ""}
		}
		img := &Image{Format: Unknown, Payload: Span{0, int64(len(data))}, Check: Integrity{State: Absent, Why: "raw bytes, not looked at"}}
		img.Segments = []Segment{{o.Offset, data}}
		return img, nil
	}
	f, err := detect(head)
	if err != nil {
		return nil, err
	}
	if f != nil && f.text != nil {
		in.text = true
		t, err := f.text(r, o.Limit)
		if err != nil {
			return nil, err
		}
		return t.image(f.name)
	}
	if f == nil {
		return unknown(r, head, o.Limit)
	}
	data, err := readAll(r, size, o.Limit)
	if err != nil {
		return nil, err
	}
	return f.read(data)
}

// unknown names what no format knows: blank flash, or no image at all. It holds nothing of it.
func unknown(r io.Reader, head []byte, limit int64) (*Image, error) {
	fill, same := blank(head)
	total := int64(0)
	for chunk := make([]byte, headBytes); ; {
		n, err := r.Read(chunk)
		total += int64(n)
		if total > limit {
			return nil, errLimit{limit, "the file has"}
		}
		if f, ok := blank(chunk[:n]); n > 0 && (!ok || f != fill) {
			same = false
		}
		if err == io.EOF {
			break
		}
		if err != nil { // a wrapping that is cut off comes before what its bytes are
			return nil, err
		}
	}
	if !same {
		return nil, stranger(head)
	}
	img := &Image{Format: Blank, Payload: Span{0, total}, Whole: true, Check: Integrity{State: Absent, Why: fmt.Sprintf("every byte is %02x", fill)}}
	img.Note(fmt.Sprintf("blank: %d bytes of %02x, as an erased flash reads; there is no image in it", total, fill))
	return img, nil
}

// blank says whether all bytes are 00, or all ff.
func blank(data []byte) (fill byte, ok bool) {
	if len(data) == 0 || data[0] != 0 && data[0] != 0xff {
		return 0, false
	}
	return data[0], bytes.Equal(data[1:], data[:len(data)-1])
}

// readAll reads to the end into memory that grows with what was read.
func readAll(r io.Reader, size, limit int64) ([]byte, error) {
	var full [][]byte
	total := 0
	chunk := make([]byte, 0, max(4<<10, min(size+1, limit+1, maxHint)))
	for {
		n, err := r.Read(chunk[len(chunk):cap(chunk)])
		chunk = chunk[:len(chunk)+n]
		total += n
		if int64(total) > limit {
			return nil, errLimit{limit, "the file has"}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(chunk) == cap(chunk) {
			full = append(full, chunk)
			chunk = make([]byte, 0, min(2*cap(chunk), 1<<20))
		}
	}
	if full == nil {
		return chunk, nil
	}
	return slices.Concat(append(full, chunk)...), nil
}

// suffixes are what people call files of a format.
var suffixes = map[string][]Format{
	".bit":    {XilinxBit, LatticeECP5, LatticeNexus, GateMate, Efinix, EfinixBin},
	".bin":    {XilinxBin, ICE40, LatticeECP5, Efinix, EfinixBin, IntelRbf, Blank, PACSign},
	".rbt":    {XilinxRbt},
	".mcs":    {IntelHex},
	".ihex":   {IntelHex},
	".hex":    {IntelHex, HexDump, Efinix},
	".rbf":    {IntelRbf, IntelSDM},
	".rpd":    {IntelRpd},
	".sof":    {IntelSof},
	".pof":    {IntelPof},
	".jic":    {IntelJic},
	".gbs":    {OPAEGBS, PACSign},
	".xclbin": {Xclbin},
	".fs":     {GowinFS},
	".spl":    {SPL},
}

// clash notes a suffix that belongs to another format.
func clash(img *Image, name string) {
	for _, s := range []string{".gz", ".zst", ".gz"} {
		name = strings.TrimSuffix(name, s)
	}
	suffix := filepath.Ext(name)
	want, ok := suffixes[strings.ToLower(suffix)]
	if ok && img.Format != Unknown && !slices.Contains(want, img.Format) {
		img.Note(fmt.Sprintf("the content is %s, though the name ends in %s: the content counts", img.Format, suffix))
	}
}
