package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrResume: the memory is not what the card's indexes say a predecessor left.
var ErrResume = errors.New("ring memory does not fit the card's indexes")

// A Consumer takes descriptors that the card produced.
type Consumer struct {
	slots
	bell      Bell
	note      note
	next      uint32 // index of the next descriptor
	published uint32
	expected  uint32 // its sequence number
	lost      uint64
}

func newConsumer(mem, noted []byte, index uint32, bell Bell) (*Consumer, error) {
	s, err := newSlots(mem)
	if err != nil {
		return nil, err
	}
	c := &Consumer{slots: s, bell: bell, next: index, published: index}
	if noted == nil {
		return c, nil
	}
	w, err := view(noted)
	if err != nil {
		return nil, fmt.Errorf("new ring: %w", err)
	}
	if len(w) < noteWords {
		return nil, fmt.Errorf("new ring: %d bytes have no room for a note", len(noted))
	}
	c.note.words = w[:noteWords]
	return c, nil
}

// NewConsumer starts at index start with sequence number first over the memory of a ring whose card is stopped. It writes
// the memory: every slot looks not yet produced. noted is NoteBytes of memory that ResumeConsumer can find its way by;
// nil: it will not be asked.
func NewConsumer(mem, noted []byte, start, first uint32, bell Bell) (*Consumer, error) {
	c, err := newConsumer(mem, noted, start, bell)
	if err != nil {
		return nil, err
	}
	c.expected = first
	for i := range c.entries {
		d := c.at(start + i)
		*d = Descriptor{}
		atomic.StoreUint32(&d[control], c.phase(start+i)^phaseMask)
	}
	c.note.start(start, first)
	return c, nil
}

// ResumeConsumer goes on where a Consumer ended, over its memory and note and under a card that may be at work: at index
// at, which was published, with what the card has produced since, up to index produced as loaded before. Nothing is
// written. It fails with ErrResume where memory, note and indexes do not belong together.
func ResumeConsumer(mem, noted []byte, at, produced uint32, bell Bell) (*Consumer, error) {
	c, err := newConsumer(mem, noted, at, bell)
	if err != nil {
		return nil, err
	}
	ok := c.note.words != nil && c.holds(at, produced)
	if ok {
		c.expected, ok = c.note.find(at)
	}
	if !ok {
		return nil, fmt.Errorf("resume ring at %d, produced %d: %w", at, produced, ErrResume)
	}
	return c, nil
}

// Recv copies descriptors that are there into ds and returns how many. Their slots, and buffers that belong to the slots,
// stay the host's until Commit.
func (c *Consumer) Recv(ds []Descriptor) int {
	n := 0
	for ; n < len(ds); n++ {
		d := c.at(c.next)
		w := atomic.LoadUint32(&d[control])
		if w&phaseMask != c.phase(c.next) {
			break
		}
		copy(ds[n][control+1:], d[control+1:])
		ds[n][control] = w
		c.count(ds[n][sequence])
		c.next++
	}
	return n
}

// count compares a sequence number with the expected one. A number from before is no gap; counting goes on from it.
func (c *Consumer) count(got uint32) {
	if gap := got - c.expected; gap < 1<<31 {
		c.lost += uint64(gap)
	}
	c.expected = got + 1
}

// Commit publishes the index: the card may reuse the slots of everything received. It says whether there was anything to
// publish.
func (c *Consumer) Commit() bool {
	if c.next == c.published {
		return false
	}
	c.published = c.next
	c.note.put(c.next, c.expected)
	c.bell.ring(c.next)
	return true
}

// Index returns the index of the next descriptor to be received.
func (c *Consumer) Index() uint32 { return c.next }

// Lost returns how many descriptors the card counted but did not write.
func (c *Consumer) Lost() uint64 { return c.lost }
