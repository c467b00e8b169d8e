package datapath

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

const request = "GET /photos/cat.jpg HTTP/1.1\r\nHost: img.example\r\n\r\n"

// splice takes a connection through both handshakes and the request, checking every frame, and leaves it spliced with
// the request acknowledged.
func (c *conn) splice(t *testing.T) {
	t.Helper()
	b, w := c.b, c.w
	cisn, sisn := c.cseq, c.sseq

	out := b.push(0, c.client(flagSYN, "", c.opts...))
	sa := one(t, out[0])
	if len(out[1]) != 0 || sa.flags != flagSYN|flagACK || sa.ack != cisn+1 || sa.from != w.vip || sa.to != w.client || sa.sport != 80 || sa.dport != c.port ||
		sa.vlan != w.vlanClient || sa.srcMAC != portMAC[0] || sa.dstMAC != clientMAC {
		t.Fatalf("SYN-ACK: %v", sa)
	}
	a0 := sa.seq
	c.cack = a0 + 1
	var copts []layers.TCPOption
	if c.ts {
		val := sa.option(layers.TCPOptionKindTimestamps)
		if val == nil {
			t.Fatalf("SYN-ACK without timestamps: %v", sa)
		}
		copts = []layers.TCPOption{optNop, optNop, {OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: append(u32(1001), val[:4]...)}}
	}
	if out = b.push(0, c.client(flagACK, "", copts...)); len(out[0])+len(out[1]) != 0 {
		t.Fatalf("handshake ACK drew %v", out)
	}
	out = b.push(0, c.client(flagACK|flagPSH, request, copts...))
	if ack := one(t, out[0]); ack.flags != flagACK || ack.seq != a0+1 || ack.ack != c.cseq {
		t.Fatalf("ACK of the request: %v", ack)
	}
	syn := one(t, out[1])
	if syn.flags != flagSYN || syn.seq != cisn || syn.from != w.client || syn.to != w.server || syn.sport != c.port || syn.dport != 8080 || syn.vlan != w.vlanServer ||
		syn.srcMAC != portMAC[1] || syn.dstMAC != serverMAC {
		t.Fatalf("SYN to the server: %v", syn)
	}
	c.sack = cisn + 1
	out = b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))
	held := one(t, out[1])
	if held.flags != flagACK|flagPSH || held.seq != cisn+1 || held.ack != sisn+1 || !bytes.Equal(held.payload, []byte(request)) {
		t.Fatalf("held bytes: %v", held)
	}
	if ack := one(t, out[0]); ack.flags != flagACK || ack.seq != c.cack || ack.ack != c.cseq || len(ack.payload) != 0 {
		t.Fatalf("the server's window comes as %v", ack)
	}
	c.sack += uint32(len(request))
	var sopts []layers.TCPOption
	if c.ts {
		sopts = []layers.TCPOption{optNop, optNop, optTS(5001, 1001)}
	}
	out = b.push(1, c.server(flagACK, "", sopts...))
	if ack := one(t, out[0]); ack.seq != a0+1 || ack.ack != c.cseq || ack.from != w.vip {
		t.Fatalf("ACK of the server: %v", ack)
	}
}

func TestLifeOfAConnection(t *testing.T) {
	promise := regs.ServiceEntry{PromiseMssIpv4: 1460, PromiseMssIpv6: 1440, PromiseWscale: 7, PromiseWscaleOn: 1, PromiseSack: 1, PromiseTimestamps: 1}
	rich := []layers.TCPOption{optMSS(1460), optSACK, optTS(1000, 0), optNop, optWscale(8)}
	richServer := []layers.TCPOption{optMSS(1460), optSACK, optTS(5000, 1000), optNop, optWscale(9)}
	plain := []layers.TCPOption{optMSS(1460)}
	tagged4, tagged6 := world4, world6
	tagged4.vlanClient, tagged6.vlanServer = 7, 9
	for _, w := range []world{world4, world6, tagged4, tagged6} {
		for _, isn := range []uint32{0, 0x7ffffff0, 0xfffffff0, 0xffffffff, 1 << 31, 12345} {
			for _, ts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/vlan %d,%d/isn %#x/timestamps %v", w.client, w.vlanClient, w.vlanServer, isn, ts), func(t *testing.T) {
					b := newBench(t, smallGeometry())
					b.serve(w, 0, promise)
					b.now = 5 * time.Second
					c := &conn{b: b, w: w, port: 40001, cseq: isn, sseq: ^isn, opts: plain, sopts: plain, ts: ts}
					if ts {
						c.opts, c.sopts = rich, richServer
					}
					c.splice(t)
					b.translateBothWays(t, c)
					b.closeBoth(t, c)
				})
			}
		}
	}
}

