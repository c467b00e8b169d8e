package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// far is where a tunnel begins and ends.
type far struct {
	local, server netip.Addr
	kind          uint32
}

var (
	far4 = far{netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("198.18.1.21"), kindIPv4}
	far6 = far{netip.MustParseAddr("2001:db8:1::1"), netip.MustParseAddr("2001:db8:1::21"), kindIPv6}
)

// tunnelCase is one way to wrap.
type tunnelCase struct {
	name     string
	typ, sum uint32
	far      far
	tagged   bool
}

func tunnelCases() (cs []tunnelCase) {
	for _, x := range []struct {
		name     string
		typ, sum uint32
	}{
		{"ipip", regs.ServerTunnelTypeIpip, 0},
		{"gre", regs.ServerTunnelTypeGre, regs.ServerTunnelChecksumNone},
		{"gre full", regs.ServerTunnelTypeGre, regs.ServerTunnelChecksumFull},
		{"gue", regs.ServerTunnelTypeGue, regs.ServerTunnelChecksumNone},
		{"gue full", regs.ServerTunnelTypeGue, regs.ServerTunnelChecksumFull},
		{"gue remote", regs.ServerTunnelTypeGue, regs.ServerTunnelChecksumRemote},
	} {
		for i, f := range []far{far4, far6} {
			cs = append(cs, tunnelCase{fmt.Sprintf("%s over IPv%d", x.name, 4+2*i), x.typ, x.sum, f, i == 1})
		}
	}
	return cs
}

// tunnel makes server i one behind a tunnel, with its local address.
func (b *bench) tunnel(i int, x tunnelCase, more regs.ServerEntry) (s, hop []uint32) {
	set(b.m.LocalAddress, i, regs.AddressWords, &regs.AddressEntry{ControlValid: 1, ControlKind: x.far.kind, Address: words(x.far.local)})
	more.ControlValid, more.ControlKind, more.ControlProtocol, more.ControlMethod = 1, x.far.kind, 6, regs.ServerControlMethodTun
	if more.ControlPort == 0 {
		more.ControlPort = 80
	}
	more.RouteNextHop, more.RouteLocalAddress, more.Address = uint32(i), uint32(i), words(x.far.server)
	more.TunnelType, more.TunnelChecksum, more.TunnelPort = x.typ, x.sum, 6080
	set(b.m.Server, i, regs.ServerWords, &more)
	lo, hi := mac(serverMAC)
	h := regs.NextHopEntry{ControlValid: 1, ControlResolved: 1, ControlPort: 1, MacLo: lo, MacHiAddress: hi}
	if x.tagged {
		h.ControlTagged, h.ControlVlan = 1, 77
	}
	set(b.m.NextHop, i, regs.NextHopWords, &h)
	b.m.Dirty = ^uint32(0)
	return b.c.server(uint32(i)), b.c.hop(b.c.server(uint32(i)))
}

