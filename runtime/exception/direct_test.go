package exception

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception/reassembly"
)

// passed is pair for a connection that was passed on: what a server by a method gets has the client's own numbers.
func (b *bench) passed(four bool, method uint32, protocol uint8) *pair {
	p := b.pair(four, [2]uint16{})
	b.change(func(c *Connection) {
		c.Page.ClientLinkPassed, c.Page.ADeltaClient, c.Page.ADeltaServer, c.Page.AIndexAnswers = 1, 0, 0, 0
		if protocol == 17 {
			c.Page.AScaleDatagrams = 1
		}
		c.Servers[0].Method = method
		if method == regs.MethodFullnat {
			c.Local = p.localAddr(four)
		}
		p.conn = *c
	})
	seen := p.local
	if method == regs.MethodFullnat {
		seen = netip.AddrPortFrom(p.localAddr(four), p.local.Port())
	}
	p.local = seen
	b.conns = map[Flow]Connection{{protocol, 0, p.vip, p.client}: p.conn}
	if method == regs.MethodNat || method == regs.MethodFullnat {
		b.conns[Flow{protocol, 0, p.server, seen}] = p.conn
	}
	return p
}

// localAddr is an address of ours that a server sees.
func (p *pair) localAddr(four bool) netip.Addr {
	if four {
		return netip.MustParseAddr("198.18.1.100")
	}
	return netip.MustParseAddr("2001:db8:2::100")
}

// TestCaseC05: an error from the servers' side reaches the client with the quote showing what the client sent to the VIP,
// and one from the clients' side the server with what that sent, by UDP and TCP, whatever is quoted; what is not known is
// dropped and counted.
func TestCaseC05(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		for _, method := range []uint32{regs.MethodNat, regs.MethodFullnat} {
			for _, protocol := range []uint8{6, 17} {
				for _, kind := range []struct {
					name       string
					v4, v6     [2]uint8 // type and code
					word       uint32
					fromServer bool
				}{
					{"port unreachable by the server", [2]uint8{3, 3}, [2]uint8{1, 4}, 0, true},
					{"too big by a router", [2]uint8{3, 4}, [2]uint8{2, 0}, 1300, false},
					{"time exceeded by a router", [2]uint8{11, 0}, [2]uint8{3, 0}, 0, false},
					{"parameter problem by a router", [2]uint8{12, 0}, [2]uint8{4, 0}, 0, false},
				} {
					for _, quote := range []int{8, 1000} {
						t.Run(fmt.Sprint(method, protocol, kind.name, quote), func(t *testing.T) {
							b := newBench(t, "off").quiet()
							p := b.passed(four, method, protocol)
							lay := func(src, dst netip.AddrPort, seq, ack uint32) []byte {
								if protocol == 17 {
									return udp(t, src, dst, bytes.Repeat([]byte("u"), 1352))
								}
								return segment(t, src, dst, seq, ack, 1340)
							}
							header := 20
							if !four {
								header = 40
							}
							cut := func(ip []byte) []byte { return ip[:header+quote] }
							// What the card made of the client's packet, and the client's packet itself.
							atServer, sent := lay(p.local, p.server, 2500, 1000), lay(p.client, p.vip, 2500, 1000)
							who, from := router(four), router(four)
							if kind.fromServer {
								who, from = p.server.Addr(), p.vip.Addr()
							}
							b.give(1, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, who, p.local.Addr(), kind.v4[0], kind.v4[1], kind.v6[0], kind.v6[1], kind.word, cut(atServer)))
							gotFrom, to, k, code, word, quoted := seen(t, b.only(0))
							if gotFrom != from || to != p.client.Addr() || word != kind.word || four && [2]uint8{k, code} != kind.v4 || !four && [2]uint8{k, code} != kind.v6 {
								t.Errorf("from %v to %v, type %d, code %d, word %d", gotFrom, to, k, code, word)
							}
							if !bytes.Equal(quoted, cut(sent)) {
								t.Errorf("quotes\n% x, sent\n% x", quoted[:min(60, len(quoted))], sent[:min(60, header+quote)])
							}
							if want := kind.word == 1300; (b.h.paths.of(p.conn.Servers[0].Hop) == 1300) != want {
								t.Errorf("path %d", b.h.paths.of(p.conn.Servers[0].Hop))
							}
							// The other way.
							atClient, sent := lay(p.vip, p.client, 1500, 2500), lay(p.server, p.local, 1500, 2500)
							b.give(0, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(four), p.vip.Addr(), kind.v4[0], kind.v4[1], kind.v6[0], kind.v6[1], kind.word, cut(atClient)))
							gotFrom, to, _, _, _, quoted = seen(t, b.only(1))
							if gotFrom != router(four) || to != p.server.Addr() || !bytes.Equal(quoted, cut(sent)) {
								t.Errorf("from %v to %v, quotes\n% x, sent\n% x", gotFrom, to, quoted[:min(60, len(quoted))], sent[:min(60, header+quote)])
							}
							b.wantCount(ICMPToClient, 1)
							b.wantCount(ICMPToServer, 1)
							// About what is none of ours.
							stranger := lay(netip.AddrPortFrom(p.local.Addr(), 9), p.server, 2500, 1000)
							b.give(1, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, who, p.local.Addr(), kind.v4[0], kind.v4[1], kind.v6[0], kind.v6[1], kind.word, cut(stranger)))
							b.wantCount(DropICMPUnknown, 1)
							if len(b.sent) != 0 {
								t.Errorf("a stranger's: %d frames", len(b.sent))
							}
						})
					}
				}
			}
		}
	})
}

