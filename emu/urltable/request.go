package urltable

// MaxSegments is how deep a path may be while its dot segments are removed.
const MaxSegments = 32

// maxPath is the longest path that is normalised by copying: a head buffer holds no longer one.
const maxPath = 8192

// A Verdict is what came of reading a head.
type Verdict uint8

// The verdicts of ParseHead.
const (
	OK        Verdict = iota
	Malformed         // not a legal request, or one whose body two servers could delimit differently
	NotHTTP           // the first byte cannot start a request
	TooDeep           // the path has more than MaxSegments segments
)

// String returns the verdict's name.
func (v Verdict) String() string {
	switch v {
	case OK:
		return "ok"
	case NotHTTP:
		return "not_http"
	case TooDeep:
		return "too_deep"
	}
	return "malformed"
}

// A Request is what a head says, as far as rules ask. Method, Host and Target are views of the head; Path is one too,
// or lies in the Request where the path had to be rewritten. It is large: keep one and use it again.
type Request struct {
	Method []byte
	Target []byte // as sent
	Host   []byte // of the target where it has one, else of the Host field; without port and final dot; as sent
	Path   []byte // normalised, without query
	Minor  uint8  // HTTP/1.Minor

	path [maxPath]byte
}

// fields is what ParseHead remembers of the header fields while it reads them.
type fields struct {
	host     []byte
	hosts    int
	length   bool // Content-Length was there
	encoding bool // Transfer-Encoding was there
	chunked  bool // its last coding so far is chunked
}

// ParseHead reads a whole request head (RFC 9112 2, 3 and 5), as FindEnd delimits it, into r. Lines end with CRLF only,
// folded lines are refused, and so are heads with several or conflicting lengths (RFC 9112 6.3): what reaches a server
// can be read in one way only.
func ParseHead(head []byte, r *Request) Verdict {
	r.Method, r.Target, r.Host, r.Path, r.Minor = nil, nil, nil, nil, 0
	for n := 0; len(head) >= 2 && head[0] == '\r' && head[1] == '\n'; n++ {
		if n == maxEmptyLines {
			return Malformed
		}
		head = head[2:]
	}
	if len(head) == 0 {
		return Malformed
	}
	if class[head[0]]&token == 0 {
		return NotHTTP
	}
	line, head, ok := cutLine(head)
	if !ok || !r.requestLine(line) {
		return Malformed
	}
	var f fields
	for {
		line, head, ok = cutLine(head)
		if !ok {
			return Malformed
		}
		if len(line) == 0 {
			break
		}
		if !f.add(line) {
			return Malformed
		}
	}
	if len(head) != 0 || !f.consistent(r.Minor) {
		return Malformed
	}
	return r.locate(f.host)
}

// cutLine takes the first line off head. A line with a control character other than HTAB is none.
func cutLine(head []byte) (line, rest []byte, ok bool) {
	for i, b := range head {
		if class[b]&text != 0 {
			continue
		}
		if b == '\r' && i+1 < len(head) && head[i+1] == '\n' {
			return head[:i], head[i+2:], true
		}
		break
	}
	return nil, nil, false
}

// requestLine reads "method SP target SP HTTP/1.x".
func (r *Request) requestLine(line []byte) bool {
	i := 0
	for i < len(line) && class[line[i]]&token != 0 {
		i++
	}
	const version = " HTTP/1."
	end := len(line) - len(version) - 1
	if i == 0 || end < i+2 || line[i] != ' ' || string(line[end:len(line)-1]) != version {
		return false
	}
	minor := line[len(line)-1] - '0'
	r.Method, r.Target, r.Minor = line[:i], line[i+1:end], minor
	for _, b := range r.Target {
		if b <= ' ' || b == 0x7f || b == '#' {
			return false
		}
	}
	return minor <= 9
}

// add takes in one field line (RFC 9112 5).
func (f *fields) add(line []byte) bool {
	i := 0
	for i < len(line) && class[line[i]]&token != 0 {
		i++
	}
	if i == 0 || i == len(line) || line[i] != ':' {
		return false
	}
	name, value := line[:i], trim(line[i+1:])
	switch {
	case foldEqual(name, "host"):
		f.hosts++
		f.host = value
	case foldEqual(name, "content-length"):
		if f.length || !digits(value) || len(value) == 0 {
			return false
		}
		f.length = true
	case foldEqual(name, "transfer-encoding"):
		f.encoding = true
		return f.codings(value)
	}
	return true
}

