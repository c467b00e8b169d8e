package health

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"
)

// State is how far a server is known.
type State uint8

// The states.
const (
	Unknown State = iota // not asked yet, or its next hop is not resolved
	Asked                // a SYN is on its way
	Known                // it answered
	Refused              // it answered with RST: nobody listens there; asked again later
	Silent               // it did not answer; asked again later
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"unknown", "asked", "known", "refused", "silent"}[s%(Silent+1)]
}

// The times and bounds of a probe.
const (
	retry        = time.Second // between SYNs (RFC 6298, 2.1)
	attempts     = 3           // SYNs of a probe
	backoffFirst = 2 * time.Second
	backoffMost  = time.Minute
	refresh      = 10 * time.Minute // a known server may have changed without any connection that could tell
	maxAsked     = 64               // probes at once
	distrust     = time.Minute      // after a connection said less than the probe that followed
)

// Probes come from ports that no kernel hands out by itself.
const (
	firstPort = 61000
	ports     = 1024
)

// Flags of a segment, as in the TCP header.
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	ACK = 0x10
	ECE = 0x40
	CWR = 0x80
)

// A Target is a server to be asked.
type Target struct {
	Server netip.AddrPort
	From   netip.Addr // an address of the card's from which the server can be reached; invalid: there is none
	Ready  bool       // its next hop is resolved
}

// A Segment is a TCP segment without payload from us to a server. A SYN is to offer everything that a Profile tells.
type Segment struct {
	From, To netip.AddrPort
	Seq, Ack uint32
	Flags    uint8
}

// An Answer is a segment from a server to us.
type Answer struct {
	From, To netip.AddrPort
	Seq, Ack uint32
	Flags    uint8
	Options  []byte // valid during the call
}

type entry struct {
	target   Target
	wanted   bool
	state    State
	profile  Profile
	tries    int
	port     uint16 // source port of the probe in flight
	isn      uint32
	backoff  time.Duration
	deadline time.Duration // when the state is looked at again
	learned  time.Duration
	doubt    bool          // a connection said less than was known: the next answer decides
	deaf     time.Duration // until then connections that say less are not believed
}

// Prober asks servers for their profiles. Make one with New; it is for one goroutine.
type Prober struct {
	key     [32]byte
	entries map[netip.AddrPort]*entry
	probes  uint64 // begun so far; chooses ports and numbers
	asked   int
	version uint64
	next    time.Duration // nothing is due before it
}

// New returns a prober without servers. The key makes the initial sequence numbers hard to guess.
func New(key [32]byte) *Prober {
	return &Prober{key: key, entries: map[netip.AddrPort]*entry{}, next: math.MaxInt64}
}

// Version changes whenever a profile does.
func (p *Prober) Version() uint64 { return p.version }

// Next is when Advance may have something to do again.
func (p *Prober) Next() time.Duration { return p.next }

// Want replaces the set of servers that are to be known. One that is not wanted any more is forgotten.
func (p *Prober) Want(targets []Target, now time.Duration) {
	for _, e := range p.entries {
		e.wanted = false
	}
	for _, t := range targets {
		e := p.entries[t.Server]
		if e == nil {
			e = &entry{deadline: now}
			p.entries[t.Server] = e
		}
		if t.ready() && !e.target.ready() && e.state != Asked && e.state != Known {
			e.deadline, e.backoff = now, 0
		}
		e.target, e.wanted = t, true
	}
	for server, e := range p.entries {
		if !e.wanted {
			p.leave(e)
			delete(p.entries, server)
		}
	}
	p.next = p.earliest()
}

func (t *Target) ready() bool { return t.Ready && t.From.IsValid() }

// Seed takes in what a predecessor knew of a server that is not known yet. It counts at once, and the server is asked when
// its turn comes. Want is to follow.
func (p *Prober) Seed(server netip.AddrPort, profile Profile, now time.Duration) {
	if p.entries[server] != nil || profile == (Profile{}) {
		return
	}
	e := &entry{profile: profile, deadline: now, learned: now}
	if profile.Known {
		e.state = Known
	}
	p.entries[server] = e
	p.version++
}

// Learned takes in what a SYN-ACK of a connection told the card. It counts at once. Where it is less than was known the
// server is asked as well: a kernel may tell one client a small MSS because of the path to that client, and that must
// neither last for all others nor change to and fro.
func (p *Prober) Learned(server netip.AddrPort, profile Profile, now time.Duration) {
	e := p.entries[server]
	if e == nil {
		return
	}
	if !profile.Known { // of what was not asked it tells nothing
		mss := profile.MSS
		profile = e.profile
		profile.MSS = mss
	}
	less := profile.less(&e.profile)
	if less && now < e.deaf {
		return
	}
	p.set(e, profile, now)
	if e.state != Asked && profile.Known {
		p.know(e, now)
	}
	if less {
		e.doubt = true
		if e.state != Asked {
			e.deadline = now
		}
	}
	p.next = p.earliest()
}

func (p *Prober) set(e *entry, profile Profile, now time.Duration) {
	e.learned = now
	if e.profile != profile {
		e.profile = profile
		p.version++
	}
}

// know makes a server known.
func (p *Prober) know(e *entry, now time.Duration) {
	p.leave(e)
	e.state, e.backoff, e.deadline = Known, 0, now+refresh
}

