package emu

import (
	"encoding/binary"
	"fmt"

	"splicenic/driver/device"
	"splicenic/emu/regfile"
	"splicenic/emu/ssram"
	"splicenic/regs"
)

// dirtyCAM is cleared after every store: the card keeps the CAMs' counts itself.
const dirtyCAM = ssram.DirtyCam

var barBytes = [device.Regions]uint64{device.Bar0: regs.Bar0Bytes, device.Bar2: regs.Bar2Bytes, device.Bar4: regs.Bar4Bytes}

// checkAccess refuses what no bus would carry.
func (c *Card) checkAccess(op string, region int, off uint64, n int) error {
	if region < 0 || region >= device.Regions || n == 0 || n%4 != 0 || off%4 != 0 ||
		uint64(n) > barBytes[region] || off > barBytes[region]-uint64(n) {
		return c.fault(fmt.Sprintf("%s region %d at %#x", op, region, off), device.ErrRange)
	}
	return nil
}

// ReadRegion loads from a BAR. A lost card reads all ones, and so does one asleep.
func (c *Card) ReadRegion(region int, off uint64, p []byte) error {
	if err := c.checkAccess("load from", region, off, len(p)); err != nil {
		return err
	}
	c.lock()
	defer c.mu.Unlock()
	if c.unheard(false) {
		ones(p)
		return nil
	}
	switch region {
	case device.Bar0:
		for i := 0; i < len(p); i += 4 {
			at := uint32(off) + uint32(i)
			c.note(region, uint64(at), 0, false)
			if regs.Reg(at) == regs.ConfigurationFlashStatus {
				c.flashBusy()
			}
			binary.LittleEndian.PutUint32(p[i:], c.loadRegister(at))
		}
	case device.Bar2:
		c.note(region, off, 0, false)
		c.mem.ReadAt(off, p)
	default:
		c.vectors.load(off, p)
	}
	return nil
}

// WriteRegion stores to a BAR. A lost card ignores it, and so does one asleep.
func (c *Card) WriteRegion(region int, off uint64, p []byte) error {
	if err := c.checkAccess("store to", region, off, len(p)); err != nil {
		return err
	}
	c.lock()
	defer c.mu.Unlock()
	if c.unheard(true) {
		return nil
	}
	switch region {
	case device.Bar0:
		for i := 0; i < len(p); i += 4 {
			at, v := uint32(off)+uint32(i), binary.LittleEndian.Uint32(p[i:])
			c.note(region, uint64(at), v, true)
			if c.gone() {
				return nil // it left the bus at the word before
			}
			if c.run.shellOnly() && !regfile.Shell(at) {
				continue
			}
			c.act(c.reg.HostStore(at, v), at)
		}
	case device.Bar2:
		c.note(region, off, 0, true)
		if !c.run.shellOnly() {
			c.storeMemory(off, p)
		}
	default:
		for i := 0; i < len(p); i += 4 {
			c.vectors.store(off+uint64(i), binary.LittleEndian.Uint32(p[i:]))
		}
		c.deliver()
	}
	return nil
}

// unheard says whether nobody answers a memory request.
func (c *Card) unheard(posted bool) bool {
	if c.gone() {
		return true
	}
	if c.asleep() {
		c.refuse(posted)
		return true
	}
	return false
}

// loadRegister is a host's load of a register, stuck bits included.
func (c *Card) loadRegister(off uint32) uint32 {
	v := c.reg.HostLoad(off)
	if len(c.faults.stuck) > 0 {
		if s, ok := c.faults.stuck[regs.Reg(off)]; ok {
			v = v&^s.mask | s.value&s.mask
		}
	}
	return v
}

// act makes the block a store was meant for act.
func (c *Card) act(effect regfile.Effect, off uint32) {
	switch effect {
	case regfile.None:
		return
	case regfile.Reset:
		c.resetBits()
	case regfile.InterruptTest:
		c.testInterrupts()
	case regfile.Flash, regfile.BootNext, regfile.Boot, regfile.Icap, regfile.Sensor:
		c.configurationAct(effect)
	case regfile.HashKey:
		c.cams[(regs.Reg(off)-regs.CamBase)/regs.CamStride].Rekey()
	case regfile.DefenceKey:
		c.core.RekeyDefence()
	case regfile.RingControl:
		c.host.Control()
		c.bus.stopped()
	}
	c.wake.ring()
}

func (c *Card) resetBits() {
	bits := c.reg.Get(regs.ControlReset)
	c.reg.Set(regs.ControlReset, 0)
	switch {
	case c.run.shellOnly(): // there is nothing to reset
	case bits&regs.ControlResetDataPathMask != 0:
		c.resetDataPath()
	case bits&regs.ControlResetHostInterfaceMask != 0:
		c.reg.ResetHostInterface()
		c.bus.forget()
	}
}

func (c *Card) testInterrupts() {
	bits := c.reg.Get(regs.ControlInterruptTest)
	c.reg.Set(regs.ControlInterruptTest, 0)
	for v := range c.vectors.table {
		if bits>>v&1 != 0 {
			if !c.run.shellOnly() {
				c.reg.Add64(regs.HostifInterrupts, 1)
			}
			c.raise(v)
		}
	}
}
