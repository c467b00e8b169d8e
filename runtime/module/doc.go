// Package module reads along on connections whose protocol carries addresses and ports, and says what has to be altered
// and which connections will follow. It is pure: no clock, no card, no goroutines.
//
// A Module is one protocol. Of each connection it makes a Reader, which is given whole lines (TCP) or datagrams (UDP) of
// both directions in order. A module that reads something else is one more file and a row in Modules:
//
//	func (finger) Begin(c Conn) Reader { return &reader{c} }
//	func (r *reader) Read(dir Direction, text []byte) Verdict { … }
//	func (r *reader) Holds(dir Direction, begin []byte) bool { … }
//
// A Stream puts the lines of one direction together from segments as the network brings them, cut anywhere, repeated or
// missing, and says what goes on of each: a line that may have to be altered waits for its end, everything else goes on at
// once. What was altered is altered the same way when it is sent again. The owner of a Stream makes the receiver's numbers
// right (the card's verb adjust) before anything altered goes on.
//
// Expected is the table of connections that will follow.
package module
