package exception

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception/reassembly"
	"splicenic/runtime/neighbour"
)

// A pair is a spliced connection as both sides see it.
type pair struct {
	conn                Connection
	client, vip, server netip.AddrPort
	local               netip.AddrPort // the client as the server sees it
	vlans               [2]uint16
}

const (
	deltaClient = 0x01020304 // added to the client's numbers
	deltaServer = 0xfffffff0 // added to the server's
)

var clientsMAC, serversMAC = neighbour.MAC{2, 0xaa, 0, 0, 0, 1}, neighbour.MAC{2, 0xbb, 0, 0, 0, 1}

// pair adds a spliced connection: the client has acknowledged up to 1000 and may hold up to 5000 of the server's, in its
// own numbers; the server up to 2000 and 7000 of the client's.
func (b *bench) pair(four bool, vlans [2]uint16) *pair {
	p := &pair{vlans: vlans}
	p.client, p.vip, p.server = netip.MustParseAddrPort("192.0.2.10:40001"), netip.MustParseAddrPort("198.51.100.80:80"), netip.MustParseAddrPort("198.18.1.11:80")
	kind := uint32(regs.KindIpv4)
	if !four {
		p.client, p.vip, p.server = netip.MustParseAddrPort("[2001:db8:c::10]:40001"), netip.MustParseAddrPort("[2001:db8:51::80]:80"), netip.MustParseAddrPort("[2001:db8:2::11]:80")
		kind = regs.KindIpv6
	}
	p.local = netip.AddrPortFrom(p.client.Addr(), 50002)
	a := p.client.Addr().As16()
	e := regs.PageEntry{
		ControlValid: 1, ControlState: regs.PageControlStateSpliced, ControlKind: kind, PortsClient: uint32(p.client.Port()), PortsVip: 80,
		ClientLinkVlan: uint32(vlans[0]), ClientMacLo: 0x00000001, ClientMacHiAddress: 0x02aa,
		ALocalPort: uint32(p.local.Port()), ADeltaClient: deltaClient, ADeltaServer: deltaServer, AScaleArmed: 1,
		AAckClient: 1000, ASeqServer: 5000, AAckServer: 2000, ASeqClient: 7000,
	}
	if vlans[0] != 0 {
		e.ClientLinkTagged = 1
	}
	for i := range e.ClientAddress {
		e.ClientAddress[i] = binary.BigEndian.Uint32(a[12-4*i:])
	}
	if four {
		e.ClientAddress = [4]uint32{e.ClientAddress[0]}
	}
	p.conn = Connection{Page: e, VIP: p.vip.Addr(), Servers: [2]Server{{
		Addr: p.server, Hop: config.Hop{Port: 1, VLAN: vlans[1], Neighbor: p.server.Addr()}, Port: 1, VLAN: vlans[1], Tagged: vlans[1] != 0, Resolved: true, MAC: serversMAC,
	}}}
	b.conns = map[Flow]Connection{
		{6, vlans[0], p.vip, p.client}:   p.conn,
		{6, vlans[1], p.server, p.local}: p.conn,
	}
	return p
}

// change changes what the card knows.
func (b *bench) change(f func(*Connection)) {
	for k, c := range b.conns {
		f(&c)
		b.conns[k] = c
	}
}

// segment is the IP packet of a TCP segment of n payload bytes.
func segment(t testing.TB, src, dst netip.AddrPort, seq, ack uint32, n int) []byte {
	t.Helper()
	tcp := &layers.TCP{SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()), Seq: seq, Ack: ack, ACK: true, Window: 512}
	data := gopacket.Payload(bytes.Repeat([]byte{'s'}, n))
	if src.Addr().Is4() {
		return lay(t, 0, ip4(src.Addr().String(), dst.Addr().String(), layers.IPProtocolTCP), tcp, data)[14:][:40+n]
	}
	return lay(t, 0, ip6(src.Addr().String(), dst.Addr().String(), layers.IPProtocolTCP), tcp, data)[14:][:60+n]
}

