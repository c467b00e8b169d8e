package datapath

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/runtime/rule"
)

// Preface of HTTP/2 and the empty SETTINGS frame behind it (RFC 9113, 3.4).
const (
	preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)

// hello is a smallest ClientHello for b.example.
var hello = func() string {
	b, err := hex.DecodeString("16030100410100003d0303" + strings.Repeat("00", 32) + "00000213010100001200000" + "00e000c000009" + hex.EncodeToString([]byte("b.example")))
	if err != nil {
		panic(err)
	}
	return string(b)
}()

// nameless is the same without extensions.
var nameless = "\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03" + strings.Repeat("\x00", 32) + "\x00\x00\x02\x13\x01\x01\x00"

// change edits the first service in both banks.
func (b *bench) change(f func(e *regs.ServiceEntry)) {
	for bank := range 2 {
		w := b.m.Service[bank][:regs.ServiceWords]
		var e regs.ServiceEntry
		e.Decode(w)
		f(&e)
		e.Encode(w)
	}
	b.m.Dirty = ^uint32(0)
}

// protocol makes the first service read something else than HTTP.
func (b *bench) protocol(p uint32) { b.change(func(e *regs.ServiceEntry) { e.ControlProtocol = p }) }

// routed gives the first service one rule for a host, whose control word gets more bits.
func (b *bench) routed(t testing.TB, host string, group, bits uint32) {
	t.Helper()
	im, err := rule.Compile([]rule.Service{{Name: "s", Routes: []rule.Route{{Match: rule.Match{Host: host}, Group: group}}}},
		rule.Indexes{Size: b.m.Geometry.Rules}, b.m.Geometry.UrlNodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	copy(b.m.Url[0], im.Nodes)
	for at := 0; bits&regs.RuleControlHostMask != 0 && at < len(im.Nodes); at += regs.UrlNodeWords { // nothing is sure of it
		b.m.Url[0][at+regs.UrlNodeTake] &^= regs.UrlNodeTakeSureMask
	}
	copy(b.m.Rule[0], im.Rules)
	for at := 0; at < len(im.Rules); at += regs.RuleWords {
		if c := &b.m.Rule[0][at+regs.RuleControl]; *c&regs.RuleControlValidMask != 0 {
			*c |= bits
		}
	}
	b.change(func(e *regs.ServiceEntry) { e.UrlRoot = im.Roots[0] })
}

// secondGroup makes group 1 one of the server behind the first.
func (b *bench) secondGroup(w world) world {
	other := w
	other.server = w.server.Next()
	x := w
	x.server, x.vip = other.server, w.vip.Next()
	b.serve(x, 1, regs.ServiceEntry{})
	return other
}

var decideConditions = map[string]conditionCase{
	key(VerdictEstablish, "the servers speak first"): {SynRcvd, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.change(func(e *regs.ServiceEntry) { e.ControlServerFirst = 1 })
		return c.client(flagACK, "")
	}},
	key(VerdictEstablish, "the servers speak first, and no group is there"): {SynRcvd, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.change(func(e *regs.ServiceEntry) { e.ControlServerFirst, e.ControlHasDefault = 1, 0 })
		return c.client(flagACK, "")
	}},
	key(VerdictEstablish, "the servers speak first, and the group has none"): {SynRcvd, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.change(func(e *regs.ServiceEntry) { e.ControlServerFirst = 1 })
		b.m.Server[regs.ServerControl] |= regs.ServerControlClosedMask
		return c.client(flagACK, "")
	}},
	key(VerdictEstablish, "the servers speak first, and the host alters what they get"): {SynRcvd, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.change(func(e *regs.ServiceEntry) { e.ControlServerFirst, e.ControlRewrite = 1, 1 })
		return c.client(flagACK, "")
	}},
	key(VerdictHold, "the service reads no request"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.protocol(regs.ServiceControlProtocolTcp)
		return c.client(flagACK|flagPSH, "\x00")
	}},
	key(VerdictHold, "the preface of HTTP/2 without TLS"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.change(func(e *regs.ServiceEntry) { e.ControlHasH2c = 1 })
		return c.client(flagACK|flagPSH, preface)
	}},
	key(VerdictHold, "the preface of HTTP/2 without TLS, which the service does not take"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.client(flagACK|flagPSH, preface+settings)
	}},
	key(VerdictHold, "what comes may yet become the preface"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.client(flagACK|flagPSH, preface[:18])
	}},
	key(VerdictHold, "the first byte begins no request"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.client(flagACK|flagPSH, hello)
	}},
	key(VerdictHold, "the first byte begins no TLS record"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.protocol(regs.ServiceControlProtocolTls)
		return c.client(flagACK|flagPSH, "CONNECT b.example:443 HTTP/1.1\r\n\r\n")
	}},
	key(VerdictHold, "the hello is none, or illegal"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.protocol(regs.ServiceControlProtocolTls)
		return c.client(flagACK|flagPSH, "\x16\x03\x01\x00\x00")
	}},
	key(VerdictHold, "the hello names no server"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.protocol(regs.ServiceControlProtocolTls)
		return c.client(flagACK|flagPSH, nameless)
	}},
	key(VerdictHold, "the path has too many segments"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.client(flagACK|flagPSH, "GET "+strings.Repeat("/a", 33)+" HTTP/1.1\r\nHost: img.example\r\n\r\n")
	}},
	key(VerdictHold, "a rule that only the host can test may take it"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.routed(t, "img.example", 0, regs.RuleControlHostMask)
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "the rule has the host answer"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.routed(t, "img.example", 0, regs.RuleControlAnswerMask)
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "the host alters what the server gets"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.change(func(e *regs.ServiceEntry) { e.ControlRewrite = 1 })
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictAppend, "lies behind the only request"): {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.onlyRequest(t, c.cseq)
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictTranslate, "from the client, wholly behind the only request"): {Spliced, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.onlyRequest(t, c.cseq)
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictTranslateFIN, "from the client, wholly behind the only request"): {Spliced, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.onlyRequest(t, c.cseq)
		return c.client(flagACK|flagFIN, request)
	}},
	key(VerdictTranslate, "from the client, wholly behind the only request, whose response it has to the end"): {Spliced, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.onlyRequest(t, c.cseq)
		one(t, b.push(1, c.server(flagACK|flagFIN, "response"))[0])
		c.cack += 9
		return c.client(flagACK, request)
	}},
}