// codings reads a list of transfer codings. Chunked has to be the last of all lines', and only once.
func (f *fields) codings(list []byte) bool {
	for len(list) > 0 {
		i := 0
		for i < len(list) && list[i] != ',' {
			i++
		}
		coding := trim(list[:i])
		list = list[min(i+1, len(list)):]
		if len(coding) == 0 {
			continue
		}
		if f.chunked {
			return false
		}
		f.chunked = foldEqual(coding, "chunked")
	}
	return true
}

// consistent checks what only all fields together tell.
func (f *fields) consistent(minor uint8) bool {
	if f.hosts > 1 || f.hosts == 0 && minor > 0 {
		return false
	}
	if !f.encoding {
		return true
	}
	return f.chunked && !f.length && minor > 0
}

// locate finds host and path by the form of the target (RFC 9112 3.2). The Host field is checked even where the target
// overrides it.
func (r *Request) locate(field []byte) Verdict {
	host, ok := cutPort(field)
	if !ok {
		return Malformed
	}
	if string(r.Method) == "CONNECT" {
		host, ok = cutPort(r.Target)
		if !ok || len(host) == 0 || len(host) == len(r.Target) {
			return Malformed
		}
		r.setHost(host)
		return OK
	}
	if string(r.Target) == "*" {
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
		host, ok = cutPort(authority[:end])
		if !ok || len(host) == 0 {
			return Malformed
		}
		path = authority[end:]
	}
	r.setHost(host)
	return r.setPath(path)
}

func (r *Request) setHost(host []byte) {
	if n := len(host); n > 1 && host[n-1] == '.' {
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

// cutPort checks "host [":" port]" (RFC 3986 3.2.2) and returns the host, an IPv6 literal with its brackets. An empty
// host has no port either.
func cutPort(s []byte) (host []byte, ok bool) {
	i := 0
	if len(s) > 0 && s[0] == '[' {
		for i = 1; i < len(s) && class[s[i]]&literal != 0; i++ {
		}
		if i == len(s) || s[i] != ']' || !address(s[1:i]) {
			return nil, false
		}
		i++
	} else {
		for ; i < len(s) && class[s[i]]&name != 0; i++ {
			if s[i] == '%' && !escape(s[i:]) {
				return nil, false
			}
		}
	}
	if i == len(s) {
		return s, true
	}
	if i == 0 || s[i] != ':' || !digits(s[i+1:]) {
		return nil, false
	}
	return s[:i], true
}

// address checks the text between the brackets of an IPv6 literal: groups of at most four hexadecimal digits, one gap at
// most, a dotted quad at the end at most (RFC 3986 3.2.2).
func address(s []byte) bool {
	groups, gap := 0, false
	if len(s) >= 2 && s[0] == ':' && s[1] == ':' {
		gap, s = true, s[2:]
	}
	for len(s) > 0 {
		n := 0
		for n < len(s) && class[s[n]]&hexadecimal != 0 {
			n++
		}
		if n < len(s) && s[n] == '.' {
			if !quad(s) {
				return false
			}
			groups += 2
			break
		}
		if n == 0 || n > 4 {
			return false
		}
		groups++
		s = s[n:]
		if len(s) == 0 {
			break
		}
		if s[0] != ':' || len(s) == 1 {
			return false
		}
		if s[1] != ':' {
			s = s[1:]
			continue
		}
		if gap {
			return false
		}
		gap, s = true, s[2:]
	}
	return groups == 8 || gap && groups < 8
}

// quad checks a dotted IPv4 address.
func quad(s []byte) bool {
	for part := 0; part < 4; part++ {
		n, v := 0, 0
		for n < len(s) && n < 3 && s[n] >= '0' && s[n] <= '9' {
			v = v*10 + int(s[n]-'0')
			n++
		}
		if n == 0 || v > 255 || n > 1 && s[0] == '0' {
			return false
		}
		s = s[n:]
		if part == 3 {
			return len(s) == 0
		}
		if len(s) == 0 || s[0] != '.' {
			return false
		}
		s = s[1:]
	}
	return false
}
