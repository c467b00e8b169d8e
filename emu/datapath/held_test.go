package datapath

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// bigHead is a request that fills a head buffer to the last byte: six segments of 1,460.
var bigHead = request[:len(request)-2] + "X: " + strings.Repeat("x", 8192-len(request)-7) + "\r\n\r\n"

// holding brings a connection to the splice with bigHead held and the server's window win; the SYN-ACK's answer is
// returned.
func holding(t *testing.T, promise regs.ServiceEntry, copts, sopts []layers.TCPOption, win uint16) (*bench, *conn, []tcp) {
	t.Helper()
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, promise)
	b.attach()
	b.now = time.Second
	c := &conn{b: b, w: world4, port: 40001, cseq: 0xfffff000, sseq: 0xfffffffe, opts: copts, sopts: sopts, serverWindow: win}
	c.reach(t, WaitHead)
	for at := 0; at < len(bigHead); at += 1400 {
		b.push(0, c.client(flagACK, bigHead[at:min(at+1400, len(bigHead))]))
	}
	c.sack = c.cseq - uint32(len(bigHead))
	out := b.push(1, c.server(flagSYN|flagACK, "", sopts...))
	if ack := one(t, out[0]); ack.flags != flagACK || ack.seq != c.cack || ack.ack != c.cseq || len(ack.payload) != 0 {
		t.Fatalf("the SYN-ACK draws %v to the client, want an ACK with the server's window", ack)
	}
	return b, c, out[1]
}

// boundary is H.
func (c *conn) boundary() uint32 { return c.cseq }

// stream puts payloads in order of their sequence numbers and checks that there is no gap.
func stream(t *testing.T, first uint32, ss []tcp) []byte {
	t.Helper()
	var all []byte
	for _, s := range ss {
		if want := first + uint32(len(all)); s.seq != want {
			t.Fatalf("segment %v, want seq %#x", s, want)
		}
		all = append(all, s.payload...)
	}
	return all
}

func TestHeldBytesGoInTheServersWindow(t *testing.T) {
	b, c, sent := holding(t, regs.ServiceEntry{}, plainOptions, plainOptions, 3000)
	first := c.sack
	got := stream(t, first, sent)
	for round := 0; len(got) < len(bigHead); round++ {
		if limit := int(c.sack-first) + 3000; len(got) > limit {
			t.Fatalf("round %d: %d bytes sent, the window ends at %d", round, len(got), limit)
		}
		if round > 20 {
			t.Fatalf("%d bytes after %d rounds", len(got), round)
		}
		b.check(t)
		c.sack = first + uint32(len(got))
		out := b.push(1, c.server(flagACK, ""))
		if len(out[0]) != 0 {
			t.Fatalf("round %d: an acknowledgement below H reaches the client: %v", round, out[0])
		}
		got = append(got, stream(t, first+uint32(len(got)), out[1])...)
	}
	if string(got) != bigHead {
		t.Fatal("the server got other bytes than the client sent")
	}
	if b.r.Get(regs.HeadFree) != b.m.Geometry.Heads-1 {
		t.Error("the head buffer is gone before H is acknowledged")
	}
	c.sack = c.boundary()
	if ack := one(t, b.push(1, c.server(flagACK, ""))[0]); ack.ack != c.cseq {
		t.Errorf("the acknowledgement of H: %v, want ack %#x", ack, c.cseq)
	}
	if got := b.r.Get(regs.HeadFree); got != b.m.Geometry.Heads {
		t.Errorf("free heads after H: got %d, want all", got)
	}
	if w := b.c.page(b.pageOf(t)); w[regs.PageControl]&(regs.PageControlHeldMask|regs.PageControlDeadlineMask|regs.PageControlHeadMask) != 0 {
		t.Errorf("control word after H: %#x, want nothing held and no deadline", w[regs.PageControl])
	}
	if got := b.r.Get64(regs.ConnectionDropHeldAck); got == 0 {
		t.Error("drop_held_ack counts nothing")
	}
	b.check(t)
}

