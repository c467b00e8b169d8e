package xilinx

import (
	"encoding/binary"
	"fmt"
)

// Registers of the parts with 16-bit packets.
const (
	reg16CRC      = 0
	reg16FAR      = 1
	reg16FDRI     = 3
	reg16CMD      = 5
	reg16LOUT     = 9
	reg16IDCODE   = 14
	reg16GENERAL1 = 19 // low half of the address that IPROG goes to
	reg16GENERAL2 = 20 // opcode of the flash, high bits of the address
	reg16MFWR3A   = 24
	reg16MFWR6    = 27
	reg16CBC      = 34
)

var names16 = [64]string{0: "CRC", 1: "FAR", 2: "FAR_MIN", 3: "FDRI", 5: "CMD", 6: "CTL", 7: "MASK", 9: "LOUT", 14: "IDCODE"}

func registerName16(reg uint32) string {
	if n := names16[reg&63]; n != "" {
		return n
	}
	return fmt.Sprintf("register %d", reg)
}

// A walk16 goes through the packets of a stream of 16-bit words.
type walk16 struct {
	*decoder
	crc    uint32
	target uint32 // GENERAL1 and 2
}

// halves reads packets of 16 bits from the one at offset at, behind the sync word. A packet is type 15:13, operation
// 12:11, register 10:5, count 4:0; type 2 has its count in the two words that follow, and its own register.
func (d *decoder) halves(at int) error {
	w := walk16{decoder: d}
	for end := len(d.data); at+2 <= end; {
		h := binary.BigEndian.Uint16(d.data[at:])
		d.s.Packets++
		if h == nop16 {
			at += 2
			continue
		}
		reg, count, start := uint32(h>>5&63), int(h&31), at+2
		switch {
		case h>>13 == 1:
		case h>>13 == 2 && count == 0:
			if start+4 > end {
				return d.truncated(at, end, start+4, registerName16(reg))
			}
			count = int(binary.BigEndian.Uint32(d.data[start:]))
			start += 4
		case d.s.Encrypted:
			d.finish(at)
			return nil
		default:
			return &FormatError{at, fmt.Sprintf("packet %d: %04x is not a packet", d.s.Packets, h)}
		}
		if op := h >> 11 & 3; op != 2 {
			d.s.irregular(at, uint32(h), notWrites[op])
			at = start
			continue
		}
		if count > (end-start)/2 {
			return d.truncated(at, end, start+2*count, registerName16(reg))
		}
		if count == 0 {
			d.s.irregular(at, uint32(h), "a write of no words")
			at = start
			continue
		}
		next, err := w.write(reg, start, start+2*count, h>>13 == 2)
		if next < 0 || err != nil {
			return err
		}
		at = next
	}
	d.finish(at)
	return nil
}

// write is the words from start to at, at least one, written to a register. It returns where the next packet is, or a
// negative number when the stream has ended.
func (w *walk16) write(reg uint32, start, at int, long bool) (int, error) {
	s, payload := w.s, w.data[start:at]
	v := uint32(binary.BigEndian.Uint16(payload[len(payload)-2:]))
	if len(payload) > 2 {
		v = binary.BigEndian.Uint32(payload[len(payload)-4:])
	}
	switch reg {
	case reg16CRC:
		s.check(start, v, w.crc)
		w.crc = 0
		return at, nil
	case reg16LOUT:
		s.Debug++
		return at, nil
	}
	for p := payload; len(p) >= 2; p = p[2:] {
		w.crc = crc22(w.crc, reg, binary.BigEndian.Uint16(p))
	}
	switch reg {
	case reg16FAR:
		s.far(v)
	case reg16FDRI:
		s.frames(0, len(payload)/2)
		if s.Family != Spartan6 || !long {
			break
		}
		// The check follows the frames without a packet; it leaves the register as it is.
		if at+4 > len(w.data) {
			return at, w.truncated(start, len(w.data), at+4, "the check of FDRI")
		}
		s.check(at, binary.BigEndian.Uint32(w.data[at:]), w.crc)
		at += 4
	case reg16MFWR3A:
		if s.Family == Spartan3A {
			s.Repeats++
		}
	case reg16MFWR6:
		if s.Family == Spartan6 {
			s.Repeats++
		}
	case reg16IDCODE:
		s.idcode(start, v)
	case reg16GENERAL1:
		w.target = w.target&^0xffff | v&0xffff
	case reg16GENERAL2:
		w.target = w.target&0xffff | v&0xff<<16
		s.jump(w.target)
	case reg16CBC:
		s.Encrypted = true
	case reg16CMD:
		s.command(start, v)
		switch v & 31 {
		case CmdRCRC:
			w.crc = 0
		case CmdREBOOT:
			s.reload(w.target)
		case CmdDesync:
			w.ended(at)
			return -1, nil
		}
	}
	return at, nil
}

// ended notes the end of the stream, behind DESYNC.
func (w *walk16) ended(at int) {
	for at+2 <= len(w.data) && binary.BigEndian.Uint16(w.data[at:]) == nop16 {
		at += 2
	}
	if at+2 <= len(w.data) {
		if h := binary.BigEndian.Uint16(w.data[at:]); h != 0xffff && h != 0 {
			w.s.irregular(at, uint32(h), "neither padding nor a packet, after DESYNC")
		}
	}
	w.s.Desynced = true
	w.finish(at)
}
