package xilinx

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

const (
	idcodeA200T  = 0x03636093 // as files have it
	siliconA200T = 0x13636093
)

// loaded is what the configuration logic makes of a stream.
type loaded struct {
	*Logic
	frames map[uint32][]uint32 // by frame address
	order  []uint32            // frame addresses, as they came first
}

func load(stream []byte, idcode uint32) *loaded {
	l := &loaded{Logic: NewLogic(idcode), frames: make(map[uint32][]uint32)}
	l.Data = func(far uint32, n int, word uint32) {
		if !slices.Contains(l.order, far) {
			l.order = append(l.order, far)
		}
		l.frames[far] = append(l.frames[far][:n], word)
	}
	for ; len(stream) >= 4; stream = stream[4:] {
		l.Write(binary.BigEndian.Uint32(stream))
	}
	return l
}

func (l *loaded) runs() (runs []Run) {
	for _, far := range l.order {
		runs = append(runs, Run{far, l.frames[far]})
	}
	return runs
}

// A tool lost the last word of a stream (case E11). Only bit 0 of the last word of the last frame is set here: a word too
// few or one misplaced shows.
func TestCaseE11LastWordIsKept(t *testing.T) {
	blank := make([]uint32, FrameWords)
	last := make([]uint32, FrameWords)
	last[FrameWords-1] = 1
	both := slices.Concat(blank, last)

	for _, k := range []struct {
		name    string
		runs    []Run
		words   int
		partial bool
	}{
		{"two frames", []Run{{0, both}}, 202, false},
		{"two frames, each at its address", []Run{{0, blank}, {1, last}}, 202, false},
		{"the last frame alone", []Run{{1, last}}, 101, true},
	} {
		for _, compress := range []bool{false, true} {
			e := Encoder{IDCode: idcodeA200T, UserAccess: 0xe11, Runs: k.runs, Compress: compress}
			stream := e.Append(nil)

			s, err := Decode(stream)
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			if f := s.Fault(); f != "" {
				t.Errorf("%s: %s", k.name, f)
			}
			if s.FrameWords != k.words || s.Good != 2 || s.Partial() != k.partial || s.End != len(stream) || hexList(s.IDCodes) != "03636093" {
				t.Errorf("%s: %d words of frames, want %d; %d checks, want 2; partial %v, want %v; end %d, want %d; IDCODEs %x",
					k.name, s.FrameWords, k.words, s.Good, s.Partial(), k.partial, s.End, len(stream), s.IDCodes)
			}
			if s.UserAccess == nil || *s.UserAccess != 0xe11 {
				t.Errorf("%s: no user access word e11", k.name)
			}

			l := load(stream, siliconA200T)
			if !l.Up() || l.Checks != 2 || l.UserAccess != 0xe11 {
				t.Errorf("%s: up %v, refused %v, %d checks, user access %x", k.name, l.Up(), l.Refused(), l.Checks, l.UserAccess)
			}
			got := l.runs()
			if !slices.EqualFunc(got, k.runs, func(a, b Run) bool { return a.FAR == b.FAR && slices.Equal(a.Words, b.Words) }) {
				t.Errorf("%s: loaded %v", k.name, got)
			}
			end := got[len(got)-1].Words
			if set := end[len(end)-1]; set != 1 {
				t.Errorf("%s: the last word is %08x, want 1", k.name, set)
			}
			e.Runs = got
			if again := e.Append(nil); !bytes.Equal(again, stream) {
				t.Errorf("%s: encoded again it differs", k.name)
			}
		}
	}
}

func TestCompressedImageLoadsTheSameFrames(t *testing.T) {
	runs := testRuns(60)
	plain := Encoder{IDCode: idcodeA200T, Runs: runs}
	small := Encoder{IDCode: idcodeA200T, Runs: runs, Compress: true}
	a, b := plain.Append(nil), small.Append(nil)
	if len(b) > len(a)/2 {
		t.Errorf("compressed %d bytes of %d", len(b), len(a))
	}
	s, err := Decode(b)
	if err != nil || s.Fault() != "" || !s.Compressed() || s.Repeats == 0 {
		t.Fatalf("error %v, fault %q, compressed %v", err, s.Fault(), s.Compressed())
	}
	la, lb := load(a, siliconA200T), load(b, siliconA200T)
	if !la.Up() || !lb.Up() {
		t.Fatalf("refused %v and %v", la.Refused(), lb.Refused())
	}
	if len(la.frames) != len(runs) || !maps.EqualFunc(la.frames, lb.frames, slices.Equal) {
		t.Errorf("%d frames plain, %d compressed, or they differ; want %d", len(la.frames), len(lb.frames), len(runs))
	}
	small.Runs = lb.runs()
	if !bytes.Equal(small.Append(nil), b) {
		t.Error("encoded again it differs")
	}
}

