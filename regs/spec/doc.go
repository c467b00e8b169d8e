// Package spec is the one description of the card that software sees: the register blocks of BAR0, the memories of
// BAR2 and the layout of every entry and descriptor, as plain Go data.
//
// It is not used at run time. Package regs, regs/registers.md, the C header and the SystemVerilog package are generated
// from it; the emulator's register file, the driver and the command line read the generated tables.
//
// All values are little-endian. Addresses and ports are stored as numbers: an IPv4 address is one word, an IPv6
// address four words and a MAC address two, the lowest 32 bits first.
package spec
