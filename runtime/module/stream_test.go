package module

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// shouter makes lines that begin with x longer, and those that begin with y shorter, and keeps the numbers of both ends as
// the card does.
type shouter struct {
	t             *testing.T
	at            uint32 // pivot
	before, after uint32
	acked         uint32 // the receiver's
	applied       []string
}

func (s *shouter) Read(_ Direction, line []byte) Verdict {
	switch line[0] {
	case 'x':
		return Verdict{Note: Altered, Replace: append([]byte("<longer> "), line...)}
	case 'y':
		return Verdict{Note: Altered, Replace: []byte("y\n")}
	case 'q':
		return Verdict{Note: Encrypted, Off: true}
	}
	return Verdict{}
}

func (s *shouter) Holds(_ Direction, begin []byte) bool { return begin[0] == 'x' || begin[0] == 'y' }

func (s *shouter) Adjust(boundary uint32, by int32) Outcome {
	if s.before != s.after && int32(s.acked-s.after-s.at) < 0 {
		return Wait
	}
	s.at, s.before, s.after = boundary, s.after, s.after+uint32(by)
	return Done
}

func (s *shouter) Apply(v *Verdict) { s.applied = append(s.applied, v.Note.String()) }

func (s *shouter) forth(n uint32) uint32 {
	if int32(n-s.at) >= 0 {
		return n + s.after
	}
	return n + s.before
}

func (s *shouter) back(n uint32) uint32 {
	if int32(n-s.after-s.at) >= 0 {
		return n - s.after
	}
	if n -= s.before; int32(n-s.at) >= 0 {
		return s.at - 1
	}
	return n
}

const (
	spoken = "first\nx marks\nyes, this becomes short\nplain\nx\nya\nlast x\nqx no more\nx is left\n"
	heard  = "first\n<longer> x marks\ny\nplain\n<longer> x\ny\nlast x\nqx no more\nx is left\n"
)

// TestStream sends a text over a network that cuts, loses, repeats and swaps segments, with a sender that sends again what
// is not acknowledged; the receiver has the altered text at last, whatever happened on the way.
func TestStream(t *testing.T) {
	late := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		loss := r.IntN(40)
		first := []uint32{0, 1000, 0xffffffe0, 0x7fffffd0, r.Uint32()}[r.IntN(5)]
		o := &shouter{t: t, at: first, acked: first}
		var tally Tally
		s := NewStream(FromClient, first, true, &tally)
		una := first
		got := make([]byte, 0, 200)
		end := first + uint32(len(spoken))
		for round := 0; int32(una-end) < 0; round++ {
			if round > 3000 {
				t.Fatalf("seed %d: stuck at %d of %d, receiver has %q; %+v", seed, una-first, end-first, got, tally)
			}
			seq := una + uint32(r.IntN(20))
			if r.IntN(3) == 0 {
				seq = una
			}
			if r.IntN(5) == 0 && una != first {
				seq = una - uint32(r.IntN(int(min(una-first, 30))+1))
			}
			if int32(seq-end) >= 0 {
				continue
			}
			n := 1 + r.IntN(min(int(end-seq), 30))
			at := int(seq - first)
			if r.IntN(100) < loss {
				continue
			}
			for _, p := range s.Segment(seq, []byte(spoken[at:at+n]), false, o) {
				if r.IntN(100) < loss {
					continue
				}
				place := int(int32(o.forth(p.Seq) - first))
				if place > len(got) {
					continue // a gap: it comes again
				}
				text := p.Text
				if place < 0 { // old, and shifted by more than came before it
					text, place = text[min(-place, len(text)):], 0
				}
				old := min(max(int(o.acked-first)-place, 0), len(text)) // no receiver looks at what it has acknowledged
				if over := got[place+old : max(place+old, min(len(got), place+len(text)))]; !bytes.Equal(over, text[old:][:len(over)]) {
					t.Fatalf("seed %d: %q comes where %q was", seed, text, over)
				}
				if place+len(text) > len(got) {
					got = append(got, text[len(got)-place:]...)
				}
			}
			if r.IntN(100) >= loss {
				o.acked = first + uint32(len(got))
				if back := o.back(o.acked); int32(back-una) > 0 {
					una = back
				}
			}
		}
		if tally.Late != 0 { // a part came again and again
			late++
			continue
		}
		if string(got) != heard {
			t.Fatalf("seed %d:\n got %q\nwant %q", seed, got, heard)
		}
	}
	if late > 150 {
		t.Errorf("%d of 400 gave up on a line", late)
	}
}

