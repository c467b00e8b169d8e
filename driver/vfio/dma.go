package vfio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"splicenic/driver/device"
)

// maxAlloc bounds one allocation; the card's largest memory is a fraction of it.
const maxAlloc = 4 << 30

// Page sizes that memory is tried in, the largest first, before the usual size. One is sensible where rounding up to it
// wastes at most an eighth.
var hugePages = []uint64{1 << 30, 2 << 20}

// An allocation is memory that the device may use.
type allocation struct {
	dma    *device.DMA // nil: mapped for somebody else
	name   string
	mem    []byte
	own    bool // from mmap of ours
	iova   uint64
	page   uint64
	mapped bool
}

// AllocDMA returns zeroed memory, a memfd in the largest pages that make sense and can be had, mapped at an address in the
// kernel's ranges. Before it asks the kernel to map it compares what is needed with the limits it knows: a *QuotaError says
// how much is needed, how much there is, and how to raise it.
func (d *Device) AllocDMA(name string, size int) (*device.DMA, error) {
	op := fmt.Sprintf("allocate %d bytes of dma memory for %s", size, name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead.Load() {
		return nil, d.Err()
	}
	if size <= 0 || size > maxAlloc {
		return nil, d.fault(op, device.ErrRange)
	}
	if strings.ContainsAny(name, "/\x00") {
		return nil, d.fault(op, fmt.Errorf("name of a file: %w", device.ErrRange))
	}
	if r, ok := d.dom.(*registersOnly); ok {
		return nil, d.fault(op, r.refuse())
	}
	l, err := d.limits()
	if err != nil {
		return nil, d.fault(op, err)
	}
	m, err := d.memory(name, uint64(size), l)
	if err != nil {
		return nil, d.fault(op, err)
	}
	n := uint64(len(m.mem))
	iova, ok := d.space.take(n, m.page)
	if !ok {
		err := fmt.Errorf("no room for %d bytes in the device's iova ranges: %w", n, device.ErrDMA)
		return nil, d.fault(op, errors.Join(err, d.unmapFile(m)))
	}
	m.iova = iova
	if err := d.dom.mapMemory(iova, m.mem, true); err != nil {
		d.space.give(iova)
		return nil, d.fault(op, errors.Join(err, d.unmapFile(m)))
	}
	m.mapped = true
	m.dma = device.NewDMA(m.mem, iova, func() error { return d.free(m) })
	d.live = append(d.live, m)
	return m.dma, nil
}

// memory gets memory for size bytes in the largest sensible pages: 1 GiB, 2 MiB, the usual ones. The last refusal is told.
func (d *Device) memory(name string, size uint64, l Locked) (*allocation, error) {
	var err error
	for _, page := range d.ladder(size) {
		unit := max(page, d.space.page)
		n, _ := up(size, unit)
		if err = l.Room(n); err != nil {
			continue
		}
		var mem []byte
		if mem, err = d.mapFile(name, n, page); err == nil {
			return &allocation{name: name, mem: mem, own: true, page: unit}, nil
		}
	}
	return nil, err
}

// ladder returns the page sizes to try for an allocation; zero is the usual one.
func (d *Device) ladder(size uint64) []uint64 {
	var ps []uint64
	for _, p := range hugePages {
		if n, ok := up(size, p); ok && !d.o.NoHugePages && n-size <= size/8 {
			ps = append(ps, p)
		}
	}
	return append(ps, 0)
}

func (d *Device) mapFile(name string, n, page uint64) ([]byte, error) {
	on := fmt.Sprintf("memory of %d bytes for %s", n, name)
	if page != 0 {
		on = fmt.Sprintf("memory of %d bytes in pages of %d for %s", n, page, name)
	}
	fd, err := d.k.memfd("splicenic-"+name, int64(n), page)
	if err != nil {
		return nil, d.explain("memfd_create", on, err)
	}
	mem, err := d.k.mmap(fd, 0, int(n))
	err = d.explain("mmap", on, err)
	if e := d.closeAll(fd); e != nil { // the mapping keeps the file
		err = errors.Join(err, e)
		if mem != nil {
			err = errors.Join(err, d.k.munmap(mem))
		}
	}
	if err != nil {
		return nil, err
	}
	return mem, nil
}

func (d *Device) unmapFile(m *allocation) error {
	if m.mem == nil || !m.own {
		return nil
	}
	b := m.mem
	m.mem = nil
	return d.explain("munmap", "memory for "+m.name, d.k.munmap(b))
}

// free is DMA.Close. After the device's Close there is nothing left to do.
func (d *Device) free(m *allocation) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.live, m)
	if i < 0 {
		return nil
	}
	d.live = slices.Delete(d.live, i, i+1)
	if err := errors.Join(d.unmap(m), d.unmapFile(m)); err != nil {
		return d.fault("free dma memory for "+m.name, err)
	}
	return nil
}

