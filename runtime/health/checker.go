package health

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"splicenic/runtime/health/usertcp"
)

// Checks come from ports above those of the Prober, which no kernel hands out by itself either: Linux stops at 60999. A
// check in flight has its port alone, and an ICMP echo has it as its identifier.
const (
	FirstCheckPort = firstPort + ports
	LastCheckPort  = FirstCheckPort + checkPorts - 1
	checkPorts     = 3072
)

// maxFlights is how many checks are in flight at most; the others wait for one to end. A port then rests for at least two
// thirds of all checks before it is used again.
const maxFlights = 1024

// A Packet is an IP packet for a server.
type Packet struct {
	To   netip.Addr
	Data []byte
}

// An Event says that a server came up or went down by a check, and by which result.
type Event struct {
	CheckKey
	Up     bool
	Result string
}

// checked is a server with its check.
type checked struct {
	target CheckTarget
	check  Check // with its defaults
	wanted bool

	up     bool
	since  time.Duration // of up
	streak int           // results in a row that say the contrary
	due    time.Duration // of the next check
	begun  time.Duration // of the one that is going on
	until  time.Duration // when that one ends without a result; zero: none is going on
	flight *flight       // nil while its next hop is not resolved

	last         string
	lastGood     bool
	lastAt       time.Duration // zero: there was none
	rises, falls uint64
	good, bad    uint64
}

// A flight is a check that was sent.
type flight struct {
	c        *checked
	from, to netip.AddrPort // the port of from is also the id of an echo
	nonce    [16]byte
	conn     *usertcp.Conn // of TCP and HTTP
	seq      [2]uint32     // of the bytes sent so far, the end excluded
	request  []byte        // still to be written
	head     []byte        // of the answer, as far as it came
}

// Checker asks servers whether they work. Make one with NewChecker and end it with Close; it is for one goroutine.
type Checker struct {
	key     [32]byte
	stack   *usertcp.Stack // nil before the first connection
	list    []*checked     // in order
	of      map[CheckKey]*checked
	flights map[uint16]*flight // by port
	order   []*flight          // by when they began
	began   uint64             // flights, ever
	port    uint16             // of the flight before, from FirstCheckPort
	version uint64
	events  []Event
	next    time.Duration
	fresh   bool // something was delivered
	packets []usertcp.Packet
	chunk   [4096]byte
}

// NewChecker returns a checker without servers. The key makes what it sends hard to guess.
func NewChecker(key [32]byte) *Checker {
	return &Checker{key: key, of: map[CheckKey]*checked{}, flights: map[uint16]*flight{}, next: math.MaxInt64}
}

// Close forgets all servers and ends what runs.
func (c *Checker) Close() {
	c.Want(nil, 0)
	if c.stack != nil {
		c.stack.Close()
		c.stack = nil
	}
}

// Version changes whenever Healthy says something else about a server.
func (c *Checker) Version() uint64 { return c.version }

// Next is when Step may have something to do even if nothing is delivered.
func (c *Checker) Next() time.Duration {
	if c.stack != nil {
		return min(c.next, c.stack.Next())
	}
	return c.next
}

// Healthy says whether a server is up. One that is not asked is as it would begin.
func (c *Checker) Healthy(k CheckKey) bool {
	if e := c.of[k]; e != nil {
		return e.up
	}
	return c.begins(&k)
}

// begins says what is taken for true of a server that is not asked yet: what another check of the same server says that
// is not wanted any more, or any, or else what the check says.
func (c *Checker) begins(k *CheckKey) bool {
	found := false
	up := !k.Check.Down
	for _, e := range c.list {
		if e.target.Server == k.Server && (!found || !e.wanted) {
			found, up = true, e.up
			if !e.wanted {
				return up
			}
		}
	}
	return up
}

// Want replaces the set of servers that are asked. One with the same check goes on as it was. Another check of the same
// server begins with what is known, so that a reload neither takes servers out nor brings them in. First checks are spread
// over the interval.
func (c *Checker) Want(targets []CheckTarget, now time.Duration) {
	for _, e := range c.list {
		e.wanted = false
	}
	for _, t := range targets {
		if e := c.of[t.CheckKey]; e != nil {
			e.wanted = true
		}
	}
	var added []*checked
	for _, t := range targets {
		e := c.of[t.CheckKey]
		if e == nil {
			check := t.Check.withDefaults()
			e = &checked{check: check, wanted: true, up: c.begins(&t.CheckKey), since: now, due: now + c.jitter(&t.CheckKey, check.Interval)}
			c.of[t.CheckKey] = e
			added = append(added, e)
			c.version++
		}
		if e.flight != nil && t.From != e.target.From {
			c.land(e.flight)
			e.until, e.due = 0, now
		}
		e.target = t
	}
	c.list = slices.DeleteFunc(append(c.list, added...), func(e *checked) bool {
		if e.wanted {
			return false
		}
		if e.flight != nil {
			c.land(e.flight)
		}
		delete(c.of, e.target.CheckKey)
		c.version++
		return true
	})
	slices.SortFunc(c.list, func(a, b *checked) int {
		return cmp.Or(a.target.Server.Compare(b.target.Server), strings.Compare(a.target.describe(), b.target.describe()))
	})
	c.fresh = true
	c.next = min(c.next, now)
}