// slowWrap is the reference: outer headers with their sums computed in full. Flow label and source port are not its
// business; it takes those of the frame that it is compared with.
func slowWrap(x tunnelCase, in []byte, got []byte) []byte {
	sum16 := func(bs ...[]byte) uint16 { return reference(bytes.Join(bs, nil)) }
	in = slices.Clone(in)
	tos, protocol, ether, transport := in[1], uint8(4), uint16(0x0800), int(in[0]&15)*4
	next := in[9]
	if in[0]>>4 == 6 {
		tos, protocol, ether, transport, next = in[0]<<4|in[1]>>4, 41, 0x86dd, 40, in[6]
		for next == 0 || next == 60 || next == 43 {
			next, transport = in[transport], transport+8+int(in[transport+1])*8
		}
	}
	l3 := 14
	if x.tagged {
		l3 = 18
	}
	outer := 20
	if x.far.kind == kindIPv6 {
		outer = 40
	}
	var shim []byte
	outerProtocol := protocol
	switch x.typ {
	case regs.ServerTunnelTypeGre:
		outerProtocol = 47
		shim = binary.BigEndian.AppendUint32(nil, uint32(ether))
		if x.sum != regs.ServerTunnelChecksumNone {
			shim[0] = 0x80
			shim = append(shim, 0, 0, 0, 0)
			binary.BigEndian.PutUint16(shim[4:], sum16(shim, in))
		}
	case regs.ServerTunnelTypeGue:
		outerProtocol = 17
		gue := []byte{0, protocol, 0, 0}
		field := transport + 16
		if next == 17 {
			field = transport + 6
		}
		if x.sum == regs.ServerTunnelChecksumRemote && binary.BigEndian.Uint16(in[field:]) != 0|uint16(next^17) {
			gue = []byte{2, protocol, 0, 1, 0x80, 0, 0, 0, 0, byte(transport), 0, byte(field)}
			n := len(in) - transport
			var pseudo []byte
			if in[0]>>4 == 6 {
				pseudo = append(append(pseudo, in[8:40]...), 0, 0, byte(n>>8), byte(n), 0, 0, 0, next)
			} else {
				pseudo = append(append(pseudo, in[12:20]...), 0, next, byte(n>>8), byte(n))
			}
			binary.BigEndian.PutUint16(in[field:], ^sum16(pseudo))
		}
		shim = append(append([]byte(nil), got[l3+outer:l3+outer+2]...), 6080>>8, 6080&0xff, 0, 0, 0, 0)
		shim = append(shim, gue...)
		n := len(shim) + len(in)
		binary.BigEndian.PutUint16(shim[4:], uint16(n))
		if x.sum != regs.ServerTunnelChecksumNone {
			pseudo := append(append([]byte(nil), x.far.local.AsSlice()...), x.far.server.AsSlice()...)
			pseudo = append(pseudo, 0, 0, byte(n>>8), byte(n), 0, 0, 0, 17)
			sum := sum16(pseudo, shim, in)
			if sum == 0 {
				sum = 0xffff
			}
			binary.BigEndian.PutUint16(shim[6:], sum)
		}
	}
	n := len(shim) + len(in)
	var ip []byte
	if x.far.kind == kindIPv6 {
		ip = append([]byte{0x60 | tos>>4, tos<<4 | got[l3+1]&15, got[l3+2], got[l3+3], byte(n >> 8), byte(n), outerProtocol, 64}, x.far.local.AsSlice()...)
		ip = append(ip, x.far.server.AsSlice()...)
		ether = 0x86dd
	} else {
		n += 20
		ip = append([]byte{0x45, tos, byte(n >> 8), byte(n), 0, 0, 0x40, 0, 64, outerProtocol, 0, 0}, x.far.local.AsSlice()...)
		ip = append(ip, x.far.server.AsSlice()...)
		binary.BigEndian.PutUint16(ip[10:], reference(ip))
		ether = 0x0800
	}
	link := append(serverMAC[:6:6], portMAC[1][:]...)
	if x.tagged {
		link = append(link, 0x81, 0, 0, 77)
	}
	link = binary.BigEndian.AppendUint16(link, ether)
	return bytes.Join([][]byte{link, ip, shim, in}, nil)
}

// datagram builds a UDP frame; sum false leaves its checksum out.
func datagram(t testing.TB, w world, payload string, sum bool) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: clientMAC[:], DstMAC: portMAC[0][:], EthernetType: layers.EthernetTypeIPv4}
	u := &layers.UDP{SrcPort: 5353, DstPort: 53}
	var ip gopacket.SerializableLayer
	if w.client.Is4() {
		x := &layers.IPv4{Version: 4, TTL: 9, TOS: 0x4a, Protocol: layers.IPProtocolUDP, SrcIP: w.client.AsSlice(), DstIP: w.vip.AsSlice()}
		u.SetNetworkLayerForChecksum(x)
		ip = x
	} else {
		x := &layers.IPv6{Version: 6, HopLimit: 9, TrafficClass: 0x4a, NextHeader: layers.IPProtocolUDP, SrcIP: w.client.AsSlice(), DstIP: w.vip.AsSlice()}
		u.SetNetworkLayerForChecksum(x)
		ip, eth.EthernetType = x, layers.EthernetTypeIPv6
	}
	sb := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(sb, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, u, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	raw := sb.Bytes()
	if !sum {
		at := 14 + 20 + 6
		if w.client.Is6() {
			at += 20
		}
		binary.BigEndian.PutUint16(raw[at:], 0)
	}
	return raw
}

// asPacket parses a raw frame into a packet of the pipeline, without the pipeline: datagrams too.
func (b *bench) asPacket(raw []byte) *packet {
	f := &b.buf[0]
	f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	p := &b.c.batch[0]
	b.c.parse(0, f, p)
	return p
}

