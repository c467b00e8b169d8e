package health

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// The life of a server, as the prober knows it:
//
//	unknown ── its next hop is resolved: SYN ──► asked
//	asked ──── SYN-ACK of our SYN: RST ────────► known
//	asked ──── RST of our SYN ─────────────────► refused
//	asked ──── three SYNs unanswered ──────────► silent
//	asked ──── anything else with ACK: RST ────► asked
//	asked ──── anything else ──────────────────► asked
//	refused, silent ── back-off: SYN ──────────► asked
//	known ──── ten minutes: SYN ───────────────► asked, with its profile
//	any ────── what a connection's SYN-ACK said ► known, unless asked; asked at once where that is less
//	any ────── not wanted any more ────────────► forgotten
//
// TestLife has a row for each.

var (
	server   = netip.MustParseAddrPort("198.18.1.11:80")
	server6  = netip.MustParseAddrPort("[2001:db8:2::11]:80")
	own      = netip.MustParseAddr("198.18.1.1")
	own6     = netip.MustParseAddr("2001:db8:2::1")
	stranger = netip.MustParseAddrPort("198.18.1.99:80")

	everything = []byte{2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 9}
	full       = Profile{Known: true, MSS: 1460, WScale: 9, WScaleOn: true, SACK: true, Timestamps: true}
)

// A bench is a prober with one server, which is asked.
type bench struct {
	*testing.T
	p   *Prober
	now time.Duration
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, p: New([32]byte{1})}
	b.want(Target{server, own, true})
	return b
}

func (b *bench) want(targets ...Target) { b.p.Want(targets, b.now) }

// advance lets time pass in steps of a tenth of a second and returns what is sent.
func (b *bench) advance(d time.Duration) (sent []Segment) {
	for end := b.now + d; b.now < end; {
		b.now += min(100*time.Millisecond, end-b.now)
		sent = b.p.Advance(b.now, sent)
	}
	return sent
}

// ask returns the SYN that is due now.
func (b *bench) ask() Segment {
	b.Helper()
	sent := b.p.Advance(b.now, nil)
	if len(sent) != 1 || sent[0].Flags != SYN|ECE|CWR || sent[0].Ack != 0 {
		b.Fatalf("sent %+v, want one SYN", sent)
	}
	return sent[0]
}

func (b *bench) state(want State) {
	b.Helper()
	if list := b.p.List(b.now); len(list) != 1 || list[0].State != want {
		b.Fatalf("servers %+v, want one that is %v", list, want)
	}
}

// take gives the prober an answer to a SYN and checks the reply: an RST with the sequence number that the answer
// acknowledges, or none.
func (b *bench) take(a Answer, ours, reset bool) {
	b.Helper()
	reply, got := b.p.Take(&a, b.now)
	want := Segment{}
	if reset {
		want = Segment{From: a.To, To: a.From, Seq: a.Ack, Flags: RST}
	}
	if got != ours || reply != want {
		b.Fatalf("%+v: ours %v, reply %+v; want %v, %+v", a, got, reply, ours, want)
	}
}

func answer(syn Segment, flags uint8, ack uint32, options []byte) Answer {
	return Answer{From: syn.To, To: syn.From, Seq: 0xd0000000, Ack: syn.Seq + ack, Flags: flags, Options: options}
}