// icmpAbout is a frame with an error from a router that quotes so many bytes of a packet.
func icmpAbout(t testing.TB, vlan uint16, from, to netip.Addr, kind4, code4, kind6, code6 uint8, word uint32, quoted []byte) []byte {
	t.Helper()
	if to.Is4() {
		return lay(t, vlan, ip4(from.String(), to.String(), layers.IPProtocolICMPv4),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind4, code4), Id: uint16(word >> 16), Seq: uint16(word)}, gopacket.Payload(quoted))
	}
	body := append(binary.BigEndian.AppendUint32(nil, word), quoted...)
	return lay(t, vlan, ip6(from.String(), to.String(), layers.IPProtocolICMPv6), &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind6, code6)}, gopacket.Payload(body))
}

// seen is an ICMP error that was sent.
func seen(t testing.TB, p gopacket.Packet) (from, to netip.Addr, kind, code uint8, word uint32, quoted []byte) {
	t.Helper()
	if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		i, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if !ok {
			t.Fatalf("no ICMP: %v", p)
		}
		from, _ = netip.AddrFromSlice(ip.SrcIP)
		to, _ = netip.AddrFromSlice(ip.DstIP)
		return from, to, i.TypeCode.Type(), i.TypeCode.Code(), uint32(i.Id)<<16 | uint32(i.Seq), i.Payload
	}
	ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	i, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	if !ok {
		t.Fatalf("no ICMP: %v", p)
	}
	from, _ = netip.AddrFromSlice(ip.SrcIP)
	to, _ = netip.AddrFromSlice(ip.DstIP)
	return from, to, i.TypeCode.Type(), i.TypeCode.Code(), binary.BigEndian.Uint32(i.Payload), i.Payload[4:]
}

func families(t *testing.T, f func(t *testing.T, four bool)) {
	for _, four := range []bool{true, false} {
		t.Run(map[bool]string{true: "IPv4", false: "IPv6"}[four], func(t *testing.T) { f(t, four) })
	}
}

func router(four bool) netip.Addr {
	if four {
		return netip.MustParseAddr("203.0.113.1")
	}
	return netip.MustParseAddr("2001:db8:f::1")
}

