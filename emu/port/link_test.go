package port_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/emu/port"
)

// rig is a link in virtual time between two pairs of ports in memory; ends[0] is at A's side, ends[1] at B's.
type rig struct {
	testing.TB
	link *port.Link
	ends [2]*port.Mem
	now  time.Duration
	fs   []frame.Frame
}

func newRig(t testing.TB, cfg port.LinkConfig, mem port.MemConfig) *rig {
	r := &rig{TB: t}
	if mem.Queue == 0 {
		mem.Queue = 4096
	}
	var a, b *port.Mem
	r.ends[0], a = port.Pair(mem)
	r.ends[1], b = port.Pair(mem)
	cfg.A, cfg.B = a, b
	r.link = port.NewLink(cfg)
	return r
}

// arrival is a frame that has come through.
type arrival struct {
	at    time.Duration
	bytes []byte
}

// collect takes what has come to an end.
func (r *rig) collect(end int, to []arrival) []arrival {
	if r.fs == nil {
		r.fs = memBuffers(r.ends[end], 16)
	}
	for fs := r.fs; ; {
		for i := range fs {
			fs[i].Start = frame.Headroom
		}
		n := r.ends[end].Receive(fs)
		for i := range fs[:n] {
			if fs[i].Offload != (frame.Offload{}) {
				r.Errorf("a wire frame with an offload header: %+v", fs[i].Offload)
			}
			to = append(to, arrival{r.now, bytes.Clone(fs[i].Bytes())})
		}
		if n == 0 {
			return to
		}
	}
}

// run steps until the link is empty, and returns what came to an end. spin bounds it.
func (r *rig) run(end int) (got []arrival) {
	r.Helper()
	for range 100_000 {
		next := r.link.Step(r.now)
		got = r.collect(end, got)
		if next < 0 {
			return got
		}
		r.now = max(r.now, next)
	}
	r.Fatal("the link never gets empty")
	return nil
}

// numbered is a TCP frame whose payload tells its number; the checksum is that of a zero there.
func numbered(i, payload int) []byte {
	b := super{}.bytes(make([]byte, max(payload, 4)), 0x10, 0, 0)
	binary.BigEndian.PutUint32(b[54:], uint32(i))
	return b
}

func number(b []byte) int { return int(binary.BigEndian.Uint32(b[54:])) }

// sendNumbered sends frames from an end, one each millisecond, and returns what comes to the other.
func (r *rig) sendNumbered(end, n int) (got []arrival) {
	r.Helper()
	for i := range n {
		if r.ends[end].Transmit([]*frame.Frame{frameOf(numbered(i, 100), frame.Offload{})}) != 1 {
			r.Fatal("no room")
		}
		r.link.Step(r.now)
		got = r.collect(1-end, got)
		if i < n-1 {
			// Frames that are due before the next one comes.
			for to := r.now + time.Millisecond; r.now < to; {
				next := r.link.Step(r.now)
				got = r.collect(1-end, got)
				r.now = to
				if next >= 0 && next < to {
					r.now = next
				}
			}
		}
	}
	return append(got, r.run(1-end)...)
}

func account(t testing.TB, name string, s port.LinkStats) {
	t.Helper()
	if s.Frames+s.Duplicated != s.Sent+s.Lost+s.TooBig+s.Overrun {
		t.Errorf("%s: %+v does not add up", name, s)
	}
}

// near says whether a count of n chances is what a probability lets expect, within five standard deviations.
func near(got uint64, n int, p float64) bool {
	d := float64(got) - float64(n)*p
	return d*d <= 25*float64(n)*p*(1-p)
}

func TestLinkPasses(t *testing.T) {
	r := newRig(t, port.LinkConfig{}, port.MemConfig{})
	for end := range 2 {
		got := r.sendNumbered(end, 50)
		if len(got) != 50 {
			t.Fatalf("from end %d: %d frames of 50", end, len(got))
		}
		for i, g := range got {
			sameBytes(t, g.bytes, numbered(i, 100))
		}
		s := r.link.Stats()[end]
		if s.Frames != 50 || s.Sent != 50 || s.Bytes != 50*154 || s.Lost+s.LostBytes+s.Duplicated+s.Reordered+s.Corrupted != 0 {
			t.Errorf("from end %d: %+v", end, s)
		}
	}
}

