package neighbour

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Key names a neighbour: an address is only known on one port and VLAN.
type Key struct {
	Port int
	VLAN uint16 // zero: untagged
	Addr netip.Addr
}

func compare(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.VLAN, b.VLAN), a.Addr.Compare(b.Addr))
}

// State is what is known of a neighbour.
type State uint8

// The states, after RFC 4861 7.3.2.
const (
	Unknown    State = iota // never asked for, or forgotten
	Incomplete              // asked for, not answered yet
	Reachable               // answered lately
	Stale                   // answered somebody before us; in use, asked by unicast soon
	Probe                   // asked again by unicast; still in use
	Failed                  // nobody answers; asked again later where wanted
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"unknown", "incomplete", "reachable", "stale", "probe", "failed"}[s%(Failed+1)]
}

// Usable says whether frames can be sent to a neighbour in this state.
func (s State) Usable() bool { return s == Reachable || s == Stale || s == Probe }

// The times and bounds of the state machine.
const (
	retry         = time.Second      // between solicitations (RFC 4861 RETRANS_TIMER)
	attempts      = 3                // solicitations before a state is left
	reachable     = 30 * time.Second // how long an answer counts (REACHABLE_TIME)
	backoffFirst  = 2 * time.Second  // after a failure, doubled each time
	backoffMost   = 32 * time.Second
	unused        = 60 * time.Second // after that a hop that is not wanted is forgotten
	announcements = 3                // of a new address of ours
	maxTransient  = 1024             // hops that are not wanted
	seedBatch     = 64               // stale neighbours that are asked at once
	seedInterval  = 10 * time.Millisecond
)

// Verb says what an Action sends.
type Verb uint8

// The verbs.
const (
	Solicit  Verb = iota // ask for Key.Addr
	Announce             // tell that Key.Addr is ours
)

// An Action is a frame to send. A Solicit goes to To where that is not zero, else to everybody.
type Action struct {
	Verb Verb
	Key  Key
	To   MAC
}

type entry struct {
	state    State
	mac      MAC
	wanted   bool
	tries    int
	backoff  time.Duration
	deadline time.Duration // when the state is looked at again
	used     time.Duration // last lookup
	learned  time.Duration // last answer
}

type announcement struct {
	left int
	next time.Duration
}

// Table is the neighbours of all ports. Make one with New; it is for one goroutine.
type Table struct {
	entries   map[Key]*entry
	own       map[Key]*announcement
	transient int
	seeded    int
	version   uint64
	next      time.Duration // nothing is due before it
}

// New returns an empty table.
func New() *Table {
	return &Table{entries: map[Key]*entry{}, own: map[Key]*announcement{}}
}

// Version changes whenever a neighbour becomes usable or unusable or gets another MAC address.
func (t *Table) Version() uint64 { return t.version }

// Want replaces the set of hops that are to be resolved at all times.
func (t *Table) Want(keys []Key, now time.Duration) {
	wanted := make(map[Key]bool, len(keys))
	for _, k := range keys {
		wanted[k] = true
		e := t.entries[k]
		if e == nil {
			e = &entry{state: Incomplete, deadline: now}
			t.entries[k] = e
			t.next = min(t.next, now)
		} else if !e.wanted {
			t.transient--
		}
		e.wanted = true
	}
	for k, e := range t.entries {
		if e.wanted && !wanted[k] {
			e.wanted = false
			e.used = now
			t.transient++
		}
	}
}

// Seed takes in what a predecessor had learned, of a neighbour that is not known yet: it is in use at once and asked by
// unicast, a batch of neighbours after the other. Want is to follow.
func (t *Table) Seed(k Key, mac MAC, now time.Duration) {
	if t.entries[k] != nil || mac[0]&1 != 0 || mac == (MAC{}) {
		return
	}
	at := now + time.Duration(t.seeded/seedBatch)*seedInterval
	t.entries[k] = &entry{state: Stale, mac: mac, deadline: at, used: now, learned: now}
	t.next = min(t.next, at)
	t.seeded++
	t.transient++
	t.version++
}

// Own replaces the set of the card's own addresses. New ones are announced.
func (t *Table) Own(keys []Key, now time.Duration) {
	own := make(map[Key]*announcement, len(keys))
	for _, k := range keys {
		if own[k] = t.own[k]; own[k] == nil {
			own[k] = &announcement{left: announcements, next: now}
			t.next = min(t.next, now)
		}
	}
	t.own = own
}

// Reannounce tells the card's own addresses again, as at the start.
func (t *Table) Reannounce(now time.Duration) {
	for _, a := range t.own {
		a.left, a.next = announcements, now
		t.next = min(t.next, now)
	}
}

// Defend announces an address of ours again, once, because somebody else claimed it.
func (t *Table) Defend(k Key, now time.Duration) {
	if a := t.own[k]; a != nil && a.left == 0 && now >= a.next {
		a.left, a.next = 1, now
		t.next = min(t.next, now)
	}
}

