package daemon_test

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

	"splicenic/tools/tcppeer"
)

// segmentOf is a frame with a TCP segment that may not be cut.
func segmentOf(t *testing.T, dstMAC [6]byte, from, to netip.AddrPort, tcp layers.TCP, n int) []byte {
	t.Helper()
	tcp.SrcPort, tcp.DstPort, tcp.Window = layers.TCPPort(from.Port()), layers.TCPPort(to.Port()), 512
	ip := &layers.IPv4{Version: 4, TTL: 64, Id: 0x1234, Protocol: 6, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice(), Flags: layers.IPv4DontFragment}
	tcp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: []byte{2, 0xaa, 0, 0, 0, 1}, DstMAC: dstMAC[:], EthernetType: layers.EthernetTypeIPv4}, ip, &tcp, gopacket.Payload(bytes.Repeat([]byte{'x'}, n))); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}

// marked is a frame whose IPv4 packet has another identification, and other flags and fragment offset.
func marked(frame []byte, id, fragment uint16) []byte {
	frame = bytes.Clone(frame)
	ip := ipOf(frame)
	binary.BigEndian.PutUint16(ip[4:], id)
	binary.BigEndian.PutUint16(ip[6:], fragment)
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^folded(ip[:20]))
	return frame
}

// folded is the ones' complement sum of bytes: all ones where a right checksum is among them.
func folded(b []byte) uint16 {
	s := uint32(0)
	for i, x := range b {
		s += uint32(x) << (8 * (1 - i&1))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// TestCaseC03: a segment that a tunnel makes too big is answered with an error that is no fragment itself, whatever the
// segment's identification and flags, tells what the tunnel leaves of the MTU, and quotes the segment as the client sent it.
// Where the segment may be cut there is no error: all of it arrives.
func TestCaseC03(t *testing.T) {
	const df = 0x4000
	for _, tt := range []struct {
		tunnel       string
		mtu          uint32
		id, fragment uint16 // of the segment
	}{
		{"ipip", 1480, 0, df}, {"ipip", 1480, 0x1234, df}, {"ipip", 0, 0x1234, 0},
		{"gre", 1476, 0, df}, {"gre", 1476, 0x1234, df}, {"gre", 0, 0x1234, 0},
		{"gue, port: 6080", 1468, 0, df}, {"gue, port: 6080", 1468, 0x1234, df}, {"gue, port: 6080", 0, 0x1234, 0},
	} {
		t.Run(fmt.Sprintf("%s, identification %#x, fragment field %#x", tt.tunnel, tt.id, tt.fragment), func(t *testing.T) {
			r := newRig(t, small)
			r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.10/32")}})
			r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.11/32")}})
			r.apply(fmt.Sprintf(base+`
services:
  - {name: web, listen: [198.18.0.80:80], mode: tun, default: app}
groups:
  - {name: app, tunnel: {type: %s}, servers: [{address: 198.18.1.11:80}], check: {type: none}}
`, tt.tunnel))
			r.run(5 * time.Millisecond)
			client, vip := netip.MustParseAddrPort("198.18.0.10:40001"), netip.MustParseAddrPort("198.18.0.80:80")
			r.nets[0].record, r.nets[1].record = true, true
			r.nets[0].send(segmentOf(t, r.nets[0].mac, client, vip, layers.TCP{Seq: 1000, SYN: true}, 0))
			r.nets[0].send(segmentOf(t, r.nets[0].mac, client, vip, layers.TCP{Seq: 1001, Ack: 5, ACK: true}, 0))
			r.run(5 * time.Millisecond)
			if n := len(r.nets[1].frames); n != 2 {
				t.Fatalf("%d frames at the server", n)
			}
			sent := marked(segmentOf(t, r.nets[0].mac, client, vip, layers.TCP{Seq: 1001, Ack: 5, ACK: true}, 1460), tt.id, tt.fragment)
			if n := len(ipOf(sent)); n != 1500 {
				t.Fatalf("the segment has %d bytes", n)
			}
			r.nets[0].send(bytes.Clone(sent))
			r.run(5 * time.Millisecond)
			if tt.mtu == 0 {
				n := 0 // bytes beside headers
				for _, f := range r.nets[1].frames[2:] {
					if n += len(f) - len(bytes.TrimRight(f, "x")); len(ipOf(f)) > 1500 {
						t.Errorf("%d bytes to the server", len(ipOf(f)))
					}
				}
				if len(r.nets[0].frames) != 0 || n != 1460 || r.action("too_big") != 0 {
					t.Errorf("%d frames to the client, %d bytes to the server, too_big %d", len(r.nets[0].frames), n, r.action("too_big"))
				}
				return
			}
			if len(r.nets[0].frames) != 1 || len(r.nets[1].frames) != 2 {
				t.Fatalf("%d frames to the client, %d to the server", len(r.nets[0].frames), len(r.nets[1].frames))
			}
			p := gopacket.NewPacket(r.nets[0].frames[0], layers.LayerTypeEthernet, gopacket.Default)
			ip, icmp := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4), p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
			if ip.Flags&layers.IPv4MoreFragments != 0 || ip.FragOffset != 0 || !ip.SrcIP.Equal(vip.Addr().AsSlice()) || !ip.DstIP.Equal(client.Addr().AsSlice()) {
				t.Errorf("IP header %+v", ip)
			}
			if icmp.TypeCode != layers.CreateICMPv4TypeCode(3, 4) || uint32(icmp.Id)<<16|uint32(icmp.Seq) != tt.mtu {
				t.Errorf("%v, MTU %d, want %d", icmp.TypeCode, icmp.Seq, tt.mtu)
			}
			if quoted := icmp.Payload; len(quoted) < 28 || !bytes.Equal(quoted, ipOf(sent)[:len(quoted)]) {
				t.Errorf("quotes % x", quoted)
			}
			if folded(ip.Contents) != 0xffff || folded(ip.Payload) != 0xffff {
				t.Errorf("a checksum is wrong: % x", r.nets[0].frames[0])
			}
			if r.action("too_big") != 1 {
				t.Errorf("too_big is %d", r.action("too_big"))
			}
		})
	}
}

// TestCaseC05: with a service by nat, a server's port unreachable and a router's too big and time exceeded reach the client,
// who is shown its own packet to the VIP, all that was quoted of it and every checksum right; the path is narrower for later
// clients; what nobody knows is dropped and counted.
func TestCaseC05(t *testing.T) {
	for _, quote := range []int{8, 1000} {
		t.Run(fmt.Sprint(quote, " bytes behind the header"), func(t *testing.T) { errorsBehindNAT(t, quote) })
	}
}

func errorsBehindNAT(t *testing.T, quote int) {
	r := newRig(t, small)
	r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.10/32")}})
	r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.11/32")}})
	r.apply(edit(t, base, "forward: routed", "forward: off") + `
services:
  - {name: dns, listen: [198.18.0.80:53], mode: nat, protocol: udp, default: dns}
  - {name: web, listen: [198.18.0.80:80], mode: nat, default: web}
groups:
  - {name: dns, servers: [{address: 198.18.1.11:5353}], check: {type: none}}
  - {name: web, servers: [{address: 198.18.1.11:8080}], check: {type: none}}
`)
	r.run(5 * time.Millisecond)
	client := netip.MustParseAddrPort("198.18.0.10:40001")
	dns, web := netip.MustParseAddrPort("198.18.0.80:53"), netip.MustParseAddrPort("198.18.0.80:80")
	server, router := netip.MustParseAddr("198.18.1.11"), netip.MustParseAddr("203.0.113.9")
	// tell sends an ICMP error about a packet at the servers' side.
	tell := func(from netip.Addr, kind, code uint8, word uint32, at []byte) {
		b := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: []byte{2, 0xdd, 0, 0, 0, 1}, DstMAC: r.nets[1].mac[:], EthernetType: layers.EthernetTypeIPv4},
			&layers.IPv4{Version: 4, TTL: 60, Protocol: 1, SrcIP: from.AsSlice(), DstIP: bytes.Clone(at[12:16])},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, code), Id: uint16(word >> 16), Seq: uint16(word)}, gopacket.Payload(at[:min(20+quote, len(at))])); err != nil {
			t.Fatal(err)
		}
		r.nets[1].send(b.Bytes())
		r.run(3 * time.Millisecond)
	}
	r.nets[0].record, r.nets[1].record = true, true
	var at []byte
	for _, tt := range []struct {
		name       string
		sent       []byte
		from, seen netip.Addr // of the error
		kind, code uint8
		word       uint32
	}{
		{"port unreachable by the server", datagramOf(t, r.nets[0].mac, client, dns, []byte("query")), server, dns.Addr(), 3, 3, 0},
		{"too big by a router", segmentOf(t, r.nets[0].mac, client, web, layers.TCP{Seq: 1000, SYN: true}, 1460), router, router, 3, 4, 1400},
		{"time exceeded by a router", datagramOf(t, r.nets[0].mac, client, dns, []byte("again")), router, router, 11, 0, 0},
	} {
		r.nets[0].frames, r.nets[1].frames = nil, nil
		r.nets[0].send(bytes.Clone(tt.sent))
		r.run(3 * time.Millisecond)
		if len(r.nets[1].frames) == 0 {
			t.Fatalf("%s: nothing at the server", tt.name)
		}
		at = bytes.Clone(ipOf(r.nets[1].frames[0]))
		if netip.AddrFrom4([4]byte(at[16:])) != server {
			t.Fatalf("%s: the packet went to % d", tt.name, at[16:20])
		}
		tell(tt.from, tt.kind, tt.code, tt.word, at)
		r.nets[0].frames = slices.DeleteFunc(r.nets[0].frames, isTCP) // a server resets what it does not know
		if len(r.nets[0].frames) != 1 {
			t.Fatalf("%s: %d errors to the client", tt.name, len(r.nets[0].frames))
		}
		p := gopacket.NewPacket(r.nets[0].frames[0], layers.LayerTypeEthernet, gopacket.Default)
		ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		icmp, _ := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if icmp == nil || icmp.TypeCode != layers.CreateICMPv4TypeCode(tt.kind, tt.code) || uint32(icmp.Id)<<16|uint32(icmp.Seq) != tt.word {
			t.Fatalf("%s: %v", tt.name, p)
		}
		if !ip.SrcIP.Equal(tt.seen.AsSlice()) || !ip.DstIP.Equal(client.Addr().AsSlice()) {
			t.Errorf("%s: from %v to %v", tt.name, ip.SrcIP, ip.DstIP)
		}
		if folded(ip.Contents) != 0xffff || folded(ip.Payload) != 0xffff {
			t.Errorf("%s: a checksum is wrong: % x", tt.name, r.nets[0].frames[0])
		}
		// The packet as the client sent it, one hop older, as it is where the error comes from.
		want := bytes.Clone(ipOf(tt.sent))
		want[8]--
		want = ipOf(marked(append(make([]byte, 14), want...), binary.BigEndian.Uint16(want[4:]), binary.BigEndian.Uint16(want[6:])))
		if want = want[:min(20+quote, len(want))]; !bytes.Equal(icmp.Payload, want) {
			t.Errorf("%s: quotes\n% x, want\n% x", tt.name, icmp.Payload, want)
		}
	}
	if n := r.action("path_mtu"); n != 1 {
		t.Errorf("path_mtu is %d", n)
	}
	for _, stranger := range []struct {
		what    string
		at      int // byte of the quote
		counter string
	}{
		{"the client's port", 21, "drop_icmp_unknown"}, {"the client's address", 14, "drop_icmp_unknown"},
		{"the server's address", 19, "drop_forward_off"}, {"the server's port", 23, "drop_forward_off"}, {"a protocol", 9, "drop_forward_off"},
	} {
		quoted := bytes.Clone(at)
		quoted[stranger.at]++
		r.nets[0].frames = nil
		before := r.action(stranger.counter)
		tell(router, 3, 3, 0, quoted)
		if n := r.action(stranger.counter) - before; n != 1 || len(r.nets[0].frames) != 0 {
			t.Errorf("another %s: %s is %d, %d frames to the client", stranger.what, stranger.counter, n, len(r.nets[0].frames))
		}
	}
}
