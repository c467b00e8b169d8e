// Package ring moves descriptors between host and card through rings in DMA memory.
//
// A ring is a power of two of 64-byte descriptors. Indexes run freely modulo 2^32; the slot is the index modulo the
// number of entries. Each descriptor carries a phase bit that toggles with every turn of the ring, one in the first:
//
//	index      0 1 2 3 | 4 5 6 7 | 8 9 …
//	slot       0 1 2 3 | 0 1 2 3 | 0 1 …     4 entries
//	phase      1 1 1 1 | 0 0 0 0 | 1 1 …
//
// The side that produces writes the phase with the control word, last; the side that consumes sees by it that the rest is
// there. The consumer gives slots back by publishing its index, once per batch and only when Commit says so, so that the
// effects of what it consumed precede it. Sequence numbers count descriptors the producer could not write.
//
// Either side of the host can be taken over: what a process leaves in memory that outlives it, together with the indexes
// in the card, is enough for ResumeConsumer and ResumeProducer to go on. A Consumer starts at the index that was published,
// so that everything after it comes again; it notes beside the ring which sequence number that index stands for.
//
// This is the only package that knows ownership: control words and index words in DMA memory are loaded and stored
// through sync/atomic, everything else is plain and ordered by them. A Consumer and a Producer each belong to one
// goroutine and start none; the memory is the caller's and outlives them. Nothing here allocates after New.
package ring
