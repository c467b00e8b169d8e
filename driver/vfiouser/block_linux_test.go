package vfiouser

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
)

// blockCard is BAR0 as memory, and the sizes of the accesses to it.
type blockCard struct {
	mu     sync.Mutex
	memory [4096]byte
	sizes  []string
}

// holds says whether the memory has p at a place.
func (b *blockCard) holds(at int, p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Equal(b.memory[at:][:len(p)], p)
}

func (b *blockCard) accesses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sizes)
}

// blockServer serves a blockCard that refuses what is larger than most.
func blockServer(t *testing.T, most int) (*Client, *blockCard) {
	card := &blockCard{}
	path, _ := fakeServer(t, func(r *rawClient, m message) bool {
		if m.cmd != cmdRegionRead && m.cmd != cmdRegionWrite {
			return false
		}
		a, _ := decodeRegionAccess(m.body, m.cmd == cmdRegionWrite)
		if a.region != 0 {
			return false
		}
		card.mu.Lock()
		defer card.mu.Unlock()
		card.sizes = append(card.sizes, fmt.Sprint(m.cmd, " ", a.count))
		switch {
		case int(a.count) > most:
			b := start(nil)
			putHeader(b, header{id: m.id, cmd: m.cmd, flags: typeReply | flagError, errno: uint32(unix.EINVAL)})
			r.c.write(b, nil)
			return true
		case m.cmd == cmdRegionWrite:
			copy(card.memory[a.offset:], a.data)
			a.data = nil
		default:
			a.data = card.memory[a.offset:][:a.count]
		}
		if !m.noReply() {
			r.try(m.id, m.cmd, typeReply, appendRegionAccess(nil, a))
		}
		return true
	})
	c, err := Dial(t.Context(), path, fakeOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, card
}

// TestBlockMessages: a block is one message, and words where a server takes no more; it is asked for more once.
func TestBlockMessages(t *testing.T) {
	want := make([]byte, 24)
	for i := range want {
		want[i] = byte(i + 1)
	}
	for _, row := range []struct {
		most  int
		sizes string
	}{
		{4096, "[region write 24 region read 24 region write 24 region read 24]"},
		{8, "[region write 24 region write 8 region write 8 region write 8 region read 8 region read 8 region read 8" +
			" region write 8 region write 8 region write 8 region read 8 region read 8 region read 8]"},
	} {
		c, card := blockServer(t, row.most)
		for i := range 2 {
			got, at := make([]byte, len(want)), 64+128*i
			device.StoreBlock(c, 0, uint64(at), want)
			device.LoadBlock(c, 0, uint64(at), got)
			if !bytes.Equal(got, want) || !card.holds(at, want) {
				t.Errorf("at most %d: loaded %x, want %x on either side", row.most, got, want)
			}
		}
		if err := c.Err(); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(card.accesses()); got != row.sizes {
			t.Errorf("at most %d: %s, want %s", row.most, got, row.sizes)
		}
	}
}

// TestBlockSmallTransfers: a server that bounds its transfers gets no larger ones.
func TestBlockSmallTransfers(t *testing.T) {
	c, card := blockServer(t, 4096)
	c.caps = &capabilities{MaxTransfer: pointer(uint64(minTransfer + 4))}
	p := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 512)
	device.StoreBlock(c, 0, 0, p)
	got := make([]byte, len(p))
	device.LoadBlock(c, 0, 0, got)
	if !bytes.Equal(got, p) || !card.holds(0, p) || c.Err() != nil {
		t.Errorf("bytes got lost: %v", c.Err())
	}
	if sizes := card.accesses(); len(sizes) != 2*4096/minTransfer {
		t.Errorf("%d messages of at most %d bytes: %s", len(sizes), minTransfer, sizes)
	}
}

// TestBlockOfDyingServer: a server that ends in a block ends the device.
func TestBlockOfDyingServer(t *testing.T) {
	for _, cmd := range []command{cmdRegionRead, cmdRegionWrite} {
		path, _ := fakeServer(t, func(r *rawClient, m message) bool {
			a, _ := decodeRegionAccess(m.body, m.cmd == cmdRegionWrite)
			if m.cmd != cmd || a.region != 0 {
				return false
			}
			r.c.drop()
			return true
		})
		c, err := Dial(t.Context(), path, fakeOptions())
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 256)
		device.StoreBlock(c, 0, 0, p)
		device.LoadBlock(c, 0, 0, p)
		if c.Err() == nil || !bytes.Equal(p, bytes.Repeat([]byte{0xff}, 256)) {
			t.Errorf("%v: Err %v, loaded %x", cmd, c.Err(), p[:8])
		}
		c.Close()
	}
}

// BenchmarkBlock compares a block of a flash page with its words.
func BenchmarkBlock(b *testing.B) {
	path, stop := rawServer(b, devicetest.NewCard(), Config{})
	defer stop()
	c, err := Dial(b.Context(), path, Options{Memfd: true})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	p := make([]byte, 256)
	for _, row := range []struct {
		name string
		dev  device.Device
	}{{"block", c}, {"words", words{c}}} {
		b.Run(row.name, func(b *testing.B) {
			b.SetBytes(int64(2 * len(p)))
			b.ReportAllocs()
			for b.Loop() {
				device.StoreBlock(row.dev, device.Bar2, 0, p)
				device.LoadBlock(row.dev, device.Bar2, 0, p)
			}
		})
	}
}
