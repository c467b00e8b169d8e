package bitstream

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"strings"
	"testing"
)

func TestCaseE09SOF(t *testing.T) {
	img, err := Read(strings.NewReader("SOF\x00\x01\x02\x03\x04"), Options{})
	if err != nil || img.Format != IntelSof || img.Segments != nil || !strings.Contains(img.Notes[0], "convert it to a raw image first") {
		t.Errorf("%v, %+v", err, img)
	}
	for data, want := range map[string]string{"\x7fELF\x02\x01": "ELF", "hello there\n": "text", "": "empty"} {
		if _, err := Read(strings.NewReader(data), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", data, err)
		}
	}
}

// pacsign encodes a signed container, without real signatures.
func pacsign(payload []byte) []byte {
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

func TestContainers(t *testing.T) {
	signed := pacsign([]byte("some payload"))
	hurt := bytes.Clone(signed)
	hurt[1030] ^= 1
	x := make([]byte, 456)
	copy(x, "xclbin2\x00\xff\xff\xff\xff")
	binary.LittleEndian.PutUint64(x[304:], 456)
	meta := `{"version":1,"afu-image":{"interface-uuid":"abc"}}`
	for _, row := range []struct {
		name   string
		data   []byte
		format Format
		want   string
	}{
		{"signed", signed, PACSign, "valid 2"},
		{"signed, damaged", hurt, PACSign, "invalid 0"},
		{"signed, cut", signed[:1030], PACSign, "invalid 0"},
		{"gbs", gbs(meta, []byte("raw")), OPAEGBS, "absent 0"},
		{"gbs, signed", gbs(meta, signed), OPAEGBS, "valid 2"},
		{"xclbin", x, Xclbin, "absent 0"},
		{"afi", []byte("manifest_format_version=2\npci_vendor_id=0x1d0f\n"), AFIManifest, "not checkable 0"},
	} {
		img, err := Read(bytes.NewReader(row.data), Options{})
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if _, integrity, _ := say(img); img.Format != row.format || integrity != row.want || img.Segments != nil {
			t.Errorf("%s: %s, %s (%s)", row.name, img.Format, integrity, img.Check.Why)
		}
	}
	long := gbs(meta, nil)
	binary.LittleEndian.PutUint32(long[16:], 0xffffffff)
	big := bytes.Clone(x)
	binary.LittleEndian.PutUint32(big[448:], 0xffffffff)
	for name, data := range map[string][]byte{"gbs length": long, "xclbin sections": big, "old xclbin": []byte("xclbin1\x00aaaa"), "gbs json": gbs("{", nil)} {
		if _, err := Read(bytes.NewReader(data), Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzContainers(f *testing.F) {
	f.Add(pacsign([]byte("x")))
	f.Add(gbs(`{"version":1}`, pacsign([]byte("x"))))
	f.Add([]byte("xclbin2\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if isPACSign(data) {
			sane(t, data, readPACSign)
		}
		if strings.HasPrefix(string(data), gbsMagic) {
			sane(t, data, readGBS)
		}
		if bytes.HasPrefix(data, []byte("xclbin")) && len(data) > 8 {
			sane(t, data, readXclbin)
		}
	})
}
