package snat

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	pool4  = []netip.Addr{netip.MustParseAddr("198.18.0.90"), netip.MustParseAddr("198.18.0.91")}
	pool6  = netip.MustParseAddr("2001:db8::90")
	inside = netip.MustParseAddrPort("198.18.1.11:40001")
	remote = netip.MustParseAddrPort("203.0.113.7:443")
)

func newTable(addrs ...netip.Addr) *Table {
	t := New([32]byte{1})
	t.Pool(addrs)
	return t
}

// out takes in a packet that is translated.
func out(t *testing.T, tab *Table, p Protocol, src, dst netip.AddrPort, g Segment, now time.Duration) netip.AddrPort {
	t.Helper()
	a, v := tab.Out(p, src, dst, g, now)
	if v != Translated {
		t.Fatalf("%v to %v: verdict %d", src, dst, v)
	}
	return a
}

// TestMapping: an end has one address and port whatever it talks to, keeps its port where that is free, and shares its
// address with the other ends of its host.
func TestMapping(t *testing.T) {
	for p := range protocols {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			tab := newTable(append(pool4, pool6)...)
			a := out(t, tab, p, inside, remote, Segment{SYN: true}, 0)
			if a.Port() != inside.Port() {
				t.Errorf("port %d is not kept", a.Port())
			}
			if b := out(t, tab, p, inside, netip.MustParseAddrPort("203.0.113.8:80"), Segment{SYN: true}, 0); b != a {
				t.Errorf("%v to another remote end, %v to the first", b, a)
			}
			if b := out(t, tab, p, netip.AddrPortFrom(inside.Addr(), 5), remote, Segment{SYN: true}, 0); b.Addr() != a.Addr() || b.Port() != 5 {
				t.Errorf("%v for another port of the host, %v for the first", b, a)
			}
			// Hosts with the same port: every one has another port or address.
			seen := map[netip.AddrPort]bool{a: true}
			for i := range 100 {
				src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 2, byte(i)}), inside.Port())
				b := out(t, tab, p, src, remote, Segment{SYN: true}, 0)
				if seen[b] || b.Port() < 1024 && p != Echo || b.Port()&1 != 1 {
					t.Errorf("%v becomes %v", src, b)
				}
				seen[b] = true
			}
			six := out(t, tab, p, netip.MustParseAddrPort("[2001:db8:1::11]:40001"), netip.MustParseAddrPort("[2001:db8:f::1]:443"), Segment{SYN: true}, 0)
			if six != netip.AddrPortFrom(pool6, 40001) {
				t.Errorf("IPv6: %v", six)
			}
			back, v := tab.In(p, remote, a, Segment{SYN: true, ACK: true}, 0)
			if v != Translated || back != inside {
				t.Errorf("back to %v, verdict %d", back, v)
			}
		})
	}
}

// TestFilter: who was not talked to reaches nobody.
func TestFilter(t *testing.T) {
	tab := newTable(pool4...)
	a := out(t, tab, UDP, inside, remote, Segment{}, 0)
	for _, tt := range []struct {
		name     string
		p        Protocol
		src, dst netip.AddrPort
		want     Verdict
	}{
		{"the answer", UDP, remote, a, Translated},
		{"by another port of the remote host", UDP, netip.AddrPortFrom(remote.Addr(), 1), a, Translated},
		{"from another host", UDP, netip.MustParseAddrPort("203.0.113.9:443"), a, Filtered},
		{"to another port", UDP, remote, netip.AddrPortFrom(a.Addr(), 7), Unknown},
		{"by another protocol", TCP, remote, a, Unknown},
	} {
		if _, v := tab.In(tt.p, tt.src, tt.dst, Segment{}, 0); v != tt.want {
			t.Errorf("%s: verdict %d, want %d", tt.name, v, tt.want)
		}
	}
	if tab.Len() != 1 {
		t.Errorf("%d sessions", tab.Len())
	}
	if _, v := newTable(pool6).Out(UDP, inside, remote, Segment{}, 0); v != NoPool {
		t.Errorf("no address of the family: verdict %d", v)
	}
}

