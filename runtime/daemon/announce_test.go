package daemon_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/tools/tcppeer"
)

// advertised are the neighbour advertisements for an address in frames: to whom, and their flags.
func advertised(t *testing.T, frames [][]byte, target string, mac [6]byte) (to []string, flags []uint8) {
	t.Helper()
	for _, f := range frames {
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
		na, ok := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
		if !ok || na.TargetAddress.String() != target {
			continue
		}
		ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		if ip.HopLimit != 255 || len(na.Options) != 1 || !bytes.Equal(na.Options[0].Data, mac[:]) || !bytes.Equal(f[6:12], mac[:]) {
			t.Errorf("advertisement %+v from %v", na, f[6:12])
		}
		to, flags = append(to, ip.DstIP.String()), append(flags, na.Flags)
	}
	return to, flags
}

// TestCaseC27: an IPv6 VIP is advertised to everybody with Override when its service starts and when another runtime takes
// over, and whoever asks for it, by multicast, by unicast or before taking it itself, is answered once.
func TestCaseC27(t *testing.T) {
	const override, solicited = 0x20, 0x40
	const vip = "2001:db8:1::80"
	r := newSuccession(t)
	near := r.nets[0]
	near.record = true
	text := strings.Replace(six, "2001:db8:9::80", vip, 1)
	for _, what := range []string{"start", "takeover"} {
		if what == "takeover" {
			r.attach()
		}
		near.frames = nil
		r.load(text)
		r.run(10 * time.Millisecond)
		to, flags := advertised(t, near.frames, vip, near.mac)
		if len(to) != 1 || to[0] != "ff02::1" || flags[0] != override {
			t.Fatalf("%s: advertised to %v with flags %x", what, to, flags)
		}
		r.run(5 * time.Second)
		near.frames = nil
		r.load(text) // the same again announces nothing
		for _, ask := range []struct {
			name, src, dst string
			option         bool
			to             string
			flags          uint8
		}{
			{"multicast", "2001:db8:1::9", "ff02::1:ff00:80", true, "2001:db8:1::9", solicited | override},
			{"unicast with a global source", "2001:db8:1::9", vip, false, "2001:db8:1::9", solicited | override},
			{"duplicate address detection", "::", "ff02::1:ff00:80", false, "ff02::1", override},
		} {
			near.frames = nil
			ns := &layers.ICMPv6NeighborSolicitation{TargetAddress: netip.MustParseAddr(vip).AsSlice()}
			if ask.option {
				ns.Options = layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: []byte{2, 0xaa, 0, 0, 0, 9}}}
			}
			ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: netip.MustParseAddr(ask.src).AsSlice(), DstIP: netip.MustParseAddr(ask.dst).AsSlice()}
			icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
			icmp.SetNetworkLayerForChecksum(ip)
			b := gopacket.NewSerializeBuffer()
			if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
				&layers.Ethernet{SrcMAC: []byte{2, 0xaa, 0, 0, 0, 9}, DstMAC: near.mac[:], EthernetType: layers.EthernetTypeIPv6}, ip, icmp, ns); err != nil {
				t.Fatal(err)
			}
			for side, want := range []int{1, 0} { // who asks at the servers' side is not answered
				r.nets[side].record, r.nets[side].frames = true, nil
				r.nets[side].send(bytes.Clone(b.Bytes()))
				r.run(5 * time.Millisecond)
				to, flags := advertised(t, r.nets[side].frames, vip, r.nets[side].mac)
				if len(to) != want || want == 1 && (to[0] != ask.to || flags[0] != ask.flags) {
					t.Errorf("%s, %s, side %d: answered to %v with flags %x", what, ask.name, side, to, flags)
				}
			}
		}
	}
}

// TestCaseC01: of a VIP with a service by dr, which its servers have too, the card answers each of 20 requests once, from the
// MAC address of its port, and nobody at the servers' side; what it passes on goes to a server's MAC address, each in turn, and
// is one hop older but else as it was sent, checksums right. That the servers keep quiet is theirs to do.
func TestCaseC01(t *testing.T) {
	r := newRig(t, small)
	r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.10/32")}})
	r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.11/32")}})
	r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.12/32")}})
	r.apply(base + `
services:
  - {name: web, listen: [198.18.0.80:80], mode: dr, default: app}
groups:
  - {name: app, scheduler: rr, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}], check: {type: none}}
`)
	r.run(4 * time.Second)
	asker := []byte{2, 0xaa, 0, 0, 0, 9}
	request := func(sender string) []byte {
		a := &layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
			SourceHwAddress: asker, SourceProtAddress: netip.MustParseAddr(sender).AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: []byte{198, 18, 0, 80}}
		b := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{}, &layers.Ethernet{SrcMAC: asker, DstMAC: bytes.Repeat([]byte{0xff}, 6), EthernetType: layers.EthernetTypeARP}, a); err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(b.Bytes())
	}
	for side, sender := range []string{"198.18.0.9", "198.18.1.9"} {
		n := r.nets[side]
		for i := range 20 {
			n.record, n.frames = true, nil
			n.send(request(sender))
			r.run(3 * time.Millisecond)
			replies := 0
			for _, f := range n.frames {
				a, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeARP).(*layers.ARP)
				if !ok || a.Operation != layers.ARPReply {
					continue
				}
				replies++
				if !bytes.Equal(a.SourceHwAddress, n.mac[:]) || !bytes.Equal(f[6:12], n.mac[:]) || !bytes.Equal(f[:6], asker) {
					t.Errorf("reply %+v", a)
				}
			}
			if replies != 1-side {
				t.Fatalf("side %d, request %d: %d replies", side, i, replies)
			}
		}
	}
	vip := netip.MustParseAddrPort("198.18.0.80:80")
	for i := range uint16(4) {
		client := netip.AddrPortFrom(netip.MustParseAddr("198.18.0.10"), 40001+i)
		want := [6]byte{2, 0xaa, 1, 0, 0, byte(1 + i%2)} // each server in turn
		for _, x := range []struct {
			tcp   layers.TCP
			bytes int
		}{{layers.TCP{Seq: 1000, SYN: true}, 0}, {layers.TCP{Seq: 1001, Ack: 5, ACK: true}, 0}, {layers.TCP{Seq: 1001, Ack: 5, ACK: true, PSH: true}, 700}} {
			sent := segmentOf(t, r.nets[0].mac, client, vip, x.tcp, x.bytes)
			r.nets[1].frames = nil
			r.nets[0].send(bytes.Clone(sent))
			r.run(3 * time.Millisecond)
			if len(r.nets[1].frames) != 1 {
				t.Fatalf("%d frames at the servers' side", len(r.nets[1].frames))
			}
			got := r.nets[1].frames[0]
			aged := bytes.Clone(sent) // one hop older, and nothing else
			ipOf(aged)[8]--
			aged = marked(aged, binary.BigEndian.Uint16(ipOf(sent)[4:]), binary.BigEndian.Uint16(ipOf(sent)[6:]))
			if [6]byte(got) != want || [6]byte(got[6:]) != r.nets[1].mac || !bytes.Equal(ipOf(got), ipOf(aged)) {
				t.Errorf("the servers' side gets % x, sent % x", got, sent)
			}
		}
	}
}
