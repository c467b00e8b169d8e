package bitstream

import (
	"encoding/binary"
	"fmt"
)

// Cologne Chip's files for GateMate are commands: a byte, a length (two bytes for the memories' content, high one first), their
// CRC, data, the CRC of all so far, and for some commands fixed bytes while the device works. The CRC is X.25's, low byte
// first, anew for each command.

// gateMateCommands, with what follows the data's CRC.
var gateMateCommands = map[byte]string{
	0xc1: "\x00\x00\x00\x00\x00\x00",             // PLL
	0xc2: "\x00\x00\x00\x00",                     // mode of configuration
	0xc3: "",                                     // reset
	0xc5: "",                                     // flash
	0xc6: "",                                     //
	0xc7: "",                                     //
	0xc8: "",                                     // column and row of a tile
	0xc9: "",                                     // address
	0xca: "",                                     // a tile's latches
	0xcc: "",                                     //
	0xce: "",                                     // column and row of a memory
	0xd2: "",                                     // content of a memory
	0xd7: "",                                     // SERDES
	0xd8: "",                                     // die to die
	0xd9: "\x00\x00\x00\x00\x33\x00\x00\x00\x00", // path to a die
	0xda: "\x00\x00",                             // jump
	0xdb: "\x00\x00\x00\x00\x33\x00\x00\x00\x00", // status
	0xdc: "",                                     // wait for a PLL
	0xdd: "",                                     // which PLL
	0xde: "\x00\x00\x00",                         // slave
}

func crcX25(crc uint16, p []byte) uint16 { return crcLsb(crc8408, crc, p) }

// isGateMate wants a whole first command, with both CRCs.
func isGateMate(head []byte) bool {
	if len(head) < 7 || head[0] != 0xd9 || head[1] != 1 {
		return false
	}
	return ^crcX25(0xffff, head[:2]) == binary.LittleEndian.Uint16(head[2:]) && ^crcX25(0xffff, head[:5]) == binary.LittleEndian.Uint16(head[5:])
}

func readGateMate(data []byte) (*Image, error) {
	img := &Image{Format: GateMate, Vendor: "colognechip", Order: AsIs, Whole: true, Check: Integrity{State: Valid}}
	img.Payload = Span{0, int64(len(data))}
	c := &img.Check
	invalid := func(format string, args ...any) {
		if c.State == Valid {
			c.State, c.Why = Invalid, fmt.Sprintf(format, args...)
		}
	}
	cut := func(at int) {
		img.Whole = false
		invalid("the file ends at byte %d, in the command that starts at byte %d: it is cut off, fetch it again", len(data), at)
	}
	unused := 0 // from there on commands have no CRC
	dies, tiles, x, y := 1, 0, 0, 0
	started := false
	pos := 0
	for pos < len(data) {
		at := pos
		command := data[at]
		if command == 0 { // nothing: the device gets time
			pos++
			continue
		}
		fixed, ok := gateMateCommands[command]
		if !ok {
			if allFF(data[at:]) {
				break
			}
			img.Whole = false
			invalid("byte %d: %02x starts no command", at, command)
			break
		}
		head, sum := 2, 2
		if command == 0xd2 {
			head = 3
		}
		if unused > 0 {
			sum = 0
		}
		if at+head > len(data) {
			cut(at)
			break
		}
		n := int(data[at+1])
		if command == 0xd2 {
			n = int(binary.BigEndian.Uint16(data[at+1:]))
		}
		end := at + head + sum + n + sum + len(fixed)
		if end > len(data) {
			cut(at)
			break
		}
		block := data[at+head+sum : at+head+sum+n]
		if sum > 0 {
			crc := crcX25(0xffff, data[at:at+head])
			if got := binary.LittleEndian.Uint16(data[at+head:]); got != ^crc { // the length is not to be trusted
				img.Whole = false
				invalid("the command at byte %d: the CRC of its head is %04x in the file, %04x over its bytes", at, got, ^crc)
				break
			}
			crc = crcX25(crc, data[at+head:at+head+sum+n])
			if got := binary.LittleEndian.Uint16(data[end-len(fixed)-sum:]); got == ^crc {
				c.Checks += 2
			} else {
				invalid("the command at byte %d: the CRC of its data is %04x in the file, %04x over its bytes", at, got, ^crc)
			}
		}
		if string(data[end-len(fixed):end]) != fixed {
			invalid("the command at byte %d: it is followed by % x instead of % x", at, data[end-len(fixed):end], fixed)
		}
		switch command {
		case 0xc2:
			if n > 1 && block[1] == 2 {
				unused = end
				img.Field("crc", fmt.Sprintf("none from byte %d on", end))
			} else if n > 1 && block[1] == 1 {
				img.Field("crc", "the device ignores it")
			}
			if n >= 6 {
				img.Field("spi mode", map[byte]string{0x50: "dual", 0xf0: "quad"}[block[2]])
			}
		case 0xca:
			tiles++
		case 0xd9:
			started = false
			switch {
			case n == 0:
			case block[0] == 1:
				x, y = 0, 0
			case block[0] == 2 && y < 15:
				y++
			case block[0] == 4 && x < 15:
				x++
			case block[0] == 0x10:
				dies = max(dies, (x+1)*(y+1))
			}
		case 0xda:
			if n == 4 {
				img.Field("jump", fmt.Sprintf("to %#06x of the flash", binary.LittleEndian.Uint32(block)))
			}
		case 0xdb:
			started = true
		}
		pos = end
		if len(img.Fields) > 100 {
			img.Whole = false
			invalid("byte %d: more settings than any image has", at)
			break
		}
	}
	img.Part = fmt.Sprintf("CCGM1A%d (geometry only)", dies)
	img.Field("tiles", fmt.Sprint(tiles))
	if !started || x != 0 || y != 0 { // the die that has the flash comes last
		img.Whole = false
		invalid("the file ends at byte %d without the command that starts the first die (db): it is cut off, fetch it again", len(data))
	}
	if c.State == Valid && unused > 0 && unused < len(data) {
		c.State, c.Why = NotCheckable, fmt.Sprintf("%d checks agree; from byte %d on it was made without CRCs", c.Checks, unused)
	}
	img.Segments = []Segment{{0, data}}
	return img, nil
}
