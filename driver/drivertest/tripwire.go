package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/regs"
)

// errDead: the process that used the device is dead.
var errDead = errors.New("process is dead")

// A tripwire is a Device that counts what is done with it and does something before a given access. All of it is for one
// goroutine.
type tripwire struct {
	device.Device
	accesses int
	at       int    // access that trips, counted from 1; 0: none
	trip     func() // nil: the process dies
	dead     bool
	what     string // the access that tripped
	when     time.Time
	asked    int                         // loads since then, that one included
	bar      int                         // accesses to BARs
	memory   map[*device.DMA]*device.DMA // what is allocated: as given out, as the device has it
	names    map[string]*device.DMA      // the same by name
	stored   map[uint64]uint32           // by offset in BAR0, since the last reset of the data path
}

func watch(d device.Device) *tripwire {
	return &tripwire{Device: d, memory: map[*device.DMA]*device.DMA{}, names: map[string]*device.DMA{}, stored: map[uint64]uint32{}}
}

// adopting returns a configuration that adopts a card, with what memory was kept.
func (w *tripwire) adopting(cfg driver.Config, adopt bool, kept func(*device.DMA) bool) driver.Config {
	cfg.Adopt = adopt
	if kept != nil {
		cfg.Kept = func(m *device.DMA) bool { return kept(w.memory[m]) }
	}
	return cfg
}

// pass counts an access and says whether it takes place.
func (w *tripwire) pass(verb string, region int, at uint64) bool {
	w.accesses++
	if region >= 0 {
		w.bar++
	}
	if w.accesses == w.at {
		w.what, w.when = fmt.Sprintf("%s %d %#x", verb, region, at), time.Now()
		if w.trip == nil {
			w.dead = true
		} else {
			w.trip()
		}
	}
	return !w.dead
}

func (w *tripwire) ReadConfig(off uint32, p []byte) error {
	if !w.pass("read configuration", -1, uint64(off)) {
		return errDead
	}
	return w.Device.ReadConfig(off, p)
}

func (w *tripwire) WriteConfig(off uint32, p []byte) error {
	if !w.pass("write configuration", -1, uint64(off)) {
		return errDead
	}
	return w.Device.WriteConfig(off, p)
}

func (w *tripwire) Load32(region int, off uint64) uint32 {
	alive := w.pass("load", region, off)
	if w.at != 0 && w.accesses >= w.at {
		w.asked++
	}
	if !alive {
		return 1<<32 - 1
	}
	return w.Device.Load32(region, off)
}

func (w *tripwire) Store32(region int, off uint64, v uint32) {
	if !w.pass("store", region, off) {
		return
	}
	w.Device.Store32(region, off, v)
	if region != device.Bar0 {
		return
	}
	w.stored[off] = v
	if off == uint64(regs.ControlReset) && v&regs.ControlResetDataPathMask != 0 {
		clear(w.stored)
	}
}

func (w *tripwire) AllocDMA(name string, size int) (*device.DMA, error) {
	if !w.pass("allocate "+name, -1, uint64(size)) {
		return nil, errDead
	}
	m, err := w.Device.AllocDMA(name, size)
	if err != nil {
		return nil, err
	}
	var given *device.DMA
	given = device.NewDMA(m.Bytes, m.IOVA, func() error {
		if !w.pass("free", -1, m.IOVA) {
			return errDead
		}
		delete(w.memory, given)
		return m.Close()
	})
	w.memory[given], w.names[name] = m, m
	return given, nil
}

func (w *tripwire) EnableVectors(n int) error {
	if !w.pass("enable vectors", -1, uint64(n)) {
		return errDead
	}
	return w.Device.EnableVectors(n)
}

func (w *tripwire) Wait(ctx context.Context, v int) (uint64, error) {
	if !w.pass("wait", -1, uint64(v)) {
		return 0, errDead
	}
	return w.Device.Wait(ctx, v)
}

func (w *tripwire) Err() error {
	if w.dead {
		return errDead
	}
	return w.Device.Err()
}

func (w *tripwire) Lose(err error) {
	if !w.dead {
		w.Device.Lose(err)
	}
}
