package exception

import "splicenic/runtime/exception/reassembly"

// fragment takes in a fragment of TCP that goes to a VIP or comes from a server: its connection is known by ports, which
// only the first one has. What comes together goes through the parser again, as segments that need no fragments. It
// returns false for other traffic.
func (h *Handler) fragment(p *packet) bool {
	f, ok := reassembly.Parse(p.ip)
	if !ok || !h.vips[f.Dst] && !h.serverHosts[f.Src] {
		return false
	}
	link := p.frame[:14+4*p.tags]
	w, v := h.fragments.Add(reassembly.Place{Port: p.port, VLAN: p.vlan()}, link, &f, h.now)
	h.count(fragmentReasons[v])
	if v != reassembly.Complete {
		return true
	}
	if !w.Segments(h.leastMTU(), func(frame []byte) {
		if h.cfg.Reinject(p.port, frame) != nil {
			h.count(DropEmit)
		}
	}) {
		h.count(DropOversize)
	}
	return true
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
