package urltable

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestFindEnd(t *testing.T) {
	long := "GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 1000) + "\r\n"
	for _, tt := range []struct {
		name, in string
		end      int
	}{
		{"empty", "", 0},
		{"request line only", "GET / HTTP/1.1\r\n", 0},
		{"whole", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27},
		{"no field", "GET / HTTP/1.0\r\n\r\n", 18},
		{"body follows", "GET / HTTP/1.0\r\n\r\nbody\r\n\r\n", 18},
		{"empty line before", "\r\nGET / HTTP/1.0\r\n\r\n", 20},
		{"four empty lines before", "\r\n\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n", 26},
		{"five empty lines", "\r\n\r\n\r\n\r\n\r\nGET", 10},
		{"only empty lines so far", "\r\n\r\n", 0},
		{"cr alone so far", "\r", 0},
		{"bare lf", "GET / HTTP/1.0\n", 15},
		{"bare lf first", "\n", 1},
		{"bare lf at the end", "GET / HTTP/1.0\r\n\n", 17},
		{"cr lf cr", "GET / HTTP/1.0\r\n\r", 0},
		{"cr in the middle", "GET /\r HTTP/1.0\r\n\r\n", 19},
		{"long", long, len(long)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if end, _ := FindEnd([]byte(tt.in), 0); end != tt.end {
				t.Errorf("in one go: end %d, want %d", end, tt.end)
			}
			scanned := 0
			for n := 1; n <= len(tt.in); n++ {
				end, next := FindEnd([]byte(tt.in[:n]), scanned)
				if end != 0 {
					if end != tt.end || n != end {
						t.Errorf("byte by byte: end %d after %d bytes, want %d", end, n, tt.end)
					}
					return
				}
				if next < scanned || next > n {
					t.Fatalf("scannedTo went from %d to %d of %d", scanned, next, n)
				}
				scanned = next
			}
			if tt.end != 0 {
				t.Errorf("byte by byte: no end, want %d", tt.end)
			}
		})
	}
}

// head builds a request from lines, each ended by CRLF, and the empty line.
func head(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }

