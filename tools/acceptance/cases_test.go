package acceptance

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// hello is a smallest ClientHello with a server name, in records of at most so many bytes.
func hello(name string, most int) string {
	ext := "\x00\x00" + u16(len(name)+5) + u16(len(name)+3) + "\x00" + u16(len(name)) + name
	body := "\x03\x03" + strings.Repeat("\x00", 32) + "\x00" + "\x00\x02\x13\x01" + "\x01\x00" + u16(len(ext)) + ext
	message := "\x01\x00" + u16(len(body)) + body
	var b strings.Builder
	for len(message) > 0 {
		n := min(most, len(message))
		b.WriteString("\x16\x03\x01" + u16(n) + message[:n])
		message = message[n:]
	}
	return b.String()
}

func u16(n int) string { return string([]byte{byte(n >> 8), byte(n)}) }

const oneRecord = 1 << 14 // bytes

// alert is a fatal alert of TLS.
func alert(code byte) string { return string([]byte{0x15, 3, 3, 0, 2, 2, code}) }

// said is what a backend answers to a request with so many bytes of body.
func said(backend, method, target string, body int) string {
	return fmt.Sprintf("%s %s %.40s %d", backend, method, target, body)
}

// TestCaseB01 has heads arrive in pieces: nothing goes out before the last one.
func TestCaseB01(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	const line, rest = "POST /tune HTTP/1.1\r\n", "Host: b.example\r\nContent-Length: 0\r\n\r\n"
	answer := []string{said("B2", "POST", "/tune", 0)}

	// Swapped: the first segment of these clients is lost, and comes again behind the second one.
	var mu sync.Mutex
	lost := map[string]bool{}
	lose := func(frame []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		s := string(frame)
		if !strings.Contains(s, "POST /swapped") || lost[s[26:38]] {
			return false
		}
		lost[s[26:38]] = true // addresses and, of IPv4, ports
		return true
	}
	c.lose.Store(&lose)
	c.run([]talk{
		{name: "line, then fields", port: webPort, pieces: []string{line, rest}, backend: "B2", answers: answer, waits: "wait_head"},
		{name: "one byte per segment", port: webPort, pieces: bytewise(line + rest), backend: "B2", answers: answer, waits: "wait_head"},
		{name: "cut in the end of the head", port: webPort, pieces: []string{line + rest[:len(rest)-1], "\n"}, backend: "B2", answers: answer, waits: "wait_head"},
		{name: "swapped", port: webPort, pieces: []string{"POST /swapped HTTP/1.1\r\n", rest}, burst: true, backend: "B2", answers: []string{said("B2", "POST", "/swapped", 0)}},
		{name: "altered, one byte per segment", port: closePort, pieces: bytewise(line + rest), backend: "B2", answers: answer, waits: "wait_head", end: true, stream: line + rest[:len(rest)-2] + "Connection: close\r\n\r\n"},
	})
	mu.Lock()
	defer mu.Unlock()
	if len(lost) != 2 {
		t.Errorf("%d first segments were lost, want 2", len(lost))
	}
}