// TestLifetimes has one row a history: whether the session is still there so long after its last packet.
//
//	opening, one FIN  4 min    established  124 min    both FINs, RST  1 min    UDP  5 min    echo  1 min
func TestLifetimes(t *testing.T) {
	type step struct {
		out bool
		g   Segment
	}
	var (
		syn, synAck, ack   = step{true, Segment{SYN: true}}, step{false, Segment{SYN: true, ACK: true}}, step{true, Segment{ACK: true}}
		finOut, finIn      = step{true, Segment{ACK: true, FIN: true}}, step{false, Segment{ACK: true, FIN: true}}
		rstOut, rstIn, dat = step{true, Segment{RST: true}}, step{false, Segment{RST: true}}, step{false, Segment{ACK: true}}
	)
	for _, tt := range []struct {
		name  string
		p     Protocol
		steps []step
		want  time.Duration
	}{
		{"SYN", TCP, []step{syn}, 4 * time.Minute},
		{"established", TCP, []step{syn, synAck, ack}, 7440 * time.Second},
		{"established by the other's SYN alone", TCP, []step{syn, synAck}, 7440 * time.Second},
		{"in the middle", TCP, []step{ack}, 7440 * time.Second},
		{"one FIN", TCP, []step{syn, synAck, ack, finOut}, 4 * time.Minute},
		{"the other FIN", TCP, []step{syn, synAck, ack, finIn}, 4 * time.Minute},
		{"both", TCP, []step{syn, synAck, ack, finOut, finIn, ack}, time.Minute},
		{"reset by the inside", TCP, []step{syn, synAck, ack, rstOut}, time.Minute},
		{"reset by the outside", TCP, []step{syn, synAck, ack, rstIn}, time.Minute},
		{"reset that the inside did not believe", TCP, []step{syn, synAck, ack, rstIn, ack}, 7440 * time.Second},
		{"begun anew", TCP, []step{syn, synAck, ack, finOut, finIn, syn}, 4 * time.Minute},
		{"datagram", UDP, []step{ack}, 5 * time.Minute},
		{"answered datagram", UDP, []step{ack, dat}, 5 * time.Minute},
		{"echo", Echo, []step{ack}, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tab := newTable(pool4...)
			var a netip.AddrPort
			for _, s := range tt.steps {
				if s.out {
					a = out(t, tab, tt.p, inside, remote, s.g, 0)
				} else if _, v := tab.In(tt.p, remote, a, s.g, 0); v != Translated {
					t.Fatalf("verdict %d", v)
				}
			}
			if next := tab.Next(24 * time.Hour); next != tt.want {
				t.Errorf("looked at again after %v, want %v", next, tt.want)
			}
			if tab.Expire(tt.want - 1); tab.Len() != 1 {
				t.Error("gone too early")
			}
			if tab.Expire(tt.want); tab.Len() != 0 || tab.Ports() != 0 || tab.Expired != 1 {
				t.Errorf("%d sessions, %d ports, %d expired", tab.Len(), tab.Ports(), tab.Expired)
			}
		})
	}
}

// TestErrors: who an error is about is found without prolonging anything.
func TestErrors(t *testing.T) {
	tab := newTable(pool4...)
	a := out(t, tab, TCP, inside, remote, Segment{SYN: true}, 0)
	if got, ok := tab.Inside(TCP, a, remote); !ok || got != inside {
		t.Errorf("inside %v, %v", got, ok)
	}
	if got, ok := tab.Outside(TCP, inside, remote); !ok || got != a {
		t.Errorf("outside %v, %v", got, ok)
	}
	stranger := netip.MustParseAddrPort("203.0.113.9:443")
	if _, ok := tab.Inside(TCP, a, stranger); ok {
		t.Error("an error about what went to a stranger")
	}
	if _, ok := tab.Outside(TCP, inside, stranger); ok {
		t.Error("an error about what came from a stranger")
	}
	if tab.Expire(lifetimes[transitory]); tab.Len() != 0 {
		t.Error("prolonged")
	}
}

