package vfio

import (
	"errors"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
)

// TestCaseD11 and fact 18: the kernel asks for the device, again and again; the notice comes once, and Close lets it go.
func TestCaseD11(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		k := newFake(t)
		d := k.mustOpen(tr)
		if err := d.EnableVectors(2); err != nil {
			t.Fatal(err)
		}
		if _, err := d.AllocDMA("ring", 4096); err != nil {
			t.Fatal(err)
		}
		traffic := make(chan error, 1)
		go func() {
			for d.Err() == nil {
				d.Store32(2, 0, 1)
				if _, err := d.Wait(over(), 0); err == nil {
					traffic <- errors.New("a vector nobody raised")
					return
				}
			}
			traffic <- nil
		}()
		select {
		case <-d.RemovalRequested():
			t.Fatal("a removal nobody asked for")
		default:
		}
		for range 5 {
			k.pci.fire(irqREQ, 0)
		}
		<-d.RemovalRequested()
		watch := devicetest.NewStopwatch()
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := watch.Stop(); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-traffic; err != nil {
			t.Error(err)
		}
		k.leaks() // so that the unbind returns
	}
}

// TestFact19Error: the bus reports an error; after a reset it can report another.
func TestFact19Error(t *testing.T) {
	k := newFake(t)
	d := k.mustOpen(Type1)
	k.pci.fire(irqERR, 0)
	first := d.ErrorNotice()
	<-first
	if d.Err() != nil {
		t.Errorf("Err = %v: the notice alone ends nothing", d.Err())
	}
	if err := d.Reset(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.ErrorNotice():
		t.Error("the notice outlived the reset")
	case <-d.RemovalRequested():
		t.Error("removal requested")
	default:
	}
	k.pci.fire(irqERR, 0)
	<-d.ErrorNotice()

	k = newFake(t)
	k.pci.irqs[irqERR].Flags = 0xffff_ffff // EINVAL: no PCI Express
	k.pci.irqs[irqREQ].Count = 0
	d = k.mustOpen(Type1)
	if d.ErrorNotice() != nil || d.RemovalRequested() != nil {
		t.Error("a channel for a notice that never comes")
	}
}

// TestFact20Reset: busy resets are tried again within two seconds, a function that takes its time is waited for, another
// function that answers is refused, and what was set up is set up anew.
func TestFact20Reset(t *testing.T) {
	rows := []struct {
		name   string
		change func(k *fakeKernel)
		says   string // empty: works
		lost   bool
	}{
		{"works", func(*fakeKernel) {}, "", false},
		{"busy for a while", func(k *fakeKernel) { k.again = 10 }, "", false},
		{"busy for ever", func(k *fakeKernel) { k.again = 1 << 30 }, "locked by another reset", false},
		{"slow to answer", func(k *fakeKernel) { k.deaf = 50 }, "", false},
		{"never answers", func(k *fakeKernel) { k.deaf = 1 << 30 }, "does not answer after its reset", true},
		{"another function", func(k *fakeKernel) { k.resetOK = func() { k.pci.config[2] ^= 1 } }, "another function answers", true},
		{"another class", func(k *fakeKernel) { k.resetOK = func() { k.pci.config[11] ^= 1 } }, "another function answers", true},
		{"no reset", func(k *fakeKernel) { k.pci.noReset = true }, "no reset of its own", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			k := newFake(t)
			row.change(k)
			d := k.mustOpen(Type1)
			m, err := d.AllocDMA("ring", 4096)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.EnableVectors(1); err != nil {
				t.Fatal(err)
			}
			err = d.Reset()
			if k.paused > 2*time.Second {
				t.Errorf("Reset waited %v", k.paused)
			}
			if row.says != "" {
				says(t, err, k.addr, row.says, "do: ")
				if got := errors.Is(d.Err(), device.ErrDeviceLost); got != row.lost {
					t.Errorf("Err = %v", d.Err())
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if !row.lost && k.pci.command.Load() != 6 {
				t.Errorf("command %#x", k.pci.command.Load())
			}
			m.Bytes[0] = 1 // still the owner's
			if err := m.Close(); err != nil {
				t.Errorf("Close of memory: %v", err)
			}
		})
	}
}
