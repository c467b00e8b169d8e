package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"splicenic/driver/device"
)

// A bar is a region with the parts of it that are mapped. Accesses hold mu, and so does whoever takes the mappings away.
type bar struct {
	mu    sync.Mutex
	info  region
	areas []area
	table []span // MSI-X table and pending bits: the kernel's
	word  [8]byte
}

// An area is a part that is mapped.
type area struct {
	off, bytes uint64
	mem        []byte // as mapped: whole pages
	m          *Mapping
}

// readRegions asks for every region of PCI and keeps the BARs, the ROM and configuration space.
func (d *Device) readRegions() error {
	page := uint64(os.Getpagesize())
	for i := range regionConfig + 1 {
		b, err := d.query(d.fd, d.on, deviceGetRegion, 32, i)
		if err != nil {
			return err
		}
		r, err := parseRegion(b, i, page)
		if err != nil {
			return &ReplyError{fmt.Sprintf("%s %d", deviceGetRegion, i), err.Error()}
		}
		if i == regionConfig {
			d.config = r
			break
		}
		d.bars[i].info = r
		f := device.RegionFlags(0)
		if r.flags&regionFlagRead != 0 {
			f |= device.RegionRead
		}
		if r.flags&regionFlagWrite != 0 {
			f |= device.RegionWrite
		}
		if r.flags&regionFlagMmap != 0 {
			f |= device.RegionMmap
		}
		d.info.Regions[i] = device.Region{Size: r.size, Flags: f}
	}
	if d.config.size < configHeader {
		return &ReplyError{deviceGetRegion.String() + " 7", fmt.Sprintf("configuration space of %d bytes", d.config.size)}
	}
	return nil
}

