package datapath

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
	"time"

	"splicenic/regs"
)

// expiry is a way to vanish: where the connection stands, when the timer takes it, and what the ends are told.
type expiry struct {
	name      string
	vanish    func(t *testing.T, c *conn)
	registers map[regs.Reg]uint32
	after     time.Duration // from the last frame; late by one sweep at most
	counter   regs.Reg
	resent    regs.Reg // counts what was sent again, three times
	rstClient bool
	rstServer bool
}

func at(s State) func(*testing.T, *conn) {
	return func(t *testing.T, c *conn) { c.reach(t, s) }
}

// held leaves a connection spliced whose server has not acknowledged the request.
func held(t *testing.T, c *conn) {
	c.reach(t, ServerSyn)
	one(t, c.b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))[1])
}

var (
	quick   = map[regs.Reg]uint32{regs.TimerRetransmitLimit: 3, regs.TimerRetransmitMin: 1000, regs.TimerRetransmitMax: 1000}
	patient = map[regs.Reg]uint32{regs.TimerRetransmitLimit: 15}
	brief   = map[regs.Reg]uint32{regs.TimerWaitHead: 2000, regs.TimerIdle: 3000, regs.TimerClosing: 1500}
)

var expiries = []expiry{
	{name: "syn_rcvd, SYN-ACK sent again", vanish: at(SynRcvd), registers: quick, after: 4 * time.Second, counter: regs.ConnectionAbortSynAck, resent: regs.TransmitResentSyn + clientEnd},
	{name: "syn_rcvd, time-out", vanish: at(SynRcvd), registers: patient, after: 10 * time.Second, counter: regs.ConnectionExpiredSynRcvd},
	{name: "wait_head", vanish: at(WaitHead), registers: brief, after: 2 * time.Second, counter: regs.ConnectionExpiredWaitHead, rstClient: true},
	{name: "wait_head, part of a head", vanish: func(t *testing.T, c *conn) {
		c.reach(t, WaitHead)
		one(t, c.b.push(0, c.client(flagACK, request[:7]))[0])
	}, registers: brief, after: 2 * time.Second, counter: regs.ConnectionExpiredWaitHead, rstClient: true},
	{name: "wait_head, the host is deciding", vanish: func(t *testing.T, c *conn) {
		c.b.attach()
		c.reach(t, WaitHead)
		c.b.push(0, c.client(flagACK, "\x16\x03\x01"))
	}, registers: brief, after: 2 * time.Second, counter: regs.ConnectionExpiredWaitHead, rstClient: true},
	{name: "server_syn, SYN sent again", vanish: at(ServerSyn), registers: quick, after: 4 * time.Second, counter: regs.ConnectionAbortServerSyn, resent: regs.TransmitResentSyn + serverEnd, rstClient: true, rstServer: true},
	{name: "server_syn, time-out", vanish: at(ServerSyn), registers: patient, after: 5 * time.Second, counter: regs.ConnectionExpiredServerSyn, rstClient: true, rstServer: true},
	{name: "spliced, held bytes sent again", vanish: held, registers: quick, after: 4 * time.Second, counter: regs.ConnectionAbortHeld, resent: regs.TransmitResentHeld + serverEnd, rstClient: true, rstServer: true},
	{name: "spliced, idle", vanish: at(Spliced), registers: brief, after: 3 * time.Second, counter: regs.ConnectionExpiredIdle, rstClient: true, rstServer: true},
	{name: "closing, one FIN", vanish: at(Closing), registers: brief, after: 3 * time.Second, counter: regs.ConnectionExpiredIdle, rstClient: true, rstServer: true},
	{name: "closing, both FINs", vanish: func(t *testing.T, c *conn) {
		c.reach(t, Closing)
		one(t, c.b.push(1, c.server(flagFIN|flagACK, ""))[0])
	}, registers: brief, after: 1500 * time.Millisecond, counter: regs.ConnectionExpiredClosing, rstClient: true, rstServer: true},
	{name: "quarantine", vanish: at(Quarantine), after: time.Second, counter: regs.ConnectionClosedFin},
}

