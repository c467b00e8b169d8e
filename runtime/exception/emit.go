package exception

import (
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/runtime/neighbour"
)

var serialize = gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}

// hopLimit is the TTL of packets that begin here.
const hopLimit = 64

// A link is the way to a neighbour: a port, the tag of frames, the neighbour's address.
type link struct {
	port   int
	vlan   uint16
	tagged bool
	to     neighbour.MAC
}

// emit lays out layers behind an Ethernet header with its tag and sends the frame; false where it could not.
func (h *Handler) emit(port int, vlan uint16, to neighbour.MAC, kind layers.EthernetType, above ...gopacket.SerializableLayer) bool {
	return h.emitTo(link{port, vlan, vlan != 0, to}, kind, above...)
}

func (h *Handler) emitTo(l link, kind layers.EthernetType, above ...gopacket.SerializableLayer) bool {
	return h.lay(l, kind, above...) && h.send(l.port, h.buf.Bytes())
}

// emitCut is emit for a packet that may be sent in fragments.
func (h *Handler) emitCut(k neighbour.Key, to neighbour.MAC, kind layers.EthernetType, above ...gopacket.SerializableLayer) bool {
	if !h.lay(link{k.Port, k.VLAN, k.VLAN != 0, to}, kind, above...) {
		return false
	}
	frame := h.buf.Bytes()
	at, _ := networkAt(frame)
	if mtu := int(h.st.Ports[k.Port].MTU); len(frame)-at > mtu {
		return h.sendCut(k.Port, frame[:at], frame[at:], mtu, h.nextID())
	}
	return h.send(k.Port, frame)
}

// lay lays out layers behind an Ethernet header with its tag in the handler's buffer.
func (h *Handler) lay(l link, kind layers.EthernetType, above ...gopacket.SerializableLayer) bool {
	mac := h.st.Ports[l.port].MAC
	eth := &layers.Ethernet{SrcMAC: mac[:], DstMAC: l.to[:], EthernetType: kind}
	all := make([]gopacket.SerializableLayer, 0, 8)
	all = append(all, eth)
	if l.tagged {
		all = append(all, &layers.Dot1Q{VLANIdentifier: l.vlan, Type: kind})
		eth.EthernetType = layers.EthernetTypeDot1Q
	}
	if err := gopacket.SerializeLayers(h.buf, serialize, append(all, above...)...); err != nil {
		h.count(DropMalformed)
		return false
	}
	return true
}

func (h *Handler) send(port int, frame []byte) bool {
	if err := h.cfg.Emit(port, frame); err != nil {
		h.count(DropEmit)
		return false
	}
	return true
}

// reply sends an IP packet back where p came from, from p's destination to its source.
func (h *Handler) reply(p *packet, protocol layers.IPProtocol, above ...gopacket.SerializableLayer) bool {
	return h.begin(p.port, p.vlan(), neighbour.MAC(p.eth.SrcMAC), p.dst, p.src, protocol, above...)
}

// begin sends an IP packet that begins here.
func (h *Handler) begin(port int, vlan uint16, mac neighbour.MAC, from, to netip.Addr, protocol layers.IPProtocol, above ...gopacket.SerializableLayer) bool {
	if to.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: hopLimit, Protocol: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice(), Flags: layers.IPv4DontFragment}
		return h.emit(port, vlan, mac, layers.EthernetTypeIPv4, over(ip, above)...)
	}
	ip := &layers.IPv6{Version: 6, HopLimit: hopLimit, NextHeader: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	return h.emit(port, vlan, mac, layers.EthernetTypeIPv6, over(ip, above)...)
}

// over puts an IP header before the layers above it and tells them about it.
func over(ip gopacket.NetworkLayer, above []serializable) []gopacket.SerializableLayer {
	all := make([]gopacket.SerializableLayer, 0, 4)
	all = append(all, ip.(gopacket.SerializableLayer))
	for _, l := range above {
		if c, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			c.SetNetworkLayerForChecksum(ip)
		}
		all = append(all, l)
	}
	return all
}

type serializable = gopacket.SerializableLayer
