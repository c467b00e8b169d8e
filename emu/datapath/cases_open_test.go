package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// Faults that others had, as tests by number: here those of the handshake and of single frames.

var (
	caseWorld4 = world{client: netip.MustParseAddr("192.0.2.10"), vip: netip.MustParseAddr("198.51.100.80"), server: netip.MustParseAddr("203.0.113.11"), kind: kindIPv4}
	caseWorld6 = world{client: netip.MustParseAddr("2001:db8:c::10"), vip: netip.MustParseAddr("2001:db8:51::80"), server: netip.MustParseAddr("2001:db8:b::11"), kind: kindIPv6}
)

// full is a promise of everything the card can keep.
var full = regs.ServiceEntry{PromiseMssIpv4: 1460, PromiseMssIpv6: 1440, PromiseSack: 1, PromiseTimestamps: 1, PromiseWscaleOn: 1, PromiseWscale: 7}

func caseBench(t *testing.T, w world, promise regs.ServiceEntry) (*bench, *conn) {
	t.Helper()
	b := newBench(t, smallGeometry())
	b.serve(w, 0, promise)
	b.attach()
	b.now = time.Second
	return b, &conn{b: b, w: w, port: 40001, cseq: 0x10203040, sseq: 0xd0000000, opts: plainOptions, sopts: plainOptions}
}

// withOptions makes a frame whose TCP options are exactly these bytes, a multiple of four.
func (c *conn) withOptions(flags uint8, options []byte, payload string) []byte {
	return putOptions(c.client(flags, payload), options)
}

// putOptions puts options into an untagged frame without any.
func putOptions(raw, options []byte) []byte {
	at, end := 34, 14+int(binary.BigEndian.Uint16(raw[16:])) // what lies behind is padding
	if raw[14]>>4 == 6 {
		at, end = 54, 54+int(binary.BigEndian.Uint16(raw[18:]))
	}
	head := append([]byte(nil), raw[:at+20]...)
	payload := raw[at+20 : end]
	head[at+12] = byte(20+len(options)) << 2
	if raw[14]>>4 == 6 {
		binary.BigEndian.PutUint16(head[18:], uint16(20+len(options)+len(payload)))
	} else {
		binary.BigEndian.PutUint16(head[16:], uint16(40+len(options)+len(payload)))
	}
	return sumUp(append(append(head, options...), payload...))
}

// sumUp puts right sums into an untagged frame without padding.
func sumUp(raw []byte) []byte {
	at, pseudo := 34, append([]byte(nil), raw[26:34]...)
	if raw[14]>>4 == 6 {
		at, pseudo = 54, append([]byte(nil), raw[22:54]...)
	} else {
		raw[24], raw[25] = 0, 0
		binary.BigEndian.PutUint16(raw[24:], reference(raw[14:34]))
	}
	n := len(raw) - at
	pseudo = append(pseudo, 0, 0, byte(n>>8), byte(n), 0, protocolTCP)
	raw[at+16], raw[at+17] = 0, 0
	binary.BigEndian.PutUint16(raw[at+16:], reference(append(pseudo, raw[at:]...)))
	return raw
}

