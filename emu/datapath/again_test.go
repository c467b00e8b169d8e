package datapath

import (
	"fmt"
	"testing"
	"time"

	"splicenic/regs"
)

// failed checks that a connection waits for the host to choose another server: nothing of the server end is left, and the
// host was told, once.
func (b *bench) failed(t *testing.T, c *conn, server, tries uint32) {
	t.Helper()
	n := b.pageFor(t, c)
	w := b.c.page(n)
	if s := b.state(c); s != WaitHead {
		t.Fatalf("state %d, want wait_head", s)
	}
	if w[regs.PageControl]&regs.PageControlWaitingHostMask == 0 || regs.PageControlHostReason(w[regs.PageControl]) != reasonServerFailed {
		t.Errorf("control word %#x, want waiting for the host by server_failed", w[regs.PageControl])
	}
	if got := regs.PageOptionsTries(w[regs.PageOptions]); got != tries {
		t.Errorf("tries: got %d, want %d", got, tries)
	}
	if got := b.m.ServerState[server*regs.ServerStateWords+regs.ServerStateFailed]; got == 0 {
		t.Error("no failure of the server counted")
	}
	es := b.exceptions()
	if len(es) != 1 || es[0].ReasonReason != reasonServerFailed || es[0].HandleN|es[0].HandleGeneration<<20 != handleOf(n, w) || es[0].IndexServer != server || len(es[0].frame) != 0 {
		t.Errorf("exceptions %+v, want one of server_failed with server %d", es, server)
	}
	b.check(t)
}

// pageFor is the page of a connection.
func (b *bench) pageFor(t *testing.T, c *conn) uint32 {
	t.Helper()
	for n := range b.m.Geometry.Pages {
		w := b.c.page(n)
		if w[regs.PageControl]&regs.PageControlValidMask != 0 && regs.PagePortsClient(w[regs.PagePorts]) == uint32(c.port) &&
			b.c.vip(regs.PageIndexVip(w[regs.PageIndex])) == words(c.w.vip) {
			return n
		}
	}
	t.Fatal("the connection has no page")
	return 0
}

// connect has the card offer a connection's request to a server.
func (b *bench) connect(t *testing.T, c *conn, server, port uint32) (status uint32, out [2][]tcp) {
	t.Helper()
	n := b.pageFor(t, c)
	b.out.Reset()
	done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20, KeyIndexIndex: server, KeyPortsPort: port})
	return done.ControlStatus, b.drain()
}

// servers makes world4's group one of n servers, at addresses that follow each other.
func (b *bench) servers(n int) {
	for i := 1; i < n; i++ {
		w := world4
		for range i {
			w.server = w.server.Next()
		}
		set(b.m.Server, i, regs.ServerWords, &regs.ServerEntry{ControlValid: 1, ControlKind: w.kind, ControlProtocol: 6, ControlPort: 8080, RouteNextHop: 0, Address: words(w.server)})
	}
	b.m.Dirty = ^uint32(0)
}

// fail makes the server that was sent a SYN fail, in one of the ways, and returns what that draws.
var fail = map[string]func(b *bench, c *conn) [2][]tcp{
	"refused": func(b *bench, c *conn) [2][]tcp { return b.push(1, c.server(flagRST|flagACK, "")) },
	"silent":  func(b *bench, c *conn) [2][]tcp { return b.wait(5200 * time.Millisecond) },
	"stale": func(b *bench, c *conn) [2][]tcp {
		x := *c
		x.sseq, x.sack = 77, 99
		stale := x.server(flagACK, "")
		b.push(1, stale, stale, stale, stale) // what is on its way counts once for each SYN
		b.wait(1110 * time.Millisecond)
		return b.push(1, stale)
	},
	"keeps less": func(b *bench, c *conn) [2][]tcp { return b.push(1, c.server(flagSYN|flagACK, "", optMSS(1459))) },
}

