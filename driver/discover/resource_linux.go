package discover

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/vfio"
)

// A barFile is the file of a BAR in sysfs.
type barFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	mmap(n int) ([]byte, error)
}

type resourceFile struct{ *os.File }

func openResource(path string) (barFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		return nil, err
	}
	return resourceFile{f}, nil
}

func (f resourceFile) mmap(n int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// A BAR is a BAR of a card that no process has, through its file in sysfs: memory is mapped and never read by read, which
// the kernel refuses; ports are read and written, and cannot be mapped. Its methods may be called from one goroutine at a
// time, Close from any.
type BAR struct {
	IO   bool
	name string // in errors
	why  func() string

	mu    sync.Mutex
	file  barFile
	bytes uint64
	mem   []byte
	m     *vfio.Mapping
}

// OpenBAR opens a BAR of the device at an address.
func OpenBAR(cfg Config, address string, bar int) (*BAR, error) {
	cfg = cfg.filled()
	at, err := vfio.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	dir := cfg.device(at)
	b := &BAR{name: fmt.Sprintf("BAR%d of %s", bar, at), why: func() string { return situation(dir) }}
	first, last, flags, err := resourceLine(dir, bar)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", b.name, err)
	}
	if flags&(resourceIO|resourceMemory) == 0 || last < first || last-first >= 1<<40 {
		return nil, fmt.Errorf("open %s: it is not there: %w", b.name, device.ErrRange)
	}
	b.IO, b.bytes = flags&resourceIO != 0, last-first+1
	if b.file, err = cfg.resource(filepath.Join(dir, fmt.Sprintf("resource%d", bar))); err != nil {
		return nil, b.fail("open", err)
	}
	if b.IO {
		return b, nil
	}
	if b.mem, err = b.file.mmap(int(b.bytes)); err != nil {
		return nil, errors.Join(b.fail("map", err), b.file.Close())
	}
	if b.m, err = vfio.NewMapping(b.mem, b.bytes); err != nil {
		return nil, errors.Join(b.fail("map", err), unix.Munmap(b.mem), b.file.Close())
	}
	return b, nil
}

// resourceLine returns a line of the file that lists a device's resources.
func resourceLine(dir string, bar int) (first, last, flags uint64, err error) {
	if bar < 0 || bar > 5 {
		return 0, 0, 0, fmt.Errorf("BARs have numbers 0 to 5: %w", device.ErrRange)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "resource"))
	if err != nil {
		return 0, 0, 0, err
	}
	lines := strings.Split(string(raw), "\n")
	if bar >= len(lines) {
		return 0, 0, 0, fmt.Errorf("it is not listed: %w", device.ErrRange)
	}
	var v [3]uint64
	f := strings.Fields(lines[bar])
	if len(f) != len(v) {
		return 0, 0, 0, fmt.Errorf("its line %q has not three numbers", lines[bar])
	}
	for i := range v {
		if v[i], err = strconv.ParseUint(f[i], 0, 64); err != nil {
			return 0, 0, 0, fmt.Errorf("its line %q: %w", lines[bar], err)
		}
	}
	return v[0], v[1], v[2], nil
}

// situation says what about a device may keep its BARs from being used.
func situation(dir string) string {
	s := "no driver has the device"
	if d := link(dir, "driver"); d != "" {
		s = "driver " + d + " has the device"
	}
	if p := text(dir, "power_state"); p != "" {
		s += ", its power state is " + p
	}
	if e := text(dir, "enable"); e == "0" {
		s += ", its memory space is off (echo 1 > " + filepath.Join(dir, "enable") + ")"
	}
	return s
}

func (b *BAR) fail(verb string, err error) error {
	kind := "memory, which is mapped"
	if b.IO {
		kind = "ports, which are read and written"
	}
	return fmt.Errorf("%s %s (%s; %s): %w", verb, b.name, kind, b.why(), err)
}

// Bytes returns its size.
func (b *BAR) Bytes() uint64 { return b.bytes }

func (b *BAR) check(verb string, off uint64) error {
	if b.file == nil {
		return fmt.Errorf("%s %s at %#x: %w", verb, b.name, off, device.ErrClosed)
	}
	if off%4 != 0 || off >= b.bytes || b.bytes-off < 4 {
		return fmt.Errorf("%s %s at %#x: %w", verb, b.name, off, device.ErrRange)
	}
	return nil
}

// Load32 loads a word.
func (b *BAR) Load32(off uint64) (uint32, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.check("load from", off); err != nil {
		return 0, err
	}
	if !b.IO {
		v, ok := b.m.Load32(off)
		if !ok {
			return 0, b.fail("load from", device.ErrDeviceLost)
		}
		return v, nil
	}
	var p [4]byte
	if _, err := b.file.ReadAt(p[:], int64(off)); err != nil {
		return 0, b.fail("load from", err)
	}
	return uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16 | uint32(p[3])<<24, nil
}

// Store32 stores a word.
func (b *BAR) Store32(off uint64, v uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.check("store to", off); err != nil {
		return err
	}
	if !b.IO {
		if !b.m.Store32(off, v) {
			return b.fail("store to", device.ErrDeviceLost)
		}
		return nil
	}
	if _, err := b.file.WriteAt([]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}, int64(off)); err != nil {
		return b.fail("store to", err)
	}
	return nil
}

// Close gives it back. A second call does nothing.
func (b *BAR) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		return nil
	}
	var err error
	if b.mem != nil {
		err = unix.Munmap(b.mem)
	}
	err = errors.Join(err, b.file.Close())
	b.file, b.mem, b.m = nil, nil, nil
	return err
}
