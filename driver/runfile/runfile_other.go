//go:build !linux

package runfile

import "splicenic/driver/device"

// Read fails: run directories need Linux.
func Read(string, int64) ([]byte, error) { return nil, device.ErrNotSupported }
