package vfiouser_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
)

// openCard is a card as a kernel offers it: BAR0 of 16 KiB whose pages 0, 2 and 3 can be mapped, memory and eventfds that
// it uses by itself.
type openCard struct {
	*devicetest.Card
	bar []byte
	fd  int

	mu     sync.Mutex
	trace  []string
	maps   map[uint64][]byte
	events []int
}

const openBar = 0x4000

func newOpenCard(t *testing.T) *openCard {
	t.Helper()
	fd, err := unix.MemfdCreate("bar", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 2*openBar); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, openBar, openBar, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Munmap(mem)
		unix.Close(fd)
	})
	return &openCard{Card: devicetest.NewCard(), bar: mem, fd: fd, maps: map[uint64][]byte{}}
}

func (c *openCard) note(format string, args ...any) {
	c.trace = append(c.trace, fmt.Sprintf(format, args...))
}

func (c *openCard) took() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trace
	c.trace = nil
	return t
}

func (c *openCard) Info() device.Info {
	i := c.Card.Info()
	i.Regions[device.Bar0].Size = openBar
	return i
}

func (c *openCard) RegionFile(region int) (vfiouser.RegionFile, error) {
	if region != device.Bar0 {
		return vfiouser.RegionFile{}, device.ErrNotSupported
	}
	return vfiouser.RegionFile{FD: c.fd, Offset: openBar, Areas: []vfiouser.Area{{Offset: 0, Size: 0x1000}, {Offset: 0x2000, Size: 0x2000}}}, nil
}

func (c *openCard) ReadRegion(region int, off uint64, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("read %#x", off)
	copy(p, c.bar[off:])
	return nil
}

func (c *openCard) WriteRegion(region int, off uint64, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("write %#x", off)
	copy(c.bar[off:], p)
	return nil
}

func (c *openCard) MapMemory(iova uint64, mem []byte, write bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("map %d bytes, write %v", len(mem), write)
	c.maps[iova] = mem
	return nil
}

func (c *openCard) UnmapDMA(iova, size uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("unmap %d bytes", size)
	delete(c.maps, iova)
	return nil
}

func (c *openCard) MapDMA(iova, size uint64) error {
	return errors.New("MapDMA of a card that maps memory")
}

func (c *openCard) SetVectors([]func()) error {
	return errors.New("SetVectors of a card that takes eventfds")
}

func (c *openCard) SetEventfds(fds []int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fd := range c.events {
		unix.Close(fd)
	}
	c.events = nil
	for _, fd := range fds {
		if fd >= 0 {
			fd, _ = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		}
		c.events = append(c.events, fd)
	}
	c.note("eventfds %d", len(fds))
	return nil
}

func word(b []byte, off int) uint32 { return binary.LittleEndian.Uint32(b[off:]) }

// TestRegionMap is case D05 over a socket: what can be mapped is, in two mappings; the page between goes by message; what
// is beyond is refused. Loads never overtake stores, whichever way either goes.
func TestRegionMap(t *testing.T) {
	card := newOpenCard(t)
	s := serve(t, card, vfiouser.Config{})
	c := s.dial(s.options())
	if f := c.Info().Regions[device.Bar0].Flags; f&device.RegionMmap == 0 {
		t.Errorf("flags of BAR0: %#x", f)
	}
	card.took()
	for _, row := range []struct {
		off uint64
		via string
	}{{0x0, ""}, {0xffc, ""}, {0x1000, "message"}, {0x1008, "message"}, {0x1ffc, "message"}, {0x2000, ""}, {0x3ffc, ""}} {
		c.Store32(device.Bar0, row.off, 0xabcd0000+uint32(row.off))
		if got := c.Load32(device.Bar0, row.off); got != 0xabcd0000+uint32(row.off) {
			t.Errorf("%#x: loaded %#x", row.off, got)
		}
		if got := word(card.bar, int(row.off)); got != 0xabcd0000+uint32(row.off) {
			t.Errorf("%#x: the card has %#x", row.off, got)
		}
		if got := len(card.took()) > 0; got != (row.via == "message") {
			t.Errorf("%#x: went by message %v", row.off, got)
		}
	}
	c.Store64(device.Bar0, 0xff8, 0x1122334455667788)
	if got := c.Load64(device.Bar0, 0xff8); got != 0x1122334455667788 {
		t.Errorf("64 bits in a mapping: %#x", got)
	}
	for i := range uint32(200) { // a mapped load behind a posted store
		c.Store32(device.Bar0, 0x1000, i)
		c.Load32(device.Bar0, 0)
		if got := word(card.bar, 0x1000); got != i {
			t.Fatalf("a load overtook store %d: %d", i, got)
		}
	}
	c.Load32(device.Bar0, openBar)
	wantErr(t, "beyond the end", c.Err(), device.ErrRange)
	c.Close()

	o := s.options()
	o.NoMmap = true
	c = s.dial(o)
	card.took()
	c.Store32(device.Bar0, 0, 1)
	if got := c.Load32(device.Bar0, 0); got != 1 || len(card.took()) != 2 {
		t.Errorf("NoMmap: %d", got)
	}
}

