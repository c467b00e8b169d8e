package datapath

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// passed is a bench with one service that passes connections on, and a connection of it.
func passed(t *testing.T, mode uint32, change func(*regs.ServiceEntry)) (*bench, *conn) {
	t.Helper()
	b := newBench(t, smallGeometry())
	b.serve4(world4, 0, mode, change)
	b.attach()
	b.now = 3 * time.Second
	return b, &conn{b: b, w: world4, port: 40001, cseq: 1000, sseq: 5000}
}

// shake takes a connection through its handshake.
func (c *conn) shake(t *testing.T, mode uint32) {
	t.Helper()
	one(t, c.b.push(0, c.client(flagSYN, "", optMSS(1460)))[1])
	c.sack, c.cack = c.cseq, c.sseq+1
	if mode == regs.ServiceControlModeNat {
		one(t, c.b.push(1, c.server(flagSYN|flagACK, "", optMSS(1460)))[0])
	}
	one(t, c.b.push(0, c.client(flagACK, ""))[1])
}

const (
	modeNAT = regs.ServiceControlModeNat
	modeDR  = regs.ServiceControlModeDr
)

func (b *bench) counts(t *testing.T, want map[regs.Reg]uint64) {
	t.Helper()
	for r, n := range want {
		if got := b.r.Get64(r); got != n {
			t.Errorf("%s: got %d, want %d", r.Name(), got, n)
		}
	}
}

// TestCaseC07: a client port is used twenty times, 50 ms apart: the first SYN of every connection goes on at once.
func TestCaseC07(t *testing.T) {
	for _, mode := range []uint32{modeNAT, modeDR} {
		b, c := passed(t, mode, nil)
		c.port = 2348
		for i := range 20 {
			c.shake(t, mode)
			one(t, b.push(0, c.client(flagACK|flagFIN, ""))[1])
			c.sack = c.cseq
			if mode == modeNAT {
				one(t, b.push(1, c.server(flagACK|flagFIN, "bye"))[0])
			}
			c.cack = c.sseq
			one(t, b.push(0, c.client(flagACK, ""))[1])
			b.check(t)
			c.cseq += uint32(i%2) * 0x90000000 // higher or lower, as clients with random numbers have it
			b.wait(50 * time.Millisecond)
		}
		b.counts(t, map[regs.Reg]uint64{regs.PassOpened: 20, regs.PassReused: 19})
	}
}

// TestPassedSynAgain: what a SYN does to a connection that is there.
func TestPassedSynAgain(t *testing.T) {
	for _, mode := range []uint32{modeNAT, modeDR} {
		b, c := passed(t, mode, nil)
		one(t, b.push(0, c.client(flagSYN, "", optMSS(1460)))[1])
		c.cseq += 999
		one(t, b.push(0, c.client(flagSYN, "", optMSS(1460)))[1]) // half-open: another attempt
		b.counts(t, map[regs.Reg]uint64{regs.PassOpened: 2, regs.PassReused: 1})
		b.check(t)
		c.cseq += 999
		c.shake(t, mode)
		if got := b.state(c); got != Spliced {
			t.Fatalf("state %v", stateNames[got])
		}
		other := *c
		other.cseq += 1 << 30
		one(t, b.push(0, other.client(flagSYN, "", optMSS(1460)))[1])
		b.check(t)
		if mode == modeNAT {
			if got := b.state(c); got != Spliced {
				t.Errorf("a SYN alone brings a connection in use to %v", stateNames[got])
			}
			other.sseq, other.sack = 0x99999999, other.cseq
			one(t, b.push(1, other.server(flagSYN|flagACK, "", optMSS(1460)))[0])
			if got := b.state(c); got != SynRcvd {
				t.Errorf("the server began anew: %v", stateNames[got])
			}
			other.cack = other.sseq
		}
		one(t, b.push(0, other.client(flagACK, ""))[1])
		if got := b.state(c); got != Spliced {
			t.Errorf("after the new handshake: %v", stateNames[got])
		}
		one(t, b.push(0, other.client(flagRST, ""))[1])
		if got := b.state(c); got != Quarantine {
			t.Errorf("after its RST: %v", stateNames[got])
		}
		b.check(t)
	}
}

