package exception

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception/reassembly"
	"splicenic/runtime/neighbour"
)

const text = `
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24, 2001:db8:1::1/64, {address: 198.18.7.1/24, vlan: 7}], gateway: [198.18.0.254, "2001:db8:1::fe"], forward: %s}
  server: {addresses: [198.18.1.1/24, 2001:db8:2::1/64], forward: routed}
services:
  - {name: web, listen: ["198.51.100.80:80", "198.18.0.80:80"], default: app}
  - {name: six, listen: ["[2001:db8:51::80]:80", "[2001:db8:1::80]:80"], default: six}
groups:
  - {name: app, servers: [{address: 198.18.1.11:80}]}
  - {name: six, servers: [{address: "[2001:db8:2::11]:80"}]}
`

// A bench is a handler with what it sent.
type bench struct {
	*testing.T
	h         *Handler
	now       time.Duration
	sent      []frame
	resets    []uint32
	tries     []tried
	others    []uint32
	outcomes  map[uint32]Outcome
	busyPorts int
	ports     map[uint16]bool
	replies   []string
	replied   Outcome
	full      bool // the inject ring

	waiting map[uint32]*waiting // by handle

	conns     map[Flow]Connection // by what either side sees
	finds     int
	reinjects []frame
	backs     []frame  // reinjected to come back,
	cookies   []uint32 // and with what
}

type frame struct {
	port int
	b    []byte
}

var (
	cardMAC = [2]neighbour.MAC{{2, 0xca, 0, 0, 0, 1}, {2, 0xca, 0, 0, 0, 2}}
	peerMAC = neighbour.MAC{2, 0xee, 0, 0, 0, 9}
	vip     = netip.MustParseAddr("198.51.100.80")
	vip6    = netip.MustParseAddr("2001:db8:51::80")
)

func newBench(t *testing.T, forward string) *bench {
	t.Helper()
	return newBenchOf(t, fmt.Sprintf(text, forward))
}

func newBenchOf(t *testing.T, text string) *bench {
	t.Helper()
	b := &bench{T: t}
	b.h = New(Config{
		Emit: func(port int, f []byte) error {
			if b.full {
				return errors.New("full")
			}
			b.sent = append(b.sent, frame{port, bytes.Clone(f)})
			return nil
		},
		Reset:   func(h uint32) error { b.resets = append(b.resets, h); return nil },
		Connect: b.connect,
		Reply: func(h uint32, answer []byte) Outcome {
			b.replies = append(b.replies, string(answer))
			return b.replied
		},
		Take:   b.take,
		Feed:   b.feed,
		Others: func(uint32, uint32) []uint32 { return b.others },
		Find: func(_ int, f Flow) (Connection, bool) {
			b.finds++
			c, ok := b.conns[f]
			return c, ok
		},
		Connection: func(h uint32) (Connection, bool) {
			if w := b.waiting[h]; w != nil {
				return Connection{Page: w.page, VIP: vip}, true
			}
			for _, c := range b.conns {
				if h == 7 {
					return c, true
				}
			}
			return Connection{}, false
		},
		Reinject: func(port int, f []byte) error {
			b.reinjects = append(b.reinjects, frame{port, bytes.Clone(f)})
			return nil
		},
		ReinjectBack: func(port int, f []byte, cookie uint32) error {
			b.backs, b.cookies = append(b.backs, frame{port, bytes.Clone(f)}), append(b.cookies, cookie)
			return nil
		},
	})
	c, err := config.Load("t.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b.h.Configure(Station{
		Ports: []Port{{cardMAC[0], 1500}, {cardMAC[1], 1400}}, Config: c,
		VIPs:    []netip.Addr{vip, netip.MustParseAddr("198.18.0.80"), vip6, netip.MustParseAddr("2001:db8:1::80")},
		Hops:    []config.Hop{{Port: 1, Neighbor: netip.MustParseAddr("198.18.1.11")}},
		Servers: []netip.AddrPort{netip.MustParseAddrPort("198.18.1.11:80"), netip.MustParseAddrPort("[2001:db8:2::11]:80")},
	}, 0)
	return b
}

// quiet lets the announcements of the start pass.
func (b *bench) quiet() *bench {
	for range 50 {
		b.advance(100 * time.Millisecond)
	}
	b.sent = nil
	b.h.counters = [reasons]uint64{}
	return b
}

func (b *bench) advance(d time.Duration) {
	b.now += d
	b.h.Advance(b.now)
}

// packet lays out a frame that the peer sends.
func lay(t testing.TB, vlan uint16, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	kind := layers.EthernetTypeIPv4
	dst := net.HardwareAddr(cardMAC[0][:])
	switch l := all[0].(type) {
	case *layers.IPv6:
		kind = layers.EthernetTypeIPv6
	case *layers.ARP:
		kind = layers.EthernetTypeARP
	case *layers.Ethernet:
		return layFrom(t, buf, all)
	default:
		_ = l
	}
	eth := &layers.Ethernet{SrcMAC: peerMAC[:], DstMAC: dst, EthernetType: kind}
	list := []gopacket.SerializableLayer{eth}
	if vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		list = append(list, &layers.Dot1Q{VLANIdentifier: vlan, Type: kind})
	}
	return layFrom(t, buf, append(list, all...))
}

func layFrom(t testing.TB, buf gopacket.SerializeBuffer, all []gopacket.SerializableLayer) []byte {
	t.Helper()
	var ip gopacket.NetworkLayer
	for _, l := range all {
		if n, ok := l.(gopacket.NetworkLayer); ok {
			ip = n
		}
		if c, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok && ip != nil {
			c.SetNetworkLayerForChecksum(ip)
		}
	}
	if err := gopacket.SerializeLayers(buf, serialize, all...); err != nil {
		t.Fatal(err)
	}
	f := bytes.Clone(buf.Bytes())
	for len(f) < 60 {
		f = append(f, 0xaa) // a pad that is not zero
	}
	return f
}

func ip4(src, dst string, protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Id: 0x1234, Protocol: protocol, SrcIP: net.ParseIP(src).To4(), DstIP: net.ParseIP(dst).To4(), Flags: layers.IPv4DontFragment}
}

