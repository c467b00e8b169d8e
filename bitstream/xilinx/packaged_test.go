package xilinx

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A packaged image is one that a Debian package puts on the machine.
type packaged struct {
	path, pkg, sha256 string
	bytes             int
	family            Family
	idcodes           string
	compressed        bool
	checks            int
}

func packagedImages(t *testing.T) []packaged {
	table, err := os.ReadFile("testdata/packaged.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var images []packaged
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), "\t")
		size, err1 := strconv.Atoi(f[2])
		checks, err2 := strconv.Atoi(f[7])
		if err := errors.Join(err1, err2); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		images = append(images, packaged{f[0], f[1], f[3], size, Family(f[4]), f[5], f[6] == "yes", checks})
	}
	return images
}

// read is the image, checked against the table. A test whose package is not installed is skipped. SPLICE_IMAGES is a
// directory that the packages were unpacked into with dpkg-deb -x, where they are not installed.
func (p packaged) read(t *testing.T) []byte {
	data, err := os.ReadFile(filepath.Join(os.Getenv("SPLICE_IMAGES"), p.path))
	if name, release, newer := strings.Cut(p.pkg, ">="); newer && errors.Is(err, fs.ErrNotExist) {
		t.Skipf("only %s %s and later bring it", name, release)
	}
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("needs package %s: apt-get install %s", p.pkg, p.pkg)
	}
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(p.path, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if data, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != p.sha256 || len(data) != p.bytes {
		t.Skipf("%s is another release's: %d bytes with SHA-256 %s", p.path, len(data), got)
	}
	return data
}

func hexList(ids []uint32) string {
	var s []string
	for _, id := range ids {
		s = append(s, fmt.Sprintf("%08x", id))
	}
	return strings.Join(s, ",")
}

func TestPackagedImages(t *testing.T) {
	for _, p := range packagedImages(t) {
		t.Run(filepath.Base(p.path), func(t *testing.T) {
			data := p.read(t)
			s, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if f := s.Fault(); f != "" {
				t.Error(f)
			}
			if s.Family != p.family || s.Order != AsIs {
				t.Errorf("family %s, order %s, want %s as is", s.Family, s.Order, p.family)
			}
			if got := hexList(s.IDCodes); got != p.idcodes {
				t.Errorf("IDCODEs %s, want %s", got, p.idcodes)
			}
			if dies := strings.Count(p.idcodes, ",") + 1; s.Dies != dies {
				t.Errorf("%d dies, want %d", s.Dies, dies)
			}
			total := 0
			for die, words := range s.DieWords {
				if total += words; words == 0 {
					t.Errorf("die %d has no frames", die)
				}
			}
			if len(s.DieWords) != s.Dies || total != s.FrameWords {
				t.Errorf("%v words of frames for %d dies, %d in all", s.DieWords, s.Dies, s.FrameWords)
			}
			if s.Dies > 1 {
				t.Logf("words of frames by die: %v", s.DieWords)
			}
			if s.Good != p.checks {
				t.Errorf("%d checks agree, want %d", s.Good, p.checks)
			}
			if s.Compressed() != p.compressed {
				t.Errorf("compressed %v, want %v", s.Compressed(), p.compressed)
			}
			if s.End != len(data) || s.Trailing != 0 || !s.Desynced || !s.Started() || s.Partial() || s.Encrypted || s.Debug != 0 {
				t.Errorf("end %d of %d, desynced %v, started %v, partial %v, encrypted %v, debug %d",
					s.End, len(data), s.Desynced, s.Started(), s.Partial(), s.Encrypted, s.Debug)
			}
			if s.FrameWords == 0 || s.FirstFAR != 0 {
				t.Errorf("%d words of frames from %x on", s.FrameWords, s.FirstFAR)
			}
		})
	}
}
