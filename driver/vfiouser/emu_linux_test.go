package vfiouser_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// newEmu returns a small emulated card that runs by itself, and how to end it.
func newEmu(t testing.TB) (*emu.Card, func()) {
	t.Helper()
	near, _ := port.Pair(port.MemConfig{MACs: [2][6]byte{{2, 0, 0, 0, 1, 1}, {2, 0, 0, 0, 2, 1}}})
	card, err := emu.New(emu.Config{Client: near, Geometry: emu.Geometry{Pages: 1024, Heads: 64, CamClientWords: 4096, CamServerWords: 8192,
		Listeners: 16, Services: 16, Groups: 16, Servers: 16, NextHops: 16, Vips: 16, LocalAddresses: 16, Rules: 64, UrlNodes: 256, Slots: 16, LocalPorts: 16}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := card.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return card, sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		if err := card.Close(); err != nil {
			t.Error(err)
		}
	})
}

// emuHost drives the command and completion rings of an emulated card over any Device.
type emuHost struct {
	dev                  device.Device
	command, completions *device.DMA
	producer, consumer   uint32
}

const emuEntries = 32

func (h *emuHost) store(r regs.Reg, ring int, v uint64) {
	h.dev.Store32(device.Bar0, uint64(r.At(ring, regs.RingStride)), uint32(v))
	if r == regs.RingIova {
		h.dev.Store32(device.Bar0, uint64(r.At(ring, regs.RingStride))+4, uint32(v>>32))
	}
}

func (h *emuHost) start() error {
	h.dev.Store32(device.Bar0, uint64(regs.HostifControl), regs.HostifControlEnableMask)
	for _, x := range []struct {
		ring int
		mem  **device.DMA
	}{{regs.RingCommand, &h.command}, {regs.RingCompletion, &h.completions}} {
		m, err := h.dev.AllocDMA("ring", emuEntries*64)
		if err != nil {
			return err
		}
		*x.mem = m
		h.store(regs.RingIova, x.ring, m.IOVA)
		h.store(regs.RingEntries, x.ring, emuEntries)
		h.store(regs.RingControl, x.ring, 1)
	}
	return h.dev.Err()
}

// do has the card carry out one command.
func (h *emuHost) do(e regs.CommandEntry) error {
	var w [16]uint32
	e.Encode(w[:])
	for i, v := range w {
		m := h.command.Bytes[h.producer%emuEntries*64+uint32(4*i):]
		m[0], m[1], m[2], m[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	h.producer++
	h.store(regs.RingProducer, regs.RingCommand, uint64(h.producer))
	produced := uint64(regs.RingProducer.At(regs.RingCompletion, regs.RingStride))
	for h.dev.Load32(device.Bar0, produced) == h.consumer {
		if err := h.dev.Err(); err != nil {
			return err
		}
	}
	for i := range w {
		m := h.completions.Bytes[h.consumer%emuEntries*64+uint32(4*i):]
		w[i] = uint32(m[0]) | uint32(m[1])<<8 | uint32(m[2])<<16 | uint32(m[3])<<24
	}
	h.consumer++
	h.store(regs.RingConsumer, regs.RingCompletion, uint64(h.consumer))
	var done regs.CompletionEntry
	done.Decode(w[:])
	if done.ControlStatus != regs.CompletionControlStatusOk {
		return fmt.Errorf("status %d: %w", done.ControlStatus, device.ErrDMA)
	}
	return nil
}

// copy makes the card copy host memory through its head memory.
func (h *emuHost) copy(dst, src uint64, n int) error {
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

// emuHarness describes an emulated card behind dev to the suite.
func emuHarness(dev device.Device) devicetest.Harness {
	h := &emuHost{dev: dev}
	return devicetest.Harness{
		Device:   dev,
		Scratch:  devicetest.Register{Region: device.Bar0, Off: uint64(regs.ControlScratch), Mask: regs.ControlScratchValueMask},
		Constant: devicetest.Register{Region: device.Bar0, Off: uint64(regs.DirectoryMagic), Value: regs.Magic},
		Window:   devicetest.Window{Region: device.Bar2, Off: regs.MemHeadOffset, Bytes: 8192},
		Raise:    func(v int) { dev.Store32(device.Bar0, uint64(regs.ControlInterruptTest), 1<<v) },
		Copy:     h.copy,
	}
}

// TestEmuConformance runs the suite on the emulated card behind a socket.
func TestEmuConformance(t *testing.T) {
	for _, messages := range []bool{false, true} {
		name := "files"
		if messages {
			name = "messages"
		}
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devicetest.Harness {
				noLeaks(t)
				card, end := newEmu(t)
				s := serveAt(t, card, vfiouser.Config{}, runDir(t))
				o := s.options()
				o.Messages = messages
				c := s.dial(o)
				master(t, c)
				h := emuHarness(c)
				h.Close = func() {
					s.end()
					end()
				}
				return h
			})
		})
	}
}

// TestDriver brings the emulated card up over a socket and uses it.
func TestDriver(t *testing.T) {
	noLeaks(t)
	emulated, end := newEmu(t)
	defer end()
	s := serveAt(t, emulated, vfiouser.Config{}, runDir(t))
	defer s.end()
	c := s.dial(s.options())
	defer c.Close()
	card, err := driver.Open(t.Context(), c, driver.Config{Rings: driver.Rings{Exception: 64, Inject: 64, FrameBytes: 2048}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := card.Allocate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := card.Free(t.Context(), h); err != nil {
		t.Error(err)
	}
	if err := card.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
