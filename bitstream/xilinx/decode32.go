package xilinx

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Registers of the parts with 32-bit packets. Virtex-II and Spartan-3 have another two: their IDCODE is 14, and 11 is the
// frame length.
const (
	regCRC    = 0
	regFAR    = 1
	regFDRI   = 2
	regFDRO   = 3
	regCMD    = 4
	regCTL0   = 5
	regMASK   = 6
	regSTAT   = 7
	regLOUT   = 8
	regCOR0   = 9
	regMFWR   = 10
	regCBC    = 11
	regIDCODE = 12
	regAXSS   = 13
	regCOR1   = 14
	regWBSTAR = 16
	regTIMER  = 17
	regDWC    = 26 // how many words that follow are encrypted
	regBOUT   = 30

	regFLR3    = 11
	regIDCODE3 = 14
)

var names32 = [32]string{"CRC", "FAR", "FDRI", "FDRO", "CMD", "CTL0", "MASK", "STAT", "LOUT", "COR0", "MFWR", "CBC", "IDCODE", "AXSS", "COR1",
	"", "WBSTAR", "TIMER", "", "RBCRC", "", "", "BOOTSTS", "", "CTL1", "", "DWC", "", "", "", "BOUT", "BSPI"}

func registerName(reg uint32) string {
	if n := names32[reg&31]; n != "" {
		return n
	}
	return fmt.Sprintf("register %d", reg&31)
}

const ctl0Decrypt = 1 << 6

// A packet of one word is type 31:29, operation 28:27 (0 none, 1 read, 2 write), register 17:13, count 10:0. Type 2 has a
// count in 26:0 and takes the register from the type 1 before it.
const (
	header1   = 0x30000000 // type 1, write
	header2   = 0x50000000 // type 2, write
	reserved1 = 0x07fc1800 // bits of a type 1 that are 0
)

func opcode(w uint32) uint32   { return w >> 27 & 3 }
func register(w uint32) uint32 { return w >> 13 & 31 }

// isSpartan3 tells the two register sets apart by what is written before any frame data: the older parts write an IDCODE,
// whose low bits are the manufacturer, to the register that is COR1 in the newer ones.
func (d *decoder) isSpartan3(at int) bool {
	for range 64 {
		w := be32(d.data, at)
		switch {
		case w == nop32:
			at += 4
			continue
		case w&^uint32(0x1f<<13|0x7ff) != header1 || w&0x7ff == 0:
			return false
		}
		switch register(w) {
		case regIDCODE, regFDRI:
			return false
		case regIDCODE3:
			if be32(d.data, at+4)&0xfff == 0x093 {
				return true
			}
		}
		at += 4 + 4*int(w&0x7ff)
	}
	return false
}

// singles are the registers that hold one word and mean something to us.
const singles = 1<<regCRC | 1<<regFAR | 1<<regCMD | 1<<regCTL0 | 1<<regMASK | 1<<regIDCODE | 1<<regAXSS | 1<<regCOR1 | 1<<regWBSTAR

// maxDepth is how deep images are nested in images; a die's image lies in that of the die before it.
const maxDepth = 8

// A walk goes through the packets of one image.
type walk struct {
	*decoder
	end   int // of the image
	depth int // 0 for the file's own stream, more for the image of a further die inside it
	die   int

	crc, mask, ctl0, wbstar uint32
	filling                 bool // frame data was written: words of 0 are more of it
}

// words reads packets of 32 bits from the one at offset at, behind a sync word, to end.
func (d *decoder) words(at, end, depth int) error {
	w := walk{decoder: d, end: end, depth: depth, die: d.s.Dies - 1}
	var (
		reg     uint32 // of the last type 1
		pending bool   // the last packet was a type 1 without words: type 2 brings them
	)
	for at+4 <= end {
		word := binary.BigEndian.Uint32(d.data[at:])
		d.s.Packets++
		var count int
		switch {
		case word == nop32:
			pending = false
			at += 4
			continue
		case word == 0:
			w.zero(at)
			at += 4
			continue
		case word>>29 == 1:
			if word&reserved1 != 0 && opcode(word) != 0 {
				d.s.irregular(at, word, "reserved bits of a packet are set")
			}
			reg, count = register(word), int(word&0x7ff)
			pending = count == 0 && opcode(word) != 0
		case word>>29 == 2:
			if !pending {
				d.s.irregular(at, word, "words for no register")
			}
			count, pending = int(word&0x7ffffff), false
		case d.s.Encrypted:
			d.finish(at)
			return nil
		default:
			return &FormatError{at, fmt.Sprintf("packet %d: %08x is not a packet", d.s.Packets, word)}
		}
		if op := opcode(word); op != 2 {
			d.s.irregular(at, word, notWrites[op])
			at += 4
			continue
		}
		start := at + 4
		if count > (end-start)/4 {
			return d.truncated(at, end, start+4*count, registerName(reg))
		}
		if at = start + 4*count; count == 0 {
			continue
		}
		next, err := w.write(reg, start, at)
		if next < 0 || err != nil {
			return err
		}
		at = next
	}
	if depth == 0 {
		d.finish(at)
	}
	return nil
}

// notWrites is what is odd about a packet that is not a write.
var notWrites = [4]string{0: "no operation, but with other bits set", 1: "a register is read", 3: "operation without a meaning"}

