package snat

import (
	"container/list"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Bounds of a Table.
const (
	MaxSessions = 1 << 16
	MaxPerHost  = 1 << 15 // sessions of one address inside
)

// A Protocol is what a session speaks. The ports of an echo are its identifier.
type Protocol uint8

// The protocols.
const (
	TCP Protocol = iota
	UDP
	Echo
	protocols
)

// A Segment is what of a TCP header moves a session's state.
type Segment struct{ SYN, ACK, FIN, RST bool }

// A Verdict says what became of a packet.
type Verdict uint8

// The verdicts.
const (
	Translated Verdict = iota
	NoPool             // there is no address outside of the packet's family
	NoPort             // every port that the end may have is taken
	Full               // the table is full, or the host has as many sessions as it may
	Unknown            // nobody inside has that address and port outside
	Filtered           // the end inside has no session with who sent it
)

// class is how long a session lives without a packet from inside. Sessions of a class are in one list, the longest unused
// first.
type class uint8

const (
	over        class = iota // both ends closed, or one reset
	transitory               // opening, or half closed
	echoing                  //
	datagrams                //
	established              //
	classes
)

// lifetimes are those of RFC 5382 REQ-5, RFC 4787 REQ-5 and RFC 5508 REQ-2 at least; what is over may rest shorter than
// TIME_WAIT.
var lifetimes = [classes]time.Duration{
	over: 60 * time.Second, transitory: 4 * time.Minute, echoing: 60 * time.Second, datagrams: 5 * time.Minute, established: 7440 * time.Second,
}

// end is an address and port on one side.
type end struct {
	protocol Protocol
	at       netip.AddrPort
}

// mapping is what an end inside is outside.
type mapping struct {
	inside, outside end
	remotes         map[netip.Addr]int // sessions with an address
}

type sessionKey struct {
	inside end
	remote netip.AddrPort
}

type session struct {
	key                     sessionKey
	m                       *mapping
	used                    time.Duration // last packet from inside, or one that changed its state
	class                   class
	synOut, synIn           bool
	finOut, finIn, wasReset bool
	place                   *list.Element
}

// A Table holds mappings. Make one with New.
type Table struct {
	pool     [2][]netip.Addr // IPv4, IPv6
	random   *rand.Rand
	inside   map[end]*mapping
	outside  map[end]*mapping
	sessions map[sessionKey]*session
	hosts    map[netip.Addr]int
	lists    [classes]*list.List

	// Evicted counts sessions that were over and gave way to new ones, Expired those whose time was over.
	Evicted, Expired uint64
}

// New returns an empty table without addresses. seed makes its ports hard to guess.
func New(seed [32]byte) *Table {
	t := &Table{
		random: rand.New(rand.NewChaCha8(seed)), inside: map[end]*mapping{}, outside: map[end]*mapping{},
		sessions: map[sessionKey]*session{}, hosts: map[netip.Addr]int{},
	}
	for i := range t.lists {
		t.lists[i] = list.New()
	}
	return t
}

// Pool replaces the addresses outside. Sessions by addresses that are gone end.
func (t *Table) Pool(addrs []netip.Addr) {
	t.pool = [2][]netip.Addr{}
	for _, a := range addrs {
		f := family(a)
		t.pool[f] = append(t.pool[f], a)
	}
	for _, l := range t.lists {
		for e := l.Front(); e != nil; {
			s := e.Value.(*session)
			e = e.Next()
			if a := s.m.outside.at.Addr(); !slices.Contains(t.pool[family(a)], a) {
				t.remove(s)
			}
		}
	}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// Has says whether there are addresses outside of an address's family.
func (t *Table) Has(a netip.Addr) bool { return len(t.pool[family(a)]) > 0 }

// Len returns how many sessions there are, Ports how many ends inside have an address and port outside.
func (t *Table) Len() int   { return len(t.sessions) }
func (t *Table) Ports() int { return len(t.inside) }

// Out takes in a packet from inside and returns what its source is to be. g is looked at with TCP only.
func (t *Table) Out(p Protocol, src, dst netip.AddrPort, g Segment, now time.Duration) (outside netip.AddrPort, v Verdict) {
	t.Expire(now)
	if p == Echo {
		dst = netip.AddrPortFrom(dst.Addr(), 0)
	}
	k := sessionKey{end{p, src}, dst}
	s := t.sessions[k]
	if s == nil {
		if s, v = t.begin(k, now); s == nil {
			return outside, v
		}
	}
	s.used = now
	if p == TCP {
		s.segment(g, true)
	}
	t.file(s)
	return s.m.outside.at, Translated
}

// In takes in a packet from outside and returns what its destination is to be.
func (t *Table) In(p Protocol, src, dst netip.AddrPort, g Segment, now time.Duration) (inside netip.AddrPort, v Verdict) {
	t.Expire(now)
	m := t.outside[end{p, dst}]
	if m == nil {
		return inside, Unknown
	}
	if m.remotes[src.Addr()] == 0 {
		return inside, Filtered
	}
	if p == Echo {
		src = netip.AddrPortFrom(src.Addr(), 0)
	}
	// A packet by another port of a known address belongs to no session yet; what answers it begins one.
	if s := t.sessions[sessionKey{m.inside, src}]; s != nil && p == TCP {
		if before := *s; s.segment(g, false) && before.class != s.class {
			s.used = now
			t.file(s)
		}
	}
	return m.inside.at, Translated
}

// Outside returns what an end inside is outside to a remote one, for an error that quotes a packet: nothing changes.
func (t *Table) Outside(p Protocol, inside, remote netip.AddrPort) (outside netip.AddrPort, ok bool) {
	m := t.inside[end{p, inside}]
	if m == nil || m.remotes[remote.Addr()] == 0 {
		return outside, false
	}
	return m.outside.at, true
}

// Inside is the other way round.
func (t *Table) Inside(p Protocol, outside, remote netip.AddrPort) (inside netip.AddrPort, ok bool) {
	m := t.outside[end{p, outside}]
	if m == nil || m.remotes[remote.Addr()] == 0 {
		return inside, false
	}
	return m.inside.at, true
}

// begin begins a session, and the mapping of its end inside where that has none.
func (t *Table) begin(k sessionKey, now time.Duration) (*session, Verdict) {
	host := k.inside.at.Addr()
	if !t.Has(host) {
		return nil, NoPool
	}
	if t.hosts[host] >= MaxPerHost || len(t.sessions) >= MaxSessions && !t.evict() {
		return nil, Full
	}
	m := t.inside[k.inside]
	if m == nil {
		out, ok := t.port(k.inside)
		if !ok {
			return nil, NoPort
		}
		m = &mapping{inside: k.inside, outside: end{k.inside.protocol, out}, remotes: map[netip.Addr]int{}}
		t.inside[m.inside], t.outside[m.outside] = m, m
	}
	s := &session{key: k, m: m, used: now, class: classOf[k.inside.protocol]}
	s.place = t.lists[s.class].PushBack(s)
	t.sessions[k] = s
	t.hosts[host]++
	m.remotes[k.remote.Addr()]++
	return s, Translated
}

// classOf is the class of a session that begins.
var classOf = [protocols]class{TCP: transitory, UDP: datagrams, Echo: echoing}

// segment moves the state of a TCP session and says whether it did.
func (s *session) segment(g Segment, out bool) bool {
	before := *s
	switch {
	case g.RST:
		s.wasReset = true
	case g.SYN && out && !g.ACK && s.class == over: // the ends begin anew
		s.synOut, s.synIn, s.finOut, s.finIn, s.wasReset = true, false, false, false, false
	case out:
		s.synOut = true // or in the middle of a connection that lives
		s.synIn = s.synIn || !g.SYN
		s.finOut = s.finOut || g.FIN
		s.wasReset = false // who was reset says no more
	default:
		s.synIn = s.synIn || g.SYN
		s.finIn = s.finIn || g.FIN
	}
	switch {
	case s.wasReset, s.finOut && s.finIn:
		s.class = over
	case s.finOut, s.finIn, !s.synOut, !s.synIn:
		s.class = transitory
	default:
		s.class = established
	}
	s.place = before.place
	return *s != before
}

// file puts a session behind all others of its class.
func (t *Table) file(s *session) {
	s.unfile(t)
	s.place = t.lists[s.class].PushBack(s)
}

// unfile takes a session out of whichever list it is in.
func (s *session) unfile(t *Table) {
	for _, l := range t.lists {
		l.Remove(s.place) // does nothing where the element is of another list
	}
}

func (t *Table) remove(s *session) {
	s.unfile(t)
	delete(t.sessions, s.key)
	host := s.key.inside.at.Addr()
	if t.hosts[host]--; t.hosts[host] == 0 {
		delete(t.hosts, host)
	}
	m, remote := s.m, s.key.remote.Addr()
	if m.remotes[remote]--; m.remotes[remote] == 0 {
		delete(m.remotes, remote)
	}
	if len(m.remotes) == 0 {
		delete(t.inside, m.inside)
		delete(t.outside, m.outside)
	}
}

// evict makes room by a session that is over, or else one that never was a connection.
func (t *Table) evict() bool {
	for _, c := range []class{over, transitory, echoing} {
		if e := t.lists[c].Front(); e != nil {
			t.Evicted++
			t.remove(e.Value.(*session))
			return true
		}
	}
	return false
}

// Expire ends the sessions whose time is over.
func (t *Table) Expire(now time.Duration) {
	for c, l := range t.lists {
		for e := l.Front(); e != nil && now-e.Value.(*session).used >= lifetimes[c]; e = l.Front() {
			t.Expired++
			t.remove(e.Value.(*session))
		}
	}
}

// Next is when Expire has something to do, or later, whichever comes first.
func (t *Table) Next(later time.Duration) time.Duration {
	for c, l := range t.lists {
		if e := l.Front(); e != nil {
			later = min(later, e.Value.(*session).used+lifetimes[c])
		}
	}
	return later
}

// port finds an address and port outside: the host's address, and the end's own port where that is free, else one of the
// same kind (RFC 4787 REQ-3 and 4): well known or not, even or odd.
func (t *Table) port(inside end) (netip.AddrPort, bool) {
	pool := t.pool[family(inside.at.Addr())]
	first := int(t.hash(inside.at.Addr()) % uint64(len(pool)))
	for i := range pool {
		a := pool[(first+i)%len(pool)]
		if n, ok := t.free(inside.protocol, a, inside.at.Port()); ok {
			return netip.AddrPortFrom(a, n), true
		}
	}
	return netip.AddrPort{}, false
}

// hash spreads hosts over the pool, the same way each time.
func (t *Table) hash(a netip.Addr) uint64 {
	const prime = 0x100000001b3
	h := uint64(0xcbf29ce484222325)
	for _, b := range a.As16() {
		h = (h ^ uint64(b)) * prime
	}
	return h ^ h>>32
}

// How many ports are looked at beyond the wanted one: by chance those of the same parity, then any in a row. A packet costs no
// more, however full an address is.
const (
	guesses = 64
	inARow  = 1024
)

func (t *Table) free(p Protocol, a netip.Addr, want uint16) (uint16, bool) {
	good := func(n uint32) bool {
		return (n != 0 || p == Echo) && t.outside[end{p, netip.AddrPortFrom(a, uint16(n))}] == nil
	}
	if good(uint32(want)) {
		return want, true
	}
	low, size := uint32(1024), uint32(1<<16-1024)
	switch {
	case p == Echo:
		low, size = 0, 1<<16
	case want < 1024:
		low, size = 0, 1024
	}
	for range guesses {
		if n := low + (t.random.Uint32N(size)&^1 | uint32(want)&1); good(n) {
			return uint16(n), true
		}
	}
	start := t.random.Uint32N(size)
	for i := range min(size, inARow) {
		if n := low + (start+i)%size; good(n) {
			return uint16(n), true
		}
	}
	return 0, false
}
