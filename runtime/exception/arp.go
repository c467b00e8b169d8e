package exception

import (
	"net/netip"

	"github.com/google/gopacket/layers"

	"splicenic/runtime/neighbour"
)

var everybody = neighbour.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// arp answers requests for our addresses and learns from the rest (RFC 826).
func (h *Handler) arp(p *packet) {
	a := &p.arp
	if a.AddrType != layers.LinkTypeEthernet || a.Protocol != layers.EthernetTypeIPv4 || len(a.SourceHwAddress) != 6 || len(a.SourceProtAddress) != 4 || len(a.DstProtAddress) != 4 {
		h.count(DropMalformed)
		return
	}
	sender, target := netip.AddrFrom4([4]byte(a.SourceProtAddress)), netip.AddrFrom4([4]byte(a.DstProtAddress))
	mac := neighbour.MAC(a.SourceHwAddress)
	switch {
	case h.at(sender, p):
		h.conflict(p, sender, mac)
		return
	case a.Operation == layers.ARPRequest && h.at(target, p):
		h.learn(p, sender, mac, false, true)
		h.count(ARPReply)
		h.sendARP(p.port, p.vlan(), layers.ARPReply, target, sender, mac, mac)
		return
	case a.Operation == layers.ARPRequest || a.Operation == layers.ARPReply:
		if h.learn(p, sender, mac, a.Operation == layers.ARPReply, true) {
			h.count(Learned)
			return
		}
	}
	h.count(DropIgnored)
}

// conflict notices that somebody else uses an address of ours, and defends it (RFC 5227 2.4).
func (h *Handler) conflict(p *packet, a netip.Addr, mac neighbour.MAC) {
	if mac == h.st.Ports[p.port].MAC {
		h.count(DropIgnored) // our own frame came back
		return
	}
	h.count(Conflict)
	h.table.Defend(neighbour.Key{Port: p.port, VLAN: p.vlan(), Addr: a}, h.now)
}

// learn takes in a neighbour's MAC address and sends what waited for it.
func (h *Handler) learn(p *packet, a netip.Addr, mac neighbour.MAC, solicited, override bool) bool {
	k := neighbour.Key{Port: p.port, VLAN: p.vlan(), Addr: a}
	if !h.table.Learn(k, mac, solicited, override, h.now) {
		return false
	}
	h.flush(k)
	return true
}

// sendARP sends a request or reply from an address of ours.
func (h *Handler) sendARP(port int, vlan uint16, operation uint16, own, target netip.Addr, targetMAC, to neighbour.MAC) {
	mac := h.st.Ports[port].MAC
	h.emit(port, vlan, to, layers.EthernetTypeARP, &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: operation,
		SourceHwAddress: mac[:], SourceProtAddress: own.AsSlice(), DstHwAddress: targetMAC[:], DstProtAddress: target.AsSlice(),
	})
}

// act carries out what the table of neighbours asks for.
func (h *Handler) act(a neighbour.Action) {
	if a.Key.Port >= len(h.st.Ports) {
		return
	}
	if a.Verb == neighbour.Announce {
		h.count(Announced)
		if a.Key.Addr.Is4() {
			h.sendARP(a.Key.Port, a.Key.VLAN, layers.ARPRequest, a.Key.Addr, a.Key.Addr, neighbour.MAC{}, everybody)
			return
		}
		h.advertise(a.Key.Port, a.Key.VLAN, a.Key.Addr, allNodes, multicastMAC(allNodes), naOverride)
		return
	}
	own, ok := h.source(a.Key)
	if !ok {
		return
	}
	h.count(Solicited)
	if a.Key.Addr.Is4() {
		to := a.To
		if to == (neighbour.MAC{}) {
			to = everybody
		}
		h.sendARP(a.Key.Port, a.Key.VLAN, layers.ARPRequest, own, a.Key.Addr, neighbour.MAC{}, to)
		return
	}
	h.solicit(a, own)
}

// source is the address of ours that shares a subnet with a neighbour.
func (h *Handler) source(k neighbour.Key) (netip.Addr, bool) {
	for _, a := range h.st.Config.Ports()[k.Port].Addresses {
		if a.VLAN == k.VLAN && a.Prefix.Contains(k.Addr) {
			return a.Prefix.Addr(), true
		}
	}
	return netip.Addr{}, false
}
