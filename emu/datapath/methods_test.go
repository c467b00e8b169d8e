package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// method is a way from a client of one family to a server.
type method struct {
	name   string
	method uint32
	w      world // client and VIP
	server netip.Addr
	tunnel tunnelCase
	splice bool
	udp    bool
}

const localPorts = 40

func (m *method) kind() uint32 {
	if m.server.Is4() {
		return kindIPv4
	}
	return kindIPv6
}

// source is what the server sees of the client; the zero address with FULLNAT, where the list decides.
func (m *method) source() netip.Addr {
	switch {
	case m.method == methodFullNAT:
		return netip.Addr{}
	case m.method == methodNAT && m.w.client.Is4() && m.server.Is6():
		b := [16]byte{0, 0x64, 0xff, 0x9b}
		a := m.w.client.As4()
		copy(b[12:], a[:])
		return netip.AddrFrom16(b)
	}
	return m.w.client
}

func methods() (ms []method) {
	for _, x := range []struct {
		w      world
		server netip.Addr
	}{{world4, world4.server}, {world6, world6.server}, {world4, world6.server}, {world6, world4.server}} {
		for _, splice := range []bool{true, false} {
			name := fmt.Sprintf("%v to %v splice %v", x.w.client, x.server, splice)
			ms = append(ms, method{name: "fullnat " + name, method: methodFullNAT, w: x.w, server: x.server, splice: splice})
			if x.server.Is6() {
				ms = append(ms, method{name: "nat " + name, method: methodNAT, w: x.w, server: x.server, splice: splice})
			}
		}
	}
	for _, x := range tunnelCases() {
		for _, w := range []world{world4, world6} {
			for _, splice := range []bool{true, false} {
				ms = append(ms, method{name: fmt.Sprintf("tun %s %v splice %v", x.name, w.client, splice), method: methodTun, w: w, server: x.far.server, tunnel: x, splice: splice})
			}
		}
	}
	return ms
}

// serveBy makes service 0 one with this way to its server.
func (b *bench) serveBy(m *method) {
	e := regs.ServiceEntry{ControlProtocol: regs.ServiceControlProtocolHttp, PromiseMssIpv4: 1300, PromiseMssIpv6: 1300, PromiseSack: 1, PromiseTimestamps: 1, PromiseWscale: 7, PromiseWscaleOn: 1}
	if !m.splice {
		e.ControlMode, e.ControlProtocol = 1+m.method, regs.ServiceControlProtocolTcp
	}
	protocol := uint32(protocolTCP)
	if m.udp {
		e.ControlProtocol, protocol = regs.ServiceControlProtocolUdp, protocolUDP
	}
	b.serve(m.w, 0, e)
	for bank := range 2 {
		l := b.m.Listener[bank]
		l[regs.ListenerControl] = regs.SetListenerControlProtocol(l[regs.ListenerControl], protocol)
	}
	if m.method == methodTun {
		b.tunnel(0, m.tunnel, regs.ServerEntry{TunnelReturn: 1})
		return
	}
	set(b.m.Server, 0, regs.ServerWords, &regs.ServerEntry{ControlValid: 1, ControlKind: m.kind(), ControlProtocol: protocol, ControlPort: 8080, ControlMethod: m.method, TunnelNat64: 1, Address: words(m.server)})
	locals := []string{"198.18.1.100", "198.18.1.101"}
	if m.server.Is6() {
		locals = []string{"2001:db8:1::100", "2001:db8:1::101"}
	}
	for i, a := range locals {
		set(b.m.LocalAddress, 4+i, regs.AddressWords, &regs.AddressEntry{ControlValid: 1, ControlKind: m.kind(), Address: words(netip.MustParseAddr(a))})
	}
	b.fillPorts(0, 8, localPorts)
	b.m.Dirty = ^uint32(0)
}

// fillPorts gives a server a list of n local ports from an entry on.
func (b *bench) fillPorts(server, first, n int) {
	for i := range n {
		set(b.m.LocalPort, first+i, regs.LocalPortWords, &regs.LocalPortEntry{NumberPort: uint32(20000 + i), NumberLocalAddress: uint32(4 + i%2)})
	}
	s := b.m.ServerState[server*regs.ServerStateWords:]
	s[regs.ServerStatePortsFirst], s[regs.ServerStatePortsSize], s[regs.ServerStatePortsFree] = uint32(first), uint32(n), uint32(n)
	s[regs.ServerStatePortsHead], s[regs.ServerStatePortsTail] = 0, 0
}

// pushBytes is push without a look at what comes out.
func (b *bench) pushBytes(port int, raw []byte) (out [2][][]byte) {
	b.t.Helper()
	b.out.Reset()
	f := &b.buf[0]
	f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	b.c.Advance(b.now)
	b.c.Process(port, b.buf[:1], b.out)
	for p := range b.out.Ports {
		for _, f := range b.out.Ports[p] {
			out[p] = append(out[p], slices.Clone(f.Bytes()))
		}
	}
	b.out.Reset()
	return out
}