// TestWrapReference wraps segments and datagrams in every way and compares with the slow one, byte by byte.
func TestWrapReference(t *testing.T) {
	b := newBench(t, smallGeometry())
	r := rand.New(rand.NewPCG(1, 2))
	for _, x := range tunnelCases() {
		t.Run(x.name, func(t *testing.T) {
			s, hop := b.tunnel(3, x, regs.ServerEntry{})
			b.c.Sync()
			for i := range 400 {
				w := world4
				if i%2 == 1 {
					w = world6
				}
				body := strings.Repeat("x", r.IntN(1300))
				var raw []byte
				switch i % 6 {
				case 0, 1:
					raw = datagram(t, w, body, i%6 == 1 || r.IntN(2) == 0)
				default:
					raw = buildFrame(t, &tcp{from: w.client, to: w.vip, sport: uint16(r.Uint32()), dport: 80, seq: r.Uint32(), ack: r.Uint32(), flags: flagACK,
						tos: uint8(r.Uint32()), ttl: 7, payload: []byte(body), vlan: uint16(r.IntN(2) * 5), srcMAC: clientMAC, dstMAC: portMAC[0]})
				}
				if i%5 == 0 {
					raw = append(raw, "padding"...)
				}
				p := b.asPacket(raw)
				in := slices.Clone(p.b[p.ip:p.end])
				if i%7 == 0 { // no room before the frame
					f := p.f
					copy(f.Buf[2:], f.Bytes())
					f.Start, f.End = 2, 2+f.End-f.Start
					p.b = f.Bytes()
				}
				b.out.Reset()
				b.c.wrap(p, s, hop, b.out)
				if len(b.out.Ports[1]) != 1 {
					t.Fatalf("%d frames sent", len(b.out.Ports[1]))
				}
				got := b.out.Ports[1][0].Bytes()
				if want := slowWrap(x, in, got); !bytes.Equal(got, want) {
					t.Fatalf("frame %d\n got % x\nwant % x", i, got, want)
				}
				if over := uint32(len(got) - len(in) - 14); x.tagged && over-4 > b.c.overhead(s) || !x.tagged && over > b.c.overhead(s) {
					t.Fatalf("grew by %d, overhead says %d", over, b.c.overhead(s))
				}
				b.out.Reset()
			}
		})
	}
}

// TestWrapDecodes is the second opinion: gopacket finds the client's packet in the outer one.
func TestWrapDecodes(t *testing.T) {
	b := newBench(t, smallGeometry())
	for _, x := range tunnelCases() {
		if x.typ == regs.ServerTunnelTypeGue {
			continue // it does not know GUE
		}
		for _, w := range []world{world4, world6} {
			s, hop := b.tunnel(3, x, regs.ServerEntry{})
			b.c.Sync()
			c := &conn{b: b, w: w, port: 4242, cseq: 7}
			b.c.wrap(b.asPacket(c.client(flagACK, "hello")), s, hop, b.out)
			p := gopacket.NewPacket(b.out.Ports[1][0].Bytes(), layers.LayerTypeEthernet, gopacket.Default)
			if e := p.ErrorLayer(); e != nil {
				t.Fatalf("%s: %v", x.name, e.Error())
			}
			l, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
			if !ok || l.SrcPort != 4242 || string(l.Payload) != "hello" {
				t.Errorf("%s: %v", x.name, p)
			}
			b.out.Reset()
		}
	}
}

// TestWrapSpreads: the flow label and the source port of gue are the same for one connection, and spread over many.
func TestWrapSpreads(t *testing.T) {
	b := newBench(t, smallGeometry())
	s, hop := b.tunnel(3, tunnelCase{typ: regs.ServerTunnelTypeGue, far: far6}, regs.ServerEntry{})
	b.c.Sync()
	ports, labels := map[uint16]int{}, map[uint32]int{}
	const n = 1000
	for i := range 2 * n {
		c := &conn{b: b, w: world4, port: uint16(1000 + i%n), cseq: uint32(i)}
		b.c.wrap(b.asPacket(c.client(flagACK, strings.Repeat("x", i%9))), s, hop, b.out)
		raw := b.out.Ports[1][0].Bytes()
		port := binary.BigEndian.Uint16(raw[54:])
		if port < flowPorts {
			t.Fatalf("source port %d", port)
		}
		ports[port]++
		labels[binary.BigEndian.Uint32(raw[14:])&0xfffff]++
		b.out.Reset()
	}
	if len(ports) > n || len(ports) < n*9/10 || len(labels) > n || len(labels) < n*9/10 {
		t.Errorf("%d connections: %d source ports, %d flow labels", n, len(ports), len(labels))
	}
}

