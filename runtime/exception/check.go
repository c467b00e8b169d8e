package exception

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/runtime/config"
	"splicenic/runtime/neighbour"
)

// examine offers a frame to the examination that is going on. It comes before everything else, as health checks do.
func (h *Handler) examine(port int, frame []byte) bool {
	if h.cfg.Examine == nil || !h.cfg.Examine(port, frame) {
		return false
	}
	h.count(ExamineAnswer)
	return true
}

// check offers a frame to the health checks. It comes before everything that a flood of others has its bounds in: what
// answers a check in flight is known by a look at a few fields, and a server must not be down because somebody else is loud.
func (h *Handler) check(frame []byte) bool {
	if h.cfg.Check == nil || !h.cfg.Check(carried(frame)) {
		return false
	}
	h.count(CheckAnswer)
	return true
}

// carried is the IP packet in a frame for one station, with one VLAN tag or none; nil where there is none.
func carried(frame []byte) []byte {
	at := 12
	if len(frame) < at+2 || frame[0]&1 != 0 {
		return nil
	}
	kind := layers.EthernetType(binary.BigEndian.Uint16(frame[at:]))
	if kind == layers.EthernetTypeDot1Q && len(frame) >= at+6 {
		at += 4
		kind = layers.EthernetType(binary.BigEndian.Uint16(frame[at:]))
	}
	if kind != layers.EthernetTypeIPv4 && kind != layers.EthernetTypeIPv6 {
		return nil
	}
	return frame[at+2:]
}

// Source finds the address of ours from which a server is asked, invalid where there is none, and says whether its next
// hop is resolved.
func (h *Handler) Source(server netip.Addr) (from netip.Addr, ready bool) {
	hop, ok := h.st.Config.Route(server)
	if !ok || hop.Port >= len(h.st.Ports) {
		return netip.Addr{}, false
	}
	_, state := h.table.Get(keyOf(hop))
	return h.near(hop), state.Usable()
}

// reach is the way to a server. Where its next hop is not resolved, what was to go there is counted as dropped.
func (h *Handler) reach(server netip.Addr) (hop config.Hop, mac neighbour.MAC, ok bool) {
	hop, ok = h.st.Config.Route(server)
	if ok && hop.Port < len(h.st.Ports) {
		if mac, state := h.table.Get(keyOf(hop)); state.Usable() {
			return hop, mac, true
		}
	}
	h.count(DropNextHop)
	return hop, mac, false
}

// Send sends an IP packet from an address of ours to a server, for the reason that is counted. One that is lost here is as
// good as lost on the way.
func (h *Handler) Send(packet []byte, server netip.Addr, why Reason) {
	hop, mac, ok := h.reach(server)
	if !ok {
		return
	}
	kind := layers.EthernetTypeIPv4
	if len(packet) > 0 && packet[0]>>4 == 6 {
		kind = layers.EthernetTypeIPv6
	}
	if h.emit(hop.Port, hop.VLAN, mac, kind, gopacket.Payload(packet)) {
		h.count(why)
	}
}

// SendFrame sends an Ethernet frame that asks the stations at a port for something.
func (h *Handler) SendFrame(frame []byte, port int) {
	if h.send(port, frame) {
		h.count(Examine)
	}
}
