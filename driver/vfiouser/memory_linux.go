package vfiouser

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"splicenic/driver/device"
)

// link carries accesses to memory that only messages reach.
type link interface {
	readDMA(iova uint64, p []byte) error
	writeDMA(iova uint64, p []byte) error
	shared() bool // with the client's commands
}

// hostMemory is the client's memory as the function sees it. It outlives the client. The lock is held while bytes of files
// move, so that no mapping goes away under an access; it is not held over messages.
type hostMemory struct {
	master atomic.Bool // bus master enable of the command register: without it nothing moves

	mu   sync.RWMutex
	maps table
	link link // nil: no client
}

var _ device.SlowMemory = (*hostMemory)(nil)

// Slow says whether an access may wait for a client that waits for an answer on the same socket.
func (h *hostMemory) Slow() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.maps.messages > 0 && h.link != nil && h.link.shared()
}

func (h *hostMemory) setLink(l link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link = l
}

// count returns how many mappings there are, and whether messages are the only way to one.
func (h *hostMemory) count() (n int, messages bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.maps.n, h.maps.messages > 0
}

func (h *hostMemory) Read(iova uint64, p []byte) error  { return h.move(iova, p, false) }
func (h *hostMemory) Write(iova uint64, p []byte) error { return h.move(iova, p, true) }

// piece is a part of an access that goes by message.
type piece struct {
	iova uint64
	p    []byte
}

func (h *hostMemory) move(iova uint64, p []byte, write bool) error {
	pieces, l, err := h.copyFiles(iova, p, write)
	for _, x := range pieces {
		if err != nil {
			break
		}
		switch {
		case l == nil:
			err = fmt.Errorf("no client: %w", device.ErrDMA)
		case write:
			err = l.writeDMA(x.iova, x.p)
		default:
			err = l.readDMA(x.iova, x.p)
		}
	}
	if err != nil {
		return accessError(iova, len(p), write, err)
	}
	return nil
}

// copyFiles moves what lies in files and returns the rest.
func (h *hostMemory) copyFiles(iova uint64, p []byte, write bool) (pieces []piece, l link, err error) {
	defer fault(debug.SetPanicOnFault(true), &err)
	h.mu.RLock()
	defer h.mu.RUnlock()
	c, ok := h.maps.cover(iova, uint64(len(p)), write)
	if !ok || !h.master.Load() {
		return nil, nil, device.ErrDMA
	}
	for len(p) > 0 {
		m := h.maps.at(c)
		off := iova - m.iova
		n := int(min(uint64(len(p)), m.last-iova+1))
		switch {
		case m.mem == nil:
			pieces = append(pieces, piece{iova, p[:n]})
		case write:
			copy(m.mem[off:], p[:n])
		default:
			copy(p[:n], m.mem[off:])
		}
		if p = p[n:]; len(p) > 0 {
			iova += uint64(n)
			c = h.maps.next(c)
		}
	}
	return pieces, h.link, nil
}

func (h *hostMemory) Load32(iova uint64) (uint32, error) {
	v, files, err := h.word(iova, false, 0)
	if err != nil {
		return 0, accessError(iova, 4, false, err)
	}
	if files {
		return v, nil
	}
	var b [4]byte
	err = h.Read(iova, b[:])
	return le.Uint32(b[:]), err
}

func (h *hostMemory) Store32(iova uint64, v uint32) error {
	_, files, err := h.word(iova, true, v)
	if err != nil {
		return accessError(iova, 4, true, err)
	}
	if files {
		return nil
	}
	var b [4]byte
	le.PutUint32(b[:], v)
	return h.Write(iova, b[:])
}

// word loads or stores one word if it lies in a file. Mappings are whole pages, so it lies in one.
func (h *hostMemory) word(iova uint64, store bool, v uint32) (got uint32, files bool, err error) {
	defer fault(debug.SetPanicOnFault(true), &err)
	h.mu.RLock()
	defer h.mu.RUnlock()
	c, ok := h.maps.cover(iova, 4, store)
	if !ok || iova%4 != 0 || !h.master.Load() {
		return 0, false, device.ErrDMA
	}
	m := h.maps.at(c)
	switch {
	case m.mem == nil:
		return 0, false, nil
	case store:
		device.StoreWord(m.mem, iova-m.iova, v)
	default:
		got = device.LoadWord(m.mem, iova-m.iova)
	}
	return got, true, nil
}

func accessError(iova uint64, n int, write bool, err error) error {
	op := "read"
	if write {
		op = "write"
	}
	return fmt.Errorf("%s %d bytes at iova %#x: %w", op, n, iova, err)
}

// fault, deferred, turns a fault on a mapping into an error: who gave us a file can cut it short at any time. old is what
// debug.SetPanicOnFault returned.
func fault(old bool, err *error) {
	debug.SetPanicOnFault(old)
	if f := faulted(recover()); f != nil {
		*err = errors.Join(f, device.ErrDMA)
	}
}

// faulted returns what was recovered as an error if it is a fault on memory, and panics on if it is anything else.
func faulted(r any) error {
	if r == nil {
		return nil
	}
	f, ok := r.(interface{ Addr() uintptr })
	if _, re := r.(runtime.Error); !re || !ok {
		panic(r)
	}
	return fmt.Errorf("fault at address %#x: the mapping lost its memory", f.Addr())
}
