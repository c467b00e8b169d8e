package datapath

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// everything is a promise of all options, by a service that answers with cookies only.
func everything() regs.ServiceEntry {
	return regs.ServiceEntry{ControlDefence: regs.ServiceControlDefenceAlways, PromiseWscale: 3, PromiseWscaleOn: 1, PromiseSack: 1, PromiseTimestamps: 1}
}

// guarded is a bench whose services answer with cookies, at an address of each family.
func guarded(t testing.TB, promise regs.ServiceEntry) *bench {
	t.Helper()
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, promise)
	b.serve(world6, 1, promise)
	for i := range regs.DefenceKeyCount {
		b.r.Set(regs.DefenceKey.At(i, regs.DefenceKeyStride), 0x9e3779b9*uint32(i+1))
	}
	for i := range regs.TransmitIsnKeyCount {
		b.r.Set(regs.TransmitIsnKey.At(i, regs.TransmitIsnKeyStride), 0x85ebca6b*uint32(i+1))
	}
	b.c.RekeyDefence()
	b.now = 3 * time.Second
	return b
}

// offer is a set of options that a client's SYN has.
type offer struct {
	mss              uint16 // zero: none
	wscale           int    // negative: none
	sack, timestamps bool
}

func (o offer) options(tsval, tsecr uint32) (opts []layers.TCPOption) {
	if o.mss != 0 {
		opts = append(opts, optMSS(o.mss))
	}
	if o.sack {
		opts = append(opts, optSACK)
	}
	if o.timestamps {
		opts = append(opts, optTS(tsval, tsecr))
	}
	if o.wscale >= 0 {
		opts = append(opts, optWscale(uint8(o.wscale)))
	}
	return opts
}

// TestCookieRoundTrip takes every combination of what a client offers and a service promises through SYN, cookie and proof,
// and finds in the page what the SYN-ACK carried.
func TestCookieRoundTrip(t *testing.T) {
	for _, w := range []world{world4, world6, withVLAN(world4)} {
		for mask := range 64 {
			x := offer{mss: 1400, wscale: -1, sack: mask&1 != 0, timestamps: mask&2 != 0}
			if mask&4 != 0 {
				x.wscale = 7
			}
			promise := everything()
			promise.PromiseSack, promise.PromiseTimestamps, promise.PromiseWscaleOn = uint32(mask>>3&1), uint32(mask>>4&1), uint32(mask>>5&1)
			t.Run(fmt.Sprintf("%v/%d/%+v/%06b", w.client.Is4(), w.vlanClient, x, mask), func(t *testing.T) {
				roundTrip(t, w, x, promise, 1400)
			})
		}
	}
}

func withVLAN(w world) world { w.vlanClient = 7; return w }

// TestCookieECN: ECN is kept where the client has timestamps and the service promises both.
func TestCookieECN(t *testing.T) {
	for mask := range 8 {
		offered, timestamps, promised := mask&1 != 0, mask&2 != 0, mask&4 != 0
		p := everything()
		p.PromiseEcn = bit(promised)
		b := guarded(t, p)
		c := &conn{b: b, w: world4, port: 40001, cseq: 5}
		x := offer{mss: 1460, wscale: -1, timestamps: timestamps}
		flags := uint8(flagSYN)
		if offered {
			flags |= flagECE | flagCWR
		}
		sa := one(t, b.push(0, c.client(flags, "", x.options(1, 0)...))[0])
		want := offered && timestamps && promised
		if got := sa.flags&(flagECE|flagCWR) == flagECE; got != want {
			t.Errorf("%03b: SYN-ACK with flags %#x", mask, sa.flags)
		}
		c.cack = sa.seq + 1
		if timestamps {
			b.push(0, c.client(flagACK, "", optTS(2, binary.BigEndian.Uint32(sa.option(layers.TCPOptionKindTimestamps)))))
		} else {
			b.push(0, c.client(flagACK, ""))
		}
		if got := regs.PageClientLinkEcn(b.c.page(b.pageOf(t))[regs.PageClientLink]); got != bit(want) {
			t.Errorf("%03b: the page says ECN %d, want %v", mask, got, want)
		}
	}
}

