// Package tcppeer is a small TCP end system over Ethernet frames: the client and the server where no kernel can play
// them, in tests in memory, in the demo without namespaces and in the life-cycle benchmark.
//
// A Host owns its connections and runs in its caller's goroutine. Frames come in through Receive, go out through
// Config.Send, time comes in as a number. The same calls give the same frames. It does: active and passive open, MSS,
// window scale, SACK and timestamps, data in order with retransmission, zero-window and keep-alive probes, FIN, RST, IPv4
// and IPv6, one VLAN, and it answers ARP and neighbour solicitations. With SACK agreed on it keeps what comes before its
// turn and tells of it in blocks, D-SACK included; without, a gap is sent again. It does not use the blocks it gets, or
// control congestion. Every received header is checked in full; what is wrong is counted, never repaired.
//
// In steady state nothing is allocated while segments come in order: connections and their buffers are used again.
package tcppeer
