package datapath

import (
	"splicenic/emu/cam"
	"splicenic/regs"
)

// The SYN defence stands before the AMU. While it answers for a listener, a segment that no page is known for acts in
// state STATELESS: a SYN is answered with a cookie and leaves nothing behind, and what brings the cookie back takes a
// page. Everything else is dropped and counted: who does not know a cookie gets no answer.

// guard says in which state a segment for an address of ours acts that hits no page.
func (c *Core) guard(p *packet) State {
	p.service, p.expected = c.findService(p), -1
	if p.service == noSource {
		return PassedFree
	}
	if p.service < 0 {
		if w := c.expects(p); w != nil {
			p.service = int32(regs.PageIndexService(w[regs.PageIndex]))
			p.expected = int32(regs.PageAIndexServer(w[regs.PageAIndex]))
			return PassedFree
		}
		return Free
	}
	otherwise := Free
	if passes(c.service(uint32(p.service))) {
		otherwise = PassedFree
	}
	if p.class == classUDP {
		return otherwise
	}
	syn := p.segment == SYN || p.segment == SYNData
	if syn {
		c.countSyn()
	}
	status := c.r.Get(regs.DefenceStatus)
	guarded, mode := false, c.defenceOf(uint32(p.service))
	if regs.ServiceControlMode(c.service(uint32(p.service))[regs.ServiceControl]) > regs.ServiceControlModeFullnat {
		return otherwise // what is proved by a cookie the card connects itself, which it can only where the answers come by
	}
	switch mode {
	case regs.ServiceControlDefenceAlways:
		guarded = true
	case regs.ServiceControlDefenceAuto:
		guarded = status&regs.DefenceStatusActiveMask != 0
	}
	switch {
	case syn:
		guarded = guarded && regs.AmuControlEnable(c.r.Get(regs.AmuControl)) != 0
	case status&regs.DefenceStatusSentMask != 0: // some cookie may still come back
		guarded = mode != regs.ServiceControlDefenceOff || table[Stateless][ClientSide][p.segment].Verdict == VerdictProve
	}
	if guarded {
		return Stateless
	}
	return otherwise
}

// defenceOf is the mode of a service.
func (c *Core) defenceOf(service uint32) uint32 {
	return regs.ServiceControlDefence(c.service(service)[regs.ServiceControl])
}

// begin answers a SYN for a listener that no page is known for any more.
func (c *Core) begin(p *packet, out *Output) {
	switch c.guard(p) {
	case Stateless:
		c.cookie(p, out)
	case PassedFree:
		c.pass(p, out)
	default:
		c.open(p, out)
	}
}

// cookie answers a SYN with a SYN-ACK whose sequence number is a cookie. It is the SYN-ACK of a page that holds what the
// cookie keeps; the page itself is only a draft.
func (c *Core) cookie(p *packet, out *Output) {
	if p.hit { // a host's store brought a page into this state
		c.exception(p, p.connection())
		return
	}
	if c.limited(p, uint32(p.service)) {
		return
	}
	w := &c.draft
	isn := c.draftCookie(p, w)
	w[regs.PageIsn] = isn
	if link := w[regs.PageClientLink]; link&regs.PageClientLinkTimestampsMask != 0 {
		w[regs.PageTimestampBase] = keepInClock(w[regs.PageTimestampBase], link)
	}
	c.r.Set(regs.DefenceStatus, c.r.Get(regs.DefenceStatus)|regs.DefenceStatusSentMask)
	c.r.Set(regs.DefenceLastSent, c.tick)
	c.count(regs.DefenceCookieSent)
	c.sendSynAck(0, w, out)
}

