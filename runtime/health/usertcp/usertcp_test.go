package usertcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splicenic/tools/tcppeer"
)

// A wire is a stack and a host at the other end.
type wire struct {
	*testing.T
	s    *Stack
	h    *tcppeer.Host
	now  time.Duration
	back [][]byte
	sent []Packet
	lose func(Packet) bool
}

var ends = map[string][2]netip.AddrPort{
	"IPv4": {netip.MustParseAddrPort("198.18.1.1:62024"), netip.MustParseAddrPort("198.18.1.11:80")},
	"IPv6": {netip.MustParseAddrPort("[2001:db8:2::1]:62024"), netip.MustParseAddrPort("[2001:db8:2::11]:80")},
}

func newWire(t *testing.T, handle func(*tcppeer.Conn, tcppeer.Event)) *wire {
	t.Helper()
	s, err := New([32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	w := &wire{T: t, s: s}
	w.h = tcppeer.New(tcppeer.Config{
		MAC: [6]byte{2, 0, 0, 0, 0, 9}, TimeWait: -1, Handle: handle, WindowScale: 7, SACK: true, Timestamps: true,
		Addresses: []netip.Prefix{netip.PrefixFrom(ends["IPv4"][1].Addr(), 32), netip.PrefixFrom(ends["IPv6"][1].Addr(), 128)},
		Send:      func(b []byte) { w.back = append(w.back, append([]byte(nil), b[14:]...)) },
	})
	w.h.Listen(80)
	return w
}

func (w *wire) run(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.now += time.Millisecond
		for _, p := range w.s.Step(w.now, nil) {
			w.sent = append(w.sent, p)
			if w.lose != nil && w.lose(p) {
				continue
			}
			kind := []byte{8, 0}
			if p.From.Addr().Is6() {
				kind = []byte{0x86, 0xdd}
			}
			w.h.Receive(w.now, append(append([]byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1}, kind...), p.Data...))
		}
		w.h.Tick(w.now)
		back := w.back
		w.back = nil
		for _, b := range back {
			w.s.Deliver(b)
		}
	}
}

func echo(c *tcppeer.Conn, e tcppeer.Event) {
	if e == tcppeer.Data {
		c.Write(append([]byte(nil), c.Bytes()...))
		c.Discard(len(c.Bytes()))
	}
	if e == tcppeer.PeerClosed {
		c.CloseWrite()
	}
}

func TestConnection(t *testing.T) {
	for family, at := range ends {
		t.Run(family, func(t *testing.T) {
			w := newWire(t, echo)
			c, err := w.s.Dial(at[0], at[1])
			if err != nil || c.State() != Opening {
				t.Fatalf("%v, state %d", err, c.State())
			}
			w.run(5 * time.Millisecond)
			if c.State() != Open || c.Err() != nil {
				t.Fatalf("state %d, %v", c.State(), c.Err())
			}
			text := []byte(strings.Repeat("what goes out comes back ", 4000))
			var got []byte
			for rest := text; len(got) < len(text); {
				n, err := c.Write(rest)
				if rest = rest[n:]; err != nil {
					t.Fatal(err)
				}
				w.run(time.Millisecond)
				b := make([]byte, 3000)
				if n, err = c.Read(b); err != nil || w.now > 10*time.Second {
					t.Fatalf("%d bytes, %v at %v", len(got), err, w.now)
				}
				got = append(got, b[:n]...)
			}
			if !bytes.Equal(got, text) {
				t.Error("other bytes came back")
			}
			for _, p := range w.sent {
				if len(p.Data) > mtu || p.From != at[0] || p.To != at[1] {
					t.Fatalf("packet of %d bytes from %v to %v", len(p.Data), p.From, p.To)
				}
			}
			if w.h.Stats().BadChecksum+w.h.Stats().Malformed+w.h.Stats().NotOurs != 0 {
				t.Errorf("the peer counts %+v", w.h.Stats())
			}
			c.Abort()
			w.run(3 * time.Millisecond)
			if w.h.Len() != 0 {
				t.Error("the peer's connection outlives the abort")
			}
			if again, err := w.s.Dial(at[0], at[1]); err != nil {
				t.Errorf("the port is not free again: %v", err)
			} else {
				again.Abort()
			}
		})
	}
}

