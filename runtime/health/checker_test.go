package health

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splicenic/tools/tcppeer"
)

// A field is a Checker with what is behind the card's port. Every millisecond packets cross it once each way.
type field struct {
	*testing.T
	c      *Checker
	now    time.Duration
	hosts  []*tcppeer.Host
	answer func(ip []byte) [][]byte // of what is no host's; nil: nothing
	lose   func(ip []byte) bool     // packets to servers that get lost; nil: none
	sent   [][]byte                 // by the checker, as long as record is set
	record bool
	back   [][]byte
	events []Event
}

func newField(t *testing.T) *field {
	f := &field{T: t, c: NewChecker([32]byte{1})}
	t.Cleanup(f.c.Close)
	return f
}

// host adds a server; handle is told of its connections.
func (f *field) host(listen netip.AddrPort, handle func(*tcppeer.Conn, tcppeer.Event)) *tcppeer.Host {
	a := listen.Addr()
	h := tcppeer.New(tcppeer.Config{
		MAC: [6]byte{2, 0, 0, 0, 0, 9}, Addresses: []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, TimeWait: -1, Handle: handle,
		Send: func(b []byte) { f.back = append(f.back, append([]byte(nil), b[14:]...)) },
	})
	if listen.Port() != 0 {
		h.Listen(listen.Port())
	}
	f.hosts = append(f.hosts, h)
	return h
}

func ethernet(ip []byte) []byte {
	kind := []byte{8, 0}
	if ip[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return append(append([]byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1}, kind...), ip...)
}

// run lets time pass.
func (f *field) run(d time.Duration) {
	f.Helper()
	for end := f.now + d; f.now < end; {
		f.now += time.Millisecond
		for _, p := range f.c.Step(f.now, nil) {
			if f.record {
				f.sent = append(f.sent, p.Data)
			}
			if f.lose != nil && f.lose(p.Data) {
				continue
			}
			for _, h := range f.hosts {
				h.Receive(f.now, ethernet(p.Data))
			}
			if f.answer != nil {
				f.back = append(f.back, f.answer(p.Data)...)
			}
		}
		for _, h := range f.hosts {
			h.Tick(f.now)
		}
		back := f.back
		f.back = nil
		for _, b := range back {
			f.c.Deliver(b, f.now)
		}
		f.events = append(f.events, f.c.Events()...)
	}
}

// result lets one check happen and returns what it said.
func (f *field) result(k CheckKey, from netip.Addr) Checked {
	f.Helper()
	f.c.Want([]CheckTarget{{CheckKey: k, From: from, Ready: true}}, f.now)
	for range 200 {
		f.run(50 * time.Millisecond)
		if s := f.c.List()[0]; s.Result != "" {
			return s
		}
	}
	f.Fatalf("no result in ten seconds: %+v", f.c.List())
	return Checked{}
}

// says answers every connection's first bytes with a text; then does what is left to do.
func says(text string, then func(*tcppeer.Conn)) func(*tcppeer.Conn, tcppeer.Event) {
	return func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Data && strings.HasSuffix(string(c.Bytes()), "\r\n\r\n") {
			c.Discard(len(c.Bytes()))
			c.Write([]byte(text))
			if then != nil {
				then(c)
			}
		}
	}
}