// TestKeepServer: conn_reuse off leaves a new connection of a client port with the old one's server.
func TestKeepServer(t *testing.T) {
	for _, keep := range []uint32{0, 1} {
		b, c := passed(t, modeDR, func(e *regs.ServiceEntry) { e.ControlKeepServer = keep })
		b.twoServers(modeDR)
		for range 4 {
			c.shake(t, modeDR)
			one(t, b.push(0, c.client(flagACK|flagFIN, ""))[1])
		}
		want := [2]uint32{2, 2}
		if keep != 0 {
			want = [2]uint32{4, 0}
		}
		if got := b.everServed(); got != want {
			t.Errorf("keep %d: %v, want %v", keep, got, want)
		}
	}
}

// twoServers gives the first group a second server, of the same method.
func (b *bench) twoServers(mode uint32) {
	s := regs.ServerEntry{ControlValid: 1, ControlKind: kindIPv4, ControlProtocol: 6, ControlPort: 8080, ControlMethod: mode - modeNAT, Address: words(addressAt(world4.server, 1))}
	s.ControlProtocol = regs.ServerControlProtocol(b.m.Server[regs.ServerControl])
	set(b.m.Server, 1, regs.ServerWords, &s)
	set(b.m.Slot, 1, regs.SlotWords, &regs.SlotEntry{SlotServer: 1, SlotValid: 1})
	b.m.GroupState[regs.GroupStateSelector] = regs.SetGroupStateSelectorCountA(0, 2)
	b.m.Dirty = ^uint32(0)
}

func (b *bench) everServed() (n [2]uint32) {
	for i := range n {
		n[i] = b.m.ServerState[i*regs.ServerStateWords+regs.ServerStateConnectionsLo]
	}
	return n
}

// TestSloppy: a segment without SYN and without page opens one where the service wants that, else it is counted.
func TestSloppy(t *testing.T) {
	for _, mode := range []uint32{modeNAT, modeDR} {
		b, c := passed(t, mode, nil)
		c.cack = 7
		if out := b.push(0, c.client(flagACK, "lost")); len(out[0])+len(out[1]) != 0 {
			t.Fatalf("not sloppy: %v", out)
		}
		b.counts(t, map[regs.Reg]uint64{regs.PassDropNoPage: 1, regs.PassOpened: 0})
		b.change(func(e *regs.ServiceEntry) { e.ControlSloppy = 1 })
		b.push(0, c.client(flagRST, ""))
		one(t, b.push(0, c.client(flagACK, "found"))[1])
		b.counts(t, map[regs.Reg]uint64{regs.PassDropNoPage: 2, regs.PassOpened: 1, regs.PassSloppy: 1})
		b.check(t)
		if mode == modeNAT {
			c.sseq, c.sack = 7, c.cseq
			one(t, b.push(1, c.server(flagACK|flagFIN, "answer"))[0])
			c.cack = c.sseq
			one(t, b.push(0, c.client(flagACK|flagFIN, ""))[1])
			c.sack = c.cseq
			one(t, b.push(1, c.server(flagACK, ""))[0])
			if got := b.state(c); got != Quarantine {
				t.Errorf("after both FINs: %v", stateNames[got])
			}
			b.check(t)
		}
	}
}

