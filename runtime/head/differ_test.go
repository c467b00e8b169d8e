package head

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"splicenic/emu/urltable"
)

// differHead holds this package's reading of a head against the card's.
func differHead(b []byte, r *urltable.Request) error {
	end, to := End(b, 0)
	if e, s := urltable.FindEnd(b, 0); e != end || s != to {
		return fmt.Errorf("end %d scanned to %d, on the card %d and %d", end, to, e, s)
	}
	if end == 0 || end > len(b) {
		return nil
	}
	b = b[:end]
	h, err := Parse(b)
	switch v := urltable.ParseHead(b, r); v {
	case urltable.TooDeep, urltable.TooManyFields:
		return nil // limits of the card, which the host gets for that reason
	case urltable.OK:
		if err != nil {
			return fmt.Errorf("%w, but the card takes it", err)
		}
	case urltable.Malformed, urltable.NotHTTP:
		if s := statusOf(err); s != 400 && s != 505 {
			return fmt.Errorf("%v, but the card says %v", err, v)
		}
		return nil
	default:
		return fmt.Errorf("the card says %v", v)
	}
	card := []string{string(r.Method), string(r.Target), strings.ToLower(string(r.Host)), string(r.Path), string(r.Query), fmt.Sprint(r.Minor)}
	host := []string{h.Method, h.Target, h.Host, h.Path, h.Query, fmt.Sprint(h.Minor)}
	for i := range r.NFields {
		card = append(card, string(r.Name(i)), string(r.Value(i)))
	}
	for _, f := range h.Fields {
		host = append(host, f.Name, f.Value)
	}
	if !slices.Equal(card, host) {
		return fmt.Errorf("read as %q, by the card as %q", host, card)
	}
	return differStandard(b, h)
}

// differStandard holds a head that was taken against net/http, which takes fewer of some kinds and more of others: where it
// takes this one, it has to find the same request.
func differStandard(b []byte, h *Head) error {
	b = bytes.TrimLeft(b, "\r\n")
	q, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
	if err != nil {
		return nil
	}
	if q.Method != h.Method || q.RequestURI != h.Target {
		return fmt.Errorf("method and target %q %q, by net/http %q %q", h.Method, h.Target, q.Method, q.RequestURI)
	}
	if q.Host != h.Authority && !strings.Contains(h.Target, "://") { // a URL's host net/http decodes
		return fmt.Errorf("authority %q, by net/http %q", h.Authority, q.Host)
	}
	if got := slices.Contains(q.TransferEncoding, "chunked"); got != h.Chunked || !got && q.ContentLength != max(h.Length, 0) {
		return fmt.Errorf("chunked %v and length %d, by net/http %v and %d", h.Chunked, h.Length, got, q.ContentLength)
	}
	return nil
}

// pieces are what heads of TestDifferHead are made of.
var pieces = struct{ before, methods, targets, versions, fields, ends []string }{
	[]string{"", "", "", "", "\r\n", "\r\n\r\n\r\n\r\n", "\r\n\r\n\r\n\r\n\r\n", "\n", " "},
	[]string{"GET", "GET", "POST", "OPTIONS", "CONNECT", "get", "M-SEARCH", "G(T", ""},
	[]string{"/", "/a/b", "/a/../b/./c", "//", "/%2e%2E/a", "/%2f%25", "/%", "/%4", "/a?b?c", "?", "/#", "*", "http://b.example", "http://b.example?x",
		"HTTPS://B.example:81/x/..", "http://[::1]/", "http://u@b/", "http:///", "ftp://b/", "b.example:443", "[2001:DB8::0:1]:443", "b:", "/\xff", "/a b", "/" + strings.Repeat("x/", 31), "/" + strings.Repeat("x/", 40)},
	[]string{"HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.9", "HTTP/2.0", "HTTP/1.", "HTTP/1.10", "http/1.1", "HTTP/1.1 ", ""},
	[]string{"Host: b.example", "Host: b.example", "host:B.Example.:80", "Host:", "Host: .", "Host: ..", "Host: :80", "Host: [::1]", "Host: [1:2:3:4:5:6:7:8]:", "Host: [::FFFF:192.0.2.1]",
		"Host: [1::2::3]", "Host: [::1%25lo]", "Host: [v1.a]", "Host: [1:2:3:4:5:6:7::]", "Host: [::1.2.3.04]", "Host: b%2e", "Host: b%2", "Host: b_!$&'()*+,;=~", "Host: a b", "Host: b\xc3\xbc",
		"Content-Length: 5", "Content-Length: 5", "Content-Length: 05", "Content-Length: 5,5", "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 9223372036854775807",
		"Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "transfer-encoding: ,CHUNKED,\t,", "Transfer-Encoding: chunked;q=1", "Transfer-Encoding: chunked chunked", "Transfer-Encoding: x",
		"Connection: Upgrade, close", "Upgrade: websocket", "Expect: 100-continue", "Cookie: a=b; c=\"d\"", "X: \x01", "X: \x7f", "X\t: y", " folded", "X", ":", "X:\ty\t \t", "X: \xe2\x82\xac", "\xc3X: y"},
	[]string{"\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n", "\r\n \r\n"},
}

