// Package devicetest checks that a device.Device keeps the contract of package device, whatever stands behind it.
//
// A backend's test calls Run with a function that opens a fresh device. What the suite asks of the card behind it is
// little and told by a Harness: a register, a window, how to raise a vector, how to copy by DMA. Card is the smallest
// device.Function that has these; it serves backends that carry any Function.
package devicetest
