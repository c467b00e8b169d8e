package daemon_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/runtime/view"
)

// withoutProxy takes a PROXY header off a stream.
func withoutProxy(t *testing.T, s string) string {
	t.Helper()
	if len(s) < 16 || !strings.HasPrefix(s, "\r\n\r\n\x00\r\nQUIT\n") {
		t.Fatalf("no PROXY header: %.40q", s)
	}
	return s[16+binary.BigEndian.Uint16([]byte(s[14:])):]
}

// smallHello is a ClientHello for b.example.
var smallHello = "\x16\x03\x01\x00\x41\x01\x00\x00\x3d\x03\x03" + strings.Repeat("\x00", 32) +
	"\x00\x00\x02\x13\x01\x01\x00\x00\x12\x00\x00\x00\x0e\x00\x0c\x00\x00\x09b.example"

// TestAltered: what a service's server gets in place of what the client sent.
func TestAltered(t *testing.T) {
	const (
		get       = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
		forwarded = "X-Forwarded-For: 198.18.0.10\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n"
		post      = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n"
		fields    = "GET /x HTTP/1.1\r\nHost: a\r\n"
	)
	body := strings.Repeat("b", 8995) + "THEND"
	for _, tt := range []struct {
		name, service, sent, want string
		proxy                     bool
	}{
		{"forwarded", "default: app, forwarded: x-forwarded-for", get, fields + forwarded + "\r\n", false},
		{"PROXY", "default: app, proxy: v2", get, get, true},
		{"PROXY before TLS", "protocol: tls, default: app, proxy: v2", smallHello, smallHello, true},
		{"PROXY before anything", "protocol: tcp, server_first: false, default: app, proxy: v2", "anything", "anything", true},
		{"PROXY before a server that speaks first", "protocol: tcp, default: app, proxy: v2", "anything", "anything", true},
		{"close", "default: app, requests: close", get, fields + "Connection: close\r\n\r\n", false},
		{"close and a body", "default: app, requests: close", post + "\r\n" + body, post + "Connection: close\r\n\r\n" + body, false},
		{"close and a second request", "default: app, requests: close", get + get, fields + "Connection: close\r\n\r\n", false},
		{"all", "default: app, requests: close, proxy: v2, forwarded: x-forwarded-for", get, fields + forwarded + "Connection: close\r\n\r\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, small)
			got := r.recorder("198.18.1.11:8080", tt.want[len(tt.want)-8:])
			c := r.client("198.18.0.10")
			r.apply(fmt.Sprintf(strings.Replace(contentServices, "sorry: {reply: {status: 503, body: later}}", "", 1), tt.service))
			r.run(5 * time.Millisecond)
			if answer := c.talk("198.18.0.80:80", tt.sent, 5*time.Second); !strings.HasSuffix(answer, "198.18.1.11:8080") {
				t.Errorf("the client gets %q", answer)
			}
			if tt.proxy {
				*got = withoutProxy(t, *got)
			}
			if *got != tt.want {
				t.Errorf("the server gets %.300q, want %.300q", *got, tt.want)
			}
			r.rest()
			if c.reset+c.failed != 0 {
				t.Errorf("%d resets, %d time-outs", c.reset, c.failed)
			}
			if n := r.card.Load(regs.ConnectionRewritten); n != 1 {
				t.Errorf("rewritten: got %d, want 1", n)
			}
		})
	}
}

