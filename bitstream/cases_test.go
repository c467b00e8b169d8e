package bitstream

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"splicenic/bitstream/xilinx"
)

// stream is a whole configuration stream of some frames with both checks.
func stream(idcode uint32, words int) []byte {
	frames := make([]uint32, words)
	for i := range frames {
		frames[i] = uint32(i) * 0x9e3779b1
	}
	e := xilinx.Encoder{IDCode: idcode, UserAccess: 0x0badcafe, Runs: []xilinx.Run{{Words: frames}}}
	return e.Append(nil)
}

// bitFile makes a .bit file; fields are design, part, date and time.
func bitFile(stream []byte, fields ...string) []byte {
	b := slices.Clone(bitMagic)
	for i, text := range fields {
		b = append(b, byte('a'+i))
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)+1))
		b = append(append(b, text...), 0)
	}
	b = binary.BigEndian.AppendUint32(append(b, 'e'), uint32(len(stream)))
	return append(b, stream...)
}

func e01(design string) []byte {
	return bitFile(stream(0x03636093, 101*4), design, "7a200tfbg484", "2023/01/02", "03:04:05")
}

// Tools took part and stream from fixed offsets. Here a longer name moves both, and nothing runs past the file.
func TestCaseE01(t *testing.T) {
	for _, c := range []struct {
		design string
		part   int // where its text begins
		data   int
	}{{"lb0;UserID=0XFFFFFFFF", 41, 85}, {"lb0_longer_name;UserID=0XFFFFFFFF", 53, 97}} {
		file := e01(c.design)
		if got := bytes.Index(file, []byte("7a200t")); got != c.part {
			t.Fatalf("the part's text stands at %d, wanted %d", got, c.part)
		}
		img := read(t, slices.Clone(file), Options{})
		want := fmt.Sprintf("xilinx-bit/32bit|%s|7a200tfbg484|2023/01/02 03:04:05|03636093|no|valid x2", c.design)
		if got := summary(img); got != want || img.Payload.Offset != int64(c.data) || !img.Whole || len(img.Notes) != 0 {
			t.Errorf("got    %s at %d, %q\nwanted %s at %d", got, img.Payload.Offset, img.Notes, want, c.data)
		}
		if img.UserCode == nil || *img.UserCode != 0x0badcafe || !bytes.Equal(img.Segments[0].Data, file[c.data:]) {
			t.Errorf("user code %v, or other bytes than the stream's", img.UserCode)
		}
		for n := 2; n < c.data; n++ { // cut anywhere in the header
			if img, err := Read(bytes.NewReader(file[:n]), Options{}); err == nil {
				t.Fatalf("cut to %d bytes: read as %s", n, img.Format)
			}
		}
		refused(t, slices.Clone(file[:len(file)-1]), Options{}, fmt.Sprintf("announces a stream of %d bytes and the file ends after %d", len(file)-c.data, len(file)-c.data-1))
	}
	file := e01("lb0;UserID=0XFFFFFFFF")
	change := func(at int, b ...byte) []byte {
		out := slices.Clone(file)
		copy(out[at:], b)
		return out
	}
	refused(t, change(14, 0xff, 0xff), Options{}, "xilinx-bit, at byte 13", "field a (design) has 65535 bytes")
	refused(t, change(14, 0, 0), Options{}, "field a (design) of 0 bytes has no NUL")
	refused(t, change(37, 'x'), Options{}, "field a (design) of 22 bytes has no NUL at its end")
	refused(t, change(20, 0), Options{}, "no NUL at its end alone")
	refused(t, change(38, 'z'), Options{}, "at byte 38", "field 7a, wanted one of a, b, c, d, e")
	refused(t, change(38, 'a'), Options{}, "stands a second time")
	refused(t, change(81, 0xff, 0xff, 0xff, 0xff), Options{}, "announces a stream of 4294967295 bytes")

	img := read(t, append(slices.Clone(file), "tail"...), Options{})
	if want := "4 bytes stand behind the stream"; len(img.Notes) != 1 || !strings.Contains(img.Notes[0], want) || len(img.Segments[0].Data) != len(file)-85 {
		t.Errorf("got notes %q, wanted %q", img.Notes, want)
	}
}

