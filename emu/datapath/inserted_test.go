package datapath

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// An altering host has a client's request altered on its way: a card between two hosts, and what the runtime does for the
// requests that the card leaves to it.
type altering struct {
	*bench
	w        world
	peers    [2]*tcppeer.Host
	queue    [2][][]byte           // frames on their way to the card, by port
	drop     func(s tcp) bool      // frames of the server leg that get lost; nil: none
	bad      func() bool           // says which frames of either leg get lost; nil: none
	alter    func(h []byte) []byte // what the server is sent in place of what the client sent
	late     bool                  // the host answers once a millisecond
	stream   []byte                // what the server is owed
	gathered []byte
	takes    int
	asked    int    // times the host was asked for the rest
	edge     uint32 // right edge of the client's window
	acked    uint32 // by the card
	hasEdge  bool
	limit    uint32 // right edge of the server's window
	armed    bool
	scale    [2]uint32 // shifts of the windows that the client and the card see
	slack    int32     // how far a right edge may be off: one unit of the scale
}

const stubAt = 12 << 10 // below the end of the host's memory

func newAltering(t *testing.T, w world, promise regs.ServiceEntry, peer tcppeer.Config) *altering {
	t.Helper()
	x := &altering{bench: newBench(t, smallGeometry()), w: w, alter: slices.Clone[[]byte]}
	x.serve(w, 0, promise)
	for bank := range 2 { // nobody but the host knows where requests go
		x.m.Service[bank][regs.ServiceControl] &^= regs.ServiceControlHasDefaultMask
	}
	x.m.Dirty = ^uint32(0)
	x.ram = append(x.attach(), make([]byte, 2*stubAt)...)
	x.c.host.SetHost(x.ram)
	x.now = time.Second
	for side, a := range []netip.Addr{w.client, w.server} {
		cfg := peer
		cfg.Addresses, cfg.TimeWait = []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, -1
		cfg.MAC, cfg.NextHop = [][6]byte{clientMAC, serverMAC}[side], portMAC[side]
		cfg.Send = func(b []byte) { x.queue[side] = append(x.queue[side], slices.Clone(b)) }
		x.peers[side] = tcppeer.New(cfg)
	}
	x.r.Set(regs.TimerQuarantine, 10_000) // a FIN may be sent again late
	x.peers[1].Listen(8080)
	if promise.PromiseWscaleOn != 0 {
		x.scale = [2]uint32{promise.PromiseWscale, uint32(peer.WindowScale)}
		x.slack = 1 << max(x.scale[0], x.scale[1])
	}
	return x
}

// collect hands what the card sends to the hosts.
func (x *altering) collect() {
	var frames [2][][]byte
	for port := range x.out.Ports {
		for _, f := range x.out.Ports[port] {
			frames[port] = append(frames[port], slices.Clone(f.Bytes()))
		}
	}
	x.out.Reset()
	for port, raws := range frames {
		for _, raw := range raws {
			s := parseFrame(x.t, raw)
			if port == 0 {
				x.toClient(&s)
			}
			if port == 1 && x.drop != nil && x.drop(s) || x.bad != nil && x.bad() {
				continue
			}
			x.peers[port].Receive(x.now, raw)
		}
	}
}

// toClient holds the windows that the client is given to what they may be: the right edge never moves back, and after the
// splice it is within the server's. Where that takes less than the client was promised before, it is the server's.
func (x *altering) toClient(s *tcp) {
	if s.flags&flagRST != 0 {
		return
	}
	edge := s.ack + uint32(s.window)
	if s.flags&flagSYN == 0 {
		edge = s.ack + uint32(s.window)<<x.scale[0]
	}
	if x.armed && s.window == 0 && int32(s.ack-x.limit) > 0 {
		x.edge, x.acked = edge, s.ack
		return
	}
	less := x.armed && int32(x.limit-edge) <= x.slack
	if back := int32(x.edge - edge); x.hasEdge && back > x.slack && !less {
		x.t.Errorf("the client's right edge moves back by %d bytes: %v", back, *s)
	}
	if over := int32(edge - x.limit); x.armed && over > x.slack {
		x.t.Errorf("the client is promised %d bytes beyond the server's window: %v", over, *s)
	}
	x.edge, x.acked, x.hasEdge = edge, s.ack, true
}

