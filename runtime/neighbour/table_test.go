package neighbour

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// The states of a neighbour; one row a test below.
//
//	state       event                              next
//	unknown     wanted, or looked up               incomplete, solicited at once, again each second
//	incomplete  answer                             reachable
//	incomplete  three solicitations unanswered     failed
//	failed      wanted: 2, 4, ... 32 s pass        incomplete
//	failed      not wanted                         unknown
//	reachable   30 s pass, wanted or used          probe, solicited by unicast
//	reachable   60 s unused, not wanted            unknown
//	unknown     seeded                             stale
//	stale       at once, a batch after the other   probe, solicited by unicast
//	stale       answer                             reachable
//	probe       answer                             reachable
//	probe       three solicitations unanswered     incomplete, solicited by multicast

var (
	hop  = Key{Port: 1, VLAN: 5, Addr: netip.MustParseAddr("198.18.1.11")}
	mac1 = MAC{2, 0, 0, 0, 0, 1}
	mac2 = MAC{2, 0, 0, 0, 0, 2}
)

// script drives a table and writes down what it does.
type script struct {
	*testing.T
	t   *Table
	now time.Duration
	log []string
}

func newScript(t *testing.T) *script { return &script{T: t, t: New()} }

// pass lets time pass in steps of 100 ms.
func (s *script) pass(d time.Duration) {
	for end := s.now + d; ; s.now += 100 * time.Millisecond {
		for _, a := range s.t.Advance(s.now, nil, func(k Key) { s.log = append(s.log, "failed") }) {
			switch {
			case a.Verb == Announce:
				s.log = append(s.log, "announce")
			case a.To != MAC{}:
				s.log = append(s.log, "unicast")
			default:
				s.log = append(s.log, "solicit")
			}
		}
		if s.now >= end {
			return
		}
	}
}

func (s *script) want(state State, log string) {
	s.Helper()
	if _, got := s.t.Get(hop); got != state {
		s.Errorf("at %v: state %v, want %v", s.now, got, state)
	}
	if got := strings.Join(s.log, " "); got != log {
		s.Errorf("at %v: did %q, want %q", s.now, got, log)
	}
	s.log = nil
}

func TestUnansweredBacksOff(t *testing.T) {
	s := newScript(t)
	s.t.Want([]Key{hop}, 0)
	s.pass(0)
	s.want(Incomplete, "solicit")
	s.pass(2 * time.Second)
	s.want(Incomplete, "solicit solicit")
	s.pass(time.Second)
	s.want(Failed, "failed")
	s.pass(1900 * time.Millisecond)
	s.want(Failed, "")
	s.pass(3100 * time.Millisecond)
	s.want(Failed, "solicit solicit solicit failed")
	s.pass(3900 * time.Millisecond)
	s.want(Failed, "")
	s.pass(100 * time.Millisecond)
	s.want(Incomplete, "solicit")
	s.pass(5 * time.Minute)
	if n := len(s.log); n < 24 || n > 40 { // four entries each 35 s
		t.Errorf("%d entries in five minutes", n)
	}
}

func TestAnswered(t *testing.T) {
	s := newScript(t)
	s.t.Want([]Key{hop}, 0)
	s.pass(time.Second)
	v := s.t.Version()
	if !s.t.Learn(hop, mac1, true, true, s.now) {
		t.Error("answer not taken")
	}
	if s.t.Version() == v {
		t.Error("version did not change")
	}
	s.want(Reachable, "solicit solicit")
	s.pass(29900 * time.Millisecond)
	s.want(Reachable, "")
	s.pass(100 * time.Millisecond)
	s.want(Probe, "unicast")
	v = s.t.Version()
	s.t.Learn(hop, mac1, true, true, s.now)
	s.want(Reachable, "")
	if s.t.Version() != v {
		t.Error("version changed without a change")
	}
}

