package regfile

import (
	"testing"

	"splicenic/regs"
)

// each calls f for every word of every register.
func each(f func(b *regs.BlockInfo, r *regs.RegisterInfo, inst int, at regs.Reg, high bool)) {
	for i := range regs.Blocks {
		b := &regs.Blocks[i]
		for inst := range b.Instances {
			for j := range b.Registers {
				r := &b.Registers[j]
				for e := range r.Count {
					at := regs.Reg(b.Offset + uint32(inst)*b.Stride + r.Offset + e*r.Stride)
					f(b, r, inst, at, false)
					if r.Wide {
						f(b, r, inst, at+4, true)
					}
				}
			}
		}
	}
}

// cardIndex says whether the word is an index that the card moves.
func cardIndex(b *regs.BlockInfo, r *regs.RegisterInfo, inst int) bool {
	consumes := inst == regs.RingInject || inst == regs.RingCommand
	return b.Name == "ring" && (r.Name == "producer" && !consumes || r.Name == "consumer" && consumes)
}

// TestAccessKinds stores and loads every word of the map and compares with what its access kinds say, bit by bit.
func TestAccessKinds(t *testing.T) {
	const held, stored = 0xa5c3_0ff0, 0x3c5a_f0f3
	f := New()
	words := 0
	each(func(b *regs.BlockInfo, r *regs.RegisterInfo, inst int, at regs.Reg, _ bool) {
		words++
		if b.Name == "cam" && r.Name == "hash_key" {
			f.Set(regs.CamEntries.At(inst, regs.CamStride), 0)
		}
		f.Set(at, held)
		load, read := f.HostLoad(uint32(at)), uint32(0)
		f.HostStore(uint32(at), stored)
		got, want := f.Get(at), uint32(held)
		kinds := []regs.FieldInfo{{Width: 32, Access: r.Access}}
		if len(r.Fields) > 0 {
			kinds = r.Fields
		}
		for _, k := range kinds {
			m := k.Mask()
			if k.Access != regs.WO {
				read |= held & m
			}
			switch k.Access {
			case regs.RW, regs.WO:
				want = want&^m | stored&m
			case regs.W1C:
				want &^= stored & m
			case regs.W1S:
				want |= stored & m
			}
		}
		if cardIndex(b, r, inst) {
			want = held
		}
		if load != read {
			t.Errorf("%s: load of %#x = %#x, want %#x", at.Name(), held, load, read)
		}
		if got != want {
			t.Errorf("%s: store of %#x over %#x = %#x, want %#x", at.Name(), stored, held, got, want)
		}
	})
	if words < 500 {
		t.Errorf("only %d words in the map", words)
	}
}

func TestReset(t *testing.T) {
	f := New()
	each(func(b *regs.BlockInfo, r *regs.RegisterInfo, _ int, at regs.Reg, high bool) {
		if b.Name == "directory" || r.Class == regs.ClassIdentity {
			return
		}
		want := r.Reset
		if high {
			want = 0
		}
		if got := f.Get(at); got != want {
			t.Errorf("%s = %#x after reset, want %#x", at.Name(), got, want)
		}
	})
}

// TestNotAllOnes: a host takes all ones in an identity, control or status register for a lost card.
func TestNotAllOnes(t *testing.T) {
	f := New()
	each(func(_ *regs.BlockInfo, r *regs.RegisterInfo, _ int, at regs.Reg, _ bool) {
		switch r.Class {
		case regs.ClassIdentity, regs.ClassControl, regs.ClassStatus:
			f.HostStore(uint32(at), 1<<32-1)
			if f.HostLoad(uint32(at)) == 1<<32-1 {
				t.Errorf("%s reads all ones", at.Name())
			}
		}
	})
}

func TestDirectory(t *testing.T) {
	f := New()
	if got := f.HostLoad(0); got != regs.Magic {
		t.Errorf("magic = %#x", got)
	}
	if got := f.Get(regs.DirectoryEntries); int(got) != len(regs.Blocks) {
		t.Errorf("entries = %d, want %d", got, len(regs.Blocks))
	}
	if f.Get(regs.DirectoryShellDigest) != regs.ShellDigest || f.Get(regs.DirectoryDataPathDigest) != regs.DataPathDigest {
		t.Error("digests differ from the map's")
	}
	for i := range regs.Blocks {
		b := &regs.Blocks[i]
		got := [...]uint32{
			f.Get(regs.DirectoryEntryType.At(i, regs.DirectoryEntryTypeStride)), f.Get(regs.DirectoryEntryOffset.At(i, regs.DirectoryEntryOffsetStride)),
			f.Get(regs.DirectoryEntryStride.At(i, regs.DirectoryEntryStrideStride)), f.Get(regs.DirectoryEntryInstances.At(i, regs.DirectoryEntryInstancesStride)),
			f.Get(regs.DirectoryEntryDigest.At(i, regs.DirectoryEntryDigestStride)),
		}
		want := [...]uint32{uint32(b.Type) | uint32(b.Version)<<16, b.Offset, b.Stride, uint32(len(b.Instances)), b.Digest}
		if got != want {
			t.Errorf("entry %d (%s) = %#x, want %#x", i, b.Name, got, want)
		}
	}
}

