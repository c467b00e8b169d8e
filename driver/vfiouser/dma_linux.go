package vfiouser

import (
	"errors"
	"fmt"
	"log/slog"

	"splicenic/driver/device"
)

// dma is what the server knows of its client's memory. hostMemory has the mappings, for the function to use; everything
// else is here and belongs to one goroutine.
type dma struct {
	fn     device.Function
	mapper MemoryMapper // nil: the function goes through hostMemory
	memory *hostMemory
	log    *slog.Logger
	files  files
	hosted bool // the function has its host's memory

	// stale: the mappings are a former client's. The first maps of this one replace them all, at once: those without
	// reply are collected until one comes that has a reply, or another command.
	stale bool
	batch []mapping
	err   error // of the batch
}

// begin is the start of a client: it finds the mappings of the one before.
func (d *dma) begin() {
	n, _ := d.memory.count()
	d.stale = n > 0
	d.host()
}

func (d *dma) host() {
	if !d.hosted {
		d.hosted = true
		d.fn.SetHost(d.memory)
	}
}

func (d *dma) unhost() {
	if d.hosted {
		d.hosted = false
		d.fn.SetHost(nil)
	}
}

func (s *session) mapDMA(m *message) error {
	ask, err := decodeDMAMap(m.body)
	d := &s.srv.dma
	var n mapping
	if err == nil {
		n, err = d.open(ask, m.fds)
	}
	if !d.stale {
		if err == nil {
			err = d.add(n)
		}
		return err
	}
	switch {
	case err != nil:
		d.err = errors.Join(d.err, err)
	case len(d.batch) == maxMaps:
		d.err = errors.Join(d.err, d.files.release(n.file), tooMany())
	default:
		d.batch = append(d.batch, n)
	}
	if m.noReply() {
		return nil
	}
	return d.commit()
}

func tooMany() error { return fmt.Errorf("more than %d dma maps: %w", maxMaps, eNOSPC) }

// open makes the mapping that a client asks for, in no table yet.
func (d *dma) open(ask dmaMap, fds []int) (mapping, error) {
	n := mapping{iova: ask.iova, last: ask.iova + ask.size - 1, offset: ask.offset, read: ask.flags&dmaRead != 0, write: ask.flags&dmaWrite != 0}
	switch {
	case (ask.iova|ask.size|ask.offset)%pageSizes != 0:
		return n, violation("dma map: %#x bytes at iova %#x, offset %#x are not whole pages", ask.size, ask.iova, ask.offset)
	case len(fds) > 1:
		return n, violation("dma map: %d files", len(fds))
	case len(fds) == 0 && d.mapper != nil:
		return n, fmt.Errorf("dma map without a file: %w", device.ErrNotSupported)
	case len(fds) == 0:
		return n, nil
	}
	f, err := d.files.use(fds[0], ask.offset, ask.size, n.write)
	if err != nil {
		return n, err
	}
	n.file, n.mem = f, f.mem[ask.offset:][:ask.size:ask.size]
	return n, nil
}

// add puts a mapping into the table and tells the function.
func (d *dma) add(n mapping) error {
	d.memory.mu.Lock()
	full := d.memory.maps.n >= maxMaps
	ok := !full && d.memory.maps.insert(n)
	d.memory.mu.Unlock()
	var err error
	switch {
	case full:
		err = tooMany()
	case !ok:
		err = fmt.Errorf("dma map at iova %#x over another: %w", n.iova, eEXIST)
	default:
		if err = d.tell(n); err != nil {
			d.drop(n)
		}
	}
	if err != nil {
		return errors.Join(err, d.files.release(n.file))
	}
	d.host()
	return nil
}

// tell makes a mapping known to the function.
func (d *dma) tell(n mapping) error {
	if d.mapper != nil {
		return d.mapper.MapMemory(n.iova, n.mem, n.write)
	}
	return d.fn.MapDMA(n.iova, n.size())
}

func (d *dma) drop(n mapping) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	d.memory.maps.remove(n.iova, n.last)
}

