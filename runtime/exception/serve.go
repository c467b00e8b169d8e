package exception

import (
	"slices"
	"time"

	"splicenic/regs"
)

// An Outcome is what the card makes of a command about a connection.
type Outcome uint8

// The outcomes.
const (
	Taken    Outcome = iota // carried out
	KeyTaken                // another connection of the client has the port at this server
	Unusable                // the server takes no connections now, or the card has no room, or it has more of the client than it was told of
	TooLate                 // the connection has gone on, or enough servers were tried
)

const (
	maxAttempts = 1024            // connections whose failed servers are remembered
	attemptLife = 2 * time.Minute // after that a handle may mean another connection
	maxServers  = 3               // servers that the card offers a request to
	portTries   = 8               // ports tried in place of the client's
	firstPort   = 1024            // of those
	lastPort    = 32767           // below what kernels give their clients
)

// An attempt is what was tried in vain for a connection.
type attempt struct {
	begun  time.Duration
	failed []uint32 // servers
}

// content decides about a connection that waits for the host because of what its client sent, or did not.
func (h *Handler) content(e *regs.ExceptionEntry) {
	q, ok := h.requestOf(handleOf(e))
	if !ok {
		return
	}
	reason := e.ReasonReason
	if w := &q.conn.Page; reason != regs.ExceptionReasonReasonHeldMore && (w.ControlState != regs.PageControlStateWaitHead || w.ControlHostReason != reason) {
		h.count(DropLate) // it was told twice, or went on by itself
		return
	}
	switch reason {
	case regs.ExceptionReasonReasonServerFailed, regs.ExceptionReasonReasonKeyExists:
		h.serve(q, e)
	case regs.ExceptionReasonReasonRewrite, regs.ExceptionReasonReasonRuleHost, regs.ExceptionReasonReasonAnswer,
		regs.ExceptionReasonReasonNoRule, regs.ExceptionReasonReasonNoServer, regs.ExceptionReasonReasonBadRequest, regs.ExceptionReasonReasonBadHello:
		if h.read(q) {
			h.decide(q, reason)
		}
	case regs.ExceptionReasonReasonHeadTooLarge:
		h.tooLarge(q)
	case regs.ExceptionReasonReasonHeadMore:
		h.moreOf(q)
	case regs.ExceptionReasonReasonHeldMore:
		h.feed(q)
	default:
		h.refuse(q, &refused[reason])
	}
}

// decide says where a request goes that the card holds whole.
func (h *Handler) decide(q *request, reason uint32) {
	s, page := q.service, &q.conn.Page
	bad := q.parse()
	switch {
	case s == nil:
		h.refuse(q, &refused[regs.ExceptionReasonReasonNoRule])
	case bad != nil && reason != regs.ExceptionReasonReasonNoServer:
		h.refuse(q, bad)
	case reason == regs.ExceptionReasonReasonRewrite:
		h.dispatch(q, page.ChoiceGroup, 0)
	case reason == regs.ExceptionReasonReasonRuleHost:
		h.route(q)
	case reason == regs.ExceptionReasonReasonAnswer:
		if place, ok := s.Answers[page.Rule-1]; ok && place < len(s.Routes) && s.Routes[place].To.Reply != nil {
			h.answer(q, s.Routes[place].To.Reply, &s.Routes[place])
			return
		}
		h.route(q) // by the rules of now
	case reason == regs.ExceptionReasonReasonNoRule && s.Default.Reply != nil:
		h.answer(q, s.Default.Reply, nil)
	case reason == regs.ExceptionReasonReasonNoServer:
		if group, ok := h.sorryFor(q, page.ChoiceGroup); ok {
			h.dispatch(q, group, 0)
		}
	default:
		h.refuse(q, &refused[reason])
	}
}

// serve finds a way for a connection whose server failed, or whose port the server knows from another connection: another
// server of its group, else a source port that stands in for the client's. Where there is none, the group's sorry target
// has it, and the client is answered at last.
func (h *Handler) serve(q *request, e *regs.ExceptionEntry) {
	group := q.conn.Page.ChoiceGroup
	var failed []uint32
	if e.ReasonReason == regs.ExceptionReasonReasonServerFailed {
		failed = h.remember(q.handle, e.IndexServer)
	} else if a := h.attempts[q.handle]; a != nil {
		failed = a.failed
	}
	most := maxServers
	if g := h.st.Groups[group]; g != nil && g.Sorry.Group != "" {
		most-- // the last one is the sorry group's
	}
	if len(failed) < most && h.another(q, group, failed) {
		return
	}
	if next, ok := h.sorryFor(q, group); ok {
		h.offer(q, next, Connect{}, nil) // what the server is to get stays in the head buffer
	}
}

// another offers a request to the servers of a group in turn, then by other ports than the client's. It returns true
// where that is settled.
func (h *Handler) another(q *request, group uint32, failed []uint32) bool {
	var busy []uint32 // know the client's port
	for _, server := range h.cfg.Others(q.handle, group) {
		if slices.Contains(failed, server) {
			continue
		}
		switch h.cfg.Connect(q.handle, &Connect{Target: server}) {
		case Taken:
			h.count(ServerAgain)
			return true
		case KeyTaken:
			busy = append(busy, server)
		case TooLate:
			h.refuse(q, &refused[regs.ExceptionReasonReasonNoServer])
			return true
		}
	}
	for _, server := range busy {
		for i := range uint32(portTries) {
			if outcome := h.cfg.Connect(q.handle, &Connect{Target: server, Port: port(q.handle, i)}); outcome == Taken {
				h.count(PortMoved)
				return true
			} else if outcome != KeyTaken {
				break
			}
		}
	}
	return false
}

// port is the i-th port tried for a connection: the same each time, and scattered over connections.
func port(handle, i uint32) uint16 {
	x := uint64(handle)<<32 | uint64(i) + 1
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint16(firstPort + (x^x>>31)%(lastPort-firstPort+1))
}

// remember notes a server that failed a connection, and returns all that did. What is forgotten may be tried again: the
// card counts too.
func (h *Handler) remember(handle, server uint32) []uint32 {
	a := h.attempts[handle]
	switch {
	case a == nil:
		if len(h.order) == maxAttempts {
			delete(h.attempts, h.order[0])
			h.order = h.order[1:]
		}
		a = &attempt{begun: h.now}
		h.attempts[handle] = a
		h.order = append(h.order, handle)
	case h.now-a.begun > attemptLife:
		*a = attempt{begun: h.now}
	}
	if !slices.Contains(a.failed, server) && len(a.failed) < maxServers {
		a.failed = append(a.failed, server)
	}
	return a.failed
}

func handleOf(e *regs.ExceptionEntry) uint32 {
	return regs.SetExceptionHandleGeneration(e.HandleN, e.HandleGeneration)
}