// translateBothWays sends data both ways across the 2^31 and 2^32 borders and checks the numbers.
func (b *bench) translateBothWays(t *testing.T, c *conn) {
	t.Helper()
	for i := range 4 {
		seq, ack := c.sseq, c.sack
		out := b.push(1, c.server(flagACK|flagPSH, "response body"))
		got := one(t, out[0])
		if got.seq != c.cack || got.ack != c.cseq || string(got.payload) != "response body" || got.ttl != 63 {
			t.Fatalf("round %d: server data seq %#x ack %#x came out as %v, want seq %#x ack %#x", i, seq, ack, got, c.cack, c.cseq)
		}
		c.cack += uint32(len(got.payload))
		want := c.cseq
		out = b.push(0, c.client(flagACK|flagPSH, "more of the request"))
		got = one(t, out[1])
		if got.seq != want || got.ack != c.sseq || got.from != c.w.client || got.to != c.w.server {
			t.Fatalf("round %d: client data came out as %v, want seq %#x ack %#x", i, got, want, c.sseq)
		}
		c.sack += uint32(len(got.payload))
	}
}

// closeBoth closes in the usual way, server first, and waits for the page to come back.
func (b *bench) closeBoth(t *testing.T, c *conn) {
	t.Helper()
	one(t, b.push(1, c.server(flagACK|flagFIN, ""))[0])
	c.cack++
	one(t, b.push(0, c.client(flagACK|flagFIN, ""))[1])
	c.sack++
	last := one(t, b.push(1, c.server(flagACK, ""))[0])
	if last.ack != c.cseq {
		t.Fatalf("last ACK: %v, want ack %#x", last, c.cseq)
	}
	if got := b.r.Get(regs.AmuLive); got != 0 {
		t.Fatalf("live connections after both FINs: got %d, want 0", got)
	}
	if got, want := b.r.Get(regs.AmuFree), b.m.Geometry.Pages-1; got != want {
		t.Fatalf("free pages in quarantine: got %d, want %d", got, want)
	}
	// In quarantine a repeated FIN still translates.
	c.sseq--
	if fin := one(t, b.push(1, c.server(flagACK|flagFIN, ""))[0]); fin.seq != c.cack-1 {
		t.Fatalf("repeated FIN: %v", fin)
	}
	b.wait(1100 * time.Millisecond)
	b.allFree(t)
	if got := b.r.Get64(regs.ConnectionClosedFin); got != 1 {
		t.Errorf("closed_fin: got %d, want 1", got)
	}
}

// allFree checks that nothing is left of any connection, and that every address is in the list exactly once.
func (b *bench) allFree(t testing.TB) {
	t.Helper()
	g := &b.m.Geometry
	if got := b.r.Get(regs.AmuFree); got != g.Pages {
		t.Errorf("free pages: got %d, want %d", got, g.Pages)
	}
	if got := b.r.Get(regs.HeadFree); got != g.Heads {
		t.Errorf("free heads: got %d, want %d", got, g.Heads)
	}
	if got := b.r.Get(regs.CamFree); got != g.CamClientWords {
		t.Errorf("free client CAM words: got %d, want %d", got, g.CamClientWords)
	}
	if got := b.r.Get(regs.CamFree + regs.CamStride); got != g.CamServerWords {
		t.Errorf("free server CAM words: got %d, want %d", got, g.CamServerWords)
	}
	seen := make([]bool, g.Pages)
	for _, n := range b.m.AddressList {
		if n >= g.Pages || seen[n] {
			t.Fatalf("address %d is in the list twice or out of range", n)
		}
		seen[n] = true
	}
	for i := range g.Servers {
		s := b.m.ServerState[i*regs.ServerStateWords:]
		if s[regs.ServerStateUseCount] != 0 || s[regs.ServerStateActive] != 0 {
			t.Errorf("server %d: use count %d, active %d, want 0", i, s[regs.ServerStateUseCount], s[regs.ServerStateActive])
		}
	}
}
