package bitstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var ecp5Facts = []facts{
	{"ecp5_12k_idcode.bit", 582369, "7c02addd4e900bf12971d21382fd2455bb676b2706b1a192293330082ad644f2", LatticeECP5, "", "LFE5U-25F-6CABGA256", "21111043", false, "valid 7563", ""},
	{"ecp5_25k.bit", 582369, "96a80965f889fc39e3b536304f8a4327d77a4a2cfc4ce64620a40e7ddb637e57", LatticeECP5, "", "LFE5U-25F-6CABGA256", "41111043", false, "valid 7563", ""},
	{"ecp5_25k_background.bit", 582369, "d5f0511c0def009a18d121860a05d1bb61fd3931892a200f4aaf65a0ca76a460", LatticeECP5, "", "LFE5U-25F-6CABGA256", "41111043", false, "valid 7563", ""},
	{"ecp5_25k_bootaddr.bit", 582369, "8da1a488e09bca06cf36768afa02a352512e3e803af307b2590bbb68729cc729", LatticeECP5, "", "LFE5U-25F-6CABGA256", "41111043", false, "valid 7563", ""},
	{"ecp5_25k_compress.bit", 99240, "43b30ebe17999d9f6417fb538f1fd35325f7cd4a92bcfdb5edd5a52f30a99cfe", LatticeECP5, "", "LFE5U-25F-6CABGA256", "41111043", true, "valid 7563", ""},
	{"ecp5_25k_compress_usercode_qspi.bit", 99244, "83528ae9f73a22313662f0e9c535147fae4fa8c8a9cceae1c32c80fbe2790a78", LatticeECP5, "", "LFE5U-25F-6CABGA256", "41111043", true, "valid 7563", ""},
	{"ecp5_25k_dualspi.bit", 582373, "e95ce03be7fe43faa5c50d4f54c28882bc9ef23a97a5bdea0bbd077521dc0769", LatticeECP5, "", "LFE5U-25F-6CABGA256", "41111043", false, "valid 7563", ""},
	{"ecp5_25k_fastread.bit", 582373, "8df37c69142ec9203ffb01ab19d9462cc96ddf512a5bdcaff9a4b0796f175675", LatticeECP5, "", "LFE5U-25F-6CABGA256", "41111043", false, "valid 7563", ""},
	{"ecp5_25k_usercode.bit", 582369, "a79785f1191ce4e3b5e5900d388f7a6f37ab240f564df1a8263dca530696887d", LatticeECP5, "", "LFE5U-25F-6CABGA256", "41111043", false, "valid 7563", ""},
	{"ecp5_45k.bit", 1032325, "46a6edeb49f0bab86ef8912dd12430e92728e1e94d30ddb287ab017a8faab49f", LatticeECP5, "", "LFE5U-45F-6CABGA256", "41112043", false, "valid 9471", ""},
	{"ecp5_45k_compress.bit", 162106, "b8d5394825284ec8efe8088133fad06f92695606b7586f91f0f0346e36b78f82", LatticeECP5, "", "LFE5U-45F-6CABGA256", "41112043", true, "valid 9471", ""},
	{"ecp5_um5g-85k.bit", 1927728, "f9441f903e36b8343bba9dcd3f773512ba9edf7547441d37718b70acc786abb7", LatticeECP5, "", "LFE5UM5G-85F-8CABGA381", "81113043", false, "valid 13295", ""},
	{"ecp5_um5g-85k_compress.bit", 280491, "1a2409b7bb35c52859498c5f588f62d2672cd62b471f924074dbe9a5a95de4c4", LatticeECP5, "", "LFE5UM5G-85F-8CABGA381", "81113043", true, "valid 13295", ""},
	{"ecp5_25k_multi.bin", 2679777, "5bc1bb7ed5eb7fc21964fd746d9f698ae54a0d0e78354e79c6a6ffc8ee7f895a", LatticeECP5, "multiboot", "LFE5U-25F-6CABGA256", "41111043,41111043", false, "valid 15126", "0x100,0x200100"},
}

