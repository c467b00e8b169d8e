// Package exception is the host's part of the data path: it decides about the frames that the card cannot or may not decide
// about itself.
//
// It answers ARP, neighbour discovery and ICMP echo for the card's addresses and VIPs, refuses connections to closed
// ports, tells senders about used-up TTLs and packets too big, routes other traffic where a port forwards, finds another
// server for a request whose first one failed, and answers or ends connections whose request nobody can serve. Traffic
// that servers start gets a source address of a pool, where there is one, by the table of package snat.
//
// An ICMP error about a packet of a connection is translated back and goes to the end that sent it; none ends a
// connection. What routers say about the MTU of a path to a server is kept for a while. Fragments for a VIP or from a
// server are put together and go through the parser again; datagrams come back from the card to be cut. Whatever it does
// not answer is counted by reason; nothing is dropped silently. It asks servers for their profiles, as package health
// says, from the card's own addresses.
//
// A Handler is for one goroutine. Frames given to it are only read and not kept, but for fragments and one packet for each
// next hop that is being resolved, which are copied. Frames it emits lie in its own buffer until the next call. Time
// comes from the caller. Every emitted packet is laid out by gopacket with its checksums computed in full, or cut from one
// that the card translated.
package exception
