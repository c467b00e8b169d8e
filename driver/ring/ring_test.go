package ring

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bells records what was published.
type bells struct {
	region int
	off    uint64
	value  uint32
	count  int
}

func (b *bells) Store32(region int, off uint64, v uint32) {
	b.region, b.off, b.value = region, off, v
	b.count++
}

// A refProducer is the card's side of a ring as the specification words it, slowly: bytes, and the phase counted turn by
// turn instead of computed.
type refProducer struct {
	mem      []byte
	index    uint32
	sequence uint32
	slot     int
	phase    uint32
}

func newRefProducer(mem []byte, start, sequence uint32) *refProducer {
	n := len(mem) / 64
	r := &refProducer{mem: mem, index: start, sequence: sequence, slot: int(start % uint32(n)), phase: 1}
	if start/uint32(n)%2 == 1 {
		r.phase = 0
	}
	return r
}

// produce writes one descriptor unless the ring is full as of the published consumer index; its number counts anyway.
func (r *refProducer) produce(consumer, mark uint32) (written bool) {
	seq := r.sequence
	r.sequence++
	if int(r.index-consumer) == len(r.mem)/64 {
		return false
	}
	d := r.mem[r.slot*64:][:64]
	for i := 1; i < 16; i++ {
		binary.LittleEndian.PutUint32(d[i*4:], mark+uint32(i))
	}
	binary.LittleEndian.PutUint32(d[12:], seq)
	binary.LittleEndian.PutUint32(d, 1<<1|r.phase)
	r.index++
	if r.slot++; r.slot == len(r.mem)/64 {
		r.slot = 0
		r.phase ^= 1
	}
	return true
}

// descriptor is what a received descriptor must be but for its phase.
func descriptor(seq, mark uint32) Descriptor {
	d := Descriptor{0: 1 << 1}
	for i := 1; i < 16; i++ {
		d[i] = mark + uint32(i)
	}
	d[3] = seq
	return d
}

func TestNew(t *testing.T) {
	rows := []struct {
		bytes int
		ok    bool
	}{
		{0, false}, {63, false}, {64, true}, {128, true}, {192, false}, {65536 * 64, true}, {131072 * 64, false}, {4100, false},
	}
	for _, row := range rows {
		mem := make([]byte, row.bytes)
		if _, err := NewConsumer(mem, nil, 0, 0, Bell{}); (err == nil) != row.ok {
			t.Errorf("NewConsumer of %d bytes: %v", row.bytes, err)
		}
		if _, err := NewProducer(mem, make([]byte, 4), 0, Bell{}); (err == nil) != row.ok {
			t.Errorf("NewProducer of %d bytes: %v", row.bytes, err)
		}
	}
	if _, err := NewProducer(make([]byte, 64), nil, 0, Bell{}); err == nil {
		t.Error("NewProducer took no writeback word")
	}
	mem := make([]byte, 72)
	for i := 1; i < 4; i++ {
		if _, err := NewConsumer(mem[i:][:64], nil, 0, 0, Bell{}); err == nil {
			t.Errorf("NewConsumer took memory %d bytes off", i)
		}
	}
}

// starts are indexes at which something could go wrong: turns with either phase, the middle of one, the end of the count.
var starts = []uint32{0, 1, 7, 8, 15, 16, 1<<31 - 3, 1<<32 - 1, 1<<32 - 8, 1<<32 - 9}

