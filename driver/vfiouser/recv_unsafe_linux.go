package vfiouser

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// recvmsg receives bytes and control data, and no address: the wrappers of the standard library make a new one each time.
//
// Bounds: the lengths given to the kernel are those of the slices, which the caller has made not empty. Lifetime and
// alignment: the pointers are used during the call only; hdr, iov and the slices are named after it, so they live, and a
// goroutine's stack does not move during a system call that has pointers to it as uintptr in its argument list.
func recvmsg(fd int, p, oob []byte, flags int) (n, oobn, got int, err error) {
	_, _ = p[0], oob[0]
	iov := unix.Iovec{Base: &p[0]}
	iov.SetLen(len(p))
	hdr := unix.Msghdr{Iov: &iov, Control: &oob[0]}
	hdr.SetIovlen(1)
	hdr.SetControllen(len(oob))
	r, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdr)), uintptr(flags))
	if errno != 0 {
		return 0, 0, 0, errno
	}
	return int(r), int(hdr.Controllen), int(hdr.Flags), nil
}
