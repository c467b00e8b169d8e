package hostif

import "splicenic/regs"

// Exception gives the host a frame: the bytes go to the slot's buffer, what does not fit is cut off and counted. Phase,
// length, sequence number, address and tick are filled in here.
func (h *Interface) Exception(frame []byte, e *regs.ExceptionEntry) (ok bool) {
	const i = regs.RingException
	r := &h.ring[i]
	if e.Sequence, ok = h.begin(i); !ok {
		return false
	}
	index, size := h.index(i), r.get(regs.RingBufferBytes)
	iova := r.get64(regs.RingBuffers) + r.slot(index)*uint64(size)
	if uint64(len(frame)) > uint64(size) {
		frame = frame[:size]
		r.count(regs.RingTruncated)
	}
	if h.write(i, iova, frame) != nil {
		r.count(regs.RingLost)
		h.fail(r)
		return false
	}
	e.Length, e.IovaLo, e.IovaHi = uint32(len(frame)), uint32(iova), uint32(iova>>32)
	e.Tick, e.ControlPhase = h.reg.Get(regs.TimerTick), r.phase(index)
	e.Encode(h.words[:])
	h.produce(i)
	return true
}

// Event tells the host what happened to a connection.
func (h *Interface) Event(e *regs.EventEntry) {
	const i = regs.RingEvent
	var ok bool
	if e.Sequence, ok = h.begin(i); !ok {
		return
	}
	e.Tick, e.ControlPhase = h.reg.Get(regs.TimerTick), h.ring[i].phase(h.index(i))
	e.Encode(h.words[:])
	h.produce(i)
}

// Completion answers a command. Its sequence word repeats the command's, so the caller fills it in.
func (h *Interface) Completion(e *regs.CompletionEntry) {
	if h.drop > 0 {
		h.drop--
		return
	}
	const i = regs.RingCompletion
	if _, ok := h.begin(i); !ok {
		return
	}
	e.Tick, e.ControlPhase = h.reg.Get(regs.TimerTick), h.ring[i].phase(h.index(i))
	e.Encode(h.words[:])
	h.produce(i)
}

// NextInject takes the next frame the host has injected and copies it into buf. A frame that is empty or larger than
// buf counts as truncated and is passed over: n is 0 then. ok is false where nothing waits.
func (h *Interface) NextInject(e *regs.InjectEntry, buf []byte) (n int, ok bool) {
	if !h.next(regs.RingInject) {
		return 0, false
	}
	e.Decode(h.words[:])
	r := &h.ring[regs.RingInject]
	if e.Length == 0 || uint64(e.Length) > uint64(len(buf)) {
		r.count(regs.RingTruncated)
		return 0, true
	}
	err := h.host.Read(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, buf[:e.Length])
	switch {
	case !h.ready(r): // not any more
		return 0, true
	case err != nil:
		h.fail(r)
		return 0, true
	}
	return int(e.Length), true
}

// NextCommand takes the next command.
func (h *Interface) NextCommand(e *regs.CommandEntry) bool {
	if !h.next(regs.RingCommand) {
		return false
	}
	e.Decode(h.words[:])
	return true
}
