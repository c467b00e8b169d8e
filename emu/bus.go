package emu

import (
	"sync"

	"splicenic/driver/device"
)

// bus is the card's way to host memory that is slow: where an access may wait for a host that waits for an answer of the
// card. The card's lock is not held over such an access, so register accesses are served meanwhile; the step goes on where
// it was. Two rules keep that as good as memory that is quick:
//
//   - What rings write is posted. It is copied while a batch is processed, and written when the batch is done, in order.
//     A producer index moves when its descriptor has arrived: a host that has read it finds the descriptor.
//   - Reads, and whatever is written outside rings, come behind all that was posted. The blocks ask for them only where
//     one batch or command has ended and the next has not begun, so stores that come in meanwhile take effect where they
//     may.
//
// Between two steps nothing is posted. Memory that is not slow is accessed by the blocks directly, within the lock.
type bus struct {
	card  *Card
	slow  bool       // the blocks use it now
	free  *sync.Cond // of the card's lock: an access has ended, or a step
	posts []post     // in order
	bytes []byte     // of posts
	first uint64     // what is being accessed
	n     uint64     // 0: nothing is
}

// post is one posted write.
type post struct {
	iova  uint64
	at, n int // in bytes
	ring  int
	last  bool
	stale bool // not to be written: its ring or its memory went
}

// choose says how the blocks reach the host from here on. Nothing is posted.
func (b *bus) choose() {
	s, ok := b.card.memory.(device.SlowMemory)
	if slow := ok && s.Slow(); slow != b.slow {
		b.slow = slow
		b.card.busMaster()
	}
}

// Post takes bytes of a ring's.
func (b *bus) Post(ring int, iova uint64, p []byte, last bool) {
	if len(p) == 0 {
		return
	}
	b.posts = append(b.posts, post{iova: iova, at: len(b.bytes), n: len(p), ring: ring, last: last})
	b.bytes = append(b.bytes, p...)
}

// drain writes what was posted.
func (b *bus) drain() {
	host := b.card.host
	for i := 0; i < len(b.posts); i++ { // a reset in between leaves none
		x := b.posts[i]
		if x.stale || !host.Running(x.ring) {
			host.Abandon(x.ring)
			continue
		}
		p := b.bytes[x.at:][:x.n]
		var err error
		m := b.begin(x.iova, uint64(x.n))
		if x.last {
			err = m.Store32(x.iova, uint32(p[0])|uint32(p[1])<<8|uint32(p[2])<<16|uint32(p[3])<<24)
		} else {
			err = m.Write(x.iova, p)
		}
		b.end()
		if i < len(b.posts) && !b.posts[i].stale && host.Running(x.ring) {
			host.Arrive(x.ring, x.last, err)
		}
	}
	b.posts, b.bytes = b.posts[:0], b.bytes[:0]
}

// begin gives up the lock for an access; end takes it again.
func (b *bus) begin(iova, n uint64) device.Memory {
	m := b.card.memory
	b.first, b.n = iova, n
	b.card.mu.Unlock()
	return m
}

func (b *bus) end() {
	b.card.mu.Lock()
	b.n = 0
	b.free.Broadcast()
	b.card.core.Sync()
}

// Read, Write, Load32 and Store32 are what the blocks wait for.
func (b *bus) Read(iova uint64, p []byte) error {
	b.drain()
	if b.card.memory == nil {
		return device.ErrDMA
	}
	m := b.begin(iova, uint64(len(p)))
	err := m.Read(iova, p)
	b.end()
	return err
}

func (b *bus) Write(iova uint64, p []byte) error {
	b.drain()
	if b.card.memory == nil {
		return device.ErrDMA
	}
	m := b.begin(iova, uint64(len(p)))
	err := m.Write(iova, p)
	b.end()
	return err
}

func (b *bus) Load32(iova uint64) (uint32, error) {
	b.drain()
	if b.card.memory == nil {
		return 0, device.ErrDMA
	}
	m := b.begin(iova, 4)
	v, err := m.Load32(iova)
	b.end()
	return v, err
}

func (b *bus) Store32(iova uint64, v uint32) error {
	b.drain()
	if b.card.memory == nil {
		return device.ErrDMA
	}
	m := b.begin(iova, 4)
	err := m.Store32(iova, v)
	b.end()
	return err
}

// retire waits until a range of host memory is in no use. What was posted into it is refused.
func (b *bus) retire(iova, size uint64) {
	for i := range b.posts {
		x := &b.posts[i]
		if x.stale || !overlap(x.iova, uint64(x.n), iova, size) {
			continue
		}
		x.stale = true
		if b.card.host.Running(x.ring) {
			b.card.host.Arrive(x.ring, false, device.ErrDMA)
		}
	}
	for b.n != 0 && overlap(b.first, b.n, iova, size) {
		b.free.Wait()
	}
}

// leave waits until the host's memory is in no use. What was posted is lost.
func (b *bus) leave() {
	for i := range b.posts {
		b.posts[i].stale = true
	}
	for b.n != 0 {
		b.free.Wait()
	}
}

// overlap says whether two ranges, of which none is empty, have an address in common.
func overlap(a, n, b, m uint64) bool { return a <= b+(m-1) && b <= a+(n-1) }

// stopped gives up what was posted for rings that do not run.
func (b *bus) stopped() {
	for i := range b.posts {
		x := &b.posts[i]
		x.stale = x.stale || !b.card.host.Running(x.ring)
	}
}

// forget is for a reset: what was posted is not written.
func (b *bus) forget() {
	b.posts, b.bytes = b.posts[:0], b.bytes[:0]
	b.card.host.Forget()
}

// rest waits for the end of a step: who wants the state between two steps does not want it in the middle of an access.
func (b *bus) rest() {
	for b.card.stepping {
		b.free.Wait()
	}
}
