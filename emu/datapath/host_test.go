package datapath

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"

	"splicenic/driver/device"
	"splicenic/emu/ssram"
	"splicenic/regs"
)

// hostRAM is the host's memory in one mapping from IOVA 0.
type hostRAM []byte

func (m hostRAM) at(iova uint64, n int) []byte {
	if iova > uint64(len(m)) || uint64(n) > uint64(len(m))-iova {
		return nil
	}
	return m[iova : iova+uint64(n)]
}

func (m hostRAM) Read(iova uint64, p []byte) error {
	s := m.at(iova, len(p))
	if s == nil && len(p) > 0 {
		return device.ErrDMA
	}
	copy(p, s)
	return nil
}

func (m hostRAM) Write(iova uint64, p []byte) error {
	s := m.at(iova, len(p))
	if s == nil && len(p) > 0 {
		return device.ErrDMA
	}
	copy(s, p)
	return nil
}

func (m hostRAM) Load32(iova uint64) (uint32, error) {
	s := m.at(iova, 4)
	if s == nil {
		return 0, device.ErrDMA
	}
	return binary.LittleEndian.Uint32(s), nil
}

func (m hostRAM) Store32(iova uint64, v uint32) error {
	s := m.at(iova, 4)
	if s == nil {
		return device.ErrDMA
	}
	binary.LittleEndian.PutUint32(s, v)
	return nil
}

const (
	ringEntries = 256
	slotBytes   = 2048
	ringBytes   = ringEntries * 64
	slotsAt     = regs.RingInstances * ringBytes
)

// attach gives the card a host with the rings that the card produces.
func (b *bench) attach() hostRAM {
	b.t.Helper()
	m := make(hostRAM, slotsAt+ringEntries*slotBytes)
	b.r.Set(regs.HostifControl, regs.HostifControlEnableMask)
	for _, i := range []regs.Reg{regs.RingException, regs.RingEvent, regs.RingCompletion} {
		at := i * regs.RingStride
		b.r.Set64(regs.RingIova+at, uint64(i)*ringBytes)
		b.r.Set(regs.RingEntries+at, ringEntries)
		b.r.Set(regs.RingControl+at, regs.RingControlEnableMask)
	}
	b.r.Set(regs.RingBufferBytes, slotBytes)
	b.r.Set64(regs.RingBuffers, slotsAt)
	b.c.host.SetHost(m)
	b.c.host.Control()
	b.ram = m
	return m
}

// consume takes the next descriptor of a ring that the card produces.
func (b *bench) consume(ring regs.Reg, words []uint32) bool {
	at := ring * regs.RingStride
	next := b.r.Get(regs.RingConsumer + at)
	if next == b.r.Get(regs.RingProducer+at) {
		return false
	}
	d := b.ram.at(uint64(ring)*ringBytes+uint64(next%ringEntries)*64, 64)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(d[4*i:])
	}
	b.r.Set(regs.RingConsumer+at, next+1)
	return true
}

// given is an exception as the host sees it.
type given struct {
	regs.ExceptionEntry
	frame []byte
}

func (b *bench) exceptions() (all []given) {
	var words [16]uint32
	for b.consume(regs.RingException, words[:]) {
		var g given
		g.Decode(words[:])
		g.frame = slices.Clone(b.ram.at(uint64(g.IovaLo)|uint64(g.IovaHi)<<32, int(g.Length)))
		all = append(all, g)
	}
	return all
}

func (b *bench) events() (all []regs.EventEntry) {
	var words [16]uint32
	for b.consume(regs.RingEvent, words[:]) {
		var e regs.EventEntry
		e.Decode(words[:])
		all = append(all, e)
	}
	return all
}

// command gives the unit a command and returns its completion.
func (b *bench) command(e regs.CommandEntry) (done regs.CompletionEntry) {
	b.c.Advance(b.now)
	b.c.Command(&e, &done, b.out)
	return done
}

// snapshot is everything a card is between two steps.
type snapshot struct {
	registers []uint32 // of the words in dataPathWords
	memories  map[string][]uint32
}

// dataPathWords are all words of registers outside the shell, in order.
var dataPathWords = sync.OnceValue(func() (words []regs.Reg) {
	for i := range regs.Blocks {
		b := &regs.Blocks[i]
		for inst := range b.Instances {
			for j := range b.Registers {
				r := &b.Registers[j]
				for e := range r.Count {
					at := regs.Reg(b.Offset + uint32(inst)*b.Stride + r.Offset + e*r.Stride)
					if b.Shell {
						continue
					}
					words = append(words, at)
					if r.Wide {
						words = append(words, at+4)
					}
				}
			}
		}
	}
	slices.Sort(words)
	return words
})

