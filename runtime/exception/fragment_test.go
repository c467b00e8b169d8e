package exception

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/runtime/exception/reassembly"
)

// wantDatagram puts the fragments of one datagram together and compares.
func wantDatagram(t *testing.T, sent []frame, port, mtu int, id uint32, src, dst string, data []byte) {
	t.Helper()
	tab := reassembly.New()
	for i, s := range sent {
		at, _ := networkAt(s.b)
		ip := s.b[at:]
		if s.port != port || len(ip) > mtu {
			t.Fatalf("fragment %d: %d bytes on port %d", i, len(ip), s.port)
		}
		f, ok := reassembly.Parse(ip)
		if !ok || f.ID != id || f.Src.String() != src || f.Dst.String() != dst {
			t.Fatalf("fragment %d: %+v", i, f)
		}
		w, v := tab.Add(reassembly.Place{}, s.b[:at], &f, 0)
		if v != reassembly.Complete {
			continue
		}
		p := gopacket.NewPacket(w.Frame(), layers.LayerTypeEthernet, gopacket.Default)
		if u, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP); !ok || !bytes.Equal(u.Payload, data) {
			t.Fatalf("the datagram differs: %v", p)
		}
		if i != len(sent)-1 {
			t.Fatalf("whole with fragment %d of %d", i, len(sent))
		}
		return
	}
	t.Fatalf("%d frames are no whole datagram", len(sent))
}

// udp is the IP packet of a datagram.
func udp(t testing.TB, src, dst netip.AddrPort, data []byte) []byte {
	t.Helper()
	u := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	if src.Addr().Is4() {
		ip := ip4(src.Addr().String(), dst.Addr().String(), layers.IPProtocolUDP)
		ip.Flags = 0
		return lay(t, 0, ip, u, gopacket.Payload(data))[14:][:28+len(data)]
	}
	return lay(t, 0, ip6(src.Addr().String(), dst.Addr().String(), layers.IPProtocolUDP), u, gopacket.Payload(data))[14:][:48+len(data)]
}

// pieces cuts an IP packet into frames.
func pieces(t testing.TB, ip []byte, mtu int, id uint32) (fs [][]byte) {
	t.Helper()
	if !reassembly.Cut(ip, mtu, id, func(part []byte) { fs = append(fs, layEther(part)) }) {
		t.Fatal("cannot be cut")
	}
	return fs
}

