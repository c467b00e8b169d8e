package emu

import (
	"splicenic/bitstream/xilinx"
	"splicenic/regs"
)

// icap is the configuration logic as the running image reaches it. Where it is within a stream is nothing a register
// shows: what restores a card finds it waiting for a sync word.
type icap struct{ *xilinx.Logic }

var icapErrors = [...]uint32{
	xilinx.RefusedNothing: regs.ConfigurationIcapStatusErrorNone,
	xilinx.RefusedIDCode:  regs.ConfigurationIcapStatusErrorIdcode,
	xilinx.RefusedCRC:     regs.ConfigurationIcapStatusErrorCrc,
	xilinx.RefusedCommand: regs.ConfigurationIcapStatusErrorCommand,
}

// icapCommand is a store to icap_command: words of the window go to the configuration logic, in order. IPROG boots the slot
// that starts at WBSTAR, a byte address in the flash. Frame data changes nothing here: the card is no netlist.
func (c *Card) icapCommand() {
	n := c.reg.Get(regs.ConfigurationIcapCommand)
	c.reg.Set(regs.ConfigurationIcapCommand, 0)
	if n > regs.ConfigurationIcapWindowCount {
		c.icapStatus(regs.ConfigurationIcapStatusErrorCommand)
		return
	}
	for i := range int(n) {
		c.icap.Write(c.reg.Get(regs.ConfigurationIcapWindow.At(i, regs.ConfigurationIcapWindowStride)))
		if c.icap.IPROG {
			c.warmBoot(c.icap.WBSTAR)
			return
		}
	}
	c.icapStatus(icapErrors[c.icap.Refused()])
}

func (c *Card) icapStatus(failed uint32) {
	w := regs.SetConfigurationIcapStatusError(0, failed)
	if c.icap.Synced() {
		w = regs.SetConfigurationIcapStatusSynced(w, 1)
	}
	c.reg.Set(regs.ConfigurationIcapStatus, w)
}

// warmBoot is IPROG: it loads what lies at an address. Where no slot starts there is no image.
func (c *Card) warmBoot(at uint32) {
	slot := uint32(len(slots))
	for i, s := range slots {
		if s.offset == at {
			slot = uint32(i)
		}
	}
	c.beginBoot(slot)
}