// TestSynAckWindowIsNotScaled: the window of a SYN-ACK counts bytes whatever scale it announces (RFC 7323, 2.2).
func TestSynAckWindowIsNotScaled(t *testing.T) {
	promise := regs.ServiceEntry{PromiseWscaleOn: 1, PromiseWscale: 7}
	opts := []layers.TCPOption{optMSS(1460), optNop, optWscale(7)}
	_, c, sent := holding(t, promise, opts, opts, 2000)
	if got := len(stream(t, c.sack, sent)); got > 2000+127 || got < 2000 {
		t.Errorf("a SYN-ACK with window 2000 draws %d bytes", got)
	}
}

// TestServerDataBelowHeld: what the server sends with an acknowledgement below H goes on with ack = H, and its SACK
// blocks, which concern held bytes, stay here.
func TestServerDataBelowHeld(t *testing.T) {
	promise := regs.ServiceEntry{PromiseSack: 1}
	opts := []layers.TCPOption{optMSS(1460), optNop, optNop, optSACK}
	b, c, _ := holding(t, promise, opts, opts, 3000)
	block := layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: 10, OptionData: append(u32(c.sack+100), u32(c.sack+200)...)}
	for _, tt := range []struct {
		name    string
		flags   uint8
		payload string
	}{{"data", flagACK | flagPSH, "HTTP/1.1 100 Continue\r\n\r\n"}, {"FIN", flagACK | flagFIN, ""}, {"FIN with data", flagACK | flagFIN, "x"}} {
		want := c.cack
		got := one(t, b.push(1, c.server(tt.flags, tt.payload, optNop, optNop, block))[0])
		if got.ack != c.boundary() || got.seq != want || string(got.payload) != tt.payload || got.option(layers.TCPOptionKindSACK) != nil {
			t.Errorf("%s: got %v, want seq %#x and ack %#x without SACK", tt.name, got, want, c.boundary())
		}
		c.cack += uint32(len(tt.payload)) + uint32(tt.flags&flagFIN)
		b.check(t)
	}
	if got := b.r.Get64(regs.PmuSackRemoved); got != 3 {
		t.Errorf("sack_removed: got %d, want 3", got)
	}
}

func TestClientBelowHeld(t *testing.T) {
	b, c, _ := holding(t, regs.ServiceEntry{}, plainOptions, plainOptions, 3000)
	h := c.boundary()
	segment := func(seq uint32, payload string) []byte {
		x := *c
		x.cseq = seq
		return x.client(flagACK, payload)
	}
	for _, tt := range []struct {
		name    string
		raw     []byte
		counter regs.Reg // zero: goes on
		acked   bool
	}{
		{"wholly below", segment(h-100, "yyyyyyyyyy"), regs.ConnectionDropBelowHeld, true},
		{"up to H", segment(h-10, "yyyyyyyyyy"), regs.ConnectionDropBelowHeld, true},
		{"keep-alive probe", segment(h-1, ""), regs.ConnectionDropBelowHeld, true},
		{"across H", segment(h-3, "yyyyyyyyyy"), regs.ConnectionDropStraddlesHeld, false},
		{"from H", segment(h, "zzz"), 0, false},
		{"above H", segment(h+100, "zzz"), 0, false},
		{"bare ACK", segment(h, ""), 0, false},
	} {
		before := b.r.Get64(max(tt.counter, regs.ConnectionOpened))
		out := b.push(0, tt.raw)
		b.check(t)
		if tt.counter == 0 {
			one(t, out[1])
			continue
		}
		if got := b.r.Get64(tt.counter) - before; got != 1 || len(out[1]) != 0 {
			t.Errorf("%s: %s grew by %d; to the server %v", tt.name, tt.counter.Name(), got, out[1])
		}
		if !tt.acked {
			if len(out[0]) != 0 {
				t.Errorf("%s: answered with %v", tt.name, out[0])
			}
			continue
		}
		if ack := one(t, out[0]); ack.flags != flagACK || ack.ack != h || ack.seq != c.cack {
			t.Errorf("%s: answered with %v, want ack %#x seq %#x", tt.name, ack, h, c.cack)
		}
	}
}