func TestLife(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(b *bench, syn Segment)
	}{
		{"SYN-ACK", func(b *bench, syn Segment) {
			v := b.p.Version()
			b.take(answer(syn, SYN|ACK, 1, everything), true, true)
			b.state(Known)
			if got := b.p.Profile(server); got != full || b.p.Version() == v {
				b.Errorf("profile %+v, version %d after %d", got, b.p.Version(), v)
			}
			if sent := b.advance(refresh - time.Second); len(sent) != 0 {
				b.Errorf("a known server is sent %+v", sent)
			}
		}},
		{"SYN-ACK with ECN", func(b *bench, syn Segment) {
			b.take(answer(syn, SYN|ACK|ECE, 1, everything), true, true)
			if !b.p.Profile(server).ECN {
				b.Error("ECN not learned")
			}
		}},
		{"SYN-ACK that reflects our flags", func(b *bench, syn Segment) {
			b.take(answer(syn, SYN|ACK|ECE|CWR, 1, everything), true, true)
			if b.p.Profile(server).ECN {
				b.Error("a reflected SYN is taken for ECN")
			}
		}},
		{"SYN-ACK without options", func(b *bench, syn Segment) {
			b.take(answer(syn, SYN|ACK, 1, nil), true, true)
			if got, want := b.p.Profile(server), (Profile{Known: true, MSS: 536}); got != want {
				b.Errorf("profile %+v, want %+v", got, want)
			}
		}},
		{"SYN-ACK twice", func(b *bench, syn Segment) { // the second is a segment of no connection, like any other
			b.take(answer(syn, SYN|ACK, 1, everything), true, true)
			b.take(answer(syn, SYN|ACK, 1, nil), false, false)
			if b.p.Profile(server) != full {
				b.Error("the second SYN-ACK counts")
			}
		}},
		{"SYN-ACK of another number", func(b *bench, syn Segment) {
			for _, ack := range []uint32{0, 2, 1 << 31} {
				b.take(answer(syn, SYN|ACK, ack, everything), true, true)
			}
			b.state(Asked)
			if b.p.Profile(server) != (Profile{}) {
				b.Error("it counts")
			}
			b.now += retry
			if again := b.ask(); again != syn {
				b.Errorf("then %+v, want the SYN again", again)
			}
		}},
		{"SYN-ACK to another port", func(b *bench, syn Segment) {
			a := answer(syn, SYN|ACK, 1, everything)
			a.To = netip.AddrPortFrom(own, syn.From.Port()+1)
			b.take(a, false, false)
			b.state(Asked)
		}},
		{"SYN-ACK of a stranger", func(b *bench, syn Segment) {
			a := answer(syn, SYN|ACK, 1, everything)
			a.From = stranger
			b.take(a, false, false)
			a.From = netip.AddrPortFrom(server.Addr(), 81)
			b.take(a, false, false)
			b.state(Asked)
		}},
		{"SYN", func(b *bench, syn Segment) {
			b.take(answer(syn, SYN, 1, everything), false, false)
			b.state(Asked)
		}},
		{"RST of our SYN", func(b *bench, syn Segment) {
			b.take(answer(syn, RST|ACK, 1, nil), true, false)
			b.state(Refused)
			if sent := b.advance(backoffFirst - 100*time.Millisecond); len(sent) != 0 {
				b.Errorf("sent %+v before the back-off's end", sent)
			}
			b.now += 100 * time.Millisecond
			if again := b.ask(); again.Seq == syn.Seq || again.From == syn.From {
				b.Errorf("the next probe is %+v, as the last", again)
			}
		}},
		{"RST of something else", func(b *bench, syn Segment) {
			b.take(answer(syn, RST|ACK, 2, nil), true, false)
			b.take(answer(syn, RST, 1, nil), true, false)
			b.state(Asked)
		}},
		{"ACK of an older connection", func(b *bench, syn Segment) {
			b.take(answer(syn, ACK, 1234, nil), true, true)
			b.take(answer(syn, ACK|FIN, 1, nil), true, true)
			b.state(Asked)
		}},
		{"silence", func(b *bench, syn Segment) {
			sent := b.advance(10 * time.Minute)
			var at []Segment
			for i := range sent {
				if sent[i].Seq != syn.Seq {
					at = append(at, sent[i])
				} else if sent[i] != syn {
					b.Errorf("again as %+v", sent[i])
				}
			}
			// 3 s of asking and a back-off of 2, 4, 8, 16, 32, then 60 s at a time.
			if repeats := len(sent) - len(at); repeats != attempts-1 || len(at) < 3*11 || len(at) > 3*14 {
				b.Errorf("%d SYNs again and %d later", repeats, len(at))
			}
			if b.p.Profile(server) != (Profile{}) {
				b.Error("silence tells a profile")
			}
		}},
		{"silence of a known server", func(b *bench, syn Segment) {
			b.take(answer(syn, SYN|ACK, 1, everything), true, true)
			b.advance(refresh + 4*time.Second)
			b.state(Silent)
			if b.p.Profile(server) != full {
				b.Error("its profile is forgotten")
			}
		}},
		{"another answer later", func(b *bench, syn Segment) {
			b.take(answer(syn, SYN|ACK, 1, everything), true, true)
			b.now += refresh
			v := b.p.Version()
			b.take(answer(b.ask(), SYN|ACK, 1, everything[:4]), true, true)
			if got, want := b.p.Profile(server), (Profile{Known: true, MSS: 1460}); got != want || b.p.Version() == v {
				b.Errorf("profile %+v, want %+v", got, want)
			}
		}},
		{"a connection tells all", func(b *bench, syn Segment) {
			b.p.Learned(server, Profile{Known: true, MSS: 1400, SACK: true}, b.now)
			if got, want := b.p.Profile(server), (Profile{Known: true, MSS: 1400, SACK: true}); got != want {
				b.Errorf("profile %+v, want %+v", got, want)
			}
			b.state(Asked)
			b.advance(4 * time.Second)
			b.state(Silent)
			b.p.Learned(server, full, b.now)
			b.state(Known)
		}},
		{"a connection tells the MSS", func(b *bench, syn Segment) {
			b.p.Learned(server, Profile{MSS: 1400}, b.now)
			if got, want := b.p.Profile(server), (Profile{MSS: 1400}); got != want {
				b.Errorf("profile %+v, want %+v", got, want)
			}
			b.take(answer(syn, SYN|ACK, 1, everything), true, true)
			v := b.p.Version()
			b.now += distrust
			b.p.Learned(server, Profile{MSS: 1300}, b.now)
			want := full
			want.MSS = 1300
			if got := b.p.Profile(server); got != want || b.p.Version() == v {
				b.Errorf("profile %+v, want %+v", got, want)
			}
			b.p.Learned(server, want, b.now)
			if b.p.Version() != v+1 {
				b.Error("the same again is another version")
			}
		}},
		{"a connection says less, and the server too", func(b *bench, syn Segment) {
			b.take(answer(syn, SYN|ACK, 1, everything), true, true)
			less := full
			less.SACK = false
			b.p.Learned(server, less, b.now)
			if got := b.p.Profile(server); got != less {
				b.Errorf("profile %+v, want %+v at once", got, less)
			}
			without := append([]byte{1, 1}, everything[6:]...)
			b.take(answer(b.ask(), SYN|ACK, 1, append([]byte{2, 4, 5, 0xb4}, without...)), true, true)
			if got := b.p.Profile(server); got != less {
				b.Errorf("profile %+v, want %+v", got, less)
			}
			less.Timestamps = false
			b.p.Learned(server, less, b.now)
			if got := b.p.Profile(server); got != less {
				b.Errorf("profile %+v, want %+v at once", got, less)
			}
		}},
		{"a connection says less, and the server does not", func(b *bench, syn Segment) {
			b.take(answer(syn, SYN|ACK, 1, everything), true, true)
			b.p.Learned(server, Profile{MSS: 500}, b.now)
			b.take(answer(b.ask(), SYN|ACK, 1, everything), true, true)
			if got := b.p.Profile(server); got != full {
				b.Errorf("profile %+v, want %+v", got, full)
			}
			v := b.p.Version()
			b.p.Learned(server, Profile{MSS: 500}, b.now+distrust-1)
			if sent := b.p.Advance(b.now+distrust-1, nil); b.p.Version() != v || len(sent) != 0 {
				b.Errorf("it is believed again: %+v, sent %+v", b.p.Profile(server), sent)
			}
			more := full
			more.ECN = true
			b.p.Learned(server, more, b.now+1)
			if got := b.p.Profile(server); got != more {
				b.Errorf("profile %+v, want %+v", got, more)
			}
			b.now += distrust
			b.p.Learned(server, Profile{MSS: 500}, b.now)
			if got := b.p.Profile(server); got.MSS != 500 {
				b.Errorf("profile %+v after a minute", got)
			}
			b.ask()
		}},
		{"a connection to a stranger", func(b *bench, syn Segment) {
			v := b.p.Version()
			b.p.Learned(stranger, full, b.now)
			if b.p.Version() != v || b.p.Profile(stranger) != (Profile{}) {
				b.Error("a server that is not wanted is known")
			}
		}},
		{"not wanted any more", func(b *bench, syn Segment) {
			b.want()
			b.take(answer(syn, SYN|ACK, 1, everything), false, false)
			if sent := b.advance(time.Minute); len(sent) != 0 || b.p.Next() != math.MaxInt64 {
				b.Errorf("sent %+v, next %v", sent, b.p.Next())
			}
			if b.want(Target{server, own, true}); b.ask() == syn {
				b.Error("the same probe again")
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			syn := b.ask()
			if syn.To != server || syn.From.Addr() != own || syn.From.Port() < firstPort {
				t.Fatalf("SYN %+v", syn)
			}
			b.state(Asked)
			tt.run(b, syn)
		})
	}
}

