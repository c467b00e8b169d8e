package exception

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/head"
)

// Bounds of what is remembered of connections: each has at most mostStream bytes and what was inserted.
const (
	maxGathers    = 256 // connections whose heads outgrow the card's buffers
	maxFeeds      = 256 // connections whose servers are owed bytes that the card has no room for
	sweepInterval = 30 * time.Second
)

// A pending is the bytes of a client that the host keeps for the card.
type pending struct {
	begun, used time.Duration
	bytes       []byte
	scanned     int  // of bytes, for the end of a head
	fin         bool // the client sends no more
}

// A store is the pendings of one kind by handle.
type store struct{ of map[uint32]*pending }

func newStore() store { return store{map[uint32]*pending{}} }

func (s *store) add(handle uint32, now time.Duration) *pending {
	p := &pending{begun: now, used: now}
	s.of[handle] = p
	return p
}

func (s *store) drop(handle uint32) { delete(s.of, handle) }

// oldest is the handle that has been there longest.
func (s *store) oldest() (handle uint32) {
	var best *pending
	for n, p := range s.of {
		if best == nil || p.begun < best.begun || p.begun == best.begun && n < handle {
			handle, best = n, p
		}
	}
	return handle
}

// unused lists the handles that nothing was heard of for a while, in order.
func (s *store) unused(now time.Duration) (list []uint32) {
	for n, p := range s.of {
		if now-p.used >= sweepInterval {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// Closed tells that a connection is over: nothing of it is kept any longer.
func (h *Handler) Closed(handle uint32) {
	h.gathers.drop(handle)
	h.feeds.drop(handle)
	delete(h.readings.of, handle)
}

// sweep forgets connections whose end nobody told.
func (h *Handler) sweep(now time.Duration) {
	if now < h.nextSweep {
		return
	}
	h.nextSweep = now + sweepInterval
	for _, s := range []*store{&h.gathers, &h.feeds} {
		for _, n := range s.unused(now) {
			if _, ok := h.cfg.Connection(n); !ok {
				s.drop(n)
			}
		}
	}
}

// tooLarge begins to gather a head that fills its buffer without an end. One that the card holds whole has more fields
// than the card reads.
func (h *Handler) tooLarge(q *request) {
	if !h.read(q) {
		return
	}
	s := q.service
	if s == nil || s.Protocol == config.TCP {
		h.refuse(q, h.beyond(q))
		return
	}
	if whole, _ := ends(s, q.bytes, 0); whole {
		h.settle(q)
		return
	}
	if h.exceeds(q) {
		h.refuse(q, h.beyond(q))
		return
	}
	h.gathers.drop(q.handle)
	for len(h.gathers.of) >= maxGathers {
		oldest := h.gathers.oldest()
		if old, ok := h.requestOf(oldest); ok {
			old.bytes = h.gathers.of[oldest].bytes
			h.refuse(old, &tooMany)
		}
		h.gathers.drop(oldest)
		h.count(DropGatherFull)
	}
	q.parts = h.gathers.add(q.handle, h.now)
	h.gather(q)
}

// moreOf goes on gathering.
func (h *Handler) moreOf(q *request) {
	if q.parts = h.gathers.of[q.handle]; q.parts == nil || q.service == nil { // another runtime had the begin
		h.refuse(q, &tooMany)
		return
	}
	h.gather(q)
}

// gather takes from the card what it has of a head, and decides as soon as the head is whole.
func (h *Handler) gather(q *request) {
	if !h.take(q) {
		h.count(DropLate)
		h.gathers.drop(q.handle)
		return
	}
	p, whole := q.parts, false
	if whole, p.scanned = ends(q.service, p.bytes, p.scanned); whole {
		h.count(HeadGathered)
		h.settle(q)
		return
	}
	if h.exceeds(q) {
		h.refuse(q, h.beyond(q))
		return
	}
	if p.fin {
		h.count(ClientGone)
		h.Closed(q.handle)
		h.replyTo(q, nil, Refused)
	}
}

// settle decides about a request that the host has whole.
func (h *Handler) settle(q *request) {
	if r := q.parse(); r != nil {
		h.refuse(q, r)
		return
	}
	h.route(q)
}

// ends says whether what a client sent holds all that its service decides by, or what can be no begin of that. scanned
// is what the previous call returned as scannedTo.
func ends(s *Service, b []byte, scanned int) (whole bool, scannedTo int) {
	if s.Protocol == config.TLS {
		return helloEnds(b), 0
	}
	end, scannedTo := head.End(b, scanned)
	return end > 0, scannedTo
}

// helloEnds says whether records hold a ClientHello, or what can become none.
func helloEnds(b []byte) bool {
	_, err := head.ParseHello(b)
	var e *head.Error
	return !errors.As(err, &e) || !e.More
}

// exceeds says whether what is there of a request is more than its service takes.
func (h *Handler) exceeds(q *request) bool {
	s := q.service.Service
	return len(q.bytes) >= maxHead(s) || s.Protocol == config.HTTP && lineTooLong(q.bytes, s.MaxTarget)
}

// take appends what the card has of a gathered head, which gives its buffer back to the client.
func (h *Handler) take(q *request) bool {
	n, boundary, outcome := h.cfg.Take(q.handle, false, h.taken[:])
	if outcome != Taken {
		return false
	}
	h.count(Gathered)
	p := q.parts
	p.used = h.now
	p.bytes = append(p.bytes, h.taken[:n]...)
	p.fin = boundary != q.first()+uint32(len(p.bytes))
	q.bytes = p.bytes
	return true
}

// more fetches what came while a gathered request was on its way to a server. It says whether anything did. The card keeps
// it, and so gives the client no room for more than its buffer: a client that sends without end does not keep a request
// from its server.
func (h *Handler) more(q *request) bool {
	if q.parts == nil {
		return false
	}
	n, _, outcome := h.cfg.Take(q.handle, true, h.taken[:])
	if outcome != Taken {
		return false
	}
	before, gathered := len(q.bytes), q.parts.bytes
	q.bytes = append(gathered[:len(gathered):len(gathered)], h.taken[:n]...)
	return len(q.bytes) > before
}

// beyond says which part of a head is too large.
func (h *Handler) beyond(q *request) *refusal {
	if q.speaks(config.HTTP) && lineTooLong(q.bytes, q.service.MaxTarget) {
		return &targetTooLong
	}
	return &refused[regs.ExceptionReasonReasonHeadTooLarge]
}

// lineTooLong says whether a head begins with a request line whose target is longer than most bytes; zero: the default.
func lineTooLong(b []byte, most int) bool {
	var e *head.Error
	return errors.As(head.Limits{Target: most}.Check(b), &e) && e.Status == 414
}

// feed gives the card more of what a server is owed, from the byte on that the server waits for.
func (h *Handler) feed(q *request) {
	w, p := &q.conn.Page, h.feeds.of[q.handle]
	if w.ControlHeld == 0 || w.HeadBytes != 0 {
		h.count(DropLate) // told twice
		return
	}
	acked := w.AAckServer - (w.AIsn + 1 - w.ADeltaClient)
	from := acked &^ (regs.HeadBytes - 1)
	if p == nil || uint64(from) >= uint64(len(p.bytes)) { // another runtime had them: nobody can make up for that
		h.count(DropFeedLost)
		if err := h.cfg.Reset(q.handle); err != nil {
			h.count(DropCommand)
		}
		h.Closed(q.handle)
		return
	}
	p.used = h.now
	chunk := p.bytes[from:]
	if len(chunk) > regs.HeadBytes {
		chunk = chunk[:regs.HeadBytes]
	}
	if h.cfg.Feed(q.handle, chunk) != Taken {
		h.count(DropCommand)
		return
	}
	h.count(Fed)
	if int(from)+len(chunk) == len(p.bytes) { // the card has the rest
		h.feeds.drop(q.handle)
	}
}

// uniqueID names the n-th connection that a server is told of by a PROXY header.
func (h *Handler) uniqueID(n uint64) []byte {
	return binary.BigEndian.AppendUint64(bytes.Clone(h.name[:]), n)
}
