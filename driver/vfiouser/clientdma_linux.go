package vfiouser

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// memory is one allocation of a Client.
type memory struct {
	entry
	mem     []byte
	mapped  atomic.Bool
	kept    bool        // a predecessor's
	dma     *device.DMA // nil: a predecessor's that nobody asked for yet
	unnamed bool
}

// prepareMemory takes the directory and, to attach again, everything a predecessor left there.
func (c *Client) prepareMemory() error {
	guard := pageBytes
	if c.opt.NoGuard {
		guard = 0
	}
	c.space = newSpace(c.info.IOVA, pageBytes, guard)
	if c.opt.Memfd {
		return nil
	}
	rungs, err := c.opt.rungs()
	if err != nil {
		return err
	}
	if err := c.takeDir(); err != nil {
		return err
	}
	c.rungs = rungs
	keep := map[string]bool{}
	if c.opt.Reattach {
		es, err := readState(c.opt.Dir, rungs)
		if err != nil {
			return err
		}
		if err := c.attach(es, keep); err != nil {
			return err
		}
	}
	return errors.Join(sweep(rungs, keep), c.writeState())
}

// attach maps a predecessor's memory for the device, all at once where the server can. A file that is gone is left out.
func (c *Client) attach(es []entry, keep map[string]bool) error {
	var fds []int
	defer func() { closeAll(fds) }()
	for _, e := range es {
		if !c.space.takeAt(e.IOVA, e.Bytes) {
			return fmt.Errorf("%s: entry at iova %#x overlaps another", stateName, e.IOVA)
		}
		mem, fd, err := openFile(&e)
		if errors.Is(err, os.ErrNotExist) {
			c.space.give(e.IOVA)
			continue
		}
		if err != nil {
			return err
		}
		fds = append(fds, fd)
		keep[e.path()] = true
		c.addLive(&memory{entry: e, mem: mem, kept: true})
	}
	batch := c.caps != nil && c.caps.Own != nil && c.caps.Own.Remap
	for i, m := range c.live {
		if err := c.mapMemory(m, fds[i], batch && i < len(c.live)-1); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) addLive(m *memory) {
	c.mmu.Lock()
	defer c.mmu.Unlock()
	c.live = append(c.live, m)
}

// mapMemory tells the server; posted: it takes effect with the next one that is not.
func (c *Client) mapMemory(m *memory, fd int, posted bool) error {
	ask := dmaMap{argsz: dmaMapBytes, flags: dmaRead | dmaWrite, iova: m.IOVA, size: m.Bytes}
	var fds []int
	if !c.opt.Messages && c.caps.maxFDs() > 0 {
		fds = []int{fd}
	}
	m.mapped.Store(true)
	if posted {
		k := c.get(cmdDMAMap)
		defer c.put(k)
		k.req = appendDMAMap(k.req, ask)
		return c.post(k, fds)
	}
	_, err := c.ask(cmdDMAMap, func(b []byte) []byte { return appendDMAMap(b, ask) }, fds)
	return err
}

// unmap ends the device's use of memory: after it the address leads nowhere.
func (c *Client) unmap(m *memory) error {
	if !m.mapped.Swap(false) {
		return nil
	}
	ask := dmaUnmap{argsz: dmaUnmapBytes, iova: m.IOVA, size: m.Bytes}
	_, err := c.ask(cmdDMAUnmap, func(b []byte) []byte { return appendDMAUnmap(b, ask) }, nil)
	switch {
	case err == nil:
		c.space.give(m.IOVA) // only an address that the server does not use any more
	case c.isGone():
		return nil // nobody is there to use it
	}
	return err
}

// AllocDMA returns zeroed memory mapped for the device; after Options.Reattach, the memory of the same name and size that
// a predecessor had, as it was left.
func (c *Client) AllocDMA(name string, size int) (*device.DMA, error) {
	op := fmt.Sprintf("allocate %d bytes of dma memory for %s", size, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead.Load() {
		return nil, c.Err()
	}
	if size <= 0 || size > maxAlloc {
		return nil, c.fault(op, device.ErrRange)
	}
	m, err := c.claim(cleanName(name), uint64(size))
	if err == nil && m == nil {
		m, err = c.alloc(cleanName(name), uint64(size))
	}
	if err != nil {
		return nil, c.fault(op, err)
	}
	m.dma = device.NewDMA(m.mem, m.IOVA, func() error { return c.free(m) })
	return m.dma, nil
}

// claim returns a predecessor's memory of this name, nil if there is none; one of another size is given back.
func (c *Client) claim(name string, size uint64) (*memory, error) {
	var found *memory
	for _, m := range c.live {
		if m.dma == nil && m.Name == name && (found == nil || m.N < found.N) {
			found = m
		}
	}
	if found == nil {
		return nil, nil
	}
	if n, ok := roundUp(size, found.PageBytes); ok && n == found.Bytes {
		return found, nil
	}
	return nil, c.remove(found)
}

// alloc makes memory and maps it.
func (c *Client) alloc(name string, size uint64) (*memory, error) {
	m := &memory{entry: entry{Name: name, N: c.number(name)}, unnamed: c.opt.Memfd}
	var fd int
	var err error
	if m.unnamed {
		m.Bytes, _ = roundUp(size, pageBytes)
		m.PageBytes = pageBytes
		m.mem, fd, err = createMemfd(name, m.Bytes)
	} else {
		m.mem, fd, err = create(c.rungs, &m.entry, size)
	}
	if err != nil {
		return nil, err
	}
	defer closeAll([]int{fd})
	var ok bool
	if m.IOVA, ok = c.space.take(m.Bytes, m.PageBytes); !ok {
		return nil, errors.Join(fmt.Errorf("no room in the device's iova ranges: %w", device.ErrDMA), m.release(false))
	}
	c.addLive(m) // before the map: the device may ask for it at once
	if err := c.mapMemory(m, fd, false); err != nil {
		m.mapped.Store(false)
		c.space.give(m.IOVA)
		return nil, errors.Join(err, c.remove(m))
	}
	if err := c.writeState(); err != nil {
		return nil, errors.Join(err, c.remove(m))
	}
	return m, nil
}

// number returns the lowest number that no other memory of this name has.
func (c *Client) number(name string) int {
	for n := 0; ; n++ {
		if !slices.ContainsFunc(c.live, func(m *memory) bool { return m.Name == name && m.N == n }) {
			return n
		}
	}
}

// free is DMA.Close. After the device's Close there is nothing left to do.
func (c *Client) free(m *memory) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.live, m) {
		return nil
	}
	if err := errors.Join(c.remove(m), c.writeState()); err != nil {
		return c.fault("free dma memory", err)
	}
	return nil
}