// TestCookieMSS: a cookie rounds the client's MSS down to one of the table, for each family.
func TestCookieMSS(t *testing.T) {
	for _, tt := range []struct {
		w    world
		mss  uint16
		want uint32
	}{
		{world4, 0, 536}, {world6, 0, 1220}, {world4, 1460, 1460}, {world4, 1459, 1452}, {world6, 1440, 1440}, {world6, 1439, 1420},
		{world4, 9000, 8960}, {world4, 8959, 4312}, {world4, 65495, 8960}, {world6, 8940, 8940}, {world4, 535, 256}, {world4, 1, 88}, {world6, 1221, 1220},
	} {
		for _, timestamps := range []bool{false, true} {
			roundTrip(t, tt.w, offer{mss: tt.mss, wscale: -1, timestamps: timestamps}, everything(), tt.want)
		}
	}
	for _, table := range []*[16]uint32{&mssIPv4, &mssIPv6} {
		for i := 1; i < len(table); i++ {
			if table[i] <= table[i-1] {
				t.Errorf("%d follows %d", table[i], table[i-1])
			}
		}
	}
}

func roundTrip(t *testing.T, w world, x offer, promise regs.ServiceEntry, wantMSS uint32) {
	t.Helper()
	b := guarded(t, promise)
	c := &conn{b: b, w: w, port: 40001, cseq: 0xffffffff}
	timestamps := x.timestamps && promise.PromiseTimestamps != 0
	sack, wscale := timestamps && x.sack && promise.PromiseSack != 0, timestamps && x.wscale >= 0 && promise.PromiseWscaleOn != 0
	sa := one(t, b.push(0, c.client(flagSYN, "", x.options(1000, 0)...))[0])
	if sa.flags&(flagSYN|flagACK) != flagSYN|flagACK || sa.ack != c.cseq || sa.vlan != w.vlanClient || sa.dstMAC != clientMAC {
		t.Fatalf("SYN-ACK: %v", sa)
	}
	if got := b.r.Get(regs.AmuFree); got != b.m.Geometry.Pages {
		t.Fatalf("a SYN took a page: %d free", got)
	}
	if got := b.r.Get64(regs.ConnectionOpened) + b.r.Get64(regs.CamInserts); got != 0 {
		t.Fatalf("a SYN left a trace: %d", got)
	}
	for _, o := range []struct {
		kind layers.TCPOptionKind
		want bool
	}{
		{layers.TCPOptionKindMSS, true}, {layers.TCPOptionKindSACKPermitted, sack},
		{layers.TCPOptionKindTimestamps, timestamps}, {layers.TCPOptionKindWindowScale, wscale},
	} {
		if got := sa.option(o.kind) != nil; got != o.want {
			t.Errorf("option %v in the SYN-ACK: %v, want %v", o.kind, got, o.want)
		}
	}
	var opts []layers.TCPOption
	if timestamps {
		ts := sa.option(layers.TCPOptionKindTimestamps)
		if ecr := binary.BigEndian.Uint32(ts[4:]); ecr != 1000 {
			t.Errorf("TSecr %d, want 1000", ecr)
		}
		opts = []layers.TCPOption{optNop, optNop, optTS(1500, binary.BigEndian.Uint32(ts))}
	}
	c.cack, c.window = sa.seq+1, 300
	b.now += 40 * time.Millisecond
	if out := b.push(0, c.client(flagACK, "", opts...)); len(out[0])+len(out[1]) != 0 {
		t.Errorf("the proof is answered with %v", out)
	}
	p := b.c.page(b.pageOf(t))
	link, o := p[regs.PageClientLink], p[regs.PageOptions]
	for _, f := range []struct {
		name      string
		got, want uint32
	}{
		{"state", regs.PageControlState(p[regs.PageControl]), regs.PageControlStateWaitHead}, {"cookie", regs.PageClientLinkCookie(link), 1},
		{"sack", regs.PageClientLinkSack(link), bit(sack)}, {"timestamps", regs.PageClientLinkTimestamps(link), bit(timestamps)},
		{"wscale", regs.PageClientLinkWscale(link), bit(wscale)}, {"client wscale", regs.PageClientLinkClientWscale(link), 7 * bit(wscale)},
		{"promised wscale", regs.PageOptionsPromisedWscale(o), 3 * bit(wscale)}, {"client ISN", p[regs.PageClientIsn], 0xffffffff}, {"ISN", p[regs.PageIsn], sa.seq},
		{"MSS", regs.PageOfferMss(p[regs.PageOffer]), wantMSS}, {"MSS promised", regs.PageClientMacHiMss(p[regs.PageClientMacHi]), uint32(binary.BigEndian.Uint16(sa.option(layers.TCPOptionKindMSS)))},
		{"window", regs.PageAWindowClient(p[regs.PageAWindow]), 300}, {"window offered", regs.PageOfferWindow(p[regs.PageOffer]), 300 << (7 * bit(wscale))},
		{"valid", b.r.Get(regs.DefenceCookieValid), 1}, {"established", b.r.Get(regs.ConnectionEstablished), 1}, {"opened", b.r.Get(regs.ConnectionOpened), 1},
		{"TSval", p[regs.PageClientTimestamp], 1500 * bit(timestamps)},
	} {
		if f.got != f.want {
			t.Errorf("%s: got %d, want %d", f.name, f.got, f.want)
		}
	}
	b.check(t)
	syn := one(t, b.push(0, c.client(flagACK|flagPSH, request, opts...))[1])
	if mss := binary.BigEndian.Uint16(syn.option(layers.TCPOptionKindMSS)); uint32(mss) != min(wantMSS, mssFor(1500, uint8(w.kind))) || syn.seq != 0xffffffff {
		t.Errorf("SYN to the server: %v", syn)
	}
	for _, o := range []struct {
		kind layers.TCPOptionKind
		want bool
	}{
		{layers.TCPOptionKindSACKPermitted, sack}, {layers.TCPOptionKindTimestamps, timestamps}, {layers.TCPOptionKindWindowScale, wscale},
	} {
		if got := syn.option(o.kind) != nil; got != o.want {
			t.Errorf("option %v in the SYN to the server: %v, want %v", o.kind, got, o.want)
		}
	}
	if ts := syn.option(layers.TCPOptionKindTimestamps); ts != nil && binary.BigEndian.Uint32(ts) != 1500 {
		t.Errorf("TSval to the server %d, want the client's newest", binary.BigEndian.Uint32(ts))
	}
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// TestCookieRefused: a cookie counts for what it was made for and nothing else.
func TestCookieRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(b *bench, c *conn, tsecr *uint32)
		want  bool
	}{
		{"nothing", func(*bench, *conn, *uint32) {}, true},
		{"key", func(b *bench, _ *conn, _ *uint32) { b.r.Set(regs.DefenceKey, 5); b.c.RekeyDefence() }, false},
		{"ack", func(_ *bench, c *conn, _ *uint32) { c.cack++ }, false},
		{"hash of ack", func(_ *bench, c *conn, _ *uint32) { c.cack ^= 1 << 20 }, false},
		{"seq", func(_ *bench, c *conn, _ *uint32) { c.cseq++ }, false},
		{"keep-alive probe", func(_ *bench, c *conn, _ *uint32) { c.cseq-- }, false},
		{"client port", func(_ *bench, c *conn, _ *uint32) { c.port++ }, false},
		{"client address", func(_ *bench, c *conn, _ *uint32) { c.w.client = c.w.client.Next() }, false},
		{"VIP", func(b *bench, c *conn, _ *uint32) {
			w := c.w
			w.vip = w.vip.Next()
			b.serve(w, 2, everything())
			c.w.vip = w.vip
		}, false},
		{"VLAN", func(_ *bench, c *conn, _ *uint32) { c.w.vlanClient = 9 }, false},
		{"wscale", func(_ *bench, _ *conn, v *uint32) { *v ^= 1 }, false},
		{"no wscale", func(_ *bench, _ *conn, v *uint32) { *v |= 15 }, false},
		{"wscale of 15 less one", func(_ *bench, _ *conn, v *uint32) { *v = *v&^15 | 14 }, false},
		{"SACK", func(_ *bench, _ *conn, v *uint32) { *v ^= clockSACK }, false},
		{"old TSecr", func(_ *bench, _ *conn, v *uint32) { *v -= 128_000 + 64 }, false},
		{"TSecr not sent yet", func(_ *bench, _ *conn, v *uint32) { *v += 64 }, false},
		{"no timestamps", func(_ *bench, _ *conn, v *uint32) { *v = 0 }, false},
		{"another promise", func(b *bench, _ *conn, _ *uint32) {
			p := everything()
			p.PromiseMssIpv4, p.PromiseMssIpv6 = 1400, 1400
			b.serve(world4, 0, p)
		}, false},
		{"another scale promised", func(b *bench, _ *conn, _ *uint32) {
			p := everything()
			p.PromiseWscale = 4
			b.serve(world4, 0, p)
		}, false},
		{"a period later", func(b *bench, _ *conn, _ *uint32) { b.wait(64 * time.Second) }, true},
		{"two periods later", func(b *bench, _ *conn, _ *uint32) { b.wait(128 * time.Second) }, false},
		{"the epoch wraps", func(b *bench, _ *conn, _ *uint32) {
			b.r.Set(regs.DefenceEpoch, 2)
			b.c.RekeyDefence()
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := guarded(t, everything())
			b.r.Set(regs.TimerInterval, 1000)
			c := &conn{b: b, w: world4, port: 40001, cseq: 5}
			sa := one(t, b.push(0, c.client(flagSYN, "", optMSS(1460), optSACK, optTS(1, 0), optWscale(7)))[0])
			c.cack = sa.seq + 1
			tsecr := binary.BigEndian.Uint32(sa.option(layers.TCPOptionKindTimestamps))
			tt.spoil(b, c, &tsecr)
			opts := []layers.TCPOption{optTS(2, tsecr)}
			if tsecr == 0 {
				opts = nil
			}
			out := b.push(0, c.client(flagACK, "", opts...))
			if len(out[0])+len(out[1]) != 0 {
				t.Errorf("answered: %v", out)
			}
			valid, bad := b.r.Get(regs.DefenceCookieValid), b.r.Get(regs.DefenceCookieBad)
			if valid != bit(tt.want) || bad != bit(!tt.want) {
				t.Errorf("valid %d, bad %d; want valid: %v", valid, bad, tt.want)
			}
			if got := b.m.Geometry.Pages - b.r.Get(regs.AmuFree); got != bit(tt.want) {
				t.Errorf("%d pages taken", got)
			}
		})
	}
}