func TestEnds(t *testing.T) {
	at := ends["IPv4"]
	for _, tt := range []struct {
		name   string
		handle func(*tcppeer.Conn, tcppeer.Event)
		to     uint16
		lose   func(Packet) bool
		after  time.Duration
		state  State
		err    error // of State and of Read
	}{
		{"refused", nil, 81, nil, 5 * time.Millisecond, Ended, ErrRefused},
		{"reset", func(c *tcppeer.Conn, e tcppeer.Event) {
			if e == tcppeer.Established {
				c.Abort()
			}
		}, 80, nil, 5 * time.Millisecond, Ended, ErrReset},
		{"closed", func(c *tcppeer.Conn, e tcppeer.Event) {
			if e == tcppeer.Established {
				c.CloseWrite()
			}
		}, 80, nil, 5 * time.Millisecond, Open, io.EOF},
		{"silent", nil, 80, func(Packet) bool { return true }, 5 * time.Second, Opening, nil},
		{"silent for ever", nil, 80, func(Packet) bool { return true }, 4 * time.Minute, Ended, ErrTimedOut},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWire(t, tt.handle)
			w.lose = tt.lose
			c, err := w.s.Dial(at[0], netip.AddrPortFrom(at[1].Addr(), tt.to))
			if err != nil {
				t.Fatal(err)
			}
			if w.s.Next() == math.MaxInt64 {
				t.Error("nothing is due though a SYN is on its way")
			}
			w.run(tt.after)
			got := c.State()
			if got == Opening && tt.state == Opening {
				return
			}
			if _, err := c.Read(make([]byte, 10)); got != tt.state || !errors.Is(err, tt.err) {
				t.Errorf("state %d, read %v; want %d, %v", got, err, tt.state, tt.err)
			}
		})
	}
}

// TestBoundedReceive: what nobody reads stops the peer.
func TestBoundedReceive(t *testing.T) {
	w := newWire(t, func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Established {
			c.Write(make([]byte, 1<<20))
		}
	})
	c, err := w.s.Dial(ends["IPv4"][0], ends["IPv4"][1])
	if err != nil {
		t.Fatal(err)
	}
	w.run(3 * time.Second)
	got := 0
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		if got += n; n == 0 || err != nil {
			break
		}
	}
	if got == 0 || got > 2*ReceiveBytes {
		t.Errorf("%d bytes were held", got)
	}
}

// TestSame: the same calls give the same packets, whatever the goroutines did in between.
func TestSame(t *testing.T) {
	run := func() []Packet {
		w := newWire(t, echo)
		var conns []*Conn
		for i := range 50 {
			c, err := w.s.Dial(netip.AddrPortFrom(ends["IPv4"][0].Addr(), uint16(62024+i)), ends["IPv4"][1])
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		w.run(3 * time.Millisecond)
		for i, c := range conns {
			if _, err := c.Write(fmt.Appendf(nil, "from %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		w.run(20 * time.Millisecond)
		for _, c := range conns {
			c.Abort()
		}
		w.run(2 * time.Millisecond)
		return w.sent
	}
	a, b := run(), run()
	if len(a) < 200 {
		t.Errorf("only %d packets", len(a))
	}
	if d := cmp.Diff(a, b, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
		t.Errorf("packets differ:\n%s", d[:min(len(d), 2000)])
	}
}

// TestClose leaves no goroutine, with connections in every state.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	w := newWire(t, echo)
	for i := range 3 {
		c, err := w.s.Dial(netip.AddrPortFrom(ends["IPv4"][0].Addr(), uint16(62024+i)), ends["IPv4"][1])
		if err != nil {
			t.Fatal(err)
		}
		if w.run(2 * time.Millisecond); i == 0 {
			c.Abort()
		}
	}
	w.s.Close()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() { // some are past their last statement
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestClock: timers run in the order of their times, then of when they were set.
func TestClock(t *testing.T) {
	var c clock
	var ran []string
	add := func(name string, d time.Duration) interface{ Stop() bool } {
		return c.AfterFunc(d, func() { ran = append(ran, fmt.Sprint(name, "@", c.now)) })
	}
	add("b", 2)
	add("a", 1)
	add("c", 2)
	gone := add("gone", 2)
	late := c.AfterFunc(1, func() { ran = append(ran, "late") })
	late.Reset(5)
	if !gone.Stop() || gone.Stop() {
		t.Error("Stop does not say what it did")
	}
	for f := c.due(3); f != nil; f = c.due(3) {
		f()
	}
	if d := cmp.Diff([]string{"a@1ns", "b@2ns", "c@2ns"}, ran); d != "" {
		t.Error(d)
	}
	if c.next() != 5 || c.now != 3 {
		t.Errorf("next %d, now %d", c.next(), c.now)
	}
}
