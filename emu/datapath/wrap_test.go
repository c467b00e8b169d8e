package datapath

import (
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// ownISN moves the clock to where the card's own initial sequence number for a connection is want.
func (b *bench) ownISN(c *conn, index int, want uint32) {
	var w page
	a := words(c.w.client)
	copy(w[regs.PageClientAddress:], a[:])
	w[regs.PageControl] = regs.SetPageControlKind(0, c.w.kind)
	w[regs.PagePorts] = uint32(c.port) | 80<<16
	w[regs.PageIndex] = uint32(index)
	b.c.Advance(b.now)
	isn, _ := b.c.isn(&w)
	b.now += time.Duration(want-isn) * 4 * time.Microsecond
}

// TestWrap takes connections through their whole lives with every sequence space crossing 2^31 and 2^32 at every place:
// in the handshake, the request, the held bytes, the response, SACK blocks, the FINs.
func TestWrap(t *testing.T) {
	borders := []uint32{1 << 31, 0}
	for i, w := range []world{world4, world6} {
		b := newBench(t, smallGeometry())
		promise := regs.ServiceEntry{PromiseMssIpv4: 1000, PromiseMssIpv6: 1000, PromiseSack: 1, PromiseTimestamps: 1}
		b.serve(w, i, promise)
		b.now = time.Second
		opts := []layers.TCPOption{optMSS(1000), optSACK, optTS(0xfffffff0, 0)}
		for _, border := range borders {
			for back := range uint32(130) { // bytes of a life before the border
				for which := range 4 {
					b.ports++
					c := &conn{b: b, w: w, port: 40000 + b.ports, cseq: 12345, sseq: 54321, opts: opts, sopts: opts}
					own := uint32(777)
					if which == 0 || which == 3 {
						c.cseq = border - back
					}
					if which == 1 || which == 3 {
						c.sseq = border - back
					}
					if which == 2 || which == 3 {
						own = border - back
					}
					b.ownISN(c, i, own)
					c.wholeLife(t, own)
					if t.Failed() {
						t.Fatalf("%v, border %#x less %d, space %d", w.client, border, back, which)
					}
				}
			}
		}
		b.check(t)
	}
}

// wholeLife takes a connection from SYN to quarantine and checks every number on the way.
func (c *conn) wholeLife(t *testing.T, own uint32) {
	t.Helper()
	b := c.b
	cisn, sisn := c.cseq, c.sseq
	sa := one(t, b.push(0, c.client(flagSYN, "", c.opts...))[0])
	if sa.seq != own || sa.ack != cisn+1 {
		t.Fatalf("SYN-ACK: %v, want seq %#x", sa, own)
	}
	c.cack = own + 1
	b.push(0, c.client(flagACK, ""))
	out := b.push(0, c.client(flagACK|flagPSH, request))
	if s := one(t, out[1]); s.seq != cisn {
		t.Fatalf("our SYN: %v", s)
	}
	c.sack = cisn + 1
	if s := one(t, b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))[1]); s.seq != cisn+1 || s.ack != sisn+1 || string(s.payload) != request {
		t.Fatalf("held bytes: %v", s)
	}
	// Half of the held bytes are acknowledged, then the rest with data.
	c.sack += 20
	if out := b.push(1, c.server(flagACK, "")); len(out[0])+len(out[1]) != 0 {
		t.Fatalf("acknowledgement below H draws %v", out)
	}
	// Below H the client is answered by us; from H on it is the server's to answer.
	again := *c
	again.cseq -= 9
	if s := one(t, b.push(0, again.client(flagACK, request[len(request)-9:]))[0]); s.seq != own+1 || s.ack != c.cseq {
		t.Fatalf("bytes below H draw %v", s)
	}
	again = *c
	again.cseq -= 9
	if out := b.push(0, again.client(flagACK, request[len(request)-9:]+"more")); len(out[0])+len(out[1]) != 0 {
		t.Fatalf("bytes across H draw %v", out)
	}
	held := c.cseq
	if s := one(t, b.push(0, c.client(flagACK, "more"))[1]); s.seq != held {
		t.Fatalf("bytes above H: %v", s)
	}
	if s := one(t, b.push(1, c.server(flagACK, "early"))[0]); s.seq != c.cack || s.ack != held {
		t.Fatalf("data before H is reached: %v, want ack %#x", s, held)
	}
	c.cack += 5
	c.sack = c.cseq
	c.response(t, "HTTP/1.1 200 OK\r\n")
	for range 2 {
		c.upload(t, "more of the request")
		c.response(t, "response body")
	}
	c.lostSegment(t)
	seq, ack := c.cack, c.cseq
	if s := one(t, b.push(1, c.server(flagACK|flagFIN, "the end"))[0]); s.seq != seq || s.ack != ack || s.flags&flagFIN == 0 {
		t.Fatalf("server's FIN: %v", s)
	}
	c.cack += 7 // all but the FIN
	seq = c.cseq
	if s := one(t, b.push(0, c.client(flagACK|flagFIN, "bye"))[1]); s.seq != seq || s.ack != c.sseq-1 {
		t.Fatalf("client's FIN: %v", s)
	}
	server := func(n uint32) {
		c.sack += n
		if s := one(t, b.push(1, c.server(flagACK, ""))[0]); s.ack != c.sack {
			t.Fatalf("server's last ACK: %v, want ack %#x", s, c.sack)
		}
	}
	client := func(n uint32) {
		c.cack += n
		if s := one(t, b.push(0, c.client(flagACK, ""))[1]); s.ack != c.sseq {
			t.Fatalf("client's last ACK: %v", s)
		}
	}
	last := []func(){func() { server(3) }, func() { server(1) }, func() { client(1) }} // what it said, then the FINs
	if c.port%2 == 0 {
		last[0], last[1], last[2] = last[2], last[0], last[1]
	}
	for _, ack := range last {
		if got := b.state(c); got != Closing {
			t.Fatalf("state before both FINs are acknowledged: %d", got)
		}
		ack()
	}
	if got := b.state(c); got != Quarantine {
		t.Fatalf("state after both FINs: %d", got)
	}
}

