package datapath

import (
	"testing"
	"time"

	"splicenic/regs"
)

// synsOf sends n SYNs of as many clients and ports to a service, and returns how many went on and how many were refused.
func (l *l4World) synsOf(t *testing.T, service, n int) (passed, refused int) {
	t.Helper()
	x := &l.services[service]
	for i := range n {
		s := tcp{from: addressAt(x.w.client, i/200), to: x.w.vip, sport: uint16(30000 + i%200), dport: 80, seq: uint32(i) << 8, flags: flagSYN, window: 500, srcMAC: clientMAC, dstMAC: portMAC[0]}
		out := l.b.pushRaw(0, buildFrame(t, &s))
		switch {
		case len(out[1]) == 1 && len(out[0]) == 0:
			passed++
		case len(out[0]) == 1 && len(out[1]) == 0:
			if g := parseFrame(t, out[0][0]); g.flags != flagRST|flagACK || g.ack != s.seq+1 {
				t.Fatalf("SYN %d is refused with %v", i, g)
			}
			refused++
		default:
			t.Fatalf("SYN %d draws %d and %d frames", i, len(out[0]), len(out[1]))
		}
	}
	l.b.events()
	return passed, refused
}

// TestPassedExhaustion sends SYNs until pages, CAM places or local ports run out: each that finds none is refused and
// counted by what was missing, and after the time-outs everything is back.
func TestPassedExhaustion(t *testing.T) {
	for _, tt := range []struct {
		name    string
		service int
		words   uint32 // of each CAM
		want    int    // connections; zero: fewer than SYNs
		counter regs.Reg
		outer   regs.Reg // the method's own counter of the same
	}{
		{"pages, nat", 1, 512, 40, regs.AmuNoPage, regs.PassDropFull},
		{"pages, dr", 3, 512, 40, regs.AmuNoPage, regs.PassDropFull},
		{"pages, tun", 7, 512, 40, regs.AmuNoPage, regs.PassDropFull},
		{"CAM places, nat over IPv6", 1, 16, 0, regs.AmuNoCamPlace, regs.PassDropFull},
		{"CAM places, dr", 3, 16, 0, regs.AmuNoCamPlace, regs.PassDropFull},
		{"local ports, fullnat", 2, 512, 12, regs.PassDropNoPort, regs.PassDropNoPort},
		{"local ports, fullnat to IPv6", 8, 512, 8, regs.PassDropNoPort, regs.PassDropNoPort},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := l4Geometry()
			g.CamClientWords, g.CamServerWords = tt.words, tt.words
			l := newL4WorldOf(t, g)
			b := l.b
			b.r.Set(regs.AmuLowWatermark, 0)
			for i := range b.m.Geometry.Services { // a template takes a page of its own
				b.m.Service[0][i*regs.ServiceWords+regs.ServicePersistence] = 0
			}
			const syns = 150
			for round := range 3 {
				none, outer, opened := b.r.Get64(tt.counter), b.r.Get64(tt.outer), b.r.Get64(regs.PassOpened)
				passed, refused := l.synsOf(t, tt.service, syns)
				if passed+refused != syns || tt.want != 0 && passed != tt.want || refused == 0 {
					t.Fatalf("round %d: %d passed and %d refused of %d, want %d", round, passed, refused, syns, tt.want)
				}
				if got := b.r.Get64(tt.counter) - none; got != uint64(refused) && tt.counter != regs.PassDropNoPort {
					t.Errorf("%s: got %d, want %d", tt.counter.Name(), got, refused)
				}
				if got := b.r.Get64(tt.outer) - outer; got != uint64(refused) {
					t.Errorf("%s: got %d, want %d", tt.outer.Name(), got, refused)
				}
				if got := b.r.Get64(regs.PassOpened) - opened; got != uint64(passed) {
					t.Errorf("pass.opened: got %d, want %d", got, passed)
				}
				b.check(t)
				b.l4Books(t, l.lists)
				l.l4Settle(t)
			}
		})
	}
}

// TestHalfOpen floods a service whose servers answer past the card, where no cookie helps: the pages never run out, the
// oldest half-open connections make room under the low watermark, one by one and counted, and neither who completes the
// handshake nor who is connected is among them.
func TestHalfOpen(t *testing.T) {
	l := newL4World(t)
	b, x := l.b, &l.services[3]
	b.m.Service[0][3*regs.ServiceWords+regs.ServicePersistence] = 0
	b.r.Set(regs.AmuLowWatermark, 8)
	send := func(port uint16, seq uint32, flags uint8) {
		t.Helper()
		s := tcp{from: x.w.client, to: x.w.vip, sport: port, dport: 80, seq: seq, ack: 5, flags: flags, window: 500, srcMAC: clientMAC, dstMAC: portMAC[0]}
		if out := b.pushRaw(0, buildFrame(t, &s)); len(out[1]) != 1 || len(out[0]) != 0 {
			t.Fatalf("port %d, flags %#x: %d and %d frames", port, flags, len(out[0]), len(out[1]))
		}
		b.events()
	}
	send(1000, 1, flagSYN)
	send(1000, 2, flagACK)
	for i := range 500 {
		send(uint16(2000+i), 7, flagSYN)
		if i%50 == 0 { // an honest client, 20 SYNs of the flood later
			send(uint16(10_000+i), 7, flagSYN)
		}
		if i%50 == 20 {
			opened := b.r.Get64(regs.PassOpened)
			send(uint16(10_000+i-20), 8, flagACK)
			if b.r.Get64(regs.PassOpened) != opened {
				t.Fatalf("SYN %d: the honest client's connection was given up", i)
			}
			send(uint16(10_000+i-20), 8, flagRST)
		}
		b.check(t)
		if free := b.r.Get(regs.AmuFree); free < 7 {
			t.Fatalf("SYN %d: %d pages free", i, free)
		}
	}
	send(1000, 2, flagACK)
	b.counts(t, map[regs.Reg]uint64{regs.PassOpened: 511, regs.PassDropFull: 0, regs.AmuNoPage: 0, regs.PassSloppy: 0})
	early := b.r.Get64(regs.AmuHalfOpenEarly)
	if early < 400 || early != b.r.Get64(regs.PassExpired) {
		t.Errorf("half_open_early %d, pass.expired %d", early, b.r.Get64(regs.PassExpired))
	}
	l.l4Settle(t)
}

