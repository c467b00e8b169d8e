package flash

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes a file for this flash until it is closed. A file system without locks has none.
func lock(f *os.File) error {
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return errors.New("another card has it; give each card a file of its own")
	}
	return nil
}
