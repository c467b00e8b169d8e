package exception

import (
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/runtime/exception/reassembly"
)

// packet is a decoded frame. Its layers view the frame.
type packet struct {
	port  int
	frame []byte
	ip    []byte // the IP packet without padding

	eth   layers.Ethernet
	tag   layers.Dot1Q
	arp   layers.ARP
	ip4   layers.IPv4
	ip6   layers.IPv6
	icmp4 layers.ICMPv4
	icmp6 layers.ICMPv6
	ns    layers.ICMPv6NeighborSolicitation
	na    layers.ICMPv6NeighborAdvertisement
	tcp   layers.TCP
	udp   layers.UDP
	rest  gopacket.Payload

	whole    bool // put together here, so that it may be cut again
	tags     int
	src, dst netip.Addr
	parser   *gopacket.DecodingLayerParser
	found    []gopacket.LayerType
}

func newPacket() *packet {
	p := &packet{}
	p.parser = gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet,
		&p.eth, &p.tag, &p.arp, &p.ip4, &p.ip6, &p.icmp4, &p.icmp6, &p.ns, &p.na, &p.tcp, &p.udp, &p.rest)
	p.parser.IgnoreUnsupported = true
	return p
}

// decode reads a frame; false where not even its network layer can be read.
func (p *packet) decode(port int, frame []byte) bool {
	p.port, p.frame, p.ip, p.tags, p.whole = port, frame, nil, 0, false
	p.src, p.dst = netip.Addr{}, netip.Addr{}
	p.found = p.found[:0]
	p.tag = layers.Dot1Q{}
	err := p.parser.DecodeLayers(frame, &p.found)
	at := 14
	for _, t := range p.found {
		switch t {
		case layers.LayerTypeDot1Q:
			p.tags++
			at += 4
		case layers.LayerTypeARP:
			return err == nil
		case layers.LayerTypeIPv4:
			p.ip = frame[at:min(at+int(p.ip4.Length), len(frame))]
			p.src, _ = netip.AddrFromSlice(p.ip4.SrcIP)
			p.dst, _ = netip.AddrFromSlice(p.ip4.DstIP)
			return int(p.ip4.Length) == len(p.ip) && int(p.ip4.IHL)*4 <= len(p.ip) && reassembly.Sum(p.ip[:int(p.ip4.IHL)*4], 0) == 0xffff
		case layers.LayerTypeIPv6:
			p.ip = frame[at:min(at+40+int(p.ip6.Length), len(frame))]
			p.src, _ = netip.AddrFromSlice(p.ip6.SrcIP)
			p.dst, _ = netip.AddrFromSlice(p.ip6.DstIP)
			return int(p.ip6.Length)+40 == len(p.ip) && p.ip6.Length > 0
		}
	}
	return false
}

// is says whether a layer was decoded.
func (p *packet) is(t gopacket.LayerType) bool {
	for _, f := range p.found {
		if f == t {
			return true
		}
	}
	return false
}

func (p *packet) vlan() uint16 {
	if p.tags == 0 {
		return 0
	}
	return p.tag.VLANIdentifier
}

// protocol is what follows the IP header.
func (p *packet) protocol() layers.IPProtocol {
	if p.src.Is4() {
		return p.ip4.Protocol
	}
	return p.ip6.NextHeader
}

// ttl is the TTL or hop limit.
func (p *packet) ttl() uint8 {
	if p.src.Is4() {
		return p.ip4.TTL
	}
	return p.ip6.HopLimit
}

// cuttable says whether the packet may be sent in fragments.
func (p *packet) cuttable() bool {
	return p.whole || p.src.Is4() && p.ip4.Flags&layers.IPv4DontFragment == 0
}

// fragment says whether the packet is a part of one, and later whether it lacks the transport header.
func (p *packet) fragment() (part, later bool) {
	if p.src.Is4() {
		return p.ip4.Flags&layers.IPv4MoreFragments != 0 || p.ip4.FragOffset != 0, p.ip4.FragOffset != 0
	}
	if p.ip6.NextHeader != layers.IPProtocolIPv6Fragment || len(p.ip6.Payload) < 8 {
		return false, false
	}
	return true, p.ip6.Payload[2] != 0 || p.ip6.Payload[3]&0xf8 != 0
}

// icmpError says whether the packet is an ICMP error, about which no other may be sent.
func (p *packet) icmpError() bool {
	switch {
	case p.is(layers.LayerTypeICMPv4):
		switch p.icmp4.TypeCode.Type() {
		case layers.ICMPv4TypeEchoRequest, layers.ICMPv4TypeEchoReply, layers.ICMPv4TypeTimestampRequest, layers.ICMPv4TypeTimestampReply:
			return false
		}
		return true
	case p.is(layers.LayerTypeICMPv6):
		return p.icmp6.TypeCode.Type() < 128
	}
	return false
}

// icmpIntact checks the ICMP checksum, which the card leaves to the host.
func (p *packet) icmpIntact() bool {
	if p.is(layers.LayerTypeICMPv4) {
		return reassembly.Sum(p.ip[int(p.ip4.IHL)*4:], 0) == 0xffff
	}
	n := len(p.icmp6.Contents) + len(p.icmp6.Payload)
	if n > len(p.ip)-40 {
		return false
	}
	body := p.ip[len(p.ip)-n:]
	return reassembly.Sum(body, reassembly.Sum(p.ip[8:40], uint32(n)+uint32(layers.IPProtocolICMPv6))) == 0xffff
}
