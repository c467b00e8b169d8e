//go:build !linux

package port

import "os"

func openInterface(string) (Port, error) { return nil, ErrNotSupported }
func openTap(string) (Port, error)       { return nil, ErrNotSupported }

// lock locks nothing.
func lock(*os.File, bool) error { return nil }
