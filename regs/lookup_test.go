package regs

import (
	"slices"
	"testing"
)

func TestLookupRegister(t *testing.T) {
	tests := []struct {
		name string
		ok   bool
		reg  Reg
		full string // the name it has itself; empty: the same
	}{
		{"amu.free", true, AmuFree, ""},
		{"amu[0].free", true, AmuFree, "amu.free"},
		{"port.client.rx_frames", true, PortRxFrames, ""},
		{"port.server.rx_frames", true, PortRxFrames.At(PortServer, PortStride), ""},
		{"port[1].rx_frames", true, PortRxFrames + 0x1000, "port.server.rx_frames"},
		{"port.server.rx_frames.hi", true, PortRxFrames + 0x1004, ""},
		{"port.server.rx_frames.lo", true, PortRxFrames + 0x1000, ""},
		{"port[1].rx_size[2]", true, PortRxSize + 0x1010, "port.server.rx_size[2]"},
		{"port[1].rx_size[2].hi", true, PortRxSize + 0x1014, "port.server.rx_size[2].hi"},
		{"geometry.cycles[3]", true, GeometryCycles.At(3, GeometryCyclesStride), ""},
		{"geometry.cycles", true, GeometryCycles, ""},
		{"directory.entry_type[63].version", true, DirectoryEntryType + 63*0x20, ""},
		{"directory.entry_type.version", true, DirectoryEntryType, ""},
		{"amu.control.enable", true, AmuControl, ""},
		{"ring.command.producer", true, RingProducer + 0x400, ""},

		{name: ""},
		{name: "."},
		{name: "amu"},
		{name: "amu."},
		{name: "amu.free."},
		{name: "amu.free.pages"},
		{name: "amu.free.lo"},
		{name: "amu.free[0]"},
		{name: "amu.control.enable.x"},
		{name: "amu.amu.free"},
		{name: "amu[1].free"},
		{name: "AMU.free"},
		{name: "port.rx_frames"},
		{name: "port[2].rx_frames"},
		{name: "port[-1].rx_frames"},
		{name: "port[01].rx_frames"},
		{name: "port[+1].rx_frames"},
		{name: "port[1.rx_frames"},
		{name: "port[].rx_frames"},
		{name: "port[1]x.rx_frames"},
		{name: "port[99999999999999999999].rx_frames"},
		{name: "port.client[0].rx_frames"},
		{name: "port.client.rx_frames.mid"},
		{name: "geometry.cycles[16]"},
		{name: "geometry.cycles[3][3]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, ok := LookupRegister(tt.name)
			if ok != tt.ok {
				t.Fatalf("got ok %v, want %v", ok, tt.ok)
			}
			if !ok {
				return
			}
			if got := l.Reg(); got != tt.reg {
				t.Errorf("got offset %#x, want %#x", uint32(got), uint32(tt.reg))
			}
			want := tt.full
			if want == "" {
				want = tt.name
			}
			if got := l.Name(); got != want {
				t.Errorf("got name %q, want %q", got, want)
			}
		})
	}
}

func TestLocationWide(t *testing.T) {
	for name, want := range map[string]bool{"timer.now": true, "timer.now.hi": false, "timer.now.lo": false, "timer.tick": false} {
		if l, ok := LookupRegister(name); !ok || l.Wide() != want {
			t.Errorf("%s: got wide %v, found %v, want %v", name, l.Wide(), ok, want)
		}
	}
}

// At and LookupRegister are each other's inverse over all of BAR0.
func TestAtEveryOffset(t *testing.T) {
	found := 0
	for off := uint32(0); off < Bar0Bytes; off += 4 {
		name, r, instance, element, ok := At(off)
		if !ok {
			continue
		}
		found++
		l, ok := LookupRegister(name)
		if !ok {
			t.Fatalf("at %#x: name %q is not found", off, name)
		}
		if l.Reg() != Reg(off) || l.Register != r || l.Instance != instance || l.Element != element {
			t.Fatalf("at %#x: %q is at %#x, instance %d of %d, element %d of %d", off, name, uint32(l.Reg()), l.Instance, instance, l.Element, element)
		}
	}
	want := 0
	for _, b := range Blocks {
		for _, r := range b.Registers {
			want += len(b.Instances) * int(r.Count*r.Bytes()/4)
		}
	}
	if found != want {
		t.Errorf("found %d words, want %d", found, want)
	}
}

func TestAtNothing(t *testing.T) {
	for _, off := range []uint32{1, 2, uint32(AmuFree) + 2, 0x3000, 0xffffc, Bar0Bytes, 1<<32 - 4, uint32(PortBase) + 3*uint32(PortStride)} {
		if name, _, _, _, ok := At(off); ok {
			t.Errorf("at %#x: got %q, want nothing", off, name)
		}
	}
}

func TestRegName(t *testing.T) {
	for r, want := range map[Reg]string{
		AmuFree: "amu.free", PortMtu.At(PortServer, PortStride): "port.server.mtu", TimerNow + 4: "timer.now.hi", 0x3000: "0x3000", AmuFree + 1: "0x18019",
	} {
		if got := r.Name(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNames(t *testing.T) {
	names := Names()
	for _, want := range []string{"amu.free", "port.client.rx_frames", "port.server.rx_frames", "geometry.cycles", "ring.command.producer"} {
		if !slices.Contains(names, want) {
			t.Errorf("no name %q", want)
		}
	}
	last := -1
	for _, name := range names {
		l, ok := LookupRegister(name)
		if !ok || l.Name() != name {
			t.Errorf("name %q is not found or is %q", name, l.Name())
			continue
		}
		if at := int(l.Reg()); at <= last {
			t.Errorf("name %q at %#x is out of order", name, at)
		}
		last = int(l.Reg())
	}
}

func TestLookupFormatAndMemory(t *testing.T) {
	if _, ok := LookupFormat("leaf"); ok {
		t.Error("found a format that is not there")
	}
	if _, ok := LookupMemory("leaf"); ok {
		t.Error("found a memory that is not there")
	}
	for i := range Memories {
		m := &Memories[i]
		if got, ok := LookupMemory(m.Name); !ok || got != m {
			t.Errorf("memory %s: got %v, %v", m.Name, got, ok)
		}
		if ft, ok := LookupFormat(m.Format); !ok || ft.Bytes != m.EntryBytes {
			t.Errorf("memory %s: entries of %d bytes, format %v, %v", m.Name, m.EntryBytes, ft, ok)
		}
	}
}

// A name that is found has one canonical spelling, which stands for the same place inside BAR0.
func FuzzLookupRegister(f *testing.F) {
	for _, s := range []string{"amu.free", "port[1].rx_frames.hi", "geometry.cycles[3]", "directory.entry_type[63].version"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		l, ok := LookupRegister(name)
		if !ok {
			if l != (Location{}) {
				t.Fatalf("%q: not found, yet %+v", name, l)
			}
			return
		}
		again, ok := LookupRegister(l.Name())
		if !ok || again != l {
			t.Fatalf("%q is %q, which is %+v, %v; want %+v", name, l.Name(), again, ok, l)
		}
		if l.Reg()%4 != 0 || l.Reg() >= Bar0Bytes {
			t.Fatalf("%q is at %#x", name, uint32(l.Reg()))
		}
		if _, r, instance, _, ok := At(uint32(l.Reg())); !ok || r != l.Register || instance != l.Instance {
			t.Fatalf("%q: another register lies at %#x", name, uint32(l.Reg()))
		}
	})
}
