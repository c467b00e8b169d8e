package daemon_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
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
  - {name: app, scheduler: rr, servers: [%s], check: {type: none}}
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

// A whole is a datagram that was put together, and where all of its fragments went.
type whole struct {
	*layers.UDP
	to  netip.Addr
	mac [6]byte
}

// together puts the fragments in frames together, by source, and checks each datagram's checksum and that its fragments
// went one way.
func together(t *testing.T, frames [][]byte) map[netip.AddrPort]whole {
	t.Helper()
	parts := map[netip.Addr][]byte{}
	way := map[netip.Addr]whole{}
	found := map[netip.AddrPort]whole{}
	for _, f := range frames {
		if f[12] != 8 || f[13] != 0 || f[23] != 17 {
			continue
		}
		ip := ipOf(f)
		src := netip.AddrFrom4([4]byte(ip[12:]))
		field := binary.BigEndian.Uint16(ip[6:])
		if len(ip) > 1500 || field&0x4000 != 0 || binary.BigEndian.Uint16(ip[4:]) != 0x1234 || int(field&0x1fff)*8 != len(parts[src]) {
			t.Fatalf("fragment of %d bytes: % x", len(ip), ip[:20])
		}
		to := whole{to: netip.AddrFrom4([4]byte(ip[16:])), mac: [6]byte(f)}
		if was, begun := way[src]; begun && was != to {
			t.Errorf("a fragment from %v goes to %v, %x, the one before to %v, %x", src, to.to, to.mac, was.to, was.mac)
		}
		way[src] = to
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
		to.UDP = u
		if _, twice := found[netip.AddrPortFrom(src, uint16(u.SrcPort))]; twice {
			t.Errorf("two datagrams from %v", src)
		}
		found[netip.AddrPortFrom(src, uint16(u.SrcPort))] = to
		delete(parts, src)
		delete(way, src)
	}
	if len(parts) != 0 {
		t.Errorf("incomplete: %d", len(parts))
	}
	return found
}

// TestCaseC19: datagrams of 3,000 bytes in three fragments, in any order, of two clients at a time with one identification, by
// nat and dr: all pieces reach one server, whose turn it is, translated, and make a datagram with a right checksum; with nat so
// does the answer. A server that is taken out while the pieces of a datagram arrive still gets that of a client it has, whole,
// and nothing of anybody else. One whose first piece is missing times out and is counted.
func TestCaseC19(t *testing.T) {
	for _, tt := range []struct {
		mode string
		port uint16 // of the servers
	}{{"nat", 6000}, {"dr", 5000}} {
		for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}} {
			t.Run(fmt.Sprint(tt.mode, order), func(t *testing.T) { inPieces(t, tt.mode, tt.port, order) })
		}
	}
}

func inPieces(t *testing.T, mode string, port uint16, order []int) {
	r := newRig(t, small)
	vip := netip.MustParseAddrPort("198.18.0.80:5000")
	var clients []netip.AddrPort
	for n := range 8 {
		clients = append(clients, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(10 + n)}), 40001))
		r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(clients[n].Addr(), 32)}})
	}
	var servers []netip.Addr
	var list []string
	for n := range 3 {
		servers = append(servers, netip.AddrFrom4([4]byte{198, 18, 1, byte(11 + n)}))
		list = append(list, fmt.Sprintf("{address: %s}", netip.AddrPortFrom(servers[n], port)))
		r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(servers[n], 32)}})
	}
	r.apply(fmt.Sprintf(datagrams, mode, strings.Join(list, ", ")))
	r.run(5 * time.Millisecond)
	r.nets[0].record, r.nets[1].record = true, true

	data := func(c int) []byte { return bytes.Repeat([]byte{'a' + byte(c), 'b', 'c'}, 1000) }
	pieces := func(c int) [][]byte {
		return inFragments(datagramOf(t, r.nets[0].mac, clients[c], vip, data(c)), 1200, 0x1234)
	}
	// at is the server that got a client's datagram.
	at := func(c int, got map[netip.AddrPort]whole) int {
		t.Helper()
		u, ok := got[clients[c]]
		if !ok || !bytes.Equal(u.Payload, data(c)) || uint16(u.DstPort) != port {
			t.Fatalf("client %d: %v of %d datagrams; reassembled %d, fragmented %d", c, u, len(got), r.action("reassembled"), r.action("fragmented"))
		}
		for i, a := range servers {
			if u.mac == [6]byte{2, 0xaa, 1, 0, 0, byte(i + 1)} && (mode == "nat" && u.to == a || mode == "dr" && u.to == vip.Addr()) {
				return i
			}
		}
		t.Fatalf("client %d: the datagram goes to %v, %x", c, u.to, u.mac)
		return 0
	}
	served := map[int]int{} // by client
	share := map[int]int{}
	for c := 0; c < 6; c += 2 {
		r.nets[1].frames = nil
		two := [][][]byte{pieces(c), pieces(c + 1)}
		for _, n := range order {
			for _, p := range two {
				r.nets[0].send(p[n])
			}
		}
		r.run(20 * time.Millisecond)
		got := together(t, r.nets[1].frames)
		if len(got) != 2 {
			t.Errorf("%d datagrams", len(got))
		}
		for _, c := range []int{c, c + 1} {
			served[c] = at(c, got)
			share[served[c]]++
		}
		if mode != "nat" {
			continue
		}
		r.nets[0].frames = nil
		for _, n := range order {
			for _, c := range []int{c, c + 1} {
				r.nets[1].send(inFragments(datagramOf(t, r.nets[1].mac, netip.AddrPortFrom(servers[served[c]], port), clients[c], data(c)), 1200, 0x1234)[n])
			}
		}
		r.run(20 * time.Millisecond)
		for _, c := range []int{c, c + 1} { // both come from the VIP
			to := slices.DeleteFunc(slices.Clone(r.nets[0].frames), func(f []byte) bool { return netip.AddrFrom4([4]byte(f[30:])) != clients[c].Addr() })
			u, ok := together(t, to)[vip]
			if !ok || !bytes.Equal(u.Payload, data(c)) || uint16(u.DstPort) != clients[c].Port() {
				t.Errorf("the answer to client %d: %v", c, u)
			}
		}
	}
	if share[0] != 2 || share[1] != 2 || share[2] != 2 {
		t.Errorf("datagrams by server: %v, want two each", share)
	}

	// The first server leaves between the pieces of a client it has and of one that is new.
	old, fresh := 0, 6
	for served[old] != 0 {
		old++
	}
	r.nets[1].frames = nil
	two := [][][]byte{pieces(old), pieces(fresh)}
	for i, n := range order {
		if i == 2 {
			r.run(5 * time.Millisecond)
			r.apply(fmt.Sprintf(datagrams, mode, strings.Join(list[1:], ", ")))
		}
		for _, p := range two {
			r.nets[0].send(p[n])
		}
	}
	r.run(20 * time.Millisecond)
	got := together(t, r.nets[1].frames)
	if n := at(old, got); n != 0 {
		t.Errorf("the client of the first server is at server %d", n)
	}
	if n := at(fresh, got); n == 0 {
		t.Error("a new client is at the server that was taken out")
	}

	r.nets[1].frames = nil
	p := pieces(7)
	r.nets[0].send(p[1])
	r.nets[0].send(p[2])
	r.pass(31 * time.Second)
	if n := r.action("drop_fragment_expired"); n != 1 {
		t.Errorf("%d expired, want 1", n)
	}
	if got := together(t, r.nets[1].frames); len(got) != 0 {
		t.Errorf("%d datagrams without a first piece", len(got))
	}
}