// TestAnotherServer: a server that fails before the splice is left, and the request goes to the one that the host
// chooses, byte for byte, with what the client sent meanwhile.
func TestAnotherServer(t *testing.T) {
	for how, act := range fail {
		t.Run(how, func(t *testing.T) {
			b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
			b.servers(2)
			first := c.cseq
			one(t, b.push(0, c.client(flagACK|flagPSH, request))[1])
			c.sack = first
			one(t, b.push(0, c.client(flagACK|flagPSH, "body"))[0])
			out := act(b, c)
			if len(out[0]) != 0 {
				t.Errorf("the client is sent %v", out[0])
			}
			b.failed(t, c, 0, 1)
			// The client goes on and is not answered; its FIN is no farewell.
			if out := b.push(0, c.client(flagACK|flagPSH, "lost")); len(out[0])+len(out[1]) != 0 {
				t.Errorf("while the host decides: %v", out)
			}
			c.cseq -= 4
			if out := b.push(0, c.client(flagACK|flagFIN, "")); len(out[0])+len(out[1]) != 0 {
				t.Errorf("FIN while the host decides: %v", out)
			}
			c.cseq--
			status, out := b.connect(t, c, 1, 0)
			if syn := one(t, out[1]); status != statusOK || syn.flags != flagSYN || syn.to != world4.server.Next() || syn.sport != c.port || syn.seq != first-1 {
				t.Fatalf("connect: status %d, %v", status, out)
			}
			if got := b.r.Get64(regs.ConnectionServerAgain); got != 1 {
				t.Errorf("server_again: got %d, want 1", got)
			}
			b.check(t)
			c.w.server, c.sack, c.sseq = world4.server.Next(), first, 0x4000
			held := one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])
			if string(held.payload) != request+"body" || held.seq != first {
				t.Errorf("the other server gets %v", held)
			}
			c.sack = c.cseq
			one(t, b.push(1, c.server(flagACK, "answer"))[0])
			c.cack += 6
			one(t, b.push(0, c.client(flagACK, "lost"))[1])
			c.sack = c.cseq
			if late := b.push(1, (&conn{b: b, w: world4, port: c.port, sseq: 1, sack: first}).server(flagSYN|flagACK, "", plainOptions...)); len(late[0])+len(late[1]) != 0 {
				t.Errorf("a late SYN-ACK of the first server draws %v", late)
			}
			b.closeBoth(t, c)
		})
	}
}

// TestServersRunOut: the card offers a request to three servers at most, within the time-out of SERVER_SYN when all are
// silent, and then takes no more of the host's choices.
func TestServersRunOut(t *testing.T) {
	b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
	b.servers(4)
	start := b.now
	for i := range uint32(3) {
		b.wait(5200*time.Millisecond - time.Duration(min(i, 1))*2500*time.Millisecond)
		b.failed(t, c, i, i+1)
		if status, out := b.connect(t, c, i+1, 0); (status == statusOK) != (i < 2) || (len(out[1]) == 1) != (i < 2) {
			t.Fatalf("server %d: status %d, %v", i+1, status, out)
		}
	}
	if took, most := b.now-start, 11*time.Second; took > most {
		t.Errorf("silent servers took %v, want %v at most", took, most)
	}
	b.wait(31 * time.Second) // no host: WAIT_HEAD ends it
	if got := b.r.Get64(regs.ConnectionAbortNoServer); got != 1 {
		t.Errorf("abort_no_server: got %d, want 1", got)
	}
	b.allFree(t)
}

