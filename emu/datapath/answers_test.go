package datapath

import (
	"testing"
	"time"

	"splicenic/regs"
)

// An answer of the card to a segment out of place may draw the next such segment: the ends of such a war stop.

// warriors are ends that answer whatever the card sends them with another segment out of place.
var warriors = []struct {
	name    string
	state   State
	side    Side
	counter regs.Reg // of the segments that are answered
	segment func(c *conn) []byte
}{
	{"bad acknowledgement of our SYN", SynRcvd, ClientSide, regs.ConnectionDropBadAck, func(c *conn) []byte { c.cack++; return c.client(flagACK, "") }},
	{"RST in range, SYN_RCVD", SynRcvd, ClientSide, regs.ConnectionDropRst, func(c *conn) []byte { c.cseq += 5; return c.client(flagRST, "") }},
	{"old ACK", WaitHead, ClientSide, regs.ConnectionDropDuplicate, func(c *conn) []byte { c.cseq -= 500; return c.client(flagACK, "") }},
	{"ACK beyond", WaitHead, ClientSide, regs.ConnectionDropOutOfOrder, func(c *conn) []byte { c.cseq += 500; return c.client(flagACK, "") }},
	{"wrong acknowledgement", WaitHead, ClientSide, regs.ConnectionDropBadAck, func(c *conn) []byte { c.cack += 500; return c.client(flagACK, "") }},
	{"SYN", WaitHead, ClientSide, regs.ConnectionDropDuplicate, func(c *conn) []byte { return c.client(flagSYN, "", plainOptions...) }},
	{"keep-alive probe", WaitHead, ClientSide, regs.ConnectionDropDuplicate, func(c *conn) []byte { c.cseq--; return c.client(flagACK, "x") }},
	{"RST in range", WaitHead, ClientSide, regs.ConnectionDropRst, func(c *conn) []byte { c.cseq++; return c.client(flagRST, "") }},
	{"data beyond a gap", WaitHead, ClientSide, regs.ConnectionDropOutOfOrder, func(c *conn) []byte { c.cseq += 9; return c.client(flagACK, request) }},
	{"FIN beyond a gap", WaitHead, ClientSide, regs.ConnectionDropOutOfOrder, func(c *conn) []byte { c.cseq += 9; return c.client(flagACK|flagFIN, "") }},
	{"old ACK, SERVER_SYN", ServerSyn, ClientSide, regs.ConnectionDropDuplicate, func(c *conn) []byte { c.cseq -= 500; return c.client(flagACK, "") }},
	{"SYN, SERVER_SYN", ServerSyn, ClientSide, regs.ConnectionDropDuplicate, func(c *conn) []byte { return c.client(flagSYN, "", plainOptions...) }},
	{"data again", ServerSyn, ClientSide, regs.ConnectionDropDuplicate, func(c *conn) []byte { c.cseq -= 9; return c.client(flagACK, request[len(request)-9:]) }},
	{"data beyond, SERVER_SYN", ServerSyn, ClientSide, regs.ConnectionDropOutOfOrder, func(c *conn) []byte { c.cseq += 9; return c.client(flagACK, "x") }},
	{"a server's ACK of another connection", ServerSyn, ServerSide, regs.ConnectionDropBadAck, func(c *conn) []byte { c.sack = 77; return c.server(flagACK, "") }},
	{"a server's SYN-ACK of another connection", ServerSyn, ServerSide, regs.ConnectionDropBadAck, func(c *conn) []byte {
		c.sack = 77
		return c.server(flagSYN|flagACK, "", plainOptions...)
	}},
	{"SYN-ACK again", Spliced, ServerSide, regs.ConnectionDropSynAck, func(c *conn) []byte { return c.server(flagSYN|flagACK, "", plainOptions...) }},
	{"SYN-ACK again, CLOSING", Closing, ServerSide, regs.ConnectionDropSynAck, func(c *conn) []byte { return c.server(flagSYN|flagACK, "", plainOptions...) }},
	{"below H", Spliced, ClientSide, regs.ConnectionDropBelowHeld, func(c *conn) []byte { c.cseq -= 9; return c.client(flagACK, request[len(request)-9:]) }},
}

