package datapath

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
)

// long is what a host makes of a request that is to fill three head buffers, the last of them in part.
var longStream = strings.Repeat("inserted bytes. ", 2*regs.HeadBytes/16) + request

// about gives a command about a connection, with data in the host's memory.
func (b *bench) about(t *testing.T, c *conn, e regs.CommandEntry, data string) (done regs.CompletionEntry, out [2][]tcp) {
	t.Helper()
	n := b.pageFor(t, c)
	at := len(b.ram) - 16384
	copy(b.ram[at:], data)
	e.HandleN, e.HandleGeneration = n, handleOf(n, b.c.page(n))>>20
	if e.IovaHi == 0 {
		e.IovaLo = uint32(at)
	}
	if e.Length == 0 {
		e.Length = uint32(len(data))
	}
	b.out.Reset()
	done = b.command(e)
	out = b.drain()
	b.check(t)
	return done, out
}

// asks leaves a connection's request to the host.
func (b *bench) asks(t *testing.T, c *conn, flags uint8) {
	t.Helper()
	for bank := range 2 {
		b.m.Service[bank][regs.ServiceControl] &^= regs.ServiceControlHasDefaultMask
	}
	b.push(0, c.client(flagACK|flagPSH|flags, request))
	if es := b.exceptions(); len(es) != 1 || es[0].ReasonReason != reasonNoRule {
		t.Fatalf("exceptions %+v, want one of no_rule", es)
	}
}

// gathering fills the head buffer of a connection with no end of a head, and has the host take it.
func (b *bench) gathering(t *testing.T, c *conn) {
	t.Helper()
	b.push(0, c.client(flagACK|flagPSH, "GET /"+strings.Repeat("x", regs.HeadBytes-5)))
	if es := b.exceptions(); len(es) != 1 || es[0].ReasonReason != reasonHeadLarge {
		t.Fatalf("exceptions %+v, want one of head_too_large", es)
	}
	done, out := b.about(t, c, regs.CommandEntry{ControlType: regs.CommandControlTypeTake, Length: regs.HeadBytes}, "")
	if done.ControlStatus != statusOK || done.Length != regs.HeadBytes || done.Result[0] != c.cseq {
		t.Fatalf("take: %+v, want %d bytes up to %#x", done, regs.HeadBytes, c.cseq)
	}
	if ack := one(t, out[0]); ack.ack != c.cseq || ack.window != regs.HeadBytes || len(out[1]) != 0 {
		t.Fatalf("take draws %v", out)
	}
	if got := string(b.ram[len(b.ram)-16384:][:regs.HeadBytes]); got != "GET /"+strings.Repeat("x", regs.HeadBytes-5) {
		t.Fatal("the host got other bytes than the client sent")
	}
}

func replacing(stream string, inserted int) (regs.CommandEntry, string) {
	return regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, FlagsReplace: 1, Value: uint32(inserted)}, stream[:min(len(stream), regs.HeadBytes)]
}

// long brings a connection to the splice with longStream held, the first buffer of it sent.
func (b *bench) long(t *testing.T, c *conn) {
	t.Helper()
	b.asks(t, c, 0)
	cmd, chunk := replacing(longStream, len(longStream)-len(request))
	done, out := b.about(t, c, cmd, chunk)
	if syn := one(t, out[1]); done.ControlStatus != statusOK || syn.flags != flagSYN || syn.seq != c.cseq-uint32(len(longStream))-1 {
		t.Fatalf("connect: status %d, %v; client at %#x", done.ControlStatus, out, c.cseq)
	}
	c.sack, c.serverWindow = c.cseq-uint32(len(longStream)), 65535
	if got := string(stream(t, c.sack, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])); got != chunk {
		t.Fatalf("the server gets %d bytes, want the first %d", len(got), len(chunk))
	}
}

// feed gives the part of longStream that is wanted.
func (b *bench) feed(t *testing.T, c *conn, at int) (uint32, [2][]tcp) {
	t.Helper()
	done, out := b.about(t, c, regs.CommandEntry{ControlType: regs.CommandControlTypeFeed}, longStream[at:min(at+regs.HeadBytes, len(longStream))])
	return done.ControlStatus, out
}