// onlyRequest ends the only request of the connection before a sequence number of the client's.
func (b *bench) onlyRequest(t testing.TB, boundary uint32) {
	t.Helper()
	w := b.c.page(b.pageOf(t))
	w[regs.PageBoundaryClient] = boundary
	w[regs.PageClientLink] |= regs.PageClientLinkLastRequestMask
}

// pieces cuts a stream in as many ways: whole, byte by byte, and in two at every byte.
func pieces(s string) (all [][]string) {
	all = append(all, []string{s}, strings.Split(s, ""))
	for i := 1; i < len(s); i++ {
		all = append(all, []string{s[:i], s[i:]})
	}
	return all
}

// TestProtocols: what a service reads decides when its connections go on, and to whom, however the bytes arrive; the
// server gets all of them.
func TestProtocols(t *testing.T) {
	for _, x := range []struct {
		name   string
		set    func(e *regs.ServiceEntry)
		sent   string
		whole  int // bytes after which the server is chosen
		second bool
		counts map[regs.Reg]uint64
	}{
		{"http", nil, request, len(request), false, map[regs.Reg]uint64{regs.UrlLookups: 1, regs.UrlDefaulted: 1, regs.ConnectionHeadComplete: 1}},
		{"http by a rule", func(e *regs.ServiceEntry) {}, strings.ReplaceAll(request, "img", "b"), len(request) - 2, true, map[regs.Reg]uint64{regs.UrlLookups: 1, regs.UrlMatched: 1}},
		{"tls", func(e *regs.ServiceEntry) { e.ControlProtocol = regs.ServiceControlProtocolTls }, hello, len(hello), true, map[regs.Reg]uint64{regs.UrlLookups: 1, regs.UrlMatched: 1, regs.ConnectionHeadComplete: 1}},
		{"tls without a name", func(e *regs.ServiceEntry) { e.ControlProtocol = regs.ServiceControlProtocolTls }, nameless, len(nameless), false, map[regs.Reg]uint64{regs.UrlNoSni: 1, regs.UrlDefaulted: 1}},
		{"tcp", func(e *regs.ServiceEntry) { e.ControlProtocol = regs.ServiceControlProtocolTcp }, "\x00\x01\x02hello", 1, false, map[regs.Reg]uint64{regs.UrlLookups: 0, regs.ConnectionHeadComplete: 1}},
		{"h2c", func(e *regs.ServiceEntry) { e.ControlHasH2c, e.H2cGroup = 1, 1 }, preface + settings, len(preface), true, map[regs.Reg]uint64{regs.UrlH2c: 1, regs.UrlLookups: 0}},
		{"a method like the preface's", nil, "PRI /a HTTP/1.1\r\nHost: a.example\r\n\r\n", 36, false, map[regs.Reg]uint64{regs.UrlH2c: 0, regs.UrlDefaulted: 1}},
		{"a long method like the preface's", nil, "PROPFIND / HTTP/1.1\r\nHost: a.example\r\n\r\n", 40, false, map[regs.Reg]uint64{regs.UrlH2c: 0, regs.UrlDefaulted: 1}},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, smallGeometry())
			b.serve(world4, 0, regs.ServiceEntry{})
			other := b.secondGroup(world4)
			b.routed(t, "b.example", 1, 0)
			if x.set != nil {
				b.change(x.set)
			}
			b.attach()
			b.now = time.Second
			for _, parts := range pieces(x.sent) {
				before := map[regs.Reg]uint64{}
				for r := range x.counts {
					before[r] = b.r.Get64(r)
				}
				c := b.waiting(t, plainOptions)
				first, at := c.cseq, 0
				for _, part := range parts {
					chosen := at >= x.whole
					at += len(part)
					out := b.push(0, c.client(flagACK|flagPSH, part))
					if ack := one(t, out[0]); ack.ack != c.cseq || ack.flags != flagACK {
						t.Fatalf("%q: %v", parts, ack)
					}
					if goes := !chosen && at >= x.whole; goes != (len(out[1]) == 1) {
						t.Fatalf("%q, after %d bytes: %v", parts, at, out[1])
					} else if goes {
						if x.second {
							c.w = other
						}
						if s := out[1][0]; s.flags != flagSYN || s.to != c.w.server {
							t.Fatalf("%q: %v, want a SYN to %v", parts, s, c.w.server)
						}
						if w := b.c.page(b.pageOf(t)); regs.PageARtoSent(w[regs.PageARto]) != 0 {
							t.Fatalf("%q: a_rto %#x: the search is not forgotten", parts, w[regs.PageARto])
						}
					}
				}
				if got := c.serverBytes(t, first); got != x.sent {
					t.Fatalf("%q: the server gets %q", parts, got)
				}
				for r, want := range x.counts {
					if got := b.r.Get64(r) - before[r]; got != want {
						t.Errorf("%q: %s grew by %d, want %d", parts, r.Name(), got, want)
					}
				}
				b.check(t)
				b.kill(t, c)
			}
			if g := b.exceptions(); len(g) != 0 {
				t.Errorf("exceptions %+v", g)
			}
		})
	}
}

