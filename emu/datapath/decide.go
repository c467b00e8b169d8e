package datapath

import (
	"splicenic/emu/urltable"
	"splicenic/regs"
)

// How the begin of what a client sends leads to a server: by a request head, by a ClientHello, or by nothing that is read.

// means is what a decision rests on.
type means uint8

const (
	byDefault means = iota // nothing: the service reads no request, or the client says nothing
	byHead
	byHello
	byPreface // of HTTP/2 without TLS
)

const (
	reasonRewrite     = regs.ExceptionReasonReasonRewrite
	reasonRuleHost    = regs.ExceptionReasonReasonRuleHost
	reasonAnswer      = regs.ExceptionReasonReasonAnswer
	reasonHeadTimeout = regs.ExceptionReasonReasonHeadTimeout
	reasonNotHTTP     = regs.ExceptionReasonReasonNotHttp
	reasonNotTLS      = regs.ExceptionReasonReasonNotTls
	reasonH2C         = regs.ExceptionReasonReasonH2c
	reasonBadHello    = regs.ExceptionReasonReasonBadHello
)

// serviceControl is the first word of the page's service in the bank in force.
func (c *Core) serviceControl(w *page) uint32 {
	return c.service(regs.PageIndexService(w[regs.PageIndex]))[regs.ServiceControl]
}

// readsNothing says whether a service leaves what clients send to the server.
func readsNothing(control uint32) bool {
	return regs.ServiceControlServerFirst(control) != 0 ||
		regs.ServiceControlProtocol(control) >= regs.ServiceControlProtocolTcp
}

// search looks for the end of what the service decides by in the bytes that are held, and decides once it is there.
func (c *Core) search(p *packet, n uint32, w *page, out *Output) {
	held := c.head(w)[:heldBytes(w)]
	switch control := c.serviceControl(w); {
	case readsNothing(control):
		c.whole(p, n, w, byDefault, held, out)
	case regs.ServiceControlProtocol(control) == regs.ServiceControlProtocolTls:
		c.searchHello(p, n, w, held, out)
	default:
		c.searchHead(p, n, w, control, held, out)
	}
}

func (c *Core) searchHead(p *packet, n uint32, w *page, control uint32, held []byte, out *Output) {
	if !urltable.CanStart(held[0]) {
		c.count(regs.UrlNotHttp)
		c.waitForHost(p, w, reasonNotHTTP, out)
		return
	}
	switch is, maybe := urltable.Preface(held); {
	case maybe:
		c.unfinished(p, n, w, out)
		return
	case is && regs.ServiceControlHasH2c(control) == 0:
		c.count(regs.UrlH2c)
		c.waitForHost(p, w, reasonH2C, out)
		return
	case is:
		c.count(regs.UrlH2c)
		c.whole(p, n, w, byPreface, held, out)
		return
	}
	end, scanned := urltable.FindEnd(held, int(regs.PageOptionsHeadScan(w[regs.PageOptions])))
	w[regs.PageOptions] = regs.SetPageOptionsHeadScan(w[regs.PageOptions], uint32(scanned))
	if end == 0 {
		c.unfinished(p, n, w, out)
		return
	}
	c.whole(p, n, w, byHead, held[:end], out)
}

func (c *Core) searchHello(p *packet, n uint32, w *page, held []byte, out *Output) {
	if !urltable.CanStartTLS(held[0]) {
		c.count(regs.UrlNotTls)
		c.waitForHost(p, w, reasonNotTLS, out)
		return
	}
	end, scanned, have := urltable.FindHello(held, regs.PageOptionsHeadScan(w[regs.PageOptions]), regs.PageARtoSent(w[regs.PageARto]))
	w[regs.PageOptions] = regs.SetPageOptionsHeadScan(w[regs.PageOptions], scanned)
	w[regs.PageARto] = regs.SetPageARtoSent(w[regs.PageARto], have)
	if end == 0 {
		c.unfinished(p, n, w, out)
		return
	}
	c.whole(p, n, w, byHello, held[:end], out)
}

