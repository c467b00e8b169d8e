package daemon_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// A loss is one run of a connection that loses one TCP frame on the server leg.
type loss struct {
	toServer bool
	n        int    // which one of its direction
	upload   string // the client sends behind its request when the server has answered it; the last byte has the FIN
	family   string
	profile  string
}

// lossy runs a connection and returns how many TCP frames the direction had, and what the lost one was.
func lossy(t *testing.T, x loss) (frames int, lost string) {
	t.Helper()
	text, server, from, vip := twoServers, "198.18.1.11:8080", "198.18.0.10", "198.18.0.80:80"
	text = edit(t, text, ", {address: 198.18.1.12:8080}", "")
	if x.family == "IPv6" {
		text, server, from, vip = edit(t, six, "- {name: app, servers", "- {name: app, profile: {mss: 1440}, servers"), "[2001:db8:2::11]:8080", "2001:db8:1::10", "[2001:db8:9::80]:80"
	}
	rich := x.profile != ""
	if rich {
		text = strings.Replace(text, "{mss: 14", "{"+x.profile+", mss: 14", 1)
	}
	r := newRig(t, small)
	addr := netip.MustParseAddrPort(server)
	request := "GET /" + strings.Repeat("x", 5000) + " HTTP/1.1\r\nHost: x\r\n\r\n"
	var received string
	answered := false
	cfg := tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(addr.Addr(), addr.Addr().BitLen())}, TimeWait: -1, SACK: rich, Timestamps: rich}
	if rich {
		cfg.WindowScale = 5
	}
	cfg.Handle = func(c *tcppeer.Conn, e tcppeer.Event) {
		received += string(c.Bytes())
		c.Discard(len(c.Bytes()))
		if !answered && strings.HasSuffix(received, "\r\n\r\n") {
			answered = true
			c.Write([]byte("answer"))
		}
		if e == tcppeer.PeerClosed {
			c.Write([]byte(" and farewell"))
			c.CloseWrite()
		}
	}
	r.host(1, cfg).Listen(addr.Port())
	var got string
	closed := false
	cfg.Addresses = []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(from), netip.MustParseAddr(from).BitLen())}
	cfg.Handle = func(c *tcppeer.Conn, e tcppeer.Event) {
		before := len(got)
		got += string(c.Bytes())
		c.Discard(len(c.Bytes()))
		switch {
		case e == tcppeer.Established:
			c.Write([]byte(request))
			if x.upload == "" {
				c.CloseWrite()
			}
		case e == tcppeer.Data && before == 0 && x.upload != "":
			c.Write([]byte(x.upload))
			c.CloseWrite()
		case e == tcppeer.Closed:
			closed = true
		case e == tcppeer.Reset || e == tcppeer.TimedOut:
			t.Errorf("the client's connection ends by event %d", e)
			closed = true
		}
	}
	client := r.host(0, cfg)
	r.apply(text)
	r.run(5 * time.Millisecond)
	r.nets[1].drop = func(toServer bool, b []byte) bool {
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
		tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || toServer != x.toServer {
			return false
		}
		frames++
		if frames-1 != x.n {
			return false
		}
		lost = fmt.Sprintf("seq %d, %d bytes, SYN %v, FIN %v", tcp.Seq, len(tcp.Payload), tcp.SYN, tcp.FIN)
		return true
	}
	if _, err := client.Dial(r.now, netip.AddrPortFrom(netip.MustParseAddr(from), 0), netip.MustParseAddrPort(vip)); err != nil {
		t.Fatal(err)
	}
	r.until("end of the connection", 20*time.Second, func() bool { return closed })
	if received != request+x.upload {
		t.Errorf("the server gets %d bytes, want %d", len(received), len(request+x.upload))
	}
	if got != "answer and farewell" {
		t.Errorf("the client gets %q", got)
	}
	// What the client sent was acknowledged by the card, so nothing of it is sent again.
	if n := client.Stats().Retransmitted; n != 0 && x.upload == "" {
		t.Errorf("the client sends %d segments again", n)
	}
	r.rest()
	if n := r.card.Load(regs.ConnectionClosedFin); n != 1 {
		t.Errorf("closed_fin: got %d, want 1", n)
	}
	return frames, lost
}

// TestOneFrameLost loses each frame of the server leg once, one at a time: our SYN, each segment of the held head and the
// FIN carried with it, the server's SYN-ACK and its acknowledgements before and after the splice, and what follows. The
// streams are equal, and the client sends nothing again that it was acknowledged.
func TestOneFrameLost(t *testing.T) {
	for _, x := range []loss{
		{family: "IPv4"}, {family: "IPv6"}, {family: "IPv4", profile: "wscale: 5, sack: true, timestamps: true"},
		{family: "IPv4", upload: strings.Repeat("upload", 2000)},
	} {
		for _, x.toServer = range []bool{true, false} {
			if testing.Short() && (x.family == "IPv6" || x.upload != "") {
				continue
			}
			seen := ""
			for x.n = 0; ; x.n++ {
				name := fmt.Sprintf("%s, profile %q, %d bytes of upload, to the server %v, frame %d", x.family, x.profile, len(x.upload), x.toServer, x.n)
				frames, lost := 0, ""
				if !t.Run(name, func(t *testing.T) { frames, lost = lossy(t, x) }) {
					t.Logf("%s was lost: %s", name, lost)
				}
				if seen += lost + "\n"; frames <= x.n {
					break
				}
			}
			if x.toServer && x.upload == "" && (x.n < 6 || !strings.Contains(seen, "FIN true") || !strings.Contains(seen, "SYN true")) {
				t.Errorf("%d frames were lost in turn: %s", x.n, seen)
			}
		}
	}
}
