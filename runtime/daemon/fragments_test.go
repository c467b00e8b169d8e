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

const datagrams = base + `
services:
  - {name: udp, listen: [198.18.0.80:5000], mode: %s, protocol: udp, default: app}
groups:
  - {name: app, servers: [{address: 198.18.1.11:%d}], check: {type: none}}
`

// datagramOf is a frame with a datagram that may be cut.
func datagramOf(t *testing.T, dstMAC [6]byte, from, to netip.AddrPort, data []byte) []byte {
	t.Helper()
	u := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
	ip := &layers.IPv4{Version: 4, TTL: 64, Id: 0x1234, Protocol: 17, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	u.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: []byte{2, 0xaa, 0, 0, 0, 1}, DstMAC: dstMAC[:], EthernetType: layers.EthernetTypeIPv4}, ip, u, gopacket.Payload(data)); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}

// together puts the fragments in frames together, by source, and checks each datagram's checksum.
func together(t *testing.T, frames [][]byte) map[netip.AddrPort]*layers.UDP {
	t.Helper()
	parts := map[netip.Addr][]byte{}
	found := map[netip.AddrPort]*layers.UDP{}
	for _, f := range frames {
		ip := ipOf(f)
		if f[12] != 8 || f[13] != 0 || ip[9] != 17 {
			continue
		}
		src := netip.AddrFrom4([4]byte(ip[12:]))
		field := binary.BigEndian.Uint16(ip[6:])
		if len(ip) > 1500 || field&0x4000 != 0 || binary.BigEndian.Uint16(ip[4:]) != 0x1234 || int(field&0x1fff)*8 != len(parts[src]) {
			t.Fatalf("fragment of %d bytes: % x", len(ip), ip[:20])
		}
		parts[src] = append(parts[src], ip[20:]...)
		if field&0x2000 != 0 {
			continue
		}
		b := parts[src]
		u := &layers.UDP{}
		if err := u.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
			t.Fatal(err)
		}
		s := uint32(len(b)) + 17
		for _, x := range [][]byte{ip[12:20], b} {
			for i := 0; i+1 < len(x); i += 2 {
				s += uint32(binary.BigEndian.Uint16(x[i:]))
			}
		}
		for s > 0xffff {
			s = s>>16 + s&0xffff
		}
		if s != 0xffff {
			t.Errorf("checksum of the datagram from %v is wrong", src)
		}
		found[netip.AddrPortFrom(src, uint16(u.SrcPort))] = u
		delete(parts, src)
	}
	if len(parts) != 0 {
		t.Errorf("incomplete: %d", len(parts))
	}
	return found
}

// TestCaseC19: a datagram of 3,000 bytes in three fragments, in any order, of two clients with one identification, by nat and
// dr: all pieces reach the server, translated, and make a datagram with a right checksum; with nat so does the answer. One
// whose first piece is missing times out and is counted.
func TestCaseC19(t *testing.T) {
	for _, tt := range []struct {
		mode string
		port int
		dst  string // as the server sees it
	}{{"nat", 6000, "198.18.1.11:6000"}, {"dr", 5000, "198.18.0.80:5000"}} {
		for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}} {
			t.Run(fmt.Sprint(tt.mode, order), func(t *testing.T) {
				r := newRig(t, small)
				vip := netip.MustParseAddrPort("198.18.0.80:5000")
				clients := []netip.AddrPort{netip.MustParseAddrPort("198.18.0.10:40001"), netip.MustParseAddrPort("198.18.0.11:40001")}
				for _, c := range clients {
					r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(c.Addr(), 32)}})
				}
				r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.11/32")}})
				r.apply(fmt.Sprintf(datagrams, tt.mode, tt.port))
				r.run(5 * time.Millisecond)
				data := [][]byte{bytes.Repeat([]byte("one"), 1000), bytes.Repeat([]byte("two"), 1000)}
				r.nets[0].record, r.nets[1].record = true, true
				var pieces [][][]byte
				for i, c := range clients {
					pieces = append(pieces, inFragments(datagramOf(t, r.nets[0].mac, c, vip, data[i]), 1200, 0x1234))
				}
				for _, n := range order {
					for _, p := range pieces {
						r.nets[0].send(slices.Clone(p[n]))
					}
				}
				r.run(20 * time.Millisecond)
				got := together(t, r.nets[1].frames)
				for i, c := range clients {
					u := got[c]
					if u == nil || !bytes.Equal(u.Payload, data[i]) || u.DstPort != layers.UDPPort(netip.MustParseAddrPort(tt.dst).Port()) {
						t.Fatalf("client %d: %v of %d datagrams; reassembled %d, fragmented %d", i, u, len(got), r.action("reassembled"), r.action("fragmented"))
					}
				}
				for _, f := range r.nets[1].frames {
					if ip := ipOf(f); f[12] == 8 && f[13] == 0 && ip[9] == 17 && netip.AddrFrom4([4]byte(ip[16:])) != netip.MustParseAddrPort(tt.dst).Addr() {
						t.Errorf("a fragment goes to % d", ip[16:20])
					}
				}
				if tt.mode == "nat" {
					r.nets[0].frames = nil
					for _, n := range order {
						r.nets[1].send(slices.Clone(inFragments(datagramOf(t, r.nets[1].mac, netip.MustParseAddrPort(tt.dst), clients[0], data[0]), 1200, 0x1234)[n]))
					}
					r.run(20 * time.Millisecond)
					if u := together(t, r.nets[0].frames)[vip]; u == nil || !bytes.Equal(u.Payload, data[0]) || uint16(u.DstPort) != clients[0].Port() {
						t.Errorf("the answer: %v", u)
					}
				}
				r.nets[0].send(slices.Clone(pieces[0][1]))
				r.pass(31 * time.Second)
				if n := r.action("drop_fragment_expired"); n != 1 {
					t.Errorf("%d expired, want 1", n)
				}
			})
		}
	}
}
