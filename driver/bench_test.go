package driver_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/drivertest"
	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
)

// stride leaves out accesses but for SPLICE_LONG.
func stride() int {
	switch {
	case driver.RaceEnabled || testing.Short():
		return 17
	case os.Getenv("SPLICE_LONG") == "":
		return 3
	}
	return 1
}

func TestSurpriseRemoval(t *testing.T) {
	t.Run("stepped", func(t *testing.T) { drivertest.SurpriseRemoval(t, stride(), stepped) })
	t.Run("running", func(t *testing.T) { drivertest.SurpriseRemoval(t, 5*stride(), running) })
}

func TestTakeover(t *testing.T) {
	t.Run("stepped", func(t *testing.T) { drivertest.Takeover(t, stride(), stepped) })
	t.Run("running", func(t *testing.T) { drivertest.Takeover(t, 7*stride(), running) })
}

func TestFound(t *testing.T) {
	t.Run("stepped", func(t *testing.T) { drivertest.Found(t, stepped) })
	t.Run("running", func(t *testing.T) { drivertest.Found(t, running) })
	t.Run("stuck", func(t *testing.T) { drivertest.Stuck(t, stepped) })
}

// stepped makes an emulated card that works when it is pumped, behind a Local device.
func stepped(t testing.TB) *drivertest.Bench { return bench(t, false) }

// running makes one that works by itself.
func running(t testing.TB) *drivertest.Bench { return bench(t, true) }

func bench(t testing.TB, runs bool) *drivertest.Bench {
	t.Helper()
	near, _ := port.Pair(port.MemConfig{})
	server, _ := port.Pair(port.MemConfig{})
	card, err := emu.New(emu.Config{Client: short{near}, Server: short{server}, Geometry: emu.Geometry{Pages: 64, Heads: 40, CamClientWords: 256, CamServerWords: 512, Listeners: 16,
		Services: 16, Groups: 4, Servers: 4, NextHops: 4, Vips: 4, LocalAddresses: 4, Rules: 16, UrlNodes: 256, Slots: 16, LocalPorts: 4}})
	if err != nil {
		t.Fatal(err)
	}
	bus := &drivertest.Bus{Function: card}
	k := &keeper{Device: device.Local(bus, device.LocalConfig{}), kept: map[string]*device.DMA{}}
	b := &drivertest.Bench{
		Bus: bus, Lose: card.Lose,
		Attach: func() (device.Device, func(*device.DMA) bool) { p := k.attach(); return p, p.wasKept },
		Die:    func(d device.Device) { d.(*process).die() },
		Frame:  func(f []byte) { near.Inject(f, frame.Offload{}) },
	}
	stop := func() {}
	if runs {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { card.Run(ctx) })
		stop = func() { cancel(); wg.Wait() }
	} else {
		var now time.Duration
		b.Pump = func() { now += time.Millisecond; card.Step(now) }
	}
	b.Close = func() {
		stop()
		if err := errors.Join(k.Device.Close(), card.Close()); err != nil {
			t.Error(err)
		}
	}
	return b
}

// short is a port that takes no coalesced frames, so that a card with it is made faster.
type short struct{ *port.Mem }

func (short) BufferBytes() int { return frame.Headroom + 2048 }

// A keeper is a device that outlives the processes that use it, and keeps their DMA memory.
type keeper struct {
	device.Device
	kept map[string]*device.DMA // by name
}

// A process is the device as one process has it.
type process struct {
	device.Device
	k   *keeper
	old map[*device.DMA]bool // what it was given that is a predecessor's
}

func (k *keeper) attach() *process {
	return &process{Device: k.Device, k: k, old: map[*device.DMA]bool{}}
}

func (p *process) wasKept(m *device.DMA) bool { return p.old[m] }

// AllocDMA returns what a process before had under this name, if its size fits.
func (p *process) AllocDMA(name string, size int) (*device.DMA, error) {
	m, old := p.k.kept[name]
	if old && (len(m.Bytes)+4095)&^4095 != (size+4095)&^4095 {
		if err := m.Close(); err != nil {
			return nil, err
		}
		old = false
	}
	if !old {
		var err error
		if m, err = p.Device.AllocDMA(name, size); err != nil {
			return nil, err
		}
		p.k.kept[name] = m
	}
	given := device.NewDMA(m.Bytes, m.IOVA, func() error {
		delete(p.k.kept, name)
		return m.Close()
	})
	p.old[given] = old
	return given, nil
}

// die is what the end of the process does to the device.
func (p *process) die() { p.Device.EnableVectors(0) }

// Close lets the device go with all that is left.
func (p *process) Close() error {
	var err error
	for _, m := range p.k.kept {
		err = errors.Join(err, m.Close())
	}
	clear(p.k.kept)
	if p.Device.Err() == nil {
		err = errors.Join(err, p.Device.EnableVectors(0))
	}
	return errors.Join(err, p.k.Device.Close())
}