func TestChecks(t *testing.T) {
	var asked string
	abort := func(c *tcppeer.Conn) { c.Abort() }
	closing := func(c *tcppeer.Conn) { c.CloseWrite() }
	http := Check{Kind: HTTP, Interval: time.Second, Timeout: 500 * time.Millisecond}
	icmpError := func(kind4, code4, kind6, code6 byte, alter func(quote []byte)) func([]byte) [][]byte {
		return func(ip []byte) [][]byte {
			p, _ := readIP(ip)
			quote := append([]byte(nil), ip[:min(len(ip), 60)]...)
			if alter != nil {
				alter(quote)
			}
			if p.to.Is4() {
				return [][]byte{writeIP(p.to, p.from, icmp4, append([]byte{kind4, code4, 0, 0, 0, 0, 0, 0}, quote...), 2)}
			}
			return [][]byte{writeIP(p.to, p.from, icmp6, append([]byte{kind6, code6, 0, 0, 0, 0, 0, 0}, quote...), 2)}
		}
	}
	echoing := func(alter func(b []byte)) func([]byte) [][]byte {
		return func(ip []byte) [][]byte {
			p, ok := readIP(ip)
			if !ok || !p.intact() || p.payload[0] != 8 && p.payload[0] != 128 {
				return nil
			}
			b := append([]byte(nil), p.payload...)
			b[0], b[2], b[3] = map[byte]byte{8: 0, 128: 129}[b[0]], 0, 0
			if alter != nil {
				alter(b)
			}
			return [][]byte{writeIP(p.to, p.from, p.protocol, b, 2)}
		}
	}
	datagrams := func(text string, alter func(b []byte)) func([]byte) [][]byte {
		return func(ip []byte) [][]byte {
			p, ok := readIP(ip)
			if !ok || !p.intact() || p.protocol != udp {
				return nil
			}
			asked = string(p.payload[8:])
			from := netip.AddrPortFrom(p.to, binary.BigEndian.Uint16(p.payload[2:]))
			b := datagram(from, netip.AddrPortFrom(p.from, binary.BigEndian.Uint16(p.payload)), text)
			if alter != nil {
				alter(b)
			}
			return [][]byte{b}
		}
	}
	for _, tt := range []struct {
		name   string
		check  Check
		handle func(*tcppeer.Conn, tcppeer.Event) // of the server; nil: nothing
		absent bool                               // there is no host
		closed bool                               // nobody listens
		answer func([]byte) [][]byte
		lose   func([]byte) bool
		good   bool
		result string
	}{
		{name: "tcp", check: Check{Kind: TCP}, good: true, result: "connected"},
		{name: "tcp, port of its own", check: Check{Kind: TCP, Port: 81}, result: "connection refused"},
		{name: "tcp, nobody listens", check: Check{Kind: TCP}, closed: true, result: "connection refused"},
		{name: "tcp, nobody there", check: Check{Kind: TCP}, absent: true, result: "no answer to SYN"},
		{name: "tcp, nobody there for longer than a SYN", check: Check{Kind: TCP, Interval: 5 * time.Second, Timeout: 4 * time.Second}, absent: true, result: "no answer to SYN"},
		{name: "tcp, first SYN lost", check: Check{Kind: TCP, Timeout: 2 * time.Second}, lose: first(), good: true, result: "connected"},
		{name: "tcp, host unreachable", check: Check{Kind: TCP}, absent: true, answer: icmpError(3, 1, 1, 3, nil), result: "ICMP host unreachable|ICMP address unreachable"},
		{name: "tcp, port unreachable", check: Check{Kind: TCP}, absent: true, answer: icmpError(3, 3, 1, 4, nil), result: "ICMP port unreachable"},
		{name: "tcp, TTL", check: Check{Kind: TCP}, absent: true, answer: icmpError(11, 0, 3, 0, nil), result: "ICMP time exceeded"},
		{name: "tcp, too big says nothing", check: Check{Kind: TCP}, absent: true, answer: icmpError(3, 4, 2, 0, nil), result: "no answer to SYN"},
		{name: "tcp, error about another number", check: Check{Kind: TCP}, absent: true, answer: icmpError(3, 3, 1, 4, func(q []byte) { segmentOf(q)[4] ^= 0x80 }), result: "no answer to SYN"},

		{name: "http", check: http, handle: says("HTTP/1.1 200 OK\r\n\r\n", nil), good: true, result: "HTTP 200"},
		{name: "http, 1.0 without a reason, and closed", check: http, handle: says("HTTP/1.0 204\r\n\r\n", closing), good: true, result: "HTTP 204"},
		{name: "http, lines without CR", check: http, handle: says("HTTP/1.1 200 OK\nA: b\n\n", nil), good: true, result: "HTTP 200"},
		{name: "http, continue first", check: http, handle: says("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", nil), good: true, result: "HTTP 302"},
		{name: "http, 404", check: http, handle: says("HTTP/1.1 404 Not Found\r\n\r\n", nil), result: "HTTP 404"},
		{name: "http, 503", check: http, handle: says("HTTP/1.1 503 Service Unavailable\r\n\r\n", nil), result: "HTTP 503"},
		{name: "http, 404 is good", check: Check{Kind: HTTP, Status: [MaxRanges]Range{{200, 200}, {404, 404}}}, handle: says("HTTP/1.1 404 Not Found\r\n\r\n", nil), good: true, result: "HTTP 404"},
		{name: "http, 204 is not", check: Check{Kind: HTTP, Status: [MaxRanges]Range{{200, 200}, {404, 404}}}, handle: says("HTTP/1.1 204 No Content\r\n\r\n", nil), result: "HTTP 204"},
		{name: "http, endless body", check: http, handle: endless("HTTP/1.1 200 OK\r\n\r\n", "x"), good: true, result: "HTTP 200"},
		{name: "http, endless head", check: http, handle: endless("HTTP/1.1 200 OK\r\n", "A: b\r\n"), result: "head longer than 16 KiB"},
		{name: "http, endless line", check: http, handle: endless("HTTP/1.1 200 OK\r\n", "x"), result: "head longer than 16 KiB"},
		{name: "http, endless status line", check: http, handle: endless("HTTP/1.1 200 ", "x"), result: "head longer than 16 KiB"},
		{name: "http, endless interim answers", check: http, handle: endless("", "HTTP/1.1 100 Continue\r\n\r\n"), result: "too many interim answers"},
		{name: "http, one byte each millisecond", check: http, handle: dripping("HTTP/1.1 200 OK\r\n\r\n"), good: true, result: "HTTP 200"},
		{name: "http, one byte and no more", check: http, handle: says("H", nil), result: "answer not finished in time"},
		{name: "http, silent", check: http, result: "no answer"},
		{name: "http, closed at once", check: http, handle: says("", closing), result: "closed within the head"},
		{name: "http, closed within the head", check: http, handle: says("HTTP/1.1 200 OK\r\nA: b\r\n", closing), result: "closed within the head"},
		{name: "http, reset", check: http, handle: says("", abort), result: "connection reset"},
		{name: "http, reset when it opens", check: http, handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			if e == tcppeer.Established {
				c.Abort()
			}
		}, result: "connection reset"},
		{name: "http, nobody listens", check: http, closed: true, result: "connection refused"},
		{name: "http, another protocol", check: http, handle: says("SSH-2.0-OpenSSH_9.6\r\n", nil), result: "not an HTTP answer"},
		{name: "http, HTTP/2", check: http, handle: says("\x00\x00\x12\x04\x00\x00\x00\x00\x00", nil), result: "not an HTTP answer"},
		{name: "http, status of four digits", check: http, handle: says("HTTP/1.1 2000 OK\r\n\r\n", nil), result: "malformed status line"},
		{name: "http, status below 100", check: http, handle: says("HTTP/1.1 099 OK\r\n\r\n", nil), result: "malformed status line"},
		{name: "http, status with a sign", check: http, handle: says("HTTP/1.1 +20 OK\r\n\r\n", nil), result: "malformed status line"},
		{name: "http, no status", check: http, handle: says("HTTP/1.1\r\n\r\n", nil), result: "malformed status line"},
		{name: "http, header without a colon", check: http, handle: says("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", nil), result: "malformed header line"},
		{name: "http, NUL in a header", check: http, handle: says("HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n", nil), result: "malformed header line"},

		{name: "ping", check: Check{Kind: Ping}, absent: true, answer: echoing(nil), good: true, result: "echo reply"},
		{name: "ping, silent", check: Check{Kind: Ping}, absent: true, result: "no answer"},
		{name: "ping, another id", check: Check{Kind: Ping}, absent: true, answer: echoing(func(b []byte) { b[5]++ }), result: "no answer"},
		{name: "ping, another number", check: Check{Kind: Ping}, absent: true, answer: echoing(func(b []byte) { b[7]++ }), result: "no answer"},
		{name: "ping, another payload", check: Check{Kind: Ping}, absent: true, answer: echoing(func(b []byte) { b[12]++ }), result: "no answer"},
		{name: "ping, unreachable", check: Check{Kind: Ping}, absent: true, answer: icmpError(3, 1, 1, 3, nil), result: "ICMP host unreachable|ICMP address unreachable"},
		{name: "ping, unreachable with a wrong checksum", check: Check{Kind: Ping}, absent: true, answer: func(ip []byte) [][]byte {
			b := icmpError(3, 1, 1, 3, nil)(ip)
			b[0][len(b[0])-1]++
			return b
		}, result: "no answer"},

		{name: "udp, silent", check: Check{Kind: UDP}, absent: true, good: true, result: "silent, and nobody says unreachable"},
		{name: "udp, silent where an answer is expected", check: Check{Kind: UDP, Send: "ping", Expect: "pong"}, absent: true, result: "no answer"},
		{name: "udp, any answer", check: Check{Kind: UDP}, absent: true, answer: datagrams("", nil), good: true, result: "answered"},
		{name: "udp, expected", check: Check{Kind: UDP, Send: "ping", Expect: "pong"}, absent: true, answer: datagrams("pong!", nil), good: true, result: "answered"},
		{name: "udp, unexpected", check: Check{Kind: UDP, Send: "ping", Expect: "pong"}, absent: true, answer: datagrams("pon", nil), result: "another answer than expected"},
		{name: "udp, wrong checksum", check: Check{Kind: UDP, Expect: "pong"}, absent: true, answer: datagrams("pong", func(b []byte) { b[len(b)-1]++ }), result: "no answer"},
		{name: "udp, from another port", check: Check{Kind: UDP, Expect: "pong"}, absent: true, answer: datagrams("pong", func(b []byte) { p, _ := readIP(b); p.payload[1]++; p.payload[3]-- }), result: "no answer"},
		{name: "udp, port unreachable", check: Check{Kind: UDP}, absent: true, answer: icmpError(3, 3, 1, 4, nil), result: "ICMP port unreachable"},
	} {
		for _, family := range []struct {
			name         string
			server, from string
		}{{"IPv4", "198.18.1.11:80", "198.18.1.1"}, {"IPv6", "[2001:db8:2::11]:80", "2001:db8:2::1"}} {
			t.Run(tt.name+"/"+family.name, func(t *testing.T) {
				f := newField(t)
				server := netip.MustParseAddrPort(family.server)
				if !tt.absent {
					listen := server
					if tt.closed {
						listen = netip.AddrPortFrom(server.Addr(), 0)
					}
					f.host(listen, tt.handle)
				}
				f.answer, f.lose = tt.answer, tt.lose
				got := f.result(CheckKey{server, tt.check}, netip.MustParseAddr(family.from))
				if got.Good != tt.good || !strings.Contains("|"+tt.result+"|", "|"+got.Result+"|") {
					t.Errorf("good %v, %q; want %v, %q", got.Good, got.Result, tt.good, tt.result)
				}
				if len(f.c.flights) != 0 || len(f.c.order) != 0 {
					t.Errorf("%d flights after the result", len(f.c.flights))
				}
				f.run(10 * time.Millisecond)
				for _, h := range f.hosts {
					if h.Len() != 0 {
						t.Errorf("the server has %d connections left, the first %v", h.Len(), h.ConnAt(0).State())
					}
				}
			})
		}
	}
	if asked != "" && asked != "ping" {
		t.Errorf("asked %q", asked)
	}
}

