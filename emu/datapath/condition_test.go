package datapath

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// conditionCase brings a card to where a condition decides and injects the segment that meets it.
type conditionCase struct {
	at   State // of the connection before
	side Side
	act  func(t *testing.T, b *bench, c *conn) []byte // prepares, and returns the segment
}

// key names a condition.
func (x Condition) key() string { return fmt.Sprintf("%v: %s", x.Verdict, x.When) }

var conditionCases = map[string]conditionCase{
	key(VerdictPass, "no service of the listener takes the client"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.serve4(world4, 0, modeNAT, func(e *regs.ServiceEntry) { e.SourceFirst, e.SourceCount = 5, 1 })
		return c.client(flagSYN, "")
	}},
	key(VerdictPass, "the group has no server that takes the client"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.serve4(world4, 0, modeNAT, nil)
		b.m.GroupState[regs.GroupStateSelector] = 0
		return c.client(flagSYN, "")
	}},
	key(VerdictPass, "no page or no CAM place is free"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.serve4(world4, 0, modeNAT, nil)
		for b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeAllocate}).ControlStatus == statusOK {
		}
		return c.client(flagSYN, "")
	}},
	key(VerdictSloppy, "the service takes connections in their middle, and has no server for this one"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.serve4(world4, 0, modeNAT, func(e *regs.ServiceEntry) { e.ControlSloppy = 1 })
		b.m.GroupState[regs.GroupStateSelector] = 0
		return c.client(flagACK, "")
	}},
	key(VerdictTranslate, "payload of a connection with an application module"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.serve4(world4, 0, modeNAT, func(e *regs.ServiceEntry) { e.ControlModule = 1 })
		c.shake(t, modeNAT)
		b.exceptions()
		return c.client(flagACK, "PORT")
	}},
	key(VerdictOpen, "no listener for address and port"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.m.Listener[0][regs.ListenerControl], b.m.Dirty = 0, ^uint32(0)
		return c.client(flagSYN, "")
	}},
	key(VerdictOpen, "the host holds the key"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.hostPage(t, c)
		return c.client(flagSYN, "")
	}},
	key(VerdictOpen, "the unit is disabled"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.r.Set(regs.AmuControl, 0)
		return c.client(flagSYN, "")
	}},
	key(VerdictOpen, "address list empty and quarantine too"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		for b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeAllocate}).ControlStatus == statusOK {
		}
		return c.client(flagSYN, "")
	}},
	key(VerdictOpen, "no CAM place within the bound"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.fillCAM(t, ClientSide)
		return c.client(flagSYN, "")
	}},
	key(VerdictEstablish, "does not acknowledge our SYN"): {SynRcvd, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cack++
		return c.client(flagACK, "")
	}},
	key(VerdictServerAckAgain, "another than that of the handshake"): {Spliced, ServerSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.server(flagSYN|flagACK, "")
	}},
	key(VerdictHold, "no head buffer free"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.r.Set(regs.HeadFree, 0)
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "bytes all held already"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		again := c.client(flagACK|flagPSH, request[:9])
		b.push(0, again)
		return again
	}},
	key(VerdictHold, "begins beyond a gap"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cseq++
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "the host is deciding"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.push(0, c.client(flagACK|flagPSH, "\x16\x03\x01"))
		b.exceptions()
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "the FIN comes before the end of the head"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.client(flagACK|flagFIN, request[:9])
	}},
	key(VerdictHold, "head does not fit its buffer"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.window = 500
		b.push(0, c.client(flagACK|flagPSH, "GET /"+strings.Repeat("a", 5000)))
		return c.client(flagACK|flagPSH, strings.Repeat("a", 5000))
	}},
	key(VerdictHold, "the host gathers the request, and waits for more"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.gathering(t, c)
		return c.client(flagACK|flagPSH, "more")
	}},
	key(VerdictHold, "the host gathers the request, and has not taken all of it"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.gathering(t, c)
		b.push(0, c.client(flagACK|flagPSH, "more"))
		b.exceptions()
		return c.client(flagACK|flagPSH, "and more")
	}},
	key(VerdictHold, "the host gathers the request; no room is left"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.gathering(t, c)
		b.push(0, c.client(flagACK|flagPSH, strings.Repeat("m", regs.HeadBytes)))
		b.exceptions()
		return c.client(flagACK|flagPSH, "more")
	}},
	key(VerdictClientGone, "the host gathers the request"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.gathering(t, c)
		return c.client(flagACK|flagFIN, "")
	}},
	key(VerdictTranslate, "from the server, acknowledges a head buffer to its end, and more is owed; no payload"): {Free, ServerSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.reach(t, WaitHead)
		b.long(t, c)
		c.sack += regs.HeadBytes
		return c.server(flagACK, "")
	}},
	key(VerdictTranslate, "from the server, acknowledges what the host has not given yet; no payload"): {Free, ServerSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.reach(t, WaitHead)
		b.long(t, c)
		c.sack += regs.HeadBytes + 1
		return c.server(flagACK, "")
	}},
	key(VerdictHold, "head is no legal request"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.client(flagACK|flagPSH, "GET / HTTP/1.1\r\n\r\n")
	}},
	key(VerdictHold, "no rule and no default"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.m.Service[0][regs.ServiceControl] &^= regs.ServiceControlHasDefaultMask
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "the group has no server"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.m.Server[regs.ServerControl] |= regs.ServerControlClosedMask
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "a live connection has the server-side key"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		n := b.pageOf(t)
		done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeCamInsert, FlagsServerSide: 1, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20,
			KeyControlKind: c.w.kind, KeyControlProtocol: protocolTCP, KeyPortsPort: uint32(c.port), Value: words(c.w.client)[0]})
		if done.ControlStatus != statusOK {
			t.Fatalf("cam_insert: status %d", done.ControlStatus)
		}
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "a connection in quarantine has the server-side key"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.quarantined(t, c)
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "no server-side CAM place within the bound"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.fillCAM(t, ServerSide)
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "acknowledges what we did not send"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cack++
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictHold, "the head is not whole yet"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.client(flagACK|flagPSH, request[:9])
	}},
	key(VerdictClientGone, "the FIN repeats"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cseq--
		return c.client(flagACK|flagFIN, "")
	}},
	key(VerdictClientGone, "the FIN is beyond a gap"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cseq++
		return c.client(flagACK|flagFIN, "")
	}},
	key(VerdictClientGone, "acknowledges what we did not send"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cseq, c.cack = c.cseq+1, c.cack+1
		return c.client(flagACK|flagFIN, "")
	}},
	key(VerdictProbe, "acknowledges what we did not send"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cack++
		return c.client(flagACK, "")
	}},
	key(VerdictProbe, "begins beyond a gap"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cseq++
		return c.client(flagACK, "")
	}},
	key(VerdictProbe, "repeats"): {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cseq--
		return c.client(flagACK, "x")
	}},
	key(VerdictProbe, "no room is left"): {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.push(0, c.client(flagACK, strings.Repeat("b", 8192-len(request))))
		return c.client(flagACK, "b")
	}},
	key(VerdictAppend, "acknowledges what we did not send"): {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cack--
		return c.client(flagACK|flagPSH, "more")
	}},
	key(VerdictAppend, "bytes all held already"): {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cseq -= 4
		return c.client(flagACK|flagPSH, "\r\n\r\n")
	}},
	key(VerdictAppend, "begins beyond a gap"): {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cseq++
		return c.client(flagACK|flagPSH, "more")
	}},
	key(VerdictAppend, "no room behind the head"): {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.push(0, c.client(flagACK, strings.Repeat("b", 8192-len(request))))
		return c.client(flagACK, "bb")
	}},
	key(VerdictServerSynAck, "does not acknowledge our SYN"): {ServerSyn, ServerSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.sack++
		return c.server(flagSYN|flagACK, "", plainOptions...)
	}},
	key(VerdictServerSynAck, "keeps less than was promised"): {ServerSyn, ServerSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.server(flagSYN|flagACK, "", optMSS(1459))
	}},
	key(VerdictServerRefused, "acknowledges our SYN"): {ServerSyn, ServerSide, func(t *testing.T, b *bench, c *conn) []byte {
		return c.server(flagRST|flagACK, "")
	}},
	key(VerdictServerStale, "answers a SYN of ours so for the third time"): {ServerSyn, ServerSide, func(t *testing.T, b *bench, c *conn) []byte {
		x := *c
		x.sseq, x.sack = 77, 99
		stale := x.server(flagACK, "")
		b.push(1, stale)
		b.push(1, stale)
		b.wait(1110 * time.Millisecond)
		return stale
	}},
	key(VerdictClientGone, "the host is deciding"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.push(0, c.client(flagACK|flagPSH, "\x16\x03\x01"))
		b.exceptions()
		return c.client(flagACK|flagFIN, "")
	}},
	key(VerdictTranslate, "the card is the server; payload"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.answer(t, c)
		return c.client(flagACK, "more")
	}},
	key(VerdictTranslate, "the card is the server; acknowledges what was never sent"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.answer(t, c)
		c.cack += 1000
		return c.client(flagACK, "")
	}},
	key(VerdictTranslate, "the card is the server; repeats a byte"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.answer(t, c)
		c.cack += uint32(len(unavailable)) + 1
		c.cseq--
		return c.client(flagACK, "x")
	}},
	key(VerdictTranslateFIN, "the card is the server"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.answer(t, c)
		return c.client(flagACK|flagFIN, "")
	}},
	key(VerdictTranslate, "the card is the server; a RST in range"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.answer(t, c)
		c.cseq++
		return c.client(flagRST, "")
	}},
	key(VerdictTranslateRST, "the card is the server; exact"): {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.answer(t, c)
		return c.client(flagRST, "")
	}},
	key(VerdictTranslate, "from the client, wholly below H"): {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))
		c.cseq -= 10
		return c.client(flagACK, request[len(request)-10:])
	}},
	key(VerdictTranslate, "from the client, across H"): {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))
		c.cseq -= 10
		return c.client(flagACK, request[len(request)-10:]+"new")
	}},
	key(VerdictTranslate, "from the server, acknowledges below H, no payload"): {ServerSyn, ServerSide, func(t *testing.T, b *bench, c *conn) []byte {
		// A window of 100 bytes holds the tail of a head of 8,192 back.
		b.push(0, c.client(flagACK, strings.Repeat("b", 8192-len(request))))
		c.serverWindow = 100
		b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))
		c.sack += 100
		return c.server(flagACK, "")
	}},
	key(VerdictTranslate, "TTL or hop limit used up"): {Spliced, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		return buildFrame(t, &tcp{from: c.w.client, to: c.w.vip, sport: c.port, dport: 80, seq: c.cseq, ack: c.cack, flags: flagACK, ttl: 1, srcMAC: clientMAC, dstMAC: portMAC[0]})
	}},
	key(VerdictTranslate, "larger than the next network takes, and not to be cut"): {Spliced, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.m.NextHop[regs.NextHopMacHi] = regs.SetNextHopMacHiMtu(b.m.NextHop[regs.NextHopMacHi], 600)
		return c.client(flagACK, strings.Repeat("x", 561))
	}},
	key(VerdictTranslate, "next hop not resolved"): {Spliced, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.m.NextHop[regs.NextHopControl] &^= regs.NextHopControlResolvedMask
		return c.client(flagACK, "more")
	}},
	key(VerdictOpen, "its source has no token left"): {Free, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.serve(c.w, 0, regs.ServiceEntry{ControlDefence: regs.ServiceControlDefenceAuto})
		b.spend()
		return c.client(flagSYN, "")
	}},
	key(VerdictCookie, "its source has no token left"): {Stateless, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.spend()
		return c.client(flagSYN, "")
	}},
	key(VerdictProve, "brings no valid cookie back"): {Stateless, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cack ^= 1 << 9
		return c.client(flagACK|flagPSH, request)
	}},
	key(VerdictProve, "brings no valid cookie back, for a service without defence"): {Stateless, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.serve(c.w, 0, regs.ServiceEntry{})
		c.cack ^= 1 << 9
		return c.client(flagACK, "")
	}},
	key(VerdictProve, "no page, no CAM place, or the unit is disabled"): {Stateless, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		b.fillCAM(t, ClientSide)
		return c.client(flagACK, "")
	}},
	key(VerdictReopen, "SYN not newer than the connection"): {Quarantine, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
		c.cseq -= 20
		return c.client(flagSYN, "")
	}},
}