// TestSources: services of one listener are asked in turn by the client's network; the port of the listener may be any.
func TestSources(t *testing.T) {
	b, c := passed(t, modeDR, nil)
	b.serve4(world4, 1, modeDR, nil)
	for bank := range 2 {
		set(b.m.Url[bank], 5, 8, &regs.UrlNetEntry{ControlValid: 1, ControlKind: kindIPv4, ControlBits: 24, Address: words(world4.client)})
		set(b.m.Listener[bank], 1, regs.ListenerWords, &regs.ListenerEntry{})
	}
	b.m.Vip[1*regs.AddressWords] = 0
	b.change(func(e *regs.ServiceEntry) { e.SourceFirst, e.SourceCount = 5, 1 })
	one(t, b.push(0, c.client(flagSYN, ""))[1])
	stranger := *c
	stranger.w.client = addressAt(world4.client, 600)
	if out := b.push(0, stranger.client(flagSYN, "")); len(out[0])+len(out[1]) != 0 {
		t.Errorf("a stranger is served: %v", out)
	}
	b.counts(t, map[regs.Reg]uint64{regs.PassDropSource: 1, regs.PassOpened: 1})
	b.change(func(e *regs.ServiceEntry) { e.OtherwiseService, e.OtherwiseValid = 1, 1 })
	one(t, b.push(0, stranger.client(flagSYN, ""))[1])
	if got := b.everServed(); got != [2]uint32{1, 1} {
		t.Errorf("served %v", got)
	}
	b.change(func(e *regs.ServiceEntry) { e.OtherwiseService, e.SourceFirst = 0, 4 }) // a ring of services that take nobody
	stranger.port++
	b.push(0, stranger.client(flagSYN, ""))
	b.counts(t, map[regs.Reg]uint64{regs.PassDropSource: 2})
	b.check(t)

	b.change(func(e *regs.ServiceEntry) { e.SourceCount = 0 })
	for bank := range 2 {
		l := b.m.Listener[bank]
		l[regs.ListenerControl] = regs.SetListenerControlPort(l[regs.ListenerControl], 0)
	}
	b.m.Dirty = ^uint32(0)
	raw := buildFrame(t, &tcp{from: world4.client, to: world4.vip, sport: 5, dport: 4711, flags: flagSYN, srcMAC: clientMAC, dstMAC: portMAC[0]})
	if got := one(t, b.push(0, raw)[1]); got.dport != 4711 {
		t.Errorf("any port: %v", got)
	}
	b.check(t)
}

// TestAnyPortOfAServer: a NAT server that takes every port keeps the client's, and its answers are told apart by it.
func TestAnyPortOfAServer(t *testing.T) {
	b, _ := passed(t, modeNAT, nil)
	for bank := range 2 {
		l := b.m.Listener[bank]
		l[regs.ListenerControl] = regs.SetListenerControlPort(l[regs.ListenerControl], 0)
	}
	b.m.Server[regs.ServerTunnel] |= regs.ServerTunnelAnyPortMask
	b.m.Dirty = ^uint32(0)
	for _, port := range []uint16{21, 4711} {
		raw := buildFrame(t, &tcp{from: world4.client, to: world4.vip, sport: 5000, dport: port, seq: 9, flags: flagSYN, srcMAC: clientMAC, dstMAC: portMAC[0]})
		if got := one(t, b.push(0, raw)[1]); got.dport != port || got.sport != 5000 || got.to != world4.server {
			t.Errorf("to the server: %v", got)
		}
	}
	for _, port := range []uint16{21, 4711} {
		raw := buildFrame(t, &tcp{from: world4.server, to: world4.client, sport: port, dport: 5000, seq: 77, ack: 10, flags: flagSYN | flagACK, srcMAC: serverMAC, dstMAC: portMAC[1]})
		if got := one(t, b.push(1, raw)[0]); got.sport != port || got.dport != 5000 || got.from != world4.vip {
			t.Errorf("to the client: %v", got)
		}
	}
	b.check(t)
}

// TestPassedKeyMoved: two connections of one client port to two of our addresses with the same server are told apart.
func TestPassedKeyMoved(t *testing.T) {
	b, c := passed(t, modeNAT, nil)
	other := world4
	other.vip = addressAt(world4.vip, 1)
	b.serve4(other, 1, modeNAT, nil)
	for bank := range 2 {
		set(b.m.Group[bank], 1, regs.GroupWords, &regs.GroupEntry{ControlValid: 1})
	}
	set(b.m.Server, 1, regs.ServerWords, &regs.ServerEntry{})
	set(b.m.Slot, 2*int(b.m.Geometry.Slots), regs.SlotWords, &regs.SlotEntry{SlotServer: 0, SlotValid: 1})
	b.m.Dirty = ^uint32(0)
	one(t, b.push(0, c.client(flagSYN, ""))[1])
	x := &conn{b: b, w: other, port: c.port, cseq: 70}
	got := one(t, b.push(0, x.client(flagSYN, ""))[1])
	if got.sport == c.port || got.to != world4.server {
		t.Fatalf("the second: %v", got)
	}
	raw := buildFrame(t, &tcp{from: world4.server, to: world4.client, sport: 8080, dport: got.sport, seq: 77, ack: 71, flags: flagSYN | flagACK, srcMAC: serverMAC, dstMAC: portMAC[1]})
	if back := one(t, b.push(1, raw)[0]); back.from != other.vip || back.dport != c.port {
		t.Errorf("its answer: %v", back)
	}
	b.counts(t, map[regs.Reg]uint64{regs.ConnectionKeyMoved: 1})
	b.check(t)
}

