package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/regs"
)

func servers(weights ...uint16) []Server {
	list := make([]Server, len(weights))
	for i, w := range weights {
		list[i] = Server{Index: uint32(10 + i), Weight: w, ID: string(rune('A' + i))}
	}
	return list
}

// plan makes a plan without options.
func plan(t testing.TB, kind Kind, list []Server, room uint32) *Plan {
	t.Helper()
	p, err := Make(kind, list, Options{}, room, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// letters spells slots out: A is the first server.
func letters(t *testing.T, s Slots) string {
	t.Helper()
	b := make([]byte, len(s))
	for i, w := range s {
		if regs.SlotSlotValid(w) != 1 {
			t.Errorf("slot %d is not valid", i)
		}
		b[i] = byte('A' + regs.SlotSlotServer(w) - 10)
	}
	return string(b)
}

func TestOrder(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kind    Kind
		weights []uint16
		want    string
	}{
		{"wrr of IPVS", WeightedRoundRobin, []uint16{4, 3, 2}, "AABABCABC"},
		{"wrr equal", WeightedRoundRobin, []uint16{5, 5, 5}, "ABC"},
		{"wrr divided", WeightedRoundRobin, []uint16{300, 100}, "AAAB"},
		{"wrr small first", WeightedRoundRobin, []uint16{1, 3}, "BBAB"},
		{"wrr with zero", WeightedRoundRobin, []uint16{2, 0, 1}, "AAC"},
		{"wrr all zero", WeightedRoundRobin, []uint16{0, 0}, ""},
		{"wrr none", WeightedRoundRobin, nil, ""},
		{"wrr one", WeightedRoundRobin, []uint16{65535}, "A"},
		{"rr", RoundRobin, []uint16{4, 3, 2}, "ABC"},
		{"rr with zero", RoundRobin, []uint16{0, 3, 2}, "BC"},
		{"rr all zero", RoundRobin, []uint16{0}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := letters(t, plan(t, tt.kind, servers(tt.weights...), 1024).Slots); got != tt.want {
				t.Errorf("order %s, want %s", got, tt.want)
			}
		})
	}
}

// ipvs is the algorithm of the kernel's ip_vs_wrr, connection by connection.
func ipvs(weights []uint16, n int) string {
	divisor, top := 0, 0
	for _, w := range weights {
		divisor, top = gcd(divisor, int(w)), max(top, int(w))
	}
	if top == 0 {
		return ""
	}
	var b []byte
	i, level := -1, 0
	for len(b) < n {
		if i = (i + 1) % len(weights); i == 0 {
			if level -= divisor; level <= 0 {
				level = top
			}
		}
		if int(weights[i]) >= level {
			b = append(b, byte('A'+i))
		}
	}
	return string(b)
}

func TestAgainstIPVS(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		weights := make([]uint16, 1+rnd.IntN(6))
		for i := range weights {
			weights[i] = uint16(rnd.IntN(20))
		}
		got := letters(t, plan(t, WeightedRoundRobin, servers(weights...), 1024).Slots)
		if diff := cmp.Diff(ipvs(weights, len(got)), got); diff != "" {
			t.Fatalf("weights %v (-ipvs +ours):\n%s", weights, diff)
		}
		if len(got) > 0 {
			if diff := cmp.Diff(ipvs(weights, 2*len(got)), got+got); diff != "" {
				t.Fatalf("weights %v: a turn is not a period:\n%s", weights, diff)
			}
		}
	}
}

func TestScaled(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	const room = 64
	for range 500 {
		weights := make([]uint16, 1+rnd.IntN(40))
		sum := 0
		for i := range weights {
			weights[i] = uint16(rnd.IntN(1 << rnd.IntN(17)))
			sum += int(weights[i])
		}
		slots := plan(t, WeightedRoundRobin, servers(weights...), room).Slots
		if len(slots) > room {
			t.Fatalf("weights %v: %d slots", weights, len(slots))
		}
		count := make([]int, len(weights))
		forced := 0 // shares below one slot that got one
		for _, w := range slots {
			count[regs.SlotSlotServer(w)-10]++
		}
		for _, w := range weights {
			if w > 0 && int(w)*room < sum {
				forced++
			}
		}
		for i, w := range weights {
			share := float64(w) * float64(len(slots)) / float64(max(sum, 1))
			off := float64(count[i]) - share
			if (w == 0) != (count[i] == 0) {
				t.Fatalf("weights %v: server %d has %d slots", weights, i, count[i])
			}
			if forced == 0 && (off >= 1 || off <= -1) {
				t.Fatalf("weights %v: server %d has %d slots, its share is %.2f", weights, i, count[i], share)
			}
		}
	}
}