func ip6(src, dst string, protocol layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: net.ParseIP(src), DstIP: net.ParseIP(dst)}
}

// give hands an exception to the handler, in a step of its own.
func (b *bench) give(port int, reason uint32, f []byte) {
	b.Helper()
	b.sent = nil
	b.h.shares = shares{}
	b.h.Handle(&regs.ExceptionEntry{ControlPort: uint32(port), ReasonReason: reason, Length: uint32(len(f))}, f, b.now)
	for _, s := range b.sent {
		check(b.T, s.b)
	}
}

// check decodes a frame and computes every checksum anew.
func check(t testing.TB, f []byte) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil && p.Layer(layers.LayerTypeICMPv4) == nil && p.Layer(layers.LayerTypeICMPv6) == nil {
		t.Fatalf("emitted frame does not decode: %v\n%x", e.Error(), f)
	}
	if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		if s := reassembly.Sum(ip.Contents, 0); s != 0xffff {
			t.Errorf("IPv4 header checksum wrong: %#x", s)
		}
	}
	again := gopacket.NewSerializeBuffer()
	switch {
	case p.Layer(layers.LayerTypeTCP) != nil && p.Layer(layers.LayerTypeICMPv4) == nil && p.Layer(layers.LayerTypeICMPv6) == nil:
		l := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		l.SetNetworkLayerForChecksum(p.NetworkLayer())
		was := l.Checksum
		if err := gopacket.SerializeLayers(again, serialize, l, gopacket.Payload(l.Payload)); err != nil || l.Checksum != was {
			t.Errorf("TCP checksum %#x, want %#x (%v)", was, l.Checksum, err)
		}
	case p.Layer(layers.LayerTypeICMPv4) != nil:
		l := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if s := reassembly.Sum(l.Payload, reassembly.Sum(l.Contents, 0)); s != 0xffff {
			t.Errorf("ICMP checksum wrong: %#x", s)
		}
	case p.Layer(layers.LayerTypeICMPv6) != nil:
		l := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		six := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		body := append(bytes.Clone(l.Contents), l.Payload...)
		s := reassembly.Sum(append(append(bytes.Clone(six.SrcIP), six.DstIP...), body...), uint32(len(body))+58)
		if s != 0xffff {
			t.Errorf("ICMPv6 checksum wrong: %#x", s)
		}
	}
	return p
}

// only returns the single frame that was sent.
func (b *bench) only(port int) gopacket.Packet {
	b.Helper()
	if len(b.sent) != 1 || b.sent[0].port != port {
		b.Fatalf("sent %d frames %v, want one on port %d; counters %v", len(b.sent), b.sent, port, b.counted())
	}
	return check(b.T, b.sent[0].b)
}

func (b *bench) counted() map[string]uint64 {
	m := map[string]uint64{}
	for r, n := range b.h.counters {
		if n > 0 {
			m[Reason(r).String()] = n
		}
	}
	return m
}

func (b *bench) wantCount(r Reason, n uint64) {
	b.Helper()
	if got := b.h.counters[r]; got != n {
		b.Errorf("%v is %d, want %d: %v", r, got, n, b.counted())
	}
}

func arp(op uint16, senderMAC neighbour.MAC, sender, target string) *layers.ARP {
	return &layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
		SourceHwAddress: senderMAC[:], SourceProtAddress: net.ParseIP(sender).To4(), DstHwAddress: make([]byte, 6), DstProtAddress: net.ParseIP(target).To4()}
}

func TestARP(t *testing.T) {
	for _, tt := range []struct {
		name           string
		port           int
		vlan           uint16
		sender, target string
		want           Reason
	}{
		{"port address", 0, 0, "198.18.0.9", "198.18.0.1", ARPReply},
		{"VIP in the subnet", 0, 0, "198.18.0.9", "198.18.0.80", ARPReply},
		{"routed VIP", 0, 0, "198.18.0.9", "198.51.100.80", ARPReply},
		{"routed VIP with a tag", 0, 9, "198.18.0.9", "198.51.100.80", ARPReply},
		{"routed VIP at the server side", 1, 0, "198.18.1.9", "198.51.100.80", DropIgnored},
		{"probe", 0, 0, "0.0.0.0", "198.18.0.80", ARPReply},
		{"VLAN address", 0, 7, "198.18.7.9", "198.18.7.1", ARPReply},
		{"VLAN address without tag", 0, 0, "198.18.7.9", "198.18.7.1", DropIgnored},
		{"other port", 1, 0, "198.18.1.9", "198.18.0.1", DropIgnored},
		{"somebody else", 0, 0, "198.18.0.9", "198.18.0.77", DropIgnored},
		{"our address", 0, 0, "198.18.0.1", "198.18.0.1", Conflict},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "off").quiet()
			b.give(tt.port, regs.ExceptionReasonReasonNotIp, lay(t, tt.vlan, arp(layers.ARPRequest, peerMAC, tt.sender, tt.target)))
			b.wantCount(tt.want, 1)
			if tt.want != ARPReply {
				if len(b.sent) != 0 {
					t.Errorf("sent %d frames", len(b.sent))
				}
				return
			}
			p := b.only(tt.port)
			a := p.Layer(layers.LayerTypeARP).(*layers.ARP)
			if a.Operation != layers.ARPReply || net.IP(a.SourceProtAddress).String() != tt.target || !bytes.Equal(a.SourceHwAddress, cardMAC[tt.port][:]) ||
				!bytes.Equal(a.DstHwAddress, peerMAC[:]) || net.IP(a.DstProtAddress).String() != tt.sender {
				t.Errorf("reply %+v", a)
			}
			tag, tagged := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q)
			if tagged != (tt.vlan != 0) || tagged && tag.VLANIdentifier != tt.vlan {
				t.Errorf("tag %+v", tag)
			}
		})
	}
}

