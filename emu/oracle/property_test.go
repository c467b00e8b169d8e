package oracle_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"splicenic/emu/frame"
	"splicenic/emu/oracle"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// verb is what a step of a property test does.
type verb uint8

const (
	nothing verb = iota
	dial
	clientSends
	serverSends
	clientFIN
	serverFIN
	clientRST
	serverRST
	clientAlive
	serverAlive
	clientStops // reading, so that its window closes
	serverStops
	clientReads
	serverReads
	dropToServer // the next frames on a wire, in a direction
	dropFromServer
	dropToClient
	dropFromClient
	strayToCardFromClient
	strayToCardFromServer
	pass // time
	verbs
)

var verbNames = [verbs]string{"nothing", "dial", "client sends", "server sends", "client FIN", "server FIN", "client RST", "server RST", "client alive", "server alive",
	"client stops", "server stops", "client reads", "server reads", "drop to server", "drop from server", "drop to client", "drop from client",
	"stray from client", "stray from server", "pass"}

// op is one step: a verb, the connection it is about, and a number that says how much.
type op struct {
	verb verb
	conn int
	n    uint32
}

func (o op) String() string {
	return fmt.Sprintf("{%d, %d, %#x /* %s */}", o.verb, o.conn, o.n, verbNames[o.verb])
}

// plan is a whole run.
type plan struct {
	client, server, promise peers
	loss, duplicate, late   int // percent
	seed                    uint64
	ops                     []op
}

// String writes the plan as Go, for the list of fixed ones.
func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan{peers{%d, %v, %v}, peers{%d, %v, %v}, peers{%d, %v, %v}, %d, %d, %d, %d, []op{\n", p.client.scale, p.client.sack, p.client.timestamps,
		p.server.scale, p.server.sack, p.server.timestamps, p.promise.scale, p.promise.sack, p.promise.timestamps, p.loss, p.duplicate, p.late, p.seed)
	for _, o := range p.ops {
		if o.verb != nothing {
			fmt.Fprintf(&b, "\t%v,\n", o)
		}
	}
	return b.String() + "}}"
}

const propertyConns = 3

// life is one client port's connection in a run.
type life struct {
	up, down flow
	conns    [2]*tcppeer.Conn
	stopped  [2]bool
	tainted  bool // a stray segment may have been taken for an end's
}

// run carries out plans on one card.
type run struct {
	*network
	lives [propertyConns]life
	sum   oracle.Summary // over all plans
	drops [2][2]int      // by wire and direction: from the host, to the host
}

// newRun makes a card with fewer pages and heads than a run can ask for.
func newRun(t testing.TB) *run {
	g := small()
	g.Pages, g.Heads = 16, 2
	return &run{network: newNetwork(t, config{geometry: g})}
}

// fataler is what a run reports to: a test, or rapid's.
type fataler interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// do carries out a plan from the card's reset on, and checks what must hold.
func (r *run) do(t fataler, p plan) {
	t.Helper()
	if err := r.card.Reset(); err != nil {
		t.Fatalf("reset: %v", err)
	}
	how := port.Impairment{Loss: float64(p.loss) / 100, Duplicate: float64(p.duplicate) / 100, Reorder: float64(p.late) / 100, Delay: time.Millisecond}
	cfg := config{promise: p.promise.promise(), wires: [2]port.Impairment{how, how}, seed: p.seed}
	p.client.set(&cfg.client)
	p.server.set(&cfg.server)
	cfg.client.Handle, cfg.server.Handle = r.handle(0), r.handle(1)
	cfg.client.Seed, cfg.server.Seed = p.seed, p.seed+1
	r.lives, r.drops = [propertyConns]life{}, [2][2]int{}
	r.begin(cfg)
	r.store(regs.TimerIdle, 100_000) // ticks; otherwise the end of a run takes hours
	r.dropping(how, p.seed)
	for _, o := range p.ops {
		r.step1(o)
	}
	r.settle(t)
	for _, v := range r.oracle.Finish() {
		t.Errorf("%v", v)
	}
	s := r.oracle.Summary()
	r.sum.Spliced, r.sum.BytesUp, r.sum.BytesDown = r.sum.Spliced+s.Spliced, r.sum.BytesUp+s.BytesUp, r.sum.BytesDown+s.BytesDown
	for i := range r.lives {
		l := &r.lives[i]
		if l.tainted {
			continue
		}
		for _, f := range []*flow{&l.up, &l.down} {
			if f.bad != "" {
				t.Errorf("connection %d: %s", i, f.bad)
			}
		}
	}
	r.books(t)
}

