package head

import (
	"fmt"
	"strconv"
	"strings"
)

// Answer makes a whole response in a server's place; the connection ends behind it. An empty body is the status in words,
// an empty contentType is plain text, an empty location is none. To a HEAD request the response has no body, and neither
// has one that may not have any. What of the request or the configuration could end a field line or start another one is
// percent-encoded in location and left out of contentType.
func Answer(status int, contentType, body string, headRequest bool, location string) []byte {
	switch {
	case status == 205: // says that there is nothing to read (RFC 9110 15.3.6)
		body = ""
	case body == "":
		body = StatusText(status) + "\n"
	}
	contentType = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, contentType)
	if contentType == "" {
		contentType = "text/plain; charset=utf-8"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, StatusText(status))
	if location != "" {
		b.WriteString("Location: " + safeURI(location) + "\r\n")
	}
	bodyless := status < 200 || status == 204 || status == 304
	if !bodyless {
		fmt.Fprintf(&b, "Content-Type: %s\r\nContent-Length: %d\r\n", contentType, len(body))
	}
	b.WriteString("Connection: close\r\n\r\n")
	if !bodyless && !headRequest {
		b.WriteString(body)
	}
	return []byte(b.String())
}

// safeURI percent-encodes what may not stand in a URI (RFC 3986 2); a percent sign stays.
func safeURI(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; alphanumeric(c) || strings.IndexByte("-._~:/?#[]@!$&'()*+,;=%", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// StatusText returns the reason phrase of a status (RFC 9110 15, RFC 6585); of one without, what its first digit says.
func StatusText(status int) string {
	if s, ok := reasons[status]; ok {
		return s
	}
	switch status / 100 {
	case 2:
		return "OK"
	case 3:
		return "Redirection"
	case 4:
		return "Client Error"
	case 5:
		return "Server Error"
	}
	return "Status " + strconv.Itoa(status)
}

var reasons = map[int]string{
	200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information", 204: "No Content", 205: "Reset Content",
	206: "Partial Content",
	300: "Multiple Choices", 301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified", 307: "Temporary Redirect",
	308: "Permanent Redirect",
	400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
	406: "Not Acceptable", 407: "Proxy Authentication Required", 408: "Request Timeout", 409: "Conflict", 410: "Gone",
	411: "Length Required", 412: "Precondition Failed", 413: "Content Too Large", 414: "URI Too Long",
	415: "Unsupported Media Type", 416: "Range Not Satisfiable", 417: "Expectation Failed", 421: "Misdirected Request",
	422: "Unprocessable Content", 426: "Upgrade Required", 428: "Precondition Required", 429: "Too Many Requests",
	431: "Request Header Fields Too Large", 451: "Unavailable For Legal Reasons",
	500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
	505: "HTTP Version Not Supported", 511: "Network Authentication Required",
}