// TestErrorsAboutConnections: an error about a segment reaches the end that sent it, and quotes the segment as that end
// sent it, however much is quoted (RFC 5508, REQ-3 to 5).
func TestErrorsAboutConnections(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		delta := uint32(deltaServer)
		for _, vlans := range [][2]uint16{{}, {7, 0}, {0, 9}, {7, 9}} {
			for _, toClient := range []bool{true, false} { // the segment went to the client
				for _, quote := range []int{8, 12, 13, 14, 18, 20, 30, 1200} {
					for _, from := range []string{"router", "peer"} {
						b := newBench(t, "off").quiet()
						p := b.pair(four, vlans)
						const seq, ack, n = uint32(0x80000000), uint32(0x90000000), 1160
						sent, passed := segment(t, p.server, p.local, seq, ack, n), segment(t, p.vip, p.client, seq+delta, ack-deltaClient, n)
						port, want := 0, ICMPToServer
						b.change(func(c *Connection) { c.Page.AAckClient, c.Page.ASeqServer = seq+delta-1, seq+delta+n })
						if !toClient {
							sent, passed = segment(t, p.client, p.vip, seq, ack, n), segment(t, p.local, p.server, seq+deltaClient, ack-delta, n)
							port, want = 1, ICMPToClient
							b.change(func(c *Connection) { c.Page.AAckServer, c.Page.ASeqClient = seq, seq+n })
						}
						header := 20
						if !four {
							header = 40
						}
						who, outer, dst := router(four), router(four), p.server.Addr()
						back := passed[12:16]
						if !four {
							back = passed[8:24]
						}
						to, _ := netip.AddrFromSlice(back)
						mac := serversMAC
						if !toClient {
							dst, mac = p.client.Addr(), clientsMAC
						}
						if from == "peer" && toClient {
							who, outer = p.client.Addr(), p.client.Addr()
						} else if from == "peer" {
							who, outer = p.server.Addr(), p.vip.Addr()
						}
						name := fmt.Sprintf("vlans %v, to client %v, %d bytes, from %s", vlans, toClient, quote, from)
						b.give(port, regs.ExceptionReasonReasonIcmp, icmpAbout(t, vlans[port], who, to, 3, 1, 1, 3, 0x00070000, passed[:header+quote]))
						b.wantCount(want, 1)
						if len(b.sent) != 1 || b.sent[0].port != 1-port {
							t.Fatalf("%s: sent %d frames: %v", name, len(b.sent), b.counted())
						}
						f := check(t, b.sent[0].b)
						gotFrom, gotTo, kind, code, word, quoted := seen(t, f)
						if gotFrom != outer || gotTo != dst || word != 0x00070000 {
							t.Errorf("%s: from %v to %v, word %#x", name, gotFrom, gotTo, word)
						}
						if four && (kind != 3 || code != 1) || !four && (kind != 1 || code != 3) {
							t.Errorf("%s: type %d, code %d", name, kind, code)
						}
						// All that is quoted is as it was sent; the quoted checksum too, where it is there.
						if !bytes.Equal(quoted, sent[:header+quote]) {
							t.Errorf("%s: quotes\n% x, was sent\n% x", name, quoted[:min(len(quoted), 60)], sent[:min(header+quote, 60)])
						}
						eth := f.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
						tag, tagged := f.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q)
						if v := vlans[1-port]; !bytes.Equal(eth.DstMAC, mac[:]) || tagged != (v != 0) || tagged && tag.VLANIdentifier != v {
							t.Errorf("%s: to %v, tag %v", name, eth.DstMAC, tag)
						}
						if ttl(f) != 63 {
							t.Errorf("%s: TTL %d", name, ttl(f))
						}
					}
				}
			}
		}
	})
}

func ttl(p gopacket.Packet) uint8 {
	if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		return ip.TTL
	}
	return p.Layer(layers.LayerTypeIPv6).(*layers.IPv6).HopLimit
}