// TestRefusedAtOnce: what is not the service's protocol goes to the host with its first byte, with the segment and the
// reason, and never to a server.
func TestRefusedAtOnce(t *testing.T) {
	tls := func(e *regs.ServiceEntry) { e.ControlProtocol = regs.ServiceControlProtocolTls }
	for _, x := range []struct {
		name    string
		set     func(e *regs.ServiceEntry)
		sent    string
		reason  uint32
		counter regs.Reg
	}{
		{"tls on http", nil, hello, reasonNotHTTP, regs.UrlNotHttp},
		{"one byte of tls on http", nil, hello[:1], reasonNotHTTP, regs.UrlNotHttp},
		{"http on tls", tls, "CONNECT b.example:443 HTTP/1.1\r\n\r\n", reasonNotTLS, regs.UrlNotTls},
		{"one byte of http on tls", tls, "G", reasonNotTLS, regs.UrlNotTls},
		{"preface on tls", tls, preface, reasonNotTLS, regs.UrlNotTls},
		{"empty record", tls, "\x16\x03\x01\x00\x00" + hello, reasonBadHello, regs.UrlBadHello},
		{"no h2c here", nil, preface, reasonH2C, regs.UrlH2c},
		{"malformed", nil, "GET / HTTP/1.1\n\n", reasonBad, regs.UrlMalformed},
	} {
		for _, host := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s host %v", x.name, host), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.serve(world4, 0, regs.ServiceEntry{})
				if x.set != nil {
					b.change(x.set)
				}
				if host {
					b.attach()
				}
				b.now = time.Second
				c := b.waiting(t, plainOptions)
				n := b.pageOf(t)
				out := b.push(0, c.client(flagACK|flagPSH, x.sent))
				if len(out[1]) != 0 {
					t.Errorf("a server gets %v", out[1])
				}
				if got := b.r.Get64(x.counter); got != 1 {
					t.Errorf("%s = %d, want 1", x.counter.Name(), got)
				}
				if !host { // nobody is there to say a word: it ends with an exact RST
					if s := out[0][len(out[0])-1]; s.flags != flagRST|flagACK || s.seq != c.cack || s.ack != c.cseq {
						t.Errorf("the client gets %v", s)
					}
					b.allFree(t)
					return
				}
				g := b.exceptions()
				if len(g) != 1 || g[0].ReasonReason != x.reason || g[0].HandleN != n || g[0].ReasonState != uint32(WaitHead) || len(g[0].frame) == 0 {
					t.Fatalf("exceptions %+v, want one of reason %d with the segment", g, x.reason)
				}
				w := b.c.page(n)
				if w[regs.PageControl]&regs.PageControlWaitingHostMask == 0 || regs.PageControlHostReason(w[regs.PageControl]) != x.reason {
					t.Errorf("page control %#x: the host is not asked", w[regs.PageControl])
				}
				b.check(t)
			})
		}
	}
}

