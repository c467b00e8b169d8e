package module

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// TFTP reads requests of the Trivial File Transfer Protocol (RFC 1350): the server answers them from a port of its own
// choice, and that is the connection.
type TFTP struct{}

// Begin makes the reader of a connection.
func (TFTP) Begin(c Conn) Reader { return &tftp{c} }

type tftp struct{ conn Conn }

// Holds says no: datagrams are whole.
func (*tftp) Holds(Direction, []byte) bool { return false }

// opcodes of requests
const (
	readRequest  = 1
	writeRequest = 2
)

func (f *tftp) Read(dir Direction, b []byte) Verdict {
	if dir != FromClient {
		return Verdict{}
	}
	if !request(b) {
		return Verdict{Note: Unreadable}
	}
	at := f.conn.Local
	return Verdict{Note: Expects, Expect: []Expectation{{UDP: true, FromServer: true, At: netip.AddrPortFrom(at.Addr(), at.Port()), Client: f.conn.Client}}}
}

// request says whether a datagram is a request: an opcode, a file's name, a mode, each of the two with a zero byte behind.
func request(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	if op := binary.BigEndian.Uint16(b); op != readRequest && op != writeRequest {
		return false
	}
	name := bytes.IndexByte(b[2:], 0)
	return name > 0 && bytes.IndexByte(b[2+name+1:], 0) > 0
}