// TestWrapCoalesced: a coalesced packet becomes wire segments before it is wrapped.
func TestWrapCoalesced(t *testing.T) {
	for _, x := range tunnelCases() {
		for _, w := range []world{world4, world6} {
			t.Run(fmt.Sprint(x.name, " ", w.client), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.jumbo()
				s, hop := b.tunnel(3, x, regs.ServerEntry{})
				b.r.Set(regs.PortMtu+regs.PortStride, 1500)
				b.c.Sync()
				body := make([]byte, 50_000)
				for i := range body {
					body[i] = byte(i * 7)
				}
				raw := buildFrame(t, &tcp{from: w.client, to: w.vip, sport: 7777, dport: 80, seq: 0xffff0000, ack: 5, flags: flagACK | flagPSH | flagFIN | flagCWR,
					window: 9, options: []layers.TCPOption{optNop, optNop, optTS(3, 4)}, payload: body, srcMAC: clientMAC, dstMAC: portMAC[0]})
				f := &b.buf[0]
				f.Start, f.End = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw))
				offload(f, 1448)
				p := &b.c.batch[0]
				b.c.parse(0, f, p)
				if p.class != classTCP {
					t.Fatalf("class %d", p.class)
				}
				spilled := 0
				for b.out.room() > 10 {
					b.out.take(10)
				}
				b.c.SetSpill(func(o *Output) { spilled++; o.Reset() })
				b.c.wrap(p, s, hop, b.out)
				if spilled != 1 {
					t.Errorf("spilled %d times", spilled)
				}
				var stream []byte
				next := uint32(0xffff0000)
				for i, g := range b.out.Ports[1] {
					got := g.Bytes()
					link := 14
					if x.tagged {
						link = 18
					}
					if len(got)-link > 1500 {
						t.Fatalf("segment %d has %d bytes", i, len(got)-link)
					}
					inner := unwrap(t, x, got)
					seg := parseFrame(t, append(append(make([]byte, 12), etherOf(w)...), inner...))
					last := i == len(b.out.Ports[1])-1
					want := uint8(flagACK)
					if i == 0 {
						want |= flagCWR
					}
					if last {
						want |= flagPSH | flagFIN
					}
					if seg.seq != next || seg.flags != want || seg.option(layers.TCPOptionKindTimestamps) == nil {
						t.Fatalf("segment %d: %v, want seq %#x flags %#x", i, seg, next, want)
					}
					if x.sum != regs.ServerTunnelChecksumRemote {
						if want := slowWrap(x, inner, got); !bytes.Equal(got, want) {
							t.Fatalf("segment %d\n got % x\nwant % x", i, got, want)
						}
					}
					next += uint32(len(seg.payload))
					stream = append(stream, seg.payload...)
				}
				if !bytes.Equal(stream, body) {
					t.Errorf("%d bytes, want %d", len(stream), len(body))
				}
				if n := b.r.Get64(regs.PassCut); n != 1 {
					t.Errorf("cut %d", n)
				}
			})
		}
	}
}

func etherOf(w world) []byte {
	if w.client.Is4() {
		return []byte{8, 0}
	}
	return []byte{0x86, 0xdd}
}

// unwrap is what the far end does: it takes the outer headers off, and completes a checksum that was left to it.
func unwrap(t testing.TB, x tunnelCase, raw []byte) []byte {
	t.Helper()
	at := 14
	if x.tagged {
		at = 18
	}
	if raw[at]>>4 == 4 {
		at += 20
	} else {
		at += 40
	}
	switch x.typ {
	case regs.ServerTunnelTypeGre:
		at += 4 + 4*int(raw[at]>>7)
	case regs.ServerTunnelTypeGue:
		at += 8
		g := raw[at:]
		at += 4 + int(g[0])*4
		if g[3]&1 != 0 {
			in := slices.Clone(raw[at:])
			start, field := binary.BigEndian.Uint16(g[8:]), binary.BigEndian.Uint16(g[10:])
			sum := reference(in[start:])
			if sum == 0 && in[6] == 17 {
				sum = 0xffff
			}
			binary.BigEndian.PutUint16(in[field:], sum)
			return in
		}
	}
	return slices.Clone(raw[at:])
}