// TestCaseC27: neighbour solicitations for an IPv6 VIP are answered however they come, and a new VIP is announced.
func TestCaseC27(t *testing.T) {
	const target = "2001:db8:1::80"
	ns := func(dst netip.Addr, src string, option bool) []byte {
		ip := ip6(src, dst.String(), layers.IPProtocolICMPv6)
		ip.HopLimit = 255
		body := &layers.ICMPv6NeighborSolicitation{TargetAddress: net.ParseIP(target)}
		if option {
			body.Options = layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: peerMAC[:]}}
		}
		return lay(t, 0, ip, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}, body)
	}
	group := solicitedNode(netip.MustParseAddr(target))
	for _, tt := range []struct {
		name      string
		frame     []byte
		dst       string
		dstMAC    neighbour.MAC
		solicited bool
	}{
		{"to the solicited-node group", ns(group, "2001:db8:1::9", true), "2001:db8:1::9", peerMAC, true},
		{"by unicast with a global source", ns(netip.MustParseAddr(target), "2001:db8:1::9", false), "2001:db8:1::9", peerMAC, true},
		{"from a link-local source", ns(group, "fe80::9", true), "fe80::9", peerMAC, true},
		{"duplicate address detection", ns(group, "::", false), "ff02::1", neighbour.MAC{0x33, 0x33, 0, 0, 0, 1}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "off").quiet()
			b.give(0, regs.ExceptionReasonReasonIcmp, tt.frame)
			b.wantCount(NeighborReply, 1)
			p := b.only(0)
			wantAdvertisement(t, p, target, tt.dst, tt.dstMAC, tt.solicited)
		})
	}
	t.Run("start", func(t *testing.T) {
		b := newBench(t, "off")
		b.advance(0)
		got := 0
		for _, s := range b.sent {
			p := check(t, s.b)
			if na, ok := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement); ok && na.TargetAddress.String() == target {
				wantAdvertisement(t, p, target, "ff02::1", neighbour.MAC{0x33, 0x33, 0, 0, 0, 1}, false)
				got++
			}
		}
		if got != 1 {
			t.Errorf("%d announcements at the start, want 1", got)
		}
	})
	for _, tt := range []struct {
		name  string
		frame []byte
	}{
		{"hop limit 254", func() []byte { f := ns(group, "2001:db8:1::9", true); f[14+7] = 254; return f }()},
		{"probe with an option", ns(group, "::", true)},
		{"probe by unicast", ns(netip.MustParseAddr(target), "::", false)},
		{"checksum", func() []byte { f := ns(group, "2001:db8:1::9", true); f[14+40+2]++; return f }()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "off").quiet()
			b.give(0, regs.ExceptionReasonReasonIcmp, tt.frame)
			if len(b.sent) != 0 {
				t.Errorf("answered: %v", b.counted())
			}
		})
	}
}

func wantAdvertisement(t *testing.T, p gopacket.Packet, target, dst string, mac neighbour.MAC, solicited bool) {
	t.Helper()
	na, _ := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	ip, _ := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if na == nil || na.TargetAddress.String() != target || na.Solicited() != solicited || !na.Override() || na.Router() {
		t.Errorf("advertisement %+v", na)
		return
	}
	if len(na.Options) != 1 || na.Options[0].Type != layers.ICMPv6OptTargetAddress || !bytes.Equal(na.Options[0].Data, cardMAC[0][:]) {
		t.Errorf("options %+v", na.Options)
	}
	if ip.HopLimit != 255 || ip.SrcIP.String() != target || ip.DstIP.String() != dst || !bytes.Equal(eth.DstMAC, mac[:]) {
		t.Errorf("from %v to %v (%v), hop limit %d", ip.SrcIP, ip.DstIP, eth.DstMAC, ip.HopLimit)
	}
}

func TestAnnouncedAtStart(t *testing.T) {
	b := newBench(t, "off")
	for range 50 {
		b.advance(100 * time.Millisecond)
	}
	// 5 port addresses and 2 VIPs in subnets, three times each; routed VIPs are nobody's neighbours.
	b.wantCount(Announced, 3*7)
	for _, s := range b.sent {
		p := check(t, s.b)
		if a, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok && bytes.Equal(a.SourceProtAddress, a.DstProtAddress) {
			eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
			if !bytes.Equal(eth.DstMAC, everybody[:]) || a.Operation != layers.ARPRequest {
				t.Errorf("announcement %+v to %v", a, eth.DstMAC)
			}
		}
	}
}

func TestEcho(t *testing.T) {
	data := gopacket.Payload(bytes.Repeat([]byte("ping"), 14))
	b := newBench(t, "off").quiet()
	for _, dst := range []string{"198.18.0.1", "198.51.100.80"} {
		b.give(0, regs.ExceptionReasonReasonIcmp, lay(t, 7, ip4("192.0.2.10", dst, layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 7, Seq: 9}, data))
		p := b.only(0)
		icmp, ip := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4), p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if icmp.TypeCode.Type() != 0 || icmp.Id != 7 || icmp.Seq != 9 || !bytes.Equal(icmp.Payload, data) || ip.SrcIP.String() != dst || ip.DstIP.String() != "192.0.2.10" || ip.TTL != 64 {
			t.Errorf("reply %+v %+v", ip, icmp)
		}
		if tag := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); tag.VLANIdentifier != 7 {
			t.Errorf("tag %+v", tag)
		}
	}
	b.give(0, regs.ExceptionReasonReasonIcmp, lay(t, 0, ip6("2001:db8:c::10", vip6.String(), layers.IPProtocolICMPv6), &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}, gopacket.Payload("\x00\x07\x00\x09data")))
	p := b.only(0)
	if icmp := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); icmp.TypeCode.Type() != 129 || string(icmp.Payload) != "\x00\x07\x00\x09data" {
		t.Errorf("reply %+v", icmp)
	}
	b.wantCount(EchoReply, 3)
	bad := lay(t, 0, ip4("192.0.2.10", "198.18.0.1", layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, data)
	bad[14+20+2]++
	b.give(0, regs.ExceptionReasonReasonIcmp, bad)
	b.wantCount(DropMalformed, 1)
	b.give(0, regs.ExceptionReasonReasonIcmp, lay(t, 0, ip4("224.0.0.1", "198.18.0.1", layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, data))
	b.wantCount(DropSource, 1)
	b.give(0, regs.ExceptionReasonReasonIcmp, lay(t, 0, ip4("192.0.2.10", vip.String(), layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 1)},
		gopacket.Payload(lay(t, 0, ip4(vip.String(), "192.0.2.10", layers.IPProtocolSCTP), &layers.UDP{SrcPort: 1, DstPort: 2})[14:])))
	b.wantCount(DropICMPError, 1)
	if len(b.sent) != 0 {
		t.Error("an ICMP error was answered")
	}
}

