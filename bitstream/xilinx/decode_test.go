package xilinx

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func plainStream() []byte {
	return (&Encoder{IDCode: idcodeA200T, Runs: []Run{{0, slices.Concat(testRuns(40)[0].Words, testRuns(40)[4].Words)}}}).Append(nil)
}

func shortStream() []byte {
	return (&Encoder{IDCode: idcodeA200T, Runs: testRuns(12), Compress: true}).Append(nil)
}

func compressedStream() []byte {
	return (&Encoder{IDCode: idcodeA200T, UserAccess: 7, Runs: testRuns(200), Compress: true}).Append(nil)
}

// stream is words behind padding and a sync word.
func stream(words ...uint32) []byte {
	w := writer{}
	w.word(0xffffffff, 2)
	w.word(syncWord, 1)
	for _, v := range words {
		w.word(v, 1)
	}
	return w.b
}

// halves is words of 16 bits.
func halves(words ...uint16) (b []byte) {
	for _, w := range words {
		b = binary.BigEndian.AppendUint16(b, w)
	}
	return b
}

// spartan6 is a stream with one block of frames and its check, spartan3A one without.
func spartan6() []byte {
	b := halves(0xffff, 0xffff, 0xaa99, 0x5566, 0x30a1, 7, nop16)
	var crc uint32
	write := func(reg uint32, words ...uint16) {
		b = append(b, halves(uint16(0x3000|reg<<5|uint32(len(words))))...)
		b = append(b, halves(words...)...)
		for _, w := range words {
			crc = crc22(crc, reg, w)
		}
	}
	write(reg16IDCODE, 0x0400, 0x1093)
	write(reg16FAR, 0, 0)
	write(reg16CMD, CmdWCFG)
	frame := make([]uint16, 65)
	frame[64] = 0x1234
	b = append(b, halves(0x5060, 0, uint16(len(frame)))...)
	b = append(b, halves(frame...)...)
	for _, w := range frame {
		crc = crc22(crc, reg16FDRI, w)
	}
	b = binary.BigEndian.AppendUint32(b, crc)
	write(reg16MFWR6, 0, 0, 0, 0)
	write(reg16CMD, CmdStart)
	b = binary.BigEndian.AppendUint32(append(b, halves(0x3002)...), crc)
	return append(b, halves(0x30a1, CmdDesync, nop16, nop16)...)
}

func spartan3A() []byte {
	b := halves(0xffff, 0xffff, 0xaa99, 0x30a1, 7)
	var crc uint32
	for _, p := range [][]uint16{{reg16IDCODE, 0x0221, 0x8093}, {reg16FAR, 0, 0}, {reg16CMD, CmdWCFG}, {reg16FDRI, 1, 2, 3}, {reg16CMD, CmdStart}} {
		b = append(b, halves(0x3000|p[0]<<5|uint16(len(p)-1))...)
		b = append(b, halves(p[1:]...)...)
		for _, w := range p[1:] {
			crc = crc22(crc, uint32(p[0]), w)
		}
	}
	b = binary.BigEndian.AppendUint32(append(b, halves(0x3002)...), crc)
	return append(b, halves(0x30a1, CmdDesync, nop16, nop16)...)
}

// spartan3 has a check behind its frames without a packet.
func spartan3() []byte {
	b := stream(0x30008001, CmdRCRC, 0x30016001, 0x60, 0x3001c001, 0x01c22093, 0x30002001, 0, 0x30008001, CmdWCFG, 0x30004000, 0x50000003, 1, 2, 3)
	crc := uint32(0)
	for _, w := range [][2]uint32{{regFLR3, 0x60}, {regIDCODE3, 0x01c22093}, {regFAR, 0}, {regCMD, CmdWCFG}, {regFDRI, 1}, {regFDRI, 2}, {regFDRI, 3}} {
		crc = crcSlow(0xa001, crc, w[0], w[1])
	}
	b = binary.BigEndian.AppendUint32(b, crc)
	b = append(b, stream(0x30008001, CmdStart, 0x30000001, crcSlow(0xa001, 0, regCMD, CmdStart), 0x30008001, CmdDesync, nop32)[12:]...)
	return b
}

