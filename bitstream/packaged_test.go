package bitstream

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A packaged is an image that a Debian package ships, and what is known of it: a row of testdata/packaged.tsv. The hashes
// are those of the packages of Debian 12.
type packaged struct {
	file, sha256, format, design, part, date, idcodes, compressed, integrity string
	size                                                                     int
}

func packagedTable(t testing.TB) (rows []packaged) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "packaged.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		f := strings.Split(line, "\t")
		p := packaged{file: f[0], sha256: f[2], format: f[3], design: f[4], part: f[5], date: f[6], idcodes: f[7], compressed: f[8], integrity: f[9]}
		if _, err := fmt.Sscan(f[1], &p.size); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, p)
	}
	if len(rows) != 27 {
		t.Fatalf("%d rows", len(rows))
	}
	return rows
}

// open gives the file as it is installed, and unpacked. It skips the test where the package is missing or is another one.
func (p packaged) open(t testing.TB) (installed, plain []byte) {
	t.Helper()
	installed, err := os.ReadFile(filepath.Join("/usr/share", p.file))
	if err != nil {
		pkg := strings.ToLower(strings.Split(p.file, "/")[0])
		t.Skipf("needs package %s: apt-get install %s", pkg, pkg)
	}
	plain = installed
	if strings.HasSuffix(p.file, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(installed))
		if err == nil {
			plain, err = io.ReadAll(z)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := sum(plain); got != p.sha256 {
		t.Skipf("%s is another release's: %d bytes with SHA-256 %s", p.file, len(plain), got)
	}
	return installed, plain
}

func sum(p []byte) string {
	s := sha256.Sum256(p)
	return hex.EncodeToString(s[:])
}

// summary is what of an Image the table has, in its words.
func summary(img *Image) string {
	var ids []string
	for _, id := range img.IDCodes {
		ids = append(ids, fmt.Sprintf("%08x", id.Value))
	}
	return fmt.Sprintf("%s/%s|%s|%s|%s|%s|%v|%v", img.Format, img.Variant, img.Design, img.Part, img.Date, strings.Join(ids, ","), map[bool]string{false: "no", true: "yes"}[img.Packed], img.Check)
}

// TestPackaged reads every image of two packages, packed and unpacked.
func TestPackaged(t *testing.T) {
	for _, p := range packagedTable(t) {
		t.Run(filepath.Base(p.file), func(t *testing.T) {
			installed, plain := p.open(t)
			want := strings.Join([]string{p.format, p.design, p.part, p.date, p.idcodes, p.compressed, p.integrity}, "|")
			for _, data := range [][]byte{installed, plain} {
				img := read(t, bytes.Clone(data), Options{Name: filepath.Base(p.file), Size: int64(len(data))})
				if got := summary(img); got != want {
					t.Errorf("got    %s\nwanted %s", got, want)
				}
				if img.FileSize != int64(p.size) || img.SHA256 != sum(data) || !img.Whole || img.Secret || img.Partial || len(img.Notes) > 0 {
					t.Errorf("got %d bytes, %s, whole %v, notes %q", img.FileSize, img.SHA256, img.Whole, img.Notes)
				}
				// The length that the header announces reaches exactly to the end, and is what a flash gets.
				if img.Payload.Offset+img.Payload.Bytes != int64(p.size) || len(img.Segments) != 1 || !bytes.Equal(img.Segments[0].Data, plain[img.Payload.Offset:]) {
					t.Errorf("payload %+v of %d bytes", img.Payload, p.size)
				}
				if names := img.IDCodes[0].Names; len(names) != 1 || !samePart(p.part, names) {
					t.Errorf("%08x is %v, the header says %s", img.IDCodes[0].Value, names, p.part)
				}
			}
		})
	}
}

// TestConversions lets Debian's tools convert an image, and reads what they made.
func TestConversions(t *testing.T) {
	var image packaged
	for _, p := range packagedTable(t) {
		if strings.HasSuffix(p.file, "xc7a35tcpg236.bit.gz") {
			image = p
		}
	}
	_, plain := image.open(t)
	body := read(t, bytes.Clone(plain), Options{}).Segments[0].Data
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bit, bin := write("in.bit", plain), write("in.bin", body)
	for _, c := range []struct {
		name, pkg, sha256 string
		format            Format
		order             Order
		command           []string // writes to a file whose name is the last word
	}{
		{"bitparse-mcs", "xc3sprog", "1097f2ff671b4ddc776767670df975fe50d937c506f343a3d0cbb9fa7460002e", IntelHex, AsIs, []string{"bitparse", "-o", "MCS", bit, "-O"}},
		{"bitparse-ihex", "xc3sprog", "bf7c5f871d698092635b053ce2a7f4c7ed7a5690abceb3266fe6ba072efd472c", IntelHex, BitsReversed, []string{"bitparse", "-o", "IHEX", bit, "-O"}},
		{"bitparse-bpi", "xc3sprog", "7964170015b8d657cc6afc2efc2f5c282c5ae645123f3557fa200e019b696f17", XilinxBin, BitsReversed, []string{"bitparse", "-o", "BPI", bit, "-O"}},
		{"bitparse-bin", "xc3sprog", "0b65c1cda187d53e986097ccf3ca458539005c1dd502a29afa63e4644b0a17a3", XilinxBin, AsIs, []string{"bitparse", "-o", "BIN", bit, "-O"}},
		{"bitparse-hex", "xc3sprog", "615fd827694edbf8b1aaaebd2821bd1a5c440179b638068cad579101bfff4ac4", HexDump, AsIs, []string{"bitparse", "-o", "HEX", bit, "-O"}},
		{"objcopy", "binutils", "d572cb8063938e1e7d95d1cb90131f73a60f3585f3a84011cc417990cd789dc2", IntelHex, AsIs, []string{"objcopy", "-I", "binary", "-O", "ihex", bin}},
		{"srec_cat", "srecord", "eb67cc408759d651e187969cbfc893088282d6cec72aa122c517c2aa7c504127", IntelHex, AsIs, []string{"srec_cat", bin, "-binary", "-line-length=44", "-o"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.command[0]); err != nil {
				t.Skipf("needs package %s: apt-get install %s", c.pkg, c.pkg)
			}
			out := filepath.Join(dir, c.name)
			args := append(c.command[1:], out)
			if c.command[0] == "srec_cat" { // the format stands behind the name
				args = append(args, "-intel")
			}
			if text, err := exec.Command(c.command[0], args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			data, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if got := sum(data); got != c.sha256 {
				t.Errorf("%s has made another file than it used to: SHA-256 %s", c.command[0], got)
			}
			img := read(t, data, Options{Size: int64(len(data))})
			if img.Format != c.format || img.Order != c.order || img.Check.String() != "valid x2" || !img.Packed || !img.Whole || img.IDCodes[0].Value != 0x0362d093 {
				t.Errorf("got %s, %s", summary(img), img.Order)
			}
			if len(img.Segments) != 1 || img.Segments[0].Address != 0 || !bytes.Equal(img.Segments[0].Data, body) {
				t.Errorf("not the bytes of the file that it was made from")
			}
		})
	}
}
