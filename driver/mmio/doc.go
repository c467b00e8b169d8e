// Package mmio makes single accesses to device memory.
//
// The compiler may merge, split, repeat or drop an access it sees, and sync/atomic's stores are locked exchanges on
// amd64: a read and a write on the bus. So each access here is one assembly function with exactly one load or store of
// the wanted width through the device pointer. On arm64 a store follows all earlier stores to memory and a load precedes
// all later accesses by one barrier each; amd64 keeps that order by itself for uncached device memory.
//
// Nothing else in the program touches a BAR. Region adds the bounds; whoever mapped the bytes keeps them mapped while the
// Region is in use. The package holds no state and starts no goroutine.
package mmio
