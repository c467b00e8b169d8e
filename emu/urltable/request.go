package urltable

import "bytes"

// MaxSegments is how deep a path may be while its dot segments are removed.
const MaxSegments = 32

// maxPath is the longest path that is normalised by copying: a head buffer holds no longer one.
const maxPath = 8192

// maxHead is the longest head that offsets of fields reach.
const maxHead = 1<<16 - 1

// MaxFields is how many fields a head may have.
const MaxFields = 128

// A Verdict is what came of reading a head or a hello.
type Verdict uint8

// The verdicts of ParseHead and ParseHello.
const (
	OK            Verdict = iota
	Malformed             // not a legal request, or one whose body two servers could delimit differently
	NotHTTP               // the first byte cannot start a request
	TooDeep               // the path has more than MaxSegments segments
	TooManyFields         // more than MaxFields
	NotTLS                // the first bytes cannot start a TLS connection
	BadHello              // not a legal ClientHello
	verdicts
)

var verdictNames = [verdicts]string{
	OK: "ok", Malformed: "malformed", NotHTTP: "not_http", TooDeep: "too_deep", TooManyFields: "too_many_fields", NotTLS: "not_tls",
	BadHello: "bad_hello",
}

// String returns the verdict's name.
func (v Verdict) String() string {
	if v < verdicts {
		return verdictNames[v]
	}
	return "unknown"
}

// A Field says where in a head the name and the value of a field lie, the value without white space around it.
type Field struct{ Name, NameEnd, Value, ValueEnd uint16 }

// A Request is what a head or a hello says, as far as rules ask, and where it comes from. The slices are views of the head,
// or lie in the Request where something had to be rewritten. It is large: keep one and use it again. ParseHead leaves
// Source and IPv6 alone.
type Request struct {
	Method []byte
	Target []byte // as sent
	Host   []byte // of the target where it has one, else of the Host field; without port and final dot; letters as sent
	Path   []byte // normalised, without query
	Query  []byte // what follows the first "?" of the target, as sent; nil where there is none
	Minor  uint8  // HTTP/1.Minor
	Fields [MaxFields]Field
	// NFields is how many of Fields are filled, in the order of the head.
	NFields int

	ALPN []byte // of a hello, as in Hello

	Source [4]uint32 // the client's address as pages hold it
	IPv6   bool

	head    []byte
	path    [maxPath]byte
	literal [48]byte
}

// Name returns the name of field i as sent.
func (r *Request) Name(i int) []byte { return r.head[r.Fields[i].Name:r.Fields[i].NameEnd] }

// Value returns the value of field i.
func (r *Request) Value(i int) []byte { return r.head[r.Fields[i].Value:r.Fields[i].ValueEnd] }

// SetHello makes r the request that a ClientHello stands for: the server's name is its host, there is neither method nor
// path.
func (r *Request) SetHello(h *Hello) {
	r.clear(nil)
	r.Host, r.ALPN = h.SNI, h.ALPN
}

func (r *Request) clear(head []byte) {
	r.Method, r.Target, r.Host, r.Path, r.Query, r.Minor, r.NFields, r.ALPN, r.head = nil, nil, nil, nil, nil, 0, 0, nil, head
}

// framing is what ParseHead remembers of the header fields while it reads them.
type framing struct {
	host     []byte
	hosts    int
	length   bool // Content-Length was there
	encoding bool // Transfer-Encoding was there: chunked
}

// ParseHead reads a whole request head (RFC 9112 2, 3 and 5), as FindEnd delimits it, into r. Lines end with CRLF only,
// folded lines are refused, and so are heads with several or conflicting lengths (RFC 9112 6.3): what reaches a server
// can be read in one way only.
func ParseHead(head []byte, r *Request) Verdict {
	r.clear(head)
	i := 0
	for n := 0; len(head)-i >= 2 && head[i] == '\r' && head[i+1] == '\n'; n++ {
		if n == maxEmptyLines {
			return Malformed
		}
		i += 2
	}
	if i == len(head) || len(head) > maxHead {
		return Malformed
	}
	if class[head[i]]&token == 0 {
		return NotHTTP
	}
	i, ok := r.requestLine(head, i)
	if !ok {
		return Malformed
	}
	var f framing
	for i < len(head) && head[i] != '\r' {
		if r.NFields == MaxFields {
			return TooManyFields
		}
		if i, ok = r.field(head, i); !ok || !f.add(r.Name(r.NFields-1), r.Value(r.NFields-1)) {
			return Malformed
		}
	}
	if string(head[i:]) != crlf || !f.consistent(r.Minor) {
		return Malformed
	}
	return r.locate(&f)
}

const crlf = "\r\n"