func TestGeometry(t *testing.T) {
	f := New()
	for i := range regs.Memories {
		if m := &regs.Memories[i]; m.Geometry != 0 && f.Get(m.Geometry) != m.Count {
			t.Errorf("%s = %d, want %d", m.Geometry.Name(), f.Get(m.Geometry), m.Count)
		}
	}
	for _, x := range []struct {
		reg  regs.Reg
		want uint32
	}{{regs.GeometryPageBytes, 256}, {regs.GeometrySlots, 1024}, {regs.GeometryLocalPorts, 1 << 20}} {
		if got := f.Get(x.reg); got != x.want {
			t.Errorf("%s = %d, want %d", x.reg.Name(), got, x.want)
		}
	}
}

func TestHashKeyHeldWhileEntries(t *testing.T) {
	f := New()
	key := regs.CamHashKey.At(regs.CamServer, regs.CamStride).At(2, regs.CamHashKeyStride)
	if got := f.HostStore(uint32(key), 5); got != HashKey {
		t.Errorf("effect = %d, want HashKey", got)
	}
	f.Set(regs.CamEntries.At(regs.CamServer, regs.CamStride), 1)
	if got := f.HostStore(uint32(key), 6); got != None || f.Get(key) != 5 {
		t.Errorf("effect %d, key %d: stored while the CAM holds an entry", got, f.Get(key))
	}
}

func TestEffects(t *testing.T) {
	for _, x := range []struct {
		reg  regs.Reg
		want Effect
	}{
		{regs.ControlReset, Reset}, {regs.ControlInterruptTest, InterruptTest}, {regs.ControlScratch, None},
		{regs.PortControl.At(regs.PortServer, regs.PortStride), Port}, {regs.TableBank, Bank},
		{regs.HostifControl, RingControl}, {regs.RingControl.At(regs.RingCommand, regs.RingStride), RingControl},
		{regs.RingProducer.At(regs.RingCommand, regs.RingStride), Doorbell}, {regs.RingConsumer.At(regs.RingCommand, regs.RingStride), None},
		{regs.RingConsumer.At(regs.RingEvent, regs.RingStride), Doorbell}, {regs.RingProducer.At(regs.RingEvent, regs.RingStride), None},
		{regs.AmuFree, None},
	} {
		if got := New().HostStore(uint32(x.reg), 1); got != x.want {
			t.Errorf("%s: effect %d, want %d", x.reg.Name(), got, x.want)
		}
	}
}

func TestResets(t *testing.T) {
	for _, x := range []struct {
		name                  string
		reset                 func(*File)
		shell, dataPath, ring bool // which are back at their reset values
	}{
		{"all", (*File).Reset, true, true, true},
		{"data path", (*File).ResetDataPath, false, true, true},
		{"host interface", (*File).ResetHostInterface, false, false, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := New()
			f.Set(regs.GeometryPages, 77)
			regs := [...]regs.Reg{regs.ControlScratch, regs.AmuFree, regs.RingProducer.At(regs.RingInject, regs.RingStride)}
			for _, r := range regs {
				f.Set(r, 5)
			}
			x.reset(f)
			for i, reset := range []bool{x.shell, x.dataPath, x.ring} {
				if got := f.Get(regs[i]) == 0; got != reset {
					t.Errorf("%s reset = %v, want %v", regs[i].Name(), got, reset)
				}
			}
		})
	}
	f := New()
	f.Set(regs.GeometryPages, 77)
	f.ResetDataPath()
	if f.Get(regs.GeometryPages) != 77 {
		t.Error("a reset of the data path changed the geometry")
	}
}

func TestViolation(t *testing.T) {
	f := New()
	for _, x := range []struct {
		off   uint32
		v     uint32
		store bool
		ok    bool
	}{
		{uint32(regs.AmuFree), 0, false, true}, {uint32(regs.AmuFree), 0, true, false},
		{uint32(regs.AmuControl), 1, true, true}, {uint32(regs.AmuControl), 2, true, false},
		{0xfff00, 0, false, false}, {2, 0, false, false}, {regs.Bar0Bytes, 0, true, false},
		{uint32(regs.RingProducer), 1, true, false}, // the exception ring's
		{uint32(regs.RingConsumer), 1, true, true},
	} {
		if got := f.Violation(x.off, x.v, x.store); (got == "") != x.ok {
			t.Errorf("%#x, store %v of %#x: %q", x.off, x.store, x.v, got)
		}
	}
}

func TestWide(t *testing.T) {
	f := New()
	f.Set64(regs.AmuAllocated, 1<<32-1)
	f.Add64(regs.AmuAllocated, 2)
	if got := f.Get64(regs.AmuAllocated); got != 1<<32+1 {
		t.Errorf("got %#x", got)
	}
	if got := f.Get(regs.AmuAllocated + 4); got != 1 {
		t.Errorf("high word = %d", got)
	}
}

func TestNoAllocations(t *testing.T) {
	f := New()
	if n := testing.AllocsPerRun(100, func() {
		f.HostStore(uint32(regs.ControlScratch), f.HostLoad(uint32(regs.AmuFree)))
		f.Add64(regs.AmuAllocated, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGet(b *testing.B) {
	f := New()
	b.ReportAllocs()
	var sum uint32
	for b.Loop() {
		sum += f.Get(regs.AmuFree)
	}
	_ = sum
}

func BenchmarkAdd64(b *testing.B) {
	f := New()
	b.ReportAllocs()
	for b.Loop() {
		f.Add64(regs.PortRxFrames, 1)
	}
}