func TestConsumer(t *testing.T) {
	for _, start := range starts {
		t.Run(fmt.Sprint(start), func(t *testing.T) {
			mem := make([]byte, 8*64)
			for i := range mem {
				mem[i] = 0xff
			}
			bell := &bells{}
			c, err := NewConsumer(mem, nil, start, 100, Bell{bell, 0, 0x24})
			if err != nil {
				t.Fatal(err)
			}
			card := newRefProducer(mem, start, 100)
			ds := make([]Descriptor, 16)
			if n := c.Recv(ds); n != 0 {
				t.Fatalf("received %d descriptors of an empty ring", n)
			}
			for i := range uint32(11) { // three more than fit
				card.produce(start, i<<8)
			}
			if n := c.Recv(ds[:3]); n != 3 {
				t.Fatalf("received %d, want 3", n)
			}
			if n := c.Recv(ds[3:]); n != 5 {
				t.Fatalf("received %d, want 5", n)
			}
			for i := range uint32(8) {
				want := descriptor(100+i, i<<8)
				want[0] |= ds[i][0] & 1
				if d := cmp.Diff(want, ds[i]); d != "" {
					t.Errorf("descriptor %d (-want +got):\n%s", i, d)
				}
			}
			if bell.count != 0 {
				t.Error("published before Commit")
			}
			if !c.Commit() || c.Commit() {
				t.Error("Commit publishes what is new, once")
			}
			if want := (bells{0, 0x24, start + 8, 1}); *bell != want {
				t.Errorf("published %+v, want %+v", *bell, want)
			}
			if c.Lost() != 0 {
				t.Errorf("lost %d before the next descriptor tells", c.Lost())
			}
			card.produce(bell.value, 0)
			if n := c.Recv(ds); n != 1 || c.Lost() != 3 || c.Index() != start+9 {
				t.Errorf("received %d, lost %d, index %d, want 1, 3, %d", n, c.Lost(), c.Index(), start+9)
			}
		})
	}
}

func TestConsumerSequenceBack(t *testing.T) {
	mem := make([]byte, 64*4)
	c, err := NewConsumer(mem, nil, 0, 50, Bell{&bells{}, 0, 0})
	if err != nil {
		t.Fatal(err)
	}
	card := newRefProducer(mem, 0, 40) // a card that counts from before
	card.produce(0, 0)
	card.produce(0, 0)
	if n := c.Recv(make([]Descriptor, 4)); n != 2 || c.Lost() != 0 {
		t.Errorf("received %d, lost %d, want 2, 0", n, c.Lost())
	}
}

func TestProducer(t *testing.T) {
	for _, start := range starts {
		t.Run(fmt.Sprint(start), func(t *testing.T) {
			mem, back := make([]byte, 8*64), make([]byte, 4)
			bell := &bells{}
			p, err := NewProducer(mem, back, start, Bell{bell, 0, 0x20})
			if err != nil {
				t.Fatal(err)
			}
			ref := newRefProducer(make([]byte, 8*64), start, start)
			ds := make([]Descriptor, 10)
			for i := range ds {
				ds[i] = descriptor(0, uint32(i)<<8)
				ref.produce(start, uint32(i)<<8)
			}
			if p.Free() != 8 || p.Slot() != start%8 {
				t.Errorf("free %d, slot %d", p.Free(), p.Slot())
			}
			if n := p.Send(ds); n != 8 || p.Free() != 0 || p.Pending() != 8 {
				t.Fatalf("sent %d, free %d, pending %d, want 8, 0, 8", n, p.Free(), p.Pending())
			}
			if d := cmp.Diff(ref.mem, mem); d != "" {
				t.Errorf("memory (-want +got):\n%s", d)
			}
			if bell.count != 0 || !p.Commit() || p.Commit() || bell.value != start+8 {
				t.Errorf("published %+v", *bell)
			}
			binary.LittleEndian.PutUint32(back, start+3)
			if p.Free() != 3 || p.Pending() != 5 {
				t.Errorf("free %d, pending %d, want 3, 5", p.Free(), p.Pending())
			}
			for _, bad := range []uint32{start + 2, start + 9, start - 1, start + 1<<31} {
				binary.LittleEndian.PutUint32(back, bad)
				if got := p.Free(); got != 3 {
					t.Errorf("the card wrote back %d: free %d, want 3", bad, got)
				}
			}
			if p.Bad() != 4 {
				t.Errorf("bad %d, want 4", p.Bad())
			}
		})
	}
}

