package exception

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/head"
	"splicenic/runtime/rule"
)

// A refusal is how a request ends that nobody serves.
type refusal struct {
	reason Reason
	status int    // answered where the service speaks HTTP; zero: RST
	alert  byte   // answered where it speaks TLS; zero: RST
	words  string // for the answer; empty: the status says it
}

// refused is how requests end by the card's reason to ask.
var refused = [...]refusal{
	regs.ExceptionReasonReasonBadRequest:   {RefusedRequest, 400, head.DecodeError, ""},
	regs.ExceptionReasonReasonNoRule:       {RefusedNoRule, 404, head.UnrecognizedName, ""},
	regs.ExceptionReasonReasonNoServer:     {RefusedNoServer, 503, 0, ""},
	regs.ExceptionReasonReasonHeadTooLarge: {RefusedHead, 431, head.DecodeError, ""},
	regs.ExceptionReasonReasonHeadTimeout:  {RefusedTimeout, 408, 0, ""},
	regs.ExceptionReasonReasonNotHttp:      {RefusedNotHTTP, 400, head.UnexpectedMessage, "this port speaks HTTP"},
	regs.ExceptionReasonReasonNotTls:       {RefusedNotTLS, 400, head.UnexpectedMessage, "this port speaks TLS"},
	regs.ExceptionReasonReasonH2c:          {RefusedH2C, 505, head.UnexpectedMessage, "this port speaks HTTP/1.1"},
	regs.ExceptionReasonReasonBadHello:     {RefusedHello, 400, head.DecodeError, ""},
}

// What the card does not know.
var (
	targetTooLong  = refusal{RefusedTarget, 414, head.DecodeError, ""}
	unknownVersion = refusal{RefusedVersion, 505, head.DecodeError, ""}
	tooMany        = refusal{RefusedTooMany, 503, head.InternalError, "too many large requests"}
)

// badHead is the refusal of what cannot be read as a head.
func badHead(err error) *refusal {
	var e *head.Error
	if errors.As(err, &e) {
		switch e.Status {
		case 414:
			return &targetTooLong
		case 431:
			return &refused[regs.ExceptionReasonReasonHeadTooLarge]
		case 505:
			return &unknownVersion
		}
	}
	return &refused[regs.ExceptionReasonReasonBadRequest]
}

// badHello is the refusal of what cannot be read as a ClientHello.
func badHello(err error) *refusal {
	r := refused[regs.ExceptionReasonReasonBadHello]
	var e *head.Error
	if errors.As(err, &e) && e.Alert != 0 {
		r.alert = e.Alert
	}
	return &r
}

// text is a refusal for people.
func (r *refusal) text() string {
	s := strconv.Itoa(r.status) + " " + head.StatusText(r.status)
	if r.words != "" {
		s += ": " + r.words
	}
	return s
}

// refuse ends a connection whose request nobody serves: in words where its service speaks HTTP, with an alert where it
// speaks TLS, else with RST.
func (h *Handler) refuse(q *request, r *refusal) {
	h.Closed(q.handle)
	h.count(r.reason)
	h.note(q, r.reason)
	var answer []byte
	how := Replied
	switch {
	case r.status != 0 && q.speaks(config.HTTP) && h.shares.words(r.reason):
		h.peek(q)
		answer = head.Answer(r.status, "text/plain", r.text()+"\n", q.wantsHead(), "")
	case r.alert != 0 && q.speaks(config.TLS) && h.shares.words(r.reason):
		answer, how = head.Alert(r.alert), Alerted
	}
	h.replyTo(q, answer, how)
}

// replyTo answers a client in a server's place, and resets the connection where it cannot.
func (h *Handler) replyTo(q *request, answer []byte, how Reason) {
	if answer != nil {
		switch h.cfg.Reply(q.handle, answer) {
		case Taken:
			h.count(how)
			return
		case TooLate:
			h.count(DropCommand)
			return
		}
	}
	if err := h.cfg.Reset(q.handle); err != nil {
		h.count(DropCommand)
		return
	}
	h.count(Refused)
}

// note logs a refusal, within bounds.
func (h *Handler) note(q *request, why Reason) {
	if h.cfg.Tell == nil || !h.told.take(h.now) {
		return
	}
	name := ""
	if q.service != nil {
		name = q.service.Name
	}
	h.cfg.Tell(q.conn.client(), name, why)
}

// answer answers a request as the configuration says. by is the route that it took, nil where that is no route.
func (h *Handler) answer(q *request, r *config.Reply, by *config.Route) {
	if !q.speaks(config.HTTP) {
		h.refuse(q, &refused[regs.ExceptionReasonReasonNoRule])
		return
	}
	h.peek(q)
	location := ""
	if r.Redirect != nil {
		location = redirect(q, r.Redirect, by)
	}
	kind, body := r.ContentType, r.Body
	if kind == "" {
		kind = "text/plain"
	}
	if body == "" {
		body = strconv.Itoa(r.Status) + " " + head.StatusText(r.Status) + "\n"
	}
	answer := head.Answer(r.Status, kind, body, q.wantsHead(), location)
	if len(answer) > regs.HeadBytes { // a long target's Location, at worst
		h.refuse(q, &targetTooLong)
		return
	}
	h.Closed(q.handle)
	h.replyTo(q, answer, Answered)
}

// redirect is where a request is told to go: where it went, with some parts put in place of its own. The query stays.
func redirect(q *request, r *config.Redirect, by *config.Route) string {
	vip := q.conn.vip()
	host, path, query := r.Host, "/", ""
	if q.head != nil {
		query = q.head.Query
		path = originalPath(q.head.Target)
		if host == "" {
			host = q.head.Host
		}
	}
	if host == "" {
		host = vip.Addr().Unmap().String()
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]"
	}
	scheme, port := r.Scheme, r.Port
	if scheme == "" {
		if scheme = "http"; port == 0 {
			port = vip.Port()
		}
	}
	if port != 0 && port != wellKnown[scheme] {
		host += ":" + strconv.Itoa(int(port))
	}
	switch {
	case r.ReplacePrefix && q.head != nil:
		prefix := ""
		if by != nil && by.Path.Kind == rule.PrefixPath {
			prefix = by.Path.Text
		}
		rest := strings.TrimPrefix(q.head.Path, prefix)
		path = strings.TrimSuffix(r.Path, "/") + escape(rest)
		if path == "" {
			path = "/"
		}
	case r.Path != "":
		path = r.Path
	}
	if query != "" {
		path += "?" + query
	}
	return scheme + "://" + host + path
}

var wellKnown = map[string]uint16{"http": 80, "https": 443}

// originalPath is the path of a target as the client wrote it.
func originalPath(target string) string {
	if i := strings.Index(target, "://"); i >= 0 && !strings.HasPrefix(target, "/") {
		target = target[i+3:]
		if i = strings.IndexAny(target, "/?"); i < 0 {
			return "/"
		}
		target = target[i:]
	}
	path, _, _ := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") {
		return "/"
	}
	return path
}

// escape percent-encodes what a path may not hold as it is. Percent signs of a normalised path begin what is encoded.
func escape(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c > ' ' && c < 0x7f && !strings.ContainsRune("\"#<>?[\\]^`{|}", rune(c)) {
			b.WriteByte(c)
			continue
		}
		const digits = "0123456789ABCDEF"
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}