// TestCaseB03: the target goes before Host.
func TestCaseB03(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	get := func(target, host string) string { return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	c.run([]talk{
		one("target and Host differ", webPort, get("http://b.example:8080/x", "a.example"), "B2", said("B2", "GET", "http://b.example:8080/x", 0)),
		one("the other way round", webPort, get("http://a.example/x", "b.example"), "B1", said("B1", "GET", "http://a.example/x", 0)),
		one("in capitals", webPort, get("HTTP://B.EXAMPLE/", "b.example"), "B2", said("B2", "GET", "HTTP://B.EXAMPLE/", 0)),
		one("no path", webPort, get("http://b.example", "b.example"), "B2", said("B2", "GET", "http://b.example", 0)),
		one("a host of no rule", webPort, get("http://c.example/", "b.example"), "D", said("D", "GET", "http://c.example/", 0)),
		refusal("user information", webPort, get("http://a.example@b.example/", "b.example"), "HTTP/1.1 400 "),
	})
}

// TestCaseB05: requests without Host, with two, and with an empty one. The empty one is legal and goes to the default.
func TestCaseB05(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	untilClose := one("HTTP/1.0", webPort, "GET / HTTP/1.0\r\n\r\n", "D", said("D", "GET", "/", 0))
	untilClose.end = true
	c.run([]talk{
		refusal("none", webPort, "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
		untilClose,
		refusal("two", webPort, "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n", "HTTP/1.1 400 "),
		refusal("the same twice", webPort, "GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n", "HTTP/1.1 400 "),
		refusal("two, HTTP/1.0", webPort, "GET / HTTP/1.0\r\nHost: a.example\r\nHost: b.example\r\n\r\n", "HTTP/1.1 400 "),
		one("empty", webPort, "GET / HTTP/1.1\r\nHost:\r\n\r\n", "D", said("D", "GET", "/", 0)),
		one("spaces only", webPort, "GET / HTTP/1.1\r\nHost: \t \r\n\r\n", "D", said("D", "GET", "/", 0)),
	})
}

// TestCaseB07: literals of IPv6 with and without a port are compared by value; what is none is refused.
func TestCaseB07(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	get := func(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	var talks []talk
	for host, backend := range map[string]string{
		"[2001:db8::a]": "B2", "[2001:db8::a]:8080": "B2", "[2001:DB8:0::A]": "B2", "[2001:db8::b]": "D", "a.example:8080": "B1",
		"2001:db8::a": "", "[::1": "", "abc].example": "", "[2001:db8::a]x": "", "[2001:db8::a]:8x": "",
	} {
		if backend == "" {
			talks = append(talks, refusal(host, webPort, get(host), "HTTP/1.1 400 "))
			continue
		}
		talks = append(talks, one(host, webPort, get(host), backend, said(backend, "GET", "/", 0)))
	}
	c.run(talks)
}

// TestCaseB09: empty lines before a request are ignored, and reach the server.
func TestCaseB09(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	const get = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n"
	const post = "POST /p HTTP/1.1\r\nHost: b.example\r\nContent-Length: 3\r\n\r\nabc"
	answer := said("B2", "GET", "/", 0)
	c.run([]talk{
		one("one empty line", webPort, "\r\n"+get, "B2", answer),
		{name: "the empty line alone", port: webPort, pieces: []string{"\r", "\n", get}, backend: "B2", answers: []string{answer}, waits: "wait_head"},
		one("behind a body", webPort, post+"\r\n"+get, "B2", said("B2", "POST", "/p", 3), answer),
		{name: "behind a body, later", port: webPort, pieces: []string{post, "\r\n", get}, backend: "B2", answers: []string{said("B2", "POST", "/p", 3), answer}},
		refusal("ten empty lines", webPort, strings.Repeat("\r\n", 10)+get, "HTTP/1.1 400 "),
	})
}

// TestCaseB11: what two servers may cut at different places reaches none.
func TestCaseB11(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	post := func(fields, body string) string {
		return "POST / HTTP/1.1\r\nHost: a.example\r\n" + fields + "\r\n" + body
	}
	const chunked = "0\r\n\r\n"
	refused := func(name, fields string) talk {
		return refusal(name, webPort, post(fields, chunked+"X"), "HTTP/1.1 400 ")
	}
	c.run([]talk{
		refused("both lengths", "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n"),
		refused("both, the other way round", "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n"),
		refused("chunked is not last", "Transfer-Encoding: chunked, identity\r\n"),
		refused("another coding", "Transfer-Encoding: xchunked\r\n"),
		refused("another coding and a length", "Content-Length: 6\r\nTransfer-Encoding: xchunked\r\n"),
		refused("tab before the value and a length", "Content-Length: 6\r\nTransfer-Encoding:\tchunked\r\n"),
		refused("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
		refused("lengths that differ", "Content-Length: 5\r\nContent-Length: 6\r\n"),
		refused("lengths that differ, in one field", "Content-Length: 5, 6\r\n"),
		refused("signed length", "Content-Length: +6\r\n"),
		refused("space before the colon", "Transfer-Encoding : chunked\r\n"),
		refused("folded", "Transfer-Encoding:\r\n chunked\r\n"),
		refused("line without CR", "Content-Length: 6\nTransfer-Encoding: chunked\r\n"),
		refused("byte more in the name", "Transfer-Encoding\x0b: chunked\r\n"),
		one("tab behind the value", webPort, post("Transfer-Encoding: chunked\t\r\n", chunked), "B1", said("B1", "POST", "/", 0)),
		one("chunked", webPort, post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n"+chunked), "B1", said("B1", "POST", "/", 3)),
	})
}

// TestCaseB13: who waits for 100 gets the server's, or its refusal, and no reset.
func TestCaseB13(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	head := func(path string) string {
		return "PUT " + path + " HTTP/1.1\r\nHost: b.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
	}
	for _, f := range []int{4, 6} {
		for _, port := range []int{webPort, closePort, addressPort} {
			upload, err := c.connect(f, port)
			must(t, err)
			defer upload.Close()
			_, err = io.WriteString(upload, head("/u"))
			must(t, err)
			r := bufio.NewReader(upload)
			a, err := http.ReadResponse(r, nil)
			must(t, err)
			if a.StatusCode != http.StatusContinue {
				t.Errorf("port %d: status %d, want 100", port, a.StatusCode)
			}
			_, err = io.WriteString(upload, "hello")
			must(t, err)
			a, err = http.ReadResponse(r, nil)
			must(t, err)
			body, err := io.ReadAll(a.Body)
			if want := said("B2", "PUT", "/u", 5) + "\n"; err != nil || string(body) != want {
				t.Errorf("port %d: answer %q (%v), want %q", port, body, err, want)
			}

			early, err := c.connect(f, port)
			must(t, err)
			defer early.Close()
			_, err = io.WriteString(early, head("/refuse"))
			must(t, err)
			all, err := io.ReadAll(early)
			if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 401 ") || strings.Contains(string(all), "100 Continue") {
				t.Errorf("port %d: answer %q (%v), want 401 alone", port, all, err)
			}
			must(t, early.Close())
			must(t, upload.Close())
		}
	}
	c.run(nil)
	for client, v := range c.visits {
		if v.err != nil {
			t.Errorf("%s: %v", client, v.err)
		}
	}
}

// TestCaseB15 cuts a hello at each byte.
func TestCaseB15(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	ch := hello("b.example", oneRecord)
	if want := "1603010041010000" + "3d0303" + strings.Repeat("00", 32) + "000002130101000012" + "0000000e000c000009" + "622e6578616d706c65"; hex.EncodeToString([]byte(ch)) != want {
		t.Fatalf("the hello is %x, want %s", ch, want)
	}
	talks := []talk{{name: "one byte per segment", port: tlsPort, pieces: bytewise(ch), backend: "B2", answers: []string{"B2\n"}, waits: "wait_head"}}
	for i := 1; i < len(ch); i++ {
		talks = append(talks, talk{name: fmt.Sprintf("cut at %d", i), port: tlsPort, pieces: []string{ch[:i], ch[i:]}, backend: "B2", answers: []string{"B2\n"}})
	}
	c.run(talks)
}

// TestCaseB17 spreads a hello over records.
func TestCaseB17(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	tiny := hello("b.example", 1)
	records := make([]string, 0, len(tiny)/6)
	for i := 0; i < len(tiny); i += 6 {
		records = append(records, tiny[i:i+6])
	}
	const empty, warning = "\x16\x03\x01\x00\x00", "\x15\x03\x01\x00\x02\x01\x00"
	half := len(tiny) / 12 * 6
	c.run([]talk{
		one("65 records", tlsPort, tiny, "B2", "B2\n"),
		{name: "65 records, each in a segment", port: tlsPort, pieces: records, backend: "B2", answers: []string{"B2\n"}, waits: "wait_head"},
		{name: "65 records, one byte per segment", port: tlsPort, pieces: bytewise(tiny), backend: "B2", answers: []string{"B2\n"}},
		one("7 bytes per record", tlsPort, hello("a.example", 7), "B1", "B1\n"),
		refusal("empty record first", tlsPort, empty+tiny, alert(10)),
		refusal("empty record in the middle", tlsPort, tiny[:half]+empty+tiny[half:], alert(10)),
		refusal("alert in the middle", tlsPort, tiny[:half]+warning+tiny[half:], alert(10)),
		refusal("too long for its record", tlsPort, "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03", alert(50)),
	})
	c.counted("runtime.actions.refused_hello", 8)
}

// TestCaseB19: names are compared without regard to case, however the configuration writes them. A dot at the end is
// legal in Host and means the same; in a hello it is not.
func TestCaseB19(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	var talks []talk
	for _, name := range []string{"b.example", "B.EXAMPLE", "B.eXample", "B.Example"} {
		talks = append(talks, one(name, tlsPort, hello(name, oneRecord), "B2", "B2\n"),
			one(name, webPort, "GET / HTTP/1.1\r\nHost: "+name+"\r\n\r\n", "B2", said("B2", "GET", "/", 0)))
	}
	talks = append(talks, one("A.EXAMPLE", tlsPort, hello("A.EXAMPLE", oneRecord), "B1", "B1\n"),
		one("c.example", tlsPort, hello("c.example", oneRecord), "D", "D\n"),
		refusal("b.example. in a hello", tlsPort, hello("b.example.", oneRecord), alert(47)),
		one("B.example. in Host", webPort, "GET / HTTP/1.1\r\nHost: B.example.\r\n\r\n", "B2", said("B2", "GET", "/", 0)))
	c.run(talks)
}

// TestCaseB21: HTTP/2 without TLS is recognised by its preface.
func TestCaseB21(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	const preface, settings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	const find = "PROPFIND / HTTP/1.1\r\nHost: b.example\r\n\r\n"
	found := said("B2", "PROPFIND", "/", 0)
	closed := func(name string, pieces ...string) talk {
		return talk{name: name, port: webPort, pieces: pieces, answers: []string{"HTTP/1.1 505 "}, end: true}
	}
	routed := func(name string, pieces ...string) talk {
		return talk{name: name, port: h2cPort, pieces: pieces, backend: "D", answers: []string{"D\n"}}
	}
	waiting := routed("waits for more", preface[:10], preface[10:]+settings)
	waiting.waits = "wait_head"
	c.run([]talk{
		closed("refused", preface+settings),
		closed("refused, cut", preface[:10], preface[10:]+settings),
		routed("whole", preface+settings), waiting, routed("one byte per segment", bytewise(preface+settings)...),
		one("PROPFIND", webPort, find, "B2", found), one("PROPFIND where h2c goes", h2cPort, find, "B2", found),
		{name: "PROPFIND cut", port: h2cPort, pieces: []string{find[:2], find[2:]}, backend: "B2", answers: []string{found}},
		one("GET where h2c goes", h2cPort, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "B1", said("B1", "GET", "/", 0)),
	})
	c.counted("runtime.actions.refused_h2c", 4)
}

// TestCaseB23: long targets and heads are served up to the limits, and answered beyond.
func TestCaseB23(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	get := func(target int, fields string) string {
		return "GET /" + strings.Repeat("x", target-1) + " HTTP/1.1\r\nHost: b.example\r\n" + fields + "\r\n"
	}
	cookie := func(n int) string { return "Cookie: c=" + strings.Repeat("y", n) + "\r\n" }
	answer := said("B2", "GET", "/"+strings.Repeat("x", 50), 0)
	c.run([]talk{
		one("target of 7,980 bytes", webPort, get(7980, ""), "B2", answer),
		refusal("target of 8,900", webPort, get(8900, ""), "HTTP/1.1 414 "),
		refusal("target of 70,000", webPort, get(70000, ""), "HTTP/1.1 414 "),
		one("cookie of 40,000", webPort, get(60, cookie(40000)), "B2", answer),
		{name: "cookie of 40,000 in pieces", port: webPort, pieces: []string{get(60, cookie(40000))[:9000], get(60, cookie(40000))[9000:]}, backend: "B2", answers: []string{answer}},
		refusal("cookie of 66,000", webPort, get(60, cookie(66000)), "HTTP/1.1 431 "),
		one("target within lower limits", limitedPort, get(2000, ""), "B2", answer),
		refusal("target beyond lower limits", limitedPort, get(2001, ""), "HTTP/1.1 414 "),
		refusal("head beyond lower limits", limitedPort, get(60, cookie(4000)), "HTTP/1.1 431 "),
		refusal("head far beyond lower limits", limitedPort, get(60, cookie(20000)), "HTTP/1.1 431 "),
	})
	c.counted("runtime.actions.refused_target", 6)
	c.counted("runtime.actions.refused_head", 6)
}

// TestCaseB25: who speaks the other port's language is told, with the first segment, and so is the operator.
func TestCaseB25(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	c.run([]talk{
		refusal("CONNECT to TLS", tlsPort, "CONNECT b.example:443 HTTP/1.1\r\n\r\n", alert(10)),
		refusal("one byte to TLS", tlsPort, "G", alert(10)),
		refusal("hello to HTTP", webPort, hello("b.example", oneRecord), "HTTP/1.1 400 "),
		refusal("one byte of a hello to HTTP", webPort, "\x16", "HTTP/1.1 400 "),
	})
	for _, s := range []struct{ counter, words string }{{"not_tls", "tls"}, {"not_http", "http"}} {
		c.counted("runtime.actions.refused_"+s.counter, 4)
		c.counted("url."+s.counter, 4)
	}
	if log := c.log.String(); !strings.Contains(log, "not_tls") || !strings.Contains(log, "not_http") {
		t.Errorf("the log does not name the reasons: %s", log)
	}
}

// TestCaseB27: a second request in the segment of the first one is answered, and nothing in a body is taken for one. Of a
// service that has one request for each connection the second one is not forwarded; a client that sends it again behind
// the server's end resets the connection, as if the server itself had closed.
func TestCaseB27(t *testing.T) {
	t.Parallel()
	c := newContent(t)
	get := func(n int) string { return fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: a.example\r\n\r\n", n) }
	body := "GET /3 HTTP/1.1\r\nHost: b.example\r\n\r\n####"
	if len(body) != 40 {
		t.Fatalf("the body has %d bytes", len(body))
	}
	post := "POST /p HTTP/1.1\r\nHost: a.example\r\nContent-Length: 40\r\n"
	posted := said("B1", "POST", "/p", 40)
	c.run([]talk{
		one("two requests", webPort, get(1)+get(2), "B1", said("B1", "GET", "/1", 0), said("B1", "GET", "/2", 0)),
		{name: "two requests, cut in the second", port: webPort, pieces: []string{get(1) + get(2)[:7], get(2)[7:]}, backend: "B1", answers: []string{said("B1", "GET", "/1", 0), said("B1", "GET", "/2", 0)}},
		one("body that looks like a request", webPort, post+"\r\n"+body+get(4), "B1", posted, said("B1", "GET", "/4", 0)),
		{name: "body in its own segment", port: webPort, pieces: []string{post + "\r\n", body}, backend: "B1", answers: []string{posted}},
		{name: "two requests, only one of them forwarded", port: closePort, pieces: []string{get(1) + get(2)}, backend: "B1", answers: []string{said("B1", "GET", "/1", 0)}, end: true,
			stream: strings.TrimSuffix(get(1), "\r\n") + "Connection: close\r\n\r\n"},
		{name: "body, and a request that is not forwarded", port: closePort, pieces: []string{post + "\r\n", body + get(4)}, backend: "B1", answers: []string{posted}, end: true, reset: true,
			stream: post + "Connection: close\r\n\r\n" + body},
	})
}
