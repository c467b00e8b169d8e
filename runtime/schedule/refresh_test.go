package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"splicenic/regs"
)

// oneByOne gives the next n choices as the scheduler makes them, connection after connection, with the comparison that the
// card makes; it is slow. It must give what simulate gives.
func oneByOne(kind Kind, list []Server, n int) Slots {
	list = append([]Server(nil), available(list)...)
	by := map[Kind]uint32{LeastConnection: regs.GroupControlCompareLc, WeightedLeastConnection: regs.GroupControlCompareWlc,
		ShortestDelay: regs.GroupControlCompareSed, NeverQueue: regs.GroupControlCompareNq}[kind]
	var slots Slots
	for range n {
		best := 0
		for i, s := range list {
			c, b := candidate{Counters{Active: s.Active, Inactive: s.Inactive}, uint64(s.Weight)}, list[best]
			if c.better(candidate{Counters{Active: b.Active, Inactive: b.Inactive}, uint64(b.Weight)}, by) {
				best = i
			}
		}
		list[best].Active++
		slots.put(list[best].Index, 0)
	}
	return slots
}

var simulated = []Kind{LeastConnection, WeightedLeastConnection, ShortestDelay, NeverQueue}

func TestSimulate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(simulated).Draw(t, "kind")
		top := rapid.SampledFrom([]uint32{1, 5, 1000, 1<<32 - 2000}).Draw(t, "top")
		list := weighted(draw(t, rapid.IntRange(1, 90).Draw(t, "servers"), top))
		if len(list) == 0 {
			t.Skip("no weight")
		}
		n := rapid.IntRange(1, 300).Draw(t, "slots")
		if diff := cmp.Diff(oneByOne(kind, list, n), simulate(kind, list, n)); diff != "" {
			t.Fatalf("%s (-one by one +simulated):\n%s", kind, diff)
		}
	})
}

// draw makes n servers with counters up to top.
func draw(t *rapid.T, n int, top uint32) []Server {
	list := make([]Server, n)
	heaviest := rapid.SampledFrom([]uint16{1, 4, 100, 65535}).Draw(t, "heaviest")
	for i := range list {
		list[i] = Server{Index: uint32(10 + i), ID: fmt.Sprintf("198.18.1.%d:80", i), Weight: rapid.Uint16Range(0, heaviest).Draw(t, "weight"),
			Active: rapid.Uint32Range(0, top).Draw(t, "active"), Inactive: rapid.Uint32Range(0, top).Draw(t, "inactive"),
			Overloaded: rapid.IntRange(0, 9).Draw(t, "overloaded") == 0}
	}
	return list
}

// TestLargeGroups makes groups that the card cannot compare.
func TestLargeGroups(t *testing.T) {
	const n = 100
	for _, tt := range []struct {
		name  string
		kind  Kind
		alter func(i int, s *Server)
		want  func(i int) int // slots of server i, of 1000
	}{
		{"lc level", LeastConnection, func(int, *Server) {}, func(int) int { return 10 }},
		{"lc fills up", LeastConnection, func(i int, s *Server) { s.Active = uint32(20 * (i % 2)) }, func(i int) int { return 20 * (1 - i%2) }},
		{"lc ignores weight", LeastConnection, func(i int, s *Server) { s.Weight = uint16(1 + i) }, func(int) int { return 10 }},
		{"lc inactive decides", LeastConnection, func(i int, s *Server) { s.Inactive = uint32(256 * 20 * (i % 2)) }, func(i int) int { return 20 * (1 - i%2) }},
		{"wlc", WeightedLeastConnection, func(i int, s *Server) { s.Weight = uint16(1 + 3*(i%2)) }, func(i int) int { return 4 + 12*(i%2) }},
		{"sed", ShortestDelay, func(i int, s *Server) { s.Weight = uint16(1 + 3*(i%2)) }, func(i int) int { return 4 + 12*(i%2) }},
		{"nq idle first", NeverQueue, func(i int, s *Server) { s.Weight = 1; s.Active = uint32(min(i, 1)) * 1e6 }, func(i int) int { return 1000 * (1 - min(i, 1)) }},
		{"lc one overloaded", LeastConnection, func(i int, s *Server) { s.Overloaded = i == 0; s.Active = uint32(1e6 * (i / 51)) }, func(i int) int {
			if i == 0 || i > 50 {
				return 0
			}
			return 20
		}},
		{"lc all overloaded", LeastConnection, func(_ int, s *Server) { s.Overloaded = true }, func(int) int { return 10 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := make([]Server, n)
			for i := range list {
				list[i] = Server{Index: uint32(10 + i), Weight: 4}
				tt.alter(i, &list[i])
			}
			p, err := Make(tt.kind, list, Options{}, 1000, nil)
			if err != nil {
				t.Fatal(err)
			}
			if p.Means != regs.GroupControlMeansWalk || !p.Refresh || len(p.Slots) != 1000 {
				t.Fatalf("means %d, refresh %v, %d slots", p.Means, p.Refresh, len(p.Slots))
			}
			got := count(p.Slots)
			for i := range list {
				if want := tt.want(i); got[uint32(10+i)] < want-1 || got[uint32(10+i)] > want+1 {
					t.Errorf("server %d has %d slots, want %d", i, got[uint32(10+i)], want)
				}
			}
		})
	}
}