// TestAnswersOfServices: who nobody serves is told so in what the service's clients speak, and counted.
func TestAnswersOfServices(t *testing.T) {
	for _, tt := range []struct{ name, service, sent, want, counter string }{
		{"a reply", "routes: [{path: /x, to: {reply: {status: 410, body: gone}}}], default: app", "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 410 Gone\r\n", "answered"},
		{"a redirect", "routes: [{path: /x/*, to: {redirect: {scheme: https, prefix: /y}}}], default: app", "GET /x/z?q HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: https://a/y/z?q\r\n", "answered"},
		{"malformed", "default: app", "GET /x HTTP/1.1\r\nHost : a\r\n\r\n", "HTTP/1.1 400 ", "refused_request"},
		{"a version", "default: app", "GET /x HTTP/3.0\r\nHost: a\r\n\r\n", "HTTP/1.1 505 ", "refused_version"},
		{"no rule", "routes: [{path: /y, to: app}]", "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404 ", "refused_no_rule"},
		{"time-out", "default: app, timeouts: {wait_head: 1s}", "GET /x HTTP/1.1\r\n", "HTTP/1.1 408 ", "refused_timeout"},
		{"a hello", "default: app", smallHello, "HTTP/1.1 400 Bad Request\r\n", "refused_not_http"},
		{"HTTP/2", "default: app", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 505 ", "refused_h2c"},
		{"a request to TLS", "protocol: tls, default: app", "CONNECT b.example:443 HTTP/1.1\r\n\r\n", "\x15\x03\x03\x00\x02\x02\x0a", "refused_not_tls"},
		{"no rule for a name", "protocol: tls, routes: [{sni: a.example, to: app}]", smallHello, "\x15\x03\x03\x00\x02\x02\x70", "refused_no_rule"},
		{"an empty record", "protocol: tls, default: app", "\x16\x03\x01\x00\x00", "\x15\x03\x03\x00\x02\x02\x0a", "refused_hello"},
		{"no request but text", "protocol: tcp, server_first: false, default: app", "anything", "HTTP/1.1 200 OK\r\nConnection: close", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, small)
			r.recorder("198.18.1.11:8080", "")
			c := r.client("198.18.0.10")
			r.apply(fmt.Sprintf(strings.Replace(contentServices, "sorry: {reply: {status: 503, body: later}}", "", 1), tt.service))
			r.run(5 * time.Millisecond)
			if got := c.talk("198.18.0.80:80", tt.sent, 3*time.Second); !strings.HasPrefix(got, tt.want) {
				t.Errorf("the client gets %q, want %q", got, tt.want)
			}
			if c.reset != 0 {
				t.Errorf("%d resets", c.reset)
			}
			if tt.counter == "" {
				return
			}
			if actions := r.d.Counters()["actions"].(view.Stats); actions[tt.counter] != uint64(1) {
				t.Errorf("%s is %v", tt.counter, actions[tt.counter])
			}
			if strings.HasPrefix(tt.counter, "refused_") && !strings.Contains(r.log.String(), "client=198.18.0.10:") {
				t.Errorf("the log says nothing of it: %s", r.log.String())
			}
		})
	}
}

// TestHostRules: a rule that only the host can test takes its requests, altered or not.
func TestHostRules(t *testing.T) {
	const get = "GET /v12 HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, tt := range []struct{ name, more, path, want string }{
		{"it takes it", "", "/v12", "198.18.1.12:8080"},
		{"it does not", "", "/vx", "198.18.1.11:8080"},
		{"altered", ", requests: close", "/v12", "198.18.1.12:8080"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, small)
			r.httpServers("198.18.1.11:8080", "198.18.1.12:8080")
			c := r.client("198.18.0.10")
			r.apply(fmt.Sprintf(contentServices, `routes: [{path: {regex: "/v[0-9]+"}, to: calm}], default: app`+tt.more))
			r.run(5 * time.Millisecond)
			if got := c.talk("198.18.0.80:80", strings.Replace(get, "/v12", tt.path, 1), 3*time.Second); !strings.HasSuffix(got, tt.want) {
				t.Errorf("the client gets %q, want %s", got, tt.want)
			}
			r.rest()
			if n := r.d.Counters()["actions"].(view.Stats)["rule_by_host"]; n != uint64(1) {
				t.Errorf("rule_by_host is %v", n)
			}
		})
	}
}

// TestAlteredUnderLoss loses each frame of the server leg once, one at a time, of requests that the runtime alters, one of
// them larger than a head buffer. The server gets what the service's policy says, and the client its answer.
func TestAlteredUnderLoss(t *testing.T) {
	const service = "default: app, proxy: v2, forwarded: x-forwarded-for, requests: close"
	added := "X-Forwarded-For: 198.18.0.10\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nConnection: close\r\n\r\n"
	for _, size := range []int{2500, 9000} {
		if testing.Short() && size > regs.HeadBytes {
			continue
		}
		want := strings.TrimSuffix(cookie(size), "\r\n") + added
		for _, toServer := range []bool{true, false} {
			for n := 0; ; n++ {
				frames := 0
				if !t.Run(fmt.Sprintf("%d bytes, to the server %v, frame %d", size, toServer, n), func(t *testing.T) {
					r := newRig(t, small)
					got := r.recorder("198.18.1.11:8080", added)
					c := r.client("198.18.0.10")
					r.apply(fmt.Sprintf(contentServices, service))
					r.run(5 * time.Millisecond)
					r.nets[1].drop = func(to bool, b []byte) bool {
						if to != toServer || !carriesTCP(b) {
							return false
						}
						frames++
						return frames-1 == n
					}
					if answer := c.talk("198.18.0.80:80", cookie(size), 20*time.Second); !strings.HasSuffix(answer, "198.18.1.11:8080") {
						t.Errorf("the client gets %q", answer)
					}
					if s := withoutProxy(t, *got); s != want {
						t.Errorf("the server gets %d bytes, want %d", len(s), len(want))
					}
					r.rest()
					if c.reset+c.failed != 0 {
						t.Errorf("%d resets, %d time-outs", c.reset, c.failed)
					}
				}) || frames <= n {
					break
				}
			}
		}
	}
}