// TestTemplates: a client's connections go to one server while a template says so.
func TestTemplates(t *testing.T) {
	b, c := passed(t, modeDR, func(e *regs.ServiceEntry) { e.Persistence, e.PersistenceNetIpv4 = 20_000, 24 })
	b.twoServers(modeDR)
	for i := range 4 {
		c.port++
		c.w.client = addressAt(world4.client, i) // of the same network
		c.shake(t, modeDR)
	}
	if got := b.everServed(); got != [2]uint32{4, 0} {
		t.Fatalf("served %v", got)
	}
	b.check(t)
	b.counts(t, map[regs.Reg]uint64{regs.PassTemplateTaken: 1, regs.PassTemplateHit: 3})
	b.wait(40 * time.Second) // a live connection keeps it
	b.counts(t, map[regs.Reg]uint64{regs.PassTemplateExpired: 0})

	b.m.GroupState[regs.GroupStateSelector] = regs.SetGroupStateSelectorCountA(0, 1) // weight 0: server 0 has no slot any more
	set(b.m.Slot, 0, regs.SlotWords, &regs.SlotEntry{SlotServer: 1, SlotValid: 1})
	c.port++
	c.shake(t, modeDR)
	if got := b.everServed(); got != [2]uint32{5, 0} {
		t.Errorf("quiescent, kept: %v", got)
	}
	b.change(func(e *regs.ServiceEntry) { e.ControlExpireQuiescent = 1 })
	c.port++
	c.shake(t, modeDR)
	if got := b.everServed(); got != [2]uint32{5, 1} {
		t.Errorf("quiescent, expired: %v", got)
	}
	b.m.Server[regs.ServerWords+regs.ServerControl] |= regs.ServerControlClosedMask // down
	set(b.m.Slot, 0, regs.SlotWords, &regs.SlotEntry{SlotServer: 0, SlotValid: 1})
	c.port++
	c.shake(t, modeDR)
	if got := b.everServed(); got != [2]uint32{6, 1} {
		t.Errorf("down: %v", got)
	}
	b.counts(t, map[regs.Reg]uint64{regs.PassTemplateStale: 2, regs.PassTemplateTaken: 3})
	b.check(t)
	b.change(func(e *regs.ServiceEntry) { e.Idle = 1000 })
	b.wait(2 * time.Second) // the connections are gone, the template is not
	if got := b.r.Get(regs.AmuLive); got != 1 {
		t.Errorf("live: %d, want the template", got)
	}
	b.wait(17 * time.Second)
	b.counts(t, map[regs.Reg]uint64{regs.PassTemplateExpired: 0})
	b.wait(5 * time.Second)
	b.counts(t, map[regs.Reg]uint64{regs.PassTemplateExpired: 1})
	if got := b.r.Get(regs.AmuLive); got != 0 {
		t.Errorf("live at last: %d", got)
	}
	b.check(t)
	zero := buildFrame(t, &tcp{from: world4.client, to: world4.vip, sport: 0, dport: 80, flags: flagSYN, srcMAC: clientMAC, dstMAC: portMAC[0]})
	b.push(0, zero)
	b.check(t)
}

// TestLimits: a server with enough connections takes no other until it has few enough.
func TestLimits(t *testing.T) {
	b, c := passed(t, modeDR, nil)
	b.m.ServerState[regs.ServerStateUpper] = 4
	open := func() bool {
		c.port++
		return len(b.push(0, c.client(flagSYN, ""))[1]) == 1
	}
	for range 4 {
		if !open() {
			t.Fatal("refused below the limit")
		}
	}
	if open() {
		t.Error("taken beyond the limit")
	}
	b.counts(t, map[regs.Reg]uint64{regs.PassOverloaded: 1, regs.PassDropNoServer: 1, regs.TransmitRst: 1})
	end := func() {
		for n := range b.m.Geometry.Pages {
			if w := b.c.page(n); w[regs.PageControl]&regs.PageControlValidMask != 0 {
				b.c.free(n, w)
				return
			}
		}
	}
	end() // three: lower is three quarters
	if open() {
		t.Error("taken at three quarters")
	}
	end()
	if !open() {
		t.Error("refused below three quarters")
	}
	b.check(t)
}