// TestCaseA25: a segment for which there is no connection is refused with one RST, and makes no state.
func TestCaseA25(t *testing.T) {
	for _, tt := range []struct {
		name     string
		tcp      layers.TCP
		data     string
		seq, ack uint32
		acks     bool
		none     bool
	}{
		{name: "bare ACK", tcp: layers.TCP{Seq: 777, Ack: 888, ACK: true}, seq: 888},
		{name: "PSH and ACK with data", tcp: layers.TCP{Seq: 777, Ack: 888, ACK: true, PSH: true}, data: "GET / HTTP/1.1\r\n\r\n", seq: 888},
		{name: "SYN", tcp: layers.TCP{Seq: 777, SYN: true}, ack: 778, acks: true},
		{name: "SYN with data", tcp: layers.TCP{Seq: 777, SYN: true}, data: "abc", ack: 781, acks: true},
		{name: "FIN without ACK", tcp: layers.TCP{Seq: 0xffffffff, FIN: true}, data: "ab", ack: 2, acks: true},
		{name: "SYN and ACK", tcp: layers.TCP{Seq: 777, Ack: 888, SYN: true, ACK: true}, seq: 888},
		{name: "RST", tcp: layers.TCP{Seq: 777, RST: true}, none: true},
		{name: "RST and ACK", tcp: layers.TCP{Seq: 777, Ack: 888, RST: true, ACK: true}, none: true},
	} {
		for _, six := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ipv6=%v", tt.name, six), func(t *testing.T) {
				b := newBench(t, "off").quiet()
				seg := tt.tcp
				seg.SrcPort, seg.DstPort, seg.Window = 40001, 80, 1000
				f := lay(t, 0, ip4("192.0.2.10", vip.String(), layers.IPProtocolTCP), &seg, gopacket.Payload(tt.data))
				if six {
					f = lay(t, 0, ip6("2001:db8:c::10", vip6.String(), layers.IPProtocolTCP), &seg, gopacket.Payload(tt.data))
				}
				b.give(0, regs.ExceptionReasonReasonNoMatch, f)
				if tt.none {
					b.wantCount(DropReset, 1)
					if len(b.sent) != 0 {
						t.Error("an RST was answered")
					}
					return
				}
				b.wantCount(Reset, 1)
				r := b.only(0).Layer(layers.LayerTypeTCP).(*layers.TCP)
				if !r.RST || r.SYN || r.FIN || r.ACK != tt.acks || r.Seq != tt.seq || r.Ack != tt.ack || r.SrcPort != 80 || r.DstPort != 40001 || len(r.Payload) != 0 {
					t.Errorf("answer %+v", r)
				}
			})
		}
	}
}

// TestOpening: while the card opens, the SYN for a listener is left to be sent again; everything else is refused as ever.
func TestOpening(t *testing.T) {
	for _, tt := range []struct {
		name   string
		dst    netip.Addr
		tcp    layers.TCP
		silent bool
	}{
		{"SYN for a listener", vip, layers.TCP{DstPort: 80, SYN: true}, true},
		{"SYN for a listener, IPv6", vip6, layers.TCP{DstPort: 80, SYN: true}, true},
		{"SYN for a closed port", vip, layers.TCP{DstPort: 81, SYN: true}, false},
		{"SYN for the port's own address", netip.MustParseAddr("198.18.0.1"), layers.TCP{DstPort: 80, SYN: true}, false},
		{"of a connection that is gone", vip, layers.TCP{DstPort: 80, ACK: true}, false},
		{"SYN and ACK", vip, layers.TCP{DstPort: 80, SYN: true, ACK: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "off").quiet()
			tt.tcp.SrcPort = 40001
			var f []byte
			if tt.dst.Is4() {
				f = lay(t, 0, ip4("198.18.0.10", tt.dst.String(), layers.IPProtocolTCP), &tt.tcp)
			} else {
				f = lay(t, 0, ip6("2001:db8:c::10", tt.dst.String(), layers.IPProtocolTCP), &tt.tcp)
			}
			b.h.st.Opening = true
			b.give(0, regs.ExceptionReasonReasonNoMatch, f)
			if tt.silent {
				b.wantCount(DropOpening, 1)
			} else {
				b.wantCount(Reset, 1)
			}
			b.h.st.Opening = false
			b.give(0, regs.ExceptionReasonReasonNoMatch, f)
			if got := b.h.counters[Reset]; got == 0 {
				t.Error("not refused when the card is open")
			}
		})
	}
}

func TestResetsAreLimited(t *testing.T) {
	b := newBench(t, "off").quiet()
	f := lay(t, 0, ip4("192.0.2.10", vip.String(), layers.IPProtocolTCP), &layers.TCP{SrcPort: 40001, DstPort: 80, ACK: true})
	for range 3 * resetBurst {
		b.give(0, regs.ExceptionReasonReasonNoMatch, f)
	}
	b.wantCount(Reset, resetBurst)
	b.wantCount(DropLimited, 2*resetBurst)
	b.now += time.Second / 2
	for range 3 * resetBurst {
		b.give(0, regs.ExceptionReasonReasonNoMatch, f)
	}
	b.wantCount(Reset, resetBurst+resetRate/2)
}

func TestUnreachable(t *testing.T) {
	for _, tt := range []struct {
		name        string
		f           []byte
		kind, code  uint8
		value, from string
	}{
		{"UDP", lay(t, 0, ip4("192.0.2.10", vip.String(), layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 53}, gopacket.Payload("query")), 3, 3, "", vip.String()},
		{"protocol", lay(t, 0, ip4("192.0.2.10", vip.String(), layers.IPProtocolGRE), gopacket.Payload("12345678")), 3, 2, "", vip.String()},
		{"UDP over IPv6", lay(t, 0, ip6("2001:db8:c::10", vip6.String(), layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 53}, gopacket.Payload("query")), 1, 4, "\x00\x00\x00\x00", vip6.String()},
		{"next header", lay(t, 0, ip6("2001:db8:c::10", vip6.String(), layers.IPProtocolSCTP), gopacket.Payload("12345678")), 4, 1, "\x00\x00\x00\x06", vip6.String()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "off").quiet()
			b.give(0, regs.ExceptionReasonReasonProtocol, tt.f)
			b.wantCount(Unreachable, 1)
			wantError(t, b.only(0), tt.kind, tt.code, tt.value, tt.from, tt.f)
		})
	}
}

