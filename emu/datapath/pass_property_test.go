package datapath

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/ssram"
	"splicenic/regs"
)

// l4World is a card of few pages with layer-4 services of every method, and what clients and servers know of each other.
type l4World struct {
	b        *bench
	services []l4Service
	sent     map[[3]uint16]uint32 // service, client and port: the sequence number that came last
	asked    []l4Asked            // what servers got last
	lists    []uint32             // servers with local ports
}

type l4Service struct {
	w      world
	mode   uint32
	udp    bool
	back   bool // tun: answers come through the card
	ports  int  // of its server's list
	locals uint32
}

// l4Asked is a packet as a server got it.
type l4Asked struct {
	udp bool
	s   tcp
	d   dgram
}

// l4Lists is how many entries of the local-port memory a server has to itself here.
const l4Lists = 16

func l4Geometry() ssram.Geometry {
	g := tiny(40)
	g.CamClientWords, g.CamServerWords, g.LocalPorts = 96, 96, 256
	return g
}

// newL4World programs the card. Every time-out is short, and the lists of local ports are shorter than the pages.
func newL4World(t testing.TB) *l4World { return newL4WorldOf(t, l4Geometry()) }

func newL4WorldOf(t testing.TB, g ssram.Geometry) *l4World {
	l := &l4World{b: newBench(t, g), sent: map[[3]uint16]uint32{}}
	b := l.b
	const nat, fullnat, tun, dr = regs.ServiceControlModeNat, regs.ServiceControlModeFullnat, regs.ServiceControlModeTun, regs.ServiceControlModeDr
	cross := world4
	cross.server = world6.server
	l.services = []l4Service{
		{w: world4, mode: nat}, {w: world6, mode: nat}, {w: world4, mode: fullnat, ports: 12, locals: 8}, {w: world4, mode: dr}, {w: world4, mode: nat, udp: true},
		{w: world4, mode: fullnat, udp: true, ports: 6, locals: 8}, {w: world4, mode: dr, udp: true}, {w: world4, mode: tun}, {w: cross, mode: fullnat, ports: 8, locals: 10},
		{w: world6, mode: fullnat, ports: 5, locals: 10}, {w: world4, mode: tun, back: true}, {w: world4, mode: tun, back: true, udp: true},
	}
	for i := range l.services {
		x := &l.services[i]
		x.w.vip, x.w.server = addressAt(x.w.vip, i), addressAt(x.w.server, i)
		b.serve4(x.w, i, x.mode, func(e *regs.ServiceEntry) {
			if x.udp {
				udpService(e)
			}
			e.ControlExpireNodest, e.ControlSloppy = uint32(i&1), uint32(i>>1&1)
			if i%3 == 0 {
				e.Persistence, e.PersistenceNetIpv4, e.PersistenceNetIpv6 = 900, 24, 64
			}
		})
		s := b.m.Server[i*regs.ServerWords:]
		if x.mode == tun {
			e := regs.ServerEntry{TunnelAnyPort: 1}
			if x.back {
				e.TunnelReturn = 1
			}
			b.tunnel(i, tunnelCases()[0], e)
			if x.udp {
				s[regs.ServerControl] = regs.SetServerControlProtocol(s[regs.ServerControl], protocolUDP)
			}
		}
		if x.ports == 0 {
			continue
		}
		if x.w.server.Is6() {
			s[regs.ServerControl] = regs.SetServerControlKind(s[regs.ServerControl], kindIPv6)
		}
		l.lists = append(l.lists, uint32(i))
		b.fillPorts(i, l4Lists*i, x.ports)
		for at := range x.ports {
			e := b.m.LocalPort[(l4Lists*i+at)*regs.LocalPortWords:]
			e[regs.LocalPortNumber] = regs.SetLocalPortNumberLocalAddress(e[regs.LocalPortNumber], x.locals+uint32(at%2))
		}
	}
	set(b.m.LocalAddress, 1, regs.AddressWords, &regs.AddressEntry{ControlValid: 1, ControlKind: kindIPv4, Address: words(far4.local)})
	for _, i := range []int{7, 10, 11} {
		s := b.m.Server[i*regs.ServerWords:]
		s[regs.ServerRoute] = regs.SetServerRouteLocalAddress(s[regs.ServerRoute], 1)
	}
	for i, a := range []string{"198.18.1.100", "198.18.1.101", "2001:db8:1::100", "2001:db8:1::101"} {
		kind := uint32(kindIPv4)
		if i >= 2 {
			kind = kindIPv6
		}
		set(b.m.LocalAddress, 8+i, regs.AddressWords, &regs.AddressEntry{ControlValid: 1, ControlKind: kind, Address: words(netip.MustParseAddr(a))})
	}
	// The first service has a second server that takes few.
	second := b.m.Server[12*regs.ServerWords:][:regs.ServerWords]
	copy(second, b.m.Server[:regs.ServerWords])
	second[regs.ServerAddress] = words(addressAt(world4.server, 40))[0]
	set(b.m.Slot, 1, regs.SlotWords, &regs.SlotEntry{SlotServer: 12, SlotValid: 1})
	b.m.GroupState[regs.GroupStateSelector] = regs.SetGroupStateSelectorCountA(0, 2)
	b.m.ServerState[12*regs.ServerStateWords+regs.ServerStateUpper] = 4
	b.m.Dirty = ^uint32(0)
	b.attach()
	for r, ms := range map[regs.Reg]uint32{regs.TimerSynRcvd: 1500, regs.TimerIdle: 3000, regs.TimerClosing: 1000, regs.TimerIdleDatagram: 2000, regs.TimerPortRest: 700, regs.TimerQuarantine: 300, regs.TimerWaitHead: 1200} {
		b.r.Set(r, ms)
	}
	b.r.Set(regs.AmuLowWatermark, 3)
	b.now = time.Second
	return l
}

