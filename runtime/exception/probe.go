package exception

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/gopacket/layers"

	"splicenic/runtime/config"
	"splicenic/runtime/health"
)

// Prober is what is known of servers.
func (h *Handler) Prober() *health.Prober { return h.prober }

// targets are the servers whose profile the configuration does not tell.
func (h *Handler) targets() []health.Target {
	var list []health.Target
	seen := map[netip.AddrPort]bool{}
	spliced := h.st.Config.Spliced()
	for i := range h.st.Config.Groups {
		for _, s := range h.st.Config.Groups[i].Servers {
			if !spliced[&h.st.Config.Groups[i]] || s.Addr.Port() == 0 {
				continue // it speaks for itself
			}
			if hop, ok := h.st.Config.Route(s.Addr.Addr()); ok && !s.Profile.Known && !seen[s.Addr] {
				seen[s.Addr] = true
				_, state := h.table.Get(keyOf(hop))
				list = append(list, health.Target{Server: s.Addr, From: h.near(hop), Ready: state.Usable()})
			}
		}
	}
	return list
}

// near is the address of ours in a hop's subnet.
func (h *Handler) near(hop config.Hop) netip.Addr {
	if hop.Port < len(h.st.Config.Ports()) {
		for _, a := range h.st.Config.Ports()[hop.Port].Addresses {
			if a.VLAN == hop.VLAN && a.Prefix.Contains(hop.Neighbor) {
				return a.Prefix.Addr()
			}
		}
	}
	return netip.Addr{}
}

// probe sends what the prober has to send.
func (h *Handler) probe() {
	if v := h.table.Version(); v != h.resolved {
		h.resolved = v
		h.prober.Want(h.targets(), h.now)
	}
	h.segments = h.prober.Advance(h.now, h.segments[:0])
	for i := range h.segments {
		h.sendProbe(&h.segments[i])
	}
}

// answered takes a segment that answers a probe.
func (h *Handler) answered(p *packet) bool {
	t := &p.tcp
	if len(t.Contents) < 20 || p.eth.DstMAC[0]&1 != 0 {
		return false
	}
	a := health.Answer{
		From: netip.AddrPortFrom(p.src, uint16(t.SrcPort)), To: netip.AddrPortFrom(p.dst, uint16(t.DstPort)),
		Seq: t.Seq, Ack: t.Ack, Flags: t.Contents[13], Options: t.Contents[20:],
	}
	reply, ours := h.prober.Take(&a, h.now)
	if !ours {
		return false
	}
	h.count(ProbeAnswer)
	if reply.Flags != 0 {
		h.sendProbe(&reply)
	}
	return true
}

// sendProbe sends a segment to a server. One that is lost here is as good as lost on the way.
func (h *Handler) sendProbe(s *health.Segment) {
	hop, mac, ok := h.reach(s.To.Addr())
	if !ok {
		return
	}
	t := &layers.TCP{
		SrcPort: layers.TCPPort(s.From.Port()), DstPort: layers.TCPPort(s.To.Port()), Seq: s.Seq, Ack: s.Ack,
		SYN: s.Flags&health.SYN != 0, RST: s.Flags&health.RST != 0, ECE: s.Flags&health.ECE != 0, CWR: s.Flags&health.CWR != 0,
	}
	if t.SYN {
		t.Window = 65535
		t.Options = h.everything(s.To.Addr(), hop.Port)
	}
	if h.begin(hop.Port, hop.VLAN, mac, s.From.Addr(), s.To.Addr(), layers.IPProtocolTCP, t) && t.SYN {
		h.count(Probe)
	}
}

// everything is the options that a profile tells about, as a kernel lays them out.
func (h *Handler) everything(to netip.Addr, port int) []layers.TCPOption {
	mss := max(h.st.Ports[port].MTU, 100) - 40
	if to.Is6() {
		mss -= 20
	}
	stamps := binary.BigEndian.AppendUint32(nil, uint32(h.now.Milliseconds()))
	return []layers.TCPOption{
		{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: binary.BigEndian.AppendUint16(nil, mss)},
		{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
		{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: append(stamps, 0, 0, 0, 0)},
		{OptionType: layers.TCPOptionKindNop, OptionLength: 1},
		{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{probeScale}},
	}
}

// probeScale is the shift of windows that nobody will send.
const probeScale = 7
