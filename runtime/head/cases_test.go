package head

import (
	"slices"
	"strings"
	"testing"
)

// A reading is a head and what has to come of it: a status, or the host that decides.
type reading struct {
	in     string
	status int
	host   string
}

func read(t *testing.T, rs []reading) {
	t.Helper()
	for _, r := range rs {
		end, _ := End([]byte(r.in), 0)
		if end == 0 {
			t.Errorf("%q has no end", r.in)
			continue
		}
		h, err := Parse([]byte(r.in[:end]))
		if statusOf(err) != r.status || err == nil && h.Host != r.host {
			t.Errorf("%q: %+v, %v, want status %d, host %q", r.in, h, err, r.status, r.host)
		}
	}
}

// TestCaseB01Head lets a head arrive in pieces of every size: it is whole at its last byte, and not before.
func TestCaseB01Head(t *testing.T) {
	in := []byte("POST /tune HTTP/1.1\r\nHost: b.example\r\nContent-Length: 0\r\n\r\n")
	for size := 1; size <= len(in); size++ {
		scanned, end := 0, 0
		for n := size; ; n += size {
			n = min(n, len(in))
			if end, scanned = End(in[:n], scanned); n == len(in) {
				break
			}
			if end != 0 {
				t.Fatalf("pieces of %d: end %d after %d bytes", size, end, n)
			}
		}
		if end != len(in) {
			t.Fatalf("pieces of %d: end %d, want %d", size, end, len(in))
		}
	}
	read(t, []reading{{string(in), 0, "b.example"}})
}

func TestCaseB03Head(t *testing.T) {
	read(t, []reading{
		{lines("GET http://b.example:8080/x HTTP/1.1", "Host: a.example"), 0, "b.example"},
		{lines("GET HTTP://B.EXAMPLE/ HTTP/1.1", "Host: b.example"), 0, "b.example"},
		{lines("CONNECT b.example:443 HTTP/1.1", "Host: b.example"), 0, "b.example"},
		{lines("CONNECT b.example:443 HTTP/1.1", "Host: B.example:443"), 0, "b.example"},
		{lines("CONNECT b.example:443 HTTP/1.1", "Host: a.example"), 400, ""},
		{lines("GET http://b.example/ HTTP/1.1", "Host:"), 400, ""},
		{lines("OPTIONS http://b.example HTTP/1.1", "Host: a.example"), 0, "b.example"},
	})
}

func TestCaseB05Head(t *testing.T) {
	read(t, []reading{
		{lines("GET / HTTP/1.1"), 400, ""},
		{lines("GET / HTTP/1.0"), 0, ""},
		{lines("GET / HTTP/1.1", "Host: a.example", "Host: b.example"), 400, ""},
		{lines("GET / HTTP/1.1", "Host: a.example", "X: y", "hOST: a.example"), 400, ""},
		{lines("GET / HTTP/1.1", "Host:"), 0, ""},
		{lines("GET http://a.example/ HTTP/1.1"), 400, ""},
	})
}

func TestCaseB07Head(t *testing.T) {
	with := func(host string) string { return lines("GET / HTTP/1.1", "Host: "+host) }
	read(t, []reading{
		{with("[2001:db8::a]"), 0, "[2001:db8::a]"},
		{with("[2001:db8::a]:8080"), 0, "[2001:db8::a]"},
		{with("[2001:DB8:0::A]"), 0, "[2001:db8::a]"}, // compared by value
		{with("2001:db8::a"), 400, ""},
		{with("[::1"), 400, ""},
		{with("abc].example"), 400, ""},
		{with("[::1]8080"), 400, ""},
		{with("[]"), 400, ""},
	})
}

// TestCaseB09Head alters a head with empty lines before it as well: they are the server's to ignore.
func TestCaseB09Head(t *testing.T) {
	in := "\r\n" + lines("GET / HTTP/1.1", "Host: b.example")
	read(t, []reading{{in, 0, "b.example"}, {"\r\n\r\n\r\n" + in, 0, "b.example"}, {"\r\n\r\n\r\n\r\n" + in, 400, ""}, {"\n" + in, 400, ""}})
	got, err := apply(t, &Alter{Close: true}, in)
	if want := in[:len(in)-2] + "Connection: close\r\n\r\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestCaseB11Head(t *testing.T) {
	with := func(fields ...string) string {
		return lines(append([]string{"POST / HTTP/1.1", "Host: a.example"}, fields...)...) + "0\r\n\r\nX"
	}
	read(t, []reading{
		{with("Content-Length: 6", "Transfer-Encoding: chunked"), 400, ""},
		{with("Transfer-Encoding: chunked", "Content-Length: 6"), 400, ""},
		{with("Transfer-Encoding: chunked\t"), 0, "a.example"},
		{with("Transfer-Encoding:\tchunked"), 0, "a.example"},
		{with("Transfer-Encoding: chunked, identity"), 400, ""},
		{with("Transfer-Encoding: xchunked"), 400, ""},
		{with("Transfer-Encoding: \x0bchunked"), 400, ""},
		{with("Transfer-Encoding : chunked"), 400, ""},
		{with("Transfer-Encoding: chunked;a=b"), 400, ""},
		{with("Transfer-Encoding: \"chunked\""), 400, ""},
		{with("X: y", " Transfer-Encoding: chunked"), 400, ""},
		{with("Content-Length: 5", "Content-Length: 6"), 400, ""},
		{with("Content-Length: 0x5"), 400, ""},
		{with("Content-Length: 5 5"), 400, ""},
	})
}

