package bitstream

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// made unpacks one of testdata/made.
func made(t testing.TB, name string) []byte {
	t.Helper()
	return unpacked(t, filepath.Join("testdata", "made", name+".gz"))
}

func unpacked(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sha(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// facts are what a reader must say of a file.
type facts struct {
	file       string
	size       int
	sha256     string // of the file; "": it is not the same with each run of its tool
	format     Format
	variant    string
	part       string
	ids        string
	compressed bool
	integrity  string // "valid 7563"
	images     string // offsets of several
}

// say gives an Image in the words of facts.
func say(img *Image) (ids, integrity, images string) {
	for i, id := range img.IDCodes {
		if i > 0 {
			ids += ","
		}
		ids += fmt.Sprintf("%08x", id.Value)
	}
	integrity = fmt.Sprintf("%s %d", img.Check.State, img.Check.Checks)
	for i, in := range img.Inner {
		if i > 0 {
			images += ","
		}
		images += fmt.Sprintf("%#x", in.Offset)
	}
	return ids, integrity, images
}

// meet compares an image with what must be said of it.
func (f facts) meet(t *testing.T, data []byte, img *Image) {
	t.Helper()
	if len(data) != f.size {
		t.Errorf("%d bytes, want %d", len(data), f.size)
	}
	if f.sha256 != "" && sha(data) != f.sha256 {
		t.Errorf("SHA-256 %s, want %s: the tests do not look at the file they are about", sha(data), f.sha256)
	}
	ids, integrity, images := say(img)
	for _, row := range []struct{ what, got, want string }{
		{"format", string(img.Format), string(f.format)},
		{"variant", img.Variant, f.variant},
		{"part", img.Part, f.part},
		{"idcodes", ids, f.ids},
		{"compressed", fmt.Sprint(img.Packed), fmt.Sprint(f.compressed)},
		{"integrity", integrity, f.integrity},
		{"images", images, f.images},
		{"whole", fmt.Sprint(img.Whole), "true"},
	} {
		if row.got != row.want {
			t.Errorf("%s: got %q, want %q (%s)", row.what, row.got, row.want, img.Check.Why)
		}
	}
	if t.Failed() {
		t.Logf("%+v", img.Fields)
	}
}

// flips turns single bits over, spread over the data, and counts how many of the images are still called valid.
func flips(t *testing.T, data []byte, from, n int, read func([]byte) (*Image, error)) (missed int) {
	t.Helper()
	step := max(1, (len(data)-from)/n)
	for i, at := 0, from; i < n && at < len(data); i, at = i+1, at+step {
		data[at] ^= 1 << (i % 8)
		img, err := read(bytes.Clone(data))
		if err == nil && img.Check.State == Valid && img.Whole {
			missed++
		}
		data[at] ^= 1 << (i % 8)
	}
	return missed
}
