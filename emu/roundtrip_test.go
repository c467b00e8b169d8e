package emu_test

import (
	"context"
	"sync"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/vfiouser"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// eachBus runs a benchmark on a card in this process and on one behind a socket.
func eachBus(b *testing.B, run func(b *testing.B, h *host)) {
	for _, bus := range []struct {
		name string
		join func(*bench) device.Device
	}{
		{"in-process", func(h *bench) device.Device { return device.Local(h.card, device.LocalConfig{}) }},
		{"vfio-user", func(h *bench) device.Device { return vfiousertest.Dial(h, h.card, vfiouser.Options{Memfd: true}) }},
	} {
		b.Run(bus.name, func(b *testing.B) {
			h := &host{bench: newBench(b, emu.Config{}, port.MemConfig{})}
			h.dev = bus.join(h.bench)
			b.Cleanup(func() { h.dev.Close() })
			h.start()
			run(b, h)
		})
	}
}

// BenchmarkRegister is one access of a register. A store is posted: over a socket it costs what sending it costs, until
// the card limits it.
func BenchmarkRegister(b *testing.B) {
	eachBus(b, func(b *testing.B, h *host) {
		b.Run("load32", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.dev.Load32(device.Bar0, uint64(regs.ControlScratch))
			}
		})
		b.Run("store32", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.dev.Store32(device.Bar0, uint64(regs.ControlScratch), 1)
			}
			h.dev.Load32(device.Bar0, uint64(regs.ControlScratch)) // they have arrived
		})
		b.Run("store32 load32", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.dev.Store32(device.Bar0, uint64(regs.ControlScratch), 1)
				h.dev.Load32(device.Bar0, uint64(regs.ControlScratch))
			}
		})
	})
}

// BenchmarkRoundTrip is a command from the doorbell to the interrupt that tells of its completion: the host rings, the
// card, running by itself, reads the descriptor, carries it out, writes the completion and raises the vector the host
// waits for.
func BenchmarkRoundTrip(b *testing.B) {
	eachBus(b, func(b *testing.B, h *host) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := h.card.Run(ctx); err != nil {
				b.Error(err)
			}
		})
		defer wg.Wait()
		defer cancel()
		if err := h.dev.EnableVectors(3); err != nil {
			b.Fatal(err)
		}
		command := bulk(regs.CommandControlTypeClear, regs.MemHeadOffset, 4, 0)
		doorbell := uint64(regs.RingProducer.At(regs.RingCommand, regs.RingStride))
		consumed := uint64(regs.RingConsumer.At(regs.RingCompletion, regs.RingStride))
		b.ReportAllocs()
		for n := uint32(1); b.Loop(); n++ {
			h.put(regs.RingCommand, n-1, &command)
			h.dev.Store32(device.Bar0, doorbell, n)
			if _, err := h.dev.Wait(ctx, 2); err != nil {
				b.Fatal(err)
			}
			h.dev.Store32(device.Bar0, consumed, n)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "roundtrips/s")
	})
}