// mapBARs maps what the kernel lets be mapped. It says nothing about which address the BAR has in the machine, and the
// descriptor's offset of a region is what it told, not what it used to be.
func (d *Device) mapBARs() error {
	n := min(d.config.size, configBytes)
	config := make([]byte, n)
	if err := d.readConfig(0, config); err != nil {
		return err
	}
	cs, err := Capabilities(config)
	if errors.Is(err, device.ErrDeviceLost) {
		return err
	}
	tables, _ := msixTables(config, cs)
	for i := range regionROM {
		b := &d.bars[i]
		b.table = tables[i]
		for _, a := range b.mappable(uint64(os.Getpagesize())) {
			if err := d.mapArea(i, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// mappable returns the parts of a BAR that may be mapped: all of it, the areas the kernel lists, or what the pages of the
// MSI-X table leave where the kernel does not say that they may be mapped, too.
func (b *bar) mappable(page uint64) []sparseArea {
	r := &b.info
	if r.flags&regionFlagMmap == 0 || r.size == 0 {
		return nil
	}
	if r.sparse {
		return r.areas
	}
	parts := []sparseArea{{0, r.size}}
	if r.msixMappable {
		return parts
	}
	for _, t := range b.table {
		first, last := t.off&^(page-1), (t.off+t.bytes+page-1)&^(page-1)
		var rest []sparseArea
		for _, p := range parts {
			end := p.Offset + p.Size
			if first >= end || last <= p.Offset {
				rest = append(rest, p)
				continue
			}
			if p.Offset < first {
				rest = append(rest, sparseArea{p.Offset, first - p.Offset})
			}
			if last < end {
				rest = append(rest, sparseArea{last, end - last})
			}
		}
		parts = rest
	}
	return parts
}

func (d *Device) mapArea(i int, a sparseArea) error {
	b := &d.bars[i]
	page := uint64(os.Getpagesize())
	bytes := (a.Size + page - 1) &^ (page - 1)
	mem, err := d.k.mmap(d.fd, int64(b.info.offset+a.Offset), int(bytes))
	if err != nil {
		return d.explain("mmap", fmt.Sprintf("region %d of %s, %#x bytes at %#x", i, d.address, a.Size, a.Offset), err)
	}
	m, err := NewMapping(mem, a.Size)
	if err != nil {
		return errors.Join(err, d.k.munmap(mem))
	}
	b.areas = append(b.areas, area{a.Offset, a.Size, mem, m})
	return nil
}

func (d *Device) unmapBARs() error {
	var err error
	for i := range d.bars {
		b := &d.bars[i]
		b.mu.Lock()
		for _, a := range b.areas {
			err = errors.Join(err, d.explain("munmap", fmt.Sprintf("region %d of %s", i, d.address), d.k.munmap(a.mem)))
		}
		b.areas = nil
		b.mu.Unlock()
	}
	return err
}

// place returns the mapping an access of n bytes at off goes through and the offset in it, or nil where it goes through the
// descriptor. The MSI-X table is the kernel's even where it is mapped: the descriptor's way guards it.
func (b *bar) place(off, n uint64) (*Mapping, uint64) {
	for _, t := range b.table {
		if t.overlaps(off, n) {
			return nil, 0
		}
	}
	for i := range b.areas {
		if a := &b.areas[i]; off >= a.off && off-a.off <= a.bytes-min(n, a.bytes) && n <= a.bytes {
			return a.m, off - a.off
		}
	}
	return nil, 0
}

// enter checks an access and locks its region; ok is false where there is nothing to do any more.
func (d *Device) enter(verb string, region int, off, n uint64) (b *bar, ok bool) {
	if d.dead.Load() {
		return nil, false
	}
	if region < 0 || region >= device.Regions || off%n != 0 || n > d.bars[region].info.size || off > d.bars[region].info.size-n {
		d.fail(d.fault(access(verb, region, off), device.ErrRange))
		return nil, false
	}
	b = &d.bars[region]
	b.mu.Lock()
	if d.dead.Load() { // it was closed meanwhile
		b.mu.Unlock()
		return nil, false
	}
	return b, true
}

func access(verb string, region int, off uint64) string {
	return fmt.Sprintf("%s region %d at %#x", verb, region, off)
}

var errRevoked = errors.New("the kernel took the mapping away: the device was removed, reset or powered down")

// transfer moves n bytes of b.word by the descriptor and says whether it did; b is locked.
func (d *Device) transfer(write bool, region int, b *bar, off, n uint64) bool {
	call, verb := "pread", "load from"
	var got int
	var err error
	if at := int64(b.info.offset + off); write {
		call, verb = "pwrite", "store to"
		got, err = d.k.pwrite(d.fd, b.word[:n], at)
	} else {
		got, err = d.k.pread(d.fd, b.word[:n], at)
	}
	if err == nil && got == int(n) {
		return true
	}
	op, on := access(verb, region, off), fmt.Sprintf("region %d of %s at %#x", region, d.address, off)
	if err == nil {
		d.lost(op, &ReplyError{call + " on " + on, fmt.Sprintf("%d of %d bytes", got, n)})
		return false
	}
	silent := errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO)
	err = d.explain(call, on, err)
	if silent {
		d.lost(op, err)
	} else {
		d.fail(d.fault(op, err))
	}
	return false
}

// Load32 loads a word.
func (d *Device) Load32(region int, off uint64) uint32 {
	b, ok := d.enter("load from", region, off, 4)
	if !ok {
		return ^uint32(0)
	}
	defer b.mu.Unlock()
	if m, at := b.place(off, 4); m != nil {
		v, ok := m.Load32(at)
		if !ok {
			d.lost(access("load from", region, off), errRevoked)
			return ^uint32(0)
		}
		return v
	}
	if !d.transfer(false, region, b, off, 4) {
		return ^uint32(0)
	}
	return binary.LittleEndian.Uint32(b.word[:])
}

// Store32 stores a word.
func (d *Device) Store32(region int, off uint64, v uint32) {
	b, ok := d.enter("store to", region, off, 4)
	if !ok {
		return
	}
	defer b.mu.Unlock()
	if m, at := b.place(off, 4); m != nil {
		if !m.Store32(at, v) {
			d.lost(access("store to", region, off), errRevoked)
		}
		return
	}
	binary.LittleEndian.PutUint32(b.word[:], v)
	d.transfer(true, region, b, off, 4)
}

// Load64 loads a 64-bit word.
func (d *Device) Load64(region int, off uint64) uint64 {
	b, ok := d.enter("load from", region, off, 8)
	if !ok {
		return ^uint64(0)
	}
	defer b.mu.Unlock()
	if m, at := b.place(off, 8); m != nil {
		v, ok := m.Load64(at)
		if !ok {
			d.lost(access("load from", region, off), errRevoked)
			return ^uint64(0)
		}
		return v
	}
	if !d.transfer(false, region, b, off, 8) {
		return ^uint64(0)
	}
	return binary.LittleEndian.Uint64(b.word[:])
}

// Store64 stores a 64-bit word.
func (d *Device) Store64(region int, off uint64, v uint64) {
	b, ok := d.enter("store to", region, off, 8)
	if !ok {
		return
	}
	defer b.mu.Unlock()
	if m, at := b.place(off, 8); m != nil {
		if !m.Store64(at, v) {
			d.lost(access("store to", region, off), errRevoked)
		}
		return
	}
	binary.LittleEndian.PutUint64(b.word[:], v)
	d.transfer(true, region, b, off, 8)
}

// FD returns the device's descriptor, which stays the Device's.
func (d *Device) FD() int { return d.fd }

// A Part is a piece of a region that may be mapped through the device's descriptor.
type Part struct{ Offset, Size uint64 }

// RegionFile says how a region is reached through the device's descriptor: by pread and pwrite at its offset, and, part by
// part, by mmap at offset plus the part's. It is for a process that serves the device to another one.
func (d *Device) RegionFile(region int) (offset uint64, parts []Part, err error) {
	if region < 0 || region >= device.Regions {
		return 0, nil, d.fault(fmt.Sprintf("describe region %d", region), device.ErrRange)
	}
	b := &d.bars[region]
	for _, a := range b.mappable(uint64(os.Getpagesize())) {
		parts = append(parts, Part(a))
	}
	return b.info.offset, parts, nil
}
