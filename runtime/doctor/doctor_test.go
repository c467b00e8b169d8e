package doctor

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/runtime/config"
	"splicenic/runtime/inet"
)

var (
	own4, own6 = netip.MustParsePrefix("198.18.1.1/24"), netip.MustParsePrefix("2001:db8:1::1/64")
	vip4, vip6 = netip.MustParseAddrPort("198.18.0.80:80"), netip.MustParseAddrPort("[2001:db8::80]:80")
	server4    = netip.MustParseAddr("198.18.1.11")
	server6    = netip.MustParseAddr("2001:db8:1::11")
	ourMAC     = MAC{2, 0, 0, 0, 0, 1}
	serverMAC  = MAC{2, 0, 0, 0, 0, 11}
	otherMAC   = MAC{2, 0, 0, 0, 0, 99}
)

func links() []Link {
	return []Link{
		{Port: 0, Name: "client port", MAC: MAC{2}, Own: []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("2001:db8::1/64")}},
		{Port: 1, VLAN: 5, Name: "server port VLAN 5", MAC: ourMAC, Own: []netip.Prefix{own4, own6}},
	}
}

// A host is what is behind the card's ports: one server, and who claims VIPs.
type host struct {
	claims map[string][]MAC // by port and address
	mtu    int              // of the path; zero: the port's
	says   bool             // a router says so
	mute   bool             // no echo
	answer func(inner *packetIn, server netip.Addr) []byte
	resets int
}

// world runs an examination with what is around it, every 10 ms, and returns what was found.
func world(t *testing.T, cfg Config, h *host) ([]Finding, time.Duration) {
	t.Helper()
	d := Start(cfg)
	give := func(port int, b []byte) { d.Deliver(port, b, 0) }
	for now := time.Duration(0); ; now += 10 * time.Millisecond {
		for _, p := range d.Step(now, nil) {
			if !p.To.IsValid() {
				h.asked(t, p, give)
				continue
			}
			h.sent(t, p, func(b []byte) {
				kind := uint16(etherIPv4)
				if b[0]>>4 == 6 {
					kind = etherIPv6
				}
				if !d.Deliver(1, ethernet(serverMAC, ourMAC, 5, kind, b), now) && h.answer == nil {
					t.Errorf("not taken: %x", b)
				}
			})
		}
		if d.Done() {
			return d.Result(), now
		}
		if now > time.Minute {
			t.Fatal("the examination does not end")
		}
	}
}

// asked answers who claims an address.
func (h *host) asked(t *testing.T, p Packet, give func(int, []byte)) {
	t.Helper()
	g := gopacket.NewPacket(p.Data, layers.LayerTypeEthernet, gopacket.Default)
	if e := g.ErrorLayer(); e != nil {
		t.Fatalf("a question that cannot be read: %v", e.Error())
	}
	if a, ok := g.Layer(layers.LayerTypeARP).(*layers.ARP); ok {
		target := netip.AddrFrom4([4]byte(a.DstProtAddress))
		for _, m := range h.claims[fmt.Sprint(p.Port, " ", target)] {
			b := slices.Clone(a.LayerContents())
			b[7] = 2
			copy(b[8:], m[:])
			copy(b[14:], a.DstProtAddress)
			copy(b[18:], a.SourceHwAddress)
			copy(b[24:], a.SourceProtAddress)
			give(p.Port, ethernet(m, MAC(a.SourceHwAddress), vlanOf(g), etherARP, b))
		}
		return
	}
	ns := g.Layer(layers.LayerTypeICMPv6NeighborSolicitation).(*layers.ICMPv6NeighborSolicitation)
	ip6 := g.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	target := netip.AddrFrom16([16]byte(ns.TargetAddress))
	asker := netip.AddrFrom16([16]byte(ip6.SrcIP))
	for _, m := range h.claims[fmt.Sprint(p.Port, " ", target)] {
		b := make([]byte, 32)
		b[0], b[4] = 136, 0x60
		copy(b[8:], target.AsSlice())
		b[24], b[25] = 2, 1
		copy(b[26:], m[:])
		binary.BigEndian.PutUint16(b[2:], ^uint16(inet.Sum(inet.Pseudo(target, asker, protocolICMP6, len(b)), b)))
		give(p.Port, ethernet(m, ourMAC, vlanOf(g), etherIPv6, inet.Layout(target, asker, protocolICMP6, 0, 255, b)))
	}
}