// TestCookieSegments: every segment with a valid cookie is proof, and does what it would have done had the page been
// there; one that brings none, or cannot, is dropped.
func TestCookieSegments(t *testing.T) {
	head := request[:20]
	for _, tt := range []struct {
		name    string
		flags   uint8
		payload string
		seq     uint32 // added
		state   State
		counter regs.Reg
		toward  [2]uint8 // flags of the one segment sent to each side; zero: none
	}{
		{"ACK", flagACK, "", 0, WaitHead, regs.DefenceCookieValid, [2]uint8{}},
		{"request", flagACK | flagPSH, request, 0, ServerSyn, regs.DefenceCookieValid, [2]uint8{flagACK, flagSYN}},
		{"part of a request", flagACK | flagPSH, head, 0, WaitHead, regs.DefenceCookieValid, [2]uint8{flagACK}},
		{"request and FIN", flagACK | flagFIN, request, 0, ServerSyn, regs.DefenceCookieValid, [2]uint8{flagACK, flagSYN}},
		{"FIN", flagACK | flagFIN, "", 0, Free, regs.DefenceCookieValid, [2]uint8{flagRST | flagACK}},
		{"part and FIN", flagACK | flagFIN, head, 0, Free, regs.DefenceCookieValid, [2]uint8{flagRST | flagACK}},
		{"later data", flagACK | flagPSH, request, 20, Free, regs.DefenceCookieBad, [2]uint8{}},
		{"RST", flagRST, "", 0, Free, regs.DefenceCookieBad, [2]uint8{}},
		{"RST and ACK", flagRST | flagACK, "", 0, Free, regs.DefenceCookieBad, [2]uint8{}},
		{"SYN and ACK", flagSYN | flagACK, "", 0, Free, regs.DefenceCookieBad, [2]uint8{}},
		{"no ACK", flagPSH, request, 0, Free, regs.DefenceCookieBad, [2]uint8{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := guarded(t, everything())
			b.attach()
			c := &conn{b: b, w: world4, port: 40001, cseq: 5}
			c.cack = one(t, b.push(0, c.client(flagSYN, "", optMSS(1460)))[0]).seq + 1
			c.cseq += tt.seq
			out := b.push(0, c.client(tt.flags, tt.payload))
			for side, want := range tt.toward {
				if want == 0 && len(out[side]) != 0 {
					t.Errorf("sent to side %d: %v", side, out[side])
				} else if want != 0 && one(t, out[side]).flags != want {
					t.Errorf("sent to side %d: %v, want flags %#x", side, out[side][0], want)
				}
			}
			if got := b.state(c); got != tt.state {
				t.Errorf("state %d, want %d", got, tt.state)
			}
			if got := b.r.Get(tt.counter); got != 1 {
				t.Errorf("%s is %d, want 1", tt.counter.Name(), got)
			}
			if got := b.exceptions(); len(got) != 0 {
				t.Errorf("given to the host: %d", len(got))
			}
			b.check(t)
		})
	}
}