// play acts as both ends of a connection by a method. Each end counts by its own numbers only.
type play struct {
	b          *bench
	m          *method
	port       uint16 // the client's
	cnext      uint32 // what the client sends next
	cgot       uint32 // what it expects
	snext      uint32 // the same of the server
	sgot       uint32
	from       netip.AddrPort // what the server sees of the client
	cstamp     uint32         // the client's clock
	sstamp     uint32
	cecho      uint32 // what the client echoes
	secho      uint32
	timestamps bool
	seen       []tcp // by the server
	told       []tcp // the client
}

func (s *play) stamps(val, ecr uint32) []layers.TCPOption {
	if !s.timestamps {
		return nil
	}
	return []layers.TCPOption{optNop, optNop, optTS(val, ecr)}
}

// client sends a segment of the client, server one of the server; take is what comes of either.
func (s *play) client(t testing.TB, flags uint8, payload string, opts ...layers.TCPOption) {
	t.Helper()
	s.cstamp += 3
	opts = append(opts, s.stamps(s.cstamp, s.cecho)...)
	ack := s.cgot
	if flags&flagACK == 0 {
		ack = 0
	}
	raw := buildFrame(t, &tcp{from: s.m.w.client, to: s.m.w.vip, sport: s.port, dport: 80, seq: s.cnext, ack: ack, flags: flags, window: 500, tos: 0x28,
		options: opts, payload: []byte(payload), srcMAC: clientMAC, dstMAC: portMAC[0]})
	s.cnext += uint32(len(payload))
	if flags&(flagSYN|flagFIN) != 0 {
		s.cnext++
	}
	s.take(t, s.b.pushBytes(0, raw))
}

func (s *play) server(t testing.TB, flags uint8, payload string, opts ...layers.TCPOption) {
	t.Helper()
	s.sstamp += 5
	opts = append(opts, s.stamps(s.sstamp, s.secho)...)
	from, port := s.m.server, uint16(8080)
	if s.m.method == methodTun {
		from, port = s.m.w.vip, 80
	}
	vlan := uint16(0)
	if s.m.tunnel.tagged {
		vlan = 77
	}
	raw := buildFrame(t, &tcp{from: from, to: s.from.Addr(), sport: port, dport: s.from.Port(), seq: s.snext, ack: s.sgot, flags: flags, window: 600, tos: 0x10,
		options: opts, payload: []byte(payload), vlan: vlan, srcMAC: serverMAC, dstMAC: portMAC[1]})
	s.snext += uint32(len(payload))
	if flags&(flagSYN|flagFIN) != 0 {
		s.snext++
	}
	s.take(t, s.b.pushBytes(1, raw))
}

func (s *play) take(t testing.TB, out [2][][]byte) {
	t.Helper()
	s.seen, s.told = nil, nil
	for _, raw := range out[1] {
		if s.m.method == methodTun {
			in := unwrap(t, s.m.tunnel, raw)
			raw = append(append(make([]byte, 12), etherOf(s.m.w)...), in...)
		}
		g := parseFrame(t, raw)
		s.seen = append(s.seen, g)
		if g.flags&flagSYN != 0 {
			s.from, s.sgot = netip.AddrPortFrom(g.from, g.sport), g.seq
		}
		wantTo, wantPort := s.m.server, uint16(8080)
		if s.m.method == methodTun {
			wantTo, wantPort = s.m.w.vip, 80
		}
		if g.to != wantTo || g.dport != wantPort || netip.AddrPortFrom(g.from, g.sport) != s.from || s.m.source().IsValid() && g.from != s.m.source() {
			t.Fatalf("to the server: %v, want to %v:%d from %v", g, wantTo, wantPort, s.from)
		}
		if g.flags&flagRST == 0 && g.seq != s.sgot {
			t.Fatalf("to the server: %v, it expects %#x", g, s.sgot)
		}
		if g.flags&flagACK != 0 && g.ack != s.snext {
			t.Fatalf("to the server: %v, it sends %#x next", g, s.snext)
		}
		s.sgot += uint32(len(g.payload))
		if g.flags&(flagSYN|flagFIN) != 0 {
			s.sgot++
		}
		if o := g.option(layers.TCPOptionKindTimestamps); o != nil {
			s.secho = binary.BigEndian.Uint32(o)
			if ecr := binary.BigEndian.Uint32(o[4:]); g.flags&flagACK != 0 && int32(ecr-s.sstamp) > 0 {
				t.Fatalf("to the server: %v echoes %#x, its clock is %#x", g, ecr, s.sstamp)
			}
		} else if s.timestamps && g.flags&flagRST == 0 {
			t.Fatalf("to the server without timestamps: %v", g)
		}
	}
	for _, raw := range out[0] {
		g := parseFrame(t, raw)
		s.told = append(s.told, g)
		if g.flags&flagSYN != 0 {
			s.cgot = g.seq
		}
		if g.from != s.m.w.vip || g.to != s.m.w.client || g.sport != 80 || g.dport != s.port || g.dstMAC != clientMAC {
			t.Fatalf("to the client: %v", g)
		}
		if g.flags&flagRST == 0 && (g.seq != s.cgot || g.ack != s.cnext) {
			t.Fatalf("to the client: %v, it expects %#x and sends %#x next", g, s.cgot, s.cnext)
		}
		s.cgot += uint32(len(g.payload))
		if g.flags&(flagSYN|flagFIN) != 0 {
			s.cgot++
		}
		if o := g.option(layers.TCPOptionKindTimestamps); o != nil {
			s.cecho = binary.BigEndian.Uint32(o)
			if ecr := binary.BigEndian.Uint32(o[4:]); int32(ecr-s.cstamp) > 0 || s.cstamp-ecr > 100 {
				t.Fatalf("to the client: %v echoes %#x, its clock is %#x", g, ecr, s.cstamp)
			}
		}
	}
}

