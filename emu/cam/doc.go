// Package cam is the exact match of the emulated card: a key of family, protocol, VLAN, ports, index and address gives a
// handle and a leg set.
//
// A CAM in silicon compares all its words at once. Here its words, shown at their physical slots in BAR2, form a cuckoo
// hash table of buckets of four words, 128 bytes. Two buckets are right for a key; which two is a keyed function of it,
// so that nobody outside can aim at a bucket. An IPv4 key or a local index takes one word, an IPv6 key an even slot and
// the one after it:
//
//	word 0 control   valid, kind, second, leg set, protocol, VLAN
//	word 1 handle    the result
//	word 2 ports
//	word 3 index
//	word 4 address   bits 0-31 of the address     in a second word: bits 32-63, and only word 0 beside
//	word 5                                                          bits 64-95
//	word 6                                                          bits 96-127
//	word 7 zero
//
// The words, the hash key's registers and the counts in cam.free and cam.entries are all the state. The words belong to
// ssram, the registers to regfile; a CAM belongs to one goroutine at a time. Lookups count nothing: the caller knows how
// many it made.
package cam