// unmap ends the device's use of the memory. An address that the kernel did not give back is not given out again.
func (d *Device) unmap(m *allocation) error {
	if !m.mapped {
		return nil
	}
	m.mapped = false
	if err := d.dom.unmapMemory(m.iova, uint64(len(m.mem))); err != nil {
		return err
	}
	d.space.give(m.iova)
	return nil
}

// unmapAll ends the device's use of all memory. What was allocated stays its owner's; what was mapped for another is
// forgotten, unless it is to be kept.
func (d *Device) unmapAll(keepOthers bool) error {
	var err error
	for _, m := range d.live {
		if m.own || !keepOthers {
			err = errors.Join(err, d.unmap(m))
		}
	}
	d.live = slices.DeleteFunc(d.live, func(m *allocation) bool { return !m.own && !m.mapped })
	return err
}

// freeMemory gives the memory back, at close.
func (d *Device) freeMemory() error {
	var err error
	for _, m := range d.live {
		err = errors.Join(err, d.unmapFile(m))
	}
	d.live = nil
	return err
}

// MapMemory lets the device use memory of the caller at an address the caller chose, to read and perhaps to write; the memory
// is from mmap and stays mapped until UnmapMemory, Reset or Close. It is for a process that serves the device to another one.
func (d *Device) MapMemory(iova uint64, mem []byte, write bool) error {
	op := fmt.Sprintf("map %#x bytes at %#x", len(mem), iova)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead.Load() {
		return d.Err()
	}
	n := uint64(len(mem))
	l, err := d.limits()
	if err == nil {
		err = l.Room(n)
	}
	if err != nil {
		return d.fault(op, err)
	}
	if !d.space.claim(iova, n) {
		return d.fault(op, fmt.Errorf("the range is not aligned, in use, or outside the device's: %w", device.ErrDMA))
	}
	if err := d.dom.mapMemory(iova, mem, write); err != nil {
		d.space.give(iova)
		return d.fault(op, err)
	}
	d.live = append(d.live, &allocation{name: "another process", mem: mem, iova: iova, page: d.space.page, mapped: true})
	return nil
}

// UnmapMemory takes a range back as it was mapped.
func (d *Device) UnmapMemory(iova, n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.Err()
	}
	i := slices.IndexFunc(d.live, func(m *allocation) bool { return m.mapped && !m.own && m.iova == iova && uint64(len(m.mem)) == n })
	op := fmt.Sprintf("unmap %#x bytes at %#x", n, iova)
	if i < 0 {
		return d.fault(op, device.ErrDMA)
	}
	m := d.live[i]
	d.live = slices.Delete(d.live, i, i+1)
	if err := d.unmap(m); err != nil {
		return d.fault(op, err)
	}
	return nil
}

// A Use is a piece of memory the device may use, for diagnostics.
type Use struct {
	Name  string
	Bytes uint64
	IOVA  uint64
	Page  uint64 // size of its pages: what the ladder ended at
}