// TestNotReady: a server behind a next hop that is not resolved, or that no address of ours reaches, is not asked; when it
// can be it is at once.
func TestNotReady(t *testing.T) {
	b := &bench{T: t, p: New([32]byte{})}
	for _, target := range []Target{{server, own, false}, {server, netip.Addr{}, true}} {
		b.want(target)
		if sent := b.advance(10 * time.Minute); len(sent) != 0 || b.p.Next() != math.MaxInt64 {
			t.Errorf("%+v: sent %+v, next %v", target, sent, b.p.Next())
		}
		b.state(Unknown)
	}
	b.want(Target{server, own, true})
	b.ask()
	b.advance(4 * time.Second)
	b.state(Silent)
	b.want(Target{server, own, false})
	b.advance(time.Hour)
	b.want(Target{server, own, true})
	b.ask()
}

// TestSeed: what a predecessor knew counts at once and is confirmed.
func TestSeed(t *testing.T) {
	b := &bench{T: t, p: New([32]byte{})}
	b.p.Seed(server, full, 0)
	b.p.Seed(server6, Profile{}, 0)
	b.p.Seed(stranger, Profile{MSS: 1400}, 0)
	if b.p.Profile(server) != full || b.p.Profile(stranger) != (Profile{MSS: 1400}) {
		t.Errorf("profiles %+v", b.p.List(0))
	}
	b.want(Target{server, own, true})
	b.state(Known)
	v := b.p.Version()
	b.take(answer(b.ask(), SYN|ACK, 1, everything), true, true)
	b.state(Known)
	if b.p.Version() != v {
		t.Error("a profile that is confirmed is another version")
	}
	b.p.Seed(server, Profile{Known: true}, 0)
	if b.p.Profile(server) != full {
		t.Error("a seed displaces what is known")
	}
}