// toCard is a frame of a host's.
func (x *altering) toCard(port int, raw []byte) {
	if x.bad != nil && x.bad() {
		return
	}
	if port == 1 {
		s := parseFrame(x.t, raw)
		if x.drop != nil && x.drop(s) {
			return
		}
		edge := s.ack + uint32(s.window)
		if s.flags&flagSYN == 0 {
			edge = s.ack + uint32(s.window)<<x.scale[1]
		}
		if !x.armed || int32(edge-x.limit) > 0 {
			x.limit, x.armed = edge, true
		}
	}
	if s := parseFrame(x.t, raw); port == 0 && x.bad == nil && s.flags&flagRST == 0 && s.end() != s.seq && x.hasEdge && int32(x.acked-s.end()) >= 0 {
		x.t.Errorf("the client sends again what it was acknowledged: %v", s)
	}
	f := &x.buf[0]
	f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	x.out.Reset()
	x.c.Advance(x.now)
	x.c.Process(port, x.buf[:1], x.out)
	x.collect()
	x.check(x.t)
	if !x.late {
		x.host()
	}
}

// host answers what the card asks.
func (x *altering) host() {
	for _, e := range x.exceptions() {
		switch e.ReasonReason {
		case reasonNoRule:
			x.connect(&e)
		case reasonHeadLarge, reasonHeadMore:
			x.gather(&e)
		case reasonHeldMore:
			x.asked++
			x.feed(&e)
		default:
			x.t.Errorf("exception %+v", e.ExceptionEntry)
		}
	}
}

// ask gives a command about a page, with data.
func (x *altering) ask(e *given, cmd regs.CommandEntry, data []byte) regs.CompletionEntry {
	at := len(x.ram) - stubAt
	copy(x.ram[at:], data)
	cmd.HandleN, cmd.HandleGeneration, cmd.IovaLo = e.HandleN, e.HandleGeneration, uint32(at)
	if data != nil {
		cmd.Length = uint32(len(data))
	}
	x.out.Reset()
	done := x.command(cmd)
	x.collect()
	x.check(x.t)
	return done
}

func (x *altering) connect(e *given) {
	done := x.ask(e, regs.CommandEntry{ControlType: regs.CommandControlTypeTake, FlagsKeep: 1, Length: regs.HeadBytes}, nil)
	if done.ControlStatus != statusOK {
		x.t.Fatalf("take: status %d", done.ControlStatus)
	}
	head := slices.Clone(x.ram[len(x.ram)-stubAt:][:done.Length])
	x.stream = x.alter(head)
	done = x.ask(e, regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, FlagsGroup: 1, FlagsReplace: 1,
		Value: uint32(len(x.stream) - len(head))}, x.stream[:min(len(x.stream), regs.HeadBytes)])
	if done.ControlStatus != statusOK || done.Result[0] != 0 {
		x.t.Fatalf("connect: status %d, server %d", done.ControlStatus, done.Result[0])
	}
}

// gather collects a request that outgrows the head buffer.
func (x *altering) gather(e *given) {
	done := x.ask(e, regs.CommandEntry{ControlType: regs.CommandControlTypeTake, Length: regs.HeadBytes}, nil)
	if done.ControlStatus != statusOK {
		x.t.Fatalf("take: status %d", done.ControlStatus)
	}
	x.gathered = append(x.gathered, x.ram[len(x.ram)-stubAt:][:done.Length]...)
	if w := x.c.page(e.HandleN); done.Result[0]-w[regs.PageClientIsn]-1-regs.PageClientLinkFinClient(w[regs.PageClientLink]) != uint32(len(x.gathered)) {
		x.t.Errorf("take: H is %#x after %d bytes from %#x", done.Result[0], len(x.gathered), w[regs.PageClientIsn])
	}
	if x.takes++; !strings.Contains(string(x.gathered), "\r\n\r\n") {
		return
	}
	x.stream = x.alter(x.gathered)
	cmd := regs.CommandEntry{ControlType: regs.CommandControlTypeConnect, FlagsGroup: 1, Value: uint32(len(x.stream) - len(x.gathered))}
	if done := x.ask(e, cmd, nil); done.ControlStatus != statusArgument { // the buffer is empty
		x.t.Errorf("connect without the head: status %d, want argument", done.ControlStatus)
	}
	cmd.FlagsReplace = 1
	if done := x.ask(e, cmd, x.stream[:min(len(x.stream), regs.HeadBytes)]); done.ControlStatus != statusOK {
		x.t.Fatalf("connect: status %d", done.ControlStatus)
	}
}