// TestDifferHead makes heads of pieces, most of them nearly right, and reads them twice.
func TestDifferHead(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	of := func(s []string) string { return s[rng.IntN(len(s))*rng.IntN(2)] } // half of the time the first
	var r urltable.Request
	taken := 0
	const rounds = 100000
	for range rounds {
		var b strings.Builder
		line := func(s string) {
			end := "\r\n"
			if rng.IntN(40) == 0 {
				end = of(pieces.ends)
			}
			b.WriteString(s + end)
		}
		b.WriteString(of(pieces.before))
		space := " "
		if rng.IntN(30) == 0 {
			space = of([]string{"  ", "\t", ""})
		}
		line(of(pieces.methods) + space + of(pieces.targets) + " " + of(pieces.versions))
		if rng.IntN(3) > 0 {
			line("Host: b")
		}
		for range rng.IntN(4) {
			line(pieces.fields[rng.IntN(len(pieces.fields))])
		}
		line("")
		in := []byte(b.String())
		if rng.IntN(10) == 0 {
			in[rng.IntN(len(in))] = byte(rng.IntN(256))
		}
		if err := differHead(in, &r); err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if end, _ := End(in, 0); end != 0 {
			if _, err := Parse(in[:end]); err == nil {
				taken++
			}
		}
	}
	// Otherwise the pieces are so bad, or so good, that nothing is compared.
	if taken < rounds/20 || taken > rounds/2 {
		t.Errorf("%d of %d heads are taken", taken, rounds)
	}
}

func FuzzDiffer(f *testing.F) {
	for _, s := range []string{
		lines("GET /a/../%2e/b%2F?q HTTP/1.1", "Host: [::1]:80", "Transfer-Encoding: gzip, chunked"),
		"\r\n" + lines("OPTIONS * HTTP/1.0"), lines("GET http://u.example/ HTTP/1.1", "Host: a"), "\r\n\r\n\r\n\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "G\n",
		lines("OPTIONS http://b?x HTTP/1.1", "Host: .", "Content-Length: 007"), lines("CONNECT [::ffff:1.2.3.4]:1 HTTP/1.1", "Host: b", "Connection: upgrade", "Upgrade: x"),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 8192 {
			return
		}
		var r urltable.Request
		if err := differHead(b, &r); err != nil {
			t.Fatal(err)
		}
	})
}