// zero is a word of 0. Debug images fill up with them between rows; they count as frame data.
func (w *walk) zero(at int) {
	if !w.filling {
		w.s.irregular(at, 0, "zero before any frame data")
	}
	w.crc = w.table.word(w.crc, regFDRI, 0)
	w.s.frames(w.die, 1)
}

// write is the words from start to at, at least one, written to a register. It returns where the next packet is, or a
// negative number when the stream has ended.
func (w *walk) write(reg uint32, start, at int) (int, error) {
	s, payload := w.s, w.data[start:at]
	v := binary.BigEndian.Uint32(payload[len(payload)-4:])
	if len(payload) > 4 && singles>>reg&1 != 0 {
		s.irregular(start-4, be32(w.data, start-4), "several words for a register of one")
	}
	switch reg {
	case regCRC:
		s.check(start, v, w.crc)
		w.crc = 0
		return at, nil
	case regLOUT:
		s.Debug++
		return at, nil
	case regBOUT:
		return at, w.nested(start, at, w.depth)
	}
	w.crc = w.table.words(w.crc, reg, payload)

	switch reg {
	case regFAR:
		s.far(v)
	case regFDRI:
		s.frames(w.die, len(payload)/4)
		w.filling = true
	case regMFWR:
		s.Repeats++
	case regWBSTAR:
		w.wbstar = v
		s.jump(v)
	case regCMD:
		s.command(start, v)
		switch v & 31 {
		case CmdRCRC:
			w.crc = 0
		case CmdIPROG:
			s.reload(w.wbstar)
		case CmdDesync:
			w.crc = 0
			return w.resync(at, w.end, w.depth), nil
		}
	}
	if s.Family == Spartan3 {
		return w.spartan3(reg, start, at, v)
	}
	return w.virtex(reg, start, at, v)
}

// spartan3 is what a write means to the older parts alone.
func (w *walk) spartan3(reg uint32, start, at int, v uint32) (int, error) {
	switch reg {
	case regIDCODE3:
		w.s.idcode(start, v)
	case regFDRI: // the check of a block of frames follows it without a packet
		if at+4 > w.end {
			return at, w.truncated(start, w.end, at+4, "the check of FDRI")
		}
		w.s.check(at, binary.BigEndian.Uint32(w.data[at:]), w.crc)
		w.crc = 0
		at += 4
	}
	return at, nil
}

// virtex is what a write means to the newer parts alone.
func (w *walk) virtex(reg uint32, start, at int, v uint32) (int, error) {
	s := w.s
	switch reg {
	case regMASK:
		w.mask = v
	case regCTL0:
		w.ctl0 = w.ctl0&^w.mask | v&w.mask
		if w.ctl0&ctl0Decrypt != 0 {
			s.Encrypted = true
		}
	case regCBC: // an initial vector of 128 bits
		if at-start == 16 {
			s.Encrypted = true
		}
	case regDWC:
		if !s.Encrypted {
			break
		}
		if int(v) > (w.end-at)/4 {
			return at, w.truncated(start, w.end, at+4*int(v), "encrypted words")
		}
		at += 4 * int(v)
	case regIDCODE:
		s.idcode(start, v)
	case regAXSS:
		if w.depth > 0 {
			break
		}
		if s.UserAccess == nil {
			s.UserAccess = new(uint32)
		}
		*s.UserAccess = v
	}
	return at, nil
}

// nested reads the image of a further die.
func (d *decoder) nested(at, end, depth int) error {
	if depth == maxDepth {
		return &FormatError{at, fmt.Sprintf("images are nested more than %d deep", maxDepth)}
	}
	window := d.data[at:min(end, at+syncWindow)]
	for i := 0; i+4 < len(window); i += 4 {
		if binary.BigEndian.Uint32(window[i:]) == syncWord {
			d.s.Dies++
			return d.words(at+i+4, end, depth+1)
		}
	}
	d.s.irregular(at, be32(d.data, at), "a nested image has no sync word")
	return nil
}

// resync looks for the sync word of a further part of the stream after DESYNC: no operations and padding may stand before
// it. It returns the offset behind it. When there is none the stream has ended, and the result is negative.
func (d *decoder) resync(at, end, depth int) int {
	for at+4 <= end && binary.BigEndian.Uint32(d.data[at:]) == nop32 {
		at += 4
	}
	window := d.data[at:min(end, at+syncWindow)]
	sync := bytes.Index(window, []byte{0xaa, 0x99, 0x55, 0x66})
	if sync >= 0 && sync%4 == 0 && legalStart32(be32(d.data[:end], at+sync+4)) {
		for i := 0; i < sync; i += 4 {
			switch w := binary.BigEndian.Uint32(window[i:]); w {
			case nop32, 0xffffffff, 0, 0x000000bb, 0x11220044:
			default:
				d.s.irregular(at+i, w, "neither padding nor a packet, between DESYNC and the next sync word")
			}
		}
		return at + sync + 4
	}
	if at+4 <= end {
		if w := binary.BigEndian.Uint32(d.data[at:]); w != 0xffffffff && w != 0 {
			d.s.irregular(at, w, "neither padding nor a packet, after DESYNC")
		}
	}
	if depth == 0 {
		d.s.Desynced = true
		d.finish(at)
	}
	return -1
}