// TestHeldCommandsRefused: what does not fit the connection is refused, and changes nothing.
func TestHeldCommandsRefused(t *testing.T) {
	const connect, take, feed = regs.CommandControlTypeConnect, regs.CommandControlTypeTake, regs.CommandControlTypeFeed
	waits := func(t *testing.T, b *bench, c *conn) { b.asks(t, c, 0) }
	fin := func(t *testing.T, b *bench, c *conn) { b.asks(t, c, flagFIN) }
	gathers := func(t *testing.T, b *bench, c *conn) { b.gathering(t, c) }
	long := func(t *testing.T, b *bench, c *conn) { b.long(t, c) }
	wants := func(t *testing.T, b *bench, c *conn) {
		b.long(t, c)
		c.sack += regs.HeadBytes
		b.push(1, c.server(flagACK, ""))
		b.exceptions()
	}
	n := uint32(len(request))
	for _, tt := range []struct {
		name   string
		before func(t *testing.T, b *bench, c *conn)
		cmd    regs.CommandEntry
		want   uint32
	}{
		{"connect before there is a request", func(*testing.T, *bench, *conn) {}, regs.CommandEntry{ControlType: connect, FlagsReplace: 1}, statusState},
		{"connect after the splice", long, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: n}, statusState},
		{"one byte less than is held", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: n - 1}, statusArgument},
		{"one byte more", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: n + 1}, statusArgument},
		{"the FIN counted as a byte", fin, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: n + 1}, statusArgument},
		{"other bytes than are said to be inserted", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: n + 5, Value: 4}, statusArgument},
		{"more taken out than was there", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: 1, Value: -n - 1}, statusArgument},
		{"less than a buffer of more", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: regs.HeadBytes - 1, Value: 9000}, statusArgument},
		{"more than a buffer", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: regs.HeadBytes + 1, Value: regs.HeadBytes + 1 - n}, statusArgument},
		{"longer than a stream may be", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: regs.HeadBytes, Value: maxHeldStream + 1 - n}, statusArgument},
		{"no memory", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: n, IovaHi: 1}, statusDMA},
		{"no such server", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: n, KeyIndexIndex: 5}, statusArgument},
		{"no such group", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, FlagsGroup: 1, Length: n, KeyIndexIndex: 5}, statusNotFound},
		{"no such group, out of range", waits, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, FlagsGroup: 1, Length: n, KeyIndexIndex: 0xffff}, statusNotFound},
		{"gathered, and the buffer empty", gathers, regs.CommandEntry{ControlType: connect}, statusArgument},
		{"gathered, and not all of it taken", func(t *testing.T, b *bench, c *conn) {
			b.gathering(t, c)
			b.push(0, c.client(flagACK, "more"))
			b.exceptions()
		}, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: regs.HeadBytes}, statusState},
		{"gathered, and more came than was kept", func(t *testing.T, b *bench, c *conn) {
			b.gathering(t, c)
			b.push(0, c.client(flagACK, "more"))
			b.about(t, c, regs.CommandEntry{ControlType: take, FlagsKeep: 1, Length: regs.HeadBytes}, "")
			b.push(0, c.client(flagACK, "and more"))
			b.exceptions()
		}, regs.CommandEntry{ControlType: connect, FlagsReplace: 1, Length: regs.HeadBytes}, statusState},
		{"take before there is a request", func(*testing.T, *bench, *conn) {}, regs.CommandEntry{ControlType: take, Length: regs.HeadBytes}, statusState},
		{"take after the splice", long, regs.CommandEntry{ControlType: take, Length: regs.HeadBytes}, statusState},
		{"take with too little room", waits, regs.CommandEntry{ControlType: take, Length: n - 1}, statusArgument},
		{"take to no memory", waits, regs.CommandEntry{ControlType: take, Length: regs.HeadBytes, IovaHi: 1}, statusDMA},
		{"feed before the splice", waits, regs.CommandEntry{ControlType: feed, Length: n}, statusState},
		{"feed what is there", long, regs.CommandEntry{ControlType: feed, Length: regs.HeadBytes}, statusState},
		{"feed too little", wants, regs.CommandEntry{ControlType: feed, Length: regs.HeadBytes - 1}, statusArgument},
		{"feed too much", wants, regs.CommandEntry{ControlType: feed, Length: regs.HeadBytes + 1}, statusArgument},
		{"feed from no memory", wants, regs.CommandEntry{ControlType: feed, Length: regs.HeadBytes, IovaHi: 1}, statusDMA},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
			tt.before(t, b, c)
			before := b.snapshot()
			done, out := b.about(t, c, tt.cmd, "")
			if done.ControlStatus != tt.want || len(out[0])+len(out[1]) != 0 {
				t.Errorf("status %d, sent %v; want %d", done.ControlStatus, out, tt.want)
			}
			for _, name := range before.diff(b.snapshot()) {
				if name != "amu.commands" && name != "amu.command_error" && !strings.HasPrefix(name, "hostif.") && !strings.HasPrefix(name, "ring.") {
					t.Errorf("the command changed %s", name)
				}
			}
		})
	}
}