// Careless copies of a .bit file are called what they are.
func TestDamagedBit(t *testing.T) {
	file := e01("lb0;UserID=0XFFFFFFFF")
	refused(t, bytes.ReplaceAll(file, []byte("\n"), []byte("\r\n")), Options{}, "copied as text", "binary")
	refused(t, append([]byte("junk"), file...), Options{}, "behind 4 bytes of something else")
	refused(t, append([]byte("\x00\x09\x0f\xef\xbf\xbd\x0f\xef\xbf\xbd"), file[10:]...), Options{}, "UTF-8")
	refused(t, bitFile(nil, "d", "p", "c", "t"), Options{}, "no bytes")
	refused(t, bitFile([]byte("this is no stream"), "d", "p", "c", "t"), Options{}, "no sync word")
	body := stream(0x03636093, 404)
	refused(t, bitFile(body[:400], "d", "p", "c", "t"), Options{}, "the file ends") // inside the frames

	bitFlip := stream(0x03636093, 404)
	bitFlip[800] ^= 4
	if img := read(t, bitFile(bitFlip, "d", "p", "c", "t"), Options{}); img.Check.State != Invalid || img.Check.Why == "" {
		t.Errorf("a bit was turned over, and got %+v", img.Check)
	}
	if img := read(t, bitFile(stream(0x03631093, 404), "d", "7a200tfbg484", "c", "t"), Options{}); len(img.Notes) != 1 || !strings.Contains(img.Notes[0], "the header says 7a200tfbg484, the stream's IDCODE 0x03631093 is XC7A100T") {
		t.Errorf("got notes %q", img.Notes)
	}
}

// Names decide nothing; a suffix that says something else is noted, and header bytes are in no segment.
func TestCaseE05(t *testing.T) {
	bit := e01("lb0;UserID=0XFFFFFFFF")
	bin := bit[85:]
	for _, c := range []struct {
		name  string
		data  []byte
		want  Format
		clash bool
	}{
		{"x.bin", bit, XilinxBit, true},
		{"x.BIT", bit, XilinxBit, false},
		{"x", bit, XilinxBit, false},
		{"x.bit.gz", gz(bit), XilinxBit, false},
		{"x.bin.gz", gz(gz(bit)), XilinxBit, true},
		{"x.bit.zst", zst(t, bit), XilinxBit, false},
		{"x.bit", bin, XilinxBin, true},
		{"x.bin", bin, XilinxBin, false},
		{"x.mcs", bin, XilinxBin, true},
	} {
		img := read(t, slices.Clone(c.data), Options{Name: c.name, Size: int64(len(c.data))})
		if img.Format != c.want || len(img.Notes) != map[bool]int{true: 1}[c.clash] {
			t.Errorf("%s: got %s and notes %q", c.name, img.Format, img.Notes)
		}
		if len(img.Segments) != 1 || !bytes.Equal(img.Segments[0].Data, bin) {
			t.Errorf("%s: a flash would get something other than the stream", c.name)
		}
		if img.SHA256 != sum(c.data) || img.Check.String() != "valid x2" {
			t.Errorf("%s: got %s, %s", c.name, img.SHA256, img.Check)
		}
	}
}

// orders are a stream in the orders that are not the device's.
func orders(stream []byte) map[string][]byte {
	m := map[string][]byte{}
	for name, o := range map[string]xilinx.Order{"bits-reversed": xilinx.BitsReversed, "words-swapped": xilinx.WordsSwapped, "halves-swapped": xilinx.HalvesSwapped} {
		m[name] = slices.Clone(stream)
		xilinx.Undo(o, m[name])
	}
	return m
}

// A stream is found in every order of bytes, and is put into the device's.
func TestOrders(t *testing.T) {
	plain := stream(0x03636093, 404)
	for _, order := range []xilinx.Order{xilinx.AsIs, xilinx.BitsReversed, xilinx.WordsSwapped, xilinx.HalvesSwapped} {
		data := slices.Clone(plain)
		xilinx.Undo(order, data)
		for name, file := range map[string][]byte{"bin": data, "bit": bitFile(data, "d", "7a200t", "c", "t"), "mcs": []byte(intelHex(0, data))} {
			img := read(t, slices.Clone(file), Options{})
			if img.Order != Order(order) || img.Check.String() != "valid x2" || !bytes.Equal(img.Segments[0].Data, plain) {
				t.Errorf("%s, %s: got %s, %s", order, name, img.Order, img.Check)
			}
		}
	}
}

// A flash that was read to a file has blank bytes behind the stream.
func TestTrimmed(t *testing.T) {
	plain := stream(0x03636093, 404)
	img := read(t, append(slices.Clone(plain), bytes.Repeat([]byte{0xff}, 10_000)...), Options{})
	if !bytes.Equal(img.Segments[0].Data, plain) || len(img.Notes) != 1 || !strings.Contains(img.Notes[0], "10000 blank bytes") {
		t.Errorf("got %d of %d bytes, notes %q", len(img.Segments[0].Data), len(plain), img.Notes)
	}
}