// TestCaseA01: options are never echoed because they were offered: MPTCP, Fast Open, experiments, whatever kind.
func TestCaseA01(t *testing.T) {
	known := map[layers.TCPOptionKind]bool{1: true, 2: true, 3: true, 4: true, 8: true}
	check := func(what string, s tcp) {
		t.Helper()
		for _, o := range s.options {
			if !known[o.OptionType] {
				t.Errorf("%s: option kind %d in %v", what, o.OptionType, s)
			}
		}
	}
	offered := []byte{2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 3, 3, 7, 30, 4, 0, 0x81, 34, 2, 253, 4, 0xe2, 0xd4, 1, 1, 1}
	for _, w := range []world{caseWorld4, caseWorld6} {
		b, c := caseBench(t, w, full)
		sa := one(t, b.push(0, c.withOptions(flagSYN, offered, ""))[0])
		check("SYN-ACK", sa)
		checkOptions(t, "SYN-ACK", sa, 7, 7, 9)
		c.cack = sa.seq + 1
		b.push(0, c.client(flagACK, ""))
		syn := one(t, b.push(0, c.client(flagACK, request))[1])
		check("our SYN", syn)
		checkOptions(t, "our SYN", syn, 7, 7, 0)
	}
	for _, w := range []world{caseWorld4, caseWorld6} {
		b, c := caseBench(t, w, full)
		for kind := range 256 {
			if known[layers.TCPOptionKind(kind)] || kind == 0 {
				continue
			}
			c.port++
			sa := one(t, b.push(0, c.withOptions(flagSYN, []byte{byte(kind), 6, 1, 2, 3, 4, byte(kind), 2, 2, 4, 5, 0xb4}, ""))[0])
			check(fmt.Sprintf("SYN-ACK to kind %d", kind), sa)
			if want := uint16(1460); w.kind == kindIPv6 && mssOf(t, sa) != want-20 || w.kind == kindIPv4 && mssOf(t, sa) != want || len(sa.options) != 1 {
				t.Errorf("kind %d: SYN-ACK %v, want MSS alone", kind, sa)
			}
			c.cack = sa.seq + 1
			b.push(0, c.client(flagACK, ""))
			syn := one(t, b.push(0, c.client(flagACK, request))[1])
			check(fmt.Sprintf("our SYN after kind %d", kind), syn)
			if len(syn.options) != 1 || len(syn.payload) != 0 {
				t.Errorf("kind %d: our SYN %v, want MSS alone", kind, syn)
			}
			b.kill(t, c)
		}
	}
}

// TestCaseA03: the MSS promised fits family and link.
func TestCaseA03(t *testing.T) {
	for _, tt := range []struct {
		w           world
		mtu         uint32
		offer, want uint16
	}{
		{caseWorld6, 1500, 1440, 1440}, {caseWorld6, 9000, 8940, 8940}, {caseWorld4, 1500, 1460, 1460}, {caseWorld4, 9000, 8960, 8960},
		{caseWorld6, 1500, 8940, 1440}, {caseWorld6, 9000, 1220, 8940}, {caseWorld4, 1500, 8960, 1460}, {caseWorld4, 9000, 536, 8960}, // what the client takes is no limit to what we take
	} {
		promise := full
		promise.PromiseMssIpv4, promise.PromiseMssIpv6 = 65535, 65535
		b, c := caseBench(t, tt.w, promise)
		b.r.Set(regs.PortMtu, tt.mtu)
		if got := mssOf(t, one(t, b.push(0, c.client(flagSYN, "", optMSS(tt.offer), optSACK, optTS(1, 0), optWscale(7)))[0])); got != tt.want {
			t.Errorf("%v, MTU %d, offered %d: promised %d, want %d", tt.w.client, tt.mtu, tt.offer, got, tt.want)
		}
	}
}

// TestCaseA05: whatever other flags come beside SYN, but FIN and RST, it is a SYN; ECN is accepted where it is offered and carried through.
func TestCaseA05(t *testing.T) {
	for _, flags := range []uint8{0, flagECE | flagCWR, flagECE, flagCWR, flagPSH, flagURG, flagPSH | flagURG | flagECE | flagCWR} {
		for _, w := range []world{caseWorld4, caseWorld6} {
			for ecn := range uint32(2) {
				promise := full
				promise.PromiseEcn = ecn
				b, c := caseBench(t, w, promise)
				wantSynAck, wantSyn := uint8(flagSYN|flagACK), uint8(flagSYN)
				if flags&(flagECE|flagCWR) == flagECE|flagCWR && ecn != 0 {
					wantSynAck, wantSyn = wantSynAck|flagECE, wantSyn|flagECE|flagCWR
				}
				sa := one(t, b.push(0, c.client(flagSYN|flags, "", plainOptions...))[0])
				if sa.flags != wantSynAck {
					t.Errorf("SYN with flags %#x, ECN promised %d, draws %v", flagSYN|flags, ecn, sa)
				}
				c.cack = sa.seq + 1
				b.push(0, c.client(flagACK, ""))
				if syn := one(t, b.push(0, c.client(flagACK, request))[1]); syn.flags != wantSyn {
					t.Errorf("SYN with flags %#x, ECN promised %d, our SYN: %v", flagSYN|flags, ecn, syn)
				}
			}
		}
	}
}

