//go:build !linux

package decap

import (
	"fmt"
	"runtime"

	"splicenic/tools/netlab"
)

// Start fails: only Linux has network namespaces.
func Start(Config) (*Decap, error) {
	return nil, fmt.Errorf("start decapsulation on %s: %w", runtime.GOOS, netlab.ErrNotPermitted)
}

// Decap is the far end of tunnels. There is none on this system.
type Decap struct{}

// Counters tells nothing.
func (d *Decap) Counters() Counters { return newCounters() }

// Close does nothing.
func (d *Decap) Close() error { return nil }
