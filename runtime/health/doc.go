// Package health learns about servers by asking them. What it learns so far is each one's profile, the TCP options its
// SYN-ACKs keep, without which a splice can promise clients next to nothing.
//
// A Prober is told which servers there are and what time it is, and tells which segments to send: a SYN that offers
// everything, and an RST for what comes back. It is given the segments that come back; package exception reads and writes
// the frames. A server that is known stays known; one that does not answer is asked again, less and less often. What the
// card finds out from the SYN-ACKs of connections corrects a profile at once. There is no clock, no goroutine and no
// randomness here, and nothing depends on the order of a map.
package health
