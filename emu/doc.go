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
// effect between two steps, like a posted write on a bus. The card starts no goroutine: Run is its caller's, interrupts
// are raised in the goroutine that steps.
//
// What registers and memories show is all the state there is. Snapshot takes it and Restore makes another card go on
// from it. They, the faults and the record of strict mode are this package's alone; no register stands for them.
//
// Ports, and the frames' buffers they are given, belong to the card until Close; host memory belongs to the host and is
// touched only within Step.
package emu
