//go:build !linux

package vfio

import (
	"fmt"

	"splicenic/driver/device"
)

func newKernel() (kernel, error) {
	return nil, fmt.Errorf("this operating system has no VFIO: %w", device.ErrNotSupported)
}

func readEvent(uintptr, []byte) int { return 0 }
