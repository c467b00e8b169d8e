package schedule

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"splicenic/regs"
)

// sound checks what holds of every plan.
func sound(kind Kind, list []Server, o Options, room uint32) error {
	before := slices.Clone(list)
	p, err := Make(kind, list, o, room, nil)
	places := int(room)
	if kind == Maglev {
		places = min(places, prime(places))
	}
	if errors.Is(err, ErrTooMany) && len(weighted(list)) > places {
		return nil
	}
	if err != nil {
		return err
	}
	if diff := cmp.Diff(before, list); diff != "" {
		return fmt.Errorf("the servers were altered:\n%s", diff)
	}
	if again, _ := Make(kind, list, o, room, nil); !slices.Equal(again.Slots, p.Slots) || again.Seed != p.Seed {
		return errors.New("made again it is another")
	}
	if len(p.Slots) > int(room) || len(p.Slots) > maxSlots {
		return fmt.Errorf("%d slots where %d have room", len(p.Slots), room)
	}
	if p.Means == compare && p.Compare != regs.GroupControlCompareP2c && p.Compare != regs.GroupControlCompareTwos && len(p.Slots) > maxCompare {
		return fmt.Errorf("%d servers to compare", len(p.Slots))
	}
	now := map[uint32]Counters{}
	weights := map[uint32]uint16{}
	for _, s := range list {
		now[s.Index] = Counters{Active: s.Active, Inactive: s.Inactive, Overloaded: s.Overloaded}
		weights[s.Index] = s.Weight
	}
	in := map[uint32]bool{}
	for i, w := range p.Slots {
		s := regs.SlotSlotServer(w)
		if in[s] = true; regs.SlotSlotValid(w) != 1 || weights[s] == 0 {
			return fmt.Errorf("slot %d: %#x names nobody with a weight", i, w)
		}
	}
	all := len(weighted(list))
	if (len(p.Slots) == 0) != (all == 0) {
		return fmt.Errorf("%d slots for %d servers", len(p.Slots), all)
	}
	full := slices.ContainsFunc(list, func(s Server) bool { return s.Overloaded })
	if !p.Refresh && !full && len(in) != all {
		return fmt.Errorf("%d of %d servers have slots", len(in), all)
	}
	return reachable(&p, list, now)
}

// reachable picks: as long as a server with a weight is not overloaded one of those is chosen.
func reachable(p *Plan, list []Server, now map[uint32]Counters) error {
	want := slices.ContainsFunc(list, func(s Server) bool { return s.Weight > 0 && !s.Overloaded })
	if p.Means == hashed {
		return nil // without fallback there may be none
	}
	cursor := uint32(0)
	for i := range uint64(100) {
		before := cursor
		server, ok := p.Pick(Key{}, &cursor, func(s uint32) Counters { return now[s] }, i*0x9e3779b97f4a7c15)
		if ok != want || ok && now[server].Overloaded {
			return fmt.Errorf("choice %d from slot %d: server %d, %v", i, before, server, ok)
		}
	}
	return nil
}

func TestEveryPlanIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(schedulers).Draw(t, "scheduler").kind
		list := draw(t, rapid.IntRange(0, 150).Draw(t, "servers"), 1000)
		room := uint32(rapid.SampledFrom([]int{160, 1024, 1 << 15}).Draw(t, "room"))
		if err := sound(kind, list, Options{Destinations: vips(3)}, room); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	})
}

// FuzzMake reads a scheduler, a room and servers of six bytes each: weight, active, inactive, flags.
func FuzzMake(f *testing.F) {
	seed := func(scheduler uint8, room uint16, list ...Server) {
		var b []byte
		for _, s := range list {
			flags := byte(0)
			if s.Overloaded {
				flags = 1
			}
			b = append(binary.LittleEndian.AppendUint16(b, s.Weight), byte(s.Active), 0, byte(s.Inactive), flags)
		}
		f.Add(scheduler, room, b)
	}
	for i := range schedulers {
		seed(uint8(i), 1024, named(3, func(i int) uint16 { return uint16(4 - i) })...)
		seed(uint8(i+5*len(schedulers)), 100, named(90, func(i int) uint16 { return 65535 >> (i % 17) })...)
		seed(uint8(i), 1, Server{Weight: 1, Overloaded: true}, Server{})
	}
	f.Fuzz(func(t *testing.T, scheduler uint8, room uint16, b []byte) {
		const one = 6
		list := make([]Server, min(len(b)/one, 300))
		for i := range list {
			s := b[i*one:]
			list[i] = Server{Index: uint32(i), ID: fmt.Sprint(i), Weight: binary.LittleEndian.Uint16(s), Active: uint32(s[2]) << (s[3] & 31),
				Inactive: uint32(s[4]), Overloaded: s[5]&1 != 0}
		}
		kind := schedulers[int(scheduler)%len(schedulers)].kind
		if err := sound(kind, list, Options{Destinations: vips(int(scheduler) / len(schedulers))}, uint32(room)); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	})
}

func BenchmarkMake(b *testing.B) {
	for _, s := range schedulers {
		for _, n := range []int{64, 1000} {
			b.Run(fmt.Sprintf("%s/%d", s.kind, n), func(b *testing.B) {
				list := named(n, func(i int) uint16 { return uint16(i%100 + 1) })
				for i := range list {
					list[i].Active, list[i].Inactive = uint32(i*7919%1000), uint32(i)
				}
				o := Options{Destinations: vips(16)}
				var before *Memory
				b.ReportAllocs()
				for b.Loop() {
					p, err := Make(s.kind, list, o, 1024, before)
					if err != nil {
						b.Fatal(err)
					}
					before = p.Memory
				}
			})
		}
	}
}
