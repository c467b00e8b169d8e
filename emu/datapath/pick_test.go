package datapath

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"splicenic/regs"
)

// choice is a server in a slot, as the slow reference sees it.
type choice struct {
	server                   uint32
	weight, active, inactive int64
	takes                    bool
}

// slowPick says which slot's server is chosen: by fractions, with a list of those that come first.
func slowPick(means, compare uint32, fallback bool, cursor int, hash uint64, drawn [2]int, slots []choice) (server int64, at int) {
	n := len(slots)
	from := func(at, looks int) (int64, int) {
		for i := 0; i < looks && i < n; i++ {
			if s := slots[(at+i)%n]; s.takes {
				return int64(s.server), (at + i) % n
			}
		}
		return -1, 0
	}
	switch means {
	case regs.GroupControlMeansWalk:
		return from(cursor, 64)
	case regs.GroupControlMeansHash:
		at := int(new(big.Int).Mod(new(big.Int).SetUint64(hash), big.NewInt(int64(n))).Int64())
		if fallback {
			return from(at, 64)
		}
		return from(at, 1)
	}
	cost := func(s choice) *big.Rat { // the least is chosen
		w := max(s.weight, 1)
		switch compare {
		case regs.GroupControlCompareLc:
			return big.NewRat(256*s.active+s.inactive, 1)
		case regs.GroupControlCompareWlc, regs.GroupControlCompareTwos:
			return big.NewRat(256*s.active+s.inactive, w)
		case regs.GroupControlCompareSed:
			return big.NewRat(s.active+1, w)
		case regs.GroupControlCompareNq:
			if s.active == 0 {
				return big.NewRat(-1, 1)
			}
			return big.NewRat(s.active+1, w)
		case regs.GroupControlCompareFo:
			return big.NewRat(-w, 1)
		case regs.GroupControlCompareOvf:
			if s.active < w {
				return big.NewRat(-w-1<<20, 1)
			}
			return big.NewRat(-w, 1)
		}
		return big.NewRat(s.active, 1)
	}
	looked := slots[:min(n, 64)]
	two := compare == regs.GroupControlCompareTwos || compare == regs.GroupControlCompareP2c
	if two {
		looked = []choice{slots[drawn[0]], slots[drawn[1]]}
	}
	best := int64(-1)
	var least *big.Rat
	for _, s := range looked {
		if c := cost(s); s.takes && (least == nil || c.Cmp(least) < 0) {
			best, least = int64(s.server), c
		}
	}
	if best < 0 && two {
		return from(drawn[0]+1, 62)
	}
	return best, 0
}

// TestPickReference compares every means with the slow one over random groups.
func TestPickReference(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	g := smallGeometry()
	g.Servers, g.Slots = 80, 80
	b := newBench(t, g)
	b.serve(world4, 0, regs.ServiceEntry{})
	found := [2]int{}
	for range 20_000 {
		n := 1 + r.IntN(80)
		if r.IntN(2) == 0 {
			n = 1 + r.IntN(5)
		}
		var choices []choice
		for i := range n {
			c := choice{server: uint32(r.IntN(80)), weight: int64(r.IntN(5)), active: int64(r.IntN(4)), inactive: int64(r.IntN(600)), takes: r.IntN(3) != 0}
			for _, old := range choices {
				if old.server == c.server { // one server, one set of counters
					c.active, c.inactive, c.takes = old.active, old.inactive, old.takes
				}
			}
			choices = append(choices, c)
			set(b.m.Slot, i, regs.SlotWords, &regs.SlotEntry{SlotServer: c.server, SlotValid: 1, SlotWeight: uint32(c.weight)})
			e := regs.ServerEntry{ControlValid: 1, ControlKind: kindIPv4, ControlProtocol: 6, ControlPort: 80, Address: words(world4.server)}
			state := regs.ServerStateEntry{Active: uint32(c.active), UseCount: uint32(c.active + c.inactive + 7), Templates: 7, Upper: 1000}
			if !c.takes {
				switch r.IntN(3) {
				case 0:
					e.ControlClosed = 1
				case 1:
					e.RouteNextHop = 5
				default:
					state.FlagsOverloaded = 1
				}
			}
			set(b.m.Server, int(c.server), regs.ServerWords, &e)
			set(b.m.ServerState, int(c.server), regs.ServerStateWords, &state)
		}
		ge := regs.GroupEntry{ControlValid: 1, ControlMeans: uint32(r.IntN(3)), ControlCompare: uint32(r.IntN(8)), ControlHashKey: uint32(r.IntN(3)), ControlFallback: uint32(r.IntN(2)), SeedLo: r.Uint32(), SeedHi: r.Uint32()}
		set(b.m.Group[0], 0, regs.GroupWords, &ge)
		cursor := uint32(r.IntN(n))
		gs := regs.GroupStateEntry{SelectorCountA: uint32(n), Cursor: cursor, Picked: r.Uint32()}
		set(b.m.GroupState, 0, regs.GroupStateWords, &gs)
		who := chooser{kind: kindIPv4, protocol: protocolTCP, source: address{r.Uint32()}, dest: address{r.Uint32()}, port: r.Uint32() & 0xffff, passed: r.IntN(2) == 0}
		key := [4]uint64{uint64(who.source[0])}
		switch ge.ControlHashKey {
		case regs.GroupControlHashKeyDestination:
			key[0] = uint64(who.dest[0])
		case regs.GroupControlHashKeySourcePort:
			key[2] = uint64(who.port)
		}
		seed := uint64(ge.SeedLo) | uint64(ge.SeedHi)<<32
		draw := sipHash(seed, drawUse, &[4]uint64{uint64(gs.Picked), uint64(b.c.tick), uint64(who.source[0]), uint64(who.port)})
		drawn := [2]int{int(draw & 0xffffffff % uint64(n)), int(draw >> 32 % uint64(n))}
		want, at := slowPick(ge.ControlMeans, ge.ControlCompare, ge.ControlFallback != 0, int(cursor), sipHash(seed, hashUse, &key), drawn, choices)
		got, ok := b.c.pick(0, 0, &who)
		if ok != (want >= 0) || ok && int64(got) != want {
			t.Fatalf("%+v, %d slots %+v: got %d %v, want %d", ge, n, choices, got, ok, want)
		}
		state := b.m.GroupState[:regs.GroupStateWords]
		if ok {
			found[0]++
			if state[regs.GroupStatePicked] != gs.Picked+1 {
				t.Fatalf("picked: %d after %d", state[regs.GroupStatePicked], gs.Picked)
			}
			if moved := state[regs.GroupStateCursor]; ge.ControlMeans == regs.GroupControlMeansWalk && moved != uint32(at)+1 || ge.ControlMeans != regs.GroupControlMeansWalk && moved != cursor {
				t.Fatalf("%+v: cursor %d after %d", ge, moved, cursor)
			}
		} else {
			found[1]++
		}
		if !ok && state[regs.GroupStatePicked] != gs.Picked {
			t.Fatal("counts a choice that was none")
		}
		for i := range 80 {
			b.m.Server[i*regs.ServerWords], b.m.ServerState[i*regs.ServerStateWords] = 0, 0
		}
	}
	if found[0] < 5000 || found[1] < 500 {
		t.Errorf("%v chosen and not: this is not both", found)
	}
}
