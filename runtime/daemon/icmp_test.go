package daemon_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/runtime/view"
	"splicenic/tools/tcppeer"
)

// A land is a configuration with the addresses in it.
type land struct {
	config              string
	client, vip, server string
	vlans               [2]uint16
}

var lands = map[string]land{
	"IPv4": {edit4(web), "198.18.0.10", "198.18.0.80:80", "198.18.1.11:8080", [2]uint16{}},
	"IPv6": {strings.Replace(six, `8080"}]`, `8080"}], profile: {mss: 1440, wscale: 0, sack: true, timestamps: true}`, 1), "2001:db8:1::10", "[2001:db8:9::80]:80", "[2001:db8:2::11]:8080", [2]uint16{}},
	"tagged": {strings.NewReplacer("[198.18.0.1/24]", "[{address: 198.18.0.1/24, vlan: 7}]", "[198.18.1.1/24]", "[{address: 198.18.1.1/24, vlan: 9}]",
		", gateway: 198.18.0.254", "").Replace(edit4(web)), "198.18.0.10", "198.18.0.80:80", "198.18.1.11:8080", [2]uint16{7, 9}},
}

// edit4 has the default group's servers known, and only one of them.
func edit4(text string) string {
	text = text[:strings.Index(text, "    routes:")] + "    default: app\n" + text[strings.Index(text, "groups:"):]
	text = text[:strings.Index(text, "  - {name: static")]
	return strings.Replace(text, ", {address: 198.18.1.12:8080}]", "]\n    profile: {mss: 1460, wscale: 0, sack: true, timestamps: true}", 1)
}

// A pair is a client and a server whose connection the test drives.
type pair struct {
	*rig
	land
	c, s *tcppeer.Conn
	head string
}

// spliced opens a connection and sends its request.
func (r *rig) spliced(l land, head string) *pair {
	r.Helper()
	p := &pair{rig: r, land: l, head: head}
	from, server := netip.MustParseAddr(l.client), netip.MustParseAddrPort(l.server)
	host := func(side int, a netip.Addr, e func(*tcppeer.Conn, tcppeer.Event)) *tcppeer.Host {
		return r.host(side, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, VLAN: l.vlans[side], TimeWait: -1, SACK: true, Timestamps: true, Handle: e})
	}
	c := host(0, from, func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Established {
			c.Write([]byte(head))
		}
		if e == tcppeer.Reset {
			r.Errorf("the client was reset")
		}
	})
	s := host(1, server.Addr(), func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Established {
			p.s = c
		}
	})
	s.Listen(server.Port())
	r.apply(l.config)
	r.run(5 * time.Millisecond)
	var err error
	if p.c, err = c.Dial(r.now, netip.AddrPortFrom(from, 0), netip.MustParseAddrPort(l.vip)); err != nil {
		r.Fatal(err)
	}
	return p
}

func request(n int) string {
	h := "GET / HTTP/1.1\r\nHost: x\r\nX: "
	return h + strings.Repeat("x", n-len(h)-4) + "\r\n\r\n"
}

// deaf has the hosts of a side hear nothing until the returned function is called.
func (n *network) deaf() (hear func()) {
	n.lose = func([]byte) bool { return true }
	return func() { n.lose = nil }
}

// action is one of the runtime's counters.
func (r *rig) action(name string) uint64 {
	r.Helper()
	n, ok := r.d.Counters()["actions"].(view.Stats)[name].(uint64)
	if !ok {
		r.Fatalf("no counter %s", name)
	}
	return n
}

// ipOf is the IP packet of a frame, its padding cut off.
func ipOf(frame []byte) []byte {
	at := 14
	if frame[12] == 0x81 {
		at = 18
	}
	ip := frame[at:]
	if ip[0]>>4 == 4 {
		return ip[:binary.BigEndian.Uint16(ip[2:])]
	}
	return ip[:40+int(binary.BigEndian.Uint16(ip[4:]))]
}

func headerOf(ip []byte) int {
	if ip[0]>>4 == 4 {
		return 20
	}
	return 40
}

