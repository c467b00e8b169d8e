package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"splicenic/regs"
)

func named(n int, weight func(i int) uint16) []Server {
	list := make([]Server, n)
	for i := range list {
		list[i] = Server{Index: uint32(10 + i), Weight: weight(i), ID: fmt.Sprintf("198.18.%d.%d:80", i/250, i%250)}
	}
	return list
}

func TestPrime(t *testing.T) {
	for _, tt := range []struct{ room, want int }{
		{1, 1}, {2, 2}, {3, 3}, {4, 3}, {100, 97},
		// ip_vs_mh: primes[]
		{256, 251}, {512, 509}, {1024, 1021}, {2048, 2039}, {4096, 4093}, {8192, 8191}, {16384, 16381}, {32767, 32749},
	} {
		if got := prime(tt.room); got != tt.want {
			t.Errorf("%d: got %d, want %d", tt.room, got, tt.want)
		}
	}
}

// TestDisruption takes servers out of a table, one at a time: beside the places of the one that left few change hands. How
// few hangs on places a server (the paper's figure 12).
func TestDisruption(t *testing.T) {
	for _, tt := range []struct {
		name   string
		n      int
		room   uint32
		weight func(int) uint16
		most   float64 // part of all places that move beside the share of the one that left
	}{
		{"3 of 1021", 3, 1024, func(int) uint16 { return 1 }, 0.03},
		{"10 of 1021", 10, 1024, func(int) uint16 { return 1 }, 0.05},
		{"10 of 1021, weights", 10, 1024, func(i int) uint16 { return uint16(1 + i) }, 0.05},
		{"64 of 1021", 64, 1024, func(int) uint16 { return 1 }, 0.07},
		{"10 of 4093", 10, 4096, func(int) uint16 { return 1 }, 0.02},
		{"64 of 4093", 64, 4096, func(int) uint16 { return 3 }, 0.04},
		{"100 of 32749", 100, 1 << 15, func(int) uint16 { return 1 }, 0.01},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := named(tt.n, tt.weight)
			all := mustMaglev(t, list, tt.room)
			worst, total, tries := 0.0, 0.0, min(tt.n, 12)
			for i, gone := range list[:tries] {
				moved := 0
				for at, w := range mustMaglev(t, slices.Delete(slices.Clone(list), i, i+1), tt.room) {
					if w != all[at] && regs.SlotSlotServer(all[at]) != gone.Index {
						moved++
					}
				}
				more := float64(moved) / float64(len(all))
				worst, total = max(worst, more), total+more
			}
			t.Logf("beside the share of the one that left %.2f %% of the places move, %.2f %% at most", 100*total/float64(tries), 100*worst)
			if worst > tt.most {
				t.Errorf("%.2f %% of the places moved from a server that stays to another", 100*worst)
			}
		})
	}
}

func mustMaglev(t *testing.T, list []Server, room uint32) Slots {
	t.Helper()
	p, err := Make(Maglev, list, Options{Seed: 1}, room, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.Slots
}

func TestMaglev(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := weighted(draw(t, rapid.IntRange(1, 60).Draw(t, "servers"), 1))
		if len(list) == 0 {
			t.Skip("no weight")
		}
		room := rapid.IntRange(len(list)+2, 300).Draw(t, "room")
		seed := rapid.Uint64().Draw(t, "seed")
		slots, err := maglev(list, seed, room)
		if len(list) > prime(room) {
			t.Skip("no room")
		}
		if err != nil {
			t.Fatal(err)
		}
		mixed := slices.Clone(list)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		again, _ := maglev(mixed, seed, room)
		if diff := cmp.Diff(slots, again); diff != "" {
			t.Fatalf("the order of the servers makes a difference:\n%s", diff)
		}
		got := count(slots)
		slices.SortFunc(list, func(a, b Server) int { return strings.Compare(a.ID, b.ID) })
		for i, want := range scale(shares(list), prime(room)) {
			if got[list[i].Index] != want {
				t.Fatalf("%v has %d places, want %d", list[i], got[list[i].Index], want)
			}
		}
	})
}
