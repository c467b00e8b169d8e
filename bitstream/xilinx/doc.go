// Package xilinx decodes and encodes the configuration streams of Xilinx parts: sync word, packets, registers, commands
// and checks (UG470, UG570, UG380). It imports nothing of this module, for the card's model needs it as well as the
// readers of files.
//
// Decode walks a whole stream of any family and tells what is in it; it does not ask what part is there. Logic is one 7-series
// part's configuration logic, which takes words one at a time and refuses what is not for it. Encoder makes streams for
// the 7 series. Nothing here knows files: a .bit file's header is the bitstream package's to read, though BitHeader writes one.
//
// A stream is words behind a sync word. A type 1 packet names a register and a few words for it, a type 2 many words for
// the register named before:
//
//	31  29 28 27 26        18 17      13 12 11 10          0
//	 0 0 1   op    reserved    register   res.     count      type 1
//	 0 1 0   op                    count                      type 2
//
// Frame data goes to FDRI at the address in FAR; MFWR writes the last frame again elsewhere, which is all that compression
// is. Writing the CRC register compares it with the check over everything written since it was last reset, and that check
// leaves packet headers and no operations out. So Decode also notes packets that parts take and no tool writes, for damage
// there shows in no other way.
package xilinx
