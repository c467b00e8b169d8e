package datapath

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
)

// unservedCases leave a request without a server, each in its own way.
var unservedCases = []struct {
	name   string
	reason uint32 // of the exception
	act    func(b *bench)
}{
	{"no rule and no default", reasonNoRule, func(b *bench) { b.m.Service[0][regs.ServiceControl] &^= regs.ServiceControlHasDefaultMask }},
	{"no such group", reasonNoServer, func(b *bench) {
		b.m.Group[0][regs.GroupControl] &^= regs.GroupControlValidMask
	}},
	{"empty group", reasonNoServer, func(b *bench) { set(b.m.GroupState, 0, regs.GroupStateWords, &regs.GroupStateEntry{}) }},
	{"every weight zero", reasonNoServer, func(b *bench) { set(b.m.Slot, 0, regs.SlotWords, &regs.SlotEntry{}) }},
	{"every server closed", reasonNoServer, func(b *bench) { b.m.Server[regs.ServerControl] |= regs.ServerControlClosedMask }},
	{"server gone", reasonNoServer, func(b *bench) { b.m.Server[regs.ServerControl] = 0 }},
	{"server of the other family", reasonNoServer, func(b *bench) {
		b.m.Server[regs.ServerControl] = regs.SetServerControlKind(b.m.Server[regs.ServerControl], kindIPv6)
	}},
	{"next hop not resolved", reasonNoServer, func(b *bench) { b.m.NextHop[regs.NextHopControl] &^= regs.NextHopControlResolvedMask }},
	{"next hop gone", reasonNoServer, func(b *bench) { b.m.NextHop[regs.NextHopControl] = 0 }},
	{"no such next hop", reasonNoServer, func(b *bench) { b.m.Server[regs.ServerRoute] = 0xffff }},
}

// TestUnserved: a request that leads to no server is the host's to answer; however the connection ends then, it is counted
// as that, the event says so, and the client gets an exact RST where the host, or the end of its time, gives it one.
func TestUnserved(t *testing.T) {
	ends := map[string]func(b *bench, n uint32) [2][]tcp{
		"reset": func(b *bench, n uint32) [2][]tcp {
			b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeReset, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20, FlagsToClient: 1})
			return b.drain()
		},
		"free": func(b *bench, n uint32) [2][]tcp {
			b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeFree, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20})
			return b.drain()
		},
		"no answer of the host": func(b *bench, n uint32) [2][]tcp { return b.wait(31 * time.Second) },
	}
	for _, x := range unservedCases {
		for how, end := range ends {
			t.Run(strings.ReplaceAll(x.name+" "+how, " ", "_"), func(t *testing.T) {
				b, c := caseBench(t, world4, regs.ServiceEntry{})
				c.reach(t, WaitHead)
				x.act(b)
				b.m.Dirty = ^uint32(0)
				b.events()
				if ack := one(t, b.push(0, c.client(flagACK|flagPSH, request))[0]); ack.flags != flagACK || ack.ack != c.cseq {
					t.Errorf("the request draws %v, want an ACK of all of it", ack)
				}
				g := b.exceptions()
				if len(g) != 1 || g[0].ReasonReason != x.reason {
					t.Fatalf("exceptions %+v, want one of reason %d", g, x.reason)
				}
				n := b.pageOf(t)
				if got := regs.PageControlHostReason(b.c.page(n)[regs.PageControl]); got != x.reason {
					t.Errorf("page.control.host_reason: got %d, want %d", got, x.reason)
				}
				out := end(b, n)
				if len(out[1]) != 0 {
					t.Errorf("a server is sent %v", out[1])
				}
				if how == "free" {
					if len(out[0]) != 0 {
						t.Errorf("the client is sent %v", out[0])
					}
				} else if s := one(t, out[0]); s.flags != flagRST|flagACK || s.seq != c.cack || s.ack != c.cseq {
					t.Errorf("the client is sent %v, want RST seq %#x ack %#x", s, c.cack, c.cseq)
				}
				for _, r := range []struct {
					r    regs.Reg
					want uint64
				}{{regs.ConnectionAbortNoServer, 1}, {regs.ConnectionResetHost, 0}, {regs.ConnectionExpiredWaitHead, 0}} {
					if got := b.r.Get64(r.r); got != r.want {
						t.Errorf("%s: got %d, want %d", r.r.Name(), got, r.want)
					}
				}
				if es := b.events(); len(es) != 1 || es[0].ControlType != regs.EventControlTypeClosed || es[0].ReasonReason != reasonAbortNoServer {
					t.Errorf("events: %+v, want closed by abort_no_server", es)
				}
				b.check(t)
				b.allFree(t)
			})
		}
	}
}

// TestUnservedUnheard: where the exception ring has no room for the question, nobody will answer it. The connection ends at
// once, instead of holding its page and its head until the end of WAIT_HEAD.
func TestUnservedUnheard(t *testing.T) {
	for _, x := range []struct {
		name, request string
		counter       regs.Reg
	}{
		{"no_rule", request, regs.ConnectionAbortNoServer},
		{"no_request", "\x16\x03\x01", regs.ConnectionExpiredWaitHead},
	} {
		t.Run(x.name, func(t *testing.T) {
			b, c := caseBench(t, world4, regs.ServiceEntry{})
			b.m.Service[0][regs.ServiceControl] &^= regs.ServiceControlHasDefaultMask
			b.m.Dirty = ^uint32(0)
			c.reach(t, WaitHead)
			for range ringEntries { // others that wait: strays may not fill the ring
				b.c.host.Exception(nil, &regs.ExceptionEntry{ControlType: regs.ExceptionControlTypeFrame, ReasonReason: regs.ExceptionReasonReasonServerFailed})
			}
			out := b.push(0, c.client(flagACK|flagPSH, x.request))[0]
			if len(out) == 0 {
				t.Fatal("the client is sent nothing")
			}
			if s := out[len(out)-1]; s.flags != flagRST|flagACK || s.seq != c.cack || s.ack != c.cseq {
				t.Errorf("the client is sent %v, want RST seq %#x ack %#x", s, c.cack, c.cseq)
			}
			if got := b.r.Get64(x.counter); got != 1 {
				t.Errorf("%s: got %d, want 1", x.counter.Name(), got)
			}
			b.check(t)
			b.allFree(t)
		})
	}
}

// TestServedElsewhere: what the host ends for another reason, or the client, is not counted as a request without a server.
func TestServedElsewhere(t *testing.T) {
	for i, x := range []struct {
		request string
		client  uint8 // what the client sends then
		counter regs.Reg
	}{
		{"GET / HTTP/1.1\r\n\r\n", 0, regs.ConnectionResetHost},
		{"\x16\x03\x01", 0, regs.ConnectionResetHost},
		{request, flagRST, regs.ConnectionAbortClientGone},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			b, c := caseBench(t, world4, regs.ServiceEntry{})
			c.reach(t, WaitHead)
			b.m.Server[regs.ServerControl] |= regs.ServerControlClosedMask
			b.push(0, c.client(flagACK|flagPSH, x.request))
			if x.client != 0 {
				b.push(0, c.client(x.client, ""))
			} else {
				n := b.pageOf(t)
				b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeReset, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20, FlagsToClient: 1})
				b.drain()
			}
			if got, none := b.r.Get64(x.counter), b.r.Get64(regs.ConnectionAbortNoServer); got != 1 || none != 0 {
				t.Errorf("%s: got %d, want 1; abort_no_server: got %d, want 0", x.counter.Name(), got, none)
			}
			b.allFree(t)
		})
	}
}