// TestConnectNoBuffer: a page that has no head buffer needs one for what is inserted; one that finds none waits on.
func TestConnectNoBuffer(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	w := b.c.page(b.pageOf(t))
	w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl]|regs.PageControlWaitingHostMask, reasonServerFailed)
	cmd, _ := replacing("PROXY", 5)
	free := b.r.Get(regs.HeadFree)
	b.r.Set(regs.HeadFree, 0)
	n := b.pageFor(t, c)
	cmd.HandleN, cmd.HandleGeneration, cmd.IovaLo, cmd.Length = n, handleOf(n, w)>>20, uint32(len(b.ram)-16384), 5
	if done := b.command(cmd); done.ControlStatus != statusNoPlace {
		t.Errorf("connect with no buffer free: status %d, want no_place", done.ControlStatus)
	}
	b.r.Set(regs.HeadFree, free)
	b.fillCAM(t, ServerSide)
	if done := b.command(cmd); done.ControlStatus != statusNoPlace || b.r.Get(regs.HeadFree) != free {
		t.Errorf("connect with no place in the CAM: status %d, %d buffers free, want no_place and %d", done.ControlStatus, b.r.Get(regs.HeadFree), free)
	}
}

// TestConnectBeforeTheRequest: a server may be connected for a client that has sent nothing, with inserted bytes or
// without; what the client sends then follows them.
func TestConnectBeforeTheRequest(t *testing.T) {
	for _, inserted := range []string{"", "PROXY"} {
		for _, early := range []bool{false, true} { // the client sends before the splice
			b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
			w := b.c.page(b.pageOf(t))
			w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl]|regs.PageControlWaitingHostMask, reasonServerFailed)
			cmd, chunk := replacing(inserted, len(inserted))
			if inserted == "" {
				cmd.FlagsReplace = 0
			}
			done, out := b.about(t, c, cmd, chunk)
			syn := one(t, out[1])
			if want := c.cseq - 1 - uint32(len(inserted)); done.ControlStatus != statusOK || syn.seq != want {
				t.Fatalf("%q: status %d, SYN %v, want seq %#x", inserted, done.ControlStatus, syn, want)
			}
			want := inserted
			if early {
				want += "hello"
				one(t, b.push(0, c.client(flagACK, "hello"))[0])
			}
			c.sack = syn.seq + 1
			sent := b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1]
			if got := string(stream(t, c.sack, sent)); got != want || len(sent) != 1 {
				t.Errorf("%q: the server gets %q in %d segments, want %q", inserted, got, len(sent), want)
			}
			c.sack = c.cseq
			one(t, b.push(1, c.server(flagACK, "banner"))[0])
			c.cack += 6
			if s := one(t, b.push(0, c.client(flagACK, "next"))[1]); s.seq != c.cseq-4 || string(s.payload) != "next" {
				t.Errorf("%q: the next segment goes on as %v", inserted, s)
			}
			if got := b.r.Get(regs.HeadFree); got != b.m.Geometry.Heads {
				t.Errorf("%q: %d heads free, want all", inserted, got)
			}
			b.check(t)
		}
	}
}