// TestHostServes: where the host is to go on with a whole request it gets the connection without a frame, with the rule and
// the group as far as they are known, and time of its own, however late the head came.
func TestHostServes(t *testing.T) {
	for _, x := range []struct {
		name    string
		act     func(b *bench)
		reason  uint32
		rule    uint32
		group   uint32
		counter regs.Reg
	}{
		{"rewrite by default", func(b *bench) { b.change(func(e *regs.ServiceEntry) { e.ControlRewrite = 1 }) }, reasonRewrite, 0, 0, regs.UrlDefaulted},
		{"rewrite by a rule", func(b *bench) {
			b.routed(t, "img.example", 1, 0)
			b.change(func(e *regs.ServiceEntry) { e.ControlRewrite = 1 })
		}, reasonRewrite, 1, 1, regs.UrlMatched},
		{"rewrite where every server is closed", func(b *bench) {
			b.change(func(e *regs.ServiceEntry) { e.ControlRewrite = 1 })
			b.m.Server[regs.ServerControl] |= regs.ServerControlClosedMask
		}, reasonRewrite, 0, 0, regs.UrlDefaulted},
		{"slow rule", func(b *bench) { b.routed(t, "img.example", 1, regs.RuleControlHostMask|regs.RuleControlAnswerMask) }, reasonRuleHost, 0, 0, regs.UrlHost},
		{"answer", func(b *bench) { b.routed(t, "img.example", 0, regs.RuleControlAnswerMask) }, reasonAnswer, 1, 0, regs.UrlAnswered},
		{"answer of a service that rewrites", func(b *bench) {
			b.routed(t, "img.example", 0, regs.RuleControlAnswerMask)
			b.change(func(e *regs.ServiceEntry) { e.ControlRewrite = 1 })
		}, reasonAnswer, 1, 0, regs.UrlAnswered},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, smallGeometry())
			b.serve(world4, 0, regs.ServiceEntry{})
			b.secondGroup(world4)
			x.act(b)
			b.attach()
			b.now = time.Second
			c := b.waiting(t, plainOptions)
			b.wait(29990 * time.Millisecond)
			out := b.push(0, c.client(flagACK|flagPSH, request))
			if ack := one(t, out[0]); ack.ack != c.cseq || len(out[1]) != 0 {
				t.Fatalf("the request draws %v", out)
			}
			n := b.pageOf(t)
			g := b.exceptions()
			if len(g) != 1 || g[0].ReasonReason != x.reason || g[0].HandleN != n || len(g[0].frame) != 0 || g[0].ReasonState != uint32(WaitHead) {
				t.Fatalf("exceptions %+v, want one of reason %d without a frame", g, x.reason)
			}
			w := b.c.page(n)
			if w[regs.PageRule] != x.rule || regs.PageChoiceGroup(w[regs.PageChoice]) != x.group {
				t.Errorf("rule %d, group %d, want %d, %d", w[regs.PageRule], regs.PageChoiceGroup(w[regs.PageChoice]), x.rule, x.group)
			}
			if got := b.r.Get64(x.counter); got != 1 {
				t.Errorf("%s = %d, want 1", x.counter.Name(), got)
			}
			if out := b.wait(29 * time.Second); len(out[0])+len(out[1]) != 0 {
				t.Errorf("the host is given no time: %v", out)
			}
			if s := one(t, b.wait(2 * time.Second)[0]); s.flags&flagRST == 0 || b.r.Get64(regs.ConnectionExpiredWaitHead) != 1 {
				t.Errorf("without an answer of the host: %v", s)
			}
			b.allFree(t)
		})
	}
}