// open takes a connection to where data goes both ways.
func (s *play) open(t testing.TB) {
	t.Helper()
	opts := []layers.TCPOption{optMSS(1460), optSACK, optNop, optWscale(7)}
	s.client(t, flagSYN, "", opts...)
	if s.m.splice {
		s.client(t, flagACK, "")
		s.client(t, flagACK|flagPSH, request)
	}
	if len(s.seen) != 1 || s.seen[0].flags != flagSYN {
		t.Fatalf("no SYN to the server: %v, %v", s.seen, s.told)
	}
	if o := s.seen[0].option(layers.TCPOptionKindMSS); s.m.method == methodTun && int(binary.BigEndian.Uint16(o))+40+20*int(s.m.w.kind-kindIPv4) > 1500-int(s.b.c.overhead(s.b.c.server(0))) {
		t.Fatalf("MSS %d", binary.BigEndian.Uint16(o))
	}
	s.server(t, flagSYN|flagACK, "", opts...)
	if s.m.splice {
		if len(s.seen) != 1 || string(s.seen[0].payload) != request {
			t.Fatalf("held bytes: %v", s.seen)
		}
		s.server(t, flagACK, "")
		return
	}
	s.client(t, flagACK, "")
}

// TestMethods takes a connection through its life by every method, family and kind of tunnel.
func TestMethods(t *testing.T) {
	for _, m := range methods() {
		for _, timestamps := range []bool{true, false} {
			t.Run(fmt.Sprint(m.name, timestamps), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.serveBy(&m)
				b.attach()
				b.now = 5 * time.Second
				s := &play{b: b, m: &m, port: 4242, cnext: 0xfffffff0, snext: 0x7ffffff0, cstamp: 0xfffffffe, sstamp: 77, timestamps: timestamps}
				s.open(t)
				for i := range 3 {
					s.client(t, flagACK|flagPSH, "more of the request")
					if len(s.seen) != 1 || string(s.seen[0].payload) != "more of the request" || s.seen[0].tos != 0x28 || s.seen[0].ttl != 63 {
						t.Fatalf("%d: %v", i, s.seen)
					}
					block := layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: 10, OptionData: append(u32(s.sgot-5), u32(s.sgot)...)}
					s.server(t, flagACK|flagPSH, "response", optNop, optNop, block)
					if len(s.told) != 1 || string(s.told[0].payload) != "response" || s.told[0].ttl != 63 || s.told[0].tos != 0x10 {
						t.Fatalf("%d: %v", i, s.told)
					}
					if o := s.told[0].option(layers.TCPOptionKindSACK); !bytes.Equal(o, append(u32(s.cnext-5), u32(s.cnext)...)) {
						t.Fatalf("SACK block % x, next %#x", o, s.cnext)
					}
				}
				b.check(t)
				s.server(t, flagACK|flagFIN, "")
				s.client(t, flagACK|flagFIN, "")
				s.server(t, flagACK, "")
				if got := b.r.Get(regs.AmuLive); got != 0 {
					t.Fatalf("%d live", got)
				}
				b.check(t)
				b.wait(2 * time.Second)
				b.allFree(t)
				state := b.m.ServerState
				if m.method == methodFullNAT && (state[regs.ServerStatePortsFree] != localPorts || b.r.Get64(regs.PassPortsTaken) != 1) {
					t.Errorf("%d ports in the list, %d taken", state[regs.ServerStatePortsFree], b.r.Get64(regs.PassPortsTaken))
				}
				if m.method == methodFullNAT {
					e := b.m.LocalPort[8*regs.LocalPortWords:][:regs.LocalPortWords]
					if want := s.secho; timestamps && e[regs.LocalPortTimestamp] != want || !timestamps && e[regs.LocalPortTimestamp] != 0 || e[regs.LocalPortSeq] != s.sgot || e[regs.LocalPortFreed] == 0 {
						t.Errorf("the port comes back as %#x, want seq %#x timestamp %#x", e, s.sgot, want)
					}
				}
			})
		}
	}
}

