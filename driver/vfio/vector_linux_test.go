package vfio

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"splicenic/driver/device"
)

const patience = 10 * time.Second

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// over is a context that has ended: a wait with it only looks.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestFact15Vectors: the calls that set vectors up, at once where the kernel fixes the set and one by one where it does not.
func TestFact15Vectors(t *testing.T) {
	rows := []struct {
		name  string
		flags uint32
		want  [][]string // calls by step
	}{
		{"grown one by one", irqFlagEventfd, [][]string{
			{"MSI-X 0x24 0+1 [0]"},
			{"MSI-X 0x24 1+1 [0]", "MSI-X 0x24 2+1 [0]"},
			nil,
			{"MSI-X 0x24 1+1 [-1]", "MSI-X 0x24 2+1 [-1]"},
			{"MSI-X 0x24 1+1 [0]", "MSI-X 0x24 2+1 [0]", "MSI-X 0x24 3+1 [0]"},
			{"MSI-X 0x21 0+0 []"},
			nil,
		}},
		{"one set", irqFlagEventfd | irqFlagNoResize, [][]string{
			{"MSI-X 0x24 0+4 [0 -1 -1 -1]"},
			{"MSI-X 0x24 1+1 [0]", "MSI-X 0x24 2+1 [0]"},
			nil,
			{"MSI-X 0x24 1+1 [-1]", "MSI-X 0x24 2+1 [-1]"},
			{"MSI-X 0x24 1+1 [0]", "MSI-X 0x24 2+1 [0]", "MSI-X 0x24 3+1 [0]"},
			{"MSI-X 0x21 0+0 []"},
			nil,
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			k := newFake(t)
			k.pci.irqs[irqMSIX].Flags = row.flags
			d := k.mustOpen(Type1)
			const prefix = "VFIO_DEVICE_SET_IRQS "
			seen := len(k.log(prefix + "MSI-X"))
			for i, n := range []int{1, 3, 3, 1, 4, 0, 0} {
				if err := d.EnableVectors(n); err != nil {
					t.Fatalf("EnableVectors(%d): %v", n, err)
				}
				calls := k.log(prefix + "MSI-X")
				var got []string
				for _, c := range calls[seen:] {
					got = append(got, c[len(prefix):])
				}
				if !slices.Equal(got, row.want[i]) {
					t.Errorf("step %d, %d vectors: %q, want %q", i, n, got, row.want[i])
				}
				for v := range n {
					if err := d.Trigger(v); err != nil {
						t.Errorf("step %d: Trigger(%d): %v", i, v, err)
					}
					if c, err := d.Wait(soon(t), v); err != nil || c != 1 {
						t.Errorf("step %d: Wait(%d) = %d, %v", i, v, c, err)
					}
				}
				if err := d.Trigger(n); !errors.Is(err, device.ErrRange) {
					t.Errorf("step %d: Trigger(%d) = %v", i, n, err)
				}
				seen = len(k.log(prefix + "MSI-X")) // the triggers, too
			}
		})
	}
}

// TestFewVectors: a machine with fewer vectors than the device offers suffices for those that are wanted.
func TestFewVectors(t *testing.T) {
	k := newFake(t)
	k.pci.irqs[irqMSIX].Flags |= irqFlagNoResize
	k.pci.total = 3
	d := k.mustOpen(Type1)
	if err := d.EnableVectors(2); err != nil {
		t.Fatal(err)
	}
	if err := d.Trigger(1); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Wait(soon(t), 1); err != nil {
		t.Fatal(err)
	}
	says(t, d.EnableVectors(4), "interrupt vectors: need 4 vectors, have 3", "do: ")
	if _, err := d.Wait(over(), 0); !errors.Is(err, device.ErrRange) {
		t.Errorf("Wait after a refused set = %v", err)
	}
	if err := d.EnableVectors(3); err != nil {
		t.Errorf("EnableVectors(3) after it: %v", err)
	}
	k = newFake(t)
	k.pci.total = 2
	d = k.mustOpen(Type1)
	says(t, d.EnableVectors(4), "need 4 vectors, have 2")
	if err := d.EnableVectors(2); err != nil {
		t.Error(err)
	}
	says(t, d.EnableVectors(3), "need 3 vectors, have 2")
}

// TestCaseD13 and fact 17: the line is masked when it is raised and unmasked when the next Wait says it was handled; a
// masked vector of MSI-X pends and arrives once.
func TestCaseD13(t *testing.T) {
	k := newFake(t)
	k.pci.irqs[irqMSIX].Count = 0
	d := k.mustOpen(Type1)
	if d.Interrupts() != "INTx" || d.Info().Vectors != 1 {
		t.Fatalf("%s, %d vectors", d.Interrupts(), d.Info().Vectors)
	}
	if err := d.EnableVectors(1); err != nil {
		t.Fatal(err)
	}
	unmask := "VFIO_DEVICE_SET_IRQS INTx 0x11"
	for i := range 3 {
		k.pci.fire(irqINTx, 0)
		if n, err := d.Wait(soon(t), 0); err != nil || n != 1 {
			t.Fatalf("interrupt %d: Wait = %d, %v", i, n, err)
		}
		k.pci.fire(irqINTx, 0) // masked while it is handled
		if n, err := d.Wait(over(), 0); !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupt %d: Wait = %d, %v while handled", i, n, err)
		}
		if got := len(k.log(unmask)); got != i+1 {
			t.Errorf("interrupt %d: unmasked %d times", i, got)
		}
	}
	if loops, err := d.LoopVectors(t.Context(), patience); err != nil || len(loops) != 1 || loops[0].Err != nil {
		t.Errorf("LoopVectors = %+v, %v", loops, err)
	}

	k = newFake(t)
	d = k.mustOpen(Type1)
	if err := d.EnableVectors(2); err != nil {
		t.Fatal(err)
	}
	k.pci.setMask(1, true)
	for range 2 {
		k.pci.fire(irqMSIX, 1)
	}
	if n, err := d.Wait(over(), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("masked: Wait = %d, %v", n, err)
	}
	k.pci.setMask(1, false)
	if n, err := d.Wait(soon(t), 1); err != nil || n != 1 {
		t.Errorf("unmasked: Wait = %d, %v", n, err)
	}
	if n, err := d.Wait(over(), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("and again: Wait = %d, %v", n, err)
	}
	if got := len(k.log("VFIO_DEVICE_SET_IRQS MSI-X 0x11")); got != 0 {
		t.Errorf("%d vectors were unmasked through VFIO, which does not offer it", got)
	}
}