// TestServerFirst: the server is connected with the client's handshake, of whatever kind the segment is that ends it, and
// may speak before the client; what the client says meanwhile follows in order.
func TestServerFirst(t *testing.T) {
	for _, defence := range []uint32{regs.ServiceControlDefenceOff, regs.ServiceControlDefenceAlways} {
		for _, says := range []string{"", "EHLO a.example\r\n"} {
			for _, w := range []world{world4, world6} {
				t.Run(fmt.Sprintf("defence %d, %d bytes, %v", defence, len(says), w.client.Is6()), func(t *testing.T) {
					b, c := caseBench(t, w, regs.ServiceEntry{ControlServerFirst: 1, ControlDefence: defence, ControlProtocol: regs.ServiceControlProtocolTcp})
					c.cack = one(t, b.push(0, c.client(flagSYN, "", c.opts...))[0]).seq + 1
					first := c.cseq
					syn := one(t, b.push(0, c.client(flagACK, says))[1])
					if syn.flags != flagSYN || syn.seq != first-1 || syn.to != w.server {
						t.Fatalf("the handshake draws %v, want our SYN", syn)
					}
					one(t, b.push(0, c.client(flagACK|flagPSH, "QUIT\r\n"))[0])
					if got := c.serverBytes(t, first); got != says+"QUIT\r\n" {
						t.Fatalf("the server gets %q", got)
					}
					c.sack = c.cseq
					if s := one(t, b.push(1, c.server(flagACK|flagPSH, "220 hello\r\n"))[0]); string(s.payload) != "220 hello\r\n" || s.seq != c.cack {
						t.Errorf("the client gets %v", s)
					}
					if b.r.Get64(regs.UrlLookups) != 0 || b.r.Get64(regs.ConnectionSpliced) != 1 {
						t.Error("the URL table was asked, or nothing spliced")
					}
					b.check(t)
				})
			}
		}
	}
	// A server that speaks first to a client that says nothing.
	b, c := caseBench(t, world4, regs.ServiceEntry{ControlServerFirst: 1})
	c.cack = one(t, b.push(0, c.client(flagSYN, "", c.opts...))[0]).seq + 1
	one(t, b.push(0, c.client(flagACK, ""))[1])
	c.sack = c.cseq
	out := b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))
	if s := one(t, out[1]); s.flags != flagACK || s.ack != c.sseq || len(s.payload) != 0 {
		t.Errorf("the server's handshake ends with %v", s)
	}
	if s := one(t, b.push(1, c.server(flagACK|flagPSH, "220 hello\r\n"))[0]); s.seq != c.cack || s.ack != c.cseq || string(s.payload) != "220 hello\r\n" {
		t.Errorf("the client gets %v", s)
	}
	c.cack += 11
	if s := one(t, b.push(0, c.client(flagACK|flagPSH, "QUIT\r\n"))[1]); s.seq != c.sack || s.ack != c.sseq {
		t.Errorf("the server gets %v", s)
	}
	b.check(t)
}