func TestLinkLoss(t *testing.T) {
	const n = 4000
	r := newRig(t, port.LinkConfig{AB: port.Impairment{Loss: 0.1}, Seed: 7}, port.MemConfig{})
	got := r.sendNumbered(0, n)
	s := r.link.Stats()[0]
	account(t, "loss", s)
	if !near(s.Lost, n, 0.1) || uint64(len(got)) != n-s.Lost || s.LostBytes != 154*s.Lost || s.LostPayload != 100*s.Lost {
		t.Errorf("%d arrived, %+v", len(got), s)
	}
	if got := r.sendNumbered(1, 100); len(got) != 100 {
		t.Errorf("%d of 100 the other way, which loses nothing", len(got))
	}
}

func TestLinkDrop(t *testing.T) {
	var seen []uint64
	drop := func(n uint64, b []byte) bool {
		seen = append(seen, n)
		if number(b) != int(n) {
			t.Errorf("frame %d is called %d", number(b), n)
		}
		return n == 1 || n == 3
	}
	r := newRig(t, port.LinkConfig{BA: port.Impairment{Drop: drop}}, port.MemConfig{})
	got := r.sendNumbered(1, 5)
	if want := []uint64{0, 1, 2, 3, 4}; !slices.Equal(seen, want) {
		t.Errorf("asked about %v, want %v", seen, want)
	}
	if len(got) != 3 || number(got[0].bytes) != 0 || number(got[1].bytes) != 2 || number(got[2].bytes) != 4 {
		t.Errorf("%d frames arrived, want 0, 2 and 4", len(got))
	}
	if s := r.link.Stats()[1]; s.Lost != 2 || s.LostPayload != 200 {
		t.Errorf("%+v", s)
	}
}

func TestLinkDuplicate(t *testing.T) {
	const n = 4000
	r := newRig(t, port.LinkConfig{AB: port.Impairment{Duplicate: 0.05, Delay: time.Millisecond}, Seed: 3}, port.MemConfig{})
	got := r.sendNumbered(0, n)
	s := r.link.Stats()[0]
	account(t, "duplicate", s)
	if !near(s.Duplicated, n, 0.05) || uint64(len(got)) != n+s.Duplicated {
		t.Errorf("%d arrived, %+v", len(got), s)
	}
	for i := 1; i < len(got); i++ {
		if d := number(got[i].bytes) - number(got[i-1].bytes); d != 0 && d != 1 {
			t.Fatalf("frame %d after %d", number(got[i].bytes), number(got[i-1].bytes))
		}
	}
}

func TestLinkReorder(t *testing.T) {
	const n = 4000
	for _, tt := range []struct {
		name   string
		how    port.Impairment
		passed int // frames that overtake a reordered one that comes alone
	}{
		{"by default", port.Impairment{Reorder: 0.02, Delay: 2 * time.Millisecond}, 3},
		{"by 10 ms", port.Impairment{Reorder: 0.02, ReorderBy: 10 * time.Millisecond}, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, port.LinkConfig{AB: tt.how, Seed: 5}, port.MemConfig{})
			got := r.sendNumbered(0, n)
			s := r.link.Stats()[0]
			account(t, "reorder", s)
			if !near(s.Reordered, n, 0.02) || len(got) != n {
				t.Fatalf("%d arrived, %+v", len(got), s)
			}
			late, newest := uint64(0), -1
			for _, g := range got {
				switch i := number(g.bytes); {
				case i > newest:
					newest = i
				default:
					late++
					if newest-i > tt.passed {
						t.Errorf("%d frames passed frame %d, want at most %d", newest-i, i, tt.passed)
					}
				}
			}
			// One that waits together with the next reordered one, or is among the last, is overtaken by none.
			if late > s.Reordered || late < s.Reordered/2 {
				t.Errorf("%d came late, %d were reordered", late, s.Reordered)
			}
		})
	}
}

