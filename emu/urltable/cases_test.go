package urltable

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// chosen reads a request that arrives in the given segments and says where it goes: a.example to B1, b.example and
// [2001:db8::a] to B2, anything else to D. What is refused is the verdict's name, what has no end "wait".
func chosen(t *testing.T, segments ...string) string {
	t.Helper()
	server := func(host []byte) string {
		switch strings.ToLower(string(host)) {
		case "a.example":
			return "B1"
		case "b.example", "[2001:db8::a]":
			return "B2"
		}
		return "D"
	}
	var buf []byte
	var scanned, have uint32
	for _, s := range segments {
		buf = append(buf, s...)
		if len(buf) == 0 {
			continue
		}
		var end uint32
		if CanStartTLS(buf[0]) {
			if end, scanned, have = FindHello(buf, scanned, have); end > 0 {
				var h Hello
				if v := ParseHello(buf[:end], &h); v != OK {
					return fmt.Sprintf("%v %d", v, h.Alert)
				}
				return server(h.SNI)
			}
			continue
		}
		if !CanStart(buf[0]) {
			return NotHTTP.String()
		}
		is, maybe := Preface(buf)
		if is {
			return "h2c"
		}
		if maybe {
			continue
		}
		e, next := FindEnd(buf, int(scanned))
		if e > 0 {
			var r Request
			if v := ParseHead(buf[:e], &r); v != OK {
				return v.String()
			}
			return server(r.Host)
		}
		scanned = uint32(next)
	}
	return "wait"
}

// bytewise cuts s into segments of one byte.
func bytewise(s string) []string { return strings.Split(s, "") }

// A row of a case: what arrives and where it goes.
type arrival struct {
	segments []string
	want     string
}

func check(t *testing.T, rows ...arrival) {
	t.Helper()
	for _, row := range rows {
		if got := chosen(t, row.segments...); got != row.want {
			t.Errorf("%.200q: %s, want %s", row.segments, got, row.want)
		}
	}
}

func one(s string) []string { return []string{s} }

// caseHello is the smallest hello for a name of nine letters, 70 bytes.
func caseHello(name string) string { return string(whole(sni(name))) }

// A request line that comes alone, and a head cut anywhere.
func TestCaseB01Head(t *testing.T) {
	const line, rest = "POST /tune HTTP/1.1\r\n", "Host: b.example\r\nContent-Length: 0\r\n\r\n"
	check(t, arrival{[]string{line, rest}, "B2"}, arrival{bytewise(line + rest), "B2"}, arrival{one(line), "wait"}, arrival{one(line + rest[:len(rest)-1]), "wait"})
	for cut := range line + rest {
		check(t, arrival{[]string{(line + rest)[:cut], (line + rest)[cut:]}, "B2"})
	}
}

// The target's host goes before the Host field.
func TestCaseB03Head(t *testing.T) {
	check(t,
		arrival{one("GET http://b.example:8080/x HTTP/1.1\r\nHost: a.example\r\n\r\n"), "B2"},
		arrival{one("GET HTTP://B.EXAMPLE/ HTTP/1.1\r\nHost: b.example\r\n\r\n"), "B2"},
		arrival{one("GET http://b.example HTTP/1.0\r\n\r\n"), "B2"},
		arrival{one("GET https://b.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n"), "B2"},
		arrival{one("GET http://u@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"), "malformed"},
		arrival{one("GET http:/b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"), "malformed"},
		arrival{one("GET //b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"), "B1"},
	)
}

// A missing, second or empty Host. An empty one is legal and goes to the default.
func TestCaseB05Head(t *testing.T) {
	check(t,
		arrival{one("GET / HTTP/1.1\r\n\r\n"), "malformed"},
		arrival{one("GET / HTTP/1.0\r\n\r\n"), "D"},
		arrival{one("GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n"), "malformed"},
		arrival{one("GET / HTTP/1.1\r\nHost: a.example\r\nhOST: a.example\r\n\r\n"), "malformed"},
		arrival{one("GET / HTTP/1.0\r\nHost: a.example\r\nHost: b.example\r\n\r\n"), "malformed"},
		arrival{one("GET / HTTP/1.1\r\nHost:\r\n\r\n"), "D"},
		arrival{one("GET http://b.example/ HTTP/1.1\r\n\r\n"), "malformed"},
	)
}

