package vfiouser

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/runfile"
)

// rung is a place where memory comes from: a directory and the pages of its file system.
type rung struct {
	dir       string
	pageBytes uint64
}

// rungs returns the places for memory in the order in which they are tried: the largest pages first, Options.Dir last.
func (o *Options) rungs() ([]rung, error) {
	if o.Dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	var rs []rung
	for _, dir := range o.HugeDirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return nil, fmt.Errorf("look at %s: %w", dir, err)
		}
		if fs.Type != unix.HUGETLBFS_MAGIC {
			return nil, fmt.Errorf("%s is not on a hugetlbfs", dir)
		}
		rs = append(rs, rung{dir, uint64(fs.Bsize)})
	}
	slices.SortStableFunc(rs, func(a, b rung) int { return bits.Len64(b.pageBytes) - bits.Len64(a.pageBytes) })
	return append(rs, rung{o.Dir, pageBytes}), nil
}

// pageBytes is the host's page, at least the smallest an IOMMU knows.
var pageBytes = uint64(max(os.Getpagesize(), 4096))

// fits says whether n bytes are worth pages of this size: no more than half is wasted.
func (r *rung) fits(n uint64) bool { return r.pageBytes == pageBytes || n >= r.pageBytes/2 }

// create makes zeroed memory: a file where an entry says, from the first rung that has some. fd stays open.
func create(rungs []rung, e *entry, n uint64) (mem []byte, fd int, err error) {
	for _, r := range rungs {
		if !r.fits(n) {
			continue
		}
		size, _ := roundUp(n, r.pageBytes)
		var err1 error
		e.Dir, e.Bytes, e.PageBytes = r.dir, size, r.pageBytes
		if mem, fd, err1 = createFile(e.path(), r.pageBytes, size); err1 == nil {
			return mem, fd, nil
		}
		err = errors.Join(err, err1)
	}
	return nil, -1, err
}

func (e *entry) path() string { return filepath.Join(e.Dir, e.fileName()) }

// createFile makes a file and maps it. Its pages are there afterwards, so that touching them cannot fail.
func createFile(path string, page, n uint64) (mem []byte, fd int, err error) {
	if err := removeFile(path); err != nil {
		return nil, -1, err
	}
	fd, err = unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, -1, &os.PathError{Op: "create", Path: path, Err: err}
	}
	if mem, err = reserve(fd, page, n); err != nil {
		unix.Close(fd)
		return nil, -1, errors.Join(&os.PathError{Op: fmt.Sprintf("reserve %d bytes in", n), Path: path, Err: err}, os.Remove(path))
	}
	return mem, fd, nil
}

// reserve gives a file its pages and maps it.
func reserve(fd int, page, n uint64) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return nil, err
	}
	flags := unix.MAP_SHARED
	if page == pageBytes {
		if err := unix.Fallocate(fd, 0, 0, int64(n)); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return nil, err
		}
	} else {
		flags |= unix.MAP_POPULATE
	}
	return unix.Mmap(fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, flags)
}

// createMemfd makes zeroed memory without a name.
func createMemfd(name string, n uint64) (mem []byte, fd int, err error) {
	if fd, err = unix.MemfdCreate("splicenic-"+name, unix.MFD_CLOEXEC); err != nil {
		return nil, -1, fmt.Errorf("create memfd: %w", err)
	}
	if mem, err = reserve(fd, pageBytes, n); err != nil {
		unix.Close(fd)
		return nil, -1, fmt.Errorf("reserve %d bytes of memory: %w", n, err)
	}
	return mem, fd, nil
}

// openFile maps what a predecessor left.
func openFile(e *entry) (mem []byte, fd int, err error) {
	path := e.path()
	fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || uint64(st.Size) != e.Bytes) {
		err = fmt.Errorf("it has %d bytes, not %d", st.Size, e.Bytes)
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, int(e.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, -1, &os.PathError{Op: "map", Path: path, Err: err}
	}
	return mem, fd, nil
}

// sweep removes the files of memory that are not in keep.
func sweep(rungs []rung, keep map[string]bool) (err error) {
	for _, r := range rungs {
		es, err1 := os.ReadDir(r.dir)
		err = errors.Join(err, err1)
		for _, e := range es {
			if p := filepath.Join(r.dir, e.Name()); strings.HasPrefix(e.Name(), filePrefix) && !keep[p] {
				err = errors.Join(err, os.Remove(p))
			}
		}
	}
	return err
}

// readState reads what a predecessor wrote; none is an empty one.
func readState(dir string, rungs []rung) ([]entry, error) {
	path := filepath.Join(dir, stateName)
	b, err := runfile.Read(path, maxState)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, r := range rungs {
		dirs = append(dirs, r.dir)
	}
	es, err := decodeState(b, dirs)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w; remove it, and rings start anew", path, err)
	}
	return es, nil
}

// writeState replaces the state file, or removes it where there is nothing to say.
func (c *Client) writeState() error {
	if c.opt.Memfd || c.lock == nil {
		return nil
	}
	var es []entry
	for _, m := range c.live {
		if m.mapped.Load() {
			es = append(es, m.entry)
		}
	}
	path := filepath.Join(c.opt.Dir, stateName)
	if len(es) == 0 {
		return errors.Join(removeFile(path), removeFile(path+".new"))
	}
	b, err := encodeState(es)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// removeFile removes a file that may not be there.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// takeDir makes the directory ours alone.
func (c *Client) takeDir() error {
	lock, err := takeLock(filepath.Join(c.opt.Dir, "lock"))
	if errors.Is(err, device.ErrBusy) {
		return fmt.Errorf("directory for dma memory: %w", err)
	}
	if err != nil {
		return err
	}
	c.lock = lock
	return lock.write(os.Getpid(), os.Getpid())
}