func (x *altering) feed(e *given) {
	w := x.c.page(e.HandleN)
	at := (w[regs.PageAAckServer] - w[regs.PageAIsn] - 1) / regs.HeadBytes * regs.HeadBytes
	// A second answer to a question finds nothing to do.
	for i, want := range []uint32{statusOK, statusState} {
		rest := x.stream[at:]
		if done := x.ask(e, regs.CommandEntry{ControlType: regs.CommandControlTypeFeed}, rest[:min(len(rest), regs.HeadBytes)]); done.ControlStatus != want {
			x.t.Errorf("feed %d: status %d, want %d", i, done.ControlStatus, want)
		}
	}
}

// run lets time pass until a condition holds.
func (x *altering) until(what string, most time.Duration, done func() bool) {
	x.t.Helper()
	for end := x.now + most; !done(); x.now += time.Millisecond {
		if x.now >= end {
			x.t.Fatalf("%s: not within %v", what, most)
		}
		for len(x.queue[0])+len(x.queue[1]) > 0 { // the client is nearer
			port := 0
			if len(x.queue[0]) == 0 {
				port = 1
			}
			raw := x.queue[port][0]
			x.queue[port] = x.queue[port][1:]
			x.toCard(port, raw)
		}
		x.out.Reset()
		x.c.Advance(x.now)
		for !x.c.Scan(x.out) {
		}
		x.collect()
		x.host()
		for _, p := range x.peers {
			p.Tick(x.now)
		}
	}
}

// An insertion is a connection whose request the host alters, and one frame of the server leg that gets lost.
type insertion struct {
	name     string
	w        world
	rich     bool // timestamps, SACK and window scale on both legs
	head     int  // bytes of the request
	body     int  // behind it at once: held as well where it comes before the splice
	late     bool // the host takes its time
	upload   int  // sent when the server has answered
	alter    func(h []byte) []byte
	toServer bool
	n        int // which frame of its direction is lost
	seed     uint64
	loss     int // percent of all frames of both legs that get lost as well
}

// proxy is a header as the PROXY protocol has it, version 2, of a family.
func proxy(w world) []byte {
	b := []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c")
	if w.client.Is6() {
		b[13], b[15] = 0x21, 36
	}
	b = append(append(b, w.client.AsSlice()...), w.vip.AsSlice()...)
	return append(b, 0x9c, 0x41, 0, 80)
}

func prefix(p []byte) func([]byte) []byte {
	return func(h []byte) []byte { return append(slices.Clone(p), h...) }
}

