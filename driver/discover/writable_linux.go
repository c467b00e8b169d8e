package discover

import (
	"os"

	"golang.org/x/sys/unix"
)

// writable says why this user may not read and write a file.
func writable(path string) error {
	if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	return nil
}
