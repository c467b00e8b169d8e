package vfio

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// newCardFake returns a machine whose card is the emulated one, all of it behind the descriptor.
func newCardFake(t *testing.T, root string) (*fakeKernel, *emu.Card) {
	t.Helper()
	a, b := port.Pair(port.MemConfig{})
	card, err := emu.New(emu.Config{Client: a, Geometry: emu.Geometry{Pages: 64, Heads: 8, CamClientWords: 128, CamServerWords: 256, Listeners: 16, Services: 16,
		Groups: 16, Servers: 16, NextHops: 16, Vips: 16, LocalAddresses: 16, Rules: 16, UrlNodes: 64, Slots: 64, LocalPorts: 64}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { card.Close(); b.Close() })
	var k *fakeKernel
	if root == "" {
		k = newFakeOf(t, card)
	} else {
		k = newFakeIn(t, root, card)
	}
	k.pci.regions[2].flags &^= regionFlagMmap
	unix.Close(k.pci.regions[2].memory)
	k.pci.regions[2].memory = -1
	return k, card
}

// life opens the card over a device, works with it and shuts it down, and returns the first error.
func life(t *testing.T, k *fakeKernel, card *emu.Card, tr Transport) (err error) {
	o := k.options()
	o.Transport = tr
	d, err := Open(k.addr, o)
	if err != nil {
		return err
	}
	defer func() {
		sticky := d.Err() // what the device knows counts, whatever the driver made of it
		if e := d.Close(); err == nil {
			err = e
		}
		err = errors.Join(err, sticky)
	}()
	now := time.Duration(0)
	c, err := driver.Open(t.Context(), d, driver.Config{PumpLimit: 100, Pump: func() { now += time.Millisecond; card.Step(now) },
		Rings: driver.Rings{Exception: 8, Event: 8, Completion: 8, Inject: 8, Command: 8, FrameBytes: 2048}})
	if err != nil {
		return err
	}
	off, err := c.Memory(regs.MemService).At(1, 0)
	if err != nil {
		return err
	}
	words := make([]uint32, regs.ServiceWords)
	words[0] = 1
	if err := c.WriteTable(t.Context(), off, words); err != nil {
		return err
	}
	if err := c.ReadTable(t.Context(), off, words); err != nil {
		return err
	}
	if words[0] != 1 {
		t.Errorf("the table reads %#x", words)
	}
	return c.Shutdown(t.Context())
}

// TestCardLife: the driver brings the emulated card up over each transport.
func TestCardLife(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		k, card := newCardFake(t, "")
		if err := life(t, k, card, tr); err != nil {
			t.Errorf("%s: %v", tr, err)
		}
		n := len(k.log("pread region 0", "pread region 2", "pwrite region 0", "pwrite region 2"))
		t.Logf("%s: %d accesses", tr, n)
	}
}

// TestSurpriseRemoval takes the card away at every access of bring-up, work and shutdown: a typed error, no panic, nothing
// left open, and in time.
func TestSurpriseRemoval(t *testing.T) {
	first, card := newCardFake(t, "")
	if err := life(t, first, card, Type1); err != nil {
		t.Fatal(err)
	}
	step := 1
	if testing.Short() {
		step = 17
	}
	for at := 1; at <= len(first.calls); at += step {
		call := first.calls[at-1]
		if len(call) < 14 || call[:5] != "pread" && call[:6] != "pwrite" {
			continue
		}
		k, card := newCardFake(t, first.root)
		k.gone = at
		watch := devicetest.NewStopwatch()
		err := life(t, k, card, Type1)
		if took := watch.Stop(); took > 2*time.Second {
			t.Errorf("gone at %d, %s: it took %v", at, call, took)
		}
		if err == nil {
			continue // it went while it was being closed
		}
		// A command that was on its way is only known not to have been answered.
		if !errors.Is(err, device.ErrDeviceLost) && !errors.Is(err, driver.ErrTimeout) {
			t.Errorf("gone at %d, %s: %v", at, call, err)
		}
		k.leaks()
	}
}
