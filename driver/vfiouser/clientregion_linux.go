package vfiouser

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/mmio"
)

// bars is what the client knows of a region beside its device.Region: the parts that are mapped.
type bars struct{ parts []part }

// part is a mapped part of a region.
type part struct {
	off uint64
	mem []byte
	reg mmio.Region
}

func (b *bars) unmap() (err error) {
	for _, p := range b.parts {
		err = errors.Join(err, unix.Munmap(p.mem))
	}
	b.parts = nil
	return err
}

// find returns the part with n bytes at off, and where in it they are.
func (b *bars) find(off, n uint64) (*part, uint64) {
	for i := range b.parts {
		p := &b.parts[i]
		if off >= p.off && off-p.off < uint64(len(p.mem)) && uint64(len(p.mem))-(off-p.off) >= n {
			return p, off - p.off
		}
	}
	return nil, 0
}

// learnRegion asks about a region and maps what can be.
func (c *Client) learnRegion(index uint32) error {
	room := regionInfoSize(maxAreas)
	k, err := c.ask(cmdRegionInfo, func(b []byte) []byte { return appendRegionInfo(b, regionInfo{argsz: room, index: index}) }, nil)
	if err != nil {
		return err
	}
	defer func() { closeAll(k.fds) }()
	i, err := decodeRegionInfo(k.body)
	if err != nil {
		return err
	}
	switch {
	case i.index != index:
		return violation("region info: asked for %d, got %d", index, i.index)
	case index == regionConfig:
		if i.size < 64 {
			return violation("configuration space of %d bytes", i.size)
		}
		c.config = uint32(min(i.size, configBytes))
		return nil
	}
	r := &c.info.Regions[index]
	r.Size = i.size
	for _, f := range []struct {
		wire uint32
		ours device.RegionFlags
	}{{regionRead, device.RegionRead}, {regionWrite, device.RegionWrite}} {
		if i.flags&f.wire != 0 {
			r.Flags |= f.ours
		}
	}
	if i.flags&regionMmap == 0 || c.opt.NoMmap || i.size == 0 {
		return nil
	}
	if len(k.fds) != 1 {
		return violation("region %d came with %d files", index, len(k.fds))
	}
	if err := c.regions[index].mmap(k.fds[0], i); err != nil {
		return fmt.Errorf("map region %d: %w", index, err)
	}
	r.Flags |= device.RegionMmap
	return nil
}