// What is no image to be written is refused by its name, or taken as it is when that was asked for.
func TestCaseE09(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"\x7fELF\x02\x01\x01", "an ELF program"},
		{"some text\nand more", "text that starts with"},
		{"", "an empty file"},
		{"SOF\x00\x01\x02\x03\x04", ""}, // named, and never for a flash: see TestCaseE09SOF
	} {
		if c.want != "" {
			refused(t, []byte(c.data), Options{}, "got "+c.want, "wanted an FPGA image")
		}
		if c.data == "" {
			refused(t, nil, Options{Raw: true}, "got an empty file")
			continue
		}
		img := read(t, []byte(c.data), Options{Raw: true, Offset: 0x1000})
		if img.Format != Unknown || len(img.Segments) != 1 || img.Segments[0].Address != 0x1000 || string(img.Segments[0].Data) != c.data {
			t.Errorf("raw: got %+v", img)
		}
	}
}

// record is a line of Intel HEX.
func record(kind byte, offset uint16, data []byte) string {
	b := append([]byte{byte(len(data)), byte(offset >> 8), byte(offset), kind}, data...)
	var sum byte
	for _, c := range b {
		sum -= c
	}
	return ":" + strings.ToUpper(hex.EncodeToString(append(b, sum))) + "\n"
}

// intelHex is data as text, from an address on.
func intelHex(address uint32, data []byte) string {
	var b strings.Builder
	upper := uint32(0)
	for len(data) > 0 {
		if address>>16 != upper {
			upper = address >> 16
			b.WriteString(record(4, 0, []byte{byte(upper >> 8), byte(upper)}))
		}
		n := min(16, len(data), 0x10000-int(address&0xffff))
		b.WriteString(record(0, uint16(address), data[:n]))
		address += uint32(n)
		data = data[n:]
	}
	return b.String() + ":00000001FF\n"
}

// A .mcs with a gap is two regions, in whatever order its records stand; bytes that are given twice must agree.
func TestCaseE13Regions(t *testing.T) {
	const (
		zero = ":020000040000FA\n"
		low  = ":04000000A1A2A3A472\n"
		one  = ":020000040007F3\n"
		high = ":02000000B1B29B\n"
		end  = ":00000001FF\n"
	)
	for name, text := range map[string]string{
		"in order":     zero + low + one + high + end,
		"out of order": one + high + zero + low + end,
		"CRLF":         strings.ReplaceAll(zero+low+"\n"+one+high+end, "\n", "\r\n"),
		"given twice":  zero + low + low + one + high + zero + record(0, 1, []byte{0xa2, 0xa3}) + end,
		"no end":       zero + low + one + high,
	} {
		img := read(t, []byte(text), Options{})
		var got []string
		for _, s := range img.Segments {
			got = append(got, fmt.Sprintf("%x:%x", s.Address, s.Data))
		}
		if want := []string{"0:a1a2a3a4", "70000:b1b2"}; !slices.Equal(got, want) {
			t.Errorf("%s: got %v, wanted %v", name, got, want)
		}
		if want := []Span{{4, 0x70000 - 4}}; !slices.Equal(img.Gaps, want) || img.Check.State != Absent || img.Format != IntelHex {
			t.Errorf("%s: got gaps %v, %s", name, img.Gaps, img.Check)
		}
		notes := map[string]int{"out of order": 1, "given twice": 2, "no end": 1}[name]
		if len(img.Notes) != notes {
			t.Errorf("%s: got notes %q", name, img.Notes)
		}
	}
	refused(t, []byte(zero+low+one+high+zero+record(0, 2, []byte{0xa3, 0x55})+end), Options{}, "address 0x00000003 is given twice, as a4 and as 55", "line 2", "line 6")
}