// Memory lists what the device may use now.
func (d *Device) Memory() []Use {
	d.mu.Lock()
	defer d.mu.Unlock()
	var us []Use
	for _, m := range d.live {
		if m.mapped {
			us = append(us, Use{m.name, uint64(len(m.mem)), m.iova, m.page})
		}
	}
	return us
}

// limits reads what the kernel will hold a mapping against: mappings left in the container, and locked memory.
func (d *Device) limits() (Locked, error) {
	if d.windows.limited {
		w, err := d.dom.windows()
		if err != nil {
			return Locked{}, err
		}
		if w.limited && w.avail == 0 {
			return Locked{}, &QuotaError{What: "dma mappings", Unit: "mappings", Need: 1, Have: 0,
				Detail: fmt.Sprintf("%d in use by this process", d.mappings()),
				Fix:    "echo 1048576 > /sys/module/vfio_iommu_type1/parameters/dma_entry_limit"}
		}
	}
	l, err := readLocked(d.proc)
	if err != nil || l.Unlimited {
		return Locked{Unlimited: true}, nil // where /proc does not tell, the kernel will say
	}
	l.Used = max(l.Used, d.pinned())
	l.Limit, err = d.k.memlock()
	return l, d.explain("getrlimit RLIMIT_MEMLOCK", "the process that uses "+d.address, err)
}

// Room compares what n more bytes need with the limit.
func (l Locked) Room(n uint64) error {
	if l.Unlimited || l.Limit == ^uint64(0) || l.Used <= l.Limit && n <= l.Limit-l.Used {
		return nil
	}
	have := uint64(0)
	if l.Limit > l.Used {
		have = l.Limit - l.Used
	}
	return &QuotaError{What: "locked memory", Unit: "bytes", Need: n, Have: have,
		Detail: fmt.Sprintf("RLIMIT_MEMLOCK is %d, %d are in use", l.Limit, l.Used),
		Fix:    fmt.Sprintf("prlimit --memlock=%d --pid %d, or LimitMEMLOCK=%d in the unit", l.Used+n, os.Getpid(), l.Used+n)}
}

func (d *Device) mappings() (n int) {
	for _, m := range d.live {
		if m.mapped {
			n++
		}
	}
	return n
}

func (d *Device) pinned() (n uint64) {
	for _, m := range d.live {
		if m.mapped {
			n += uint64(len(m.mem))
		}
	}
	return n
}

// Locked is a process's locked memory as /proc shows it.
type Locked struct {
	Used, Limit uint64 // bytes; a limit of all ones is none
	Unlimited   bool   // it may lock as much as it wants
}

const capIPCLock = 14

// ReadLocked returns this process's locked memory and its limit.
func ReadLocked(proc string) (Locked, error) {
	k, err := newKernel()
	if err != nil {
		return Locked{}, err
	}
	l, err := readLocked(proc)
	if err != nil {
		return l, err
	}
	if l.Limit, err = k.memlock(); err != nil {
		return l, fmt.Errorf("read limit of locked memory: %w", err)
	}
	return l, nil
}

// readLocked reads all of it but the limit.
func readLocked(proc string) (Locked, error) {
	b, err := os.ReadFile(filepath.Join(proc, "self/status"))
	if err != nil {
		return Locked{}, fmt.Errorf("read locked memory: %w", err)
	}
	var l Locked
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		if len(f) == 0 {
			continue
		}
		switch key {
		case "VmLck", "VmPin": // type1 counts in one, iommufd in the other
			if kib, err := strconv.ParseUint(f[0], 10, 54); err == nil {
				l.Used += kib << 10
			}
		case "CapEff":
			if caps, err := strconv.ParseUint(f[0], 16, 64); err == nil {
				l.Unlimited = caps>>capIPCLock&1 != 0
			}
		}
	}
	return l, nil
}