func memories(m *ssram.Memory) map[string][]uint32 {
	heads := make([]uint32, 0, m.Geometry.Heads*2048)
	for i := range m.Geometry.Heads {
		h := m.Head(i)
		for at := 0; at < len(h); at += 4 {
			heads = append(heads, binary.LittleEndian.Uint32(h[at:]))
		}
	}
	return map[string][]uint32{
		"pages": m.Pages, "heads": heads, "cam client": m.CamClient, "cam server": m.CamServer, "rule counter": m.RuleCounter, "slot": m.Slot, "group state": m.GroupState,
		"server": m.Server, "server state": m.ServerState, "next hop": m.NextHop, "vip": m.Vip, "address list": m.AddressList,
		"quarantine list": m.QuarantineList, "half-open list": m.HalfOpenList, "local port": m.LocalPort, "local address": m.LocalAddress, "head list": m.HeadList, "service": m.Service[0], "listener": m.Listener[0],
	}
}

func (b *bench) snapshot() snapshot {
	s := snapshot{memories: memories(b.m)}
	for _, r := range dataPathWords() {
		s.registers = append(s.registers, b.r.Get(r))
	}
	for name, w := range s.memories {
		s.memories[name] = slices.Clone(w)
	}
	return s
}

// diff lists what differs, registers by name and words of memories by place.
func (s snapshot) diff(o snapshot) (names []string) {
	for i, v := range s.registers {
		if o.registers[i] != v {
			names = append(names, dataPathWords()[i].Name())
		}
	}
	for name, w := range s.memories {
		for i, v := range w {
			if o.memories[name][i] != v {
				names = append(names, fmt.Sprintf("%s[%d]: %#x, %#x", name, i, v, o.memories[name][i]))
			}
		}
	}
	slices.Sort(names)
	return names
}

// grown is how much a 64-bit counter grew.
func (s snapshot) grown(after snapshot, r regs.Reg) uint64 {
	i, ok := slices.BinarySearch(dataPathWords(), r)
	if !ok {
		panic("no register at " + r.Name())
	}
	before := uint64(s.registers[i]) | uint64(s.registers[i+1])<<32
	return (uint64(after.registers[i]) | uint64(after.registers[i+1])<<32) - before
}

