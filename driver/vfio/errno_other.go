//go:build !linux

package vfio

import (
	"fmt"
	"syscall"
)

func errnoName(e syscall.Errno) string { return fmt.Sprintf("errno %d", int(e)) }
