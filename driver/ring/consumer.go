package ring

import "sync/atomic"

// A Consumer takes descriptors that the card produced.
type Consumer struct {
	slots
	bell      Bell
	next      uint32 // index of the next descriptor
	published uint32
	expected  uint32 // its sequence number
	lost      uint64
}

// NewConsumer starts at index start with sequence number first over the memory of a ring whose card is stopped. It writes
// the memory: every slot looks not yet produced.
func NewConsumer(mem []byte, start, first uint32, bell Bell) (*Consumer, error) {
	s, err := newSlots(mem)
	if err != nil {
		return nil, err
	}
	c := &Consumer{slots: s, bell: bell, next: start, published: start, expected: first}
	for i := range s.entries {
		d := s.at(start + i)
		*d = Descriptor{}
		atomic.StoreUint32(&d[control], s.phase(start+i)^phaseMask)
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
	c.bell.ring(c.next)
	return true
}

// Index returns the index of the next descriptor to be received.
func (c *Consumer) Index() uint32 { return c.next }

// Lost returns how many descriptors the card counted but did not write.
func (c *Consumer) Lost() uint64 { return c.lost }
