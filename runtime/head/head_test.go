package head

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// lines builds a head from its lines.
func lines(ls ...string) string { return strings.Join(ls, "\r\n") + "\r\n\r\n" }

// statusOf returns the status of an error of this package, zero without one.
func statusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

func TestParse(t *testing.T) {
	type want struct {
		status                 int
		authority, host        string
		path, query            string
		length                 int64
		chunked, upgrade, wait bool
	}
	ok := func(host, path string) want { return want{authority: host, host: host, path: path, length: -1} }
	with := func(w want, change func(w *want)) want { change(&w); return w }
	b := ok("b", "/")
	refused := want{status: 400}
	for _, tt := range []struct {
		name, in string
		want     want
	}{
		{"plain", lines("GET /x HTTP/1.1", "Host: b.example"), ok("b.example", "/x")},
		{"port", lines("GET /x HTTP/1.1", "Host: b.example:8080"), with(ok("b.example", "/x"), func(w *want) { w.authority = "b.example:8080" })},
		{"empty port", lines("GET / HTTP/1.1", "Host: b:"), with(b, func(w *want) { w.authority = "b:" })},
		{"letters in port", lines("GET / HTTP/1.1", "Host: b:8o"), refused},
		{"capitals and final dot", lines("GET / HTTP/1.1", "hOsT:\tB.Example. \t"), with(ok("b.example", "/"), func(w *want) { w.authority = "B.Example." })},
		{"query", lines("GET /a?b/../c?d HTTP/1.1", "Host: b"), with(ok("b", "/a"), func(w *want) { w.query = "b/../c?d" })},
		{"empty lines before", "\r\n\r\n\r\n\r\n" + lines("GET / HTTP/1.1", "Host: b"), b},
		{"five empty lines before", "\r\n\r\n\r\n\r\n\r\n" + lines("GET / HTTP/1.1", "Host: b"), refused},
		{"odd method", lines("PROPFIND / HTTP/1.1", "Host: b"), b},
		{"later minor version", lines("GET / HTTP/1.7", "Host: b"), b},

		{"no host", lines("GET / HTTP/1.1"), refused},
		{"no host in 1.0", lines("GET / HTTP/1.0"), ok("", "/")},
		{"two hosts", lines("GET / HTTP/1.1", "Host: b", "Host: b"), refused},
		{"empty host", lines("GET / HTTP/1.1", "Host:"), ok("", "/")},
		{"port without host", lines("GET / HTTP/1.1", "Host: :80"), refused},
		{"ipv6", lines("GET / HTTP/1.1", "Host: [2001:db8::A]:80"), want{authority: "[2001:db8::A]:80", host: "[2001:db8::a]", path: "/", length: -1}},
		{"ipv6 by value", lines("GET / HTTP/1.1", "Host: [2001:DB8:0::A]"), want{authority: "[2001:DB8:0::A]", host: "[2001:db8::a]", path: "/", length: -1}},
		{"ipv6 with ipv4", lines("GET / HTTP/1.1", "Host: [::ffff:c000:201]"), want{authority: "[::ffff:c000:201]", host: "[::ffff:192.0.2.1]", path: "/", length: -1}},
		{"ipv6 without brackets", lines("GET / HTTP/1.1", "Host: 2001:db8::a"), refused},
		{"ipv6 unclosed", lines("GET / HTTP/1.1", "Host: [::1"), refused},
		{"ipv6 with zone", lines("GET / HTTP/1.1", "Host: [fe80::1%25eth0]"), refused},
		{"ipv4 in brackets", lines("GET / HTTP/1.1", "Host: [192.0.2.1]"), refused},
		{"bracket inside", lines("GET / HTTP/1.1", "Host: abc].example"), refused},
		{"userinfo", lines("GET / HTTP/1.1", "Host: u@b"), refused},

		{"absolute form", lines("GET HTTP://B.example:8080/x?q HTTP/1.1", "Host: a"), want{authority: "B.example:8080", host: "b.example", path: "/x", query: "q", length: -1}},
		{"absolute form without path", lines("GET http://b?q HTTP/1.1", "Host: b"), with(b, func(w *want) { w.query = "q" })},
		{"absolute form without host field", lines("GET http://b/ HTTP/1.1"), refused},
		{"absolute form, bad host field", lines("GET http://b/ HTTP/1.1", "Host: a b"), refused},
		{"absolute form, no host", lines("GET http:///x HTTP/1.1", "Host: b"), refused},
		{"other scheme", lines("GET ftp://b/ HTTP/1.1", "Host: b"), refused},
		{"no slash", lines("GET x HTTP/1.1", "Host: b"), refused},
		{"asterisk", lines("OPTIONS * HTTP/1.1", "Host: b"), ok("b", "")},
		{"asterisk without options", lines("GET * HTTP/1.1", "Host: b"), refused},
		{"options on a server", lines("OPTIONS http://b HTTP/1.1", "Host: b"), ok("b", "")},
		{"connect", lines("CONNECT b:443 HTTP/1.1", "Host: B:443"), want{authority: "b:443", host: "b", length: -1}},
		{"connect without port", lines("CONNECT b HTTP/1.1", "Host: b"), refused},

		{"tls", "\x16\x03\x01\x00\x41\r\n\r\n", refused},
		{"http/2 preface", "PRI * HTTP/2.0\r\n\r\n", want{status: 505}},
		{"no version", "GET /\r\n\r\n", refused},
		{"version in small letters", lines("GET / http/1.1", "Host: b"), refused},
		{"version too long", lines("GET / HTTP/1.10", "Host: b"), refused},
		{"two spaces", lines("GET  / HTTP/1.1", "Host: b"), refused},
		{"space in target", lines("GET /a b HTTP/1.1", "Host: b"), refused},
		{"tab in target", lines("GET /a\tb HTTP/1.1", "Host: b"), refused},
		{"fragment", lines("GET /a#b HTTP/1.1", "Host: b"), refused},
		{"bare lf", "GET / HTTP/1.1\nHost: b\r\n\r\n", refused},
		{"bare cr", lines("GET / HTTP/1.1", "Host: b", "X: y\rz"), refused},
		{"nul", lines("GET / HTTP/1.1", "Host: b", "X: \x00"), refused},
		{"folded line", lines("GET / HTTP/1.1", "Host: b", "X: a", " b"), refused},
		{"folded first line", lines("GET / HTTP/1.1", " X: a", "Host: b"), refused},
		{"space before colon", lines("GET / HTTP/1.1", "Host : b"), refused},
		{"no colon", lines("GET / HTTP/1.1", "Host: b", "X"), refused},
		{"no name", lines("GET / HTTP/1.1", "Host: b", ": x"), refused},
		{"other text", lines("GET / HTTP/1.1", "Host: b", "X: \xc3\xa4\t!"), b},
		{"no end", "GET / HTTP/1.1\r\nHost: b\r\n", refused},
		{"bytes behind", lines("GET / HTTP/1.1", "Host: b") + "x", refused},
		{"nothing", "", refused},

		{"length", lines("POST / HTTP/1.1", "Host: b", "Content-Length: 5"), with(b, func(w *want) { w.length = 5 })},
		{"two lengths", lines("POST / HTTP/1.1", "Host: b", "Content-Length: 5", "Content-Length: 5"), refused},
		{"length list", lines("POST / HTTP/1.1", "Host: b", "Content-Length: 5, 5"), refused},
		{"length signed", lines("POST / HTTP/1.1", "Host: b", "Content-Length: +5"), refused},
		{"length empty", lines("POST / HTTP/1.1", "Host: b", "Content-Length:"), refused},
		{"length beyond 63 bits", lines("POST / HTTP/1.1", "Host: b", "Content-Length: 9223372036854775808"), refused},
		{"chunked", lines("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: Chunked\t"), with(b, func(w *want) { w.chunked = true })},
		{"on two lines", lines("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: gzip,", "Transfer-Encoding: chunked"), refused},
		{"connect with another host", lines("CONNECT b:443 HTTP/1.1", "Host: a"), refused},
		{"empty host with an authority", lines("GET http://b/ HTTP/1.1", "Host:"), refused},
		{"comma in the host", lines("GET / HTTP/1.1", "Host: a,b"), refused},
		{"empty label", lines("GET / HTTP/1.1", "Host: a..b"), refused},
		{"encoded nul", lines("GET /%00 HTTP/1.1", "Host: b"), refused},
		{"beyond ascii", lines("GET /\xe9 HTTP/1.1", "Host: b"), refused},
		{"length and chunked", lines("POST / HTTP/1.1", "Host: b", "Content-Length: 6", "Transfer-Encoding: chunked"), refused},
		{"chunked not last", lines("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: chunked, identity"), refused},
		{"chunked twice", lines("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), refused},
		{"xchunked", lines("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: xchunked"), refused},
		{"coding with parameters", lines("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: gzip;a=\",\", chunked"), refused},
		{"empty coding", lines("POST / HTTP/1.1", "Host: b", "Transfer-Encoding:"), refused},
		{"chunked in 1.0", lines("POST / HTTP/1.0", "Host: b", "Transfer-Encoding: chunked"), refused},

		{"upgrade", lines("GET / HTTP/1.1", "Host: b", "Connection: keep-alive, UPGRADE", "Upgrade: websocket"), with(b, func(w *want) { w.upgrade = true })},
		{"upgrade not named", lines("GET / HTTP/1.1", "Host: b", "Upgrade: websocket"), b},
		{"upgrade named only", lines("GET / HTTP/1.1", "Host: b", "Connection: upgrade"), b},
		{"upgrade in 1.0", lines("GET / HTTP/1.0", "Host: b", "Connection: upgrade", "Upgrade: websocket"), b},
		{"expect", lines("PUT / HTTP/1.1", "Host: b", "Expect: 100-Continue"), with(b, func(w *want) { w.wait = true })},
		{"expect something else", lines("PUT / HTTP/1.1", "Host: b", "Expect: x"), b},

		{"dot segments", lines("GET /a/./b/../c HTTP/1.1", "Host: b"), ok("b", "/a/c")},
		{"dots at the end", lines("GET /a/b/.. HTTP/1.1", "Host: b"), ok("b", "/a/")},
		{"dot at the end", lines("GET /a/. HTTP/1.1", "Host: b"), ok("b", "/a/")},
		{"above the root", lines("GET /../../a HTTP/1.1", "Host: b"), ok("b", "/a")},
		{"only above the root", lines("GET /.. HTTP/1.1", "Host: b"), ok("b", "/")},
		{"encoded dots", lines("GET /a/%2E%2e/b HTTP/1.1", "Host: b"), ok("b", "/b")},
		{"three dots", lines("GET /.../.well-known HTTP/1.1", "Host: b"), ok("b", "/.../.well-known")},
		{"encoded letters", lines("GET /%61%7E%20%01 HTTP/1.1", "Host: b"), ok("b", "/a~ \x01")},
		{"encoded slash and percent", lines("GET /a%2fb%25c HTTP/1.1", "Host: b"), ok("b", "/a%2Fb%25c")},
		{"empty segments", lines("GET //a//b/ HTTP/1.1", "Host: b"), ok("b", "//a//b/")},
		{"empty segment and dots", lines("GET /a//../b HTTP/1.1", "Host: b"), ok("b", "/a/b")},
		{"bad escape", lines("GET /%g0 HTTP/1.1", "Host: b"), refused},
		{"signed escape", lines("GET /%+1 HTTP/1.1", "Host: b"), refused},
		{"short escape", lines("GET /%2 HTTP/1.1", "Host: b"), refused},
		{"deep", lines("GET "+strings.Repeat("/a", 5000)+" HTTP/1.1", "Host: b"), ok("b", strings.Repeat("/a", 5000))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := Parse([]byte(tt.in))
			if statusOf(err) != tt.want.status {
				t.Fatalf("error %v, want status %d", err, tt.want.status)
			}
			if err != nil {
				return
			}
			got := want{0, h.Authority, h.Host, h.Path, h.Query, h.Length, h.Chunked, h.Upgrade, h.Expect}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if h.Bytes != len(tt.in) {
				t.Errorf("Bytes %d, want %d", h.Bytes, len(tt.in))
			}
		})
	}
}

func TestFields(t *testing.T) {
	in := "\r\n" + lines("GET / HTTP/1.1", "Host: b", "X-A:  1 \t", "x-a:2", "Y:")
	h, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"host": {"b"}, "x-a": {"1", "2"}, "y": {""}}
	if got := h.Header(); !reflect.DeepEqual(got, want) {
		t.Errorf("header %q, want %q", got, want)
	}
	var got []string
	for _, f := range h.Fields {
		got = append(got, in[f.Begin:f.End])
	}
	if want := []string{"Host: b\r\n", "X-A:  1 \t\r\n", "x-a:2\r\n", "Y:\r\n"}; !reflect.DeepEqual(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	if h.Method != "GET" || h.Target != "/" || h.Minor != 1 {
		t.Errorf("method %q target %q minor %d", h.Method, h.Target, h.Minor)
	}
}

func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		end      int
	}{
		{"empty", "", 0},
		{"request line only", "GET / HTTP/1.1\r\n", 0},
		{"whole", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27},
		{"body follows", "GET / HTTP/1.0\r\n\r\nbody\r\n\r\n", 18},
		{"four empty lines before", "\r\n\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n", 26},
		{"five empty lines", "\r\n\r\n\r\n\r\n\r\nGET", 10},
		{"only empty lines so far", "\r\n\r\n", 0},
		{"cr alone so far", "\r", 0},
		{"bare lf", "GET / HTTP/1.0\n", 15},
		{"bare lf first", "\n", 1},
		{"bare lf at the end", "GET / HTTP/1.0\r\n\n", 17},
		{"cr lf cr", "GET / HTTP/1.0\r\n\r", 0},
		{"cr in the middle", "GET /\r HTTP/1.0\r\n\r\n", 19},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if end, to := End([]byte(tt.in), 0); end != tt.end || end != 0 && to != end {
				t.Errorf("in one go: end %d scanned to %d, want %d", end, to, tt.end)
			}
			scanned, end := 0, 0
			for n := 0; n <= len(tt.in) && end == 0; n++ {
				end, scanned = End([]byte(tt.in[:n]), scanned)
			}
			if end != tt.end {
				t.Errorf("byte by byte: end %d, want %d", end, tt.end)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	target := func(n int) string { return "/" + strings.Repeat("a", n-1) }
	for _, tt := range []struct {
		name   string
		limits Limits
		in     string
		want   int
	}{
		{"short", Limits{}, lines("GET / HTTP/1.1", "Host: b"), 0},
		{"target at the default", Limits{}, lines("GET "+target(DefaultTarget)+" HTTP/1.1", "Host: b"), 0},
		{"target beyond the default", Limits{}, lines("GET "+target(DefaultTarget+1)+" HTTP/1.1", "Host: b"), 414},
		{"target beyond, unfinished", Limits{}, "\r\nGET " + target(DefaultTarget+1), 414},
		{"target at its limit", Limits{Target: 10}, "GET " + target(10) + " HTTP", 0},
		{"target beyond its limit", Limits{Target: 10}, "GET " + target(11), 414},
		{"field as long", Limits{Target: 10}, lines("GET / HTTP/1.1", "X: "+target(100)), 0},
		{"long method", Limits{Target: 10}, target(11), 0},
		{"head at its limit", Limits{Head: 22}, lines("GET / HTTP/1.1", "A:"), 0},
		{"head beyond its limit", Limits{Head: 22}, lines("GET / HTTP/1.1", "A:b"), 431},
		{"head beyond, unfinished", Limits{Head: 21}, "GET / HTTP/1.1\r\nA: bcd", 431},
		{"head at the default", Limits{}, "GET / HTTP/1.1\r\n" + strings.Repeat("a", MaxHead-16), 0},
		{"head beyond the default", Limits{Head: MaxHead + 1}, "GET / HTTP/1.1\r\n" + strings.Repeat("a", MaxHead-15), 431},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := statusOf(tt.limits.Check([]byte(tt.in))); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
		})
	}
	if _, err := Parse(make([]byte, MaxHead+1)); statusOf(err) != 431 {
		t.Errorf("Parse: %v", err)
	}
}

