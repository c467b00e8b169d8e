// Package snat is the table of a source address translation: who inside talks to whom outside under which address and port
// (RFC 4787, RFC 5382, RFC 5508).
//
// An end inside has one address and port outside whatever it talks to, as long as any of its sessions lives, and keeps its
// port where that is free; all ends of a host have one address where that has ports left. What comes from outside passes
// where the end inside has a session with that address. Sessions end by the times of their protocol and state; ICMP errors
// neither end nor prolong them. A full table gives up sessions that are over, the oldest first, and otherwise takes no new
// ones. A segment in the middle of a connection that the table does not know begins a session, so that connections survive
// a table that was lost, where their ports stay the same.
//
// The table looks at no packet: rewriting is its caller's. A Table is for one goroutine and starts none. Time and the seed of
// its choices come from the caller, and nothing depends on the order of a map.
package snat
