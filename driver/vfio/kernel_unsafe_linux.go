package vfio

import (
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// linux is the kernel this process runs on.
type linux struct{}

func newKernel() (kernel, error) { return linux{}, nil }

func (linux) open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func (linux) close(fd int) error { return unix.Close(fd) }

// ioctl passes arg by address.
//
// Bounds: the kernel writes at most the size of the structure, or of the bytes, which their first word tells it. Lifetime
// and alignment: the pointer is taken from a live Go variable in the call expression's own frame and kept alive until the
// call is over; memory whose address goes inside a structure comes from mmap or is kept alive beside it.
func (linux) ioctl(fd int, r request, arg any) (int, error) {
	defer runtime.KeepAlive(arg)
	var p unsafe.Pointer
	switch a := arg.(type) {
	case nil:
	case int:
		return call(fd, r, uintptr(a))
	case string:
		b, err := unix.ByteSliceFromString(a)
		if err != nil {
			return -1, unix.EINVAL
		}
		p = unsafe.Pointer(&b[0])
	case []byte:
		p = unsafe.Pointer(&a[0])
	case *int32:
		p = unsafe.Pointer(a)
	case *groupStatus:
		p = unsafe.Pointer(a)
	case *irqInfo:
		p = unsafe.Pointer(a)
	case *dmaUnmap:
		p = unsafe.Pointer(a)
	case *bindIOMMUFD:
		p = unsafe.Pointer(a)
	case *attachIOMMUFD:
		p = unsafe.Pointer(a)
	case *detachIOMMUFD:
		p = unsafe.Pointer(a)
	case *destroyObject:
		p = unsafe.Pointer(a)
	case *ioasAllocate:
		p = unsafe.Pointer(a)
	case *ioasUnmapMemory:
		p = unsafe.Pointer(a)
	case *dmaMapCall:
		a.Vaddr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(a.mem))))
		p = unsafe.Pointer(&a.dmaMap)
	case *ioasMapCall:
		a.Vaddr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(a.mem))))
		p = unsafe.Pointer(&a.ioasMapMemory)
	case *ioasRangesCall:
		if len(a.ranges) > 0 {
			var pin runtime.Pinner // the structure holds the address as a number
			pin.Pin(&a.ranges[0])
			defer pin.Unpin()
			a.Allowed = uint64(uintptr(unsafe.Pointer(&a.ranges[0])))
		}
		p = unsafe.Pointer(&a.ioasIOVARanges)
	default:
		panic(fmt.Sprintf("vfio: %s with a %T", r, arg))
	}
	return callPointer(fd, r, p)
}

func callPointer(fd int, r request, p unsafe.Pointer) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(r), uintptr(p))
		if errno == 0 {
			return int(n), nil
		}
		if errno != unix.EINTR {
			return -1, errno
		}
	}
}

func call(fd int, r request, v uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(r), v)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func (linux) pread(fd int, p []byte, off int64) (int, error) { return unix.Pread(fd, p, off) }

func (linux) pwrite(fd int, p []byte, off int64) (int, error) { return unix.Pwrite(fd, p, off) }

func (linux) mmap(fd int, off int64, n int) ([]byte, error) {
	return unix.Mmap(fd, off, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (linux) munmap(b []byte) error { return unix.Munmap(b) }

// hugeShift is where memfd_create takes the logarithm of the page size.
const hugeShift = 26

func (linux) memfd(name string, n int64, page uint64) (int, error) {
	flags := unix.MFD_CLOEXEC
	if page != 0 {
		flags |= unix.MFD_HUGETLB | bits.TrailingZeros64(page)<<hugeShift
	}
	fd, err := unix.MemfdCreate(name, flags)
	if err != nil {
		return -1, err
	}
	if err := unix.Ftruncate(fd, n); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (linux) eventfd() (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "eventfd"), nil
}

// readEvent reads a non-blocking descriptor and returns how many bytes came.
func readEvent(fd uintptr, b []byte) int {
	n, err := unix.Read(int(fd), b)
	if err != nil {
		return 0
	}
	return n
}

func (linux) closeEvent(f *os.File) error { return f.Close() }

func (linux) memlock() (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return 0, err
	}
	return l.Cur, nil
}

func (linux) pause(d time.Duration) { time.Sleep(d) }
