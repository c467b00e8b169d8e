package bitstream

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
)

// Files made so that reading them again and again, or holding what they announce, would take more than a file of their
// size may.
func TestHostile(t *testing.T) {
	const most = 64 << 20 // allocated in all, beside the file
	var lattice latticeFile
	lattice.begin("", 0x010f1043)
	lattice.frames(2, 20)
	images := bytes.Repeat(append(bytes.Repeat([]byte{0xff}, 10), lattice.end()...), 20_000)

	var regions strings.Builder
	for i := range 70_000 {
		if i%20 == 0 {
			regions.WriteString(record(4, 0, []byte{byte(i / 20 >> 8), byte(i / 20)}))
		}
		regions.WriteString(record(0, uint16(i%20*3000), []byte{1}))
	}
	bit := bitFile(stream(0x03636093, 1<<20), "a", "b", "c", "d")
	same := makeXclbin()
	same = append(same, make([]byte, 500*xclbinSection)...) // 500 sections that are the same bytes
	binary.LittleEndian.PutUint32(same[448:], 500)
	for i := range 500 {
		binary.LittleEndian.PutUint64(same[xclbinHead+xclbinSection*i+24:], uint64(len(same)))
		binary.LittleEndian.PutUint64(same[xclbinHead+xclbinSection*i+32:], uint64(len(bit)))
	}
	nested := bytes.Repeat(makePACSign(nil), 3000) // each says that it holds all that follow
	for i := range 3000 {
		binary.LittleEndian.PutUint32(nested[i*pacsignHead+4:], uint32(len(nested)-(i+1)*pacsignHead))
	}
	dies := append([]byte{0xff, 0xff, 0xff, 0xff, 0xaa, 0x99, 0x55, 0x66, 0x20, 0, 0, 0}, bytes.Repeat([]byte{0x30, 0x03, 0xc0, 0, 0x50, 0, 0, 3, 0xaa, 0x99, 0x55, 0x66, 0x20, 0, 0, 0, 0x20, 0, 0, 0}, 50_000)...)
	for _, c := range []struct {
		name string
		data []byte
		err  string // "": read, and not valid
	}{
		{"many images", images, "more than 64 images"},
		{"many regions", []byte(regions.String()), "more than 65536 regions"},
		{"one stream many times", append(same, bit...), "inside the stream before it"},
		{"signed in signed", nested, ""},
		{"many packets", append([]byte("SOF\x00\x00\x00\x00\x00\xff\xff\xff\xff"), bytes.Repeat([]byte{17, 0, 0, 0, 0, 0}, 1<<19)...), ""},
		{"deep JSON", gbs(strings.Repeat("[", 1<<21), nil), "the JSON is broken"},
		{"many dies", dies, ""},
		{"many keys", []byte("manifest_format_version=2\n" + strings.Repeat("pci_vendor_id=1\n", 1<<17)), ""},
	} {
		var a, b runtime.MemStats
		runtime.ReadMemStats(&a)
		img, err := Read(bytes.NewReader(c.data), Options{Size: int64(len(c.data))})
		runtime.ReadMemStats(&b)
		if got := b.TotalAlloc - a.TotalAlloc; got > most+uint64(len(c.data)) {
			t.Errorf("%s: %d bytes were allocated for a file of %d", c.name, got, len(c.data))
		}
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: got %v, wanted an error that says %q", c.name, err, c.err)
		case c.err == "" && (err != nil || img.Check.State == Valid):
			t.Errorf("%s: got %v, %+v", c.name, err, img)
		case c.err == "" && (len(img.Inner) > 64 || len(img.Fields) > 300 || len(img.Notes) > 300):
			t.Errorf("%s: a report of %d images, %d facts, %d notes", c.name, len(img.Inner), len(img.Fields), len(img.Notes))
		}
	}
}