// prove takes a page for a client that brings a cookie back, as if its SYN had been seen with what the cookie kept. Data
// and FIN of the same segment count at once.
//
// The cookie covers the client's initial sequence number, which only the segment right behind the handshake tells: its
// sequence number less one. A client whose ACK was lost proves itself with its first data, which has the same numbers; of
// later data that comes first nothing is known, and it is dropped until the client sends the first again.
// As with every such cookie, a copy of the segment proves the same again, while the cookie is valid and no page is there.
func (c *Core) prove(p *packet, out *Output) {
	if p.hit {
		c.exception(p, p.connection())
		return
	}
	w := &c.draft
	if !c.verify(p, w) {
		if passes(c.service(uint32(p.service))) {
			c.sloppy(p, regs.DefenceCookieBad, out)
			return
		}
		if c.defenceOf(uint32(p.service)) == regs.ServiceControlDefenceOff { // cookies of other services, or of before
			c.exception(p, 0)
			return
		}
		c.count(regs.DefenceCookieBad)
		return
	}
	n, ok := uint32(0), regs.AmuControlEnable(c.r.Get(regs.AmuControl)) != 0
	if ok {
		n, ok = c.take(p)
	}
	if !ok {
		c.count(regs.DefenceCookieNoPage)
		c.replyRST(p, p.ack, 0, flagRST, out)
		return
	}
	draft := w
	w = c.page(n)
	keep := w[regs.PageControl]
	*w = *draft
	w[regs.PageControl] |= keep
	w[regs.PageIsn] = p.ack - 1
	w[regs.PageClientLink] |= regs.PageClientLinkCookieMask
	window := min(p.window()<<regs.PageClientLinkClientWscale(w[regs.PageClientLink]), 0xffff)
	w[regs.PageOffer] = regs.SetPageOfferWindow(w[regs.PageOffer], window)
	p.handle = handleOf(n, w)
	c.count(regs.ConnectionOpened)
	c.count(regs.DefenceCookieValid)
	c.openedEvent(n, w)
	c.establish(p, w, out)
}

// take gives the key of a segment a page and a client-side CAM entry.
func (c *Core) take(p *packet) (n uint32, ok bool) {
	if n, ok = c.allocate(); !ok {
		c.count(regs.AmuNoPage)
		return 0, false
	}
	w := c.page(n)
	if c.cams[ClientSide].Insert(&p.key[ClientSide], p.hash[ClientSide], handleOf(n, w), false) != cam.OK {
		c.count(regs.AmuNoCamPlace)
		c.r.Set(regs.AmuLive, c.r.Get(regs.AmuLive)-1)
		c.release(n, w)
		return 0, false
	}
	return n, true
}

// countSyn counts a SYN for a listener, and switches on as soon as that makes one too many.
func (c *Core) countSyn() {
	syns := c.r.Get(regs.DefenceWindowSyns) + 1
	if syns == 1 && c.r.Get(regs.DefenceRate) == 0 { // nothing was counted any more
		c.r.Set(regs.DefenceWindowBegin, c.tick)
	}
	c.r.Set(regs.DefenceWindowSyns, syns)
	if c.r.Get(regs.DefenceStatus)&regs.DefenceStatusActiveMask == 0 && c.pressed(syns) {
		c.switchDefence(true)
	}
}

// rateWindow is how many ticks SYNs are counted for: a second.
const rateWindow = 1000