// TestAnswersAreBounded: a war between the card and an end makes geometry.max_answers answers between two looks of the
// scan, whatever it is about, and not one less; the rest counts as storm.
func TestAnswersAreBounded(t *testing.T) {
	for _, x := range warriors {
		t.Run(x.name, func(t *testing.T) {
			b, c := caseBench(t, world4, regs.ServiceEntry{})
			if x.counter == regs.ConnectionDropBelowHeld {
				c.reach(t, ServerSyn)
				one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1])
			} else {
				c.reach(t, x.state)
			}
			if x.state == ServerSyn && x.side == ServerSide { // the first draws our SYN again
				y := *c
				b.push(1, x.segment(&y))
				b.r.Set64(x.counter, 0)
			}
			b.rest()
			for round := range uint64(3) {
				answers, segments := uint64(0), uint64(0)
				for answered := true; answered; segments++ {
					if segments > 100 {
						t.Fatal("the war does not end")
					}
					y := *c
					out := b.push(int(x.side), x.segment(&y))
					if answered = len(out[x.side]) != 0; answered {
						answers++
						if len(out[x.side]) != 1 {
							t.Fatalf("one segment draws %v", out)
						}
					}
					if len(out[1-x.side]) != 0 {
						t.Fatalf("the other end gets %v", out[1-x.side])
					}
				}
				if answers != maxAnswers || segments != maxAnswers+1 {
					t.Errorf("round %d: %d answers to %d segments, want %d", round, answers, segments, maxAnswers)
				}
				if got := b.r.Get64(x.counter); got != (round+1)*maxAnswers {
					t.Errorf("round %d: %s: got %d, want %d", round, x.counter.Name(), got, (round+1)*maxAnswers)
				}
				if got := b.r.Get64(regs.ConnectionDropStorm); got != round+1 {
					t.Errorf("round %d: drop_storm: got %d, want %d", round, got, round+1)
				}
				b.rest()
			}
			b.check(t)
		})
	}
}

// TestAnswersUsedUpHarmNobody: with no answer left a connection comes to its splice all the same: new bytes, a repeated
// SYN and the handshake of the server are no segments out of place.
func TestAnswersUsedUpHarmNobody(t *testing.T) {
	for _, w := range []world{world4, world6} {
		b, c := caseBench(t, w, regs.ServiceEntry{})
		use := func() {
			t.Helper()
			link := &b.c.page(b.pageOf(t))[regs.PageClientLink]
			*link |= regs.PageClientLinkAnswersMask
		}
		syn := c.client(flagSYN, "", plainOptions...)
		c.cack = one(t, b.push(0, syn)[0]).seq + 1
		for range 20 {
			use()
			one(t, b.push(0, syn)[0])
		}
		use()
		b.push(0, c.client(flagACK, ""))
		for i := range request {
			use()
			if ack := one(t, b.push(0, c.client(flagACK, request[i:i+1]))[0]); ack.ack != c.cseq {
				t.Fatalf("byte %d: %v", i, ack)
			}
		}
		use()
		if ack := one(t, b.push(0, c.client(flagACK, "more"))[0]); ack.ack != c.cseq {
			t.Fatalf("bytes behind the head: %v", ack)
		}
		c.sack = c.cseq - uint32(len(request)) - 4
		use()
		if s := one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1]); string(s.payload) != request+"more" {
			t.Errorf("held: %v", s)
		}
		c.sack = c.cseq
		use()
		one(t, b.push(1, c.server(flagACK, "response"))[0])
		if got := b.r.Get64(regs.ConnectionDropStorm); got != 0 {
			t.Errorf("drop_storm: got %d, want 0", got)
		}
	}
}

// TestTwoEndsInAWar: two ends that lost each other, one behind the card's answers and one behind the other end's, send
// nothing more than they are sent.
func TestTwoEndsInAWar(t *testing.T) {
	b, c := caseBench(t, world4, regs.ServiceEntry{})
	c.reach(t, ServerSyn)
	b.rest()
	sent := 0
	for range 30 { // three seconds
		wire := [2]int{1, 1} // segments on the way to the card
		for wire[0]+wire[1] > 0 {
			for side := range wire {
				n := wire[side]
				wire[side] = 0
				for range n {
					x := *c
					var out [2][]tcp
					if side == 0 {
						x.cseq -= 5
						out = b.push(0, x.client(flagACK, ""))
					} else {
						x.sack += 5
						out = b.push(1, x.server(flagACK, ""))
					}
					for p := range out {
						wire[p] += len(out[p])
						sent += len(out[p])
					}
				}
			}
			if sent > 30*maxAnswers+1 { // our SYN again
				t.Fatalf("%d answers", sent)
			}
		}
		b.rest()
	}
	if sent == 0 || b.state(c) != WaitHead { // without a server
		t.Errorf("%d answers, state %d", sent, b.state(c))
	}
}

// TestKeepAliveIsAnswered: a client that probes before its splice is told every time what the card has, until the time
// of the state is over; a host that decides does not keep it from that.
func TestKeepAliveIsAnswered(t *testing.T) {
	for _, deciding := range []bool{false, true} {
		b, c := caseBench(t, world4, regs.ServiceEntry{})
		c.reach(t, WaitHead)
		if deciding {
			b.m.Server[regs.ServerControl] |= regs.ServerControlClosedMask
			b.push(0, c.client(flagACK, request))
		}
		for range 20 {
			b.wait(time.Second)
			for _, payload := range []string{"", "x"} {
				x := *c
				x.cseq--
				if s := one(t, b.push(0, x.client(flagACK, payload))[0]); s.flags != flagACK || s.ack != c.cseq || s.seq != c.cack {
					t.Errorf("deciding %v: a keep-alive probe draws %v", deciding, s)
				}
			}
		}
		b.wait(12 * time.Second)
		b.allFree(t)
	}
}
