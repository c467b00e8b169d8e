package device_test

import (
	"errors"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
)

func TestLocal(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) devicetest.Harness {
		c := devicetest.NewCard()
		h := c.NewHarness(device.Local(c, device.LocalConfig{}))
		h.Close = func() {
			if n := c.Maps(); n != 0 {
				t.Errorf("%d dma maps are left", n)
			}
		}
		return h
	})
}

func TestLocalAdjacent(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) devicetest.Harness {
		c := devicetest.NewCard()
		h := c.NewHarness(device.Local(c, device.LocalConfig{NoGuard: true}))
		h.Adjacent = true
		return h
	})
}

func TestLocalNotices(t *testing.T) {
	removal, fault := make(chan struct{}), make(chan struct{})
	d := device.Local(devicetest.NewCard(), device.LocalConfig{Removal: removal, Error: fault})
	defer d.Close()
	close(removal)
	close(fault)
	<-d.RemovalRequested()
	<-d.ErrorNotice()
}

// refusing is a card that refuses whatever can be refused.
type refusing struct{ *devicetest.Card }

var errRefusing = errors.New("refused by the card")

func (refusing) ReadRegion(int, uint64, []byte) error    { return errRefusing }
func (refusing) MapDMA(uint64, uint64) error             { return errRefusing }
func (refusing) SetVectors([]func()) error               { return errRefusing }
func (refusing) Reset() error                            { return errRefusing }
func (refusing) ReadConfig(off uint32, p []byte) error   { return errRefusing }
func (refusing) WriteRegion(int, uint64, []byte) error   { return errRefusing }
func (refusing) UnmapDMA(iova uint64, size uint64) error { return errRefusing }

func TestLocalRefused(t *testing.T) {
	d := device.Local(refusing{devicetest.NewCard()}, device.LocalConfig{})
	if _, err := d.AllocDMA("test", 64); !errors.Is(err, errRefusing) {
		t.Errorf("AllocDMA = %v", err)
	}
	if err := d.EnableVectors(1); !errors.Is(err, errRefusing) {
		t.Errorf("EnableVectors = %v", err)
	}
	if err := d.Reset(); !errors.Is(err, errRefusing) {
		t.Errorf("Reset = %v", err)
	}
	if err := d.Err(); err != nil {
		t.Errorf("Err = %v before any access", err)
	}
	if got := d.Load32(device.Bar0, 0); got != ^uint32(0) {
		t.Errorf("Load32 = %#x, want all ones", got)
	}
	if err := d.Err(); !errors.Is(err, errRefusing) {
		t.Errorf("Err = %v", err)
	}
	if err := d.Close(); !errors.Is(err, errRefusing) {
		t.Errorf("Close = %v", err)
	}
}

// TestAccessAllocs: an access allocates nothing, so that a doorbell does not either.
func TestAccessAllocs(t *testing.T) {
	d := device.Local(devicetest.NewCard(), device.LocalConfig{})
	defer d.Close()
	if n := testing.AllocsPerRun(1000, func() {
		d.Store32(device.Bar2, 0, d.Load32(device.Bar0, 0))
		d.Store64(device.Bar2, 8, d.Load64(device.Bar2, 0))
	}); n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLocalStore32(b *testing.B) {
	d := device.Local(devicetest.NewCard(), device.LocalConfig{})
	defer d.Close()
	b.ReportAllocs()
	for b.Loop() {
		d.Store32(device.Bar2, 0, 1)
	}
}

// vanished is a card that says that it is gone.
type vanished struct{ *devicetest.Card }

func (vanished) SetVectors([]func()) error               { return device.ErrDeviceLost }
func (vanished) MapDMA(uint64, uint64) error             { return device.ErrDeviceLost }
func (vanished) Reset() error                            { return device.ErrDeviceLost }
func (vanished) ReadConfig(off uint32, p []byte) error   { return device.ErrDeviceLost }
func (vanished) ReadRegion(int, uint64, []byte) error    { return device.ErrDeviceLost }
func (vanished) UnmapDMA(iova uint64, size uint64) error { return device.ErrDeviceLost }

// TestLocalLost: whoever notices first that the card is gone, everybody knows.
func TestLocalLost(t *testing.T) {
	rows := []struct {
		name string
		do   func(device.Device) error
	}{
		{"ReadConfig", func(d device.Device) error { return d.ReadConfig(0, make([]byte, 4)) }},
		{"EnableVectors", func(d device.Device) error { return d.EnableVectors(1) }},
		{"AllocDMA", func(d device.Device) error { _, err := d.AllocDMA("test", 64); return err }},
		{"Reset", func(d device.Device) error { return d.Reset() }},
		{"Load32", func(d device.Device) error { d.Load32(device.Bar0, 0); return d.Err() }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			d := device.Local(vanished{devicetest.NewCard()}, device.LocalConfig{})
			defer d.Close()
			if err := row.do(d); !errors.Is(err, device.ErrDeviceLost) || !errors.Is(d.Err(), device.ErrDeviceLost) {
				t.Errorf("got %v, Err = %v, want %v", err, d.Err(), device.ErrDeviceLost)
			}
			if got := d.Load32(device.Bar0, 0); got != 1<<32-1 {
				t.Errorf("a lost device reads %#x", got)
			}
		})
	}
}
