package head

import (
	"bytes"
	"fmt"
	"strings"

	"splicenic/runtime/rule"
)

// What a head may be.
const (
	MaxHead       = 64 << 10 // bytes of a head
	DefaultTarget = 8000     // bytes of a request target, where a service sets no limit (RFC 9112 3 asks for a line of 8000)
	maxEmptyLines = 4        // before the request line
)

// Error says why a head or a hello is not taken, with what to tell the client.
type Error struct {
	Status int  // of the answer to a request; zero for a hello
	Alert  byte // to send to a TLS client; zero: none, it does not speak TLS
	More   bool // nothing is wrong yet: a hello is not whole
	Msg    string
}

// Error returns the message.
func (e *Error) Error() string { return e.Msg }

func refuse(status int, format string, args ...any) *Error {
	return &Error{Status: status, Msg: fmt.Sprintf(format, args...)}
}

func bad(format string, args ...any) *Error { return refuse(400, format, args...) }

// Preface begins every connection of HTTP/2 (RFC 9113 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// A Head is what a request head says.
type Head struct {
	Method    string
	Target    string // as sent
	Authority string // host and port as sent, of the target where it has one, else of the Host field
	Host      string // the authority's host as rules compare it: lower case, without port and final dot, IPv6 as RFC 5952 has it
	Path      string // as rules compare it; empty for "*", for CONNECT and for OPTIONS on a whole server
	Query     string // as sent, without the question mark
	Minor     int    // HTTP/1.Minor
	Fields    []Field

	Length  int64 // Content-Length; -1: none
	Chunked bool  // the body's last transfer coding
	Upgrade bool  // another protocol is asked for (RFC 9110 7.8)
	Expect  bool  // 100-continue

	Bytes int // of the head, with the empty lines before and the one behind
}

// A Field is a field line.
type Field struct {
	Name, Value string // as sent, without space around the value
	Begin, End  int    // of the line in the head, CRLF included
}

// Header returns the values of every field by its name in lower case.
func (h *Head) Header() map[string][]string {
	m := make(map[string][]string, len(h.Fields))
	for i := range h.Fields {
		name := strings.ToLower(h.Fields[i].Name)
		m[name] = append(m[name], h.Fields[i].Value)
	}
	return m
}

// Request is what rules look at of the head; Source is the caller's to fill in.
func (h *Head) Request() *rule.Request {
	return &rule.Request{Method: h.Method, Host: h.Host, Path: h.Path, Query: h.Query, Header: h.Header()}
}

// maxRequest is how long a request may be for its end to be named by a sequence number: what is behind the end must not
// look like what is before its begin, by as much as the largest window.
const maxRequest = 1 << 30

// Boundary returns how many bytes the request has, from the first of its head to the last of its body. It is unknown (ok
// is false) where the body is chunked or longer than a gigabyte; with CONNECT or Upgrade there is no end.
func (h *Head) Boundary() (n uint32, ok bool) {
	body := max(h.Length, 0)
	if h.Chunked || h.Upgrade || h.Method == "CONNECT" || body >= maxRequest-int64(h.Bytes) {
		return 0, false
	}
	return uint32(body) + uint32(h.Bytes), true
}

// End looks for the end of a head. b is all that arrived, scanned is what the previous call returned as scannedTo, zero at
// first. With an end, b[:end] is what Parse reads. A line that ends without CR and one empty line too many end it too:
// Parse refuses them, and there is no use in waiting.
func End(b []byte, scanned int) (end, scannedTo int) {
	begin := 0
	for bytes.HasPrefix(b[begin:], crlf) {
		if begin += len(crlf); begin > maxEmptyLines*len(crlf) {
			return begin, begin
		}
	}
	if rest := b[begin:]; len(rest) == 0 || len(rest) == 1 && rest[0] == '\r' {
		return 0, 0 // another empty line may come
	}
	for at := max(begin, scanned); ; {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return 0, len(b)
		}
		at += i + 1
		if line := b[begin:at]; !bytes.HasSuffix(line, crlf) || bytes.HasSuffix(line, []byte("\r\n\r\n")) {
			return at, at
		}
	}
}

var crlf = []byte("\r\n")

// Limits bound a head. A zero or senseless limit stands for its default: DefaultTarget and MaxHead.
type Limits struct{ Target, Head int }

// Check says whether b, a head or what arrived of one, breaks a limit: the error has status 414 or 431.
func (l Limits) Check(b []byte) error {
	if l.Target <= 0 {
		l.Target = DefaultTarget
	}
	if l.Head <= 0 || l.Head > MaxHead {
		l.Head = MaxHead
	}
	line := b
	for n := 0; n < maxEmptyLines && bytes.HasPrefix(line, crlf); n++ {
		line = line[len(crlf):]
	}
	line, _, _ = bytes.Cut(line, crlf)
	_, target, _ := bytes.Cut(line, []byte(" "))
	if target, _, _ = bytes.Cut(target, []byte(" ")); len(target) > l.Target {
		return refuse(414, "the request target is longer than %d bytes", l.Target)
	}
	if len(b) > l.Head {
		return refuse(431, "the request head is longer than %d bytes", l.Head)
	}
	return nil
}