// An l4Step is what happens to a card: a frame, time, or a command; or the host's store.
type l4Step struct {
	port    int
	raw     []byte
	wait    time.Duration
	command *regs.CommandEntry
	store   func(b *bench)
}

// draw makes any step.
func (l *l4World) draw(t testing.TB, r *rand.Rand) l4Step {
	switch k := r.IntN(40); {
	case k < 17:
		return l4Step{raw: l.fromClient(t, r)}
	case k < 30 && len(l.asked) > 0:
		return l4Step{port: 1, raw: l.fromServer(t, r)}
	case k < 35:
		return l4Step{wait: time.Duration(1+r.IntN(1<<r.IntN(11))) * time.Millisecond}
	case k < 38:
		return l4Step{command: l.drawCommand(r)}
	default:
		return l4Step{store: l.drawStore(r)}
	}
}

func (l *l4World) fromClient(t testing.TB, r *rand.Rand) []byte {
	i := r.IntN(len(l.services))
	x := &l.services[i]
	who, port := r.IntN(3), uint16(40000+r.IntN(6))
	from := addressAt(x.w.client, who)
	if x.udp {
		return packetOf(t, 0, dgram{from: from, to: x.w.vip, sport: port, dport: 80, payload: []byte("question")[:r.IntN(9)]}, r.IntN(4) > 0 || x.w.kind == kindIPv6)
	}
	key := [3]uint16{uint16(i), uint16(who), port}
	s := tcp{from: from, to: x.w.vip, sport: port, dport: 80, window: 500, srcMAC: clientMAC, dstMAC: portMAC[0]}
	s.flags = [...]uint8{flagSYN, flagSYN, flagSYN, flagACK, flagACK, flagACK, flagACK | flagPSH, flagACK | flagFIN, flagACK | flagFIN, flagACK | flagRST, flagRST, flagSYN | flagACK}[r.IntN(12)]
	s.seq = l.sent[key]
	switch {
	case s.flags == flagSYN && r.IntN(3) > 0:
		s.seq = r.Uint32()
	case s.flags != flagSYN && r.IntN(12) == 0:
		s.seq += uint32(r.IntN(100_000))
	}
	if s.flags&flagACK != 0 {
		s.ack = l4ISN(port) + 1 + uint32(r.IntN(8)/7*r.IntN(3))
	}
	if s.flags&flagSYN != 0 {
		s.options = []layers.TCPOption{optMSS(1460), optSACK, optTS(9, 0), optNop, optWscale(7)}[:1+r.IntN(5)]
	}
	if s.flags&flagPSH != 0 {
		s.payload = []byte("hello")
	}
	raw := buildFrame(t, &s)
	l.sent[key] = s.end()
	return raw
}

