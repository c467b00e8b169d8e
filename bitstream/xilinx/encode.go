package xilinx

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// A Run is frames that follow one another, from a frame address on.
type Run struct {
	FAR   uint32
	Words []uint32
}

// An Encoder makes the stream of a 7-series image.
type Encoder struct {
	IDCode     uint32
	UserAccess uint32 // USR_ACCESS; 0: not written
	WBSTAR     uint32 // where IPROG and a fallback go
	IPROG      bool   // the stream itself goes to WBSTAR, and on behind it where that fails
	Runs       []Run
	Compress   bool // runs of one frame that are equal are written once and repeated
}

// Append appends the stream to b: padding, the words a parallel port tells its width from, the sync word, the packets,
// both checks, and no operations that clock the part through its start.
func (e *Encoder) Append(b []byte) []byte {
	w := writer{b: b}
	w.word(0xffffffff, 8)
	w.word(0x000000bb, 1)
	w.word(0x11220044, 1)
	w.word(0xffffffff, 2)
	w.word(syncWord, 1)
	w.word(nop32, 1)
	w.write(regTIMER, 0)
	w.write(regWBSTAR, e.WBSTAR)
	if e.IPROG {
		w.write(regCMD, CmdIPROG)
	} else {
		w.write(regCMD, CmdNull)
	}
	w.word(nop32, 1)
	w.write(regCMD, CmdRCRC)
	w.word(nop32, 2)
	w.write(regCOR0, 0x02003fe5)
	w.write(regCOR1, 0)
	w.write(regIDCODE, e.IDCode)
	w.write(regCMD, CmdSwitch)
	w.word(nop32, 1)
	w.write(regMASK, 0x401)
	w.write(regCTL0, 0x501)
	if e.UserAccess != 0 {
		w.write(regAXSS, e.UserAccess)
	}
	w.word(nop32, 8)

	follows, repeats := e.equal()
	for i, r := range e.Runs {
		if follows[i] {
			continue
		}
		w.write(regFAR, r.FAR)
		w.write(regCMD, CmdWCFG)
		w.word(nop32, 1)
		w.frames(r.Words)
		if len(repeats[i]) == 0 {
			continue
		}
		w.write(regCMD, CmdMFW)
		w.word(nop32, 12)
		for _, far := range repeats[i] {
			w.write(regFAR, far)
			w.write(regMFWR, 0, 0, 0, 0)
		}
	}

	w.check()
	w.word(nop32, 2)
	w.write(regCMD, CmdGRestore)
	w.word(nop32, 1)
	w.write(regCMD, CmdLFRM)
	w.word(nop32, FrameWords)
	w.write(regCMD, CmdStart)
	w.word(nop32, 1)
	w.write(regFAR, 0x03be0000)
	w.write(regMASK, 0x501)
	w.write(regCTL0, 0x501)
	w.check()
	w.word(nop32, 2)
	w.write(regCMD, CmdDesync)
	w.word(nop32, 64)
	return w.b
}

// equal finds the runs that repeat an earlier one: which they are, and for the earlier one the addresses.
func (e *Encoder) equal() (follows map[int]bool, repeats map[int][]uint32) {
	if !e.Compress {
		return nil, nil
	}
	follows, repeats = make(map[int]bool), make(map[int][]uint32)
	first := make(map[[FrameWords]uint32]int)
	for i, r := range e.Runs {
		if len(r.Words) != FrameWords {
			continue
		}
		frame := [FrameWords]uint32(r.Words)
		j, seen := first[frame]
		if !seen {
			first[frame] = i
			continue
		}
		follows[i] = true
		repeats[j] = append(repeats[j], r.FAR)
	}
	return follows, repeats
}

type writer struct {
	b   []byte
	crc uint32
}

func (w *writer) word(v uint32, times int) {
	for range times {
		w.b = binary.BigEndian.AppendUint32(w.b, v)
	}
}

func (w *writer) write(reg uint32, words ...uint32) {
	w.word(header1|reg<<13|uint32(len(words)), 1)
	for _, v := range words {
		w.word(v, 1)
		w.crc = crc32C.word(w.crc, reg, v)
	}
	if reg == regCMD && words[0] == CmdRCRC {
		w.crc = 0
	}
}

// frames writes frame data, whose length is in a packet of its own.
func (w *writer) frames(words []uint32) {
	w.word(header1|regFDRI<<13, 1)
	w.word(header2|uint32(len(words)), 1)
	for _, v := range words {
		w.word(v, 1)
		w.crc = crc32C.word(w.crc, regFDRI, v)
	}
}

func (w *writer) check() {
	w.word(header1|regCRC<<13|1, 1)
	w.word(w.crc, 1)
	w.crc = 0
}

// A BitHeader is what stands before the stream in a .bit file. Tools write the design as "name;KEY=VALUE;...", the part
// without "xc" for the 7 series, the date as 2006/01/02 and the time as 15:04:05.
type BitHeader struct {
	Design, Part, Date, Time string
}

// Append appends the header of a stream of so many bytes to b.
func (h BitHeader) Append(b []byte, stream int) ([]byte, error) {
	b = append(b, 0, 9, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0, 0, 1)
	for i, text := range []string{h.Design, h.Part, h.Date, h.Time} {
		if len(text) >= 1<<16-1 || strings.IndexByte(text, 0) >= 0 {
			return nil, fmt.Errorf("write .bit header: field %q: %d bytes, of which none may be 0 and which may be %d", "abcd"[i], len(text), 1<<16-2)
		}
		b = append(b, "abcd"[i])
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)+1))
		b = append(append(b, text...), 0)
	}
	if uint64(stream) > 1<<32-1 {
		return nil, fmt.Errorf("write .bit header: %d bytes do not fit into its length of 32 bits", stream)
	}
	return binary.BigEndian.AppendUint32(append(b, 'e'), uint32(stream)), nil
}