// isTCP says whether a frame carries TCP and nothing before it.
func isTCP(f []byte) bool {
	at, kind := 14, f[12:14]
	if kind[0] == 0x81 {
		at, kind = 18, f[16:18]
	}
	return kind[0] == 8 && kind[1] == 0 && f[at+9] == 6 || kind[0] == 0x86 && f[at+6] == 6
}

// lastData is the last frame that carries TCP payload.
func lastData(t *testing.T, frames [][]byte) []byte {
	t.Helper()
	for _, f := range slices.Backward(frames) {
		if !isTCP(f) {
			continue
		}
		if ip := ipOf(f); len(ip) > headerOf(ip)+int(ip[headerOf(ip)+12]>>4)*4 {
			return f
		}
	}
	t.Fatal("no segment with payload")
	return nil
}

// tell has a router behind a port send an ICMP error that quotes so many bytes behind the IP header of a packet.
func (p *pair) tell(side int, kind4, code4, kind6 uint8, word uint32, ip []byte, quote int) {
	p.Helper()
	h := headerOf(ip)
	quoted := ip[:min(h+quote, len(ip))]
	src, dst := netip.MustParseAddr("203.0.113.9").AsSlice(), slices.Clone(ip[12:16])
	kind := layers.EthernetTypeIPv4
	var all []gopacket.SerializableLayer
	if h == 20 {
		all = []gopacket.SerializableLayer{&layers.IPv4{Version: 4, TTL: 60, Protocol: 1, SrcIP: src, DstIP: dst},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind4, code4), Id: uint16(word >> 16), Seq: uint16(word)}, gopacket.Payload(quoted)}
	} else {
		kind = layers.EthernetTypeIPv6
		x := &layers.IPv6{Version: 6, HopLimit: 60, NextHeader: 58, SrcIP: netip.MustParseAddr("2001:db8:f::9").AsSlice(), DstIP: slices.Clone(ip[8:24])}
		i := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind6, 0)}
		i.SetNetworkLayerForChecksum(x)
		all = []gopacket.SerializableLayer{x, i, gopacket.Payload(append(binary.BigEndian.AppendUint32(nil, word), quoted...))}
	}
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0xdd, 0, 0, 0, 1}, DstMAC: p.nets[side].mac[:], EthernetType: kind}
	link := []gopacket.SerializableLayer{eth}
	if v := p.vlans[side]; v != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		link = append(link, &layers.Dot1Q{VLANIdentifier: v, Type: kind})
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append(link, all...)...); err != nil {
		p.Fatal(err)
	}
	p.nets[side].send(b.Bytes())
}

// errorsIn finds the ICMP errors in frames and returns what they quote.
func errorsIn(t *testing.T, frames [][]byte) (quotes [][]byte, words []uint32) {
	t.Helper()
	for _, f := range frames {
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
		if i, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok && i.TypeCode.Type() == 3 {
			quotes, words = append(quotes, i.Payload), append(words, uint32(i.Id)<<16|uint32(i.Seq))
		}
		if i, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok && i.TypeCode.Type() < 128 {
			quotes, words = append(quotes, i.Payload[4:]), append(words, binary.BigEndian.Uint32(i.Payload))
		}
	}
	return quotes, words
}

// sameSegment says whether a quote is of a segment as it was sent: addresses, ports and sequence number.
func sameSegment(quote, sent []byte) bool {
	h := headerOf(sent)
	from := map[int]int{20: 12, 40: 8}[h]
	return len(quote) >= h+8 && bytes.Equal(quote[from:h+8], sent[from:h+8])
}

