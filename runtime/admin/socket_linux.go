package admin

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// peer is the user at the other end of a socket, as the kernel knows it.
func peer(c net.Conn) (uid uint32, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a UNIX socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	if e := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
}

// lock takes the file for as long as it is open.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrRunning
	}
	return err
}

// rootIs returns which user of the machine root is: another than 0 in a user namespace where even root may not make rootDir.
// The root of a container, who may, is as good as root.
func rootIs() int {
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || mayWrite(rootDir) || mayWrite(filepath.Dir(rootDir)) {
		return 0
	}
	return outside(string(uidMap))
}

func mayWrite(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }

// refused says that nobody listens on a socket.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
