package bitstream

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestCaseE09SOF(t *testing.T) {
	img, err := Read(strings.NewReader("SOF\x00\x01\x02\x03\x04"), Options{})
	if err != nil || img.Format != IntelSof || img.Segments != nil || !strings.Contains(img.Notes[0], "convert it to a raw image first") {
		t.Errorf("%v, %+v", err, img)
	}
	if got := rules(Fit(img, Target{IDCode: 0x13636093, SlotBytes: 1 << 24}), Refuse); !slices.Contains(got, "content") {
		t.Errorf("a flash may have it: %v", got)
	}
	for data, want := range map[string]string{"\x7fELF\x02\x01": "ELF", "hello there\n": "text", "": "empty"} {
		if _, err := Read(strings.NewReader(data), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", data, err)
		}
	}
}

// makePACSign encodes a signed container, without real signatures.
func makePACSign(payload []byte) []byte {
	b := make([]byte, 1024)
	binary.LittleEndian.PutUint32(b, 0xb6eafd19)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(payload)))
	a, c := sha256.Sum256(payload), sha512.Sum384(payload)
	copy(b[0x10:], a[:])
	copy(b[0x30:], c[:])
	binary.LittleEndian.PutUint32(b[128:], 0xf27f28d7)
	return append(b, payload...)
}

func gbs(meta string, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(gbsMagic), uint32(len(meta)))
	return append(append(b, meta...), payload...)
}

// makeXclbin encodes a container of sections; kinds and bytes alternate in what is given.
func makeXclbin(sections ...any) []byte {
	b := make([]byte, 456+40*len(sections)/2)
	copy(b, "xclbin2\x00\xff\xff\xff\xff")
	copy(b[352:], "some_platform")
	binary.LittleEndian.PutUint32(b[448:], uint32(len(sections)/2))
	for i := 0; i < len(sections); i += 2 {
		h, data := 456+20*i, sections[i+1].([]byte)
		binary.LittleEndian.PutUint32(b[h:], uint32(sections[i].(int)))
		binary.LittleEndian.PutUint64(b[h+24:], uint64(len(b)))
		binary.LittleEndian.PutUint64(b[h+32:], uint64(len(data)))
		b = append(b, data...)
	}
	binary.LittleEndian.PutUint64(b[304:], uint64(len(b)))
	return b
}

// makeQuartus encodes packets; tags and bytes alternate in what is given. The CRC is written by bits: the reader has a table.
func makeQuartus(name string, packets ...any) []byte {
	b := append([]byte(name), 0, 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b[:8], uint32(len(packets)/2+1))
	for i := 0; i < len(packets); i += 2 {
		data := packets[i+1].(string)
		b = binary.LittleEndian.AppendUint16(b, uint16(packets[i].(int)))
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(data))), data...)
	}
	b = append(b, 8, 0, 2, 0, 0, 0)
	crc := uint16(0xffff)
	for _, c := range b {
		for i := range 8 {
			if low := crc&1 != uint16(c>>i&1); low {
				crc = crc>>1 ^ 0x8408
			} else {
				crc >>= 1
			}
		}
	}
	return binary.LittleEndian.AppendUint16(b, ^crc)
}

const efinixText = "Version: 2024.1.163\nGenerated: Sat Aug 17 15:16:21 2024\n\nProject: top\nFamily: Trion\nDevice: T8F81\nWidth: 1\nMode: active\nPADDED_BITS: 0\n"

// makeEfinix encodes text and a stream, and the bytes as lines.
func makeEfinix(text string, stream []byte) (data []byte, lines string) {
	data = append([]byte(text), bytes.Repeat([]byte{'\n'}, 256-len(text))...)
	data = append(append(data, efinixSync...), stream...)
	var b strings.Builder
	for _, c := range data {
		fmt.Fprintf(&b, "%02X\n", c)
	}
	return data, b.String()
}

