package emu

import (
	"encoding/binary"

	"splicenic/driver/device"
)

const (
	configBytes = 4096
	pbaOffset   = 0x8000 // in BAR4; the table starts at 0
)

// resetConfig gives configuration space the values it has after power-on, or after a function-level reset.
func (c *Card) resetConfig(function bool) {
	old := c.config
	c.config = [configBytes]byte{}
	for i := range configWords {
		w := &configWords[i]
		v := w.reset
		if function {
			v = v&^w.keep | binary.LittleEndian.Uint32(old[w.at:])&w.keep
		}
		binary.LittleEndian.PutUint32(c.config[w.at:], v)
	}
	binary.LittleEndian.PutUint64(c.config[cfgSerial:], c.cfg.Serial)
}

func (c *Card) configWord(at uint32) uint32 { return binary.LittleEndian.Uint32(c.config[at:]) }
func (c *Card) setConfigBits(at uint32, v uint32) {
	binary.LittleEndian.PutUint32(c.config[at:], c.configWord(at)|v)
}

// ReadConfig reads configuration space, in D3hot too.
func (c *Card) ReadConfig(off uint32, p []byte) error {
	if uint64(off)+uint64(len(p)) > configBytes {
		return c.fault("read configuration space", device.ErrRange)
	}
	c.lock()
	defer c.mu.Unlock()
	if c.gone() {
		ones(p)
		return nil
	}
	copy(p, c.config[off:])
	return nil
}

// WriteConfig writes configuration space, byte by byte as its masks let it: the rest keeps its value. Bit 15 of device
// control resets the function, as Reset does, but the host's memory map and vectors stay as they are given.
func (c *Card) WriteConfig(off uint32, p []byte) error {
	if uint64(off)+uint64(len(p)) > configBytes {
		return c.fault("write configuration space", device.ErrRange)
	}
	c.lock()
	defer c.mu.Unlock()
	if c.gone() {
		return nil
	}
	for i, b := range p {
		c.writeConfigByte(off+uint32(i), b)
	}
	if at := uint32(cfgDevice + 1); at >= off && at-off < uint32(len(p)) && p[at-off]&(deviceFLR>>8) != 0 {
		c.resetFunction()
	}
	c.configured()
	return nil
}

func (c *Card) writeConfigByte(at uint32, b byte) {
	w := configWordAt(at &^ 3)
	if w == nil {
		return
	}
	old, shift := c.config[at], at%4*8
	if at == cfgPower && b&powerState != 0 && b&powerState != powerD3 {
		b = old // there is no such state: the write changes nothing
	}
	write, clear := byte(w.write>>shift), byte(w.clear>>shift)
	c.config[at] = (old&^write | b&write) &^ (b & clear)
}

// configured makes a change of configuration space take effect.
func (c *Card) configured() {
	flags := binary.LittleEndian.Uint16(c.config[cfgMsixFlags:])
	c.vectors.enabled, c.vectors.masked = flags&msixEnable != 0, flags&msixMask != 0 || !c.master()
	c.busMaster()
	c.deliver()
}

// asleep says whether the card is in D3hot. Asleep it answers nothing but configuration space: a memory request is an
// unsupported one, it does no DMA and its interrupts wait, but forwarding goes on, and nothing is lost when it wakes up.
func (c *Card) asleep() bool { return c.config[cfgPower]&powerState == powerD3 }

// master says whether the card may send requests of its own: DMA, and messages of MSI-X.
func (c *Card) master() bool { return c.config[cfgCommand]&commandMaster != 0 && !c.asleep() }

// busMaster lets the card at host memory only as a bus master.
func (c *Card) busMaster() {
	switch {
	case !c.master() || c.memory == nil:
		c.host.SetHost(nil)
	case c.bus.slow:
		c.host.SetHost(&c.bus)
	default:
		c.host.SetHost(c.memory)
	}
}

// refuse notes a memory request that found the card asleep. What is not posted tells its sender by itself, so it counts
// as an advisory error.
func (c *Card) refuse(posted bool) {
	const correctable, nonFatal, fatal, unsupported = 1 << 16, 1 << 17, 1 << 18, 1 << 19 // of the device status
	c.setConfigBits(cfgDevice, unsupported)
	switch {
	case c.configWord(cfgSeverity)&errUnsupported != 0:
		c.setConfigBits(cfgDevice, fatal)
	case posted:
		c.setConfigBits(cfgDevice, nonFatal)
	default:
		c.setConfigBits(cfgDevice, correctable)
		c.setConfigBits(cfgCorrect, errAdvisory)
		if c.configWord(cfgCorrectMask)&errAdvisory != 0 {
			return
		}
	}
	if c.configWord(cfgUncorrect)&^c.configWord(cfgMask) == 0 {
		binary.LittleEndian.PutUint32(c.config[cfgErrors:], c.configWord(cfgErrors)&^firstError|20)
	}
	c.setConfigBits(cfgUncorrect, errUnsupported)
}

func ones(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
}
