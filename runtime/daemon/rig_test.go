package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/tools/tcppeer"
)

// A rig is an emulated card with its runtime, a network on each port, and one clock for all.
type rig struct {
	*testing.T
	emu   *emu.Card
	dev   *mortal
	card  *driver.Card
	d     *daemon.Daemon
	nets  [2]*network
	now   time.Duration
	state string // state file; empty: none
	log   bytes.Buffer
	clock func() time.Duration // of the runtime
	busy  func()               // happens while the runtime waits for the card; nil: nothing
}

// pump moves the card while the runtime waits for it.
func (r *rig) pump() {
	if r.busy != nil {
		r.busy()
	}
	r.emu.Step(r.now)
}

// A network is what is behind a port: hosts, and everything that was seen there.
type network struct {
	end    *port.Mem
	mac    [6]byte // the card's port
	hosts  []*tcppeer.Host
	frames [][]byte // from the card, kept while record is set
	sent   [][]byte // to the card, likewise
	record bool
	drop   func(toServer bool, b []byte) bool // frames that get lost on the wire; nil: none
	lose   func([]byte) bool                  // frames from the card that no host gets; nil: none
	alter  func([]byte) [][]byte              // what comes of a frame to the card on its way; nil: itself
	fs     []frame.Frame
}

// source is randomness that is the same each time.
type source struct{ *rand.ChaCha8 }

// small is a card that is quick to make.
var small = emu.Geometry{Pages: 4096, Heads: 64, CamClientWords: 8192, CamServerWords: 16384}

func newRig(t *testing.T, g emu.Geometry) *rig {
	t.Helper()
	r := &rig{}
	r.init(t, g)
	return r
}

// init makes everything of a rig.
func (r *rig) init(t *testing.T, g emu.Geometry) {
	t.Helper()
	r.T = t
	var ports [2]*port.Mem
	for i := range ports {
		mac := [6]byte{2, 0xca, 0, 0, 0, byte(i + 1)}
		a, b := port.Pair(port.MemConfig{MACs: [2][6]byte{mac, {2, 0xee, 0, 0, 0, byte(i + 1)}}})
		ports[i] = a
		r.nets[i] = &network{end: b, mac: mac, fs: make([]frame.Frame, 64)}
		for k := range r.nets[i].fs {
			r.nets[i].fs[k].Buf = make([]byte, b.BufferBytes())
		}
	}
	var err error
	if r.emu, err = emu.New(emu.Config{Geometry: g, Client: ports[0], Server: ports[1], Seed: 7, Strict: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if v, _ := r.emu.Violations(); len(v) > 0 {
			t.Errorf("the map does not allow %v and %d more", v[0], len(v)-1)
		}
		r.emu.Close()
	})
	r.attach()
}

// attach starts a runtime with the card, which it adopts if there is anything to adopt. One that ran before is as if
// killed: its memory is gone for the card, and nothing was said to it.
func (r *rig) attach() {
	r.Helper()
	if r.dev != nil {
		if err := r.dev.Close(); err != nil {
			r.Fatal(err)
		}
	}
	r.dev = &mortal{Device: vfiousertest.Join(r.T, r.emu), left: -1}
	var err error
	r.card, err = driver.Open(context.Background(), r.dev, driver.Config{
		Adopt: true, Pump: func() { r.pump() }, Random: source{rand.NewChaCha8([32]byte{1})}, Timers: driver.Timers{Quarantine: 100 * time.Millisecond},
	})
	if err != nil {
		r.Fatal(err)
	}
	card := r.card
	r.Cleanup(func() {
		if r.card != card { // killed
			return
		}
		if err := card.Shutdown(context.Background()); err != nil {
			r.Errorf("shut down: %v", err)
		}
		r.dev.Close()
	})
	start := r.now // the clock of a runtime begins with it
	r.clock = func() time.Duration { return r.now - start }
	wall := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(r.now) }
	if r.d, err = daemon.New(daemon.Config{Card: r.card, Clock: r.clock, Wall: wall, State: r.state, Random: source{rand.NewChaCha8([32]byte{2})}, Log: slog.New(slog.NewTextHandler(&r.log, nil))}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(r.d.Close)
}