// TestWhichErrors: types that are no errors about a path stay here, and so does what is not about bytes in flight (RFC
// 5927 4.1), comes from the wrong side, or quotes too little.
func TestWhichErrors(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		delta := uint32(deltaServer)
		toClient := func(p *pair, seq uint32) []byte { return segment(t, p.vip, p.client, seq, 1, 100) }
		toServer := func(p *pair, seq uint32) []byte { return segment(t, p.local, p.server, seq+deltaClient, 1-delta, 100) }
		unreachable := [2]uint8{3, 1}
		for _, tt := range []struct {
			name  string
			kinds [2]uint8 // of IPv4 and IPv6
			make  func(*pair, uint32) []byte
			seq   uint32
			port  int
			card  func(*Connection)   // what the card knows
			quote func([]byte) []byte // what is quoted
			wrong bool                // the ICMP checksum
			other bool                // another is told than who sent it
			want  Reason
		}{
			{name: "unreachable", kinds: unreachable, make: toClient, seq: 1000, want: ICMPToServer},
			{name: "time exceeded", kinds: [2]uint8{11, 3}, make: toClient, seq: 1000, want: ICMPToServer},
			{name: "parameter problem", kinds: [2]uint8{12, 4}, make: toClient, seq: 1000, want: ICMPToServer},
			{name: "redirect or unassigned", kinds: [2]uint8{5, 100}, make: toClient, seq: 1000, want: DropICMPError},
			{name: "source quench or unassigned", kinds: [2]uint8{4, 5}, make: toClient, seq: 1000, want: DropICMPError},
			{name: "the highest sent", kinds: unreachable, make: toClient, seq: 5000, want: ICMPToServer},
			{name: "beyond the highest sent", kinds: unreachable, make: toClient, seq: 5001, want: DropICMPWindow},
			{name: "acknowledged", kinds: unreachable, make: toClient, seq: 999, want: DropICMPWindow},
			{name: "to a server", kinds: unreachable, make: toServer, seq: 2000, port: 1, want: ICMPToClient},
			{name: "to a server, the highest sent", kinds: unreachable, make: toServer, seq: 7000, port: 1, want: ICMPToClient},
			{name: "to a server, beyond", kinds: unreachable, make: toServer, seq: 7001, port: 1, want: DropICMPWindow},
			{name: "to a server, acknowledged", kinds: unreachable, make: toServer, seq: 1999, port: 1, want: DropICMPWindow},
			{name: "about a client's, from the servers' side", kinds: unreachable, make: toClient, seq: 1000, port: 1, want: DropICMPUnknown},
			{name: "about a server's, from the clients' side", kinds: unreachable, make: toServer, seq: 2000, port: 0, want: DropICMPUnknown},
			{name: "no such connection", kinds: unreachable, make: func(p *pair, seq uint32) []byte {
				return segment(t, p.vip, netip.AddrPortFrom(p.client.Addr(), 9), seq, 1, 100)
			}, seq: 1000, want: DropICMPUnknown},
			{name: "seven bytes", kinds: unreachable, make: toClient, seq: 1000, quote: func(q []byte) []byte {
				return q[:map[bool]int{true: 27, false: 47}[four]]
			}, want: DropICMPQuote},
			{name: "no header", kinds: unreachable, make: toClient, seq: 1000, quote: func(q []byte) []byte { return q[:10] }, want: DropICMPQuote},
			{name: "the other version", kinds: unreachable, make: toClient, seq: 1000, quote: func(q []byte) []byte { q[0] ^= 0x20; return q }, want: DropICMPQuote},
			{name: "quote of another sender", kinds: unreachable, make: func(p *pair, seq uint32) []byte {
				other := netip.MustParseAddr("198.18.0.80")
				if !four {
					other = netip.MustParseAddr("2001:db8:1::80")
				}
				return segment(t, netip.AddrPortFrom(other, 80), p.client, seq, 1, 100)
			}, seq: 1000, other: true, want: DropICMPQuote},
			{name: "wrong ICMP checksum", kinds: unreachable, make: toClient, seq: 1000, wrong: true, want: DropICMPQuote},
			{name: "before the splice, our SYN-ACK", kinds: unreachable, make: toClient, seq: 1000, card: func(c *Connection) {
				c.Page.AScaleArmed, c.Page.Isn = 0, 1000
			}, want: ICMPOwn},
			{name: "before the splice, something else", kinds: unreachable, make: toClient, seq: 1000, card: func(c *Connection) {
				c.Page.AScaleArmed, c.Page.Isn = 0, 1001
			}, want: DropICMPWindow},
			{name: "our SYN", kinds: unreachable, make: toServer, seq: 77, port: 1, card: func(c *Connection) {
				c.Page.AScaleArmed, c.Page.AIsn = 0, 77+deltaClient
			}, want: ICMPOwn},
			{name: "not our SYN", kinds: unreachable, make: toServer, seq: 78, port: 1, card: func(c *Connection) {
				c.Page.AScaleArmed, c.Page.AIsn = 0, 77+deltaClient
			}, want: DropICMPWindow},
			{name: "held bytes", kinds: unreachable, make: toServer, seq: 2999, port: 1, card: func(c *Connection) {
				c.Page.ControlHeld, c.Page.HeldBoundary = 1, 3000
			}, want: ICMPOwn},
			{name: "inserted bytes", kinds: unreachable, make: toServer, seq: 1900, port: 1, card: func(c *Connection) {
				c.Page.ClientIsn, c.Page.AAckServer, c.Page.ASeqClient = 1999, 1900, 3000
				c.Page.ControlHeld, c.Page.HeldBoundary = 1, 3000
			}, want: ICMPOwn},
			{name: "before the inserted bytes", kinds: unreachable, make: toServer, seq: 1899, port: 1, card: func(c *Connection) {
				c.Page.ClientIsn, c.Page.AAckServer, c.Page.ASeqClient = 1999, 1900, 3000
				c.Page.ControlHeld, c.Page.HeldBoundary = 1, 3000
			}, want: DropICMPWindow},
			{name: "above the held bytes", kinds: unreachable, make: toServer, seq: 3000, port: 1, card: func(c *Connection) {
				c.Page.ControlHeld, c.Page.HeldBoundary = 1, 3000
			}, want: ICMPToClient},
			{name: "the server's next hop is gone", kinds: unreachable, make: toClient, seq: 1000, card: func(c *Connection) {
				c.Servers[0].Resolved = false
			}, want: DropNextHop},
		} {
			b := newBench(t, "off").quiet()
			p := b.pair(four, [2]uint16{})
			quoted := tt.make(p, tt.seq)
			to, _ := netip.AddrFromSlice(quoted[12:16])
			if !four {
				to, _ = netip.AddrFromSlice(quoted[8:24])
			}
			if tt.other {
				to = p.vip.Addr()
			}
			if tt.card != nil {
				b.change(tt.card)
			}
			if tt.quote != nil {
				quoted = tt.quote(quoted)
			}
			f := icmpAbout(t, 0, router(four), to, tt.kinds[0], 0, tt.kinds[1], 0, 0, quoted)
			if tt.wrong {
				f[14+len(quoted)]++
			}
			b.give(tt.port, regs.ExceptionReasonReasonIcmp, f)
			if b.h.counters[tt.want] != 1 {
				t.Errorf("%s: want %v: %v", tt.name, tt.want, b.counted())
			}
			if passed := tt.want == ICMPToClient || tt.want == ICMPToServer; passed != (len(b.sent) == 1) {
				t.Errorf("%s: %d frames sent", tt.name, len(b.sent))
			}
		}
	})
}

