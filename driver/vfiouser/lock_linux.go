package vfiouser

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/runfile"
)

// A lockFile is held by one process at a time, until it ends, and says which.
type lockFile struct{ f *os.File }

// takeLock takes the lock, or names who has it.
func takeLock(path string) (*lockFile, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, busy(path, "holds")
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		mine, err1 := f.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, named) {
			return &lockFile{f}, nil
		}
		f.Close() // who had it removed it in between
	}
}

// write says who holds the lock, and who uses what it guards; 0: nobody.
func (l *lockFile) write(holder, user int) error {
	text := fmt.Sprintf("holder %d\nuser %d\n", holder, user)
	if _, err := l.f.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return l.f.Truncate(int64(len(text)))
}

// release removes the file and gives the lock up.
func (l *lockFile) release() error {
	if l == nil {
		return nil
	}
	return errors.Join(os.Remove(l.f.Name()), l.f.Close())
}

// readLock returns what write wrote, as far as it can be read.
func readLock(path string) (holder, user int) {
	b, err := runfile.Read(path, 128)
	if err != nil {
		return 0, 0
	}
	fmt.Sscanf(string(b), "holder %d\nuser %d\n", &holder, &user)
	return holder, user
}

// busy is ErrBusy, with the process that does it if that is known.
func busy(path, does string) error {
	who := "another process"
	if holder, _ := readLock(path); holder != 0 {
		who = process(holder)
	}
	return fmt.Errorf("%s %s %s: %w", who, does, path, device.ErrBusy)
}

// process names a process: "process 123 (splicectl)".
func process(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(name)))
}