// TestNodest: connections of a server that is gone go on, or end at once, as their service asks.
func TestNodest(t *testing.T) {
	for _, mode := range []uint32{modeNAT, modeDR} {
		b, c := passed(t, mode, nil)
		c.shake(t, mode)
		b.m.Server[regs.ServerControl] &^= regs.ServerControlValidMask
		b.m.Dirty = ^uint32(0)
		if out := b.wait(time.Second); len(out[0])+len(out[1]) != 0 {
			t.Errorf("ended: %v", out)
		}
		one(t, b.push(0, c.client(flagACK, "on"))[1])
		b.change(func(e *regs.ServiceEntry) { e.ControlExpireNodest = 1 })
		out := b.wait(200 * time.Millisecond)
		if rst := one(t, out[0]); rst.flags&flagRST == 0 || rst.seq != c.cack {
			t.Errorf("to the client: %v, its next is %#x", rst, c.cack)
		}
		if mode == modeNAT {
			if rst := one(t, out[1]); rst.flags&flagRST == 0 || rst.seq != c.cseq {
				t.Errorf("to the server: %v", rst)
			}
		}
		b.counts(t, map[regs.Reg]uint64{regs.PassNodest: 1})
		b.check(t)
	}
}

// TestClamp: both SYNs announce no more than the way takes.
func TestClamp(t *testing.T) {
	b, c := passed(t, modeNAT, nil)
	b.m.NextHop[regs.NextHopMacHi] = regs.SetNextHopMacHiMtu(b.m.NextHop[regs.NextHopMacHi], 1400)
	mssOf := func(s tcp) uint16 {
		o := s.option(layers.TCPOptionKindMSS)
		return uint16(o[0])<<8 | uint16(o[1])
	}
	if got := mssOf(one(t, b.push(0, c.client(flagSYN, "", optNop, optMSS(1460)))[1])); got != 1360 {
		t.Errorf("the client's: %d", got)
	}
	c.sack = c.cseq
	if got := mssOf(one(t, b.push(1, c.server(flagSYN|flagACK, "", optMSS(9000)))[0])); got != 1360 {
		t.Errorf("the server's: %d", got)
	}
	c.port++
	if got := mssOf(one(t, b.push(0, c.client(flagSYN, "", optMSS(536)))[1])); got != 536 {
		t.Errorf("a small one: %d", got)
	}
}

