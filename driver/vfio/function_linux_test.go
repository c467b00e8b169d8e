package vfio

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
)

// TestServed runs the suite over the whole way a runtime goes: client, socket, server, this package, kernel, card.
func TestServed(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		t.Run(string(tr), func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devicetest.Harness { return served(t, tr) })
		})
	}
}

func served(t *testing.T, tr Transport) devicetest.Harness {
	card := devicetest.NewCard()
	k := newFakeOf(t, card)
	o := k.options()
	o.Transport = tr
	d, err := Open(k.addr, o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "card.sock")
	s, err := vfiouser.Listen(path, d.Function(), vfiouser.Config{Removal: d.RemovalRequested(), Error: d.ErrorNotice()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	c, err := vfiouser.Dial(t.Context(), path, vfiouser.Options{Memfd: true})
	if err != nil {
		t.Fatal(err)
	}
	h := card.NewHarness(c)
	closed := false
	h.Close = func() {
		if closed {
			return
		}
		closed = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	return h
}

// TestFunction: what a client may not do is refused without harm to the device.
func TestFunction(t *testing.T) {
	k := newFake(t)
	d := k.mustOpen(Type1)
	f := d.Function()
	if i := f.Info(); i.Name != "vfio:"+k.addr {
		t.Errorf("Info = %+v", i)
	}
	for _, row := range []struct {
		region int
		off    uint64
		n      int
	}{{-1, 0, 4}, {7, 0, 4}, {1, 0, 4}, {0, 2, 4}, {0, 0, 0}, {0, 0, 3}, {0, 4096, 4}, {0, 4092, 8}, {0, ^uint64(3), 8}, {0, 0, 8192}} {
		for _, err := range []error{f.ReadRegion(row.region, row.off, make([]byte, row.n)), f.WriteRegion(row.region, row.off, make([]byte, row.n))} {
			if !errors.Is(err, device.ErrRange) {
				t.Errorf("%+v: %v", row, err)
			}
		}
	}
	p := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	if err := f.WriteRegion(2, 4, p); err != nil {
		t.Fatal(err)
	}
	q := make([]byte, 12)
	if err := f.ReadRegion(2, 4, q); err != nil || string(p) != string(q) {
		t.Errorf("read %v, %v", q, err)
	}
	if err := f.MapDMA(0x1000, 0x1000); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("MapDMA = %v", err)
	}
	if err := f.SetVectors([]func(){func() {}}); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("SetVectors = %v", err)
	}
	if err := f.SetVectors(make([]func(), 3)); err != nil {
		t.Errorf("SetVectors of none = %v", err)
	}
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := f.MapMemory(0x1000, mem, false); err != nil {
		t.Fatal(err)
	}
	if err := k.memory.Read(0x1000, q); err != nil {
		t.Errorf("the card reads: %v", err)
	}
	if err := k.memory.Write(0x1000, q); err == nil {
		t.Error("the card wrote memory that it may only read")
	}
	if err := f.Reset(); err != nil {
		t.Fatal(err)
	}
	if err := k.memory.Read(0x1000, q); err != nil {
		t.Errorf("the card reads after a reset: %v", err)
	}
	if err := f.UnmapDMA(0x1000, 4096); err != nil {
		t.Errorf("UnmapDMA = %v", err)
	}
	f.SetHost(nil)
	if d.Err() != nil {
		t.Errorf("Err = %v", d.Err())
	}
	k.pci.regions[0].fail = unix.EIO
	if err := f.ReadRegion(0, 0, q[:4]); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("read of a lost device = %v", err)
	}
}
