// Package reassembly puts fragments of IP packets together again, within bounds: so many packets, bytes and fragments in
// all, so many for each source, so long for each packet. It also cuts packets into fragments.
//
// It takes what connections are made of, TCP, UDP, and tunnels that end here, and ICMP. A TCP packet is given out as the TCP segments
// that it can be sent on as (RFC 9293 lets segments be cut anywhere): nothing behind it has to know about fragments. Other
// packets are given out in one piece, to be cut again where they leave. A packet whose fragments overlap is dropped whole,
// with whatever of it still comes (RFC 5722); exact repetitions are ignored. It does not look at addresses beyond telling
// packets apart; who is served is the caller's decision.
//
// A Table is for one goroutine and starts none. It copies what it keeps. Time comes from the caller.
package reassembly
