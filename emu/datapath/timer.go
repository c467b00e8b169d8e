package datapath

import (
	"math/bits"

	"splicenic/regs"
)

// Bounds of one call of Scan, so that the pipeline never waits for the table.
const (
	scanPages      = 8192 // pages looked at
	scanQuarantine = 1024 // entries taken off the quarantine list
	scanRoom       = 2*maxHeldSegments + 4
)

// Scan does the timer's share of work up to the time of the last Advance: it ends what has rested long enough, and
// looks at as many pages as a sweep of timer.interval owes. It returns false where it stopped at a bound; the caller
// transmits and calls again.
func (c *Core) Scan(out *Output) (done bool) {
	if !c.scanRested() {
		return false
	}
	pages := uint64(c.m.Geometry.Pages)
	interval := uint64(max(c.ticks(regs.TimerInterval), 1)) * 1000
	now, swept := c.r.Get64(regs.TimerNow), c.r.Get64(regs.TimerSwept)
	owed := pages
	if now-swept < interval {
		owed = (now - swept) * pages / interval
	} else {
		swept = now - interval // more than a sweep behind: one sweep is enough
	}
	cursor := uint64(c.slot(c.r.Get(regs.TimerCursor)))
	left, looked := owed, 0
	for left > 0 && looked < scanPages && out.room() >= scanRoom {
		word := c.live[cursor/64] >> (cursor % 64)
		if word == 0 { // nothing up to the end of this word
			skip := min(64-cursor%64, left, pages-cursor)
			left -= skip
			cursor = c.advance(cursor+skip, pages)
			continue
		}
		skip := min(uint64(bits.TrailingZeros64(word)), left)
		left -= skip
		cursor += skip
		if left == 0 {
			break
		}
		c.expire(uint32(cursor), out)
		looked++
		left--
		cursor = c.advance(cursor+1, pages)
	}
	c.r.Set(regs.TimerCursor, uint32(cursor))
	c.r.Set64(regs.TimerSwept, swept+(owed-left)*interval/pages)
	c.add(regs.TimerLookedAt, uint64(looked))
	return left == 0
}

func (c *Core) advance(cursor, pages uint64) uint64 {
	if cursor == pages {
		c.count(regs.TimerSweeps)
		return 0
	}
	return cursor
}

// scanRested frees the pages at the head of the quarantine list whose time is over. All rest equally long, so the
// list is in order of time.
func (c *Core) scanRested() bool {
	rest := c.ticks(regs.TimerQuarantine)
	for range scanQuarantine {
		if c.r.Get(regs.AmuQuarantined) == 0 {
			return true
		}
		handle := c.m.QuarantineList[c.slot(c.r.Get(regs.AmuQuarantineHead))]
		if n := handle & handleMask; n < c.m.Geometry.Pages {
			w := c.page(n)
			if handleOf(n, w) == handle && State(regs.PageControlState(w[regs.PageControl])) == Quarantine && c.tick-w[regs.PageOpened] < rest {
				return true
			}
		}
		c.endOldestQuarantine(false)
	}
	return false
}

// expire looks at one valid page: a deadline that passed is carried out.
func (c *Core) expire(n uint32, out *Output) {
	w := c.page(n)
	control := w[regs.PageControl]
	if w[regs.PageClientLink]&regs.PageClientLinkAnswersMask != 0 {
		w[regs.PageClientLink] &^= regs.PageClientLinkAnswersMask
	}
	if isPassed(w) {
		c.expirePassed(n, w, out)
		return
	}
	switch state := State(regs.PageControlState(control)); state {
	case SynRcvd:
		c.expireSynRcvd(n, w, out)
	case WaitHead:
		c.expireWaitHead(n, w, out)
	case ServerSyn:
		c.expireServerSyn(n, w, out)
	case Spliced, Closing:
		if control&regs.PageControlReplyMask != 0 {
			c.expireReply(n, w, out)
			return
		}
		if control&regs.PageControlHeldMask != 0 && c.due(w) {
			c.expireHeld(n, w, out)
			return
		}
		if control&regs.PageControlDeadlineMask == 0 {
			c.keepTemplateNow(w)
		}
		idle, reason := c.idle(w), uint32(reasonExpiredIdle)
		const fins = regs.PageClientLinkFinClientMask | regs.PageClientLinkFinServerMask
		if state == Closing && w[regs.PageClientLink]&fins == fins {
			idle, reason = c.ticks(regs.TimerClosing), reasonExpiredClosing
		}
		if c.tick-w[regs.PageLastSeen] >= idle {
			c.count(regs.TimerExpired)
			if reason != reasonExpiredIdle || !c.idleSilent(w) {
				c.resetBoth(w, out)
			}
			c.abort(n, w, reason)
		}
	}
}

func (c *Core) due(w *page) bool {
	return w[regs.PageControl]&regs.PageControlDeadlineMask != 0 && int32(c.tick-w[regs.PageDeadline]) >= 0
}

// idle is the idle time-out of the page's service.
func (c *Core) idle(w *page) uint32 {
	if t := c.service(regs.PageIndexService(w[regs.PageIndex]))[regs.ServiceIdle]; t != 0 {
		return t
	}
	return c.ticks(regs.TimerIdle)
}

