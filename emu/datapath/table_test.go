package datapath

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

var plainOptions = []layers.TCPOption{optMSS(1460)}

// The rows of the state table are walked one by one: bring a page to the row's state, inject a segment of the row's kind
// on the row's side, and hold what the card does to what the row says.

var stateNames = [states]string{"free", "syn_rcvd", "wait_head", "server_syn", "spliced", "closing", "quarantine", "stateless"}

var kindFlags = [Kinds]uint8{
	SYN: flagSYN, SYNACK: flagSYN | flagACK, ACK: flagACK, Data: flagACK | flagPSH, FIN: flagFIN | flagACK,
	FINData: flagFIN | flagACK | flagPSH, RST: flagRST, NoACK: flagPSH,
}

// reach brings a new connection of b to a state of its life, and the ends' numbers with it.
func (c *conn) reach(t *testing.T, s State) {
	t.Helper()
	b, cisn := c.b, c.cseq
	if s == Free {
		c.cack, c.sack = 0x1234567, 0x7654321
		return
	}
	c.cack = one(t, b.push(0, c.client(flagSYN, "", c.opts...))[0]).seq + 1
	if s == SynRcvd {
		c.sack = cisn + 1
		return
	}
	b.push(0, c.client(flagACK, ""))
	if s == WaitHead {
		c.sack = cisn + 1
		return
	}
	one(t, b.push(0, c.client(flagACK|flagPSH, request))[1])
	c.sack = cisn + 1
	if s == ServerSyn {
		return
	}
	one(t, b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))[1])
	c.sack = c.cseq
	one(t, b.push(1, c.server(flagACK, ""))[0])
	if s == Spliced || s == Stateless {
		return
	}
	one(t, b.push(0, c.client(flagFIN|flagACK, ""))[1])
	c.sack = c.cseq
	if s == Closing {
		return
	}
	one(t, b.push(1, c.server(flagFIN|flagACK, ""))[0])
	c.cack++
	one(t, b.push(0, c.client(flagACK, ""))[1])
}

// variant is one way to send a segment of a kind: in order, or off in one respect.
type variant struct {
	name     string
	seq, ack uint32 // added to the right numbers
	payload  string // of kinds that carry some
	noPage   bool   // no page is free
}

var variants = []variant{
	{name: "in order", payload: request},
	{name: "part of a head", payload: request[:20]},
	{name: "repeated byte", seq: ^uint32(0), payload: "\n" + request},
	{name: "beyond a gap", seq: 1000, payload: request},
	{name: "wrong acknowledgement", ack: 99999, payload: request},
	{name: "no page", payload: request, noPage: true},
}

// outcome is what the card did with one segment.
type outcome struct {
	sent      []sent
	forwarded int // times the segment itself went on
	before    snapshot
	after     snapshot
	given     []given
}

// sent is a segment the card made.
type sent struct {
	tcp
	port int
}

// inject runs one raw frame through the pipeline and tells the segment itself from what the card made.
func (b *bench) inject(port int, raw []byte) (o outcome) {
	b.t.Helper()
	b.out.Reset()
	f := &b.buf[0]
	f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	b.c.Advance(b.now)
	o.before = b.snapshot()
	b.c.Process(port, b.buf[:1], b.out)
	o.after = b.snapshot()
	for p := range b.out.Ports {
		for _, g := range b.out.Ports[p] {
			s := parseFrame(b.t, g.Bytes())
			if g == f {
				o.forwarded++
				continue
			}
			o.sent = append(o.sent, sent{s, p})
		}
	}
	b.out.Reset()
	o.given = b.exceptions()
	return o
}

// build makes the variant's segment of a kind from one side.
func (c *conn) build(side Side, k Kind, v variant) []byte {
	payload := ""
	if k == Data || k == FINData || k == NoACK {
		payload = v.payload
	}
	if side == ClientSide {
		c.cseq += v.seq
		c.cack += v.ack
		return c.client(kindFlags[k], payload)
	}
	c.sseq += v.seq
	c.sack += v.ack
	switch {
	case k == RST && c.b.state(c) == ServerSyn:
		return c.server(flagRST|flagACK, "")
	case k == SYNACK:
		return c.server(kindFlags[k], payload, plainOptions...)
	}
	return c.server(kindFlags[k], payload)
}

