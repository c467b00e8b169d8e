package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// now makes counters out of active connections in the order of servers(): "x" is closed, "o" is overloaded.
type state struct {
	active, inactive uint32
	not              string
}

func counters(now []state) func(uint32) Counters {
	return func(s uint32) Counters {
		n := now[s-10]
		return Counters{Active: n.active, Inactive: n.inactive, Closed: n.not == "closed", Overloaded: n.not == "overloaded"}
	}
}

func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kind    Kind
		weights []uint16
		now     []state
		want    string // "-": none
	}{
		{"lc least", LeastConnection, []uint16{1, 9, 1}, []state{{5, 0, ""}, {4, 0, ""}, {6, 0, ""}}, "B"},
		{"lc first of equal", LeastConnection, []uint16{1, 9, 1}, []state{{5, 0, ""}, {4, 0, ""}, {4, 0, ""}}, "B"},
		{"lc inactive counts a 256th", LeastConnection, []uint16{1, 1}, []state{{1, 0, ""}, {0, 255, ""}}, "B"},
		{"lc 256 inactive are one", LeastConnection, []uint16{1, 1}, []state{{1, 0, ""}, {0, 256, ""}}, "A"},
		{"lc closed", LeastConnection, []uint16{1, 1}, []state{{0, 0, "closed"}, {9, 0, ""}}, "B"},
		{"lc overloaded", LeastConnection, []uint16{1, 1}, []state{{0, 0, "overloaded"}, {9, 0, ""}}, "B"},
		{"lc none", LeastConnection, []uint16{1, 1}, []state{{0, 0, "overloaded"}, {9, 0, "closed"}}, "-"},
		{"lc weight zero", LeastConnection, []uint16{0, 1}, []state{{0, 0, ""}, {9, 0, ""}}, "B"},
		{"wlc by weight", WeightedLeastConnection, []uint16{1, 3}, []state{{2, 0, ""}, {5, 0, ""}}, "B"},
		{"wlc just not", WeightedLeastConnection, []uint16{1, 3}, []state{{2, 0, ""}, {6, 0, ""}}, "A"},
		{"wlc both idle", WeightedLeastConnection, []uint16{1, 3}, []state{{0, 0, ""}, {0, 0, ""}}, "A"},
		{"sed both idle", ShortestDelay, []uint16{1, 3}, []state{{0, 0, ""}, {0, 0, ""}}, "B"},
		{"sed heavy busy", ShortestDelay, []uint16{1, 3}, []state{{0, 0, ""}, {3, 0, ""}}, "A"},
		{"sed ignores inactive", ShortestDelay, []uint16{1, 1}, []state{{0, 900, ""}, {1, 0, ""}}, "A"},
		{"nq idle before fast", NeverQueue, []uint16{9, 1, 1}, []state{{1, 0, ""}, {0, 0, ""}, {0, 0, ""}}, "B"},
		{"nq none idle", NeverQueue, []uint16{1, 9}, []state{{1, 0, ""}, {2, 0, ""}}, "B"},
		{"nq idle closed", NeverQueue, []uint16{1, 9}, []state{{0, 0, "closed"}, {2, 0, ""}}, "B"},
		{"fo heaviest", FailOver, []uint16{1, 9, 5}, []state{{0, 0, ""}, {999, 0, ""}, {0, 0, ""}}, "B"},
		{"fo next", FailOver, []uint16{1, 9, 5}, []state{{0, 0, ""}, {999, 0, "overloaded"}, {0, 0, ""}}, "C"},
		{"ovf heaviest", Overflow, []uint16{1, 9, 5}, []state{{0, 0, ""}, {8, 0, ""}, {0, 0, ""}}, "B"},
		{"ovf over", Overflow, []uint16{1, 9, 5}, []state{{0, 0, ""}, {9, 0, ""}, {0, 0, ""}}, "C"},
		{"ovf all full", Overflow, []uint16{1, 9, 5}, []state{{1, 0, ""}, {9, 0, ""}, {5, 0, ""}}, "B"},
		{"largest counters", WeightedLeastConnection, []uint16{32767, 32766}, []state{{math.MaxUint32, math.MaxUint32, ""}, {math.MaxUint32, math.MaxUint32, ""}}, "A"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := "-"
			if s, ok := plan(t, tt.kind, servers(tt.weights...), 1024).Pick(Key{}, new(uint32), counters(tt.now), 0); ok {
				got = string(rune('A' + s - 10))
			}
			if got != tt.want {
				t.Errorf("server %s, want %s", got, tt.want)
			}
		})
	}
}

// TestTwo draws by numbers whose halves are the slots: A is slots 0 and 1, B slot 2.
func TestTwo(t *testing.T) {
	for _, tt := range []struct {
		name          string
		kind          Kind
		first, second uint64
		now           []state
		want          string
	}{
		{"p2c fewer", TwoChoices, 0, 2, []state{{5, 0, ""}, {4, 0, ""}}, "B"},
		{"p2c first of equal", TwoChoices, 2, 0, []state{{5, 0, ""}, {5, 9, ""}}, "B"},
		{"p2c the same twice", TwoChoices, 0, 1, []state{{5, 0, ""}, {0, 0, ""}}, "A"},
		{"p2c one closed", TwoChoices, 0, 2, []state{{5, 0, ""}, {0, 0, "closed"}}, "A"},
		{"p2c both closed", TwoChoices, 0, 1, []state{{5, 0, "closed"}, {9, 0, ""}}, "B"},
		{"p2c all closed", TwoChoices, 0, 1, []state{{5, 0, "closed"}, {0, 0, "overloaded"}}, "-"},
		{"twos by weight", Twos, 2, 0, []state{{5, 0, ""}, {3, 0, ""}}, "A"},
		{"twos inactive", Twos, 2, 0, []state{{6, 1, ""}, {3, 0, ""}}, "B"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := "-"
			if s, ok := plan(t, tt.kind, servers(2, 1), 1024).Pick(Key{}, nil, counters(tt.now), tt.first|tt.second<<32); ok {
				got = string(rune('A' + s - 10))
			}
			if got != tt.want {
				t.Errorf("server %s, want %s", got, tt.want)
			}
		})
	}
}