// TestMarkDSCP: L3DSR changes destination and DSCP, nothing else; the checksums are right.
func TestMarkDSCP(t *testing.T) {
	b := newBench(t, smallGeometry())
	for _, w := range []world{world4, world6} {
		f := far4
		if w.kind == kindIPv6 {
			f = far6
		}
		s, hop := b.tunnel(3, tunnelCase{typ: regs.ServerTunnelTypeDscp, far: f}, regs.ServerEntry{TunnelDscp: 0x2a})
		b.c.Sync()
		if got := b.c.overhead(s); got != 0 {
			t.Errorf("overhead %d", got)
		}
		for ecn := range uint8(4) {
			raw := buildFrame(t, &tcp{from: w.client, to: w.vip, sport: 99, dport: 80, seq: 1, flags: flagACK, tos: 0x54 | ecn, ttl: 7, payload: []byte("abc"), srcMAC: clientMAC, dstMAC: portMAC[0]})
			want := parseFrame(t, raw)
			want.tos, want.to, want.srcMAC, want.dstMAC = 0x2a<<2|ecn, f.server, portMAC[1], serverMAC
			b.c.wrap(b.asPacket(raw), s, hop, b.out)
			if got := one(t, b.drain()[1]); fmt.Sprint(got, got.tos, got.ttl, got.dstMAC) != fmt.Sprint(want, want.tos, want.ttl, want.dstMAC) {
				t.Errorf("got %v tos %#x, want %v", got, got.tos, want)
			}
		}
		for _, sum := range []bool{true, false} {
			if w.kind == kindIPv6 && !sum {
				continue
			}
			b.c.wrap(b.asPacket(datagram(t, w, "question", sum)), s, hop, b.out)
			raw := b.out.Ports[1][0].Bytes()
			if p := b.asPacket(slices.Clone(raw)); p.class != classUDP || (binary.BigEndian.Uint16(raw[len(raw)-len("question")-2:]) != 0) != sum {
				t.Errorf("class %d, % x", p.class, raw)
			}
			b.out.Reset()
		}
	}
	// The other family has no such address.
	s, hop := b.tunnel(3, tunnelCase{typ: regs.ServerTunnelTypeDscp, far: far6}, regs.ServerEntry{})
	b.c.wrap(b.asPacket(datagram(t, world4, "x", true)), s, hop, b.out)
	if n := b.r.Get64(regs.PassDropFamily); n != 1 || len(b.out.Ports[1]) != 0 {
		t.Errorf("dropped %d", n)
	}
}

// FuzzWrap gives the wrapping whatever the parser lets through.
func FuzzWrap(f *testing.F) {
	f.Add(datagram(f, world4, "hello", true), uint8(0))
	f.Add(datagram(f, world6, "hello", true), uint8(11))
	f.Add(buildFrame(f, &tcp{from: world6.client, to: world6.vip, sport: 1, dport: 80, flags: flagACK, payload: []byte("x")}), uint8(5))
	cases := tunnelCases()
	b := newBench(f, smallGeometry())
	f.Fuzz(func(t *testing.T, raw []byte, which uint8) {
		if len(raw) > 2000 {
			return
		}
		x := cases[int(which)%len(cases)]
		s, hop := b.tunnel(3, x, regs.ServerEntry{})
		b.c.Sync()
		b.out.Reset()
		p := b.asPacket(raw)
		b.r.Set(regs.RingConsumer, b.r.Get(regs.RingProducer))
		if p.class < classTCP {
			return
		}
		in := slices.Clone(p.b[p.ip:p.end])
		b.c.wrap(p, s, hop, b.out)
		if len(b.out.Ports[1]) != 1 {
			t.Fatalf("%d frames", len(b.out.Ports[1]))
		}
		got := b.out.Ports[1][0].Bytes()
		if want := slowWrap(x, in, got); !bytes.Equal(got, want) {
			t.Fatalf("\n got % x\nwant % x", got, want)
		}
	})
}