// TestCaseA07: a repeated SYN draws the same SYN-ACK, however many were lost, and makes one connection.
func TestCaseA07(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		b, c := caseBench(t, w, full)
		c.opts = []layers.TCPOption{optMSS(1460), optSACK, optTS(5, 0), optNop, optWscale(7)}
		syn := c.client(flagSYN, "", c.opts...)
		var all []tcp
		for range 3 {
			all = append(all, b.push(0, syn)[0]...)
			all = append(all, b.wait(time.Second)[0]...)
		}
		if len(all) < 3 {
			t.Fatalf("%d answers to three SYNs", len(all))
		}
		for _, s := range all {
			if s.flags != flagSYN|flagACK || s.seq != all[0].seq || s.ack != c.cseq || s.window != all[0].window || !reflect.DeepEqual(s.options, all[0].options) {
				t.Errorf("answer %v, the first was %v", s, all[0])
			}
		}
		if live, entries := b.r.Get(regs.AmuLive), b.r.Get(regs.CamEntries); live != 1 || entries != 1 {
			t.Errorf("live %d, CAM entries %d, want 1 and 1", live, entries)
		}
		c.cack = all[0].seq + 1
		b.push(0, c.client(flagACK, ""))
		if got := b.state(c); got != WaitHead {
			t.Errorf("state %d after the handshake", got)
		}
		// What was on the way all the time draws a plain ACK, before and behind the request.
		for range 2 {
			if s := one(t, b.push(0, syn)[0]); s.flags != flagACK || s.seq != c.cack || s.ack != c.cseq {
				t.Errorf("a SYN behind the handshake draws %v", s)
			}
			b.push(0, c.client(flagACK|flagPSH, request))
		}
		if live, entries := b.r.Get(regs.AmuLive), b.r.Get(regs.CamEntries); live != 1 || entries != 1 {
			t.Errorf("live %d, CAM entries %d, want 1 and 1", live, entries)
		}
		b.check(t)
	}
}

// TestCaseA17: what pads a short frame is no payload: not for the request, not in what goes on.
func TestCaseA17(t *testing.T) {
	for _, pad := range []byte{0, 0xaa, 'G'} {
		b, c := caseBench(t, caseWorld4, regs.ServiceEntry{})
		padded := func(raw []byte) []byte {
			raw = append([]byte(nil), raw...)
			for len(raw) < 60 {
				raw = append(raw, pad)
			}
			return raw
		}
		c.cack = one(t, b.push(0, c.client(flagSYN, "", plainOptions...))[0]).seq + 1
		if out := b.push(0, padded(c.client(flagACK, ""))); len(out[0])+len(out[1]) != 0 || b.state(c) != WaitHead {
			t.Fatalf("pad %#x: the padded ACK draws %v, state %d", pad, out, b.state(c))
		}
		if b.r.Get64(regs.HeadTaken) != 0 || b.r.Get64(regs.ParserClassRequest) != 0 {
			t.Errorf("pad %#x: padding was taken for a request", pad)
		}
		first := c.cseq
		one(t, b.push(0, c.client(flagACK|flagPSH, request))[1])
		if got := c.serverBytes(t, first); got != request {
			t.Errorf("pad %#x: the server gets %q", pad, got)
		}
		c.sack = c.cseq
		one(t, b.push(1, padded(c.server(flagACK, "")))[0])
		for side, raw := range [][]byte{padded(c.client(flagACK, "")), padded(c.server(flagACK, ""))} {
			b.out.Reset()
			f := &b.buf[0]
			f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
			b.c.Process(side, b.buf[:1], b.out)
			got := b.out.Ports[1-side][0].Bytes()
			parseFrame(t, got)
			if total := binary.BigEndian.Uint16(got[16:]); len(got) != 54 || total != 40 {
				t.Errorf("pad %#x side %d: %d bytes go on, total length %d, want 54 and 40", pad, side, len(got), total)
			}
		}
		for n := 1; n <= 5; n++ { // data that leaves room for padding
			data := "12345"[:n]
			if s := one(t, b.push(0, padded(c.client(flagACK|flagPSH, data)))[1]); string(s.payload) != data {
				t.Errorf("pad %#x: of %q the server gets %q", pad, data, s.payload)
			}
			if s := one(t, b.push(1, padded(c.server(flagACK|flagPSH, data)))[0]); string(s.payload) != data {
				t.Errorf("pad %#x: of %q the client gets %q", pad, data, s.payload)
			}
		}
	}
}

