//go:build !linux

package discover

import (
	"fmt"

	"splicenic/driver/device"
)

// List fails: this operating system has no sysfs.
func List(Config) ([]Candidate, error) {
	return nil, fmt.Errorf("list pci devices: %w", device.ErrNotSupported)
}