func vlanOf(g gopacket.Packet) uint16 {
	if tag, ok := g.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok {
		return tag.VLANIdentifier
	}
	return 0
}

// sent takes an IP packet to the server.
func (h *host) sent(t *testing.T, p Packet, give func([]byte)) {
	t.Helper()
	var q packetIn
	if !q.ip(p.Data) || q.cut {
		t.Fatalf("a packet that cannot be read: %x", p.Data)
	}
	router := netip.MustParseAddr("198.18.1.254")
	if !q.from.Is4() {
		router = netip.MustParseAddr("2001:db8:1::254")
	}
	if h.mtu != 0 && len(p.Data) > h.mtu {
		if h.says {
			give(tooBig(router, q.from, h.mtu, p.Data))
		}
		return
	}
	if q.protocol == protocolICMP4 || q.protocol == protocolICMP6 {
		if !q.intact() {
			t.Errorf("an echo with a wrong checksum: %x", p.Data)
		}
		if h.mute {
			return
		}
		b := slices.Clone(q.payload)
		b[0] = map[byte]byte{8: 0, 128: 129}[b[0]]
		give(icmp(q.to, q.from, b))
		return
	}
	in, server := q, p.To
	for {
		if in.protocol == protocolTCP {
			break
		}
		rest := in.payload
		switch in.protocol {
		case protocolGRE:
			n := 4
			if rest[0]&0x80 != 0 {
				if n = 8; uint16(inet.Sum(0, rest)) != 0xffff {
					t.Error("a wrong GRE checksum")
				}
			}
			rest = rest[n:]
		case protocolUDP:
			if c := binary.BigEndian.Uint16(rest[6:]); c != 0 && uint16(inet.Sum(inet.Pseudo(in.from, in.to, protocolUDP, len(rest)), rest)) != 0xffff {
				t.Error("a wrong UDP checksum")
			}
			rest = rest[12:]
		}
		in = packetIn{}
		if !in.ip(rest) || in.ttl != lastHop {
			t.Fatalf("what is in the tunnel cannot be read: %x", rest)
		}
	}
	if !in.intact() {
		t.Errorf("a segment with a wrong checksum: %x", in.payload)
	}
	if in.payload[13] == flagRST {
		h.resets++
		return
	}
	if h.answer != nil {
		if b := h.answer(&in, server); b != nil {
			give(b)
		}
	}
}

// icmp lays out an ICMP message.
func icmp(from, to netip.Addr, b []byte) []byte {
	protocol, s := uint8(protocolICMP4), uint32(0)
	if from.Is6() {
		protocol = protocolICMP6
		s = inet.Pseudo(from, to, protocol, len(b))
	}
	b[2], b[3] = 0, 0
	binary.BigEndian.PutUint16(b[2:], ^uint16(inet.Sum(s, b)))
	return inet.Layout(from, to, protocol, 0, inet.Hops, b)
}

func tooBig(from, to netip.Addr, mtu int, quoted []byte) []byte {
	b := append([]byte{3, 4, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}, quoted[:48]...)
	if from.Is6() {
		b[0], b[1] = 2, 0
	}
	return icmp(from, to, b)
}

// reply is a segment back from an address.
func reply(q *packetIn, from netip.Addr, flags uint8) []byte {
	b := q.payload
	f, to := netip.AddrPortFrom(from, binary.BigEndian.Uint16(b[2:])), netip.AddrPortFrom(q.from, binary.BigEndian.Uint16(b))
	return inet.Layout(from, q.from, protocolTCP, 0, inet.Hops, segment(f, to, q.from, 77, binary.BigEndian.Uint32(b[4:])+1, flags))
}

// one is a configuration with one server and one thing it has to have.
func one(x Target) Config {
	s := Server{Address: server4, Link: "server port VLAN 5", From: own4.Addr(), Hop: server4, MAC: serverMAC, Ready: true, MTU: 1500}
	if x.Service == "six" {
		s.Address, s.Hop, s.From = server6, server6, own6.Addr()
	}
	x.Service = "web"
	s.Targets = []Target{x}
	return Config{Links: links(), Servers: []Server{s}}
}

