package exception

import (
	"fmt"
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
	Unusable                // the server takes no connections now, or the card has no room
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

// serve finds a way for a connection whose server failed, or whose port the server knows from another connection: another
// server of its group, else a source port that stands in for the client's. Where there is none, the client is answered.
func (h *Handler) serve(e *regs.ExceptionEntry) {
	handle := handleOf(e)
	var failed []uint32
	if e.ReasonReason == regs.ExceptionReasonReasonServerFailed {
		failed = h.remember(handle, e.IndexServer)
	} else if a := h.attempts[handle]; a != nil {
		failed = a.failed
	}
	if len(failed) >= maxServers {
		h.sorry(e, unavailable)
		return
	}
	var busy []uint32 // know the client's port
	for _, server := range h.cfg.Others(handle) {
		if slices.Contains(failed, server) {
			continue
		}
		switch h.cfg.Connect(handle, server, 0) {
		case Taken:
			h.count(ServerAgain)
			return
		case KeyTaken:
			busy = append(busy, server)
		case TooLate:
			h.sorry(e, unavailable)
			return
		}
	}
	for _, server := range busy {
		for i := range uint32(portTries) {
			if outcome := h.cfg.Connect(handle, server, port(handle, i)); outcome == Taken {
				h.count(PortMoved)
				return
			} else if outcome != KeyTaken {
				break
			}
		}
	}
	h.sorry(e, unavailable)
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

// unavailable is the status of an answer where no server serves a request.
const unavailable = "503 Service Unavailable"

// refusals are the statuses of answers to requests that cannot be served.
var refusals = map[uint32]string{
	regs.ExceptionReasonReasonBadRequest:   "400 Bad Request",
	regs.ExceptionReasonReasonHeadTooLarge: "431 Request Header Fields Too Large",
	regs.ExceptionReasonReasonNoRule:       "404 Not Found",
	regs.ExceptionReasonReasonNoServer:     unavailable,
}

// sorry ends a connection whose request nobody serves: in words where its service speaks HTTP, else with RST.
func (h *Handler) sorry(e *regs.ExceptionEntry, status string) {
	handle := handleOf(e)
	if h.st.HTTP[e.IndexService] {
		switch h.cfg.Reply(handle, answer(status)) {
		case Taken:
			h.count(Replied)
			return
		case TooLate:
			h.count(DropCommand)
			return
		}
	}
	if err := h.cfg.Reset(handle); err != nil {
		h.count(DropCommand)
		return
	}
	h.count(Refused)
}

func handleOf(e *regs.ExceptionEntry) uint32 {
	return regs.SetExceptionHandleGeneration(e.HandleN, e.HandleGeneration)
}

// answer is a whole response.
func answer(status string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", status, len(status)+1, status)
}
