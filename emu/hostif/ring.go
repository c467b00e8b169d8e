package hostif

import (
	"encoding/binary"

	"splicenic/emu/regfile"
	"splicenic/regs"
)

const (
	descriptorBytes = 64
	descriptorWords = descriptorBytes / 4
	maxEntries      = 65_536
	maxBuffer       = 65_536
)

// ring is one ring's registers.
type ring struct {
	reg  *regfile.File
	base regs.Reg // where its registers are from the first ring's
}

func (r *ring) get(x regs.Reg) uint32    { return r.reg.Get(x + r.base) }
func (r *ring) set(x regs.Reg, v uint32) { r.reg.Set(x+r.base, v) }
func (r *ring) get64(x regs.Reg) uint64  { return r.reg.Get64(x + r.base) }
func (r *ring) count(x regs.Reg)         { r.reg.Add64(x+r.base, 1) }
func (r *ring) entries() uint32          { return r.get(regs.RingEntries) }
func (r *ring) slot(index uint32) uint64 { return uint64(index & (r.entries() - 1)) }
func (r *ring) iova(index uint32) uint64 {
	return r.get64(regs.RingIova) + r.slot(index)*descriptorBytes
}
func (r *ring) phase(index uint32) uint32 { return ^(index / r.entries()) & 1 }

// valid says whether the ring's registers make sense.
func (r *ring) valid(buffers bool) bool {
	n, size := r.entries(), r.get(regs.RingBufferBytes)
	return n != 0 && n&(n-1) == 0 && n <= maxEntries &&
		r.get64(regs.RingIova)%descriptorBytes == 0 && r.get64(regs.RingWriteback)%descriptorBytes == 0 &&
		(!buffers || size != 0 && size%64 == 0 && size <= maxBuffer)
}

// vectors are what tells of the rings the card produces.
var vectors = [regs.RingInstances]int{regs.RingException: VectorException, regs.RingEvent: VectorEvent, regs.RingCompletion: VectorCompletion}

// index is where the card writes the next descriptor of a ring it produces: the producer index, and beyond it those that
// have not arrived.
func (h *Interface) index(i int) uint32 { return h.ring[i].get(regs.RingProducer) + h.ahead[i] }

// begin is the start of every descriptor the card produces: it takes a sequence number and says whether the descriptor
// can be written. A consumer index that cannot be counts as a full ring.
func (h *Interface) begin(i int) (sequence uint32, ok bool) {
	r := &h.ring[i]
	sequence = r.get(regs.RingSequence)
	r.set(regs.RingSequence, sequence+1)
	if !h.ready(r) || h.index(i)-r.get(regs.RingConsumer) >= r.entries() {
		r.count(regs.RingLost)
		return sequence, false
	}
	return sequence, true
}

// write writes a part of a descriptor of ring i, or its frame.
func (h *Interface) write(i int, iova uint64, p []byte) error {
	if h.poster != nil {
		h.poster.Post(i, iova, p, false)
		return nil
	}
	return h.host.Write(iova, p)
}

// produce writes the descriptor in h.words, the control word last.
func (h *Interface) produce(i int) {
	r := &h.ring[i]
	iova := r.iova(h.index(i))
	for j, w := range h.words {
		binary.LittleEndian.PutUint32(h.scratch[4*j:], w)
	}
	if h.poster != nil {
		h.ahead[i]++
		h.poster.Post(i, iova+4, h.scratch[4:], false)
		h.poster.Post(i, iova, h.scratch[:4], true)
		return
	}
	if h.host.Write(iova+4, h.scratch[4:]) != nil || h.host.Store32(iova, h.words[0]) != nil {
		r.count(regs.RingLost)
		h.fail(r)
		return
	}
	h.arrive(i)
}

// arrive moves the producer index: the descriptor is the host's.
func (h *Interface) arrive(i int) {
	r := &h.ring[i]
	r.set(regs.RingProducer, r.get(regs.RingProducer)+1)
	r.count(regs.RingDescriptors)
	h.written |= 1 << i
	h.due |= 1 << vectors[i]
}

// next reads the next descriptor of a ring the host produces into h.words. The doorbell alone says that it is there.
func (h *Interface) next(i int) bool {
	r := &h.ring[i]
	index := r.get(regs.RingConsumer)
	waiting := r.get(regs.RingProducer) - index
	if waiting == 0 || !h.ready(r) {
		return false
	}
	if waiting > r.entries() {
		h.fail(r)
		return false
	}
	iova := r.iova(index)
	err := h.host.Read(iova, h.scratch[:])
	switch {
	case !h.ready(r) || r.get(regs.RingConsumer) != index || r.iova(index) != iova: // another ring by now
		return false
	case err != nil:
		h.fail(r)
		return false
	}
	for j := range h.words {
		h.words[j] = binary.LittleEndian.Uint32(h.scratch[4*j:])
	}
	r.set(regs.RingConsumer, index+1)
	r.count(regs.RingDescriptors)
	h.written |= 1 << i
	return true
}