// TestErrorsPastTheCard: errors about packets of servers that answer past the card, with dr and in each kind of tunnel: the
// client is shown its own packet, and told an MTU without what the tunnel adds; a server gets what is about its answers as
// it gets everything.
func TestErrorsPastTheCard(t *testing.T) {
	type tunnel struct {
		name     string
		kind     uint32
		checksum uint32
		bytes    int // beside the outer IP header
	}
	tunnels := []tunnel{
		{"dr", 0, 0, 0}, {"ipip", regs.ServerTunnelTypeIpip, 0, 0}, {"gre", regs.ServerTunnelTypeGre, 0, 4},
		{"gre with checksum", regs.ServerTunnelTypeGre, regs.ServerTunnelChecksumFull, 8}, {"gue", regs.ServerTunnelTypeGue, 0, 12},
		{"gue with remote checksum", regs.ServerTunnelTypeGue, regs.ServerTunnelChecksumRemote, 20},
	}
	for _, inner4 := range []bool{true, false} {
		for _, outer4 := range []bool{true, false} {
			for _, tt := range tunnels {
				for _, protocol := range []uint8{6, 17} {
					if tt.name == "dr" && inner4 != outer4 {
						continue
					}
					t.Run(fmt.Sprint(inner4, outer4, tt.name, protocol), func(t *testing.T) {
						b := newBench(t, "routed").quiet()
						b.h.gue = map[uint16]bool{6080: true}
						method := uint32(regs.MethodTun)
						if tt.name == "dr" {
							method = regs.MethodDr
						}
						p := b.passed(inner4, method, protocol)
						server, local, outer := netip.MustParseAddr("198.18.1.11"), netip.MustParseAddr("198.18.1.1"), 20
						if !outer4 {
							server, local, outer = netip.MustParseAddr("2001:db8:2::11"), netip.MustParseAddr("2001:db8:2::1"), 40
						}
						overhead := outer + tt.bytes
						if method == regs.MethodDr {
							overhead = 0
						}
						b.change(func(c *Connection) {
							s := &c.Servers[0]
							s.Addr, s.Local, s.Hop.Neighbor = netip.AddrPortFrom(server, p.server.Port()), local, server
							s.Tunnel = regs.ServerEntry{TunnelType: tt.kind, TunnelChecksum: tt.checksum, TunnelPort: 6080}
						})
						lay := func(src, dst netip.AddrPort) []byte {
							if protocol == 17 {
								return udp(t, src, dst, bytes.Repeat([]byte("u"), 1340))
							}
							return segment(t, src, dst, 2500, 1000, 1328)
						}
						sent := lay(p.client, p.vip)
						about, to := sent, p.client.Addr()
						if method == regs.MethodTun {
							about, to = envelop(sent, local, server, tt.kind, tt.checksum), local
						}
						header := 20
						if !inner4 {
							header = 40
						}
						const mtu = 1360
						b.give(1, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(outer4), to, 3, 4, 2, 0, mtu, about[:overhead+header+8]))
						b.wantCount(ICMPToClient, 1)
						from, dst, _, _, word, quoted := seen(t, b.only(0))
						want := router(outer4)
						if inner4 != outer4 {
							want = p.vip.Addr()
						}
						if from != want || dst != p.client.Addr() || word != max(mtu-uint32(overhead), map[bool]uint32{true: 68, false: 1280}[inner4]) || !bytes.Equal(quoted, sent[:header+8]) {
							t.Errorf("from %v to %v, MTU %d, quotes % x", from, dst, word, quoted)
						}
						if got := b.h.paths.of(config.Hop{Port: 1, Neighbor: server}); got != mtu {
							t.Errorf("path %d", got)
						}
						// Too little, and nothing of ours.
						b.give(1, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(outer4), to, 3, 4, 2, 0, mtu, about[:max(overhead+header+7, outer+8)]))
						stranger := lay(netip.AddrPortFrom(p.client.Addr(), 9), p.vip)
						if method == regs.MethodTun {
							b.wantCount(DropICMPQuote, 1)
							stranger = envelop(stranger, local, server, tt.kind, tt.checksum)
						}
						b.give(1, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(outer4), to, 3, 4, 2, 0, mtu, stranger[:overhead+header+8]))
						b.wantCount(DropICMPUnknown, 1)
						if len(b.sent) != 0 {
							t.Errorf("sent %d frames: %v", len(b.sent), b.counted())
						}
						// About the server's answer, which the card did not see.
						f := icmpAbout(t, 0, router(inner4), p.vip.Addr(), 3, 4, 2, 0, 1300, lay(p.vip, p.client)[:500])
						b.sent = nil
						b.h.Handle(&regs.ExceptionEntry{ReasonReason: regs.ExceptionReasonReasonIcmp}, f, b.now)
						b.wantCount(ICMPToServer, 1)
						if len(b.sent) != 1 || b.sent[0].port != 1 || !bytes.Equal(b.sent[0].b[:6], serversMAC[:]) {
							t.Fatalf("sent %d frames: %v", len(b.sent), b.counted())
						}
						if tt.checksum == regs.ServerTunnelChecksumRemote {
							overhead -= 8 // the host computes the whole one
						}
						got := trimmed(b.sent[0].b[14:])[overhead:]
						aged := bytes.Clone(trimmed(f[14:]))
						if inner4 {
							aged[8]--
							aged[10], aged[11] = 0, 0
							binary.BigEndian.PutUint16(aged[10:], ^uint16(reassembly.Sum(aged[:20], 0)))
							if method == regs.MethodDr { // identification and flags are a new packet's
								copy(got[4:8], aged[4:8])
								copy(got[10:12], aged[10:12])
							}
						} else {
							aged[7]--
						}
						if !bytes.Equal(got, aged) {
							t.Errorf("the server gets\n% x, want\n% x", got[:60], aged[:60])
						}
					})
				}
			}
		}
	}
}