func TestIntelHexErrors(t *testing.T) {
	good := record(0, 0, []byte{1, 2, 3, 4})
	for name, c := range map[string]struct{ text, want string }{
		"checksum":     {good + ":0400000001020304F3\n", "line 2: checksum f3, computed f2"},
		"digit":        {good + ":04000000010203G4F2\n", "line 2: has something other than hexadecimal"},
		"short":        {good + ":040000000102\n", "line 2: announces 4 bytes and holds 1"},
		"odd":          {good + ":0400000001020304F\n", "17 hexadecimal digits"},
		"no colon":     {good + "0400000001020304F2\n", `line 2: starts with '0'`},
		"type":         {good + record(6, 0, nil), "record type 06"},
		"upper":        {good + record(4, 0, []byte{1}), "record type 04 with 1 bytes"},
		"past the end": {good + record(4, 0, []byte{0xff, 0xff}) + record(0, 0xffff, []byte{1, 2}), "past 4 GiB"},
		"nothing":      {":00000001FF\n", "no data records"},
		"long":         {good + ":" + strings.Repeat("00", 70_000), "longer than"},
	} {
		if err := refused(t, []byte(c.text), Options{}, c.want, "intel-hex, at byte"); t.Failed() {
			t.Fatalf("%s: %v", name, err)
		}
	}
	// Segments as objcopy writes them below 1 MiB: their offset wraps at 64 KiB.
	img := read(t, []byte(record(2, 0, []byte{0x10, 0x00})+record(0, 0xfffe, []byte{1, 2, 3, 4})+record(3, 0, []byte{0, 0, 0, 0})+record(5, 0, []byte{0, 0, 0, 0})+record(1, 0, nil)), Options{})
	if len(img.Segments) != 2 || img.Segments[0].Address != 0x10000 || img.Segments[1].Address != 0x1fffe {
		t.Errorf("got %+v", img.Segments)
	}
	whole := read(t, []byte(intelHex(0, e01("lb0"))), Options{})
	if len(whole.Segments) != 0 || len(whole.Notes) != 1 || !strings.Contains(whole.Notes[0], "whole xilinx-bit file") {
		t.Errorf("a .bit with its header as text: got %d segments and notes %q", len(whole.Segments), whole.Notes)
	}
	linked := read(t, []byte(intelHex(0x1002000, stream(0x03636093, 404))), Options{})
	if linked.Segments[0].Address != 0x1002000 || linked.Check.String() != "valid x2" || linked.Payload.Offset != 0x1002000 {
		t.Errorf("got %+v", linked.Payload)
	}
}

func TestHexDumpErrors(t *testing.T) {
	for want, text := range map[string]string{
		"a line is missing": "      0:  aa bb\n     16:  cc\n",
		"is not an offset":  "      0:  aa bb\n      2:  cg\n",
		"up to 16 bytes":    "      0:  aa\n 1: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10\n",
	} {
		refused(t, []byte(text), Options{}, "hex-dump", "line 2", want)
	}
}

// rbt is a stream as text.
func rbt(stream []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Xilinx ASCII Bitstream\nCreated by Bitstream 2020.1\nDesign name: \ttop;UserID=0XFFFFFFFF\nArchitecture:\tartix7\nPart:        \t7a200tfbg484\nDate:        \tMon Jan 02 03:04:05 2023\nBits:        \t%d\n", 8*len(stream))
	for ; len(stream) >= 4; stream = stream[4:] {
		fmt.Fprintf(&b, "%032b\n", binary.BigEndian.Uint32(stream))
	}
	return b.String()
}

func TestRbt(t *testing.T) {
	plain := stream(0x03636093, 404)
	text := rbt(plain)
	img := read(t, []byte(text), Options{Name: "x.rbt"})
	want := "xilinx-rbt/32bit|top;UserID=0XFFFFFFFF|7a200tfbg484|Mon Jan 02 03:04:05 2023|03636093|no|valid x2"
	if got := summary(img); got != want || img.Tool != "Bitstream 2020.1" || !bytes.Equal(img.Segments[0].Data, plain) || len(img.Notes) != 0 {
		t.Errorf("got %s, %q, wanted %s", got, img.Notes, want)
	}
	refused(t, []byte(text[:len(text)-33]), Options{}, fmt.Sprintf("announces %d bits and holds %d", 8*len(plain), 8*len(plain)-32))
	refused(t, []byte(text[:len(text)-2]+"\n"), Options{}, "has 31 characters, wanted 32 digits")
	refused(t, []byte(text[:len(text)-2]+"2\n"), Options{}, "wanted 32 digits 0 and 1")
	refused(t, []byte("Xilinx ASCII Bitstream\n1010\n"), Options{}, "line 2", "wanted 8, 16 or 32 digits")
	refused(t, []byte("Xilinx ASCII Bitstream\nBits: many\n"), Options{}, "line 2", `"many" is no number of bits`)
	refused(t, []byte("Xilinx ASCII Bitstream\nBits: -8\n10101010\n"), Options{}, "no number of bits")
	refused(t, []byte("Xilinx ASCII Bitstream\n10101010\nPart: x\n"), Options{}, "line 3", "wanted 8 digits")
	refused(t, []byte("Xilinx ASCII CFI Deviceimage\nBits: 32\n"), Options{}, "Versal")
	refused(t, []byte(text[:200]), Options{}, "xilinx-rbt")
}

