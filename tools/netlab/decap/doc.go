// Package decap is the far end of a tunnel in user space, for servers of test networks: it takes packets out of ipip, 6in4,
// 4in6, GRE and GUE, and gives packets of L3DSR their VIP back, where the kernel has no such device.
//
// Open is the pure part: one packet in, the packet within out, or the reason why there is none. Whatever a header allows and
// the card does not send is refused under a name of its own, and every checksum on the way is verified, so that a test can say
// that what arrived was right and not only that it arrived.
//
// Start joins it to a namespace of package netlab:
//
//	d, err := decap.Start(decap.Config{
//		Namespace: server,
//		Interface: "eth0",
//		VIPs:      []string{"198.18.0.80/32", "2001:db8:1::80/128"},
//		Rules:     decap.Rules{DSCP: map[uint8][]netip.Addr{10: {vip4, vip6}}},
//	})
//	defer d.Close()
//	...
//	d.Counters().Kinds[decap.GUERemote] // packets that came this way
//	d.Counters().Refused                // by reason; empty where all is well
//
// It puts the VIPs on lo, keeps the server from answering ARP for them (arp_ignore, arp_announce), makes a TUN device, which
// the packets come out of, and switches rp_filter off, since the clients are not behind that device. Servers listen on the VIP
// itself. Replies leave by the routes of the namespace, with the VIP as their source.
//
// Packets are read by AF_PACKET beside the kernel, which sees them too. For tunnels, sockets that nobody reads keep it from
// answering that it does not know the protocol. An L3DSR packet is an ordinary one to the server's own address: nobody listens
// there, and the kernel's RST or ICMP goes to the client from that address, which no connection of the client's knows. A
// server that listens on every address would answer from the wrong one.
//
// Outer packets that came in fragments are put together; those within a tunnel are the kernel's. Open itself refuses a fragment.
//
// A Decap owns one goroutine, which Close stops and waits for. The TUN device goes with it; addresses and sysctls stay until
// the namespace goes.
package decap
