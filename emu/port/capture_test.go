package port

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"splicenic/emu/frame"
)

// FuzzCapture reads arbitrary bytes as a capture file: an error or frames that fit, and never more bytes than there are.
func FuzzCapture(f *testing.F) {
	for _, ng := range []bool{false, true} {
		var b bytes.Buffer
		w := newCaptureWriter(&b, ng)
		for i := range 3 {
			if err := w.write(bytes.Repeat([]byte{byte(i)}, 60+i), int64(i)*1e9); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.flush(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := newCaptureReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		buf := make([]byte, frame.MaxBytes)
		for total := 0; ; {
			if err = r.next(); err != nil {
				break
			}
			if r.bytes > frame.MaxBytes || r.at < 0 {
				t.Fatalf("a frame of %d bytes at %d", r.bytes, r.at)
			}
			if err = r.body(buf); err != nil {
				break
			}
			if total += r.bytes; total > len(b) || r.off > int64(len(b)) {
				t.Fatalf("%d bytes of frames, at offset %d, from %d", total, r.off, len(b))
			}
		}
		var bad *FormatError
		if err != io.EOF && !errors.As(err, &bad) {
			t.Fatalf("unclear error %v", err)
		}
	})
}
