package exception

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/runtime/config"
	"splicenic/runtime/exception/reassembly"
	"splicenic/runtime/neighbour"
)

// forward routes a packet that is not for the card (RFC 1812 5), where its port does so.
func (h *Handler) forward(p *packet) {
	ports := h.st.Config.Ports()
	switch {
	case !ports[p.port].Forward:
		h.count(DropForwardOff)
		return
	case p.eth.DstMAC[0]&1 != 0 || !answerable(p.dst) || p.dst.IsLinkLocalUnicast():
		h.count(DropDestination)
		return
	case !answerable(p.src) || p.src.IsLinkLocalUnicast() || h.ours(p.src):
		h.count(DropSource)
		return
	case p.ttl() <= 1:
		h.timeExceeded(p)
		return
	}
	hop, ok := h.st.Config.Route(p.dst)
	if !ok {
		h.count(DropNoRoute)
		h.tellUnreachable(p, HostUnreachable)
		return
	}
	if h.leaves(p, hop) {
		h.outward(p, hop)
		return
	}
	h.toward(p, hop, p)
}

// toward sends a packet to a next hop. came is how it came in: its sender is told what goes wrong.
func (h *Handler) toward(p *packet, hop config.Hop, came *packet) {
	mtu := int(h.st.Ports[hop.Port].MTU)
	if part, _ := p.fragment(); len(p.ip) > mtu && !h.coalesced(p) && (part || !p.cuttable()) {
		h.tooBig(came, mtu)
		return
	}
	k := keyOf(hop)
	mac, state := h.table.Lookup(k, h.now)
	switch {
	case state.Usable():
		h.pass(p, k, mac)
	case state == neighbour.Incomplete:
		h.enqueue(came, k)
	default:
		h.count(DropNextHop)
		h.tellUnreachable(came, HostUnreachable)
	}
}

// coalesced says whether a packet is several wire packets in one: TCP, and more than the wire it came from carries.
func (h *Handler) coalesced(p *packet) bool {
	part, _ := p.fragment()
	return p.is(layers.LayerTypeTCP) && !part && len(p.ip) > int(h.st.Ports[p.port].MTU)
}

func (h *Handler) tooBig(p *packet, mtu int) {
	if p.cuttable() { // a fragment that would have to be cut again
		h.count(DropOversize)
		return
	}
	h.tell(p, TooBig,
		layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded),
		layers.CreateICMPv6TypeCode(layers.ICMPv6TypePacketTooBig, 0), uint32(mtu))
}

func (h *Handler) tellUnreachable(p *packet, r Reason) {
	h.tell(p, r, layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeHost),
		layers.CreateICMPv6TypeCode(layers.ICMPv6TypeDestinationUnreachable, layers.ICMPv6CodeAddressUnreachable), 0)
}

// pass sends a packet on to a neighbour, one hop older.
func (h *Handler) pass(p *packet, k neighbour.Key, mac neighbour.MAC) {
	if mtu := int(h.st.Ports[k.Port].MTU); len(p.ip) > mtu && h.coalesced(p) {
		h.cut(p, k, mac, mtu)
		return
	}
	var sent bool
	if p.src.Is4() {
		ip := p.ip4
		ip.TTL--
		sent = h.emitCut(k, mac, layers.EthernetTypeIPv4, over(&ip, transport(p, p.ip4.Payload))...)
	} else {
		ip := p.ip6
		ip.HopLimit--
		ip.HopByHop = nil // it is in the payload, as it came
		sent = h.emitCut(k, mac, layers.EthernetTypeIPv6, &ip6Header{ip}, gopacket.Payload(h.checked6(p)))
	}
	if sent {
		h.count(Forwarded)
	}
}

// transport is the packet's payload with its checksum computed anew: the card has checked it, and a kernel's port may have
// left it unfinished.
func transport(p *packet, raw []byte) []serializable {
	if part, _ := p.fragment(); part {
		return []serializable{gopacket.Payload(raw)}
	}
	switch {
	case p.is(layers.LayerTypeTCP):
		t := p.tcp
		return []serializable{&t, gopacket.Payload(p.tcp.Payload)}
	case p.is(layers.LayerTypeUDP) && p.udp.Checksum != 0 && int(p.udp.Length) == len(raw):
		return []serializable{&udpHeader{p.udp}, gopacket.Payload(p.udp.Payload)}
	}
	return []serializable{gopacket.Payload(raw)}
}

// udpHeader is a UDP header whose checksum is never zero, which would mean that there is none (RFC 768).
type udpHeader struct{ layers.UDP }