// TestOneSidedLimits: with a rate for sources one client cannot take more than its share of a service whose servers answer
// past the card, whatever the service's defence.
func TestOneSidedLimits(t *testing.T) {
	l := newL4World(t)
	b, x := l.b, &l.services[3]
	b.r.Set(regs.DefenceSourceRate, 5)
	b.r.Set(regs.DefenceSourceBurst, 5)
	n := 0
	for i := range 30 {
		s := tcp{from: x.w.client, to: x.w.vip, sport: uint16(2000 + i), dport: 80, seq: 7, flags: flagSYN, srcMAC: clientMAC, dstMAC: portMAC[0]}
		n += len(b.pushRaw(0, buildFrame(t, &s))[1])
	}
	if got := b.r.Get64(regs.DefenceSourceLimited); n != 5 || got != 25 {
		t.Errorf("%d SYNs of 30 went on, source_limited %d", n, got)
	}
	b.wait(time.Second)
	b.check(t)
}

// TestPassedDefence floods services that pass connections on with proof: once the defence is active no page is taken.
func TestPassedDefence(t *testing.T) {
	for _, service := range []int{1, 2} {
		l := newL4World(t)
		b := l.b
		w := b.m.Service[0][service*regs.ServiceWords:]
		w[regs.ServiceControl] = regs.SetServiceControlDefence(w[regs.ServiceControl], regs.ServiceControlDefenceAuto)
		b.r.Set(regs.DefencePagesOn, 34)
		x := &l.services[service]
		for i := range 300 {
			s := tcp{from: x.w.client, to: x.w.vip, sport: uint16(2000 + i), dport: 80, seq: 7, flags: flagSYN, srcMAC: clientMAC, dstMAC: portMAC[0]}
			b.pushRaw(0, buildFrame(t, &s))
		}
		b.events()
		if free := b.r.Get(regs.AmuFree); free != 33 {
			t.Errorf("service %d: %d pages free", service, free)
		}
		if got := b.r.Get64(regs.DefenceCookieSent); got != 293 {
			t.Errorf("service %d: %d cookies", service, got)
		}
		b.check(t)
		l.l4Settle(t)
	}
}

// TestTunnelReturn: a server behind a tunnel that is told to answer through the card is heard there, from the VIP; without
// that its answers have no page.
func TestTunnelReturn(t *testing.T) {
	for service, want := range map[int]int{10: 1, 7: 0} {
		l := newL4World(t)
		b, x := l.b, &l.services[service]
		syn := tcp{from: x.w.client, to: x.w.vip, sport: 4000, dport: 80, seq: 7, flags: flagSYN, window: 500, options: plainOptions, srcMAC: clientMAC, dstMAC: portMAC[0]}
		l.notes(t, b.pushRaw(0, buildFrame(t, &syn)))
		if len(l.asked) != 1 || l.asked[0].s.to != x.w.vip || l.asked[0].s.from != x.w.client {
			t.Fatalf("service %d: the server gets %v", service, l.asked)
		}
		answer := tcp{from: x.w.vip, to: x.w.client, sport: 80, dport: 4000, seq: 99, ack: 8, flags: flagSYN | flagACK, window: 600, options: plainOptions, srcMAC: serverMAC, dstMAC: portMAC[1]}
		out := b.push(1, buildFrame(t, &answer))
		if len(out[0]) != want || len(out[1]) != 0 {
			t.Fatalf("service %d: the answer draws %v", service, out)
		}
		if want == 1 && (out[0][0].from != x.w.vip || out[0][0].seq != 99 || out[0][0].ack != 8 || out[0][0].dstMAC != clientMAC || out[0][0].ttl != 63) {
			t.Errorf("the client gets %v", out[0][0])
		}
		b.check(t)
	}
	l := newL4World(t)
	b, x := l.b, &l.services[11]
	l.notes(t, b.pushRaw(0, packetOf(t, 0, dgram{from: x.w.client, to: x.w.vip, sport: 4000, dport: 80, payload: []byte("question")}, true)))
	if len(l.asked) != 1 || string(l.asked[0].d.payload) != "question" || l.asked[0].d.to != x.w.vip {
		t.Fatalf("the server gets %v", l.asked)
	}
	got := seenDatagram(t, alone(t, b.pushRaw(1, packetOf(t, 1, dgram{from: x.w.vip, to: x.w.client, sport: 80, dport: 4000, payload: []byte("answer")}, true)), 0))
	if got.from != x.w.vip || got.to != x.w.client || got.sport != 80 || got.dport != 4000 || string(got.payload) != "answer" || got.dst != clientMAC {
		t.Errorf("the client gets %+v", got)
	}
	b.check(t)
}
