//go:build !linux

package vfiouser

import (
	"context"
	"fmt"

	"splicenic/driver/device"
)

// Server is for Linux.
type Server struct{}

// Listen fails: sockets here carry no file descriptors the way the protocol needs it.
func Listen(path string, _ device.Function, _ Config) (*Server, error) {
	return nil, fmt.Errorf("serve card on %s: %w", path, device.ErrNotSupported)
}

// Serve fails.
func (*Server) Serve(context.Context) error { return device.ErrNotSupported }

// Close fails.
func (*Server) Close() error { return device.ErrNotSupported }

// Client is nobody.
func (*Server) Client() (pid int, gone <-chan struct{}) { return 0, nil }

// Client is for Linux.
type Client struct{ device.Device }

// Dial fails.
func Dial(_ context.Context, path string, _ Options) (*Client, error) {
	return nil, fmt.Errorf("open vfio-user:%s: %w", path, device.ErrNotSupported)
}

// Kept says no.
func (*Client) Kept(*device.DMA) bool { return false }

// ReleaseUnclaimed fails.
func (*Client) ReleaseUnclaimed() error { return device.ErrNotSupported }

// Detach fails.
func (*Client) Detach() error { return device.ErrNotSupported }

// Memory is none.
func (*Client) Memory() []Memory { return nil }