// TestVanish lets a client vanish in every state: the timer takes the page, its head and its CAM entries back, and a new
// connection from the same address and port finds nothing old.
func TestVanish(t *testing.T) {
	for _, w := range []world{world4, world6} {
		for _, x := range expiries {
			t.Run(x.name+"/"+w.client.String(), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.serve(w, 0, regs.ServiceEntry{})
				b.now = time.Second
				for r, v := range x.registers {
					b.r.Set(r, v)
				}
				c := &conn{b: b, w: w, port: 40001, cseq: 0xfffffff0, sseq: 0x7ffffff0, opts: plainOptions, sopts: plainOptions}
				x.vanish(t, c)
				before, ended := b.r.Get64(x.counter), b.ends()
				out := b.wait(x.after - 2*time.Millisecond)
				if got := b.r.Get(regs.AmuFree); got != b.m.Geometry.Pages-1 {
					t.Fatalf("free pages before the time is over: got %d, want all but one", got)
				}
				b.check(t)
				sweeps := time.Duration(1)
				if x.resent != 0 {
					sweeps = 4 // every one of the four deadlines may be late by one
				}
				late := b.wait(sweeps*100*time.Millisecond + 3*time.Millisecond)
				if x.resent != 0 {
					if got := b.r.Get64(x.resent); got != 3 {
						t.Errorf("%s: got %d, want 3", x.resent.Name(), got)
					}
				}
				checkResent(t, c, x, out)
				checkReset(t, "client", late[0], x.rstClient)
				checkReset(t, "server", late[1], x.rstServer)
				b.allFree(t)
				b.check(t)
				if x.counter != regs.ConnectionClosedFin {
					if got := b.r.Get64(x.counter) - before; got != 1 {
						t.Errorf("%s grew by %d, want 1", x.counter.Name(), got)
					}
					if got := b.ends() - ended; got != 1 {
						t.Errorf("ends of connections counted: %d, want 1", got)
					}
				}

				again := &conn{b: b, w: w, port: 40001, cseq: 77, sseq: 88, opts: plainOptions, sopts: plainOptions}
				again.splice(t)
				b.translateBothWays(t, again)
				b.check(t)
			})
		}
	}
}

// ends sums the counters that tell how connections ended.
func (b *bench) ends() (n uint64) {
	for _, r := range closeCounters {
		if r != 0 && r != regs.ConnectionReused {
			n += b.r.Get64(r)
		}
	}
	return n
}

func checkReset(t *testing.T, who string, got []tcp, want bool) {
	t.Helper()
	if !want {
		if len(got) != 0 {
			t.Errorf("the %s is sent %v, want nothing", who, got)
		}
		return
	}
	if s := one(t, got); s.flags&flagRST == 0 {
		t.Errorf("the %s is sent %v, want RST", who, s)
	}
}

// checkResent checks that what was sent again is the same segment three times, one second apart at best.
func checkResent(t *testing.T, c *conn, x expiry, out [2][]tcp) {
	t.Helper()
	side, other := out[0], out[1]
	if x.resent != regs.TransmitResentSyn+clientEnd {
		side, other = out[1], out[0]
	}
	if x.resent == 0 {
		if x.registers[regs.TimerRetransmitLimit] == 0 && len(side)+len(other) != 0 {
			t.Errorf("sent while waiting: %v", out)
		}
		return
	}
	if len(side) != 3 || len(other) != 0 {
		t.Fatalf("sent again %d times, to the other side %v, want 3 and nothing", len(side), other)
	}
	for _, s := range side[1:] {
		if s.seq != side[0].seq || s.ack != side[0].ack || s.flags != side[0].flags || string(s.payload) != string(side[0].payload) {
			t.Errorf("sent again as %v, first as %v", s, side[0])
		}
	}
}

// TestEntriesBeforePage: wherever a page is freed, what leads to it goes first.
func TestEntriesBeforePage(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "amu.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Name.Name == "release" {
			continue
		}
		unlinked := false
		ast.Inspect(fn, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch sel.Sel.Name {
			case "unlink":
				unlinked = true
			case "release":
				checked++
				if !unlinked {
					t.Errorf("%s releases a page before it unlinks it", fn.Name.Name)
				}
			}
			return true
		})
	}
	if checked < 3 {
		t.Errorf("%d places release a page, want at least 3: this test looks in the wrong place", checked)
	}
}
