package datapath

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// serve4 makes the service at index i one that passes connections on, by a method.
func (b *bench) serve4(w world, i int, mode uint32, change func(*regs.ServiceEntry)) {
	b.t.Helper()
	e := regs.ServiceEntry{ControlMode: mode, ControlProtocol: regs.ServiceControlProtocolTcp}
	if change != nil {
		change(&e)
	}
	b.serve(w, i, e)
	s := b.m.Server[i*regs.ServerWords:]
	s[regs.ServerControl] = regs.SetServerControlMethod(s[regs.ServerControl], mode-regs.ServiceControlModeNat)
	if e.ControlProtocol == regs.ServiceControlProtocolUdp {
		s[regs.ServerControl] = regs.SetServerControlProtocol(s[regs.ServerControl], protocolUDP)
		for bank := range 2 {
			l := b.m.Listener[bank][i*regs.ListenerWords:]
			l[regs.ListenerControl] = regs.SetListenerControlProtocol(l[regs.ListenerControl], protocolUDP)
		}
	}
	if mode == regs.ServiceControlModeDr || mode == regs.ServiceControlModeTun {
		s[regs.ServerTunnel] |= regs.ServerTunnelAnyPortMask
	}
	b.m.Dirty = ^uint32(0)
}

// passedTo is a client's segment as the server of a method sees it.
func passedTo(t *testing.T, w world, mode uint32, got, want tcp) {
	t.Helper()
	to, port := w.server, uint16(8080)
	if mode == regs.ServiceControlModeDr {
		to, port = w.vip, 80
	}
	if got.from != w.client || got.to != to || got.sport != want.sport || got.dport != port || got.seq != want.seq || got.ack != want.ack || got.flags != want.flags ||
		got.ttl != want.ttl-1 || got.vlan != w.vlanServer || got.srcMAC != portMAC[1] || got.dstMAC != serverMAC || string(got.payload) != string(want.payload) {
		t.Fatalf("passed on as %v (to %x), sent as %v", got, got.dstMAC, want)
	}
}

// TestPassedLife takes a connection through its whole life by the two methods that need no tunnel.
func TestPassedLife(t *testing.T) {
	tagged := world4
	tagged.vlanClient, tagged.vlanServer = 7, 9
	for _, mode := range []uint32{regs.ServiceControlModeNat, regs.ServiceControlModeDr} {
		for _, w := range []world{world4, world6, tagged} {
			t.Run(fmt.Sprintf("%d/%v/%d", mode, w.client, w.vlanClient), func(t *testing.T) {
				b := newBench(t, smallGeometry())
				b.serve4(w, 0, mode, nil)
				b.attach()
				b.now = 5 * time.Second
				c := &conn{b: b, w: w, port: 40001, cseq: 0xfffffff0, sseq: 0x7ffffff0}
				nat := mode == regs.ServiceControlModeNat
				toServer := func(raw []byte) tcp {
					t.Helper()
					out := b.push(0, raw)
					if len(out[0]) != 0 {
						t.Fatalf("answered with %v", out[0])
					}
					got := one(t, out[1])
					passedTo(t, w, mode, got, parseFrame(t, raw))
					b.check(t)
					return got
				}
				toClient := func(raw []byte) {
					t.Helper()
					if !nat {
						return
					}
					sent, out := parseFrame(t, raw), b.push(1, raw)
					if len(out[1]) != 0 {
						t.Fatalf("answered with %v", out[1])
					}
					got := one(t, out[0])
					if got.from != w.vip || got.to != w.client || got.sport != 80 || got.dport != c.port || got.seq != sent.seq || got.ack != sent.ack ||
						got.flags != sent.flags || got.vlan != w.vlanClient || got.srcMAC != portMAC[0] || got.dstMAC != clientMAC || string(got.payload) != string(sent.payload) {
						t.Fatalf("comes back as %v, sent as %v", got, sent)
					}
					b.check(t)
				}
				opts := []layers.TCPOption{optMSS(1460), optSACK, optTS(7, 0), optNop, optWscale(7)}
				syn := c.client(flagSYN, "", opts...)
				toServer(syn)
				toServer(syn) // once more: the same way
				if got := b.state(c); got != SynRcvd {
					t.Fatalf("after SYN: %v", stateNames[got])
				}
				c.sack = c.cseq
				toClient(c.server(flagSYN|flagACK, "", opts...))
				c.cack = c.sseq
				if !nat {
					c.cack = 77
				}
				toServer(c.client(flagACK, ""))
				if got := b.state(c); got != Spliced {
					t.Fatalf("after the handshake: %v", stateNames[got])
				}
				toServer(c.client(flagACK|flagPSH, "hello"))
				c.sack = c.cseq
				toClient(c.server(flagACK|flagPSH, "world"))
				c.cack = c.sseq
				toServer(c.client(flagFIN|flagACK, ""))
				if got := b.state(c); got != Closing {
					t.Fatalf("after FIN: %v", stateNames[got])
				}
				c.sack = c.cseq
				toClient(c.server(flagFIN|flagACK, ""))
				c.cack = c.sseq
				toServer(c.client(flagACK, ""))
				want := State(Closing)
				if nat {
					want = Quarantine
				}
				if got := b.state(c); got != want {
					t.Fatalf("after both FINs: %v", stateNames[got])
				}
				b.wait(62 * time.Second)
				if got := b.state(c); got != Free {
					t.Fatalf("at last: %v", stateNames[got])
				}
				b.check(t)
				for r, want := range map[regs.Reg]uint64{regs.PassOpened: 1, regs.PassEstablished: 1, regs.PassClosedFin: 1} {
					if got := b.r.Get64(r); got != want {
						t.Errorf("%s: got %d, want %d", r.Name(), got, want)
					}
				}
			})
		}
	}
}