// IPv6 literals are cut at the right colon and compared by value.
func TestCaseB07Head(t *testing.T) {
	for host, want := range map[string]string{
		"[2001:db8::a]": "B2", "[2001:db8::a]:8080": "B2", "[2001:DB8:0::A]": "B2", "[2001:0db8:0:0:0:0:0:000a]:": "B2", "[2001:db8::b]": "D",
		"2001:db8::a": "malformed", "[::1": "malformed", "abc].example": "malformed", "[2001:db8::a]x": "malformed", "[2001:db8::a%25eth0]": "malformed",
		"[b.example]": "malformed", "[]": "malformed", "[v1.b]": "malformed", "[2001:db8::a]:80:80": "malformed",
	} {
		check(t, arrival{one("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"), want})
		target := "GET http://" + host + "/ HTTP/1.1\r\nHost: a.example\r\n\r\n"
		check(t, arrival{one(target), want})
	}
}

// Empty lines before the request line.
func TestCaseB09Head(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n"
	for n := range maxEmptyLines + 2 {
		want := "B2"
		if n > maxEmptyLines {
			want = "malformed"
		}
		in := strings.Repeat("\r\n", n) + request
		check(t, arrival{one(in), want}, arrival{bytewise(in), want})
	}
	check(t, arrival{one("\n" + request), "not_http"}, arrival{one("\r\r\n" + request), "not_http"}, arrival{one("\r\n \r\n" + request), "not_http"}, arrival{one("\r\n\r\n"), "wait"})
}

// What tells where the body ends can be read in one way only.
func TestCaseB11Head(t *testing.T) {
	for fields, want := range map[string]string{
		"Content-Length: 6\r\nTransfer-Encoding: chunked":              "malformed",
		"Transfer-Encoding: chunked\r\nContent-Length: 6":              "malformed",
		"Transfer-Encoding: chunked":                                   "B1",
		"Transfer-Encoding: chunked\t":                                 "B1",
		"Transfer-Encoding:\tchunked":                                  "B1",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked":     "malformed",
		"Transfer-Encoding: CHUNKED":                                   "B1",
		"Transfer-Encoding: chunked, identity":                         "malformed",
		"Transfer-Encoding: identity, chunked\r\nTransfer-Encoding: x": "malformed",
		"Transfer-Encoding: xchunked":                                  "malformed",
		"Transfer-Encoding: chunked;x=y":                               "malformed",
		"Transfer-Encoding: \"chunked\"":                               "malformed",
		"Transfer-Encoding: chunked\x0b":                               "malformed",
		"Transfer-Encoding: chun\xc2\xa0ked":                           "malformed",
		"Transfer-Encoding: chunked\xa0":                               "malformed",
		"Transfer-Encoding\t: chunked":                                 "malformed",
		"Transfer-Encoding : chunked":                                  "malformed",
		"Transfer-Encoding: identity":                                  "malformed",
		"Transfer-Encoding:\r\n chunked":                               "malformed",
		"X: y\r\n\tTransfer-Encoding: chunked":                         "malformed",
		"Content-Length: 5\r\nContent-Length: 6":                       "malformed",
		"Content-Length: 5\r\nContent-Length: 5":                       "malformed",
		"Content-Length: 5, 5":                                         "malformed",
		"Content-Length: 5,6":                                          "malformed",
		"Content-Length: -5":                                           "malformed",
		"Content-Length: 5 5":                                          "malformed",
		"Content-Length: 0x5":                                          "malformed",
		"Content-Length: 5.":                                           "malformed",
		"Content-Length: \xb2":                                         "malformed",
		"Content-Length: 18446744073709551616":                         "malformed",
		"Content-Length: 5":                                            "B1",
		"Content-Length:5\t":                                           "B1",
	} {
		in := "POST / HTTP/1.1\r\nHost: a.example\r\n" + fields + "\r\n\r\n0\r\n\r\nX"
		check(t, arrival{one(in), want}, arrival{bytewise(in), want})
	}
}

// Expect changes nothing: the choice is made at the end of the head.
func TestCaseB13Head(t *testing.T) {
	const in = "PUT /u HTTP/1.1\r\nHost: b.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
	check(t, arrival{one(in), "B2"}, arrival{one(in + "hello"), "B2"}, arrival{bytewise(in), "B2"})
}

// A hello cut anywhere, and byte by byte.
func TestCaseB15Hello(t *testing.T) {
	in := caseHello("b.example")
	if len(in) != 70 {
		t.Fatalf("hello of %d bytes", len(in))
	}
	check(t, arrival{one(in), "B2"}, arrival{bytewise(in), "B2"})
	for cut := 1; cut < len(in); cut++ {
		check(t, arrival{one(in[:cut]), "wait"}, arrival{[]string{in[:cut], in[cut:]}, "B2"})
	}
}

