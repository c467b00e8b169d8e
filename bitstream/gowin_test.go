package bitstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

var gowinFacts = []facts{
	{"gowin_gw1n1.fs", 351954, "e46448cdb51423a2d9b7e7a408981dd6ca9db725113ad849c7a2a678b670e409", GowinFS, "", "", "0900281b", false, "valid 274", ""},
	{"gowin_gw1n1_c.fs", 69370, "7feab1bfd03b2f99bcf1499dbc0fdbdb17139ebce836fbddafee52d428908cbc", GowinFS, "", "", "0900281b", true, "valid 274", ""},
	{"gowin_gw2a18_c.fs", 728358, "e30fb4d4f64deb65c4964d227ce9e41fa1ef7a417b264f02319c713b46d2d65f", GowinFS, "", "", "0000081b", true, "valid 1342", ""},
}

func TestGowinFacts(t *testing.T) {
	for _, f := range gowinFacts {
		t.Run(f.file, func(t *testing.T) {
			data := made(t, f.file)
			if !isGowin(data[:4096]) {
				t.Fatal("not recognised")
			}
			img, err := readGowin(data)
			if err != nil {
				t.Fatal(err)
			}
			f.meet(t, data, img)
			// The packer leaves the sum as the user code, and computes it over the whole bitmap at once.
			sum := fmt.Sprintf("%04x; not checked: no comment tells it", *img.UserCode)
			if x := field(img, "checksum"); x != sum {
				t.Errorf("checksum: %q, want %q", x, sum)
			}
		})
	}
}

