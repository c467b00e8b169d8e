package daemon_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/runtime/view"
	"splicenic/tools/tcppeer"
)

// contentServices is a service with a part of its own, of two groups that are sorry for each other's lack.
const contentServices = base + `
services:
  - {name: web, listen: [198.18.0.80:80], %s}
groups:
  - {name: app, profile: {mss: 1460}, servers: [{address: 198.18.1.11:8080}], sorry: calm}
  - {name: calm, profile: {mss: 1460}, servers: [{address: 198.18.1.12:8080}], sorry: {reply: {status: 503, body: later}}}
`

// talk sends what a client says and returns what it is answered, empty where the connection is reset.
func (c *client) talk(vip, text string, most time.Duration) string {
	c.r.Helper()
	conn, err := c.h.Dial(c.r.now, netip.AddrPortFrom(c.from, c.local), netip.MustParseAddrPort(vip))
	if err != nil {
		c.r.Fatal(err)
	}
	conn.Tag = uint64(len(c.requests))
	c.requests = append(c.requests, text)
	c.open++
	resets := c.reset
	c.r.until(fmt.Sprintf("answer to %.40q", text), most, func() bool { _, ok := c.answers[conn]; return ok || c.reset > resets })
	answer := c.answers[conn]
	delete(c.answers, conn)
	return answer
}

// recorder is a server that remembers what it got, and answers with its name and closes once that ends as a test says.
func (r *rig) recorder(a, end string) *string {
	got := new(string)
	addr := netip.MustParseAddrPort(a)
	h := r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(addr.Addr(), addr.Addr().BitLen())}, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
		*got += string(c.Bytes())
		c.Discard(len(c.Bytes()))
		if e == tcppeer.Data && strings.HasSuffix(*got, end) {
			c.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + a))
			c.CloseWrite()
		}
	}})
	h.Listen(addr.Port())
	return got
}

// cookie is a request whose head has a large field.
func cookie(n int) string {
	return "GET /x HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("0123456789abcdef", n/16+1)[:n] + "\r\n\r\n"
}

// TestLargeHeads: a head that outgrows the head buffer reaches the server whole, and altered as the service says.
func TestLargeHeads(t *testing.T) {
	const forwarded = "X-Forwarded-For: 198.18.0.10\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n"
	for _, tt := range []struct {
		name, service, sent, want string
		inserted                  bool
	}{
		{"as it is", "default: app", cookie(9000), cookie(9000), false},
		{"the largest", "default: app", cookie(65400), cookie(65400), false},
		{"with a body", "default: app", strings.Replace(cookie(30000), "Host", "Content-Length: 4\r\nHost", 1) + "body", strings.Replace(cookie(30000), "Host", "Content-Length: 4\r\nHost", 1) + "body", false},
		{"forwarded", "default: app, forwarded: x-forwarded-for", cookie(20000), strings.TrimSuffix(cookie(20000), "\r\n") + forwarded + "\r\n", false},
		{"PROXY", "default: app, proxy: v2", cookie(20000), cookie(20000), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, small)
			got := r.recorder("198.18.1.11:8080", tt.want[len(tt.want)-30:])
			c := r.client("198.18.0.10")
			r.apply(fmt.Sprintf(contentServices, tt.service))
			r.run(5 * time.Millisecond)
			if answer := c.talk("198.18.0.80:80", tt.sent, 5*time.Second); !strings.HasSuffix(answer, "198.18.1.11:8080") {
				t.Errorf("the client gets %q", answer)
			}
			if tt.inserted {
				if len(*got) < 16 || !strings.HasPrefix(*got, "\r\n\r\n\x00\r\nQUIT\n") {
					t.Fatalf("the server gets %.40q", *got)
				}
				*got = (*got)[16+binary.BigEndian.Uint16([]byte((*got)[14:])):]
			}
			if *got != tt.want {
				t.Errorf("the server gets %d bytes, %.60q; want %d", len(*got), *got, len(tt.want))
			}
			r.rest()
			if c.reset+c.failed != 0 {
				t.Errorf("%d resets, %d time-outs", c.reset, c.failed)
			}
			if gathered, fed := r.card.Load(regs.ConnectionGathered), r.card.Load(regs.ConnectionFed); gathered == 0 || fed == 0 {
				t.Errorf("gathered %d, fed %d", gathered, fed)
			}
			if actions := r.d.Counters()["actions"].(view.Stats); actions["head_gathered"] != uint64(1) || actions["drop_command"] != uint64(0) {
				t.Errorf("counters %v", actions)
			}
		})
	}
}