// A mortal device lets stores through until its runtime is killed.
type mortal struct {
	device.Device
	left   int // stores until then; negative: for ever
	stores int
	loads  int
}

func (m *mortal) Load32(region int, off uint64) uint32 {
	m.loads++
	return m.Device.Load32(region, off)
}

func (m *mortal) Store32(region int, off uint64, v uint32) {
	if m.left == 0 {
		m.Lose(errKilled)
		return
	}
	m.left--
	m.stores++
	m.Device.Store32(region, off, v)
}

var errKilled = errors.New("killed")

// host adds a host behind a port.
func (r *rig) host(side int, cfg tcppeer.Config) *tcppeer.Host {
	n := r.nets[side]
	cfg.MAC = [6]byte{2, 0xaa, byte(side), 0, 0, byte(len(n.hosts) + 1)}
	cfg.NextHop = n.mac
	cfg.Send = n.send
	h := tcppeer.New(cfg)
	n.hosts = append(n.hosts, h)
	return h
}

// send gives a frame to the card's port.
func (n *network) send(b []byte) {
	if n.drop != nil && n.drop(false, b) {
		return
	}
	if n.record {
		n.sent = append(n.sent, append([]byte(nil), b...))
	}
	if n.alter != nil {
		for _, b := range n.alter(b) {
			n.transmit(b)
		}
		return
	}
	n.transmit(b)
}

func (n *network) transmit(b []byte) {
	f := frame.Frame{Buf: append(make([]byte, frame.Headroom), b...), Start: frame.Headroom, End: uint32(frame.Headroom + len(b))}
	n.end.Transmit([]*frame.Frame{&f})
}

// receive hands what the card sent to the hosts.
func (n *network) receive(now time.Duration) {
	for {
		for i := range n.fs {
			n.fs[i].Start = frame.Headroom
		}
		got := n.end.Receive(n.fs)
		for i := range got {
			b := n.fs[i].Bytes()
			if n.drop != nil && n.drop(true, b) {
				continue
			}
			if n.record {
				n.frames = append(n.frames, append([]byte(nil), b...))
			}
			if n.lose != nil && n.lose(b) {
				continue
			}
			for _, h := range n.hosts {
				h.Receive(now, b)
			}
		}
		if got == 0 {
			break
		}
	}
	for _, h := range n.hosts {
		h.Tick(now)
	}
}

// step moves everything once, at the present time.
func (r *rig) step() {
	r.Helper()
	for _, n := range r.nets {
		n.receive(r.now)
	}
	r.emu.Step(r.now)
	if r.d == nil { // between two runtimes
		return
	}
	if err := r.d.Step(r.clock()); err != nil {
		r.Fatal(err)
	}
}

// run lets time pass, a millisecond a step.
func (r *rig) run(d time.Duration) {
	r.Helper()
	for end := r.now + d; r.now < end; {
		r.now += time.Millisecond
		r.step()
	}
}

// until lets time pass until a condition holds.
func (r *rig) until(what string, most time.Duration, done func() bool) {
	r.Helper()
	for end := r.now + most; !done(); {
		if r.now >= end {
			r.Fatalf("%s: not within %v", what, most)
		}
		r.now += time.Millisecond
		r.step()
	}
}

// apply applies a configuration that is right, and waits until the card takes connections.
func (r *rig) apply(text string) *daemon.Applied {
	r.Helper()
	a := r.load(text)
	r.until("card opens", 3*time.Second, func() bool { return r.d.Status().Accepting })
	return a
}

// load applies a configuration that is right.
func (r *rig) load(text string) *daemon.Applied {
	r.Helper()
	a, err := r.d.Load(context.Background(), "test.yaml", []byte(text))
	if err != nil {
		r.Fatalf("apply: %v", err)
	}
	return a
}

