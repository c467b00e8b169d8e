package vfio

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestRealKernel runs the calls of the real boundary that need no VFIO.
func TestRealKernel(t *testing.T) {
	k, err := newKernel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.open("/nowhere/at/all", unix.O_RDWR); err != unix.ENOENT {
		t.Errorf("open = %v", err)
	}
	if _, err := k.memlock(); err != nil {
		t.Error(err)
	}
	if _, err := k.memfd("test", -1, 0); err == nil {
		t.Error("memfd of -1 bytes")
	}
	fd, err := k.memfd("test", 8192, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := k.mmap(fd, 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := k.pwrite(fd, []byte("hello"), 4096); n != 5 || err != nil || string(b[:5]) != "hello" {
		t.Errorf("pwrite = %d, %v: %q", n, err, b[:5])
	}
	var p [5]byte
	if n, err := k.pread(fd, p[:], 4096); n != 5 || err != nil || string(p[:]) != "hello" {
		t.Errorf("pread = %d, %v: %q", n, err, p)
	}
	fds := int32(fd)
	for _, arg := range []any{nil, 1, "0000:65:00.0", make([]byte, 32), &fds, &groupStatus{}, &irqInfo{}, &dmaUnmap{}, &bindIOMMUFD{}, &attachIOMMUFD{},
		&detachIOMMUFD{}, &destroyObject{}, &ioasAllocate{}, &ioasUnmapMemory{}, &dmaMapCall{mem: b}, &ioasMapCall{mem: b},
		&ioasRangesCall{}, &ioasRangesCall{ranges: make([]iovaRange, 3)}} {
		if _, err := k.ioctl(fd, deviceGetInfo, arg); err != unix.ENOTTY { // a memfd takes none of them
			t.Errorf("ioctl with %T = %v", arg, err)
		}
	}
	if _, err := k.ioctl(fd, deviceGetInfo, "a\x00b"); err != unix.EINVAL {
		t.Errorf("ioctl with a NUL inside = %v", err)
	}
	if err := k.munmap(b); err != nil {
		t.Error(err)
	}
	if err := k.close(fd); err != nil {
		t.Error(err)
	}
	if fd, err := k.memfd("test", 1<<30, 1<<30); err != nil {
		t.Logf("pages of 1 GiB: %v", err)
	} else {
		k.close(fd)
	}
	f, err := k.eventfd()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.closeEvent(f); err != nil {
		t.Error(err)
	}
	if _, err := Open("ffff:ff:1f.7", Options{}); err == nil {
		t.Error("Open of a device that is not there")
	}
}
