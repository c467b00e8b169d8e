package exception

import (
	"bytes"
	"cmp"
	"strings"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/head"
	"splicenic/runtime/rule"
)

// A Connect says where the request of a waiting connection goes, and as what.
type Connect struct {
	Target   uint32 // a server; with Group a group, of whose servers the card picks one
	Group    bool
	Port     uint16 // source port that the server sees; zero: the client's
	Replace  []byte // takes the place of what the head buffer holds, as far as a head buffer reaches; nil: that stays
	Inserted int32  // with Replace: how many bytes more the server is to get than the client sent
	Rule     uint32 // index of the rule that the request was found to take, plus one; zero: as the card found
	Last     bool   // Boundary is the client's sequence number behind the only request
	Boundary uint32
}

// Service is what the handler knows of a service.
type Service struct {
	*config.Service
	Rules   []uint32       // index in the rule table, plus one, by place in Routes
	Answers map[uint32]int // place in Routes by index in the rule table, of the rules whose requests are answered

	matcher *rule.Matcher
}

// match finds the route of a request. Services of which nobody asks that do not pay for it.
func (s *Service) match(r *rule.Request) (place int, ok bool) {
	if s.matcher == nil {
		s.matcher = s.Matcher()
	}
	return s.matcher.Match(r)
}

// Alters says whether the host has a hand in what a service's servers are sent first. It also looks at the requests of a
// service with limits that the card does not know.
func Alters(s *config.Service) bool {
	return s.Proxy || s.Protocol != config.TCP && maxHead(s) < regs.HeadBytes ||
		s.Protocol == config.HTTP && (s.Forwarded != config.NoForwarded || s.Requests == config.Close || s.MaxTarget != 0 && s.MaxTarget < regs.HeadBytes)
}

// mostStream is how many bytes the card waits for: a head, what is inserted, what came along with its end and behind it.
const mostStream = head.MaxHead + 3*regs.HeadBytes

func maxHead(s *config.Service) int { return min(cmp.Or(s.MaxHead, head.MaxHead), head.MaxHead) }

// A request is what a client sent first, on a connection that waits for the host.
type request struct {
	handle  uint32
	service *Service // nil: not in the configuration any more
	conn    Connection
	bytes   []byte      // all that the client sent so far, as far as it was asked for
	parts   *pending    // they were gathered: the card has no more of them than came since; nil: it has them all
	head    *head.Head  // nil: nothing that the host reads
	hello   *head.Hello // likewise
}

// requestOf finds out what is known of a connection that waits for the host.
func (h *Handler) requestOf(handle uint32) (q *request, ok bool) {
	q = &request{handle: handle}
	if q.conn, ok = h.cfg.Connection(handle); !ok {
		h.count(DropLate)
		h.Closed(handle)
		return nil, false
	}
	q.service = h.st.Services[q.conn.Page.IndexService]
	return q, true
}

// speaks says whether the request's service speaks a protocol.
func (q *request) speaks(p config.Protocol) bool { return q.service != nil && q.service.Protocol == p }

// first is the sequence number of the client's first byte.
func (q *request) first() uint32 { return q.conn.Page.ClientIsn + 1 }

// wantsHead says whether the client asked for the head of the answer only.
func (q *request) wantsHead() bool {
	if q.head != nil {
		return q.head.Method == "HEAD"
	}
	return bytes.HasPrefix(bytes.TrimLeft(q.bytes, "\r\n"), []byte("HEAD "))
}

// peek fetches a request for who answers it and knows nothing of it yet. It may have been altered for a server already.
func (h *Handler) peek(q *request) {
	if q.bytes != nil || !q.speaks(config.HTTP) {
		return
	}
	n, _, outcome := h.cfg.Take(q.handle, true, h.taken[:])
	if outcome != Taken {
		return
	}
	q.bytes = head.CutProxy(h.taken[:n])
	q.parse()
}

// read fetches what the card holds of a request. The card keeps it.
func (h *Handler) read(q *request) bool {
	n, _, outcome := h.cfg.Take(q.handle, true, h.taken[:])
	if outcome != Taken {
		h.count(DropLate)
		return false
	}
	q.bytes = h.taken[:n]
	return true
}