// TestFallback: a client that says nothing goes to the default group after the service's time; one that has said a byte
// does not.
func TestFallback(t *testing.T) {
	for _, x := range []struct {
		name    string
		set     func(e *regs.ServiceEntry)
		says    string
		goes    bool
		reason  uint32
		counted uint64
	}{
		{"silent", func(e *regs.ServiceEntry) {}, "", true, 0, 1},
		{"silent, tls", func(e *regs.ServiceEntry) { e.ControlProtocol = regs.ServiceControlProtocolTls }, "", true, 0, 1},
		{"one byte", func(e *regs.ServiceEntry) {}, "G", false, 0, 0},
		{"never", func(e *regs.ServiceEntry) { e.Fallback = 0 }, "", false, 0, 0},
		{"rewrite", func(e *regs.ServiceEntry) { e.ControlRewrite = 1 }, "", false, reasonRewrite, 1},
		{"no default", func(e *regs.ServiceEntry) { e.ControlHasDefault = 0 }, "", false, reasonNoRule, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, smallGeometry())
			b.serve(world4, 0, regs.ServiceEntry{Fallback: 500})
			b.change(x.set)
			b.attach()
			b.now = time.Second
			c := b.waiting(t, plainOptions)
			if x.says != "" {
				b.push(0, c.client(flagACK, x.says))
			}
			if out := b.wait(499 * time.Millisecond); len(out[0])+len(out[1]) != 0 {
				t.Fatalf("early: %v", out)
			}
			out := b.wait(200 * time.Millisecond)
			if goes := len(out[1]) == 1 && out[1][0].flags == flagSYN; goes != x.goes || len(out[0]) != 0 {
				t.Errorf("goes on with %v, want our SYN: %v", out, x.goes)
			}
			g := b.exceptions()
			if x.reason == 0 && len(g) != 0 || x.reason != 0 && (len(g) != 1 || g[0].ReasonReason != x.reason || len(g[0].frame) != 0) {
				t.Errorf("exceptions %+v, want reason %d", g, x.reason)
			}
			if got := b.r.Get64(regs.ConnectionFallback); got != x.counted {
				t.Errorf("fallback = %d, want %d", got, x.counted)
			}
			if x.goes {
				first := c.cseq
				one(t, b.push(0, c.client(flagACK|flagPSH, "at last"))[0])
				if got := c.serverBytes(t, first); got != "at last" {
					t.Errorf("the server gets %q", got)
				}
			}
			b.check(t)
		})
	}
}

