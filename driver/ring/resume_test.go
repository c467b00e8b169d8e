package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
)

// dying is a card that no doorbell reaches any more: its host died just before it rang.
type dying struct {
	bells
	dead bool
}

func (d *dying) Store32(region int, off uint64, v uint32) {
	if !d.dead {
		d.bells.Store32(region, off, v)
	}
}

// TestResumeConsumer ends a Consumer after Recv, in the middle of Commit and after it. The next one gets what was not
// published, with the gaps that the card made.
func TestResumeConsumer(t *testing.T) {
	for _, start := range starts {
		for _, commits := range []int{0, 1, 2, 3} {
			for _, half := range []bool{false, true} {
				for _, full := range []bool{false, true} {
					t.Run(fmt.Sprintf("%d, %d commits, half %v, full %v", start, commits, half, full), func(t *testing.T) {
						mem, noted := make([]byte, 8*64), make([]byte, 64)
						bell := &dying{}
						c, err := NewConsumer(mem, noted, start, 100, Bell{bell, 0, 0x24})
						if err != nil {
							t.Fatal(err)
						}
						bell.value = start
						card := newRefProducer(mem, start, 100)
						ds := make([]Descriptor, 16)
						next := uint32(100) // sequence number of the first that was not published
						for range commits {
							for i := range uint32(10) { // two do not fit
								card.produce(bell.value, i)
							}
							if n := c.Recv(ds); n != 8 {
								t.Fatalf("received %d, want 8", n)
							}
							c.Commit()
							next = ds[7][3] + 1
						}
						for range 5 {
							card.produce(bell.value, 7)
						}
						c.Recv(ds[:3])
						bell.dead = true
						if half {
							c.Commit()
						}
						if full { // the slot before the index that was published is written over
							for range 6 {
								card.produce(bell.value, 7)
							}
						}
						want := uint32(5)
						if full {
							want = 8
						}
						lost := uint64(0)
						if commits > 0 { // those that did not fit before
							lost = 2
						}
						r, err := ResumeConsumer(mem, noted, bell.value, card.index, Bell{&bells{}, 0, 0x24})
						if err != nil {
							t.Fatal(err)
						}
						if r.Commit() {
							t.Error("there is something to publish")
						}
						n := r.Recv(ds)
						if uint32(n) != want || ds[0][3] != next+uint32(lost) || r.Lost() != lost {
							t.Errorf("received %d from sequence number %d, %d lost, want %d from %d, %d", n, ds[0][3], r.Lost(), want, next+uint32(lost), lost)
						}
						if !r.Commit() || r.Index() != bell.value+want {
							t.Errorf("index %d, want %d", r.Index(), bell.value+want)
						}
					})
				}
			}
		}
	}
}

// TestResumeProducer ends a Producer with descriptors that it has not published.
func TestResumeProducer(t *testing.T) {
	for _, start := range starts {
		mem, word := make([]byte, 8*64), make([]byte, 64)
		bell := &bells{}
		p, err := NewProducer(mem, word, start, Bell{bell, 0, 0x20})
		if err != nil {
			t.Fatal(err)
		}
		if n := p.Send(make([]Descriptor, 5)); n != 5 || !p.Commit() {
			t.Fatalf("sent %d", n)
		}
		p.Send(make([]Descriptor, 2))
		rows := []struct {
			name     string
			consumed uint32 // of five
			wrote    uint32 // what the card wrote back
			free     uint32
			ok       bool
		}{
			{"nothing taken", 0, 0, 3, true},
			{"some taken", 2, 2, 5, true},
			{"card goes on meanwhile", 2, 4, 7, true},
			{"writeback lags", 3, 1, 6, true},
			{"all taken", 5, 5, 8, true},
			{"writeback ahead", 5, 6, 0, false},
			{"more than all taken", 6, 6, 0, false},
			{"more published than fits", 1<<32 - 9, 0, 0, false},
		}
		for _, row := range rows {
			binary.LittleEndian.PutUint32(word, start+row.wrote)
			r, err := ResumeProducer(mem, word, start+5, start+row.consumed, Bell{bell, 0, 0x20})
			if (err == nil) != row.ok || err != nil && !errors.Is(err, ErrResume) {
				t.Errorf("%d, %s: %v", start, row.name, err)
				continue
			}
			if err == nil && (r.Free() != row.free || r.Index() != start+5 || r.Commit()) {
				t.Errorf("%d, %s: %d free at %d, want %d", start, row.name, r.Free(), r.Index(), row.free)
			}
		}
	}
}

// TestResumeRefused: memory that is another ring's, or nobody's.
func TestResumeRefused(t *testing.T) {
	const start = 20
	make2 := func() (mem, noted []byte) {
		mem, noted = make([]byte, 8*64), make([]byte, NoteBytes)
		if _, err := NewConsumer(mem, noted, start, 0, Bell{&bells{}, 0, 0}); err != nil {
			t.Fatal(err)
		}
		card := newRefProducer(mem, start, 0)
		for range 3 {
			card.produce(start, 0)
		}
		return mem, noted
	}
	rows := []struct {
		name         string
		spoil        func(mem, noted []byte)
		at, produced uint32
	}{
		{"another index", func(_, _ []byte) {}, start + 1, start + 3},
		{"no note", func(_, noted []byte) { clear(noted) }, start, start + 3},
		{"more than was produced", func(_, _ []byte) {}, start, start + 4},
		{"more than fits", func(_, _ []byte) {}, start, start + 9},
		{"card behind", func(_, _ []byte) {}, start, start - 1},
		{"phase", func(mem, _ []byte) { mem[64*5] ^= 1 }, start, start + 3},
	}
	for _, row := range rows {
		mem, noted := make2()
		row.spoil(mem, noted)
		if _, err := ResumeConsumer(mem, noted, row.at, row.produced, Bell{}); !errors.Is(err, ErrResume) {
			t.Errorf("%s: %v, want %v", row.name, err, ErrResume)
		}
	}
	mem, _ := make2()
	if _, err := ResumeConsumer(mem, nil, start, start+3, Bell{}); !errors.Is(err, ErrResume) {
		t.Errorf("without a note: %v", err)
	}
	if _, err := NewConsumer(mem, make([]byte, 8), start, 0, Bell{}); err == nil {
		t.Error("NewConsumer took a note of 8 bytes")
	}
}