// parse reads the request's head or hello. Where it refuses the request it says so; what it cannot read by its service's
// protocol, and need not, it leaves alone.
func (q *request) parse() *refusal {
	s := q.service
	switch {
	case s == nil || len(q.bytes) == 0 || s.ServerFirst || s.Protocol == config.TCP:
		return nil
	case s.Protocol == config.TLS:
		hello, err := head.ParseHello(q.bytes)
		if err != nil {
			return badHello(err)
		}
		if q.hello = hello; hello.Bytes > maxHead(s.Service) {
			return &refused[regs.ExceptionReasonReasonHeadTooLarge]
		}
		return nil
	case s.H2C != "" && bytes.HasPrefix(q.bytes, preface):
		return nil
	}
	end, _ := head.End(q.bytes, 0)
	if end == 0 {
		return &refused[regs.ExceptionReasonReasonBadRequest]
	}
	hd, err := head.Parse(q.bytes[:end])
	if err != nil {
		return badHead(err)
	}
	q.head = hd
	limits := head.Limits{Target: s.MaxTarget, Head: s.MaxHead}
	if err := limits.Check(q.bytes[:end]); err != nil {
		return badHead(err)
	}
	return nil
}

// preface is what HTTP/2 begins with, up to where it could not be a request of HTTP/1.1 any more.
var preface = []byte(strings.TrimSuffix(head.Preface, "\r\nSM\r\n\r\n"))

// route finds the request's route and goes it.
func (h *Handler) route(q *request) {
	s := q.service
	var r *rule.Request
	switch {
	case q.head != nil:
		r = q.head.Request()
	case q.hello != nil:
		r = q.hello.Request()
	default:
		h.refuse(q, &refused[regs.ExceptionReasonReasonBadRequest])
		return
	}
	r.Source = q.conn.client().Addr()
	h.count(RuleByHost)
	if place, ok := s.match(r); ok {
		h.target(q, s.Routes[place].To, &s.Routes[place], s.Rules[place])
		return
	}
	h.target(q, s.Default, nil, 0)
}

// target sends a request to where its route leads, nil being the service's default.
func (h *Handler) target(q *request, t config.Target, by *config.Route, index uint32) {
	switch group, ok := h.groups[t.Group]; {
	case t.Reply != nil:
		h.answer(q, t.Reply, by)
	case ok:
		h.dispatch(q, group, index)
	default:
		h.refuse(q, &refused[regs.ExceptionReasonReasonNoRule])
	}
}

// dispatch offers a request to a group, altered as its service says.
func (h *Handler) dispatch(q *request, group, index uint32) {
	x := Connect{Rule: index}
	stream, r := h.altered(q, &x)
	if r != nil {
		h.refuse(q, r)
		return
	}
	h.offer(q, group, x, stream)
}

const (
	maxSorry = 8 // groups that a request goes through, each sorry for the one before
	maxMore  = 8 // times a client may send more of a gathered request while that is on the way to a server
)

// offer offers a request to a group, then to those that are sorry for it, and answers the client where none takes it.
// stream is what the server is to get; nil: what the head buffer holds.
func (h *Handler) offer(q *request, group uint32, x Connect, stream []byte) {
	for tries, more := 0, 0; tries < maxSorry; {
		x.Target, x.Group = group, true
		outcome := h.connect(q, &x, stream)
		if outcome == Taken {
			return
		}
		if more < maxMore && h.more(q) { // which the card wants to see in the stream first
			more++
			var r *refusal
			if stream, r = h.altered(q, &x); r != nil {
				h.refuse(q, r)
				return
			}
			continue
		}
		if outcome == TooLate {
			break
		}
		next, ok := h.sorryFor(q, group)
		if !ok {
			return
		}
		tries, group = tries+1, next
	}
	h.refuse(q, &refused[regs.ExceptionReasonReasonNoServer])
}

