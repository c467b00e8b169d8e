package datapath

import (
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// unavailable is an answer of the card's own.
const unavailable = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// reply has the card answer a connection.
func (b *bench) reply(t *testing.T, c *conn, text string) (status uint32, out [2][]tcp) {
	t.Helper()
	n := b.pageFor(t, c)
	at := len(b.ram) - 16384
	copy(b.ram[at:], text)
	b.out.Reset()
	done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeReply, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20, IovaLo: uint32(at), Length: uint32(len(text))})
	return done.ControlStatus, b.drain()
}

// answer has the card refuse what is no request.
func (b *bench) answer(t *testing.T, c *conn) [2][]tcp {
	t.Helper()
	b.push(0, c.client(flagACK|flagPSH, "\x16\x03\x01"))
	b.exceptions()
	status, out := b.reply(t, c, unavailable)
	if status != statusOK {
		t.Fatalf("reply: status %d", status)
	}
	return out
}

// TestReply: the answer reaches the client whole, in its MSS and window, with a FIN behind it, and both ends close.
func TestReply(t *testing.T) {
	long := unavailable + strings.Repeat("x", 8192-len(unavailable))
	for _, tt := range []struct {
		name   string
		text   string
		window uint16
		opts   []layers.TCPOption
	}{
		{"one segment", unavailable, 64000, plainOptions},
		{"many segments", long, 64000, plainOptions},
		{"small window", long, 3000, plainOptions},
		{"small MSS", long, 64000, []layers.TCPOption{optMSS(536)}},
		{"one byte", "x", 64000, plainOptions},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := waiting(t, regs.ServiceEntry{}, tt.opts)
			c.window = tt.window
			out := b.answer2(t, c, tt.text)
			var got []byte
			mss := 1460
			if len(tt.opts) == 1 && tt.opts[0].OptionData[0] == 2 {
				mss = 536
			}
			fin := false
			for round := 0; !fin && round < 30; round++ {
				for _, s := range out[0] {
					if s.seq != c.cack || s.ack != c.cseq || s.from != c.w.vip || len(s.payload) > mss || fin {
						t.Fatalf("round %d: %v, want seq %#x ack %#x", round, s, c.cack, c.cseq)
					}
					got = append(got, s.payload...)
					c.cack = s.end()
					fin = s.flags&flagFIN != 0
				}
				if n := len(out[0]); n > maxHeldSegments {
					t.Errorf("round %d: %d segments at once", round, n)
				}
				b.check(t)
				out = b.push(0, c.client(flagACK, ""))
			}
			if string(got) != tt.text || !fin || len(out[0]) != 0 {
				t.Fatalf("the client gets %d bytes, FIN %v, then %v; want %d", len(got), fin, out[0], len(tt.text))
			}
			if got := b.r.Get(regs.HeadFree); got != b.m.Geometry.Heads {
				t.Errorf("free heads: got %d, want all", got)
			}
			ack := one(t, b.push(0, c.client(flagACK|flagFIN, ""))[0])
			if ack.flags != flagACK || ack.ack != c.cseq || ack.seq != c.cack {
				t.Errorf("FIN draws %v", ack)
			}
			if b.state(c) != Quarantine || b.r.Get64(regs.ConnectionReplied) != 1 || b.r.Get64(regs.ConnectionClosedFin) != 1 {
				t.Errorf("state %d, replied %d, closed_fin %d", b.state(c), b.r.Get64(regs.ConnectionReplied), b.r.Get64(regs.ConnectionClosedFin))
			}
			b.check(t)
			c.cseq--
			one(t, b.push(0, c.client(flagACK|flagFIN, ""))[0]) // our ACK was lost
			b.check(t)
			again := &conn{b: b, w: world4, port: c.port, cseq: c.cseq + 1000, sseq: 7, opts: plainOptions, sopts: plainOptions}
			again.splice(t)
			b.translateBothWays(t, again)
		})
	}
}

// answer2 is answer with a text.
func (b *bench) answer2(t *testing.T, c *conn, text string) [2][]tcp {
	t.Helper()
	b.push(0, c.client(flagACK|flagPSH, "\x16\x03\x01"))
	status, out := b.reply(t, c, text)
	if status != statusOK {
		t.Fatalf("reply: status %d", status)
	}
	return out
}