// TestHash keeps the hash as it is: it is the card's. The slot is the hash modulo the number of slots.
func TestHash(t *testing.T) {
	k := Key{Source: netip.MustParseAddr("198.18.0.7"), SourcePort: 40000, Destination: netip.MustParseAddr("2001:db8::80")}
	for _, tt := range []struct {
		name string
		k    Key
		by   uint32
		seed uint64
		want uint64
	}{
		{"source", k, keySource, 0, 0xc026403e29734b2e},
		{"source with a seed", k, keySource, 0x0123456789abcdef, 0xcd47cbfc0d593d19},
		{"source and port", k, keySourcePort, 0, 0x4a11bc1a264f0147},
		{"destination", k, keyDestination, 0, 0xe0180e3f1ada85a9},
		{"mapped is IPv4", Key{Source: netip.MustParseAddr("::ffff:198.18.0.7")}, keySource, 0, 0xc026403e29734b2e},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := hash(tt.k, tt.by, tt.seed); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
}

func TestFallback(t *testing.T) {
	list := servers(1, 1, 1)
	k := Key{Source: netip.MustParseAddr("198.18.0.7")}
	for _, tt := range []struct {
		name     string
		fallback bool
		closed   int // servers from the hashed one on
		want     int // slots behind the hashed one; -1: none
	}{
		{"open", false, 0, 0}, {"closed", false, 1, -1},
		{"open with fallback", true, 0, 0}, {"closed with fallback", true, 1, 1}, {"two closed", true, 2, 2}, {"all closed", true, 3, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Make(SourceHash, list, Options{Fallback: tt.fallback}, 1024, nil)
			if err != nil {
				t.Fatal(err)
			}
			at, _ := p.Pick(k, nil, nil, 0)
			behind := func(n int) uint32 { return 10 + (at-10+uint32(n))%3 }
			got, ok := p.Pick(k, nil, func(s uint32) Counters {
				for n := range tt.closed {
					if s == behind(n) {
						return Counters{Closed: true}
					}
				}
				return Counters{}
			}, 0)
			if ok != (tt.want >= 0) || ok && got != behind(tt.want) {
				t.Errorf("server %d, %v; the hashed one is %d", got, ok, at)
			}
		})
	}
}

// TestShares spreads clients by every scheduler whose choice does not hang on counters: exactly for those that walk,
// within three standard deviations for those that hash or draw.
func TestShares(t *testing.T) {
	const n = 90_000
	list := servers(4, 3, 2)
	for _, tt := range []struct {
		name    string
		kind    Kind
		options Options
		shares  []int // of nine
		exact   bool
	}{
		{"rr", RoundRobin, Options{}, []int{3, 3, 3}, true},
		{"wrr", WeightedRoundRobin, Options{}, []int{4, 3, 2}, true},
		{"sh", SourceHash, Options{Seed: 1}, []int{4, 3, 2}, false},
		{"sh port", SourceHash, Options{Seed: 2, Port: true}, []int{4, 3, 2}, false},
		{"dh", DestinationHash, Options{Seed: 3}, []int{3, 3, 3}, false},
		{"mh", Maglev, Options{Seed: 4}, []int{4, 3, 2}, false},
		{"mh port", Maglev, Options{Seed: 5, Port: true}, []int{4, 3, 2}, false},
		{"p2c", TwoChoices, Options{}, []int{4, 3, 2}, false},
		{"twos", Twos, Options{}, []int{4, 3, 2}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Make(tt.kind, list, tt.options, 1<<13, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := spreadOver(&p, n)
			chi2 := 0.0
			for i, s := range tt.shares {
				want := float64(n * s / 9)
				off := float64(got[i]) - want
				chi2 += off * off / want
				share := float64(s) / 9
				if sigma := math.Sqrt(n * share * (1 - share)); tt.exact && off != 0 || math.Abs(off) > 3*sigma {
					t.Errorf("server %d has %d connections, want %.0f: %.1f standard deviations", i, got[i], want, off/sigma)
				}
			}
			if chi2 > 13.8 { // one in a thousand with two degrees of freedom
				t.Errorf("chi-square %.1f", chi2)
			}
		})
	}
}

func spreadOver(p *Plan, n int) [3]int {
	var got [3]int
	cursor := uint32(0)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		// Clients of one network, one after the other, are what a hash has to keep apart.
		a := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		k := Key{Source: a, Destination: netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(i >> 8), 15: byte(i)}), SourcePort: uint16(i >> 3)}
		if i >= 1<<16 {
			k.Source, k.Destination = netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), a
		}
		server, _ := p.Pick(k, &cursor, nil, rnd.Uint64())
		got[server-10]++
	}
	return got
}

// ExamplePlan_Pick says where the card sends a client.
func ExamplePlan_Pick() {
	servers := []Server{{Index: 0, Weight: 3, ID: "198.18.1.11:80"}, {Index: 1, Weight: 1, ID: "198.18.1.12:80"}}
	p, err := Make(Maglev, servers, Options{Port: true}, 1024, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := Key{Source: netip.MustParseAddr("198.18.0.7"), SourcePort: 40000}
	server, ok := p.Pick(client, nil, nil, 0)
	fmt.Println(len(p.Slots), "slots, server", server, ok)
	// Output: 1021 slots, server 1 true
}