// Small, empty and foreign records.
func TestCaseB17Hello(t *testing.T) {
	m := []byte(caseHello("b.example"))[recordHeader:]
	small := string(records(m, 1))
	const empty, alert = "\x16\x03\x01\x00\x00", "\x15\x03\x01\x00\x02\x01\x00"
	for n := 1; n <= len(m); n++ {
		check(t, arrival{one(string(records(m, n))), "B2"})
	}
	check(t, arrival{bytewise(small), "B2"}, arrival{one(empty + small), "bad_hello 10"}, arrival{one(small[:60] + alert + small[60:]), "bad_hello 10"},
		arrival{one(small[:60] + empty + small[60:]), "bad_hello 10"}, arrival{one(small[:len(small)-6] + empty), "bad_hello 10"}, arrival{bytewise(empty), "bad_hello 10"})
}

// Letters count the same in either case, in names of hellos and of heads. A name of a hello never ends with a dot (RFC 6066
// 3), a host may.
func TestCaseB19Hello(t *testing.T) {
	for _, name := range []string{"b.example", "B.EXAMPLE", "B.eXample"} {
		check(t, arrival{one(caseHello(name)), "B2"}, arrival{one(head("GET / HTTP/1.1", "Host: "+name)), "B2"}, arrival{one(head("GET / HTTP/1.1", "Host: "+name+".:80")), "B2"})
	}
	check(t, arrival{one(caseHello("b.example.")), "bad_hello 47"}, arrival{one(head("GET / HTTP/1.1", "Host: b.example..")), "malformed"})
}

// The preface of HTTP/2 is no request.
func TestCaseB21Head(t *testing.T) {
	settings := preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	check(t, arrival{one(settings), "h2c"}, arrival{bytewise(settings), "h2c"}, arrival{one("PRI * HT"), "wait"}, arrival{one("PRI * HTTP/2.0\r\n\r\n"), "wait"},
		arrival{one("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"), "malformed"}, arrival{one("PRI / HTTP/1.1\r\nHost: b.example\r\n\r\n"), "B2"},
		arrival{one("PROPFIND / HTTP/1.1\r\nHost: b.example\r\n\r\n"), "B2"}, arrival{bytewise("PROPFIND / HTTP/1.1\r\nHost: b.example\r\n\r\n"), "B2"},
		arrival{one("GET / HTTP/2.0\r\nHost: b.example\r\n\r\n"), "malformed"})
}

// What fits a head buffer works; a longer head has no end in it.
func TestCaseB23Head(t *testing.T) {
	target := func(n int) string {
		return "GET /" + strings.Repeat("a", n-1) + " HTTP/1.1\r\nHost: b.example\r\n\r\n"
	}
	check(t, arrival{one(target(7980)), "B2"}, arrival{one("GET /?" + strings.Repeat("a", 7978) + " HTTP/1.1\r\nHost: b.example\r\n\r\n"), "B2"})
	for _, in := range []string{target(8900), target(70000), head("GET / HTTP/1.1", "Host: b.example", "Cookie: "+strings.Repeat("c", 40000))} {
		check(t, arrival{one(in[:maxPath]), "wait"})
	}
}

// The other protocol is recognised by its first byte.
func TestCaseB25Head(t *testing.T) {
	const plain = "CONNECT b.example:443 HTTP/1.1\r\n\r\n"
	if CanStartTLS(plain[0]) {
		t.Errorf("%q can start TLS", plain[0])
	}
	if hello := caseHello("b.example"); CanStart(hello[0]) {
		t.Errorf("%q can start HTTP", hello[0])
	}
	var h Hello
	if v := ParseHello([]byte(plain), &h); v != NotTLS || v.String() != "not_tls" {
		t.Errorf("plain text as hello: %v", v)
	}
	var r Request
	if v := ParseHead([]byte(caseHello("b.example")), &r); v != NotHTTP || v.String() != "not_http" {
		t.Errorf("hello as head: %v", v)
	}
	if end, _, _ := FindHello([]byte(plain), 0, 0); int(end) != len(plain) {
		t.Errorf("plain text is waited for: end %d", end)
	}
}

// A head ends where it ends: what follows in the same segment is no part of it.
func TestCaseB27Head(t *testing.T) {
	first := head("GET /1 HTTP/1.1", "Host: a.example")
	second := head("GET /2 HTTP/1.1", "Host: a.example")
	post := head("POST /1 HTTP/1.1", "Host: a.example", "Content-Length: 40")
	for _, in := range []string{first + second, post + "GET /3 HTTP/1.1\r\nHost: b.example\r\n\r\n......"} {
		want := bytes.Index([]byte(in), []byte("\r\n\r\n")) + 4
		end, _ := FindEnd([]byte(in), 0)
		var r Request
		if v := ParseHead([]byte(in)[:end], &r); end != want || v != OK || string(r.Path) != "/1" {
			t.Errorf("%q: end %d, want %d; %v %q", in, end, want, v, r.Path)
		}
		if v := ParseHead([]byte(in), &r); v != Malformed {
			t.Errorf("two heads read as one: %v", v)
		}
	}
}