// TestReplyResent: each segment that is lost is sent again, after one, two and four seconds; then the closing time-out
// ends the connection with RST.
func TestReplyResent(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	first := one(t, b.answer(t, c)[0])
	for i := range 4 {
		s, after := b.next(t, 0)
		if want := time.Second << i; after < want || after > want+101*time.Millisecond {
			t.Errorf("sent again after %v, want %v and a sweep", after, want)
		}
		if s.seq != first.seq || s.flags != first.flags || string(s.payload) != unavailable {
			t.Errorf("sent again as %v, first as %v", s, first)
		}
	}
	if got := b.r.Get64(regs.TransmitResentReply + clientEnd); got != 4 {
		t.Errorf("resent_reply: got %d, want 4", got)
	}
	b.check(t)
	out := b.wait(60 * time.Second)
	rst := out[0][len(out[0])-1]
	if rst.flags&flagRST == 0 || rst.seq != first.end() || rst.ack != c.cseq || b.r.Get64(regs.ConnectionExpiredClosing) != 1 {
		t.Errorf("at the end %v, expired_closing %d", rst, b.r.Get64(regs.ConnectionExpiredClosing))
	}
	b.allFree(t)
}

// TestReplyToUpload: what the client goes on to send is not acknowledged, what it acknowledges counts, and its FIN behind
// the answer ends the connection.
func TestReplyToUpload(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	s := one(t, b.answer(t, c)[0])
	if s.window == 0 {
		t.Error("a window of zero holds the client's FIN back")
	}
	c.cack = s.end()
	at := c.cseq
	if out := b.push(0, c.client(flagACK, "more and more")); len(out[0])+len(out[1]) != 0 {
		t.Errorf("payload draws %v", out)
	}
	if got := b.r.Get(regs.HeadFree); got != b.m.Geometry.Heads {
		t.Errorf("free heads: got %d, want all: the answer is acknowledged", got)
	}
	if out := b.push(0, c.client(flagACK|flagFIN, "")); len(out[0])+len(out[1]) != 0 {
		t.Errorf("a FIN behind payload draws %v", out)
	}
	if b.state(c) != Closing {
		t.Errorf("state %d, want closing", b.state(c))
	}
	c.cseq = at
	one(t, b.push(0, c.client(flagACK|flagFIN, ""))[0])
	if b.state(c) != Quarantine {
		t.Errorf("state %d, want quarantine", b.state(c))
	}
	b.check(t)
}

// TestReplyBehindFIN: a request that came with a FIN is answered all the same.
func TestReplyBehindFIN(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	b.m.Server[regs.ServerControl] |= regs.ServerControlClosedMask
	b.push(0, c.client(flagACK|flagPSH|flagFIN, request))
	if es := b.exceptions(); len(es) != 1 || es[0].ReasonReason != reasonNoServer {
		t.Fatalf("exceptions %v", es)
	}
	_, out := b.reply(t, c, unavailable)
	s := one(t, out[0])
	if s.ack != c.cseq {
		t.Errorf("answer acknowledges %#x, want %#x", s.ack, c.cseq)
	}
	c.cack = s.end()
	b.push(0, c.client(flagACK, ""))
	if b.state(c) != Quarantine {
		t.Errorf("state %d, want quarantine", b.state(c))
	}
	b.wait(1100 * time.Millisecond)
	b.allFree(t)
}

// TestReplyRefused: commands that make no sense change nothing.
func TestReplyRefused(t *testing.T) {
	b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
	if status, _ := b.reply(t, c, unavailable); status != statusState {
		t.Errorf("in SERVER_SYN: status %d, want state", status)
	}
	x := b.waiting(t, plainOptions)
	for name, text := range map[string]string{"empty": "", "too long": strings.Repeat("x", regs.HeadBytes+1)} {
		if status, out := b.reply(t, x, text); status != statusArgument || len(out[0]) != 0 {
			t.Errorf("%s: status %d, %v", name, status, out)
		}
	}
	n := b.pageFor(t, x)
	done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeReply, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20, IovaLo: uint32(len(b.ram)), Length: 9})
	if done.ControlStatus != statusDMA {
		t.Errorf("bytes outside the host's memory: status %d", done.ControlStatus)
	}
	free := b.r.Get(regs.HeadFree)
	b.r.Set(regs.HeadFree, 0)
	if status, _ := b.reply(t, x, unavailable); status != statusNoPlace {
		t.Errorf("no head buffer: status %d", status)
	}
	b.r.Set(regs.HeadFree, free)
	b.check(t)
	if status, out := b.reply(t, x, unavailable); status != statusOK || len(out[0]) != 1 {
		t.Errorf("then: status %d, %v", status, out)
	}
	b.check(t)
}
