package bitstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A process that reads an image of 16 MiB may hold this much, its code included.
const mostResident = 64 << 20

// large is a whole image of 16 MiB, as a XC7A200T's is, in three forms.
func large(t testing.TB) map[string][]byte {
	t.Helper()
	body := stream(0x03636093, 16<<20/4-200)
	return map[string][]byte{
		"bit": bitFile(body, "large;UserID=0XFFFFFFFF", "7a200tfbg484", "2023/01/02", "03:04:05"),
		"bin": body,
		"mcs": []byte(intelHex(0, body)),
	}
}

// TestMemory reads large images in a process of their own, and looks at the most memory it had.
func TestMemory(t *testing.T) {
	if path := os.Getenv("SPLICE_READ_IMAGE"); path != "" {
		readAsChild(t, path)
		return
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("needs /proc")
	}
	if raceEnabled {
		t.Skip("the race detector's own memory is counted too")
	}
	for name, data := range large(t) {
		for _, from := range []string{"file", "pipe"} {
			t.Run(name+"/"+from, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "x."+name)
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
				child := exec.Command(os.Args[0], "-test.run", "^TestMemory$")
				child.Env = append(os.Environ(), "SPLICE_READ_IMAGE="+path, "GOMAXPROCS=1")
				if from == "pipe" { // no size is known
					child.Env = append(child.Env, "SPLICE_READ_IMAGE=-")
					child.Stdin = io.MultiReader(bytes.NewReader(data))
				}
				out, err := child.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				_, rest, _ := strings.Cut(string(out), "resident ")
				kib, err := strconv.Atoi(strings.Fields(rest + " x")[0])
				if err != nil {
					t.Fatalf("%v in %q", err, out)
				}
				t.Logf("%d bytes: %.1f MiB resident at most; %s", len(data), float64(kib)/1024, strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
				if kib<<10 > mostResident {
					t.Errorf("%d KiB resident, at most %d are allowed", kib, mostResident>>10)
				}
			})
		}
	}
}

func readAsChild(t *testing.T, path string) {
	in, size := os.Stdin, int64(0)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		in, size = f, s.Size()
	}
	start := time.Now()
	img, err := Read(in, Options{Name: path, Size: size})
	took := time.Since(start)
	if err != nil || img.Check.String() != "valid x2" {
		t.Fatalf("%v, %+v", err, img)
	}
	status, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	for s := bufio.NewScanner(status); s.Scan(); {
		if kib, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			fmt.Printf("resident %s in %v\n", strings.TrimSpace(kib), took)
		}
	}
}

// BenchmarkRead16MiB reads and verifies a large image.
func BenchmarkRead16MiB(b *testing.B) {
	for name, data := range large(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for range b.N {
				img, err := Read(bytes.NewReader(data), Options{Size: int64(len(data))})
				if err != nil || img.Check.State != Valid {
					b.Fatal(err, img)
				}
			}
		})
	}
}