// testRuns are frames, one run each, one in four with content of its own.
func testRuns(n int) []Run {
	runs := make([]Run, n)
	for i := range runs {
		runs[i] = Run{uint32(i), make([]uint32, FrameWords)}
		if i%4 == 0 {
			for j := range runs[i].Words {
				runs[i].Words[j] = uint32(i*FrameWords+j) * 0x9e3779b1
			}
		}
	}
	return runs
}

func TestBitHeader(t *testing.T) {
	got, err := BitHeader{"lb0;UserID=0XFFFFFFFF", "7a200tfbg484", "2026/01/02", "03:04:05"}.Append(nil, 0x1234)
	want := "\x00\x09\x0f\xf0\x0f\xf0\x0f\xf0\x0f\xf0\x00\x00\x01" +
		"a\x00\x16lb0;UserID=0XFFFFFFFF\x00b\x00\x0d7a200tfbg484\x00c\x00\x0b2026/01/02\x00d\x00\x0903:04:05\x00e\x00\x00\x12\x34"
	if err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := (BitHeader{Design: "a\x00b"}).Append(nil, 1); err == nil {
		t.Error("a field with a 0 in it was taken")
	}
	if _, err := (BitHeader{Design: string(bytes.Repeat([]byte{'a'}, 1<<16))}).Append(nil, 1); err == nil {
		t.Error("a field longer than its length says was taken")
	}
}

// Whatever frames go in come out, compressed or not, and the two ways of looking at the stream agree on them.
func TestEncodeLoadDecode(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for range 60 {
		var runs []Run
		want := make(map[uint32][]uint32)
		for far := range uint32(r.IntN(12)) {
			words := make([]uint32, FrameWords*(1+r.IntN(2)))
			words[r.IntN(len(words))] = r.Uint32N(3) // often equal to another's
			runs = append(runs, Run{far * 0x80, words})
			want[far*0x80] = words
		}
		e := Encoder{IDCode: idcodeA200T, UserAccess: r.Uint32N(2) * r.Uint32(), WBSTAR: r.Uint32N(2) << 24, Runs: runs, Compress: r.IntN(2) == 1}
		prefix := []byte("kept")[:r.IntN(5)]
		data := e.Append(bytes.Clone(prefix))
		if !bytes.HasPrefix(data, prefix) {
			t.Fatal("Append lost what was there")
		}
		data = data[len(prefix):]
		s, err := Decode(data)
		if err != nil || s.Fault() != "" || s.Good != 2 || s.Trailing != 0 {
			t.Fatalf("%v, fault %q, %d checks, %d bytes trailing", err, s.Fault(), s.Good, s.Trailing)
		}
		l := load(data, siliconA200T)
		if !l.Up() || l.Checks != 2 || !maps.EqualFunc(l.frames, want, slices.Equal) {
			t.Fatalf("up %v, refused %v, %d frames, want %d", l.Up(), l.Refused(), len(l.frames), len(want))
		}
		if l.UserAccess != e.UserAccess || l.WBSTAR != e.WBSTAR || (s.UserAccess != nil) != (e.UserAccess != 0) || (len(s.Jumps) == 1) != (e.WBSTAR != 0) {
			t.Fatalf("user access %x, WBSTAR %x, want %x and %x", l.UserAccess, l.WBSTAR, e.UserAccess, e.WBSTAR)
		}
		given := 0
		l.Data = func(uint32, int, uint32) { given++ }
		for p := data; len(p) >= 4; p = p[4:] {
			l.Write(binary.BigEndian.Uint32(p))
		}
		if loaded := s.FrameWords + s.Repeats*FrameWords; given != loaded {
			t.Fatalf("%d words loaded, Decode counts %d", given, loaded)
		}
	}
}
