package daemon_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
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

// TestCaseC03: a segment that a tunnel makes too big is answered with an error that is no fragment itself, tells what the
// tunnel leaves of the MTU, and quotes the segment as the client sent it.
func TestCaseC03(t *testing.T) {
	for _, tt := range []struct {
		tunnel string
		mtu    uint32
	}{{"ipip", 1480}, {"gre", 1476}, {"gue, port: 6080", 1468}} {
		t.Run(tt.tunnel, func(t *testing.T) {
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
			sent := segmentOf(t, r.nets[0].mac, client, vip, layers.TCP{Seq: 1001, Ack: 5, ACK: true}, 1460)
			r.nets[0].send(bytes.Clone(sent))
			r.run(5 * time.Millisecond)
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
			for name, b := range map[string][]byte{"IP": ip.Contents, "ICMP": append(bytes.Clone(icmp.Contents), icmp.Payload...)} {
				s := uint32(0)
				for i := 0; i+1 < len(b); i += 2 {
					s += uint32(binary.BigEndian.Uint16(b[i:]))
				}
				if s = s>>16 + s&0xffff; s>>16+s&0xffff != 0xffff {
					t.Errorf("the %s checksum is wrong", name)
				}
			}
			if r.action("too_big") != 1 {
				t.Errorf("too_big is %d", r.action("too_big"))
			}
		})
	}
}

// TestCaseC05: with a service by nat, a server's port unreachable and a router's too big and time exceeded reach the client,
// who is shown its own packet to the VIP; the path is narrower for later clients; what nobody knows is dropped and counted.
func TestCaseC05(t *testing.T) {
	r := newRig(t, small)
	r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.10/32")}})
	r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.11/32")}})
	r.apply(base + `
services:
  - {name: dns, listen: [198.18.0.80:53], mode: nat, protocol: udp, default: dns}
  - {name: web, listen: [198.18.0.80:80], mode: nat, default: web}
groups:
  - {name: dns, servers: [{address: 198.18.1.11:5353}], check: {type: none}}
  - {name: web, servers: [{address: 198.18.1.11:8080}], check: {type: none}}
`)
	r.run(5 * time.Millisecond)
	p := &pair{rig: r}
	client := netip.MustParseAddrPort("198.18.0.10:40001")
	r.nets[0].record, r.nets[1].record = true, true
	for _, tt := range []struct {
		name       string
		sent       []byte
		kind, code uint8
		word       uint32
	}{
		{"port unreachable", datagramOf(t, r.nets[0].mac, client, netip.MustParseAddrPort("198.18.0.80:53"), []byte("query")), 3, 3, 0},
		{"too big", segmentOf(t, r.nets[0].mac, client, netip.MustParseAddrPort("198.18.0.80:80"), layers.TCP{Seq: 1000, SYN: true}, 1460), 3, 4, 1400},
		{"time exceeded", datagramOf(t, r.nets[0].mac, client, netip.MustParseAddrPort("198.18.0.80:53"), []byte("again")), 11, 0, 0},
	} {
		r.nets[0].frames, r.nets[1].frames = nil, nil
		r.nets[0].send(bytes.Clone(tt.sent))
		r.run(3 * time.Millisecond)
		if len(r.nets[1].frames) == 0 {
			t.Fatalf("%s: nothing at the server", tt.name)
		}
		at := ipOf(r.nets[1].frames[0])
		p.tell(1, tt.kind, tt.code, 0, tt.word, bytes.Clone(at), 8)
		r.run(3 * time.Millisecond)
		var got *layers.ICMPv4
		for _, f := range r.nets[0].frames {
			if i, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
				got = i
			}
		}
		if got == nil || got.TypeCode != layers.CreateICMPv4TypeCode(tt.kind, tt.code) || uint32(got.Seq) != tt.word || !bytes.Equal(got.Payload[12:28], ipOf(tt.sent)[12:28]) {
			t.Fatalf("%s: %v, sent % x", tt.name, got, ipOf(tt.sent)[:28])
		}
	}
	if n := r.action("path_mtu"); n != 1 {
		t.Errorf("path_mtu is %d", n)
	}
	stranger := bytes.Clone(ipOf(r.nets[1].frames[0]))
	stranger[21]++ // the client's port
	r.nets[0].frames = nil
	p.tell(1, 3, 3, 0, 0, stranger, 8)
	r.run(3 * time.Millisecond)
	if n := r.action("drop_icmp_unknown"); n != 1 || len(r.nets[0].frames) != 0 {
		t.Errorf("drop_icmp_unknown is %d, %d frames to the client", n, len(r.nets[0].frames))
	}
}