// TestCaseC21: what the card finds no transport behind. That nothing follows is no error; an authentication header is one whose
// sender is told that it is not understood, since what it vouches for would be altered; both are counted.
func TestCaseC21(t *testing.T) {
	ah := gopacket.Payload([]byte{6, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x9c, 0x41, 0, 80})
	for _, tt := range []struct {
		name     string
		protocol layers.IPProtocol
		data     gopacket.Payload
		want     Reason
	}{
		{"no next header", layers.IPProtocolNoNextHeader, nil, DropMalformed}, // empty packets are not looked into
		{"no next header, and bytes behind it", layers.IPProtocolNoNextHeader, gopacket.Payload("12345678"), DropIgnored},
		{"authentication header", layers.IPProtocolAH, ah, Unreachable},
		{"half an authentication header", layers.IPProtocolAH, ah[:9], Unreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "off").quiet()
			f := lay(t, 0, ip6("2001:db8:c::10", vip6.String(), tt.protocol), tt.data)
			b.give(0, regs.ExceptionReasonReasonProtocol, f)
			b.wantCount(tt.want, 1)
			if tt.want != Unreachable {
				if len(b.sent) != 0 {
					t.Errorf("sent %d frames", len(b.sent))
				}
				return
			}
			wantError(t, b.only(0), 4, 1, "\x00\x00\x00\x06", vip6.String(), f)
		})
	}
}

// wantError checks an ICMP error and what it quotes.
func wantError(t *testing.T, p gopacket.Packet, kind, code uint8, value, from string, about []byte) {
	t.Helper()
	offset := 14
	if about[12] == 0x81 {
		offset = 18
	}
	var got, quoted []byte
	var src string
	if icmp, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
		ip := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		got, quoted, src = []byte{icmp.TypeCode.Type(), icmp.TypeCode.Code()}, icmp.Payload, ip.SrcIP.String()
		if ip.Flags&layers.IPv4MoreFragments != 0 || ip.FragOffset != 0 || len(quoted) < 28 {
			t.Errorf("error %+v quotes %d bytes", ip, len(quoted))
		}
		if value != "" && !bytes.Equal(icmp.Contents[4:8], []byte(value)) {
			t.Errorf("second word %x, want %x", icmp.Contents[4:8], value)
		}
	} else if icmp, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		got, quoted, src = []byte{icmp.TypeCode.Type(), icmp.TypeCode.Code()}, icmp.Payload[4:], p.Layer(layers.LayerTypeIPv6).(*layers.IPv6).SrcIP.String()
		if string(icmp.Payload[:4]) != value {
			t.Errorf("second word %x, want %x", icmp.Payload[:4], value)
		}
	} else {
		t.Fatalf("no ICMP: %v", p)
	}
	if got[0] != kind || got[1] != code || src != from {
		t.Errorf("type %d code %d from %s, want %d %d %s", got[0], got[1], src, kind, code, from)
	}
	if !bytes.HasPrefix(about[offset:], quoted) {
		t.Errorf("quotes %x of %x", quoted, about[offset:])
	}
}

func TestHostRows(t *testing.T) {
	b := newBench(t, "off").quiet()
	for _, reason := range []uint32{regs.ExceptionReasonReasonBadRequest, regs.ExceptionReasonReasonNoRule, regs.ExceptionReasonReasonNoServer, regs.ExceptionReasonReasonHeadTooLarge} {
		b.given(&regs.ExceptionEntry{ReasonReason: reason, HandleN: 5, HandleGeneration: 9})
	}
	b.wantCount(Refused, 4)
	if len(b.resets) != 4 || b.resets[0] != 5|9<<20 || len(b.replies) != 0 {
		t.Errorf("resets %#x, replies %q", b.resets, b.replies)
	}
}

func TestDrops(t *testing.T) {
	tcp := &layers.TCP{SrcPort: 40001, DstPort: 80, ACK: true}
	fragment := ip4("192.0.2.10", vip.String(), layers.IPProtocolUDP)
	fragment.Flags, fragment.FragOffset = 0, 10
	good := lay(t, 0, ip4("192.0.2.10", vip.String(), layers.IPProtocolTCP), tcp)
	fragment.Protocol = layers.IPProtocolICMPv4
	sumWrong := bytes.Clone(good)
	sumWrong[14+10]++
	for _, tt := range []struct {
		name   string
		port   uint32
		reason uint32
		handle uint32
		f      []byte
		want   Reason
	}{
		{"no bytes", 0, regs.ExceptionReasonReasonNotIp, 0, nil, DropMalformed},
		{"a header cut off", 0, regs.ExceptionReasonReasonNotIp, 0, good[:20], DropMalformed},
		{"a packet cut off", 0, regs.ExceptionReasonReasonNoMatch, 0, good[:50], DropMalformed},
		{"IPv4 header checksum", 0, regs.ExceptionReasonReasonProtocol, 0, sumWrong, DropMalformed},
		{"unknown EtherType", 0, regs.ExceptionReasonReasonNotIp, 0, append(append(bytes.Clone(everybody[:]), peerMAC[:]...), 0x88, 0xcc, 1, 2, 3), DropMalformed},
		{"port that is not there", 5, regs.ExceptionReasonReasonNotIp, 0, good, DropMalformed},
		{"two tags", 0, regs.ExceptionReasonReasonVlan, 0, lay(t, 0, &layers.Ethernet{SrcMAC: peerMAC[:], DstMAC: cardMAC[0][:], EthernetType: layers.EthernetTypeDot1Q},
			&layers.Dot1Q{VLANIdentifier: 5, Type: layers.EthernetTypeDot1Q}, &layers.Dot1Q{VLANIdentifier: 6, Type: layers.EthernetTypeIPv4}, ip4("192.0.2.10", vip.String(), layers.IPProtocolTCP), tcp), DropVLAN},
		{"fragment for a VIP", 0, regs.ExceptionReasonReasonFragment, 0, lay(t, 0, fragment, gopacket.Payload("12345678")), DropFragment},
		{"next hop", 0, regs.ExceptionReasonReasonNextHop, 1, good, DropNextHop},
		{"of a connection", 0, regs.ExceptionReasonReasonUnclassified, 1, good, DropState},
		{"forwarding off", 0, regs.ExceptionReasonReasonNoMatch, 0, lay(t, 0, ip4("192.0.2.10", "198.18.1.77", layers.IPProtocolTCP), tcp), DropForwardOff},
		{"multicast", 1, regs.ExceptionReasonReasonProtocol, 0, lay(t, 0, ip4("198.18.1.5", "224.0.0.251", layers.IPProtocolUDP), &layers.UDP{SrcPort: 5353, DstPort: 5353}), DropDestination},
		{"link-local", 1, regs.ExceptionReasonReasonProtocol, 0, lay(t, 0, ip6("2001:db8:2::5", "fe80::1", layers.IPProtocolTCP), tcp), DropDestination},
		{"our own source", 1, regs.ExceptionReasonReasonProtocol, 0, lay(t, 0, ip4(vip.String(), "192.0.2.10", layers.IPProtocolTCP), tcp), DropSource},
		{"multicast listener report", 0, regs.ExceptionReasonReasonIcmp, 0, lay(t, 0, ip6("fe80::9", "ff02::16", layers.IPProtocolICMPv6), &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(143, 0)}, gopacket.Payload(make([]byte, 24))), DropIgnored},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "off").quiet()
			b.h.Handle(&regs.ExceptionEntry{ControlPort: tt.port, ReasonReason: tt.reason, HandleGeneration: tt.handle}, tt.f, b.now)
			b.wantCount(tt.want, 1)
			if len(b.sent) != 0 {
				t.Errorf("sent %v", b.sent)
			}
		})
	}
}

