package xilinx_test

import (
	"encoding/binary"
	"fmt"

	"splicenic/bitstream/xilinx"
)

func Example() {
	frame := make([]uint32, xilinx.FrameWords)
	frame[0] = 0x5eed
	e := xilinx.Encoder{IDCode: 0x03636093, UserAccess: 42, Runs: []xilinx.Run{{FAR: 0, Words: frame}}}
	stream := e.Append(nil)

	s, err := xilinx.Decode(stream)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s for %08x, user access %d, %d checks agree, fault %q\n", s.Family, s.IDCodes[0], *s.UserAccess, s.Good, s.Fault())

	// The same stream in a part, and in another one.
	for _, silicon := range []uint32{0x13636093, 0x13631093} {
		l := xilinx.NewLogic(silicon)
		for p := stream; len(p) >= 4 && l.Refused() == xilinx.RefusedNothing; p = p[4:] {
			l.Write(binary.BigEndian.Uint32(p))
		}
		fmt.Printf("%08x: up %v, refused: %v\n", silicon, l.Up(), l.Refused())
	}
	// Output:
	// 32bit for 03636093, user access 42, 2 checks agree, fault ""
	// 13636093: up true, refused: none
	// 13631093: up false, refused: idcode
}