// differHello holds this package's reading of a hello against the card's.
func differHello(b []byte, card *urltable.Hello) error {
	end, _, _ := urltable.FindHello(b, 0, 0)
	h, err := ParseHello(b)
	var e *Error
	errors.As(err, &e)
	if end == 0 {
		if e == nil || !e.More {
			return fmt.Errorf("%+v, %v, but the card waits for more", h, err)
		}
		return nil
	}
	if e != nil && e.More {
		return fmt.Errorf("waits for more, but the card finds the end at %d", end)
	}
	v := urltable.ParseHello(b[:end], card)
	switch {
	case v == urltable.OK && err != nil:
		return fmt.Errorf("%w, but the card takes it", err)
	case v == urltable.NotTLS && (err == nil || e.Alert != 0), v == urltable.BadHello && (err == nil || e.Alert == 0 || card.Alert == 0):
		// Of several faults, one of them may find another one first.
		return fmt.Errorf("%+v, %#v, but the card says %v, alert %d", h, err, v, card.Alert)
	case v != urltable.OK:
		return nil
	}
	var protocols []byte
	for _, p := range h.ALPN {
		protocols = append(append(protocols, byte(len(p))), p...)
	}
	if strings.ToLower(string(card.SNI)) != h.SNI || !bytes.Equal(card.ALPN, protocols) || h.Bytes != int(end) {
		return fmt.Errorf("read as %+v, by the card as SNI %q ALPN %q in %d bytes", h, card.SNI, card.ALPN, end)
	}
	return differTLS(b[:end], h)
}

// A script is a connection on which a client has said all it will.
type script struct {
	net.Conn // nil: a handshake only reads and writes
	*bytes.Reader
}

func (s script) Read(p []byte) (int, error) { return s.Reader.Read(p) }
func (script) Write(p []byte) (int, error)  { return len(p), nil }

// differTLS holds a hello that was taken against crypto/tls: where it takes this one, it has to find the same names.
func differTLS(b []byte, h *Hello) (err error) {
	config := &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		if !strings.EqualFold(i.ServerName, h.SNI) || !slices.Equal(i.SupportedProtos, h.ALPN) {
			err = fmt.Errorf("SNI %q ALPN %q, by crypto/tls %q %q", h.SNI, h.ALPN, i.ServerName, i.SupportedProtos)
		}
		return nil, io.EOF
	}}
	_ = tls.Server(script{Reader: bytes.NewReader(b)}, config).Handshake() // fails at the latest behind the hello
	return err
}

func helloSeeds() [][]byte {
	b := hello(extension(0x1a1a), sni("b.example"), alpn("h2", "http/1.1"), extension(43, 2, 3, 4))
	return [][]byte{
		records(b, maxRecord), records(b, 1), records(b, 50), records(hello(), 7), records(hello(sni("a"), sni("a")), 100),
		append(records(b[:5], 9), 21, 3, 3, 0, 2, 2, 0), {22, 3, 1, 0, 0}, []byte("GET"), records(append(b, 0), 200),
	}
}

func TestDifferHello(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 3))
	var card urltable.Hello
	taken := 0
	const rounds = 50000
	for range rounds {
		var es [][]byte
		for range rng.IntN(4) {
			es = append(es, [][]byte{extension(0x2a2a), sni("b.example"), sni("B.example."), sni("x_y-z"), sni("a", "b"), sni("a b"), sni(""), alpn("h2"), alpn("h2", "x"), alpn(""), alpn(),
				extension(51, make([]byte, 1200)...), extension(extensionSNI), extension(extensionALPN, 0, 3, 2, 'h')}[rng.IntN(14)])
		}
		message := hello(es...)
		if rng.IntN(4) == 0 {
			message[rng.IntN(len(message))] = byte(rng.IntN(256))
		}
		b := records(message, 1+rng.IntN(len(message)+50))
		if rng.IntN(4) == 0 {
			b[rng.IntN(len(b))] = byte(rng.IntN(256))
		}
		if rng.IntN(4) == 0 {
			b = b[:rng.IntN(len(b)+1)]
		}
		if len(b) == 0 {
			continue
		}
		if err := differHello(b, &card); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if _, err := ParseHello(b); err == nil {
			taken++
		}
	}
	if taken < rounds/20 || taken > rounds/2 {
		t.Errorf("%d of %d hellos are taken", taken, rounds)
	}
}

func FuzzDifferHello(f *testing.F) {
	for _, b := range helloSeeds() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > 8192 {
			return
		}
		var card urltable.Hello
		if err := differHello(b, &card); err != nil {
			t.Fatal(err)
		}
	})
}
