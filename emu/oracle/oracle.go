package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"splicenic/regs"
)

// Wire is one of the two.
type Wire uint8

// The wires.
const (
	ClientWire Wire = iota
	ServerWire
)

func (w Wire) String() string { return [...]string{"client", "server"}[w&1] }

// Kind says which rule was broken.
type Kind uint8

// The rules.
const (
	Checksum   Kind = iota // a checksum of the card's frame is wrong, or its lengths do not fit
	Bytes                  // bytes arrive that differ from those sent, or were never sent
	End                    // a FIN at another place than its sender's, or bytes behind one
	Window                 // a segment beyond the window of its receiver
	Promise                // a window promised that nobody has
	Ack                    // an acknowledgement of what nobody holds, or of what was never sent
	Lost                   // a connection ended in order, and bytes that the card acknowledged never came
	Size                   // a segment longer than its receiver's MSS
	Timestamp              // a TSval that goes backwards, or an echo of what was never sent
	Sack                   // a block outside the range that was sent
	Option                 // an option that was not negotiated, or one missing that was
	Connection             // a segment that fits no connection
)

var kindNames = [...]string{"checksum", "bytes", "end", "window", "promise", "ack", "lost", "size", "timestamp", "sack", "option", "connection"}

func (k Kind) String() string { return kindNames[min(int(k), len(kindNames)-1)] }

// A Violation is a rule that the card broke.
type Violation struct {
	At         time.Duration
	Frame      uint64 // its number, from zero
	Wire       Wire
	Kind       Kind
	Connection string // client and listener
	Detail     string
}

func (v Violation) String() string {
	return fmt.Sprintf("%v frame %d, %v wire, %s: %v: %s", v.At, v.Frame, v.Wire, v.Connection, v.Kind, v.Detail)
}

// Config describes what is watched.
type Config struct {
	Listeners []netip.AddrPort // connections to others are not followed; nil: all are

	// Coalesced: frames come as a kernel hands them over, coalesced and with partial checksums. Otherwise they are wire
	// frames, whose sums and sizes are checked.
	Coalesced bool
	// Partial: the last frame is not the end of the traffic, so what has not arrived may still be on its way.
	Partial bool
	// Slack is by how much frames of the two wires may be out of order.
	Slack time.Duration

	// Altered tells what a server is sent in place of the beginning of a client's stream, and how many of the client's
	// bytes that stands for; sent is what the client has sent so far, from its first byte on. Nil, or zero of both: the
	// stream as it is.
	Altered func(client, listener netip.AddrPort, sent []byte) (instead []byte, of int)

	HeadBytes   int // a head buffer's size; zero: regs.HeadBytes
	Connections int // followed at most; zero: 65,536
	Violations  int // kept at most; zero: 1000
}

// Summary counts what was seen.
type Summary struct {
	Frames      uint64 `json:"frames"`
	Segments    uint64 `json:"segments"`
	Connections uint64 `json:"connections"` // that the card answered
	Spliced     uint64 `json:"spliced"`
	Resets      uint64 `json:"resets"`   // RST segments of the card
	BytesUp     uint64 `json:"bytes_up"` // new bytes that the card sent to servers
	BytesDown   uint64 `json:"bytes_down"`
	Images      uint64 `json:"images"`    // of segments that break the rules, passed on as they came
	Untracked   uint64 `json:"untracked"` // segments of connections whose beginning was not seen
	Violations  uint64 `json:"violations"`
}

// An Oracle is for one goroutine.
type Oracle struct {
	cfg     Config
	sum     Summary
	broken  []Violation
	now     time.Duration
	wire    Wire
	opening map[pair]*openings
	clients map[pair]*conn
	servers map[pair]*conn
	byISN   map[first][]*conn // to find whose a connection to a server is
	s       segment
}

// pair names a connection on one wire: its client's side and its server's.
type pair struct{ from, to netip.AddrPort }

// first is what a client and the card in its name share.
type first struct {
	addr netip.Addr
	isn  uint32
}

// opening is a client's SYN, the last of those that are the same.
type opening struct {
	isn    uint32
	window int64
	clock  clock
	options
}

// openings are the last SYNs of a client port: a card answers some of them a batch later.
type openings struct {
	last [8]opening
	next int
}

func (p *openings) find(isn uint32) *opening {
	for i := range p.last {
		if x := &p.last[i]; x.isn == isn && x.window >= 0 {
			return x
		}
	}
	return nil
}

// note takes a SYN, or what is newer in one that came again.
func (p *openings) note(s *segment) {
	x := p.find(s.seq)
	if x == nil {
		x = &p.last[p.next%len(p.last)]
		*x = opening{isn: s.seq}
		p.next++
	}
	if x.window, x.options = s.window, s.options; s.has(optionTimestamps) {
		x.clock.note(s.val)
	}
}

