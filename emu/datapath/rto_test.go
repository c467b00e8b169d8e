package datapath

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// TestTimeoutFollowsRoundTrip: held bytes are sent again after the time-out that the server's handshake measured
// (RFC 6298, 2.2), not where its SYN was repeated (Karn), and then after twice the time, up to a bound.
func TestTimeoutFollowsRoundTrip(t *testing.T) {
	for _, tt := range []struct {
		name  string
		trip  time.Duration
		first time.Duration
	}{
		{"at once", 0, 200 * time.Millisecond},
		{"short", 50 * time.Millisecond, 200 * time.Millisecond},
		{"medium", 100 * time.Millisecond, 300 * time.Millisecond},
		{"long", 900 * time.Millisecond, 2700 * time.Millisecond},
		{"the SYN was repeated", 1500 * time.Millisecond, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
			b.r.Set(regs.TimerRetransmitMax, 5000)
			b.wait(tt.trip)
			first := one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])
			for i := range 4 {
				s, after := b.next(t, 1)
				if want := min(tt.first<<i, 5*time.Second); after < want || after > want+101*time.Millisecond {
					t.Errorf("sent again after %v, want %v and a sweep", after, want)
				}
				if s.seq != first.seq || string(s.payload) != request {
					t.Errorf("sent again as %v, first as %v", s, first)
				}
			}
			b.check(t)
		})
	}
}

// TestHandshakesBackOff: SYN-ACK and SYN are sent again after one second, two, four.
func TestHandshakesBackOff(t *testing.T) {
	for _, tt := range []struct {
		state State
		port  int
		times int
	}{{SynRcvd, 0, 3}, {ServerSyn, 1, 2}} {
		b := newBench(t, smallGeometry())
		b.serve(world4, 0, regs.ServiceEntry{})
		b.attach()
		b.now = time.Second
		c := &conn{b: b, w: world4, port: 40001, cseq: 9, sseq: 7, opts: plainOptions, sopts: plainOptions}
		c.reach(t, tt.state)
		for i := range tt.times {
			s, after := b.next(t, tt.port)
			if want := time.Second << i; s.flags&flagSYN == 0 || after < want || after > want+101*time.Millisecond {
				t.Errorf("state %d: %v after %v, want it after %v and a sweep", tt.state, s, after, want)
			}
		}
	}
}

// TestProgressEndsBackOff: what the server newly acknowledges starts the time-out over, at the initial one at most, and
// the count of retransmissions too.
func TestProgressEndsBackOff(t *testing.T) {
	b, c, sent := holding(t, regs.ServiceEntry{}, plainOptions, plainOptions, 65535)
	first := c.sack
	stream(t, first, sent)
	b.wait(7 * time.Second) // 200, 600, 1,400, 3,000, 6,200 ms
	w := b.c.page(b.pageOf(t))
	if got := regs.PageOptionsRetries(w[regs.PageOptions]); got != 5 {
		t.Fatalf("sent again %d times in 7 s, want 5", got)
	}
	c.sack = first + 1460
	b.push(1, c.server(flagACK, ""))
	if got := regs.PageOptionsRetries(w[regs.PageOptions]); got != 0 {
		t.Errorf("retries after progress: got %d, want 0", got)
	}
	before := b.now
	for len(b.wait(time.Millisecond)[1]) == 0 {
	}
	if after := b.now - before; after < time.Second || after > 1101*time.Millisecond {
		t.Errorf("sent again %v after progress, want 1 s and a sweep", after)
	}
	b.check(t)
}

