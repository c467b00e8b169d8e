package hostif

import (
	"splicenic/driver/device"
	"splicenic/emu/regfile"
	"splicenic/regs"
)

// Interrupt vectors.
const (
	VectorException  = 0
	VectorEvent      = 1 // and every cause of hostif.cause
	VectorCompletion = 2
	Vectors          = 3
)

// Causes of the event vector, as hostif.cause has them.
const (
	CauseLink     = regs.HostifCauseLinkMask
	CauseHeadLow  = regs.HostifCauseHeadLowMask
	CausePagesLow = regs.HostifCausePagesLowMask
	CauseDMA      = regs.HostifCauseDmaMask
	CauseSensor   = regs.HostifCauseSensorMask
)

// Interface is the card's side of the rings. New makes it.
type Interface struct {
	reg   *regfile.File
	host  device.Memory // nil: nobody is there
	raise func(vector int)
	drop  int // completions to lose: fault injection

	poster Poster                     // nil: what is written has arrived when the call returns
	ahead  [regs.RingInstances]uint32 // descriptors that have not arrived; zero between two steps

	due     uint32 // vectors to raise, and
	written uint32 // rings whose index to write back, at the next Flush; both zero between two steps

	ring    [regs.RingInstances]ring
	scratch [descriptorBytes]byte
	words   [descriptorWords]uint32
}

// New makes an interface with no host. raise raises an interrupt vector and does not block; nil: nobody listens.
func New(r *regfile.File, raise func(vector int)) *Interface {
	h := &Interface{reg: r, raise: raise}
	for i := range h.ring {
		h.ring[i] = ring{reg: r, base: regs.Reg(i) * regs.RingStride}
	}
	return h
}

// A Poster is host memory that takes what rings write in order, to be written later. It tells by Arrive what became of
// each write. Its other accesses come behind all that was posted.
type Poster interface {
	device.Memory
	// Post takes bytes of ring's. The last ones of a descriptor are its control word.
	Post(ring int, iova uint64, p []byte, last bool)
}

// SetHost gives the interface its host's memory; nil takes it away. Rings keep their indexes.
func (h *Interface) SetHost(m device.Memory) {
	h.host = m
	h.poster, _ = m.(Poster)
}

// Running says whether what was posted for a ring is still to be written.
func (h *Interface) Running(ring int) bool { return h.ready(&h.ring[ring]) }

// Arrive ends a posted write. The last one of a descriptor hands it to the host; an error loses the descriptor and all
// behind it, and stops the ring.
func (h *Interface) Arrive(ring int, last bool, err error) {
	switch r := &h.ring[ring]; {
	case err != nil:
		h.Abandon(ring)
		h.fail(r)
	case last && h.ahead[ring] != 0:
		h.ahead[ring]--
		h.arrive(ring)
	}
}

// Abandon gives up what has not arrived of a ring.
func (h *Interface) Abandon(ring int) {
	h.reg.Add64(regs.RingLost+h.ring[ring].base, uint64(h.ahead[ring]))
	h.ahead[ring] = 0
}

// Forget is for a reset: nothing is on its way.
func (h *Interface) Forget() { clear(h.ahead[:]) }

// Control makes ring control stores take effect: a ring that was enabled runs if its registers make sense, with its
// indexes as they are; a ring that was disabled stops.
func (h *Interface) Control() {
	for i := range h.ring {
		r := &h.ring[i]
		status := r.get(regs.RingStatus)
		enabled := r.get(regs.RingControl)&regs.RingControlEnableMask != 0
		switch {
		case !enabled:
			status = 0
		case status&(regs.RingStatusRunningMask|regs.RingStatusErrorMask) != 0:
			continue
		case r.valid(i == regs.RingException || i == regs.RingEvent && r.get(regs.RingBufferBytes) != 0):
			status = regs.RingStatusRunningMask
		default:
			status = regs.RingStatusErrorMask
		}
		r.set(regs.RingStatus, status)
	}
}

// Cause sets causes of the event vector and raises it if one of them is new.
func (h *Interface) Cause(causes uint32) {
	old := h.reg.Get(regs.HostifCause)
	if causes&^old == 0 {
		return
	}
	h.reg.Set(regs.HostifCause, old|causes)
	h.due |= 1 << VectorEvent
}

// Flush ends a batch: it writes the indexes back that moved and raises the vectors that are due.
func (h *Interface) Flush() {
	for i := 0; h.written != 0; i++ {
		if h.written&(1<<i) != 0 {
			h.written &^= 1 << i
			h.writeBack(i)
		}
	}
	for v := 0; h.due != 0; v++ {
		if h.due&(1<<v) != 0 {
			h.due &^= 1 << v
			h.reg.Add64(regs.HostifInterrupts, 1)
			if h.raise != nil {
				h.raise(v)
			}
		}
	}
}

func (h *Interface) writeBack(i int) {
	r := &h.ring[i]
	iova := r.get64(regs.RingWriteback)
	if iova == 0 || !h.ready(r) {
		return
	}
	own := regs.RingProducer
	if i == regs.RingInject || i == regs.RingCommand {
		own = regs.RingConsumer
	}
	if h.host.Store32(iova, r.get(own)) != nil && h.ready(r) {
		h.fail(r)
	}
}

// Ready says whether the card may access host memory at all.
func (h *Interface) Ready() bool {
	return h.host != nil && h.reg.Get(regs.HostifControl)&regs.HostifControlEnableMask != 0
}

func (h *Interface) ready(r *ring) bool {
	return r.get(regs.RingStatus)&regs.RingStatusRunningMask != 0 && h.Ready()
}

// fail stops a ring whose memory the host refused.
func (h *Interface) fail(r *ring) {
	r.set(regs.RingStatus, regs.RingStatusErrorMask)
	h.refused()
}

func (h *Interface) refused() {
	h.reg.Add64(regs.HostifDmaErrors, 1)
	h.Cause(CauseDMA)
}

// Read copies from host memory for a bulk command and says whether the host let it.
func (h *Interface) Read(iova uint64, p []byte) bool {
	if !h.Ready() {
		return false
	}
	if h.host.Read(iova, p) != nil {
		h.refused()
		return false
	}
	return true
}

// Write copies to host memory for a bulk command and says whether the host let it.
func (h *Interface) Write(iova uint64, p []byte) bool {
	if !h.Ready() {
		return false
	}
	if h.host.Write(iova, p) != nil {
		h.refused()
		return false
	}
	return true
}

// DropCompletions loses the next n completions without a trace: fault injection.
func (h *Interface) DropCompletions(n int) { h.drop = n }