func TestECP5Facts(t *testing.T) {
	for _, f := range ecp5Facts {
		t.Run(f.file, func(t *testing.T) {
			data := made(t, f.file)
			if !isLattice(data[:4096]) {
				t.Fatal("not recognised")
			}
			img, err := readLattice(data)
			if err != nil {
				t.Fatal(err)
			}
			f.meet(t, data, img)
			code := uint32(0)
			if strings.Contains(f.file, "usercode") {
				code = 0xc0ffee01
			}
			if img.UserCode == nil || *img.UserCode != code {
				t.Errorf("user code %v, want %08x", img.UserCode, code)
			}
			mode := ""
			for _, x := range img.Fields {
				if x.Name == "spi mode" {
					mode = x.Value
				}
			}
			want := ""
			for in, m := range map[string]string{"qspi": "quad", "dualspi": "dual", "fastread": "fast read"} {
				if strings.Contains(f.file, in) {
					want = m
				}
			}
			if mode != want {
				t.Errorf("spi mode %q, want %q", mode, want)
			}
			if len(img.Segments) != 1 {
				t.Fatalf("%d segments", len(img.Segments))
			}
			if s := img.Segments[0].Data; f.variant == "" && (!bytes.HasPrefix(s, []byte{0xff, 0xff, 0xbd, 0xb3}) || !bytes.HasSuffix(data, s)) {
				t.Error("the segment is not the file from the preamble on")
			} else if f.variant != "" && len(s) != len(data) {
				t.Errorf("a file with several images is written whole; the segment has %d bytes", len(s))
			}
			if clash := f.file == "ecp5_12k_idcode.bit"; clash != (len(img.Notes) > 0) || clash && !strings.Contains(img.Notes[0], "LFE5U-12F") {
				t.Errorf("notes: %q", img.Notes)
			}
		})
	}
}

// latticeFile encodes files of the family, so that every path has a file that takes it.
type latticeFile struct {
	bytes.Buffer
	crc uint16
}

func (f *latticeFile) put(p ...byte) {
	for _, b := range p { // by bits: the reader has a table
		for i := range 8 {
			top := f.crc>>15 != 0
			f.crc <<= 1
			if top != (b>>(7-i)&1 != 0) {
				f.crc ^= 0x8005
			}
		}
	}
	f.Write(p)
}

func (f *latticeFile) check() {
	f.Write(binary.BigEndian.AppendUint16(nil, f.crc))
	f.crc = 0
}

func (f *latticeFile) begin(text string, id uint32) {
	if text != "" {
		f.WriteString("\xff\x00" + text + "\x00\xff")
	}
	f.WriteString("\xff\xff\xbd\xb3\xff\xff\xff\xff")
	f.put(0x3b, 0, 0, 0)
	f.crc = 0
	f.put(0xe2, 0, 0, 0)
	f.put(binary.BigEndian.AppendUint32(nil, id)...)
}

// frames are plain, and different.
func (f *latticeFile) frames(count, length int) {
	f.put(0x82, 0x91, byte(count>>8), byte(count))
	for i := range count {
		p := make([]byte, length)
		p[i%length] = byte(i*7 + 1)
		f.put(p...)
		f.check()
		f.put(0xff)
	}
}

// packed are compressed frames in which all four kinds of code appear.
func (f *latticeFile) packed(count, length int) {
	f.put(0x02, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88)
	f.put(0xb8, 0x91, byte(count>>8), byte(count))
	for i := range count {
		var codes strings.Builder
		for n := range (length + 7) / 8 * 8 {
			switch (n + i) % 7 {
			case 0:
				fmt.Fprintf(&codes, "100%03b", n%8)
			case 1:
				fmt.Fprintf(&codes, "101%03b", i%8)
			case 2:
				fmt.Fprintf(&codes, "11%08b", byte(n*i|3))
			default:
				codes.WriteByte('0')
			}
		}
		s := codes.String()
		s += strings.Repeat("0", (8-len(s)%8)%8)
		for ; s != ""; s = s[8:] {
			var b byte
			fmt.Sscanf(s[:8], "%b", &b)
			f.put(b)
		}
		f.check()
		f.put(0xff)
	}
}

func (f *latticeFile) end() []byte {
	f.put(0xc2, 0x80, 0, 0, 1, 2, 3, 4)
	f.check()
	f.put(0x5e, 0, 0, 0)
	f.WriteString("\xff\xff\xff\xff")
	return f.Bytes()
}

