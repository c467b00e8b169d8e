package regs_test

import (
	"fmt"

	"splicenic/regs"
)

// The frame counter of the server port lies one stride after the client port's.
func ExampleReg_At() {
	r := regs.PortRxFrames.At(regs.PortServer, regs.PortStride)
	fmt.Printf("%s at %#x\n", r.Name(), uint32(r))
	// Output: port.server.rx_frames at 0x12100
}

func ExampleLookupRegister() {
	l, ok := regs.LookupRegister("port[1].status.speed")
	if !ok {
		fmt.Println("no such register")
		return
	}
	fmt.Println(l.Name(), l.Register.Access, l.Field.Get(0x271001), l.Register.Doc)
	// Output: port.server.status.speed ro 10000 State of the link.
}

// An entry is read whole, changed and written back.
func ExampleServerEntry() {
	words := make([]uint32, regs.ServerWords) // as read from BAR2
	var s regs.ServerEntry
	s.Decode(words)
	s.ControlValid, s.ControlKind, s.ControlPort = 1, regs.KindIpv4, 8080
	s.Address[0] = 0xc612010b // 198.18.1.11
	s.Encode(words)
	fmt.Printf("%08x\n", words[:5])
	// Output: [1f900005 00000000 00000000 00000000 c612010b]
}
