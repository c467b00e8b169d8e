package driver

import (
	"testing"

	"splicenic/regs"
)

// TestSetDefence: page marks are shares of what the card has, whatever that is, above where quarantine ends early; rates
// that are not said are the card's own.
func TestSetDefence(t *testing.T) {
	for _, tt := range []struct {
		name                          string
		pages                         uint32
		d                             Defence
		on, off, low                  uint32
		rateOn, rateOff, source, some uint32
	}{
		{"default", 294_912, Defence{}, 36_864, 73_728, 64, 20_000, 10_000, 0, 100},
		{"small", 256, Defence{RateOn: 50, RateOff: 20, SourceRate: 7, SourceBurst: 9}, 32, 64, 16, 50, 20, 7, 9},
		{"more than a register holds", 1024, Defence{RateOn: 1 << 31}, 128, 256, 64, 1<<28 - 1, 10_000, 0, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeCard()
			f.set(regs.GeometryPages, tt.pages)
			c := openFake(t, f, Config{Pump: f.step})
			for range 2 { // the second time nothing changes
				if err := c.SetDefence(tt.d); err != nil {
					t.Fatal(err)
				}
				for _, x := range []struct {
					reg  regs.Reg
					want uint32
				}{
					{regs.DefencePagesOn, tt.on}, {regs.DefencePagesOff, tt.off}, {regs.AmuLowWatermark, tt.low}, {regs.DefenceRateOn, tt.rateOn},
					{regs.DefenceRateOff, tt.rateOff}, {regs.DefenceSourceRate, tt.source}, {regs.DefenceSourceBurst, tt.some},
				} {
					if got := f.get(x.reg); got != x.want {
						t.Errorf("%s is %d, want %d", x.reg.Name(), got, x.want)
					}
				}
			}
			if err := c.SetDefence(Defence{}); err != nil || f.get(regs.DefenceRateOn) != 20_000 {
				t.Errorf("back to the default: %v, rate_on %d", err, f.get(regs.DefenceRateOn))
			}
		})
	}
}
