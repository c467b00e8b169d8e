package devicetest

import (
	"encoding/binary"
	"fmt"

	"splicenic/driver/device"
	"splicenic/regs"
)

// SpliceHarness describes a card of this project behind d to the suite, whatever d reaches it by. The card must be free:
// its command and completion rings are used. It must be bus master, and step by itself.
func SpliceHarness(d device.Device) Harness {
	h := &spliceHost{dev: d}
	return Harness{
		Device:   d,
		Scratch:  Register{Region: device.Bar0, Off: uint64(regs.ControlScratch), Mask: regs.ControlScratchValueMask},
		Constant: Register{Region: device.Bar0, Off: uint64(regs.DirectoryMagic), Value: regs.Magic},
		Window:   Window{Region: device.Bar2, Off: regs.MemHeadOffset, Bytes: 8192},
		Raise:    func(v int) { d.Store32(device.Bar0, uint64(regs.ControlInterruptTest), 1<<v) },
		Copy:     h.copy,
	}
}

// spliceEntries is how many descriptors its rings have.
const spliceEntries = 32

// spliceHost drives the command and completion rings with one command at a time.
type spliceHost struct {
	dev                  device.Device
	command, completions *device.DMA
	producer, consumer   uint32
}

// at is where a register of a ring lies in BAR0.
func at(r regs.Reg, ring int) uint64 { return uint64(r.At(ring, regs.RingStride)) }

func (h *spliceHost) start() error {
	h.dev.Store32(device.Bar0, uint64(regs.HostifControl), regs.HostifControlEnableMask)
	for _, x := range []struct {
		ring int
		mem  **device.DMA
	}{{regs.RingCommand, &h.command}, {regs.RingCompletion, &h.completions}} {
		m, err := h.dev.AllocDMA("ring", spliceEntries*regs.CommandWords*4)
		if err != nil {
			return err
		}
		*x.mem = m
		h.dev.Store32(device.Bar0, at(regs.RingIova, x.ring), uint32(m.IOVA))
		h.dev.Store32(device.Bar0, at(regs.RingIova, x.ring)+4, uint32(m.IOVA>>32))
		h.dev.Store32(device.Bar0, at(regs.RingEntries, x.ring), spliceEntries)
		h.dev.Store32(device.Bar0, at(regs.RingControl, x.ring), regs.RingControlEnableMask)
	}
	return h.dev.Err()
}

// do has the card carry out one command.
func (h *spliceHost) do(e regs.CommandEntry) error {
	var w [regs.CommandWords]uint32
	e.Encode(w[:])
	for i, v := range w {
		binary.LittleEndian.PutUint32(h.command.Bytes[(h.producer%spliceEntries*regs.CommandWords+uint32(i))*4:], v)
	}
	h.producer++
	h.dev.Store32(device.Bar0, at(regs.RingProducer, regs.RingCommand), h.producer)
	// The load of the index precedes those of the completion below.
	for h.dev.Load32(device.Bar0, at(regs.RingProducer, regs.RingCompletion)) == h.consumer {
		if err := h.dev.Err(); err != nil {
			return err
		}
	}
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(h.completions.Bytes[(h.consumer%spliceEntries*regs.CommandWords+uint32(i))*4:])
	}
	h.consumer++
	h.dev.Store32(device.Bar0, at(regs.RingConsumer, regs.RingCompletion), h.consumer)
	var done regs.CompletionEntry
	done.Decode(w[:])
	switch done.ControlStatus {
	case regs.CompletionControlStatusOk:
		return nil
	case regs.CompletionControlStatusDma:
		return device.ErrDMA
	}
	return fmt.Errorf("command %d ended with status %d", e.ControlType, done.ControlStatus)
}

// copy makes the card copy host memory through its head memory.
func (h *spliceHost) copy(dst, src uint64, n int) error {
	if h.command == nil {
		if err := h.start(); err != nil {
			return err
		}
	}
	bulk := func(verb uint32, iova uint64) error {
		return h.do(regs.CommandEntry{ControlType: verb, Bar2Offset: uint32(regs.MemHeadOffset), Length: uint32(n), IovaLo: uint32(iova), IovaHi: uint32(iova >> 32)})
	}
	if err := bulk(regs.CommandControlTypeWrite, src); err != nil {
		return err
	}
	return bulk(regs.CommandControlTypeRead, dst)
}
