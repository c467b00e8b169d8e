package device

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
)

// maxAlloc bounds one allocation; the card's largest memory is a fraction of it.
const maxAlloc = 4 << 30

// localDMA is one allocation of a local Device.
type localDMA struct {
	dma    *DMA
	mem    []byte // as mapped
	iova   uint64
	mapped bool
}

func (l *local) AllocDMA(name string, size int) (*DMA, error) {
	op := fmt.Sprintf("allocate %d bytes of dma memory for %s", size, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if size <= 0 || size > maxAlloc {
		return nil, l.fault(op, ErrRange)
	}
	n := pageUp(uint64(size))
	iova, ok := l.space.take(n)
	if !ok {
		return nil, l.fault(op+": no room in the device's iova ranges", ErrDMA)
	}
	mem, err := mapMemory(name, int(n))
	if err != nil {
		l.space.give(iova)
		return nil, l.fault(op, err)
	}
	m := &localDMA{mem: mem, iova: iova, mapped: true}
	l.memory.add(iova, mem)
	if err := l.fn.MapDMA(iova, n); err != nil {
		l.memory.remove(iova)
		l.space.give(iova)
		return nil, l.refused(op, errors.Join(err, m.release()))
	}
	m.dma = NewDMA(mem, iova, func() error { return l.free(m) })
	l.live = append(l.live, m)
	return m.dma, nil
}

// free is DMA.Close. After the device's Close there is nothing left to do.
func (l *local) free(m *localDMA) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.live, m)
	if i < 0 {
		return nil
	}
	l.live = slices.Delete(l.live, i, i+1)
	if err := errors.Join(l.unmap(m), m.release()); err != nil {
		return l.fault("free dma memory", err)
	}
	return nil
}

// unmap ends the device's use of the memory: first the function stops, then the address leads nowhere.
func (l *local) unmap(m *localDMA) error {
	if !m.mapped {
		return nil
	}
	m.mapped = false
	err := l.fn.UnmapDMA(m.iova, uint64(len(m.mem)))
	l.memory.remove(m.iova)
	l.space.give(m.iova)
	return err
}

func (m *localDMA) release() error {
	b := m.mem
	m.mem = nil
	return unmapMemory(b)
}

// hostMemory is the host as the function sees it. The lock is held while bytes move, so that no mapping goes away under
// an access.
type hostMemory struct {
	mu   sync.RWMutex
	maps []mapping // sorted by iova, disjoint
}

type mapping struct {
	iova uint64
	mem  []byte
}

func (h *hostMemory) add(iova uint64, mem []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.maps = slices.Insert(h.maps, h.find(iova), mapping{iova, mem})
}

func (h *hostMemory) remove(iova uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.maps = slices.DeleteFunc(h.maps, func(m mapping) bool { return m.iova == iova })
}

// find returns the index of the first mapping that ends beyond iova.
func (h *hostMemory) find(iova uint64) int {
	return sort.Search(len(h.maps), func(i int) bool { return iova-h.maps[i].iova < uint64(len(h.maps[i].mem)) || h.maps[i].iova > iova })
}

// cover returns the mapping that holds iova, if n bytes from there on are mapped without a hole.
func (h *hostMemory) cover(iova, n uint64) (int, bool) {
	first := h.find(iova)
	at := iova
	for i := first; i < len(h.maps) && h.maps[i].iova <= at; i++ {
		left := uint64(len(h.maps[i].mem)) - (at - h.maps[i].iova)
		if left >= n {
			return first, true
		}
		at += left
		n -= left
	}
	return first, n == 0
}

func (h *hostMemory) Read(iova uint64, p []byte) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	i, ok := h.cover(iova, uint64(len(p)))
	if !ok {
		return unmapped("read", iova, len(p))
	}
	for ; len(p) > 0; i++ {
		n := copy(p, h.maps[i].mem[iova-h.maps[i].iova:])
		p = p[n:]
		iova += uint64(n)
	}
	return nil
}

func (h *hostMemory) Write(iova uint64, p []byte) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	i, ok := h.cover(iova, uint64(len(p)))
	if !ok {
		return unmapped("write", iova, len(p))
	}
	for ; len(p) > 0; i++ {
		n := copy(h.maps[i].mem[iova-h.maps[i].iova:], p)
		p = p[n:]
		iova += uint64(n)
	}
	return nil
}

func (h *hostMemory) Load32(iova uint64) (uint32, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	i, ok := h.cover(iova, 4)
	if !ok || iova%4 != 0 {
		return 0, unmapped("load", iova, 4)
	}
	return LoadWord(h.maps[i].mem, iova-h.maps[i].iova), nil
}

func (h *hostMemory) Store32(iova uint64, v uint32) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	i, ok := h.cover(iova, 4)
	if !ok || iova%4 != 0 {
		return unmapped("store", iova, 4)
	}
	StoreWord(h.maps[i].mem, iova-h.maps[i].iova, v)
	return nil
}

func unmapped(op string, iova uint64, n int) error {
	return fmt.Errorf("%s %d bytes at iova %#x: %w", op, n, iova, ErrDMA)
}