// FuzzRing drives a Consumer against a slow card, and a Producer whose ring a slow host of the same kind reads, with the
// operations of data. What was given in one end must come out of the other.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 10, 1, 20, 2, 3}, uint32(0))
	f.Add([]byte{0x3f, 0x7f, 0xbf, 0xff}, uint32(1<<32-5))
	f.Fuzz(func(t *testing.T, data []byte, start uint32) {
		const entries = 8
		mem, mem2, back := make([]byte, entries*64), make([]byte, entries*64), make([]byte, 4)
		down, up := &bells{value: start}, &bells{value: start}
		c, err := NewConsumer(mem, nil, start, 0, Bell{down, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewProducer(mem2, back, start, Bell{up, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		card := newRefProducer(mem, start, 0)
		var queue []Descriptor // produced, not yet received
		ds := make([]Descriptor, 2*entries)
		lost, told, mark := uint64(0), uint64(0), uint32(0)
		taken := start // the card's index of the second ring
		for _, op := range data {
			n := int(op & 15)
			switch op >> 6 {
			case 0: // the card produces
				for range n {
					mark += 16
					if card.produce(down.value, mark) {
						d := descriptor(card.sequence-1, mark)
						queue = append(queue, d)
					} else {
						lost++
					}
				}
			case 1: // the host receives
				got := c.Recv(ds[:n])
				if want := min(n, len(queue)); got != want {
					t.Fatalf("received %d, want %d", got, want)
				}
				for i := range got {
					ds[i][0] &^= 1
					if ds[i] != queue[i] {
						t.Fatalf("received %v, want %v", ds[i], queue[i])
					}
				}
				queue = queue[got:]
			case 2: // the host publishes both
				c.Commit()
				p.Commit()
				if down.value != c.Index() || up.value != p.Index() {
					t.Fatalf("published %d and %d, want %d and %d", down.value, up.value, c.Index(), p.Index())
				}
			case 3: // the host sends, the card takes up to n of what was published
				mark += 16
				for i := range ds[:n] {
					ds[i] = descriptor(0, mark)
				}
				free := entries - (p.Index() - taken)
				if got := p.Send(ds[:n]); got != min(n, int(free)) {
					t.Fatalf("sent %d, want %d", got, min(n, int(free)))
				}
				for i := 0; i < n && taken != up.value; i++ {
					slot := mem2[taken%entries*64:]
					wantPhase := 1 - taken/entries%2
					if got := binary.LittleEndian.Uint32(slot) & 1; got != wantPhase {
						t.Fatalf("phase of index %d is %d, want %d", taken, got, wantPhase)
					}
					if got := binary.LittleEndian.Uint32(slot[12:]); got != taken {
						t.Fatalf("sequence of index %d is %d", taken, got)
					}
					taken++
				}
				binary.LittleEndian.PutUint32(back, taken)
			}
			if told = c.Lost(); told > lost {
				t.Fatalf("lost %d, want at most %d", told, lost)
			}
		}
		c.Recv(ds)
		c.Commit()
		card.produce(down.value, 0) // the next descriptor tells of every gap
		if c.Recv(ds) != 1 || c.Lost() != lost {
			t.Fatalf("lost %d, want %d", c.Lost(), lost)
		}
	})
}

func TestAllocs(t *testing.T) {
	mem, back := make([]byte, 64*64), make([]byte, 4)
	bell := &bells{}
	c, _ := NewConsumer(mem, nil, 0, 0, Bell{bell, 0, 0})
	p, _ := NewProducer(make([]byte, 64*64), back, 0, Bell{bell, 0, 0})
	card := newRefProducer(mem, 0, 0)
	ds := make([]Descriptor, 16)
	if n := testing.AllocsPerRun(100, func() {
		card.produce(c.Index(), 0)
		c.Recv(ds)
		c.Commit()
		p.Send(ds[:1])
		p.Commit()
		binary.LittleEndian.PutUint32(back, p.Index())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRecv(b *testing.B) {
	for _, batch := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			mem := make([]byte, 1024*64)
			bell := &bells{}
			c, _ := NewConsumer(mem, nil, 0, 0, Bell{bell, 0, 0})
			card := newRefProducer(mem, 0, 0)
			ds := make([]Descriptor, batch)
			b.ReportAllocs()
			for b.Loop() {
				for range batch {
					card.produce(c.Index(), 0)
				}
				c.Recv(ds)
				c.Commit()
			}
			b.ReportMetric(float64(b.N)*float64(batch)/b.Elapsed().Seconds()/1e6, "Mdescriptors/s")
		})
	}
}

func BenchmarkSend(b *testing.B) {
	for _, batch := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			back := make([]byte, 4)
			p, _ := NewProducer(make([]byte, 1024*64), back, 0, Bell{&bells{}, 0, 0})
			ds := make([]Descriptor, batch)
			b.ReportAllocs()
			for b.Loop() {
				p.Send(ds)
				p.Commit()
				binary.LittleEndian.PutUint32(back, p.Index())
			}
			b.ReportMetric(float64(b.N)*float64(batch)/b.Elapsed().Seconds()/1e6, "Mdescriptors/s")
		})
	}
}
