package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splicenic/bitstream/xilinx"
)

// testBit is a small whole .bit file for an XC7A200T, and where its stream begins.
func testBit(t testing.TB, design string) (file []byte, start int) {
	t.Helper()
	frames := make([]uint32, 404)
	for i := range frames {
		frames[i] = uint32(i) * 0x9e3779b1
	}
	stream := (&xilinx.Encoder{IDCode: 0x03636093, UserAccess: 0x0badcafe, Runs: []xilinx.Run{{Words: frames}}}).Append(nil)
	head, err := xilinx.BitHeader{Design: design, Part: "7a200tfbg484", Date: "2023/01/02", Time: "03:04:05"}.Append(nil, len(stream))
	if err != nil {
		t.Fatal(err)
	}
	return append(head, stream...), len(head)
}

// info runs the command in this process.
func info(t testing.TB, in []byte, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(append([]string{"bitstream", "info"}, args...), bytes.NewReader(in), &o, &e)
	return code, o.String(), e.String()
}

// has wants lines of a name and a value in a report.
func has(t testing.TB, out string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		name, value, _ := strings.Cut(want, ": ")
		found := false
		for _, l := range strings.Split(out, "\n") {
			found = found || strings.HasPrefix(l, name+"  ") && strings.TrimSpace(strings.TrimPrefix(l, name)) == value
		}
		if !found {
			t.Errorf("no line %q in\n%s", want, out)
		}
	}
}

func save(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Header fields stand where the text before them ends, however long that is.
func TestCaseE01Info(t *testing.T) {
	for _, design := range []string{"lb0;UserID=0XFFFFFFFF", "lb0_longer_name;UserID=0XFFFFFFFF"} {
		file, start := testBit(t, design)
		code, out, errs := info(t, nil, save(t, "x.bit", file))
		if code != 0 || errs != "" {
			t.Fatalf("exit code %d, %s", code, errs)
		}
		has(t, out, "format: xilinx-bit, 32bit", "design: "+design, "part: 7a200tfbg484", "date: 2023/01/02 03:04:05", "idcode: 0x03636093 XC7A200T", "integrity: valid x2", "user code: 0x0badcafe")
		var docs []struct {
			Part    string
			Payload struct{ Offset, Bytes int }
			Whole   bool
		}
		code, out, _ = info(t, file, "-", "-o", "json")
		if err := json.Unmarshal([]byte(out), &docs); err != nil || code != 0 {
			t.Fatalf("exit code %d, %v: %s", code, err, out)
		}
		if d := docs[0]; len(docs) != 1 || d.Part != "7a200tfbg484" || d.Payload.Offset != start || d.Payload.Bytes != len(file)-start || !d.Whole {
			t.Errorf("got %+v, the stream begins at %d", docs, start)
		}
		code, out, errs = info(t, nil, save(t, "x.bit", file[:len(file)-3]))
		if code != 1 || out != "" || !strings.Contains(errs, "the file ends after") {
			t.Errorf("cut off: exit code %d, %s%s", code, out, errs)
		}
	}
}

// The content decides; a suffix that says something else is noted.
func TestCaseE05Info(t *testing.T) {
	file, start := testBit(t, "lb0;UserID=0XFFFFFFFF")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(file)
	z.Close()
	const clash = "note: the content is xilinx-bit, though the name ends in .bin: the content counts"
	for _, c := range []struct {
		name string
		data []byte
		want []string
	}{
		{"x.bin", file, []string{"format: xilinx-bit, 32bit", clash}},
		{"x.BIT", file, []string{"format: xilinx-bit, 32bit"}},
		{"x", file, []string{"format: xilinx-bit, 32bit"}},
		{"x.bit.gz", packed.Bytes(), []string{"format: xilinx-bit, 32bit", "wrapping: gzip"}},
		{"y.bit", file[start:], []string{"format: xilinx-bin, 32bit", "note: the content is xilinx-bin, though the name ends in .bit: the content counts"}},
	} {
		code, out, errs := info(t, nil, save(t, c.name, c.data))
		if code != 0 || strings.Contains(out, "though") != strings.Contains(strings.Join(c.want, ""), "though") {
			t.Errorf("%s: exit code %d, %s%s", c.name, code, out, errs)
		}
		has(t, out, append(c.want, "integrity: valid x2")...)
	}
}

// Wrong files are named, in a line, with the exit code of wrong usage.
func TestCaseE09Info(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"x.sof": {"\x7fELF\x02\x01\x01", "got an ELF program, wanted an FPGA image"},
		"x.bin": {"all sorts of text", "got text that starts with \"all sorts of text\", wanted an FPGA image"},
		"x.bit": {"", "got an empty file, wanted an FPGA image"},
	} {
		code, out, errs := info(t, nil, save(t, name, []byte(c.data)))
		if code != 2 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, errs)
		}
	}
}