func TestFamilies(t *testing.T) {
	for _, k := range []struct {
		family  Family
		data    []byte
		idcodes string
		checks  int
		words   int
	}{
		{Words32, plainStream(), "03636093", 2, 202},
		{Spartan6, spartan6(), "04001093", 2, 65},
		{Spartan3A, spartan3A(), "02218093", 1, 3},
		{Spartan3, spartan3(), "01c22093", 2, 3},
	} {
		s, err := Decode(k.data)
		if err != nil {
			t.Errorf("%s: %v", k.family, err)
			continue
		}
		if s.Family != k.family || s.Fault() != "" || hexList(s.IDCodes) != k.idcodes || s.Good != k.checks || s.FrameWords != k.words ||
			!s.Started() || s.Partial() || s.End != len(k.data) {
			t.Errorf("%s: %+v, fault %q", k.family, s, s.Fault())
		}
	}
}

// Words count from the sync word, wherever a header puts it.
func TestOrders(t *testing.T) {
	for name, plain := range map[string][]byte{"32 bits": plainStream(), "spartan 6": spartan6(), "spartan 3A": spartan3A()} {
		want, err := Decode(plain)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []Order{AsIs, BitsReversed, WordsSwapped, HalvesSwapped} {
			if o == WordsSwapped && name != "32 bits" {
				continue // no tool makes one
			}
			for header := range 5 {
				data := bytes.Clone(plain)
				Undo(o, data)
				if o != AsIs && bytes.Equal(data, plain) {
					t.Fatalf("%s: nothing swapped", o)
				}
				data = append(bytes.Repeat([]byte{0x55}, header), data...)
				before := bytes.Clone(data)
				s, err := Decode(data)
				if err != nil {
					t.Errorf("%s, %s, %d bytes before: %v", name, o, header, err)
					continue
				}
				if !bytes.Equal(data, before) {
					t.Fatalf("%s: Decode changed its input", o)
				}
				if s.Order != o || s.Sync != want.Sync+header || s.Fault() != "" || s.Good != want.Good || hexList(s.IDCodes) != hexList(want.IDCodes) {
					t.Errorf("%s: order %s, want %s; sync %d, want %d; fault %q, %d checks", name, s.Order, o, s.Sync, want.Sync+header, s.Fault(), s.Good)
				}
			}
		}
	}
}

func TestDetectOrder(t *testing.T) {
	sync := []byte{0xaa, 0x99, 0x55, 0x66, 0x20, 0, 0, 0}
	pad := func(n int, after ...byte) []byte { return append(bytes.Repeat([]byte{0xff}, n), after...) }
	for _, k := range []struct {
		name   string
		data   []byte
		offset int // negative: none
	}{
		{"nothing", nil, -1},
		{"padding", pad(64), -1},
		{"at once", sync, 0},
		{"at the end of the window", pad(4096, sync...), 4096},
		{"behind the window", pad(4097, sync...), -1},
		{"no packet next", pad(4, 0xaa, 0x99, 0x55, 0x66, 0xff, 0xff, 0xff, 0xff), -1},
		{"cut off", pad(4, sync[:6]...), -1},
		{"the second, where no packet follows the first", append(pad(4, 0xaa, 0x99, 0x55, 0x66), sync...), 8},
		{"a text that ends where the sync word begins", append([]byte("a \x55\x99 and\xaa"), sync...), 9},
	} {
		off, _, ok := DetectOrder(k.data)
		if ok != (k.offset >= 0) || off != k.offset {
			t.Errorf("%s: %v at %d, want %d", k.name, ok, off, k.offset)
		}
		if s, err := Decode(k.data); !ok && (s != nil || err == nil || !strings.Contains(err.Error(), "no sync word")) {
			t.Errorf("%s: Decode says %v", k.name, err)
		}
	}
}

func TestTruncation(t *testing.T) {
	data := stream(nop32, 0x30018001, idcodeA200T, 0x30004000, 0x50000064, 1, 2, 3)
	_, err := Decode(data)
	want := "offset 28: the file ends at 44, inside packet 4, which writes FDRI and needs 388 bytes more"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	_, err = Decode(spartan6()[:60])
	if want := "writes FDRI and needs 106 bytes more"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}

	// A stream cut anywhere before its DESYNC is told from a whole one.
	for name, data := range map[string][]byte{"plain": plainStream(), "compressed": shortStream(), "spartan 6": spartan6(), "spartan 3A": spartan3A(), "spartan 3": spartan3()} {
		whole, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		nop, tail := binary.BigEndian.AppendUint32(nil, nop32), data
		if whole.Family == Spartan6 || whole.Family == Spartan3A {
			nop = nop[:2]
		}
		for bytes.HasSuffix(tail, nop) {
			tail = tail[:len(tail)-len(nop)]
		}
		for n := range tail {
			if s, err := Decode(tail[:n]); err == nil && s.Fault() == "" {
				t.Fatalf("%s: cut to %d of %d bytes it is said to be well", name, n, len(tail))
			}
		}
		if s, err := Decode(tail); err != nil || s.Fault() != "" {
			t.Errorf("%s: without the last no operations: %v, %q", name, err, s.Fault())
		}
	}
}