// TestBounds: a table and a host take so much, sessions that are over give way, and ports run out in order.
func TestBounds(t *testing.T) {
	tab := newTable(pool4...)
	host := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}) }
	for i := range MaxPerHost {
		out(t, tab, UDP, inside, netip.AddrPortFrom(host(i>>12), uint16(i)), Segment{}, 0)
	}
	if _, v := tab.Out(UDP, inside, remote, Segment{}, 0); v != Full {
		t.Errorf("more than a host may have: verdict %d", v)
	}
	for i := range MaxSessions - MaxPerHost - 1 {
		out(t, tab, UDP, netip.AddrPortFrom(host(1), 7), netip.AddrPortFrom(host(i>>12), uint16(i)), Segment{}, 0)
	}
	one := netip.AddrPortFrom(host(2), 7)
	out(t, tab, TCP, one, remote, Segment{RST: true}, 0)
	if tab.Len() != MaxSessions {
		t.Fatalf("%d sessions", tab.Len())
	}
	out(t, tab, UDP, one, remote, Segment{}, 0)
	if _, v := tab.Out(UDP, netip.AddrPortFrom(host(3), 7), remote, Segment{}, 0); v != Full || tab.Evicted != 1 || tab.Len() != MaxSessions {
		t.Errorf("full: verdict %d, %d evicted, %d sessions", v, tab.Evicted, tab.Len())
	}

	tab = newTable(pool4[0])
	got := map[uint16]bool{}
	for i := range 5000 { // well-known ports of many hosts: 1023 of them, none by chance missed for ever
		if a, v := tab.Out(UDP, netip.AddrPortFrom(host(i), 123), remote, Segment{}, 0); v == Translated {
			if got[a.Port()] || a.Port() == 0 || a.Port() > 1023 {
				t.Fatalf("port %d", a.Port())
			}
			got[a.Port()] = true
		} else if v != NoPort {
			t.Fatalf("verdict %d", v)
		}
	}
	if len(got) != 1023 {
		t.Errorf("%d ports in use", len(got))
	}
}

// TestPoolChanges: sessions by an address that is gone end, the others live.
func TestPoolChanges(t *testing.T) {
	tab := newTable(pool4...)
	byAddr := map[netip.Addr]int{}
	for i := range 100 {
		byAddr[out(t, tab, UDP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 2, byte(i)}), 9), remote, Segment{}, 0).Addr()]++
	}
	if len(byAddr) != 2 {
		t.Fatalf("addresses in use: %v", byAddr)
	}
	tab.Pool(pool4[1:])
	if tab.Len() != byAddr[pool4[1]] || tab.Ports() != tab.Len() {
		t.Errorf("%d sessions, %d ports, want %d", tab.Len(), tab.Ports(), byAddr[pool4[1]])
	}
	tab.Pool(nil)
	if tab.Len() != 0 || tab.Ports() != 0 || len(tab.hosts) != 0 {
		t.Errorf("%d sessions, %d ports, hosts %v", tab.Len(), tab.Ports(), tab.hosts)
	}
}

// FuzzTable plays packets of few ends and checks what must always hold: no two ends inside share one outside, each list is in
// the order of time, and all that is counted is there.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0x00, 0x01, 0x82, 0x11})
	f.Add([]byte{0x10, 0x92, 0xa4, 0x18, 0x9c, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, in []byte) {
		tab := newTable(pool4...)
		var now time.Duration
		for i := 0; i+1 < len(in); i += 2 {
			c, e := in[i], in[i+1]
			now += time.Duration(c&3) * 50 * time.Second
			p := Protocol(c>>2) % protocols
			g := Segment{SYN: c&0x10 != 0, ACK: c&0x20 != 0, FIN: c&0x40 != 0, RST: e&0x40 != 0}
			src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, e & 3}), uint16(e>>2&1)+1)
			dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, e >> 3 & 3}), uint16(e>>5&1)+1)
			if c&0x80 == 0 {
				a, v := tab.Out(p, src, dst, g, now)
				if v != Translated {
					t.Fatalf("verdict %d", v)
				}
				if b, v := tab.In(p, dst, a, Segment{ACK: true}, now); v != Translated || b != src {
					t.Fatalf("%v came back to %v: verdict %d", src, b, v)
				}
			} else {
				tab.In(p, dst, netip.AddrPortFrom(pool4[e&1], src.Port()), g, now)
			}
			sessions := 0
			for _, l := range tab.lists {
				var last time.Duration
				for e := l.Front(); e != nil; e = e.Next() {
					s := e.Value.(*session)
					if s.used < last || tab.sessions[s.key] != s || tab.lists[s.class] != l || tab.outside[s.m.outside] != s.m || tab.inside[s.m.inside] != s.m {
						t.Fatalf("session %+v", s)
					}
					last = s.used
					sessions++
				}
			}
			if d := cmp.Diff([]int{sessions, len(tab.outside)}, []int{len(tab.sessions), len(tab.inside)}); d != "" {
				t.Fatal(d)
			}
		}
	})
}
