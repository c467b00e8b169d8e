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

// The rows of the state table are walked one by one: for every case of the row's kind bring a page to the row's state,
// inject a frame from the row's side, and hold what the card does to what the row says: what it sends, what goes on, what
// is counted, who acts, and where the connection is then.

var stateNames = [states]string{"free", "syn_rcvd", "wait_head", "server_syn", "spliced", "closing", "quarantine", "stateless",
	"passed_free", "passed_syn_rcvd", "passed_spliced", "passed_closing", "passed_quarantine", "passed_template"}

var kindFlags = [Kinds]uint8{
	SYN: flagSYN, SYNData: flagSYN, SYNFIN: flagSYN | flagFIN, SYNACK: flagSYN | flagACK, ACK: flagACK, Data: flagACK | flagPSH, URG: flagACK | flagURG,
	FIN: flagFIN | flagACK, FINData: flagFIN | flagACK | flagPSH, RST: flagRST, NoACK: flagPSH, RSTInRange: flagRST, RSTOutOfRange: flagRST,
	KeepAlive: flagACK, ZeroWindowProbe: flagACK, UnknownOptions: flagACK | flagPSH,
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

// variant is one way to send a segment of a kind: as the kind says, or off in one more respect.
type variant struct {
	name     string
	seq, ack uint32 // added to the right numbers
	flags    uint8  // instead of the kind's; zero: the kind's
	payload  string
	options  []layers.TCPOption

	noPage      bool // no page is free
	serverFirst bool // the service has its servers speak first
	onTheWay    bool // bytes of the segment's side are not acknowledged yet
	held        bool // the server has acknowledged nothing of what is held
	bothFIN     bool // of CLOSING: the segment acknowledges the last FIN
}

const below = ^uint32(0) // one less than the right number

var unknownOptions = []layers.TCPOption{{OptionType: 253, OptionLength: 6, OptionData: []byte{1, 2, 3, 4}}, {OptionType: 0x4c, OptionLength: 2}}

// variantsOf lists how segments of a kind are sent to a row. The first is in order.
func variantsOf(row Row) (all []variant) {
	add := func(vs ...variant) { all = append(all, vs...) }
	takesPayload := false
	switch row.Kind {
	case SYN, SYNFIN, SYNACK, ACK, FIN:
		add(variant{name: "in order"}, variant{name: "repeats", seq: below})
		if row.Verdict == VerdictReopen {
			all[0].name, all[0].seq = "newer", 1
		}
	case SYNData, Data, URG, FINData, NoACK, UnknownOptions:
		add(variant{name: "in order", payload: request}, variant{name: "part of a head", payload: request[:20]}, variant{name: "repeated byte", seq: below, payload: "\n" + request})
		takesPayload = true
		if row.Verdict == VerdictReopen {
			all[0].name, all[0].seq = "newer", 1
		}
	case RST:
		v := variant{name: "lower end"}
		if row.State == ServerSyn && row.Side == ServerSide {
			v.flags = flagRST | flagACK // acknowledges our SYN
		}
		add(v)
		if row.State == Spliced || row.State == Closing {
			add(variant{name: "upper end", seq: 5, onTheWay: true}, variant{name: "lower end, more on the way", onTheWay: true})
			if row.Side == ClientSide {
				add(variant{name: "upper end, held", held: true}, variant{name: "upper end, held, more on the way", seq: 5, held: true, onTheWay: true})
			}
		}
		return all
	case RSTInRange:
		switch {
		case row.State >= Spliced && row.State <= Quarantine:
			add(variant{name: "behind the lower end", seq: 1, onTheWay: true}, variant{name: "before the upper end", seq: 4, onTheWay: true})
		case row.State == ServerSyn && row.Side == ServerSide:
			add(variant{name: "acknowledges nothing"})
		default:
			add(variant{name: "next but one", seq: 1}, variant{name: "in the window", seq: 8000})
		}
		return all
	case RSTOutOfRange:
		if row.State == ServerSyn && row.Side == ServerSide {
			add(variant{name: "acknowledges more than our SYN", flags: flagRST | flagACK, ack: 1}, variant{name: "acknowledges less", flags: flagRST | flagACK, ack: below})
			return all
		}
		add(variant{name: "below", seq: below}, variant{name: "behind the window", seq: 8193}, variant{name: "far", seq: 1 << 31})
		if row.State == Spliced || row.State == Closing {
			add(variant{name: "behind the upper end", seq: 6, onTheWay: true})
		}
		return all
	case KeepAlive:
		add(variant{name: "no byte", seq: below}, variant{name: "one byte", seq: below, payload: "x"})
	case ZeroWindowProbe:
		add(variant{name: "one byte", payload: "x"})
	}
	if row.Kind == UnknownOptions {
		for i := range all {
			all[i].options = unknownOptions
		}
	}
	first := all[0]
	change := func(name string, f func(v *variant)) {
		v := first
		v.name = name
		f(&v)
		add(v)
	}
	if row.Kind != KeepAlive && row.Kind != ZeroWindowProbe {
		change("beyond a gap", func(v *variant) { v.seq = 900 })
	}
	if row.Verdict == VerdictEstablish || row.Verdict == VerdictProve && row.Kind != KeepAlive {
		change("the server speaks first", func(v *variant) { v.serverFirst = true })
	}
	change("wrong acknowledgement", func(v *variant) { v.ack = 99999 })
	if row.Verdict == VerdictOpen || row.Verdict == VerdictProve && row.Kind != KeepAlive {
		change("no page", func(v *variant) { v.noPage = true })
	}
	if row.State == Closing {
		change("the last acknowledgement", func(v *variant) {
			v.bothFIN = true
			if row.Kind == KeepAlive { // without a byte its receiver does not look at it
				v.payload = "x"
			}
		})
	}
	if takesPayload && row.Kind != SYNData {
		change("one byte", func(v *variant) { v.payload = "x" })
	}
	return all
}

// outcome is what the card did with one segment.
type outcome struct {
	sent      []sent
	forwarded int // times the segment itself went on
	went      tcp // as what
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
				o.went = s
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
	flags := v.flags
	if flags == 0 {
		flags = kindFlags[k]
	}
	options := v.options
	if k == SYNACK && side == ServerSide {
		options = plainOptions
	}
	x := *c
	if side == ClientSide {
		x.cseq, x.cack = x.cseq+v.seq, x.cack+v.ack
		return x.client(flags, v.payload, options...)
	}
	x.sseq, x.sack = x.sseq+v.seq, x.sack+v.ack
	return x.server(flags, v.payload, options...)
}

// prepare brings about what a kind or a variant needs beside the state.
func (c *conn) prepare(t *testing.T, row Row, v variant) {
	t.Helper()
	b := c.b
	if v.serverFirst {
		b.change(func(e *regs.ServiceEntry) { e.ControlServerFirst = 1 })
	}
	if v.noPage {
		for b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeAllocate}).ControlStatus == statusOK {
		}
	}
	if row.Kind == ZeroWindowProbe && row.Side == ClientSide { // fill the head buffer
		c.window = 64001
		switch row.State {
		case WaitHead:
			b.push(0, c.client(flagACK, "GET /"+strings.Repeat("a", 4091)))
			b.push(0, c.client(flagACK, strings.Repeat("a", 4096)))
		case ServerSyn:
			b.push(0, c.client(flagACK, strings.Repeat("b", 4000)))
			b.push(0, c.client(flagACK, strings.Repeat("b", 4192-len(request))))
		}
	}
	if v.bothFIN { // the other end has sent its FIN, and the segment acknowledges it
		if row.Side == ClientSide {
			one(t, b.push(1, c.server(flagFIN|flagACK, ""))[0])
			c.cack++
		} else {
			c.sack--
			one(t, b.push(1, c.server(flagFIN|flagACK, ""))[0])
			c.cack++
			one(t, b.push(0, c.client(flagACK, ""))[1])
			c.sack++
		}
	}
	if parsed := kindFlags[row.Kind]; parsed == flagRST && !v.held && row.State == Closing && row.Side == ClientSide {
		one(t, b.push(1, c.server(flagACK, ""))[0]) // its FIN is not on the way any more
	}
	if v.onTheWay {
		x := *c
		if row.Side == ClientSide {
			one(t, b.push(0, x.client(flagACK, "12345"))[1])
		} else {
			one(t, b.push(1, x.server(flagACK, "12345"))[0])
		}
	}
	b.exceptions()
	b.out.Reset()
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
	if s == Stateless && side == ClientSide { // no page: the client has a cookie
		b.serve(world4, 0, regs.ServiceEntry{ControlDefence: regs.ServiceControlDefenceAlways})
		c.reach(t, SynRcvd)
		return b, c
	}
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

