package bitstream

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// consistent checks what holds for every Image that Read returns, whatever the file was.
func consistent(t *testing.T, data []byte, img *Image, limit int64) {
	t.Helper()
	switch img.Check.State {
	case Valid:
		if img.Check.Checks < 1 || img.Check.Why != "" {
			t.Fatalf("valid by %d checks: %q", img.Check.Checks, img.Check.Why)
		}
	case Invalid, Absent, NotCheckable:
		if img.Check.Why == "" {
			t.Fatalf("%s without a reason", img.Check.State)
		}
	default:
		t.Fatalf("integrity %q", img.Check.State)
	}
	if img.SHA256 != sum(data) || img.Format == "" || img.IDCodes == nil {
		t.Fatalf("got %+v", img)
	}
	if len(img.Wrapping) == 0 && img.FileSize != int64(len(data)) {
		t.Fatalf("%d bytes of %d", img.FileSize, len(data))
	}
	total, end := int64(0), int64(-1)
	for _, s := range img.Segments {
		if int64(s.Address) <= end && end >= 0 || len(s.Data) == 0 {
			t.Fatalf("a segment of %d bytes at %#x, the one before ends at %#x", len(s.Data), s.Address, end)
		}
		end = int64(s.Address) + int64(len(s.Data))
		total += int64(len(s.Data))
	}
	if total > limit {
		t.Fatalf("%d bytes, the limit is %d", total, limit)
	}
	var b strings.Builder
	if err := (Report{"x", img}).Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Fatalf("the report has a control character: %q", line)
		}
	}
	Fit(img, Target{IDCode: 0x13636093, Part: "XC7A200T", SlotOffset: 1 << 24, SlotBytes: 1 << 24})
}

const fuzzLimit = 1 << 20

func fuzzRead(t *testing.T, data []byte) *Image {
	img, err := Read(bytes.NewReader(data), Options{Name: "x.bit", Size: int64(len(data)), Limit: fuzzLimit})
	if err != nil {
		if strings.ContainsAny(err.Error(), "\n\x1b\x00") {
			t.Fatalf("the error has a control character: %q", err)
		}
		return nil
	}
	consistent(t, data, img, fuzzLimit)
	return img
}

// FuzzRead reads anything.
func FuzzRead(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { fuzzRead(t, data) })
}

// FuzzBit reads headers: what is accepted has fields that lie in the file.
func FuzzBit(f *testing.F) {
	f.Fuzz(func(t *testing.T, rest []byte) {
		data := append(slices.Clone(bitMagic), rest...)
		img := fuzzRead(t, slices.Clone(data))
		if img == nil || img.Format != XilinxBit {
			return
		}
		h, err := parseBit(data)
		if err != nil || h.start+h.bytes > len(data) || int64(h.start) != img.Payload.Offset || int64(h.bytes) != img.Payload.Bytes || len(img.Segments) != 1 || len(img.Segments[0].Data) != h.bytes {
			t.Fatalf("%v, %+v, %+v", err, h, img.Payload)
		}
	})
}

// slowHex is Intel HEX read the plain way, a byte at a time: what readHex must agree with. The text is one that
// readHex has accepted.
func slowHex(text string) (mem map[uint32]byte) {
	mem = map[uint32]byte{}
	base, segmented := uint32(0), false
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimFunc(line, func(r rune) bool { return r <= ' ' })
		if line == "" {
			continue
		}
		var b []byte
		for i := 1; i+1 < len(line); i += 2 {
			b = append(b, nibble[line[i]]<<4|nibble[line[i+1]])
		}
		data := b[4 : len(b)-1]
		switch b[3] {
		case 0:
			for i, c := range data {
				offset := uint32(b[1])<<8 + uint32(b[2]) + uint32(i)
				if segmented {
					offset &= 0xffff
				}
				mem[base+offset] = c
			}
		case 1:
			return mem
		case 2:
			base, segmented = (uint32(data[0])<<8|uint32(data[1]))<<4, true
		case 4:
			base, segmented = (uint32(data[0])<<8|uint32(data[1]))<<16, false
		}
	}
	return mem
}

// FuzzHex reads records, and compares with a reader that is too simple to be wrong.
func FuzzHex(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		fuzzRead(t, []byte(text))
		d, err := readHex(strings.NewReader(text), fuzzLimit)
		if err != nil {
			return
		}
		mem, n := slowHex(text), 0
		for _, s := range d.segments {
			for i, c := range s.Data {
				if want, ok := mem[s.Address+uint32(i)]; !ok || want != c {
					t.Fatalf("address %#x: got %02x, wanted %02x (given: %v)", s.Address+uint32(i), c, want, ok)
				}
			}
			n += len(s.Data)
		}
		if n != len(mem) {
			t.Fatalf("got %d bytes, wanted %d", n, len(mem))
		}
	})
}

// FuzzRbt reads words as text: what is accepted gives itself when it is written again.
func FuzzRbt(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzRead(t, data)
		d, err := readRbt(bytes.NewReader(data), fuzzLimit)
		if err != nil {
			return
		}
		if len(d.segments) != 1 || d.segments[0].Address != 0 || len(d.segments[0].Data) == 0 {
			t.Fatalf("%d segments", len(d.segments))
		}
		digits := 0
		for _, c := range data {
			if c == '0' || c == '1' {
				digits++
			}
		}
		if n := len(d.segments[0].Data); n > digits/8 {
			t.Fatalf("%d bytes from %d digits", n, digits)
		}
	})
}

// FuzzDump reads bytes as text.
func FuzzDump(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzRead(t, data)
		d, err := readHexDump(bytes.NewReader(data), fuzzLimit)
		if err != nil {
			return
		}
		n := 0
		for _, s := range d.segments {
			n += len(s.Data)
		}
		if 2*n > len(data) || len(d.segments) > 1 {
			t.Fatalf("%d bytes in %d segments from %d", n, len(d.segments), len(data))
		}
	})
}

// FuzzEfinix reads a byte a line.
func FuzzEfinix(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzRead(t, data)
		sane(t, data, readEfinix)
		d, err := readEfinixHex(bytes.NewReader(data), fuzzLimit)
		if err == nil && len(d.segments) > 0 && 2*len(d.segments[0].Data) > len(data) {
			t.Fatalf("%d bytes from %d", len(d.segments[0].Data), len(data))
		}
	})
}