// TestManyServers: no more probes are in flight than may be, each server is asked, and the same is asked in the same order.
func TestManyServers(t *testing.T) {
	var runs [2][]Segment
	for run := range runs {
		b := &bench{T: t, p: New([32]byte{7})}
		var targets []Target
		for i := range 200 {
			targets = append(targets, Target{netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(i + 1)}), 80), own, true})
		}
		slices.Reverse(targets)
		b.want(targets...)
		asked := map[netip.AddrPort]bool{}
		for range 20 {
			sent := b.p.Advance(b.now, nil)
			if len(sent) > maxAsked {
				t.Fatalf("%d probes at once", len(sent))
			}
			for _, s := range sent {
				asked[s.To] = true
				if s.To.Addr().As4()[3]%2 == 0 { // the others are silent
					b.take(answer(s, SYN|ACK, 1, everything), true, true)
				}
			}
			runs[run] = append(runs[run], sent...)
			b.now += time.Second
		}
		if len(asked) != 200 {
			t.Errorf("%d servers asked", len(asked))
		}
	}
	if !slices.Equal(runs[0], runs[1]) {
		t.Error("two runs differ")
	}
	numbers := map[uint32]bool{}
	for _, s := range runs[0] {
		numbers[s.Seq] = true
	}
	if len(numbers) < 200 {
		t.Errorf("%d sequence numbers for 200 probes", len(numbers))
	}
	other := New([32]byte{8})
	other.Want([]Target{{server, own, true}}, 0)
	one := New([32]byte{9})
	one.Want([]Target{{server, own, true}}, 0)
	if other.Advance(0, nil)[0].Seq == one.Advance(0, nil)[0].Seq {
		t.Error("another key gives the same number")
	}
}