func TestProbeUnanswered(t *testing.T) {
	s := newScript(t)
	s.t.Want([]Key{hop}, 0)
	s.t.Learn(hop, mac1, true, true, 0)
	s.pass(32 * time.Second)
	s.want(Probe, "unicast unicast unicast")
	v := s.t.Version()
	s.pass(time.Second)
	s.want(Incomplete, "solicit")
	if s.t.Version() == v {
		t.Error("version did not change")
	}
	s.pass(3 * time.Second)
	s.want(Failed, "solicit solicit failed")
	s.t.Learn(hop, mac2, false, true, s.now)
	s.want(Reachable, "")
}

func TestHearsayDoesNotEndAProbe(t *testing.T) {
	s := newScript(t)
	s.t.Want([]Key{hop}, 0)
	s.t.Learn(hop, mac1, true, true, 0)
	s.pass(30 * time.Second)
	s.t.Learn(hop, mac1, false, true, s.now)
	s.want(Probe, "unicast")
}

func TestOverride(t *testing.T) {
	s := newScript(t)
	s.t.Want([]Key{hop}, 0)
	s.t.Learn(hop, mac1, true, true, 0)
	if s.t.Learn(hop, mac2, false, false, 0) {
		t.Error("another address taken without override")
	}
	if !s.t.Learn(hop, mac2, false, true, 0) {
		t.Error("override not taken")
	}
	if got, _ := s.t.Get(hop); got != mac2 {
		t.Errorf("MAC %v", got)
	}
}

func TestNotAsked(t *testing.T) {
	s := newScript(t)
	if s.t.Learn(hop, mac1, true, true, 0) {
		t.Error("a neighbour nobody asked for was kept")
	}
	s.t.Want([]Key{hop}, 0)
	for _, bad := range []MAC{{}, {1, 0, 0, 0, 0, 1}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		if s.t.Learn(hop, bad, true, true, 0) {
			t.Errorf("MAC %v taken", bad)
		}
	}
}

func TestTransient(t *testing.T) {
	s := newScript(t)
	if _, st := s.t.Lookup(hop, 0); st != Incomplete {
		t.Errorf("state %v", st)
	}
	s.pass(3 * time.Second)
	s.want(Failed, "solicit solicit solicit failed")
	s.pass(2 * time.Second)
	s.want(Unknown, "")

	s.t.Lookup(hop, s.now)
	s.t.Learn(hop, mac1, true, true, s.now)
	s.pass(50 * time.Second)
	s.want(Reachable, "") // not asked about, not probed
	s.t.Lookup(hop, s.now)
	s.pass(10 * time.Second)
	s.want(Probe, "unicast")
	s.t.Learn(hop, mac1, true, true, s.now)
	s.pass(50 * time.Second)
	s.want(Unknown, "")
}

func TestTransientsAreBounded(t *testing.T) {
	s := newScript(t)
	for i := range 2 * maxTransient {
		s.t.Lookup(Key{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}, 0)
	}
	if n := len(s.t.List(0)); n != maxTransient {
		t.Errorf("%d entries, want %d", n, maxTransient)
	}
	s.t.Want([]Key{hop}, 0)
	if _, st := s.t.Get(hop); st != Incomplete {
		t.Error("a wanted hop has no place")
	}
	s.pass(10 * time.Second)
	if n := len(s.t.List(s.now)); n != 1 {
		t.Errorf("%d entries left, want 1", n)
	}
	if _, st := s.t.Lookup(Key{Addr: netip.MustParseAddr("10.1.1.1")}, s.now); st != Incomplete {
		t.Errorf("no place after the others are gone: %v", st)
	}
}

func TestWantedNoMore(t *testing.T) {
	s := newScript(t)
	s.t.Want([]Key{hop}, 0)
	s.t.Learn(hop, mac1, true, true, 0)
	s.t.Want(nil, 0)
	if s.t.transient != 1 {
		t.Errorf("%d transients", s.t.transient)
	}
	s.pass(2 * time.Minute)
	s.want(Unknown, "")
	if s.t.transient != 0 {
		t.Errorf("%d transients", s.t.transient)
	}
}