// TestCaseA19: options of impossible lengths end nowhere: counted, not answered, no state; a legal unknown one is passed
// over.
func TestCaseA19(t *testing.T) {
	b, c := caseBench(t, caseWorld4, full)
	for i, o := range [][]byte{
		{2, 4, 5, 0xb4, 0x4c, 0, 1, 1}, {0x4c, 1, 1, 1}, {8, 10, 0, 0},
		{1, 1, 1, 0x4c}, {1, 1, 1, 8}, {2, 4, 5, 0xb4, 3, 5, 7, 0}, {5, 255, 0, 0}, {4, 0, 0, 0}, {1, 2, 4, 5},
	} {
		before := b.r.Get64(regs.ParserDropTcpOption)
		if out := b.push(0, c.withOptions(flagSYN, o, "")); len(out[0])+len(out[1]) != 0 {
			t.Errorf("options % x draw %v", o, out)
		}
		if got := b.r.Get64(regs.ParserDropTcpOption) - before; got != 1 {
			t.Errorf("row %d, options % x: drop_tcp_option grew by %d, want 1", i, o, got)
		}
	}
	b.allFree(t)
	for _, o := range [][]byte{{0x4c, 2, 1, 1}, {0x4c, 2, 0, 0x4c}, {2, 4, 5, 0xb4, 0x4c, 4, 0, 0}} {
		c.port++
		sa := one(t, b.push(0, c.withOptions(flagSYN, o, ""))[0])
		for _, x := range sa.options {
			if x.OptionType == 0x4c {
				t.Errorf("options % x: kind 76 is echoed", o)
			}
		}
	}
	// In the server's handshake and before the splice they are passed over, with what follows them.
	for _, o := range [][]byte{{0x4c, 0, 1, 1}, {1, 1, 1, 0x4c}, {3, 0, 0, 0}, {4, 1, 2, 4}, {5, 255, 0, 0}, {8, 0, 0, 0}} {
		b, c = caseBench(t, caseWorld4, full)
		c.opts = []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(7, 0)}
		c.cack = one(t, b.push(0, c.client(flagSYN, "", c.opts...))[0]).seq + 1
		b.push(0, c.withOptions(flagACK, o, ""))
		isn := c.cseq
		one(t, b.push(0, c.withOptions(flagACK|flagPSH, o, request))[1])
		c.sack = isn
		good := []byte{2, 4, 5, 0xb4, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7, 1, 1}
		s := one(t, b.push(1, putOptions(c.server(flagSYN|flagACK, ""), append(good, o...)))[1])
		if string(s.payload) != request || b.state(c) != Spliced {
			t.Errorf("SYN-ACK with options % x draws %v, state %d", o, s, b.state(c))
		}
		b.check(t)
	}
	// Behind the handshake too: such a segment is forwarded as it is, or taken, and nothing loops.
	b, c = caseBench(t, caseWorld4, full)
	c.reach(t, Spliced)
	for _, o := range [][]byte{{8, 0, 0, 0}, {5, 1, 1, 1}, {5, 0, 5, 0}, {1, 1, 1, 5}, {5, 34, 0, 0}, {253, 0, 8, 10}} {
		raw := c.withOptions(flagACK, o, "x")
		b.out.Reset()
		f := &b.buf[0]
		f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
		b.c.Process(0, b.buf[:1], b.out)
		if len(b.out.Ports[1]) != 1 {
			t.Fatalf("options % x: %d frames go on", o, len(b.out.Ports[1]))
		}
		got := b.out.Ports[1][0].Bytes()
		if options := got[54:58]; string(options) != string(o) {
			t.Errorf("options % x go on as % x", o, options)
		}
		if want := sumUp(append([]byte(nil), got...)); string(want) != string(got) {
			t.Errorf("options % x: sums of % x", o, got)
		}
	}
}