// idleSilent says whether the page's service lets idle connections go without a word.
func (c *Core) idleSilent(w *page) bool {
	return regs.ServiceControlIdleSilent(c.service(regs.PageIndexService(w[regs.PageIndex]))[regs.ServiceControl]) != 0
}

// expect arms the time-out of what was just sent for the first time.
func (c *Core) expect(w *page, timeout uint32) {
	w[regs.PageOptions] = regs.SetPageOptionsRetries(w[regs.PageOptions], 0)
	c.await(w, timeout)
}

// await arms a retransmission time-out, within its bound.
func (c *Core) await(w *page, timeout uint32) {
	timeout = min(max(timeout, 1), max(c.ticks(regs.TimerRetransmitMax), 1), 0xffff)
	w[regs.PageARto] = regs.SetPageARtoInterval(w[regs.PageARto], timeout)
	c.arm(w, c.tick+timeout)
}

// progress starts the time-out over: the other end acknowledged something new (RFC 6298, 5.3). What it backed off to
// comes down to the initial time-out, since nothing measures the round trip again.
func (c *Core) progress(w *page) {
	c.expect(w, min(regs.PageARtoInterval(w[regs.PageARto]), c.ticks(regs.TimerRetransmit)))
}

// again counts one more retransmission of what the page waits for, and doubles the time-out (RFC 6298, 5.5). It returns
// false where the limit is reached.
func (c *Core) again(w *page) bool {
	retries := regs.PageOptionsRetries(w[regs.PageOptions])
	if retries >= regs.TimerRetransmitLimitTimes(c.r.Get(regs.TimerRetransmitLimit)) {
		return false
	}
	w[regs.PageOptions] = regs.SetPageOptionsRetries(w[regs.PageOptions], retries+1)
	c.await(w, 2*regs.PageARtoInterval(w[regs.PageARto]))
	return true
}

func (c *Core) expireSynRcvd(n uint32, w *page, out *Output) {
	if c.tick-w[regs.PageOpened] >= c.ticks(regs.TimerSynRcvd) {
		c.count(regs.TimerExpired)
		c.abort(n, w, reasonExpiredSynRcvd)
		return
	}
	if !c.due(w) {
		return
	}
	c.count(regs.TimerExpired)
	if !c.again(w) {
		c.abort(n, w, reasonAbortSynAck)
		return
	}
	c.count(regs.TransmitResentSyn + clientEnd)
	c.sendSynAck(n, w, out)
}

func (c *Core) expireServerSyn(n uint32, w *page, out *Output) {
	reason := uint32(0)
	switch {
	case c.tick-w[regs.PageOpened] >= c.serverTime(w):
		reason = reasonExpiredServer
	case !c.due(w):
		return
	case !c.again(w):
		reason = reasonAbortServerSyn
	}
	c.count(regs.TimerExpired)
	if reason == 0 {
		c.count(regs.TransmitResentSyn + serverEnd)
		c.sendServerSyn(w, out)
		return
	}
	c.resetServer(w, 0, w[regs.PageAIsn]+1, out)
	c.serverFailed(nil, n, w, reason, out)
}

// serverTime is a server's part of the time-out of SERVER_SYN: half for the first, a quarter for each other, so that all
// that a request may be offered to stay within it.
func (c *Core) serverTime(w *page) uint32 {
	return c.ticks(regs.TimerServerSyn) >> min(regs.PageOptionsTries(w[regs.PageOptions])+1, 2)
}

// expireHeld sends again what the server has not acknowledged of the held bytes.
func (c *Core) expireHeld(n uint32, w *page, out *Output) {
	c.count(regs.TimerExpired)
	if !c.again(w) {
		c.serverState(w)[regs.ServerStateFailed]++
		c.resetBoth(w, out)
		c.abort(n, w, reasonAbortHeld)
		return
	}
	w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], 0)
	const sent, again = regs.TransmitHeld + serverEnd, regs.TransmitResentHeld + serverEnd
	before := c.r.Get64(sent)
	if h := c.held(w); h.wants() {
		c.askHeld(n, w)
	}
	c.sendHeld(w, 1, out)
	c.r.Add64(again, c.r.Get64(sent)-before)
}

// resetBoth ends a spliced connection toward both ends.
func (c *Core) resetBoth(w *page, out *Output) {
	c.resetClient(w, out)
	c.resetArmedServer(w, out)
}

// resetArmedServer sends every server that a leg is armed for the RST that it takes for exact: from the highest byte it
// can have.
func (c *Core) resetArmedServer(w *page, out *Output) {
	for leg := inForce(w[regs.PageControl]); leg >= 0; leg -= legWords {
		if w[regs.PageAScale+leg]&regs.PageAScaleArmedMask == 0 {
			continue
		}
		seq := serverHas(w, leg)
		if w[regs.PageControl]&regs.PageControlHeldMask != 0 {
			seq = w[regs.PageAAckServer+leg]
		}
		c.resetServer(w, leg, serverSees(w, seq)+w[regs.PageADeltaClient+leg], out)
	}
}