// l4ISN is where a server begins toward a port.
func l4ISN(port uint16) uint32 { return uint32(port) * 0x9e3779b1 }

func (l *l4World) fromServer(t testing.TB, r *rand.Rand) []byte {
	q := &l.asked[r.IntN(len(l.asked))]
	if q.udp {
		return packetOf(t, 1, dgram{from: q.d.to, to: q.d.from, sport: q.d.dport, dport: q.d.sport, payload: []byte("answer")[:r.IntN(7)]}, r.IntN(4) > 0 || q.d.from.Is6())
	}
	s := tcp{from: q.s.to, to: q.s.from, sport: q.s.dport, dport: q.s.sport, seq: q.s.ack, ack: q.s.end(), window: 600, srcMAC: serverMAC, dstMAC: portMAC[1]}
	s.flags = [...]uint8{flagACK, flagACK, flagACK | flagPSH, flagACK | flagFIN, flagACK | flagFIN, flagRST | flagACK}[r.IntN(6)]
	if q.s.flags&flagSYN != 0 {
		s.seq, s.flags, s.options = l4ISN(q.s.sport), flagSYN|flagACK, []layers.TCPOption{optMSS(1460)}
		if r.IntN(8) == 0 {
			s.flags = flagRST | flagACK
		}
	}
	if s.flags&flagPSH != 0 {
		s.payload = []byte("world")
	}
	return buildFrame(t, &s)
}

func (l *l4World) drawCommand(r *rand.Rand) *regs.CommandEntry {
	n := r.Uint32N(l.b.m.Geometry.Pages)
	e := &regs.CommandEntry{HandleN: n, HandleGeneration: handleOf(n, l.b.c.page(n)) >> 20}
	switch r.IntN(3) {
	case 0:
		e.ControlType, e.FlagsToClient, e.FlagsToServer = regs.CommandControlTypeReset, r.Uint32N(2), r.Uint32N(2)
	case 1:
		e.ControlType = regs.CommandControlTypeFree
	default:
		i := r.IntN(len(l.services))
		x := &l.services[i]
		e.ControlType, e.FlagsTemplate, e.FlagsFromServer = regs.CommandControlTypePass, r.Uint32N(2), r.Uint32N(4)/3
		e.KeyControlKind, e.KeyControlProtocol, e.KeyIndexIndex = x.w.kind, protocolTCP, uint32(i)
		if x.udp {
			e.KeyControlProtocol = protocolUDP
		}
		a := words(addressAt(x.w.client, r.IntN(3)))
		e.Value, e.KeyPortsPort, e.KeyPortsDestination = a[0], 50000+r.Uint32N(4), 2000+r.Uint32N(2)
		e.Bar2Offset, e.Boundary = uint32(i), uint32(i)
	}
	return e
}

// drawStore closes a server or opens it again, makes its way unknown, or takes it out: what a host does at any time.
func (l *l4World) drawStore(r *rand.Rand) func(b *bench) {
	i, what, on := r.IntN(len(l.services)), r.IntN(6), r.IntN(3) > 0
	return func(b *bench) {
		s, hop := b.m.Server[i*regs.ServerWords:], b.m.NextHop[i*regs.NextHopWords:]
		word, mask := &s[regs.ServerControl], uint32(regs.ServerControlValidMask)
		keep := on
		switch what {
		case 0, 1:
			mask, keep = regs.ServerControlClosedMask, !on
		case 2:
			word, mask = &hop[regs.NextHopControl], regs.NextHopControlResolvedMask
		case 3:
			b.m.ServerState[12*regs.ServerStateWords+regs.ServerStateUpper] = uint32(i % 5)
			return
		}
		*word &^= mask
		if keep {
			*word |= mask
		}
		b.m.Dirty |= ssram.DirtyServer
	}
}

