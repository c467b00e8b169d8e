package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/runtime/view"
	"splicenic/tools/tcppeer"
)

const flapping = base + `
services:
  - {name: web, listen: [198.18.0.80:80], mode: %s, default: app}
groups:
  - name: app
    scheduler: rr
    check: {type: http, port: 81, path: /healthz, interval: 100ms, timeout: 50ms, rise: 1, fall: 1}%s
    servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}, {address: 198.18.1.13:80}]
`

// A flap is a client of three servers, one of whose checks fails and passes by turns while it serves as ever.
type flap struct {
	*rig
	mode  string
	h     *tcppeer.Host
	vip   netip.AddrPort
	sick  bool // what the first server says when it is asked for its health
	talks map[*tcppeer.Conn]*exchange
	ups   []bool // by milliseconds: whether the first server may get connections
	got   map[string][2]int
	first uint32 // index of the first server
}

// An exchange is one connection: a few requests, and for how long it asks.
type exchange struct {
	opened time.Duration
	asked  int
	next   time.Duration // of the next request, or the end
	server string
	open   bool // an answer is awaited
}

const (
	flapsEvery   = 300 * time.Millisecond
	flapRequests = 6
	flapPause    = 150 * time.Millisecond // between the requests of one connection, which outlives three flaps
)

// TestFlappingServer: while a server goes down and up every 300 ms clients open a connection every 10 ms. None is lost, though
// most of those at that server see it go down; it gets new ones only while it is up, its share of them; and when all are over
// nothing is left of any.
func TestFlappingServer(t *testing.T) {
	for mode, more := range map[string]string{"splice": "", "nat": "", "fullnat": "\n    local: [198.18.1.100]"} {
		t.Run(mode, func(t *testing.T) {
			f := &flap{rig: newRig(t, small), mode: mode, vip: netip.MustParseAddrPort("198.18.0.80:80"), talks: map[*tcppeer.Conn]*exchange{}, got: map[string][2]int{}}
			for i := range 3 {
				f.server(fmt.Sprint("198.18.1.", 11+i), i == 0)
			}
			from := netip.MustParsePrefix("198.18.0.10/32")
			f.h = f.host(0, tcppeer.Config{Addresses: []netip.Prefix{from}, TimeWait: -1, Handle: f.hear})
			f.apply(fmt.Sprintf(flapping, mode, more))
			f.run(500 * time.Millisecond)

			f.first, _, _ = f.rig.server("198.18.1.11:80")
			const flaps = 40
			opened := 0
			for range flaps {
				f.sick = !f.sick
				since := f.now
				for f.now < since+flapsEvery {
					if f.now%(10*time.Millisecond) == 0 {
						conn, err := f.h.Dial(f.now, netip.AddrPortFrom(from.Addr(), 0), f.vip)
						if err != nil {
							t.Fatal(err)
						}
						f.talks[conn] = &exchange{opened: f.now, next: f.now, open: true}
						opened++
					}
					f.look()
					f.run(time.Millisecond)
					f.proceed()
				}
				if up := f.ups[len(f.ups)-1]; up == f.sick {
					t.Errorf("%v after it changed, sick %v, the server is up: %v", f.now-since, f.sick, up)
				}
			}
			f.until("all connections are over", 5*time.Second, func() bool {
				f.look()
				f.proceed()
				return len(f.talks) == 0
			})
			f.shares(opened)
			f.nothingLeft(opened, flaps)
		})
	}
}

// server is a host that answers requests with its name, and its checks as it is.
func (f *flap) server(a string, flaps bool) {
	own := netip.MustParseAddr("198.18.1.1")
	h := f.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix(a + "/32")}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
		switch {
		case e == tcppeer.Data && strings.HasSuffix(string(c.Bytes()), "\r\n\r\n"):
			status := "200 OK"
			if flaps && f.sick && c.Local().Port() == 81 {
				status = "503 Service Unavailable"
			}
			c.Discard(len(c.Bytes()))
			c.Write(fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s;", status, len(a)+1, a))
		case e == tcppeer.PeerClosed:
			c.CloseWrite()
		case (e == tcppeer.Reset || e == tcppeer.TimedOut) && c.Local().Port() == 80 && c.Remote().Addr() != own: // the runtime resets those by which it asks what servers offer
			f.Errorf("%v: a connection at server %s ends with %v", f.now, a, e)
		}
	}})
	h.Listen(80)
	h.Listen(81)
}

// look notes whether the first server may get connections.
func (f *flap) look() {
	f.Helper()
	var e regs.ServerEntry
	e.Decode(f.entry(regs.MemServer, 0, f.first))
	up := e.ControlClosed == 0
	for at := int(f.now / time.Millisecond); len(f.ups) <= at; {
		f.ups = append(f.ups, up)
	}
}