// TestAnswersOfTwins: a server that is reached by another method as well, or at all ports, has more than one entry. Its answers find their
// connections whichever comes first.
func TestAnswersOfTwins(t *testing.T) {
	const at = 3 // entry of the server, behind the other one
	for _, m := range methods() {
		if m.method == methodTun {
			continue
		}
		for _, any := range []uint32{0, 1} {
			t.Run(fmt.Sprint(m.name, " any port ", any), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.serveBy(&m)
				copy(b.m.Server[at*regs.ServerWords:], b.m.Server[:regs.ServerWords])
				copy(b.m.ServerState[at*regs.ServerStateWords:], b.m.ServerState[:regs.ServerStateWords])
				for i, other := range []uint32{methodNAT, methodFullNAT} { // one of them with the server's own method
					set(b.m.Server, i, regs.ServerWords, &regs.ServerEntry{ControlValid: 1, ControlKind: m.kind(), ControlProtocol: protocolTCP, ControlPort: 8080, ControlMethod: other, TunnelNat64: 1, TunnelAnyPort: any, Address: words(m.server)})
				}
				set(b.m.Slot, 0, regs.SlotWords, &regs.SlotEntry{SlotServer: at, SlotValid: 1})
				b.m.Dirty = ^uint32(0)
				b.attach()
				b.now = 5 * time.Second
				s := &play{b: b, m: &m, port: 4242, cnext: 1, snext: 1, timestamps: true, cstamp: 5, sstamp: 77}
				s.open(t)
				s.client(t, flagACK|flagPSH, "request")
				s.server(t, flagACK|flagPSH, "response")
				if len(s.told) != 1 || string(s.told[0].payload) != "response" {
					t.Fatalf("the client got %v", s.told)
				}
				b.check(t)
			})
		}
	}
}

// TestPorts: first in, first out; a port rests, unless its numbers are known to be higher.
func TestPorts(t *testing.T) {
	b := newBench(t, smallGeometry())
	m := &method{method: methodFullNAT, w: world4, server: world4.server}
	b.serveBy(m)
	b.fillPorts(0, 8, 12)
	b.c.Sync()
	b.now = time.Minute
	b.c.Advance(b.now)
	take := func(known bool) lent {
		t.Helper()
		l, ok := b.c.takePort(0, known)
		if !ok {
			t.Fatal("no port")
		}
		return l
	}
	var out []lent
	for i := range uint32(12) {
		l := take(true)
		if l.port != 20000+i || l.address != 4+i%2 {
			t.Fatalf("port %d: %+v", i, l)
		}
		out = append(out, l)
	}
	if _, ok := b.c.takePort(0, true); ok || b.m.ServerState[regs.ServerStatePortsNone] != 1 || b.r.Get64(regs.PassDropNoPort) != 1 {
		t.Fatal("a port of an empty list")
	}
	// All go back: the first nine not known or ahead of the clock, the tenth known.
	for i, l := range out {
		seq, stamp := l.isn+10, l.timestamp+1
		switch {
		case i < 5:
			stamp = 0
		case i < 8:
			seq = l.isn + 1<<24
		}
		b.c.putPort(0, l.address, l.port, seq, stamp)
	}
	b.now += time.Second
	b.c.Advance(b.now)
	if _, ok := b.c.takePort(0, true); ok || b.r.Get64(regs.PassPortsTired) != 8 {
		t.Fatalf("the first eight are tired: %d", b.r.Get64(regs.PassPortsTired))
	}
	// One fewer at the head: the ninth is in reach.
	b.now += 59 * time.Second
	b.c.Advance(b.now)
	if l := take(false); l.port != 20000 {
		t.Fatalf("rested: %+v", l)
	}
	b.c.putPort(0, 4, 20000, 1, 1)
	for i := range b.m.LocalPort { // as if all were put back just now
		if i%regs.LocalPortWords == regs.LocalPortFreed && b.m.LocalPort[i] != 0 {
			b.m.LocalPort[i] = b.c.tick
		}
	}
	l := take(true)
	if l.port != 20008 {
		t.Fatalf("the first that may be used: %+v", l)
	}
	if int32(l.isn-out[8].isn) <= 10 || int32(l.timestamp-out[8].timestamp) <= 1 {
		t.Errorf("numbers go back: %+v after %+v", l, out[8])
	}
	if _, ok := b.c.takePort(0, false); ok {
		t.Error("not known, not rested, but used")
	}
	// A list that lies outside the memory has no ports.
	b.m.ServerState[regs.ServerStatePortsSize] = ^uint32(0)
	if _, ok := b.c.takePort(0, true); ok {
		t.Error("a port of nowhere")
	}
	b.c.putPort(0, 0, 1, 2, 3)
}

