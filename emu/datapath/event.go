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
	e := regs.EventEntry{
		ControlType: kind, HandleN: n, HandleGeneration: regs.PageControlGeneration(w[regs.PageControl]), Tick: c.tick,
		ReasonReason: reason, IndexService: regs.PageIndexService(w[regs.PageIndex]), IndexServer: regs.PageAIndexServer(w[regs.PageAIndex]),
		Rule:          w[regs.PageRule],
		PacketsClient: w[regs.PagePacketsClient], PacketsServer: w[regs.PagePacketsServer],
		BytesClient: w[regs.PageBytesClient], BytesServer: w[regs.PageBytesServer],
		BytesHighClient: regs.PageBytesHighClient(w[regs.PageBytesHigh]), BytesHighServer: regs.PageBytesHighServer(w[regs.PageBytesHigh]),
		Delta: delta,
	}
	c.host.Event(&e)
}

// end counts the end of a connection and tells the host. The page is still whole.
func (c *Core) end(n uint32, w *page, reason uint32) {
	c.count(closeCounters[reason])
	c.event(regs.EventControlTypeClosed, reason, n, w)
}

// abort ends a connection at once.
func (c *Core) abort(n uint32, w *page, reason uint32) {
	c.end(n, w, reason)
	c.free(n, w)
}
