package port

import (
	"sync"

	"splicenic/emu/frame"
)

// MemConfig describes a pair of ports.
type MemConfig struct {
	Queue    int // frames a direction holds; zero: 256
	MTU      int // zero: 1500
	Offloads Offloads
	MACs     [2][6]byte // zero: 02:00:00:00:00:01 and :02
}

// Mem is one end of a pair of ports in memory: what one transmits the other receives, copied. The ends may belong to
// different goroutines.
type Mem struct {
	mac      [6]byte
	mtu      int
	offloads Offloads
	in, out  *queue
}

// Pair makes two ports joined back-to-back.
func Pair(cfg MemConfig) (a, b *Mem) {
	if cfg.Queue == 0 {
		cfg.Queue = 256
	}
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	for i := range cfg.MACs {
		if cfg.MACs[i] == ([6]byte{}) {
			cfg.MACs[i] = [6]byte{0x02, 0, 0, 0, 0, byte(i + 1)}
		}
	}
	ab, ba := newQueue(cfg.Queue), newQueue(cfg.Queue)
	a = &Mem{mac: cfg.MACs[0], mtu: cfg.MTU, offloads: cfg.Offloads, in: ba, out: ab}
	b = &Mem{mac: cfg.MACs[1], mtu: cfg.MTU, offloads: cfg.Offloads, in: ab, out: ba}
	return a, b
}

// MAC returns the address the pair was made with.
func (m *Mem) MAC() [6]byte { return m.mac }

// MTU returns the MTU the pair was made with.
func (m *Mem) MTU() int { return m.mtu }

// Link is up until either end is closed.
func (m *Mem) Link() LinkState { return LinkState{Up: m.in.open() && m.out.open(), Mbps: 1000} }

// BufferBytes has room for the largest coalesced frame.
func (m *Mem) BufferBytes() int { return frame.Headroom + frame.MaxBytes }

// Offloads returns what the pair was made with.
func (m *Mem) Offloads() Offloads { return m.offloads }

// FD returns -1: a Mem is a Notifier.
func (m *Mem) FD() int { return -1 }

// Overruns counts frames that the other end sent into a full queue.
func (m *Mem) Overruns() uint64 { return m.in.overruns() }

// Notify has wake called when a frame arrives at this end.
func (m *Mem) Notify(wake func()) { m.in.notify(wake) }

// Receive takes the frames the other end has sent.
func (m *Mem) Receive(fs []frame.Frame) int { return m.in.take(fs) }

// Transmit sends to the other end. A full queue takes no more.
func (m *Mem) Transmit(fs []*frame.Frame) int {
	for i, f := range fs {
		if !m.out.put(f.Bytes(), f.Offload, false) {
			return i
		}
	}
	return len(fs)
}

// Inject makes this end receive a copy of a frame, as if the other end had sent it. A full queue loses and counts it.
func (m *Mem) Inject(b []byte, o frame.Offload) bool { return m.in.put(b, o, true) }

// Drain calls f with every frame that this end has transmitted and the other end has not received, and takes them. The
// bytes are valid until f returns.
func (m *Mem) Drain(f func(b []byte, o frame.Offload)) int { return m.out.drain(f) }

// Close takes the link down at both ends.
func (m *Mem) Close() error {
	m.in.close()
	m.out.close()
	return nil
}

// queue is one direction of a pair: a ring of slots that keep their buffers.
type queue struct {
	mu          sync.Mutex
	slots       []slot
	first, used int
	lost        uint64
	closed      bool
	wake        func()
}

type slot struct {
	bytes   []byte
	offload frame.Offload
}

func newQueue(n int) *queue { return &queue{slots: make([]slot, n)} }

// put appends a copy of a frame and says whether there was room. count: what has no room is lost.
func (q *queue) put(b []byte, o frame.Offload, count bool) bool {
	q.mu.Lock()
	if q.closed || q.used == len(q.slots) {
		if count {
			q.lost++
		}
		q.mu.Unlock()
		return false
	}
	s := &q.slots[(q.first+q.used)%len(q.slots)]
	s.bytes, s.offload = append(s.bytes[:0], b...), o
	q.used++
	wake := q.wake
	if q.used != 1 {
		wake = nil
	}
	q.mu.Unlock()
	if wake != nil {
		wake()
	}
	return true
}

// pop returns the oldest frame; the caller holds mu.
func (q *queue) pop() *slot {
	s := &q.slots[q.first]
	q.first = (q.first + 1) % len(q.slots)
	q.used--
	return s
}

func (q *queue) take(fs []frame.Frame) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(fs), q.used)
	for i := range fs[:n] {
		f, s := &fs[i], q.pop()
		copy(f.Buf[f.Start:], s.bytes)
		f.End, f.Offload = f.Start+uint32(len(s.bytes)), s.offload
	}
	return n
}

// drain gives the frames that are there now; f may send more.
func (q *queue) drain(f func([]byte, frame.Offload)) int {
	q.mu.Lock()
	n := q.used
	q.mu.Unlock()
	for i := range n {
		q.mu.Lock()
		if q.used == 0 {
			q.mu.Unlock()
			return i
		}
		s := q.pop()
		b, o := s.bytes, s.offload
		s.bytes = nil // f has it now
		q.mu.Unlock()
		f(b, o)
		q.mu.Lock()
		if s.bytes == nil {
			s.bytes = b
		}
		q.mu.Unlock()
	}
	return n
}

func (q *queue) notify(wake func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake = wake
}

func (q *queue) overruns() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost
}

func (q *queue) open() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.closed
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
