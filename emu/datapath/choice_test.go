package datapath

import (
	"slices"
	"testing"
	"time"

	"splicenic/regs"
)

// TestPick walks slots in order, passes over servers that are closed or cannot be reached, and follows the selector.
func TestPick(t *testing.T) {
	b := newBench(t, smallGeometry())
	for i := range 4 {
		w := world4
		w.server = addressAt(world4.server, i)
		b.serve(w, i, regs.ServiceEntry{})
	}
	slots := int(b.m.Geometry.Slots)
	for i, s := range []uint32{0, 1, 0, 2, 3} {
		set(b.m.Slot, i, regs.SlotWords, &regs.SlotEntry{SlotServer: s, SlotValid: 1})
	}
	set(b.m.Slot, slots, regs.SlotWords, &regs.SlotEntry{SlotServer: 3, SlotValid: 1})
	selector := func(area, a, bb uint32) {
		b.m.GroupState[regs.GroupStateSelector] = regs.SetGroupStateSelectorCountB(regs.SetGroupStateSelectorCountA(area, a), bb)
	}
	picks := func(n int) (got []int) {
		for range n {
			i, ok := b.c.pick(0, 0, &chooser{kind: kindIPv4})
			if !ok {
				got = append(got, -1)
				continue
			}
			got = append(got, int(i))
		}
		return got
	}
	for _, tt := range []struct {
		name string
		set  func()
		want []int
	}{
		{"in order", func() { selector(0, 5, 1) }, []int{0, 1, 0, 2, 3, 0, 1}},
		{"other area", func() { selector(1, 5, 1) }, []int{3, 3, 3}},
		{"back", func() { selector(0, 5, 1) }, []int{1, 0, 2, 3}},
		{"closed", func() { b.m.Server[regs.ServerControl] |= regs.ServerControlClosedMask }, []int{1, 2, 3, 1}},
		{"next hop unresolved", func() { b.m.NextHop[1*regs.NextHopWords] &^= regs.NextHopControlResolvedMask }, []int{2, 3, 2}},
		{"next hop out of range", func() { b.m.Server[2*regs.ServerWords+regs.ServerRoute] = 0xffff }, []int{3, 3}},
		{"another family", func() { b.m.Server[3*regs.ServerWords] ^= (kindIPv4 ^ kindIPv6) << regs.ServerControlKindShift }, []int{-1, -1}},
		{"open again", func() { b.m.Server[regs.ServerControl] &^= regs.ServerControlClosedMask }, []int{0, 0, 0}},
		{"no slots", func() { selector(0, 0, 0) }, []int{-1}},
		{"more slots than there are", func() { selector(0, 0x7fff, 0) }, []int{-1}},
		{"group not in force", func() { selector(0, 5, 0); b.m.Group[0][regs.GroupControl] = 0 }, []int{-1}},
	} {
		tt.set()
		if got := picks(len(tt.want)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestRemovedService: a connection whose service is gone from the tables when its request comes is the host's to decide;
// no other service's rules take it.
func TestRemovedService(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	// The other bank has no such service; node 0 there is the root of somebody's rules that take everything.
	clear(b.m.Service[1])
	set(b.m.Url[1], 0, regs.UrlNodeWords, &regs.UrlNodeEntry{ControlUsed: 1, NextNode: 1, NextValid: 1})
	set(b.m.Url[1], 1, regs.UrlNodeWords, &regs.UrlNodeEntry{ControlUsed: 1, ControlFinal: 1, TakeCount: 1})
	set(b.m.Rule[1], 0, regs.RuleWords, &regs.RuleEntry{ControlValid: 1, ControlGroup: 0})
	b.r.Set(regs.TableBank, 1)
	b.m.Dirty = ^uint32(0)
	if out := b.push(0, c.client(flagACK, request)); len(out[1]) != 0 {
		t.Errorf("the request goes to %v", out[1])
	}
	if g := b.exceptions(); len(g) != 1 || g[0].ReasonReason != reasonNoRule {
		t.Errorf("exceptions %+v, want one no_rule", g)
	}
	b.check(t)
}

// TestRuleNotInForce: a rule that the URL table lists and the rule table does not have in force takes nothing.
func TestRuleNotInForce(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	set(b.m.Url[0], 0, regs.UrlNodeWords, &regs.UrlNodeEntry{ControlUsed: 1, NextNode: 1, NextValid: 1})
	set(b.m.Url[0], 1, regs.UrlNodeWords, &regs.UrlNodeEntry{ControlUsed: 1, ControlFinal: 1, TakeCount: 1, TakeSure: 1})
	set(b.m.Rule[0], 0, regs.RuleWords, &regs.RuleEntry{ControlGroup: 9})
	if s := one(t, b.push(0, c.client(flagACK, request))[1]); s.to != world4.server {
		t.Errorf("the request goes to %v, want the default's server", s)
	}
	b.check(t)
}

// TestBankSwitch: a store of the bank register switches rules for requests that come after; connections go on.
func TestBankSwitch(t *testing.T) {
	b := newBench(t, smallGeometry())
	other := world4
	other.server = world4.server.Next()
	b.serve(world4, 0, regs.ServiceEntry{})
	b.serve(world{client: other.client, vip: other.vip.Next(), server: other.server, kind: kindIPv4}, 1, regs.ServiceEntry{})
	set(b.m.Service[1], 0, regs.ServiceWords, &regs.ServiceEntry{ControlValid: 1, ControlHasDefault: 1, DefaultGroup: 1, PromiseMssIpv4: 1460})
	b.now = time.Second
	first, second := b.waiting(t, plainOptions), b.waiting(t, plainOptions)
	if s := one(t, b.push(0, first.client(flagACK, request))[1]); s.to != world4.server {
		t.Errorf("before the switch: %v", s)
	}
	b.r.Set(regs.TableBank, 1|7<<8)
	if s := one(t, b.push(0, second.client(flagACK, request))[1]); s.to != other.server {
		t.Errorf("after the switch: %v", s)
	}
	first.sack = first.cseq - uint32(len(request))
	if got := first.serverBytes(t, first.sack); got != request {
		t.Errorf("the first connection goes on with %q", got)
	}
	for i := range regs.Reg(2) {
		if got := b.r.Get(regs.TableInUse + i*regs.TableInUseStride); got != 0 {
			t.Errorf("in_use of bank %d: got %d, want 0", i, got)
		}
	}
	b.check(t)
}

// TestOneArmed: with both subnets behind one port the CAM that hits tells the side.
func TestOneArmed(t *testing.T) {
	for _, w := range []world{world4, world6} {
		b := newBench(t, smallGeometry())
		b.serve(w, 0, full)
		b.c.SetOneArmed(true)
		b.now = time.Second
		c := &conn{b: b, w: w, port: 40001, cseq: 100, sseq: 200, opts: plainOptions, sopts: plainOptions}
		c.cack = one(t, b.push(0, c.client(flagSYN, "", plainOptions...))[0]).seq + 1
		b.push(0, c.client(flagACK, ""))
		out := b.push(0, c.client(flagACK, request))
		if len(out[1]) != 0 || len(out[0]) != 2 || out[0][1].flags != flagSYN || out[0][1].to != w.server || out[0][1].srcMAC != portMAC[0] {
			t.Fatalf("request draws %v, want ACK and our SYN on the one port", out)
		}
		c.sack = 101
		if out := b.push(0, c.server(flagSYN|flagACK, "", plainOptions...))[0]; len(out) != 2 || string(out[0].payload) != request || out[0].to != w.server || out[1].to != w.client {
			t.Fatalf("SYN-ACK draws %v, want the request and the server's window", out)
		}
		c.sack = c.cseq
		if s := one(t, b.push(0, c.server(flagACK, "response"))[0]); s.to != w.client || s.from != w.vip || s.srcMAC != portMAC[0] || s.dstMAC != clientMAC {
			t.Errorf("response goes on as %v", s)
		}
		c.cack += 8
		if s := one(t, b.push(0, c.client(flagACK, "more"))[0]); s.to != w.server || s.from != w.client || s.dstMAC != serverMAC {
			t.Errorf("request goes on as %v", s)
		}
		b.check(t)
	}
}

// TestClientBehindServerPort: a client is answered on the port and with the addresses its SYN came with.
func TestClientBehindServerPort(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, full)
	b.now = time.Second
	c := &conn{b: b, w: world4, port: 40001, cseq: 100, sseq: 200, opts: plainOptions}
	sa := one(t, b.push(1, c.client(flagSYN, "", plainOptions...))[1])
	if sa.flags != flagSYN|flagACK || sa.srcMAC != portMAC[1] {
		t.Errorf("got %v", sa)
	}
}

// TestTTL: a hop is taken off both ways, and where none is left the host gets the frame as it came.
func TestTTL(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		for side := range Side(sides) {
			b, c := caseBench(t, w, full)
			c.reach(t, Spliced)
			for ttl := range 256 {
				if ttl == 0 {
					continue // the builder takes zero for 64
				}
				s := tcp{from: w.client, to: w.vip, sport: c.port, dport: 80, seq: c.cseq, ack: c.cack, flags: flagACK, ttl: uint8(ttl), srcMAC: clientMAC, dstMAC: portMAC[0]}
				if side == ServerSide {
					s.from, s.to, s.sport, s.dport, s.seq, s.ack = w.server, w.client, 8080, c.port, c.sseq, c.sack
				}
				raw := buildFrame(t, &s)
				out := b.push(int(side), raw)
				given := b.exceptions()
				if ttl == 1 {
					n := b.pageOf(t)
					if len(out[1-side]) != 0 || len(given) != 1 || given[0].ReasonReason != reasonTTL || given[0].HandleN != n || given[0].ReasonSide != uint32(side) || string(given[0].frame) != string(raw) {
						t.Errorf("side %d, TTL 1: %v, exceptions %+v", side, out, given)
					}
					continue
				}
				if got := one(t, out[1-side]); int(got.ttl) != ttl-1 || len(given) != 0 {
					t.Errorf("side %d, TTL %d: goes on with %d", side, ttl, got.ttl)
				}
			}
		}
	}
}

// TestTickWrap takes connections across the end of the millisecond clock: nothing expires early, nothing stays.
func TestTickWrap(t *testing.T) {
	for _, before := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 3 * time.Second} {
		b := newBench(t, smallGeometry())
		b.serve(world4, 0, full)
		b.now = 1<<32*time.Millisecond - before
		b.c.Advance(b.now)
		b.r.Set64(regs.TimerSwept, uint64(b.now/time.Microsecond))
		b.r.Set(regs.TimerIdle, 6000)
		b.r.Set(regs.TimerRetransmitMax, 1000)
		b.r.Set(regs.TimerRetransmitLimit, 3)
		spliced := &conn{b: b, w: world4, port: 40001, cseq: 1, sseq: 2, opts: plainOptions, sopts: plainOptions}
		spliced.reach(t, Spliced)
		silent := &conn{b: b, w: world4, port: 40002, cseq: 1, opts: plainOptions}
		silent.reach(t, SynRcvd)
		out := b.wait(3500 * time.Millisecond)
		if len(out[0]) != 3 || b.r.Get64(regs.TransmitResentSyn) != 3 {
			t.Errorf("%v before the end: SYN-ACK sent again %d times in 3.5 s, want 3", before, len(out[0]))
		}
		one(t, b.push(1, spliced.server(flagACK, "still there"))[0])
		b.wait(5800 * time.Millisecond)
		if got := b.r.Get(regs.AmuLive); got != 1 {
			t.Errorf("%v before the end: live %d, want the spliced one", before, got)
		}
		b.wait(400 * time.Millisecond)
		b.allFree(t)
	}
}