func TestParseHead(t *testing.T) {
	long := strings.Repeat("a", 7980)
	for _, tt := range []struct {
		name, in   string
		v          Verdict
		host, path string
	}{
		{"plain", head("GET /x HTTP/1.1", "Host: b.example"), OK, "b.example", "/x"},
		{"port", head("GET /x HTTP/1.1", "Host: b.example:8080"), OK, "b.example", "/x"},
		{"empty port", head("GET /x HTTP/1.1", "Host: b.example:"), OK, "b.example", "/x"},
		{"letters in port", head("GET /x HTTP/1.1", "Host: b.example:8o"), Malformed, "", ""},
		{"name in capitals", head("GET / HTTP/1.1", "hOsT:\tb.example \t"), OK, "b.example", "/"},
		{"final dot", head("GET / HTTP/1.1", "Host: b.example."), OK, "b.example", "/"},
		{"query", head("GET /a?b/../c HTTP/1.1", "Host: b"), OK, "b", "/a"},
		{"odd method", head("PROPFIND / HTTP/1.1", "Host: b"), OK, "b", "/"},
		{"later minor version", head("GET / HTTP/1.7", "Host: b"), OK, "b", "/"},
		{"empty line before", "\r\n" + head("GET / HTTP/1.1", "Host: b.example"), OK, "b.example", "/"},
		{"long target", head("GET /"+long+" HTTP/1.1", "Host: b"), OK, "b", "/" + long},

		{"1.1 without host", head("GET / HTTP/1.1"), Malformed, "", ""},
		{"1.0 without host", head("GET / HTTP/1.0"), OK, "", "/"},
		{"two hosts", head("GET / HTTP/1.1", "Host: a.example", "Host: b.example"), Malformed, "", ""},
		{"two hosts in 1.0", head("GET / HTTP/1.0", "Host: a", "Host: a"), Malformed, "", ""},
		{"empty host", head("GET / HTTP/1.1", "Host:"), OK, "", "/"},
		{"empty host with port", head("GET / HTTP/1.1", "Host: :80"), Malformed, "", ""},
		{"ipv6 host", head("GET / HTTP/1.1", "Host: [2001:db8::a]"), OK, "[2001:db8::a]", "/"},
		{"ipv6 host and port", head("GET / HTTP/1.1", "Host: [2001:db8::a]:8080"), OK, "[2001:db8::a]", "/"},
		{"ipv6 with ipv4", head("GET / HTTP/1.1", "Host: [::ffff:192.0.2.1]"), OK, "[::ffff:192.0.2.1]", "/"},
		{"ipv6 without brackets", head("GET / HTTP/1.1", "Host: 2001:db8::a"), Malformed, "", ""},
		{"ipv6 unclosed", head("GET / HTTP/1.1", "Host: [::1"), Malformed, "", ""},
		{"ipv6 two gaps", head("GET / HTTP/1.1", "Host: [1::2::3]"), Malformed, "", ""},
		{"ipv6 nine groups", head("GET / HTTP/1.1", "Host: [1:2:3:4:5:6:7:8:9]"), Malformed, "", ""},
		{"ipv6 seven groups", head("GET / HTTP/1.1", "Host: [1:2:3:4:5:6:7]"), Malformed, "", ""},
		{"bracket inside", head("GET / HTTP/1.1", "Host: abc].example"), Malformed, "", ""},
		{"userinfo in host", head("GET / HTTP/1.1", "Host: u@b"), Malformed, "", ""},
		{"comma in host", head("GET / HTTP/1.1", "Host: a,b"), Malformed, "", ""},
		{"empty label", head("GET / HTTP/1.1", "Host: a..b"), Malformed, "", ""},
		{"two final dots", head("GET / HTTP/1.1", "Host: a.."), Malformed, "", ""},
		{"space in host", head("GET / HTTP/1.1", "Host: a b"), Malformed, "", ""},

		{"absolute form", head("GET http://b.example:8080/x HTTP/1.1", "Host: a.example"), OK, "b.example", "/x"},
		{"absolute form in capitals", head("GET HTTP://B.EXAMPLE/ HTTP/1.1", "Host: b.example"), OK, "B.EXAMPLE", "/"},
		{"absolute form without path", head("GET http://b.example HTTP/1.1", "Host: b.example"), OK, "b.example", "/"},
		{"absolute form with query only", head("GET http://b.example?q HTTP/1.1", "Host: b.example"), OK, "b.example", "/"},
		{"absolute form without host field", head("GET http://b.example/ HTTP/1.1"), Malformed, "", ""},
		{"absolute form, bad host field", head("GET http://b.example/ HTTP/1.1", "Host: a b"), Malformed, "", ""},
		{"absolute form with userinfo", head("GET http://u:p@b.example/ HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"absolute form without host", head("GET http:///x HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"other scheme", head("GET ftp://b/x HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"no slash", head("GET x HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"asterisk", head("OPTIONS * HTTP/1.1", "Host: b"), OK, "b", ""},
		{"asterisk with another method", head("GET * HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"asterisk of a proxy's client", head("OPTIONS http://b:80 HTTP/1.1", "Host: b"), OK, "b", ""},
		{"connect", head("CONNECT b.example:443 HTTP/1.1", "Host: b.example"), OK, "b.example", ""},
		{"connect, other case", head("CONNECT b.example:443 HTTP/1.1", "Host: B.example:443"), OK, "b.example", ""},
		{"connect with another host", head("CONNECT b.example:443 HTTP/1.1", "Host: a.example"), Malformed, "", ""},
		{"connect in 1.0", head("CONNECT b.example:443 HTTP/1.0"), OK, "b.example", ""},
		{"absolute form with empty host", head("GET http://b/ HTTP/1.1", "Host:"), Malformed, "", ""},
		{"connect without port", head("CONNECT b.example HTTP/1.1", "Host: b.example"), Malformed, "", ""},

		{"tls", "\x16\x03\x01\x00\x41\r\n\r\n", NotHTTP, "", ""},
		{"space first", head(" GET / HTTP/1.1", "Host: b"), NotHTTP, "", ""},
		{"http/2 preface", "PRI * HTTP/2.0\r\n\r\n", Malformed, "", ""},
		{"http/0.9", "GET /\r\n\r\n", Malformed, "", ""},
		{"two spaces", head("GET  / HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"space in target", head("GET /a b HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"fragment", head("GET /a#b HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"version in small letters", head("GET / http/1.1", "Host: b"), Malformed, "", ""},
		{"bare lf", "GET / HTTP/1.1\nHost: b\n\n", Malformed, "", ""},
		{"bare cr", head("GET / HTTP/1.1", "Host: b\rX: y"), Malformed, "", ""},
		{"nul", head("GET / HTTP/1.1", "Host: b", "X: a\x00b"), Malformed, "", ""},
		{"folded line", head("GET / HTTP/1.1", "Host: b", "X: a", " b"), Malformed, "", ""},
		{"space before colon", head("GET / HTTP/1.1", "Host : b"), Malformed, "", ""},
		{"no colon", head("GET / HTTP/1.1", "Host: b", "X"), Malformed, "", ""},
		{"no name", head("GET / HTTP/1.1", "Host: b", ": x"), Malformed, "", ""},
		{"text in fields", head("GET / HTTP/1.1", "Host: b", "X: \xc3\xa4\t!"), OK, "b", "/"},
		{"no end", "GET / HTTP/1.1\r\nHost: b\r\n", Malformed, "", ""},
		{"nothing", "", Malformed, "", ""},

		{"length", head("POST / HTTP/1.1", "Host: b", "Content-Length: 5"), OK, "b", "/"},
		{"two lengths", head("POST / HTTP/1.1", "Host: b", "Content-Length: 5", "Content-Length: 6"), Malformed, "", ""},
		{"length list", head("POST / HTTP/1.1", "Host: b", "Content-Length: 5, 5"), Malformed, "", ""},
		{"length signed", head("POST / HTTP/1.1", "Host: b", "Content-Length: +5"), Malformed, "", ""},
		{"length empty", head("POST / HTTP/1.1", "Host: b", "Content-Length:"), Malformed, "", ""},
		{"chunked", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: Chunked\t"), OK, "b", "/"},
		{"gzip, chunked", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: gzip, chunked"), Malformed, "", ""},
		{"on two lines", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked"), Malformed, "", ""},
		{"length and chunked", head("POST / HTTP/1.1", "Host: b", "Content-Length: 6", "Transfer-Encoding: chunked"), Malformed, "", ""},
		{"chunked not last", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: chunked, identity"), Malformed, "", ""},
		{"chunked twice", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: chunked, chunked"), Malformed, "", ""},
		{"xchunked", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: xchunked"), Malformed, "", ""},
		{"empty coding", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding:"), Malformed, "", ""},
		{"coding with parameter", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: gzip;q=1, chunked"), Malformed, "", ""},
		{"coding with quotes", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: x;a=\"b, chunked"), Malformed, "", ""},
		{"empty elements", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: , ,chunked ,"), Malformed, "", ""},
		{"two codings without comma", head("POST / HTTP/1.1", "Host: b", "Transfer-Encoding: gzip chunked"), Malformed, "", ""},
		{"largest length", head("POST / HTTP/1.1", "Host: b", "Content-Length: 9223372036854775807"), OK, "b", "/"},
		{"length too large", head("POST / HTTP/1.1", "Host: b", "Content-Length: 9223372036854775808"), Malformed, "", ""},
		{"length far too large", head("POST / HTTP/1.1", "Host: b", "Content-Length: 18446744073709551617"), Malformed, "", ""},
		{"length with zeros", head("POST / HTTP/1.1", "Host: b", "Content-Length: 00000000000000000000000005"), OK, "b", "/"},
		{"chunked in 1.0", head("POST / HTTP/1.0", "Host: b", "Transfer-Encoding: chunked"), Malformed, "", ""},

		{"dot segments", head("GET /a/./b/../c HTTP/1.1", "Host: b"), OK, "b", "/a/c"},
		{"dots at the end", head("GET /a/b/.. HTTP/1.1", "Host: b"), OK, "b", "/a/"},
		{"above the root", head("GET /../../a HTTP/1.1", "Host: b"), OK, "b", "/a"},
		{"encoded dots", head("GET /a/%2E%2e/b HTTP/1.1", "Host: b"), OK, "b", "/b"},
		{"three dots", head("GET /.../.well-known HTTP/1.1", "Host: b"), OK, "b", "/.../.well-known"},
		{"encoded letters", head("GET /%61%7E%20 HTTP/1.1", "Host: b"), OK, "b", "/a~ "},
		{"encoded slash and percent", head("GET /a%2fb%25c HTTP/1.1", "Host: b"), OK, "b", "/a%2Fb%25c"},
		{"empty segments", head("GET //a//b/ HTTP/1.1", "Host: b"), OK, "b", "//a//b/"},
		{"encoded nul", head("GET /%00 HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"beyond ascii", head("GET /\xc3\xa9 HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"bad escape", head("GET /%g0 HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"short escape", head("GET /%2 HTTP/1.1", "Host: b"), Malformed, "", ""},
		{"32 segments", head("GET "+strings.Repeat("/a", 32)+" HTTP/1.1", "Host: b"), OK, "b", strings.Repeat("/a", 32)},
		{"33 segments", head("GET "+strings.Repeat("/a", 33)+" HTTP/1.1", "Host: b"), TooDeep, "", ""},
		{"33 segments on the way", head("GET "+strings.Repeat("/a", 32)+"/%2e%2e HTTP/1.1", "Host: b"), TooDeep, "", ""},
		{"up and down", head("GET "+strings.Repeat("/a/..", 500)+"/b HTTP/1.1", "Host: b"), OK, "b", "/b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Request
			v := ParseHead([]byte(tt.in), &r)
			if v != tt.v {
				t.Fatalf("verdict %v, want %v", v, tt.v)
			}
			if v == OK && (string(r.Host) != tt.host || string(r.Path) != tt.path) {
				t.Errorf("host %q path %q, want %q %q", r.Host, r.Path, tt.host, tt.path)
			}
		})
	}
}

func TestFields(t *testing.T) {
	in := "\r\n" + head("GET /a?x=1?&y HTTP/1.1", "HOST:b", "X:", "x: \t a\tb \t", "Cookie: a=b; c=d")
	var r Request
	if v := ParseHead([]byte(in), &r); v != OK {
		t.Fatal(v)
	}
	var got []string
	for i := range r.NFields {
		got = append(got, fmt.Sprintf("%s=%s", r.Name(i), r.Value(i)))
	}
	if want := "HOST=b|X=|x=a\tb|Cookie=a=b; c=d"; strings.Join(got, "|") != want {
		t.Errorf("fields %q, want %q", got, want)
	}
	for target, want := range map[string]string{"/": "nil", "/?": "", "/a?b#": "nil", "/%3f?%3f": "%3f", "http://u?q": "q", "/..?/../": "/../"} {
		ParseHead([]byte(head("GET "+target+" HTTP/1.1", "Host: b")), &r)
		if got := string(r.Query); got != want && (want != "nil" || r.Query != nil) {
			t.Errorf("query of %q: %q, want %q", target, got, want)
		}
	}
	for n, want := range map[int]Verdict{MaxFields: OK, MaxFields + 1: TooManyFields} {
		lines := []string{"GET / HTTP/1.1", "Host: b"}
		for range n - 1 {
			lines = append(lines, "X: y")
		}
		if v := ParseHead([]byte(head(lines...)), &r); v != want {
			t.Errorf("%d fields: %v, want %v", n, v, want)
		}
	}
	if v := ParseHead([]byte(head("GET / HTTP/1.1", "Host: b", "X: "+strings.Repeat("a", maxHead))), &r); v != Malformed {
		t.Errorf("longer than offsets reach: %v", v)
	}
	r.SetHello(&Hello{SNI: []byte("b.example")})
	if r.NFields != 0 || r.Path != nil || string(r.Host) != "b.example" {
		t.Errorf("after a hello: %d fields, path %q, host %q", r.NFields, r.Path, r.Host)
	}
}

// TestLineEnd holds the search in words of eight bytes against one byte by byte: every byte at every place, beside others
// that could be mistaken.
func TestLineEnd(t *testing.T) {
	for _, fill := range []byte{'a', '\t', ' ', 0x80, 0xff, 0x7e, 0x20} {
		for n := range 20 {
			for at := range n {
				b := bytes.Repeat([]byte{fill}, n)
				for v := range 256 {
					b[at] = byte(v)
					for _, second := range []int{at, (at + 1) % n, n - 1} {
						c := bytes.Clone(b)
						c[second] ^= 0x80
						for _, line := range [][]byte{b, c} {
							want := 0
							for want < n && (line[want] == '\t' || line[want] >= ' ' && line[want] != 0x7f) {
								want++
							}
							if got := lineEnd(line, 0); got != want {
								t.Fatalf("%q: %d, want %d", line, got, want)
							}
						}
					}
				}
			}
		}
	}
}

func TestCanStart(t *testing.T) {
	for b, want := range map[byte]bool{'G': true, 'p': true, '\r': true, '\n': false, 0x16: false, ' ': false, 0x80: false, ':': false} {
		if got := CanStart(b); got != want {
			t.Errorf("CanStart(%q) = %v, want %v", b, got, want)
		}
	}
}

func FuzzHead(f *testing.F) {
	for _, s := range []string{
		head("GET /a/../%2e/b%2F?q HTTP/1.1", "Host: [::1]:80", "Transfer-Encoding: gzip, chunked"),
		"\r\n" + head("OPTIONS * HTTP/1.0"), head("GET http://u.example/ HTTP/1.1", "Host: a"), "\r\n\r\n\r\n\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "G\n", "\x16\x03\x01",
	} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		if len(in) > 8192 {
			return
		}
		end, to := FindEnd(in, 0)
		if end > len(in) || end != 0 && to != end {
			t.Fatalf("end %d, scannedTo %d of %d", end, to, len(in))
		}
		scanned := 0
		for n := 0; n < len(in); {
			n = min(len(in), n+int(step)%7+1)
			e, next := FindEnd(in[:n], scanned)
			if e != 0 && e != end {
				t.Fatalf("end %d in pieces, %d in one go", e, end)
			}
			if e == 0 && end != 0 && n >= end {
				t.Fatalf("end %d not found after %d bytes", end, n)
			}
			if e != 0 {
				break
			}
			scanned = next
		}
		if end == 0 {
			return
		}
		var r, again Request
		v := ParseHead(in[:end], &r)
		if v != OK {
			return
		}
		if !bytes.HasSuffix(in[:end], []byte("\r\n\r\n")) || len(r.Method) == 0 {
			t.Fatalf("accepted %q", in[:end])
		}
		if len(r.Path) > 0 && r.Path[0] != '/' || strings.Count(string(r.Path), "/") > MaxSegments {
			t.Fatalf("path %q", r.Path)
		}
		// The fields are the lines between request line and end.
		_, rest, _ := strings.Cut(strings.TrimLeft(string(in[:end]), crlf), crlf)
		for i := range r.NFields {
			var line string
			line, rest, _ = strings.Cut(rest, crlf)
			name, value, _ := strings.Cut(line, ":")
			if name != string(r.Name(i)) || strings.Trim(value, " \t") != string(r.Value(i)) {
				t.Fatalf("field %d of %q: %q %q", i, in[:end], r.Name(i), r.Value(i))
			}
		}
		if rest != crlf {
			t.Fatalf("%q is behind the last field of %q", rest, in[:end])
		}
		// A normalised path, encoded again, is its own normal form.
		if len(r.Path) > 0 {
			again.setPath(encode(r.Path))
			if !bytes.Equal(again.Path, r.Path) {
				t.Fatalf("path %q becomes %q", r.Path, again.Path)
			}
		}
	})
}

// encode writes a normalised path so that it can stand in a request.
func encode(path []byte) []byte {
	var b bytes.Buffer
	for i, c := range path {
		if c == '%' || c > ' ' && c < 0x7f && c != '?' && c != '#' || c == '/' {
			b.WriteByte(path[i])
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.Bytes()
}

// browser is a head as browsers send it.
var browser = head("GET /photos/2026/summer/beach.jpg?size=large&v=17 HTTP/1.1", "Host: img.example",
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
	"Accept: image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5", "Accept-Language: en-US,en;q=0.5",
	"Accept-Encoding: gzip, deflate", "Connection: keep-alive", "Referer: http://www.example/gallery/2026/",
	"Cookie: session=8f14e45fceea167a5a36dedd4bea2543; theme=dark", "Cache-Control: max-age=0")

func BenchmarkBrowserHead(b *testing.B) {
	in := []byte(browser)
	var r Request
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		end, _ := FindEnd(in, 0)
		if ParseHead(in[:end], &r) != OK {
			b.Fatal("not ok")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(in)), "ns/headbyte")
}

func BenchmarkFindEnd(b *testing.B) {
	in := []byte(browser)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		FindEnd(in, 0)
	}
}
