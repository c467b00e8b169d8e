package exception

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/health"
	"splicenic/runtime/neighbour"
)

// probing is a bench whose two servers are resolved, with the SYNs that they are sent.
func probing(t *testing.T) (b *bench, four, six *layers.TCP) {
	t.Helper()
	b = newBench(t, "off").quiet()
	b.h.table.Want([]neighbour.Key{{Port: 1, Addr: netip.MustParseAddr("198.18.1.11")}, {Port: 1, Addr: netip.MustParseAddr("2001:db8:2::11")}}, b.now)
	for _, a := range []string{"198.18.1.11", "2001:db8:2::11"} {
		b.h.table.Learn(neighbour.Key{Port: 1, Addr: netip.MustParseAddr(a)}, peerMAC, true, true, b.now)
	}
	b.sent = nil
	b.h.Advance(b.now)
	for _, s := range b.sent {
		p := check(t, s.b)
		syn, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || s.port != 1 || neighbour.MAC(s.b[:6]) != peerMAC || neighbour.MAC(s.b[6:12]) != cardMAC[1] {
			t.Fatalf("sent %v", p)
		}
		src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
		switch {
		case src.String() == "198.18.1.1" && dst.String() == "198.18.1.11":
			four = syn
		case src.String() == "2001:db8:2::1" && dst.String() == "2001:db8:2::11":
			six = syn
		default:
			t.Fatalf("sent %v", p)
		}
	}
	if len(b.sent) != 2 || four == nil || six == nil {
		t.Fatalf("sent %d frames", len(b.sent))
	}
	return b, four, six
}

// TestProbe: a server is sent a SYN that offers everything as soon as its next hop is resolved, and an RST for its answer,
// which tells its profile.
func TestProbe(t *testing.T) {
	b, four, six := probing(t)
	b.wantCount(Probe, 2)
	for _, syn := range []*layers.TCP{four, six} {
		kinds := map[layers.TCPOptionKind][]byte{}
		for _, o := range syn.Options {
			kinds[o.OptionType] = o.OptionData
		}
		want := uint16(1360) // of a port with an MTU of 1400
		if syn == six {
			want = 1340
		}
		if !syn.SYN || syn.ACK || !syn.ECE || !syn.CWR || syn.DstPort != 80 || syn.SrcPort < 61000 || len(kinds[layers.TCPOptionKindMSS]) != 2 ||
			uint16(kinds[layers.TCPOptionKindMSS][0])<<8|uint16(kinds[layers.TCPOptionKindMSS][1]) != want || len(kinds[layers.TCPOptionKindWindowScale]) != 1 || len(kinds[layers.TCPOptionKindTimestamps]) != 8 {
			t.Errorf("SYN %+v", syn)
		}
		if _, ok := kinds[layers.TCPOptionKindSACKPermitted]; !ok {
			t.Errorf("SYN without SACK: %+v", syn)
		}
	}
	for _, tt := range []struct {
		syn      *layers.TCP
		src, dst string
		ip       gopacket.SerializableLayer
	}{
		{four, "198.18.1.11", "198.18.1.1", ip4("198.18.1.11", "198.18.1.1", layers.IPProtocolTCP)},
		{six, "2001:db8:2::11", "2001:db8:2::1", ip6("2001:db8:2::11", "2001:db8:2::1", layers.IPProtocolTCP)},
	} {
		b.give(1, regs.ExceptionReasonReasonNoMatch, lay(t, 0, tt.ip, &layers.TCP{SrcPort: 80, DstPort: tt.syn.SrcPort, Seq: 77, Ack: tt.syn.Seq + 1, SYN: true, ACK: true, ECE: true, Options: []layers.TCPOption{
			{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 0}}, {OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
			{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{4}},
		}}))
		p := b.only(1)
		rst := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if src, dst := p.NetworkLayer().NetworkFlow().Endpoints(); !rst.RST || rst.ACK || rst.SYN || rst.Seq != tt.syn.Seq+1 || rst.SrcPort != tt.syn.SrcPort || src.String() != tt.dst || dst.String() != tt.src {
			t.Errorf("answered by %v", p)
		}
		want := health.Profile{Known: true, MSS: 1280, WScale: 4, WScaleOn: true, SACK: true, ECN: true}
		if got := b.h.Prober().Profile(netip.AddrPortFrom(netip.MustParseAddr(tt.src), 80)); got != want {
			t.Errorf("profile %+v, want %+v", got, want)
		}
	}
	b.wantCount(ProbeAnswer, 2)
	b.wantCount(Reset, 0)
}