// envelop puts an IP packet into another, as the card does.
func envelop(inner []byte, from, to netip.Addr, kind, checksum uint32) []byte {
	protocol, ether := byte(4), layers.EthernetTypeIPv4
	if inner[0]>>4 == 6 {
		protocol, ether = 41, layers.EthernetTypeIPv6
	}
	var head []byte
	switch {
	case kind == regs.ServerTunnelTypeGre && checksum != 0:
		head, protocol = []byte{0x80, 0, byte(ether >> 8), byte(ether), 1, 2, 0, 0}, 47
	case kind == regs.ServerTunnelTypeGre:
		head, protocol = []byte{0, 0, byte(ether >> 8), byte(ether)}, 47
	case kind == regs.ServerTunnelTypeGue:
		n := 12
		gue := []byte{0, protocol, 0, 0}
		if checksum == regs.ServerTunnelChecksumRemote {
			gue, n = append([]byte{2, protocol, 0, 1}, 0x80, 0, 0, 0, 0, 20, 0, 26), 20
		}
		n += len(inner)
		head, protocol = append([]byte{0xc0, 1, 6080 >> 8, 6080 & 0xff, byte(n >> 8), byte(n), 0, 0}, gue...), 17
	}
	body := gopacket.Payload(append(head, inner...))
	b := gopacket.NewSerializeBuffer()
	var ip gopacket.SerializableLayer
	if from.Is4() {
		ip = ip4(from.String(), to.String(), layers.IPProtocol(protocol))
	} else {
		ip = ip6(from.String(), to.String(), layers.IPProtocol(protocol))
	}
	if err := gopacket.SerializeLayers(b, serialize, ip, body); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// FuzzTunnelled: whatever an error about a tunnel quotes, nothing is read outside it, and it is passed on or counted.
func FuzzTunnelled(f *testing.F) {
	sent := segment(f, netip.MustParseAddrPort("192.0.2.10:40001"), netip.MustParseAddrPort("198.51.100.80:80"), 2500, 1, 9)
	local, server := netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("198.18.1.11")
	for _, kind := range []uint32{regs.ServerTunnelTypeIpip, regs.ServerTunnelTypeGre, regs.ServerTunnelTypeGue} {
		for _, sum := range []uint32{0, regs.ServerTunnelChecksumFull, regs.ServerTunnelChecksumRemote} {
			f.Add(envelop(sent, local, server, kind, sum), uint16(1300))
		}
	}
	f.Fuzz(func(t *testing.T, quoted []byte, mtu uint16) {
		if len(quoted) > 1400 {
			return
		}
		b := newBench(t, "off")
		b.h.gue = map[uint16]bool{6080: true}
		b.passed(true, regs.MethodTun, 6)
		b.change(func(c *Connection) { c.Servers[0].Local = local })
		b.h.counters = [reasons]uint64{}
		b.give(1, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(true), local, 3, 4, 2, 0, uint32(mtu), quoted))
		if b.h.counters == [reasons]uint64{} {
			t.Fatal("lost without a count")
		}
	})
}