// TestNoHostNoServer: where no host takes exceptions, a server that fails ends the connection, for its own reason.
func TestNoHostNoServer(t *testing.T) {
	for how, want := range map[string]regs.Reg{
		"refused": regs.ConnectionAbortRefused, "silent": regs.ConnectionExpiredServerSyn, "stale": regs.ConnectionAbortRefused, "keeps less": regs.ConnectionAbortProfile,
	} {
		t.Run(how, func(t *testing.T) {
			b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
			b.r.Set(regs.RingControl+regs.RingException*regs.RingStride, 0)
			b.c.host.Control()
			out := fail[how](b, c)
			if rst := one(t, out[0]); rst.flags&flagRST == 0 || rst.seq != c.cack || rst.ack != c.cseq {
				t.Errorf("the client is sent %v, want an exact RST", rst)
			}
			if got := b.r.Get64(want); got != 1 {
				t.Errorf("%s: got %d, want 1", want.Name(), got)
			}
			b.allFree(t)
		})
	}
}

// TestConnectRefused: commands that make no sense change nothing.
func TestConnectRefused(t *testing.T) {
	b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
	b.servers(2)
	if status, _ := b.connect(t, c, 1, 0); status != statusState {
		t.Errorf("in SERVER_SYN: status %d, want state", status)
	}
	fail["refused"](b, c)
	b.failed(t, c, 0, 1)
	b.m.Server[regs.ServerWords+regs.ServerControl] |= regs.ServerControlClosedMask
	for name, server := range map[string]uint32{"closed": 1, "not valid": 2, "beyond the table": 16, "far beyond": 0xffff} {
		if status, out := b.connect(t, c, server, 0); status != statusArgument || len(out[0])+len(out[1]) != 0 {
			t.Errorf("server %s: status %d, %v", name, status, out)
		}
	}
	n := b.pageOf(t)
	stale := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n))>>20 + 1, KeyIndexIndex: 1})
	if stale.ControlStatus != statusStale {
		t.Errorf("stale handle: status %d", stale.ControlStatus)
	}
	b.check(t)
}

// shared is a bench with two VIPs whose groups have server 0 in common, and server 1 beside it.
func shared(t *testing.T, w world) (*bench, world) {
	t.Helper()
	b := newBench(t, smallGeometry())
	b.serve(w, 0, regs.ServiceEntry{})
	second := w
	second.vip = w.vip.Next()
	b.serve(second, 1, regs.ServiceEntry{})
	b.m.Slot[2*b.m.Geometry.Slots] = b.m.Slot[0]
	other := w
	other.server = w.server.Next()
	set(b.m.Server, 1, regs.ServerWords, &regs.ServerEntry{ControlValid: 1, ControlKind: w.kind, ControlProtocol: 6, ControlPort: 8080, Address: words(other.server)})
	b.m.Dirty = ^uint32(0)
	b.attach()
	b.now = time.Second
	return b, second
}

// quarantined adds a connection of c's client and port over another VIP to c's server, at rest.
func (b *bench) quarantined(t *testing.T, c *conn) {
	t.Helper()
	second := c.w
	second.vip = c.w.vip.Next()
	b.serve(second, 1, regs.ServiceEntry{})
	b.m.Slot[2*b.m.Geometry.Slots] = b.m.Slot[0]
	b.m.Dirty = ^uint32(0)
	x := &conn{b: b, w: second, port: c.port, cseq: 1 << 20, sseq: 9, opts: plainOptions, sopts: plainOptions}
	x.reach(t, Quarantine)
}