// TestSecondServerGetsTheSame: after a server failed the altered bytes are held still, and what the client sent meanwhile
// behind them. The host need not give them again, and must not give them as they were.
func TestSecondServerGetsTheSame(t *testing.T) {
	for way := range fail {
		t.Run(way, func(t *testing.T) {
			b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
			b.servers(2)
			b.asks(t, c, 0)
			cmd, chunk := replacing("PROXY"+request, 5)
			_, out := b.about(t, c, cmd, chunk)
			c.sack = one(t, out[1]).seq + 1
			one(t, b.push(0, c.client(flagACK, "body"))[0])
			fail[way](b, c)
			if es := b.exceptions(); len(es) != 1 || es[0].ReasonReason != reasonServerFailed {
				t.Fatalf("exceptions %+v, want one of server_failed", es)
			}
			cmd.KeyIndexIndex = 1
			if done, _ := b.about(t, c, cmd, chunk); done.ControlStatus != statusArgument {
				t.Errorf("connect with the bytes of before: status %d, want argument", done.ControlStatus)
			}
			done, out := b.about(t, c, regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, KeyIndexIndex: 1}, "")
			syn := one(t, out[1])
			if done.ControlStatus != statusOK || done.Result[0] != 1 || syn.seq != c.sack-1 {
				t.Fatalf("connect: status %d, server %d, %v, want seq %#x", done.ControlStatus, done.Result[0], syn, c.sack-1)
			}
			x := *c
			x.w.server = x.w.server.Next()
			if got := string(stream(t, c.sack, b.push(1, x.server(flagSYN|flagACK, "", plainOptions...))[1])); got != "PROXY"+request+"body" {
				t.Errorf("the second server gets %q", got)
			}
			if got := b.r.Get64(regs.ConnectionRewritten); got != 1 {
				t.Errorf("rewritten: got %d, want 1", got)
			}
			b.check(t)
		})
	}
}

// TestConnectGroup: the card walks the slots of the host's group; a server that another connection of the client has
// leaves the choice to the host, and the altered bytes stay.
func TestConnectGroup(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	b.servers(3)
	for i := range 3 {
		set(b.m.Slot, i, regs.SlotWords, &regs.SlotEntry{SlotServer: uint32(i), SlotValid: 1})
	}
	set(b.m.GroupState, 0, regs.GroupStateWords, &regs.GroupStateEntry{SelectorCountA: 3, Cursor: 2})
	b.r.Set(regs.TableBank, 7<<8)
	b.asks(t, c, 0)
	n := b.pageFor(t, c)
	w := b.c.page(n)
	k, _ := b.c.serverKey(w, 0)
	k.Ports, k.Index = uint32(c.port), 2
	h := b.c.cams[ServerSide].Hash(&k)
	other := b.waiting(t, plainOptions)
	holder := b.pageFor(t, other)
	b.c.cams[ServerSide].Insert(&k, h, handleOf(holder, b.c.page(holder)), false)
	cmd, chunk := replacing("PROXY"+request, 5)
	cmd.FlagsGroup, cmd.FlagsLast, cmd.Boundary, cmd.Bar2Offset = 1, 1, c.cseq, 10
	at := len(b.ram) - 16384
	copy(b.ram[at:], chunk)
	cmd.HandleN, cmd.HandleGeneration, cmd.IovaLo, cmd.Length = n, handleOf(n, w)>>20, uint32(at), uint32(len(chunk))
	done := b.command(cmd)
	es := b.exceptions()
	if done.ControlStatus != statusOK || done.Result[0] != 2 || len(es) != 1 || es[0].ReasonReason != reasonKeyExists || es[0].IndexServer != 2 {
		t.Fatalf("connect: status %d, server %d; exceptions %+v, want one of key_exists with server 2", done.ControlStatus, done.Result[0], es)
	}
	b.c.cams[ServerSide].Erase(&k, h)
	b.check(t)
	if w[regs.PageChoice] != 7<<regs.PageChoiceGenerationShift || w[regs.PageRule] != 10 || w[regs.PageBoundaryClient] != c.cseq || w[regs.PageClientLink]&regs.PageClientLinkLastRequestMask == 0 {
		t.Errorf("choice %#x, rule %d, boundary %#x, link %#x", w[regs.PageChoice], w[regs.PageRule], w[regs.PageBoundaryClient], w[regs.PageClientLink])
	}
	if got := b.m.RuleCounter[9*regs.RuleCounterWords+regs.RuleCounterHitsLo]; got != 1 {
		t.Errorf("hits of rule 9: got %d, want 1", got)
	}
	done, out := b.about(t, c, regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, FlagsGroup: 1, Bar2Offset: 10}, "")
	if syn := one(t, out[1]); done.ControlStatus != statusOK || done.Result[0] != 0 || syn.to != c.w.server || syn.seq != c.cseq-uint32(len(request))-6 {
		t.Fatalf("connect again: status %d, server %d, %v", done.ControlStatus, done.Result[0], out)
	}
	if got := b.m.RuleCounter[9*regs.RuleCounterWords+regs.RuleCounterHitsLo]; got != 1 {
		t.Errorf("hits of rule 9 after a second connect: got %d, want 1", got)
	}
	c.sack = c.cseq - uint32(len(request)) - 5
	if got := c.serverBytes(t, c.sack); got != "PROXY"+request {
		t.Errorf("the server gets %q", got)
	}
}

