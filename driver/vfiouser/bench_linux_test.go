package vfiouser_test

import (
	"context"
	"fmt"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
	"splicenic/regs"
)

// BenchmarkRegister measures one access of a scratch card's register over the socket. A store is posted: it costs what
// sending it costs, until the server's speed limits it.
func BenchmarkRegister(b *testing.B) {
	_, _, c := scratch(b, vfiouser.Config{})
	b.Run("load32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Load32(device.Bar0, 4)
		}
	})
	b.Run("store32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Store32(device.Bar0, 4, 1)
		}
		c.Load32(device.Bar0, 4)
	})
	b.Run("store32 load32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Store32(device.Bar0, 4, 1)
			c.Load32(device.Bar0, 4)
		}
	})
}

// interrupts measures doorbell → device → MSI-X → host.
func interrupts(b *testing.B, d device.Device, raise func(int)) {
	if err := d.EnableVectors(1); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		raise(0)
		if _, err := d.Wait(context.Background(), 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "roundtrips/s")
}

func BenchmarkInterrupt(b *testing.B) {
	_, card, c := scratch(b, vfiouser.Config{})
	interrupts(b, c, card.NewHarness(c).Raise)
}

// BenchmarkEmu is BenchmarkRegister and BenchmarkInterrupt on the emulated card, which runs beside.
func BenchmarkEmu(b *testing.B) {
	card, end := newEmu(b)
	defer end()
	s := serveAt(b, card, vfiouser.Config{}, runDir(b))
	defer s.end()
	c := s.dial(s.options())
	defer c.Close()
	b.Run("load32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Load32(device.Bar0, uint64(regs.ControlScratch))
		}
	})
	b.Run("interrupt", func(b *testing.B) { interrupts(b, c, devicetest.SpliceHarness(c).Raise) })
}

// BenchmarkDMA has the scratch card copy host memory, one doorbell and one status load for each copy: with the memory's
// file, and by messages.
func BenchmarkDMA(b *testing.B) {
	for _, messages := range []bool{false, true} {
		for _, n := range []int{64, 1500, 65536, 1 << 20} {
			name := fmt.Sprintf("files/%d", n)
			if messages {
				name = fmt.Sprintf("messages/%d", n)
			}
			b.Run(name, func(b *testing.B) {
				card := devicetest.NewCard()
				s := serve(b, card, vfiouser.Config{})
				o := s.options()
				o.Messages = messages
				c := s.dial(o)
				defer s.end()
				defer c.Close()
				master(b, c)
				h := card.NewHarness(c)
				src, dst := alloc(b, c, "source", n), alloc(b, c, "destination", n)
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := h.Copy(dst.IOVA, src.IOVA, n); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkMap measures what one more buffer costs: a file, its map, and both gone again.
func BenchmarkMap(b *testing.B) {
	_, _, c := scratch(b, vfiouser.Config{})
	for b.Loop() {
		if err := alloc(b, c, "buffer", 4096).Close(); err != nil {
			b.Fatal(err)
		}
	}
}