// defend does what time asks of the defence, once a tick: another secret, the end of cookies, another window of the SYN
// rate, and an end of the stage after calm.
func (c *Core) defend() {
	period := max(c.ticks(regs.DefencePeriod), 1)
	if gone := c.tick - c.r.Get(regs.DefenceEpochBegin); gone >= period {
		n := gone / period
		c.r.Set(regs.DefenceEpoch, c.r.Get(regs.DefenceEpoch)+n)
		c.r.Set(regs.DefenceEpochBegin, c.r.Get(regs.DefenceEpochBegin)+n*period)
		c.RekeyDefence()
	}
	status := c.r.Get(regs.DefenceStatus)
	if status&regs.DefenceStatusSentMask != 0 && c.tick-c.r.Get(regs.DefenceLastSent) > 2*period {
		c.r.Set(regs.DefenceStatus, status&^regs.DefenceStatusSentMask)
	}
	syns, rate := c.r.Get(regs.DefenceWindowSyns), c.r.Get(regs.DefenceRate)
	if gone := c.tick - c.r.Get(regs.DefenceWindowBegin); gone >= rateWindow && syns|rate != 0 {
		rate = syns
		if gone >= 2*rateWindow {
			rate = 0 // of the second before nothing is known: there was no step
		}
		syns = 0
		c.r.Set(regs.DefenceRate, rate)
		c.r.Set(regs.DefenceWindowBegin, c.tick)
		c.r.Set(regs.DefenceWindowSyns, 0)
	}
	syns = max(syns, rate)
	switch active := status&regs.DefenceStatusActiveMask != 0; {
	case !active && c.pressed(syns):
		c.switchDefence(true)
	case active && c.uneasy(syns):
		c.r.Set(regs.DefenceCalmSince, c.tick)
	case active && c.tick-c.r.Get(regs.DefenceCalmSince) >= c.ticks(regs.DefenceCalm):
		c.switchDefence(false)
	}
}

// pressed says whether there is pressure enough to become active, uneasy whether there is enough to stay so.
func (c *Core) pressed(syns uint32) bool {
	rate := c.mark(regs.DefenceRateOn)
	return c.r.Get(regs.AmuFree) < c.mark(regs.DefencePagesOn) || rate != 0 && syns > rate
}

func (c *Core) uneasy(syns uint32) bool {
	pages, rate := c.mark(regs.DefencePagesOn), c.mark(regs.DefenceRateOn)
	return pages != 0 && c.r.Get(regs.AmuFree) < max(pages, c.mark(regs.DefencePagesOff)) ||
		rate != 0 && syns > min(rate, c.mark(regs.DefenceRateOff))
}

func (c *Core) mark(r regs.Reg) uint32 { return c.r.Get(r) & regs.DefencePagesOnCountMask }

func (c *Core) switchDefence(on bool) {
	status, counter := c.r.Get(regs.DefenceStatus)&^regs.DefenceStatusActiveMask, regs.DefenceSwitchedOff
	if on {
		status, counter = status|regs.DefenceStatusActiveMask, regs.DefenceSwitchedOn
		c.r.Set(regs.DefenceCalmSince, c.tick)
	}
	c.r.Set(regs.DefenceStatus, status)
	c.count(counter)
	c.host.Cause(regs.HostifCauseDefenceMask)
}

// limited takes a token of a SYN's source and says that there was none. An IPv6 source is a whole /64. Services whose
// servers answer past the card have no defence but this one.
func (c *Core) limited(p *packet, service uint32) bool {
	rate := c.mark(regs.DefenceSourceRate)
	control := c.service(service)[regs.ServiceControl]
	if rate == 0 || regs.ServiceControlDefence(control) == regs.ServiceControlDefenceOff && regs.ServiceControlMode(control) <= regs.ServiceControlModeFullnat {
		return false
	}
	source := uint64(p.src[0])
	if p.kind == kindIPv6 {
		source = uint64(p.src[2]) | uint64(p.src[3])<<32
	}
	k0, k1 := c.defenceKey()
	h := sipHash(k0, k1, &[4]uint64{source, uint64(p.kind), 0, bucketUse})
	i := uint32(h >> 32 * uint64(c.m.Geometry.SourceBuckets) >> 32)
	b := entry(c.m.SourceBucket, i, regs.SourceBucketWords)
	const token = 1000
	full := uint64(min(c.mark(regs.DefenceSourceBurst), (1<<32-1)/token)) * token
	back := uint64(c.tick-b[regs.SourceBucketTick]) * uint64(rate)
	spent := uint64(b[regs.SourceBucketSpent])
	spent -= min(spent, back)
	limited := spent+token > full
	if limited {
		c.count(regs.DefenceSourceLimited)
	} else {
		spent += token
	}
	b[regs.SourceBucketTick], b[regs.SourceBucketSpent] = c.tick, uint32(spent)
	return limited
}