func TestInjectRingFull(t *testing.T) {
	b := newBench(t, "off").quiet()
	b.full = true
	b.give(0, regs.ExceptionReasonReasonNotIp, lay(t, 0, arp(layers.ARPRequest, peerMAC, "198.18.0.9", "198.18.0.1")))
	b.wantCount(DropEmit, 1)
}

// resolve answers the solicitation of a neighbour.
func (b *bench) resolve(port int, addr string) {
	b.Helper()
	a := netip.MustParseAddr(addr)
	if a.Is4() {
		f := lay(b.T, 0, arp(layers.ARPReply, peerMAC, addr, "198.18.1.1"))
		b.h.Handle(&regs.ExceptionEntry{ControlPort: uint32(port), ReasonReason: regs.ExceptionReasonReasonNotIp}, f, b.now)
		return
	}
	ip := ip6(addr, b.h.st.Config.Ports()[port].Addresses[1].Prefix.Addr().String(), layers.IPProtocolICMPv6)
	ip.HopLimit = 255
	f := lay(b.T, 0, ip, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0)},
		&layers.ICMPv6NeighborAdvertisement{Flags: naSolicited | naOverride, TargetAddress: a.AsSlice(), Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: peerMAC[:]}}})
	b.h.Handle(&regs.ExceptionEntry{ControlPort: uint32(port), ReasonReason: regs.ExceptionReasonReasonIcmp}, f, b.now)
}

func TestForward(t *testing.T) {
	for _, six := range []bool{false, true} {
		t.Run(fmt.Sprintf("ipv6=%v", six), func(t *testing.T) {
			b := newBench(t, "routed").quiet()
			udp := func() *layers.UDP { return &layers.UDP{SrcPort: 1, DstPort: 2} }
			f := lay(t, 0, ip4("192.0.2.10", "198.18.1.77", layers.IPProtocolUDP), udp(), gopacket.Payload("hello"))
			dst, zero := "198.18.1.77", bytes.Clone(f)
			if six {
				f = lay(t, 0, ip6("2001:db8:c::10", "2001:db8:2::77", layers.IPProtocolUDP), udp(), gopacket.Payload("hello"))
				dst = "2001:db8:2::77"
			}
			// The first packet waits while the neighbour is asked; a second one takes its place.
			b.give(0, regs.ExceptionReasonReasonProtocol, f)
			b.give(0, regs.ExceptionReasonReasonProtocol, f)
			b.wantCount(DropNextHop, 1)
			b.advance(0)
			p := b.only(1)
			if six {
				ns := p.Layer(layers.LayerTypeICMPv6NeighborSolicitation).(*layers.ICMPv6NeighborSolicitation)
				if ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6); ns.TargetAddress.String() != dst || ip.DstIP.String() != "ff02::1:ff00:77" || ip.SrcIP.String() != "2001:db8:2::1" {
					t.Errorf("asked %v: %v", ip.DstIP, ns)
				}
			} else if a := p.Layer(layers.LayerTypeARP).(*layers.ARP); net.IP(a.DstProtAddress).String() != dst || net.IP(a.SourceProtAddress).String() != "198.18.1.1" {
				t.Errorf("asked %+v", a)
			}
			b.sent = nil
			b.resolve(1, dst)
			wantForwarded(t, b.only(1), f, peerMAC)
			b.give(0, regs.ExceptionReasonReasonProtocol, f)
			wantForwarded(t, b.only(1), f, peerMAC)
			b.wantCount(Forwarded, 2)
			if !six { // a UDP checksum of zero stays zero
				zero[14+20+6], zero[14+20+7] = 0, 0
				b.give(0, regs.ExceptionReasonReasonProtocol, zero)
				wantForwarded(t, b.only(1), zero, peerMAC)
			}
		})
	}
}