// TestFeed: parts follow each other as the server acknowledges them, whatever it acknowledges on the way.
func TestFeed(t *testing.T) {
	for _, step := range []uint32{100, 1460, 4000, regs.HeadBytes} {
		b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
		b.long(t, c)
		first := c.sack
		got := []byte(longStream[:regs.HeadBytes])
		for c.sack-first != uint32(len(longStream)) {
			c.sack += min(step, first+uint32(len(got))-c.sack)
			out := b.push(1, c.server(flagACK, ""))
			if c.sack == c.cseq {
				if ack := one(t, out[0]); ack.ack != c.cseq {
					t.Errorf("step %d: the acknowledgement of H: %v", step, ack)
				}
				break
			}
			if len(out[0]) != 0 {
				t.Fatalf("step %d: the client gets %v", step, out[0])
			}
			es := b.exceptions()
			if want := int(c.sack-first)%regs.HeadBytes == 0; (len(es) == 1) != want || len(es) > 1 {
				t.Fatalf("step %d, %d bytes acknowledged: exceptions %v", step, c.sack-first, es)
			}
			if len(es) == 1 {
				status, out := b.feed(t, c, len(got))
				if es[0].ReasonReason != reasonHeldMore || status != statusOK {
					t.Fatalf("step %d: reason %d, feed: status %d", step, es[0].ReasonReason, status)
				}
				got = append(got, stream(t, c.sack, out[1])...)
			}
		}
		if string(got) != longStream {
			t.Errorf("step %d: the server got %d bytes, want %d", step, len(got), len(longStream))
		}
		if b.r.Get(regs.HeadFree) != b.m.Geometry.Heads || b.r.Get64(regs.ConnectionFed) != 2 {
			t.Errorf("step %d: %d heads free, fed %d times", step, b.r.Get(regs.HeadFree), b.r.Get64(regs.ConnectionFed))
		}
		b.check(t)
	}
}

// TestHeldMoreAgain: a host that does not answer is asked again as often as held bytes are sent again; then both ends are
// told. One that answers late goes on from there.
func TestHeldMoreAgain(t *testing.T) {
	for _, answers := range []bool{false, true} {
		b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
		b.long(t, c)
		c.sack += regs.HeadBytes
		b.push(1, c.server(flagACK, ""))
		asked := 0
		for b.state(c) == Spliced && !(answers && asked == 3) {
			for _, e := range b.exceptions() {
				if asked++; e.ReasonReason != reasonHeldMore || e.ReasonState != uint32(Spliced) || len(e.frame) != 0 {
					t.Fatalf("exception %+v", e)
				}
			}
			if out := b.wait(100 * time.Millisecond); len(out[1]) > 1 || len(out[1]) == 1 && out[1][0].flags&flagRST == 0 {
				t.Fatalf("sent with nothing to send: %v", out)
			}
		}
		if !answers {
			if want := int(regs.TimerRetransmitLimitTimes(b.r.Get(regs.TimerRetransmitLimit))) + 1; asked != want || b.r.Get64(regs.ConnectionAbortHeld) != 1 {
				t.Errorf("asked %d times, abort_held %d; want %d and 1", asked, b.r.Get64(regs.ConnectionAbortHeld), want)
			}
			continue
		}
		if status, out := b.feed(t, c, regs.HeadBytes); status != statusOK || string(stream(t, c.sack, out[1])) != longStream[regs.HeadBytes:2*regs.HeadBytes] {
			t.Errorf("feed: status %d, %v", status, out)
		}
	}
}