// TestCaseC21: TCP is found behind legal chains of IPv6 extension headers, which go on as they came; long or broken ones are
// dropped and counted. What an authentication header covers is not altered: the host gets it, as it gets what nothing follows.
func TestCaseC21(t *testing.T) {
	padded := func(next byte) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} } // Hop-by-Hop or Destination Options with PadN
	ah := func(next byte) []byte {
		return []byte{next, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	}
	chain := func(n int) (all []byte) {
		for range n - 1 {
			all = append(all, padded(60)...)
		}
		return append(all, padded(protocolTCP)...)
	}
	syn := func(b *bench) []byte {
		return (&conn{b: b, w: world6, port: 40001, cseq: 5}).client(flagSYN, "", optMSS(1440))
	}
	for _, tt := range []struct {
		name    string
		next    byte
		headers []byte
		counter regs.Reg // zero: passed on
	}{
		{"hop-by-hop", 0, padded(protocolTCP), 0},
		{"destination options", 60, padded(protocolTCP), 0},
		{"both", 0, append(padded(60), padded(protocolTCP)...), 0},
		{"chain of 8", 60, chain(8), 0},
		{"chain of 9", 60, chain(9), regs.ParserDropExtensionHeader},
		{"chain of 30", 60, chain(30), regs.ParserDropExtensionHeader},
		{"no next header", 59, nil, regs.ParserExceptionProtocol},
		{"no next header behind hop-by-hop", 0, padded(59), regs.ParserExceptionProtocol},
		{"longer than the packet", 0, []byte{protocolTCP, 99, 1, 4, 0, 0, 0, 0}, regs.ParserDropExtensionHeader},
		{"authentication header", 51, ah(protocolTCP), regs.ParserExceptionProtocol},
		{"authentication header behind hop-by-hop", 0, append(padded(51), ah(protocolTCP)...), regs.ParserExceptionProtocol},
		{"authentication header before destination options", 51, append(ah(60), padded(protocolTCP)...), regs.ParserExceptionProtocol},
	} {
		for _, mode := range []uint32{modeNAT, modeDR} {
			t.Run(fmt.Sprint(tt.name, ", mode ", mode), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.serve4(world6, 0, mode, nil)
				b.attach()
				raw := extended(syn(b), tt.next, tt.headers...)
				out := b.pushRaw(0, raw)
				if tt.counter != 0 {
					if got := b.r.Get64(tt.counter); got != 1 || len(out[0])+len(out[1]) != 0 {
						t.Errorf("%s is %d, sent %d", tt.counter.Name(), got, len(out[0])+len(out[1]))
					}
					if given := b.exceptions(); tt.counter == regs.ParserExceptionProtocol && (len(given) != 1 || string(given[0].frame) != string(raw)) {
						t.Errorf("the host gets %+v", given)
					}
					return
				}
				f := alone(t, out, 1)
				if got := parseFrame(t, f); got.seq != 5 || got.flags != flagSYN || got.ttl != 63 || got.sport != 40001 {
					t.Errorf("%v", got)
				}
				if got := f[54 : 54+len(tt.headers)]; f[20] != tt.next || string(got) != string(tt.headers) {
					t.Errorf("next header %d, chain % x, was %d, % x", f[20], got, tt.next, tt.headers)
				}
				b.check(t)
			})
		}
	}

	// A chain that ends with the packet, wherever: of its last byte, nothing more is read.
	b := newBench(t, smallGeometry())
	b.serve4(world6, 0, modeNAT, nil)
	b.attach()
	raw := extended(syn(b), 0, append(padded(60), padded(protocolTCP)...)...)
	for n := 54; n < len(raw); n++ {
		short := append(make([]byte, 0, n), raw[:n]...)
		put16(short, 18, uint16(n-54))
		books := b.accounts()
		if out := b.pushRaw(0, short); len(out[0])+len(out[1]) != 0 {
			t.Errorf("cut at %d: sent %d", n, len(out[0])+len(out[1]))
		}
		if after := b.accounts(); after.drops-books.drops != 1 || after.exceptions != books.exceptions {
			t.Errorf("cut at %d: %+v, before %+v", n, after, books)
		}
	}
	b.counts(t, map[regs.Reg]uint64{regs.ParserDropExtensionHeader: 16, regs.PassOpened: 0})
}

// TestPassedCookies: under cookies a service with nat connects its server after the proof.
func TestPassedCookies(t *testing.T) {
	b, c := passed(t, modeNAT, func(e *regs.ServiceEntry) { e.ControlDefence = regs.ServiceControlDefenceAlways })
	c.cack = one(t, b.push(0, c.client(flagSYN, "", optMSS(1460)))[0]).seq + 1
	if got := b.r.Get(regs.AmuLive); got != 0 {
		t.Fatalf("a page before the proof: %d", got)
	}
	syn := one(t, b.push(0, c.client(flagACK, ""))[1])
	if syn.flags != flagSYN || syn.to != world4.server || syn.from != world4.client {
		t.Fatalf("to the server: %v", syn)
	}
	c.sack = syn.seq + 1
	one(t, b.push(1, c.server(flagSYN|flagACK, "", optMSS(1460)))[1])
	got := one(t, b.push(0, c.client(flagACK, "hello"))[1])
	if string(got.payload) != "hello" || got.ack != c.sseq {
		t.Errorf("data: %v", got)
	}
	b.check(t)
}