// TestPortsReused: the same client port again and again, and a list of one port.
func TestPortsReused(t *testing.T) {
	m := method{method: methodFullNAT, w: world4, server: world6.server}
	b := newBench(t, smallGeometry())
	b.serveBy(&m)
	b.fillPorts(0, 8, 1)
	b.attach()
	b.now = time.Minute
	var last uint32
	for i := range 20 {
		s := &play{b: b, m: &m, port: 2348, cnext: uint32(i * 1000), snext: 1, cstamp: uint32(i * 50), timestamps: true}
		s.open(t)
		if i > 0 && int32(s.sgot-last) <= 0 {
			t.Fatalf("%d: sequence numbers go back from %#x to %#x", i, last, s.sgot)
		}
		s.server(t, flagACK|flagFIN, "bye")
		s.client(t, flagACK|flagFIN, "")
		s.server(t, flagACK, "")
		last = s.sgot
		b.wait(1100 * time.Millisecond)
	}
	if got := b.r.Get64(regs.PassPortsTired); got != 0 {
		t.Errorf("%d tired", got)
	}
}

// TestServerFails: a server with FULLNAT that refuses gives its port back, and the next one gets the client's stream from
// its begin.
func TestServerFails(t *testing.T) {
	m := method{method: methodFullNAT, w: world4, server: world4.server, splice: true}
	b := newBench(t, smallGeometry())
	b.serveBy(&m)
	b.attach()
	b.now = time.Minute
	s := &play{b: b, m: &m, port: 2348, cnext: 1 << 31, snext: 1, cstamp: 9, timestamps: true}
	s.client(t, flagSYN, "", optMSS(1460), optSACK)
	s.client(t, flagACK, "")
	s.client(t, flagACK|flagPSH, request)
	first := s.from
	s.server(t, flagRST|flagACK, "")
	n := pageOf(t, b, &m, s.port)
	w := b.c.page(n)
	if w[regs.PageAIsn] != w[regs.PageClientIsn] || b.m.ServerState[regs.ServerStatePortsFree] != localPorts {
		t.Fatalf("isn %#x, the client's %#x, %d ports", w[regs.PageAIsn], w[regs.PageClientIsn], b.m.ServerState[regs.ServerStatePortsFree])
	}
	b.out.Reset()
	var done regs.CompletionEntry
	b.c.Command(&regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, HandleN: n, HandleGeneration: regs.PageControlGeneration(w[regs.PageControl]), KeyIndexIndex: 0}, &done, b.out)
	if done.ControlStatus != statusOK {
		t.Fatalf("connect: status %d", done.ControlStatus)
	}
	syn := one(t, b.drain()[1])
	s.from, s.sgot, s.secho = netip.AddrPortFrom(syn.from, syn.sport), syn.seq+1, 0
	if s.from == first {
		t.Errorf("the same local end again: %v", first)
	}
	s.server(t, flagSYN|flagACK, "", optMSS(1460), optSACK)
	if len(s.seen) != 1 || string(s.seen[0].payload) != request {
		t.Errorf("held: %v", s.seen)
	}
}

// pageOf finds the page of a client's port.
func pageOf(t *testing.T, b *bench, m *method, port uint16) uint32 {
	t.Helper()
	for n := range b.m.Geometry.Pages {
		if w := b.c.page(n); regs.PageControlValid(w[regs.PageControl]) != 0 && regs.PagePortsClient(w[regs.PagePorts]) == uint32(port) {
			return n
		}
	}
	t.Fatal("no page")
	return 0
}

// TestMethodsTooBig: what does not fit the tunnel, or the other family, goes to the host as it came, with the MTU that its
// sender is to be told (cases C03, C25).
func TestMethodsTooBig(t *testing.T) {
	for _, m := range methods() {
		t.Run(m.name, func(t *testing.T) {
			b := newBench(t, smallGeometry())
			b.serveBy(&m)
			b.attach()
			b.now = 5 * time.Second
			s := &play{b: b, m: &m, port: 4242, cnext: 1, snext: 2}
			s.open(t)
			sw := b.c.server(0)
			want := b.c.clientMTU(m.w.kind, sw, b.c.hop(sw))
			if m.method == methodTun && want != 1500-b.c.overhead(sw) {
				t.Fatalf("MTU %d", want)
			}
			headers := uint32(40)
			if m.w.kind == kindIPv6 {
				headers = 60
			}
			b.jumbo()
			b.r.Set(regs.PortMtu+regs.PortStride, 1500)
			for _, more := range []uint32{0, 1} {
				raw := buildFrame(t, &tcp{from: m.w.client, to: m.w.vip, sport: 4242, dport: 80, seq: s.cnext, ack: s.cgot, flags: flagACK, window: 5,
					payload: []byte(strings.Repeat("x", int(want-headers+more))), srcMAC: clientMAC, dstMAC: portMAC[0]})
				before := b.r.Get64(regs.ParserExceptionTooBig)
				out := b.pushBytes(0, raw)
				if more == 0 {
					if len(out[1]) != 1 || len(out[1][0]) > 1518 {
						t.Fatalf("the largest that fits: %d frames", len(out[1]))
					}
					continue
				}
				if len(out[1]) != 0 || b.r.Get64(regs.ParserExceptionTooBig) != before+1 || b.c.given.Mtu != want {
					t.Fatalf("%d frames, told %d, want %d", len(out[1]), b.c.given.Mtu, want)
				}
				if got := b.buf[0].Bytes(); !bytes.Equal(got, raw) {
					t.Error("the host does not get what was sent")
				}
			}
		})
	}
}