func TestFaults(t *testing.T) {
	const id = 0x30018001
	tail := []uint32{0x30008001, CmdDesync, nop32}
	for _, k := range []struct {
		name  string
		words []uint32
		want  string // in the fault or the error; none: well
	}{
		{"well", []uint32{nop32}, ""},
		{"bad check", []uint32{id, idcodeA200T, 0x30000001, 5}, "1 of 1 checks fail, first the one at offset 24: the file says 00000005, its words give "},
		{"no operation with a bit", []uint32{nop32, 0x20000100}, "1 irregular packets, first at offset 16: 20000100: no operation, but with other bits set"},
		{"reserved bit", []uint32{nop32, 0x30028001 | 1<<20, 0}, "reserved bits"},
		{"read", []uint32{nop32, 0x28018001}, "a register is read"},
		{"operation 3", []uint32{nop32, 0x38018001}, "operation without a meaning"},
		{"type 2 alone", []uint32{nop32, 0x50000001, 0}, "words for no register"},
		{"type 2 after a whole type 1", []uint32{id, idcodeA200T, 0x50000001, 0}, "words for no register"},
		{"two commands in a packet", []uint32{0x30008002, CmdStart, CmdNull}, "several words for a register of one"},
		{"two IDCODEs in a packet", []uint32{0x30018002, idcodeA200T, 0}, "several words for a register of one"},
		{"zero before frames", []uint32{nop32, 0}, "zero before any frame data"},
		{"command with high bits", []uint32{0x30008001, 0x40000005}, "no such command"},
		{"type 3", []uint32{nop32, 0x60000000}, "packet 2: 60000000 is not a packet"},
		{"type 0 with bits", []uint32{nop32, 1}, "packet 2: 00000001 is not a packet"},
		{"count to the moon", []uint32{nop32, 0x30004000, 0x57ffffff, 0}, "inside packet 3, which writes FDRI"},
		{"register without a name", []uint32{nop32, 0x3001e005, 0}, "inside packet 2, which writes register 15 and needs 4 bytes more"},
		{"nested image cut off", []uint32{nop32, 0x3003c000, 0x50000003, syncWord, 0x30008002, 0}, "the nested image ends at 36, inside packet 4, which writes CMD"},
		{"nested image without sync", []uint32{nop32, 0x3003c000, 0x50000003, nop32, nop32, nop32}, "a nested image has no sync word"},
	} {
		s, err := Decode(stream(slices.Concat(k.words, tail)...))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = s.Fault()
		}
		if got != k.want && (k.want == "" || !strings.Contains(got, k.want)) {
			t.Errorf("%s: %q, want %q", k.name, got, k.want)
		}
	}

	s, err := Decode(stream(nop32, id, idcodeA200T))
	if err != nil || !strings.Contains(s.Fault(), "ends at offset 24 after packet 2 without DESYNC") {
		t.Errorf("no DESYNC: %v, %q", err, s.Fault())
	}
	again := stream(slices.Concat([]uint32{nop32}, tail, []uint32{0xffffffff, 0x12345678, syncWord, nop32}, tail)...)
	if s, err = Decode(again); err != nil || s.End != len(again) || !strings.Contains(s.Fault(), "between DESYNC and the next sync word") {
		t.Errorf("damage before the second sync word: %v, %q", err, s.Fault())
	}
	ids := []uint32{nop32}
	for i := range uint32(20) {
		ids = append(ids, id, i<<12|0x93, id, 0x93)
	}
	if s, err = Decode(stream(slices.Concat(ids, tail)...)); err != nil || len(s.IDCodes) != 16 || s.Irregular != 4 {
		t.Errorf("20 IDCODEs: %v, %d kept, %d irregular", err, len(s.IDCodes), s.Irregular)
	}
}