// TestHeldResent: what the server has not acknowledged is sent again from there, and an acknowledgement that advances
// starts the count again.
func TestHeldResent(t *testing.T) {
	b, c, sent := holding(t, regs.ServiceEntry{}, plainOptions, plainOptions, 65535)
	first := c.sack
	if got := string(stream(t, first, sent)); got != bigHead {
		t.Fatalf("the server got %d bytes, want the whole head", len(got))
	}
	for round := range 6 { // more often than the limit allows without progress
		b.wait(800 * time.Millisecond)
		c.sack = first + uint32(1000*round)
		if out := b.push(1, c.server(flagACK, "")); len(out[0]) != 0 {
			t.Fatalf("round %d: %v", round, out[0])
		}
	}
	resent := b.r.Get64(regs.TransmitResentHeld + serverEnd)
	out := b.wait(1200 * time.Millisecond)
	if got, want := stream(t, c.sack, out[1]), bigHead[5000:]; string(got) != want {
		t.Errorf("sent again: %d bytes, want %d from the acknowledged on", len(got), len(want))
	}
	if got := b.r.Get64(regs.TransmitResentHeld+serverEnd) - resent; got != 3 {
		t.Errorf("resent_held: got %d, want 3 segments", got)
	}
	b.check(t)
	if got := b.r.Get64(regs.ConnectionAbortHeld); got != 0 {
		t.Errorf("abort_held: got %d, want 0", got)
	}
}

// TestHeldZeroWindow: a server that closes its window is asked with one byte, and is not given up while it answers.
func TestHeldZeroWindow(t *testing.T) {
	b, c, sent := holding(t, regs.ServiceEntry{}, plainOptions, plainOptions, 1000)
	first := c.sack
	got := stream(t, first, sent)
	c.sack += uint32(len(got))
	closed := func() []byte {
		return buildFrame(t, &tcp{from: c.w.server, to: c.w.client, sport: 8080, dport: c.port, seq: c.sseq, ack: c.sack, flags: flagACK, srcMAC: serverMAC, dstMAC: portMAC[1]})
	}
	out := b.push(1, closed())
	if len(out[1]) != 0 {
		t.Fatalf("sent into a closed window: %v", out[1])
	}
	for i := range 12 { // more often than the limit allows in silence
		s, after := b.next(t, 1)
		if s.seq != c.sack || len(s.payload) != 1 {
			t.Fatalf("probe %d: %v, want one byte from %#x", i, s, c.sack)
		}
		if want := min(200*time.Millisecond<<i, time.Minute); after < want || after > want+101*time.Millisecond {
			t.Errorf("probe %d after %v, want %v and a sweep", i, after, want)
		}
		if out := b.push(1, closed()); len(out[0])+len(out[1]) != 0 {
			t.Fatalf("answer %d draws %v", i, out)
		}
	}
	c.serverWindow = 65535
	out = b.push(1, c.server(flagACK, ""))
	rest := stream(t, c.sack, out[1])
	if want := bigHead[len(got):]; string(rest) != want {
		t.Errorf("after the window opened: %d bytes, want %d", len(rest), len(want))
	}
	b.check(t)
}

// TestWindowNeverInflated: with ack = H put in place of a smaller acknowledgement, the right edge of the server's window
// stays where the server has it.
func TestWindowNeverInflated(t *testing.T) {
	for _, shift := range []uint8{0, 3} {
		for _, win := range []uint16{0, 5, 1500, 65535} {
			t.Run(fmt.Sprintf("shift %d window %d", shift, win), func(t *testing.T) {
				promise, opts := regs.ServiceEntry{}, plainOptions
				if shift != 0 {
					promise = regs.ServiceEntry{PromiseWscaleOn: 1, PromiseWscale: 1}
					opts = []layers.TCPOption{optMSS(1460), optNop, optWscale(shift)}
				}
				b, c, _ := holding(t, promise, opts, opts, 3000)
				c.serverWindow = win
				if win == 0 {
					c.serverWindow = 1
				}
				got := one(t, b.push(1, c.server(flagACK, "data"))[0])
				promised := uint32(0)
				if shift != 0 {
					promised = 1
				}
				edge, limit := got.ack+uint32(got.window)<<promised, c.sack+uint32(c.serverWindow)<<shift
				if over := int32(edge - limit); got.window != 0 && over > 1<<promised {
					t.Errorf("window %d from %#x ends %d bytes beyond the server's", got.window, got.ack, over)
				}
			})
		}
	}
}

