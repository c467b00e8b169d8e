package emu

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"splicenic/driver/device"
	"splicenic/regs"
)

// State is everything a card is between two steps: what its registers and memories show, nothing else. The keys that
// no load shows stand under the names of their registers.
type State struct {
	Registers map[uint32]uint32 // by BAR0 offset: every register a load shows
	Secrets   map[string]uint32 // by dotted name: the write-only ones
	Windows   []Window          // of BAR2, in order; what lies in none is zero
	Config    []byte            // configuration space, all 4096 bytes; nil in Restore: as after power-on
	Msix      []byte            // BAR4 up to the pending bits; nil in Restore: as after power-on
}

// A Window is a run of BAR2.
type Window struct {
	Offset uint64 // a multiple of 4
	Bytes  []byte // of a multiple of 4 bytes
}

// windowBytes is the grain of Snapshot's windows.
const windowBytes = 64 << 10

// Snapshot returns the card's state.
func (c *Card) Snapshot() *State {
	c.lock()
	defer c.mu.Unlock()
	c.bus.rest()
	s := &State{Registers: map[uint32]uint32{}, Secrets: map[string]uint32{}, Config: bytes.Clone(c.config[:]), Msix: make([]byte, pbaOffset+8)}
	eachWord(func(at uint32, r *regs.RegisterInfo) {
		if r.Access == regs.WO {
			s.Secrets[regs.Reg(at).Name()] = c.reg.Get(regs.Reg(at))
			return
		}
		s.Registers[at] = c.reg.Get(regs.Reg(at))
	})
	c.vectors.load(0, s.Msix)
	c.mem.Spans(func(off, n uint64) {
		for end := off + n; off < end; {
			p := make([]byte, min(windowBytes, end-off))
			c.mem.ReadAt(off, p)
			if len(bytes.TrimLeft(p, "\x00")) > 0 {
				s.Windows = append(s.Windows, Window{off, p})
			}
			off += uint64(len(p))
		}
	})
	return s
}

// Restore makes the card go on from a state: of a card with the same geometry, while none of its frames is on its way.
// The host's memory map and vectors stay as they are given, and so does what the flash holds: it is the board's.
func (c *Card) Restore(s *State) error {
	c.lock()
	defer c.mu.Unlock()
	c.bus.rest()
	if c.closed {
		return c.fault("restore", device.ErrClosed)
	}
	for r, v := range s.Registers {
		if !c.reg.Mapped(r) || r%4 != 0 {
			return c.fault("restore", fmt.Errorf("no register at %#x", r))
		}
		if isGeometry(r) && c.reg.Get(regs.Reg(r)) != v {
			return c.fault("restore", fmt.Errorf("%s is %d, this card has %d", regs.Reg(r).Name(), v, c.reg.Get(regs.Reg(r))))
		}
	}
	secrets := make(map[regs.Reg]uint32, len(s.Secrets))
	for name, v := range s.Secrets {
		l, ok := regs.LookupRegister(name)
		if !ok {
			return c.fault("restore", fmt.Errorf("no register %s", name))
		}
		secrets[l.Reg()] = v
	}
	if s.Config != nil && len(s.Config) != configBytes {
		return c.fault("restore", fmt.Errorf("configuration space of %d bytes", len(s.Config)))
	}
	c.faults.lost, c.boot = false, boot{}
	c.flash.PowerOn()
	c.reg.Reset()
	c.mem.Geometry.Store(c.reg)
	c.identify()
	c.configurationStart()
	c.mem.Reset()
	for _, w := range s.Windows {
		c.mem.WriteAt(w.Offset, w.Bytes)
	}
	for r, v := range s.Registers {
		c.reg.Set(regs.Reg(r), v)
	}
	for r, v := range secrets {
		c.reg.Set(r, v)
	}
	c.restoreBoard()
	c.restoreBus(s)
	c.rebuild(s)
	return nil
}

// restoreBoard makes of the configuration port's and the sensors' registers what is behind them. A flash operation that was
// going on has ended, and the configuration logic waits for the start of a stream.
func (c *Card) restoreBoard() {
	c.bootNext()
	c.flashUntil = 0
	c.icap.Reset()
	c.reg.Set(regs.ConfigurationIcapStatus, 0)
	c.sensors = Sensors{signed24(c.reg.Get(regs.SensorTemperature)), c.reg.Get(regs.SensorVccint), c.reg.Get(regs.SensorVccaux)}
	c.alarming = c.alarms()
}

// rebuild derives again what is derived. The CAMs' counts are state; a count that differs from the words stays as given.
func (c *Card) rebuild(s *State) {
	c.resets.Add(1)
	if c.run.shellOnly() {
		return
	}
	c.core.Reindex()
	c.mem.Dirty = 0
	for i := range c.cams {
		for _, r := range [...]regs.Reg{regs.CamFree, regs.CamEntries} {
			at := r.At(i, regs.CamStride)
			if v, ok := s.Registers[uint32(at)]; ok {
				c.reg.Set(at, v)
			}
		}
	}
	c.out.Reset()
}

// restoreBus brings back what lies beside BAR0 and BAR2.
func (c *Card) restoreBus(s *State) {
	c.resetConfig(false)
	copy(c.config[:], s.Config)
	c.vectors.reset()
	if s.Msix != nil {
		for i := 0; i+4 <= len(s.Msix); i += 4 {
			if w := c.vectors.word(uint64(i)); w != nil {
				*w = binary.LittleEndian.Uint32(s.Msix[i:])
			}
		}
	}
	c.configured()
}

func isGeometry(off uint32) bool {
	return off >= uint32(regs.GeometryBase) && off < uint32(regs.GeometryBase+regs.GeometryStride)
}

// eachWord calls f for every 32-bit word of every register.
func eachWord(f func(at uint32, r *regs.RegisterInfo)) {
	for i := range regs.Blocks {
		b := &regs.Blocks[i]
		for inst := range b.Instances {
			for j := range b.Registers {
				r := &b.Registers[j]
				for e := range r.Count {
					at := b.Offset + uint32(inst)*b.Stride + r.Offset + e*r.Stride
					f(at, r)
					if r.Wide {
						f(at+4, r)
					}
				}
			}
		}
	}
}
