package ssram

import (
	"bytes"
	"testing"

	"splicenic/emu/regfile"
	"splicenic/regs"
)

func small() Geometry {
	return Geometry{Pages: 64, Heads: 4, CamClientWords: 256, CamServerWords: 512, Listeners: 8, Services: 8, Groups: 4, Servers: 8,
		NextHops: 8, Vips: 4, LocalAddresses: 4, Rules: 16, UrlNodes: 32, Slots: 16, LocalPorts: 8}
}

func newMemory(t testing.TB, g Geometry) *Memory {
	t.Helper()
	m, err := New(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// views are the memories as blocks see them, in the order of the map.
func (m *Memory) views() [][][]uint32 {
	heads := m.words[regs.MemHeadOffset/4:][:m.Geometry.Heads*HeadBytes/4]
	return [][][]uint32{
		{m.Pages}, {heads}, {m.CamClient}, {m.CamServer}, m.Url[:], m.Rule[:], {m.RuleCounter}, {m.Slot}, m.Listener[:], m.Service[:],
		m.Group[:], {m.GroupState}, {m.Server}, {m.ServerState}, {m.NextHop}, {m.Vip}, {m.LocalAddress}, {m.LocalPort},
		{m.AddressList}, {m.QuarantineList}, {m.HeadList}, {m.SourceBucket}, {m.HalfOpenList},
	}
}

// TestWindows stores at the first and last word of every bank of every memory through the window and finds it in the
// view, and stores beside it without effect.
func TestWindows(t *testing.T) {
	for _, x := range []struct {
		name string
		g    Geometry
	}{{"default", Geometry{}}, {"small", small()}} {
		t.Run(x.name, func(t *testing.T) {
			m := newMemory(t, x.g)
			views := m.views()
			if len(views) != len(regs.Memories) {
				t.Fatalf("%d views, %d memories", len(views), len(regs.Memories))
			}
			for i := range regs.Memories {
				info := &regs.Memories[i]
				n := uint32(m.Geometry.entries(i))
				if len(views[i]) != int(info.Banks) {
					t.Fatalf("%s: %d banks, want %d", info.Name, len(views[i]), info.Banks)
				}
				for bank, view := range views[i] {
					if got, want := len(view), int(n*info.EntryBytes/4); got != want {
						t.Errorf("%s: %d words, want %d", info.Name, got, want)
					}
					first := info.At(uint32(bank), 0)
					last := info.At(uint32(bank), n-1) + uint64(info.EntryBytes) - 4
					m.Store32(first, 0x11110000+uint32(i))
					m.Store32(last, 0x22220000+uint32(bank))
					if view[0] != 0x11110000+uint32(i) || view[len(view)-1] != 0x22220000+uint32(bank) {
						t.Errorf("%s bank %d: view ends %#x, %#x", info.Name, bank, view[0], view[len(view)-1])
					}
					if m.Load32(first) != view[0] || m.Load32(last) != view[len(view)-1] {
						t.Errorf("%s bank %d: loads differ from the view", info.Name, bank)
					}
					if n < info.Max {
						m.Store32(last+4, 3)
						if m.Load32(last+4) != 0 || m.Mapped(last+4) {
							t.Errorf("%s bank %d: the hole behind it holds a word", info.Name, bank)
						}
					}
				}
			}
			m.Reset()
			for i := range regs.Memories {
				for bank, view := range views[i] {
					if view[0] != 0 || view[len(view)-1] != 0 {
						t.Errorf("%s bank %d not zero after reset", regs.Memories[i].Name, bank)
					}
				}
			}
		})
	}
}

func TestBulk(t *testing.T) {
	m := newMemory(t, small())
	end := regs.MemVipOffset + 4*32 // the VIP memory has four entries; a hole follows
	p := bytes.Repeat([]byte{1, 2, 3, 4}, 16)
	m.WriteAt(end-32, p)
	got := make([]byte, len(p))
	m.ReadAt(end-32, got)
	if want := append(bytes.Repeat([]byte{1, 2, 3, 4}, 8), make([]byte, 32)...); !bytes.Equal(got, want) {
		t.Errorf("read back %x, want %x", got, want)
	}
	if m.Dirty != DirtyVip {
		t.Errorf("dirty = %#x, want %#x", m.Dirty, DirtyVip)
	}
	m.Fill(end-8, 100, 0xabcd)
	if m.Load32(end-4) != 0xabcd || m.Load32(end) != 0 || m.Load32(end-12) != 0x04030201 {
		t.Error("fill did not keep to its range")
	}
	m.Clear(end-4, 4)
	if m.Load32(end-4) != 0 || m.Load32(end-8) != 0xabcd {
		t.Error("clear did not keep to its range")
	}
	m.ReadAt(regs.Bar2Bytes-8, got[:16])
	if !bytes.Equal(got[:16], make([]byte, 16)) {
		t.Error("beyond BAR2 is not zero")
	}
	m.WriteAt(regs.Bar2Bytes-4, got[:16])
	m.Clear(1<<40, 1<<40)
	m.Store32(1<<63, 1)
	if m.Load32(1<<63) != 0 {
		t.Error("a word beyond BAR2")
	}
}

// TestClearLarge clears ranges that begin and end inside huge pages.
func TestClearLarge(t *testing.T) {
	m := newMemory(t, Geometry{Pages: 1 << 16}) // 16 MiB
	for _, x := range []struct{ from, n uint64 }{{0, 16 << 20}, {4096 + 64, 9 << 20}, {2<<20 - 4, 4<<20 + 8}} {
		for i := range m.Pages {
			m.Pages[i] = 1
		}
		m.Clear(x.from, x.n)
		for i, v := range m.Pages {
			off := uint64(i) * 4
			if want := off < x.from || off >= x.from+x.n; (v == 1) != want {
				t.Fatalf("clear of %#x + %#x: word at %#x = %d", x.from, x.n, off, v)
			}
		}
	}
}

func TestDirty(t *testing.T) {
	m := newMemory(t, small())
	for _, x := range []struct {
		off  uint64
		want uint32
	}{
		{regs.MemPageOffset, DirtyPages}, {regs.MemCamClientOffset, DirtyCam}, {regs.MemCamServerOffset, DirtyCam},
		{regs.MemListenerOffset + regs.MemListenerBankBytes, DirtyListener}, {regs.MemServerOffset, DirtyServer},
		{regs.MemVipOffset, DirtyVip}, {regs.MemNextHopOffset, 0}, {regs.MemPageOffset + regs.MemPageBankBytes - 4, 0},
	} {
		m.Dirty = 0
		m.Store32(x.off, 1)
		if m.Dirty != x.want {
			t.Errorf("store at %#x: dirty = %#x, want %#x", x.off, m.Dirty, x.want)
		}
	}
}

func TestPagesAndHeads(t *testing.T) {
	m := newMemory(t, small())
	m.Page(63)[5] = 9
	if got := m.Load32(63*256 + 20); got != 9 {
		t.Errorf("page word through the window = %d", got)
	}
	copy(m.Head(3), "GET ")
	if got := m.Load32(regs.MemHeadOffset + 3*HeadBytes); got != 'G'|'E'<<8|'T'<<16|' '<<24 {
		t.Errorf("head word through the window = %#x", got)
	}
	if got := len(m.Head(0)); got != HeadBytes {
		t.Errorf("head of %d bytes", got)
	}
}

func TestGeometryRegisters(t *testing.T) {
	m := newMemory(t, small())
	f := regfile.New()
	m.Geometry.Store(f)
	for _, x := range []struct {
		reg  regs.Reg
		want uint32
	}{
		{regs.GeometryPages, 64}, {regs.GeometryHeads, 4}, {regs.GeometryCamClientWords, 256}, {regs.GeometryCamServerWords, 512},
		{regs.GeometryListeners, 8}, {regs.GeometryServices, 8}, {regs.GeometryGroups, 4}, {regs.GeometryServers, 8},
		{regs.GeometryNextHops, 8}, {regs.GeometryVips, 4}, {regs.GeometryLocalAddresses, 4}, {regs.GeometryRules, 16},
		{regs.GeometryUrlNodes, 32}, {regs.GeometrySlots, 16}, {regs.GeometryLocalPorts, 8},
	} {
		if got := f.Get(x.reg); got != x.want {
			t.Errorf("%s = %d, want %d", x.reg.Name(), got, x.want)
		}
	}
}

func TestGeometryRefused(t *testing.T) {
	for _, g := range []Geometry{{Pages: 1 << 20}, {CamClientWords: 6}, {Groups: 1 << 13, Slots: 1 << 20}, {Rules: 1 << 18}} {
		if m, err := New(g); err == nil {
			m.Close()
			t.Errorf("geometry %+v was taken", g)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	m := newMemory(t, small())
	p := make([]byte, 256)
	if n := testing.AllocsPerRun(100, func() {
		m.Page(3)[1]++
		m.Head(1)[0]++
		m.Store32(0, m.Load32(4))
		m.WriteAt(0, p)
		m.ReadAt(0, p)
		m.Clear(0, 256)
		m.Fill(0, 256, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkPage reads one word of pages in an order no prefetcher follows: a miss each, several at a time.
func BenchmarkPage(b *testing.B) {
	m := newMemory(b, Geometry{})
	for i := range m.Geometry.Pages {
		m.Page(i)[0] = i
	}
	b.ReportAllocs()
	var sum, n uint32
	for b.Loop() {
		n = (n + 0x9e3779b1) % m.Geometry.Pages
		sum += m.Page(n)[0]
	}
	_ = sum
}
