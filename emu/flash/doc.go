// Package flash is a serial NOR flash as its part behaves: pages are programmed from 1 to 0, sectors are erased to 1, and
// both take time in which nothing else goes. It knows no clock: every operation says how long the part is busy with it,
// and whoever asked keeps to that.
//
// What goes wrong on demand is part of the model: write protection, address lines that are not connected, sectors that no
// longer take data, and power that fails in the midst of an operation.
//
// A Flash belongs to one goroutine at a time. What it holds is a Store's: memory that costs nothing while blank, or a file.
package flash
