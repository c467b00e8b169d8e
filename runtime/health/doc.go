// Package health learns about servers by asking them: each one's profile, the TCP options its SYN-ACKs keep, without which a
// splice can promise clients next to nothing; and whether it works.
//
// A Prober is told which servers there are and what time it is, and tells which segments to send: a SYN that offers
// everything, and an RST for what comes back. It is given the segments that come back; package exception reads and writes
// the frames. A server that is known stays known; one that does not answer is asked again, less and less often. What the
// card finds out from the SYN-ACKs of connections corrects a profile at once.
//
// A Checker is told which servers to ask how, and tells which IP packets to send; it is given those that come back. Checks
// open a connection, ask for an HTTP status, send an ICMP echo or a datagram. A server is down after so many bad results in
// a row, and up after so many good ones. Whatever a server answers, or does not, is a result within the check's time-out,
// and costs no more memory than a head of 16 KiB. TCP is that of package usertcp. A connection ends with RST, so that
// neither end has to remember it.
//
// A Quorum says whether what is up is enough.
//
// There is no clock and no randomness here, and nothing depends on the order of a map. A Checker that has opened a
// connection owns the goroutines of its usertcp.Stack, which Close ends; there are no others.
package health