// What a stream in an xclbin says is the container's: parts, IDCODE, integrity.
func TestXclbin(t *testing.T) {
	bit := func(id uint32) []byte {
		return bitFile(stream(id, 404), "top;UserID=0XFFFFFFFF", "7a200tfbg484", "2023/01/02", "03:04:05")
	}
	mem := bytes.Repeat([]byte{1}, 48)
	hurt := bit(0x03636093)
	hurt[len(hurt)-1000] ^= 1
	for _, c := range []struct {
		name, integrity, why, inner string
		data                        []byte
	}{
		{"one", "valid 2", "", "xilinx-bit 03636093 valid 2", makeXclbin(xclbinBitstream, bit(0x03636093), 6, mem)},
		{"two", "valid 4", "", "xilinx-bit 03636093 valid 2, xilinx-bit 03631093 valid 2", makeXclbin(xclbinBitstream, bit(0x03636093), xclbinClearing, bit(0x03631093))},
		{"damaged", "invalid 1", "the image at byte 536: counted from byte 85", "xilinx-bit 03636093 invalid 1", makeXclbin(xclbinBitstream, hurt, 6, mem)},
		{"second damaged", "invalid 3", "the image at byte 3", "xilinx-bit 03636093 valid 2, xilinx-bit 03636093 invalid 1", makeXclbin(xclbinBitstream, bit(0x03636093), xclbinClearing, hurt)},
		{"pdi", "not checkable 0", "Versal", "pdi not checkable 0", makeXclbin(xclbinPDI, mem)},
		{"no .bit", "not checkable 0", "no .bit file: it starts with 01 01", "unknown not checkable 0", makeXclbin(xclbinBitstream, mem)},
		{"nothing", "absent 0", "nothing in it is loaded", "", makeXclbin(6, mem)},
	} {
		img := read(t, c.data, Options{Name: "x.xclbin"})
		var inner []string
		for _, in := range img.Inner {
			text := string(in.Format)
			for _, id := range in.IDCodes {
				text += fmt.Sprintf(" %08x", id.Value)
			}
			inner = append(inner, fmt.Sprint(text, " ", in.Check.State, " ", in.Check.Checks))
		}
		_, integrity, _ := say(img)
		if got := strings.Join(inner, ", "); integrity != c.integrity || !strings.Contains(img.Check.Why, c.why) || got != c.inner || img.Segments != nil || !img.Whole {
			t.Errorf("%s: got %s (%s), %s, whole %v", c.name, integrity, img.Check.Why, got, img.Whole)
		}
		if c.name == "one" && (img.Part != "7a200tfbg484" || img.Design != "top;UserID=0XFFFFFFFF" || *img.UserCode != 0x0badcafe || img.Payload.Offset != 536 || field(img, "platform") != "some_platform") {
			t.Errorf("got %+v", img)
		}
		if found := rules(Fit(img, Target{IDCode: 0x13636093}), Refuse); !slices.Contains(found, "content") {
			t.Errorf("%s: a flash may have it: %v", c.name, found)
		}
	}
	whole := makeXclbin(xclbinBitstream, bit(0x03636093), 6, mem)
	if img := read(t, append(bytes.Clone(whole), "tail"...), Options{}); !strings.Contains(img.Notes[0], "4 bytes stand behind") {
		t.Errorf("got notes %q", img.Notes)
	}
	refused(t, whole[:len(whole)-1], Options{}, "xclbin, at byte 304", "it is cut off")
	refused(t, whole[:400], Options{}, "ends in its header")
	refused(t, []byte("xclbin1\x00aaaa"), Options{}, "an xclbin of an old kind")
	put := func(at int, v uint64) []byte {
		b := bytes.Clone(whole)
		binary.LittleEndian.PutUint64(b[at:], v)
		return b
	}
	refused(t, put(448, 0xffffffff), Options{}, "announces 4294967295 sections")
	refused(t, put(456+24, 1<<63), Options{}, "at byte 456: section 0 is said to be")
	refused(t, put(456+32, math.MaxUint64), Options{}, "at byte 456: section 0 is said to be")
	same := makeXclbin(xclbinBitstream, bit(0x03636093), xclbinBitstream, mem)
	binary.LittleEndian.PutUint64(same[496+24:], 600)
	refused(t, same, Options{}, "section 1 begins at 600, inside the stream before it")
}

