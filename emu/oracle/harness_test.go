package oracle_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/oracle"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// The test network: clients and a VIP before the card, one server behind it.
var (
	clientAddress = netip.MustParseAddr("198.18.0.100")
	vip           = netip.MustParseAddrPort("198.18.0.80:80")
	backend       = netip.MustParseAddrPort("198.18.1.11:8080")
	cardMAC       = [2][6]byte{{2, 0, 0, 0, 1, 0}, {2, 0, 0, 0, 1, 1}}
	clientMAC     = [6]byte{2, 0, 0, 0, 2, 0}
	serverMAC     = [6]byte{2, 0, 0, 0, 2, 1}
)

// network is a card between a client and a server over two bad wires, in virtual time, with an oracle on both.
type network struct {
	testing.TB
	card   *emu.Card
	client *tcppeer.Port
	server *tcppeer.Port
	links  [2]*port.Link
	near   [2]*port.Mem // the card's ports
	far    [2]*port.Mem // and their other ends
	oracle *oracle.Oracle
	now    time.Duration
	moved  int    // frames through the card's ports so far
	record []shot // what the oracle got, where recording
	keep   bool
}

// shot is a frame on one of the card's wires.
type shot struct {
	wire     oracle.Wire
	fromCard bool
	at       time.Duration
	bytes    []byte
}

type config struct {
	client, server tcppeer.Config
	promise        regs.ServiceEntry
	wires          [2]port.Impairment // client's and server's, both directions alike
	seed           uint64
	geometry       emu.Geometry

	altered   func(client, listener netip.AddrPort, sent []byte) ([]byte, int)
	headBytes int // zero: a head buffer's
}

func small() emu.Geometry {
	return emu.Geometry{Pages: 1024, Heads: 64, CamClientWords: 4096, CamServerWords: 8192, Listeners: 16, Services: 16, Groups: 16, Servers: 16,
		NextHops: 16, Vips: 16, LocalAddresses: 16, Rules: 64, UrlNodes: 256, Slots: 16, LocalPorts: 4096}
}

// watched is a port of the card that shows the oracle what passes.
type watched struct {
	port.Port
	n    *network
	wire oracle.Wire
}

func (w *watched) Receive(fs []frame.Frame) int {
	n := w.Port.Receive(fs)
	for i := range fs[:n] {
		w.n.saw(w.wire, false, fs[i].Bytes())
	}
	return n
}

func (w *watched) Transmit(fs []*frame.Frame) int {
	n := w.Port.Transmit(fs)
	for _, f := range fs[:n] {
		w.n.saw(w.wire, true, f.Bytes())
	}
	return n
}

func (n *network) saw(wire oracle.Wire, fromCard bool, b []byte) {
	n.moved++
	n.oracle.Frame(wire, fromCard, n.now, b)
	if n.keep {
		n.record = append(n.record, shot{wire, fromCard, n.now, append([]byte(nil), b...)})
	}
}