// addStorms adds the cases that stand elsewhere, and those where the answers that a connection is given are used up.
func addStorms() {
	maps.Copy(conditionCases, decideConditions)
	for v, k := range map[Verdict]conditionCase{
		VerdictEstablish:  {SynRcvd, ClientSide, func(t *testing.T, b *bench, c *conn) []byte { c.cack++; return c.client(flagACK, "") }},
		VerdictProbe:      {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte { c.cseq--; return c.client(flagACK, "") }},
		VerdictHold:       {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte { c.cseq++; return c.client(flagACK, request) }},
		VerdictAppend:     {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte { c.cseq++; return c.client(flagACK, "more") }},
		VerdictClientGone: {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte { c.cseq++; return c.client(flagFIN|flagACK, "") }},
		VerdictChallenge:  {WaitHead, ClientSide, func(t *testing.T, b *bench, c *conn) []byte { c.cseq++; return c.client(flagRST, "") }},
		VerdictServerSynAck: {ServerSyn, ServerSide, func(t *testing.T, b *bench, c *conn) []byte {
			c.sack++
			return c.server(flagSYN|flagACK, "", plainOptions...)
		}},
		VerdictServerStale:    {ServerSyn, ServerSide, func(t *testing.T, b *bench, c *conn) []byte { return c.server(flagACK, "") }},
		VerdictServerAckAgain: {Spliced, ServerSide, func(t *testing.T, b *bench, c *conn) []byte { return c.server(flagSYN|flagACK, "") }},
		VerdictTranslate: {ServerSyn, ClientSide, func(t *testing.T, b *bench, c *conn) []byte {
			b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))
			c.cseq -= 10
			return c.client(flagACK, request[len(request)-10:])
		}},
	} {
		act := k.act
		k.act = func(t *testing.T, b *bench, c *conn) []byte {
			raw := act(t, b, c)
			b.c.page(b.pageOf(t))[regs.PageClientLink] |= regs.PageClientLinkAnswersMask
			return raw
		}
		conditionCases[key(v, usedUp)] = k
	}
}