// TestBack: what would go to a wire comes back to the host, however long.
func TestBack(t *testing.T) {
	b, _ := passed(t, modeNAT, udpService)
	raw := packetOf(t, 0, dgram{from: world4.client, to: world4.vip, sport: 40001, dport: 80, payload: make([]byte, 1800)}, true)
	f := &b.buf[0]
	f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	b.c.Reinject(&regs.InjectEntry{FlagsBack: 1, Cookie: 77}, b.buf[:1], b.out)
	if len(b.out.Ports[0])+len(b.out.Ports[1]) != 0 {
		t.Fatal("it went to a wire")
	}
	g := b.exceptions()
	if len(g) != 1 || g[0].ReasonReason != regs.ExceptionReasonReasonFragmented || g[0].Back != 77 || g[0].ControlPort != 1 {
		t.Fatalf("the host gets %+v", g)
	}
	if got := seenDatagram(t, g[0].frame[:min(len(g[0].frame), len(raw))]); got.to != world4.server && len(g[0].frame) == len(raw) {
		t.Errorf("as %+v", got)
	}
	b.counts(t, map[regs.Reg]uint64{regs.PassBack: 1})
	if out := b.pushRaw(0, raw); len(out[1]) != 0 {
		t.Error("from a wire it goes on, too long")
	}
}

// TestModule: payload goes by way of the host once, both ways; what carries none goes on.
func TestModule(t *testing.T) {
	b, c := passed(t, modeNAT, func(e *regs.ServiceEntry) { e.ControlModule = 1 })
	c.shake(t, modeNAT)
	for side, raw := range [][]byte{c.client(flagACK, "PORT 1"), c.server(flagACK, "200 ok")} {
		if out := b.pushRaw(side, raw); len(out[0])+len(out[1]) != 0 {
			t.Fatalf("side %d: it went on", side)
		}
		g := b.exceptions()
		if len(g) != 1 || g[0].ReasonReason != regs.ExceptionReasonReasonModule || g[0].HandleGeneration == 0 || g[0].ReasonSide != uint32(side) {
			t.Fatalf("side %d: the host gets %+v", side, g)
		}
		f := &b.buf[0]
		f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
		b.c.Reinject(&regs.InjectEntry{FlagsModuleDone: 1, ControlPort: uint32(side)}, b.buf[:1], b.out)
		one(t, b.drain()[1-side])
	}
	b.counts(t, map[regs.Reg]uint64{regs.PassModule: 2})
	b.check(t)
}

// TestCommandPass: connections that the host expects, of a client and of a server.
func TestCommandPass(t *testing.T) {
	b, c := passed(t, modeNAT, nil)
	set(b.m.Server, 2, regs.ServerWords, &regs.ServerEntry{ControlValid: 1, ControlKind: kindIPv4, ControlProtocol: 6, TunnelAnyPort: 1, Address: words(world4.server)})
	b.m.Dirty = ^uint32(0)
	c.shake(t, modeNAT)
	handle := handleOf(0, b.c.page(b.pageOf(t))) &^ handleMask
	n := b.pageOf(t)
	from := regs.CommandEntry{ControlType: regs.CommandControlTypePass, HandleN: n, HandleGeneration: handle >> 20, FlagsFromServer: 1, Bar2Offset: 2,
		KeyControlKind: kindIPv4, KeyControlProtocol: 6, KeyPortsPort: 50000, KeyPortsDestination: 20, Value: words(world4.client)[0]}
	if done := b.command(from); done.ControlStatus != statusOK {
		t.Fatalf("from the server: status %d", done.ControlStatus)
	}
	if done := b.command(from); done.ControlStatus != statusKeyExists {
		t.Errorf("again: status %d", done.ControlStatus)
	}
	b.check(t)
	segment := func(port int, flags uint8, seq, ack uint32) tcp {
		t.Helper()
		s := tcp{from: world4.server, to: world4.client, sport: 20, dport: 50000, seq: seq, ack: ack, flags: flags, srcMAC: serverMAC, dstMAC: portMAC[1]}
		if port == 0 {
			s = tcp{from: world4.client, to: world4.vip, sport: 50000, dport: 20, seq: seq, ack: ack, flags: flags, srcMAC: clientMAC, dstMAC: portMAC[0]}
		}
		got := one(t, b.push(port, buildFrame(t, &s))[1-port])
		b.check(t)
		return got
	}
	if got := segment(1, flagSYN, 100, 0); got.from != world4.vip || got.sport != 20 || got.dport != 50000 || got.dstMAC != clientMAC {
		t.Errorf("the server's SYN: %v", got)
	}
	if got := segment(0, flagSYN|flagACK, 900, 101); got.to != world4.server || got.dport != 20 {
		t.Errorf("the client's answer: %v", got)
	}
	segment(1, flagACK, 101, 901)
	segment(1, flagACK|flagFIN, 101, 901)
	segment(0, flagACK|flagFIN, 901, 102)
	segment(1, flagACK, 102, 902)
	b.counts(t, map[regs.Reg]uint64{regs.PassEstablished: 2, regs.PassClosedFin: 1})

	expect := regs.CommandEntry{ControlType: regs.CommandControlTypePass, FlagsTemplate: 1, Bar2Offset: 2,
		KeyControlKind: kindIPv4, KeyControlProtocol: 6, KeyPortsDestination: 3333, Value: words(world4.client)[0]}
	if done := b.command(expect); done.ControlStatus != statusOK {
		t.Fatalf("a template: status %d", done.ControlStatus)
	}
	raw := buildFrame(t, &tcp{from: world4.client, to: world4.vip, sport: 6000, dport: 3333, seq: 1, flags: flagSYN, srcMAC: clientMAC, dstMAC: portMAC[0]})
	if got := one(t, b.push(0, raw)[1]); got.to != world4.server || got.dport != 3333 {
		t.Errorf("what was expected: %v", got)
	}
	b.check(t)
	expect.Bar2Offset = 9
	if done := b.command(expect); done.ControlStatus != statusArgument {
		t.Errorf("no such server: status %d", done.ControlStatus)
	}
	b.wait(40 * time.Second)
	b.counts(t, map[regs.Reg]uint64{regs.PassTemplateExpired: 1})
	b.check(t)
}