// entry reads an entry of a memory.
func (r *rig) entry(index int, bank, entry uint32) []uint32 {
	r.Helper()
	m := r.card.Memory(index)
	off, err := m.At(bank, entry)
	words := make([]uint32, m.EntryBytes/4)
	if err == nil {
		err = r.card.ReadTable(context.Background(), off, words)
	}
	if err != nil {
		r.Fatal(err)
	}
	return words
}

// serverIndex finds a server's entry by its address.
func (r *rig) server(addr string) (index uint32, e regs.ServerEntry, ok bool) {
	r.Helper()
	want := netip.MustParseAddrPort(addr)
	for i := range r.card.Geometry().Servers {
		e.Decode(r.entry(regs.MemServer, 0, i))
		if e.ControlValid != 0 && driver.Address(e.ControlKind, e.Address) == want.Addr() && e.ControlPort == uint32(want.Port()) {
			return i, e, true
		}
		if i > 100 {
			break
		}
	}
	return 0, e, false
}

// httpServers are hosts behind the server port that answer every request with their name and close.
func (r *rig) httpServers(addrs ...string) {
	for _, a := range addrs {
		addr := netip.MustParseAddrPort(a)
		h := r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(addr.Addr(), addr.Addr().BitLen())}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			if e == tcppeer.Data && strings.HasSuffix(string(c.Bytes()), "\r\n\r\n") {
				c.Discard(len(c.Bytes()))
				c.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + a))
				c.CloseWrite()
			}
		}})
		h.Listen(addr.Port())
	}
}

// A client makes requests and remembers the answers.
type client struct {
	r        *rig
	h        *tcppeer.Host
	from     netip.Addr
	local    uint16   // port of the next connections; zero: any
	requests []string // by Tag
	answers  map[*tcppeer.Conn]string
	failed   int
	reset    int
	open     int
}

func (r *rig) client(addr string) *client {
	c := &client{r: r, from: netip.MustParseAddr(addr), answers: map[*tcppeer.Conn]string{}}
	c.h = r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(c.from, c.from.BitLen())}, TimeWait: -1, Handle: c.handle})
	return c
}

func (c *client) handle(conn *tcppeer.Conn, e tcppeer.Event) {
	switch e {
	case tcppeer.Established:
		conn.Write([]byte(c.requests[conn.Tag]))
	case tcppeer.PeerClosed:
		c.answers[conn] = string(conn.Bytes())
		conn.CloseWrite()
	case tcppeer.Closed:
		c.open--
	case tcppeer.Reset:
		c.open--
		c.reset++
	case tcppeer.TimedOut:
		c.open--
		c.failed++
	}
}

// get starts a request.
func (c *client) get(vip, host, path string) *tcppeer.Conn {
	c.r.Helper()
	conn, err := c.h.Dial(c.r.now, netip.AddrPortFrom(c.from, c.local), netip.MustParseAddrPort(vip))
	if err != nil {
		c.r.Fatal(err)
	}
	conn.Tag = uint64(len(c.requests))
	c.requests = append(c.requests, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host))
	c.open++
	return conn
}

// fetch makes a request and returns the server that answered, empty where none did.
func (c *client) fetch(vip, host, path string) string {
	c.r.Helper()
	conn := c.get(vip, host, path)
	c.r.until("answer to "+host+path, 5*time.Second, func() bool { return c.open == 0 })
	answer := c.answers[conn]
	delete(c.answers, conn)
	_, body, _ := strings.Cut(answer, "\r\n\r\n")
	return body
}

// base is a configuration with two services; %s is more of it.
const base = `
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24], gateway: 198.18.0.254, forward: off}
  server: {addresses: [198.18.1.1/24], forward: routed}
`

const web = base + `
services:
  - name: web
    listen: [198.18.0.80:80]
    routes:
      - {host: img.example, path: /photos/*, to: static}
      - {path: /api/*, to: api}
    default: app
groups:
  - name: app
    servers: [{address: 198.18.1.11:8080, weight: 3}, {address: 198.18.1.12:8080}]
  - {name: static, servers: [{address: 198.18.1.21:80}]}
  - {name: api, servers: [{address: 198.18.1.31:80}]}
`

func mustParse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Load("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
