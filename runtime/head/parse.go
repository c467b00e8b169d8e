package head

import (
	"net/netip"
	"strconv"
	"strings"

	"splicenic/runtime/rule"
)

// Parse reads a whole head, the empty line at its end included. What is behind it makes it malformed: see End.
func Parse(b []byte) (*Head, error) {
	if len(b) > MaxHead {
		return nil, refuse(431, "the request head is longer than %d bytes", MaxHead)
	}
	h, err := parse(string(b))
	if err != nil {
		return nil, err
	}
	return h, nil
}

// A parser holds what is known before the last field is read.
type parser struct {
	Head
	text    string
	at      int // where the next line begins
	host    string
	hosts   int
	options []string
	upgrade bool // an Upgrade field was there
}

func parse(text string) (*Head, *Error) {
	p := parser{Head: Head{Length: -1, Bytes: len(text)}, text: text}
	for strings.HasPrefix(text[p.at:], "\r\n") {
		if p.at += 2; p.at > 2*maxEmptyLines {
			return nil, bad("more than %d empty lines precede the request line", maxEmptyLines)
		}
	}
	line, err := p.line()
	if err != nil {
		return nil, err
	}
	if err := p.requestLine(line); err != nil {
		return nil, err
	}
	for {
		begin := p.at
		line, err := p.line()
		if err != nil {
			return nil, err
		}
		if line == "" {
			break
		}
		if err := p.field(line, begin); err != nil {
			return nil, err
		}
	}
	if p.at != len(text) {
		return nil, bad("bytes follow the end of the head")
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return &p.Head, nil
}

// line returns the next line without its CRLF.
func (p *parser) line() (string, *Error) {
	line, _, ok := strings.Cut(p.text[p.at:], "\r\n")
	if !ok {
		return "", bad("the head has no end")
	}
	for i := range len(line) {
		if c := line[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", bad("a line holds the control character %#02x", c)
		}
	}
	p.at += len(line) + 2
	return line, nil
}

// requestLine reads "method SP target SP HTTP/1.x" (RFC 9112 3).
func (p *parser) requestLine(line string) *Error {
	method, rest, _ := strings.Cut(line, " ")
	if !rule.Token(method) {
		return bad("the request line does not begin with a method")
	}
	target, version, ok := strings.Cut(rest, " ")
	if !ok || target == "" {
		return bad("the request line has no version")
	}
	number, ok := strings.CutPrefix(version, "HTTP/")
	if !ok || len(number) != 3 || number[1] != '.' || !digits(number[:1]+number[2:]) {
		return bad("the request line does not end with a version")
	}
	if number[0] != '1' {
		return refuse(505, "HTTP version %s is not served", number)
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == '#' || c >= 0x80 {
			return bad("the request target holds %q", c)
		}
	}
	p.Method, p.Target, p.Minor = method, target, int(number[2]-'0')
	return nil
}

// field reads a field line (RFC 9112 5) and takes in what tells where the request goes and how long it is.
func (p *parser) field(line string, begin int) *Error {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !rule.Token(name) {
		return bad("a field line does not begin with a name and a colon")
	}
	value = strings.Trim(value, " \t")
	p.Fields = append(p.Fields, Field{Name: name, Value: value, Begin: begin, End: p.at})
	switch strings.ToLower(name) {
	case "host":
		p.host = value
		p.hosts++
	case "content-length":
		n, err := strconv.ParseInt(value, 10, 64)
		if p.Length >= 0 || !digits(value) || err != nil {
			return bad("Content-Length is repeated or no number")
		}
		p.Length = n
	case "transfer-encoding":
		// Servers do not agree on lists of codings, parameters and empty elements, and clients send none.
		if p.Chunked || !strings.EqualFold(value, "chunked") {
			return bad("Transfer-Encoding is repeated or not chunked")
		}
		p.Chunked = true
	case "connection":
		for option := range list(value) {
			p.options = append(p.options, strings.ToLower(option))
		}
	case "upgrade":
		p.upgrade = true
	case "expect":
		p.Expect = p.Expect || strings.EqualFold(value, "100-continue")
	}
	return nil
}

// finish checks what only all lines together tell, and finds host and path.
func (p *parser) finish() *Error {
	switch {
	case p.hosts > 1:
		return bad("there is more than one Host")
	case p.hosts == 0 && p.Minor > 0:
		return bad("there is no Host")
	case p.Chunked && p.Length >= 0:
		return bad("both Content-Length and Transfer-Encoding are there")
	case p.Chunked && p.Minor == 0:
		return bad("Transfer-Encoding is not for HTTP/1.0")
	}
	for _, option := range p.options {
		// Servers ignore Upgrade in HTTP/1.0 (RFC 9110 7.8).
		p.Upgrade = p.Upgrade || option == "upgrade" && p.upgrade && p.Minor > 0
	}
	return p.locate()
}

// locate finds host, path and query by the form of the target (RFC 9112 3.2). The Host field has to be right even where
// the target overrides it.
func (p *parser) locate() *Error {
	host, _, ok := splitHost(p.host)
	if !ok {
		return bad("Host is malformed")
	}
	p.Authority = p.host
	where := p.Target
	switch {
	case p.Method == "CONNECT":
		var port bool
		if host, port, ok = splitHost(p.Target); !ok || host == "" || !port {
			return bad("the target of CONNECT is not host and port")
		}
		if of, _, _ := splitHost(p.host); p.hosts > 0 && !strings.EqualFold(of, host) {
			return bad("Host is not that of the target")
		}
		p.Authority, where = p.Target, "*"
	case where == "*" && p.Method != "OPTIONS":
		return bad("the asterisk is for OPTIONS")
	case where == "*" || where[0] == '/':
	default:
		scheme, rest, _ := strings.Cut(where, "://")
		if scheme = strings.ToLower(scheme); scheme != "http" && scheme != "https" {
			return bad("the request target is neither a path nor of http")
		}
		n := strings.IndexAny(rest+"/", "/?")
		p.Authority, where = rest[:n], rest[n:]
		if host, _, ok = splitHost(p.Authority); !ok || host == "" {
			return bad("the authority of the request target is malformed")
		}
		if p.hosts > 0 && p.host == "" {
			return bad("Host is empty though the target has an authority")
		}
	}
	p.Host = canonical(host)
	if where == "*" || where == "" && p.Method == "OPTIONS" { // RFC 9112 3.2.4
		return nil
	}
	raw, query, _ := strings.Cut(where, "?")
	path, err := rule.Normalise(raw)
	if err != nil {
		return bad("the path %v", err)
	}
	p.Path = path
	p.Query = query
	return nil
}

// splitHost checks "host [":" port]" (RFC 3986 3.2.2). An IPv6 literal keeps its brackets; an empty host has no port.
func splitHost(s string) (host string, port, ok bool) {
	if literal, rest, found := strings.Cut(s, "]"); found && strings.HasPrefix(literal, "[") {
		a, err := netip.ParseAddr(literal[1:])
		host, ok = literal+"]", err == nil && a.Is6() && a.Zone() == ""
		s = rest
	} else {
		n := strings.IndexByte(s+":", ':')
		host, ok = s[:n], isName(s[:n])
		s = s[n:]
	}
	if s == "" {
		return host, false, ok
	}
	number, found := strings.CutPrefix(s, ":")
	return host, true, ok && found && host != "" && strings.Trim(number, "0123456789") == ""
}

// canonical brings a host that splitHost took into the form in which rules compare it.
func canonical(host string) string {
	if strings.HasPrefix(host, "[") {
		return "[" + netip.MustParseAddr(strings.Trim(host, "[]")).String() + "]"
	}
	if len(host) > 1 {
		host = strings.TrimSuffix(host, ".")
	}
	return strings.ToLower(host)
}

// isName says whether s is a registered name of RFC 3986, empty included. A comma, which some servers take for the end of a
// host, and empty labels are refused.
func isName(s string) bool {
	if strings.Contains(s, "..") {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%':
			if len(s) < i+3 || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return false
			}
		case !alphanumeric(c) && !strings.ContainsRune("-._~!$&'()*+;=", rune(c)):
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// list yields the elements of a comma-separated list (RFC 9110 5.6.1), without the empty ones.
func list(value string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for element := range strings.SplitSeq(value, ",") {
			if element = strings.Trim(element, " \t"); element != "" && !yield(element) {
				return
			}
		}
	}
}