// The same faults in packets of 16 bits, put in place of spartan6's first no operation.
func TestFaultsOfHalves(t *testing.T) {
	data := spartan6()
	at := bytes.Index(data, halves(nop16))
	for _, k := range []struct {
		name string
		word uint16
		want string
	}{
		{"well", nop16, ""},
		{"no operation with a bit", nop16 + 1, "no operation, but with other bits set"},
		{"read", 0x2800 | reg16IDCODE<<5, "a register is read"},
		{"operation 3", 0x3800, "operation without a meaning"},
		{"no words", 0x3000 | reg16CMD<<5, "a write of no words"},
		{"type 0", 0, "packet 2: 0000 is not a packet"},
		{"type 2 with a count of its own", 0x5061, "packet 2: 5061 is not a packet"},
		{"type 2 to the moon", 0x5000 | 63<<5, "inside packet 2, which writes register 63"},
	} {
		binary.BigEndian.PutUint16(data[at:], k.word)
		s, err := Decode(data)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = s.Fault()
		}
		if got != k.want && (k.want == "" || !strings.Contains(got, k.want)) {
			t.Errorf("%s: %q, want %q", k.name, got, k.want)
		}
	}

	// Behind the end: blank flash is left out, anything else is a fault. The address of a jump is in two registers.
	s, err := Decode(append(spartan6(), 0xff, 0xff, 0xff, 0xff))
	if err != nil || s.Fault() != "" || s.Trailing != 4 || !s.TrailingBlank {
		t.Errorf("blank tail: %v, %q, %d trailing", err, s.Fault(), s.Trailing)
	}
	if s, err = Decode(append(spartan6(), 1, 2, 3, 4)); err != nil || !strings.Contains(s.Fault(), "after DESYNC") {
		t.Errorf("something behind the end: %v, %q", err, s.Fault())
	}
	jump := halves(0xaa99, 0x5566, 0x3000|reg16GENERAL1<<5|1, 0x8000, 0x3000|reg16GENERAL2<<5|1, 0x0b12, 0x30a1, CmdDesync)
	if s, err = Decode(jump); err != nil || len(s.Jumps) != 1 || s.Jumps[0] != 0x128000 {
		t.Errorf("jump: %v, %x", err, s.Jumps)
	}
}

func TestTrailing(t *testing.T) {
	data := plainStream()
	for _, k := range []struct {
		name  string
		tail  []byte
		blank bool
		fault bool
	}{
		{"nothing", nil, false, false},
		{"blank flash", bytes.Repeat([]byte{0xff}, 9000), true, false},
		{"zeros", make([]byte, 9000), true, false},
		{"blank flash, then something", append(bytes.Repeat([]byte{0xff}, 9000), 1, 2, 3, 4), false, false},
		{"blank flash, then another image", append(bytes.Repeat([]byte{0xff}, 9000), data...), false, false},
		{"something", []byte{1, 2, 3, 4}, false, true},
	} {
		s, err := Decode(append(bytes.Clone(data), k.tail...))
		if err != nil || s.End != len(data) || s.Trailing != len(k.tail) || s.TrailingBlank != k.blank || (s.Fault() != "") != k.fault {
			t.Errorf("%s: %v, end %d of %d, %d trailing, blank %v, fault %q", k.name, err, s.End, len(data), s.Trailing, s.TrailingBlank, s.Fault())
		}
	}
}

