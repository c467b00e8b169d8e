package bitstream

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func read(t testing.TB, data []byte, o Options) *Image {
	t.Helper()
	img, err := Read(bytes.NewReader(data), o)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// refused wants an error that says all of want.
func refused(t testing.TB, data []byte, o Options, want ...string) error {
	t.Helper()
	img, err := Read(bytes.NewReader(data), o)
	if err == nil {
		t.Fatalf("read as %s, wanted an error that says %q", img.Format, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %q, wanted it to say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("an error of several lines: %q", err)
	}
	return err
}

func gz(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.Bytes()
}

func zst(t testing.TB, data []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

// A file that is no image is named.
func TestNotImage(t *testing.T) {
	random := make([]byte, 4096)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(random)
	deep := []byte("version https://git-lfs.github.com/spec/v1\n")
	for range 4 {
		deep = gz(deep)
	}
	for _, c := range []struct {
		name string
		data string
		want string
	}{
		{"empty", "", "an empty file"},
		{"ELF", "\x7fELF\x02\x01\x01\x00", "an ELF program"},
		{"PDF", "%PDF-1.7\n", "a PDF document"},
		{"HTML", "\r\n <!DOCTYPE html><html>", "an HTML page"},
		{"LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"},
		{"zip", "PK\x03\x04aaaaaaaa", "a zip archive"},
		{"text", "hello, world\n", `text that starts with "hello, world"`},
		{"JSON", `{"a": 1}`, "JSON text"},
		{"random", string(random), "unknown content that starts with " + fmt.Sprintf("% x", random[:16])},
		{"deep", string(deep), "more than 3 deep"},
		{"gzip of text", string(gz([]byte("hello"))), `text that starts with "hello"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := refused(t, []byte(c.data), Options{}, c.want, "wanted an FPGA image")
			if _, ok := errors.AsType[*NotImage](err); !ok {
				t.Errorf("%T is no NotImage", err)
			}
		})
	}
}

// Blank flash is not an error: a reader of slots meets it every day.
func TestBlank(t *testing.T) {
	for _, fill := range []byte{0, 0xff} {
		img := read(t, bytes.Repeat([]byte{fill}, 100_000), Options{})
		if img.Format != Blank || img.Check.State != Absent || len(img.Segments) != 0 {
			t.Errorf("%02x: got %+v", fill, img)
		}
	}
	refused(t, append(bytes.Repeat([]byte{0xff}, 100_000), 0), Options{}, "unknown content")
}

// What was announced decides no allocation, and a small file that unpacks to a large one ends at the limit.
func TestLimit(t *testing.T) {
	big := bytes.Repeat([]byte{0xff}, 1<<20)
	for name, data := range map[string][]byte{"plain": big, "gzip": gz(big), "zstd": zst(t, big)} {
		refused(t, data, Options{Limit: 1<<20 - 1, Size: 1 << 60}, "more than 1048575 bytes")
		if img := read(t, data, Options{Limit: 1 << 20, Size: 1 << 60}); img.Format != Blank {
			t.Errorf("%s: %s at the limit itself", name, img.Format)
		}
	}
	refused(t, []byte(strings.Repeat("\n", 1000)+":00000001FF\n"), Options{Limit: 10}, "more than 400 bytes")
}

// A wrapping that is cut off, or damaged, says so.
func TestCutWrapping(t *testing.T) {
	data := bytes.Repeat([]byte("bitstream"), 10_000)
	for i := range data {
		data[i] ^= byte(i * i >> 7)
	}
	for name, whole := range map[string][]byte{"gzip": gz(data), "zstd": zst(t, data)} {
		refused(t, whole[:len(whole)/2], Options{}, name, "cut off")
		whole[len(whole)-6] ^= 1
		refused(t, whole, Options{}, name, "damaged")
	}
}

// A small file that is made to give much costs little: not what it gives, and not what its head announces.
func TestBomb(t *testing.T) {
	const most = 100 << 20 // allocated in all, garbage counted; much less is held at a time
	// Packed pieces may follow each other, so that a bomb takes no time to make.
	repeat := func(pack func([]byte) []byte, head []byte, fill string, mib int) []byte {
		return slices.Concat(pack(head), bytes.Repeat(pack(bytes.Repeat([]byte(fill), 1<<20/len(fill))), mib))
	}
	zstd := func(data []byte) []byte { return zst(t, data) }
	body := stream(0x03636093, 404)
	bit := bitFile(body, "d", "7a200t", "c", "t")
	announced := bytes.Clone(bit)
	copy(announced[len(announced)-len(body)-4:], "\xff\xff\xff\xff")
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"gzip", repeat(gz, bit, "\x00", 40), "packed bytes have given"},
		{"zstd", repeat(zstd, bit, "\x00", 40), "packed bytes have given"},
		{"gzip in gzip", gz(repeat(gz, bit, "\x00", 40)), "packed bytes have given"},
		{"announced", repeat(gz, announced, "\x00", 40), "packed bytes have given"},
		{"blank", repeat(gz, nil, "\x00", 40), "packed bytes have given"},
		{"text", gz(repeat(gz, []byte(record(0, 0, body[:16])), strings.Repeat(" ", 1023)+"\n", 110)), "packed bytes have given"},
	} {
		var a, b runtime.MemStats
		runtime.ReadMemStats(&a)
		refused(t, c.data, Options{Size: int64(len(c.data))}, c.want, "unpack the file first")
		runtime.ReadMemStats(&b)
		if got := b.TotalAlloc - a.TotalAlloc; got > most {
			t.Errorf("%s: %d bytes were allocated for a file of %d", c.name, got, len(c.data))
		}
	}
	// What people really pack: an image of the card's part that is nearly empty, as it is and as text.
	read(t, repeat(gz, bit, "\x00", 9), Options{})
	read(t, gz([]byte(intelHex(0, append(bytes.Clone(body), bytes.Repeat([]byte{0xff}, 10<<20)...)))), Options{})

	// Unknown content is not held, however much there is.
	var a, b runtime.MemStats
	strange := append([]byte{1}, make([]byte, 8<<20)...)
	runtime.ReadMemStats(&a)
	refused(t, strange, Options{}, "unknown content")
	runtime.ReadMemStats(&b)
	if got := b.TotalAlloc - a.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes were allocated for unknown content", got)
	}
}