// TestProbeAnswers: what answers no probe is answered as any segment to a closed port, and no profile comes of it.
func TestProbeAnswers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		src, dst string
		change   func(a *layers.TCP)
		reset    uint64 // of a closed port
		answer   uint64 // of a probe
		sent     int
	}{
		{"a stranger", "198.18.1.99", "198.18.1.1", func(*layers.TCP) {}, 1, 0, 1},
		{"another port of the server", "198.18.1.11", "198.18.1.1", func(a *layers.TCP) { a.SrcPort = 81 }, 1, 0, 1},
		{"another port of ours", "198.18.1.11", "198.18.1.1", func(a *layers.TCP) { a.DstPort++ }, 1, 0, 1},
		{"another address of ours", "198.18.1.11", "198.18.0.1", func(*layers.TCP) {}, 1, 0, 1},
		{"another acknowledgement", "198.18.1.11", "198.18.1.1", func(a *layers.TCP) { a.Ack++ }, 0, 1, 1},
		{"a SYN", "198.18.1.11", "198.18.1.1", func(a *layers.TCP) { a.ACK = false }, 1, 0, 1},
		{"refused", "198.18.1.11", "198.18.1.1", func(a *layers.TCP) { a.SYN, a.RST = false, true }, 0, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, syn, _ := probing(t)
			a := &layers.TCP{SrcPort: 80, DstPort: syn.SrcPort, Seq: 77, Ack: syn.Seq + 1, SYN: true, ACK: true}
			tt.change(a)
			b.give(1, regs.ExceptionReasonReasonNoMatch, lay(t, 0, ip4(tt.src, tt.dst, layers.IPProtocolTCP), a))
			b.wantCount(Reset, tt.reset)
			b.wantCount(ProbeAnswer, tt.answer)
			if len(b.sent) != tt.sent {
				t.Errorf("%d frames sent, want %d", len(b.sent), tt.sent)
			}
			if got := b.h.Prober().Profile(netip.MustParseAddrPort("198.18.1.11:80")); got != (health.Profile{}) {
				t.Errorf("profile %+v", got)
			}
		})
	}
}

// TestProbeTargets: a server behind a gateway is asked from the address in the gateway's subnet, with its tag; one whose
// profile the configuration gives is not asked.
func TestProbeTargets(t *testing.T) {
	const text = `
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24]}
  server: {addresses: [198.18.1.1/24, {address: 198.18.7.1/24, vlan: 7}], gateway: 198.18.7.254}
services: [{name: web, listen: [198.18.0.80:80], default: app}]
groups:
  - {name: app, servers: [{address: 203.0.113.11:80}, {address: 198.18.1.12:80, profile: {mss: 1000}}, {address: 198.18.0.13:80}]}
`
	c, err := config.Load("t.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, "off")
	b.h.Configure(Station{Ports: []Port{{cardMAC[0], 1500}, {cardMAC[1], 1500}}, Config: c}, 0)
	gateway := neighbour.Key{Port: 1, VLAN: 7, Addr: netip.MustParseAddr("198.18.7.254")}
	b.h.table.Want([]neighbour.Key{gateway}, 0)
	b.h.table.Learn(gateway, peerMAC, true, true, 0)
	b.advance(time.Second)
	b.wantCount(Probe, 1)
	for _, s := range b.sent {
		p := check(t, s.b)
		if p.Layer(layers.LayerTypeTCP) == nil {
			continue
		}
		src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
		tag, ok := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q)
		if !ok || tag.VLANIdentifier != 7 || src.String() != "198.18.7.1" || dst.String() != "203.0.113.11" {
			t.Errorf("sent %v", p)
		}
	}
	if list := b.h.Prober().List(b.now); len(list) != 2 || list[0].State != health.Unknown || list[1].State != health.Asked {
		t.Errorf("servers %+v", list)
	}
}