// commit makes the batch take effect, in one step for the function's accesses. A mapping that leads where one did before
// is not touched at all, so memory behind an IOMMU stays reachable throughout.
func (d *dma) commit() error {
	if len(d.batch) == 0 && d.err == nil {
		return nil
	}
	batch, err := d.batch, d.err
	d.batch, d.err = nil, nil
	var next table
	for _, n := range batch {
		if !next.insert(n) {
			err = errors.Join(err, fmt.Errorf("dma map at iova %#x over another: %w", n.iova, eEXIST))
		}
	}
	if err != nil {
		return errors.Join(err, d.release(batch))
	}
	d.stale = false
	old := d.memory.maps // only this goroutine changes it
	for _, o := range old.all() {
		if n := next.at(next.find(o.iova)); n == nil || !n.same(&o) {
			err = errors.Join(err, d.fn.UnmapDMA(o.iova, o.size()))
		}
	}
	d.memory.mu.Lock()
	d.memory.maps = next
	d.memory.mu.Unlock()
	err = errors.Join(err, d.release(old.all()))
	for _, n := range batch {
		if o := old.at(old.find(n.iova)); o != nil && o.same(&n) {
			continue
		}
		if e := d.tell(n); e != nil {
			d.drop(n)
			err = errors.Join(err, e, d.files.release(n.file))
		}
	}
	d.host()
	return err
}

func (d *dma) release(ms []mapping) (err error) {
	for _, m := range ms {
		err = errors.Join(err, d.files.release(m.file))
	}
	return err
}

func (s *session) unmapDMA(body []byte) ([]byte, error) {
	ask, err := decodeDMAUnmap(body)
	if err != nil {
		return nil, err
	}
	if ask.flags&^unmapAll != 0 {
		return nil, fmt.Errorf("dma unmap: flags %#x: %w", ask.flags, eNOTSUP)
	}
	first, last := ask.iova, ask.iova+ask.size-1
	if ask.flags&unmapAll != 0 {
		first, last = 0, ^uint64(0)
	}
	if err := s.srv.dma.unmap(first, last); err != nil {
		return nil, err
	}
	ask.argsz = dmaUnmapBytes
	return appendDMAUnmap(start(s.out), ask), nil
}

// unmap forgets the mappings of a range, of which there may be none.
func (d *dma) unmap(first, last uint64) error {
	ms, ok := d.memory.maps.inside(first, last)
	if !ok {
		return violation("dma unmap: %#x-%#x is part of a mapping", first, last)
	}
	var err error
	for _, m := range ms {
		err = errors.Join(err, d.fn.UnmapDMA(m.iova, m.size()))
	}
	d.memory.mu.Lock()
	d.memory.maps.remove(first, last)
	d.memory.mu.Unlock()
	return errors.Join(err, d.release(ms))
}

// reset resets the function and gives it its mappings anew, but none of a former client.
func (d *dma) reset() error {
	var err error
	if d.stale {
		d.stale = false
		err = d.unmap(0, ^uint64(0))
	}
	d.unhost()
	ms := d.memory.maps.all()
	if d.mapper == nil {
		for _, m := range ms {
			err = errors.Join(err, d.fn.UnmapDMA(m.iova, m.size()))
		}
	}
	err = errors.Join(err, d.fn.Reset())
	if d.mapper == nil {
		for _, m := range ms {
			err = errors.Join(err, d.tell(m))
		}
	}
	d.host()
	return err
}

// leave is the end of a client.
func (d *dma) leave() {
	err := errors.Join(d.err, d.release(d.batch))
	d.batch, d.err = nil, nil
	if _, messages := d.memory.count(); messages {
		d.unhost()
		for _, m := range d.memory.maps.all() {
			if m.mem == nil {
				err = errors.Join(err, d.unmap(m.iova, m.last))
			}
		}
	}
	if err != nil {
		d.log.Warn("client left dma maps behind", "err", err)
	}
}

// end is the end of the server: nothing of any client stays.
func (d *dma) end() error {
	d.unhost()
	return d.unmap(0, ^uint64(0))
}