// TestErrorsFromTheLink: a router that has only a link-local address on the far link is not shown by it on the other.
func TestErrorsFromTheLink(t *testing.T) {
	b := newBench(t, "off").quiet()
	p := b.pair(false, [2]uint16{})
	b.give(0, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, netip.MustParseAddr("fe80::1"), p.vip.Addr(), 0, 0, 2, 0, 1300, segment(t, p.vip, p.client, 1000, 1, 100)))
	from, _, _, _, word, _ := seen(t, b.only(1))
	if from.String() != "2001:db8:2::1" || word != 1300 {
		t.Errorf("from %v, MTU %d", from, word)
	}
}

// TestErrorsAboutOtherTraffic: an error about a connection that is not the card's is routed as before, and a server may have
// such.
func TestErrorsAboutOtherTraffic(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		b := newBench(t, "routed").quiet()
		p := b.pair(four, [2]uint16{})
		hop := "198.18.0.254"
		if !four {
			hop = "2001:db8:1::fe"
		}
		b.resolve(0, hop)
		for _, quoted := range [][]byte{
			segment(t, p.client, netip.AddrPortFrom(p.server.Addr(), 22), 1, 1, 100),
			segment(t, netip.AddrPortFrom(p.client.Addr(), 9), p.server, 1, 1, 100),
		} {
			b.give(1, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, p.server.Addr(), p.client.Addr(), 3, 3, 1, 4, 0, quoted))
			_, to, _, _, _, got := seen(t, b.only(0))
			if to != p.client.Addr() || !bytes.Equal(got, quoted) {
				t.Errorf("to %v, quotes % x", to, got)
			}
		}
		b.wantCount(Forwarded, 2)
	})
}

