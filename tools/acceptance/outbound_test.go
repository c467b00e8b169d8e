package acceptance

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestOutbound: what servers start reaches the clients' side through the card, routed and with another source: curl, UDP in
// one piece and in fragments, and ping, of both families. With snat the clients' side has no way to the servers' subnets.
func TestOutbound(t *testing.T) {
	need(t, "curl", "curl")
	need(t, "ping", "iputils-ping")
	for _, tt := range []struct {
		name, client, server string
		routes               bool // the clients' side knows the servers' subnets
		from4, from6         string
	}{
		{"routed", ", forward: routed", ", forward: routed", true, "198.18.1.11", "2001:db8:1::11"},
		{"snat", "", `, forward: routed, snat: [198.18.0.90, "2001:db8::90"]`, false, "198.18.0.90", "2001:db8::90"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := between(t)
			if tt.routes {
				must(t, p.client.Route("198.18.1.0/24", "198.18.0.1"))
				must(t, p.client.Route("2001:db8:1::/64", "2001:db8::1"))
			}
			p.begin(strings.NewReplacer("2001:db8::1/64\"]}", "2001:db8::1/64\"]"+tt.client+"}", "2001:db8:1::1/64\"]}", "2001:db8:1::1/64\"]"+tt.server+"}").Replace(configuration))
			for _, x := range []struct{ at, from, want string }{{"198.18.0.10", "198.18.1.11", tt.from4}, {"2001:db8::10", "2001:db8:1::11", tt.from6}} {
				p.outbound(x.at, x.from, x.want)
			}
			if n, translated := p.number("runtime.actions.snat_out"), !tt.routes; (n > 0) != translated {
				t.Errorf("actions.snat_out is %v", n)
			}
		})
	}
}

// outbound talks from the servers' namespace to an address of the client's, which is to see an address.
func (p *product) outbound(at, from, want string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ln, err := p.client.Listen("tcp", net.JoinHostPort(at, "8080"))
	must(p.t, err)
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintf(w, "%s %s", host, strings.Repeat("x", 200_000))
	})}
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = s.Serve(ln) }()
	defer func() { s.Close(); <-stopped }()
	for range 3 {
		out, err := p.servers.Command(ctx, "curl", "-sS", "--max-time", "20", "--interface", from, "http://"+net.JoinHostPort(at, "8080")+"/").CombinedOutput()
		if got, _, _ := strings.Cut(string(out), " "); err != nil || got != want || len(out) != len(want)+1+200_000 {
			p.t.Fatalf("curl to %s: %v, %d bytes, seen as %.60s, want %s", at, err, len(out), got, want)
		}
	}

	var pc net.PacketConn
	must(p.t, p.client.Do(func() (err error) { pc, err = net.ListenPacket("udp", net.JoinHostPort(at, "8081")); return err }))
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		b := make([]byte, 65536)
		for {
			n, a, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			if host, _, _ := net.SplitHostPort(a.String()); host == want {
				_, _ = pc.WriteTo(b[:n], a)
			}
		}
	}()
	defer func() { pc.Close(); <-echoed }()
	var c net.Conn
	must(p.t, p.servers.Do(func() (err error) {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
		c, err = d.DialContext(ctx, "udp", net.JoinHostPort(at, "8081"))
		return err
	}))
	defer c.Close()
	for _, n := range []int{100, 3000, 30_000} {
		sent, got := []byte(strings.Repeat("0123456789", n/10)), make([]byte, n)
		must(p.t, c.SetDeadline(time.Now().Add(10*time.Second)))
		_, err := c.Write(sent)
		must(p.t, err)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != string(sent) {
			p.t.Errorf("%d bytes of UDP to %s: %v; fragments %v", n, at, err, p.number("runtime.actions.reassembled"))
		}
	}
	for _, size := range []string{"56", "3000"} {
		out, err := p.servers.Command(ctx, "ping", "-c", "2", "-W", "5", "-s", size, "-I", from, at).CombinedOutput()
		if err != nil {
			p.t.Errorf("ping of %s bytes to %s: %v\n%s", size, at, err, out)
		}
	}
}