// TestCaseA25: a segment without a connection makes none, is answered by the host if at all, and reaches no server.
func TestCaseA25(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		b, c := caseBench(t, w, full)
		c.cseq, c.cack = 777, 888
		before := b.snapshot()
		b.now += time.Second
		for i, raw := range [][]byte{c.client(flagACK, ""), c.client(flagACK|flagPSH, request), c.client(flagRST, ""), c.client(flagFIN|flagACK, ""), c.client(flagSYN|flagACK, "")} {
			if out := b.push(0, raw); len(out[0])+len(out[1]) != 0 {
				t.Errorf("frame %d draws %v", i, out)
			}
			g := b.exceptions()
			if len(g) != 1 || g[0].ReasonReason != reasonNoMatch || g[0].ReasonMissVip != 1 || g[0].HandleGeneration != 0 || string(g[0].frame) != string(raw) {
				t.Errorf("frame %d: exceptions %+v", i, g)
			}
		}
		if got := b.r.Get64(regs.ParserExceptionNoMatch); got != 5 {
			t.Errorf("exception_no_match: got %d, want 5", got)
		}
		for _, name := range before.diff(b.snapshot()) {
			if !bookkeeping(name) && !strings.HasPrefix(name, "timer.") {
				t.Errorf("segments without a connection changed %s", name)
			}
		}
		// The same of a connection that was: once it is over, nothing of either end finds it.
		b, c = caseBench(t, w, full)
		c.reach(t, Quarantine)
		b.wait(1100 * time.Millisecond)
		b.allFree(t)
		b.exceptions()
		before = b.snapshot()
		for side := range Side(sides) {
			for _, flags := range []uint8{flagACK, flagACK | flagPSH, flagFIN | flagACK, flagRST, flagRST | flagACK, flagSYN | flagACK, flagPSH} {
				x := *c
				raw := x.client(flags, "late")
				if side == ServerSide {
					raw = x.server(flags, "late")
				}
				if out := b.push(int(side), raw); len(out[0])+len(out[1]) != 0 {
					t.Errorf("side %d, flags %#x: draws %v", side, flags, out)
				}
				if g := b.exceptions(); len(g) != 1 || g[0].ReasonReason != reasonNoMatch || g[0].ReasonMissVip != uint32(1-side) || g[0].HandleGeneration != 0 {
					t.Errorf("side %d, flags %#x: exceptions %+v", side, flags, g)
				}
			}
		}
		for _, name := range before.diff(b.snapshot()) {
			if !bookkeeping(name) && !strings.HasPrefix(name, "timer.") {
				t.Errorf("segments of a connection that was changed %s", name)
			}
		}
	}
}

// TestCaseA27: a frame that says its sum is partial is completed; one that does not say so is broken.
func TestCaseA27(t *testing.T) {
	tagged := caseWorld4
	tagged.vlanClient = 7
	for _, w := range []world{caseWorld4, caseWorld6, tagged} {
		b, c := caseBench(t, w, full)
		partial := func(raw []byte, flagged bool) {
			f := &b.buf[0]
			f.Start, f.End = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw))
			offload(f, 0)
			f.Offload.GSOType = frame.GSONone
			if !flagged {
				f.Offload = frame.Offload{}
			}
			b.out.Reset()
			b.c.Process(0, b.buf[:1], b.out)
		}
		syn := c.client(flagSYN, "", plainOptions...)
		partial(syn, false)
		if out := b.drain(); len(out[0])+len(out[1]) != 0 || b.r.Get64(regs.ParserDropTcpChecksum) != 1 {
			t.Errorf("%v: not flagged: %v, drop_tcp_checksum %d", w.client, out, b.r.Get64(regs.ParserDropTcpChecksum))
		}
		partial(syn, true)
		c.cack = one(t, b.drain()[0]).seq + 1
		partial(c.client(flagACK, ""), true)
		partial(c.client(flagACK, request), true)
		one(t, b.drain()[1])
		c.sack = 0x10203041
		one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])
		c.sack = c.cseq
		one(t, b.push(1, c.server(flagACK, ""))[0])
		partial(c.client(flagACK, "odd"), true)
		for _, f := range b.out.Ports[1] {
			if f.Offload != (frame.Offload{}) {
				t.Errorf("%v: goes on with offload header %+v", w.client, f.Offload)
			}
		}
		if s := one(t, b.drain()[1]); string(s.payload) != "odd" {
			t.Errorf("%v: goes on as %v", w.client, s)
		}
		partial(c.client(flagACK, "odd"), false)
		if out := b.drain(); len(out[0])+len(out[1]) != 0 || b.r.Get64(regs.ParserDropTcpChecksum) != 2 {
			t.Errorf("%v: not flagged: %v, drop_tcp_checksum %d", w.client, out, b.r.Get64(regs.ParserDropTcpChecksum))
		}
	}
}