// TestHeadTimeout: the time of a head counts from the handshake, however its bytes drip in; the host answers a client that
// has begun one of HTTP, and a silent one just loses the connection.
func TestHeadTimeout(t *testing.T) {
	for _, x := range []struct {
		name     string
		protocol uint32
		drips    string
		answered bool
	}{
		{"a byte every second", regs.ServiceControlProtocolHttp, strings.Repeat("GET /aaa", 4), true},
		{"one byte", regs.ServiceControlProtocolHttp, "G", true},
		{"begin of a preface", regs.ServiceControlProtocolHttp, "PRI", true},
		{"nothing", regs.ServiceControlProtocolHttp, "", false},
		{"a hello that never ends", regs.ServiceControlProtocolTls, hello[:40], false},
	} {
		for _, host := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s host %v", x.name, host), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.serve(world4, 0, regs.ServiceEntry{ControlProtocol: x.protocol})
				if host {
					b.attach()
				}
				b.now = time.Second
				c := b.waiting(t, plainOptions)
				n := b.pageOf(t)
				for i := range 29 {
					if i < len(x.drips) {
						one(t, b.push(0, c.client(flagACK|flagPSH, x.drips[i:i+1]))[0])
					}
					if out := b.wait(time.Second); len(out[0])+len(out[1]) != 0 {
						t.Fatalf("after %d s: %v", i+1, out)
					}
				}
				if out := b.wait(999 * time.Millisecond); len(out[0])+len(out[1])+len(b.exceptions()) != 0 {
					t.Fatalf("early: %v", out)
				}
				out := b.wait(200 * time.Millisecond)
				g := b.exceptions()
				if !x.answered || !host {
					if s := one(t, out[0]); s.flags != flagRST|flagACK || s.ack != c.cseq || len(g) != 0 {
						t.Errorf("%v and exceptions %+v, want RST", s, g)
					}
					if b.r.Get64(regs.ConnectionExpiredWaitHead) != 1 || b.r.Get64(regs.ConnectionHeadTimeout) != 0 {
						t.Error("not counted as expired, or as the host's")
					}
					b.allFree(t)
					return
				}
				if len(g) != 1 || g[0].ReasonReason != reasonHeadTimeout || g[0].HandleN != n || len(g[0].frame) != 0 || len(out[0])+len(out[1]) != 0 {
					t.Fatalf("exceptions %+v, sent %v", g, out)
				}
				if b.r.Get64(regs.ConnectionHeadTimeout) != 1 {
					t.Error("head_timeout does not count")
				}
				if out := b.push(0, c.client(flagACK|flagPSH, "x")); len(out[0])+len(out[1]) != 0 {
					t.Errorf("while the host decides: %v", out)
				}
				const answer = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"
				copy(b.ram, answer)
				done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeReply, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20, Length: uint32(len(answer))})
				if s := one(t, b.drain()[0]); done.ControlStatus != statusOK || string(s.payload) != answer || s.flags&flagFIN == 0 {
					t.Errorf("status %d, the client gets %v", done.ControlStatus, s)
				}
				b.check(t)
			})
		}
	}
}

// TestRewriteOnce: the host alters the head of a service's only request, leaves out what the client had sent behind it, and
// names its end: the server gets that and the body that belongs to it, and nothing of what follows, with one delta of zero.
func TestRewriteOnce(t *testing.T) {
	const inserted = "Connection: close\r\n"
	altered := strings.Replace(request, "\r\n\r\n", "\r\n"+inserted+"\r\n", 1)
	for _, x := range []struct{ behind, body string }{{"", ""}, {"GET /2", ""}, {"", "the body"}} {
		t.Run(fmt.Sprintf("%q %q", x.behind, x.body), func(t *testing.T) {
			b, c := caseBench(t, world4, regs.ServiceEntry{ControlRewrite: 1})
			c.reach(t, WaitHead)
			first := c.cseq
			b.push(0, c.client(flagACK|flagPSH, request+x.behind))
			n := b.pageOf(t)
			copy(b.ram, altered)
			k := uint32(len(inserted)) - uint32(len(x.behind))
			done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20,
				FlagsGroup: 1, FlagsReplace: 1, FlagsLast: 1, Length: uint32(len(altered)), Value: k, Boundary: first + uint32(len(request)+len(x.body))})
			syn := one(t, b.drain()[1])
			if done.ControlStatus != statusOK || syn.seq != first-1-k {
				t.Fatalf("status %d, our SYN %v", done.ControlStatus, syn)
			}
			next := c.cseq
			if x.body == "" {
				if out := b.push(0, c.client(flagACK|flagPSH, "GET /3")); len(out[0])+len(out[1]) != 0 {
					t.Errorf("a request before the splice draws %v", out)
				}
			}
			if got := c.serverBytes(t, syn.seq+1); got != altered {
				t.Errorf("the server gets %q", got)
			}
			c.sack = next
			one(t, b.push(1, c.server(flagACK, ""))[0])
			c.cseq = next
			out := b.push(0, c.client(flagACK|flagPSH, x.body+"GET /3"))
			if x.body == "" {
				if len(out[0])+len(out[1]) != 0 {
					t.Errorf("a request after the splice draws %v", out)
				}
			} else if s := one(t, out[1]); string(s.payload) != x.body || s.seq != next {
				t.Errorf("the server gets %v, want the body at %#x", s, next)
			}
			b.check(t)
		})
	}
}