// TestServer has a server be well or ill in each way.
func TestServer(t *testing.T) {
	dr := Target{VIP: vip4, From: own4.Addr(), Method: config.DR}
	dr6 := Target{Service: "six", VIP: vip6, From: own6.Addr(), Method: config.DR}
	tun := func(x config.Tunnel) Target {
		return Target{VIP: vip4, From: own4.Addr(), Method: config.Tun, Tunnel: x}
	}
	six4 := Target{VIP: vip6, From: own6.Addr(), Method: config.Tun}
	gue := tun(config.Tunnel{Type: config.GUE, Port: 6080, Checksum: config.FullChecksum})
	gre := tun(config.Tunnel{Type: config.GRE, Checksum: config.FullChecksum})
	marked := tun(config.Tunnel{Type: config.DSCP, DSCP: 10})
	any4 := dr
	any4.Any = true
	by := func(flags uint8) func(*packetIn, netip.Addr) []byte {
		return func(q *packetIn, _ netip.Addr) []byte {
			vip := vip4.Addr()
			if q.from.Is6() {
				vip = vip6.Addr()
			}
			return reply(q, vip, flags)
		}
	}
	fromServer := func(flags uint8) func(*packetIn, netip.Addr) []byte {
		return func(q *packetIn, server netip.Addr) []byte { return reply(q, server, flags) }
	}
	says := func(kind, code uint8) func(*packetIn, netip.Addr) []byte {
		return func(q *packetIn, server netip.Addr) []byte {
			quoted := inet.Layout(q.from, q.to, protocolTCP, 0, 1, q.payload)
			return icmp(server, q.from, append([]byte{kind, code, 0, 0, 0, 0, 0, 0}, quoted...))
		}
	}
	outer := func(q *packetIn, server netip.Addr) []byte {
		quoted := inet.Layout(own4.Addr(), server, protocolIPv4, 0, 1, make([]byte, 8))
		return icmp(server, own4.Addr(), append([]byte{3, 2, 0, 0, 0, 0, 0, 0}, quoted...))
	}
	const add4, add6 = "ip addr add 198.18.0.80/32 dev lo", "ip -6 addr add 2001:db8::80/128 dev lo"
	for _, tt := range []struct {
		name   string
		target Target
		host   host
		status string
		number string
		why    string // a part of it
		do     string // likewise
		resets int
	}{
		{"well, dr", dr, host{answer: by(flagSYN | flagACK)}, OK, "SYN-ACK from 198.18.0.80:80", "", "", 1},
		{"well, dr, IPv6", dr6, host{answer: by(flagSYN | flagACK)}, OK, "SYN-ACK from [2001:db8::80]:80", "", "", 1},
		{"well, ipip", tun(config.Tunnel{}), host{answer: by(flagSYN | flagACK)}, OK, "SYN-ACK from 198.18.0.80:80", "", "", 1},
		{"well, 6 in 4", six4, host{answer: by(flagSYN | flagACK)}, OK, "SYN-ACK from [2001:db8::80]:80", "", "", 1},
		{"well, gue", gue, host{answer: by(flagSYN | flagACK)}, OK, "SYN-ACK from 198.18.0.80:80", "", "", 1},
		{"well, gre", gre, host{answer: by(flagSYN | flagACK)}, OK, "SYN-ACK from 198.18.0.80:80", "", "", 1},
		{"nobody listens", dr, host{answer: by(flagRST | flagACK)}, Fail, "RST from 198.18.0.80:80", "nobody listens", "ss -ltn", 0},
		{"nobody has to listen", any4, host{answer: by(flagRST | flagACK)}, OK, "RST from 198.18.0.80:80, which no TCP server has to listen on", "", "", 0},
		{"silent, dr", dr, host{}, Fail, "no answer to SYN", "lacks the VIP", add4, 1},
		{"silent, dr, IPv6", dr6, host{}, Fail, "no answer to SYN", "lacks the VIP", add6, 1},
		{"forwards", dr, host{answer: says(11, 0)}, Fail, "ICMP time exceeded from 198.18.1.11", "forwards what is for it", add4, 0},
		{"forwards, IPv6", dr6, host{answer: says(3, 0)}, Fail, "ICMP time exceeded from 2001:db8:1::11", "forwards what is for it", add6, 0},
		{"prohibited", dr, host{answer: says(3, 13)}, Fail, "ICMP administratively prohibited from 198.18.1.11", "does not reach the VIP", "firewall", 0},
		{"no tunnel", tun(config.Tunnel{}), host{answer: outer}, Fail, "ICMP protocol unreachable from 198.18.1.11", "no ipip tunnel", "modprobe ipip", 0},
		{"silent, tunnel end answers echo", tun(config.Tunnel{}), host{}, Fail, "no answer to SYN", "reverse path filter", "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.tunl0.rp_filter=0 (of the tunnel's interface); " + add4, 1},
		{"silent, nor echo", tun(config.Tunnel{}), host{mute: true}, Fail, "no answer to SYN", "may be down", add4, 1},
		{"DSCP not mapped", marked, host{answer: fromServer(flagRST | flagACK)}, Fail, "an answer from 198.18.1.11", "DSCP 10", "map DSCP 10 to 198.18.0.80", 0},
		{"DSCP not mapped, a listener", marked, host{answer: fromServer(flagSYN | flagACK)}, Fail, "an answer from 198.18.1.11", "DSCP 10", "map DSCP 10 to 198.18.0.80", 1},
		{"well, DSCP", marked, host{answer: by(flagSYN | flagACK)}, OK, "SYN-ACK from 198.18.0.80:80", "", "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, _ := world(t, one(tt.target), &tt.host)
			if len(found) != 2 {
				t.Fatalf("found %v, want two findings", found)
			}
			f := found[1]
			if f.Status != tt.status || f.Number != tt.number || !strings.Contains(f.Why, tt.why) || !strings.Contains(f.Do, tt.do) || tt.why == "" && f.Why+f.Do != "" {
				t.Errorf("found %+v", f)
			}
			if tt.host.resets != tt.resets {
				t.Errorf("%d RSTs, want %d", tt.host.resets, tt.resets)
			}
		})
	}
}