// dropping puts the drop hooks on both wires.
func (r *run) dropping(how port.Impairment, seed uint64) {
	for wire := range r.links {
		ways := [2]port.Impairment{how, how}
		for way := range ways {
			ways[way].Drop = func(uint64, []byte) bool {
				if r.drops[wire][way] > 0 {
					r.drops[wire][way]--
					return true
				}
				return false
			}
		}
		host := [2]port.Port{r.client, r.server}[wire]
		r.links[wire] = port.NewLink(port.LinkConfig{A: host, B: r.far[wire], AB: ways[0], BA: ways[1], Seed: seed + uint64(wire)})
	}
}

func clientPort(i int) uint16 { return 40_000 + uint16(i) }

// of finds whose a connection of a host is.
func (r *run) of(c *tcppeer.Conn) *life {
	at := c.Local().Port()
	if c.Passive() {
		at = c.Remote().Port()
	}
	if i := int(at) - 40_000; i >= 0 && i < propertyConns {
		return &r.lives[i]
	}
	return &life{}
}

func (r *run) handle(end int) func(c *tcppeer.Conn, e tcppeer.Event) {
	return func(c *tcppeer.Conn, e tcppeer.Event) {
		l := r.of(c)
		switch e {
		case tcppeer.Established:
			l.conns[end] = c
			if end == 1 {
				l.down = flow{}
				l.up.got = 0
			}
		case tcppeer.Data:
			if !l.stopped[end] {
				r.read(l, end, c)
			}
		case tcppeer.Closed, tcppeer.Reset, tcppeer.TimedOut:
			if l.conns[end] == c {
				l.conns[end] = nil
			}
		}
	}
}

func (r *run) read(l *life, end int, c *tcppeer.Conn) {
	if in := []*flow{&l.down, &l.up}[end]; l.conns[end] == c {
		in.pull(c)
		return
	}
	c.Discard(len(c.Bytes()))
}

// step1 carries out one step and lets the frames of a moment move.
func (r *run) step1(o op) {
	l := &r.lives[o.conn]
	end := 0
	switch o.verb {
	case serverSends, serverFIN, serverRST, serverAlive, serverStops, serverReads:
		end = 1
	}
	c := l.conns[end]
	switch o.verb {
	case nothing:
		return
	case dial:
		if l.conns[0] == nil {
			if c, err := r.client.Host.Dial(r.now, netip.AddrPortFrom(clientAddress, clientPort(o.conn)), vip); err == nil {
				*l = life{up: flow{head: request}}
				l.conns[0] = c
			}
		}
	case clientSends, serverSends:
		if c != nil {
			out := []*flow{&l.up, &l.down}[end]
			for n := int64(o.n % 20_000); n > 0; {
				b := out.at(out.sent, int(n))
				c.Write(b)
				out.sent += int64(len(b))
				n -= int64(len(b))
			}
		}
	case clientFIN, serverFIN:
		if c != nil {
			c.CloseWrite()
		}
	case clientRST, serverRST:
		if c != nil {
			c.Abort()
			l.conns[end] = nil
		}
	case clientAlive, serverAlive:
		if c != nil {
			c.KeepAlive()
		}
	case clientStops, serverStops:
		l.stopped[end] = true
	case clientReads, serverReads:
		if l.stopped[end] = false; c != nil {
			r.read(l, end, c)
		}
	case dropToServer, dropFromServer, dropToClient, dropFromClient:
		k := int(o.verb - dropToServer)
		r.drops[1-k/2][1-k%2] = int(o.n % 4)
	case strayToCardFromClient, strayToCardFromServer:
		r.stray(o)
	case pass:
		r.let([]time.Duration{time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 20 * time.Second, 80 * time.Second}[o.n%6])
		return
	}
	r.let(time.Duration(o.n>>16%4) * time.Millisecond)
}

func (r *run) let(d time.Duration) {
	for end := r.now + d; ; {
		r.step()
		if r.now >= end {
			return
		}
	}
}