// Parts of several dies: the outer stream carries the next die's image, which carries the next; after DESYNC comes another
// sync word.
func TestNestedImages(t *testing.T) {
	words := func(b []byte) (w []uint32) {
		for ; len(b) >= 4; b = b[4:] {
			w = append(w, binary.BigEndian.Uint32(b))
		}
		return w
	}
	image := func(idcode uint32, frames int, inner []uint32) []uint32 {
		e := Encoder{IDCode: idcode, Runs: testRuns(frames)}
		out := words(e.Append(nil))
		if inner == nil {
			return out
		}
		out = append(out, syncWord, 0x30008001, CmdShutdown, 0x30008001, CmdRCRC, 0x3003c000, 0x50000000|uint32(len(inner)))
		return append(append(out, inner...), 0x30008001, CmdDesync, nop32)
	}
	all := image(0x04b31093, 1, image(0x04b22093, 2, image(0x04b24093, 3, nil)))
	var data []byte
	for _, w := range all {
		data = binary.BigEndian.AppendUint32(data, w)
	}
	s, err := Decode(data)
	if err != nil || s.Fault() != "" || s.Dies != 3 || hexList(s.IDCodes) != "04b31093,04b22093,04b24093" || s.Good != 6 || s.End != len(data) {
		t.Errorf("%v, fault %q, %d dies, IDCODEs %s, %d checks, end %d of %d", err, s.Fault(), s.Dies, hexList(s.IDCodes), s.Good, s.End, len(data))
	}
	if want := []int{FrameWords, 2 * FrameWords, 3 * FrameWords}; !slices.Equal(s.DieWords, want) || s.FrameWords != 6*FrameWords {
		t.Errorf("%d words of frames, %v by die, want %v", s.FrameWords, s.DieWords, want)
	}

	// Damage in the innermost image is found, and said to be there.
	damaged := bytes.Clone(data)
	at := bytes.LastIndex(damaged, []byte{0x04, 0xb2, 0x40, 0x93})
	damaged[at+1] ^= 1
	if s, err = Decode(damaged); err != nil || s.Bad != 1 || s.FirstBad.Offset < at {
		t.Errorf("damaged at %d: %v, %d bad, first at %d", at, err, s.Bad, s.FirstBad.Offset)
	}

	// An image in an image in an image, without an end.
	deep := []uint32{syncWord, nop32}
	for range 2 * maxDepth {
		deep = append([]uint32{syncWord, 0x3003c000, 0x50000000 | uint32(len(deep))}, deep...)
	}
	if _, err := Decode(stream(append([]uint32{nop32}, deep[1:]...)...)); err == nil || !strings.Contains(err.Error(), "nested more than 8 deep") {
		t.Errorf("nested too deep: %v", err)
	}
}

// Debug images write frames one by one, note the address in LOUT, and fill up with words of 0 that the check counts.
func TestDebugImage(t *testing.T) {
	crc := uint32(0)
	for _, w := range [][2]uint32{{regIDCODE, idcodeA200T}, {regFAR, 0}, {regFDRI, 5}, {regFDRI, 0}, {regFDRI, 0}, {regCMD, CmdStart}} {
		crc = crcSlow(0x82f63b78, crc, w[0], w[1])
	}
	s, err := Decode(stream(0x30018001, idcodeA200T, 0x30002001, 0, 0x30004001, 5, 0x30010001, 0, 0, 0, 0x30008001, CmdStart, 0x30000001, crc, 0x30008001, CmdDesync))
	if err != nil || s.Fault() != "" || s.Good != 1 || s.Debug != 1 || s.FrameWords != 3 {
		t.Errorf("%v, fault %q, %d checks, debug %d, %d words of frames", err, s.Fault(), s.Good, s.Debug, s.FrameWords)
	}
}

func TestEncrypted(t *testing.T) {
	for name, words := range map[string][]uint32{
		"initial vector": {0x30018001, idcodeA200T, 0x30016004, 1, 2, 3, 4, 0x30034001, 3, 0xdeadbeef, 0xffffffff, 0x12345678, 0x30008001, CmdDesync, nop32},
		"control bit":    {0x30018001, idcodeA200T, 0x3000c001, 0x40, 0x3000a001, 0x40, 0xdeadbeef, 0x12345678},
	} {
		s, err := Decode(stream(words...))
		if err != nil || !s.Encrypted || s.Bad != 0 || s.Fault() != "" || s.Partial() {
			t.Errorf("%s: %v, encrypted %v, %d bad, fault %q, partial %v", name, err, s.Encrypted, s.Bad, s.Fault(), s.Partial())
		}
	}
	s, err := Decode(stream(0x30018001, idcodeA200T, 0x3000c001, 0x01, 0x3000a001, 0x40, 0x30008001, CmdDesync, nop32))
	if err != nil || s.Encrypted {
		t.Errorf("the control bit is masked: %v, encrypted %v", err, s.Encrypted)
	}
}