// TestCaseA21: a UDP checksum that is computed to be zero goes on as its other zero, over both families; one that an IPv4
// sender left out stays out.
func TestCaseA21(t *testing.T) {
	for _, x := range []struct {
		name, dst string
		ip        gopacket.SerializableLayer
	}{
		{"ipv4", "198.18.1.77", ip4("192.0.2.10", "198.18.1.77", layers.IPProtocolUDP)},
		{"ipv6", "2001:db8:2::77", ip6("2001:db8:c::10", "2001:db8:2::77", layers.IPProtocolUDP)},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, "routed").quiet()
			b.give(0, regs.ExceptionReasonReasonProtocol, lay(t, 0, x.ip, &layers.UDP{SrcPort: 1, DstPort: 2})) // asks for the neighbour
			b.advance(0)
			b.resolve(1, x.dst)
			send := func(f []byte) {
				t.Helper()
				b.sent = nil
				b.give(0, regs.ExceptionReasonReasonProtocol, f)
				wantForwarded(t, b.only(1), f, peerMAC)
			}
			datagram := func(v int) []byte {
				return lay(t, 0, x.ip, &layers.UDP{SrcPort: 40001, DstPort: 54}, append(gopacket.Payload{byte(v >> 8), byte(v)}, make([]byte, 18)...))
			}
			const sumAt = -22 // in front of the payload
			found := 0
			for v := range 1 << 16 {
				f := datagram(v)
				sum := f[len(f)+sumAt : len(f)+sumAt+2]
				if sum[0]|sum[1] != 0 && [2]byte(sum) != [2]byte{0xff, 0xff} {
					continue
				}
				found++
				sum[0], sum[1] = 0xff, 0xff // as a sender writes it
				send(f)
			}
			if found == 0 {
				t.Error("no payload sums up to zero")
			}
			if x.name == "ipv4" {
				f := datagram(7)
				f[len(f)+sumAt], f[len(f)+sumAt+1] = 0, 0
				send(f)
			}
		})
	}
}

// wantForwarded checks that a packet was passed on as it was, one hop older.
func wantForwarded(t *testing.T, p gopacket.Packet, was []byte, mac neighbour.MAC) {
	t.Helper()
	eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if !bytes.Equal(eth.DstMAC, mac[:]) || !bytes.Equal(eth.SrcMAC, cardMAC[1][:]) {
		t.Errorf("from %v to %v", eth.SrcMAC, eth.DstMAC)
	}
	got, want := bytes.Clone(p.Data()[14:]), bytes.Clone(was[14:14+len(p.Data())-14])
	if want[0]>>4 == 4 {
		want[8]--
		copy(want[10:12], got[10:12]) // the header checksum is checked elsewhere
	} else {
		want[7]--
	}
	if !bytes.Equal(got, want) {
		t.Errorf("forwarded\n%x\nwant\n%x", got, want)
	}
}

func TestForwardToNobody(t *testing.T) {
	b := newBench(t, "routed").quiet()
	f := lay(t, 0, ip4("192.0.2.10", "198.18.1.77", layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}, gopacket.Payload("hello"))
	b.give(0, regs.ExceptionReasonReasonProtocol, f)
	b.h.counters = [reasons]uint64{}
	b.sent = nil
	for range 35 {
		b.advance(100 * time.Millisecond)
	}
	b.wantCount(HostUnreachable, 1)
	b.wantCount(DropNextHop, 1)
	var errs []gopacket.Packet
	for _, s := range b.sent {
		if p := check(t, s.b); p.Layer(layers.LayerTypeICMPv4) != nil {
			errs = append(errs, p)
		}
	}
	if len(errs) != 1 {
		t.Fatalf("%d errors", len(errs))
	}
	wantError(t, errs[0], 3, 1, "", "198.18.0.1", f)
	// Right after the failure the sender hears it at once.
	b.give(0, regs.ExceptionReasonReasonProtocol, f)
	wantError(t, b.only(0), 3, 1, "", "198.18.0.1", f)
}

func TestTimeExceeded(t *testing.T) {
	b := newBench(t, "routed").quiet()
	four, six := ip4("192.0.2.10", "198.18.1.77", layers.IPProtocolUDP), ip6("2001:db8:c::10", "2001:db8:2::77", layers.IPProtocolUDP)
	four.TTL, six.HopLimit = 1, 1
	f := lay(t, 0, four, &layers.UDP{SrcPort: 1, DstPort: 33434}, gopacket.Payload("trace"))
	b.give(0, regs.ExceptionReasonReasonTtl, f)
	wantError(t, b.only(0), 11, 0, "", "198.18.0.1", f)
	f = lay(t, 0, six, &layers.UDP{SrcPort: 1, DstPort: 33434}, gopacket.Payload("trace"))
	b.give(0, regs.ExceptionReasonReasonTtl, f)
	wantError(t, b.only(0), 3, 0, "\x00\x00\x00\x00", "2001:db8:1::1", f)
	// A segment to the VIP itself.
	four = ip4("192.0.2.10", vip.String(), layers.IPProtocolTCP)
	four.TTL = 1
	f = lay(t, 0, four, &layers.TCP{SrcPort: 40001, DstPort: 80, SYN: true})
	b.give(0, regs.ExceptionReasonReasonTtl, f)
	wantError(t, b.only(0), 11, 0, "", vip.String(), f)
	b.wantCount(TimeExceeded, 3)
	// Never about an ICMP error.
	four = ip4("192.0.2.10", "198.18.1.77", layers.IPProtocolICMPv4)
	four.TTL = 1
	b.give(0, regs.ExceptionReasonReasonTtl, lay(t, 0, four, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 1)}, gopacket.Payload(make([]byte, 28))))
	b.wantCount(DropSource, 1)
	if len(b.sent) != 0 {
		t.Error("an error about an error")
	}
}

func TestErrorsAreLimited(t *testing.T) {
	b := newBench(t, "routed").quiet()
	four := ip4("192.0.2.10", "198.18.1.77", layers.IPProtocolUDP)
	four.TTL = 1
	f := lay(t, 0, four, &layers.UDP{SrcPort: 1, DstPort: 33434})
	for range 3 * errorBurst {
		b.give(0, regs.ExceptionReasonReasonTtl, f)
	}
	b.wantCount(TimeExceeded, errorBurst)
	b.wantCount(DropLimited, 2*errorBurst)
}