func TestLinkDelay(t *testing.T) {
	const delay, jitter = 5 * time.Millisecond, 3 * time.Millisecond
	r := newRig(t, port.LinkConfig{AB: port.Impairment{Delay: delay, Jitter: jitter}}, port.MemConfig{})
	got := r.sendNumbered(0, 500)
	if len(got) != 500 {
		t.Fatalf("%d of 500 arrived", len(got))
	}
	least, most := time.Hour, time.Duration(0)
	for i, g := range got {
		if number(g.bytes) != i {
			t.Fatalf("jitter reorders: frame %d as number %d", number(g.bytes), i)
		}
		d := g.at - time.Duration(i)*time.Millisecond
		least, most = min(least, d), max(most, d)
	}
	if least < delay || most > delay+jitter || most-least < jitter/2 {
		t.Errorf("delays from %v to %v, want %v to %v", least, most, delay, delay+jitter)
	}
}

func TestLinkCorrupt(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    super
	}{
		{"IPv4", super{}}, {"IPv6", super{ip6: true}}, {"IPv6 options header", super{ip6: true, extension: true}}, {"tag", super{tags: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, port.LinkConfig{AB: port.Impairment{Corrupt: 1}, Seed: 9}, port.MemConfig{})
			sent := append(tt.s.bytes([]byte("hello"), 0x18, 1, 2), 0, 0, 0) // with padding, which nothing covers
			for range 2000 {
				r.ends[0].Transmit([]*frame.Frame{frameOf(sent, frame.Offload{})})
			}
			got := r.run(1)
			places := map[int]bool{}
			for _, g := range got {
				bit := differentBit(t, g.bytes, sent)
				places[bit] = true
				if sound(g.bytes, tt.s) {
					t.Fatalf("nobody notices that bit %d of byte %d is wrong", bit%8, bit/8)
				}
			}
			if s := r.link.Stats()[0]; s.Corrupted != 2000 || len(places) < 200 {
				t.Errorf("%d corrupted, at %d places", s.Corrupted, len(places))
			}
		})
	}
}

// differentBit returns the one bit in which two frames differ.
func differentBit(t *testing.T, got, want []byte) int {
	t.Helper()
	at := -1
	for i := range want {
		for bit := range 8 {
			if (got[i]^want[i])>>bit&1 != 0 {
				if at >= 0 {
					t.Fatalf("bits %d and %d are wrong", at, 8*i+bit)
				}
				at = 8*i + bit
			}
		}
	}
	if at < 0 {
		t.Fatal("nothing is wrong")
	}
	return at
}

// sound says whether a receiver would take a frame that was s.
func sound(b []byte, s super) bool {
	l4 := s.headerBytes()
	l3 := l4 - 20
	if s.ip6 {
		l3 = 14 + 4*s.tags
		end := l3 + 40 + int(binary.BigEndian.Uint16(b[l3+4:]))
		return end <= len(b) && b[l3+6] == b[l3+6]&0x3f && end >= l4 && referenceSum(pseudo6(b[l3:], b[l4:end])) == 0xffff
	}
	end := l3 + int(binary.BigEndian.Uint16(b[l3+2:]))
	if end > len(b) || end < l4 || b[l3]&15 != 5 || referenceSum(b[l3:l4]) != 0xffff {
		return false
	}
	p := append(bytes.Clone(b[l3+12:l3+20]), 0, b[l3+9], byte((end-l4)>>8), byte(end-l4))
	return referenceSum(append(p, b[l4:end]...)) == 0xffff
}

func pseudo6(ip, l4 []byte) []byte {
	return append(append(bytes.Clone(ip[8:40]), 0, 6, byte(len(l4)>>8), byte(len(l4))), l4...)
}