// TestErrorFlood: the card is asked no more often than the rate allows.
func TestErrorFlood(t *testing.T) {
	b := newBench(t, "off").quiet()
	p := b.pair(true, [2]uint16{})
	const flood = 10 * lookupBurst
	for i := range flood {
		b.give(0, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(true), p.vip.Addr(), 3, 1, 0, 0, 0, segment(t, p.vip, p.client, uint32(i)*1e6, 1, 8)))
	}
	if b.finds != lookupBurst {
		t.Errorf("the card was asked %d times, want %d", b.finds, lookupBurst)
	}
	b.wantCount(DropICMPLimited, flood-lookupBurst)
	b.advance(time.Second)
	b.give(0, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(true), p.vip.Addr(), 3, 1, 0, 0, 0, segment(t, p.vip, p.client, 1000, 1, 8)))
	b.wantCount(ICMPToServer, 1)
}

// TestPathMTU: what routers on the way to a server say lowers what is sent there, within reason and for a while.
func TestPathMTU(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		header, least := uint32(40), uint16(552)
		if !four {
			header, least = 60, 1280
		}
		for _, tt := range []struct {
			name string
			said []uint32
			n    uint32 // length of the quoted packet
			want uint16
			v4   bool
		}{
			{name: "lower", said: []uint32{1300}, n: 1400, want: 1300},
			{name: "lower and lower", said: []uint32{1350, 1300}, n: 1400, want: 1300},
			{name: "higher again", said: []uint32{1300, 1350}, n: 1400, want: 1300},
			{name: "than what was sent", said: []uint32{1400}, n: 1400},
			{name: "than the port takes", said: []uint32{1400}, n: 1500},
			{name: "too low", said: []uint32{68}, n: 1400, want: least},
			{name: "huge", said: []uint32{1 << 16}, n: 1400, v4: true, want: 1006}, // the MTU field has 16 bits: it says nothing
			{name: "not said", said: []uint32{0}, n: 1400, v4: true, want: 1006},
			{name: "not said about a small one", said: []uint32{0}, n: 600, v4: true, want: 552},
		} {
			if tt.v4 && !four {
				continue
			}
			b := newBench(t, "off").quiet()
			p := b.pair(four, [2]uint16{})
			hop := p.conn.Servers[0].Hop
			delta := uint32(deltaServer)
			_, before := b.h.Paths()
			for _, said := range tt.said {
				quoted := segment(t, p.local, p.server, 2000+deltaClient, 1-delta, int(tt.n-header))
				b.give(1, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(four), p.local.Addr(), 3, 4, 2, 0, said, quoted[:header-12]))
				b.wantCount(DropICMPWindow, 0)
				if _, _, _, _, word, _ := seen(t, b.only(0)); word != said {
					t.Errorf("%s: the client is told %d, want %d", tt.name, word, said)
				}
			}
			mtu, version := b.h.Paths()
			if mtu[hop] != tt.want || (version != before) != (tt.want != 0) || version != b.h.PathVersion() {
				t.Errorf("%s: MTU %d, want %d; version %d, was %d", tt.name, mtu[hop], tt.want, version, before)
			}
			if tt.want == 0 {
				continue
			}
			if got := b.h.Next(); got > b.now+pathExpires {
				t.Errorf("%s: next is %v", tt.name, got)
			}
			b.advance(pathExpires - 1)
			if mtu, _ := b.h.Paths(); mtu[hop] != tt.want {
				t.Errorf("%s: forgotten early", tt.name)
			}
			b.advance(1)
			if mtu, v := b.h.Paths(); len(mtu) != 0 || v == version {
				t.Errorf("%s: %v after the time-out", tt.name, mtu)
			}
		}
	})
}