// requestLine reads "method SP target SP HTTP/1.x CRLF" at i and returns where the next line begins.
func (r *Request) requestLine(head []byte, i int) (next int, ok bool) {
	method := i
	for i < len(head) && class[head[i]]&token != 0 {
		i++
	}
	r.Method = head[method:i]
	if i == len(head) || head[i] != ' ' {
		return 0, false
	}
	i++
	begin := i
	for i < len(head) && class[head[i]]&target != 0 {
		i++
	}
	r.Target = head[begin:i]
	const version = " HTTP/1."
	end := i + len(version) + 1
	if i == begin || end+len(crlf) > len(head) || string(head[i:end-1]) != version || string(head[end:end+len(crlf)]) != crlf {
		return 0, false
	}
	r.Minor = head[end-1] - '0'
	return end + len(crlf), r.Minor <= 9
}

// field reads the field line at i (RFC 9112 5) and returns where the next line begins.
func (r *Request) field(head []byte, i int) (next int, ok bool) {
	name := i
	for i < len(head) && class[head[i]]&token != 0 {
		i++
	}
	if i == name || i == len(head) || head[i] != ':' {
		return 0, false
	}
	nameEnd := i
	i++
	for i < len(head) && blank(head[i]) {
		i++
	}
	value := i
	i = lineEnd(head, i)
	if len(head)-i < len(crlf) || head[i] != '\r' || head[i+1] != '\n' {
		return 0, false
	}
	end := i
	for end > value && blank(head[end-1]) {
		end--
	}
	r.Fields[r.NFields] = Field{uint16(name), uint16(nameEnd), uint16(value), uint16(end)}
	r.NFields++
	return i + len(crlf), true
}

// add takes in what tells where the request goes and where its body ends. Of transfer codings only chunked is taken, once:
// servers do not agree on lists of codings, parameters and empty elements, and clients send none.
func (f *framing) add(name, value []byte) bool {
	switch len(name) {
	case len("host"):
		if foldEqual(name, "host") {
			f.hosts++
			f.host = value
		}
	case len("content-length"):
		if foldEqual(name, "content-length") {
			if f.length || !length(value) {
				return false
			}
			f.length = true
		}
	case len("transfer-encoding"):
		if foldEqual(name, "transfer-encoding") {
			if f.encoding || !foldEqual(value, "chunked") {
				return false
			}
			f.encoding = true
		}
	}
	return true
}

// length checks a Content-Length: digits, and a number that fits 63 bits (RFC 9110 8.6).
func length(s []byte) bool {
	n := uint64(0)
	for _, b := range s {
		if b < '0' || b > '9' || n > (1<<63-1)/10 {
			return false
		}
		n = n*10 + uint64(b-'0')
	}
	return len(s) > 0 && n < 1<<63
}

// consistent checks what only all fields together tell.
func (f *framing) consistent(minor uint8) bool {
	if f.hosts > 1 || f.hosts == 0 && minor > 0 {
		return false
	}
	return !f.encoding || !f.length && minor > 0
}

// locate finds host and path by the form of the target (RFC 9112 3.2). The Host field is checked even where the target
// overrides it; it may be another one, but not empty (RFC 9112 3.2), and with CONNECT it is the target's.
func (r *Request) locate(f *framing) Verdict {
	host, ok := cutPort(f.host)
	if !ok {
		return Malformed
	}
	if string(r.Method) == "CONNECT" {
		authority, ok := cutPort(r.Target)
		if !ok || len(authority) == 0 || len(authority) == len(r.Target) || f.hosts > 0 && !bytes.EqualFold(authority, host) {
			return Malformed
		}
		r.setHost(authority)
		return OK
	}
	if string(r.Target) == "*" {
		if string(r.Method) != "OPTIONS" { // RFC 9112 3.2.4
			return Malformed
		}
		r.setHost(host)
		return OK
	}
	path := r.Target
	if path[0] != '/' {
		authority := afterScheme(path)
		end := 0
		for end < len(authority) && authority[end] != '/' && authority[end] != '?' {
			end++
		}
		empty := f.hosts > 0 && len(host) == 0
		host, ok = cutPort(authority[:end])
		if !ok || len(host) == 0 || empty {
			return Malformed
		}
		path = authority[end:]
	}
	r.setHost(host)
	if len(path) == 0 && string(r.Method) == "OPTIONS" { // the asterisk form of a proxy's client (RFC 9112 3.2.4)
		return OK
	}
	return r.setPath(path)
}

// setHost sets the host as rules compare it. IPv6 literals are compared by value: they get the form of RFC 5952.
func (r *Request) setHost(host []byte) {
	n := len(host)
	if n > 0 && host[0] == '[' {
		a, _ := address(host[1 : n-1])
		r.Host = appendLiteral(r.literal[:0], &a)
		return
	}
	if n > 1 && host[n-1] == '.' {
		host = host[:n-1]
	}
	r.Host = host
}

// afterScheme returns what follows "http://" or "https://", nothing where neither is there.
func afterScheme(target []byte) []byte {
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(target) > len(scheme) && foldEqual(target[:len(scheme)], scheme) {
			return target[len(scheme):]
		}
	}
	return nil
}
