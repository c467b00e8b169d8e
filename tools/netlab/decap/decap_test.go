package decap

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

var (
	client4, vip4, server4, card4 = netip.MustParseAddr("198.18.0.10"), netip.MustParseAddr("198.18.0.80"), netip.MustParseAddr("198.18.1.11"), netip.MustParseAddr("198.18.1.1")
	client6, vip6, server6, card6 = netip.MustParseAddr("2001:db8::10"), netip.MustParseAddr("2001:db8::80"), netip.MustParseAddr("2001:db8:1::11"), netip.MustParseAddr("2001:db8:1::1")
)

// ip puts an IP header before a payload, by another hand than what is tested.
func ip(t testing.TB, src, dst netip.Addr, proto layers.IPProtocol, dscp uint8, payload []byte) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	var l gopacket.SerializableLayer = &layers.IPv4{Version: 4, TTL: 64, TOS: dscp << 2, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	if src.Is6() {
		l = &layers.IPv6{Version: 6, HopLimit: 64, TrafficClass: dscp << 2, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// udp is a whole datagram.
func udp(t testing.TB, src, dst netip.AddrPort, dscp uint8, payload []byte) []byte {
	t.Helper()
	u := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(u, src.Port())
	binary.BigEndian.PutUint16(u[2:], dst.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(payload)))
	u = append(u, payload...)
	seal(u[6:], u, src.Addr(), dst.Addr(), layers.IPProtocolUDP)
	return ip(t, src.Addr(), dst.Addr(), layers.IPProtocolUDP, dscp, u)
}

// seal stores a transport's checksum.
func seal(field, segment []byte, src, dst netip.Addr, proto layers.IPProtocol) {
	c := ^fold(sum(segment, pseudo(src.AsSlice(), dst.AsSlice(), byte(proto), len(segment))))
	if c == 0 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(field, c)
}

// number is the protocol of a packet in a tunnel.
func number(p []byte) layers.IPProtocol {
	if p[0]>>4 == 4 {
		return layers.IPProtocolIPv4
	}
	return layers.IPProtocolIPv6
}

// gre is a GRE packet with flags; where there is a checksum it is right.
func gre(flags uint16, inner []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, flags)
	ethertype := uint16(0x86dd)
	if inner[0]>>4 == 4 {
		ethertype = 0x0800
	}
	b = binary.BigEndian.AppendUint16(b, ethertype)
	for _, bit := range []uint16{0x8000, 0x2000, 0x1000} {
		if flags&bit != 0 {
			b = append(b, 0, 0, 0, 0)
		}
	}
	b = append(b, inner...)
	if flags&0x8000 != 0 {
		binary.BigEndian.PutUint16(b[4:], ^fold(sum(b, 0)))
	}
	return b
}

// gue is a datagram of GUE with a header of variant 0; covered: with a UDP checksum.
func gue(src, dst netip.Addr, covered bool, header, inner []byte) []byte {
	u := []byte{0xc0, 1, 6080 >> 8, 6080 & 255, 0, 0, 0, 0}
	u = append(append(u, header...), inner...)
	binary.BigEndian.PutUint16(u[4:], uint16(len(u)))
	if covered {
		seal(u[6:], u, src, dst, layers.IPProtocolUDP)
	}
	return u
}

// remote is a packet whose UDP checksum is left to the far end, and the GUE header that says so.
func remote(p []byte) (header, inner []byte) {
	o, _ := parse(p)
	inner = bytes.Clone(p)
	binary.BigEndian.PutUint16(inner[o.at+6:], fold(pseudo(o.src, o.dst, o.proto, len(o.payload))))
	return []byte{2, byte(number(p)), 0, 1, 0x80, 0, 0, 0, 0, byte(o.at), 0, byte(o.at + 6)}, inner
}

// A way is a kind of tunnel that the card has.
type way struct {
	name string
	kind func(inner []byte) Kind
	wrap func(t testing.TB, src, dst netip.Addr, inner []byte) []byte
}

func always(k Kind) func([]byte) Kind { return func([]byte) Kind { return k } }

var ways = []way{
	{"ipip", func(inner []byte) Kind {
		if inner[0]>>4 == 4 {
			return IPv4
		}
		return IPv6
	}, func(t testing.TB, src, dst netip.Addr, inner []byte) []byte {
		return ip(t, src, dst, number(inner), 0, inner)
	}},
	{"gre", always(GRE), func(t testing.TB, src, dst netip.Addr, inner []byte) []byte {
		return ip(t, src, dst, layers.IPProtocolGRE, 0, gre(0, inner))
	}},
	{"gre full", always(GREFull), func(t testing.TB, src, dst netip.Addr, inner []byte) []byte {
		return ip(t, src, dst, layers.IPProtocolGRE, 0, gre(0x8000, inner))
	}},
	{"gue", always(GUE), func(t testing.TB, src, dst netip.Addr, inner []byte) []byte {
		return ip(t, src, dst, layers.IPProtocolUDP, 0, gue(src, dst, false, []byte{0, byte(number(inner)), 0, 0}, inner))
	}},
	{"gue full", always(GUEFull), func(t testing.TB, src, dst netip.Addr, inner []byte) []byte {
		return ip(t, src, dst, layers.IPProtocolUDP, 0, gue(src, dst, true, []byte{0, byte(number(inner)), 0, 0}, inner))
	}},
	{"gue remote", always(GUERemote), func(t testing.TB, src, dst netip.Addr, inner []byte) []byte {
		header, inner := remote(inner)
		return ip(t, src, dst, layers.IPProtocolUDP, 0, gue(src, dst, true, header, inner))
	}},
	{"gue direct", always(GUEDirect), func(t testing.TB, src, dst netip.Addr, inner []byte) []byte {
		return ip(t, src, dst, layers.IPProtocolUDP, 0, gue(src, dst, true, nil, inner))
	}},
}

// TestOpen takes a datagram of each family and both parities of its length out of each tunnel over each family.
func TestOpen(t *testing.T) {
	for _, w := range ways {
		for _, o := range [][2]netip.Addr{{card4, server4}, {card6, server6}} {
			for _, i := range [][2]netip.Addr{{client4, vip4}, {client6, vip6}} {
				for _, payload := range []string{"even", "odd", ""} {
					inner := udp(t, netip.AddrPortFrom(i[0], 5000), netip.AddrPortFrom(i[1], 53), 0, []byte(payload))
					p := append(w.wrap(t, o[0], o[1], inner), 0, 0, 0) // padding of the link
					got, kind, reason := new(Rules).Open(p)
					if !bytes.Equal(got, inner) || kind != w.kind(inner) || reason != None {
						t.Errorf("%s, %v in %v, %q: %s %q\ngot  %x\nwant %x", w.name, i[1], o[1], payload, kind, reason, got, inner)
					}
				}
			}
		}
	}
}

func TestRefused(t *testing.T) {
	inner := udp(t, netip.AddrPortFrom(client4, 5000), netip.AddrPortFrom(vip4, 53), 0, []byte("question"))
	plain := func(proto layers.IPProtocol, payload []byte) []byte { return ip(t, card4, server4, proto, 0, payload) }
	inUDP := func(covered bool, header ...byte) []byte {
		return plain(layers.IPProtocolUDP, gue(card4, server4, covered, header, inner))
	}
	flip := func(p []byte, at int) []byte {
		if at < 0 {
			at += len(p)
		}
		p[at] ^= 0x10
		return p
	}
	fragment := func(p []byte, word uint16) []byte {
		binary.BigEndian.PutUint16(p[6:], word)
		p[10], p[11] = 0, 0
		binary.BigEndian.PutUint16(p[10:], ^fold(sum(p[:20], 0)))
		return p
	}
	header, body := remote(inner)
	for _, tt := range []struct {
		name string
		p    []byte
		want Reason
	}{
		{"nothing", nil, Short},
		{"no IP", []byte{0x50, 0, 0}, Foreign},
		{"a header that is cut", plain(4, inner)[:19], Short},
		{"an IPv6 header that is cut", ip(t, card6, server6, 4, 0, inner)[:39], Short},
		{"a packet that is cut", plain(4, inner)[:40], Short},
		{"TCP", plain(layers.IPProtocolTCP, make([]byte, 20)), Foreign},
		{"UDP to another port", udp(t, netip.AddrPortFrom(card4, 6080), netip.AddrPortFrom(server4, 53), 0, nil), Foreign},
		{"outer checksum", flip(plain(4, inner), 8), OuterHeader},
		{"first fragment", fragment(plain(4, inner), 0x2000), OuterFragment},
		{"last fragment of gre", fragment(plain(47, gre(0, inner)), 0x0010), OuterFragment},
		{"gre with a key", plain(47, gre(0x2000, inner)), GREKey},
		{"gre with a sequence number", plain(47, gre(0x1000, inner)), GRESequence},
		{"gre, version 1", plain(47, gre(1, inner)), GREVersion},
		{"gre with routing", plain(47, gre(0x4000, inner)), GREVersion},
		{"gre, bad checksum", flip(plain(47, gre(0x8000, inner)), -1), GREChecksum},
		{"gre, no room for its checksum", plain(47, []byte{0x80, 0, 8, 0, 1}), Short},
		{"gre of something else", plain(47, []byte{0, 0, 0x65, 0x58, 1, 2}), InnerProtocol},
		{"gre of nothing", plain(47, []byte{0, 0, 8, 0}), InnerProtocol},
		{"gue, bad UDP checksum", flip(inUDP(true, 0, 4, 0, 0), -1), UDPChecksum},
		{"gue, length beyond the packet", flip(inUDP(false, 0, 4, 0, 0), 24), UDPLength},
		{"gue, variant 2", inUDP(true, 0x80, 4, 0, 0), GUEVariant},
		{"gue, a control message", inUDP(true, 0x20, 4, 0, 0), GUEControl},
		{"gue, an unknown flag", inUDP(true, 0, 4, 0x80, 0), GUEFlags},
		{"gue, options without a flag", inUDP(true, 1, 4, 0, 0, 0, 0, 0, 0), GUEFlags},
		{"gue, private flags without their option", inUDP(true, 0, 4, 0, 1), GUEFlags},
		{"gue, an unknown private flag", inUDP(true, 1, 4, 0, 1, 0x40, 0, 0, 0), GUEFlags},
		{"gue, options beyond the packet", plain(17, gue(card4, server4, true, []byte{31, 4, 0, 0}, nil)), Short},
		{"gue of TCP", inUDP(true, 0, 6, 0, 0), InnerProtocol},
		{"gue of the other family", inUDP(true, 0, 41, 0, 0), InnerProtocol},
		{"gue of nothing", plain(17, gue(card4, server4, true, nil, nil)), Short},
		{"remote without a UDP checksum", plain(17, gue(card4, server4, false, header, body)), GUERemoteChecksum},
		{"remote, a field beyond the packet", plain(17, gue(card4, server4, true, append(slices.Clone(header[:10]), 0xff, 0xff), body)), GUERemoteChecksum},
		{"remote, a field before the beginning", plain(17, gue(card4, server4, true, append(slices.Clone(header[:10]), 0, 2), body)), GUERemoteChecksum},
		{"remote, a start beyond the packet", plain(17, gue(card4, server4, true, append(slices.Clone(header[:8]), 0x7f, 0, 0x7f, 2), body)), GUERemoteChecksum},
		{"remote, another field than UDP's", plain(17, gue(card4, server4, true, append(slices.Clone(header[:10]), 0, 30), body)), InnerChecksum},
		{"protocol 4 of IPv6", plain(4, udp(t, netip.AddrPortFrom(client6, 1), netip.AddrPortFrom(vip6, 1), 0, nil)), InnerProtocol},
		{"inner header's checksum", plain(4, flip(bytes.Clone(inner), 8)), InnerHeader},
		{"inner length", plain(4, inner[:len(inner)-1]), InnerHeader},
		{"inner UDP checksum", plain(4, flip(bytes.Clone(inner), -1)), InnerChecksum},
		{"inner TCP that is cut", plain(4, ip(t, client4, vip4, layers.IPProtocolTCP, 0, make([]byte, 10))), InnerHeader},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, kind, reason := new(Rules).Open(tt.p)
			if reason != tt.want || got != nil {
				t.Errorf("%q (%s), want %q; %d bytes", reason, kind, tt.want, len(got))
			}
		})
	}
}

