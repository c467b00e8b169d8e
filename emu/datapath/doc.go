// Package datapath is the card's pipeline: receive parser, address management unit, packet mapping unit, transmit ends
// and timer scan, joined by one state table.
//
// # One batch
//
// Process takes a batch of frames of one port through the pipeline, column by column, so that the memory accesses of
// different frames overlap:
//
//	parse → VIP and server memories, keys → CAM → page → act → output
//
// The last column runs frame by frame in arrival order. Where an earlier frame of the batch changed a CAM, the lookup is
// repeated, so a batch gives the same output as its frames one at a time.
//
// # Receive state machine
//
// A frame passes these states; each that it fails ends it with a counter (drop) or hands it to the host (exception):
//
//	ETHERNET → VLAN → IPV4 | IPV6 → EXTENSION* → TCP → CHECKSUM → KEY
//
// and is then one of four classes: SYN (no connection, a listener), request (payload for a connection that waits for its
// head), ordinary (any other segment of a connection), exception. What becomes of a TCP segment stands in states.md,
// which is written from the state table.
//
// # What a segment can do
//
// A segment of a spliced connection goes on whatever its numbers, for its receiver to answer. The card concludes something
// from it, where the ends are, that one has closed, only if its receiver takes it (RFC 5961): so nobody who does not see
// a connection's numbers can end it, or make a later RST count as exact. Where a connection has come to a second server,
// that is judged by leg set B.
//
// # State
//
// Everything that outlives a batch is in the register file and the memories, where the host can see it. The Core keeps
// only scratch space and indexes that Reindex derives from the memories.
//
// A Core belongs to one goroutine at a time; the card's lock sees to it. It starts none.
package datapath

//go:generate go run ./gen
