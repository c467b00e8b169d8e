package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// LocalConfig says how Local joins a Function to a Device. The zero value suits.
type LocalConfig struct {
	// Removal and Error are closed by whoever owns the function to give the two notices; nil: never given.
	Removal, Error <-chan struct{}
	// NoGuard gives successive buffers adjacent IOVAs, so that a test can cross from one mapping into the next. False:
	// an unmapped page lies between any two buffers and an access that runs past one is refused.
	NoGuard bool
}

const (
	configBytes     = 4096
	commandRegister = 4 // PCI configuration space, 16 bits
	busMaster       = 1 << 2
)

// Local joins a Function to a Device inside one process. It starts no goroutine: register accesses run the function's
// methods in the caller's, raised vectors and DMA run in the function's.
//
// A load that the function refuses sets the sticky error. Every sticky error, ErrRange included, ends the device: loads
// read all ones, stores are ignored, everything else fails. Memory of AllocDMA is a memfd of its own.
func Local(fn Function, cfg LocalConfig) Device {
	l := &local{fn: fn, cfg: cfg, info: fn.Info(), down: make(chan struct{})}
	l.space = newSpace(l.info.IOVA, cfg.NoGuard)
	l.vectors = make([]vector, l.info.Vectors)
	for v := range l.vectors {
		l.vectors[v].token = make(chan struct{}, 1)
	}
	l.words.New = func() any { return new([8]byte) }
	fn.SetHost(&l.memory)
	return l
}

type local struct {
	fn     Function
	cfg    LocalConfig
	info   Info
	memory hostMemory
	words  sync.Pool // *[8]byte: keeps an access from allocating its bytes

	vectors []vector
	enabled atomic.Int32
	dead    atomic.Bool
	down    chan struct{} // closed with dead

	mu     sync.Mutex // held across calls of fn that set it up; none of what fn calls takes it
	err    error      // sticky
	closed bool
	space  space
	live   []*localDMA
}

func (l *local) Info() Info {
	i := l.info
	i.IOVA = slices.Clone(i.IOVA)
	return i
}

func (l *local) fault(op string, err error) error {
	return &OpError{Op: op, Dev: l.info.Name, Err: err}
}

// refused is the error of something that the function did not do. A function that is gone ends the device; mu is held.
func (l *local) refused(op string, err error) error {
	err = l.fault(op, err)
	if errors.Is(err, ErrDeviceLost) {
		l.failLocked(err)
	}
	return err
}

// fail makes err the sticky error unless there is one.
func (l *local) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failLocked(err)
}

func (l *local) failLocked(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	l.dead.Store(true)
	close(l.down)
}

func (l *local) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *local) Lose(err error) {
	if err == nil {
		err = ErrDeviceLost
	}
	l.fail(l.fault("use device", err))
}

func (l *local) ReadConfig(off uint32, p []byte) error {
	return l.config("read configuration space", off, p, l.fn.ReadConfig)
}

func (l *local) WriteConfig(off uint32, p []byte) error {
	return l.config("write configuration space", off, p, l.fn.WriteConfig)
}

func (l *local) config(op string, off uint32, p []byte, do func(uint32, []byte) error) error {
	if l.dead.Load() {
		return l.Err()
	}
	if uint64(off)+uint64(len(p)) > configBytes {
		return l.fault(fmt.Sprintf("%s at %#x", op, off), ErrRange)
	}
	err := do(off, p)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused(fmt.Sprintf("%s at %#x", op, off), err)
}

// access moves p between the caller and a region and says whether it did.
func (l *local) access(op string, region int, off uint64, p []byte, do func(int, uint64, []byte) error) bool {
	if l.dead.Load() {
		return false
	}
	n := uint64(len(p))
	err := ErrRange
	if region >= 0 && region < Regions && off%n == 0 && n <= l.info.Regions[region].Size && off <= l.info.Regions[region].Size-n {
		err = do(region, off, p)
	}
	if err != nil {
		l.fail(l.fault(fmt.Sprintf("%s region %d at %#x", op, region, off), err))
		return false
	}
	return true
}

func (l *local) Load32(region int, off uint64) uint32 {
	b := l.words.Get().(*[8]byte)
	v := ^uint32(0)
	if l.access("load from", region, off, b[:4], l.fn.ReadRegion) {
		v = binary.LittleEndian.Uint32(b[:])
	}
	l.words.Put(b)
	return v
}

func (l *local) Store32(region int, off uint64, v uint32) {
	b := l.words.Get().(*[8]byte)
	binary.LittleEndian.PutUint32(b[:], v)
	l.access("store to", region, off, b[:4], l.fn.WriteRegion)
	l.words.Put(b)
}

func (l *local) Load64(region int, off uint64) uint64 {
	b := l.words.Get().(*[8]byte)
	v := ^uint64(0)
	if l.access("load from", region, off, b[:8], l.fn.ReadRegion) {
		v = binary.LittleEndian.Uint64(b[:])
	}
	l.words.Put(b)
	return v
}

func (l *local) Store64(region int, off uint64, v uint64) {
	b := l.words.Get().(*[8]byte)
	binary.LittleEndian.PutUint64(b[:], v)
	l.access("store to", region, off, b[:8], l.fn.WriteRegion)
	l.words.Put(b)
}

func (l *local) EnableVectors(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if n < 0 || n > len(l.vectors) {
		return l.fault(fmt.Sprintf("enable %d vectors", n), ErrRange)
	}
	raise := make([]func(), n)
	for v := range raise {
		raise[v] = l.vectors[v].raise
	}
	if err := l.fn.SetVectors(raise); err != nil {
		return l.refused(fmt.Sprintf("enable %d vectors", n), err)
	}
	l.enabled.Store(int32(n))
	return nil
}

func (l *local) Wait(ctx context.Context, v int) (uint64, error) {
	if l.dead.Load() {
		return 0, l.Err()
	}
	if v < 0 || v >= int(l.enabled.Load()) {
		return 0, l.fault(fmt.Sprintf("wait for vector %d", v), ErrRange)
	}
	n, err := l.vectors[v].wait(ctx, l.down)
	if err == nil && n == 0 {
		err = l.Err()
	}
	return n, err
}

func (l *local) RemovalRequested() <-chan struct{} { return l.cfg.Removal }
func (l *local) ErrorNotice() <-chan struct{}      { return l.cfg.Error }

// Reset takes vectors and DMA maps from the function before it resets it. Memory stays its owner's until DMA.Close.
func (l *local) Reset() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	err := l.detach()
	if e := l.fn.Reset(); e != nil {
		err = errors.Join(err, e)
	}
	if err != nil {
		return l.refused("reset", err)
	}
	l.fn.SetHost(&l.memory)
	return nil
}

// detach ends every use the function makes of the host.
func (l *local) detach() error {
	l.enabled.Store(0)
	err := l.fn.SetVectors(nil)
	l.fn.SetHost(nil)
	for _, m := range l.live {
		err = errors.Join(err, l.unmap(m))
	}
	for v := range l.vectors {
		l.vectors[v].clear()
	}
	return err
}

func (l *local) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.failLocked(l.fault("use device", ErrClosed))
	err := l.stopBusMaster()
	err = errors.Join(err, l.detach())
	for _, m := range l.live {
		err = errors.Join(err, m.release())
	}
	l.live = nil
	if err != nil {
		return l.fault("close", err)
	}
	return nil
}

func (l *local) stopBusMaster() error {
	var b [2]byte
	if err := l.fn.ReadConfig(commandRegister, b[:]); err != nil {
		return err
	}
	b[0] &^= busMaster
	return l.fn.WriteConfig(commandRegister, b[:])
}