// check holds the card to what must be true between any two steps: every page is in exactly one of the free list, the
// live connections and quarantine; CAM entries, head buffers and counts agree with the pages.
func (b *bench) check(t testing.TB) {
	t.Helper()
	g := &b.m.Geometry
	where := make([]string, g.Pages)
	put := func(n uint32, place string) {
		if n >= g.Pages {
			t.Fatalf("%s names page %d of %d", place, n, g.Pages)
		}
		if where[n] != "" {
			t.Fatalf("page %d is in %s and in %s", n, where[n], place)
		}
		where[n] = place
	}
	at := b.r.Get(regs.AmuListHead)
	for range b.r.Get(regs.AmuFree) {
		n := b.m.AddressList[at]
		put(n, "the address list")
		if b.m.Page(n % g.Pages)[regs.PageControl]&regs.PageControlValidMask != 0 {
			t.Fatalf("page %d is in the address list and valid", n)
		}
		at = (at + 1) % g.Pages
	}
	if at != b.r.Get(regs.AmuListTail) {
		t.Fatalf("address list: head + free leads to slot %d, tail is %d", at, b.r.Get(regs.AmuListTail))
	}
	resting := map[uint32]bool{} // handles in the quarantine list
	at = b.r.Get(regs.AmuQuarantineHead)
	for range b.r.Get(regs.AmuQuarantined) {
		resting[b.m.QuarantineList[at]] = true
		at = (at + 1) % g.Pages
	}
	if at != b.r.Get(regs.AmuQuarantineTail) {
		t.Fatalf("quarantine list: head + quarantined leads to slot %d, tail is %d", at, b.r.Get(regs.AmuQuarantineTail))
	}
	var live, heads, entries [2]uint32
	uses, active := make([]uint32, g.Servers), make([]uint32, g.Servers)
	usedHead := map[uint32]uint32{}
	for n := range g.Pages {
		w := b.c.page(n)
		valid := w[regs.PageControl]&regs.PageControlValidMask != 0
		if got := b.c.live[n/64]>>(n%64)&1 == 1; got != valid {
			t.Fatalf("page %d: valid %v, live bit %v", n, valid, got)
		}
		if !valid {
			continue
		}
		state := State(regs.PageControlState(w[regs.PageControl]))
		if state == Quarantine {
			put(n, "quarantine")
			if !resting[handleOf(n, w)] {
				t.Fatalf("page %d is in quarantine and not in its list: it would never be freed", n)
			}
		} else {
			put(n, "the live connections")
			live[0]++
		}
		if w[regs.PageControl]&regs.PageControlHeadMask != 0 {
			heads[0]++
			if other, ok := usedHead[regs.PageHeadBuffer(w[regs.PageHead])]; ok {
				t.Fatalf("pages %d and %d have the same head buffer", n, other)
			}
			usedHead[regs.PageHeadBuffer(w[regs.PageHead])] = n
		}
		if state == Free {
			continue // the host's
		}
		k, h := b.c.clientKey(w)
		if got, _, ok := b.c.cams[ClientSide].Lookup(&k, h); !ok || got != handleOf(n, w) {
			t.Fatalf("page %d (%v): client-side entry %#x %v, want %#x", n, state, got, ok, handleOf(n, w))
		}
		entries[0]++
		if isPassed(w) {
			i := regs.PageAIndexServer(w[regs.PageAIndex])
			uses[i]++
			if state == Spliced {
				active[i]++
			}
			if b.c.oneSided(w) || state == WaitHead {
				continue
			}
			k, h = b.c.serverKey(w, 0)
			if got, _, ok := b.c.cams[ServerSide].Lookup(&k, h); !ok || got != handleOf(n, w) {
				t.Fatalf("passed page %d (%v): server-side entry %#x %v, want %#x", n, state, got, ok, handleOf(n, w))
			}
			entries[1]++
			continue
		}
		if state < ServerSyn || state == Stateless || replies(w) {
			continue
		}
		i := regs.PageAIndexServer(w[regs.PageAIndex])
		uses[i]++
		if state != Quarantine {
			active[i]++
		}
		k, h = b.c.serverKey(w, 0)
		if got, _, ok := b.c.cams[ServerSide].Lookup(&k, h); !ok || got != handleOf(n, w) {
			t.Fatalf("page %d (%v): server-side entry %#x %v, want %#x", n, state, got, ok, handleOf(n, w))
		}
		entries[1]++
		if leg := inForce(w[regs.PageControl]); leg != 0 {
			k, h = b.c.serverKey(w, leg)
			if got, legB, ok := b.c.cams[ServerSide].Lookup(&k, h); !ok || !legB || got != handleOf(n, w) {
				t.Fatalf("page %d (%v): entry of leg set B %#x %v, want %#x", n, state, got, ok, handleOf(n, w))
			}
			entries[1]++
		}
	}
	for n, place := range where {
		if place == "" {
			t.Fatalf("page %d is lost", n)
		}
	}
	if got := b.r.Get(regs.AmuLive); got != live[0] {
		t.Fatalf("amu.live: got %d, want %d", got, live[0])
	}
	for i := range regs.Reg(sides) {
		if got := b.r.Get(regs.CamEntries + i*regs.CamStride); got != entries[i] {
			t.Fatalf("entries of CAM %d: got %d, want %d", i, got, entries[i])
		}
	}
	for i := range g.Servers {
		s := b.m.ServerState[i*regs.ServerStateWords:]
		if s[regs.ServerStateUseCount] != uses[i] || s[regs.ServerStateActive] != active[i] {
			t.Fatalf("server %d: use count %d, active %d, want %d, %d", i, s[regs.ServerStateUseCount], s[regs.ServerStateActive], uses[i], active[i])
		}
	}
	free := b.r.Get(regs.HeadFree)
	if free+heads[0] != g.Heads {
		t.Fatalf("head buffers: %d free and %d taken of %d", free, heads[0], g.Heads)
	}
	for _, i := range b.m.HeadList[:free] {
		if _, ok := usedHead[i]; ok || i >= g.Heads {
			t.Fatalf("head buffer %d is in the free list twice, or taken, or out of range", i)
		}
		usedHead[i] = 0
	}
}