// TestRegionRevoked: a region whose memory goes away is a lost device, not a crash.
func TestRegionRevoked(t *testing.T) {
	card := newOpenCard(t)
	s := serve(t, card, vfiouser.Config{})
	for name, access := range map[string]func(device.Device) bool{
		"load":    func(d device.Device) bool { return d.Load32(device.Bar0, 0) == ^uint32(0) },
		"load 64": func(d device.Device) bool { return d.Load64(device.Bar0, 8) == ^uint64(0) },
		"store":   func(d device.Device) bool { d.Store32(device.Bar0, 0, 1); return true },
	} {
		c := s.dial(s.options())
		if err := unix.Ftruncate(card.fd, 0); err != nil {
			t.Fatal(err)
		}
		if !access(c) {
			t.Errorf("%s: a value from nowhere", name)
		}
		wantErr(t, name, c.Err(), device.ErrDeviceLost)
		if err := unix.Ftruncate(card.fd, 2*openBar); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
	}
}

// TestMemoryMapper: a function that wants the bytes gets those of the client's file, and keeps them over a reset.
func TestMemoryMapper(t *testing.T) {
	card := newOpenCard(t)
	s := serve(t, card, vfiouser.Config{})
	c := s.dial(s.options())
	card.took()
	m := alloc(t, c, "ring", 8192)
	if got, want := card.took(), []string{"map 8192 bytes, write true"}; !slices.Equal(got, want) {
		t.Errorf("the card was told %q, want %q", got, want)
	}
	m.Bytes[8191] = 9
	card.mu.Lock()
	if mem := card.maps[m.IOVA]; len(mem) != 8192 || mem[8191] != 9 {
		t.Errorf("the card has %d bytes", len(mem))
	}
	card.mu.Unlock()
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	o := s.options()
	o.Reattach = true
	c = s.dial(o)
	m = alloc(t, c, "ring", 8192)
	if got := card.took(); slices.ContainsFunc(got, func(s string) bool { return s != "eventfds 0" }) || !c.Kept(m) {
		t.Errorf("attaching again: the card was told %q, want no map", got)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if got, want := card.took(), []string{"unmap 8192 bytes"}; !slices.Equal(got, want) {
		t.Errorf("the card was told %q, want %q", got, want)
	}
	o.Dir, o.Messages, o.Reattach = filepath.Join(s.dir, "other"), true, false
	c.Close()
	c = s.dial(o)
	_, err := c.AllocDMA("ring", 8192)
	wantErr(t, "memory without a file", err, device.ErrNotSupported)
}

// TestEventVectors: the eventfds themselves reach a function that has a kernel write to them.
func TestEventVectors(t *testing.T) {
	card := newOpenCard(t)
	s := serve(t, card, vfiouser.Config{})
	c := s.dial(s.options())
	if err := c.EnableVectors(3); err != nil {
		t.Fatal(err)
	}
	card.mu.Lock()
	events := slices.Clone(card.events)
	card.mu.Unlock()
	if len(events) != 3 {
		t.Fatalf("eventfds %v", events)
	}
	unix.Write(events[2], []byte{5, 0, 0, 0, 0, 0, 0, 0})
	if n, err := c.Wait(t.Context(), 2); n != 5 || err != nil {
		t.Errorf("Wait = %d, %v", n, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	card.mu.Lock()
	defer card.mu.Unlock()
	if len(card.events) != 0 {
		t.Errorf("eventfds left: %v", card.events)
	}
}