// stageHeld makes a bench with a connection that is spliced, or in CLOSING by a FIN behind the request, and holds all of
// it yet.
func stageHeld(t *testing.T, s State) (*bench, *conn) {
	t.Helper()
	b, c := stage(t, WaitHead, ClientSide)
	flags := uint8(flagACK | flagPSH)
	if s == Closing {
		flags |= flagFIN
	}
	one(t, b.push(0, c.client(flags, request))[1])
	one(t, b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))[1])
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
		if row.State >= PassedFree || row.Kind == Datagram {
			continue
		}
		t.Run(fmt.Sprintf("%s/%s/%s", stateNames[row.State], [...]string{"client", "server"}[row.Side], row.Kind), func(t *testing.T) {
			if key := fmt.Sprint(row.State, row.Side, row.Kind); seen[key] {
				t.Fatalf("two rows for %s", key)
			} else {
				seen[key] = true
			}
			walkRow(t, row)
		})
	}
	if want := int(PassedFree) * int(sides) * (int(Kinds) - 1); len(seen) != want {
		t.Errorf("rows: got %d, want %d", len(seen), want)
	}
}

// TestRefined: the data path looks closer at a segment only where a page is, never at the data and the ACKs of a splice,
// and never for the sake of options, which nobody reads there.
func TestRefined(t *testing.T) {
	for s := range State(states) {
		for side := range Side(sides) {
			bits := refined[s][side]
			if (s == Free || s == Stateless) && bits != 0 {
				t.Errorf("%s: a row depends on a page", stateNames[s])
			}
			if s >= Spliced && bits&^(1<<RST) != 0 {
				t.Errorf("%s: rows of %#b depend on the page", stateNames[s], bits)
			}
			for k, as := range parsedAs {
				for _, as := range as {
					if Kind(k) == UnknownOptions && table[s][side][k].Verdict != table[s][side][as].Verdict {
						t.Errorf("%s: %v and %v fare differently", stateNames[s], Kind(k), as)
					}
				}
			}
		}
	}
}

