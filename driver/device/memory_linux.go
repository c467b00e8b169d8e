package device

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mapMemory returns n zeroed bytes outside the Go heap, whose pages the runtime never gives back or moves. The name shows
// in /proc/PID/maps.
func mapMemory(name string, n int) ([]byte, error) {
	fd, err := unix.MemfdCreate("splicenic-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create memfd: %w", err)
	}
	defer unix.Close(fd) // the mapping keeps the file
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return nil, fmt.Errorf("size memfd: %w", err)
	}
	b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map memfd: %w", err)
	}
	return b, nil
}

func unmapMemory(b []byte) error {
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}
