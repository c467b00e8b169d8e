package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errProtocol marks what a peer must not send.
var errProtocol = errors.New("vfio-user protocol violated")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errProtocol, fmt.Sprintf(format, args...))
}

// command is what a message asks for.
type command uint16

const (
	cmdVersion       command = 1
	cmdDMAMap        command = 2
	cmdDMAUnmap      command = 3
	cmdDeviceInfo    command = 4
	cmdRegionInfo    command = 5
	cmdRegionIOFDs   command = 6
	cmdIRQInfo       command = 7
	cmdSetIRQs       command = 8
	cmdRegionRead    command = 9
	cmdRegionWrite   command = 10
	cmdDMARead       command = 11 // server to client
	cmdDMAWrite      command = 12 // server to client
	cmdReset         command = 13
	cmdDirtyPages    command = 14
	cmdWriteMulti    command = 15
	cmdDeviceFeature command = 16
	cmdMigRead       command = 17
	cmdMigWrite      command = 18
)

var commandNames = map[command]string{
	cmdVersion: "version", cmdDMAMap: "dma map", cmdDMAUnmap: "dma unmap", cmdDeviceInfo: "device info",
	cmdRegionInfo: "region info", cmdRegionIOFDs: "region io fds", cmdIRQInfo: "irq info", cmdSetIRQs: "set irqs",
	cmdRegionRead: "region read", cmdRegionWrite: "region write", cmdDMARead: "dma read", cmdDMAWrite: "dma write",
	cmdReset: "reset", cmdDirtyPages: "dirty pages", cmdWriteMulti: "region write multi", cmdDeviceFeature: "device feature",
	cmdMigRead: "migration read", cmdMigWrite: "migration write",
}

func (c command) String() string {
	if s, ok := commandNames[c]; ok {
		return s
	}
	return fmt.Sprintf("command %d", uint16(c))
}

// The header of every message:
//
//	0  id u16   2  command u16   4  size u32, with the header   8  flags u32   12  errno u32
const (
	headerBytes = 16
	accessBytes = 16 // what precedes the data of a read or write

	// maxTransfer is the largest data of one read or write that we take and ask for.
	maxTransfer = 1 << 20
	// maxMessage bounds what is ever read for one message, whatever its header claims.
	maxMessage = headerBytes + accessBytes + maxTransfer
	// maxFDs is how many file descriptors we take with one message.
	maxFDs = 16

	flagType    = 0xf
	typeReply   = 1
	flagNoReply = 1 << 4
	flagError   = 1 << 5
)

// header is the head of a message.
type header struct {
	id    uint16
	cmd   command
	size  uint32
	flags uint32
	errno uint32
}

func (h *header) reply() bool   { return h.flags&flagType == typeReply }
func (h *header) noReply() bool { return h.flags&flagNoReply != 0 }
func (h *header) failed() bool  { return h.flags&flagError != 0 }

// decodeHeader reads a header and refuses one that leaves the reader not knowing where the next message starts.
func decodeHeader(b []byte) (header, error) {
	if len(b) < headerBytes {
		return header{}, violation("header of %d bytes", len(b))
	}
	h := header{
		id: binary.LittleEndian.Uint16(b), cmd: command(binary.LittleEndian.Uint16(b[2:])), size: binary.LittleEndian.Uint32(b[4:]),
		flags: binary.LittleEndian.Uint32(b[8:]), errno: binary.LittleEndian.Uint32(b[12:]),
	}
	if h.size < headerBytes || h.size > maxMessage {
		return h, violation("%v message of %d bytes, not %d to %d", h.cmd, h.size, headerBytes, maxMessage)
	}
	if h.flags&flagType > typeReply {
		return h, violation("%v message of type %d", h.cmd, h.flags&flagType)
	}
	return h, nil
}

// putHeader writes h to the first 16 bytes of a message; the size is the message's.
func putHeader(b []byte, h header) {
	binary.LittleEndian.PutUint16(b, h.id)
	binary.LittleEndian.PutUint16(b[2:], uint16(h.cmd))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	binary.LittleEndian.PutUint32(b[8:], h.flags)
	binary.LittleEndian.PutUint32(b[12:], h.errno)
}

// start returns an empty message in b's memory: room for the header, to be followed by the payload and putHeader.
func start(b []byte) []byte { return append(b[:0], make([]byte, headerBytes)...) }
