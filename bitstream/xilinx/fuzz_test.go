package xilinx

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		s, err := Decode(data)
		if !bytes.Equal(data, before) {
			t.Fatal("Decode changed its input")
		}
		if s == nil {
			if err == nil {
				t.Fatal("neither a stream nor an error")
			}
			return
		}
		s.Fault()
		s.Partial()
		if s.End < 0 || s.End > len(data) || s.Sync < 0 || s.Sync > syncWindow || s.Packets > len(data) || s.Dies < 1 || len(s.IDCodes) > maxIDs || len(s.Jumps) > maxIDs {
			t.Fatalf("%+v of %d bytes", s, len(data))
		}
		if err == nil && s.End+s.Trailing != len(data) {
			t.Fatalf("end %d and %d trailing of %d bytes", s.End, s.Trailing, len(data))
		}
		if err != nil || s.Irregular > 0 || s.Family != Words32 || s.Encrypted || len(s.IDCodes) != 1 || s.Dies != 1 {
			return
		}

		// What the configuration logic says of the check, Decode says too.
		plain := bytes.Clone(data)
		Undo(s.Order, plain[s.Sync%4:])
		l := NewLogic(s.IDCodes[0])
		for p := plain[s.Sync:]; len(p) >= 4; p = p[4:] {
			l.Write(binary.BigEndian.Uint32(p))
			if !l.Synced() {
				break
			}
		}
		if l.Refused() == RefusedCRC && s.Bad == 0 {
			t.Fatal("the configuration logic sees a bad check, Decode does not")
		}
		if l.Up() && s.Bad == 0 && l.Checks > s.Good {
			t.Fatalf("the configuration logic sees %d checks, Decode %d", l.Checks, s.Good)
		}
	})
}

func FuzzLogic(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		l := NewLogic(siliconA200T)
		words, given := 0, 0
		l.Data = func(far uint32, n int, word uint32) {
			if n < 0 || n > max(words, FrameWords-1) {
				t.Fatalf("word %d of frame data after %d words in all", n, words)
			}
			given++
		}
		l.Write(syncWord)
		for p := data; len(p) >= 4; p = p[4:] {
			words++
			l.Write(binary.BigEndian.Uint32(p))
			if l.Refused() != RefusedNothing && (l.Synced() || l.Up()) {
				t.Fatalf("refused %v and yet synced %v, up %v", l.Refused(), l.Synced(), l.Up())
			}
		}
		if given > words*FrameWords {
			t.Fatalf("%d words of frame data from %d words", given, words)
		}
		l.Reset()
		if l.Synced() || l.Up() || l.Started || l.IPROG || l.Refused() != RefusedNothing {
			t.Fatal("Reset keeps state")
		}
	})
}
