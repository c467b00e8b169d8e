package emu_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// host is the host side of a bench: a Device, and the five rings in its memory.
type host struct {
	*bench
	dev      device.Device
	rings    [regs.RingInstances]*device.DMA
	frames   *device.DMA // buffers of the exception ring
	consumer uint32      // of the completion ring
	producer uint32      // of the command ring
	sequence uint32
}

const (
	entries     = 32
	bufferBytes = 2048
)

func newHost(t testing.TB, cfg emu.Config, mem port.MemConfig) *host {
	t.Helper()
	h := &host{bench: newBench(t, cfg, mem)}
	h.attach()
	return h
}

// attach opens the card and starts its rings.
func (h *host) attach() {
	h.Helper()
	h.dev = vfiousertest.Join(h.TB, h.card)
	h.Cleanup(func() {
		if err := h.dev.Close(); err != nil {
			h.Error(err)
		}
	})
	h.start()
}

func (h *host) start() {
	h.Helper()
	h.consumer, h.producer = 0, 0
	if err := h.dev.WriteConfig(4, []byte{6, 0}); err != nil {
		h.Fatal(err)
	}
	h.store(regs.HostifControl, regs.HostifControlEnableMask)
	h.frames = h.alloc("buffers", entries*bufferBytes)
	for i := range h.rings {
		h.rings[i] = h.alloc("ring", entries*64)
		at := func(r regs.Reg) regs.Reg { return r.At(i, regs.RingStride) }
		h.store(at(regs.RingIova), uint32(h.rings[i].IOVA))
		h.store(at(regs.RingIova)+4, uint32(h.rings[i].IOVA>>32))
		h.store(at(regs.RingEntries), entries)
		if i == regs.RingException {
			h.store(at(regs.RingBufferBytes), bufferBytes)
			h.store(at(regs.RingBuffers), uint32(h.frames.IOVA))
			h.store(at(regs.RingBuffers)+4, uint32(h.frames.IOVA>>32))
		}
		h.store(at(regs.RingControl), 1)
		if got := h.load(at(regs.RingStatus)); got != regs.RingStatusRunningMask {
			h.Fatalf("ring %d: status %#x", i, got)
		}
	}
}

func (h *host) alloc(name string, n int) *device.DMA {
	h.Helper()
	m, err := h.dev.AllocDMA(name, n)
	if err != nil {
		h.Fatal(err)
	}
	return m
}

func (h *host) put(ring int, index uint32, e interface{ Encode([]uint32) }) {
	var w [16]uint32
	e.Encode(w[:])
	for i, v := range w {
		binary.LittleEndian.PutUint32(h.rings[ring].Bytes[index%entries*64+uint32(4*i):], v)
	}
}

func (h *host) get(ring int, index uint32, e interface{ Decode([]uint32) }) {
	var w [16]uint32
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(h.rings[ring].Bytes[index%entries*64+uint32(4*i):])
	}
	e.Decode(w[:])
}

// post hands a command to the card.
func (h *host) post(e regs.CommandEntry) (sequence uint32) {
	h.Helper()
	h.sequence++
	e.Sequence, e.Cookie = h.sequence, ^h.sequence
	h.put(regs.RingCommand, h.producer, &e)
	h.producer++
	h.store(regs.RingProducer.At(regs.RingCommand, regs.RingStride), h.producer)
	return h.sequence
}

// completions returns the answers that have come.
func (h *host) completions() []regs.CompletionEntry {
	h.Helper()
	var done []regs.CompletionEntry
	for ; h.consumer != h.load(regs.RingProducer.At(regs.RingCompletion, regs.RingStride)); h.consumer++ {
		var e regs.CompletionEntry
		h.get(regs.RingCompletion, h.consumer, &e)
		done = append(done, e)
	}
	h.store(regs.RingConsumer.At(regs.RingCompletion, regs.RingStride), h.consumer)
	return done
}

// command carries out one command.
func (h *host) command(e regs.CommandEntry) regs.CompletionEntry {
	h.Helper()
	sequence := h.post(e)
	for range 10_000 {
		h.step()
		if done := h.completions(); len(done) > 0 {
			d := done[0]
			if len(done) > 1 || d.Sequence != sequence || d.Cookie != ^sequence || d.VerbVerb != e.ControlType {
				h.Fatalf("completions of command %d: %+v", sequence, done)
			}
			return d
		}
	}
	h.Fatalf("command %+v: no completion", e)
	return regs.CompletionEntry{}
}

// mustDo carries out a command that succeeds.
func (h *host) mustDo(e regs.CommandEntry) regs.CompletionEntry {
	h.Helper()
	d := h.command(e)
	if d.ControlStatus != regs.CompletionControlStatusOk {
		h.Fatalf("command %+v: status %d", e, d.ControlStatus)
	}
	return d
}

func bulk(verb uint32, off uint64, n int, iova uint64) regs.CommandEntry {
	return regs.CommandEntry{ControlType: verb, Bar2Offset: uint32(off), Length: uint32(n), IovaLo: uint32(iova), IovaHi: uint32(iova >> 32)}
}

// copyBytes makes the card copy host memory through its head memory.
func (h *host) copyBytes(dst, src uint64, n int) error {
	for _, e := range []regs.CommandEntry{
		bulk(regs.CommandControlTypeWrite, regs.MemHeadOffset, n, src),
		bulk(regs.CommandControlTypeRead, regs.MemHeadOffset, n, dst),
	} {
		if d := h.command(e); d.ControlStatus != regs.CompletionControlStatusOk {
			return fmt.Errorf("status %d: %w", d.ControlStatus, device.ErrDMA)
		}
	}
	return nil
}