func field(img *Image, name string) string {
	for _, f := range img.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// gowinText encodes a file of 20 rows for the GW1N-1, with a checksum comment that is right unless lie is set.
type gowinText struct {
	id      uint32
	rows    int
	packed  bool
	noCRC   bool
	comment string // "right", "wrong", "" for none
	first   string // a line before all
	crlf    bool
}

func (g gowinText) String() string {
	var body strings.Builder
	end := "\n"
	if g.crlf {
		end = "\r\n"
	}
	line := func(p ...byte) {
		for _, b := range p {
			fmt.Fprintf(&body, "%08b", b)
		}
		body.WriteString(end)
	}
	crc16 := func(p []byte) (c uint16) { // by bits: the reader has a table
		for _, b := range p {
			for i := range 8 {
				low := c&1 != uint16(b>>i&1)
				c >>= 1
				if low {
					c ^= 0xa001
				}
			}
		}
		return c
	}
	line(bytes.Repeat([]byte{0xff}, 20)...)
	line(0xff, 0xff)
	line(0xa5, 0xc3)
	var counted []byte
	head := func(p ...byte) { line(p...); counted = append(counted, p...) }
	head(binary.BigEndian.AppendUint32([]byte{6, 0, 0, 0}, g.id)...)
	flags := byte(0)
	if g.packed {
		flags = 0x20
	}
	head(0x10, 0, 0, 0, 0, 0, flags, 0)
	head(0x51, 0, 0xff, 0xff, 0xff, 0xe8, 0xe4, 0xe2)
	line(0xd2, 0, 0xff, 0xff, 0, 0, 0, 0x20)
	head(0x12, 0, 0, 0)
	on := byte(0x80)
	if g.noCRC {
		on = 0
	}
	head(0x3b, on, byte(g.rows>>8), byte(g.rows))
	var content []byte // plain
	for r := range g.rows {
		row := make([]byte, 40)
		row[5], row[20], row[39] = byte(r+1), 0x77, byte(r*3)
		content = append(content, row...)
		if g.packed { // 5 bytes, 14 zeros as 8, 4 and 2, and so on
			p := bytes.ReplaceAll(row, make([]byte, 8), []byte{0xe8})
			p = bytes.ReplaceAll(p, make([]byte, 4), []byte{0xe4})
			row = bytes.ReplaceAll(p, make([]byte, 2), []byte{0xe2})
		}
		counted = append(counted, row...)
		if !g.noCRC {
			row = binary.LittleEndian.AppendUint16(row, crc16(counted))
		}
		tail := bytes.Repeat([]byte{0xff}, 6)
		line(append(row, tail...)...)
		counted = tail
	}
	line(bytes.Repeat([]byte{0xff}, 18)...)
	line(0x0a, 0, 0, 0, 1, 2, 3, 4)
	line(8, 0, 0, 0)
	sum := uint16(0)
	for i := 0; i < len(content); i += 2 {
		sum += binary.BigEndian.Uint16(content[i:])
	}
	text := g.first
	if text != "" {
		text += end
	}
	text += "//Tool Version: V1.9.8.03" + end + "//Part Number: GW1N-LV1QN48C6/I5" + end
	switch g.comment {
	case "right":
		text += fmt.Sprintf("//CheckSum: 0x%04X", sum) + end
	case "wrong":
		text += fmt.Sprintf("//CheckSum: 0x%04X", sum^1) + end
	}
	return text + body.String()
}

func mustGowin(t *testing.T, text string) *Image {
	t.Helper()
	if !isGowin([]byte(text)) {
		t.Fatal("not recognised")
	}
	img, err := readGowin([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestCaseE19(t *testing.T) {
	g := gowinText{id: 0x0900281b, rows: 20}
	img := mustGowin(t, g.String())
	if img.Check.State != Valid || img.Check.Checks != 20 || !strings.HasSuffix(field(img, "checksum"), "not checked: no comment tells it") {
		t.Errorf("without the comment: %+v, %q", img.Check, field(img, "checksum"))
	}
	g.comment = "right"
	img = mustGowin(t, g.String())
	if img.Check.State != Valid || img.Check.Checks != 21 || img.Part != "GW1N-LV1QN48C6/I5" || img.Tool != "V1.9.8.03" {
		t.Errorf("right: %+v, part %q", img.Check, img.Part)
	}
	sum := field(img, "checksum")[:4]
	g.comment = "wrong"
	img = mustGowin(t, g.String())
	if img.Check.State != Invalid || !strings.Contains(img.Check.Why, sum) || strings.Count(img.Check.Why, sum[:3]) != 2 {
		t.Errorf("wrong: %+v, the sum is %s", img.Check, sum)
	}
	g.comment = "right"
	g.first = "1011101100110101"
	img = mustGowin(t, g.String())
	if len(img.IDCodes) != 1 || img.IDCodes[0].Value != 0x0900281b || img.Check.State != Valid || field(img, "line before the preamble") != g.first {
		t.Errorf("an odd first line: %v, %+v", img.IDCodes, img.Check)
	}
	for comment, want := range map[string]State{"": Valid, "wrong": Invalid} {
		g.comment = comment
		if img = mustGowin(t, g.String()); len(img.IDCodes) != 1 || img.IDCodes[0].Value != 0x0900281b || img.Check.State != want {
			t.Errorf("an odd first line and comment %q: %v, %+v", comment, img.IDCodes, img.Check)
		}
	}
}

func TestGowinKinds(t *testing.T) {
	g := gowinText{id: 0x0900281b, rows: 20, comment: "right"}
	whole := g.String()
	cut := func(lines int) string {
		all := strings.SplitAfter(whole, "\n")
		return strings.Join(all[:lines], "")
	}
	for _, row := range []struct {
		name   string
		text   string
		state  State
		checks int
		why    string
		also   func(*Image) bool
	}{
		{"CRLF", gowinText{id: 0x0900281b, rows: 20, comment: "right", crlf: true}.String(), Valid, 21, "", func(i *Image) bool { return i.Whole && *i.UserCode == 0x01020304 }},
		{"compressed", gowinText{id: 0x0900281b, rows: 20, comment: "right", packed: true}.String(), Valid, 21, "", func(i *Image) bool { return i.Whole && i.Packed }},
		{"no CRCs", gowinText{id: 0x0900281b, rows: 20, noCRC: true}.String(), Absent, 0, "no CRC", func(i *Image) bool { return i.Whole }},
		{"no CRCs, but a sum", gowinText{id: 0x0900281b, rows: 20, noCRC: true, comment: "right"}.String(), Valid, 1, "", func(i *Image) bool { return i.Whole }},
		{"unknown device", gowinText{id: 0x0777281b, rows: 20, comment: "wrong"}.String(), Valid, 20, "", func(i *Image) bool { return strings.HasPrefix(field(i, "checksum"), "not checked") }},
		{"no rows announced", gowinText{id: 0x0900281b, comment: "right"}.String(), Invalid, 0, "announces no rows", func(i *Image) bool { return !i.Whole }},
		{"no rows there", cut(12), Invalid, 0, "behind 0 of 20 rows", func(i *Image) bool { return !i.Whole }},
		{"cut", cut(20), Invalid, 8, "behind 8 of 20 rows", func(i *Image) bool { return !i.Whole }},
		{"no announcement", cut(11), Invalid, 0, "no line that announces rows", func(i *Image) bool { return !i.Whole }},
		{"rows left out", cut(15) + "1111111111111111\n", Invalid, 3, "line 16 is no row, where row 3 of 20", func(i *Image) bool { return !i.Whole }},
	} {
		t.Run(row.name, func(t *testing.T) {
			img := mustGowin(t, row.text)
			if img.Check.State != row.state || img.Check.Checks != row.checks || !strings.Contains(img.Check.Why, row.why) || row.why == "" && img.Check.Why != "" {
				t.Errorf("%+v, want %s %d because of %q", img.Check, row.state, row.checks, row.why)
			}
			if !row.also(img) {
				t.Errorf("%+v", img)
			}
		})
	}
	if _, err := readGowin([]byte(cut(14) + "0101\n")); err == nil || !strings.Contains(err.Error(), "line 15") {
		t.Errorf("half a byte: %v", err)
	}
	// Every bit of the rows is covered.
	at := strings.Index(whole, "0011101110000000")
	data := []byte(whole)
	for i := at + 33; i < strings.LastIndex(whole, "00001000"); i += 97 {
		if data[i] < '0' {
			continue
		}
		data[i] ^= 1
		img, err := readGowin(data)
		if err != nil {
			t.Fatal(err)
		}
		if img.Check.State == Valid && i < strings.Index(whole, strings.Repeat("1", 18*8)+"\n0000101") {
			t.Errorf("the bit at byte %d was turned over, and nothing said: %.60q", i, whole[i-10:])
		}
		data[i] ^= 1
	}
	for _, text := range []string{"", "//a\n", "1010", "Xilinx ASCII Bitstream\n1010010111000011\n", "hello\n"} {
		if isGowin([]byte(text)) {
			t.Errorf("%q is taken for Gowin's", text)
		}
	}
}

func FuzzGowin(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		isGowin(data)
		sane(t, data, readGowin)
	})
}