// TestCookieBatch: proof and data that come in one batch find the same page.
func TestCookieBatch(t *testing.T) {
	b := guarded(t, everything())
	c := &conn{b: b, w: world6, port: 40001, cseq: 5}
	c.cack = one(t, b.push(0, c.client(flagSYN, "", optMSS(1440)))[0]).seq + 1
	out := b.push(0, c.client(flagACK, ""), c.client(flagACK|flagPSH, request[:9]), c.client(flagACK|flagPSH, request[9:]))
	if len(out[1]) != 1 || out[1][0].flags != flagSYN || len(out[0]) != 2 {
		t.Errorf("sent %v", out)
	}
	if b.r.Get(regs.DefenceCookieValid) != 1 || b.r.Get(regs.DefenceCookieBad) != 0 {
		t.Error("more than one proof")
	}
}

// TestCookieNoPlace: a valid cookie that no page can be had for is answered with RST; of a listener that is gone the host
// answers, as for any closed port.
func TestCookieNoPlace(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(b *bench)
		rst   bool
		given int
	}{
		{"no page", func(b *bench) { b.r.Set(regs.AmuFree, 0) }, true, 0},
		{"no CAM place", func(b *bench) { b.fillCAM(b.t.(*testing.T), ClientSide) }, true, 0},
		{"disabled", func(b *bench) { b.r.Set(regs.AmuControl, 0) }, true, 0},
		{"listener gone", func(b *bench) { clear(b.m.Listener[0]); b.m.Dirty = ^uint32(0) }, false, 1},
		{"service gone", func(b *bench) { clear(b.m.Service[0]); b.m.Dirty = ^uint32(0) }, false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := guarded(t, everything())
			b.attach()
			c := &conn{b: b, w: world4, port: 40001, cseq: 5}
			c.cack = one(t, b.push(0, c.client(flagSYN, "", optMSS(1460)))[0]).seq + 1
			tt.spoil(b)
			live, free := b.r.Get(regs.AmuLive), b.r.Get(regs.AmuFree)
			out := b.push(0, c.client(flagACK|flagPSH, request))
			if len(out[0]) != int(bit(tt.rst)) || tt.rst && (out[0][0].flags != flagRST || out[0][0].seq != c.cack) {
				t.Errorf("sent %v", out)
			}
			if got := b.r.Get(regs.DefenceCookieNoPage); got != bit(tt.rst) {
				t.Errorf("cookie_no_page is %d", got)
			}
			if got := len(b.exceptions()); got != tt.given {
				t.Errorf("%d exceptions, want %d", got, tt.given)
			}
			if b.r.Get(regs.AmuLive) != live || b.r.Get(regs.AmuFree) != free {
				t.Error("a page is lost")
			}
		})
	}
}