// New makes an oracle.
func New(cfg Config) *Oracle {
	if cfg.HeadBytes == 0 {
		cfg.HeadBytes = regs.HeadBytes
	}
	if cfg.Connections == 0 {
		cfg.Connections = 65_536
	}
	if cfg.Violations == 0 {
		cfg.Violations = 1000
	}
	return &Oracle{cfg: cfg, opening: map[pair]*openings{}, clients: map[pair]*conn{}, servers: map[pair]*conn{}, byISN: map[first][]*conn{}}
}

// Summary returns what was seen so far.
func (o *Oracle) Summary() Summary { return o.sum }

// Violations returns those found so far.
func (o *Oracle) Violations() []Violation { return o.broken }

// Finish says that the traffic is over and returns every violation, at most as many as are kept.
func (o *Oracle) Finish() []Violation {
	keys := make([]pair, 0, len(o.clients))
	for k := range o.clients {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b pair) int {
		if c := a.from.Compare(b.from); c != 0 {
			return c
		}
		return a.to.Compare(b.to)
	})
	for _, k := range keys {
		o.drop(o.clients[k], !o.cfg.Partial)
	}
	return o.broken
}

// Frame takes the next frame of a wire. The bytes are the caller's again on return.
func (o *Oracle) Frame(wire Wire, fromCard bool, at time.Duration, b []byte) {
	o.now, o.wire = max(o.now, at), wire
	s := &o.s
	v := parse(b, s)
	o.sum.Frames++
	switch v {
	case other:
		return
	case partial:
		if !o.cfg.Coalesced {
			v = badSum
		}
	}
	if v == badSum || v == malformed {
		if fromCard {
			o.violate(nil, Checksum, "%d bytes: %x", len(b), b[:min(len(b), 80)])
		}
		return // a damaged frame is nobody's
	}
	o.sum.Segments++
	if wire == ClientWire {
		o.clientWire(fromCard, s)
		return
	}
	o.serverWire(fromCard, s)
}

func (o *Oracle) violate(c *conn, kind Kind, format string, args ...any) {
	o.sum.Violations++
	if len(o.broken) >= o.cfg.Violations {
		return
	}
	name := "-"
	if c != nil {
		name = c.key.from.String() + " > " + c.key.to.String()
	}
	o.broken = append(o.broken, Violation{o.now, o.sum.Frames - 1, o.wire, kind, name, fmt.Sprintf(format, args...)})
}

func (o *Oracle) clientWire(fromCard bool, s *segment) {
	k := pair{s.src, s.dst}
	if fromCard {
		k = pair{s.dst, s.src}
	}
	if o.cfg.Listeners != nil && !slices.Contains(o.cfg.Listeners, k.to) {
		return
	}
	c := o.clients[k]
	switch {
	case !fromCard && s.flags&(syn|ack|rst|fin) == syn:
		if len(o.opening) >= o.cfg.Connections {
			clear(o.opening)
		}
		p := o.opening[k]
		if p == nil {
			p = &openings{}
			for i := range p.last {
				p.last[i].window = -1
			}
			o.opening[k] = p
		}
		p.note(s)
		if c != nil {
			o.arrive(c, &c.client, s) // where it begins nothing it may be passed on
		}
	case fromCard && s.flags&(syn|ack|rst) == syn|ack && c != nil && c.armed && c.reopens(s):
		o.sum.Images++
		c.reset, c.beyond = true, true
	case fromCard && s.flags&(syn|ack|rst) == syn|ack && o.answers(c, k, s):
		o.open(k, s)
	case c != nil && c.beyond:
	case c == nil:
		o.sum.Untracked++
	case fromCard:
		o.emit(c, &c.client, &c.server, s)
	default:
		o.arrive(c, &c.client, s)
	}
}

// answers says whether a SYN-ACK of the card begins a connection.
func (o *Oracle) answers(c *conn, k pair, s *segment) bool {
	p := o.opening[k]
	if p == nil || p.find(s.ack-1) == nil {
		return false
	}
	return c == nil || c.client.endISN != s.ack-1 || c.client.cardISN != s.seq
}

// open begins a connection with the SYN-ACK of the card.
func (o *Oracle) open(k pair, s *segment) {
	if c := o.clients[k]; c != nil {
		o.drop(c, false)
	}
	if len(o.clients) >= o.cfg.Connections && !o.evict() {
		o.sum.Untracked++
		return
	}
	p := o.opening[k].find(s.ack - 1)
	c := &conn{key: k}
	c.client.begin(p.isn, s.seq)
	c.client.agree(&p.options, &s.options)
	c.client.endEdge = p.window
	c.client.endClock = p.clock
	o.clients[k] = c
	f := first{k.from.Addr(), p.isn}
	o.byISN[f] = append(o.byISN[f], c)
	o.sum.Connections++
	o.checkAnswer(c, &p.options, s)
}

// evict forgets connections that are over.
func (o *Oracle) evict() bool {
	for _, c := range o.clients {
		if c.over() {
			o.drop(c, false)
		}
	}
	return len(o.clients) < o.cfg.Connections
}