// play takes a card through a step and returns what it sends.
func (x l4Step) play(b *bench) (out [2][][]byte) {
	switch {
	case x.raw != nil:
		out = b.pushRaw(x.port, x.raw)
	case x.command != nil:
		b.c.Sync()
		b.command(*x.command)
		out = b.copies()
	case x.store != nil:
		x.store(b)
	default:
		b.now += x.wait
		b.c.Advance(b.now)
		for done := false; !done; {
			done = b.c.Scan(b.out)
			o := b.copies()
			out[0], out[1] = append(out[0], o[0]...), append(out[1], o[1]...)
		}
	}
	b.exceptions()
	b.events()
	return out
}

// notes keeps what servers get, to answer it. Decoding verifies every sum.
func (l *l4World) notes(t testing.TB, out [2][][]byte) {
	for port := range out {
		for _, raw := range out[port] {
			protocol := raw[23]
			if binary.BigEndian.Uint16(raw[12:]) == etherIPv6 {
				protocol = raw[20]
			}
			if protocol == protocolIPv4 { // the far end of a tunnel
				raw = append(slices.Clone(raw[:14]), raw[34:]...)
				protocol = raw[23]
			}
			var q l4Asked
			switch protocol {
			case protocolTCP:
				q.s = parseFrame(t, raw)
			case protocolUDP:
				q.udp, q.d = true, seenDatagram(t, raw)
			default:
				continue
			}
			if port == 1 {
				l.asked = append(l.asked, q)
			}
		}
	}
	l.asked = l.asked[max(0, len(l.asked)-24):]
}

// l4Books holds what no page says to the pages: templates, local ports, and what is full.
func (b *bench) l4Books(t testing.TB, lists []uint32) {
	t.Helper()
	g := &b.m.Geometry
	templates := make([]uint32, g.Servers)
	lent := map[[3]uint32]uint32{}
	for n := range g.Pages {
		w := b.c.page(n)
		if w[regs.PageControl]&regs.PageControlValidMask == 0 {
			continue
		}
		index := w[regs.PageAIndex]
		if isTemplate(w) {
			templates[regs.PageAIndexServer(index)]++
		}
		if b.c.hasServer(w) && regs.PageAIndexAnswers(index) == answersLocal {
			k := [3]uint32{regs.PageAIndexServer(index), regs.PageAIndexLocalAddress(index), regs.PageALocalPort(w[regs.PageALocal])}
			if other, ok := lent[k]; ok {
				t.Fatalf("pages %d and %d have local end %v", n, other, k)
			}
			lent[k] = n
		}
	}
	for i := range g.Servers {
		s := b.m.ServerState[i*regs.ServerStateWords:]
		if s[regs.ServerStateTemplates] != templates[i] {
			t.Fatalf("server %d: templates %d, want %d", i, s[regs.ServerStateTemplates], templates[i])
		}
		if s[regs.ServerStateActive] > s[regs.ServerStateUseCount] {
			t.Fatalf("server %d: %d active of %d", i, s[regs.ServerStateActive], s[regs.ServerStateUseCount])
		}
	}
	for _, i := range lists {
		state, list := b.c.portList(i)
		size, free := state[regs.ServerStatePortsSize], state[regs.ServerStatePortsFree]
		seen := map[[3]uint32]bool{}
		for at := range free {
			number := list[(state[regs.ServerStatePortsHead]+at)%size*regs.LocalPortWords+regs.LocalPortNumber]
			k := [3]uint32{i, regs.LocalPortNumberLocalAddress(number), regs.LocalPortNumberPort(number)}
			if n, ok := lent[k]; ok || seen[k] {
				t.Fatalf("server %d: port %v is in the list twice, or of page %d too", i, k, n)
			}
			seen[k] = true
		}
		taken := uint32(0)
		for k := range lent {
			if k[0] == i {
				taken++
			}
		}
		if free+taken != size {
			t.Fatalf("server %d: %d local ports free and %d lent of %d", i, free, taken, size)
		}
	}
}

