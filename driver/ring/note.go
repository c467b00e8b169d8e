package ring

import "sync/atomic"

// NoteBytes is the size of the memory a Consumer makes its note in.
const NoteBytes = 4 * noteWords

const noteWords = 4

// A note tells a successor over the same memory which sequence number an index stands for; the descriptor before it may
// be gone from the ring by then. It has two places, written in turn and before the index is published, so that one of them
// is about the index the card knows, wherever the Consumer ended:
//
//	word  0 index  1 sequence number | 2 index  3 sequence number
type note struct {
	words []uint32
	place int // of the index published last: 0 or 2
}

// start writes the note of a ring that begins. The other place is about an index that the ring does not reach before it is
// written.
func (n *note) start(index, sequence uint32) {
	if n.words == nil {
		return
	}
	n.place = 0
	n.store(2, ^index, 0)
	n.store(0, index, sequence)
}

// put notes the sequence number of an index that is about to be published.
func (n *note) put(index, sequence uint32) {
	if n.words == nil {
		return
	}
	n.place ^= 2
	n.store(n.place, index, sequence)
}

// store writes a place, the index last: until then it stands for one that was published before the other place's.
func (n *note) store(place int, index, sequence uint32) {
	atomic.StoreUint32(&n.words[place+1], sequence)
	atomic.StoreUint32(&n.words[place], index)
}

// find looks up the sequence number of a published index and goes on from its place.
func (n *note) find(index uint32) (sequence uint32, ok bool) {
	for _, place := range [...]int{0, 2} {
		if atomic.LoadUint32(&n.words[place]) == index {
			n.place = place
			return atomic.LoadUint32(&n.words[place+1]), true
		}
	}
	return 0, false
}
