package vfiouser

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFilesAreBounded: a client's files cannot take all address space of the process, and what goes makes room.
func TestFilesAreBounded(t *testing.T) {
	var f files
	var used []*file
	for {
		fd, err := unix.MemfdCreate("sparse", unix.MFD_CLOEXEC)
		if err == nil {
			err = unix.Ftruncate(fd, maxFileBytes/4)
		}
		if err != nil {
			t.Fatal(err)
		}
		n, err := f.use(fd, 0, 4096, true)
		unix.Close(fd)
		if err != nil {
			if !errors.Is(err, eNOSPC) || len(used) != 4 {
				t.Errorf("file %d: %v, want 4 files and %v", len(used), err, eNOSPC)
			}
			break
		}
		used = append(used, n)
	}
	for _, n := range used {
		if err := f.release(n); err != nil {
			t.Error(err)
		}
	}
	if f.count != 0 || f.bytes != 0 || len(f.open) != 0 {
		t.Errorf("left: %+v", f)
	}
}
