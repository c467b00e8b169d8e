package connlog

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recorded is a connection that keeps the first bytes written to it.
type recorded struct {
	net.Conn
	b []byte
}

func (r *recorded) Write(p []byte) (int, error)      { r.b = append(r.b, p...); return len(p), nil }
func (r *recorded) Read([]byte) (int, error)         { return 0, errors.New("end") }
func (r *recorded) Close() error                     { return nil }
func (r *recorded) SetDeadline(time.Time) error      { return nil }
func (r *recorded) SetReadDeadline(time.Time) error  { return nil }
func (r *recorded) SetWriteDeadline(time.Time) error { return nil }

// clientHello is what crypto/tls sends, with its post-quantum key share.
func clientHello(name string) []byte {
	r := &recorded{}
	_ = tls.Client(r, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	return r.b
}

// signature begins a PROXY header of version 2.
const signature = "\r\n\r\n\x00\r\nQUIT\n"

// records cuts the handshake of a hello into records of n bytes.
func records(hello []byte, n int) []byte {
	var b []byte
	for rest := hello[5:]; len(rest) > 0; {
		k := min(n, len(rest))
		b = append(append(b, 22, 3, 1, byte(k>>8), byte(k)), rest[:k]...)
		rest = rest[k:]
	}
	return b
}

func TestSummary(t *testing.T) {
	hello := clientHello("shop.example")
	proxy := signature + "\x21\x11\x00\x0c" + strings.Repeat("x", 12)
	for _, row := range []struct {
		name string
		kind Kind
		in   string
		want *Head
	}{
		{"request", Request, "GET /a/b HTTP/1.1\r\nHost: a.example\r\n\r\n", &Head{Method: "GET", Host: "a.example", Path: "/a/b"}},
		{"query", Request, "GET /a?token=1&b HTTP/1.1\r\nhost:a.example:8080 \r\n\r\n", &Head{Method: "GET", Host: "a.example:8080", Path: "/a"}},
		{"fragment", Request, "GET /a#token HTTP/1.1\r\nHost: a\r\n\r\n", &Head{Method: "GET", Host: "a", Path: "/a"}},
		{"empty lines before", Request, "\r\n\r\nGET / HTTP/1.0\r\n\r\n", &Head{Method: "GET", Path: "/"}},
		{"bare line feeds", Request, "GET / HTTP/1.0\nHost: a\n\n", &Head{Method: "GET", Host: "a", Path: "/"}},
		{"absolute form", Request, "GET http://user:secret@a.example/p?q HTTP/1.1\r\nHost: b\r\n\r\n", &Head{Method: "GET", Host: "a.example", Path: "/p"}},
		{"absolute form without a path", Request, "GET http://a.example?q HTTP/1.1\r\n\r\n", &Head{Method: "GET", Host: "a.example"}},
		{"a path with a scheme in it", Request, "GET /to/http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", &Head{Method: "GET", Host: "a", Path: "/to/http://b/"}},
		{"connect", Request, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", &Head{Method: "CONNECT", Host: "a.example:443"}},
		{"asterisk", Request, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", &Head{Method: "OPTIONS", Host: "a", Path: "*"}},
		{"host behind the end", Request, "GET / HTTP/1.1\r\nA: b\r\n\r\nHost: a\r\n", &Head{Method: "GET", Path: "/"}},
		{"cut in the host", Request, "GET / HTTP/1.1\r\nHost: a.exa", &Head{Method: "GET", Host: "a.exa", Path: "/", Cut: true}},
		{"cut in the path", Request, "GET /a/b", &Head{Method: "GET", Path: "/a/b", Cut: true}},
		{"cut in the query", Request, "GET /a?b=", &Head{Method: "GET", Path: "/a"}},
		{"long path", Request, "GET /" + strings.Repeat("a", 2000) + " HTTP/1.1\r\nHost: a\r\n\r\n", &Head{Method: "GET", Host: "a", Path: "/" + strings.Repeat("a", maxPath-1), Cut: true}},
		{"long host", Request, "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 300) + "\r\n\r\n", &Head{Method: "GET", Host: strings.Repeat("a", maxHost), Path: "/", Cut: true}},
		{"behind a PROXY header", Request, proxy + "GET / HTTP/1.1\r\nHost: a\r\n\r\n", &Head{Method: "GET", Host: "a", Path: "/"}},
		{"a PROXY header longer than all", Request, signature + "\x21\x11\xff\xffGET / HTTP/1.1\r\n", nil},
		{"no version", Request, "PASS secret\r\n", nil},
		{"another version", Request, "AUTH secret secret\r\n", nil},
		{"nothing", Request, "", nil},
		{"opaque", Opaque, "GET / HTTP/1.1\r\n\r\n", nil},
		{"hello", Hello, string(hello), &Head{SNI: "shop.example"}},
		{"hello in small records", Hello, string(records(hello, 7)), &Head{SNI: "shop.example"}},
		{"hello without a name", Hello, string(clientHello("")), nil},
		{"hello behind a PROXY header", Hello, proxy + string(hello), &Head{SNI: "shop.example"}},
		{"alert", Hello, "\x15\x03\x01\x00\x02\x02\x28", nil},
		{"server hello", Hello, "\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", nil},
		{"http", Hello, "GET / HTTP/1.1\r\n\r\n", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			if d := cmp.Diff(row.want, summary(row.kind, []byte(row.in))); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestHelloCut cuts a hello everywhere: its name is there or not, and never another.
func TestHelloCut(t *testing.T) {
	b := clientHello("shop.example")
	for n := range b {
		if h := summary(Hello, b[:n]); h != nil && (!strings.HasPrefix("shop.example", h.SNI) || h.Cut != (h.SNI != "shop.example")) {
			t.Errorf("cut at %d: %+v", n, h)
		}
	}
}

func FuzzSummary(f *testing.F) {
	f.Add(byte(1), []byte("GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add(byte(1), []byte(signature+"\x21\x11\x00\x0cxxxxxxxxxxxxGET http://u@h HTTP/1.1\r\n\r\n"))
	f.Add(byte(2), records(clientHello("a.example"), 100))
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		h := summary(Kind(kind%3), b)
		if h == nil {
			return
		}
		if len(h.Method) > maxMethod || len(h.Host) > maxHost || len(h.Path) > maxPath || len(h.SNI) > maxHost {
			t.Errorf("too long: %+v", h)
		}
		if strings.ContainsAny(h.Path, "?#") || strings.Contains(h.Host, "@") {
			t.Errorf("%+v", h)
		}
	})
}