func newNetwork(t testing.TB, cfg config) *network {
	t.Helper()
	n := &network{TB: t}
	var near [2]port.Port
	for i := range near {
		a, b := port.Pair(port.MemConfig{Queue: queue, MACs: [2][6]byte{cardMAC[i], {2, 0, 0, 0, 3, byte(i)}}})
		near[i], n.near[i], n.far[i] = &watched{a, n, oracle.Wire(i)}, a, b
	}
	if cfg.geometry == (emu.Geometry{}) {
		cfg.geometry = small()
	}
	c, err := emu.New(emu.Config{Geometry: cfg.geometry, Client: near[0], Server: near[1], Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	n.card = c
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	n.begin(cfg)
	return n
}

// queue is how many frames each wire's ends hold.
const queue = 512

// begin connects new hosts to a card at its reset values, with nothing on the wires.
func (n *network) begin(cfg config) {
	n.Helper()
	n.now, n.record = 0, nil
	n.oracle = oracle.New(oracle.Config{Listeners: []netip.AddrPort{vip}, Altered: cfg.altered, HeadBytes: cfg.headBytes})
	cfg.client.MAC, cfg.client.NextHop, cfg.client.Addresses = clientMAC, cardMAC[0], []netip.Prefix{netip.PrefixFrom(clientAddress, 32)}
	cfg.server.MAC, cfg.server.NextHop, cfg.server.Addresses = serverMAC, cardMAC[1], []netip.Prefix{netip.PrefixFrom(backend.Addr(), 32)}
	n.client, n.server = tcppeer.NewPort(cardMAC[0], queue, cfg.client), tcppeer.NewPort(cardMAC[1], queue, cfg.server)
	n.server.Host.Listen(backend.Port())
	for i := range n.far {
		n.near[i].Drain(func([]byte, frame.Offload) {})
		n.far[i].Drain(func([]byte, frame.Offload) {})
		n.impair(i, cfg.wires[i], cfg.seed)
	}
	n.serve(cfg.promise)
}

// impair gives a wire its behaviour. Nothing may be on its way.
func (n *network) impair(wire int, how port.Impairment, seed uint64) {
	host := [2]port.Port{n.client, n.server}[wire]
	n.links[wire] = port.NewLink(port.LinkConfig{A: host, B: n.far[wire], AB: how, BA: how, Seed: seed + uint64(wire)})
}

func (n *network) load(r regs.Reg) uint32 {
	n.Helper()
	var p [4]byte
	if err := n.card.ReadRegion(device.Bar0, uint64(r), p[:]); err != nil {
		n.Fatal(err)
	}
	return binary.LittleEndian.Uint32(p[:])
}

func (n *network) store(r regs.Reg, v uint32) {
	n.Helper()
	if err := n.card.WriteRegion(device.Bar0, uint64(r), binary.LittleEndian.AppendUint32(nil, v)); err != nil {
		n.Fatal(err)
	}
}

// serve configures the service as a host would: one VIP, one listener, one server.
func (n *network) serve(promise regs.ServiceEntry) {
	n.Helper()
	for i := range 2 {
		n.store(regs.PortControl.At(i, regs.PortStride), regs.PortControlEnableMask)
		n.store(regs.PortMacLo.At(i, regs.PortStride), binary.BigEndian.Uint32(cardMAC[i][2:]))
		n.store(regs.PortMacHi.At(i, regs.PortStride), uint32(binary.BigEndian.Uint16(cardMAC[i][:])))
	}
	n.store(regs.AmuControl, regs.AmuControlEnableMask)
	promise.ControlValid, promise.ControlHasDefault = 1, 1
	if promise.PromiseMssIpv4 == 0 {
		promise.PromiseMssIpv4, promise.PromiseMssIpv6 = 1460, 1440
	}
	for _, x := range []struct {
		memory int
		entry  interface{ Encode([]uint32) }
	}{
		{regs.MemVip, &regs.AddressEntry{ControlValid: 1, ControlKind: regs.KindIpv4, Address: number(vip.Addr())}},
		{regs.MemListener, &regs.ListenerEntry{ControlValid: 1, ControlProtocol: 6, ControlPort: uint32(vip.Port())}},
		{regs.MemService, &promise},
		{regs.MemGroup, &regs.GroupEntry{ControlValid: 1}},
		{regs.MemGroupState, &regs.GroupStateEntry{SelectorCountA: 1}},
		{regs.MemSlot, &regs.SlotEntry{SlotValid: 1}},
		{regs.MemServer, &regs.ServerEntry{ControlValid: 1, ControlKind: regs.KindIpv4, ControlProtocol: 6, ControlPort: uint32(backend.Port()), Address: number(backend.Addr())}},
		{regs.MemNextHop, &regs.NextHopEntry{ControlValid: 1, ControlResolved: 1, ControlPort: 1, MacLo: binary.BigEndian.Uint32(serverMAC[2:]), MacHiAddress: uint32(binary.BigEndian.Uint16(serverMAC[:]))}},
	} {
		m := &regs.Memories[x.memory]
		words := make([]uint32, m.EntryBytes/4)
		x.entry.Encode(words)
		p := make([]byte, m.EntryBytes)
		for i, w := range words {
			binary.LittleEndian.PutUint32(p[4*i:], w)
		}
		if err := n.card.WriteRegion(device.Bar2, m.At(0, 0), p); err != nil {
			n.Fatal(err)
		}
	}
}

// number is an IPv4 address as the card stores it.
func number(a netip.Addr) [4]uint32 {
	b := a.As4()
	return [4]uint32{binary.BigEndian.Uint32(b[:])}
}

// tick is how long a round takes in which frames move, patience how far time jumps where nothing is due: the card's scan
// wants to be asked now and then.
const (
	tick     = 10 * time.Microsecond
	patience = 20 * time.Millisecond
)

// step lets everything happen that is due and advances the time.
func (n *network) step() {
	n.client.Advance(n.now)
	n.server.Advance(n.now)
	moved, next := n.moved, n.now+patience
	sooner := func(at time.Duration) {
		if at >= 0 && at < next {
			next = at
		}
	}
	for _, l := range n.links {
		sooner(l.Step(n.now))
	}
	worked := n.card.Step(n.now)
	for _, l := range n.links {
		sooner(l.Step(n.now))
	}
	for _, h := range []*tcppeer.Port{n.client, n.server} {
		if at, ok := h.Host.Deadline(); ok {
			sooner(at)
		}
	}
	if worked || n.moved != moved {
		next = n.now + tick
	}
	n.now = max(next, n.now+tick)
}

// until steps until done says so.
func (n *network) until(what string, limit time.Duration, done func() bool) {
	n.Helper()
	for end := n.now + limit; !done(); n.step() {
		if n.now > end {
			n.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// sound ends the watching and reports what was found.
func (n *network) sound() oracle.Summary {
	n.Helper()
	for i, v := range n.oracle.Finish() {
		if i == 10 {
			n.Errorf("and %d more", n.oracle.Summary().Violations-10)
			break
		}
		n.Error(v)
	}
	return n.oracle.Summary()
}

// flow is one direction of a connection: so many bytes of a pattern, then a FIN.
type flow struct {
	want, sent, got int64
	head            string // what the first bytes are; the rest is the pattern
	ended           bool   // the receiver has the FIN
	bad             string
}

const chunk = 64 << 10

var pattern = func() (b [chunk + 251]byte) {
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}()

// at returns n bytes of the flow, n at most chunk.
func (f *flow) at(off int64, n int) []byte {
	if h := int64(len(f.head)); off < h {
		return []byte(f.head[off:min(off+int64(n), h)])
	}
	from := off % 251
	return pattern[from : from+int64(n)]
}

// push writes what a sender has room for.
func (f *flow) push(c *tcppeer.Conn) {
	for c.Queued() < 4*chunk && f.sent < f.want {
		p := f.at(f.sent, int(min(f.want-f.sent, chunk)))
		f.sent += int64(len(p))
		c.Write(p)
	}
}

// pull checks what has come.
func (f *flow) pull(c *tcppeer.Conn) {
	for b := c.Bytes(); len(b) > 0; {
		want := f.at(f.got, min(len(b), chunk))
		if string(b[:len(want)]) != string(want) && f.bad == "" {
			f.bad = fmt.Sprintf("bytes %d to %d are others", f.got, f.got+int64(len(want)))
		}
		f.got += int64(len(want))
		b = b[len(want):]
	}
	c.Discard(len(c.Bytes()))
}

// transfer is a connection that carries a request and bytes both ways.
type transfer struct {
	n            *network
	up, down     flow
	conns        [2]*tcppeer.Conn
	ends         [2]tcppeer.Event
	serverCloses bool // first, where the client waits for its FIN
	clientCloses bool // first, where the server waits
	hold         bool // no end closes yet
}

const request = "POST /photos/cat.jpg HTTP/1.1\r\nHost: img.example\r\n\r\n"

// newTransfer makes both ends' behaviour; its handlers are for the hosts.
func newTransfer(up, down int64) *transfer {
	return &transfer{up: flow{want: up + int64(len(request)), head: request}, down: flow{want: down}}
}

func (x *transfer) handle(end int) func(c *tcppeer.Conn, e tcppeer.Event) {
	out, in := &x.up, &x.down
	if end == 1 {
		out, in = in, out
	}
	return func(c *tcppeer.Conn, e tcppeer.Event) {
		switch e {
		case tcppeer.Established:
			x.conns[end] = c
			out.push(c)
		case tcppeer.Data:
			in.pull(c)
		case tcppeer.PeerClosed:
			in.ended = true
		case tcppeer.Closed, tcppeer.Reset, tcppeer.TimedOut:
			x.ends[end] = e
			x.conns[end] = nil
		}
		x.pump(end)
	}
}

// pump writes what there is and closes where it is time to.
func (x *transfer) pump(end int) {
	c, out, in, first := x.conns[end], &x.up, &x.down, x.clientCloses
	if end == 1 {
		out, in, first = in, out, x.serverCloses
	}
	if c == nil {
		return
	}
	waits := (x.clientCloses || x.serverCloses) && !first // this end sends its data after the other's FIN
	if waits && end == 1 && !in.ended {
		return
	}
	out.push(c)
	if !x.hold && out.sent == out.want && c.State() != tcppeer.SynRcvd && (!waits || in.ended) {
		c.CloseWrite()
	}
}

func (x *transfer) done() bool {
	x.pump(0)
	x.pump(1)
	return x.ends[0] != 0 && x.ends[1] != 0
}

// check compares what came with what was sent.
func (x *transfer) check(t testing.TB) {
	t.Helper()
	for _, f := range []struct {
		name string
		flow
	}{{"upload", x.up}, {"download", x.down}} {
		if f.got != f.want || f.bad != "" || !f.ended {
			t.Errorf("%s: %d bytes of %d came, end %v; %s", f.name, f.got, f.want, f.ended, f.bad)
		}
	}
	if x.ends != [2]tcppeer.Event{tcppeer.Closed, tcppeer.Closed} {
		t.Errorf("the ends ended with events %d, want twice %d", x.ends, tcppeer.Closed)
	}
}
