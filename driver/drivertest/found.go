package drivertest

import (
	"encoding/binary"
	"testing"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/regs"
)

// Found has a card adopted in states that nobody should leave it in. Whatever is found, it works afterwards.
func Found(t *testing.T, open func(testing.TB) *Bench) {
	ringReg := func(r regs.Reg, ring int) regs.Reg { return r.At(ring, regs.RingStride) }
	store := func(r regs.Reg, v uint32) func(*process) {
		return func(p *process) { p.wire.Device.Store32(device.Bar0, uint64(r), v) }
	}
	add := func(r regs.Reg, n uint32) func(*process) {
		return func(p *process) { store(r, p.wire.Device.Load32(device.Bar0, uint64(r))+n)(p) }
	}
	flip := func(memory string, off int) func(*process) {
		return func(p *process) { p.wire.names[memory].Bytes[off] ^= 1 }
	}
	const adopted, continued = true, true
	line := func(ring int) int { return 64 * ring }
	rows := []struct {
		name               string
		spoil              func(*process)
		change             func(*driver.Config)
		adopted, continued bool
	}{
		{"nothing wrong", func(*process) {}, nil, adopted, continued},
		{"not open", store(regs.AmuControl, 0), nil, !adopted, !continued},
		{"no generation", store(regs.TableBank, 0), nil, !adopted, !continued},
		{"just reset", store(regs.ControlReset, regs.ControlResetDataPathMask), nil, !adopted, !continued},
		{"host interface reset", store(regs.ControlReset, regs.ControlResetHostInterfaceMask), nil, adopted, !continued},
		{"host interface off", store(regs.HostifControl, 0), nil, adopted, !continued},
		{"exception ring off", store(ringReg(regs.RingControl, regs.RingException), 0), nil, adopted, !continued},
		{"command ring off", store(ringReg(regs.RingControl, regs.RingCommand), 0), nil, adopted, !continued},
		{"bus master off", func(p *process) { p.note(p.wire.Device.WriteConfig(4, []byte{2, 0})) }, nil, adopted, continued},
		{"another iova", add(ringReg(regs.RingIova, regs.RingEvent), 64), nil, adopted, !continued},
		{"another half of an iova", add(ringReg(regs.RingIova, regs.RingInject)+4, 1), nil, adopted, !continued},
		{"another number of entries", store(ringReg(regs.RingEntries, regs.RingEvent), 8), nil, adopted, !continued},
		{"other buffers", add(regs.RingBuffers, 1<<12), nil, adopted, !continued},
		{"another size of buffers", store(regs.RingBufferBytes, 128), nil, adopted, !continued},
		{"other event buffers", add(ringReg(regs.RingBuffers, regs.RingEvent), 1<<12), nil, adopted, !continued},
		{"another size of event buffers", store(ringReg(regs.RingBufferBytes, regs.RingEvent), 128), nil, adopted, !continued},
		{"no event buffers", store(ringReg(regs.RingBufferBytes, regs.RingEvent), 0), nil, adopted, continued},
		{"another writeback word", add(ringReg(regs.RingWriteback, regs.RingCommand), 64), nil, adopted, !continued},
		{"consumer ahead of the card", add(ringReg(regs.RingConsumer, regs.RingException), 8), nil, adopted, !continued},
		{"consumer far behind", add(ringReg(regs.RingConsumer, regs.RingEvent), 1<<32-100), nil, adopted, !continued},
		{"commands nobody wrote", add(ringReg(regs.RingProducer, regs.RingCommand), 1000), nil, adopted, !continued},
		{"frames nobody wrote", add(ringReg(regs.RingProducer, regs.RingInject), 1000), nil, adopted, !continued},
		{"no note", func(p *process) { clear(p.wire.names["ring-indexes"].Bytes) }, nil, adopted, !continued},
		{"another note", flip("ring-indexes", line(regs.RingEvent)), nil, adopted, !continued},
		{"another phase", flip("ring-exception", 64*12), nil, adopted, !continued}, // the first that was not committed
		{"writeback word ahead", func(p *process) {
			w := p.wire.names["ring-indexes"].Bytes[line(regs.RingCommand):]
			binary.LittleEndian.PutUint32(w, binary.LittleEndian.Uint32(w)+3)
		}, nil, adopted, !continued},
		{"writeback word behind", func(p *process) {
			w := p.wire.names["ring-indexes"].Bytes[line(regs.RingCommand):]
			binary.LittleEndian.PutUint32(w, binary.LittleEndian.Uint32(w)-3)
		}, nil, adopted, continued},
		{"other rings wanted", func(*process) {}, func(c *driver.Config) { c.Rings.Event = 32 }, adopted, !continued},
		{"other frames wanted", func(*process) {}, func(c *driver.Config) { c.Rings.FrameBytes = 512 }, adopted, !continued},
		{"memory not kept", func(*process) {}, func(c *driver.Config) { c.Kept = nil }, adopted, !continued},
		{"no event buffers, and no memory for them", store(ringReg(regs.RingBufferBytes, regs.RingEvent), 0), func(c *driver.Config) {
			all, n := c.Kept, 0
			c.Kept = func(m *device.DMA) bool { n++; return all(m) && n <= 9 }
		}, adopted, continued},
		{"event buffers not kept", func(*process) {}, func(c *driver.Config) {
			all, n := c.Kept, 0
			c.Kept = func(m *device.DMA) bool { n++; return all(m) && n != 10 }
		}, adopted, !continued},
		{"one memory not kept", func(*process) {}, func(c *driver.Config) {
			all, n := c.Kept, 0
			c.Kept = func(m *device.DMA) bool { n++; return all(m) && n != 5 }
		}, adopted, !continued},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := begin(t, open)
			defer s.end()
			o := s.start()
			o.live(true)
			row.spoil(o)
			s.die(o)
			p := s.start()
			cfg := p.wire.adopting(s.b.config(), true, p.kept)
			if row.change != nil {
				row.change(&cfg)
			}
			c, err := driver.Open(t.Context(), p.wire, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if c.Adopted() != row.adopted || c.Continued() != row.continued {
				t.Errorf("Adopted = %v, Continued = %v, want %v, %v", c.Adopted(), c.Continued(), row.adopted, row.continued)
			}
			if n := p.wire.bar; n > 400 {
				t.Errorf("adoption took %d accesses", n)
			}
			p.note(s.b.traffic(t.Context(), c))
			p.note(c.Shutdown(t.Context()))
		})
	}
}

// Stuck has a card adopted that does not take the command its last process gave it. It must be one that is pumped.
func Stuck(t *testing.T, open func(testing.TB) *Bench) {
	s := begin(t, open)
	defer s.end()
	o := s.start()
	o.live(true)
	producer := uint64(regs.RingProducer.At(regs.RingCommand, regs.RingStride))
	o.wire.Device.Store32(device.Bar0, producer, o.wire.Device.Load32(device.Bar0, producer)+1)
	s.die(o)
	p := s.start()
	cfg := p.wire.adopting(s.b.config(), true, p.kept)
	cfg.Pump, cfg.PumpLimit = func() {}, 1<<16
	c, err := driver.Open(t.Context(), p.wire, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Adopted() || c.Continued() || p.wire.bar > 400 {
		t.Errorf("Adopted = %v, Continued = %v, %d accesses", c.Adopted(), c.Continued(), p.wire.bar)
	}
	p.note(c.Leave(t.Context()))
	s.b.Die(p.wire.Device)
	q := s.start() // in this one it goes on
	if q.open(true); q.card == nil {
		return
	}
	q.note(s.b.traffic(t.Context(), q.card))
	q.note(q.card.Shutdown(t.Context()))
}
