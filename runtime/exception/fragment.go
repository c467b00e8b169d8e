package exception

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/gopacket/layers"

	"splicenic/runtime/exception/reassembly"
)

// fragment takes in a fragment of what goes to a VIP or comes from a server, or is to get another source address: which
// connection it is of ports say, which only the first one has. Segments that come together go through the parser again, as
// segments that need no fragments. Datagrams go through it in one piece, to come back translated and be cut again. It
// returns false for other traffic.
func (h *Handler) fragment(p *packet) bool {
	f, ok := reassembly.Parse(p.ip)
	if !ok || !h.collects(p, &f) {
		return false
	}
	link := p.frame[:14+4*p.tags]
	w, v := h.fragments.Add(reassembly.Place{Port: p.port, VLAN: p.vlan()}, link, &f, h.now)
	h.count(fragmentReasons[v])
	switch {
	case v != reassembly.Complete:
	case w.TCP():
		if !w.Segments(h.leastMTU(), func(frame []byte) { h.reinject(p.port, frame) }) {
			h.count(DropOversize)
		}
	case h.carded(p.port, &w):
		h.reinjectBack(p.port, w.Frame(), w.ID())
	default:
		h.whole(p.port, w.Frame())
	}
	return true
}

// collects says whether the fragments of a packet are put together here.
func (h *Handler) collects(p *packet, f *reassembly.Fragment) bool {
	if h.pooled(f.Dst) && p.port == clientPort || h.leavesFor(p, f) {
		return true
	}
	switch layers.IPProtocol(f.Protocol) {
	case layers.IPProtocolICMPv4, layers.IPProtocolICMPv6:
		return false
	case layers.IPProtocolTCP, layers.IPProtocolUDP:
		return h.vips[f.Dst] || h.serverHosts[f.Src]
	}
	return h.serverHosts[f.Src] && h.ours(f.Dst) // a tunnel's
}

// leavesFor is leaves for a fragment.
func (h *Handler) leavesFor(p *packet, f *reassembly.Fragment) bool {
	hop, ok := h.st.Config.Route(f.Dst)
	return ok && !h.ours(f.Dst) && h.st.Config.Ports()[p.port].Forward && h.leaves(p, hop)
}

// carded says whether a packet that came together is the card's to translate: it goes to a VIP, or comes from a server by
// a port that it serves on, or in a tunnel. One that the card does not know after all comes back as any other does.
func (h *Handler) carded(port int, w *reassembly.Whole) bool {
	p := newPacket()
	if !p.decode(port, w.Frame()) {
		return false // which counts it
	}
	if !p.is(layers.LayerTypeUDP) {
		return h.ours(p.dst) && !h.pooled(p.dst)
	}
	host := p.src
	return h.vips[p.dst] || h.servers[netip.AddrPortFrom(host, uint16(p.udp.SrcPort))] || h.servers[netip.AddrPortFrom(host, 0)]
}

// whole routes a packet that came together and is none of the card's.
func (h *Handler) whole(port int, frame []byte) {
	p := newPacket()
	if !p.decode(port, frame) {
		h.count(DropMalformed)
		return
	}
	p.whole = true
	switch {
	case h.inward(p):
	case h.pooled(p.dst) && (p.is(layers.LayerTypeICMPv4) || p.is(layers.LayerTypeICMPv6)):
		h.icmp(p)
	case h.ours(p.dst):
		h.closedOther(p)
	default:
		h.forward(p)
	}
}

func (h *Handler) reinject(port int, frame []byte) {
	if h.cfg.Reinject(port, frame) != nil {
		h.count(DropEmit)
	}
}

// reinjectBack has the card translate a frame, however long, and give it back. id is the identification of its fragments.
func (h *Handler) reinjectBack(port int, frame []byte, id uint32) {
	if h.cfg.ReinjectBack(port, frame, id) != nil {
		h.count(DropEmit)
	}
}