// state of the page of a connection.
func (b *bench) state(c *conn) State {
	for n := range b.m.Geometry.Pages {
		w := b.c.page(n)
		if w[regs.PageControl]&regs.PageControlValidMask != 0 && regs.PagePortsClient(w[regs.PagePorts]) == uint32(c.port) {
			return State(regs.PageControlState(w[regs.PageControl]))
		}
	}
	return Free
}

// stage makes a bench with a connection in a state, found from a side as the row asks.
func stage(t *testing.T, s State, side Side) (*bench, *conn) {
	t.Helper()
	g := smallGeometry()
	g.Pages, g.Heads, g.CamClientWords, g.CamServerWords = 16, 4, 64, 64
	b := newBench(t, g)
	b.serve(world4, 0, regs.ServiceEntry{})
	b.attach()
	b.now = 3 * time.Second
	c := &conn{b: b, w: world4, port: 40001, cseq: 0xffffff00, sseq: 0x7fffffff, opts: plainOptions, sopts: plainOptions}
	c.reach(t, s)
	if s == Free {
		return b, c
	}
	n := b.pageOf(t)
	w := b.c.page(n)
	if s == Stateless {
		b.c.setState(w, Stateless)
	}
	if side == ServerSide && s < ServerSyn { // no life leads here; a host can, with a command
		done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeCamInsert, FlagsServerSide: 1, HandleN: n, HandleGeneration: handleOf(n, w) >> 20,
			KeyControlKind: c.w.kind, KeyControlProtocol: protocolTCP, KeyPortsPort: uint32(c.port), Value: words(c.w.client)[0]})
		if done.ControlStatus != statusOK {
			t.Fatalf("cam_insert: status %d", done.ControlStatus)
		}
	}
	return b, c
}

// pageOf returns the only valid page.
func (b *bench) pageOf(t testing.TB) uint32 {
	t.Helper()
	found := -1
	for n := range b.m.Geometry.Pages {
		if b.c.page(n)[regs.PageControl]&regs.PageControlValidMask != 0 {
			if found >= 0 {
				t.Fatalf("pages %d and %d are both valid", found, n)
			}
			found = int(n)
		}
	}
	if found < 0 {
		t.Fatal("no page is valid")
	}
	return uint32(found)
}

// A clause is one thing that a row says it sends.
type clause struct {
	flags       uint8
	port        int
	held        bool
	conditional bool
}

// clauses reads the Sends text of a row or condition.
func clauses(t *testing.T, text string, side Side) (cs []clause) {
	t.Helper()
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(strings.ReplaceAll(text, ", or RST", "; or RST"), "; ") {
		or := strings.HasPrefix(part, "or ")
		part = strings.TrimPrefix(part, "or ")
		x := clause{port: int(side), conditional: or}
		for _, word := range []string{" where ", " when "} { // a reason may follow a comma
			if head, _, ok := strings.Cut(part, word); ok {
				part, x.conditional = head, true
			}
		}
		if rest, ok := strings.CutSuffix(part, " to the client"); ok {
			part, x.port = rest, 0
		} else if rest, ok := strings.CutSuffix(part, " to the server"); ok {
			part, x.port = rest, 1
		}
		switch part {
		case "SYN-ACK":
			x.flags = flagSYN | flagACK
		case "SYN":
			x.flags = flagSYN
		case "ACK":
			x.flags = flagACK
		case "RST":
			x.flags = flagRST
		case "ACK with the held bytes":
			x.flags, x.held = flagACK, true
		case "held bytes not sent yet":
			x.flags, x.held, x.port = flagACK, true, 1
		case "RST to both":
			cs = append(cs, clause{flags: flagRST, port: 0}, clause{flags: flagRST, port: 1})
			continue
		default:
			t.Fatalf("nobody reads %q of %q", part, text)
		}
		cs = append(cs, x)
	}
	return cs
}

// takes says whether a sent segment is what a clause announces.
func (x clause) takes(s sent) bool {
	const kinds = flagSYN | flagRST | flagFIN
	return s.port == x.port && s.flags&kinds == x.flags&kinds && (x.flags&flagSYN == 0 || s.flags&flagACK == x.flags&flagACK) &&
		(x.held == (len(s.payload) > 0) || x.held)
}