// A .mcs with a gap is two regions.
func TestCaseE13Info(t *testing.T) {
	text := ":020000040000FA\n:04000000A1A2A3A472\n:020000040007F3\n:02000000B1B29B\n:00000001FF\n"
	code, out, errs := info(t, []byte(text), "-")
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	has(t, out, "format: intel-hex", "region: 0x00000000, 4 bytes", "region: 0x00070000, 2 bytes", "gap: 458748 bytes at 0x00000004", "integrity: absent")
	code, _, errs = info(t, []byte(strings.Replace(text, ":00000001FF", ":020000040000FA\n:02000200A3A5B4\n:00000001FF", 1)), "-")
	if code != 1 || !strings.Contains(errs, "address 0x00000003 is given twice, as a4 and as a5") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// A header without most of its keys is no error.
func TestCaseE17Info(t *testing.T) {
	file, start := testBit(t, "x")
	text := "Xilinx ASCII Bitstream\n"
	for _, c := range file[start:] {
		text += strings.Repeat("0", 8-len(bits(c))) + bits(c) + "\n"
	}
	code, out, errs := info(t, []byte(text), "-")
	if code != 0 || errs != "" {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	has(t, out, "format: xilinx-rbt, 32bit", "design: unknown", "part: unknown", "date: unknown", "idcode: 0x03636093 XC7A200T", "integrity: valid x2")
}

func bits(c byte) (s string) {
	for ; c > 0; c >>= 1 {
		s = string('0'+rune(c&1)) + s
	}
	return s
}

// What is no file, or no image, is one line that says what it is and what was wanted, and no stack trace.
func TestCaseE23Info(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ path, want string }{
		{dir, "error: " + dir + ": got a directory, wanted an FPGA image"},
		{os.DevNull, "error: " + os.DevNull + ": got a device node, wanted an FPGA image"},
		{filepath.Join(dir, "absent"), "error: stat " + filepath.Join(dir, "absent") + ": no such file or directory"},
	} {
		code, out, errs := info(t, nil, c.path)
		if code != 2 || out != "" || strings.Split(errs, "\n")[0] != c.want || strings.Contains(errs, "goroutine") {
			t.Errorf("%s: exit code %d, got %s%s", c.path, code, out, errs)
		}
	}
	file, _ := testBit(t, "x")
	good := save(t, "good.bit", file)
	for name, args := range map[string][]string{"none": {}, "standard input twice": {"-", "-"}} {
		if code, _, errs := info(t, file, args...); code != 2 || errs == "" {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}

	// Of several files, each fault has its line and the others their reports.
	empty := save(t, "empty.bit", nil)
	code, out, errs := info(t, nil, good, empty, dir)
	if code != 2 || strings.Count(errs, "wanted an FPGA image") != 2 || !strings.Contains(errs, "error: 2 of 3 files") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	has(t, out, "file: "+good)

	// A damaged image is described, and the exit code says that it is one.
	file[len(file)-200] ^= 1
	code, out, errs = info(t, nil, save(t, "damaged.bit", file))
	if code != 1 || !strings.Contains(errs, "integrity invalid") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	has(t, out, "integrity: invalid", "part: 7a200tfbg484")
}
