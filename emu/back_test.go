package emu_test

import (
	"encoding/binary"
	"testing"

	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// TestBack: what comes of a frame that is to come back goes to the host, with the port it would have left by and the cookie,
// longer than any wire takes or not; frames before and behind it leave as ever.
func TestBack(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{MTU: 1500})
	h.splice(t)
	consumed := h.load(regs.RingProducer.At(regs.RingException, regs.RingStride))
	long := segment{dst: clientMAC, from: clientAddress, to: vipAddress, sport: 1000, dport: 80, flags: flagACK, payload: pattern(1800, 5)}
	long.seq, long.ack = h.clientNext(), h.isn+1
	emit := append(peerFrame(peerMAC, 0x88b5), "from the host"...)
	h.inject(0, regs.InjectEntry{ControlType: regs.InjectControlTypeEmit, ControlPort: 1}, emit)
	h.inject(1, regs.InjectEntry{ControlType: regs.InjectControlTypeReinject, FlagsBack: 1, Cookie: 0xfedcba98}, long.build(false))
	h.inject(2, regs.InjectEntry{ControlType: regs.InjectControlTypeReinject, FlagsBack: 1, Cookie: 7}, syn(2000, 77).build(false))
	h.inject(3, regs.InjectEntry{ControlType: regs.InjectControlTypeEmit, ControlPort: 1}, emit)
	h.settle()
	if out := h.drain(); len(out) != 2 || out[0].port != 1 || out[1].port != 1 {
		t.Fatalf("%d frames sent", len(out))
	}
	for i, want := range []struct {
		port, cookie, length uint32
		sport                uint16
	}{{1, 0xfedcba98, 54 + 1800, 1000}, {0, 7, 0, 80}} {
		var e regs.ExceptionEntry
		h.get(regs.RingException, consumed+uint32(i), &e)
		frame := h.frames.Bytes[uint64(e.IovaLo)|uint64(e.IovaHi)<<32-h.frames.IOVA:][:e.Length]
		if e.ReasonReason != regs.ExceptionReasonReasonFragmented || e.ControlPort != want.port || e.Back != want.cookie ||
			want.length != 0 && e.Length != want.length || binary.BigEndian.Uint16(frame[34:]) != want.sport {
			t.Errorf("exception %d: %+v", i, e)
		}
	}
}

// TestBackWithoutRoom: what the host has no room for is lost and counted, and leaves nowhere.
func TestBackWithoutRoom(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.serve()
	for i := range uint32(3 * entries / 2) {
		h.inject(i%entries, regs.InjectEntry{ControlType: regs.InjectControlTypeReinject, FlagsBack: 1, Cookie: i}, syn(uint16(2000+i), 77).build(false))
		h.store(regs.RingProducer.At(regs.RingInject, regs.RingStride), i+1)
		h.settle()
	}
	if lost := h.load(regs.RingLost.At(regs.RingException, regs.RingStride)); lost == 0 || len(h.drain()) != 0 {
		t.Errorf("%d descriptors lost", lost)
	}
}