func count(slots Slots) map[uint32]int {
	n := map[uint32]int{}
	for _, w := range slots {
		n[regs.SlotSlotServer(w)]++
	}
	return n
}

// TestForemost makes groups of fo and ovf that are too large: those that may be chosen are among those compared.
func TestForemost(t *testing.T) {
	list := make([]Server, 200)
	for i := range list {
		list[i] = Server{Index: uint32(10 + i), Weight: uint16(1 + i)}
	}
	for i := 100; i < 200; i++ { // the heavy half takes nothing
		list[i].Active, list[i].Overloaded = 1000, i%2 == 0
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	now := map[uint32]Counters{}
	for _, s := range list {
		now[s.Index] = Counters{Active: s.Active, Overloaded: s.Overloaded}
	}
	for _, tt := range []struct {
		kind Kind
		want uint32
	}{{FailOver, 10 + 199}, {Overflow, 10 + 99}} {
		p, err := Make(tt.kind, list, Options{}, 1024, nil)
		if err != nil || p.Means != regs.GroupControlMeansCompare || !p.Refresh || len(p.Slots) != maxCompare {
			t.Fatalf("%s: means %d, refresh %v, %d slots, %v", tt.kind, p.Means, p.Refresh, len(p.Slots), err)
		}
		if got, ok := p.Pick(Key{}, nil, func(i uint32) Counters { return now[i] }, 0); got != tt.want || !ok {
			t.Errorf("%s: server %d, %v, want %d", tt.kind, got, ok, tt.want)
		}
	}
}

// TestRefreshed lets connections come and go at 150 servers and walks over tables made every 10 ms: each goes where it
// would have gone if it had been decided by itself, as long as a table has no fewer slots than connections come.
func TestRefreshed(t *testing.T) {
	const (
		n      = 150
		arrive = 700 // in 10 ms
		stay   = 20  // times 10 ms: 14,000 connections at a time
		ticks  = 60
	)
	for _, kind := range simulated {
		t.Run(string(kind), func(t *testing.T) {
			list := named(n, func(i int) uint16 { return uint16(1 + i%4) })
			var history [][]uint32
			for tick := range ticks {
				if tick >= stay {
					for _, s := range history[tick-stay] {
						list[s-10].Active--
					}
				}
				p := plan(t, kind, list, 1024)
				cursor, got := uint32(0), make([]uint32, arrive)
				for i, want := range oneByOne(kind, list, arrive) {
					got[i], _ = p.Pick(Key{}, &cursor, nil, 0)
					if got[i] != regs.SlotSlotServer(want) {
						t.Fatalf("tick %d, connection %d: server %d, want %d", tick, i, got[i], regs.SlotSlotServer(want))
					}
				}
				for _, s := range got {
					list[s-10].Active++
				}
				history = append(history, got)
			}
		})
	}
}