// TestMSI: a device without MSI-X uses MSI, as one set.
func TestMSI(t *testing.T) {
	k := newFake(t)
	k.pci.irqs[irqMSIX].Count = 0
	k.pci.irqs[irqMSI] = irqInfo{Flags: irqFlagEventfd | irqFlagNoResize, Count: 4}
	d := k.mustOpen(Type1)
	if d.Interrupts() != "MSI" {
		t.Fatal(d.Interrupts())
	}
	if err := d.EnableVectors(2); err != nil {
		t.Fatal(err)
	}
	if got := k.log("VFIO_DEVICE_SET_IRQS MSI"); !slices.Equal(got, []string{"VFIO_DEVICE_SET_IRQS MSI 0x24 0+4 [0 0 -1 -1]"}) {
		t.Errorf("calls %q", got)
	}
	k = newFake(t)
	k.pci.irqs = [5]irqInfo{}
	d = k.mustOpen(Type1)
	if d.Interrupts() != "" || d.Info().Vectors != 0 {
		t.Errorf("%q, %d vectors", d.Interrupts(), d.Info().Vectors)
	}
	if _, err := d.LoopVectors(t.Context(), patience); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("LoopVectors = %v", err)
	}
}

// TestLoopVectors: every vector is raised by the kernel and arrives; one that is lost is named.
func TestLoopVectors(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		k := newFake(t)
		d := k.mustOpen(tr)
		k.pci.setMask(2, true)
		loops, err := d.LoopVectors(t.Context(), 50*time.Millisecond)
		if err != nil || len(loops) != 4 {
			t.Fatalf("LoopVectors = %v, %v", loops, err)
		}
		for v, l := range loops {
			if l.Vector != v || (l.Err == nil) != (v != 2) {
				t.Errorf("vector %d: %+v", v, l)
			}
		}
		if err := d.EnableVectors(1); err != nil {
			t.Error(err)
		}
	}
}

// TestSetVectorFDs: events of another process are raised; the same number again may be another event.
func TestSetVectorFDs(t *testing.T) {
	k := newFake(t)
	d := k.mustOpen(Type1)
	f, err := linux{}.eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := event{f}
	fd := int(e.fd())
	for range 2 {
		if err := d.SetVectorFDs([]int{-1, fd}); err != nil {
			t.Fatal(err)
		}
		k.pci.fire(irqMSIX, 1)
		if n := e.take(); n != 1 {
			t.Errorf("raised %d times", n)
		}
	}
	if got := k.log("VFIO_DEVICE_SET_IRQS MSI-X"); len(got) != 3 {
		t.Errorf("calls %q", got)
	}
	if _, err := d.Wait(over(), 1); !errors.Is(err, device.ErrRange) {
		t.Errorf("Wait = %v", err)
	}
	if err := d.EnableVectors(2); err != nil { // own ones again
		t.Fatal(err)
	}
	k.pci.fire(irqMSIX, 1)
	if n, err := d.Wait(soon(t), 1); err != nil || n != 1 || e.take() != 0 {
		t.Errorf("Wait = %d, %v", n, err)
	}
	if err := d.SetVectorFDs(nil); err != nil {
		t.Error(err)
	}
	if err := d.SetVectorFDs(make([]int, 5)); !errors.Is(err, device.ErrRange) {
		t.Errorf("SetVectorFDs of five = %v", err)
	}
}

// TestWaitEnds: a wait that is cancelled, and a stale deadline, cost no interrupt.
func TestWaitEnds(t *testing.T) {
	k := newFake(t)
	d := k.mustOpen(Type1)
	if err := d.EnableVectors(1); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := d.Wait(ctx, 0)
			done <- err
		}()
		go cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait = %v", err)
		}
		d.vec.events[0].wake() // as one that comes late does
		if err := d.Trigger(0); err != nil {
			t.Fatal(err)
		}
		if n, err := d.Wait(soon(t), 0); err != nil || n != 1 {
			t.Fatalf("Wait = %d, %v", n, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Wait(soon(t), 0); !errors.Is(err, device.ErrClosed) {
		t.Errorf("Wait = %v", err)
	}
	for _, err := range []error{d.Trigger(0), d.SetVectorFDs(nil), d.MapMemory(0x1000, nil, true)} {
		if !errors.Is(err, device.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestWaitForClosed: a wait that begins while its event is being closed says so.
func TestWaitForClosed(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	e := &event{r}
	r.Close()
	if n, err := e.wait(soon(t), func() bool { return false }); n != 0 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("wait = %d, %v, want %v", n, err, os.ErrClosed)
	}
}