// stray sends the card a segment that no end sent: of any numbers, or of numbers near those of an end.
func (r *run) stray(o op) {
	l := &r.lives[o.conn]
	wire, from, to, mac := 0, netip.AddrPortFrom(clientAddress, clientPort(o.conn)), vip, clientMAC
	if o.verb == strayToCardFromServer {
		wire, from, to, mac = 1, backend, netip.AddrPortFrom(clientAddress, clientPort(o.conn)), serverMAC
	}
	seq, ack := o.n*0x9e3779b1, o.n*0x85ebca77
	length := 0
	if o.n&3 == 0 {
		length = int(o.n >> 8 % 4)
	}
	if c := l.conns[wire]; c != nil && o.n&0x80 != 0 {
		send, receive := c.Next()
		seq, ack = send+o.n>>24-128, receive+o.n>>16&0xff-128
		l.tainted = true
	}
	b := make([]byte, 54+length)
	copy(b, cardMAC[wire][:])
	copy(b[6:], mac[:])
	b[12], b[14], b[22], b[23] = 8, 0x45, 64, 6
	src, dst := from.Addr().As4(), to.Addr().As4()
	copy(b[26:], src[:])
	copy(b[30:], dst[:])
	binary.BigEndian.PutUint16(b[16:], uint16(40+length))
	binary.BigEndian.PutUint16(b[24:], ^frame.Fold(frame.Sum(b[14:34], 0)))
	t := b[34:]
	binary.BigEndian.PutUint16(t, from.Port())
	binary.BigEndian.PutUint16(t[2:], to.Port())
	binary.BigEndian.PutUint32(t[4:], seq)
	binary.BigEndian.PutUint32(t[8:], ack)
	t[12], t[13] = 5<<4, byte(o.n>>2&0x3f)
	binary.BigEndian.PutUint16(t[14:], uint16(o.n>>10))
	binary.BigEndian.PutUint16(t[16:], ^frame.Fold(frame.Sum(t, frame.Pseudo4(b[14:], 6, len(t)))))
	r.near[wire].Inject(b, frame.Offload{})
}

// settle ends everything and waits until the card has forgotten all of it, by time-out where no end is left.
func (r *run) settle(t fataler) {
	t.Helper()
	r.drops = [2][2]int{}
	for end := r.now + 10*time.Minute; r.now < end; r.step() {
		alone := true
		for _, h := range []*tcppeer.Host{r.client.Host, r.server.Host} {
			for ; h.Len() > 0; alone = false { // also what a late SYN has opened
				h.ConnAt(0).Abort()
			}
		}
		if !alone {
			continue
		}
		if r.load(regs.AmuLive)+r.load(regs.AmuQuarantined) == 0 {
			return
		}
		r.now += 100 * time.Millisecond // only time-outs are left
	}
	t.Errorf("%d pages live and %d in quarantine after ten minutes", r.load(regs.AmuLive), r.load(regs.AmuQuarantined))
}

func (r *run) load64(a regs.Reg) uint64 { return uint64(r.load(a)) | uint64(r.load(a+4))<<32 }

// books: pages, heads and CAM words are all back, and every frame is in one counter of what became of it.
func (r *run) books(t fataler) {
	t.Helper()
	for _, x := range []struct {
		reg  regs.Reg
		want uint32
	}{
		{regs.AmuFree, 16}, {regs.AmuLive, 0}, {regs.AmuQuarantined, 0}, {regs.HeadFree, 2},
	} {
		if got := r.load(x.reg); got != x.want {
			t.Errorf("%s = %d, want %d", x.reg.Name(), got, x.want)
		}
	}
	for i := range 2 {
		if free, all := r.load(regs.CamFree.At(i, regs.CamStride)), r.load([]regs.Reg{regs.GeometryCamClientWords, regs.GeometryCamServerWords}[i]); free != all {
			t.Errorf("CAM %d: %d words of %d free", i, free, all)
		}
		var became uint64
		for a := regs.ParserClassSyn; a <= regs.ParserDropOffload; a += 8 {
			became += r.load64(a.At(i, regs.ParserStride))
		}
		if got := r.load64(regs.PortRxFrames.At(i, regs.PortStride)); got != became {
			t.Errorf("port %d: %d frames received, %d counted by what became of them", i, got, became)
		}
	}
}

// drawPeers draws options of an end.
func drawPeers(t *rapid.T, name string) peers {
	b := rapid.IntRange(0, 7).Draw(t, name)
	return peers{scale: uint8(b & 1 * 7), sack: b&2 != 0, timestamps: b&4 != 0}
}

func drawPlan(t *rapid.T, steps int) plan {
	p := plan{client: drawPeers(t, "client"), server: drawPeers(t, "server"), seed: rapid.Uint64Range(0, 1<<20).Draw(t, "seed")}
	p.promise = p.server
	percent := rapid.SampledFrom([]int{0, 0, 0, 1, 5, 20})
	p.loss, p.duplicate, p.late = percent.Draw(t, "loss"), percent.Draw(t, "duplicate"), percent.Draw(t, "late")
	p.ops = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		return op{verb(rapid.IntRange(0, int(verbs)-1).Draw(t, "verb")), rapid.IntRange(0, propertyConns-1).Draw(t, "conn"), rapid.Uint32().Draw(t, "n")}
	}), steps/2, steps).Draw(t, "ops")
	return p
}

