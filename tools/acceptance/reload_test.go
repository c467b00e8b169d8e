package acceptance

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// reloads are the edits of replayConfig that ten reloads apply, one after the other: half concern what the test's
// connections use, half other services.
var reloads = []struct{ old, with string }{
	{"weight: 2", "weight: 1"},
	{"groups:", "  - {name: other, listen: [\"198.18.0.81:80\"], mode: splice, protocol: http, default: app6x}\ngroups:\n  - {name: app6x, servers: [{address: \"198.18.1.12:80\"}]}"},
	{"path: /photos/*, to: static}", "path: /photos/*, to: static}, {host: img.example, path: /new/*, to: app}"},
	{"[{address: \"[2001:db8:1::11]:80\"}]", "[{address: \"[2001:db8:1::11]:80\", weight: 3}]"},
	{"weight: 1}, {address: \"198.18.1.12:80\"}", "weight: 1}, {address: \"198.18.1.12:80\"}, {address: \"198.18.1.14:80\"}"},
	{"198.18.0.81:80", "198.18.0.82:80"},
	{"scheduler: wrr", "scheduler: rr"},
	{"  - {name: other, listen: [\"198.18.0.82:80\"], mode: splice, protocol: http, default: app6x}\n", ""},
	{", {host: img.example, path: /new/*, to: app}", ""},
	{"  - {name: web6, listen: [\"[2001:db8::80]:80\"], mode: splice, protocol: http, default: app6}\n", ""},
}

// reloadRun is the ends of TestCaseF05.
type reloadRun struct {
	t              *testing.T
	s              *stack
	ends           [2]*tcppeer.Port
	done, wrong    int // short connections
	resets         int
	answered       map[*tcppeer.Conn]int // open splices: answers
	backends       map[*tcppeer.Conn]string
	changedBackend int
}

