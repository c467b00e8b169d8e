package emu

import (
	"encoding/binary"

	"splicenic/driver/device"
	"splicenic/emu/hostif"
	"splicenic/regs"
)

// PCI identity beside the ids of the map.
const (
	subsystem = regs.VendorID | 1<<16
	revision  = 1
	class     = 0x028000 // network controller, other
)

// Configuration space: the type 0 header and one capability. What lies beyond reads 0.
const (
	configBytes  = 256
	configSpace  = 4096
	cfgCommand   = 0x04
	cfgBar0      = 0x10
	cfgBar2      = 0x18 // and 0x1c: 64 bits
	cfgBar4      = 0x20
	cfgLine      = 0x3c
	cfgMsix      = 0x40
	cfgMsixFlags = cfgMsix + 2

	commandMemory = 1 << 1
	commandMaster = 1 << 2
	commandINTx   = 1 << 10

	msixEnable = 1 << 15
	msixMask   = 1 << 14

	pbaOffset = 0x8000 // in BAR4; the table starts at 0
)

// writable says which bits of configuration space a host can change, by 32-bit word.
var writable = map[uint32]uint32{
	cfgCommand:  commandMemory | commandMaster | commandINTx,
	cfgBar0:     ^uint32(regs.Bar0Bytes - 1),
	cfgBar2:     ^uint32(regs.Bar2Bytes - 1),
	cfgBar2 + 4: ^uint32(0),
	cfgBar4:     ^uint32(regs.Bar4Bytes - 1),
	cfgLine:     0xff,
	cfgMsix:     (msixEnable | msixMask) << 16,
}

func (c *Card) resetConfig() {
	c.config = [configBytes]byte{}
	for _, x := range []struct{ off, v uint32 }{
		{0x00, regs.VendorID | regs.DeviceID<<16},
		{cfgCommand, 1 << 20}, // status: there is a capability list
		{0x08, revision | class<<8},
		{cfgBar2, 0xc}, // 64 bits, prefetchable
		{0x2c, subsystem},
		{0x34, cfgMsix},
		{cfgMsix, 0x11 | (hostif.Vectors-1)<<16},
		{cfgMsix + 4, device.Bar4},
		{cfgMsix + 8, pbaOffset | device.Bar4},
	} {
		binary.LittleEndian.PutUint32(c.config[x.off:], x.v)
	}
}

// ReadConfig reads configuration space.
func (c *Card) ReadConfig(off uint32, p []byte) error {
	if uint64(off)+uint64(len(p)) > configSpace {
		return c.fault("read configuration space", device.ErrRange)
	}
	c.lock()
	defer c.mu.Unlock()
	for i := range p {
		p[i] = 0
		if at := int(off) + i; at < configBytes {
			p[i] = c.config[at]
		}
		if c.gone() {
			p[i] = 0xff
		}
	}
	return nil
}

// WriteConfig writes configuration space; bits that cannot change keep their value.
func (c *Card) WriteConfig(off uint32, p []byte) error {
	if uint64(off)+uint64(len(p)) > configSpace {
		return c.fault("write configuration space", device.ErrRange)
	}
	c.lock()
	defer c.mu.Unlock()
	if c.gone() {
		return nil
	}
	for i, b := range p {
		if at := off + uint32(i); at < configBytes {
			m := byte(writable[at&^3] >> (at % 4 * 8))
			c.config[at] = c.config[at]&^m | b&m
		}
	}
	c.configured()
	return nil
}

// configured makes a change of configuration space take effect.
func (c *Card) configured() {
	flags := binary.LittleEndian.Uint16(c.config[cfgMsixFlags:])
	c.vectors.enabled, c.vectors.masked = flags&msixEnable != 0, flags&msixMask != 0
	c.busMaster()
	c.deliver()
}

// busMaster lets the card at host memory only as a bus master.
func (c *Card) busMaster() {
	if c.config[cfgCommand]&commandMaster == 0 {
		c.host.SetHost(nil)
		return
	}
	c.host.SetHost(c.memory)
}