// TestEveryDropIsInTheTable: whatever a connection drops a segment for stands in a row or a condition.
func TestEveryDropIsInTheTable(t *testing.T) {
	in := map[regs.Reg]bool{
		regs.ConnectionDropOutputFull: true, // no row: any that sends
	}
	for _, row := range Table() {
		in[row.Counter] = true
	}
	for _, x := range Conditions() {
		in[x.Counter] = true
	}
	for i := range regs.Blocks {
		if b := &regs.Blocks[i]; b.Name == "connection" {
			for _, r := range b.Registers {
				if strings.HasPrefix(r.Name, "drop_") && !in[regs.Reg(b.Offset+r.Offset)] {
					t.Errorf("connection.%s stands in no row and no condition", r.Name)
				}
			}
		}
	}
}

func key(v Verdict, when string) string { return Condition{Verdict: v, When: when}.key() }

var reasonNames = map[string]uint32{
	"no_match": reasonNoMatch, "head_too_large": reasonHeadLarge, "bad_request": reasonBad, "no_rule": reasonNoRule,
	"h2c": reasonH2C, "not_http": reasonNotHTTP, "not_tls": reasonNotTLS, "bad_hello": reasonBadHello, "rule_host": reasonRuleHost, "answer": reasonAnswer, "rewrite": reasonRewrite,
	"no_server": reasonNoServer, "ttl": reasonTTL, "too_big": reasonTooBig, "head_more": reasonHeadMore, "held_more": reasonHeldMore, "server_failed": reasonServerFailed, "module": reasonModule, "key_exists": reasonKeyExists,
}

