package daemon_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// TestAlteredAtEveryCut sends a request in two segments, cut at each of its bytes, to a service that alters it: the server
// gets the very stream that the service's keys say, and the client one answer and an orderly end.
func TestAlteredAtEveryCut(t *testing.T) {
	const (
		vip  = "198.18.0.80:80"
		line = "\r\nPOST /x HTTP/1.1\r\nHost: b.example\r\n"
		sent = line + "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-Forwarded-For: 192.0.2.7\r\nContent-Length: 4\r\n\r\nbody"
		end  = "Content-Length: 4\r\n"
		next = "GET /y HTTP/1.1\r\nHost: b.example\r\n\r\n"
	)
	for _, tt := range []struct {
		name, service string
		proxied       bool
		want          string // PORT stands for the client's
		behind        string // what the server gets of a request that follows
	}{
		{"close", "requests: close", false, line + "Connection: close\r\nX-Forwarded-For: 192.0.2.7\r\n" + end + "\r\nbody", ""},
		{"x-forwarded-for and close", "requests: close, forwarded: x-forwarded-for", false,
			line + "Connection: close\r\nX-Forwarded-For: 192.0.2.7, 198.18.0.10\r\n" + end + "X-Forwarded-Proto: http\r\nX-Forwarded-Host: b.example\r\n\r\nbody", ""},
		{"all", "proxy: v2, requests: close, forwarded: {field: forwarded, existing: replace}", true,
			line + "Connection: close\r\n" + end + `Forwarded: for="198.18.0.10:PORT";by="198.18.0.80:80";host=b.example;proto=http` + "\r\n\r\nbody", ""},
		{"PROXY", "proxy: v2", true, sent, next},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, small)
			got := map[uint16]string{} // by the client's port
			over := map[uint16]bool{}
			server := netip.MustParseAddrPort("198.18.1.11:8080")
			h := r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(server.Addr(), 32)}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
				n := c.Remote().Port()
				answered := strings.Contains(got[n], "\r\n\r\nbody")
				got[n] += string(c.Bytes())
				c.Discard(len(c.Bytes()))
				if !answered && strings.Contains(got[n], "\r\n\r\nbody") {
					c.Write([]byte("answer"))
					c.CloseWrite()
				}
			}})
			h.Listen(server.Port())
			answers := map[uint16]string{}
			from := netip.MustParseAddr("198.18.0.10")
			client := r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(from, 32)}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
				n := c.Local().Port()
				answers[n] += string(c.Bytes())
				c.Discard(len(c.Bytes()))
				switch e {
				case tcppeer.PeerClosed:
					c.CloseWrite()
				case tcppeer.Closed:
					over[n] = true
				case tcppeer.Reset, tcppeer.TimedOut:
					over[n] = true
					t.Errorf("the client's connection ends by event %d", e)
				}
			}})
			r.apply(fmt.Sprintf(contentServices, "default: app, "+tt.service))
			r.run(5 * time.Millisecond)
			step := 1
			if testing.Short() {
				step = 7
			}
			for cut := 0; cut <= len(sent); cut += step {
				conn, err := client.Dial(r.now, netip.AddrPortFrom(from, 0), netip.MustParseAddrPort(vip))
				if err != nil {
					t.Fatal(err)
				}
				port := conn.Local().Port()
				r.until("handshake", time.Second, func() bool { return conn.State() == tcppeer.Open })
				text, want := sent, strings.Replace(tt.want, "PORT", fmt.Sprint(port), 1)
				if cut == 0 { // all at once, and another request with it
					text, want = text+next, want+tt.behind
				}
				conn.Write([]byte(text[:cut]))
				r.run(2 * time.Millisecond)
				if got[port] != "" {
					t.Errorf("cut at %d: the server has %q before the head is whole", cut, got[port])
				}
				conn.Write([]byte(text[cut:]))
				r.until(fmt.Sprintf("end of the connection cut at %d", cut), 5*time.Second, func() bool { return over[port] })
				stream := got[port]
				if tt.proxied {
					if len(stream) < 16 || !strings.HasPrefix(stream, "\r\n\r\n\x00\r\nQUIT\n") {
						t.Fatalf("cut at %d: the server gets %.40q", cut, stream)
					}
					stream = stream[16+binary.BigEndian.Uint16([]byte(stream[14:])):]
				}
				if stream != want {
					t.Errorf("cut at %d: the server gets\n%q, want\n%q", cut, stream, want)
				}
				if answers[port] != "answer" {
					t.Errorf("cut at %d: the client gets %q", cut, answers[port])
				}
			}
			r.rest()
			if free, want := r.card.Load(regs.HeadFree), r.card.Geometry().Heads; free != want {
				t.Errorf("free heads: got %d, want %d", free, want)
			}
		})
	}
}