// unfinished goes on waiting for the rest of a head or a hello, if there can be one.
func (c *Core) unfinished(p *packet, n uint32, w *page, out *Output) {
	switch {
	case heldBytes(w) == c.headBytes():
		w[regs.PageARto] = 0
		c.waitForHost(p, w, reasonHeadLarge, out)
	case w[regs.PageClientLink]&regs.PageClientLinkFinClientMask != 0:
		c.resetClient(w, out)
		c.abort(n, w, reasonAbortClientGone)
	default:
		c.ackClient(w, out)
	}
}

// whole acknowledges what the decision rests on, all of which is there.
func (c *Core) whole(p *packet, n uint32, w *page, by means, head []byte, out *Output) {
	w[regs.PageARto] = 0
	c.count(regs.ConnectionHeadComplete)
	c.ackClient(w, out)
	c.decide(p, n, w, by, head, out)
}

// decide finds the group, chooses one of its servers and sends that a SYN, or leaves it to the host. p is nil where the
// timer decides.
func (c *Core) decide(p *packet, n uint32, w *page, by means, head []byte, out *Output) {
	bank := c.bank()
	inUse := regs.TableInUse + regs.Reg(bank)*regs.TableInUseStride
	c.r.Set(inUse, c.r.Get(inUse)+1)
	group, reason := c.choose(w, bank, by, head)
	c.r.Set(inUse, c.r.Get(inUse)-1)
	if reason == 0 {
		w[regs.PageChoice] = group | regs.TableBankGeneration(c.r.Get(regs.TableBank))<<regs.PageChoiceGenerationShift
		if regs.ServiceControlRewrite(c.serviceControl(w)) != 0 {
			reason = reasonRewrite
		}
	}
	if reason != 0 {
		c.ask(p, n, w, reason, out)
		return
	}
	who := c.chooser(w)
	server, ok := uint32(0), false
	if service := regs.PageIndexService(w[regs.PageIndex]); by == byDefault && service < c.m.Geometry.Services && passes(c.service(service)) {
		server, ok = c.target(service, group, bank, &who)
	} else {
		server, ok = c.pick(group, bank, &who)
	}
	if !ok {
		c.ask(p, n, w, reasonNoServer, out)
		return
	}
	c.startServer(p, n, w, server, out)
}

// ask leaves a decision to the host. Where the request is to be refused it gets the segment that ended it. Where it is to
// be served the host takes the head from its buffer, and has as long for that as the client had to send it.
func (c *Core) ask(p *packet, n uint32, w *page, reason uint8, out *Output) {
	switch reason {
	case reasonRewrite, reasonRuleHost, reasonAnswer:
		c.arm(w, c.tick+c.waitHead(w))
	default:
		if p != nil {
			c.waitForHost(p, w, reason, out)
			return
		}
	}
	c.handOver(p, n, w, reason, unservedFor(reason), out)
}

// unservedFor is the reason by which a connection ends that no host decides about.
func unservedFor(reason uint8) uint32 {
	switch reason {
	case reasonNoRule, reasonNoServer:
		return reasonAbortNoServer
	}
	return reasonExpiredWaitHead
}

// choose finds the group that a client goes to, in the bank in force. reason is not zero where the host has to decide.
func (c *Core) choose(w *page, bank uint32, by means, head []byte) (group uint32, reason uint8) {
	s := c.service(regs.PageIndexService(w[regs.PageIndex]))
	control := s[regs.ServiceControl]
	reads := by == byHead || by == byHello
	if reads {
		c.count(regs.UrlLookups)
		if reason = c.read(w, by, head); reason != 0 {
			return 0, reason
		}
	}
	if regs.ServiceControlValid(control) == 0 { // gone since the connection was opened
		c.count(regs.UrlNoMatch)
		return 0, reasonNoRule
	}
	if by == byPreface {
		return regs.ServiceH2cGroup(s[regs.ServiceH2c]), 0
	}
	if reads {
		t := urltable.Tables{Nodes: c.m.Url[bank], Rules: c.m.Rule[bank]}
		switch rule, v := urltable.Match(&t, s[regs.ServiceUrlRoot], &c.request); v {
		case urltable.Host: // which rule takes it the host says
			c.count(regs.UrlHost)
			return 0, reasonRuleHost
		case urltable.Matched:
			r := c.m.Rule[bank][rule*regs.RuleWords+regs.RuleControl]
			if regs.RuleControlValid(r) == 0 { // listed, but not in force
				break
			}
			c.count(regs.UrlMatched)
			c.hit(rule)
			w[regs.PageRule] = rule + 1
			if regs.RuleControlAnswer(r) != 0 {
				c.count(regs.UrlAnswered)
				return 0, reasonAnswer
			}
			return regs.RuleControlGroup(r), 0
		}
	}
	if regs.ServiceControlHasDefault(control) == 0 {
		c.count(regs.UrlNoMatch)
		return 0, reasonNoRule
	}
	if reads {
		c.count(regs.UrlDefaulted)
	}
	return regs.ServiceDefaultGroup(s[regs.ServiceDefault]), 0
}

