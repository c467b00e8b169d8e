package exception

import (
	"net/netip"

	"github.com/google/gopacket/layers"

	"splicenic/runtime/neighbour"
)

var allNodes = netip.MustParseAddr("ff02::1")

// Flags of a neighbour advertisement (RFC 4861 4.4).
const (
	naSolicited = 0x40
	naOverride  = 0x20
)

// multicastMAC is the Ethernet group of an IPv6 group (RFC 2464 7).
func multicastMAC(group netip.Addr) neighbour.MAC {
	g := group.As16()
	return neighbour.MAC{0x33, 0x33, g[12], g[13], g[14], g[15]}
}

// solicitedNode is the group that an address's owner listens to (RFC 4291 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0xff, 0x02, 11: 0x01, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// ndp handles neighbour discovery (RFC 4861 7).
func (h *Handler) ndp(p *packet) {
	if !p.icmpIntact() || p.icmp6.TypeCode.Code() != 0 {
		h.count(DropMalformed)
		return
	}
	switch {
	case p.is(layers.LayerTypeICMPv6NeighborSolicitation) && p.ip6.HopLimit == 255:
		h.solicitation(p)
	case p.is(layers.LayerTypeICMPv6NeighborAdvertisement) && p.ip6.HopLimit == 255:
		h.advertisement(p)
	default:
		h.count(DropIgnored)
	}
}

func (h *Handler) solicitation(p *packet) {
	target, _ := netip.AddrFromSlice(p.ns.TargetAddress)
	mac, given := linkAddress(p.ns.Options, layers.ICMPv6OptSourceAddress)
	probe := p.src.IsUnspecified()
	switch {
	case target.IsMulticast() || probe && (given || p.dst != solicitedNode(target)):
		h.count(DropMalformed)
		return
	case !h.at(target, p):
		h.count(DropIgnored)
		return
	}
	h.count(NeighborReply)
	if probe { // somebody wants to take our address (RFC 4862 5.4): everybody is told
		h.advertise(p.port, p.vlan(), target, allNodes, multicastMAC(allNodes), naOverride)
		return
	}
	if given {
		h.learn(p, p.src, mac, false, true)
	}
	h.advertise(p.port, p.vlan(), target, p.src, neighbour.MAC(p.eth.SrcMAC), naSolicited|naOverride)
}

func (h *Handler) advertisement(p *packet) {
	target, _ := netip.AddrFromSlice(p.na.TargetAddress)
	solicited := p.na.Flags&naSolicited != 0
	if target.IsMulticast() || solicited && p.dst.IsMulticast() {
		h.count(DropMalformed)
		return
	}
	mac, given := linkAddress(p.na.Options, layers.ICMPv6OptTargetAddress)
	if !given {
		mac = neighbour.MAC(p.eth.SrcMAC)
	}
	switch {
	case h.at(target, p):
		h.conflict(p, target, mac)
	case h.learn(p, target, mac, solicited, p.na.Flags&naOverride != 0):
		h.count(Learned)
	default:
		h.count(DropIgnored)
	}
}

func linkAddress(options layers.ICMPv6Options, kind layers.ICMPv6Opt) (neighbour.MAC, bool) {
	for _, o := range options {
		if o.Type == kind && len(o.Data) == 6 {
			return neighbour.MAC(o.Data), true
		}
	}
	return neighbour.MAC{}, false
}

// advertise tells that an address is ours.
func (h *Handler) advertise(port int, vlan uint16, own, to netip.Addr, toMAC neighbour.MAC, flags uint8) {
	mac := h.st.Ports[port].MAC
	h.sendND(port, vlan, own, to, toMAC, layers.ICMPv6TypeNeighborAdvertisement, &layers.ICMPv6NeighborAdvertisement{
		Flags: flags, TargetAddress: own.AsSlice(), Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: mac[:]}},
	})
}

// solicit asks for a neighbour.
func (h *Handler) solicit(a neighbour.Action, own netip.Addr) {
	to, toMAC := a.Key.Addr, a.To
	if toMAC == (neighbour.MAC{}) {
		to = solicitedNode(a.Key.Addr)
		toMAC = multicastMAC(to)
	}
	mac := h.st.Ports[a.Key.Port].MAC
	h.sendND(a.Key.Port, a.Key.VLAN, own, to, toMAC, layers.ICMPv6TypeNeighborSolicitation, &layers.ICMPv6NeighborSolicitation{
		TargetAddress: a.Key.Addr.AsSlice(), Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: mac[:]}},
	})
}

func (h *Handler) sendND(port int, vlan uint16, from, to netip.Addr, toMAC neighbour.MAC, kind uint8, body serializable) {
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	head := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
	h.emit(port, vlan, toMAC, layers.EthernetTypeIPv6, over(ip, []serializable{head, body})...)
}