// TestErrorsReachTheirEnd: an ICMP error about a segment of a splice reaches the end that sent it, which is shown its own
// segment, by eight bytes quoted as by all of it; one about no bytes in flight does not, and nothing ends the connection.
func TestErrorsReachTheirEnd(t *testing.T) {
	for name, l := range lands {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, small)
			p := r.spliced(l, request(100))
			r.until("splice", 5*time.Second, func() bool { return p.s != nil && len(p.s.Bytes()) == 100 })
			r.run(20 * time.Millisecond)
			for side, write := range []func(){ // the side whose network fails
				func() { p.s.Write(bytes.Repeat([]byte("d"), 3000)) },
				func() { p.c.Write(bytes.Repeat([]byte("u"), 3000)) },
			} {
				near, far := r.nets[side], r.nets[1-side]
				near.record, far.record, far.frames, far.sent, near.frames = true, true, nil, nil, nil
				hear := near.deaf()
				write()
				r.run(5 * time.Millisecond)
				lost, sent := lastData(t, near.frames), lastData(t, far.sent)
				counter := []string{"icmp_to_server", "icmp_to_client"}[side]
				for i, quote := range []int{8, 20, 1500} {
					far.frames = nil
					p.tell(side, 3, 1, 1, 0, ipOf(lost), quote)
					r.run(3 * time.Millisecond)
					quotes, _ := errorsIn(t, far.frames)
					if len(quotes) != 1 || !sameSegment(quotes[0], ipOf(sent)) {
						t.Fatalf("side %d, %d bytes: %d errors, quote\n% x, sent\n% x", side, quote, len(quotes), quotes, ipOf(sent)[:60])
					}
					if got := r.action(counter); got != uint64(i+1) {
						t.Errorf("side %d: %s is %d", side, counter, got)
					}
				}
				// Somebody who guesses.
				far.frames = nil
				before := r.action("drop_icmp_window")
				for _, off := range []uint32{1 << 20, 1 << 31, ^uint32(100_000)} {
					blind := slices.Clone(ipOf(lost))
					h := headerOf(blind)
					binary.BigEndian.PutUint32(blind[h+4:], binary.BigEndian.Uint32(blind[h+4:])+off)
					p.tell(side, 3, 3, 1, 0, blind, 8)
				}
				r.run(3 * time.Millisecond)
				if quotes, _ := errorsIn(t, far.frames); len(quotes) != 0 || r.action("drop_icmp_window") != before+3 {
					t.Errorf("side %d: %d errors about bytes that are not in flight passed, %d counted", side, len(quotes), r.action("drop_icmp_window")-before)
				}
				hear()
			}
			r.until("all bytes there", 10*time.Second, func() bool { return len(p.c.Bytes()) == 3000 && len(p.s.Bytes()) == 3100 })
		})
	}
}

// TestErrorsAboutNothing: an error about a connection that is not there goes nowhere, a flood of them is limited, and a
// connection beside is not disturbed.
func TestErrorsAboutNothing(t *testing.T) {
	r := newRig(t, small)
	l := lands["IPv4"]
	p := r.spliced(l, request(100))
	r.nets[0].record = true
	r.until("splice", 5*time.Second, func() bool { return p.s != nil && len(p.s.Bytes()) == 100 })
	p.s.Write([]byte("answer"))
	r.run(10 * time.Millisecond)
	ip := slices.Clone(ipOf(lastData(t, r.nets[0].frames)))
	binary.BigEndian.PutUint16(ip[22:], 1) // another client port
	r.nets[1].record = true
	for range 30 {
		for range 40 {
			p.tell(0, 3, 1, 1, 0, ip, 8)
		}
		r.run(time.Millisecond)
	}
	unknown, limited := r.action("drop_icmp_unknown"), r.action("drop_icmp_limited")
	if unknown+limited != 1200 || unknown < 100 || unknown > 200 {
		t.Errorf("%d unknown, %d limited, want 1200 together", unknown, limited)
	}
	if quotes, _ := errorsIn(t, r.nets[1].frames); len(quotes) != 0 {
		t.Errorf("%d errors passed", len(quotes))
	}
	p.c.Write([]byte("more"))
	r.until("more", 5*time.Second, func() bool { return len(p.s.Bytes()) == 104 })
}