// exchange runs the connection and returns how many frames the direction had, and what the lost one was.
func (y *insertion) exchange(t *testing.T) (frames int, lost string) {
	t.Helper()
	peer, promise := tcppeer.Config{}, regs.ServiceEntry{}
	if y.rich {
		peer = tcppeer.Config{WindowScale: 2, SACK: true, Timestamps: true}
		promise = regs.ServiceEntry{PromiseWscaleOn: 1, PromiseWscale: 1, PromiseSack: 1, PromiseTimestamps: 1}
	}
	request := "GET /" + strings.Repeat("x", y.head-len("GET / HTTP/1.1\r\nHost: x\r\n\r\n")) + " HTTP/1.1\r\nHost: x\r\n\r\n"
	body, upload := strings.Repeat("body.", y.body/5), strings.Repeat("upload", y.upload/6)
	want := string(y.alter([]byte(request))) + body + upload
	first := len(want) - len(upload)
	var received, got string
	answered, closed := false, [2]bool{}
	var ends [2]*tcppeer.Conn
	handle := func(side int) func(c *tcppeer.Conn, e tcppeer.Event) {
		return func(c *tcppeer.Conn, e tcppeer.Event) {
			text := string(c.Bytes())
			c.Discard(len(c.Bytes()))
			if e == tcppeer.Closed {
				closed[side] = true
			}
			if e == tcppeer.Reset || e == tcppeer.TimedOut {
				if side == 0 || !closed[0] { // else its last FIN was not acknowledged, and the client knows nothing of it any more
					t.Errorf("the connection of side %d ends by event %d", side, e)
				}
				closed[side] = true
			}
			if side == 1 {
				ends[1] = c
				if received += text; !answered && len(received) >= first {
					answered = true
					c.Write([]byte("answer"))
				}
				if e == tcppeer.PeerClosed {
					c.Write([]byte(" and farewell"))
					c.CloseWrite()
				}
				return
			}
			switch got += text; {
			case e == tcppeer.Established:
				c.Write([]byte(request))
				c.Write([]byte(body))
				if upload == "" {
					c.CloseWrite()
				}
			case e == tcppeer.Data && got == "answer" && upload != "":
				c.Write([]byte(upload))
				c.CloseWrite()
			}
		}
	}
	peerOf := [2]func(*tcppeer.Conn, tcppeer.Event){handle(0), handle(1)}
	peer.Handle = func(c *tcppeer.Conn, e tcppeer.Event) {
		if c.Passive() {
			peerOf[1](c, e)
			return
		}
		peerOf[0](c, e)
	}
	x := newAltering(t, y.w, promise, peer)
	x.alter, x.late = y.alter, y.late
	if y.loss > 0 {
		r := rand.New(rand.NewPCG(y.seed, 1))
		x.bad = func() bool { return r.IntN(100) < y.loss }
	}
	x.drop = func(s tcp) bool {
		if (s.to == y.w.server) != y.toServer {
			return false
		}
		if frames++; frames-1 != y.n {
			return false
		}
		lost = fmt.Sprintf("%d bytes, flags %#02x", len(s.payload), s.flags)
		return true
	}
	var err error
	if ends[0], err = x.peers[0].Dial(x.now, netip.AddrPortFrom(y.w.client, 0), netip.AddrPortFrom(y.w.vip, 80)); err != nil {
		t.Fatal(err)
	}
	x.until("end of the connection", 20*time.Second+time.Duration(y.loss)*10*time.Second, func() bool { return closed[0] && closed[1] })
	if received != want {
		t.Errorf("the server gets %d bytes, want %d", len(received), len(want))
	}
	if got != "answer and farewell" {
		t.Errorf("the client gets %q", got)
	}
	// What the client sent before the splice was acknowledged by the card, so nothing of it is sent again.
	if n := x.peers[0].Stats().Retransmitted; n != 0 && y.loss == 0 && upload == "" && body == "" {
		t.Errorf("the client sends %d segments again", n)
	}
	rewritten := uint64(1)
	if y.head > regs.HeadBytes && string(x.stream) == string(x.gathered) {
		rewritten = 0
	}
	if gathered := x.r.Get64(regs.ConnectionGathered); (gathered == 0) != (y.head <= regs.HeadBytes) || x.takes > int(gathered)+1 {
		t.Errorf("gathered: got %d with %d bytes of head and %d takes", gathered, y.head, x.takes)
	}
	ended := uint64(1)
	if y.loss > 0 { // the last acknowledgement may be lost, and the client does not wait for it to be asked for again
		ended = x.r.Get64(regs.ConnectionClosedFin)
	}
	parts := max((len(x.stream)+regs.HeadBytes-1)/regs.HeadBytes, 1)
	for _, r := range []struct {
		name      string
		got, want uint64
	}{
		{"closed_fin", x.r.Get64(regs.ConnectionClosedFin), ended}, {"rewritten", x.r.Get64(regs.ConnectionRewritten), rewritten},
		{"fed", x.r.Get64(regs.ConnectionFed), uint64(parts - 1)}, {"free heads", uint64(x.r.Get(regs.HeadFree)), uint64(x.m.Geometry.Heads)},
	} {
		if r.got != r.want {
			t.Errorf("%s: got %d, want %d", r.name, r.got, r.want)
		}
	}
	if (x.asked == 0) != (parts == 1) {
		t.Errorf("asked %d times for the rest of %d parts", x.asked, parts)
	}
	return frames, lost
}