func TestJumps(t *testing.T) {
	s, err := Decode((&Encoder{IDCode: idcodeA200T, WBSTAR: 0x1000000, Runs: testRuns(1)}).Append(nil))
	if err != nil || len(s.Jumps) != 1 || s.Jumps[0] != 0x1000000 {
		t.Errorf("%v, jumps to %x", err, s.Jumps)
	}
	if len(s.Reloads) != 0 {
		t.Errorf("goes to %x by itself, without IPROG", s.Reloads)
	}
	for _, to := range []uint32{0, 0x1000000} {
		if s, err = Decode((&Encoder{IDCode: idcodeA200T, WBSTAR: to, IPROG: true, Runs: testRuns(1)}).Append(nil)); err != nil || s.Fault() != "" || !slices.Equal(s.Reloads, []uint32{to}) {
			t.Errorf("%v, goes to %x by itself, want %x", err, s.Reloads, to)
		}
	}
	reboot := halves(0xaa99, 0x5566, 0x3000|reg16GENERAL1<<5|1, 0x8000, 0x3000|reg16GENERAL2<<5|1, 0x0b12, 0x30a1, CmdREBOOT, 0x30a1, CmdDesync)
	if s, err = Decode(reboot); err != nil || !slices.Equal(s.Reloads, []uint32{0x128000}) {
		t.Errorf("%v, goes to %x by itself", err, s.Reloads)
	}
	many := []uint32{}
	for range 100 {
		many = append(many, 0x30020001, 5, 0x30008001, CmdIPROG)
	}
	if s, err = Decode(stream(append(many, 0x30008001, CmdDesync, nop32)...)); err != nil || len(s.Reloads) != maxIDs || len(s.Jumps) != maxIDs {
		t.Errorf("%v, %d and %d", err, len(s.Reloads), len(s.Jumps))
	}
}

// A single bit that flips is nearly always seen, by the check or because no tool writes such a packet. What is left are
// bits before the sync word, which mean nothing, and ones that no check covers.
func flips(t *testing.T, data []byte, from, samples int, least float64) {
	t.Helper()
	r := rand.New(rand.NewPCG(11, uint64(len(data))))
	data = bytes.Clone(data)
	seen := 0
	for range samples {
		bit := r.IntN(8 * (len(data) - from))
		at := from + bit/8
		data[at] ^= 1 << (bit % 8)
		s, err := Decode(data)
		if err != nil || s.Fault() != "" {
			seen++
		}
		data[at] ^= 1 << (bit % 8)
	}
	share := float64(seen) / float64(samples)
	t.Logf("%d of %d flips seen, %.2f %%", seen, samples, 100*share)
	if share < least {
		t.Errorf("%.2f %% of flips seen, want %.0f %%", 100*share, 100*least)
	}
}

func TestBitFlips(t *testing.T) {
	plain := (&Encoder{IDCode: idcodeA200T, Runs: []Run{{0, make([]uint32, 60*FrameWords)}}}).Append(nil)
	t.Run("plain", func(t *testing.T) { flips(t, plain, 0, 3000, 0.99) })
	t.Run("compressed", func(t *testing.T) { flips(t, compressedStream(), 0, 3000, 0.97) })
	for _, p := range packagedImages(t) {
		least := 0.99
		switch filepath.Base(p.path) {
		case "spiOverJtag_xc7a35tcpg236.bit.gz", "spiOverJtag_xc7s25csga225.bit.gz", "spiOverJtag_xc7a50tcsg324.bit.gz":
			least = 0.97
		case "spiOverJtag_xc6slx9tqg144.bit.gz", "spiOverJtag_xc3s500evq100.bit.gz":
		default:
			continue
		}
		t.Run(filepath.Base(p.path), func(t *testing.T) {
			data := p.read(t)
			s, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			flips(t, data, s.Sync, 300, least)
		})
	}
}

func TestDecodeAllocations(t *testing.T) {
	data := compressedStream()
	if n := testing.AllocsPerRun(5, func() { Decode(data) }); n > 5 {
		t.Errorf("%.0f allocations for a stream of %d bytes", n, len(data))
	}
}

func BenchmarkDecode(b *testing.B) {
	const frames = 16 << 20 / (4 * FrameWords)
	runs := testRuns(frames)
	all := make([]uint32, 0, frames*FrameWords)
	for _, r := range runs {
		all = append(all, r.Words...)
	}
	perFrame := &Encoder{IDCode: idcodeA200T, Runs: runs}
	oneBlock := &Encoder{IDCode: idcodeA200T, Runs: []Run{{0, all}}}
	for name, e := range map[string]*Encoder{"block": oneBlock, "frames": perFrame} {
		data := e.Append(nil)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if s, err := Decode(data); err != nil || s.Good != 2 {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLogic(b *testing.B) {
	data := (&Encoder{IDCode: idcodeA200T, Runs: testRuns(4096)}).Append(nil)
	l := NewLogic(siliconA200T)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		for p := data; len(p) >= 4; p = p[4:] {
			l.Write(binary.BigEndian.Uint32(p))
		}
		if !l.Up() {
			b.Fatal(l.Refused())
		}
	}
}