// TestHostileServerBelowHeld: a server that acknowledges what it was not sent moves nothing: the stream it gets is whole
// all the same, and so are the client's windows.
func TestHostileServerBelowHeld(t *testing.T) {
	for _, payload := range []string{"", "early answer"} {
		for _, beyond := range []uint32{1, regs.HeadBytes, uint32(len(longStream)) - regs.HeadBytes - 1, uint32(len(longStream)) - regs.HeadBytes} {
			t.Run(fmt.Sprintf("%d bytes beyond with %d", beyond, len(payload)), func(t *testing.T) {
				b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
				b.long(t, c)
				first, page := c.sack, b.c.page(b.pageOf(t))
				c.sack = first + regs.HeadBytes + beyond
				before := *page
				out := b.push(1, c.server(flagACK, payload))
				if len(out[1]) != 0 || len(b.exceptions()) != 0 {
					t.Errorf("draws %v", out)
				}
				if payload != "" {
					if s := one(t, out[0]); s.ack != c.cseq || string(s.payload) != payload {
						t.Errorf("goes on as %v", s)
					}
				}
				if page[regs.PageAAckServer] != before[regs.PageAAckServer] || page[regs.PageHead] != before[regs.PageHead] {
					t.Errorf("acknowledged %#x, head %#x; want %#x, %#x", page[regs.PageAAckServer], page[regs.PageHead], before[regs.PageAAckServer], before[regs.PageHead])
				}
				c.sack = first + 1000
				b.push(1, c.server(flagACK, ""))
				if got := string(stream(t, c.sack, b.wait(310 * time.Millisecond)[1])); got != longStream[1000:regs.HeadBytes] {
					t.Error("the server gets other bytes again")
				}
			})
		}
	}
}

// TestTakeKeeps: with keep the host reads, and nothing changes.
func TestTakeKeeps(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	b.asks(t, c, flagFIN)
	for range 2 {
		done, out := b.about(t, c, regs.CommandEntry{ControlType: regs.CommandControlTypeTake, FlagsKeep: 1, Length: regs.HeadBytes}, "")
		if done.ControlStatus != statusOK || done.Length != uint32(len(request)) || done.Result[0] != c.cseq || len(out[0])+len(out[1]) != 0 {
			t.Errorf("take: %+v, %v", done, out)
		}
		if got := string(b.ram[len(b.ram)-16384:][:done.Length]); got != request {
			t.Errorf("take: %q", got)
		}
	}
	cmd, chunk := replacing(request, 0)
	if done, _ := b.about(t, c, cmd, chunk); done.ControlStatus != statusOK {
		t.Errorf("connect: status %d", done.ControlStatus)
	}
}

// TestGatheredAnswered: a request that outgrows what the host takes is answered in the server's place, and the window that
// the client was given stays where it was.
func TestGatheredAnswered(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	b.gathering(t, c)
	edge := c.cseq + regs.HeadBytes
	b.push(0, c.client(flagACK, "more"))
	status, out := b.reply(t, c, unavailable)
	s := one(t, out[0])
	if status != statusOK || s.ack != c.cseq || s.ack+uint32(s.window) != edge || string(s.payload) != unavailable {
		t.Errorf("status %d, %v; want ack %#x and the window up to %#x", status, s, c.cseq, edge)
	}
	b.check(t)
}

// TestGatheredKept: what came behind a gathered head the host takes with keep. The client is told nothing of it, and so
// can send no more than the buffer takes.
func TestGatheredKept(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	b.gathering(t, c)
	b.push(0, c.client(flagACK, "more"))
	for range 2 {
		done, out := b.about(t, c, regs.CommandEntry{ControlType: regs.CommandControlTypeTake, FlagsKeep: 1, Length: regs.HeadBytes}, "")
		if got := string(b.ram[len(b.ram)-16384:][:done.Length]); done.ControlStatus != statusOK || got != "more" || done.Result[0] != c.cseq || len(out[0]) != 0 {
			t.Fatalf("take: %+v, %q, %v", done, got, out)
		}
	}
	whole := strings.Repeat("g", regs.HeadBytes) + "more"
	cmd, chunk := replacing(whole, 0)
	if done, out := b.about(t, c, cmd, chunk); done.ControlStatus != statusOK || len(out[1]) != 1 {
		t.Fatalf("connect: status %d, %v", done.ControlStatus, out)
	}
	c.sack, c.serverWindow = c.cseq-uint32(len(whole)), 65535
	if got := string(stream(t, c.sack, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])); got != chunk {
		t.Errorf("the server gets %d bytes, want the first %d", len(got), len(chunk))
	}
}