// TestInsertedFrameLost loses each frame of the server leg once, one at a time, of connections whose request the host
// alters: our SYN, each segment of the inserted and of the held bytes and the FIN with them, what the server answers, and
// what follows. The server gets what the host made of the request and the client's bytes behind it; the client sends
// nothing again that it was acknowledged, and is never told to send what there is no room for.
func TestInsertedFrameLost(t *testing.T) {
	long := []byte(strings.Repeat("inserted bytes. ", 1300)) // 20,800
	for _, y := range []insertion{
		{name: "PROXY", w: world4, head: 5000, alter: prefix(proxy(world4))},
		{name: "PROXY", w: world6, head: 5000, alter: prefix(proxy(world6))},
		{name: "PROXY", w: world4, rich: true, head: 5000, alter: prefix(proxy(world4))},
		{name: "PROXY", w: world6, rich: true, head: 3000, upload: 12000, alter: prefix(proxy(world6))},
		{name: "PROXY and body", w: world4, head: 100, body: 4000, alter: prefix(proxy(world4))},
		{name: "full buffer", w: world4, head: 8192, alter: prefix(nil)},
		{name: "one byte too many", w: world4, head: 8192, alter: prefix([]byte("x"))},
		{name: "two buffers", w: world4, head: 8192, alter: prefix(long[:8192])},
		{name: "large", w: world4, head: 5000, alter: prefix(long)},
		{name: "large", w: world6, rich: true, head: 5000, upload: 12000, alter: prefix(long)},
		{name: "large and body", w: world4, head: 5000, body: 9000, alter: prefix(long)},
		{name: "gathered", w: world4, head: 20000, alter: prefix(nil)},
		{name: "gathered", w: world6, rich: true, late: true, head: 20000, alter: prefix(proxy(world6))},
		{name: "gathered and body", w: world4, late: true, head: 9000, body: 5000, alter: prefix(proxy(world4))},
		{name: "gathered, the largest", w: world4, head: 65536, alter: prefix(long[:8000])},
		{name: "less", w: world4, rich: true, head: 5000, alter: func(h []byte) []byte { return h[3000:] }},
	} {
		for _, y.toServer = range []bool{true, false} {
			if testing.Short() && (y.w.client.Is6() && !y.rich || y.name == "two buffers") {
				continue
			}
			seen := ""
			for y.n = 0; ; y.n++ {
				name := fmt.Sprintf("%s, %v, rich %v, %d bytes of body, %d of upload, to the server %v, frame %d", y.name, y.w.client, y.rich, y.body, y.upload, y.toServer, y.n)
				frames, lost := 0, ""
				if !t.Run(name, func(t *testing.T) { frames, lost = y.exchange(t) }) {
					t.Logf("%s was lost: %s", name, lost)
				}
				if seen += lost + "\n"; frames <= y.n {
					break
				}
			}
			if y.toServer && y.n < 3 {
				t.Errorf("%s: %d frames were lost in turn: %s", y.name, y.n, seen)
			}
		}
	}
}

// TestInsertedUnderLoss alters requests of any length to any length, over legs that lose frames anywhere.
func TestInsertedUnderLoss(t *testing.T) {
	plans := 150
	if testing.Short() {
		plans = 20
	}
	for seed := range uint64(plans) {
		r := rand.New(rand.NewPCG(seed, 0))
		y := insertion{w: []world{world4, world6}[r.IntN(2)], rich: r.IntN(2) == 0, late: r.IntN(3) == 0, n: -1, seed: seed, loss: 1 + r.IntN(8)}
		y.head = 40 + r.IntN([]int{200, 9000, 65000}[r.IntN(3)])
		if r.IntN(2) == 0 {
			y.body = 5 * r.IntN(2000)
		}
		if r.IntN(2) == 0 {
			y.upload = 6 * r.IntN(4000)
		}
		inserted := []byte(strings.Repeat("0123456789abcdef", 1+r.IntN([]int{4, 500, 1800}[r.IntN(3)])))
		if y.alter = prefix(inserted); r.IntN(4) == 0 {
			cut := r.IntN(y.head)
			y.alter = func(h []byte) []byte { return h[min(cut, len(h)):] }
		}
		if len(inserted)+y.head > maxHeldStream-regs.HeadBytes {
			y.body, y.alter = 0, prefix(nil)
		}
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { y.exchange(t) }) {
			t.Logf("%+v", y)
		}
	}
}