// leave ends the probe in flight, if there is one.
func (p *Prober) leave(e *entry) {
	if e.state == Asked {
		p.asked--
	}
	e.tries = 0
}

// Advance appends the segments that are due at now to list and returns it.
func (p *Prober) Advance(now time.Duration, list []Segment) []Segment {
	if now < p.next {
		return list
	}
	for _, server := range p.due(now) {
		list = p.step(p.entries[server], now, list)
	}
	p.next = p.earliest()
	return list
}

// due returns the servers whose deadline has come, in order: those with a probe in flight first, so that the others find
// room.
func (p *Prober) due(now time.Duration) []netip.AddrPort {
	var list []netip.AddrPort
	for server, e := range p.entries {
		if e.deadline <= now && e.acts() {
			list = append(list, server)
		}
	}
	slices.SortFunc(list, func(a, b netip.AddrPort) int {
		if x, y := p.entries[a].state == Asked, p.entries[b].state == Asked; x != y {
			if x {
				return -1
			}
			return 1
		}
		return a.Compare(b)
	})
	return list
}

// acts says whether a deadline of the server's means anything.
func (e *entry) acts() bool { return e.state == Asked || e.target.ready() }

// earliest is the first deadline of all. While as many probes as may be are in flight, the others wait for one to end.
func (p *Prober) earliest() time.Duration {
	at := time.Duration(math.MaxInt64)
	for _, e := range p.entries {
		if e.state == Asked || e.target.ready() && p.asked < maxAsked {
			at = min(at, e.deadline)
		}
	}
	return at
}

// step moves one server whose deadline has come.
func (p *Prober) step(e *entry, now time.Duration, list []Segment) []Segment {
	switch {
	case e.state == Asked && e.tries == attempts:
		p.failed(e, Silent, now)
		return list
	case e.state == Asked:
	case p.asked >= maxAsked:
		return list
	default:
		p.begin(e)
	}
	e.tries++
	e.deadline = now + retry
	return append(list, Segment{From: e.from(), To: e.target.Server, Seq: e.isn, Flags: SYN | ECE | CWR})
}

func (e *entry) from() netip.AddrPort { return netip.AddrPortFrom(e.target.From, e.port) }

// begin chooses the port and the number of a new probe.
func (p *Prober) begin(e *entry) {
	p.asked++
	e.state, e.tries, e.port = Asked, 0, firstPort+uint16(p.probes%ports)
	b := append(p.key[:], e.target.Server.String()...)
	h := sha256.Sum256(binary.BigEndian.AppendUint64(b, p.probes))
	e.isn = binary.BigEndian.Uint32(h[:])
	p.probes++
}

// failed ends a probe without a profile. What was known of the server before stays: it may be down.
func (p *Prober) failed(e *entry, s State, now time.Duration) {
	p.leave(e)
	e.state = s
	e.backoff = min(max(2*e.backoff, backoffFirst), backoffMost)
	e.deadline = now + e.backoff
}

// Take gives the prober a segment that belongs to no connection. It returns false where the segment answers no probe, and
// otherwise what is to be sent in reply; without flags nothing is.
func (p *Prober) Take(a *Answer, now time.Duration) (reply Segment, ours bool) {
	e := p.entries[a.From]
	if e == nil || e.state != Asked || e.from() != a.To {
		return Segment{}, false
	}
	exact := a.Flags&ACK != 0 && a.Ack == e.isn+1
	switch {
	case a.Flags&RST != 0 && exact:
		p.failed(e, Refused, now)
		p.next = p.earliest()
		return Segment{}, true
	case a.Flags&RST != 0: // nobody who saw our SYN sends this (RFC 9293, 3.10.7.3)
		return Segment{}, true
	case a.Flags&ACK == 0: // the server would have to open a connection to us
		return Segment{}, false
	case a.Flags&SYN == 0 || !exact: // of an older connection of these ports; our SYN is sent again by its time-out
		return Segment{From: a.To, To: a.From, Seq: a.Ack, Flags: RST}, true
	}
	profile := Read(a.Options)
	profile.ECN = a.Flags&(ECE|CWR) == ECE
	if profile.MSS == 0 {
		profile.MSS = defaultMSS(a.From.Addr())
	}
	if e.doubt && e.profile.less(&profile) {
		e.deaf = now + distrust
	}
	e.doubt = false
	p.set(e, profile, now)
	p.know(e, now)
	p.next = p.earliest()
	return Segment{From: a.To, To: a.From, Seq: a.Ack, Flags: RST}, true
}

// Profile returns what is known of a server.
func (p *Prober) Profile(server netip.AddrPort) Profile {
	if e := p.entries[server]; e != nil {
		return e.profile
	}
	return Profile{}
}

// A Server is one as others see it.
type Server struct {
	Address netip.AddrPort
	Profile Profile
	State   State
	Age     time.Duration // since the profile was learned or confirmed; zero where nothing is known
}

// List returns all servers in order.
func (p *Prober) List(now time.Duration) []Server {
	list := make([]Server, 0, len(p.entries))
	for a, e := range p.entries {
		s := Server{Address: a, Profile: e.profile, State: e.state}
		if e.profile != (Profile{}) {
			s.Age = now - e.learned
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Server) int { return a.Address.Compare(b.Address) })
	return list
}
