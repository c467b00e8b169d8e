package datapath

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// waiting makes a bench with one connection that waits for its request.
func waiting(t *testing.T, promise regs.ServiceEntry, opts []layers.TCPOption) (*bench, *conn) {
	t.Helper()
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, promise)
	b.attach()
	b.now = time.Second
	return b, b.waiting(t, opts)
}

// waiting adds one more connection that waits for its request.
func (b *bench) waiting(t *testing.T, opts []layers.TCPOption) *conn {
	t.Helper()
	b.ports++
	c := &conn{b: b, w: world4, port: 40000 + b.ports, cseq: 0xffffffe0, sseq: 0x7ffffff0, opts: opts, sopts: opts}
	c.reach(t, WaitHead)
	return c
}

// kill frees the page of a connection for the host.
func (b *bench) kill(t *testing.T, c *conn) {
	t.Helper()
	for n := range b.m.Geometry.Pages {
		w := b.c.page(n)
		if w[regs.PageControl]&regs.PageControlValidMask != 0 && regs.PagePortsClient(w[regs.PagePorts]) == uint32(c.port) {
			done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeFree, HandleN: n, HandleGeneration: handleOf(n, w) >> 20})
			if done.ControlStatus != statusOK {
				t.Fatalf("free page %d: status %d", n, done.ControlStatus)
			}
			return
		}
	}
	t.Fatalf("no page of port %d", c.port)
}

// at is the raw frame of a client segment at an offset of the request.
func (c *conn) at(offset int, flags uint8, payload string) []byte {
	x := *c
	x.cseq += uint32(offset)
	return x.client(flags, payload)
}

// serverBytes completes the server's handshake and returns what it is sent.
func (c *conn) serverBytes(t *testing.T, first uint32) string {
	t.Helper()
	c.sack, c.serverWindow = first, 65535
	return string(stream(t, first, c.b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))[1]))
}

// TestHeadInEverySplit sends a request in two segments, cut at every byte, in order and swapped, and byte by byte.
func TestHeadInEverySplit(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	for i := range request {
		out := b.push(0, c.at(i, flagACK|flagPSH, request[i:i+1]))
		if ack := one(t, out[0]); ack.ack != c.cseq+uint32(i)+1 || (len(out[1]) == 1) != (i == len(request)-1) {
			t.Fatalf("byte %d: %v", i, out)
		}
	}
	if got := c.serverBytes(t, c.cseq); got != request {
		t.Fatalf("byte by byte: the server gets %q", got)
	}
	for cut := 1; cut < len(request); cut++ {
		for _, swapped := range []bool{false, true} {
			b.kill(t, c)
			c = b.waiting(t, plainOptions)
			first, second := c.at(0, flagACK, request[:cut]), c.at(cut, flagACK, request[cut:])
			if swapped {
				if ack := one(t, b.push(0, second)[0]); ack.ack != c.cseq {
					t.Fatalf("cut %d: a segment beyond a gap draws %v", cut, ack)
				}
			}
			if ack := one(t, b.push(0, first)[0]); ack.ack != c.cseq+uint32(cut) {
				t.Fatalf("cut %d: %v", cut, ack)
			}
			out := b.push(0, second)
			one(t, out[1])
			if got := c.serverBytes(t, c.cseq); got != request {
				t.Fatalf("cut %d, swapped %v: the server gets %q", cut, swapped, got)
			}
		}
	}
}

// TestOverlappingHead sends a request in random overlapping pieces, later copies with other bytes: the server gets the
// first copy of each byte, exactly once.
func TestOverlappingHead(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	for round := range 200 {
		b.kill(t, c)
		c = b.waiting(t, plainOptions)
		have := 0
		for step := 0; have < len(request); step++ {
			from := r.IntN(have + 1)
			to := min(len(request), from+1+r.IntN(20))
			body := []byte(request[from:to])
			for i := range body {
				if from+i < have {
					body[i] = '#' // seen already: must not replace what was acknowledged
				}
			}
			b.rest() // the pieces come slowly enough for each to be answered
			out := b.push(0, c.at(from, flagACK, string(body)))
			have = max(have, to)
			if ack := one(t, out[0]); ack.ack != c.cseq+uint32(have) {
				t.Fatalf("round %d step %d: %v, want ack %#x", round, step, ack, c.cseq+uint32(have))
			}
		}
		if got := c.serverBytes(t, c.cseq); got != request {
			t.Fatalf("round %d: the server gets %q", round, got)
		}
		b.check(t)
	}
}

// TestFINBeforeRequest: a FIN that brings no byte of a request ends the connection, whatever repeats in front of it.
func TestFINBeforeRequest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		offset  int
		payload string
	}{
		{"bare", 0, ""}, {"behind an old byte", -1, "x"}, {"behind many old bytes", -100, strings.Repeat("x", 100)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
			out := b.push(0, c.at(tt.offset, flagACK|flagFIN, tt.payload))
			if s := one(t, out[0]); s.flags&flagRST == 0 || len(out[1]) != 0 {
				t.Errorf("draws %v", out)
			}
			b.check(t)
			b.allFree(t)
			if got := b.r.Get64(regs.ConnectionAbortClientGone); got != 1 {
				t.Errorf("abort_client_gone: got %d, want 1", got)
			}
		})
	}
}

