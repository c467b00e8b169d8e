//go:build !linux

package port

import "context"

// Run needs Linux.
func (l *Link) Run(context.Context) error { return ErrNotSupported }