// TestCookieClock: TSval toward the client never goes back, whatever of the clock a cookie replaces: from one SYN-ACK to
// the next, and from there to the segments of the page.
func TestCookieClock(t *testing.T) {
	for start := range 130 { // more than twice what the low bits count
		b := guarded(t, everything())
		b.now += time.Duration(start) * time.Millisecond
		for _, x := range []offer{{wscale: -1, timestamps: true}, {wscale: 0, timestamps: true}, {wscale: 14, sack: true, timestamps: true}} {
			c := &conn{b: b, w: world4, port: 40001, cseq: 5}
			last := uint32(0)
			note := func(what string, s tcp) {
				t.Helper()
				ts := s.option(layers.TCPOptionKindTimestamps)
				if ts == nil {
					t.Fatalf("%s without timestamps", what)
				}
				val := binary.BigEndian.Uint32(ts)
				if last != 0 && int32(val-last) < 0 {
					t.Errorf("after %d ms, %s: TSval goes back from %d to %d", start, what, last, val)
				}
				last = val
			}
			for range 3 {
				c.cseq = 5
				sa := one(t, b.push(0, c.client(flagSYN, "", x.options(1, 0)...))[0])
				note("SYN-ACK", sa)
				c.cack = sa.seq + 1
				b.now += 7 * time.Millisecond
			}
			b.now -= 7 * time.Millisecond
			note("ACK", one(t, b.push(0, c.client(flagACK|flagPSH, request[:10], optTS(2, last)))[0]))
			b.now += time.Millisecond
			note("next ACK", one(t, b.push(0, c.client(flagACK|flagPSH, request[10:20], optTS(2, last)))[0]))
			b.push(0, c.client(flagRST, ""))
		}
	}
}

