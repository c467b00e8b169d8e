package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// dgram is a datagram to build or one that was seen.
type dgram struct {
	from, to     netip.Addr
	sport, dport uint16
	sum          uint16 // as it is on the wire
	payload      []byte
	ttl          uint8
	dst          [6]byte
}

// packetOf builds a datagram toward a port of the card, with its sum, or without one.
func packetOf(t testing.TB, port int, d dgram, sum bool) []byte {
	t.Helper()
	src, dst := clientMAC, portMAC[port]
	if port == 1 {
		src = serverMAC
	}
	eth := &layers.Ethernet{SrcMAC: src[:], DstMAC: dst[:], EthernetType: layers.EthernetTypeIPv4}
	uh := &layers.UDP{SrcPort: layers.UDPPort(d.sport), DstPort: layers.UDPPort(d.dport)}
	var ip gopacket.SerializableLayer
	if d.from.Is4() {
		x := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: d.from.AsSlice(), DstIP: d.to.AsSlice()}
		ip = x
		must(t, uh.SetNetworkLayerForChecksum(x))
	} else {
		x := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: d.from.AsSlice(), DstIP: d.to.AsSlice()}
		ip, eth.EthernetType = x, layers.EthernetTypeIPv6
		must(t, uh.SetNetworkLayerForChecksum(x))
	}
	sb := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(sb, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, uh, gopacket.Payload(d.payload)))
	raw := sb.Bytes()
	at := 14 + 20 + 6
	if d.from.Is6() {
		at += 20
	}
	switch {
	case !sum:
		put16(raw, at, 0)
	case binary.BigEndian.Uint16(raw[at:]) == 0:
		put16(raw, at, 0xffff)
	}
	return raw
}

// seenDatagram decodes a frame and verifies its sum, where it has one.
func seenDatagram(t testing.TB, raw []byte) (d dgram) {
	t.Helper()
	p := gopacket.NewPacket(raw, layers.LayerTypeEthernet, gopacket.Default)
	x, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok {
		t.Fatalf("no UDP in % x", raw)
	}
	copy(d.dst[:], raw)
	var pseudo []byte
	if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		d.ttl = ip.TTL
		pseudo = append(append(pseudo, ip.SrcIP.To4()...), ip.DstIP.To4()...)
		if reference(ip.Contents) != 0 {
			t.Fatalf("IPv4 header checksum wrong\n% x", raw)
		}
	} else {
		ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		d.ttl = ip.HopLimit
		pseudo = append(append(pseudo, ip.SrcIP...), ip.DstIP...)
	}
	half := len(pseudo) / 2
	d.from, _ = netip.AddrFromSlice(pseudo[:half])
	d.to, _ = netip.AddrFromSlice(pseudo[half:])
	n := len(x.Contents) + len(x.Payload)
	pseudo = append(pseudo, 0, protocolUDP, byte(n>>8), byte(n))
	if sum := reference(append(append(pseudo, x.Contents...), x.Payload...)); x.Checksum != 0 && sum != 0 {
		t.Fatalf("UDP checksum wrong: sum leaves %#04x\n% x", sum, raw)
	}
	d.sport, d.dport, d.sum, d.payload = uint16(x.SrcPort), uint16(x.DstPort), x.Checksum, x.Payload
	return d
}

func udpService(e *regs.ServiceEntry) { e.ControlProtocol = regs.ServiceControlProtocolUdp }

// alone is the one frame that came out, of one port.
func alone(t testing.TB, out [2][][]byte, port int) []byte {
	t.Helper()
	if len(out[port]) != 1 || len(out[1-port]) != 0 {
		t.Fatalf("port %d sends %d frames, the other %d, want one and none", port, len(out[port]), len(out[1-port]))
	}
	return out[port][0]
}

// TestPassedDatagrams sends datagrams both ways, with a sum and without, until the page has been silent for too long.
func TestPassedDatagrams(t *testing.T) {
	for _, mode := range []uint32{regs.ServiceControlModeNat, regs.ServiceControlModeDr} {
		for _, w := range []world{world4, world6} {
			for _, sum := range []bool{true, false} {
				if !sum && w.kind == kindIPv6 {
					continue
				}
				t.Run(fmt.Sprintf("%d/%v/sum %v", mode, w.client, sum), func(t *testing.T) {
					b := newBench(t, smallGeometry())
					b.serve4(w, 0, mode, udpService)
					b.attach()
					b.now = time.Second
					for i := range 3 {
						payload := []byte(fmt.Sprintf("question %d", i))
						got := seenDatagram(t, alone(t, b.pushRaw(0, packetOf(t, 0, dgram{from: w.client, to: w.vip, sport: 40001, dport: 80, payload: payload}, sum)), 1))
						to, port := w.server, uint16(8080)
						if mode == regs.ServiceControlModeDr {
							to, port = w.vip, 80
						}
						if got.from != w.client || got.to != to || got.sport != 40001 || got.dport != port || string(got.payload) != string(payload) || got.ttl != 63 || got.dst != serverMAC || (got.sum != 0) != sum {
							t.Fatalf("the server gets %+v", got)
						}
						if mode == regs.ServiceControlModeDr {
							continue
						}
						got = seenDatagram(t, alone(t, b.pushRaw(1, packetOf(t, 1, dgram{from: w.server, to: w.client, sport: 8080, dport: 40001, payload: payload}, sum)), 0))
						if got.from != w.vip || got.to != w.client || got.sport != 80 || got.dport != 40001 || got.ttl != 63 || got.dst != clientMAC || (got.sum != 0) != sum {
							t.Fatalf("the client gets %+v", got)
						}
						b.check(t)
					}
					b.wait(301 * time.Second)
					b.check(t)
					for r, want := range map[regs.Reg]uint64{regs.PassOpened: 1, regs.PassEstablished: 1, regs.PassExpired: 1} {
						if got := b.r.Get64(r); got != want {
							t.Errorf("%s: got %d, want %d", r.Name(), got, want)
						}
					}
					if got := b.r.Get(regs.AmuLive); got != 0 {
						t.Errorf("live: %d", got)
					}
				})
			}
		}
	}
}

