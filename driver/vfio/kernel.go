package vfio

import (
	"os"
	"time"
)

// A kernel is every system call this package makes. arg of ioctl is nil, an int, a string (sent with its NUL), a *int32,
// a pointer to a structure of abi.go, or bytes that start with their size. Errors are syscall.Errno.
type kernel interface {
	open(path string, flags int) (fd int, err error)
	close(fd int) error
	ioctl(fd int, r request, arg any) (int, error)
	pread(fd int, p []byte, off int64) (int, error)
	pwrite(fd int, p []byte, off int64) (int, error)

	// mmap maps n bytes, shared, for reading and writing.
	mmap(fd int, off int64, n int) ([]byte, error)
	munmap(b []byte) error

	// memfd returns a file of n zero bytes that lives in memory, in pages of the given size; zero: the usual ones.
	memfd(name string, n int64, page uint64) (fd int, err error)

	// eventfd returns a non-blocking event counter; closeEvent ends its reads.
	eventfd() (*os.File, error)
	closeEvent(f *os.File) error

	// memlock is the soft limit of locked memory, all ones: none.
	memlock() (uint64, error)

	pause(d time.Duration)
}