func TestBoundary(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		body     uint32
		ok       bool
	}{
		{"no body", lines("GET / HTTP/1.1", "Host: b"), 0, true},
		{"length", lines("POST / HTTP/1.1", "Host: b", "Content-Length: 40"), 40, true},
		{"zero length", lines("POST / HTTP/1.1", "Host: b", "Content-Length: 0"), 0, true},
		{"empty line before", "\r\n" + lines("GET / HTTP/1.1", "Host: b"), 0, true},
		{"long", lines("PUT / HTTP/1.1", "Host: b", "Content-Length: 1073000000"), 1073000000, true},
		{"too long", lines("PUT / HTTP/1.1", "Host: b", "Content-Length: 1073741824"), 0, false},
		{"far too long", lines("PUT / HTTP/1.1", "Host: b", "Content-Length: 9223372036854775807"), 0, false},
		{"chunked", lines("PUT / HTTP/1.1", "Host: b", "Transfer-Encoding: chunked"), 0, false},
		{"upgrade", lines("GET / HTTP/1.1", "Host: b", "Connection: Upgrade", "Upgrade: websocket"), 0, false},
		{"connect", lines("CONNECT b:443 HTTP/1.1", "Host: b"), 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := Parse([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			n, ok := h.Boundary()
			want := uint32(0)
			if tt.ok {
				want = uint32(len(tt.in)) + tt.body
			}
			if n != want || ok != tt.ok {
				t.Errorf("got %d %v, want %d %v", n, ok, want, tt.ok)
			}
		})
	}
}