// remove unmaps memory and gives it back.
func (c *Client) remove(m *memory) error {
	err := c.unmap(m)
	c.mmu.Lock()
	c.live = slices.DeleteFunc(c.live, func(o *memory) bool { return o == m })
	c.mmu.Unlock()
	return errors.Join(err, m.release(false))
}

// release gives memory back to the system; keep leaves its file.
func (m *memory) release(keep bool) error {
	err := unix.Munmap(m.mem)
	m.mem = nil
	if !keep && !m.unnamed {
		err = errors.Join(err, os.Remove(m.path()))
	}
	return err
}

// releaseMemory gives everything back at the end.
func (c *Client) releaseMemory(keep bool) (err error) {
	c.mmu.Lock()
	live := c.live
	c.live = nil
	c.mmu.Unlock()
	for _, m := range live {
		err = errors.Join(err, m.release(keep))
	}
	if !keep {
		err = errors.Join(err, c.writeState())
	}
	return errors.Join(err, c.lock.release())
}

// ReleaseUnclaimed gives back what a predecessor had and AllocDMA was not asked for.
func (c *Client) ReleaseUnclaimed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead.Load() {
		return c.Err()
	}
	var err error
	for _, m := range slices.Clone(c.live) {
		if m.dma == nil {
			err = errors.Join(err, c.remove(m))
		}
	}
	if err = errors.Join(err, c.writeState()); err != nil {
		return c.fault("release a predecessor's memory", err)
	}
	return nil
}

// Kept says whether memory was a predecessor's: it holds what that left, not zeros.
func (c *Client) Kept(d *device.DMA) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.live, func(m *memory) bool { return m.dma == d && m.kept })
}

// Memory tells what memory there is, by IOVA.
func (c *Client) Memory() []Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ms []Memory
	for _, m := range c.live {
		r := Memory{Name: m.Name, IOVA: m.IOVA, Bytes: m.Bytes, PageBytes: m.PageBytes, Kept: m.kept, Claimed: m.dma != nil}
		if !m.unnamed {
			r.File = m.path()
		}
		ms = append(ms, r)
	}
	sort.Slice(ms, func(i, j int) bool { return ms[i].IOVA < ms[j].IOVA })
	return ms
}

// reach calls do with the bytes of n at iova, one after the other; nothing is done unless all of them are mapped.
func (c *Client) reach(iova, n uint64, do func([]byte)) error {
	c.mmu.RLock()
	defer c.mmu.RUnlock()
	var parts [][]byte
	for n > 0 {
		i := slices.IndexFunc(c.live, func(m *memory) bool { return m.mapped.Load() && iova-m.IOVA < m.Bytes })
		if i < 0 {
			return fmt.Errorf("%d bytes at iova %#x: %w", n, iova, device.ErrDMA)
		}
		m := c.live[i]
		p := m.mem[iova-m.IOVA:]
		p = p[:min(uint64(len(p)), n)]
		parts = append(parts, p)
		iova += uint64(len(p))
		n -= uint64(len(p))
	}
	for _, p := range parts {
		do(p)
	}
	return nil
}
