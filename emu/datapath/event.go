package datapath

import "splicenic/regs"

// close reasons share their order with event.reason.
const (
	reasonFIN             = regs.EventReasonReasonFin
	reasonRST             = regs.EventReasonReasonRst
	reasonHost            = regs.EventReasonReasonHost
	reasonExpiredSynRcvd  = regs.EventReasonReasonExpiredSynRcvd
	reasonExpiredWaitHead = regs.EventReasonReasonExpiredWaitHead
	reasonExpiredServer   = regs.EventReasonReasonExpiredServerSyn
	reasonExpiredIdle     = regs.EventReasonReasonExpiredIdle
	reasonExpiredClosing  = regs.EventReasonReasonExpiredClosing
	reasonAbortSynAck     = regs.EventReasonReasonAbortSynAck
	reasonAbortServerSyn  = regs.EventReasonReasonAbortServerSyn
	reasonAbortHeld       = regs.EventReasonReasonAbortHeld
	reasonAbortRefused    = regs.EventReasonReasonAbortRefused
	reasonAbortProfile    = regs.EventReasonReasonAbortProfile
	reasonAbortKeyExists  = regs.EventReasonReasonAbortKeyExists
	reasonAbortClientGone = regs.EventReasonReasonAbortClientGone
	reasonAbortNoServer   = regs.EventReasonReasonAbortNoServer
	reasonNoCamPlace      = regs.EventReasonReasonNoCamPlace
)

// closeCounters counts a connection's end by its reason.
var closeCounters = [...]regs.Reg{
	reasonFIN: regs.ConnectionClosedFin, reasonRST: regs.ConnectionClosedRst, reasonHost: regs.ConnectionResetHost,
	reasonExpiredSynRcvd: regs.ConnectionExpiredSynRcvd, reasonExpiredWaitHead: regs.ConnectionExpiredWaitHead, reasonExpiredServer: regs.ConnectionExpiredServerSyn,
	reasonExpiredIdle: regs.ConnectionExpiredIdle, reasonExpiredClosing: regs.ConnectionExpiredClosing,
	reasonAbortSynAck: regs.ConnectionAbortSynAck, reasonAbortServerSyn: regs.ConnectionAbortServerSyn, reasonAbortHeld: regs.ConnectionAbortHeld,
	reasonAbortRefused: regs.ConnectionAbortRefused, reasonAbortProfile: regs.ConnectionAbortProfile, reasonAbortKeyExists: regs.ConnectionAbortKeyExists,
	reasonAbortClientGone: regs.ConnectionAbortClientGone, reasonAbortNoServer: regs.ConnectionAbortNoServer, reasonNoCamPlace: regs.AmuNoCamPlace,
}

// event tells the host what happened to a connection.
func (c *Core) event(kind, reason uint32, n uint32, w *page) {
	c.eventWith(kind, reason, n, w, w[regs.PageADeltaServer])
}

// eventWith is event with another value than the delta.
func (c *Core) eventWith(kind, reason uint32, n uint32, w *page, delta uint32) {
	e := traffic(w)
	e.ReasonReason, e.Delta = reason, delta
	c.tell(kind, n, w, &e, nil)
}

// traffic begins an event with a page's counters.
func traffic(w *page) regs.EventEntry {
	return regs.EventEntry{
		PacketsClient: w[regs.PagePacketsClient], PacketsServer: w[regs.PagePacketsServer],
		BytesClient: w[regs.PageBytesClient], BytesServer: w[regs.PageBytesServer],
		BytesHighClient: regs.PageBytesHighClient(w[regs.PageBytesHigh]), BytesHighServer: regs.PageBytesHighServer(w[regs.PageBytesHigh]),
	}
}

// tell completes an event with what each has, and gives it to the host with the begin of a head.
func (c *Core) tell(kind, n uint32, w *page, e *regs.EventEntry, head []byte) {
	e.ControlType, e.Tick = kind, c.tick
	e.HandleN, e.HandleGeneration = n, regs.PageControlGeneration(w[regs.PageControl])
	e.IndexService, e.IndexServer, e.Rule = regs.PageIndexService(w[regs.PageIndex]), regs.PageAIndexServer(w[regs.PageAIndex]), w[regs.PageRule]
	c.host.Event(e, head)
}

// openedEvent tells the host of a new connection: who is at its ends.
func (c *Core) openedEvent(n uint32, w *page) {
	a := w[regs.PageClientAddress:]
	c.tell(regs.EventControlTypeOpened, n, w, &regs.EventEntry{
		PacketsClient: a[0], PacketsServer: a[1], BytesClient: a[2], BytesServer: a[3],
		BytesHighClient: regs.PagePortsClient(w[regs.PagePorts]), BytesHighServer: regs.PagePortsVip(w[regs.PagePorts]),
		Delta: regs.PageIndexVip(w[regs.PageIndex]),
	}, nil)
}

// splicedEvent tells the host of a splice and, if it likes, what the head buffer holds: how the stream to the server begins.
func (c *Core) splicedEvent(n uint32, w *page) {
	var head []byte
	if w[regs.PageControl]&regs.PageControlHeadMask != 0 && c.tells(regs.HostifEventsHeadsMask) {
		head = c.head(w)[:heldBytes(w)]
	}
	e := traffic(w)
	e.Delta = w[regs.PageADeltaServer]
	c.tell(regs.EventControlTypeSpliced, n, w, &e, head)
}

// firstByteEvent tells the host that the server's first payload has passed, unless that was the first of another 4 GiB.
func (c *Core) firstByteEvent(p *packet, w *page) {
	if c.tells(regs.HostifEventsFirstByteMask) && regs.PageBytesHighServer(w[regs.PageBytesHigh]) == 0 {
		c.event(regs.EventControlTypeFirstByte, 0, p.handle&handleMask, w)
	}
}

// tells says whether the host wants a kind of event.
func (c *Core) tells(mask uint32) bool { return c.r.Get(regs.HostifEvents)&mask != 0 }

// end counts the end of a connection and tells the host. The page is still whole.
func (c *Core) end(n uint32, w *page, reason uint32) {
	c.keepTemplate(w)
	if isPassed(w) {
		c.count(passedCounter(reason))
	} else {
		c.count(closeCounters[reason])
	}
	c.event(regs.EventControlTypeClosed, reason, n, w)
}

// abort ends a connection at once.
func (c *Core) abort(n uint32, w *page, reason uint32) {
	c.end(n, w, reason)
	c.free(n, w)
}
