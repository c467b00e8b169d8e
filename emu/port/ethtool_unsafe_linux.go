package port

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// flagLRO is ETH_FLAG_LRO of linux/ethtool.h.
const flagLRO = 1 << 15

// ethtoolBytes is the longest command used here, struct ethtool_cmd.
const ethtoolBytes = 44

// ethtoolRequest is struct ifreq with a pointer, padded to the kernel's 40 bytes.
type ethtoolRequest struct {
	name    [unix.IFNAMSIZ]byte
	command *[ethtoolBytes]byte
	_       [24 - unsafe.Sizeof(uintptr(0))]byte
}

// ethtool sends a command to an interface of the namespace fd belongs to; the answer replaces it.
func ethtool(fd int, name string, command *[ethtoolBytes]byte) error {
	request := ethtoolRequest{command: command}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	// The kernel reads and writes the 40 bytes of request and at most the 44 of command, within this call only. Both live
	// until after it: request because the conversion stands in the call itself (unsafe.Pointer, rule 4), command by
	// KeepAlive. Neither moves: a stack does not grow or shrink during a system call.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(command)
	if errno != 0 {
		return errno
	}
	return nil
}

// setLRO switches large receive offload and says whether it was on before. An interface that has none is fine.
func setLRO(fd int, name string, on bool) (was bool, err error) {
	var command [ethtoolBytes]byte
	order := binary.NativeEndian
	order.PutUint32(command[:], unix.ETHTOOL_GFLAGS)
	if err := ethtool(fd, name, &command); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = nil
		}
		return false, err
	}
	flags := order.Uint32(command[4:])
	was = flags&flagLRO != 0
	if was == on {
		return was, nil
	}
	order.PutUint32(command[:], unix.ETHTOOL_SFLAGS)
	order.PutUint32(command[4:], flags^flagLRO)
	return was, ethtool(fd, name, &command)
}

// settle has the kernel take note of a carrier that has just come; before that it drops silently what is transmitted.
func settle(fd int, name string) {
	var command [ethtoolBytes]byte
	binary.NativeEndian.PutUint32(command[:], unix.ETHTOOL_GLINK)
	_ = ethtool(fd, name, &command) // an interface that does not know its link needs none
}

// speed is an interface's speed in Mbit/s, 0 if it does not tell.
func speed(fd int, name string) uint32 {
	var command [ethtoolBytes]byte
	order := binary.NativeEndian
	order.PutUint32(command[:], unix.ETHTOOL_GSET)
	if ethtool(fd, name, &command) != nil {
		return 0
	}
	// struct ethtool_cmd: speed at 12, speed_hi at 28.
	mbps := uint32(order.Uint16(command[28:]))<<16 | uint32(order.Uint16(command[12:]))
	if mbps == math.MaxUint32 {
		return 0
	}
	return mbps
}
