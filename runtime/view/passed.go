package view

import (
	"fmt"

	"splicenic/regs"
)

// isTemplate says whether a page is no connection, but says where those of a client go.
func isTemplate(p *regs.PageEntry) bool {
	return p.ClientLinkPassed != 0 && p.ControlState == regs.StateWaitHead
}

// ipvs is the state as ipvsadm names it.
func ipvs(p *regs.PageEntry, udp bool) string {
	switch {
	case isTemplate(p):
		return "NONE"
	case udp:
		return "UDP"
	}
	switch p.ControlState {
	case regs.StateSynRcvd:
		return "SYN_RECV"
	case regs.StateWaitHead, regs.StateSpliced:
		return "ESTABLISHED"
	case regs.StateServerSyn:
		return "SYN_SENT"
	case regs.StateClosing:
		if p.ClientLinkFinClient != 0 && p.ClientLinkFinServer != 0 {
			return "TIME_WAIT"
		}
		return "FIN_WAIT"
	}
	return "CLOSE"
}

// method names how packets reach a server, with the tunnel that they take.
func (s *server) method() string {
	name := valueName("server", regs.ServerControl, "method", s.ControlMethod)
	if s.ControlMethod == regs.MethodTun {
		name += " " + valueName("server", regs.ServerTunnel, "type", s.TunnelType)
	}
	return name
}

// passed explains a connection that was passed on, or a template.
func (e *evidence) passed(c *Connection, say sayer) {
	p := &e.p
	what := "opened to"
	switch {
	case isTemplate(p):
		what = "is a client (or the network of many) whose connections to"
	case e.word("server.control.protocol").number == 17:
		what = "sent a datagram to"
	}
	text := fmt.Sprintf("%s %s %s, which is service %s", c.Client, what, c.VIP, c.Service)
	if n := e.word("service.source.count"); n.there && n.number != 0 {
		text += fmt.Sprintf("; it is of one of the %d networks that the service takes", n.number)
	}
	say("syn", text, "page.client_address", "page.ports.client", "page.ports.vip", "page.index.vip", "vip.address", "page.index.service", "?service.source.count", "?service.otherwise.valid", "page.client_link.passed")
	how := "the group's scheduler chose"
	if k := e.word("group.control.means"); k.there {
		how += map[uint32]string{
			regs.GroupControlMeansWalk: " the next slot", regs.GroupControlMeansHash: " by a hash", regs.GroupControlMeansCompare: " by the servers' counters",
		}[k.number]
	}
	if k := e.word("service.persistence"); k.there && k.number != 0 {
		how = fmt.Sprintf("a template of this client, or where there was none yet %s; templates live %d ms", how, k.number)
	}
	say("group", fmt.Sprintf("group %s: %s", c.Group, how), "page.choice.group", "group.control.means", "?group.control.compare", "?group.control.hash_key", "?service.persistence")
	say("server", fmt.Sprintf("%s, by %s", c.Server, methodsInWords[e.word("server.control.method").number]), "page.a_index.server", "server.address", "server.control.port", "server.control.method", "?server.tunnel.type",
		"server.route.next_hop", "next_hop.control.resolved", "next_hop.mac_lo", "next_hop.mac_hi.address")
	if isTemplate(p) {
		text := "template; it is used again until the service's persistence after the last connection that it led is over"
		say("state", text, "page.control.state", "page.opened", "page.last_seen", "service.persistence")
		return
	}
	e.life(say)
}

var methodsInWords = map[uint32]string{
	regs.MethodNat:     "nat: it sees the client's address, and its own in the VIP's place",
	regs.MethodFullnat: "fullnat: it sees a local address and port in the client's place, and its own in the VIP's",
	regs.MethodTun:     "tun: it gets the client's packet in another, and answers from the VIP",
	regs.MethodDr:      "dr: it gets the client's packet as it is, at its own MAC address, and answers from the VIP past the card",
}

// passedFields is what becomes of each field of a passed connection.
func (e *evidence) passedFields() []Rewrite {
	list := []Rewrite{}
	add := func(direction, field, does string, from ...string) {
		list = append(list, Rewrite{direction, field, does, e.words(from...)})
	}
	method := e.word("server.control.method").number
	add(upward, "ethernet.destination", "the next hop's", "next_hop.mac_lo", "next_hop.mac_hi.address")
	add(upward, "ip.ttl", "− 1")
	switch method {
	case regs.MethodTun:
		add(upward, "outer header", "put before the packet, from the card's address to the server's", "server.tunnel.type", "?server.tunnel.port", "?server.tunnel.checksum", "?server.tunnel.dscp", "server.route.local_address", "server.address")
		return list
	case regs.MethodDr:
		return list
	case regs.MethodFullnat:
		add(upward, "ip.source", "a local address for the client's", "page.a_index.local_address")
		add(upward, "source_port", "a local port for the client's", "page.a_local.port")
		add(upward, "tcp.seq", fmt.Sprintf("+ 0x%08x", e.p.ADeltaClient), "page.a_delta_client")
		add(downward, "tcp.ack", fmt.Sprintf("− 0x%08x", e.p.ADeltaClient), "page.a_delta_client")
	}
	add(upward, "ip.destination", "the server's address for the VIP's", "server.address")
	add(upward, "destination_port", "the server's", "server.control.port")
	add(upward, "checksum", "by the difference of what changed")
	add(downward, "ethernet.destination", "where the client's first packet came from", "page.client_mac_lo", "page.client_mac_hi.address")
	add(downward, "ip.source", "the VIP's address for the server's", "page.index.vip", "vip.address")
	add(downward, "source_port", "the VIP's", "page.ports.vip")
	add(downward, "ip.ttl", "− 1")
	return list
}
