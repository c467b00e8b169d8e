// Package exception is the host's part of the data path: it decides about the frames that the card cannot or may not decide
// about itself.
//
// It answers ARP, neighbour discovery and ICMP echo for the card's addresses and VIPs, refuses connections to closed
// ports, tells senders about used-up TTLs and packets too big, routes other traffic where a port forwards, and ends
// connections whose request nobody can serve. Whatever it does not answer is counted by reason; nothing is dropped
// silently.
//
// A Handler is for one goroutine. Frames given to it are only read and not kept, but for one packet for each next hop
// that is being resolved, which is copied. Frames it emits lie in its own buffer until the next call. Time comes from the
// caller. Every emitted packet is laid out by gopacket with its checksums computed in full.
package exception