// TestSynWindow: our SYN carries the client's window in bytes, since nobody scales the field of a SYN (RFC 7323, 2.2).
func TestSynWindow(t *testing.T) {
	scaled := func(shift uint8) []layers.TCPOption {
		return []layers.TCPOption{optMSS(1460), optNop, optWscale(shift)}
	}
	for _, tt := range []struct {
		name    string
		opts    []layers.TCPOption
		promise uint32 // window scale is
		window  uint16
		want    uint16
	}{
		{"not offered", plainOptions, 1, 502, 502},
		{"offered, not promised", scaled(7), 0, 502, 502},
		{"scaled", scaled(7), 1, 502, 502 << 7},
		{"clamped", scaled(7), 1, 513, 65535},
		{"far beyond", scaled(14), 1, 65535, 65535},
		{"shift zero", scaled(0), 1, 502, 502},
		{"closed", scaled(7), 1, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := waiting(t, regs.ServiceEntry{PromiseWscaleOn: tt.promise, PromiseWscale: 3}, tt.opts)
			raw := buildFrame(t, &tcp{from: c.w.client, to: c.w.vip, sport: c.port, dport: 80, seq: c.cseq, ack: c.cack, flags: flagACK | flagPSH, window: tt.window,
				payload: []byte(request), srcMAC: clientMAC, dstMAC: portMAC[0]})
			if syn := one(t, b.push(0, raw)[1]); syn.window != tt.want {
				t.Errorf("our SYN has window %d, want %d", syn.window, tt.want)
			}
		})
	}
}

// TestWindowsUpToTheSplice: before the splice the client is told what the head buffer can still take, at the splice once
// what the server's window leaves beside the held bytes, and nothing between.
func TestWindowsUpToTheSplice(t *testing.T) {
	for _, tt := range []struct {
		promised, server uint8 // shifts
		window           uint16
		want             uint16 // at the splice
	}{
		{0, 0, 8000, 8000 - 1000},
		{0, 0, 1000, 0},           // all of it is held bytes
		{0, 0, 1001, 1},           // never rounded to zero
		{3, 7, 65535, 8192 - 128}, // 512 units of 128, less eight that hold the request, as units of eight
		{3, 7, 1129, 16},          // one unit of 128 is left
		{7, 3, 65535, 505},
		{7, 3, 1001, 1}, // one unit of eight, rounded up
	} {
		t.Run(fmt.Sprintf("shifts %d and %d, window %d", tt.promised, tt.server, tt.window), func(t *testing.T) {
			promise, opts, sopts := regs.ServiceEntry{}, plainOptions, plainOptions
			if tt.promised != 0 {
				promise = regs.ServiceEntry{PromiseWscaleOn: 1, PromiseWscale: uint32(tt.promised)}
				opts, sopts = []layers.TCPOption{optMSS(1460), optNop, optWscale(7)}, []layers.TCPOption{optMSS(1460), optNop, optWscale(tt.server)}
			}
			b, c := waiting(t, promise, opts)
			first := c.cseq
			head := request[:len(request)-2] + "X: " + strings.Repeat("x", 1000-len(request)-5) + "\r\n\r\n"
			room := func(held int) uint16 { return uint16((8192 - held + 1<<tt.promised - 1) >> tt.promised) }
			if ack := one(t, b.push(0, c.client(flagACK|flagPSH, head[:400]))[0]); ack.window != room(400) {
				t.Errorf("with 400 bytes held: window %d, want %d", ack.window, room(400))
			}
			if ack := one(t, b.push(0, c.client(flagACK|flagPSH, head[400:]))[0]); ack.window != room(1000) {
				t.Errorf("with 1,000 bytes held: window %d, want %d", ack.window, room(1000))
			}
			if out := b.wait(900 * time.Millisecond); len(out[0])+len(out[1]) != 0 {
				t.Errorf("while the server is awaited: %v", out)
			}
			c.sack, c.serverWindow = first, tt.window
			ack := one(t, b.push(1, c.server(flagSYN|flagACK, "", sopts...))[0])
			if ack.window != tt.want || ack.ack != c.cseq || ack.seq != c.cack || ack.flags != flagACK {
				t.Errorf("at the splice: %v, want window %d", ack, tt.want)
			}
			if got := b.r.Get64(regs.TransmitWindow + clientEnd); got != 1 {
				t.Errorf("transmit.window: got %d, want 1", got)
			}
			b.check(t)
		})
	}
}

// TestWindowNeverZeroByRescaling walks every window field and shift.
func TestWindowNeverZeroByRescaling(t *testing.T) {
	for shift := int32(-maxWscale); shift <= maxWscale; shift++ {
		if got := shiftWindow(0, shift); got != 0 {
			t.Fatalf("shift %d: 0 becomes %d", shift, got)
		}
		for v := uint32(1); v <= 0xffff; v++ {
			if got := shiftWindow(v, shift); got == 0 || got > 0xffff {
				t.Fatalf("shift %d: %d becomes %d", shift, v, got)
			}
		}
	}
}
