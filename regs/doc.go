// Package regs is the register map as Go sees it: typed offsets, field accessors, codecs of memory entries and
// descriptors, and tables that describe all of it at run time.
//
// Nearly everything here is generated from package spec. For register free of block amu there is the offset AmuFree; for
// field enable of its register control there are AmuControlEnable, which takes the field out of a word,
// SetAmuControlEnable, which puts it in, and AmuControlEnableShift and AmuControlEnableMask. The offset is that of
// instance 0 and element 0; Reg.At goes from there:
//
//	regs.PortRxFrames.At(regs.PortServer, regs.PortStride)
//	regs.GeometryCycles.At(3, regs.GeometryCyclesStride)
//
// A wide register has its low word there and its high word four bytes on. Bits that no field names are reserved: they
// read zero and ignore stores.
//
// For every memory format there are the index of each word (PageDeadline), accessors of each field, and a struct with
// Decode and Encode (PageEntry) for code that is not in a hurry. Formats longer than 256 bytes have no struct.
//
// The package holds no state and touches no device. Its tables are shared: callers must not modify them.
package regs

//go:generate go run ./gen