// drop ends a connection and looks whether all that was promised has come.
func (o *Oracle) drop(c *conn, rest bool) {
	if (c.over() || rest) && c.armed && !c.reset && !c.own && !c.up.doubtful && !c.down.doubtful {
		if got, want := c.server.endAck, c.client.cardAck; got < want {
			o.violate(c, Lost, "the client has the acknowledgement of %d bytes, the server acknowledged %d", want, got)
		}
		if got, want := c.client.endAck, c.server.cardAck; got < want {
			o.violate(c, Lost, "the server has the acknowledgement of %d bytes, the client acknowledged %d", want, got)
		}
	}
	o.sum.BytesUp += c.server.acknowledged()
	o.sum.BytesDown += c.client.acknowledged()
	delete(o.clients, c.key)
	if o.servers[c.leg] == c {
		delete(o.servers, c.leg)
	}
	f := first{c.key.from.Addr(), c.client.endISN}
	if cs := slices.DeleteFunc(o.byISN[f], func(x *conn) bool { return x == c }); len(cs) > 0 {
		o.byISN[f] = cs
	} else {
		delete(o.byISN, f)
	}
}

func (o *Oracle) serverWire(fromCard bool, s *segment) {
	k := pair{s.dst, s.src}
	if fromCard {
		k = pair{s.src, s.dst}
	}
	c := o.servers[k]
	switch {
	case fromCard && s.flags&(syn|ack|rst|fin) == syn:
		switch {
		case c != nil && c.leg == k && c.armed && c.passes(s):
			o.sum.Images++
		case c == nil || c.leg != k || c.server.synISN() != s.seq:
			o.attach(k, s)
		default:
			o.checkSyn(c, s)
		}
	case c == nil || c.leg != k:
		o.sum.Untracked++
	case c.beyond:
	case fromCard:
		o.toServer(c, s)
	case s.flags&(syn|ack|rst) == syn|ack && !c.armed:
		if s.ack == c.server.synISN()+1 {
			c.serverAnswers(s)
		}
	case c.answered:
		if s.flags&syn != 0 {
			c.again++
		}
		o.arrive(c, &c.server, s)
	case s.flags&rst != 0:
		c.refused = true
	}
}

// from lists a client's connections, always in the same order.
func (o *Oracle) from(a netip.Addr) (all []*conn) {
	for _, c := range o.clients {
		if c.key.from.Addr() == a {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *conn) int {
		if c := a.key.from.Compare(b.key.from); c != 0 {
			return c
		}
		return a.key.to.Compare(b.key.to)
	})
	return all
}

// attach finds whose connection to a server begins. What the host opens, to learn what a server can, is nobody's.
func (o *Oracle) attach(k pair, s *segment) {
	var found *conn
	var begin beginning
	consider := func(c *conn, b beginning) {
		if !c.established || c.armed && !c.over() {
			return
		}
		if found == nil || found.hasLeg && !c.hasLeg || c.key.from == k.from && found.key.from != k.from {
			found, begin = c, b
		}
	}
	if o.cfg.Altered == nil {
		for _, c := range o.byISN[first{k.from.Addr(), s.seq}] {
			consider(c, beginning{})
		}
	} else {
		for _, c := range o.from(k.from.Addr()) {
			instead, of := o.cfg.Altered(c.key.from, c.key.to, c.up.sent())
			b := beginning{slices.Clone(instead), int64(of) - int64(len(instead)), int64(of)}
			if s.seq == c.client.endISN+uint32(b.first) {
				consider(c, b)
			}
		}
	}
	if found == nil {
		o.sum.Untracked++
		return
	}
	if o.servers[found.leg] == found {
		delete(o.servers, found.leg)
	}
	if old := o.servers[k]; old != nil && !old.over() && old.armed {
		o.violate(found, Connection, "a SYN on the server's connection of %v", old.key.from)
	}
	found.leg, found.hasLeg, found.answered, found.refused = k, true, false, false
	found.server = half{}
	found.begin = begin
	found.server.begin(0, s.seq-uint32(begin.first))
	found.server.startAt(begin.first)
	o.servers[k] = found
	o.checkSyn(found, s)
}

// toServer takes a segment of the card on the server's wire, once a SYN went there.
func (o *Oracle) toServer(c *conn, s *segment) {
	if !c.armed {
		if s.flags&rst != 0 {
			// Given up; or the answer to what the server sent of an older connection.
			if s.seq == c.server.synISN()+1 {
				delete(o.servers, c.leg)
				c.hasLeg, c.answered, c.leg = false, false, pair{}
			}
			return
		}
		if !c.answered || s.flags&ack == 0 || s.ack != c.server.endISN+1 {
			o.violate(c, Connection, "a segment before the handshake with the server")
			return
		}
		c.armed, c.armedAt = true, o.now
		o.sum.Spliced++
	}
	o.emit(c, &c.server, &c.client, s)
}