// jitter is a part of an interval that differs by server and is always the same for one.
func (c *Checker) jitter(k *CheckKey, interval time.Duration) time.Duration {
	h := sha256.Sum256(append(c.key[:], k.describe()...))
	return time.Duration(binary.BigEndian.Uint64(h[:]) % uint64(interval))
}

// Events returns what changed since the last call.
func (c *Checker) Events() []Event {
	events := c.events
	c.events = nil
	return events
}

// Step does what is due at now, which does not go back, and appends the packets to be sent to list. Their bytes are the
// caller's.
func (c *Checker) Step(now time.Duration, list []Packet) []Packet {
	if !c.fresh && now < c.Next() {
		return list
	}
	c.fresh = false
	list = c.segments(now, list)
	for _, f := range slices.Clone(c.order) {
		if f.conn != nil {
			c.advance(f, now)
		}
	}
	for _, e := range c.list {
		if e.until != 0 && now >= e.until {
			c.expire(e, now)
		}
	}
	list = c.begin(now, list)
	list = c.segments(now, list)
	c.next = c.earliest(now)
	return list
}

// segments lets the stack work, and notes what it sent.
func (c *Checker) segments(now time.Duration, list []Packet) []Packet {
	if c.stack == nil {
		return list
	}
	c.packets = c.stack.Step(now, c.packets[:0])
	for _, p := range c.packets {
		if f := c.flights[p.From.Port()]; f != nil && f.from == p.From && f.to == p.To {
			if f.seq == [2]uint32{} {
				f.seq = [2]uint32{p.Seq, p.Seq}
			}
			if int32(p.End-f.seq[1]) > 0 {
				f.seq[1] = p.End
			}
		}
		list = append(list, Packet{p.To.Addr(), p.Data})
	}
	clear(c.packets)
	return list
}

// earliest is when something is due.
func (c *Checker) earliest(now time.Duration) time.Duration {
	at := time.Duration(math.MaxInt64)
	for _, e := range c.list {
		switch {
		case e.until != 0:
			at = min(at, e.until)
		case e.due > now || len(c.order) < maxFlights: // else the end of another one lets it begin
			at = min(at, e.due)
		}
	}
	return at
}

// begin begins the checks that are due, those that have waited longest first.
func (c *Checker) begin(now time.Duration, list []Packet) []Packet {
	var due []*checked
	for _, e := range c.list {
		switch ready := e.target.Ready && e.target.From.IsValid(); {
		case e.until == 0 && now >= e.due && !ready:
			e.begun, e.until = now, now+e.check.Timeout // there is that much time for the next hop to be found
		case e.flight == nil && ready && (e.until != 0 || now >= e.due):
			due = append(due, e)
		}
	}
	slices.SortStableFunc(due, func(a, b *checked) int { return cmp.Compare(a.due, b.due) })
	for _, e := range due {
		if len(c.order) >= maxFlights {
			break
		}
		if e.until == 0 {
			e.begun, e.until = now, now+e.check.Timeout
		}
		list = c.launch(e, now, list)
	}
	return list
}

// launch sends a check.
func (c *Checker) launch(e *checked, now time.Duration, list []Packet) []Packet {
	for {
		c.port = (c.port + 1) % checkPorts
		if c.flights[FirstCheckPort+c.port] == nil {
			break
		}
	}
	to := e.target.to()
	f := &flight{c: e, from: netip.AddrPortFrom(e.target.From, FirstCheckPort+c.port), to: to}
	c.began++
	h := sha256.Sum256(binary.BigEndian.AppendUint64(append(c.key[:], "flight"...), c.began))
	copy(f.nonce[:], h[:])
	e.flight = f
	c.flights[f.from.Port()] = f
	c.order = append(c.order, f)
	switch e.check.Kind {
	case Ping:
		return append(list, Packet{to.Addr(), echo(f.from.Addr(), to.Addr(), f.from.Port(), f.echoSeq(), f.nonce[:])})
	case UDP:
		return append(list, Packet{to.Addr(), datagram(f.from, to, e.check.Send)})
	case HTTP:
		f.request = []byte(e.target.request())
	}
	if err := c.dial(f); err != nil {
		c.finish(e, now, false, err.Error())
	}
	return list
}