// TestTooBigForConnections: the sender of a segment that the card could not pass on hears the MTU of the network that it was
// to go to.
func TestTooBigForConnections(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		for _, tt := range []struct {
			name   string
			port   int
			path   uint16
			n      int
			handle uint32
			want   Reason
			mtu    uint32
		}{
			{name: "to a server", n: 1450, handle: 7, want: TooBig, mtu: 1400},
			{name: "to a server over a narrow path", path: 1300, n: 1390, handle: 7, want: TooBig, mtu: 1300},
			{name: "to a client", port: 1, n: 1600, handle: 7, want: TooBig, mtu: 1500},
			{name: "the path is wider again", n: 1300, handle: 7, want: DropOversize},
			{name: "the connection is over", n: 1450, handle: 8, want: DropState},
		} {
			b := newBench(t, "off").quiet()
			p := b.pair(four, [2]uint16{})
			if tt.path != 0 {
				b.h.paths.mtu[p.conn.Servers[0].Hop] = path{tt.path, time.Hour}
			}
			header := 40
			if !four {
				header = 60
			}
			sent := segment(t, p.client, p.vip, 1, 1, tt.n-header)
			from := p.vip.Addr()
			if tt.port == 1 {
				sent = segment(t, p.server, p.local, 1, 1, tt.n-header)
				from = netip.MustParseAddr(map[bool]string{true: "198.18.1.1", false: "2001:db8:2::1"}[four])
			}
			b.sent = nil
			e := regs.ExceptionEntry{ControlPort: uint32(tt.port), ReasonReason: regs.ExceptionReasonReasonTooBig, ReasonSide: uint32(tt.port), HandleN: tt.handle}
			b.h.Handle(&e, layEther(sent), b.now)
			b.wantCount(tt.want, 1)
			if tt.want != TooBig {
				if len(b.sent) != 0 {
					t.Errorf("%s: answered", tt.name)
				}
				continue
			}
			gotFrom, _, kind, code, word, quoted := seen(t, b.only(tt.port))
			if gotFrom != from || word != tt.mtu || four && (kind != 3 || code != 4) || !four && kind != 2 || len(quoted) < header+8 || !bytes.Equal(quoted, sent[:len(quoted)]) {
				t.Errorf("%s: from %v, type %d, code %d, MTU %d, quotes % x", tt.name, gotFrom, kind, code, word, quoted[:40])
			}
		}
	})
}

// TestFragmentsOfConnections: fragments of a segment for a VIP, or from a server, come back to the parser as segments.
func TestFragmentsOfConnections(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		for _, port := range []int{0, 1} {
			b := newBench(t, "routed").quiet()
			p := b.pair(four, [2]uint16{})
			src, dst := p.client, p.vip
			if port == 1 {
				src, dst = p.server, p.local
			}
			whole := segment(t, src, dst, 1, 1, 2000)
			var got []byte
			for _, f := range fragments(whole, 1024) {
				b.give(port, regs.ExceptionReasonReasonFragment, f)
				if len(b.sent) != 0 {
					t.Fatalf("sent %d frames", len(b.sent))
				}
			}
			b.wantCount(FragmentKept, 1)
			b.wantCount(Reassembled, 1)
			for _, x := range b.reinjects {
				if x.port != port || len(x.b) > 14+1400 { // the least MTU of the ports
					t.Fatalf("%d bytes at port %d", len(x.b), x.port)
				}
				got = append(got, check(t, x.b).Layer(layers.LayerTypeTCP).(*layers.TCP).Payload...)
			}
			if len(b.reinjects) != 2 || !bytes.Equal(got, bytes.Repeat([]byte{'s'}, 2000)) {
				t.Errorf("%d frames with %d bytes", len(b.reinjects), len(got))
			}
		}
		// Other traffic is forwarded as before, piece by piece.
		b := newBench(t, "routed").quiet()
		p := b.pair(four, [2]uint16{})
		other := netip.AddrPortFrom(p.server.Addr().Next(), 80)
		b.give(0, regs.ExceptionReasonReasonNoMatch, layEther(segment(t, p.client, other, 1, 1, 10)))
		b.advance(0)
		b.resolve(1, other.Addr().String())
		for _, f := range fragments(segment(t, p.client, other, 1, 1, 2000), 1024) {
			b.give(0, regs.ExceptionReasonReasonFragment, f)
			b.only(1)
		}
		b.wantCount(Forwarded, 3)
		b.wantCount(FragmentKept, 0)
	})
}