// TestPathOfHeldBytes: where a router on the way to the server has no room for the request that the card holds, the card
// sends it in smaller segments, tells clients of larger ones and promises later clients less, for ten minutes.
func TestPathOfHeldBytes(t *testing.T) {
	for name, l := range lands {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, small)
			mtu, header := 700, 40
			if name == "IPv6" {
				mtu, header = 1300, 60
			}
			p := r.spliced(l, request(1400))
			// The router: it loses what is too big and says so.
			told := 0
			servers := r.nets[1]
			servers.lose = func(f []byte) bool {
				if !isTCP(f) || len(ipOf(f)) <= mtu {
					return false
				}
				if told++; told <= 2 {
					p.tell(1, 3, 4, 2, uint32(mtu), slices.Clone(ipOf(f)), 8)
				}
				return true
			}
			r.until("request at the server", 20*time.Second, func() bool { return p.s != nil && len(p.s.Bytes()) == 1400 })
			if string(p.s.Bytes()) != p.head {
				t.Error("the request differs")
			}
			if told == 0 || r.action("icmp_own") == 0 || r.action("path_mtu") != 1 || r.action("icmp_to_client") != 0 {
				t.Errorf("told %d times, icmp_own %d, path_mtu %d, icmp_to_client %d", told, r.action("icmp_own"), r.action("path_mtu"), r.action("icmp_to_client"))
			}
			_, e, ok := r.server(l.server)
			if !ok {
				t.Fatal("no server")
			}
			hopMTU := func() uint32 {
				var h regs.NextHopEntry
				h.Decode(r.entry(regs.MemNextHop, 0, e.RouteNextHop))
				return h.MacHiMtu
			}
			if got := hopMTU(); got != uint32(mtu) {
				t.Errorf("next_hop.mtu is %d, want %d", got, mtu)
			}
			// A segment of the client's that is too big does not go there any more: the card says so itself.
			told, r.nets[0].record, r.nets[0].frames, r.nets[0].sent = 0, true, nil, nil
			p.c.Write(bytes.Repeat([]byte("u"), 1400))
			r.run(5 * time.Millisecond)
			quotes, words := errorsIn(t, r.nets[0].frames)
			if len(quotes) != 1 || !sameSegment(quotes[0], ipOf(lastData(t, r.nets[0].sent))) || words[0] != uint32(mtu) || told != 0 {
				t.Errorf("%d errors (MTU %v) to the client, %d from the router", len(quotes), words, told)
			}
			if got := r.action("too_big"); got == 0 {
				t.Error("too_big is not counted")
			}
			// One that may be cut is.
			if name != "IPv6" {
				r.nets[0].alter = func(f []byte) [][]byte { return [][]byte{mayFragment(f)} }
				r.until("segment at the server", 10*time.Second, func() bool { return len(p.s.Bytes()) == 2800 })
				r.nets[0].alter = nil
				if cut := r.card.Load(regs.PortTxCut.At(1, regs.PortStride)); cut == 0 || told != 0 {
					t.Errorf("port.tx_cut is %d, the router told %d times", cut, told)
				}
			}
			// Later clients.
			promised := func() (mss uint16) {
				c := r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(l.client).Next(), netip.MustParseAddr(l.client).BitLen())}, VLAN: l.vlans[0], TimeWait: -1})
				conn, err := c.Dial(r.now, netip.AddrPortFrom(netip.MustParseAddr(l.client).Next(), 0), netip.MustParseAddrPort(l.vip))
				if err != nil {
					t.Fatal(err)
				}
				r.run(10 * time.Millisecond)
				mss, _, _, _, _ = conn.Options()
				conn.Abort()
				r.nets[0].hosts = r.nets[0].hosts[:len(r.nets[0].hosts)-1]
				return mss
			}
			if got := promised(); got != uint16(mtu-header) {
				t.Errorf("promised MSS %d, want %d", got, mtu-header)
			}
			r.pass(10 * time.Minute)
			if got := hopMTU(); got != 0 {
				t.Errorf("next_hop.mtu is %d ten minutes later", got)
			}
			if got := promised(); got != uint16(1500-header) {
				t.Errorf("promised MSS %d ten minutes later", got)
			}
		})
	}
}

// mayFragment clears DF.
func mayFragment(f []byte) []byte {
	f = slices.Clone(f)
	if ip := ipOf(f); isTCP(f) && ip[6]&0x40 != 0 {
		ip[6] &^= 0x40
		sum := uint32(binary.BigEndian.Uint16(ip[10:])) + 0x4000
		binary.BigEndian.PutUint16(ip[10:], uint16(sum+sum>>16))
	}
	return f
}

// pass lets much time pass, a tenth of a second a step.
func (r *rig) pass(d time.Duration) {
	r.Helper()
	for end := r.now + d; r.now < end; {
		r.now += 100 * time.Millisecond
		r.step()
	}
}