// sorryFor finds where requests go that no server of a group takes. Where that is no group it answers the client.
func (h *Handler) sorryFor(q *request, group uint32) (next uint32, ok bool) {
	var t config.Target
	if g := h.st.Groups[group]; g != nil {
		t = g.Sorry
	}
	next, ok = h.groups[t.Group]
	switch {
	case t.Reply != nil:
		h.count(Sorry)
		h.answer(q, t.Reply, nil)
		return 0, false
	case !ok:
		h.refuse(q, &refused[regs.ExceptionReasonReasonNoServer])
		return 0, false
	}
	h.count(Sorry)
	return next, true
}

// connect gives the card a server or a group for a request, and keeps what of the stream the card has no room for yet.
func (h *Handler) connect(q *request, x *Connect, stream []byte) Outcome {
	if x.Replace = stream; len(stream) > regs.HeadBytes {
		x.Replace = stream[:regs.HeadBytes]
		if len(h.feeds.of) >= maxFeeds {
			h.count(DropFeedFull)
			return Unusable
		}
	}
	outcome := h.cfg.Connect(q.handle, x)
	if outcome != Taken {
		return outcome
	}
	h.gathers.drop(q.handle)
	if len(stream) > regs.HeadBytes {
		h.feeds.add(q.handle, h.now).bytes = bytes.Clone(stream)
	}
	if stream != nil {
		h.count(Rewritten)
	}
	return Taken
}

// altered is what a server is to get of a request, nil where that is just what the card holds. Of x it fills in what the
// card has to know of that.
func (h *Handler) altered(q *request, x *Connect) ([]byte, *refusal) {
	s := q.service
	x.Inserted, x.Last = 0, false
	alters := s != nil && (s.Proxy || q.head != nil && (s.Forwarded != config.NoForwarded || s.Requests == config.Close))
	if !alters && q.parts == nil {
		return nil, nil
	}
	out, body := h.stream[:0], q.bytes
	if s.Proxy {
		out = h.proxyHeader(q, out)
	}
	if q.head != nil && alters {
		a := head.Alter{Client: q.conn.client(), VIP: q.conn.vip(), Close: s.Requests == config.Close, Forwarded: s.Forwarded, Existing: s.Existing}
		var err error
		if out, err = a.Apply(out, q.bytes[:q.head.Bytes], q.head); err != nil {
			return nil, badHead(err)
		}
		body = q.bytes[q.head.Bytes:]
		if a.Close {
			body = h.last(q, x, body)
		}
	}
	out = append(out, body...)
	h.stream = out
	if len(out) > mostStream {
		return nil, &refused[regs.ExceptionReasonReasonHeadTooLarge]
	}
	if x.Inserted = int32(len(out) - len(q.bytes)); out == nil {
		out = []byte{}
	}
	return out, nil
}

// last tells the card where the only request of a connection ends, where its head says so, and returns what of its body
// is there. What the client sent behind it goes nowhere, as if the server had closed.
func (h *Handler) last(q *request, x *Connect, body []byte) []byte {
	end, ok := q.head.Boundary()
	if !ok {
		h.count(EndUnknown)
		return body
	}
	x.Last, x.Boundary = true, q.first()+end
	if behind := len(q.bytes) - int(end); behind > 0 {
		h.count(BehindLast)
		x.Boundary += uint32(behind) // of which nothing is on the way any more
		body = body[:len(body)-behind]
	}
	return body
}

// proxyHeader tells the server of the client. Of the protocols that a client offers it tells the first.
func (h *Handler) proxyHeader(q *request, out []byte) []byte {
	h.proxied++
	tlvs := []head.TLV{{Type: head.TLVUniqueID, Value: h.uniqueID(h.proxied)}}
	if q.hello != nil {
		if q.hello.SNI != "" {
			tlvs = append(tlvs, head.TLV{Type: head.TLVAuthority, Value: []byte(q.hello.SNI)})
		}
		if len(q.hello.ALPN) > 0 {
			tlvs = append(tlvs, head.TLV{Type: head.TLVALPN, Value: []byte(q.hello.ALPN[0])})
		}
	}
	return head.ProxyV2(out, q.conn.client(), q.conn.vip(), tlvs...)
}