func (c *Checker) dial(f *flight) (err error) {
	if c.stack == nil {
		if c.stack, err = usertcp.New(c.key); err != nil {
			return err
		}
	}
	f.conn, err = c.stack.Dial(f.from, f.to)
	return err
}

// land ends a flight.
func (c *Checker) land(f *flight) {
	if f.conn != nil {
		f.conn.Abort()
	}
	delete(c.flights, f.from.Port())
	c.order = slices.DeleteFunc(c.order, func(o *flight) bool { return o == f })
	f.c.flight = nil
}

// finish takes in the result of a check.
func (c *Checker) finish(e *checked, now time.Duration, good bool, result string) {
	if e.flight != nil {
		c.land(e.flight)
	}
	e.until = 0
	if e.due += e.check.Interval; e.due < now { // late: no two in a row for that
		e.due = max(e.begun+e.check.Interval, now)
	}
	e.last, e.lastGood, e.lastAt = result, good, now
	least := &e.check.Rise
	if good {
		e.good++
	} else {
		e.bad++
		least = &e.check.Fall
	}
	if good == e.up {
		e.streak = 0
		return
	}
	if e.streak++; e.streak < *least {
		return
	}
	e.up, e.since, e.streak = good, now, 0
	if good {
		e.rises++
	} else {
		e.falls++
	}
	c.version++
	c.events = append(c.events, Event{e.target.CheckKey, good, result})
}

// expire ends a check whose time is up.
func (c *Checker) expire(e *checked, now time.Duration) {
	f := e.flight
	switch {
	case f == nil && !e.target.From.IsValid():
		c.finish(e, now, false, "no address of the card in the server's subnet")
	case f == nil && e.target.Ready:
		c.finish(e, now, false, "too many checks at once")
	case f == nil:
		c.finish(e, now, false, "next hop does not answer")
	case e.check.Kind == UDP && e.check.Expect == "":
		c.finish(e, now, true, "silent, and nobody says unreachable")
	case f.conn != nil && f.conn.State() == usertcp.Opening:
		c.finish(e, now, false, "no answer to SYN")
	case f.conn != nil && len(f.head) > 0:
		c.finish(e, now, false, "answer not finished in time")
	default:
		c.finish(e, now, false, "no answer")
	}
}

// advance looks at what became of a connection.
func (c *Checker) advance(f *flight, now time.Duration) {
	if f.conn.State() == usertcp.Opening {
		return
	}
	if f.c.check.Kind == TCP && f.conn.State() == usertcp.Open {
		c.finish(f.c, now, true, "connected")
		return
	}
	if len(f.request) > 0 && f.conn.State() == usertcp.Open {
		n, err := f.conn.Write(f.request)
		if err != nil {
			c.finish(f.c, now, false, err.Error())
			return
		}
		f.request = f.request[n:]
	}
	for f.c.flight == f {
		if !c.read(f, now) {
			return
		}
	}
}

// read takes in what an HTTP server sent; false: there is no more.
func (c *Checker) read(f *flight, now time.Duration) bool {
	n, err := f.conn.Read(c.chunk[:])
	if n == 0 && err == nil {
		if f.conn.State() == usertcp.Ended {
			c.finish(f.c, now, false, cmp.Or(f.conn.Err(), usertcp.ErrReset).Error())
		}
		return false
	}
	f.head = append(f.head, c.chunk[:n]...)
	status, wrong := readAnswer(f.head)
	switch {
	case wrong != nil:
		c.finish(f.c, now, false, wrong.Error())
	case status != 0:
		c.finish(f.c, now, f.c.check.good(status), "HTTP "+text(status))
	case err != nil && n == 0 && f.conn.State() == usertcp.Ended:
		c.finish(f.c, now, false, err.Error())
	case err != nil:
		c.finish(f.c, now, false, errTooEarly.Error())
	case len(f.head) > maxHead:
		c.finish(f.c, now, false, errHead.Error())
	}
	return true
}

func text(status int) string {
	return string([]byte{byte('0' + status/100), byte('0' + status/10%10), byte('0' + status%10)})
}

func (f *flight) echoSeq() uint16 { return binary.BigEndian.Uint16(f.nonce[14:]) }