// TestKeyRecycled: a server-side key that a connection holds whose ends are done is taken from it.
func TestKeyRecycled(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(b *bench, c *conn)
		free bool
	}{
		{"quarantine", func(b *bench, c *conn) { c.reach(t, Quarantine) }, true},
		{"closing, both FINs", func(b *bench, c *conn) {
			c.reach(t, Closing)
			b.push(1, c.server(flagFIN|flagACK, ""))
		}, true},
		{"closing, one FIN", func(b *bench, c *conn) { c.reach(t, Closing) }, false},
		{"spliced", func(b *bench, c *conn) { c.reach(t, Spliced) }, false},
		{"server_syn", func(b *bench, c *conn) { c.reach(t, ServerSyn) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, second := shared(t, world4)
			c := &conn{b: b, w: world4, port: 40001, cseq: 1, sseq: 2, opts: plainOptions, sopts: plainOptions}
			tt.end(b, c)
			x := &conn{b: b, w: second, port: 40001, cseq: 1 << 30, sseq: 2, opts: plainOptions, sopts: plainOptions}
			x.reach(t, WaitHead)
			out := b.push(0, x.client(flagACK, request))
			b.check(t)
			one(t, out[0])
			if got := b.r.Get64(regs.ConnectionKeyRecycled) == 1; got != tt.free || (len(out[1]) == 1) != tt.free {
				t.Fatalf("key recycled: %v, want %v; sends %v", got, tt.free, out)
			}
			es := b.exceptions()
			if !tt.free {
				if len(es) != 1 || es[0].ReasonReason != reasonKeyExists || es[0].IndexServer != 0 {
					t.Errorf("exceptions %+v, want key_exists with server 0", es)
				}
				return
			}
			x.sack = 1<<30 + 1
			if got := x.serverBytes(t, x.sack); got != request || len(es) != 0 {
				t.Errorf("the server gets %q; exceptions %v", got, es)
			}
		})
	}
}

// TestKeyMoved: one client port to two services with one server in common. The second connection goes to another server,
// or by another port that the client does not see; both transfers run at once.
func TestKeyMoved(t *testing.T) {
	for _, w := range []world{world4, world6} {
		t.Run(fmt.Sprint(w.client), func(t *testing.T) {
			b, second := shared(t, w)
			c := &conn{b: b, w: w, port: 40001, cseq: 0xfffffff0, sseq: 2, opts: plainOptions, sopts: plainOptions}
			c.splice(t)
			x := &conn{b: b, w: second, port: 40001, cseq: 1 << 30, sseq: 0x7fffffff, opts: plainOptions, sopts: plainOptions}
			x.reach(t, WaitHead)
			b.push(0, x.client(flagACK|flagPSH, request))
			if status, out := b.connect(t, x, 0, 0); status != statusKeyExists || len(out[0])+len(out[1]) != 0 {
				t.Fatalf("the same key: status %d, %v", status, out)
			}
			b.check(t)
			status, out := b.connect(t, x, 0, 2000)
			if syn := one(t, out[1]); status != statusOK || syn.sport != 2000 || syn.from != w.client || syn.seq != 1<<30 {
				t.Fatalf("by another port: status %d, %v", status, out)
			}
			if got := b.r.Get64(regs.ConnectionKeyMoved); got != 1 {
				t.Errorf("key_moved: got %d, want 1", got)
			}
			b.check(t)
			// x as the server sees it, and as the client does.
			s := *x
			s.port, s.sack = 2000, 1<<30+1
			raw := s.server(flagSYN|flagACK, "", plainOptions...)
			out = b.push(1, raw)
			if held := one(t, out[1]); held.sport != 2000 || string(held.payload) != request {
				t.Fatalf("held bytes: %v", held)
			}
			if ack := one(t, out[0]); ack.dport != 40001 || ack.from != second.vip {
				t.Fatalf("the server's window: %v", ack)
			}
			s.sack = x.cseq
			for i := range 3 {
				raw, want := s.server(flagACK|flagPSH, "second"), x.cack
				if got := one(t, b.push(1, raw)[0]); got.dport != 40001 || got.from != second.vip || got.sport != 80 || got.seq != want {
					t.Fatalf("round %d: from the server: %v", i, got)
				}
				x.cack += 6
				want = x.cseq
				if got := one(t, b.push(0, x.client(flagACK|flagPSH, "upload"))[1]); got.sport != 2000 || got.from != w.client || got.seq != want || got.ack != s.sseq {
					t.Fatalf("round %d: from the client: %v", i, got)
				}
				s.sack += 6
				b.translateBothWays(t, c)
			}
			b.check(t)
		})
	}
}