// TestClientWindowBeforeTheSplice: what the card promises is the room of the head buffer, never more than one unit of
// the promised scale above it, and never zero while there is room.
func TestClientWindowBeforeTheSplice(t *testing.T) {
	for _, shift := range []uint32{0, 1, 7, 14} {
		promise, opts := regs.ServiceEntry{}, plainOptions
		if shift != 0 {
			promise = regs.ServiceEntry{PromiseWscaleOn: 1, PromiseWscale: shift}
			opts = []layers.TCPOption{optMSS(1460), optNop, optWscale(2)}
		}
		b, c := waiting(t, promise, opts)
		long := "GET /" + strings.Repeat("a", 8300)
		sent := 0
		for _, n := range []int{1, 100, 1400, 1400, 1400, 1400, 1400, 1000, 90} {
			ack := one(t, b.push(0, c.at(sent, flagACK, long[sent:sent+n]))[0])
			if sent += n; sent == 8192 {
				t.Fatal("this must not fill the buffer")
			}
			room := uint32(8192 - sent)
			if got := uint32(ack.window) << shift; got < room || got >= room+1<<shift {
				t.Errorf("shift %d, %d bytes of room: window %d << %d", shift, room, ack.window, shift)
			}
		}
		b.check(t)
	}
}

// TestHeadTooLarge: bytes beyond the buffer are not acknowledged; a head that fills it goes to the host.
func TestHeadTooLarge(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	long := "GET /" + strings.Repeat("a", 9000)
	for at := 0; at < 8192; at += 1400 {
		out := b.push(0, c.at(at, flagACK, long[at:at+1400]))
		if at+1400 > 8192 {
			if len(out[0]) != 0 {
				t.Errorf("the segment that overflows draws %v", out[0])
			}
			continue
		}
		one(t, out[0])
	}
	all := b.exceptions()
	if len(all) != 1 || all[0].ReasonReason != reasonHeadLarge || all[0].ReasonState != uint32(WaitHead) || all[0].HandleN != b.pageOf(t) {
		t.Fatalf("exceptions: %+v, want one head_too_large with its handle", all)
	}
	before := b.r.Get64(regs.ConnectionDropWaitingHost)
	if out := b.push(0, c.at(8192, flagACK, "more")); len(out[0])+len(out[1]) != 0 {
		t.Errorf("while the host decides: %v", out)
	}
	if got := b.r.Get64(regs.ConnectionDropWaitingHost) - before; got != 1 {
		t.Errorf("drop_waiting_host grew by %d, want 1", got)
	}
	// The host's answer.
	n := all[0].HandleN
	done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeReset, HandleN: n, HandleGeneration: all[0].HandleGeneration, FlagsToClient: 1})
	if rst := one(t, b.drain()[0]); done.ControlStatus != statusOK || rst.flags&flagRST == 0 {
		t.Errorf("reset: status %d, %v", done.ControlStatus, rst)
	}
	b.allFree(t)
}

// TestAppend: what follows the head before the splice is held too, as far as there is room, with its FIN.
func TestAppend(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	first := c.cseq
	one(t, b.push(0, c.client(flagACK, request))[1])
	body := strings.Repeat("body ", 1600)
	want := request
	for at := 0; at < len(body); at += 1000 {
		one(t, b.push(0, c.client(flagACK, body[at:at+1000]))[0])
		want += body[at : at+1000]
	}
	room := 8192 - len(want)
	ack := one(t, b.push(0, c.client(flagACK|flagFIN, strings.Repeat("z", room+10)))[0])
	if got := ack.ack; got != first+8192 {
		t.Errorf("a segment that does not fit whole: ack %#x, want %#x", got, first+8192)
	}
	want += strings.Repeat("z", room)
	if got := c.serverBytes(t, first); got != want {
		t.Errorf("the server gets %d bytes, want %d", len(got), len(want))
	}
	b.check(t)
}

// TestClassRequest: every frame that the parser does not drop is of one class.
func TestClassRequest(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	class := func() [4]uint64 {
		return [4]uint64{b.r.Get64(regs.ParserClassSyn), b.r.Get64(regs.ParserClassRequest), b.r.Get64(regs.ParserClassOrdinary), b.r.Get64(regs.ParserClassException)}
	}
	if got, want := class(), [4]uint64{1, 0, 1, 0}; got != want {
		t.Errorf("after the handshake: classes %v, want %v", got, want)
	}
	b.push(0, c.client(flagACK, request[:10]))
	b.push(0, c.client(flagACK, request[10:]))
	if got, want := class(), [4]uint64{1, 2, 1, 0}; got != want {
		t.Errorf("after the request: classes %v, want %v", got, want)
	}
	b.push(0, c.client(flagACK, ""), c.client(flagACK, "body"))
	if got, want := class(), [4]uint64{1, 2, 3, 0}; got != want {
		t.Errorf("behind the request: classes %v, want %v", got, want)
	}
	x := &conn{b: b, w: world4, port: 40002}
	b.push(0, x.client(flagACK, "stray"))
	if got, want := class(), [4]uint64{1, 2, 3, 1}; got != want {
		t.Errorf("a stray segment: classes %v, want %v", got, want)
	}
	b.m.Listener[0][regs.ListenerControl], b.m.Dirty = 0, ^uint32(0)
	b.push(0, x.client(flagSYN, ""))
	if got, want := class(), [4]uint64{1, 2, 3, 2}; got != want {
		t.Errorf("a SYN that opens nothing: classes %v, want %v", got, want)
	}
}