func (c *conn) response(t *testing.T, payload string) {
	t.Helper()
	s := one(t, c.b.push(1, c.server(flagACK|flagPSH, payload))[0])
	if s.seq != c.cack || s.ack != c.cseq || string(s.payload) != payload {
		t.Fatalf("response: %v, want seq %#x ack %#x", s, c.cack, c.cseq)
	}
	c.cack += uint32(len(payload))
}

func (c *conn) upload(t *testing.T, payload string) {
	t.Helper()
	seq := c.cseq
	s := one(t, c.b.push(0, c.client(flagACK|flagPSH, payload))[1])
	if s.seq != seq || s.ack != c.sseq || string(s.payload) != payload {
		t.Fatalf("upload: %v, want seq %#x ack %#x", s, seq, c.sseq)
	}
	c.sack += uint32(len(payload))
}

// lostSegment loses the server's second of three segments and checks the client's SACK, then its D-SACK.
func (c *conn) lostSegment(t *testing.T) {
	t.Helper()
	b := c.b
	first := c.cack // of segment 1, in the client's numbers
	server := c.sseq
	one(t, b.push(1, c.server(flagACK, "first"))[0])
	c.sseq += 6 // "second" is lost
	one(t, b.push(1, c.server(flagACK, "third"))[0])
	block := func(from, n uint32) layers.TCPOption {
		return layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: 10, OptionData: append(u32(from), u32(from+n)...)}
	}
	c.cack = first + 5
	s := one(t, b.push(0, c.client(flagACK, "", optNop, optNop, block(first+11, 5)))[1])
	if got, want := string(s.option(layers.TCPOptionKindSACK)), string(append(u32(server+11), u32(server+16)...)); s.ack != server+5 || got != want {
		t.Fatalf("SACK: ack %#x blocks %x, want ack %#x blocks %x", s.ack, got, server+5, want)
	}
	c.sseq = server + 5
	s = one(t, b.push(1, c.server(flagACK, "second"))[0])
	if s.seq != first+5 {
		t.Fatalf("segment sent again: %v, want seq %#x", s, first+5)
	}
	c.sseq, c.cack = server+16, first+16
	s = one(t, b.push(0, c.client(flagACK, "", optNop, optNop, block(first, 5)))[1]) // a duplicate below the ack
	if got, want := string(s.option(layers.TCPOptionKindSACK)), string(append(u32(server), u32(server+5)...)); s.ack != server+16 || got != want {
		t.Fatalf("D-SACK: ack %#x blocks %x, want ack %#x blocks %x", s.ack, got, server+16, want)
	}
}