// Deliver takes an IP packet that came for an address of the card. It returns false where the packet is about no check
// that is in flight. Its bytes are only read.
func (c *Checker) Deliver(packet []byte, now time.Duration) bool {
	p, ok := readIP(packet)
	if !ok {
		return false
	}
	switch {
	case p.protocol == tcp && len(p.payload) >= 20:
		f := c.flight(&p, p.payload, 0, 2)
		if f == nil || f.conn == nil {
			return false
		}
		c.stack.Deliver(packet)
	case p.protocol == udp && len(p.payload) >= 8:
		f := c.flight(&p, p.payload, 0, 2)
		if f == nil || f.c.check.Kind != UDP {
			return false
		}
		if !p.intact() {
			return true
		}
		c.answered(f, p.payload[8:binary.BigEndian.Uint16(p.payload[4:])], now)
	case (p.protocol == icmp4 || p.protocol == icmp6) && len(p.payload) >= 8:
		return c.control(&p, now)
	default:
		return false
	}
	c.fresh = true
	return true
}

// flight finds the flight that a packet answers, whose ports stand at two offsets.
func (c *Checker) flight(p *ipPacket, b []byte, from, to int) *flight {
	f := c.flights[binary.BigEndian.Uint16(b[to:])]
	if f == nil || f.from.Addr() != p.to || f.to != netip.AddrPortFrom(p.from, binary.BigEndian.Uint16(b[from:])) {
		return nil
	}
	return f
}

// answered takes an answer to a datagram.
func (c *Checker) answered(f *flight, answer []byte, now time.Duration) {
	if expect := f.c.check.Expect; !bytes.HasPrefix(answer, []byte(expect)) {
		c.finish(f.c, now, false, "another answer than expected")
		return
	}
	c.finish(f.c, now, true, "answered")
}

// control takes an ICMP message.
func (c *Checker) control(p *ipPacket, now time.Duration) bool {
	kind, code := p.payload[0], p.payload[1]
	if six := p.protocol == icmp6; six != p.from.Is6() {
		return false
	} else if !six && kind == 0 || six && kind == 129 {
		f := c.flights[binary.BigEndian.Uint16(p.payload[4:])]
		if f == nil || f.c.check.Kind != Ping || f.from.Addr() != p.to || f.to.Addr() != p.from {
			return false
		}
		if code == 0 && p.intact() && binary.BigEndian.Uint16(p.payload[6:]) == f.echoSeq() && bytes.Equal(p.payload[8:], f.nonce[:]) {
			c.finish(f.c, now, true, "echo reply")
			c.fresh = true
		}
		return true
	}
	words := unreachable(p.protocol == icmp6, kind, code)
	q, ok := readQuote(p.payload[8:])
	if words == "" || !ok || len(q.payload) < 8 {
		return false
	}
	f := c.quoted(&q)
	if f == nil || f.from.Addr() != p.to {
		return false
	}
	if p.intact() {
		c.finish(f.c, now, false, words)
		c.fresh = true
	}
	return true
}

// quoted finds the flight whose packet an ICMP error quotes. Of a segment the sequence number is to be one of ours
// (RFC 5927, 4.1), of an echo its own.
func (c *Checker) quoted(q *ipPacket) *flight {
	back := &ipPacket{from: q.to, to: q.from}
	b := q.payload
	switch q.protocol {
	case tcp:
		f := c.flight(back, b, 2, 0)
		if f == nil || f.conn == nil || f.conn.State() != usertcp.Opening {
			return nil // an open connection outlasts what routers say (RFC 5927, 6)
		}
		if seq := binary.BigEndian.Uint32(b[4:]); int32(seq-f.seq[0]) < 0 || int32(f.seq[1]-seq) <= 0 {
			return nil
		}
		return f
	case udp:
		if f := c.flight(back, b, 2, 0); f != nil && f.c.check.Kind == UDP {
			return f
		}
	case icmp4, icmp6:
		f := c.flights[binary.BigEndian.Uint16(b[4:])]
		if f != nil && f.c.check.Kind == Ping && f.from.Addr() == q.from && f.to.Addr() == q.to && binary.BigEndian.Uint16(b[6:]) == f.echoSeq() {
			return f
		}
	}
	return nil
}

// A Checked is a server with its check as others see it.
type Checked struct {
	CheckKey
	Up     bool
	Since  time.Duration // when it came to be up or down
	Result string        // of the last check; empty: there was none
	Good   bool          // the last check was
	At     time.Duration // of the last check's end
	Streak int           // results in a row that say the contrary of Up

	Rises, Falls    uint64 // of the server
	Passed, Failed  uint64 // checks
	InFlight, Ready bool
}

// List returns all servers in order.
func (c *Checker) List() []Checked {
	list := make([]Checked, len(c.list))
	for i, e := range c.list {
		list[i] = Checked{
			CheckKey: e.target.CheckKey, Up: e.up, Since: e.since, Result: e.last, Good: e.lastGood, At: e.lastAt, Streak: e.streak,
			Rises: e.rises, Falls: e.falls, Passed: e.good, Failed: e.bad, InFlight: e.flight != nil, Ready: e.target.Ready,
		}
	}
	return list
}