// restoredFrom makes a card go on from the state of another, over whatever it was.
func (b *bench) restoredFrom(o *bench) {
	o.m.Spans(func(off, n uint64) {
		p := make([]byte, n)
		o.m.ReadAt(off, p)
		b.m.WriteAt(off, p)
	})
	for _, r := range dataPathWords() {
		b.r.Set(r, o.r.Get(r))
	}
	copy(b.ram, o.ram)
	b.c.Reindex()
	for i := range regs.Reg(sides) {
		for _, r := range []regs.Reg{regs.CamFree, regs.CamEntries} {
			b.r.Set(r+i*regs.CamStride, o.r.Get(r+i*regs.CamStride))
		}
	}
	b.m.Dirty, b.now = 0, o.now
	b.c.Advance(b.now)
}

// l4Settle opens every server again and lets all time-outs pass.
func (l *l4World) l4Settle(t testing.TB) {
	t.Helper()
	b := l.b
	for range 200 {
		l4Step{wait: 100 * time.Millisecond}.play(b)
	}
	b.check(t)
	b.l4Books(t, l.lists)
	b.allFree(t)
	for _, i := range l.lists {
		if s := b.m.ServerState[i*regs.ServerStateWords:]; s[regs.ServerStatePortsFree] != s[regs.ServerStatePortsSize] {
			t.Errorf("server %d: %d local ports of %d are back", i, s[regs.ServerStatePortsFree], s[regs.ServerStatePortsSize])
		}
	}
}

// l4Steps is how many steps one seed takes.
func l4Steps() int {
	switch {
	case os.Getenv("SPLICE_LONG") != "":
		return 50_000
	case raceEnabled || testing.Short():
		return 300
	}
	return 1000
}

// TestPassedProperties lets random clients, servers, times and hosts loose on services of every method: after each step
// use counts, active connections, templates and lists of local ports agree with the pages, a card that goes on from this
// one's registers and memories does the same as it, and at last everything is back. SPLICE_LONG=1 takes a million steps.
func TestPassedProperties(t *testing.T) {
	sum := map[regs.Reg]uint64{}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0x14))
		l, other := newL4World(t), newL4World(t).b
		for step := range l4Steps() {
			if step%97 == 0 {
				if step != 0 {
					if d := l.b.snapshot().diff(other.snapshot()); len(d) != 0 {
						t.Fatalf("seed %d, step %d: the card that was restored differs in %v", seed, step, d)
					}
				}
				if r.IntN(2) == 0 { // it was another card meanwhile
					for range 20 {
						l.draw(t, r).play(other)
					}
				}
				other.restoredFrom(l.b)
			}
			x := l.draw(t, r)
			out := x.play(l.b)
			(&twin{t: t, batched: other, alone: l.b}).compare("restored", x.play(other), out)
			l.notes(t, out)
			l.b.check(t)
			l.b.l4Books(t, l.lists)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
		for _, c := range []regs.Reg{regs.PassOpened, regs.PassEstablished, regs.PassClosedFin, regs.PassClosedRst, regs.PassExpired, regs.PassNodest, regs.PassReused, regs.PassSloppy,
			regs.PassTemplateTaken, regs.PassTemplateHit, regs.PassTemplateStale, regs.PassTemplateExpired, regs.PassDropNoPort, regs.PassDropFull, regs.PassDropNoServer, regs.PassOverloaded, regs.PassPortsTaken,
			regs.PassPortsTired, regs.PassWrappedIpip, regs.PassRouted, regs.AmuNoPage, regs.AmuQuarantineEarly, regs.AmuHalfOpenEarly} {
			sum[c] += l.b.r.Get64(c)
		}
		l.l4Settle(t)
	}
	for c, n := range sum {
		if n == 0 && !raceEnabled && !testing.Short() {
			t.Errorf("%s stayed zero: the steps do not go where they should", c.Name())
		}
		t.Logf("%s: %d", c.Name(), n)
	}
}