// TestRewriteServerFirst: the host puts bytes before all that a client of a service sends whose servers speak first.
func TestRewriteServerFirst(t *testing.T) {
	const header = "PROXY\r\n"
	b, c := caseBench(t, world6, regs.ServiceEntry{ControlRewrite: 1, ControlServerFirst: 1, ControlProtocol: regs.ServiceControlProtocolTcp})
	c.cack = one(t, b.push(0, c.client(flagSYN, "", c.opts...))[0]).seq + 1
	first := c.cseq
	b.push(0, c.client(flagACK, ""))
	if g := b.exceptions(); len(g) != 1 || g[0].ReasonReason != reasonRewrite {
		t.Fatalf("exceptions %+v", g)
	}
	n := b.pageOf(t)
	copy(b.ram, header)
	done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20,
		FlagsGroup: 1, FlagsReplace: 1, Length: uint32(len(header)), Value: uint32(len(header))})
	if syn := one(t, b.drain()[1]); done.ControlStatus != statusOK || syn.seq != first-1-uint32(len(header)) {
		t.Fatalf("status %d, our SYN %v", done.ControlStatus, syn)
	}
	if got := c.serverBytes(t, first-uint32(len(header))); got != header {
		t.Errorf("the server gets %q", got)
	}
	c.sack = first
	if s := one(t, b.push(1, c.server(flagACK|flagPSH, "220\r\n"))[0]); s.seq != c.cack || s.ack != first {
		t.Errorf("the client gets %v", s)
	}
	c.cack += 5
	if s := one(t, b.push(0, c.client(flagACK|flagPSH, "QUIT\r\n"))[1]); s.seq != first {
		t.Errorf("the server gets %v, want seq %#x", s, first)
	}
	b.check(t)
}

// TestGatheredTimeout: a head that the host gathers has no more time than another.
func TestGatheredTimeout(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	n := b.pageOf(t)
	for i := 0; i < regs.HeadBytes; i += 512 {
		says := strings.Repeat("a", 512)
		if i == 0 {
			says = "GET /" + says[5:]
		}
		b.push(0, c.client(flagACK, says))
	}
	done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeTake, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20, Length: regs.HeadBytes})
	if done.ControlStatus != statusOK {
		t.Fatalf("take: status %d", done.ControlStatus)
	}
	b.drain()
	b.exceptions()
	b.wait(29900 * time.Millisecond)
	if g := b.exceptions(); len(g) != 0 {
		t.Fatalf("early: %+v", g)
	}
	b.wait(300 * time.Millisecond)
	if g := b.exceptions(); len(g) != 1 || g[0].ReasonReason != reasonHeadTimeout || b.r.Get64(regs.ConnectionHeadTimeout) != 1 {
		t.Errorf("exceptions %+v, want head_timeout", g)
	}
	b.check(t)
}