func TestConditions(t *testing.T) {
	addStorms()
	listed := map[string]bool{}
	for _, x := range Conditions() {
		listed[x.key()] = true
		t.Run(strings.ReplaceAll(x.key(), ":", ""), func(t *testing.T) {
			k, ok := conditionCases[x.key()]
			if !ok {
				t.Fatalf("no case brings %q about", x.When)
			}
			checkCondition(t, x, k)
		})
	}
	for name := range conditionCases {
		if !listed[name] {
			t.Errorf("case %q has no condition", name)
		}
	}
}

func checkCondition(t *testing.T, x Condition, k conditionCase) {
	b, c := stage(t, k.at, k.side)
	raw := k.act(t, b, c)
	b.push(0)
	kind, _ := b.kindOf(int(k.side), raw)
	o := b.inject(int(k.side), raw)
	if row := table[b.before(o, c, k)][k.side][kind]; row.Verdict != x.Verdict {
		t.Errorf("the segment meets verdict %v, not %v", row.Verdict, x.Verdict)
	}
	cs := clauses(t, x.Sends, k.side)
	found := make([]bool, len(cs))
	for _, s := range o.sent {
		ok := false
		for i, want := range cs {
			if want.takes(s) {
				found[i], ok = true, true
			}
		}
		if !ok {
			t.Errorf("sends %v on port %d; the condition says %q", s, s.port, x.Sends)
		}
	}
	for i, ok := range found {
		if !ok && !cs[i].conditional {
			t.Errorf("does not send clause %d of %q", i, x.Sends)
		}
	}
	if o.forwarded != 0 {
		t.Errorf("went on %d times", o.forwarded)
	}
	if x.Counter != 0 {
		if got := o.before.grown(o.after, x.Counter); got != 1 {
			t.Errorf("%s grew by %d, want 1", x.Counter.Name(), got)
		}
	}
	if x.Executor == Card {
		if len(o.given) != 0 {
			t.Errorf("given to the host: reason %d", o.given[0].ReasonReason)
		}
		return
	}
	name, ok := strings.CutPrefix(x.Does, "exception ")
	if !ok || reasonNames[name] == 0 {
		t.Fatalf("a condition of the host says %q", x.Does)
	}
	if len(o.given) != 1 || o.given[0].ReasonReason != reasonNames[name] {
		t.Errorf("exceptions %v, want one with reason %d", o.given, reasonNames[name])
	}
}

