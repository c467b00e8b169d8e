package vfiouser

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// A file is memory that came from a client, mapped once however many DMA maps lead into it: a host may make one for every
// page, and a process may have only so many mappings.
type file struct {
	key  fileKey
	mem  []byte // the whole file
	uses int    // mappings that lead into it
}

// fileKey tells files apart, and what their descriptors allow.
type fileKey struct {
	dev, ino uint64
	write    bool
}

// files are the files in use. They belong to one goroutine at a time.
type files struct {
	open  map[fileKey]*file
	count int
	bytes uint64 // of address space
}

// What a client's files may take of this process: the largest hosts' memory several times over, and always less than
// there is. 1<<47 bytes is all address space of amd64, and vm.max_map_count is 65,530.
const (
	maxFiles     = 4096
	maxFileBytes = 1 << 45
)

const fuseMagic = 0x65735546

// use returns the file behind fd with bytes offset..offset+size-1 inside, and counts one use more. fd stays the caller's.
func (f *files) use(fd int, offset, size uint64, write bool) (*file, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at file: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, violation("dma map of something that is not a file")
	}
	if offset > uint64(st.Size) || size > uint64(st.Size)-offset {
		return nil, violation("dma map of %#x bytes at %#x of a file of %#x", size, offset, st.Size)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("look at file: %w", err)
	}
	key := fileKey{uint64(st.Dev), st.Ino, flags&unix.O_ACCMODE == unix.O_RDWR}
	if write && !key.write {
		return nil, violation("dma map for writing of a file that is open for reading")
	}
	if have := f.open[key]; have != nil && uint64(len(have.mem)) >= offset+size {
		have.uses++
		return have, nil
	}
	return f.mmap(fd, key, st.Size)
}

func (f *files) mmap(fd int, key fileKey, size int64) (*file, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("look at file: %w", err)
	}
	if fs.Type == fuseMagic { // somebody could make every access wait for ever
		return nil, fmt.Errorf("dma map of a file in a user's file system: %w", device.ErrNotSupported)
	}
	prot := unix.PROT_READ
	if key.write {
		prot |= unix.PROT_WRITE
	}
	page := int64(os.Getpagesize())
	if f.count >= maxFiles || f.bytes+uint64(size) > maxFileBytes {
		return nil, fmt.Errorf("dma map of a file of %#x bytes beside %d files of %#x: %w", size, f.count, f.bytes, eNOSPC)
	}
	mem, err := unix.Mmap(fd, 0, int((size+page-1)/page*page), prot, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map file of %d bytes: %w", size, err)
	}
	n := &file{key: key, mem: mem, uses: 1}
	if f.open == nil {
		f.open = map[fileKey]*file{}
	}
	f.count++
	f.bytes += uint64(len(mem))
	f.open[key] = n // one that was shorter stays mapped as long as it is used
	return n, nil
}

// release counts one use less and unmaps what is not used any more.
func (f *files) release(n *file) error {
	if n == nil {
		return nil
	}
	if n.uses--; n.uses > 0 {
		return nil
	}
	if f.open[n.key] == n {
		delete(f.open, n.key)
	}
	f.count--
	f.bytes -= uint64(len(n.mem))
	return unix.Munmap(n.mem)
}
