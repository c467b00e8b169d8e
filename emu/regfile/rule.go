package regfile

import (
	"sync"

	"splicenic/regs"
)

// A rule says what a host's load and store of one word do.
type rule struct {
	read   uint32 // bits a load shows
	write  uint32 // bits a store replaces
	clear  uint32 // bits a store of one clears
	set    uint32 // bits a store of one sets
	mapped bool
	effect Effect
}

// An Effect tells the card which block acts on a store. Registers that only hold a value have none.
type Effect uint8

// The effects.
const (
	None          Effect = iota
	Reset                // control.reset
	InterruptTest        // control.interrupt_test
	Flash                // configuration.flash_command
	Boot                 // configuration.boot_command
	Icap                 // configuration.icap_command
	BootNext             // configuration.boot_next
	Sensor               // a sensor's limit, or the alarms
	Port                 // a port's control, address or MTU
	HashKey              // a CAM's hash key
	DefenceKey           // the SYN defence's key
	Bank                 // table.bank
	RingControl          // a ring's or the host interface's control
	Doorbell             // an index of a ring
)

// effects names the registers whose store makes a block act.
var effects = map[regs.Reg]Effect{
	regs.ControlReset:              Reset,
	regs.ControlInterruptTest:      InterruptTest,
	regs.ConfigurationFlashCommand: Flash,
	regs.ConfigurationBootCommand:  Boot,
	regs.ConfigurationIcapCommand:  Icap,
	regs.ConfigurationBootNext:     BootNext,
	regs.SensorTemperatureLimit:    Sensor,
	regs.SensorVccintLow:           Sensor,
	regs.SensorVccauxLow:           Sensor,
	regs.SensorAlarm:               Sensor,
	regs.PortControl:               Port,
	regs.PortMacLo:                 Port,
	regs.PortMacHi:                 Port,
	regs.PortMtu:                   Port,
	regs.CamHashKey:                HashKey,
	regs.DefenceKey:                DefenceKey,
	regs.TableBank:                 Bank,
	regs.HostifControl:             RingControl,
	regs.RingControl:               RingControl,
	regs.RingProducer:              Doorbell,
	regs.RingConsumer:              Doorbell,
}

// rules compiles the map once per process.
var rules = sync.OnceValue(func() *[words]rule {
	t := new([words]rule)
	for i := range regs.Blocks {
		b := &regs.Blocks[i]
		for j := range b.Registers {
			r := &b.Registers[j]
			w := compile(r)
			w.effect = effects[regs.Reg(b.Offset+r.Offset)]
			for inst := range b.Instances {
				for e := range r.Count {
					at := (b.Offset + uint32(inst)*b.Stride + r.Offset + e*r.Stride) / 4
					t[at] = w
					if r.Wide {
						t[at+1] = w
					}
				}
			}
		}
	}
	cardOwned(t)
	return t
})

func compile(r *regs.RegisterInfo) rule {
	w := rule{mapped: true}
	if len(r.Fields) == 0 {
		w.add(r.Access, 1<<32-1)
	}
	for i := range r.Fields {
		w.add(r.Fields[i].Access, r.Fields[i].Mask())
	}
	return w
}

func (w *rule) add(a regs.Access, mask uint32) {
	if a.Readable() {
		w.read |= mask
	}
	switch a {
	case regs.RW, regs.WO:
		w.write |= mask
	case regs.W1C:
		w.clear |= mask
	case regs.W1S:
		w.set |= mask
	}
}

// cardOwned makes the card's own index of each ring read-only, whatever its access kind: the card produces the first
// three rings and consumes the other two.
func cardOwned(t *[words]rule) {
	for ring := range regs.RingInstances {
		own := regs.RingProducer
		if ring == regs.RingInject || ring == regs.RingCommand {
			own = regs.RingConsumer
		}
		w := &t[own.At(ring, regs.RingStride)/4]
		w.write, w.effect = 0, None
	}
}
