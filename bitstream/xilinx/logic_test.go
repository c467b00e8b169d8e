package xilinx

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the logic does, word for word:
//
//	unsynced  sync word                         synced, everything of the last stream forgotten
//	synced    other IDCODE, frames before any   refused: idcode, unsynced
//	synced    CRC that is not the computed one  refused: crc, unsynced
//	synced    no packet, no command             refused: command, unsynced
//	synced    DESYNC                            unsynced; up if START came before
func TestLogicStates(t *testing.T) {
	const id = 0x30018001
	cmd := func(c uint32) []uint32 { return []uint32{0x30008001, c} }
	frame := append([]uint32{0x30004065}, make([]uint32, FrameWords)...)
	for _, k := range []struct {
		name    string
		words   [][]uint32
		synced  bool
		refused Refusal
		up      bool
	}{
		{"nothing before sync counts", [][]uint32{cmd(CmdStart), cmd(CmdDesync), {0x30000001, 5}}, false, RefusedNothing, false},
		{"sync", [][]uint32{{syncWord, nop32}}, true, RefusedNothing, false},
		{"own IDCODE", [][]uint32{{syncWord, id, siliconA200T}}, true, RefusedNothing, false},
		{"own IDCODE of any revision", [][]uint32{{syncWord, id, 0xf3636093}}, true, RefusedNothing, false},
		{"other IDCODE", [][]uint32{{syncWord, id, 0x03631093}}, false, RefusedIDCode, false},
		{"frames before IDCODE", [][]uint32{{syncWord}, frame}, false, RefusedIDCode, false},
		{"repeats before IDCODE", [][]uint32{{syncWord, 0x30014001, 0}}, false, RefusedIDCode, false},
		{"frames", [][]uint32{{syncWord, id, idcodeA200T}, frame}, true, RefusedNothing, false},
		{"zero fill", [][]uint32{{syncWord, id, idcodeA200T}, frame, {0, 0}}, true, RefusedNothing, false},
		{"zero fill before IDCODE", [][]uint32{{syncWord, 0}}, false, RefusedIDCode, false},
		{"type 0 with bits", [][]uint32{{syncWord, id, idcodeA200T}, frame, {1}}, false, RefusedCommand, false},
		{"CRC of nothing", [][]uint32{{syncWord, 0x30000001, 0}}, true, RefusedNothing, false},
		{"wrong CRC", [][]uint32{{syncWord, id, idcodeA200T, 0x30000001, 0}, cmd(CmdStart), cmd(CmdDesync)}, false, RefusedCRC, false},
		{"RCRC", [][]uint32{{syncWord, id, idcodeA200T}, cmd(CmdRCRC), {0x30000001, 0}}, true, RefusedNothing, false},
		{"LOUT is not counted", [][]uint32{{syncWord, 0x30010001, 0x1234, 0x30000001, 0}}, true, RefusedNothing, false},
		{"no packet", [][]uint32{{syncWord, 0xffffffff}}, false, RefusedCommand, false},
		{"words for no register", [][]uint32{{syncWord, 0x50000001, 0}}, false, RefusedCommand, false},
		{"no command", [][]uint32{{syncWord}, cmd(14)}, false, RefusedCommand, false},
		{"no command, high bits", [][]uint32{{syncWord}, cmd(0x100 + CmdStart)}, false, RefusedCommand, false},
		{"a read brings no words", [][]uint32{{syncWord, 0x28018001, nop32}, cmd(CmdStart), cmd(CmdDesync)}, false, RefusedNothing, true},
		{"START alone", [][]uint32{{syncWord}, cmd(CmdStart)}, true, RefusedNothing, false},
		{"DESYNC alone", [][]uint32{{syncWord}, cmd(CmdDesync)}, false, RefusedNothing, false},
		{"START and DESYNC", [][]uint32{{syncWord}, cmd(CmdStart), cmd(CmdDesync)}, false, RefusedNothing, true},
		{"sync word while synced", [][]uint32{{syncWord}, cmd(CmdStart), {syncWord}}, false, RefusedCommand, false},
		{"sync after refusal", [][]uint32{{syncWord, 0xffffffff, syncWord}, cmd(CmdStart), cmd(CmdDesync)}, false, RefusedNothing, true},
		{"sync after DESYNC", [][]uint32{{syncWord}, cmd(CmdStart), cmd(CmdDesync), {syncWord}}, true, RefusedNothing, false},
	} {
		t.Run(k.name, func(t *testing.T) {
			l := NewLogic(siliconA200T)
			for _, w := range slices.Concat(k.words...) {
				l.Write(w)
			}
			if l.Synced() != k.synced || l.Refused() != k.refused || l.Up() != k.up {
				t.Errorf("synced %v, refused %v, up %v; want %v, %v, %v", l.Synced(), l.Refused(), l.Up(), k.synced, k.refused, k.up)
			}
		})
	}
}

func TestLogicJump(t *testing.T) {
	l := NewLogic(siliconA200T)
	for _, w := range []uint32{0xffffffff, syncWord, nop32, 0x30020001, 0x01000000, 0x30008001} {
		l.Write(w)
	}
	if l.IPROG {
		t.Fatal("IPROG before its word")
	}
	l.Write(CmdIPROG)
	if !l.IPROG || l.WBSTAR != 0x01000000 {
		t.Errorf("IPROG %v to %x, want 1000000", l.IPROG, l.WBSTAR)
	}
	for r, want := range []string{"none", "idcode", "crc", "command"} {
		if got := Refusal(r).String(); got != want {
			t.Errorf("refusal %d is %s, want %s", r, got, want)
		}
	}
	l.Reset()
	if l.IPROG || l.WBSTAR != 0 || l.Synced() {
		t.Error("Reset keeps state")
	}
}

// Real images of the 7 series run on the part they are for and are refused by any other.
func TestLogicTakesPackagedImages(t *testing.T) {
	for _, p := range packagedImages(t) {
		if p.family != Words32 || !strings.Contains(p.path, "_xc7") {
			continue
		}
		t.Run(filepath.Base(p.path), func(t *testing.T) {
			data := p.read(t)
			s, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			words := 0
			l := NewLogic(s.IDCodes[0] | 1<<28)
			l.Data = func(uint32, int, uint32) { words++ }
			other := NewLogic(s.IDCodes[0] ^ 1<<12)
			for p := data[s.Sync:]; len(p) >= 4; p = p[4:] {
				l.Write(binary.BigEndian.Uint32(p))
				other.Write(binary.BigEndian.Uint32(p))
			}
			if !l.Up() || l.Checks != 2 || l.Refused() != RefusedNothing {
				t.Errorf("up %v, refused %v, %d checks", l.Up(), l.Refused(), l.Checks)
			}
			if want := s.FrameWords + s.Repeats*FrameWords; words != want {
				t.Errorf("%d words of frames, want %d", words, want)
			}
			if other.Up() || other.Refused() != RefusedIDCode {
				t.Errorf("on another part: up %v, refused %v", other.Up(), other.Refused())
			}
		})
	}
}
