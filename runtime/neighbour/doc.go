// Package neighbour resolves next hops and announces the card's own addresses: the state machines of ARP and neighbour
// discovery, without their packets.
//
// A Table is told what is wanted, what was learned and what time it is, and tells which solicitations and announcements
// to send; package exception reads and writes the frames. Hops that the tables of the card name are wanted: they are
// refreshed for ever and asked for again and again while nobody answers. Others are asked for when a packet needs them
// and forgotten when none does. There is no clock, no goroutine and no randomness here, and nothing depends on the order
// of a map.
package neighbour