// TestCookieLooksRandom: sequence numbers in SYN-ACKs have no pattern that a scanner could tell the card by, whether they
// are cookies or not. It computes what nmap's SEQ test does: greatest common divisor and standard deviation of the
// differences between the numbers of successive ports.
func TestCookieLooksRandom(t *testing.T) {
	for _, tt := range []struct {
		name    string
		promise regs.ServiceEntry
	}{{"cookie", everything()}, {"keyed", regs.ServiceEntry{}}} {
		t.Run(tt.name, func(t *testing.T) {
			b := guarded(t, tt.promise)
			var isns []uint32
			var ones [32]int
			const probes = 200
			for i := range probes {
				c := &conn{b: b, w: world4, port: uint16(41000 + i), cseq: 77 + uint32(i)}
				s := one(t, b.push(0, c.client(flagSYN, "", optMSS(1460), optTS(0xffffffff, 0)))[0])
				isns = append(isns, s.seq)
				for k := range ones {
					ones[k] += int(s.seq >> k & 1)
				}
				b.now += 100 * time.Millisecond
			}
			for k, n := range ones {
				if n < probes/4 || n > probes*3/4 {
					t.Errorf("bit %d is set in %d of %d", k, n, probes)
				}
			}
			for first := 0; first+6 <= probes; first += 6 { // nmap sends six
				gcd, sum, square := uint32(0), 0.0, 0.0
				for i := range 5 {
					d := isns[first+i+1] - isns[first+i]
					d = min(d, -d)
					for a, b := gcd, d; ; a, b = b, a%b {
						if b == 0 {
							gcd = a
							break
						}
					}
					rate := float64(d) / 0.1
					sum, square = sum+rate, square+rate*rate
				}
				deviation := math.Sqrt(square/5 - sum/5*sum/5)
				if index := 8 * math.Log2(deviation); gcd > 8 || index < 200 {
					t.Errorf("probes from %d: gcd %d, sequence index %.0f", first, gcd, index)
				}
			}
		})
	}
}

// FuzzCookie gives the decoder any segment: what it takes for a cookie, the encoder made.
func FuzzCookie(f *testing.F) {
	f.Add(uint32(1), uint32(2), uint16(40000), uint32(0), false, false)
	f.Add(uint32(0xffffffff), uint32(0), uint16(1), uint32(0x12345), true, true)
	f.Fuzz(func(t *testing.T, cseq, ack uint32, port uint16, tsecr uint32, timestamps, genuine bool) {
		b := guarded(t, everything())
		c := &conn{b: b, w: world4, port: port, cseq: cseq, cack: ack}
		x := offer{mss: uint16(tsecr), wscale: int(tsecr >> 16 & 15), sack: tsecr>>20&1 != 0, timestamps: timestamps}
		out := b.push(0, c.client(flagSYN, "", x.options(3, 0)...))
		if port == 0 && len(out[0]) == 0 {
			return
		}
		sa := one(t, out[0])
		var opts []layers.TCPOption
		if timestamps {
			echo := binary.BigEndian.Uint32(sa.option(layers.TCPOptionKindTimestamps))
			if !genuine {
				echo = tsecr
			}
			opts = append(opts, optTS(4, echo))
		}
		if genuine {
			c.cack = sa.seq + 1
		}
		b.push(0, c.client(flagACK|flagPSH, request, opts...))
		if got := b.r.Get(regs.DefenceCookieValid); got != bit(genuine) {
			if genuine || c.cack != sa.seq+1 { // one in 2^27 may guess right
				t.Fatalf("%d valid cookies, want %v: SYN-ACK %v", got, genuine, sa)
			}
		}
		b.check(t)
	})
}