func TestQuartus(t *testing.T) {
	whole := makeQuartus("SOF", 1, "Quartus Prime Version 22.1\x00", 2, "10M25SAE144\x00", 3, "top\x00", 17, "data and more data")
	img := read(t, bytes.Clone(whole), Options{})
	if img.Format != IntelSof || img.Tool != "Quartus Prime Version 22.1" || img.Part != "10M25SAE144" || img.Design != "top" || !img.Whole || img.Check.String() != "valid x1" || field(img, "data") != "18 bytes at 79" || img.Segments != nil {
		t.Errorf("got %+v", img)
	}
	for i := range whole { // each byte counts
		hurt := bytes.Clone(whole)
		if hurt[i] ^= 0x10; i < 4 {
			continue
		}
		if img, err := Read(bytes.NewReader(hurt), Options{}); err != nil || img.Check.State != Invalid {
			t.Errorf("byte %d: %v, %+v", i, err, img)
		}
	}
	for n := 4; n < len(whole); n++ {
		if img := read(t, bytes.Clone(whole[:n]), Options{}); img.Whole || img.Check.State != Invalid || !strings.Contains(img.Check.Why, "cut off") {
			t.Fatalf("%d bytes: got %+v", n, img)
		}
	}
	for name, f := range map[string]Format{"POF": IntelPof, "JIC": IntelJic} {
		img := read(t, append(makeQuartus(name, 17, "data"), "tail"...), Options{})
		if img.Format != f || img.Check.State != Valid || len(img.Notes) != 2 || !strings.Contains(img.Notes[0], name+" container: convert it to a raw image first") {
			t.Errorf("got %+v", img)
		}
	}
	none := makeQuartus("POF", 17, "data")
	none[len(none)-1], none[len(none)-2] = 0, 0
	if img := read(t, none, Options{}); img.Check.State != Absent || !img.Whole {
		t.Errorf("got %+v", img.Check)
	}
	many := makeQuartus("POF", 17, "data")
	binary.LittleEndian.PutUint32(many[8:], 0xffffffff)
	if img := read(t, many, Options{}); img.Check.State != Invalid || img.Whole || !strings.Contains(img.Check.Why, "packet 2 is the last one, the header announces 4294967295") {
		t.Errorf("got %+v", img.Check)
	}
}

func TestEfinix(t *testing.T) {
	data, lines := makeEfinix(efinixText, []byte("a stream\x00\xff"))
	for name, file := range map[string]string{"x.bin": string(data), "x.hex": lines, "x.bit": strings.ReplaceAll(lines, "\n", "\r\n"), "x.bit.gz": string(gz([]byte(lines)))} {
		img := read(t, []byte(file), Options{Name: name})
		want := map[bool]Format{true: EfinixBin, false: Efinix}[name == "x.bin"]
		if img.Format != want || img.Part != "T8F81" || img.Tool != "Efinity 2024.1.163" || img.Date != "Sat Aug 17 15:16:21 2024" || img.Design != "top" || img.Check.State != NotCheckable || field(img, "mode") != "active" {
			t.Errorf("%s: got %+v", name, img)
		}
		if len(img.Segments) != 1 || !bytes.Equal(img.Segments[0].Data, data) || len(img.Notes) != 1 || strings.Contains(fmt.Sprint(img.Fields, img.Notes), "someone") {
			t.Errorf("%s: got %d segments, notes %q", name, len(img.Segments), img.Notes)
		}
	}
	_, passive := makeEfinix(strings.Replace(efinixText, "active", "passive", 1), []byte("a stream"))
	if img := read(t, []byte(passive), Options{}); img.Segments != nil || !strings.Contains(img.Notes[0], "passive") {
		t.Errorf("got %+v", img.Notes)
	}
	refused(t, []byte(lines+"0"), Options{}, "efinix-hex", `line 271: "0", wanted two hexadecimal digits`)
	refused(t, []byte(lines+"0G\n"), Options{}, "wanted two hexadecimal digits")
	refused(t, []byte(strings.Repeat("56\n", 300)), Options{}, `text that starts with "56"`)
	refused(t, []byte("Family: a\nDevice: b\n"), Options{}, "text that starts with")
}