// segmentOf is the segment in a packet.
func segmentOf(ip []byte) []byte {
	if ip[0]>>4 == 4 {
		return ip[20:]
	}
	return ip[40:]
}

// first loses one packet.
func first() func([]byte) bool {
	lost := map[byte]bool{}
	return func(ip []byte) bool {
		was := lost[ip[0]>>4]
		lost[ip[0]>>4] = true
		return !was
	}
}

// endless sends a text and then another one for as long as it can.
func endless(text, again string) func(*tcppeer.Conn, tcppeer.Event) {
	return says(text+strings.Repeat(again, (64<<10)/len(again)), nil)
}

// dripping sends a text byte by byte, one for each segment that comes.
func dripping(text string) func(*tcppeer.Conn, tcppeer.Event) {
	return func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Data {
			c.Discard(len(c.Bytes()))
			for _, b := range []byte(text) {
				c.Write([]byte{b})
			}
		}
	}
}

// The life of a server, as the checker knows it:
//
//	up ───── a check fails ──────────────────► up, one in a row more
//	up ───── the fall-th in a row fails ─────► down: event
//	up ───── one is good in between ─────────► up, none in a row
//	down ─── a check is good ────────────────► down, one in a row more
//	down ─── the rise-th in a row is good ───► up: event
//	down ─── one fails in between ───────────► down, none in a row
//	any ──── not wanted any more ────────────► forgotten
//	any ──── wanted with another check ──────► as it was, none in a row
//
// TestRiseAndFall has a row for each.
func TestRiseAndFall(t *testing.T) {
	base := Check{Kind: Ping, Interval: 100 * time.Millisecond, Timeout: 50 * time.Millisecond, Rise: 2, Fall: 3}
	downFirst := base
	downFirst.Down = true
	for _, tt := range []struct {
		name   string
		check  Check
		checks string // results: + good, - bad; another check (c)
		want   string // after each: U or D
	}{
		{"stays up", base, "+++", "UUU"},
		{"falls with the third", base, "---", "UUD"},
		{"a good one in between", base, "--+--+", "UUUUUU"},
		{"falls and rises with the second", base, "---++", "UUDDU"},
		{"a bad one in between", base, "---+-++", "UUDDDDU"},
		{"begins down", downFirst, "++", "DU"},
		{"begins down and stays", downFirst, "-+-", "DDD"},
		{"fall and rise of one", Check{Kind: Ping, Interval: base.Interval, Timeout: base.Timeout, Rise: 1, Fall: 1}, "-+-+", "DUDU"},
		{"another check goes on", base, "---c++", "UUDDDU"},
		{"another check that begins down goes on up", base, "+C-", "UUU"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newField(t)
			good := true
			f.answer = func(ip []byte) [][]byte {
				if !good {
					return nil
				}
				p, _ := readIP(ip)
				b := append([]byte(nil), p.payload...)
				b[0], b[2], b[3] = 0, 0, 0
				return [][]byte{writeIP(p.to, p.from, icmp4, b, 2)}
			}
			k := CheckKey{server, tt.check}
			want := func() { f.c.Want([]CheckTarget{{k, own, true}}, f.now) }
			want()
			got, events, was := "", 0, !tt.check.Down
			for _, r := range tt.checks {
				switch r {
				case 'c':
					k.Check.Interval += time.Millisecond
					want()
				case 'C':
					k.Check.Interval += time.Millisecond
					k.Check.Down = true
					want()
				default:
					good = r == '+'
					s := f.c.List()[0]
					for n := s.Passed + s.Failed; s.Passed+s.Failed == n; s = f.c.List()[0] {
						f.run(time.Millisecond)
					}
				}
				up := f.c.Healthy(k)
				if up != was {
					events++
				}
				was = up
				got += map[bool]string{true: "U", false: "D"}[up]
			}
			if got != tt.want || len(f.events) != events {
				t.Errorf("%s, %d events %+v; want %s, %d", got, len(f.events), f.events, tt.want, events)
			}
			for i, e := range f.events {
				if i > 0 && e.Up == f.events[i-1].Up || e.Result == "" {
					t.Errorf("events %+v", f.events)
				}
			}
		})
	}
	t.Run("forgotten", func(t *testing.T) {
		f := newField(t)
		k := CheckKey{server, base}
		f.c.Want([]CheckTarget{{k, own, true}}, 0)
		f.run(time.Second)
		f.c.Want(nil, f.now)
		if f.c.Healthy(k) != true || len(f.c.List()) != 0 || len(f.c.flights) != 0 {
			t.Errorf("still known: %+v", f.c.List())
		}
		f.record = true
		if f.run(time.Second); len(f.sent) != 0 {
			t.Errorf("still asked %d times", len(f.sent))
		}
	})
}

