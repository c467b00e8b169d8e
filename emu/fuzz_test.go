package emu_test

import (
	"encoding/binary"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// FuzzCard lets the input be everything that reaches a card from outside: register and memory stores at any place,
// configuration space, descriptors, frames, time. Whatever it is, the card does not panic and its registers stay
// readable.
func FuzzCard(f *testing.F) {
	op := func(kind byte, a, b uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte{kind}, a), b)
	}
	f.Add(op(opStep, 1, 0))
	f.Add(append(op(opStore, uint32(regs.ControlReset), 1), op(opStep, 5, 0)...))
	f.Add(append(op(opMemory, uint32(regs.MemServerOffset), 1), op(opSegment, 0, 0x12)...))
	f.Add(append(op(opMemory, uint32(regs.MemPageOffset), 0xffffffff), op(opStep, 1000, 0)...))
	f.Add(append(op(opCommand, regs.CommandControlTypeFill, uint32(regs.MemAddressListOffset)), op(opSegment, 1, 2)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		h := newHost(t, emu.Config{Strict: true}, port.MemConfig{Queue: 1024})
		h.serve()
		for sport := range uint16(4) {
			h.send(0, syn(1000+sport, clientISN).build(false), noOffload)
		}
		h.settle()
		for n := 0; len(in) >= 9 && n < 64; n++ {
			h.fuzz(in[0], binary.LittleEndian.Uint32(in[1:]), binary.LittleEndian.Uint32(in[5:]))
			in = in[9:]
		}
		h.card.Step(h.now)
		h.card.Step(h.now + time.Hour)
		h.want(regs.DirectoryMagic, regs.Magic)
	})
}

const (
	opStep = iota
	opStore
	opMemory
	opConfig
	opCommand
	opSegment
	opInject
	opRestore
	ops
)

func (h *host) fuzz(op byte, a, b uint32) {
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], b)
	switch op % ops {
	case opStep:
		h.now += time.Duration(a%100_000) * time.Millisecond
		h.card.Step(h.now)
		h.drain()
	case opStore:
		_ = h.card.WriteRegion(device.Bar0, uint64(a%0x32000)&^3, p[:])
	case opMemory:
		_ = h.card.WriteRegion(device.Bar2, uint64(a%regs.Bar2Bytes)&^3, p[:])
	case opConfig:
		_ = h.card.WriteConfig(a%0x60, p[:])
	case opCommand:
		e := bulk(a&15, uint64(b), int(a>>4&0xfff)*4, h.frames.IOVA)
		e.HandleN, e.HandleGeneration, e.Value, e.KeyControlKind = b&3, b>>2&3, a, b>>4&7
		e.FlagsServerSide, e.FlagsToClient, e.FlagsToServer = b>>7&1, b>>8&1, b>>9&1
		h.post(e)
	case opSegment:
		s := syn(1000+uint16(a&7), clientISN+b>>8&63)
		s.flags, s.ack = byte(b), a>>8
		if a&8 != 0 {
			s.payload = []byte(request)[:b>>16%uint32(len(request))]
		}
		if a&16 != 0 {
			s.dst, s.from, s.to, s.sport, s.dport = serverMAC, serverAddress, clientAddress, 8080, s.sport
		}
		_ = h.far[a>>4&1].Transmit(oneFrame(s.build(false)))
	case opInject:
		e := regs.InjectEntry{ControlType: a & 3, ControlPort: a >> 2 & 1, Length: b & 0xfff, IovaLo: uint32(h.frames.IOVA), IovaHi: uint32(h.frames.IOVA >> 32)}
		index := h.load(regs.RingProducer.At(regs.RingInject, regs.RingStride))
		h.put(regs.RingInject, index, &e)
		h.store(regs.RingProducer.At(regs.RingInject, regs.RingStride), index+1)
	case opRestore:
		if err := h.card.Restore(h.card.Snapshot()); err != nil {
			h.Error(err)
		}
	}
}