// hear takes what happens at the client.
func (f *flap) hear(c *tcppeer.Conn, e tcppeer.Event) {
	x := f.talks[c]
	switch e {
	case tcppeer.Established:
		x.open = false
	case tcppeer.Data:
		_, name, whole := strings.Cut(string(c.Bytes()), "\r\n\r\n")
		if !whole || !strings.HasSuffix(name, ";") {
			return
		}
		c.Discard(len(c.Bytes()))
		if x.server == "" {
			x.server = name
			f.chosen(x)
		}
		if x.server != name || !x.open {
			f.Errorf("%v: an answer of %s on a connection with %s", f.now, name, x.server)
		}
		x.open, x.next = false, f.now+flapPause
	case tcppeer.Closed:
		if x.asked <= flapRequests || x.open {
			f.Errorf("%v: a connection with %s is over after %d requests", f.now, x.server, x.asked)
		}
		delete(f.talks, c)
	case tcppeer.Reset, tcppeer.TimedOut:
		f.Errorf("%v: a connection with %q ends with %v after %d requests", f.now, x.server, e, x.asked)
		delete(f.talks, c)
	}
}

// chosen judges which server a connection got: the first one only if that was up at some time since the connection began, and
// counts those that began while it was down and while it was up, not on the edge between.
func (f *flap) chosen(x *exchange) {
	was := f.ups[x.opened/time.Millisecond : min(int(f.now/time.Millisecond), len(f.ups))]
	n := f.got[x.server]
	switch up, down := slices.Contains(was, true), slices.Contains(was, false); {
	case up && !down:
		n[1]++
	case !up:
		if n[0]++; x.server == "198.18.1.11;" {
			f.Errorf("a connection of %v is at a server that was down until %v", x.opened, f.now)
		}
	}
	f.got[x.server] = n
}

// proceed makes the requests that are due, and ends connections that made all of theirs.
func (f *flap) proceed() {
	for c, x := range f.talks {
		if x.open || f.now < x.next || x.asked > flapRequests {
			continue
		}
		if x.asked++; x.asked > flapRequests {
			c.CloseWrite()
			continue
		}
		x.open = true
		c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	}
}

// shares checks how connections were given to the servers.
func (f *flap) shares(opened int) {
	f.Helper()
	var sum [2]int
	for _, n := range f.got {
		sum[0], sum[1] = sum[0]+n[0], sum[1]+n[1]
	}
	if sum[0] < opened/4 || sum[1] < opened/4 {
		f.Errorf("of %d connections %v began while the first server was down and up", opened, sum)
	}
	for i, name := range []string{"198.18.1.11;", "198.18.1.12;", "198.18.1.13;"} {
		want := [2]int{sum[0] / 2, sum[1] / 3}
		if i == 0 {
			want[0] = 0
		}
		for k, n := range f.got[name] {
			if n < want[k]*9/10 || n > want[k]*11/10 {
				f.Errorf("%s got %v of %v connections, want about %v", name, f.got[name], sum, want)
				break
			}
		}
	}
	f.Logf("%d connections; by server, while the first was down and up: %v", opened, f.got)
}

// nothingLeft checks that every connection was given back, and that every flap was seen.
func (f *flap) nothingLeft(opened, flaps int) {
	f.Helper()
	f.rest()
	f.run(time.Second)
	var connections uint64
	for i := range 3 {
		index, _, ok := f.rig.server(fmt.Sprintf("198.18.1.%d:80", 11+i))
		if !ok {
			f.Fatalf("no entry of server %d", i)
		}
		var s regs.ServerStateEntry
		s.Decode(f.entry(regs.MemServerState, 0, index))
		if s.Active != 0 || s.UseCount != 0 || s.PortsFree != s.PortsSize {
			f.Errorf("server %d: %d active, in use by %d, %d of %d ports free", i, s.Active, s.UseCount, s.PortsFree, s.PortsSize)
		}
		if f.mode == "fullnat" && s.PortsSize == 0 {
			f.Errorf("server %d has no ports", i)
		}
	}
	if err := f.d.View(func(v *view.View) error {
		servers, err := v.Servers(context.Background())
		for _, s := range servers {
			connections += s.Connections
			if s.Active != 0 || s.Failed != 0 {
				f.Errorf("%+v", s)
			}
		}
		return err
	}); err != nil {
		f.Fatal(err)
	}
	if connections != uint64(opened) {
		f.Errorf("the servers had %d connections, %d were opened", connections, opened)
	}
	for i, s := range f.d.Health()["app"].Servers {
		want := uint64(0)
		if i == 0 {
			want = uint64(flaps / 2)
		}
		if s.Falls != want || s.Rises != want || s.State != "up" {
			f.Errorf("server %d: %+v, want %d falls and rises", i, s, want)
		}
	}
}