func TestContainers(t *testing.T) {
	raw, rbf := []byte("raw"), fiveImage(524, 0x15, false)
	signed := makePACSign(rbf)
	hurt := bytes.Clone(signed)
	hurt[1030] ^= 1
	broken := bytes.Clone(rbf)
	broken[700] ^= 1 // in the first frames, from which their length is known
	meta := `{"version":1,"afu-image":{"interface-uuid":"abc"}}`
	legacy := append([]byte("\x80\x86\x1f\x1d"), 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
	for _, row := range []struct {
		name   string
		data   []byte
		format Format
		want   string
		inner  string
	}{
		{"signed", signed, PACSign, "valid 2", "intel-rbf valid 11"},
		{"signed, unknown", makePACSign(raw), PACSign, "valid 2", "unknown not checkable 0"},
		{"signed, damaged", hurt, PACSign, "invalid 0", "unknown not checkable 0"},
		{"signed, damaged before", makePACSign(broken), PACSign, "invalid 10", "intel-rbf invalid 10"},
		{"signed, cut", signed[:1030], PACSign, "invalid 0", ""},
		{"signed, cut in its head", signed[:132], PACSign, "invalid 0", ""},
		{"gbs", gbs(meta, rbf), OPAEGBS, "valid 11", "intel-rbf valid 11"},
		{"gbs, damaged", gbs(meta, broken), OPAEGBS, "invalid 10", "intel-rbf invalid 10"},
		{"gbs, unknown", gbs(meta, raw), OPAEGBS, "not checkable 0", "unknown not checkable 0"},
		{"gbs, sdm", gbs(meta, append([]byte{0x93, 0x65, 0x56, 0x97}, make([]byte, 100)...)), OPAEGBS, "not checkable 0", "intel-sdm not checkable 0"},
		{"gbs, empty", gbs(meta, nil), OPAEGBS, "invalid 0", "unknown invalid 0"},
		{"gbs, blank", gbs(meta, bytes.Repeat([]byte{0xff}, 100)), OPAEGBS, "invalid 0", "blank invalid 0"},
		{"gbs, signed", gbs(meta, signed), OPAEGBS, "valid 2", "intel-rbf valid 11"},
		{"gbs, old", append(bytes.Clone(legacy), rbf...), OPAEGBS, "valid 11", "intel-rbf valid 11"},
		{"gbs, old and unknown", append(bytes.Clone(legacy), raw...), OPAEGBS, "not checkable 0", "unknown not checkable 0"},
		{"sdm", append([]byte{0x93, 0x65, 0x56, 0x97}, make([]byte, 100)...), IntelSDM, "not checkable 0", ""},
		{"afi", []byte("manifest_format_version=2\npci_vendor_id=0x1d0f\ndate=25_01_02\nsecret=x\n"), AFIManifest, "not checkable 0", ""},
	} {
		img, err := Read(bytes.NewReader(row.data), Options{})
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		inner := ""
		if len(img.Inner) == 1 {
			in := img.Inner[0]
			inner = fmt.Sprint(in.Format, " ", in.Check.State, " ", in.Check.Checks)
			if end := in.Offset + in.Bytes; end != int64(len(row.data)) || in.Format == IntelRbf && in.Part != "5CEA2" {
				t.Errorf("%s: %+v of %d bytes", row.name, in, len(row.data))
			}
		}
		if _, integrity, _ := say(img); img.Format != row.format || integrity != row.want || img.Segments != nil || inner != row.inner {
			t.Errorf("%s: %s, %s (%s), %s", row.name, img.Format, integrity, img.Check.Why, inner)
		}
		switch row.name {
		case "gbs, old":
			if got := field(img, "interface uuid"); img.Variant != "legacy" || got != "000102030405060708090a0b0c0d0e0f" {
				t.Errorf("got %q", got)
			}
		case "afi":
			if img.Date != "25_01_02" || field(img, "pci_vendor_id") != "0x1d0f" || len(img.Fields) != 2 {
				t.Errorf("got %+v", img)
			}
		}
	}
	long := gbs(meta, nil)
	binary.LittleEndian.PutUint32(long[16:], 0xffffffff)
	for name, data := range map[string][]byte{"gbs length": long, "gbs json": gbs("{", nil), "gbs head": long[:19], "old gbs head": legacy[:19]} {
		if _, err := Read(bytes.NewReader(data), Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzContainers(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzRead(t, bytes.Clone(data))
		if isPACSign(data) {
			sane(t, data, readPACSign)
		}
		if strings.HasPrefix(string(data), gbsMagic) {
			sane(t, data, readGBS)
		}
		if isXclbin(data) {
			sane(t, bytes.Clone(data), readXclbin)
		}
		sane(t, data, readQuartus(IntelSof))
	})
}
