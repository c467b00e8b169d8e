// Package doctor examines what is around a card: who else answers for a VIP, servers that do not take what is sent to them
// by DR or through a tunnel because they lack the VIP, tunnels whose packets the server's reverse path filter throws away,
// and paths to servers that take less than their port.
//
// A Doctor is told what there is and what time it is, and tells which packets to send; it is given the frames that come
// in. Everything is asked through the card, from the card's own addresses:
//
//	VIP      ARP request, or neighbour solicitation, at every subnet of both ports; nobody is to answer
//	server   SYN to VIP:port by the server's method; SYN-ACK from the VIP is well, and is answered with RST the same way
//	server   ICMP echo as long as the port's MTU, not to be fragmented; where that is lost, shorter ones by bisection
//
// A SYN for DR, and one inside a tunnel, has one hop left: who owns the VIP takes it, who forwards it says so.
//
// There is no clock and no randomness here, no goroutine, and nothing depends on the order of a map. A Doctor is for one
// examination and one goroutine.
package doctor