// TestMethodsDatagrams: datagrams by FULLNAT and into the other family, with and without a checksum.
func TestMethodsDatagrams(t *testing.T) {
	for _, m := range methods() {
		if m.splice || m.method == methodTun {
			continue
		}
		m.udp = true
		for _, sum := range []bool{true, false} {
			if m.w.kind == kindIPv6 && !sum {
				continue
			}
			t.Run(fmt.Sprint(m.name, sum), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.serveBy(&m)
				b.attach()
				b.now = 5 * time.Second
				raw := datagram(t, m.w, "question", sum)
				at := 14 + 20 + 2
				if m.w.kind == kindIPv6 {
					at += 20
				}
				binary.BigEndian.PutUint16(raw[at:], 80) // the listener's port
				if sum {
					v := binary.BigEndian.Uint16(raw[at+4:])
					binary.BigEndian.PutUint16(raw[at+4:], frame.Update(v, uint64(frame.Difference(53, 80))))
				}
				out := b.pushBytes(0, raw)
				if len(out[1]) != 1 {
					t.Fatalf("%d frames", len(out[1]))
				}
				got := slices.Clone(out[1][0])
				p := b.asPacket(got) // checks the sums
				if p.class != classUDP || uint32(p.kind) != m.kind() || p.dst != words(m.server) || p.dport != 8080 || string(p.b[p.payload:p.end]) != "question" {
					t.Fatalf("% x", got)
				}
				if src := m.source(); src.IsValid() && p.src != words(src) {
					t.Fatalf("from %x", p.src)
				}

				if hops := got[14+7+int(2-m.kind())]; hops != 8 {
					t.Errorf("%d hops left", hops)
				}
				// The answer.
				reply := slices.Clone(got)
				if m.server.Is4() {
					copy(reply[26:30], got[30:34])
					copy(reply[30:34], got[26:30])
					copy(reply[34:36], got[36:38])
					copy(reply[36:38], got[34:36])
				} else {
					copy(reply[22:38], got[38:54])
					copy(reply[38:54], got[22:38])
					copy(reply[54:56], got[56:58])
					copy(reply[56:58], got[54:56])
				}
				back := b.pushBytes(1, reply)
				if len(back[0]) != 1 {
					t.Fatalf("%d answers", len(back[0]))
				}
				p = b.asPacket(back[0][0])
				if p.class != classUDP || uint32(p.kind) != m.w.kind || p.src != words(m.w.vip) || p.dst != words(m.w.client) || p.sport != 80 || p.dport != 5353 {
					t.Fatalf("% x", back[0][0])
				}
			})
		}
	}
}

// TestMethodsAllocate: no method allocates once a connection stands.
func TestMethodsAllocate(t *testing.T) {
	for _, m := range methods() {
		b := newBench(t, smallGeometry())
		b.serveBy(&m)
		b.attach()
		b.now = 5 * time.Second
		raw := m.established(t, b)
		sent := 0
		if got := testing.AllocsPerRun(50, func() {
			f := &b.buf[0]
			f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
			b.c.Process(0, b.buf[:1], b.out)
			sent += len(b.out.Ports[1])
			b.out.Reset()
		}); got != 0 || sent == 0 {
			t.Errorf("%s: %v allocations, %d sent", m.name, got, sent)
		}
	}
}

// TestCross compares the translation of a header with a packet that was never anything else.
func TestCross(t *testing.T) {
	b := newBench(t, smallGeometry())
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 2000 {
		from, to := world4, world6
		if i%2 == 1 {
			from, to = to, from
		}
		x := tcp{from: from.client, to: from.vip, sport: uint16(r.Uint32()), dport: 80, seq: r.Uint32(), ack: r.Uint32(), flags: flagACK, window: uint16(r.Uint32()),
			tos: uint8(r.Uint32()), ttl: uint8(2 + r.IntN(250)), payload: []byte(strings.Repeat("y", r.IntN(1200))), vlan: uint16(r.IntN(2) * 9), srcMAC: clientMAC, dstMAC: portMAC[0]}
		if r.IntN(2) == 0 {
			x.options = []layers.TCPOption{optNop, optNop, optTS(r.Uint32(), 1)}
		}
		raw := buildFrame(t, &x)
		x.from, x.to, x.ttl = to.client, to.vip, x.ttl-1
		want := buildFrame(t, &x)
		if l3 := 14 + int(min(x.vlan, 1))*4; from.kind == kindIPv6 && i%3 == 0 { // extension headers end here
			next := raw[l3+6]
			raw = slices.Insert(raw, l3+40, append([]byte{60, 0}, make([]byte, 6)...)...)
			raw = slices.Insert(raw, l3+48, append([]byte{next, 1}, make([]byte, 14)...)...)
			raw[l3+6] = 0
			binary.BigEndian.PutUint16(raw[l3+4:], binary.BigEndian.Uint16(raw[l3+4:])+24)
		}
		p := b.asPacket(raw)
		if p.class != classTCP {
			t.Fatalf("class %d", p.class)
		}
		src, dst := address(words(to.client)), address(words(to.vip))
		at := p.b[p.tcp+16:]
		d := frame.Difference(sumAddress(&p.src)+sumAddress(&p.dst), sumAddress(&src)+sumAddress(&dst))
		binary.BigEndian.PutUint16(at, frame.Update(binary.BigEndian.Uint16(at), uint64(d)))
		if !b.c.cross(p, uint8(to.kind), &src, &dst) {
			t.Fatal("refused")
		}
		if got := p.f.Buf[p.f.Start : p.f.Start+p.end]; !bytes.Equal(got, want[:p.end]) {
			t.Fatalf("%d\n got % x\nwant % x", i, got, want)
		}
		if string(p.b[p.payload:p.end]) != string(x.payload) || p.b[p.tcp+13] != flagACK {
			t.Fatal("offsets")
		}
	}
}

