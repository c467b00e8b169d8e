package exception

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// A world is the ends of traffic that a server starts.
type world struct {
	server, remote, pool netip.Addr
	gateway              string
}

var worlds = map[bool]world{
	true:  {netip.MustParseAddr("198.18.1.11"), netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("198.18.0.90"), "198.18.0.254"},
	false: {netip.MustParseAddr("2001:db8:2::11"), netip.MustParseAddr("2001:db8:f::7"), netip.MustParseAddr("2001:db8:1::90"), "2001:db8:1::fe"},
}

// translating is a bench with a pool, whose neighbours are resolved.
func translating(t *testing.T) *bench {
	t.Helper()
	b := newBenchOf(t, strings.Replace(fmt.Sprintf(text, "off"), "forward: routed", `forward: routed, snat: [198.18.0.90, "2001:db8:1::90"]`, 1)).quiet()
	for _, w := range worlds {
		b.h.table.Lookup(keyOf(must1(b.h.st.Config.Route(w.server))), b.now)
		b.resolve(0, w.gateway)
		b.resolve(1, w.server.String())
	}
	b.sent = nil
	b.h.counters = [reasons]uint64{}
	return b
}

func must1[T any](x T, ok bool) T {
	if !ok {
		panic("no route")
	}
	return x
}

// speak is an IP packet of a protocol: tcp, udp, echo (a request, whose identifier is the source port) or reply (likewise
// the destination port).
func speak(t testing.TB, kind string, src, dst netip.AddrPort, ttl uint8, data string) []byte {
	t.Helper()
	four := src.Addr().Is4()
	body := gopacket.Payload(data)
	protocol := map[string]layers.IPProtocol{"tcp": 6, "syn": 6, "udp": 17}[kind]
	var above gopacket.SerializableLayer
	switch kind {
	case "tcp", "syn":
		above = &layers.TCP{SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()), Seq: 7, SYN: kind == "syn", ACK: kind == "tcp", Window: 9}
	case "udp":
		above = &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	default:
		id := src.Port() | dst.Port()
		if four {
			protocol = layers.IPProtocolICMPv4
			above = &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(map[string]uint8{"echo": 8, "reply": 0}[kind], 0), Id: id, Seq: 3}
			break
		}
		protocol = layers.IPProtocolICMPv6
		above = &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(map[string]uint8{"echo": 128, "reply": 129}[kind], 0)}
		body = append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, id), 3), data...)
	}
	if four {
		ip := ip4(src.Addr().String(), dst.Addr().String(), protocol)
		ip.TTL = ttl
		f := lay(t, 0, ip, above, body)[14:]
		return f[:binary.BigEndian.Uint16(f[2:])]
	}
	ip := ip6(src.Addr().String(), dst.Addr().String(), protocol)
	ip.HopLimit = ttl
	f := lay(t, 0, ip, above, body)[14:]
	return f[:40+int(binary.BigEndian.Uint16(f[4:]))]
}

// sentIP is the only packet that was sent, on a port.
func (b *bench) sentIP(port int) []byte {
	b.Helper()
	b.only(port)
	return trimmed(b.sent[0].b[14:])
}

var reasonOf = map[string]uint32{"tcp": regs.ExceptionReasonReasonNoMatch, "syn": regs.ExceptionReasonReasonNoMatch, "udp": regs.ExceptionReasonReasonProtocol,
	"echo": regs.ExceptionReasonReasonIcmp, "reply": regs.ExceptionReasonReasonIcmp}

