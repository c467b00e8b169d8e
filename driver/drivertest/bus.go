package drivertest

import (
	"sync"

	"splicenic/driver/device"
)

// A Bus is a Function that tells what its host gave it, and whose way to host memory can be cut.
type Bus struct {
	device.Function

	mu       sync.Mutex
	vectors  int
	accesses int
	at       int // access that fails, and all after it; 0: none
	cut      func()
	done     chan struct{} // closed after cut
}

// SetVectors notes how many vectors there are.
func (b *Bus) SetVectors(raise []func()) error {
	b.mu.Lock()
	b.vectors = len(raise)
	b.mu.Unlock()
	return b.Function.SetVectors(raise)
}

// SetHost puts the Bus between the function and its host's memory.
func (b *Bus) SetHost(m device.Memory) {
	if m != nil {
		m = &busMemory{m, b}
	}
	b.Function.SetHost(m)
}

// Vectors returns how many vectors the host has given last.
func (b *Bus) Vectors() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.vectors
}

// begin begins to count accesses to host memory. Access n, counted from 1, fails, and all after it do; cut is called on a
// goroutine of its own then. n 0: all of them succeed.
func (b *Bus) begin(n int, cut func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accesses, b.at, b.cut, b.done = 0, n, cut, make(chan struct{})
}

// count returns how many accesses to host memory there were, and waits for the end of a cut.
func (b *Bus) count() int {
	b.mu.Lock()
	n, cut := b.accesses, b.at != 0 && b.accesses >= b.at
	b.mu.Unlock()
	if cut {
		<-b.done
	}
	return n
}

func (b *Bus) pass() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accesses++
	if b.at == 0 || b.accesses < b.at {
		return nil
	}
	if b.accesses == b.at {
		go func() {
			defer close(b.done)
			b.cut()
		}()
	}
	return device.ErrDMA
}

type busMemory struct {
	device.Memory
	bus *Bus
}

func (m *busMemory) Read(iova uint64, p []byte) error {
	if err := m.bus.pass(); err != nil {
		return err
	}
	return m.Memory.Read(iova, p)
}

func (m *busMemory) Write(iova uint64, p []byte) error {
	if err := m.bus.pass(); err != nil {
		return err
	}
	return m.Memory.Write(iova, p)
}

func (m *busMemory) Load32(iova uint64) (uint32, error) {
	if err := m.bus.pass(); err != nil {
		return 0, err
	}
	return m.Memory.Load32(iova)
}

func (m *busMemory) Store32(iova uint64, v uint32) error {
	if err := m.bus.pass(); err != nil {
		return err
	}
	return m.Memory.Store32(iova, v)
}