// TestMethodsCoalesced: a coalesced packet of a client arrives by every method as segments that fit.
func TestMethodsCoalesced(t *testing.T) {
	for _, m := range methods() {
		t.Run(m.name, func(t *testing.T) {
			b := newBench(t, smallGeometry())
			b.serveBy(&m)
			b.attach()
			b.now = 5 * time.Second
			s := &play{b: b, m: &m, port: 4242, cnext: 0xfffff000, snext: 2}
			s.open(t)
			body := make([]byte, 9000)
			for i := range body {
				body[i] = byte(i * 3)
			}
			raw := buildFrame(t, &tcp{from: m.w.client, to: m.w.vip, sport: 4242, dport: 80, seq: s.cnext, ack: s.cgot, flags: flagACK | flagPSH, window: 5, payload: body, srcMAC: clientMAC, dstMAC: portMAC[0]})
			f := &b.buf[0]
			f.Start, f.End = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw))
			offload(f, 1440)
			b.out.Reset()
			b.c.Process(0, b.buf[:1], b.out)
			var got []byte
			segment := func(g tcp) {
				t.Helper()
				if g.seq != s.sgot || g.ack != s.snext {
					t.Fatalf("%v, it expects %#x", g, s.sgot)
				}
				s.sgot += uint32(len(g.payload))
				got = append(got, g.payload...)
			}
			for _, f := range b.out.Ports[1] {
				if m.method == methodTun {
					in := unwrap(t, m.tunnel, f.Bytes())
					if f.Len() > 1518 {
						t.Fatalf("%d bytes", f.Len())
					}
					segment(parseFrame(t, append(append(make([]byte, 12), etherOf(m.w)...), in...)))
					continue
				}
				for _, g := range wire(t, f) {
					segment(g)
				}
			}
			if !bytes.Equal(got, body) {
				t.Errorf("%d bytes of %d", len(got), len(body))
			}
		})
	}
}

// FuzzMethods sends what looks like segments of a connection through every method. Whatever comes out is whole.
func FuzzMethods(f *testing.F) {
	f.Add(uint8(0), false, uint32(0), uint32(0), uint8(flagACK), []byte{}, []byte("hello"))
	f.Add(uint8(9), true, uint32(1), uint32(0), uint8(flagACK|flagFIN), []byte{1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2}, []byte{})
	f.Add(uint8(20), false, uint32(3), uint32(9), uint8(flagRST), []byte{8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1}, []byte("x"))
	ms := methods()
	f.Fuzz(func(t *testing.T, which uint8, back bool, seq, ack uint32, flags uint8, options, payload []byte) {
		if len(payload) > 1200 || len(options) > 40 {
			return
		}
		m := &ms[int(which)%len(ms)]
		b := newBench(t, smallGeometry())
		b.serveBy(m)
		b.attach()
		b.now = 5 * time.Second
		s := &play{b: b, m: m, port: 4242, cnext: 0xffffff00, snext: 0xffffff00, timestamps: which&1 != 0}
		s.open(t)
		x := tcp{from: m.w.client, to: m.w.vip, sport: 4242, dport: 80, seq: s.cnext + seq, ack: s.cgot + ack, flags: flags, window: 9, payload: payload, srcMAC: clientMAC, dstMAC: portMAC[0]}
		port := 0
		if back {
			port = 1
			x.from, x.to, x.sport, x.dport, x.seq, x.ack = m.server, s.from.Addr(), 8080, s.from.Port(), s.snext+seq, s.sgot+ack
			if m.method == methodTun {
				x.from, x.sport = m.w.vip, 80
			}
			if m.tunnel.tagged {
				x.vlan = 77
			}
		}
		// The options as they are: gopacket would not make such.
		options = append(options, make([]byte, (4-len(options)%4)%4)...)
		for i := 0; i+4 <= len(options); i += 4 {
			x.options = append(x.options, optNop, optNop, optNop, optNop)
		}
		raw := buildFrame(t, &x)
		p := b.asPacket(raw)
		if p.class != classTCP {
			return
		}
		at := int(p.tcp) + 20
		old := frame.Sum(raw[at:at+len(options)], 0)
		copy(raw[at:], options)
		d := frame.Difference(old, frame.Sum(options, 0))
		binary.BigEndian.PutUint16(raw[at-4:], frame.Update(binary.BigEndian.Uint16(raw[at-4:]), uint64(d)))
		for range 2 {
			out := b.pushBytes(port, raw)
			for _, g := range out[1] {
				if m.method == methodTun {
					g = append(append(make([]byte, 12), etherOf(m.w)...), unwrap(t, m.tunnel, g)...)
				}
				whole(t, b, g)
			}
			for _, g := range out[0] {
				whole(t, b, g)
			}
			b.check(t)
		}
	})
}