// TestHeldFIN: a FIN that came with the request is held with it, sent behind it, and acknowledged with it.
func TestHeldFIN(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{})
	b.now = time.Second
	c := &conn{b: b, w: world4, port: 40001, cseq: 0xffffffe0, sseq: 5, opts: plainOptions, sopts: plainOptions}
	c.reach(t, WaitHead)
	cisn := c.cseq - 1
	out := b.push(0, c.client(flagACK|flagPSH|flagFIN, request))
	if ack := one(t, out[0]); ack.ack != c.cseq {
		t.Fatalf("ACK of request and FIN: %v, want ack %#x", ack, c.cseq)
	}
	c.sack = cisn + 1
	h := one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])
	if h.flags != flagACK|flagPSH|flagFIN || string(h.payload) != request {
		t.Fatalf("held bytes and FIN: %v", h)
	}
	c.sack = c.cseq - 1 // all but the FIN
	if out := b.push(1, c.server(flagACK, "")); len(out[0])+len(out[1]) != 0 {
		t.Fatalf("acknowledgement without the FIN draws %v", out)
	}
	again := one(t, b.wait(310 * time.Millisecond)[1])
	if again.flags&flagFIN == 0 || len(again.payload) != 0 || again.seq != c.cseq-1 {
		t.Fatalf("FIN sent again: %v", again)
	}
	c.sack = c.cseq
	one(t, b.push(1, c.server(flagACK, "half a response"))[0])
	c.cack += uint32(len("half a response"))
	one(t, b.push(0, c.client(flagACK, ""))[1])
	b.check(t)
	one(t, b.push(1, c.server(flagACK|flagFIN, " and the rest"))[0])
	c.cack += uint32(len(" and the rest")) + 1
	one(t, b.push(0, c.client(flagACK, ""))[1])
	if got := b.r.Get64(regs.ConnectionClosedFin); got != 1 {
		t.Errorf("closed_fin: got %d, want 1", got)
	}
	b.wait(1100 * time.Millisecond)
	b.allFree(t)
}

// TestHeldFINIsNotAcknowledgedByUs: an acknowledgement of H that the card puts in place of a smaller one is not the
// server's word about the client's FIN.
func TestHeldFINIsNotAcknowledgedByUs(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	first := c.cseq
	one(t, b.push(0, c.client(flagACK|flagPSH|flagFIN, request))[1])
	c.sack = first
	one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])
	one(t, b.push(1, c.server(flagACK|flagFIN, "refused"))[0])
	c.cack += 8
	one(t, b.push(0, c.client(flagACK, ""))[1])
	if got := b.state(c); got != Closing {
		t.Fatalf("state %d while the server has not acknowledged the FIN, want closing", got)
	}
	if again := one(t, b.wait(310 * time.Millisecond)[1]); again.flags&flagFIN == 0 || string(again.payload) != request {
		t.Errorf("sent again: %v, want request and FIN", again)
	}
	c.sack = c.cseq
	one(t, b.push(1, c.server(flagACK, ""))[0])
	if got := b.state(c); got != Quarantine {
		t.Errorf("state %d after the acknowledgement, want quarantine", got)
	}
	b.check(t)
}

