package vfio

import (
	"testing"

	"splicenic/driver/device/devicetest"
)

func harness(t *testing.T, tr Transport, change func(k *fakeKernel, o *Options)) devicetest.Harness {
	c := devicetest.NewCard()
	k := newFakeOf(t, c)
	o := k.options()
	o.Transport = tr
	if change != nil {
		change(k, &o)
	}
	d, err := Open(k.addr, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	h := c.NewHarness(d)
	h.Adjacent = o.NoGuard
	h.Close = func() {
		if n := c.Maps(); n != 0 {
			t.Errorf("%d dma maps are left", n)
		}
	}
	return h
}

// TestConformance runs the suite over each transport, and over what kernels do differently.
func TestConformance(t *testing.T) {
	rows := []struct {
		name   string
		t      Transport
		change func(k *fakeKernel, o *Options)
	}{
		{"type1v2", Type1, nil},
		{"iommufd", IOMMUFD, nil},
		{"type1", Type1, func(k *fakeKernel, _ *Options) { k.types = []int{extType1} }},
		{"adjacent", Type1, func(_ *fakeKernel, o *Options) { o.NoGuard = true }},
		{"fixed set of vectors", Type1, func(k *fakeKernel, _ *Options) { k.pci.irqs[irqMSIX].Flags |= irqFlagNoResize }},
		{"no mmap", IOMMUFD, func(k *fakeKernel, _ *Options) { k.pci.regions[2].flags &^= regionFlagMmap }},
		{"auto without iommufd", Auto, func(k *fakeKernel, _ *Options) { k.iommufd = false }},
		{"auto without container", Auto, func(k *fakeKernel, _ *Options) { k.type1 = false }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devicetest.Harness { return harness(t, row.t, row.change) })
		})
	}
}
