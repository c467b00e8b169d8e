package vfio

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// TestFromFD: descriptors that were opened elsewhere make the same Device; where it fails they stay the caller's.
func TestFromFD(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		k := newFake(t)
		o := k.options()
		o.Transport = tr
		h, err := o.host(k.addr)
		if err != nil {
			t.Fatal(err)
		}
		dom, fd, err := openDomain(h, &o)
		if err != nil {
			t.Fatal(err)
		}
		given := Handed{Address: k.addr, Device: fd}
		switch x := dom.(type) {
		case *container:
			given.Container, given.Group = x.fd, x.group
		case *ioas:
			given.IOMMUFD, given.IOAS = x.fd, x.id
		}
		open := len(k.files)
		steps := len(k.calls)
		for step := 1; ; step++ { // every step fails once; in the end none does
			k.failAt, k.failErr = steps+step, unix.EIO
			d, err := FromFD(given, o)
			steps = len(k.calls)
			if err != nil {
				says(t, err, "take device over", k.addr, "do: ")
				if len(k.files) != open || len(k.maps) != 0 || len(k.events) != 0 {
					t.Fatalf("%s: %d descriptors, %d mappings, %d events after %v", tr, len(k.files), len(k.maps), len(k.events), err)
				}
				continue
			}
			k.failAt = 0
			if d.Transport() != tr {
				t.Errorf("transport %s, want %s", d.Transport(), tr)
			}
			m, err := d.AllocDMA("ring", 4096)
			if err != nil {
				t.Fatal(err)
			}
			d.Store32(device.Bar2, 0, 5)
			if got := d.Load32(device.Bar2, 0); got != 5 {
				t.Errorf("window = %d", got)
			}
			if us := d.Memory(); len(us) != 1 || us[0].IOVA != m.IOVA || us[0].Name != "ring" {
				t.Errorf("Memory = %+v", us)
			}
			if err := d.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			break
		}
		k.leaks()
	}
}

// TestFromFDShared: a device whose owner keeps it gives registers, and is left as it was.
func TestFromFDShared(t *testing.T) {
	k := newFake(t)
	owner := k.mustOpen(Type1)
	if err := owner.EnableVectors(2); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	fd := k.add(&fakeFile{kind: "device", path: "passed"}) // as it arrives over a socket
	k.pci.opened++
	k.mu.Unlock()
	d, err := FromFD(Handed{Address: k.addr, Device: fd, Shared: true}, k.options())
	if err != nil {
		t.Fatal(err)
	}
	d.Store32(device.Bar2, 0, 9)
	if got := owner.Load32(device.Bar2, 0); got != 9 {
		t.Errorf("the owner sees %d", got)
	}
	for _, err := range []error{d.EnableVectors(1), d.Reset()} {
		if !errors.Is(err, device.ErrNotSupported) {
			t.Errorf("beyond registers: %v", err)
		}
	}
	if _, err := d.AllocDMA("ring", 64); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("AllocDMA = %v", err)
	}
	if d.RemovalRequested() != nil || d.ErrorNotice() != nil {
		t.Error("notices were taken from the owner")
	}
	before := len(k.log("pwrite region 7", "VFIO_DEVICE_SET_IRQS"))
	if err := d.ReadConfig(0, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	k.mu.Lock()
	k.files[fd].kind = "passed" // its close is not the last one
	k.mu.Unlock()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	k.mu.Lock()
	k.pci.opened--
	k.mu.Unlock()
	if after := len(k.log("pwrite region 7", "VFIO_DEVICE_SET_IRQS")); after != before {
		t.Errorf("closing changed the owner's device: %q", k.log("pwrite region 7", "VFIO_DEVICE_SET_IRQS")[before:])
	}
	if err := owner.Trigger(0); err != nil {
		t.Errorf("the owner's vectors: %v", err)
	}
}