// TestTranslate: what a server starts leaves with an address of the pool, one hop older, and what answers it comes back; what
// nobody waits for does not.
func TestTranslate(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		w := worlds[four]
		for _, kind := range []string{"syn", "tcp", "udp", "echo"} {
			t.Run(kind, func(t *testing.T) {
				b := translating(t)
				in, there, out := netip.AddrPortFrom(w.server, 40001), netip.AddrPortFrom(w.remote, 443), netip.AddrPortFrom(w.pool, 40001)
				answer := kind
				if kind == "echo" {
					there, answer = netip.AddrPortFrom(w.remote, 0), "reply"
				}
				b.give(1, reasonOf[kind], layEther(speak(t, kind, in, there, 64, "hello")))
				if got, want := b.sentIP(0), speak(t, kind, out, there, 63, "hello"); !bytes.Equal(got, want) {
					t.Fatalf("left as\n% x, want\n% x", got, want)
				}
				b.give(0, reasonOf[kind], layEther(speak(t, answer, there, out, 64, "hi")))
				if got, want := b.sentIP(1), speak(t, answer, there, in, 63, "hi"); !bytes.Equal(got, want) {
					t.Fatalf("came back as\n% x, want\n% x", got, want)
				}
				b.wantCount(SNATOut, 1)
				b.wantCount(SNATIn, 1)
				b.wantCount(Forwarded, 2)
				// Somebody else, and another port.
				b.give(0, reasonOf[kind], layEther(speak(t, answer, netip.AddrPortFrom(w.remote.Next(), there.Port()), out, 64, "hi")))
				b.give(0, reasonOf[kind], layEther(speak(t, answer, there, netip.AddrPortFrom(w.pool, 7), 64, "hi")))
				b.wantCount(DropSNATUnknown, 2)
				// A server that talks to another by the address outside.
				b.give(1, reasonOf[kind], layEther(speak(t, kind, in, netip.AddrPortFrom(w.pool, 80), 64, "hi")))
				b.wantCount(DropSNATHairpin, 1)
				if len(b.sent) != 0 {
					t.Errorf("sent %d frames", len(b.sent))
				}
			})
		}
		t.Run("other", func(t *testing.T) {
			b := translating(t)
			service, there := netip.AddrPortFrom(w.server, 80), netip.AddrPortFrom(w.remote, 443)
			for _, tt := range []struct {
				name string
				port int
				kind string
				ip   []byte
				want Reason
				n    int // frames
			}{
				{"what is left of a service's connection", 1, "tcp", speak(t, "tcp", service, there, 64, "x"), DropState, 0},
				{"a connection by a service's port", 1, "syn", speak(t, "syn", service, there, 64, ""), SNATOut, 1},
				{"a reply nobody waits for", 1, "reply", speak(t, "reply", service, there, 64, "x"), DropSNATUnknown, 0},
				{"at its end", 1, "udp", speak(t, "udp", netip.AddrPortFrom(w.server, 5), there, 1, "x"), TimeExceeded, 1},
				{"the pool is alive", 0, "echo", speak(t, "echo", there, netip.AddrPortFrom(w.pool, 0), 64, "x"), EchoReply, 1},
			} {
				b.h.counters = [reasons]uint64{}
				b.give(tt.port, reasonOf[tt.kind], layEther(tt.ip))
				if b.h.counters[tt.want] != 1 || len(b.sent) != tt.n {
					t.Errorf("%s: %d frames, %v", tt.name, len(b.sent), b.counted())
				}
			}
		})
	})
}

// TestTranslateWaits: a packet whose next hop is being resolved is translated once it is, and its sender is told otherwise,
// about the packet as it was.
func TestTranslateWaits(t *testing.T) {
	b := translating(t)
	there := netip.MustParseAddrPort("198.18.0.77:5000")
	sent := speak(t, "udp", netip.MustParseAddrPort("198.18.1.11:40001"), there, 64, "who?")
	b.give(1, reasonOf["udp"], layEther(sent))
	b.advance(0)
	b.sent = nil
	b.resolve(0, "198.18.0.77")
	if got, want := b.sentIP(0), speak(t, "udp", netip.MustParseAddrPort("198.18.0.90:40001"), there, 63, "who?"); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
	sent = speak(t, "udp", netip.MustParseAddrPort("198.18.1.11:40001"), netip.MustParseAddrPort("198.18.0.78:5000"), 64, "who?")
	b.give(1, reasonOf["udp"], layEther(sent))
	b.sent = nil
	for range 35 {
		b.advance(100 * time.Millisecond)
	}
	for _, s := range b.sent {
		if p := check(t, s.b); s.port == 1 && p.Layer(layers.LayerTypeICMPv4) != nil {
			if _, to, kind, _, _, quoted := seen(t, p); to != netip.MustParseAddr("198.18.1.11") || kind != 3 || !bytes.Equal(quoted, sent) {
				t.Errorf("told %v, quoting % x", to, quoted)
			}
			return
		}
	}
	t.Errorf("nobody was told: %v", b.counted())
}