// TestCaseC19: a datagram to a VIP, or from a server, goes to the card in one piece whatever the order of its fragments,
// and what comes back leaves in fragments again; two clients with one identification are kept apart; a datagram whose
// first fragment is missing times out and is counted.
func TestCaseC19(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		data := bytes.Repeat([]byte("0123456789"), 300)
		id := uint32(0x1234)
		client, other := netip.MustParseAddrPort("192.0.2.10:40001"), netip.MustParseAddrPort("192.0.2.11:40001")
		vip, server := netip.MustParseAddrPort("198.51.100.80:80"), netip.MustParseAddrPort("198.18.1.11:80")
		if !four {
			id = 0xfedc1234
			client, other = netip.MustParseAddrPort("[2001:db8:c::10]:40001"), netip.MustParseAddrPort("[2001:db8:c::11]:40001")
			vip, server = netip.MustParseAddrPort("[2001:db8:51::80]:80"), netip.MustParseAddrPort("[2001:db8:2::11]:80")
		}
		for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}} {
			for _, side := range []int{clientSide, serverSide} {
				t.Run(fmt.Sprint(order, side), func(t *testing.T) {
					b := newBench(t, "off").quiet()
					packets := [][]byte{udp(t, client, vip, data), udp(t, other, vip, data)}
					out := udp(t, client, server, data)
					if side == serverSide {
						packets = [][]byte{udp(t, server, client, data), udp(t, server, other, data)}
						out = udp(t, vip, client, data)
					}
					for _, n := range order {
						for _, ip := range packets {
							b.give(side, regs.ExceptionReasonReasonFragment, pieces(t, ip, 1300, id)[n])
						}
					}
					b.wantCount(Reassembled, 2)
					b.wantCount(FragmentKept, 4)
					if len(b.backs) != 2 || len(b.sent) != 0 || b.cookies[0] != id || b.cookies[1] != id {
						t.Fatalf("%d came together, cookies %x", len(b.backs), b.cookies)
					}
					for i, x := range b.backs {
						if x.port != side || !bytes.Equal(x.b, layEther(packets[i])) {
							t.Errorf("datagram %d at port %d differs:\n% x\n% x", i, x.port, x.b[:60], layEther(packets[i])[:60])
						}
					}
					// The card has translated the first.
					e := regs.ExceptionEntry{ControlPort: uint32(1 - side), ReasonReason: regs.ExceptionReasonReasonFragmented, Back: id}
					b.h.Handle(&e, layEther(out), b.now)
					src, dst := client.Addr(), server.Addr()
					if side == serverSide {
						src, dst = vip.Addr(), client.Addr()
					}
					wantDatagram(t, b.sent, 1-side, int(b.h.st.Ports[1-side].MTU), id, src.String(), dst.String(), data)
					b.wantCount(Fragmented, 1)
				})
			}
		}
		t.Run("no first fragment", func(t *testing.T) {
			b := newBench(t, "off").quiet()
			for _, f := range pieces(t, udp(t, client, vip, data), 1300, id)[1:] {
				b.give(0, regs.ExceptionReasonReasonFragment, f)
			}
			for range 310 {
				b.advance(100 * time.Millisecond)
			}
			if n := b.h.Counters()[DropFragmentExpired]; n != 1 || len(b.backs) != 0 {
				t.Errorf("%d expired, %d came together", n, len(b.backs))
			}
		})
		t.Run("overlap", func(t *testing.T) {
			b := newBench(t, "off").quiet()
			fs := pieces(t, udp(t, client, vip, data), 1300, id)
			fs = append(fs[:1:1], pieces(t, udp(t, client, vip, data), 1200, id)[1], fs[1], fs[2])
			for _, f := range fs {
				b.give(0, regs.ExceptionReasonReasonFragment, f)
			}
			b.wantCount(DropFragmentOverlap, 1)
			b.wantCount(DropFragment, 2)
			if len(b.backs) != 0 {
				t.Error("came together")
			}
		})
		t.Run("path", func(t *testing.T) { // a narrow path to the server
			b := newBench(t, "off").quiet()
			p := b.pair(four, [2]uint16{})
			b.h.paths.mtu[p.conn.Servers[0].Hop] = path{1288, time.Hour}
			e := regs.ExceptionEntry{ControlPort: 1, ReasonReason: regs.ExceptionReasonReasonFragmented, Back: id}
			b.h.Handle(&e, layEther(udp(t, client, server, data)), b.now)
			wantDatagram(t, b.sent, 1, 1288, id, client.Addr().String(), server.Addr().String(), data)
		})
		t.Run("of no connection", func(t *testing.T) { // what a server says by another port is routed
			b := newBench(t, "routed").quiet()
			gateway := "198.18.0.254"
			if !four {
				gateway = "2001:db8:1::fe"
			}
			b.resolve(0, gateway)
			b.sent = nil
			from := netip.AddrPortFrom(server.Addr(), 5353)
			for _, f := range pieces(t, udp(t, from, client, data), 1300, id) {
				b.give(1, regs.ExceptionReasonReasonFragment, f)
			}
			if len(b.backs) != 0 || len(b.sent) != 3 {
				t.Fatalf("%d to the card, %d sent: %v", len(b.backs), len(b.sent), b.counted())
			}
			if !four {
				id = b.h.fragmentID
			}
			wantDatagram(t, b.sent, 0, 1500, id, server.Addr().String(), client.Addr().String(), data)
		})
	})
}

// TestTooBigMayBeCut: a packet of a connection that is too big on its way out and may be cut goes through the card again,
// to come back and be cut.
func TestTooBigMayBeCut(t *testing.T) {
	b := newBench(t, "off").quiet()
	p := b.pair(true, [2]uint16{})
	ip := segment(t, p.client, p.vip, 1, 1, 1450-40)
	ip[6] = 0
	ip[10], ip[11] = 0, 0
	sum := ^uint16(reassembly.Sum(ip[:20], 0))
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	e := regs.ExceptionEntry{ReasonReason: regs.ExceptionReasonReasonTooBig, HandleN: 7}
	b.h.Handle(&e, layEther(ip), b.now)
	if len(b.backs) != 1 || !bytes.Equal(b.backs[0].b, layEther(ip)) || b.cookies[0] != 0x1234 || len(b.sent) != 0 {
		t.Errorf("%d back, %d sent: %v", len(b.backs), len(b.sent), b.counted())
	}
}

// FuzzBack: whatever comes back leaves in frames that fit, or is counted.
func FuzzBack(f *testing.F) {
	a, c := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("198.18.0.80:80")
	f.Add(layEther(udp(f, a, c, make([]byte, 3000))))
	f.Add(layEther(udp(f, netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:2"), make([]byte, 3000))))
	f.Add(lay(f, 7, arp(layers.ARPRequest, peerMAC, "198.18.0.9", "198.18.0.1")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		x := newBench(t, "off")
		x.h.counters = [reasons]uint64{}
		e := regs.ExceptionEntry{ReasonReason: regs.ExceptionReasonReasonFragmented, Back: 7}
		x.h.Handle(&e, slices.Clone(b), 0)
		for _, s := range x.sent {
			if at, _ := networkAt(s.b); len(s.b)-at > 1500 {
				t.Fatalf("%d bytes", len(s.b))
			}
		}
		if len(x.sent) == 0 && x.h.counters == [reasons]uint64{} {
			t.Fatal("lost without a count")
		}
	})
}
