//go:build !linux

package card

import (
	"context"
	"time"

	"splicenic/driver/device"
)

// Start fails: card processes need Linux.
func Start(context.Context, Config, Launch) (*Process, error) { return nil, device.ErrNotSupported }

// Find finds nobody.
func Find(context.Context, string) (*Process, error) { return nil, nil }

// Close does nothing.
func (p *Process) Close() {}

// Stop has nobody to end.
func (p *Process) Stop(context.Context) error { return device.ErrNotSupported }

// Ended says yes.
func (p *Process) Ended(time.Duration) bool { return true }
