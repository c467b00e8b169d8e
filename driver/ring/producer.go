package ring

import (
	"fmt"
	"sync/atomic"
)

// A Producer gives descriptors to the card.
type Producer struct {
	slots
	bell      Bell
	done      *uint32 // where the card writes its index
	next      uint32  // index of the next descriptor
	published uint32
	consumed  uint32 // the card's index as last seen
	bad       uint64
}

func newProducer(mem, writeback []byte, next, consumed uint32, bell Bell) (*Producer, error) {
	s, err := newSlots(mem)
	if err != nil {
		return nil, err
	}
	w, err := view(writeback)
	if err != nil {
		return nil, fmt.Errorf("new ring: %w", err)
	}
	if len(w) == 0 {
		return nil, fmt.Errorf("new ring: no room for the card's index")
	}
	return &Producer{slots: s, bell: bell, done: &w[0], next: next, published: next, consumed: consumed}, nil
}

// NewProducer starts at index start over the memory of a ring whose card is stopped. writeback is the word the card
// writes its index to. Both are written.
func NewProducer(mem, writeback []byte, start uint32, bell Bell) (*Producer, error) {
	p, err := newProducer(mem, writeback, start, start, bell)
	if err != nil {
		return nil, err
	}
	atomic.StoreUint32(p.done, start)
	clear(p.words)
	return p, nil
}

// ResumeProducer goes on where a Producer ended, over its memory and under a card that may be at work: behind index next,
// which was published, of which the card has taken what precedes consumed. Nothing is written: a writeback word that lags
// behind is passed over until the card writes it again; one that is ahead is no index of this ring. It fails with
// ErrResume where memory and indexes do not belong together.
func ResumeProducer(mem, writeback []byte, next, consumed uint32, bell Bell) (*Producer, error) {
	p, err := newProducer(mem, writeback, next, consumed, bell)
	if err != nil {
		return nil, err
	}
	at := atomic.LoadUint32(p.done)
	if behind := consumed - at; !p.holds(consumed, next) || next-at > next-consumed && behind >= 1<<31 {
		return nil, fmt.Errorf("resume ring at %d, consumed %d: %w", next, consumed, ErrResume)
	}
	return p, nil
}

// Free returns how many descriptors fit. It looks at what the card wrote back; an index that cannot be is passed over.
func (p *Producer) Free() uint32 {
	at := atomic.LoadUint32(p.done)
	if p.next-at <= p.next-p.consumed {
		p.consumed = at
	} else {
		p.bad++
	}
	return p.entries - (p.next - p.consumed)
}

// Slot returns the slot the next descriptor goes to, to choose a buffer by.
func (p *Producer) Slot() uint32 { return p.next & (p.entries - 1) }

// Send writes descriptors as far as they fit and returns how many. It sets phase and sequence number, here and in ds. The
// card does not look before Commit.
func (p *Producer) Send(ds []Descriptor) int {
	n := min(len(ds), int(p.Free()))
	for i := range ds[:n] {
		s, d := &ds[i], p.at(p.next)
		s[sequence] = p.next
		s[control] = s[control]&^phaseMask | p.phase(p.next)
		copy(d[control+1:], s[control+1:])
		atomic.StoreUint32(&d[control], s[control])
		p.next++
	}
	return n
}

// Commit publishes the index once for everything sent. It says whether there was anything to publish.
func (p *Producer) Commit() bool {
	if p.next == p.published {
		return false
	}
	p.published = p.next
	p.bell.ring(p.next)
	return true
}

// Index returns the index, and so the sequence number, of the next descriptor.
func (p *Producer) Index() uint32 { return p.next }

// Pending returns how many descriptors the card has not yet taken, as of the last Free or Send.
func (p *Producer) Pending() uint32 { return p.next - p.consumed }

// Bad returns how often the card wrote back an index that cannot be.
func (p *Producer) Bad() uint64 { return p.bad }
