// Package hostif is the host interface of the emulated card: five descriptor rings in host memory, reached by DMA, and
// the interrupts that tell of them.
//
// The card produces exceptions, events and completions; the host produces injected frames and commands. Indexes run
// freely modulo 2^32. A ring that is full or stopped never holds the data path up: what would go into it is counted as
// lost, and the sequence number tells the host. An access that the host's memory map refuses stops its ring.
//
// All state is in the registers and in host memory. An Interface belongs to one goroutine at a time and starts none; it
// keeps no frame and no descriptor beyond a call.
package hostif