func TestStateTable(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range Table() {
		t.Run(fmt.Sprintf("%s/%s/%s", stateNames[row.State], [...]string{"client", "server"}[row.Side], row.Kind), func(t *testing.T) {
			if key := fmt.Sprint(row.State, row.Side, row.Kind); seen[key] {
				t.Fatalf("two rows for %s", key)
			} else {
				seen[key] = true
			}
			walkRow(t, row)
		})
	}
	if want := states * int(sides) * int(Kinds); len(seen) != want {
		t.Errorf("rows: got %d, want %d", len(seen), want)
	}
}

func walkRow(t *testing.T, row Row) {
	cs := clauses(t, row.Sends, row.Side)
	found := make([]bool, len(cs))
	for i, v := range variants {
		if v.noPage && row.Verdict != VerdictOpen {
			continue
		}
		b, c := stage(t, row.State, row.Side)
		if v.noPage {
			for b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeAllocate}).ControlStatus == statusOK {
			}
		}
		o := b.inject(int(row.Side), c.build(row.Side, row.Kind, v))
		for _, s := range o.sent {
			at := slices.IndexFunc(cs, func(x clause) bool { return x.takes(s) })
			if at < 0 {
				t.Errorf("%s: sends %v on port %d; the row says %q", v.name, s, s.port, row.Sends)
				continue
			}
			found[at] = true
		}
		b.checkRow(t, row, v, o)
		if i > 0 {
			continue
		}
		for j, x := range cs {
			if !x.conditional && !found[j] {
				t.Errorf("in order: does not send all of %q", row.Sends)
			}
		}
		if row.Counter != 0 {
			if got := o.before.grown(o.after, row.Counter); got != 1 {
				t.Errorf("in order: %s grew by %d, want 1", row.Counter.Name(), got)
			}
		}
	}
	for i, ok := range found {
		if !ok {
			t.Errorf("no variant draws clause %d of %q", i, row.Sends)
		}
	}
}

// checkRow holds an outcome to the row's verdict.
func (b *bench) checkRow(t *testing.T, row Row, v variant, o outcome) {
	t.Helper()
	forwarded := row.Verdict == VerdictTranslate || row.Verdict == VerdictTranslateFIN || row.Verdict == VerdictTranslateRST
	if got := o.forwarded == 1; got != forwarded || o.forwarded > 1 {
		t.Errorf("%s: went on %d times; the verdict is %v", v.name, o.forwarded, row.Verdict)
	}
	if got, want := row.Executor == Host, row.Verdict == VerdictException; got != want {
		t.Errorf("executor %v with verdict %v", row.Executor, row.Verdict)
	}
	if row.Executor == Host {
		b.checkHandedOver(t, v.name, o)
		return
	}
	if len(o.given) != 0 {
		t.Errorf("%s: a row of the card was given to the host: reason %d", v.name, o.given[0].ReasonReason)
	}
	if row.Verdict == VerdictDrop {
		for _, name := range o.before.diff(o.after) {
			if !strings.HasPrefix(name, "connection.") && !bookkeeping(name) {
				t.Errorf("%s: a dropped segment changed %s", v.name, name)
			}
		}
	}
	if row.State != Stateless && (row.Side == ClientSide || row.State >= ServerSyn) {
		b.check(t)
	}
}

// bookkeeping tells counters of the parser, the CAMs and the rings from state.
func bookkeeping(name string) bool {
	for _, prefix := range []string{"parser", "cam.client.hits", "cam.client.misses", "cam.server.hits", "cam.server.misses", "ring.exception", "hostif.interrupts"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// checkHandedOver holds a row of the host to its kind: one exception, nothing else.
func (b *bench) checkHandedOver(t *testing.T, name string, o outcome) {
	t.Helper()
	if len(o.sent) != 0 || o.forwarded != 0 {
		t.Errorf("%s: the card acts on a row of the host: sends %v, forwards %d", name, o.sent, o.forwarded)
	}
	if len(o.given) != 1 {
		t.Errorf("%s: %d exceptions, want 1", name, len(o.given))
	}
	for _, changed := range o.before.diff(o.after) {
		if !bookkeeping(changed) {
			t.Errorf("%s: the card acts on a row of the host: it changed %s", name, changed)
		}
	}
}