// TestCaseA29: data on a SYN is refused, and so it is there exactly once when the client sends it again: whatever option
// asked for it, however often the SYN comes, also behind the data, and in whatever pieces the data comes.
func TestCaseA29(t *testing.T) {
	head := "GET /" + strings.Repeat("f", 120-len("GET / HTTP/1.1\r\nHost: a\r\n\r\n")) + " HTTP/1.1\r\nHost: a\r\n\r\n"
	offers := map[string][]byte{
		"no option":          {2, 4, 5, 0xb4},
		"cookie asked for":   {2, 4, 5, 0xb4, 34, 2, 1, 1},
		"cookie":             {2, 4, 5, 0xb4, 34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1},
		"experiment's":       {2, 4, 5, 0xb4, 254, 12, 0xf9, 0x89, 1, 2, 3, 4, 5, 6, 7, 8},
		"cookie of no bytes": {34, 2, 34, 2},
	}
	for _, w := range []world{caseWorld4, caseWorld6} {
		for name, offer := range offers {
			for _, pieces := range []int{1, 2, 120} {
				b, c := caseBench(t, w, full)
				isn := c.cseq
				syn := c.withOptions(flagSYN, offer, head)
				first := one(t, b.push(0, syn)[0])
				second := one(t, b.push(0, syn)[0])
				for _, s := range []tcp{first, second} {
					if s.flags != flagSYN|flagACK || s.ack != isn+1 || s.seq != first.seq || s.option(34) != nil || s.option(254) != nil {
						t.Errorf("%s: SYN with data draws %v, want ack %#x", name, s, isn+1)
					}
				}
				if got := b.r.Get64(regs.HeadTaken); got != 0 {
					t.Errorf("%s: head buffers taken by a SYN: %d", name, got)
				}
				c.cseq, c.cack = isn+1, first.seq+1
				for i := range pieces {
					from, to := i*len(head)/pieces, (i+1)*len(head)/pieces
					c.cseq = isn + 1 + uint32(from)
					raw := c.client(flagACK|flagPSH, head[from:to])
					b.rest()
					out := b.push(0, raw, raw)
					if len(out[0]) == 0 || out[0][0].ack != c.cseq {
						t.Fatalf("%s: piece %d: %v", name, i, out)
					}
					if last := i == pieces-1; len(out[1]) != 0 != last {
						t.Fatalf("%s: piece %d of %d draws %v to the server", name, i, pieces, out[1])
					}
					b.rest()
					if s := one(t, b.push(0, syn)[0]); s.flags != flagACK || s.ack != c.cseq { // the SYN, late
						t.Errorf("%s: the SYN behind piece %d draws %v", name, i, s)
					}
				}
				if got := c.serverBytes(t, isn+1); got != head {
					t.Errorf("%s: the server gets %q, want the request once", name, got)
				}
				c.sack = c.cseq
				one(t, b.push(1, c.server(flagACK, ""))[0])
				if s := one(t, b.push(0, syn)[1]); s.seq != isn || s.flags&flagSYN == 0 { // for the server's stack to refuse
					t.Errorf("%s: the SYN behind the splice goes on as %v", name, s)
				}
				if marks := b.c.page(b.pageOf(t)); marks[regs.PageASeqClient] != c.cseq {
					t.Errorf("%s: the SYN moves a mark", name)
				}
				b.check(t)
			}
		}
	}
}
