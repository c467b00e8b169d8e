// Package usertcp opens TCP connections without a kernel: the segments that a connection sends come out as IP packets, and
// those that come back are put in. It wraps the TCP of gVisor's network stack, which no other package imports.
//
// It has connections that were opened here and nothing else: no listeners, no forwarding, no neighbours, no answers to
// segments of no connection. Time comes from the caller. gVisor works on what is delivered in goroutines of its own, as many
// as the runtime uses processors; a Stack starts them with New, ends them with Close, and waits in every Step until they
// have nothing left to do. What comes out is put in the order of local ports, so that the same calls give the same packets
// whatever the goroutines' order was.
//
// A Stack and its connections are for one goroutine. What a peer can make it hold is bounded: ReceiveBytes for a
// connection, and 4096 packets to be fetched, beyond which they are lost as if on the way.
package usertcp
