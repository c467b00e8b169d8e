//go:build !linux

package discover

import (
	"fmt"
	"io"

	"splicenic/driver/device"
)

type barFile interface{ io.Closer }

func openResource(string) (barFile, error) { return nil, device.ErrNotSupported }

func writable(string) error { return device.ErrNotSupported }

// A BAR is a BAR of a card through sysfs, which this operating system does not have.
type BAR struct{ IO bool }

// OpenBAR fails.
func OpenBAR(Config, string, int) (*BAR, error) {
	return nil, fmt.Errorf("open BAR: %w", device.ErrNotSupported)
}

// Bytes returns 0.
func (b *BAR) Bytes() uint64 { return 0 }

// Load32 fails.
func (b *BAR) Load32(uint64) (uint32, error) { return 0, device.ErrNotSupported }

// Store32 fails.
func (b *BAR) Store32(uint64, uint32) error { return device.ErrNotSupported }

// Close does nothing.
func (b *BAR) Close() error { return nil }