// layEther puts the peer's Ethernet header before an IP packet.
func layEther(ip []byte) []byte {
	kind := []byte{8, 0}
	if ip[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return slices.Concat(cardMAC[0][:], peerMAC[:], kind, ip)
}

// fragments cuts an IP packet into frames of fragments.
func fragments(ip []byte, size int) (fs [][]byte) {
	header := 20
	if ip[0]>>4 == 6 {
		header = 40
	}
	data := ip[header:]
	for at := 0; at < len(data); at += size {
		part := data[at:min(at+size, len(data))]
		more := at+len(part) < len(data)
		f := layEther(ip[:header])
		x := f[14:]
		if header == 20 {
			binary.BigEndian.PutUint16(x[2:], uint16(20+len(part)))
			field := uint16(at / 8)
			if more {
				field |= 0x2000
			}
			binary.BigEndian.PutUint16(x[6:], field)
			x[10], x[11] = 0, 0
			binary.BigEndian.PutUint16(x[10:], ^uint16(reassembly.Sum(x[:20], 0)))
		} else {
			x[6] = 44
			binary.BigEndian.PutUint16(x[4:], uint16(8+len(part)))
			field := uint16(at)
			if more {
				field |= 1
			}
			f = append(f, 6, 0, byte(field>>8), byte(field), 0, 0, 0, 7)
		}
		fs = append(fs, append(f, part...))
	}
	return fs
}

// FuzzQuote: whatever an error quotes, nothing is read or written outside it, and translating back and forth changes
// nothing.
func FuzzQuote(f *testing.F) {
	a, c := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("198.18.0.80:80")
	f.Add(segment(f, a, c, 1, 2, 10), true)
	f.Add(segment(f, a, c, 1, 2, 0)[:28], true)
	f.Add(udp(f, a, c, []byte("data")), true)
	f.Add(udp(f, a, c, nil)[:28], true)
	f.Add(segment(f, netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:2"), 1, 2, 9), false)
	f.Fuzz(func(t *testing.T, b []byte, four bool) {
		before := bytes.Clone(b)
		q, ok := readQuote(b, four)
		if !ok || q.protocol != layers.IPProtocolTCP && q.protocol != layers.IPProtocolUDP {
			return
		}
		src, dst := a, c
		if !four {
			src, dst = netip.MustParseAddrPort("[2001:db8:7::1]:7"), netip.MustParseAddrPort("[2001:db8:8::1]:8")
		}
		there, ok := readQuote(q.translated(src, dst, 5, 7), four)
		if tcp := q.protocol == layers.IPProtocolTCP; !ok || there.src != src || there.dst != dst || tcp && there.seq != q.seq+5 {
			t.Fatalf("translated to %+v", there)
		}
		back := there.translated(q.src, q.dst, ^uint32(4), ^uint32(6))
		if !bytes.Equal(b, before) {
			t.Fatal("the packet itself changed")
		}
		// One's complement has two zeros, so that a checksum may come back as the other.
		for _, at := range []int{10, q.tcp + 6, q.tcp + 16} {
			if four || at != 10 {
				if at+2 <= len(back) && back[at] == back[at+1] && (back[at] == 0 || back[at] == 0xff) {
					copy(back[at:], b[at:at+2])
				}
			}
		}
		if !bytes.Equal(back, b) {
			t.Fatalf("% x\ncame back as\n% x", b, back)
		}
	})
}