// TestPath has paths of all kinds.
func TestPath(t *testing.T) {
	for _, tt := range []struct {
		name   string
		host   host
		status string
		number string
	}{
		{"all of it", host{}, OK, "1500 bytes, as the port"},
		{"a hole", host{mtu: 1400}, Fail, "1400 bytes of the port's 1500"},
		{"a hole, one byte", host{mtu: 1499}, Fail, "1499 bytes of the port's 1500"},
		{"a hole, small", host{mtu: 68}, Fail, "68 bytes of the port's 1500"},
		{"the least", host{mtu: leastEcho}, Fail, "64 bytes of the port's 1500"},
		{"a router says so", host{mtu: 1280, says: true}, OK, "1280 bytes, and a router says so"},
		{"a router says what is least", host{mtu: leastEcho, says: true}, OK, "64 bytes, and a router says so"},
		{"mute", host{mute: true}, NA, ""},
	} {
		for _, x := range []Target{{VIP: vip4}, {Service: "six", VIP: vip6}} {
			cfg := one(x)
			cfg.Servers[0].Targets = nil
			t.Run(tt.name+" to "+cfg.Servers[0].Address.String(), func(t *testing.T) {
				h := tt.host
				found, took := world(t, cfg, &h)
				if len(found) != 1 || found[0].Status != tt.status || found[0].Number != tt.number {
					t.Errorf("found %+v", found)
				}
				if took > 10*time.Second {
					t.Errorf("took %v", took)
				}
			})
		}
	}
}