// TestTranslateErrors: an ICMP error about what was translated reaches who sent it, and quotes what that sent.
func TestTranslateErrors(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		w := worlds[four]
		for _, kind := range []string{"syn", "udp", "echo"} {
			for _, quote := range []int{8, 1000} {
				t.Run(fmt.Sprint(kind, quote), func(t *testing.T) {
					b := translating(t)
					in, there := netip.AddrPortFrom(w.server, 40001), netip.AddrPortFrom(w.remote, 443)
					answer := kind
					if kind == "echo" {
						there, answer = netip.AddrPortFrom(w.remote, 0), "reply"
					}
					header := 40
					if four {
						header = 20
					}
					cut := func(ip []byte) []byte { return ip[:min(header+quote, len(ip))] }
					b.give(1, reasonOf[kind], layEther(speak(t, kind, in, there, 64, "hello")))
					left := b.sentIP(0)
					// A router beyond says that it went nowhere.
					b.give(0, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(four), w.pool, 3, 1, 1, 3, 0, cut(left)))
					from, to, _, _, _, quoted := seen(t, b.only(1))
					if want := cut(speak(t, kind, in, there, 63, "hello")); from != router(four) || to != w.server || !bytes.Equal(quoted, want) {
						t.Errorf("from %v to %v quoting\n% x, want\n% x", from, to, quoted, want)
					}
					// The server says that the answer went nowhere.
					b.give(0, reasonOf[kind], layEther(speak(t, answer, there, netip.AddrPortFrom(w.pool, 40001), 64, "hi")))
					came := b.sentIP(1)
					b.give(1, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, w.server, w.remote, 3, 3, 1, 4, 0, cut(came)))
					from, to, _, _, _, quoted = seen(t, b.only(0))
					if want := cut(speak(t, answer, there, netip.AddrPortFrom(w.pool, 40001), 63, "hi")); from != w.pool || to != w.remote || !bytes.Equal(quoted, want) {
						t.Errorf("from %v to %v quoting\n% x, want\n% x", from, to, quoted, want)
					}
					b.wantCount(SNATError, 2)
					// About what nobody sent.
					b.give(0, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(four), w.pool, 3, 1, 1, 3, 0, cut(speak(t, kind, netip.AddrPortFrom(w.pool, 9), there, 63, "hello"))))
					b.wantCount(DropICMPUnknown, 1)
					b.give(0, regs.ExceptionReasonReasonIcmp, icmpAbout(t, 0, router(four), w.pool, 3, 1, 1, 3, 0, left[:header+4]))
					b.wantCount(DropICMPQuote, 1)
					if len(b.sent) != 0 {
						t.Errorf("sent %d frames", len(b.sent))
					}
				})
			}
		}
	})
}

// TestTranslateFragments: a datagram and an echo that a server sends in fragments leave translated and in fragments, and
// what comes to the pool in fragments comes back so.
func TestTranslateFragments(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		w := worlds[four]
		b := translating(t)
		data := bytes.Repeat([]byte("0123456789"), 300)
		in, there, out := netip.AddrPortFrom(w.server, 40001), netip.AddrPortFrom(w.remote, 443), netip.AddrPortFrom(w.pool, 40001)
		for _, f := range pieces(t, udp(t, in, there, data), 1300, 0x1234) {
			b.give(1, regs.ExceptionReasonReasonFragment, f)
		}
		id := func() uint32 {
			if four {
				return 0x1234
			}
			return b.h.fragmentID
		}
		wantDatagram(t, b.sent, 0, 1500, id(), out.Addr().String(), there.Addr().String(), data)
		for _, f := range pieces(t, udp(t, there, out, data), 1300, 0x1234) {
			b.give(0, regs.ExceptionReasonReasonFragment, f)
		}
		wantDatagram(t, b.sent, 1, 1400, id(), there.Addr().String(), in.Addr().String(), data)
		b.wantCount(Reassembled, 2)
		b.wantCount(Fragmented, 2)
		there = netip.AddrPortFrom(w.remote, 0)
		echo := speak(t, "echo", in, there, 64, string(data))
		if four {
			echo[6] = 0
			echo[10], echo[11] = 0, 0
			binary.BigEndian.PutUint16(echo[10:], ^uint16(sumOf(echo[:20])))
		}
		for _, f := range pieces(t, echo, 1300, 0x77) {
			b.give(1, regs.ExceptionReasonReasonFragment, f)
		}
		b.wantCount(SNATOut, 2)
		if len(b.sent) != 3 {
			t.Errorf("%d fragments of the echo: %v", len(b.sent), b.counted())
		}
	})
}

func sumOf(b []byte) (s uint32) {
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return s
}
