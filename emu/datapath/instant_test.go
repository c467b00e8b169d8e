package datapath

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
)

// watcher is both ends' view of one connection: what each was sent, checked against what the other end's stream is.
type watcher struct {
	t        *testing.T
	c        *conn
	first    uint32 // of the client's stream, and of the server's numbers for it
	sfirst   uint32 // of the server's stream, in its own numbers
	cfirst   uint32 // the same in the client's
	body     string // the client's stream
	got      []bool // bytes of it that the server was sent
	acked    uint32 // highest acknowledgement the client was sent
	fin      bool   // the server was sent the client's FIN
	toClient int    // segments since the last look
}

// see checks what the card sent: numbers are the receiver's, bytes are the sender's.
func (v *watcher) see(step string, out [2][]tcp) {
	v.t.Helper()
	for _, s := range out[1] {
		at := s.seq - v.first
		if s.flags&flagSYN != 0 {
			continue
		}
		if s.flags&flagRST != 0 || s.from != v.c.w.client || s.to != v.c.w.server || s.ack-v.sfirst > 1<<16 || at+uint32(len(s.payload)) > uint32(len(v.body)) {
			v.t.Fatalf("%s: the server is sent %v", step, s)
		}
		if string(s.payload) != v.body[at:][:len(s.payload)] {
			v.t.Fatalf("%s: the server is sent %q at %d, want %q", step, s.payload, at, v.body[at:][:len(s.payload)])
		}
		for i := range s.payload {
			v.got[int(at)+i] = true
		}
		if s.flags&flagFIN != 0 {
			if at+uint32(len(s.payload)) != uint32(len(v.body)) {
				v.t.Fatalf("%s: FIN at %d: %v", step, at, s)
			}
			v.fin = true
		}
	}
	for _, s := range out[0] {
		v.toClient++
		if s.flags&(flagRST|flagSYN) != 0 || s.from != v.c.w.vip || s.to != v.c.w.client || s.seq-v.cfirst > 1<<16 || s.ack-v.first > uint32(len(v.body))+1 {
			v.t.Fatalf("%s: the client is sent %v", step, s)
		}
		if int32(s.ack-v.acked) > 0 {
			v.acked = s.ack
		}
	}
}

// around is what a client may send at any time around the splice: stale, overlapping, new, closing. Numbers count from
// the first byte of the stream, whose head ends at n and which ends at all.
var around = []struct {
	name     string
	from, to func(n, all int) int
	flags    uint8
	window   uint16
}{
	{"repeats the head", at0, atHead(0), flagPSH, 64000},
	{"repeats its end and brings more", atHead(-10), atHead(20), flagPSH, 64000},
	{"the next in order", atHead(0), atHead(100), flagPSH, 64000},
	{"beyond a gap", atHead(150), atHead(160), flagPSH, 64000},
	{"closes its window", atHead(0), atHead(0), 0, 0},
	{"bare ACK", atHead(0), atHead(0), 0, 64000},
	{"keep-alive probe", atHead(-1), atHead(-1), 0, 64000},
	{"the rest with FIN", atHead(0), atEnd, flagFIN | flagPSH, 64000},
	{"FIN alone, early", atEnd, atEnd, flagFIN, 64000},
}

func at0(int, int) int                  { return 0 }
func atEnd(_, all int) int              { return all }
func atHead(d int) func(n, all int) int { return func(n, all int) int { return min(n+d, all) } }

// frame builds one of around.
func (v *watcher) frame(i int) []byte {
	x, n, all := &around[i], len(request), len(v.body)
	from, to := x.from(n, all), x.to(n, all)
	return buildFrame(v.t, &tcp{from: v.c.w.client, to: v.c.w.vip, sport: v.c.port, dport: 80, seq: v.first + uint32(from), ack: v.c.cack, flags: flagACK | x.flags, window: x.window,
		payload: []byte(v.body[from:to]), srcMAC: clientMAC, dstMAC: portMAC[0]})
}

// TestInstantOfSplice injects every kind of client segment between every two steps of a splice, and behind it: nothing
// passes with numbers that are not the receiver's, no byte is acknowledged that the server does not get.
func TestInstantOfSplice(t *testing.T) {
	steps := []string{"head complete", "SYN repeated", "SYN-ACK", "data before H", "H acknowledged"}
	for _, byHost := range []bool{false, true} {
		for _, body := range []string{"", strings.Repeat("body", 64)} {
			for gap := range steps {
				for first := range around {
					for _, second := range []int{2, 7} {
						name := fmt.Sprintf("by host %v, body of %d, after %s: %s, %s", byHost, len(body), steps[gap], around[first].name, around[second].name)
						instant(t, name, byHost, request+body, gap, first, second)
					}
				}
			}
		}
	}
}

func instant(t *testing.T, name string, byHost bool, body string, gap int, frames ...int) {
	t.Helper()
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	v := &watcher{t: t, c: c, first: c.cseq, sfirst: c.sseq + 1, cfirst: c.cack, body: body}
	v.got, v.acked = make([]bool, len(v.body)), v.first
	inject := func(step int) {
		if step != gap {
			return
		}
		for _, i := range frames {
			v.see(name, b.push(0, v.frame(i)))
		}
		b.check(t)
	}
	v.see(name, b.push(0, c.client(flagACK|flagPSH, request)))
	inject(0)
	v.see(name, b.wait(1110*time.Millisecond))
	inject(1)
	before := v.toClient
	c.sack, c.serverWindow = v.first, 60000
	if byHost { // the host saw the SYN-ACK and arms the page itself
		n := b.pageOf(t)
		w := b.c.page(n)
		w[regs.PageAServerIsn] = c.sseq
		w[regs.PageALocal] = regs.SetPageALocalMss(w[regs.PageALocal], 1460)
		w[regs.PageAWindow] = regs.SetPageAWindowServer(w[regs.PageAWindow], 60000)
		c.sseq++
		b.out.Reset()
		if done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeArmAndSend, HandleN: n, HandleGeneration: handleOf(n, w) >> 20}); done.ControlStatus != statusOK {
			t.Fatalf("%s: arm_and_send: status %d", name, done.ControlStatus)
		}
		v.see(name, b.drain())
	} else {
		v.see(name, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...)))
	}
	if got := v.toClient - before; got != 1 {
		t.Errorf("%s: the splice sends the client %d segments, want its window", name, got)
	}
	inject(2)
	v.see(name, b.push(1, c.server(flagACK|flagPSH, "early answer")))
	inject(3)
	reached := v.reached()
	c.sack = reached
	v.see(name, b.push(1, c.server(flagACK, "")))
	inject(4)
	b.check(t)
	// Whatever the client was acknowledged is with the server.
	for i := range v.body {
		if uint32(i) < v.acked-v.first && !v.got[i] {
			t.Fatalf("%s: byte %d is acknowledged and the server was not sent it", name, i)
		}
	}
	if v.acked-v.first > uint32(len(v.body)) && !v.fin {
		t.Fatalf("%s: the FIN is acknowledged and the server was not sent it", name)
	}
}

// reached is how far the server could acknowledge.
func (v *watcher) reached() uint32 {
	n := uint32(0)
	for n < uint32(len(v.body)) && v.got[n] {
		n++
	}
	if n == uint32(len(v.body)) && v.fin {
		n++
	}
	return v.first + n
}