// mmap maps the areas of a region.
func (b *bars) mmap(fd int, i regionInfo) error {
	page := uint64(os.Getpagesize())
	areas := i.areas
	if i.flags&regionCaps == 0 && len(areas) == 0 {
		areas = []Area{{0, i.size}}
	}
	if err := checkAreas(areas, i.size, page); err != nil {
		return err
	}
	prot := 0
	if i.flags&regionRead != 0 {
		prot |= unix.PROT_READ
	}
	if i.flags&regionWrite != 0 {
		prot |= unix.PROT_WRITE
	}
	for _, a := range areas {
		if i.offset > math.MaxInt64-a.Offset || i.offset%page != 0 {
			return violation("file offset %#x", i.offset)
		}
		mem, err := unix.Mmap(fd, int64(i.offset+a.Offset), int(a.Size), prot, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		reg, err := mmio.NewRegion(mem)
		if err != nil {
			return errors.Join(err, unix.Munmap(mem))
		}
		b.parts = append(b.parts, part{a.Offset, mem, reg})
	}
	return nil
}

// Load32 loads from a region.
func (c *Client) Load32(region int, off uint64) uint32 {
	v, ok := c.load(region, off, 4)
	if !ok {
		return ^uint32(0)
	}
	return uint32(v)
}

// Load64 loads from a region.
func (c *Client) Load64(region int, off uint64) uint64 {
	v, ok := c.load(region, off, 8)
	if !ok {
		return ^uint64(0)
	}
	return v
}

// Store32 stores to a region.
func (c *Client) Store32(region int, off uint64, v uint32) { c.store(region, off, 4, uint64(v)) }

// Store64 stores to a region.
func (c *Client) Store64(region int, off uint64, v uint64) { c.store(region, off, 8, v) }

// check refuses what is not in a region.
func (c *Client) check(op string, region int, off, n uint64) bool {
	if c.dead.Load() {
		return false
	}
	if region >= 0 && region < device.Regions && off%n == 0 {
		if size := c.info.Regions[region].Size; n <= size && off <= size-n {
			return true
		}
	}
	c.accessFault(op, region, off, device.ErrRange)
	return false
}

func (c *Client) accessFault(op string, region int, off uint64, err error) {
	c.fail(c.fault(fmt.Sprintf("%s region %d at %#x", op, region, off), err))
}

func (c *Client) load(region int, off, n uint64) (uint64, bool) {
	if !c.check("load from", region, off, n) {
		return 0, false
	}
	if len(c.regions[region].parts) > 0 {
		if v, done, err := c.loadMapped(region, off, n); done {
			if err != nil {
				c.accessFault("load from", region, off, err)
			}
			return v, err == nil
		}
	}
	k := c.get(cmdRegionRead)
	defer c.put(k)
	a := regionAccess{offset: off, region: uint32(region), count: uint32(n)}
	k.req = appendRegionAccess(k.req, a)
	c.posted.Store(false)
	err := c.do(k, nil)
	var r regionAccess
	if err == nil {
		r, err = checkRead(k.body, a)
	}
	switch {
	case err != nil:
		c.accessFault("load from", region, off, err)
		return 0, false
	case n == 4:
		return uint64(le.Uint32(r.data)), true
	}
	return le.Uint64(r.data), true
}

// checkRead looks whether a reply is to what was asked.
func checkRead(body []byte, a regionAccess) (regionAccess, error) {
	r, err := decodeRegionAccess(body, true)
	if err == nil && (r.offset != a.offset || r.region != a.region || r.count != a.count) {
		err = violation("reply to a read of %d bytes at %#x of region %d is for %d at %#x of %d", a.count, a.offset, a.region, r.count, r.offset, r.region)
	}
	return r, err
}

func (c *Client) store(region int, off, n, v uint64) {
	if !c.check("store to", region, off, n) {
		return
	}
	if len(c.regions[region].parts) > 0 {
		if done, err := c.storeMapped(region, off, n, v); done {
			if err != nil {
				c.accessFault("store to", region, off, err)
			}
			return
		}
	}
	k := c.get(cmdRegionWrite)
	defer c.put(k)
	k.req = appendRegionAccess(k.req, regionAccess{offset: off, region: uint32(region), count: uint32(n)})
	k.req = le.AppendUint64(k.req, v)[:len(k.req)+int(n)]
	c.posted.Store(true)
	c.post(k, nil) // its error is sticky
}

// LoadBlock loads words, as many as a message carries with each.
func (c *Client) LoadBlock(region int, off uint64, p []byte) {
	for len(p) > 0 && c.checkBlock("load from", region, off, len(p)) {
		n := c.chunk(p) &^ 7
		done, err := c.loadMany(region, off, p[:n])
		if err != nil {
			c.accessFault("load from", region, off, err)
			break
		}
		if !done {
			device.LoadBlock(words{c}, region, off, p)
			return
		}
		p, off = p[n:], off+uint64(n)
	}
	for i := range p {
		p[i] = 0xff
	}
}

// StoreBlock stores words, as many as a message carries with each.
func (c *Client) StoreBlock(region int, off uint64, p []byte) {
	for len(p) > 0 && c.checkBlock("store to", region, off, len(p)) {
		n := c.chunk(p) &^ 7
		done, err := c.storeMany(region, off, p[:n])
		switch {
		case err != nil:
			c.accessFault("store to", region, off, err)
			return
		case !done:
			device.StoreBlock(words{c}, region, off, p)
			return
		}
		p, off = p[n:], off+uint64(n)
	}
}

// words is the Client word by word.
type words struct{ device.Device }

// checkBlock is check for a block: its first word and its last.
func (c *Client) checkBlock(op string, region int, off uint64, n int) bool {
	return c.check(op, region, off, 8) && c.check(op, region, off+uint64(n)-8, 8)
}

// loadMany loads p with one message, unless the region is mapped, where a word costs nothing, or the server refuses more
// than a word at once: then it says so, and is not asked again.
func (c *Client) loadMany(region int, off uint64, p []byte) (done bool, err error) {
	if len(c.regions[region].parts) > 0 || c.small.Load() {
		return false, nil
	}
	k := c.get(cmdRegionRead)
	defer c.put(k)
	a := regionAccess{offset: off, region: uint32(region), count: uint32(len(p))}
	k.req = appendRegionAccess(k.req, a)
	c.posted.Store(false)
	if err := c.do(k, nil); err != nil {
		return false, c.refused(k, err)
	}
	r, err := checkRead(k.body, a)
	copy(p, r.data)
	return err == nil, err
}

// storeMany stores p with one message; see loadMany. It waits for the reply: a refusal would be lost otherwise.
func (c *Client) storeMany(region int, off uint64, p []byte) (done bool, err error) {
	if len(c.regions[region].parts) > 0 || c.small.Load() {
		return false, nil
	}
	k := c.get(cmdRegionWrite)
	defer c.put(k)
	k.req = appendRegionAccess(k.req, regionAccess{offset: off, region: uint32(region), count: uint32(len(p)), data: p})
	if err := c.do(k, nil); err != nil {
		return false, c.refused(k, err)
	}
	c.posted.Store(false)
	return true, nil
}

// refused takes an error reply to a block for "not so much at once"; what else ended the call is returned.
func (c *Client) refused(k *call, err error) error {
	if c.dead.Load() || !k.head.failed() {
		return err
	}
	c.small.Store(true)
	return nil
}

// loadMapped loads from a mapped part, if off is in one.
func (c *Client) loadMapped(region int, off, n uint64) (v uint64, done bool, err error) {
	if c.posted.Load() { // the load must not overtake stores that went by message
		if err := c.configRead(0, make([]byte, 4)); err != nil {
			return 0, true, err
		}
	}
	defer lostPart(debug.SetPanicOnFault(true), &err)
	c.rmu.RLock()
	defer c.rmu.RUnlock()
	p, at := c.regions[region].find(off, n)
	if p == nil {
		return 0, false, nil
	}
	done = true // also if the access faults
	if n == 8 {
		v, _ = p.reg.Load64(at)
		return v, done, nil
	}
	w, _ := p.reg.Load32(at)
	return uint64(w), done, nil
}

func (c *Client) storeMapped(region int, off, n, v uint64) (done bool, err error) {
	defer lostPart(debug.SetPanicOnFault(true), &err)
	c.rmu.RLock()
	defer c.rmu.RUnlock()
	p, at := c.regions[region].find(off, n)
	if p == nil {
		return false, nil
	}
	done = true // also if the access faults
	if n == 8 {
		p.reg.Store64(at, v)
	} else {
		p.reg.Store32(at, uint32(v))
	}
	return done, nil
}

// ReadConfig reads configuration space.
func (c *Client) ReadConfig(off uint32, p []byte) error {
	return c.configAccess("read configuration space", off, p, c.configRead)
}

// WriteConfig writes configuration space.
func (c *Client) WriteConfig(off uint32, p []byte) error {
	return c.configAccess("write configuration space", off, p, c.configWrite)
}

func (c *Client) configAccess(op string, off uint32, p []byte, do func(uint32, []byte) error) error {
	if c.dead.Load() {
		return c.Err()
	}
	err := device.ErrRange
	if uint64(off)+uint64(len(p)) <= uint64(c.config) {
		err = do(off, p)
	}
	if err != nil {
		return c.fault(fmt.Sprintf("%s at %#x", op, off), err)
	}
	return nil
}

// chunk is how much configuration space goes into one message.
func (c *Client) chunk(p []byte) int { return int(min(uint64(len(p)), c.caps.maxTransfer())) }

func (c *Client) configRead(off uint32, p []byte) error {
	for len(p) > 0 {
		k := c.get(cmdRegionRead)
		a := regionAccess{offset: uint64(off), region: regionConfig, count: uint32(c.chunk(p))}
		k.req = appendRegionAccess(k.req, a)
		c.posted.Store(false)
		err := c.do(k, nil)
		var r regionAccess
		if err == nil {
			r, err = checkRead(k.body, a)
		}
		n := copy(p, r.data)
		c.put(k)
		if err != nil {
			return err
		}
		p, off = p[n:], off+uint32(n)
	}
	return nil
}

func (c *Client) configWrite(off uint32, p []byte) error {
	for len(p) > 0 {
		k := c.get(cmdRegionWrite)
		n := c.chunk(p)
		k.req = appendRegionAccess(k.req, regionAccess{offset: uint64(off), region: regionConfig, count: uint32(n), data: p[:n]})
		err := c.do(k, nil)
		c.put(k)
		if err != nil {
			return err
		}
		p, off = p[n:], off+uint32(n)
	}
	return nil
}

// lostPart, deferred, turns a fault on a region into the loss of the device.
func lostPart(old bool, err *error) {
	debug.SetPanicOnFault(old)
	if f := faulted(recover()); f != nil {
		*err = errors.Join(f, device.ErrDeviceLost)
	}
}