// TestCaseA21Translated sends the case's datagram, whose sum comes out as zero: it goes on as ones. None stays none over IPv4, and
// over IPv6 the datagram is dropped.
func TestCaseA21Translated(t *testing.T) {
	b := newBench(t, smallGeometry())
	w := world4
	w.client, w.vip, w.server = netip.MustParseAddr("198.18.0.10"), netip.MustParseAddr("198.51.100.53"), netip.MustParseAddr("203.0.113.11")
	b.serve4(w, 0, regs.ServiceControlModeNat, udpService)
	b.serve4(world6, 1, regs.ServiceControlModeNat, udpService)
	zero := 0
	for i := range 1 << 16 {
		q := dgram{from: w.client, to: w.vip, sport: 40001, dport: 80, payload: []byte{byte(i >> 8), byte(i)}}
		raw := packetOf(t, 0, q, true)
		// By the arithmetic of RFC 1624 alone: the sum of the datagram as its server is to get it.
		want := q
		want.to, want.dport = w.server, 8080
		sum := binary.BigEndian.Uint16(packetOf(t, 1, want, true)[40:])
		if sum != 0xffff && i&0xff != 0 {
			continue
		}
		got := seenDatagram(t, alone(t, b.pushRaw(0, raw), 1))
		if got.sum != sum {
			t.Fatalf("payload %#x: sum %#04x, want %#04x", i, got.sum, sum)
		}
		if sum == 0xffff {
			zero++
		}
	}
	if zero == 0 {
		t.Error("no payload leads to a sum of zero")
	}
	got := seenDatagram(t, alone(t, b.pushRaw(0, packetOf(t, 0, dgram{from: w.client, to: w.vip, sport: 40001, dport: 80, payload: []byte("eM")}, false)), 1))
	if got.sum != 0 {
		t.Errorf("no sum becomes %#04x", got.sum)
	}
	out := b.pushRaw(0, packetOf(t, 0, dgram{from: world6.client, to: world6.vip, sport: 40001, dport: 80, payload: []byte("eM")}, false))
	if len(out[0])+len(out[1]) != 0 || b.r.Get64(regs.ParserDropUdpHeader) != 1 {
		t.Errorf("IPv6 without a sum: %d frames, drop_udp_header %d", len(out[0])+len(out[1]), b.r.Get64(regs.ParserDropUdpHeader))
	}
	b.check(t)
}

// TestDatagramSums walks the payload until every checksum was there: one that comes out as zero is sent as ones, and none
// stays none.
func TestDatagramSums(t *testing.T) {
	for _, w := range []world{world4, world6} {
		b := newBench(t, smallGeometry())
		b.serve4(w, 0, regs.ServiceControlModeNat, udpService)
		ones := 0
		for i := range 1 << 16 {
			got := seenDatagram(t, alone(t, b.pushRaw(0, packetOf(t, 0, dgram{from: w.client, to: w.vip, sport: 40001, dport: 80, payload: []byte{byte(i >> 8), byte(i)}}, true)), 1))
			if got.sum == 0xffff {
				ones++
			}
			if got.sum == 0 {
				t.Fatalf("payload %#x: no sum any more", i)
			}
			if ones != 0 && i > 4096 && raceEnabled {
				break
			}
		}
		if ones == 0 {
			t.Errorf("%v: no sum came out as ones", w.client)
		}
	}
}

// TestOnePacket: every datagram chooses anew and leaves no page.
func TestOnePacket(t *testing.T) {
	b := newBench(t, smallGeometry())
	for i := range 2 {
		w := world4
		w.server = addressAt(world4.server, i)
		b.serve4(w, i, regs.ServiceControlModeDr, func(e *regs.ServiceEntry) { udpService(e); e.ControlOnePacket = 1 })
		lo := uint32(i + 100)
		b.m.NextHop[i*regs.NextHopWords+regs.NextHopMacLo] = lo
	}
	for i := range 2 {
		set(b.m.Slot, i, regs.SlotWords, &regs.SlotEntry{SlotServer: uint32(i), SlotValid: 1})
	}
	b.m.GroupState[regs.GroupStateSelector] = regs.SetGroupStateSelectorCountA(0, 2)
	var went [2]int
	for range 10 {
		raw := alone(t, b.pushRaw(0, packetOf(t, 0, dgram{from: world4.client, to: world4.vip, sport: 40001, dport: 80, payload: []byte("x")}, true)), 1)
		went[binary.BigEndian.Uint32(raw[2:])-100]++
	}
	if went != [2]int{5, 5} || b.r.Get(regs.AmuLive) != 0 || b.r.Get64(regs.PassOnePacket) != 10 {
		t.Errorf("to the servers %v, live %d, one_packet %d", went, b.r.Get(regs.AmuLive), b.r.Get64(regs.PassOnePacket))
	}
	b.check(t)
}