// read makes a whole head or hello the request at hand. Paths that are too deep for the URL table are the host's.
func (c *Core) read(w *page, by means, head []byte) (reason uint8) {
	v := urltable.OK
	if by == byHello {
		if v = urltable.ParseHello(head, &c.hello); v == urltable.OK {
			c.request.SetHello(&c.hello)
		}
	} else {
		v = urltable.ParseHead(head, &c.request)
	}
	switch v {
	case urltable.OK:
	case urltable.NotHTTP:
		c.count(regs.UrlNotHttp)
		return reasonNotHTTP
	case urltable.TooDeep:
		c.count(regs.UrlTooDeep)
		return reasonRuleHost
	case urltable.TooManyFields:
		return reasonHeadLarge
	case urltable.NotTLS:
		c.count(regs.UrlNotTls)
		return reasonNotTLS
	case urltable.BadHello:
		c.count(regs.UrlBadHello)
		return reasonBadHello
	default:
		c.count(regs.UrlMalformed)
		return reasonBad
	}
	if by == byHello && len(c.hello.SNI) == 0 {
		c.count(regs.UrlNoSni)
	}
	c.request.Source = address(w[regs.PageClientAddress:])
	c.request.IPv6 = regs.PageControlKind(w[regs.PageControl]) == kindIPv6
	return 0
}

// greet begins the server end of a service whose servers speak first, once the client's handshake is done. What came with
// that may have begun it already, or ended the connection.
func (c *Core) greet(p *packet, w *page, out *Output) {
	control := w[regs.PageControl]
	if State(regs.PageControlState(control)) == WaitHead && control&regs.PageControlWaitingHostMask == 0 &&
		(regs.ServiceControlServerFirst(c.serviceControl(w)) != 0 || passes(c.service(regs.PageIndexService(w[regs.PageIndex])))) {
		c.decide(p, p.handle&handleMask, w, byDefault, nil, out)
	}
}

// expireWaitHead looks at a connection that waits for its head, or for what the host makes of it.
func (c *Core) expireWaitHead(n uint32, w *page, out *Output) {
	s := c.service(regs.PageIndexService(w[regs.PageIndex]))
	deciding := w[regs.PageControl]&regs.PageControlWaitingHostMask != 0
	silent := c.expected(w) == w[regs.PageClientIsn]+1
	if after := s[regs.ServiceFallback]; after != 0 && silent && !deciding && c.tick-w[regs.PageOpened] >= after {
		c.count(regs.TimerExpired)
		c.count(regs.ConnectionFallback)
		c.decide(nil, n, w, byDefault, nil, out)
		return
	}
	if !c.due(w) {
		return
	}
	c.count(regs.TimerExpired)
	if !silent && !deciding && regs.ServiceControlProtocol(s[regs.ServiceControl]) == regs.ServiceControlProtocolHttp {
		c.arm(w, c.tick+c.waitHead(w))
		c.handOver(nil, n, w, reasonHeadTimeout, reasonExpiredWaitHead, out)
		if w[regs.PageControl]&regs.PageControlWaitingHostMask != 0 {
			c.count(regs.ConnectionHeadTimeout)
		}
		return
	}
	c.resetClient(w, out)
	c.abort(n, w, unserved(w, reasonExpiredWaitHead))
}