// TestDSCP gives packets their VIP back; all checksums are right afterwards, and nothing else has changed.
func TestDSCP(t *testing.T) {
	r := &Rules{DSCP: map[uint8][]netip.Addr{10: {vip4, vip6}, 12: {vip6}}}
	for _, tt := range []struct {
		name             string
		client, to, want netip.Addr
		dscp             uint8
		reason           Reason
	}{
		{"IPv4", client4, server4, vip4, 10, None},
		{"IPv6", client6, server6, vip6, 10, None},
		{"another value", client4, server4, server4, 0, Foreign},
		{"a value of the other family", client4, server4, server4, 12, Foreign},
	} {
		for _, payload := range []string{"even", "odd"} {
			p := udp(t, netip.AddrPortFrom(tt.client, 5000), netip.AddrPortFrom(tt.to, 53), tt.dscp, []byte(payload))
			want := udp(t, netip.AddrPortFrom(tt.client, 5000), netip.AddrPortFrom(tt.want, 53), tt.dscp, []byte(payload))
			got, kind, reason := r.Open(p)
			if reason != tt.reason || reason == None && (kind != DSCP || !bytes.Equal(got, want)) {
				t.Errorf("%s: %s %q\ngot  %x\nwant %x", tt.name, kind, reason, got, want)
			}
		}
	}
	// Coalesced segments carry the sum of their pseudo-header only.
	for _, a := range [][3]netip.Addr{{client4, server4, vip4}, {client6, server6, vip6}} {
		segment := make([]byte, 4000)
		binary.BigEndian.PutUint16(segment[16:], fold(pseudo(a[0].AsSlice(), a[1].AsSlice(), protoTCP, len(segment))))
		p := ip(t, a[0], a[1], layers.IPProtocolTCP, 10, segment)
		o, _ := parse(p)
		restorePartial(p, &o, a[2])
		after, _ := parse(p)
		if got, want := binary.BigEndian.Uint16(after.payload[16:]), fold(pseudo(a[0].AsSlice(), a[2].AsSlice(), protoTCP, len(segment))); got != want || after.badHeader || !bytes.Equal(after.dst, a[2].AsSlice()) {
			t.Errorf("%v: pseudo-header's sum %#x, want %#x", a[2], got, want)
		}
	}
}

// FuzzOpen: whatever comes, there is a packet exactly where there is no reason, it is part of what came, and it is right.
func FuzzOpen(f *testing.F) {
	inner := udp(f, netip.AddrPortFrom(client4, 5000), netip.AddrPortFrom(vip4, 53), 0, []byte("question"))
	for _, w := range ways {
		f.Add(w.wrap(f, card4, server4, inner))
		f.Add(w.wrap(f, card6, server6, inner))
	}
	f.Add(udp(f, netip.AddrPortFrom(client6, 5000), netip.AddrPortFrom(server6, 53), 10, []byte("question")))
	r := &Rules{DSCP: map[uint8][]netip.Addr{10: {vip4, vip6}}}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) > 1<<16 {
			return
		}
		got, _, reason := r.Open(p)
		if (got == nil) != (reason != None) || len(got) > len(p) {
			t.Fatalf("%d bytes of %d, reason %q", len(got), len(p), reason)
		}
		if got == nil {
			return
		}
		if o, _ := parse(got); !o.fragment {
			if _, reason := check(got, got[0]>>4); reason != None {
				t.Fatalf("the packet is not right: %s\n%x", reason, got)
			}
		}
	})
}
