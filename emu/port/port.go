// Package port is where the emulated card's frames come from and go to: a pair in memory, a capture file, a kernel
// interface.
//
// A port moves frames in batches and never blocks. Buffers are the card's: a port fills them in Receive and has let go
// of them when Transmit returns. A port belongs to one goroutine at a time unless its type says otherwise; none starts
// a goroutine.
package port

import "splicenic/emu/frame"

// Port is one wire of the card.
type Port interface {
	// MAC is the station address the port begins with; MTU the largest IP packet of one wire frame.
	MAC() [6]byte
	MTU() int
	// Link is the state of the link. The card asks at most once a millisecond.
	Link() LinkState

	// Receive fills Buf[Start:End] and Offload of up to len(fs) frames and returns how many. It never blocks. Start is
	// preset to frame.Headroom; a port that puts a VLAN tag back moves it four bytes to the front. Each Buf has at least
	// BufferBytes bytes. A frame that does not fit has End beyond its buffer: the card counts and drops it.
	Receive(fs []frame.Frame) int

	// Transmit sends frames in order and returns how many were taken, from the first on. It never blocks. The frames'
	// Offload asks for no more than Offloads says.
	Transmit(fs []*frame.Frame) int

	// BufferBytes is how large a receive buffer has to be, frame.Headroom included.
	BufferBytes() int
	// Offloads says what Transmit accepts.
	Offloads() Offloads

	// FD is a descriptor to poll for input, or -1.
	FD() int
	// Overruns is how many frames were lost before Receive could take them, since the port was made. The card asks ten
	// times a second.
	Overruns() uint64

	Close() error
}

// LinkState is the state of a link.
type LinkState struct {
	Up   bool
	Mbps uint32
	// Err is why the link is down for good, until the port is opened anew; always the same once it is there. Nil: the
	// link may come up.
	Err error
}

// Offloads says what a port does for a frame's sender.
type Offloads struct {
	Checksum     bool // completes partial checksums
	Segmentation bool // takes coalesced TCP segments whole
}

// Refuser is a port that finds out after Transmit that its wire would not have a frame. Refused is how many, since the
// port was made; each was counted as taken. The card asks ten times a second.
type Refuser interface {
	Refused() uint64
}

// Notifier is a port that has no descriptor but tells when input has come: wake is called from whatever goroutine
// brought it, after each frame that met an empty queue. A nil wake ends it.
type Notifier interface {
	Notify(wake func())
}
