package schedule

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/regs"
)

func servers(weights ...uint16) []Server {
	list := make([]Server, len(weights))
	for i, w := range weights {
		list[i] = Server{Index: uint32(10 + i), Weight: w}
	}
	return list
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
		name     string
		schedule func([]Server, uint32) (Slots, error)
		weights  []uint16
		want     string
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
			got, err := tt.schedule(servers(tt.weights...), 1024)
			if err != nil {
				t.Fatal(err)
			}
			if s := letters(t, got); s != tt.want {
				t.Errorf("order %s, want %s", s, tt.want)
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
		slots, err := WeightedRoundRobin(servers(weights...), 1024)
		if err != nil {
			t.Fatal(err)
		}
		got := letters(t, slots)
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
		slots, err := WeightedRoundRobin(servers(weights...), room)
		if err != nil {
			t.Fatalf("weights %v: %v", weights, err)
		}
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
	for _, f := range []func([]Server, uint32) (Slots, error){RoundRobin, WeightedRoundRobin} {
		if _, err := f(servers(1, 1, 1), 2); !errors.Is(err, ErrTooMany) {
			t.Errorf("error %v", err)
		}
	}
}

func BenchmarkWeightedRoundRobin(b *testing.B) {
	list := servers()
	for i := range 64 {
		list = append(list, Server{Index: uint32(i), Weight: uint16(i*7 + 1)})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := WeightedRoundRobin(list, 1024); err != nil {
			b.Fatal(err)
		}
	}
}
