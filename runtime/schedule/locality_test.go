package schedule

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func vips(n int) []Destination {
	list := make([]Destination, n)
	for i := range list {
		list[i].Addr = netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
	}
	return list
}

// where spells out who serves each destination.
func where(t testing.TB, p *Plan, ds []Destination) string {
	t.Helper()
	b := make([]byte, len(ds))
	for i, d := range ds {
		s, ok := p.Pick(Key{Destination: d.Addr}, nil, nil, 0)
		if !ok {
			t.Errorf("%v has no server", d.Addr)
		}
		b[i] = byte('A' + s - 10)
	}
	return string(b)
}

// TestLocality follows the destinations through what happens to the servers A, B and C.
func TestLocality(t *testing.T) {
	t0 := time.Unix(0, 0)
	type step struct {
		what  string
		alter func(list []Server)
		after time.Duration
		want  string
	}
	for _, tt := range []struct {
		name    string
		kind    Kind
		weights []uint16
		vips    int
		steps   []step
	}{
		{"spread by weight", Locality, []uint16{4, 2, 2}, 8, []step{{"new", nil, 0, "ABCAABCA"}}},
		{"stays", Locality, []uint16{10, 10, 10}, 3, []step{
			{"new", nil, 0, "ABC"},
			{"A has more than the others", func(l []Server) { l[0].Active = 10 }, 0, "ABC"},
			{"A has more than its weight, the others half theirs", func(l []Server) { l[0].Active, l[1].Active, l[2].Active = 11, 5, 5 }, 0, "ABC"},
			{"C has fewer than half", func(l []Server) { l[2].Active = 4 }, 0, "CBC"},
			{"A is idle again", func(l []Server) { l[0].Active = 0 }, 0, "CBC"},
		}},
		{"leaves who goes", Locality, []uint16{1, 1, 1}, 3, []step{
			{"new", nil, 0, "ABC"},
			{"A quiesces", func(l []Server) { l[0].Weight = 0 }, 0, "BBC"},
			{"A is back", func(l []Server) { l[0].Weight = 1 }, 0, "BBC"},
			{"B is overloaded", func(l []Server) { l[1].Overloaded = true }, 0, "ACC"},
			{"all are", func(l []Server) { l[0].Overloaded, l[2].Overloaded = true, true }, 0, "ABC"},
		}},
		{"one at a time", Locality, []uint16{2, 2}, 4, []step{
			{"new", nil, 0, "ABAB"},
			{"A is crowded", func(l []Server) { l[0].Active = 9 }, 0, "BBAB"},
			{"and still is", nil, 0, "BBBB"},
		}},
		{"a set grows and shrinks", LocalityReplicated, []uint16{10, 10, 10}, 1, []step{
			{"new", nil, 0, "A"},
			{"A is crowded: B joins", func(l []Server) { l[0].Active, l[2].Active = 11, 1 }, time.Minute, "B"},
			{"B is crowded too: C joins", func(l []Server) { l[1].Active = 12 }, time.Minute, "C"},
			{"the least of the set serves", func(l []Server) { l[0].Active, l[2].Active = 3, 4 }, 0, "A"},
			{"after an hour B, the most loaded, leaves", nil, time.Hour + 1, "A"},
			{"B could serve, but is not in the set", func(l []Server) { l[1].Active = 0 }, 0, "A"},
			{"after another hour C leaves", nil, time.Hour + 1, "A"},
			{"C could serve, but is not in the set", func(l []Server) { l[2].Active = 0 }, 0, "A"},
			{"A stays for ever", nil, 1000 * time.Hour, "A"},
		}},
		{"a set outlives overload", LocalityReplicated, []uint16{10, 10}, 1, []step{
			{"new", nil, 0, "A"},
			{"A is overloaded", func(l []Server) { l[0].Overloaded = true }, 0, "B"},
			{"A is not any more", func(l []Server) { l[0].Overloaded, l[1].Active = false, 1 }, 0, "A"},
			{"A goes", func(l []Server) { l[0].Weight = 0 }, 0, "B"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, now := servers(tt.weights...), t0
			o := Options{Destinations: vips(tt.vips), Expire: time.Hour}
			var before *Memory
			for _, s := range tt.steps {
				if s.alter != nil {
					s.alter(list)
				}
				now = now.Add(s.after)
				o.Now = now
				p, err := Make(tt.kind, list, o, 1024, before)
				if err != nil {
					t.Fatal(err)
				}
				if got := where(t, &p, o.Destinations); got != s.want {
					t.Errorf("%s: %s, want %s", s.what, got, s.want)
				}
				before = p.Memory
			}
		})
	}
}

// TestSeed looks for a seed that keeps destinations apart, and keeps it.
func TestSeed(t *testing.T) {
	for _, tt := range []struct{ vips, collisions int }{{0, 0}, {1, 0}, {16, 0}, {64, 0}, {100, 0}, {300, 32}, {2000, 1160}} {
		t.Run(fmt.Sprint(tt.vips), func(t *testing.T) {
			o := Options{Destinations: vips(tt.vips), Seed: 7}
			p, err := Make(Locality, servers(1, 1), o, 1024, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.vips - len(p.Memory.homes); got > tt.collisions {
				t.Errorf("%d destinations have the slot of another, want %d at most", got, tt.collisions)
			}
			slices.Reverse(o.Destinations)
			again, err := Make(Locality, servers(1, 1), o, 1024, p.Memory)
			if diff := cmp.Diff(p.Slots, again.Slots); diff != "" || again.Seed != p.Seed || err != nil {
				t.Errorf("made again: %v\n%s", err, diff)
			}
		})
	}
}

// TestLocalityForgetsNothing: a Make with a group that is empty for a moment, and one with more VIPs, keep where the others are.
func TestLocalityForgetsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{Locality, LocalityReplicated}).Draw(t, "kind")
		list := draw(t, rapid.IntRange(1, 20).Draw(t, "servers"), 20)
		list[0].Weight = 1
		for i := range list {
			list[i].Overloaded = false
		}
		o := Options{Destinations: vips(rapid.IntRange(1, 20).Draw(t, "vips"))}
		first, err := Make(kind, list, o, 1024, nil)
		if err != nil {
			t.Fatal(err)
		}
		none := slices.Clone(list)
		for i := range none {
			none[i].Weight = 0
		}
		empty, err := Make(kind, none, o, 1024, first.Memory)
		if err != nil || len(empty.Slots) != 0 {
			t.Fatalf("%d slots, %v", len(empty.Slots), err)
		}
		for i := range list { // nobody is crowded: nobody has reason to move
			list[i].Active = 0
		}
		more := o
		more.Destinations = vips(30)
		last, err := Make(kind, list, more, 1024, empty.Memory)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range o.Destinations {
			a, _ := first.Pick(Key{Destination: d.Addr}, nil, nil, 0)
			if b, _ := last.Pick(Key{Destination: d.Addr}, nil, nil, 0); a != b {
				t.Fatalf("%v went from %d to %d", d.Addr, a, b)
			}
		}
	})
}
