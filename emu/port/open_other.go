//go:build !linux

package port

func openInterface(string) (Port, error) { return nil, ErrNotSupported }
func openTap(string) (Port, error)       { return nil, ErrNotSupported }