func TestTooManyServers(t *testing.T) {
	for _, kind := range []Kind{RoundRobin, WeightedRoundRobin, SourceHash, DestinationHash, Maglev, Twos, TwoChoices} {
		if _, err := Make(kind, servers(1, 1, 1), Options{}, 2, nil); !errors.Is(err, ErrTooMany) {
			t.Errorf("%s: error %v", kind, err)
		}
	}
	_, err := Make("rr", servers(1, 0, 1, 1), Options{}, 2, nil)
	if got, want := fmt.Sprint(err), "more servers than slots: 3 of 2"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

func TestUnknown(t *testing.T) {
	_, err := Make("wr", servers(1), Options{}, 2, nil)
	const want = `scheduler "wr" is not known: take one of rr wrr lc wlc lblc lblcr dh sh mh sed nq fo ovf twos p2c`
	if got := fmt.Sprint(err); got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

// TestPlan makes a plan of each kind for A, B and C of the weights 4, 0 and 2.
func TestPlan(t *testing.T) {
	const (
		walk, hash, compare          = regs.GroupControlMeansWalk, regs.GroupControlMeansHash, regs.GroupControlMeansCompare
		source, sourcePort, destined = regs.GroupControlHashKeySource, regs.GroupControlHashKeySourcePort, regs.GroupControlHashKeyDestination
	)
	both := Options{Port: true, Fallback: true, Seed: 7}
	vips := Options{Seed: 7, Destinations: []Destination{{netip.MustParseAddr("198.18.0.80")}}}
	for _, tt := range []struct {
		kind    Kind
		options Options
		want    Plan // without slots
		slots   string
		weights []uint32
	}{
		{RoundRobin, Options{}, Plan{Means: walk}, "AC", nil},
		{RoundRobin, both, Plan{Means: walk, Seed: 7}, "AC", nil},
		{WeightedRoundRobin, Options{}, Plan{Means: walk}, "AAC", nil},
		{LeastConnection, Options{}, Plan{Means: compare, Compare: regs.GroupControlCompareLc}, "AC", []uint32{2, 1}},
		{WeightedLeastConnection, Options{}, Plan{Means: compare, Compare: regs.GroupControlCompareWlc}, "AC", []uint32{2, 1}},
		{ShortestDelay, Options{}, Plan{Means: compare, Compare: regs.GroupControlCompareSed}, "AC", []uint32{2, 1}},
		{NeverQueue, Options{}, Plan{Means: compare, Compare: regs.GroupControlCompareNq}, "AC", []uint32{2, 1}},
		{FailOver, Options{}, Plan{Means: compare, Compare: regs.GroupControlCompareFo}, "AC", []uint32{4, 2}},
		{Overflow, Options{}, Plan{Means: compare, Compare: regs.GroupControlCompareOvf}, "AC", []uint32{4, 2}},
		{Twos, Options{}, Plan{Means: compare, Compare: regs.GroupControlCompareTwos}, "AAC", []uint32{2, 2, 1}},
		{TwoChoices, Options{}, Plan{Means: compare, Compare: regs.GroupControlCompareP2c}, "AAC", []uint32{2, 2, 1}},
		{SourceHash, Options{}, Plan{Means: hash, HashKey: source}, "AAC", nil},
		{SourceHash, both, Plan{Means: hash, HashKey: sourcePort, Fallback: true, Seed: 7}, "AAC", nil},
		{DestinationHash, both, Plan{Means: hash, HashKey: destined, Seed: 7}, "AC", nil},
		{Maglev, Options{}, Plan{Means: hash, HashKey: source}, "ACA", nil},
		{Maglev, both, Plan{Means: hash, HashKey: sourcePort, Fallback: true, Seed: 7}, "AAC", nil},
		{Locality, vips, Plan{Means: hash, HashKey: destined, Fallback: true, Seed: 7, Refresh: true}, "AAC", nil},
		{LocalityReplicated, vips, Plan{Means: hash, HashKey: destined, Fallback: true, Seed: 7, Refresh: true}, "AAC", nil},
	} {
		t.Run(string(tt.kind), func(t *testing.T) {
			got, err := Make(tt.kind, servers(4, 0, 2), tt.options, 4, nil)
			if err != nil {
				t.Fatal(err)
			}
			var weights []uint32
			for _, w := range got.Slots {
				if n := regs.SlotSlotWeight(w); n != 0 {
					weights = append(weights, n)
				}
			}
			if diff := cmp.Diff(tt.weights, weights); diff != "" {
				t.Errorf("weights (-want +got):\n%s", diff)
			}
			if s := letters(t, got.Slots); s != tt.slots && got.Memory == nil {
				t.Errorf("slots %s, want %s", s, tt.slots)
			}
			if (got.Memory != nil) != (len(tt.options.Destinations) > 0) {
				t.Errorf("memory %v", got.Memory)
			}
			got.Slots, got.Memory = nil, nil
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(Memory{})); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNobody: without any weight there is nothing to choose from, and no error.
func TestNobody(t *testing.T) {
	for _, s := range schedulers {
		for _, list := range [][]Server{nil, servers(0), servers(0, 0)} {
			p := plan(t, s.kind, list, 1024)
			if len(p.Slots) != 0 {
				t.Errorf("%s: %d slots", s.kind, len(p.Slots))
			}
			if got, ok := p.Pick(Key{}, new(uint32), nil, 0); ok {
				t.Errorf("%s: server %d", s.kind, got)
			}
		}
	}
}

func TestCaseC15(t *testing.T) {
	p := plan(t, WeightedRoundRobin, servers(4, 3, 2), 1024)
	cursor := uint32(0)
	next := func(full uint32) string {
		server, ok := p.Pick(Key{}, &cursor, func(s uint32) Counters { return Counters{Overloaded: s == full} }, 0)
		if !ok {
			return "-"
		}
		return string(rune('A' + server - 10))
	}
	got := ""
	for range 9 {
		got += next(0)
	}
	if want := "AABABCABC"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	got = ""
	for range 9 {
		got += next(10)
	}
	if want := "BBCBCBBCB"; got != want {
		t.Errorf("with A full the order is %s, want %s", got, want)
	}
}

// TestLongRuns: a heavy server that is full must not hide the light one behind more slots than the card looks at.
func TestLongRuns(t *testing.T) {
	for _, kind := range []Kind{WeightedRoundRobin, Twos, TwoChoices} {
		list := servers(1000, 1, 1000)
		list[0].Overloaded, list[2].Overloaded = true, true
		p := plan(t, kind, list, 1024)
		if s := letters(t, p.Slots); s != "B" {
			t.Errorf("%s: slots %.20s…, want B alone", kind, s)
		}
		list[1].Overloaded = true
		if p := plan(t, kind, list, 1024); len(p.Slots) != 1024 {
			t.Errorf("%s: with all full there are %d slots, want all", kind, len(p.Slots))
		}
	}
	list := servers(4, 3, 2)
	list[0].Overloaded = true
	if s := letters(t, plan(t, WeightedRoundRobin, list, 1024).Slots); s != "AABABCABC" {
		t.Errorf("slots %s: A keeps them, for the card passes over them", s)
	}
}

// TestWideWeights: a slot has 15 bits for a weight.
func TestWideWeights(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kind    Kind
		weights []uint16
		want    []uint32
	}{
		{"fit", WeightedLeastConnection, []uint16{32767, 1}, []uint32{32767, 1}},
		{"divided", WeightedLeastConnection, []uint16{60000, 30000}, []uint32{2, 1}},
		{"scaled", WeightedLeastConnection, []uint16{65535, 32768, 1}, []uint32{32767, 16384, 1}},
		{"cut off in order", Overflow, []uint16{40000, 7, 50000}, []uint32{32767, 32767, 7}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []uint32
			for _, w := range plan(t, tt.kind, servers(tt.weights...), 1024).Slots {
				got = append(got, regs.SlotSlotWeight(w))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if s := letters(t, plan(t, FailOver, servers(40000, 7, 50000), 1024).Slots); s != "CAB" {
		t.Errorf("slots %s, want CAB: the heaviest first", s)
	}
}
