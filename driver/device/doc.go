// Package device is the contract between host software and a card, from both sides.
//
// Device is what the driver holds: information, configuration space, regions, DMA memory, interrupts. Function is what
// a card implements: the same seen from the other end. Local joins a Function to a Device inside one process; the
// packages vfio and vfiouser provide Devices over the kernel and over a socket. The conformance suite in devicetest
// runs on every Device.
//
// DMA memory belongs to the caller of AllocDMA until it is closed. A Device starts no goroutine of its own unless its
// package says so.
package device