// TestProperties lets random plans loose on the card: no panic, the oracle has nothing to say, everything comes back and
// every frame is accounted for. What fails is shrunk, and belongs among the fixed plans then. With SPLICE_LONG it goes on
// for a million steps. The plans are the same each time; -rapid.seed draws others.
func TestProperties(t *testing.T) {
	want := 1
	if long() {
		want = 1_000_000
	}
	seed := flag.Lookup("rapid.seed")
	fixed := seed.Value.String() == seed.DefValue
	defer flag.Set("rapid.seed", seed.DefValue)
	steps, plans := 0, 0
	r := newRun(t)
	for round := 7; steps < want && !t.Failed(); round++ {
		if fixed {
			if err := flag.Set("rapid.seed", strconv.Itoa(round)); err != nil {
				t.Fatal(err)
			}
		}
		rapid.Check(t, func(rt *rapid.T) {
			p := drawPlan(rt, 200)
			steps += len(p.ops)
			plans++
			rt.Logf("%v", p)
			r.do(rt, p)
		})
	}
	t.Logf("%d steps of %d plans: %d connections spliced, %d bytes to servers, %d to clients", steps, plans, r.sum.Spliced, r.sum.BytesUp, r.sum.BytesDown)
	if r.sum.Spliced < uint64(plans)/4 || r.sum.BytesDown == 0 {
		t.Errorf("%d of so many plans: this tests nothing", r.sum.Spliced)
	}
}

// TestFixedPlans are plans that once failed, shrunk.
func TestFixedPlans(t *testing.T) {
	plain, all := peers{}, peers{7, true, true}
	for _, tt := range []struct {
		name string
		plan plan
	}{
		{"a FIN without ACK is passed on as it is", plan{plain, plain, plain, 0, 0, 0, 0, []op{
			{dial, 0, 0}, {clientSends, 0, 400}, {pass, 0, 2}, {strayToCardFromClient, 0, 4}, {serverSends, 0, 5000}, {pass, 0, 2},
		}}},
		{"a client that comes again through the old connection", plan{all, all, all, 0, 0, 0, 0, []op{
			{dial, 0, 0}, {clientSends, 0, 400}, {pass, 0, 3}, {dropFromClient, 0, 1}, {clientRST, 0, 0}, {serverRST, 0, 0},
			{dial, 0, 0}, {pass, 0, 3}, {clientSends, 0, 400}, {pass, 0, 3},
		}}},
		{"a client that stops reading while bytes are held", plan{plain, plain, plain, 0, 0, 0, 0, []op{
			{dial, 1, 0}, {clientStops, 1, 0}, {dropToServer, 1, 3}, {clientSends, 1, 8000}, {serverSends, 1, 3000}, {pass, 1, 3}, {pass, 1, 3},
		}}},
		{"the server answers with an old connection's SYN-ACK", plan{plain, plain, plain, 0, 0, 0, 0, []op{
			{dial, 1, 0}, {pass, 1, 1}, {dropFromServer, 1, 1}, {clientSends, 1, 400}, {strayToCardFromServer, 1, 0x48}, {pass, 1, 3},
		}}},
		{"a stranger's FIN while the server is asked", plan{peers{7, false, false}, peers{7, false, false}, peers{7, false, false}, 0, 0, 0, 0, []op{
			{dial, 1, 0}, {clientSends, 1, 52}, {pass, 1, 0}, {pass, 1, 0}, {strayToCardFromClient, 1, 0x200844}, {pass, 1, 1},
		}}},
		{"a stranger's byte beyond the client's FIN", plan{plain, plain, plain, 0, 0, 0, 0, []op{
			{dial, 1, 0}, {clientSends, 1, 52}, {pass, 1, 1}, {dropFromClient, 1, 1}, {serverFIN, 1, 0}, {pass, 1, 0}, {strayToCardFromClient, 1, 0xa24cc9c0},
			{dropFromServer, 1, 2}, {clientFIN, 1, 0}, {pass, 1, 0}, {clientRST, 1, 0}, {dial, 1, 0}, {pass, 1, 2},
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) { newRun(t).do(t, tt.plan) })
	}
}