// TestPassedEvents: a passed connection is told of like a splice, with its counters at the end.
func TestPassedEvents(t *testing.T) {
	b, c := passed(t, modeNAT, nil)
	c.shake(t, modeNAT)
	one(t, b.push(0, c.client(flagACK, "12345"))[1])
	c.sack = c.cseq
	one(t, b.push(1, c.server(flagACK, "123"))[0])
	one(t, b.push(0, c.client(flagRST, ""))[1])
	var kinds []uint32
	for _, e := range b.events() {
		kinds = append(kinds, e.ControlType)
		if e.ControlType == regs.EventControlTypeClosed && (e.BytesClient != 5 || e.BytesServer != 3 || e.ReasonReason != reasonRST || e.PacketsClient != 4 || e.PacketsServer != 2) {
			t.Errorf("closed: %+v", e)
		}
	}
	if want := []uint32{regs.EventControlTypeOpened, regs.EventControlTypeSpliced, regs.EventControlTypeClosed}; fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}

// TestServerTwice: a server that has several entries, for several ways to it or with and without a port of its own, is
// answered for by each: what it sends finds the connection under whichever entry that has.
func TestServerTwice(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after bool // which of the other entry and the connection's takes every port
	}{{"two ways", false, false}, {"every port behind one", false, true}, {"one behind every port", true, false}} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, smallGeometry())
			b.serve4(world4, 1, modeNAT, nil)
			used := b.m.Server[regs.ServerWords:][:regs.ServerWords]
			other := b.m.Server[:regs.ServerWords]
			port := uint16(8080)
			if tt.after {
				port = 80 // what the client asks for
				used[regs.ServerControl] = regs.SetServerControlPort(used[regs.ServerControl], 80)
			}
			copy(other, used)
			for w, every := range map[*uint32]bool{&other[regs.ServerTunnel]: tt.before, &used[regs.ServerTunnel]: tt.after} {
				if every {
					*w |= regs.ServerTunnelAnyPortMask
				}
			}
			b.m.Dirty = ^uint32(0)
			b.attach()
			b.now = 3 * time.Second
			c := &conn{b: b, w: world4, port: 40001, cseq: 1000, sseq: 5000}
			one(t, b.push(0, c.client(flagSYN, "", optMSS(1460)))[1])
			c.sack, c.cack = c.cseq, c.sseq+1
			reply := &tcp{from: world4.server, to: world4.client, sport: port, dport: c.port, seq: c.sseq, ack: c.sack, flags: flagSYN | flagACK, window: 1000,
				srcMAC: serverMAC, dstMAC: portMAC[1]}
			if got := one(t, b.push(1, buildFrame(t, reply))[0]); got.from != world4.vip || got.flags != flagSYN|flagACK {
				t.Errorf("to the client: %v", got)
			}
			b.check(t)
		})
	}
}
