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
	if n := r.entries(); h.index(i)-r.get(regs.RingConsumer) >= n-kept(e.ReasonReason, n) {
		r.count(regs.RingLost)
		return false
	}
	if uint64(len(frame)) > uint64(r.get(regs.RingBufferBytes)) {
		r.count(regs.RingTruncated)
	}
	iova, n, ok := h.fill(i, frame)
	if !ok {
		return false
	}
	e.Length, e.IovaLo, e.IovaHi = n, uint32(iova), uint32(iova>>32)
	e.Tick, e.ControlPhase = h.reg.Get(regs.TimerTick), r.phase(h.index(i))
	e.Encode(h.words[:])
	h.produce(i)
	return true
}

// kept is how many of a ring's n descriptors an exception leaves free: none where a server may get what a connection
// waits with, an eighth where the host has only words for it, a quarter where no connection waits. So neither clients that
// say nothing sensible nor a flood of other frames keep a connection from its server.
func kept(reason, n uint32) uint32 {
	switch reason {
	case regs.ExceptionReasonReasonNoRule, regs.ExceptionReasonReasonNoServer, regs.ExceptionReasonReasonHeadTooLarge,
		regs.ExceptionReasonReasonServerFailed, regs.ExceptionReasonReasonKeyExists:
		return 0
	case regs.ExceptionReasonReasonBadRequest, regs.ExceptionReasonReasonHeadTimeout, regs.ExceptionReasonReasonNotHttp,
		regs.ExceptionReasonReasonNotTls, regs.ExceptionReasonReasonH2c, regs.ExceptionReasonReasonBadHello:
		return n / 8
	}
	if reason >= regs.ExceptionReasonReasonRewrite && reason != regs.ExceptionReasonReasonFragmented {
		return 0
	}
	return n / 4
}

// fill puts bytes into the buffer of the next descriptor of ring i, as many as there is room for.
func (h *Interface) fill(i int, p []byte) (iova uint64, n uint32, ok bool) {
	r := &h.ring[i]
	size := r.get(regs.RingBufferBytes)
	iova = r.get64(regs.RingBuffers) + r.slot(h.index(i))*uint64(size)
	if uint64(len(p)) > uint64(size) {
		p = p[:size]
	}
	if h.write(i, iova, p) != nil {
		r.count(regs.RingLost)
		h.fail(r)
		return 0, 0, false
	}
	return iova, uint32(len(p)), true
}

// Event tells the host what happened to a connection, with the begin of a head where there is one and the ring has
// buffers.
func (h *Interface) Event(e *regs.EventEntry, head []byte) {
	const i = regs.RingEvent
	var ok bool
	if e.Sequence, ok = h.begin(i); !ok {
		return
	}
	if len(head) != 0 && h.ring[i].get(regs.RingBufferBytes) != 0 {
		iova, n, ok := h.fill(i, head)
		if !ok {
			return
		}
		e.Length, e.IovaLo, e.IovaHi = n, uint32(iova), uint32(iova>>32)
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
