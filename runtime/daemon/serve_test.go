package daemon_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/view"
	"splicenic/tools/tcppeer"
)

// answer makes a request and returns the whole answer, empty where none came.
func (c *client) answer(vip, host, path string, most time.Duration) string {
	c.r.Helper()
	conn := c.get(vip, host, path)
	c.r.until("answer to "+host, most, func() bool { _, ok := c.answers[conn]; return ok || c.open == 0 })
	answer := c.answers[conn]
	delete(c.answers, conn)
	return answer
}

// badServer is behind an address and fails in one of the ways.
func (r *rig) badServer(how, a string) {
	addr := netip.MustParseAddrPort(a)
	n := r.nets[1]
	cfg := tcppeer.Config{MAC: [6]byte{2, 0xbb, 1, 0, 0, byte(len(n.hosts) + 1)}, NextHop: n.mac, TimeWait: -1,
		Addresses: []netip.Prefix{netip.PrefixFrom(addr.Addr(), addr.Addr().BitLen())}, Send: n.send}
	switch how {
	case "silent":
		cfg.Send = func(b []byte) {
			if !carriesTCP(b) {
				n.send(b)
			}
		}
	case "answers ACK": // as part of a connection that it does not give up
		cfg.Send = func(b []byte) { n.send(asACK(r.T, b)) }
	case "keeps less":
		cfg.MTU = 1000
	}
	h := tcppeer.New(cfg)
	n.hosts = append(n.hosts, h)
	if how != "refuses" {
		h.Listen(addr.Port())
	}
}

func carriesTCP(b []byte) bool {
	return gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.NoCopy).Layer(layers.LayerTypeTCP) != nil
}

// asACK makes an ACK about other numbers of a SYN-ACK.
func asACK(t *testing.T, b []byte) []byte {
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
	tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || !tcp.SYN {
		return b
	}
	tcp.SYN, tcp.Options = false, nil
	tcp.Seq, tcp.Ack = tcp.Seq+5000, tcp.Ack-70000
	ip := p.NetworkLayer()
	tcp.SetNetworkLayerForChecksum(ip)
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		p.LinkLayer().(gopacket.SerializableLayer), ip.(gopacket.SerializableLayer), tcp); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// twoServers is a service of two servers whose SYN-ACKs are said to announce an MSS of 1,460.
const twoServers = base + `
services:
  - {name: web, listen: [198.18.0.80:80], default: app}
groups:
  - {name: app, profile: {mss: 1460}, servers: [{address: 198.18.1.11:8080}, {address: 198.18.1.12:8080}]}
`

var ways = []string{"refuses", "silent", "answers ACK", "keeps less"}

// TestAnotherServerAnswers: where the first server fails before the splice, the client gets the other one's answer and
// notices nothing but the time it took.
func TestAnotherServerAnswers(t *testing.T) {
	for _, how := range ways {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, small)
			r.badServer(how, "198.18.1.11:8080")
			r.httpServers("198.18.1.12:8080")
			c := r.client("198.18.0.10")
			r.apply(twoServers)
			r.run(5 * time.Millisecond)
			for i := range 2 { // the first slot is the bad server's, then the good one's
				if got := c.answer("198.18.0.80:80", "x", "/", 6*time.Second); !strings.HasSuffix(got, "198.18.1.12:8080") {
					t.Errorf("request %d: %q", i, got)
				}
			}
			r.rest()
			if got := r.card.Load(regs.ConnectionServerAgain); got != 1 {
				t.Errorf("server_again: got %d, want 1", got)
			}
			if actions := r.d.Counters()["actions"].(view.Stats); actions["server_again"] != uint64(1) || actions["refused"] != uint64(0) {
				t.Errorf("counters %v", actions)
			}
			if c.reset+c.failed != 0 {
				t.Errorf("%d resets, %d time-outs", c.reset, c.failed)
			}
		})
	}
}

// TestNoServerAnswers: where all servers fail, the client is told so in words, within the time-out of SERVER_SYN.
func TestNoServerAnswers(t *testing.T) {
	for _, how := range ways {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, small)
			r.badServer(how, "198.18.1.11:8080")
			r.badServer(how, "198.18.1.12:8080")
			c := r.client("198.18.0.10")
			r.apply(twoServers)
			r.run(5 * time.Millisecond)
			got := c.answer("198.18.0.80:80", "x", "/", 10*time.Second)
			if !strings.HasPrefix(got, "HTTP/1.1 503 ") {
				t.Errorf("the client gets %q", got)
			}
			r.rest()
			if replied := r.card.Load(regs.ConnectionReplied); replied != 1 || c.reset+c.failed != 0 {
				t.Errorf("replied %d, %d resets, %d time-outs", replied, c.reset, c.failed)
			}
			for i := range uint32(2) {
				var s regs.ServerStateEntry
				s.Decode(r.entry(regs.MemServerState, 0, i))
				if s.Failed != 1 || s.Active != 0 || s.UseCount != 0 {
					t.Errorf("server %d: %+v", i, s)
				}
			}
		})
	}
}

