package guest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfio"
	"splicenic/regs"
)

func transport() string { return os.Getenv("SPLICE_GUEST_TRANSPORT") }

func adjacent() bool { return os.Getenv("SPLICE_GUEST_ADJACENT") != "" }

// take opens the guest's card.
func take(t testing.TB) *vfio.Device {
	t.Helper()
	address := os.Getenv("SPLICE_GUEST_CARD")
	if address == "" {
		t.Skip("runs in a virtual machine: make test-vm")
	}
	how, err := vfio.ParseTransport(transport())
	if err != nil {
		t.Fatal(err)
	}
	d, err := vfio.Open(address, vfio.Options{Transport: how, NoGuard: adjacent()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestConformance runs the contract's suite on the guest's card.
func TestConformance(t *testing.T) {
	d := take(t)
	t.Logf("card %s by %s, %s; interrupts %s", d.Info().Name, d.Transport(), d.IOMMU(), d.Interrupts())
	if want := transport(); want != "" && string(d.Transport()) != want {
		t.Errorf("transport %s, want %s", d.Transport(), want)
	}
	d.Close()
	devicetest.Run(t, func(t *testing.T) devicetest.Harness {
		h := devicetest.SpliceHarness(take(t))
		h.Adjacent = adjacent()
		return h
	})
}

// TestBar2 stores to the ends of the card's memories: the whole window is there, and behind it one memory each.
func TestBar2(t *testing.T) {
	d := take(t)
	if got := d.Info().Regions[device.Bar2].Size; got != 512<<20 {
		t.Fatalf("BAR2 has %d bytes", got)
	}
	offs := []uint64{regs.MemPageOffset + 4, regs.MemCamServerOffset + 8, regs.MemHeadOffset, regs.MemHeadOffset + 8192*1000}
	for i, off := range offs {
		d.Store32(device.Bar2, off, 0x5c1c0000+uint32(i))
	}
	for i, off := range offs {
		if got, want := d.Load32(device.Bar2, off), 0x5c1c0000+uint32(i); got != want {
			t.Errorf("BAR2 at %#x: %#x, want %#x", off, got, want)
		}
	}
	d.Load32(device.Bar2, regs.Bar2Bytes-4)
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}

// TestUnmapped: memory that was given back is the card's no longer. The card is refused, says so and counts it.
func TestUnmapped(t *testing.T) {
	d := take(t)
	h := devicetest.SpliceHarness(d)
	count := func() uint32 { return d.Load32(device.Bar0, uint64(regs.HostifDmaErrors)) }
	const n = 64 << 10
	src, err := d.AllocDMA("source", n)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := d.AllocDMA("destination", n)
	if err != nil {
		t.Fatal(err)
	}
	src.Bytes[n-1] = 0x5c
	if err := h.Copy(dst.IOVA, src.IOVA, n); err != nil || dst.Bytes[n-1] != 0x5c {
		t.Fatalf("Copy: %v, last byte %#x", err, dst.Bytes[n-1])
	}
	before := count()
	gone := src.IOVA
	if err := src.Close(); err != nil {
		t.Fatal(err)
	}
	clear(dst.Bytes)
	if err := h.Copy(dst.IOVA, gone, n); !errors.Is(err, device.ErrDMA) {
		t.Errorf("Copy of memory that was given back: %v, want %v", err, device.ErrDMA)
	}
	if after := count(); after <= before {
		t.Errorf("hostif.dma_errors %d before, %d after", before, after)
	}
	if dst.Bytes[n-1] != 0 {
		t.Error("the card read memory that was given back")
	}
	if err := d.Err(); err != nil {
		t.Errorf("the device is lost by it: %v", err)
	}
}

// TestVectors raises every vector both ways: by the kernel's loopback, and by the card.
func TestVectors(t *testing.T) {
	d := take(t)
	loops, err := d.LoopVectors(t.Context(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		if l.Err != nil {
			t.Errorf("vector %d by loopback: %v", l.Vector, l.Err)
		}
	}
	n := d.Info().Vectors
	if len(loops) != n || n == 0 {
		t.Fatalf("%d of %d vectors looped", len(loops), n)
	}
	if err := d.EnableVectors(n); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for v := range n {
		d.Store32(device.Bar0, uint64(regs.ControlInterruptTest), 1<<v)
		if _, err := d.Wait(ctx, v); err != nil {
			t.Errorf("vector %d by the card: %v", v, err)
		}
	}
}

func BenchmarkLoad32(b *testing.B) {
	d := take(b)
	for b.Loop() {
		d.Load32(device.Bar0, uint64(regs.ControlScratch))
	}
}

func BenchmarkStore32(b *testing.B) {
	d := take(b)
	for b.Loop() {
		d.Store32(device.Bar0, uint64(regs.ControlScratch), 1)
	}
	d.Load32(device.Bar0, uint64(regs.ControlScratch)) // the last one has arrived
}

// BenchmarkInterrupt is doorbell → card → MSI-X → eventfd.
func BenchmarkInterrupt(b *testing.B) {
	d := take(b)
	if err := d.EnableVectors(1); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		d.Store32(device.Bar0, uint64(regs.ControlInterruptTest), 1)
		if _, err := d.Wait(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "roundtrips/s")
}
