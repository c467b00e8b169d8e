//go:build !linux

package device

func mapMemory(string, int) ([]byte, error) { return nil, ErrNotSupported }

func unmapMemory([]byte) error { return nil }