func TestLinkMTU(t *testing.T) {
	steps := []port.MTUStep{{At: 0, Bytes: 1400}, {At: 2 * time.Millisecond, Bytes: 1300}, {At: 4 * time.Millisecond, Bytes: 1500}}
	r := newRig(t, port.LinkConfig{AB: port.Impairment{MTU: steps}}, port.MemConfig{})
	for _, tt := range []struct {
		at     time.Duration
		packet int
		want   bool
	}{
		{0, 1400, true}, {0, 1401, false}, {2 * time.Millisecond, 1300, true}, {2 * time.Millisecond, 1301, false},
		{3 * time.Millisecond, 1400, false}, {4 * time.Millisecond, 1500, true}, {4 * time.Millisecond, 1501, false},
	} {
		r.now = tt.at
		r.ends[0].Transmit([]*frame.Frame{frameOf(numbered(0, tt.packet-40), frame.Offload{})})
		if got := len(r.run(1)) == 1; got != tt.want {
			t.Errorf("at %v a packet of %d bytes passes: %v, want %v", tt.at, tt.packet, got, tt.want)
		}
	}
	s := r.link.Stats()[0]
	account(t, "MTU", s)
	if s.TooBig != 4 || s.LostPayload != 1401+1301+1400+1501-4*40 {
		t.Errorf("%+v", s)
	}
}

// TestLinkCuts: whatever comes in, wire frames with whole checksums come out.
func TestLinkCuts(t *testing.T) {
	r := newRig(t, port.LinkConfig{}, port.MemConfig{})
	big := super{payload: 64000, size: 1448, flags: 0x18}
	coalesced, payload := big.frame()
	r.ends[0].Transmit([]*frame.Frame{coalesced, plain(super{payload: 200, flags: 0x18}, nil)})
	got := r.run(1)
	want := big.reference(payload)
	if len(got) != len(want)+1 {
		t.Fatalf("%d wire frames, want %d", len(got), len(want)+1)
	}
	for i, w := range want {
		sameBytes(t, got[i].bytes, w)
	}
	verify(t, got[len(want)].bytes)
	bad := *coalesced
	bad.Offload.GSOSize = 1
	r.ends[0].Transmit([]*frame.Frame{&bad, frameOf(make([]byte, frame.MaxBytes+10), frame.Offload{})})
	if got := r.run(1); len(got) != 0 {
		t.Errorf("%d frames of what no wire carries", len(got))
	}
	if s := r.link.Stats()[0]; s.Malformed != 2 || s.Frames != uint64(len(want)+1) {
		t.Errorf("%+v", s)
	}
}

// TestLinkFull: a port that takes nothing is asked again, and what has no room meanwhile is counted.
func TestLinkFull(t *testing.T) {
	r := newRig(t, port.LinkConfig{Queue: 20}, port.MemConfig{Queue: 10})
	sent := 0
	for range 5 {
		for range 10 {
			if r.ends[0].Transmit([]*frame.Frame{frameOf(numbered(sent, 0), frame.Offload{})}) != 1 {
				t.Fatal("no room")
			}
			sent++
		}
		if next := r.link.Step(r.now); next < 0 && sent > 10 {
			t.Error("nobody is to ask again")
		}
	}
	// The far end's queue has 10, the link's 20.
	s := r.link.Stats()[0]
	if s.Sent != 10 || s.Overrun != 20 || s.LostPayload != 80 {
		t.Errorf("%+v", s)
	}
	got := r.collect(1, nil)
	got = append(got, r.run(1)...)
	if len(got) != 30 {
		t.Fatalf("%d frames, want 30", len(got))
	}
	for i, g := range got {
		if number(g.bytes) != i {
			t.Errorf("frame %d as number %d", number(g.bytes), i)
		}
	}
	account(t, "full", r.link.Stats()[0])
}