// whole holds a frame to its checksums: gopacket does not take every option.
func whole(t *testing.T, b *bench, raw []byte) {
	t.Helper()
	before := b.r.Get64(regs.ParserDropTcpChecksum) + b.r.Get64(regs.ParserDropIpChecksum) + b.r.Get64(regs.ParserDropTcpHeader) + b.r.Get64(regs.ParserDropTruncated)
	b.asPacket(raw)
	if b.r.Get64(regs.ParserDropTcpChecksum)+b.r.Get64(regs.ParserDropIpChecksum)+b.r.Get64(regs.ParserDropTcpHeader)+b.r.Get64(regs.ParserDropTruncated) != before {
		t.Fatalf("broken: % x", raw)
	}
}

// BenchmarkMethods sends small segments of one connection by every method, batches of 64.
func BenchmarkMethods(b *testing.B) {
	for _, m := range methods() {
		b.Run(strings.ReplaceAll(m.name, " ", "_"), func(b *testing.B) {
			x := newBench(b, smallGeometry())
			x.serveBy(&m)
			x.attach()
			x.now = 5 * time.Second
			x.c.Advance(x.now)
			raw := m.established(b, x)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				for i := range x.buf {
					f := &x.buf[i]
					f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
				}
				x.c.Process(0, x.buf, x.out)
				n += len(x.out.Ports[1])
				x.out.Reset()
			}
			if n == 0 {
				b.Fatal("nothing is sent")
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}

// established opens a connection and returns a small segment of its client.
func (m *method) established(t testing.TB, b *bench) []byte {
	s := &play{b: b, m: m, port: 4242, cnext: 1, snext: 2}
	s.open(t)
	return buildFrame(t, &tcp{from: m.w.client, to: m.w.vip, sport: 4242, dport: 80, seq: s.cnext, ack: s.cgot, flags: flagACK, window: 5, payload: []byte("hello"), srcMAC: clientMAC, dstMAC: portMAC[0]})
}

// TestUsable: which servers a splice of a client's family can go to.
func TestUsable(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{})
	for _, x := range []struct {
		name   string
		server regs.ServerEntry
		kind   uint32
		want   bool
	}{
		{"nat", regs.ServerEntry{ControlKind: kindIPv4}, kindIPv4, true},
		{"nat, IPv6 to IPv4", regs.ServerEntry{ControlKind: kindIPv4}, kindIPv6, false},
		{"nat, IPv4 to IPv6", regs.ServerEntry{ControlKind: kindIPv6}, kindIPv4, false},
		{"nat64", regs.ServerEntry{ControlKind: kindIPv6, TunnelNat64: 1}, kindIPv4, true},
		{"fullnat, IPv6 to IPv4", regs.ServerEntry{ControlKind: kindIPv4, ControlMethod: methodFullNAT}, kindIPv6, true},
		{"tunnel that answers past the card", regs.ServerEntry{ControlKind: kindIPv4, ControlMethod: methodTun}, kindIPv4, false},
		{"tunnel that answers through it", regs.ServerEntry{ControlKind: kindIPv6, ControlMethod: methodTun, TunnelReturn: 1}, kindIPv4, true},
		{"dscp", regs.ServerEntry{ControlKind: kindIPv4, ControlMethod: methodTun, TunnelReturn: 1, TunnelType: regs.ServerTunnelTypeDscp}, kindIPv4, false},
		{"direct routing", regs.ServerEntry{ControlKind: kindIPv4, ControlMethod: methodDR}, kindIPv4, false},
		{"closed", regs.ServerEntry{ControlKind: kindIPv4, ControlClosed: 1}, kindIPv4, false},
	} {
		x.server.ControlValid, x.server.ControlProtocol, x.server.ControlPort = 1, protocolTCP, 80
		set(b.m.Server, 0, regs.ServerWords, &x.server)
		if got := b.c.usable(0, x.kind); got != x.want {
			t.Errorf("%s: got %v, want %v", x.name, got, x.want)
		}
	}
}