func TestAnnouncements(t *testing.T) {
	s := newScript(t)
	s.t.Own([]Key{hop}, 0)
	s.pass(10 * time.Second)
	s.want(Unknown, "announce announce announce")
	s.t.Own([]Key{hop}, s.now)
	s.pass(10 * time.Second)
	s.want(Unknown, "")
	s.t.Defend(hop, s.now)
	s.t.Defend(hop, s.now)
	s.pass(100 * time.Millisecond)
	s.t.Defend(hop, s.now) // within a second of the last
	s.pass(10 * time.Second)
	s.want(Unknown, "announce")
	s.t.Reannounce(s.now)
	s.pass(10 * time.Second)
	s.want(Unknown, "announce announce announce")
	s.t.Own([]Key{}, s.now)
	s.t.Own([]Key{hop}, s.now)
	s.pass(10 * time.Second)
	s.want(Unknown, "announce announce announce")
}

func TestNext(t *testing.T) {
	table := New()
	table.Advance(0, nil, nil)
	if got := table.Next(); got < time.Hour {
		t.Errorf("an empty table has something to do at %v", got)
	}
	table.Want([]Key{hop}, 5*time.Second)
	if got := table.Next(); got != 5*time.Second {
		t.Errorf("next %v", got)
	}
	table.Advance(5*time.Second, nil, nil)
	if got := table.Next(); got != 6*time.Second {
		t.Errorf("next %v", got)
	}
}

func TestSeeded(t *testing.T) {
	s := newScript(t)
	v := s.t.Version()
	s.t.Seed(hop, mac1, 0)
	if mac, state := s.t.Get(hop); mac != mac1 || state != Stale || !state.Usable() || s.t.Version() == v {
		t.Errorf("seeded: %v, %v", mac, state)
	}
	s.t.Want([]Key{hop}, 0)
	s.t.Learn(hop, mac1, false, true, 0) // hearsay does not spare the question
	s.want(Stale, "")
	s.pass(0)
	s.want(Probe, "unicast")
	v = s.t.Version()
	s.t.Learn(hop, mac1, true, true, s.now)
	s.want(Reachable, "")
	if s.t.Version() != v {
		t.Error("version changed without a change")
	}
	s.t.Seed(hop, mac2, s.now)
	if mac, _ := s.t.Get(hop); mac != mac1 {
		t.Errorf("a seed replaced what is known by %v", mac)
	}
}

// TestSeededAndGone: a predecessor's neighbour stays in use until nobody answers.
func TestSeededAndGone(t *testing.T) {
	s := newScript(t)
	s.t.Seed(hop, mac1, 0)
	s.t.Want([]Key{hop}, 0)
	v := s.t.Version()
	s.pass(2900 * time.Millisecond)
	s.want(Probe, "unicast unicast unicast")
	if s.t.Version() != v {
		t.Error("given up early")
	}
	s.pass(100 * time.Millisecond)
	s.want(Incomplete, "solicit")
	if s.t.Version() == v {
		t.Error("version did not change")
	}
}

// TestSeedsAreSpread: not all are asked at once, and those that nobody wants are forgotten.
func TestSeedsAreSpread(t *testing.T) {
	s := newScript(t)
	var keys []Key
	for i := range 5 * seedBatch {
		k := Key{Port: 1, Addr: netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})}
		s.t.Seed(k, mac1, 0)
		keys = append(keys, k)
	}
	s.t.Seed(hop, MAC{}, 0)
	s.t.Seed(hop, MAC{1}, 0)
	s.t.Want(keys[:4*seedBatch], 0)
	for now := time.Duration(0); now < 5*seedInterval; now += seedInterval {
		want := seedBatch
		if got := len(s.t.Advance(now, nil, nil)); got != want {
			t.Errorf("%d are asked at %v, want %d", got, now, want)
		}
	}
	s.pass(2 * time.Minute)
	if n := len(s.t.List(s.now)); n != 4*seedBatch {
		t.Errorf("%d neighbours are known, want those that are wanted: %d", n, 4*seedBatch)
	}
}
