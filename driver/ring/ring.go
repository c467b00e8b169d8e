package ring

import (
	"fmt"
	"sync/atomic"

	"splicenic/regs"
)

// DescriptorBytes is the size of a descriptor, Words the same in words.
const (
	DescriptorBytes = regs.CommandBytes
	Words           = regs.CommandWords
)

// maxEntries is the largest ring a card takes.
const maxEntries = 1 << 16

// A Descriptor is one entry of a ring. The words that all formats share are where package regs says for any of them.
type Descriptor [Words]uint32

const (
	control  = regs.CommandControl
	sequence = regs.CommandSequence

	phaseMask = regs.CommandControlPhaseMask
)

// A Storer takes doorbells; a device.Device is one.
type Storer interface {
	Store32(region int, off uint64, v uint32)
}

// A Bell is the register an index is published to.
type Bell struct {
	Dev    Storer
	Region int
	Off    uint64
}

func (b *Bell) ring(index uint32) { b.Dev.Store32(b.Region, b.Off, index) }

// slots is the ring's memory and its arithmetic.
type slots struct {
	words   []uint32
	entries uint32
}

func newSlots(mem []byte) (slots, error) {
	n := len(mem) / DescriptorBytes
	if len(mem)%DescriptorBytes != 0 || n == 0 || n > maxEntries || n&(n-1) != 0 {
		return slots{}, fmt.Errorf("new ring: %d bytes are not a power of two of at most %d descriptors", len(mem), maxEntries)
	}
	w, err := view(mem)
	if err != nil {
		return slots{}, fmt.Errorf("new ring: %w", err)
	}
	return slots{w, uint32(n)}, nil
}

// at returns the words of the slot of an index.
func (s *slots) at(index uint32) *Descriptor {
	return (*Descriptor)(s.words[index&(s.entries-1)*Words:])
}

// phase returns the phase bit of an index, in place in the control word.
func (s *slots) phase(index uint32) uint32 {
	return ^(index / s.entries) & 1 << regs.CommandControlPhaseShift
}

// holds says whether the slots hold everything from one index up to another.
func (s *slots) holds(from, to uint32) bool {
	if to-from > s.entries {
		return false
	}
	for i := from; i != to; i++ {
		if atomic.LoadUint32(&s.at(i)[control])&phaseMask != s.phase(i) {
			return false
		}
	}
	return true
}

// Entries returns the number of slots.
func (s *slots) Entries() uint32 { return s.entries }
