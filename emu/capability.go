package emu

import (
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

// Where the capabilities begin.
const (
	capPower   = 0x40
	capMsix    = 0x50
	capExpress = 0x60
	capErrors  = 0x100
	capSerial  = 0x150
)

// Registers of configuration space that the card acts on.
const (
	cfgCommand     = 0x04 // and status above it
	cfgBars        = 0x10
	cfgMsixFlags   = capMsix + 2
	cfgPower       = capPower + 4
	cfgDevice      = capExpress + 0x08 // device control, and device status above it
	cfgUncorrect   = capErrors + 0x04
	cfgMask        = capErrors + 0x08
	cfgSeverity    = capErrors + 0x0c
	cfgCorrect     = capErrors + 0x10
	cfgCorrectMask = capErrors + 0x14
	cfgErrors      = capErrors + 0x18
	cfgSerial      = capSerial + 0x04
)

// Bits of configuration space.
const (
	commandMemory = 1 << 1
	commandMaster = 1 << 2
	commandParity = 1 << 6
	commandSERR   = 1 << 8
	commandINTx   = 1 << 10

	statusList   = 1 << 4 << 16 // there is a capability list
	statusErrors = 0xf900 << 16 // parity, target and master aborts, system error

	bar64, barPrefetch = 1 << 2, 1 << 3

	powerState       = 3 // 0: D0, 3: D3hot
	powerD3          = 3
	powerNoSoftReset = 1 << 3

	msixEnable = 1 << 15
	msixMask   = 1 << 14

	expressVersion = 2 << 16 // an endpoint
	flr            = 1 << 28 // of the device capabilities
	deviceFLR      = 1 << 15 // of device control
	deviceSettings = 0x79ff  // of device control: all but phantom functions, auxiliary power and the reset
	payloadSize    = 7 << 5
	deviceReset    = 1<<4 | 1<<11 | 2<<12 // relaxed ordering, no snoop, reads of 512 bytes
	deviceErrors   = 0xf << 16            // device status: correctable, non-fatal, fatal, unsupported request
	linkSpeed      = 2                    // 5 GT/s
	linkWidth      = 4 << 4
	linkSettings   = 1<<3 | 1<<6 | 1<<7 // of link control: read completion boundary, common clock, extended synch
	noTimeout      = 1 << 4             // completion time-out can be disabled

	uncorrectable   = 1<<4 | 0x7f<<12 | errUnsupported
	errUnsupported  = 1 << 20
	correctable     = 1 | 7<<6 | 1<<12 | errAdvisory
	errAdvisory     = 1 << 13
	severityAtReset = 1<<4 | 1<<13 | 1<<17 | 1<<18 // data link protocol, flow control, overflow, malformed are fatal
)

// capability and extended are the first words of a capability.
func capability(id, next, rest uint32) uint32  { return id | next<<8 | rest }
func extended(id, version, next uint32) uint32 { return id | version<<16 | next<<20 }

// configWord is one word of configuration space. A bit of no mask is read-only.
type configWord struct {
	at    uint32
	reset uint32 // value after power-on
	write uint32 // what a host changes
	clear uint32 // what a host clears by storing 1
	keep  uint32 // what a function-level reset leaves alone: sticky bits, and what belongs to the link
}

// configWords are all words that do not always read 0. The card's serial number comes in beside them.
//
// Beyond power-on the card says what a real one of its kind would: PCI Express 2.0 by four lanes, no power state between
// D0 and D3hot, no wake-up, no legacy interrupt (the pin register is 0: nothing here raises one), a reset of the function
// alone. D3hot keeps the card's state (no soft reset).
var configWords = []configWord{
	{at: 0x00, reset: regs.VendorID | regs.DeviceID<<16},
	{at: cfgCommand, reset: statusList, write: commandMemory | commandMaster | commandParity | commandSERR | commandINTx, clear: statusErrors},
	{at: 0x08, reset: revision | class<<8},
	{at: 0x0c, write: 0xff}, // cache line size; header type 0
	{at: cfgBars, write: ^uint32(regs.Bar0Bytes - 1)},
	{at: cfgBars + 8, reset: bar64 | barPrefetch, write: ^uint32(regs.Bar2Bytes - 1)},
	{at: cfgBars + 12, write: ^uint32(0)},
	{at: cfgBars + 16, write: ^uint32(regs.Bar4Bytes - 1)},
	{at: 0x2c, reset: subsystem},
	{at: 0x34, reset: capPower},
	{at: 0x3c, write: 0xff}, // interrupt line; pin 0

	{at: capPower, reset: capability(0x01, capMsix, 3<<16)},
	{at: cfgPower, reset: powerNoSoftReset, write: powerState},

	{at: capMsix, reset: capability(0x11, capExpress, (hostif.Vectors-1)<<16), write: (msixEnable | msixMask) << 16},
	{at: capMsix + 4, reset: device.Bar4},
	{at: capMsix + 8, reset: pbaOffset | device.Bar4},

	{at: capExpress, reset: capability(0x10, 0, expressVersion)},
	{at: capExpress + 0x04, reset: 1 | 1<<5 | 1<<15 | flr}, // payloads of 256 bytes, extended tags, role-based errors
	{at: cfgDevice, reset: deviceReset, write: deviceSettings, clear: deviceErrors, keep: payloadSize},
	{at: capExpress + 0x0c, reset: linkSpeed | linkWidth | 1<<22}, // no active-state power management
	{at: capExpress + 0x10, reset: (linkSpeed | linkWidth | 1<<12) << 16, write: linkSettings, keep: linkSettings},
	{at: capExpress + 0x24, reset: noTimeout},
	{at: capExpress + 0x28, write: noTimeout},
	{at: capExpress + 0x2c, reset: 1<<1 | 1<<2},                    // 2.5 and 5 GT/s
	{at: capExpress + 0x30, reset: linkSpeed, write: 15, keep: 15}, // target speed

	{at: capErrors, reset: extended(0x0001, 2, capSerial)},
	{at: cfgUncorrect, clear: uncorrectable, keep: uncorrectable},
	{at: cfgMask, write: uncorrectable, keep: uncorrectable},
	{at: cfgSeverity, reset: severityAtReset, write: uncorrectable, keep: uncorrectable},
	{at: cfgCorrect, clear: correctable, keep: correctable},
	{at: cfgCorrectMask, reset: errAdvisory, write: correctable, keep: correctable},
	{at: cfgErrors, keep: firstError},

	{at: capSerial, reset: extended(0x0003, 1, 0)},
}

// firstError is the part of the error capability's control word that names the first error.
const firstError = 0x1f

// configWordAt returns the row of a word, nil for one that always reads 0.
func configWordAt(at uint32) *configWord {
	for i := range configWords {
		if configWords[i].at == at {
			return &configWords[i]
		}
	}
	return nil
}