// TestClaims has others answer for VIPs.
func TestClaims(t *testing.T) {
	direct := one(Target{VIP: vip4, From: own4.Addr(), Method: config.DR})
	direct.Servers[0].Targets = append(direct.Servers[0].Targets, Target{Service: "web6", VIP: vip6, From: own6.Addr(), Method: config.DR})
	nat := one(Target{})
	nat.Servers[0].Targets = nil
	const sysctl = "on server 198.18.1.11: sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"
	for _, tt := range []struct {
		name   string
		cfg    Config
		vip    netip.Addr
		claims map[string][]MAC
		number [2]string // at each port
		do     string    // a part of the server port's
	}{
		{"nobody", direct, vip4.Addr(), nil, [2]string{"nobody else answers ARP", "nobody else answers ARP"}, ""},
		{"the card itself", direct, vip4.Addr(), map[string][]MAC{"1 198.18.0.80": {ourMAC}, "0 198.18.0.80": {ourMAC}}, [2]string{"nobody else answers ARP", "nobody else answers ARP"}, ""},
		{"a DR server", direct, vip4.Addr(), map[string][]MAC{"1 198.18.0.80": {ourMAC, serverMAC}}, [2]string{"nobody else answers ARP", "02:00:00:00:00:0b (server 198.18.1.11) answers ARP"}, sysctl},
		{"a NAT server", nat, vip4.Addr(), map[string][]MAC{"1 198.18.0.80": {serverMAC}}, [2]string{"nobody else answers ARP", "02:00:00:00:00:0b (server 198.18.1.11) answers ARP"}, "ip addr del 198.18.0.80"},
		{"two", direct, vip4.Addr(), map[string][]MAC{"1 198.18.0.80": {otherMAC, serverMAC}}, [2]string{"nobody else answers ARP", "02:00:00:00:00:63 and 02:00:00:00:00:0b (server 198.18.1.11) answers ARP"}, sysctl},
		{"a stranger among clients", direct, vip4.Addr(), map[string][]MAC{"0 198.18.0.80": {otherMAC}}, [2]string{"02:00:00:00:00:63 answers ARP", "nobody else answers ARP"}, ""},
		{"IPv6", direct, vip6.Addr(), map[string][]MAC{"1 2001:db8::80": {serverMAC}}, [2]string{"nobody else answers neighbour solicitations", "02:00:00:00:00:0b (server 198.18.1.11) answers neighbour solicitations"}, "on no other interface"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.VIPs = []netip.Addr{tt.vip}
			found, _ := world(t, tt.cfg, &host{claims: tt.claims, answer: func(q *packetIn, _ netip.Addr) []byte {
				if q.from.Is4() {
					return reply(q, vip4.Addr(), flagSYN|flagACK)
				}
				return reply(q, vip6.Addr(), flagSYN|flagACK)
			}})
			if got := [2]string{found[0].Number, found[1].Number}; got != tt.number {
				t.Errorf("found %q, want %q", got, tt.number)
			}
			if !strings.Contains(found[1].Do, tt.do) {
				t.Errorf("do: %s", found[1].Do)
			}
			for i, n := range tt.number {
				if ok := strings.HasPrefix(n, "nobody"); (found[i].Status == OK) != ok {
					t.Errorf("port %d: %+v", i, found[i])
				}
			}
		})
	}
}

// TestNotAsked has servers that cannot be asked, and more questions than there may be.
func TestNotAsked(t *testing.T) {
	target := []Target{{Service: "web", VIP: vip4, From: own4.Addr(), Method: config.DR}}
	cfg := Config{Links: links(), Servers: []Server{
		{Address: netip.MustParseAddr("192.0.2.1"), Targets: target},
		{Address: netip.MustParseAddr("192.0.2.2"), Link: "server port VLAN 5", Targets: target},
		{Address: server4, Link: "server port VLAN 5", From: own4.Addr(), Hop: server4, Targets: target},
		{Address: server4, Link: "server port VLAN 5", From: own4.Addr(), Hop: server4, Ready: true, MTU: 1500, Targets: []Target{{Service: "web", VIP: vip6, Method: config.Tun}}},
	}}
	found, _ := world(t, cfg, &host{})
	var got []string
	for _, f := range found {
		got = append(got, f.Status+" "+f.Why)
	}
	want := []string{
		"fail no subnet and no gateway leads there", "n/a no subnet and no gateway leads there",
		"fail the card has no address in the subnet of its next hop", "n/a the card has no address in the subnet of its next hop",
		"fail its next hop 198.18.1.11 does not answer ARP", "n/a its next hop 198.18.1.11 does not answer ARP",
		"ok ", "n/a the card has no address of the VIP's family beside the server",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	many := Config{Links: links()}
	for i := range maxTasks {
		many.VIPs = append(many.VIPs, netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}))
	}
	found, took := world(t, many, &host{})
	if n := len(found); n != maxTasks+1 || found[n-1].Number != "4096 questions not asked" {
		t.Errorf("%d findings, the last %+v", n, found[n-1])
	}
	if took > time.Minute {
		t.Errorf("took %v", took)
	}
}

