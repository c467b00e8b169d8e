package vfio

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

func errnoName(e syscall.Errno) string {
	if s := unix.ErrnoName(e); s != "" {
		return s
	}
	return fmt.Sprintf("errno %d", int(e))
}