// TestTooLarge: a client that sends more than may be is told so, and its connection ends as others do.
func TestTooLarge(t *testing.T) {
	for _, tt := range []struct{ name, sent, want string }{
		{"a target", "GET /" + strings.Repeat("x", 8900) + " HTTP/1.1\r\nHost: a\r\n\r\n", "414 URI Too Long"},
		{"a long target", "GET /" + strings.Repeat("x", 70000) + " HTTP/1.1\r\nHost: a\r\n\r\n", "414 URI Too Long"},
		{"a head", cookie(70000), "431 Request Header Fields Too Large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, small)
			r.httpServers("198.18.1.11:8080")
			c := r.client("198.18.0.10")
			r.apply(twoServers)
			r.run(5 * time.Millisecond)
			if got := c.talk("198.18.0.80:80", tt.sent, 2*time.Second); !strings.HasPrefix(got, "HTTP/1.1 "+tt.want+"\r\n") {
				t.Errorf("the client gets %q", got)
			}
			if c.reset != 0 {
				t.Errorf("%d resets", c.reset)
			}
			if got, want := r.card.Load(regs.HeadFree), r.card.Geometry().Heads; got != want {
				t.Errorf("free heads: got %d, want %d", got, want)
			}
		})
	}
}

// TestSorryGroup: where no server of a group is there its sorry target has the request, and its sorry target in turn.
func TestSorryGroup(t *testing.T) {
	for _, tt := range []struct {
		name string
		up   []string
		want string
	}{
		{"nobody is needed", []string{"198.18.1.11:8080", "198.18.1.12:8080"}, "198.18.1.11:8080"},
		{"a group", []string{"198.18.1.12:8080"}, "198.18.1.12:8080"},
		{"an answer", nil, "later"},
	} {
		for _, weight := range []string{"", ", weight: 0"} { // it refuses, or no slot names it
			t.Run(tt.name+weight, func(t *testing.T) {
				r := newRig(t, small)
				up := map[string]bool{}
				for _, a := range tt.up {
					up[a] = true
				}
				text := fmt.Sprintf(contentServices, "default: app")
				for _, a := range []string{"198.18.1.11:8080", "198.18.1.12:8080"} {
					switch {
					case up[a]:
						r.httpServers(a)
					case weight != "":
						text = edit(t, text, "{address: "+a+"}", "{address: "+a+weight+"}")
						r.httpServers(a)
					default:
						r.badServer("refuses", a)
					}
				}
				c := r.client("198.18.0.10")
				r.apply(text)
				r.run(5 * time.Millisecond)
				if got := c.answer("198.18.0.80:80", "x", "/", 3*time.Second); !strings.HasSuffix(got, "\r\n\r\n"+tt.want) {
					t.Errorf("the client gets %q, want %s", got, tt.want)
				}
				r.rest()
				if c.reset+c.failed != 0 {
					t.Errorf("%d resets, %d time-outs", c.reset, c.failed)
				}
			})
		}
	}
}

// TestDefaultAnswers: a request that no rule takes is answered as the service says.
func TestDefaultAnswers(t *testing.T) {
	for _, tt := range []struct{ to, want string }{
		{"{reply: {status: 403, body: no}}", "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain"},
		{"{redirect: {scheme: https, host: b.example}}", "HTTP/1.1 302 Found\r\nLocation: https://b.example/y?z\r\n"},
	} {
		r := newRig(t, small)
		c := r.client("198.18.0.10")
		r.apply(fmt.Sprintf(contentServices, "routes: [{path: /x, to: app}], default: "+tt.to))
		r.run(5 * time.Millisecond)
		if got := c.answer("198.18.0.80:80", "x", "/y?z", time.Second); !strings.HasPrefix(got, tt.want) {
			t.Errorf("the client gets %q, want %q", got, tt.want)
		}
		if c.reset != 0 {
			t.Errorf("%d resets", c.reset)
		}
	}
}

// TestFlood: while fragments and unknown traffic fill the exception ring many times over, every connection whose server
// fails finds another.
func TestFlood(t *testing.T) {
	r := newRig(t, small)
	r.badServer("refuses", "198.18.1.11:8080")
	r.httpServers("198.18.1.12:8080")
	c := r.client("198.18.0.10")
	r.apply(twoServers)
	r.run(5 * time.Millisecond)
	fragment := func(id byte) []byte {
		b := make([]byte, 60)
		copy(b, r.nets[0].mac[:])
		copy(b[6:], []byte{2, 0xbb, 0, 0, 0, 9, 8, 0, 0x45, 0, 0, 40, 0, id, 0x20, 0, 64, 6, 0, 0, 192, 0, 2, id, 198, 18, 0, 80})
		sum := uint32(0)
		for i := 14; i < 34; i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(b[24:], ^uint16(sum+sum>>16))
		return b
	}
	const requests = 20
	for range requests {
		c.get("198.18.0.80:80", "x", "/")
	}
	id := byte(0)
	r.until("answers", 5*time.Second, func() bool {
		for range 12 { // the card is faster than the runtime
			for range 50 {
				id++
				r.nets[0].send(fragment(id))
			}
			r.emu.Step(r.now)
		}
		return c.open == 0
	})
	if len(c.answers) != requests || c.reset+c.failed != 0 {
		t.Errorf("%d answers, %d resets, %d time-outs", len(c.answers), c.reset, c.failed)
	}
	if lost := r.card.Load(regs.RingLost); lost == 0 {
		t.Error("the flood did not fill the exception ring")
	}
	if n := r.d.Counters()["beyond_share"].(view.Stats)["fragment"].(uint64); n == 0 {
		t.Error("no fragment was beyond its share")
	}
}