// TestIPv6: the MSS of a server that tells none is its family's.
func TestIPv6(t *testing.T) {
	b := &bench{T: t, p: New([32]byte{})}
	b.want(Target{server6, own6, true})
	b.take(answer(b.ask(), SYN|ACK, 1, nil), true, true)
	if got := b.p.Profile(server6); got.MSS != 1220 {
		t.Errorf("MSS %d", got.MSS)
	}
}

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		options []byte
		want    Profile
	}{
		{nil, Profile{}},
		{everything, full},
		{[]byte{2, 4, 5, 0xb4}, Profile{MSS: 1460}},
		{[]byte{1, 1, 1, 3, 3, 0}, Profile{WScaleOn: true}},
		{[]byte{3, 3, 15, 1}, Profile{WScaleOn: true, WScale: 14}},
		{[]byte{3, 3, 255, 1}, Profile{WScaleOn: true, WScale: 14}},
		{[]byte{0, 4, 2, 0}, Profile{}},
		{[]byte{30, 4, 0, 0x81, 4, 2, 253, 2}, Profile{SACK: true}},
		{[]byte{4, 2, 30, 0, 2, 4, 5, 0xb4}, Profile{SACK: true}},
		{[]byte{4, 2, 30, 1, 2, 4, 5, 0xb4}, Profile{SACK: true}},
		{[]byte{4, 2, 8, 10, 0, 0}, Profile{SACK: true}},
		{[]byte{4, 2, 1, 2}, Profile{SACK: true}},
		{[]byte{2, 3, 5, 3, 4, 1, 0, 4, 3, 1, 8, 9, 0, 0, 0, 0, 0, 0, 0}, Profile{}},
		{[]byte{2, 4, 0, 0}, Profile{}},
		{[]byte{2, 4, 0, 1, 2, 4, 0, 2}, Profile{MSS: 2}},
	} {
		tt.want.Known = true
		if got := Read(tt.options); got != tt.want {
			t.Errorf("% x: got %+v, want %+v", tt.options, got, tt.want)
		}
	}
}

// reference reads options the slow way: it lists them first.
func reference(b []byte) Profile {
	p := Profile{Known: true}
	type option struct {
		kind byte
		data []byte
	}
	var list []option
	for i := 0; i < len(b) && b[i] != 0; {
		if b[i] == 1 {
			i++
			continue
		}
		if i+1 >= len(b) || int(b[i+1]) < 2 || i+int(b[i+1]) > len(b) {
			break
		}
		list = append(list, option{b[i], b[i+2 : i+int(b[i+1])]})
		i += int(b[i+1])
	}
	for _, o := range list {
		switch fmt.Sprint(o.kind, "/", len(o.data)) {
		case "2/2":
			p.MSS = binary.BigEndian.Uint16(o.data)
		case "3/1":
			p.WScaleOn, p.WScale = true, o.data[0]
			if p.WScale > 14 {
				p.WScale = 14
			}
		case "4/0":
			p.SACK = true
		case "8/8":
			p.Timestamps = true
		}
	}
	return p
}

// FuzzRead takes any bytes as the options of a SYN-ACK.
func FuzzRead(f *testing.F) {
	for _, o := range [][]byte{everything, {2, 4}, {3, 3, 200, 0, 4, 2}, {30, 0}, {253, 255, 1, 1}, {1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0}} {
		f.Add(o)
	}
	f.Fuzz(func(t *testing.T, o []byte) {
		before := slices.Clone(o)
		if got, want := Read(o), reference(o); got != want {
			t.Errorf("% x: got %+v, want %+v", o, got, want)
		}
		if !slices.Equal(o, before) {
			t.Error("it writes to what it reads")
		}
	})
}