// back sends what the card gave back on, cut to what the way there takes. id is the identification that its fragments had,
// and have again unless an address of the card's is their source: of two clients' datagrams that had one, the server would
// make one. The outer packets of a tunnel are cut so too.
func (h *Handler) back(port int, frame []byte, id uint32) {
	at, ok := networkAt(frame)
	if port >= len(h.st.Ports) || !ok {
		h.count(DropMalformed)
		return
	}
	ip := trimmed(frame[at:])
	mtu := h.mtuTo(port, ip)
	if src, ok := sourceOf(ip); ok && len(ip) > mtu && h.ours(src) && !h.vips[src] { // many clients by one address
		if id = h.nextID(); src.Is4() {
			frame = append([]byte(nil), frame...)
			ip = trimmed(frame[at:])
			binary.BigEndian.PutUint16(ip[4:], uint16(id))
		}
	}
	h.sendCut(port, frame[:at], ip, mtu, id)
}

// networkAt is where the network layer of a frame begins, which is IP or ARP's.
func networkAt(frame []byte) (at int, ok bool) {
	at = 14
	if len(frame) > 18 && binary.BigEndian.Uint16(frame[12:]) == uint16(layers.EthernetTypeDot1Q) {
		at = 18
	}
	return at, len(frame) >= at+20
}

// trimmed is an IP packet without what pads its frame.
func trimmed(ip []byte) []byte {
	n := len(ip)
	switch ip[0] >> 4 {
	case 4:
		n = int(binary.BigEndian.Uint16(ip[2:]))
	case 6:
		n = 40 + int(binary.BigEndian.Uint16(ip[4:]))
	}
	return ip[:min(n, len(ip))]
}

// sourceOf is the source address of an IP packet.
func sourceOf(ip []byte) (netip.Addr, bool) {
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(ip[12:])), true
	case len(ip) >= 40 && ip[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(ip[8:])), true
	}
	return netip.Addr{}, false
}

// mtuTo is what fits on the way that an IP packet goes through a port.
func (h *Handler) mtuTo(port int, ip []byte) int {
	mtu := int(h.st.Ports[port].MTU)
	var dst netip.Addr
	switch {
	case len(ip) < 20:
		return mtu
	case ip[0]>>4 == 4:
		dst = netip.AddrFrom4([4]byte(ip[16:]))
	case ip[0]>>4 == 6 && len(ip) >= 40:
		dst = netip.AddrFrom16([16]byte(ip[24:]))
	default:
		return mtu
	}
	if hop, ok := h.st.Config.Route(dst); ok && hop.Port == port {
		if path := int(h.paths.of(hop)); path != 0 {
			mtu = min(mtu, path)
		}
	}
	return mtu
}

// sendCut sends an IP packet behind a link header, in fragments where it does not fit.
func (h *Handler) sendCut(port int, link, ip []byte, mtu int, id uint32) bool {
	n, sent := 0, true
	if !reassembly.Cut(ip, mtu, id, func(part []byte) {
		n++
		h.wire = append(append(h.wire[:0], link...), part...)
		sent = sent && h.send(port, h.wire)
	}) {
		h.count(DropOversize)
		return false
	}
	if n > 1 {
		h.count(Fragmented)
		h.counters[FragmentSent] += uint64(n)
	}
	return sent
}

// nextID is an identification for fragments of a packet that had none.
func (h *Handler) nextID() uint32 {
	h.fragmentID++
	return h.fragmentID
}

var fragmentReasons = [...]Reason{
	reassembly.Kept: FragmentKept, reassembly.Complete: Reassembled, reassembly.Duplicate: DropFragmentDuplicate,
	reassembly.Dropped: DropFragment, reassembly.Malformed: DropMalformed, reassembly.Tiny: DropFragmentTiny,
	reassembly.Overlap: DropFragmentOverlap, reassembly.TooMany: DropFragmentFull, reassembly.Full: DropFragmentFull,
	reassembly.Checksum: DropFragmentChecksum,
}

// leastMTU fits every port and every path.
func (h *Handler) leastMTU() int {
	least := 1500
	for _, p := range h.st.Ports {
		least = min(least, int(p.MTU))
	}
	for _, p := range h.paths.mtu {
		least = min(least, int(p.mtu))
	}
	return least
}