func mustLattice(t *testing.T, data []byte) *Image {
	t.Helper()
	if !isLattice(data) {
		t.Fatal("not recognised")
	}
	img, err := readLattice(data)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// What is read of files in which the header's text and the embedded IDCODE agree or differ. Whether the file fits a
// device is for Fit.
func TestCaseE03Reader(t *testing.T) {
	for _, text := range []string{"LFE5U-45F", "LFE5U-85F"} {
		for id, name := range map[uint32]string{0x41112043: "LFE5U-45F", 0x41113043: "LFE5U-85F"} {
			var f latticeFile
			f.begin("Part: "+text+"-6CABGA381", id)
			d := latticeDevices[id]
			f.frames(d.frames, d.bytes)
			img := mustLattice(t, f.end())
			if img.Part != text+"-6CABGA381" || len(img.IDCodes) != 1 || img.IDCodes[0].Value != id || img.IDCodes[0].Names[0] != name {
				t.Errorf("%s, %08x: part %q, idcodes %v", text, id, img.Part, img.IDCodes)
			}
			if img.Check.State != Valid || img.Check.Checks != d.frames+1 {
				t.Errorf("%s, %08x: %+v", text, id, img.Check)
			}
			if differ := text != name; differ != (len(img.Notes) == 1) {
				t.Errorf("%s, %08x: notes %q", text, id, img.Notes)
			}
		}
	}
}

// A real file whose text says one part and whose bits say another: the bits decide, version and all.
func TestCaseE03Made(t *testing.T) {
	for _, c := range []struct {
		file    string
		device  uint32
		refused bool
		warned  bool
	}{
		{"ecp5_25k.bit", 0x41111043, false, false},
		{"ecp5_25k.bit", 0x21111043, true, true},
		{"ecp5_12k_idcode.bit", 0x21111043, false, true},
		{"ecp5_12k_idcode.bit", 0x41111043, true, true},
		{"ecp5_45k.bit", 0x41113043, true, true},
	} {
		img := read(t, made(t, c.file), Options{})
		found := Fit(img, Target{IDCode: c.device, SlotBytes: 1 << 24})
		if refused := slices.Equal(rules(found, Refuse), []string{"idcode"}); refused != c.refused || len(rules(found, Refuse)) > 1 || (len(rules(found, Warn)) > 0) != c.warned {
			t.Errorf("%s on %08x: %+v", c.file, c.device, found)
		}
	}
}

func TestCaseE07(t *testing.T) {
	var f latticeFile
	f.begin("Part: LFE5U-25F-6CABGA256", 0x41111043)
	f.packed(7562, 74)
	data := f.end()
	img := mustLattice(t, data)
	if !img.Packed || img.Check.State != Valid || img.Check.Checks != 7563 || !img.Whole || img.IDCodes[0].Value != 0x41111043 {
		t.Errorf("packed %v, whole %v, %+v, %v", img.Packed, img.Whole, img.Check, img.IDCodes)
	}
	// Of an unknown device nothing is called corrupt.
	f = latticeFile{}
	f.begin("", 0x41999043)
	f.packed(3, 74)
	img = mustLattice(t, f.end())
	if img.Check.State != NotCheckable || !strings.Contains(img.Check.Why, "not known") || !img.Packed || img.IDCodes[0].Value != 0x41999043 {
		t.Errorf("%+v", img)
	}
	// A dictionary is missing.
	at := bytes.Index(data, []byte{0x02, 0, 0, 0, 0x11})
	img = mustLattice(t, append(bytes.Clone(data[:at]), data[at+12:]...))
	if img.Check.State != Invalid || !strings.Contains(img.Check.Why, "dictionary") {
		t.Errorf("%+v", img.Check)
	}
}

func TestLatticeKinds(t *testing.T) {
	var plain latticeFile
	plain.begin("", 0x41111043)
	plain.frames(7562, 74)
	whole := plain.end()
	for _, row := range []struct {
		name   string
		data   func() []byte
		state  State
		checks int
		why    string // is in Why
		also   func(*Image) bool
	}{
		{"raw, behind ff", func() []byte { return append(bytes.Repeat([]byte{0xff}, 300), whole...) }, Valid, 7563, "",
			func(i *Image) bool { return i.Variant == "flash" && i.Payload.Offset == 300 && i.Whole }},
		{"cut in a frame", func() []byte { return whole[:100000] }, Invalid, 1298, "the file ends at byte 100000, in frame 1298 of 7562",
			func(i *Image) bool { return !i.Whole }},
		{"cut before the end", func() []byte { return whole[:len(whole)-8] }, Invalid, 7563, "before the command",
			func(i *Image) bool { return !i.Whole }},
		{"a frame damaged", func() []byte { d := bytes.Clone(whole); d[60+77*5] ^= 4; return d }, Invalid, 7562, "frame 5 of 7562",
			func(i *Image) bool { return i.Whole }},
		{"no frames", func() []byte { var f latticeFile; f.begin("", 0x41111043); return f.end() }, Invalid, 1, "no frames",
			func(i *Image) bool { return !i.Whole }},
		{"some frames", func() []byte { var f latticeFile; f.begin("", 0x41111043); f.frames(9, 74); return f.end() }, Valid, 10, "",
			func(i *Image) bool { return i.Partial && i.Segments == nil && len(i.Notes) == 1 }},
		{"frames without CRC", func() []byte {
			var f latticeFile
			f.begin("", 0x012b8043)
			f.put(0x82, 0, 0, 186)
			f.put(make([]byte, 186*63)...)
			f.put(0x5e, 0, 0, 0)
			return f.Bytes()
		}, Absent, 0, "no CRC", func(i *Image) bool { return i.Format == LatticeMachXO2 && i.Whole }},
		{"one CRC over all frames", func() []byte {
			var f latticeFile
			f.begin("", 0x012b8043)
			f.put(0x82, 0xe0, 0, 186)
			f.put(bytes.Repeat([]byte{1, 2, 3}, 186*21)...)
			f.check()
			return f.end()
		}, Valid, 2, "", func(i *Image) bool { return i.Whole }},
		{"unknown device", func() []byte { var f latticeFile; f.begin("", 0x010f1043); f.frames(40, 117); return f.end() }, Valid, 41, "",
			func(i *Image) bool { return i.Whole }},
		{"unknown command", func() []byte {
			var f latticeFile
			f.begin("", 0x41111043)
			f.put(0x99, 0, 0, 0)
			return f.end()
		}, NotCheckable, 0, "the command 99 at byte 20 is not known", func(i *Image) bool { return !i.Whole }},
		{"encrypted", func() []byte {
			return append([]byte("\xff\x00Part: LFE5U-45F-6\x00\xff\xff\xff\xbf\xb3"), make([]byte, 99)...)
		}, NotCheckable, 0, "encrypted",
			func(i *Image) bool { return i.Secret && i.Whole && i.Part == "LFE5U-45F-6" }},
		{"Nexus", func() []byte {
			var f latticeFile
			f.WriteString("LSCC\xff\x00Part: LIFCL-40-9BG400C\x00\xff")
			f.begin("", 0x010f1043)
			f.put(0xb4, 0, 0, 0, 0, 0, 0x80, 0)
			f.frames(32, 117)
			f.put(0x46, 0, 0, 0)
			f.frames(90, 117)
			f.put(0x56, 0, 0, 1)
			f.put(0xf6, 0, 0, 0, 0x0e, 0, 0, 1)
			f.put(0x72, 0xd0, 0, 3)
			f.put([]byte("0123456789abcde")...)
			f.check()
			return f.end()
		}, Valid, 124, "", func(i *Image) bool { return i.Format == LatticeNexus && i.Part == "LIFCL-40-9BG400C" && i.Whole }},
		{"Nexus, encrypted", func() []byte { return append([]byte("LSCC\xff\x00x\x00\xff\xff\xff\xbe\xb3"), make([]byte, 99)...) }, NotCheckable, 0, "encrypted",
			func(i *Image) bool { return i.Secret && i.Format == LatticeNexus }},
		{"a jump behind the image", func() []byte {
			d := append(bytes.Clone(whole), bytes.Repeat([]byte{0xff}, 40)...)
			d = append(d, "\xbd\xb3\xff\xff\xff\xff\x22\x00\x00\x00\x00\x00\x00\x00\x7e\x00\x00\x00\x03\x20\x00\x00\xff\xff\xff\xff"...)
			return d
		}, Valid, 7563, "", func(i *Image) bool {
			return i.Variant == "multiboot" && len(i.Inner) == 2 && len(i.Gaps) == 1 && i.Whole
		}},
		{"something behind it", func() []byte { return append(bytes.Clone(whole), "hello"...) }, Valid, 7563, "",
			func(i *Image) bool { return len(i.Notes) == 1 && strings.Contains(i.Notes[0], "5 bytes behind") }},
		{"block RAM", func() []byte {
			var f latticeFile
			f.begin("", 0x41111043)
			f.frames(7562, 74)
			f.put(0xc2, 0x80, 0, 0, 1, 2, 3, 4)
			f.check()
			f.put(0xf6, 0, 0, 0, 0, 0, 8, 0)
			f.put(0xb2, 0xd0, 1, 0)
			f.put(bytes.Repeat([]byte{9}, 256*9)...)
			f.check()
			f.put(0x5e, 0, 0, 0)
			return f.Bytes()
		}, Valid, 7564, "", func(i *Image) bool { return i.Whole }},
	} {
		t.Run(row.name, func(t *testing.T) {
			img := mustLattice(t, row.data())
			if img.Check.State != row.state || img.Check.Checks != row.checks || !strings.Contains(img.Check.Why, row.why) || row.why == "" && img.Check.Why != "" {
				t.Errorf("%+v, want %s %d because of %q", img.Check, row.state, row.checks, row.why)
			}
			if !row.also(img) {
				img.Segments = nil // too long to print
				t.Errorf("%+v", img)
			}
		})
	}
}

// Of single bits turned over behind the header all are seen.
func TestLatticeFlips(t *testing.T) {
	for _, name := range []string{"ecp5_25k.bit", "ecp5_25k_compress.bit"} {
		data := made(t, name)
		from := bytes.Index(data, []byte{0xe2, 0, 0, 0})
		if missed := flips(t, data, from, 400, readLattice); missed > 0 {
			t.Errorf("%s: %d of 400 not seen", name, missed)
		}
	}
}

func TestLatticeStrangers(t *testing.T) {
	for _, head := range []string{"", "\xff", "\xff\xff", "\xff\x00", "\xff\x00text", "\xbd\xb3", "\xff\xbd\xb3", "LSCC", "\xff\x00\x00\xff\x7e\xaa\x99\x7e", strings.Repeat("\xff", 100)} {
		if isLattice([]byte(head)) {
			t.Errorf("%q is taken for Lattice's", head)
		}
	}
}

func FuzzLattice(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		isLattice(data)
		sane(t, data, readLattice)
	})
}

