package tcppeer

import (
	"encoding/binary"

	"splicenic/emu/frame"
)

// answerARP answers a request for one of the host's IPv4 addresses (RFC 826).
func (h *Host) answerARP(b []byte) {
	const request, reply = 1, 2
	if len(b) < 28 || binary.BigEndian.Uint16(b[6:]) != request || binary.BigEndian.Uint16(b[2:]) != etherIPv4 {
		return
	}
	wanted := addr{10: 0xff, 11: 0xff}
	copy(wanted[12:], b[24:28])
	if !h.owns(&wanted) {
		return
	}
	at := buildEthernet(h.buf, [6]byte(b[8:14]), h.cfg.MAC, h.cfg.VLAN, false)
	binary.BigEndian.PutUint16(h.buf[at-2:], etherARP)
	out := h.buf[at : at+28]
	copy(out, b[:6])
	binary.BigEndian.PutUint16(out[6:], reply)
	copy(out[8:], h.cfg.MAC[:])
	copy(out[14:], b[24:28])
	copy(out[18:], b[8:18])
	h.send(h.buf[:at+28])
}

// answerSolicitation answers a neighbour solicitation for one of the host's IPv6 addresses (RFC 4861, 7.2.4).
func (h *Host) answerSolicitation(p *packet) {
	const solicitation, advertisement = 135, 136
	if len(p.body) < 24 || p.body[0] != solicitation || p.ip[7] != 255 || p.sum() != 0xffff {
		return
	}
	wanted := addr(p.body[8:24])
	if !h.owns(&wanted) {
		return
	}
	to, _ := p.addresses()
	at := buildEthernet(h.buf, p.mac, h.cfg.MAC, h.cfg.VLAN, true)
	ip := h.buf[at : at+40+32]
	buildIPv6(ip, protocolICMPv6, 255, &wanted, &to)
	icmp := ip[40:]
	clear(icmp)
	icmp[0], icmp[4] = advertisement, 0x60 // solicited, override
	copy(icmp[8:], wanted[:])
	icmp[24], icmp[25] = 2, 1 // target link-layer address
	copy(icmp[26:], h.cfg.MAC[:])
	binary.BigEndian.PutUint16(icmp[2:], ^frame.Fold(frame.Sum(icmp, frame.Pseudo6(ip, protocolICMPv6, len(icmp)))))
	h.send(h.buf[:at+len(ip)])
}