// before is the state the segment met.
func (b *bench) before(o outcome, c *conn, k conditionCase) State {
	pages := o.before.memories["pages"]
	for n := range int(b.m.Geometry.Pages) {
		w := pages[n*regs.PageWords:]
		if w[regs.PageControl]&regs.PageControlValidMask != 0 && regs.PagePortsClient(w[regs.PagePorts]) == uint32(c.port) {
			s := State(regs.PageControlState(w[regs.PageControl]))
			if w[regs.PageClientLink]&regs.PageClientLinkPassedMask != 0 {
				s = passedStates[s]
			}
			return s
		}
	}
	if passes(b.c.service(0)) {
		return PassedFree
	}
	if k.at == Stateless {
		return Stateless
	}
	return Free
}

// kindOf is the kind that the data path acts on, and whether it looks closer than the parser.
func (b *bench) kindOf(port int, raw []byte) (k Kind, closer bool) {
	f := &b.buf[0]
	f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	c, p := b.c, &packet{}
	c.Sync()
	if c.parse(port, f, p); p.class != classTCP {
		return p.segment, false
	}
	c.keys(p)
	if c.look(p); !p.hit {
		return p.segment, false
	}
	w := c.page(p.handle & handleMask)
	state := State(regs.PageControlState(w[regs.PageControl]))
	if isPassed(w) {
		p.passed, state = true, passedStates[state]
	}
	if closer = refined[state][p.side]>>p.segment&1 != 0; closer {
		return c.refine(p, w, state), true
	}
	return p.segment, false
}

func kindOf(t *testing.T, raw []byte) Kind {
	s := parseFrame(t, raw)
	return classify(s.flags, uint32(len(s.payload)))
}

// hostPage gives the host a page and the client-side key of c.
func (b *bench) hostPage(t *testing.T, c *conn) uint32 {
	t.Helper()
	done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeAllocate})
	e := regs.CommandEntry{ControlType: regs.CommandControlTypeCamInsert, HandleN: done.HandleN, HandleGeneration: done.HandleGeneration,
		KeyControlKind: c.w.kind, KeyControlProtocol: protocolTCP, KeyPortsPort: uint32(c.port), KeyPortsDestination: 80, Value: words(c.w.client)[0]}
	if got := b.command(e); got.ControlStatus != statusOK {
		t.Fatalf("cam_insert: status %d", got.ControlStatus)
	}
	return done.HandleN
}

// fillCAM puts keys of the host into a CAM until one is refused that differs from the test's own only in the address.
func (b *bench) fillCAM(t *testing.T, side Side) {
	t.Helper()
	done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeAllocate})
	for i := range uint32(1 << 20) {
		e := regs.CommandEntry{ControlType: regs.CommandControlTypeCamInsert, FlagsServerSide: uint32(side), HandleN: done.HandleN, HandleGeneration: done.HandleGeneration,
			KeyControlKind: kindIPv4, KeyControlProtocol: protocolTCP, KeyPortsPort: 9, KeyIndexIndex: 9, Value: i}
		if got := b.command(e); got.ControlStatus == statusNoPlace && b.r.Get(regs.CamFree+regs.Reg(side)*regs.CamStride) == 0 {
			return
		}
	}
	t.Fatal("the CAM never fills")
}

// TestConditionsAreReachable keeps the list of verdicts and conditions together: every condition's verdict stands in the
// state table.
func TestConditionsAreReachable(t *testing.T) {
	in := map[Verdict]bool{}
	for _, row := range Table() {
		in[row.Verdict] = true
	}
	for _, x := range Conditions() {
		if !in[x.Verdict] {
			t.Errorf("condition %q: no row has verdict %v", x.When, x.Verdict)
		}
	}
	for v := VerdictNone + 1; v <= VerdictProve; v++ {
		if !in[v] {
			t.Errorf("verdict %v stands in no row", v)
		}
	}
}
