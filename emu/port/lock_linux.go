package port

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes a capture file for this port, alone if it writes there, until the file is closed. It holds against every
// other port, of this process or another. A device is nobody's, and a file system without locks has none.
func lock(f *os.File, alone bool) error {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	how := unix.LOCK_SH | unix.LOCK_NB
	if alone {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	if errors.Is(unix.Flock(int(f.Fd()), how), unix.EWOULDBLOCK) {
		return errShared
	}
	return nil
}