// Bytes that are to be written as they are need no header, and what would need one is skipped, not failed.
func TestCaseE17(t *testing.T) {
	raw := bytes.Repeat([]byte{0x5a, 1, 2, 3}, 1024)
	img := read(t, raw, Options{Raw: true, Offset: 0x100000})
	if len(img.Segments) != 1 || img.Segments[0].Address != 0x100000 || len(img.Segments[0].Data) != 4096 || img.Check.State != Absent {
		t.Fatalf("got %+v", img)
	}
	found := Fit(img, Target{IDCode: 0x13636093, SlotOffset: 0x100000, SlotBytes: 1 << 20})
	if len(rules(found, Refuse)) != 0 || !slices.Equal(rules(found, Skipped), []string{"idcode", "part", "integrity"}) {
		t.Errorf("got %+v", found)
	}
	refused(t, raw, Options{}, "unknown content that starts with 5a 01 02 03")

	// A text header without most of its keys.
	body := stream(0x03636093, 404)
	text := rbt(body)
	text = "Xilinx ASCII Bitstream\n" + text[strings.Index(text, "\n1111")+1:]
	img = read(t, []byte(text), Options{})
	if img.Part != "" || img.Date != "" || img.Design != "" || img.Check.String() != "valid x2" {
		t.Errorf("got %s", summary(img))
	}
	if got := Fit(img, Target{IDCode: 0x13636093, SlotBytes: 1 << 20}); len(got) != 1 || got[0].Severity != Skipped || got[0].Rule != "part" {
		t.Errorf("got %+v", got)
	}
	// Efinix's text without mode and device: the reports that started this were about it.
	short, lines := makeEfinix("Version: 2024.1.163\nPADDED_BITS: 0\n", []byte("a stream"))
	img = read(t, []byte(lines), Options{})
	if img.Format != Efinix || img.Part != "" || field(img, "mode") != "" || len(img.Segments) != 1 || !bytes.Equal(img.Segments[0].Data, short) {
		t.Errorf("got %+v", img)
	}
	found = Fit(img, Target{IDCode: 0x13636093, SlotBytes: 1 << 20})
	if len(rules(found, Refuse)) != 0 || !slices.Equal(rules(found, Skipped), []string{"idcode", "part", "integrity"}) {
		t.Errorf("got %+v", found)
	}
	if empty, _ := makeEfinix("", []byte("a stream")); read(t, empty, Options{}).Format != EfinixBin {
		t.Error("text without a key is not taken for one")
	}
	bare := read(t, bitFile(body), Options{})
	if len(bare.Notes) != 4 || bare.Check.String() != "valid x2" {
		t.Errorf("a .bit without fields: got %q", bare.Notes)
	}
}

// The report shows what a file holds and lets nothing of it reach the terminal.
func TestReport(t *testing.T) {
	img := read(t, e01("lb0\x1b[31m;UserID=0XFFFFFFFF"), Options{})
	var b strings.Builder
	if err := (Report{"x.bit", img}).Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"file         x.bit\n", "format       xilinx-bit, 32bit\n", "design       \"lb0\\x1b[31m;UserID=0XFFFFFFFF\"\n", "part         7a200tfbg484\n",
		"date         2023/01/02 03:04:05\n", "idcode       0x03636093 XC7A200T\n", "user code    0x0badcafe\n", "integrity    valid x2\n", "whole        yes\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no line %q in\n%s", want, b.String())
		}
	}
}

// Numbers that people know in hexadecimal are hexadecimal text in JSON.
func TestReportJSON(t *testing.T) {
	img := read(t, e01("lb0;UserID=0XFFFFFFFF"), Options{})
	img.Jumps = []Jump{{0x1000000, true}}
	img.Inner = []Inner{{Span: Span{1, 2}, IDCodes: img.IDCodes}}
	text, err := json.Marshal(Report{"x.bit", img})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"file":"x.bit","format":"xilinx-bit"`, `"idcodes":[{"value":"0x03636093","names":["XC7A200T"]}]`, `"user_code":"0x0badcafe"`,
		`"jumps":[{"to":"0x01000000","now":true}]`, `"images":[{"offset":1,"bytes":2,"idcodes":[{"value":"0x03636093"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Count(string(text), "user_code") != 1 || strings.Contains(string(text), "integrity\":{\"state\":\"\"") {
		t.Errorf("got %s", text)
	}
	img.UserCode, img.IDCodes = nil, []IDCode{}
	if text, err = json.Marshal(Report{"x", img}); err != nil || strings.Contains(string(text), "user_code") || !strings.Contains(string(text), `"idcodes":[]`) {
		t.Errorf("%v, got %s", err, text)
	}
}