// TestStreamCut: a line that is to be altered, cut at every byte, goes on altered when its end is there.
func TestStreamCut(t *testing.T) {
	const line = "x marks the spot\nplain\n"
	for cut := 1; cut < len(line); cut++ {
		o := &shouter{t: t}
		var tally Tally
		s := NewStream(FromServer, 0, true, &tally)
		var got strings.Builder
		for _, part := range []struct {
			seq  uint32
			text string
		}{{0, line[:cut]}, {uint32(cut), line[cut:]}} {
			for _, p := range s.Segment(part.seq, []byte(part.text), false, o) {
				got.Write(p.Text)
			}
		}
		if got.String() != "<longer> "+line {
			t.Errorf("cut at %d: %q", cut, got.String())
		}
	}
}

// TestStreamGivesUp: of a line whose sender waits for an acknowledgement before its end, the part goes on as it is; so does
// one that no more comes behind, and one that is too long.
func TestStreamGivesUp(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(s *Stream, o *shouter) []Piece
		want string
		late uint64
	}{
		{"again and again", func(s *Stream, o *shouter) (all []Piece) {
			for range maxAgain {
				all = append(all, s.Segment(0, []byte("x ma"), false, o)...)
			}
			return append(all, append(s.Segment(0, []byte("x ma"), false, o), s.Segment(4, []byte("rks\n"), false, o)...)...)
		}, "0 x ma, 4 rks\n, ", 1},
		{"the end", func(s *Stream, o *shouter) []Piece { return s.Segment(0, []byte("x ma"), true, o) }, "0 x ma, ", 0},
		{"parts again", func(s *Stream, o *shouter) (all []Piece) {
			s.Segment(0, []byte("x "), false, o)
			s.Segment(2, []byte("ma"), false, o)
			for range maxAgain {
				all = append(all, s.Segment(0, []byte("x "), false, o)...)
			}
			return all
		}, "0 x ma, ", 1},
	} {
		o := &shouter{t: t}
		var tally Tally
		s := NewStream(FromClient, 0, true, &tally)
		got := ""
		for _, p := range tt.run(s, o) {
			got += fmt.Sprintf("%d %s, ", p.Seq, p.Text)
		}
		if got != tt.want || tally.Late != tt.late {
			t.Errorf("%s: got %q (%+v), want %q", tt.name, got, tally, tt.want)
		}
	}
}

// TestExpected: time, place and use.
func TestExpected(t *testing.T) {
	var x Expected[int]
	key := func(n int) Key {
		return Key{From: addr("198.18.0.10:0").Addr(), At: addr(fmt.Sprintf("198.18.0.80:%d", n+1))}
	}
	for n := range maxExpected + 1 {
		x.Add(key(n), n, 0)
	}
	if _, ok := x.Get(key(0), 0); ok || x.Evicted != 1 || x.Len() != maxExpected {
		t.Errorf("the oldest is there still: %d evicted of %d", x.Evicted, x.Len())
	}
	if n, ok := x.Get(key(5), 0); !ok || n != 5 {
		t.Errorf("got %d, %v", n, ok)
	}
	x.Remove(key(5))
	if _, ok := x.Get(key(5), 0); ok {
		t.Error("one that came is expected again")
	}
	x.Add(key(7), 70, expectedLife-1)
	if n, ok := x.Get(key(7), expectedLife+1); !ok || n != 70 {
		t.Errorf("one that was renewed: %d, %v", n, ok)
	}
	x.Expire(expectedLife)
	if x.Len() != 1 || x.Expired != maxExpected-2 {
		t.Errorf("%d left, %d expired", x.Len(), x.Expired)
	}
	for n := range 5 * maxExpected { // used ones leave nothing behind
		x.Add(key(n%60000), n, expectedLife)
		x.Remove(key(n % 60000))
	}
	if len(x.order) > 2*maxExpected+1 || x.Len() != 0 && x.Len() != 1 {
		t.Errorf("%d in order, %d in the table", len(x.order), x.Len())
	}
}