// TestLinkDeterministic: the same seed gives the same, another seed does not, and a frame's fate does not hang on what
// else the link does.
func TestLinkDeterministic(t *testing.T) {
	how := port.Impairment{Loss: 0.05, Duplicate: 0.05, Reorder: 0.05, Corrupt: 0.05, Delay: 3 * time.Millisecond, Jitter: time.Millisecond}
	once := func(seed uint64, how port.Impairment) []arrival {
		return newRig(t, port.LinkConfig{AB: how, Seed: seed}, port.MemConfig{}).sendNumbered(0, 1000)
	}
	same := func(a, b []arrival) bool {
		return slices.EqualFunc(a, b, func(a, b arrival) bool { return a.at == b.at && bytes.Equal(a.bytes, b.bytes) })
	}
	first := once(1, how)
	if !same(first, once(1, how)) {
		t.Error("the same seed gave something else")
	}
	if same(first, once(2, how)) {
		t.Error("another seed gave the same")
	}
	lost := func(as []arrival) (out []int) {
		there := map[int]bool{}
		for _, a := range as {
			there[number(a.bytes)] = true
		}
		for i := range 1000 {
			if !there[i] {
				out = append(out, i)
			}
		}
		return out
	}
	if got, want := lost(once(1, port.Impairment{Loss: 0.05})), lost(once(1, port.Impairment{Loss: 0.05, Reorder: 0.3})); !slices.Equal(got, want) {
		t.Errorf("lost %v, with reordering %v", got, want)
	}
	// The directions are not alike.
	r := newRig(t, port.LinkConfig{AB: port.Impairment{Loss: 0.05}, BA: port.Impairment{Loss: 0.05}}, port.MemConfig{})
	if slices.Equal(lost(r.sendNumbered(0, 1000)), lost(r.sendNumbered(1, 1000))) {
		t.Error("both directions lose the same frames")
	}
}

// TestLinkOrder sends at random times with random delays and compares with a sort.
func TestLinkOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := newRig(t, port.LinkConfig{AB: port.Impairment{Delay: 4 * time.Millisecond, Reorder: 0.5, ReorderBy: 7 * time.Millisecond}}, port.MemConfig{})
	var got []arrival
	came := map[int]time.Duration{}
	for i := range 2000 {
		came[i] = r.now
		r.ends[0].Transmit([]*frame.Frame{frameOf(numbered(i, 0), frame.Offload{})})
		for to := r.now + time.Duration(rng.IntN(3_000_000)); ; {
			next := r.link.Step(r.now)
			got = r.collect(1, got)
			if next < 0 || next >= to {
				r.now = to
				break
			}
			r.now = next
		}
	}
	got = append(got, r.run(1)...)
	if len(got) != 2000 {
		t.Fatalf("%d frames", len(got))
	}
	for _, g := range got {
		if d := g.at - came[number(g.bytes)]; d != 4*time.Millisecond && d != 11*time.Millisecond {
			t.Fatalf("a delay of %v", d)
		}
	}
	if !slices.IsSortedFunc(got, func(a, b arrival) int { return cmp.Compare(a.at, b.at) }) {
		t.Error("not in the order of their times")
	}
}

// TestLinkAllocates: a link in steady state uses its buffers again.
func TestLinkAllocates(t *testing.T) {
	r := newRig(t, port.LinkConfig{AB: port.Impairment{Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Corrupt: 0.1}}, port.MemConfig{Queue: 8})
	fs := memBuffers(r.ends[1], 64)
	f := frameOf(numbered(1, 1000), frame.Offload{})
	out := []*frame.Frame{f}
	if got := testing.AllocsPerRun(1000, func() {
		r.ends[0].Transmit(out)
		r.now += time.Millisecond
		r.link.Step(r.now)
		for i := range fs {
			fs[i].Start = frame.Headroom
		}
		r.ends[1].Receive(fs)
	}); got != 0 {
		t.Errorf("%v allocations a frame", got)
	}
}

func BenchmarkLink(b *testing.B) {
	r := newRig(b, port.LinkConfig{AB: port.Impairment{Loss: 0.01, Delay: time.Millisecond}}, port.MemConfig{})
	f := frameOf(numbered(1, 1400), frame.Offload{})
	out, fs := []*frame.Frame{f}, memBuffers(r.ends[1], 64)
	b.ReportAllocs()
	for range b.N {
		r.ends[0].Transmit(out)
		r.now += 10 * time.Microsecond
		r.link.Step(r.now)
		for i := range fs {
			fs[i].Start = frame.Headroom
		}
		r.ends[1].Receive(fs)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}
