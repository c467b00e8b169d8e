package driver

import (
	"fmt"

	"splicenic/regs"
)

// Defence says what the SYN defence of a card takes for pressure, and what a source may send. The zero value is the card's
// own defaults, without a limit for sources.
type Defence struct {
	RateOn, RateOff uint32 // SYNs a second with which it becomes active, and stays so; zero: the card's default
	SourceRate      uint32 // SYNs a second of one address or IPv6 /64; zero: no limit
	SourceBurst     uint32 // SYNs of it at once; zero: the card's default
}

// The marks of free pages are shares of all pages.
const (
	defencePagesOn  = 8
	defencePagesOff = 4
)

// SetDefence stores when the SYN defence becomes active. It does so with fewer than an eighth of the pages free, and stays
// so with fewer than a fourth; quarantine ends early below that only.
func (c *Card) SetDefence(d Defence) error {
	if err := c.dataPath(); err != nil {
		return fmt.Errorf("set SYN defence: %w", err)
	}
	pages := c.Geometry().Pages
	on := pages / defencePagesOn
	if low := c.Load(regs.AmuLowWatermark); regs.AmuLowWatermarkPages(low) >= on {
		c.Store(regs.AmuLowWatermark, regs.SetAmuLowWatermarkPages(low, on/2))
	}
	for _, x := range []struct {
		reg   regs.Reg
		value uint32
	}{
		{regs.DefencePagesOn, on}, {regs.DefencePagesOff, pages / defencePagesOff}, {regs.DefenceRateOn, d.RateOn},
		{regs.DefenceRateOff, d.RateOff}, {regs.DefenceSourceRate, d.SourceRate}, {regs.DefenceSourceBurst, d.SourceBurst},
	} {
		if _, info, _, _, ok := regs.At(uint32(x.reg)); ok && x.value == 0 {
			x.value = info.Reset
		}
		if v := min(x.value, regs.DefenceRateOnCountMask); v != c.Load(x.reg) {
			c.Store(x.reg, v)
		}
	}
	return c.dev.Err()
}
