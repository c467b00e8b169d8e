package port

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// boundIndex is the index of the interface a packet socket is bound to: 0 when it is not yet, -1 when that interface is
// gone. unix.Getsockname says the same and allocates.
func boundIndex(fd int) int32 {
	a := unix.RawSockaddrLinklayer{Ifindex: -1}
	bytes := uint32(unsafe.Sizeof(a))
	// The kernel writes at most bytes bytes to a, which are its size, and four to bytes, within this call only. Both are
	// of Go types laid out as the kernel's and live until after it, because the conversions stand in the call itself
	// (unsafe.Pointer, rule 4). A failure leaves -1.
	_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&bytes)))
	if errno != 0 {
		return -1
	}
	return a.Ifindex
}