func TestTooBig(t *testing.T) {
	b := newBench(t, "routed").quiet()
	data := gopacket.Payload(bytes.Repeat([]byte{'x'}, 1440))
	f := lay(t, 0, ip4("192.0.2.10", "198.18.1.77", layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}, data)
	b.give(0, regs.ExceptionReasonReasonProtocol, f)
	wantError(t, b.only(0), 3, 4, "\x00\x00\x05\x78", "198.18.0.1", f)
	f = lay(t, 0, ip6("2001:db8:c::10", "2001:db8:2::77", layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}, data)
	b.give(0, regs.ExceptionReasonReasonProtocol, f)
	wantError(t, b.only(0), 2, 0, "\x00\x00\x05\x78", "2001:db8:1::1", f)
	if n := len(b.sent[0].b) - 14; n != 1280 {
		t.Errorf("an ICMPv6 error of %d bytes, want 1280", n)
	}
}

// TestForwardInFragments: a routed packet that is too big and may be cut is.
func TestForwardInFragments(t *testing.T) {
	b := newBench(t, "routed").quiet()
	data := bytes.Repeat([]byte("0123456789"), 144)
	four := ip4("192.0.2.10", "198.18.1.77", layers.IPProtocolUDP)
	four.Flags = 0
	f := lay(t, 0, four, &layers.UDP{SrcPort: 1, DstPort: 2}, gopacket.Payload(data))
	b.give(0, regs.ExceptionReasonReasonProtocol, f)
	b.advance(0)
	b.sent = nil
	b.resolve(1, "198.18.1.77")
	b.wantCount(Forwarded, 1)
	b.wantCount(Fragmented, 1)
	b.wantCount(FragmentSent, 2)
	wantDatagram(t, b.sent, 1, 1400, 0x1234, "192.0.2.10", "198.18.1.77", data)
}

func TestCoalescedIsCut(t *testing.T) {
	for _, six := range []bool{false, true} {
		b := newBench(t, "routed").quiet()
		data := make([]byte, 20000)
		for i := range data {
			data[i] = byte(i * 7)
		}
		seg := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 0xfffffff0, Ack: 9, ACK: true, PSH: true, FIN: true, CWR: true, Window: 100}
		dst, mss := "198.18.1.77", 1400-20-20
		f := lay(t, 0, ip4("192.0.2.10", dst, layers.IPProtocolTCP), seg, gopacket.Payload(data))
		if six {
			dst, mss = "2001:db8:2::77", 1400-40-20
			f = lay(t, 0, ip6("2001:db8:c::10", dst, layers.IPProtocolTCP), seg, gopacket.Payload(data))
		}
		b.give(0, regs.ExceptionReasonReasonNoMatch, f)
		b.advance(0)
		b.sent = nil
		b.resolve(1, dst)
		var got []byte
		for i, s := range b.sent {
			p := check(t, s.b)
			l := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
			last := i == len(b.sent)-1
			if l.Seq != uint32(0xfffffff0)+uint32(len(got)) || l.FIN != last || l.PSH != last || l.CWR != (i == 0) || len(l.Payload) > mss || !last && len(l.Payload) != mss {
				t.Fatalf("segment %d: %+v with %d bytes", i, l, len(l.Payload))
			}
			if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok && (ip.Id != 0x1234+uint16(i) || ip.TTL != 63) {
				t.Fatalf("segment %d: %+v", i, ip)
			}
			got = append(got, l.Payload...)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes in %d segments differ from what came", len(got), len(b.sent))
		}
	}
}

func TestQueueIsBounded(t *testing.T) {
	b := newBench(t, "routed").quiet()
	for i := range 2 * maxQueued {
		b.give(0, regs.ExceptionReasonReasonProtocol, lay(t, 0, ip4("192.0.2.10", fmt.Sprintf("198.18.1.%d", 20+i), layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}))
	}
	b.wantCount(DropQueueFull, maxQueued)
	if len(b.h.queue) != maxQueued {
		t.Errorf("%d packets wait", len(b.h.queue))
	}
	for range 40 {
		b.advance(100 * time.Millisecond)
	}
	if len(b.h.queue) != 0 {
		t.Errorf("%d packets wait for ever", len(b.h.queue))
	}
}

func TestGratuitousARPMovesAHop(t *testing.T) {
	b := newBench(t, "off").quiet()
	b.resolve(1, "198.18.1.11")
	moved := neighbour.MAC{2, 0xee, 0, 0, 0, 0x77}
	b.give(1, regs.ExceptionReasonReasonNotIp, lay(t, 0, arp(layers.ARPRequest, moved, "198.18.1.11", "198.18.1.11")))
	if mac, st := b.h.table.Get(neighbour.Key{Port: 1, Addr: netip.MustParseAddr("198.18.1.11")}); mac != moved || st != neighbour.Reachable {
		t.Errorf("MAC %v, %v", mac, st)
	}
}

func FuzzHandle(f *testing.F) {
	f.Add(lay(f, 0, ip4("192.0.2.10", vip.String(), layers.IPProtocolTCP), &layers.TCP{SrcPort: 1, DstPort: 80, ACK: true}), uint8(8), false)
	f.Add(lay(f, 7, ip6("2001:db8:c::10", "2001:db8:2::77", layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}), uint8(5), true)
	f.Add(lay(f, 0, arp(layers.ARPRequest, peerMAC, "198.18.0.9", "198.18.0.1")), uint8(1), false)
	f.Add(lay(f, 0, ip4("192.0.2.10", "198.18.1.11", layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}), uint8(7), true)
	f.Fuzz(func(t *testing.T, frame []byte, reason uint8, server bool) {
		if len(frame) > 4096 {
			return
		}
		b := newBench(t, "routed")
		b.resolve(1, "198.18.1.11")
		port := uint32(0)
		if server {
			port = 1
		}
		for range 2 {
			b.sent = nil
			before, waiting := b.h.counters, len(b.h.queue)
			b.h.Handle(&regs.ExceptionEntry{ControlPort: port, ReasonReason: uint32(reason) % (exceptionReasons + 2)}, frame, b.now)
			if b.h.counters == before && len(b.h.queue) == waiting && len(b.sent) == 0 { // what the card gave back goes on uncounted
				t.Fatal("nothing was counted")
			}
			for _, s := range b.sent {
				if len(s.b) < 34 || len(s.b) > 1518 {
					t.Fatalf("emitted %d bytes", len(s.b))
				}
			}
		}
	})
}