// TestForeign has frames come that answer nothing.
func TestForeign(t *testing.T) {
	cfg := one(Target{VIP: vip4, From: own4.Addr(), Method: config.DR})
	d := Start(cfg)
	var q packetIn
	for _, p := range d.Step(0, nil) {
		if p.To.IsValid() && q.ip(p.Data) && q.protocol == protocolTCP {
			break
		}
	}
	right := reply(&q, vip4.Addr(), flagSYN|flagACK)
	change := func(at int, to byte, mend bool) []byte {
		b := slices.Clone(right)
		b[at] = to
		if mend {
			b[36], b[37] = 0, 0
			binary.BigEndian.PutUint16(b[36:], ^uint16(inet.Sum(inet.Pseudo(netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), protocolTCP, 20), b[20:])))
		}
		return b
	}
	for name, b := range map[string][]byte{
		"another address": change(15, 81, true), "another of our addresses": change(19, 2, true), "another port": change(21, 81, true), "another of our ports": change(23, 0, true),
		"a wrong acknowledgement": change(31, right[31]+1, true), "a wrong checksum": change(25, 1, false), "no ACK": change(33, flagSYN, true), "no SYN": change(33, flagACK, true),
	} {
		if d.Deliver(1, ethernet(serverMAC, ourMAC, 5, etherIPv4, b), 0) {
			t.Errorf("%s was taken", name)
		}
	}
	if !d.Deliver(1, ethernet(serverMAC, ourMAC, 5, etherIPv4, right), 0) {
		t.Error("the right answer was not taken")
	}
	if d.Deliver(1, ethernet(serverMAC, ourMAC, 5, etherIPv4, right), 0) {
		t.Error("an answer was taken twice")
	}
}

// FuzzDeliver gives an examination whatever comes: it ends in time, and sends what can be read.
func FuzzDeliver(f *testing.F) {
	cfg := one(Target{VIP: vip4, From: own4.Addr(), Method: config.Tun})
	cfg.Servers[0].Targets = append(cfg.Servers[0].Targets, Target{Service: "six", VIP: vip6, From: own6.Addr(), Method: config.DR})
	cfg.VIPs = []netip.Addr{vip4.Addr(), vip6.Addr()}
	for _, p := range Start(cfg).Step(0, nil) {
		b := p.Data
		if p.To.IsValid() {
			kind := uint16(etherIPv4)
			if b[0]>>4 == 6 {
				kind = etherIPv6
			}
			f.Add(ethernet(serverMAC, ourMAC, 5, kind, tooBig(server4, own4.Addr(), 1400, b)), uint8(1))
			b = ethernet(serverMAC, ourMAC, 5, kind, b)
		}
		f.Add(b, uint8(p.Port))
	}
	for _, from := range []netip.Addr{vip4.Addr(), server4} {
		f.Add(ethernet(serverMAC, ourMAC, 5, etherIPv4, inet.Layout(from, own4.Addr(), protocolTCP, 0, 1, segment(vip4, netip.AddrPortFrom(own4.Addr(), firstPort+2), own4.Addr(), 1, 2, flagSYN|flagACK))), uint8(1))
	}
	f.Fuzz(func(t *testing.T, frame []byte, port uint8) {
		d := Start(cfg)
		now, packets := time.Duration(0), 0
		for !d.Done() {
			for _, p := range d.Step(now, nil) {
				packets++
				var q packetIn
				if p.To.IsValid() && (!q.ip(p.Data) || q.cut || len(p.Data) > 1500+40) {
					t.Fatalf("sends %x", p.Data)
				}
			}
			d.Deliver(int(port), frame, now)
			if now += 100 * time.Millisecond; now > time.Minute || packets > 200 {
				t.Fatalf("after %v and %d packets it does not end", now, packets)
			}
		}
		d.Result()
	})
}