// SerializeTo writes the header before what is in b.
func (u *udpHeader) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	if err := u.UDP.SerializeTo(b, opts); err != nil {
		return err
	}
	if sum := b.Bytes()[6:8]; opts.ComputeChecksums && sum[0]|sum[1] == 0 {
		sum[0], sum[1] = 0xff, 0xff
	}
	return nil
}

// ip6Header is a fixed IPv6 header without its extension headers, which travel as payload.
type ip6Header struct{ layers.IPv6 }

// SerializeTo writes the header before what is in b.
func (i *ip6Header) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	n := len(b.Bytes())
	w, err := b.PrependBytes(40)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(w, 6<<28|uint32(i.TrafficClass)<<20|i.FlowLabel)
	binary.BigEndian.PutUint16(w[4:], uint16(n))
	w[6], w[7] = i.Contents[6], i.HopLimit
	copy(w[8:], i.SrcIP)
	copy(w[24:], i.DstIP)
	return nil
}

// checked6 is everything behind the fixed header, with the transport checksum computed anew where the transport header
// follows at once.
func (h *Handler) checked6(p *packet) []byte {
	body := p.ip[40:]
	at := -1
	switch {
	case p.ip[6] == byte(layers.IPProtocolTCP) && p.is(layers.LayerTypeTCP):
		at = 16
	case p.ip[6] == byte(layers.IPProtocolUDP) && p.is(layers.LayerTypeUDP):
		at = 6
	}
	if at < 0 || len(body) < at+2 {
		return body
	}
	fresh := append([]byte(nil), body...)
	binary.BigEndian.PutUint16(fresh[at:], 0)
	s := reassembly.Sum(p.ip[8:40], uint32(len(body))+uint32(p.ip[6]))
	c := ^uint16(reassembly.Sum(fresh, s))
	if c == 0 && at == 6 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(fresh[at:], c)
	return fresh
}

// cut sends a coalesced TCP packet as wire packets.
func (h *Handler) cut(p *packet, k neighbour.Key, mac neighbour.MAC, mtu int) {
	header := int(p.tcp.DataOffset) * 4
	room := mtu - header
	if p.src.Is4() {
		room -= int(p.ip4.IHL) * 4
	} else {
		room -= 40
	}
	if room <= 0 || p.src.Is6() && p.ip[6] != byte(layers.IPProtocolTCP) {
		h.count(DropOversize)
		return
	}
	data := p.tcp.Payload
	for n := uint16(0); len(data) > 0; n++ {
		part := data[:min(room, len(data))]
		data = data[len(part):]
		t := p.tcp
		t.Seq += uint32(len(p.tcp.Payload) - len(part) - len(data))
		if len(data) > 0 {
			t.FIN, t.PSH = false, false
		}
		t.CWR = t.CWR && n == 0
		sent := false
		if p.src.Is4() {
			ip := p.ip4
			ip.TTL--
			ip.Id += n
			sent = h.emit(k.Port, k.VLAN, mac, layers.EthernetTypeIPv4, over(&ip, []serializable{&t, gopacket.Payload(part)})...)
		} else {
			ip := p.ip6
			ip.HopLimit--
			sent = h.emit(k.Port, k.VLAN, mac, layers.EthernetTypeIPv6, over(&ip, []serializable{&t, gopacket.Payload(part)})...)
		}
		if !sent {
			return
		}
	}
	h.count(Forwarded)
}

// enqueue keeps a packet while its next hop is being resolved: one for each hop, the latest (RFC 4861 7.2.2).
func (h *Handler) enqueue(p *packet, k neighbour.Key) {
	if _, waits := h.queue[k]; waits {
		h.count(DropNextHop)
	} else if len(h.queue) >= maxQueued {
		h.count(DropQueueFull)
		return
	}
	h.queue[k] = &queued{p.port, p.whole, append([]byte(nil), p.frame...)}
}

// queued is a packet as it came in.
type queued struct {
	port  int
	whole bool
	frame []byte
}

// decoded is the packet again.
func (w *queued) decoded() (*packet, bool) {
	p := newPacket()
	ok := p.decode(w.port, w.frame)
	p.whole = w.whole
	return p, ok
}

// flush sends the packet that waited for a hop. The packet in hand is decoded anew afterwards by whoever needs it.
func (h *Handler) flush(k neighbour.Key) {
	q, ok := h.queue[k]
	if !ok {
		return
	}
	delete(h.queue, k)
	if p, ok := q.decoded(); ok && !h.inward(p) {
		h.forward(p)
	}
}

// hopFailed tells the sender of a packet that waited in vain.
func (h *Handler) hopFailed(k neighbour.Key) {
	q, ok := h.queue[k]
	if !ok {
		return
	}
	delete(h.queue, k)
	h.count(DropNextHop)
	if p, ok := q.decoded(); ok {
		h.tellUnreachable(p, HostUnreachable)
	}
}
