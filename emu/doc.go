// Package emu is the card in software, at register level: a PCI function whose BARs show the same map as the silicon
// and whose ports move real frames.
//
//	           BAR0 registers      BAR2 memories        BAR4 MSI-X     host memory
//	               │                    │                   │              │
//	            regfile               ssram               msix          hostif
//	               └────────┬───────────┴───────────────────┴──────┬───────┘
//	port ─ receive ───► datapath (parser, AMU, CAM, PMU, timers) ──► transmit ─ port
//
// A Card does work only in Step, which is deterministic: the same frames, accesses and times give the same output. Run
// is a loop around Step that waits for frames and doorbells. One lock guards the whole card, so a register access takes
// effect between two steps, like a posted write on a bus. Where the host's memory is slow (device.SlowMemory), a step gives
// the lock up over its accesses to it, which it makes between two batches: see bus. The card starts no goroutine: Run is
// its caller's, interrupts are raised in the goroutine that steps.
//
// To its host the card is a PCI Express endpoint: configuration space with its capabilities is data in capability.go. A
// function-level reset, by Reset or by device control, leaves sticky bits alone. In D3hot only the bus face sleeps.
// Whether an access is for this card at all, by the memory space enable bit and the BARs, is the business of whoever
// hosts the function.
//
// The board around the part has a flash with three boot slots, whose streams the configuration logic reads (bitstream/xilinx)
// and whose frames say what card it is (emu/image): name, version, register map, geometry. Power-on and configuration.boot_command
// load the next slot, or golden where that does not load. A boot takes the card off the bus for a while, and everything
// behind it is new then.
//
//	what loads            what there is
//	an image of this map  the whole card, its memories as large as the image says
//	one of another map    the shell; the directory shows the map's digest, control.status.ready is 0, no frame passes
//	none                  the bare shell; control.fault is 1: the flash can be written, and a boot tried again
//
// Flash and boot take their time by Config.Clock. Only whoever looks at the configuration port, or for a card that is off
// the bus, makes the card look at it: Step does not, so that it stays deterministic.
//
// What registers and memories show is all the state there is. Snapshot takes it and Restore makes another card go on
// from it; what the flash holds stays with the board. They, the faults and the record of strict mode are this package's
// alone; no register stands for them.
//
// Ports, and the frames' buffers they are given, belong to the card until Close; host memory belongs to the host and is
// touched only within Step.
package emu