// TestCaseB13Head reads what tells that a client waits before it sends the body; the request's end is known all the same.
func TestCaseB13Head(t *testing.T) {
	in := lines("PUT /u HTTP/1.1", "Host: b.example", "Content-Length: 5", "Expect: 100-continue")
	h, err := Parse([]byte(in))
	if err != nil || !h.Expect || h.Length != 5 {
		t.Fatalf("%+v, %v", h, err)
	}
	if n, ok := h.Boundary(); !ok || int(n) != len(in)+5 {
		t.Errorf("the request has %d bytes, %v", n, ok)
	}
	got, err := apply(t, &Alter{Close: true}, strings.Replace(in, "Expect", "Connection: expect\r\nExpect", 1))
	if want := strings.Replace(in, "Expect", "Connection: close\r\nExpect", 1); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestCaseB17Hello(t *testing.T) {
	message := hello(sni("b.example"))
	empty := []byte{recordHandshake, 3, 1, 0, 0}
	for _, size := range []int{1, 2, 3, 4, 5, 7, 64} {
		rs := records(message, size)
		if h, err := ParseHello(rs); err != nil || h.SNI != "b.example" || h.Bytes != len(rs) {
			t.Errorf("records of %d: %+v, %v", size, h, err)
		}
		first := 5 + size
		for _, b := range [][]byte{
			append(slices.Clone(empty), rs...), slices.Concat(rs[:first], empty, rs[first:]), slices.Concat(rs[:first], Alert(0), rs[first:]),
			slices.Concat(rs[:first], []byte{23, 3, 3, 0, 1, 0}, rs[first:]),
		} {
			_, err := ParseHello(b)
			if e, ok := err.(*Error); !ok || e.Alert != UnexpectedMessage || e.More {
				t.Errorf("records of %d: %#v in %x, want unexpected_message", size, err, b)
			}
		}
	}
}

func TestCaseB19Head(t *testing.T) {
	for _, host := range []string{"b.example", "B.EXAMPLE", "B.eXample", "b.example."} {
		read(t, []reading{{lines("GET / HTTP/1.1", "Host: "+host), 0, "b.example"}})
	}
}

// TestCaseB19Hello: a name that ends with a dot is not legal in SNI (RFC 6066 3).
func TestCaseB19Hello(t *testing.T) {
	for name, want := range map[string]string{"b.example": "b.example", "B.EXAMPLE": "b.example", "B.eXample": "b.example", "b.example.": ""} {
		h, err := ParseHello(records(hello(sni(name)), maxRecord))
		if want == "" && err == nil || want != "" && (err != nil || h.SNI != want) {
			t.Errorf("%q: %+v, %v", name, h, err)
		}
	}
}

func TestCaseB21Head(t *testing.T) {
	read(t, []reading{
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, ""},
		{lines("PROPFIND / HTTP/1.1", "Host: b.example"), 0, "b.example"},
		{lines("PRI / HTTP/1.1", "Host: b.example"), 0, "b.example"},
	})
	if end, _ := End([]byte("PRI * HT"), 0); end != 0 {
		t.Errorf("a part of the preface ends at %d", end)
	}
}

func TestCaseB23Head(t *testing.T) {
	target := func(n int) string { return lines("GET /"+strings.Repeat("a", n-1)+" HTTP/1.1", "Host: b.example") }
	for _, tt := range []struct {
		name, in string
		want     int
	}{
		{"7,980", target(7980), 0},
		{"8,900", target(8900), 414},
		{"70,000", target(70000), 414},
		{"70,000, a buffer of it", target(70000)[:8192], 414},
		{"cookie of 40,000", lines("GET / HTTP/1.1", "Host: b.example", "Cookie: "+strings.Repeat("c", 40000)), 0},
		{"cookie of 70,000", lines("GET / HTTP/1.1", "Host: b.example", "Cookie: "+strings.Repeat("c", 70000)), 431},
	} {
		if got := statusOf(Limits{}.Check([]byte(tt.in))); got != tt.want {
			t.Errorf("%s: status %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestCaseB25Head and TestCaseB25Hello: what speaks the other protocol is told from a mistake in this one.
func TestCaseB25Head(t *testing.T) {
	read(t, []reading{{string(records(hello(sni("b.example")), maxRecord)) + "\r\n\r\n", 400, ""}})
}

func TestCaseB25Hello(t *testing.T) {
	for _, in := range []string{"CONNECT b.example:443 HTTP/1.1\r\n\r\n", "C", "\x80\x2e\x01\x03\x01", "\x16\x02"} {
		_, err := ParseHello([]byte(in))
		if e, ok := err.(*Error); !ok || e.Alert != 0 || e.More {
			t.Errorf("%q: %#v, want no alert: it is not TLS", in, err)
		}
	}
}

// TestCaseB27Head: the end of a request is behind its body, whatever the body looks like.
func TestCaseB27Head(t *testing.T) {
	first := lines("GET /1 HTTP/1.1", "Host: a.example")
	second := lines("GET /2 HTTP/1.1", "Host: a.example")
	if end, _ := End([]byte(first+second), 0); end != len(first) {
		t.Errorf("the first head ends at %d, want %d", end, len(first))
	}
	post := lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 40")
	for in, want := range map[string]int{first: len(first), post: len(post) + 40} {
		h, err := Parse([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := h.Boundary(); !ok || int(n) != want {
			t.Errorf("%q: the request has %d bytes, %v, want %d", in, n, ok, want)
		}
	}
}