func walkRow(t *testing.T, row Row) {
	vs := variantsOf(row)
	if len(vs) == 0 {
		t.Fatal("no case sends a segment of this row")
	}
	if row.Counter == 0 || row.Verdict == VerdictNone || row.Executor == 0 || row.Then == 0 || row.Kind.String() == "" || row.Verdict.String() == "" {
		t.Fatalf("the row says nothing: %+v", row)
	}
	cs := clauses(t, row.Sends, row.Side)
	found := make([]bool, len(cs))
	counters := map[regs.Reg]bool{row.Counter: true}
	for _, x := range Conditions() {
		if x.Verdict == row.Verdict {
			counters[x.Counter] = true
		}
	}
	var then States
	for i, v := range vs {
		b, c := stage(t, row.State, row.Side)
		if v.held {
			b, c = stageHeld(t, row.State)
		}
		c.prepare(t, row, v)
		raw := c.build(row.Side, row.Kind, v)
		if want := row.Kind; want > NoACK {
			if got := kindOf(t, raw); !slices.Contains(parsedAs[want], got) {
				t.Errorf("%s: the parser calls it %v, the table %v", v.name, got, parsedAs[want])
			}
		} else if got := kindOf(t, raw); got != want {
			t.Errorf("%s: the parser calls it %v", v.name, got)
		}
		if got, closer := b.kindOf(int(row.Side), raw); closer && got != row.Kind && row.Kind != UnknownOptions {
			t.Errorf("%s: the data path calls it %v", v.name, got)
		}
		o := b.inject(int(row.Side), raw)
		for _, s := range o.sent {
			at := slices.IndexFunc(cs, func(x clause) bool { return x.takes(s) })
			if at < 0 {
				t.Errorf("%s: sends %v on port %d; the row says %q", v.name, s, s.port, row.Sends)
				continue
			}
			found[at] = true
		}
		b.checkRow(t, row, v, o)
		if was := parseFrame(t, raw); o.forwarded == 1 && (o.went.flags != was.flags || string(o.went.payload) != string(was.payload) ||
			fmt.Sprint(o.went.options) != fmt.Sprint(was.options)) {
			t.Errorf("%s: %v goes on as %v", v.name, was, o.went)
		}
		now := b.state(c)
		if row.State == Stateless && (now == Free || row.Side == ServerSide) {
			now = Stateless
		}
		if then |= In(now); row.Then&In(now) == 0 {
			t.Errorf("%s: leaves the connection in %s; the row says %v", v.name, stateNames[now], row.Then)
		}
		counted := 0
		for r := range counters {
			if r != 0 && o.before.grown(o.after, r) != 0 {
				counted++
			}
		}
		if counted == 0 {
			t.Errorf("%s: moves neither the row's counter nor one of the verdict's conditions", v.name)
		}
		if i > 0 {
			continue
		}
		for j, x := range cs {
			if !x.conditional && !found[j] {
				t.Errorf("%s: does not send all of %q", v.name, row.Sends)
			}
		}
		if got := o.before.grown(o.after, row.Counter); got != 1 {
			t.Errorf("%s: %s grew by %d, want 1", v.name, row.Counter.Name(), got)
		}
	}
	for i, ok := range found {
		if !ok {
			t.Errorf("no variant draws clause %d of %q", i, row.Sends)
		}
	}
	if then != row.Then {
		t.Errorf("the cases lead to %v, the row says %v", then, row.Then)
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
	if len(o.given) != 0 && !handsOver(row.Verdict, o.given[0].ReasonReason) {
		t.Errorf("%s: a row of the card was given to the host: reason %d", v.name, o.given[0].ReasonReason)
	}
	if row.Verdict == VerdictDrop {
		for _, name := range o.before.diff(o.after) {
			if !strings.HasPrefix(name, row.Counter.Name()) && !bookkeeping(name) {
				t.Errorf("%s: a dropped segment changed %s", v.name, name)
			}
		}
	}
	if row.State != Stateless && (row.Side == ClientSide || row.State >= ServerSyn) {
		b.check(t)
	}
}

// handsOver says whether a condition of a verdict gives its connection to the host for a reason.
func handsOver(v Verdict, reason uint32) bool {
	return slices.ContainsFunc(Conditions(), func(x Condition) bool {
		return x.Verdict == v && x.Executor == Host && reasonNames[strings.TrimPrefix(x.Does, "exception ")] == reason
	})
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