// TestOurClockStaysBehind: TSval of what the card answers itself never passes the server's own, or the client would
// discard what the server sends next (RFC 7323, 5).
func TestOurClockStaysBehind(t *testing.T) {
	promise := regs.ServiceEntry{PromiseTimestamps: 1}
	copts := []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(100, 0)}
	sopts := []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(70000, 100)}
	b, c, _ := holding(t, promise, copts, sopts, 1448)
	tick := uint32(70000) // a server whose clock ticks a hundred times a second
	latest := uint32(0)
	note := func(what string, servers bool, ss []tcp) {
		t.Helper()
		for _, s := range ss {
			o := s.option(layers.TCPOptionKindTimestamps)
			if len(o) != 8 {
				t.Fatalf("%s without timestamps: %v", what, s)
			}
			v := uint32(o[0])<<24 | uint32(o[1])<<16 | uint32(o[2])<<8 | uint32(o[3])
			if servers && int32(v-latest) < 0 {
				t.Errorf("%s: TSval %#x after %#x", what, v, latest)
			}
			if latest == 0 || int32(v-latest) > 0 {
				latest = v
			}
		}
	}
	below := func() []byte {
		x := *c
		x.cseq -= 10
		return x.client(flagACK, "yyyyyyyyyy", optNop, optNop, optTS(200, 1))
	}
	for i := range 3 {
		b.wait(700 * time.Millisecond)
		tick += 70
		note("answer", false, b.push(0, below())[0])
		flags := uint8(flagACK)
		if i == 1 {
			flags |= flagFIN // the state changes, H is not reached
		}
		if i < 2 {
			note("server's data", true, b.push(1, c.server(flags, "data", optNop, optNop, optTS(tick, 200)))[0])
		}
	}
	note("answer", false, b.push(0, below())[0])
	c.sack = c.boundary()
	note("server's ACK", true, b.push(1, c.server(flagACK, "", optNop, optNop, optTS(tick+1, 200)))[0])
}

// TestHeldEverySplit holds heads of every size around the segment size, with and without timestamps, and checks the
// bytes the server gets.
func TestHeldEverySplit(t *testing.T) {
	for _, ts := range []bool{false, true} {
		promise, copts, sopts := regs.ServiceEntry{PromiseMssIpv4: 536}, []layers.TCPOption{optMSS(536)}, []layers.TCPOption{optMSS(536)}
		if ts {
			promise.PromiseTimestamps = 1
			copts, sopts = append(copts, optNop, optNop, optTS(1, 0)), append(sopts, optNop, optNop, optTS(9, 1))
		}
		for _, n := range []int{len(request), 523, 524, 525, 535, 536, 537, 1072, 1073, 5240} {
			b := newBench(t, smallGeometry())
			b.serve(world4, 0, promise)
			b.now = time.Second
			c := &conn{b: b, w: world4, port: 40001, cseq: 0xffffff00, sseq: 9, opts: copts, sopts: sopts}
			c.reach(t, WaitHead)
			head := request
			if n > len(head)+5 {
				head = request[:len(request)-2] + "X: " + strings.Repeat("x", n-len(request)-5) + "\r\n\r\n"
			}
			b.push(0, c.client(flagACK, head))
			c.sack, c.serverWindow = c.cseq-uint32(len(head)), 65535
			got := stream(t, c.sack, b.push(1, c.server(flagSYN|flagACK, "", sopts...))[1])
			if !bytes.Equal(got, []byte(head)) {
				t.Errorf("timestamps %v, head of %d bytes: the server got %d", ts, len(head), len(got))
			}
			b.check(t)
		}
	}
}

// TestHeldClock: held bytes that are sent again have a TSval no older than what the client's segments brought the server
// meanwhile (RFC 7323, 5.3 would have them dropped).
func TestHeldClock(t *testing.T) {
	opts := func(val, ecr uint32) []layers.TCPOption {
		return []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(val, ecr)}
	}
	b, c, sent := holding(t, regs.ServiceEntry{PromiseTimestamps: 1}, opts(100, 0), opts(5000, 100), 30000)
	if len(sent) == 0 {
		t.Fatal("nothing was sent to the server")
	}
	passed := one(t, b.push(0, c.client(flagACK, "more", optTS(900, 0)))[1])
	if want := u32(900); string(passed.option(layers.TCPOptionKindTimestamps)[:4]) != string(want) {
		t.Fatalf("the client's segment went on as %v", passed)
	}
	again := b.wait(3 * time.Second)[1]
	if len(again) == 0 {
		t.Fatal("held bytes are not sent again")
	}
	for _, s := range again {
		if got := s.option(layers.TCPOptionKindTimestamps); string(got[:4]) != string(u32(900)) {
			t.Errorf("sent again with TSval %x, the server has seen 900: %v", got[:4], s)
		}
	}
}