// sane demands of every reader that what it says can be so.
func sane(t *testing.T, data []byte, read func([]byte) (*Image, error)) {
	t.Helper()
	size := int64(len(data))
	img, err := read(data)
	if err != nil {
		return
	}
	if img.Payload.Offset < 0 || img.Payload.Bytes < 0 || img.Payload.Offset+img.Payload.Bytes > size {
		t.Errorf("payload %+v of %d bytes", img.Payload, size)
	}
	for _, in := range append([]Inner(nil), img.Inner...) {
		if in.Offset < 0 || in.Bytes < 0 || in.Offset+in.Bytes > size {
			t.Errorf("image %+v of %d bytes", in.Span, size)
		}
	}
	if img.Check.State == "" || (img.Check.State == Valid) != (img.Check.Why == "") {
		t.Errorf("integrity %+v", img.Check)
	}
	if img.Check.State == Valid && img.Check.Checks == 0 {
		t.Error("valid without a check")
	}
	if len(img.Fields) > 300 || len(img.Notes) > 300 {
		t.Errorf("%d fields, %d notes", len(img.Fields), len(img.Notes))
	}
}

func BenchmarkLattice(b *testing.B) {
	for _, name := range []string{"ecp5_um5g-85k.bit", "ecp5_um5g-85k_compress.bit"} {
		data := made(b, name)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readLattice(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
