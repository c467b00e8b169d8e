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

// full says whether a ring the card produces has no free slot; a consumer index that cannot be counts as full.
func (r *ring) full() bool { return r.get(regs.RingProducer)-r.get(regs.RingConsumer) >= r.entries() }

// begin is the start of every descriptor the card produces: it takes a sequence number and says whether the descriptor
// can be written.
func (h *Interface) begin(r *ring) (sequence uint32, ok bool) {
	sequence = r.get(regs.RingSequence)
	r.set(regs.RingSequence, sequence+1)
	if !h.ready(r) || r.full() {
		r.count(regs.RingLost)
		return sequence, false
	}
	return sequence, true
}

// produce writes the descriptor in h.words, the control word last, and moves the producer index.
func (h *Interface) produce(i, vector int) {
	r := &h.ring[i]
	index := r.get(regs.RingProducer)
	iova := r.iova(index)
	for j, w := range h.words {
		binary.LittleEndian.PutUint32(h.scratch[4*j:], w)
	}
	if h.host.Write(iova+4, h.scratch[4:]) != nil || h.host.Store32(iova, h.words[0]) != nil {
		r.count(regs.RingLost)
		h.fail(r)
		return
	}
	r.set(regs.RingProducer, index+1)
	r.count(regs.RingDescriptors)
	h.written |= 1 << i
	h.due |= 1 << vector
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
	if h.host.Read(r.iova(index), h.scratch[:]) != nil {
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