// The states of a quorum:
//
//	there ── the sum sinks below need ──────────────────► lost
//	there ── it does not ───────────────────────────────► there
//	lost ─── the sum comes to need and hysteresis ──────► there
//	lost ─── it does not ───────────────────────────────► lost
func TestQuorum(t *testing.T) {
	for _, tt := range []struct {
		name    string
		q       Quorum
		healthy []uint64
		want    string // L or T
	}{
		{"one is enough", Quorum{}, []uint64{2, 1, 0, 1}, "TTLT"},
		{"three of five", Quorum{Need: 3}, []uint64{5, 3, 2, 3}, "TTLT"},
		{"hysteresis", Quorum{Need: 3, Hysteresis: 1}, []uint64{5, 3, 2, 3, 4, 3}, "TTLLTT"},
		{"nobody at the beginning", Quorum{Hysteresis: 1}, []uint64{0, 1, 2, 1}, "LLTT"},
		{"hysteresis that is not reached", Quorum{Need: 3, Hysteresis: 9}, []uint64{2, 11, 12}, "LLT"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, q := "", tt.q
			for _, h := range tt.healthy {
				q = q.Next(h)
				got += map[bool]string{true: "L", false: "T"}[q.Lost]
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestNextHop: a server behind a next hop that does not answer is down by its checks, and one whose next hop is found in
// time is asked.
func TestNextHop(t *testing.T) {
	f := newField(t)
	f.host(server, nil)
	k := CheckKey{server, Check{Kind: TCP, Interval: time.Second, Fall: 2}}
	ready := func(r bool) { f.c.Want([]CheckTarget{{k, own, r}}, f.now) }
	ready(false)
	f.run(1500 * time.Millisecond)
	ready(true)
	f.run(1000 * time.Millisecond)
	if s := f.c.List()[0]; !s.Good || s.Failed > 1 {
		t.Errorf("after the next hop was found: %+v", s)
	}
	ready(false)
	f.run(4 * time.Second)
	if s := f.c.List()[0]; s.Up || s.Result != "next hop does not answer" {
		t.Errorf("after the next hop was lost: %+v", s)
	}
	f.c.Want([]CheckTarget{{k, netip.Addr{}, true}}, f.now)
	f.run(3 * time.Second)
	if s := f.c.List()[0]; s.Result != "no address of the card in the server's subnet" {
		t.Errorf("without an address: %+v", s)
	}
}

// crowd are servers of a size.
func crowd(n int, c Check) (targets []CheckTarget) {
	for i := range n {
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(4 + i>>8), byte(i)}), 80)
		targets = append(targets, CheckTarget{CheckKey{a, c}, own, true})
	}
	return targets
}

// TestThousand: a thousand servers are asked evenly, and dead ones do not keep the others waiting.
func TestThousand(t *testing.T) {
	f := newField(t)
	f.c.Want(crowd(1000, Check{Kind: TCP}), 0)
	var most, at, n int
	f.lose = func(ip []byte) bool {
		if ms := int(f.now / (100 * time.Millisecond)); ms != at {
			at, n = ms, 0
		}
		if segmentOf(ip)[13] == SYN {
			n++
		}
		most = max(most, n)
		return true
	}
	f.run(time.Second) // no check has sent a second SYN yet
	if most > 100 {    // 50 by the interval
		t.Errorf("%d SYNs within 100 ms, of 1000 in 2 s", most)
	}
	f.run(6 * time.Second)
	down := 0
	for _, s := range f.c.List() {
		if s.Failed < 2 {
			t.Fatalf("%v was asked %d times in 7 s", s.Server, s.Failed)
		}
		if !s.Up {
			down++
		}
	}
	if down < 500 || len(f.c.order) > maxFlights {
		t.Errorf("%d down, %d in flight", down, len(f.c.order))
	}
}

// TestBound: no more checks are in flight than may be, and every one has its turn.
func TestBound(t *testing.T) {
	f := newField(t)
	f.c.Want(crowd(3000, Check{Kind: Ping, Interval: 100 * time.Millisecond, Timeout: 200 * time.Millisecond}), 0)
	for range 20 {
		f.run(100 * time.Millisecond)
		if len(f.c.order) > maxFlights {
			t.Fatalf("%d in flight", len(f.c.order))
		}
	}
	for _, s := range f.c.List() {
		if s.Failed < 2 {
			t.Fatalf("%v was asked %d times", s.Server, s.Failed)
		}
	}
}

// TestDeterministic: the same calls give the same packets.
func TestDeterministic(t *testing.T) {
	run := func() (sent [][]byte, list []Checked) {
		f := newField(t)
		f.record = true
		targets := crowd(40, Check{Kind: HTTP, Interval: 200 * time.Millisecond})
		targets = append(targets, crowd(40, Check{Kind: Ping, Interval: 200 * time.Millisecond})...)
		for i := range 40 {
			f.host(targets[i].Server, says("HTTP/1.1 200 OK\r\n\r\n", nil))
		}
		f.c.Want(targets, 0)
		f.run(time.Second)
		return f.sent, f.c.List()
	}
	a, first := run()
	b, second := run()
	if len(a) < 400 {
		t.Errorf("only %d packets", len(a))
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("packets differ:\n%s", d[:min(len(d), 2000)])
	}
	if d := cmp.Diff(first, second, cmp.AllowUnexported(netip.Addr{}, netip.AddrPort{}), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
		t.Errorf("results differ:\n%s", d)
	}
}

// TestPorts: checks never use the ports of probes, nor those that kernels hand out.
func TestPorts(t *testing.T) {
	if FirstCheckPort <= 60999 || FirstCheckPort < firstPort+ports || LastCheckPort > 65535 || checkPorts < 2*maxFlights {
		t.Errorf("ports %d to %d", FirstCheckPort, LastCheckPort)
	}
	f := newField(t)
	f.record = true
	f.c.Want(crowd(2000, Check{Kind: UDP, Interval: 100 * time.Millisecond, Timeout: 50 * time.Millisecond}), 0)
	f.run(time.Second)
	for _, ip := range f.sent {
		if p := int(binary.BigEndian.Uint16(segmentOf(ip))); p < FirstCheckPort || p > LastCheckPort {
			t.Fatalf("from port %d", p)
		}
	}
}

// TestClose: nothing of a checker is left when it is closed.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	f := newField(t)
	f.c.Want(crowd(10, Check{Kind: TCP, Interval: 10 * time.Millisecond}), 0)
	f.run(20 * time.Millisecond)
	if len(f.c.flights) != 10 || f.c.Next() < f.now {
		t.Fatalf("%d in flight, next %v", len(f.c.flights), f.c.Next())
	}
	f.c.Close()
	f.c.Close()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() { // some are past their last statement
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestStrangers: what is about no check is not ours.
func TestStrangers(t *testing.T) {
	f := newField(t)
	f.record = true
	f.c.Want([]CheckTarget{{CheckKey{server, Check{Kind: UDP}}, own, true}, {CheckKey{server, Check{Kind: Ping}}, own, true}}, 0)
	for len(f.sent) < 2 {
		f.run(time.Millisecond)
	}
	for _, ip := range f.sent {
		p, _ := readIP(ip)
		for _, tt := range []struct {
			name     string
			from, to netip.Addr
		}{{"from a stranger", stranger.Addr(), own}, {"to a stranger", server.Addr(), stranger.Addr()}} {
			b := append([]byte(nil), p.payload...)
			check := 6
			if p.protocol == icmp4 {
				b[0], check = 0, 2
			} else {
				b[0], b[1], b[2], b[3] = b[2], b[3], b[0], b[1]
			}
			b[check], b[check+1] = 0, 0
			if f.c.Deliver(writeIP(tt.from, tt.to, p.protocol, b, check), f.now) {
				t.Errorf("%s: protocol %d is taken", tt.name, p.protocol)
			}
		}
	}
	for _, s := range f.c.List() {
		if s.Result != "" {
			t.Errorf("a stranger's packet is a result: %+v", s)
		}
	}
}

func FuzzDeliver(f *testing.F) {
	c := NewChecker([32]byte{1})
	f.Cleanup(c.Close)
	server6 := netip.MustParseAddrPort("[2001:db8:2::11]:80")
	var targets []CheckTarget
	for _, k := range []Kind{TCP, HTTP, Ping, UDP} {
		targets = append(targets, CheckTarget{CheckKey{server, Check{Kind: k}}, own, true}, CheckTarget{CheckKey{server6, Check{Kind: k}}, own6, true})
	}
	c.Want(targets, 0)
	now := 3 * time.Second
	for _, p := range c.Step(now, nil) {
		q, _ := readIP(p.Data)
		b := append([]byte(nil), q.payload...)
		switch q.protocol {
		case tcp, udp:
			b[0], b[1], b[2], b[3] = b[2], b[3], b[0], b[1]
			f.Add(writeIP(q.to, q.from, q.protocol, b, map[uint8]int{tcp: 16, udp: 6}[q.protocol]), p.Data)
		default:
			b[0] = map[byte]byte{8: 0, 128: 129}[b[0]]
			f.Add(writeIP(q.to, q.from, q.protocol, b, 2), p.Data)
		}
	}
	f.Fuzz(func(t *testing.T, packet, quoted []byte) {
		now += time.Millisecond
		c.Deliver(packet, now)
		if p, ok := readQuote(quoted); ok {
			kind, protocol := byte(3), uint8(icmp4)
			if p.from.Is6() {
				kind, protocol = 1, icmp6
			}
			c.Deliver(writeIP(p.to, p.from, protocol, append([]byte{kind, 3, 0, 0, 0, 0, 0, 0}, quoted...), 2), now)
		}
		c.Step(now, nil)
		if len(c.flights) != len(c.order) || len(c.order) > maxFlights {
			t.Fatalf("%d flights, %d in order", len(c.flights), len(c.order))
		}
		for _, s := range c.List() {
			if len(s.Result) > 100 {
				t.Fatal(fmt.Sprint(s))
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 404\nA: b\n c\n\n", "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nA:b\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 99"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		status, err := readAnswer(b)
		if status != 0 && (err != nil || status < 100 || status > 999) {
			t.Fatalf("%d, %v", status, err)
		}
		for i := range b { // what is decided stays so, whatever follows
			if s, e := readAnswer(b[:i]); (s != 0 || e != nil) && (s != status || e != err) {
				t.Fatalf("%d, %v after %d bytes; %d, %v after all", s, e, i, status, err)
			}
		}
	})
}