func newReloadRun(t *testing.T) *reloadRun {
	r := &reloadRun{t: t, answered: map[*tcppeer.Conn]int{}, backends: map[*tcppeer.Conn]string{}}
	client := tcppeer.Config{MAC: [6]byte{2, 0, 0, 0, 1, 1}, NextHop: replayMACs[0], Seed: 1, Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.10/32"), netip.MustParsePrefix("198.18.0.11/32")}, Handle: r.client}
	servers := tcppeer.Config{MAC: [6]byte{2, 0, 0, 0, 1, 2}, NextHop: replayMACs[1], Seed: 2, Handle: r.server,
		Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.11/32"), netip.MustParsePrefix("198.18.1.12/32"), netip.MustParsePrefix("198.18.1.13/32"), netip.MustParsePrefix("198.18.1.14/32"), netip.MustParsePrefix("2001:db8:1::11/128")}}
	var ports [2]port.Port
	for i, cfg := range []tcppeer.Config{client, servers} {
		r.ends[i] = tcppeer.NewPort(replayMACs[i], 4096, cfg)
		ports[i] = r.ends[i]
	}
	r.ends[1].Host.Listen(80)
	r.s = newStack(t, ports)
	r.s.attach()
	return r
}

// stays says whether a connection of the client is one of the open splices: those come from an address of their own.
func stays(c *tcppeer.Conn) bool { return c.Local().Addr() == netip.MustParseAddr("198.18.0.11") }

func ask(c *tcppeer.Conn) {
	host := "www.example"
	if stays(c) {
		host = "keep.example"
	}
	c.Write(fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host))
}

func (r *reloadRun) client(c *tcppeer.Conn, e tcppeer.Event) {
	switch e {
	case tcppeer.Established:
		ask(c)
	case tcppeer.Data:
		if stays(c) && bytes.HasSuffix(c.Bytes(), []byte("\n")) {
			from := string(c.Bytes())
			if was, ok := r.backends[c]; ok && was != from {
				r.changedBackend++
			}
			r.backends[c] = from
			r.answered[c]++
			c.Discard(len(from))
		}
	case tcppeer.PeerClosed:
		if stays(c) || !bytes.HasPrefix(c.Bytes(), []byte("198.18.1.1")) {
			r.wrong++
		}
		r.done++
		c.CloseWrite()
	case tcppeer.Reset, tcppeer.TimedOut:
		r.resets++
		r.done++
	}
}

func (r *reloadRun) server(c *tcppeer.Conn, e tcppeer.Event) {
	switch {
	case e == tcppeer.PeerClosed:
		c.CloseWrite()
	case e == tcppeer.Reset && asking(c.Remote().Addr()): // the runtime has learned the server's profile
	case e == tcppeer.Reset:
		r.resets++
	case e == tcppeer.Data && bytes.HasSuffix(c.Bytes(), []byte("\r\n\r\n")):
		keep := bytes.Contains(c.Bytes(), []byte("keep.example"))
		c.Discard(len(c.Bytes()))
		c.Write([]byte(c.Local().Addr().String() + "\n"))
		if !keep {
			c.CloseWrite()
		}
	}
}

// asking says whether an address is the card's own.
func asking(a netip.Addr) bool {
	return a == netip.MustParseAddr("198.18.1.1") || a == netip.MustParseAddr("2001:db8:1::1")
}

func (r *reloadRun) dial(now time.Duration, from string) *tcppeer.Conn {
	r.t.Helper()
	c, err := r.ends[0].Host.Dial(now, netip.AddrPortFrom(netip.MustParseAddr(from), 0), netip.MustParseAddrPort("198.18.0.80:80"))
	must(r.t, err)
	return c
}

func (r *reloadRun) step(now time.Duration) {
	for _, e := range r.ends {
		e.Advance(now)
	}
	r.s.step(now)
}

// splices is the delta and the server of every open splice, by client port.
func (r *reloadRun) splices() map[uint32][2]uint32 {
	r.t.Helper()
	m := map[uint32][2]uint32{}
	must(r.t, r.s.drv.Connections(context.Background(), func(_ uint32, p *regs.PageEntry) bool {
		if p.ClientAddress[0] == 0xc612000b {
			m[p.PortsClient] = [2]uint32{p.ADeltaServer, p.AIndexServer}
		}
		return true
	}))
	return m
}

// TestCaseF05: ten reloads in a minute of 200 new connections a second, beside 500 open splices: no RST, nothing
// refused, no request that fails; every splice keeps its delta and its server.
func TestCaseF05(t *testing.T) {
	r := newReloadRun(t)
	defer r.s.close()
	const (
		tick   = 500 * time.Microsecond
		splice = 500
		every  = 5 * time.Millisecond // 200 a second
	)
	duration := 6 * time.Second // a reload every 600 ms
	if long {
		duration = time.Minute
	}
	now := time.Duration(0)
	for range 100 {
		now += tick
		r.step(now)
	}
	var open []*tcppeer.Conn
	for len(open) < splice {
		open = append(open, r.dial(now, "198.18.0.11"))
		now += tick
		r.step(now)
	}
	for range 100 {
		now += tick
		r.step(now)
	}
	before := r.splices()
	if len(before) != splice || len(r.answered) != splice {
		t.Fatalf("%d open splices, %d answered, want %d", len(before), len(r.answered), splice)
	}

	text, applied, dialled := replayConfig, 0, 0
	start, next := now, now
	for now < start+duration {
		if now >= next {
			next += every
			r.dial(now, "198.18.0.10")
			dialled++
		}
		if now-start >= duration*time.Duration(2*applied+1)/time.Duration(2*len(reloads)) {
			x := reloads[applied]
			if !strings.Contains(text, x.old) {
				t.Fatalf("reload %d: no %q in\n%s", applied, x.old, text)
			}
			text = strings.Replace(text, x.old, x.with, 1)
			if _, err := r.s.d.Load(context.Background(), "replay.yaml", []byte(text)); err != nil {
				t.Fatalf("reload %d: %v", applied, err)
			}
			if now < r.s.now { // a reload takes time
				now = r.s.now
			}
			for _, c := range open[applied*splice/len(reloads) : (applied+1)*splice/len(reloads)] {
				ask(c)
			}
			applied++
		}
		now += tick
		r.step(now)
	}
	for range 2000 {
		now += tick
		r.step(now)
	}
	if applied != len(reloads) || r.done != dialled {
		t.Errorf("%d reloads, %d of %d connections done", applied, r.done, dialled)
	}
	if r.wrong != 0 || r.resets != 0 || r.changedBackend != 0 {
		t.Errorf("%d requests went wrong, %d resets, %d splices changed their server; want none", r.wrong, r.resets, r.changedBackend)
	}
	for _, c := range open {
		if r.answered[c] != 2 {
			t.Errorf("%v: answered %d times, want 2", c.Local(), r.answered[c])
		}
	}
	after := r.splices()
	for p, x := range before {
		if after[p] != x {
			t.Errorf("splice of port %d: delta and server went from %x to %x", p, x, after[p])
		}
	}
	for _, reg := range []regs.Reg{regs.AmuNoPage, regs.AmuDisabled, regs.AmuNoCamPlace, regs.ConnectionAbortNoServer, regs.ConnectionResetHost, regs.ConnectionDropNextHop, regs.TransmitRst, regs.TransmitRst + regs.TransmitStride} {
		if got := r.s.drv.Load(reg); got != 0 {
			t.Errorf("%s: got %d, want 0", reg.Name(), got)
		}
	}
}