// TestOldConnectionOfServer: a server that still has a connection of the same client and port, of which nobody else knows,
// answers our SYN with an ACK. It is reset, and takes the SYN that follows at once.
func TestOldConnectionOfServer(t *testing.T) {
	r := newRig(t, small)
	old := true
	h := r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.11/32")}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Data && strings.HasSuffix(string(c.Bytes()), "\r\n\r\n") {
			c.Write([]byte("HTTP/1.1 200 OK\r\n\r\nhere"))
			if !old {
				c.CloseWrite()
			}
		}
	}})
	h.Listen(8080)
	c := r.client("198.18.0.10")
	r.apply(edit(t, twoServers, ", {address: 198.18.1.12:8080}", ""))
	r.run(5 * time.Millisecond)
	c.local = 40001
	conn := c.get("198.18.0.80:80", "x", "/")
	r.until("answer", time.Second, func() bool { return len(conn.Bytes()) > 0 })
	if err := r.card.Connections(t.Context(), func(n uint32, p *regs.PageEntry) bool {
		return r.card.Free(t.Context(), driver.NewHandle(n, p.ControlGeneration)) == nil
	}); err != nil {
		t.Fatal(err)
	}
	conn.Abort()
	r.run(5 * time.Millisecond)
	old, c.open = false, 0
	start := r.now
	if got := c.answer("198.18.0.80:80", "x", "/", 2*time.Second); !strings.HasSuffix(got, "here") {
		t.Errorf("the client gets %q", got)
	}
	if took := r.now - start; took > 100*time.Millisecond {
		t.Errorf("that took %v", took)
	}
	r.rest()
	if got := r.card.Load(regs.ConnectionServerStale); got != 1 {
		t.Errorf("server_stale: got %d, want 1", got)
	}
}

// TestOnePortTwoServices: one client port to two services that have one server in common, both transfers at once. The
// server tells them apart by a port that the client does not see.
func TestOnePortTwoServices(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 3000) // less than a client takes that does not read
	for _, tt := range []struct{ name, text, client, server, one, two string }{
		{"IPv4", base + `
services:
  - {name: one, listen: [198.18.0.80:80], default: app}
  - {name: two, listen: [198.18.0.81:80], default: app}
groups:
  - {name: app, servers: [{address: 198.18.1.11:8080}]}
`, "198.18.0.10", "198.18.1.11:8080", "198.18.0.80:80", "198.18.0.81:80"},
		{"IPv6", edit(t, six, `services:
  - {name: web, listen: ["[2001:db8:9::80]:80"], default: app}`, `services:
  - {name: web, listen: ["[2001:db8:9::80]:80"], default: app}
  - {name: two, listen: ["[2001:db8:9::81]:80"], default: app}`), "2001:db8:1::10", "[2001:db8:2::11]:8080", "[2001:db8:9::80]:80", "[2001:db8:9::81]:80"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, small)
			addr := netip.MustParseAddrPort(tt.server)
			conns := map[netip.AddrPort]*tcppeer.Conn{}
			h := r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(addr.Addr(), addr.Addr().BitLen())}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
				if e == tcppeer.Data && strings.HasSuffix(string(c.Bytes()), "\r\n\r\n") {
					conns[c.Remote()] = c
				}
			}})
			h.Listen(addr.Port())
			c := r.client(tt.client)
			r.apply(tt.text)
			r.run(5 * time.Millisecond)
			c.local = 40001
			first, second := c.get(tt.one, "x", "/1"), c.get(tt.two, "x", "/2")
			r.until("both requests", time.Second, func() bool { return len(conns) == 2 })
			for from, conn := range conns {
				if from.Addr() != c.from {
					t.Errorf("the server sees %v", from)
				}
				conn.Write(append([]byte("HTTP/1.1 200 OK\r\n\r\n"+fmt.Sprintf("%.8s", conn.Bytes())), body...))
				conn.CloseWrite()
			}
			r.until("both answers", 10*time.Second, func() bool { return len(c.answers) == 2 })
			for conn, path := range map[*tcppeer.Conn]string{first: "/1", second: "/2"} {
				if got, want := c.answers[conn], "HTTP/1.1 200 OK\r\n\r\nGET "+path+" H"+string(body); got != want {
					t.Errorf("%s: %d bytes, want %d", path, len(got), len(want))
				}
			}
			r.rest()
			if got := r.card.Load(regs.ConnectionKeyMoved); got != 1 {
				t.Errorf("key_moved: got %d, want 1", got)
			}
		})
	}
}