// Lookup returns the MAC address of a neighbour, and asks for it where it is not known. With a state of Failed or Unknown
// nothing will come of waiting.
func (t *Table) Lookup(k Key, now time.Duration) (MAC, State) {
	e := t.entries[k]
	if e == nil {
		if t.transient >= maxTransient {
			return MAC{}, Unknown
		}
		t.transient++
		e = &entry{state: Incomplete, deadline: now}
		t.entries[k] = e
		t.next = min(t.next, now)
	}
	e.used = now
	return e.mac, e.state
}

// Get returns what is known without asking.
func (t *Table) Get(k Key) (MAC, State) {
	if e := t.entries[k]; e != nil {
		return e.mac, e.state
	}
	return MAC{}, Unknown
}

// Learn takes in that a neighbour told its MAC address. solicited says that it answered a question; override that a known
// address may change (RFC 4861 7.2.5). Only neighbours that were asked for are kept. It reports whether packets that wait
// for the neighbour can go.
func (t *Table) Learn(k Key, mac MAC, solicited, override bool, now time.Duration) bool {
	e := t.entries[k]
	if e == nil || mac[0]&1 != 0 || mac == (MAC{}) {
		return false
	}
	known := e.state.Usable()
	if known && mac != e.mac && !override {
		return false
	}
	if !known || mac != e.mac {
		e.mac = mac
		t.version++
	}
	if known && !solicited && mac == e.mac && e.state != Reachable {
		return true // hearsay: the probe goes on
	}
	e.state, e.tries, e.backoff, e.learned = Reachable, 0, 0, now
	e.deadline = now + reachable
	t.next = min(t.next, e.deadline)
	return true
}

// Advance appends what is due at now to actions and returns them. failed is called for each neighbour that has just
// proved unreachable.
func (t *Table) Advance(now time.Duration, actions []Action, failed func(Key)) []Action {
	if now < t.next {
		return actions
	}
	for _, k := range t.due(now) {
		actions = t.step(k, now, actions, failed)
	}
	for _, k := range t.announcing(now) {
		a := t.own[k]
		a.left--
		a.next = now + retry
		actions = append(actions, Action{Verb: Announce, Key: k})
	}
	t.next = t.earliest()
	return actions
}

// earliest is the first deadline of all.
func (t *Table) earliest() time.Duration {
	at := time.Duration(math.MaxInt64)
	for _, e := range t.entries {
		at = min(at, e.deadline)
	}
	for _, a := range t.own {
		if a.left > 0 {
			at = min(at, a.next)
		}
	}
	return at
}

// due returns the neighbours whose deadline has come, in order.
func (t *Table) due(now time.Duration) []Key {
	var keys []Key
	for k, e := range t.entries {
		if e.deadline <= now {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compare)
	return keys
}

func (t *Table) announcing(now time.Duration) []Key {
	var keys []Key
	for k, a := range t.own {
		if a.left > 0 && a.next <= now {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compare)
	return keys
}

// step moves one neighbour whose deadline has come.
func (t *Table) step(k Key, now time.Duration, actions []Action, failed func(Key)) []Action {
	e := t.entries[k]
	if !e.wanted && (e.state == Failed || now-e.used >= unused) {
		delete(t.entries, k)
		t.transient--
		return actions
	}
	switch e.state {
	case Reachable:
		if !e.wanted && e.used <= e.learned { // nobody needs to know
			e.deadline = e.used + unused
			return actions
		}
		e.state, e.tries = Probe, 0
	case Stale:
		e.state, e.tries = Probe, 0
	case Failed:
		e.state, e.tries = Incomplete, 0
	}
	if e.tries == attempts {
		return t.giveUp(k, e, now, actions, failed)
	}
	e.tries++
	e.deadline = now + retry
	a := Action{Verb: Solicit, Key: k}
	if e.state == Probe {
		a.To = e.mac
	}
	return append(actions, a)
}

// giveUp leaves a state in which nobody answered. A neighbour that does not answer by unicast may have moved: it is asked
// for once more from the start.
func (t *Table) giveUp(k Key, e *entry, now time.Duration, actions []Action, failed func(Key)) []Action {
	if e.state == Probe {
		e.state, e.tries = Incomplete, 1
		e.deadline = now + retry
		t.version++
		return append(actions, Action{Verb: Solicit, Key: k})
	}
	e.state = Failed
	e.backoff = min(max(2*e.backoff, backoffFirst), backoffMost)
	e.deadline = now + e.backoff
	if failed != nil {
		failed(k)
	}
	return actions
}

// Next is when Advance may have something to do again.
func (t *Table) Next() time.Duration { return t.next }

// A Neighbour is an entry as others see it.
type Neighbour struct {
	Key
	MAC    MAC
	State  State
	Wanted bool
	Age    time.Duration // since the last answer
}

// Usable says whether frames can be sent to the neighbour.
func (n *Neighbour) Usable() bool { return n.State.Usable() }

// List returns all neighbours in order.
func (t *Table) List(now time.Duration) []Neighbour {
	list := make([]Neighbour, 0, len(t.entries))
	for k, e := range t.entries {
		list = append(list, Neighbour{k, e.mac, e.state, e.wanted, now - e.learned})
	}
	slices.SortFunc(list, func(a, b Neighbour) int { return compare(a.Key, b.Key) })
	return list
}