// TestErrorAboutOurSYN: a server that cannot be reached just now is tried again all the same.
func TestErrorAboutOurSYN(t *testing.T) {
	for name, l := range lands {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, small)
			p := r.spliced(l, request(100))
			lost := 0
			r.nets[1].lose = func(f []byte) bool {
				if !isTCP(f) || lost == 1 {
					return false
				}
				lost++
				p.tell(1, 3, 1, 1, 0, slices.Clone(ipOf(f)), 8)
				return true
			}
			r.until("request at the server", 10*time.Second, func() bool { return p.s != nil && len(p.s.Bytes()) == 100 })
			if lost != 1 || r.action("icmp_own") != 1 {
				t.Errorf("%d SYNs lost, icmp_own %d", lost, r.action("icmp_own"))
			}
		})
	}
}

// TestFragmentsThroughASplice: request and response arrive whole though every larger packet comes in fragments, out of order;
// fragments that overlap are lost, and come again.
func TestFragmentsThroughASplice(t *testing.T) {
	for name, l := range lands {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, small)
			id, spoiled := uint32(0), 0
			for _, n := range r.nets {
				n.alter = func(f []byte) [][]byte {
					if !isTCP(f) || len(ipOf(f)) < 300 {
						return [][]byte{f}
					}
					id++
					fs := inFragments(f, 256, id)
					slices.Reverse(fs)
					if spoiled == 0 { // the first packet is spoiled by a fragment that overlaps
						spoiled++
						return slices.Insert(fs, len(fs)-1, inFragments(f, 264, id)[1])
					}
					return fs
				}
			}
			p := r.spliced(l, request(3000))
			r.until("request at the server", 20*time.Second, func() bool { return p.s != nil && len(p.s.Bytes()) == 3000 })
			if string(p.s.Bytes()) != p.head {
				t.Error("the request differs")
			}
			answer := bytes.Repeat([]byte("0123456789"), 1000)
			p.s.Write(answer)
			r.until("answer at the client", 20*time.Second, func() bool { return len(p.c.Bytes()) == len(answer) })
			if !bytes.Equal(p.c.Bytes(), answer) {
				t.Error("the answer differs")
			}
			if r.action("reassembled") < 8 || r.action("drop_fragment_overlap") != 1 || r.action("drop_fragment") != 1 {
				t.Errorf("reassembled %d, overlap %d, other fragments %d", r.action("reassembled"), r.action("drop_fragment_overlap"), r.action("drop_fragment"))
			}
		})
	}
}

// inFragments cuts the IP packet of a frame into fragments of size bytes.
func inFragments(f []byte, size int, id uint32) (fs [][]byte) {
	ip := ipOf(f)
	link := f[:14]
	if f[12] == 0x81 {
		link = f[:18]
	}
	h := headerOf(ip)
	for at := 0; at < len(ip)-h; at += size {
		part := ip[h+at : min(h+at+size, len(ip))]
		more := h+at+len(part) < len(ip)
		b := slices.Concat(link, ip[:h])
		x := b[len(link):]
		if h == 20 {
			binary.BigEndian.PutUint16(x[2:], uint16(h+len(part)))
			binary.BigEndian.PutUint16(x[4:], uint16(id))
			field := uint16(at / 8)
			if more {
				field |= 0x2000
			}
			binary.BigEndian.PutUint16(x[6:], field)
			x[10], x[11] = 0, 0
			sum := uint32(0)
			for i := 0; i < h; i += 2 {
				sum += uint32(binary.BigEndian.Uint16(x[i:]))
			}
			sum = sum>>16 + sum&0xffff
			binary.BigEndian.PutUint16(x[10:], ^uint16(sum>>16+sum))
		} else {
			x[6] = 44
			binary.BigEndian.PutUint16(x[4:], uint16(8+len(part)))
			field := uint16(at)
			if more {
				field |= 1
			}
			b = append(b, 6, 0, byte(field>>8), byte(field))
			b = binary.BigEndian.AppendUint32(b, id)
		}
		fs = append(fs, append(b, part...))
	}
	return fs
}
