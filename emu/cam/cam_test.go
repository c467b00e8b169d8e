package cam

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"splicenic/emu/regfile"
	"splicenic/regs"
)

func newCAM(t testing.TB, words int) (*CAM, *regfile.File) {
	t.Helper()
	r := regfile.New()
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 4 {
		r.Set(regs.CamHashKey.At(i, regs.CamHashKeyStride), rng.Uint32())
	}
	return New(make([]uint32, words*wordLen), r, regs.CamClient), r
}

func control(kind uint32) uint32 {
	w := regs.SetCamWordControlValid(0, 1)
	w = regs.SetCamWordControlKind(w, kind)
	return regs.SetCamWordControlProtocol(w, 6)
}

func key4(i uint32) Key {
	return Key{Control: control(regs.CamWordControlKindIpv4), Ports: i&0xffff | 80<<16, Index: 3, Addr: [4]uint32{0xc6120000 + i>>16}}
}

func key6(i uint32) Key {
	return Key{Control: control(regs.CamWordControlKindIpv6), Ports: i&0xffff | 80<<16, Index: 3, Addr: [4]uint32{i >> 16, 0, 0, 0x20010db8}}
}

// randomKey draws from a space small enough to hit again.
func randomKey(rng *rand.Rand) Key {
	i := rng.Uint32N(4000)
	k := key4(i)
	if rng.Uint32N(2) == 0 {
		k = key6(i)
		k.Addr[1], k.Addr[2] = rng.Uint32N(2), rng.Uint32N(2)
	}
	if rng.Uint32N(8) == 0 {
		k.Control = regs.SetCamWordControlVlan(k.Control, rng.Uint32N(3))
	}
	return k
}

type entry struct {
	handle uint32
	legB   bool
}

// TestAgainstMap compares the CAM with a Go map over random inserts, erases and lookups at several sizes, so that both
// refusals and moves happen.
func TestAgainstMap(t *testing.T) {
	const steps = 30_000
	for _, words := range []int{4, 8, 64, 1024, 8192} {
		t.Run(fmt.Sprint(words), func(t *testing.T) {
			c, r := newCAM(t, words)
			rng := rand.New(rand.NewPCG(7, uint64(words)))
			ref := map[Key]entry{}
			var used, inserts, erases, exists, refused uint32
			for step := range steps {
				k := randomKey(rng)
				h := c.Hash(&k)
				want, there := ref[k]
				handle, legB, ok := c.Lookup(&k, h)
				if ok != there || ok && (entry{handle, legB} != want) {
					t.Fatalf("step %d: lookup = %v %v %v, want %v %v", step, handle, legB, ok, want, there)
				}
				version := c.Version()
				switch op := rng.Uint32N(3); {
				case op < 2:
					e := entry{rng.Uint32(), rng.Uint32N(2) == 0}
					before := snapshot(c, words)
					switch got := c.Insert(&k, h, e.handle, e.legB); {
					case there != (got == Exists):
						t.Fatalf("step %d: insert of a key that exists = %v", step, got)
					case got == Exists:
						exists++
					case got == Refused:
						refused++
						if before != nil && !slices.Equal(before, c.words) || c.Version() != version {
							t.Fatalf("step %d: a refused insert changed the words", step)
						}
					default:
						inserts++
						ref[k] = e
						used += width(k.Control)
					}
				default:
					if got := c.Erase(&k, h); got != there {
						t.Fatalf("step %d: erase = %v, want %v", step, got, there)
					}
					if there {
						erases++
						delete(ref, k)
						used -= width(k.Control)
					}
				}
				if got := r.Get(regs.CamEntries); got != uint32(len(ref)) {
					t.Fatalf("step %d: entries = %d, want %d", step, got, len(ref))
				}
				if got := r.Get(regs.CamFree); got != uint32(words)-used {
					t.Fatalf("step %d: free = %d, want %d", step, got, uint32(words)-used)
				}
			}
			for k, want := range ref {
				handle, legB, ok := c.Lookup(&k, c.Hash(&k))
				if !ok || (entry{handle, legB} != want) {
					t.Fatalf("key %v = %v %v %v, want %v", k, handle, legB, ok, want)
				}
			}
			for _, x := range []struct {
				name string
				reg  regs.Reg
				want uint32
			}{
				{"inserts", regs.CamInserts, inserts}, {"erases", regs.CamErases, erases},
				{"key_exists", regs.CamKeyExists, exists}, {"refused", regs.CamRefused, refused},
			} {
				if got := r.Get64(x.reg); got != uint64(x.want) {
					t.Errorf("%s = %d, want %d", x.name, got, x.want)
				}
			}
			if words < 8192 && refused == 0 {
				t.Error("the test never filled the CAM")
			}
			free, entries := r.Get(regs.CamFree), r.Get(regs.CamEntries)
			c.Rebuild()
			if r.Get(regs.CamFree) != free || r.Get(regs.CamEntries) != entries {
				t.Errorf("after Rebuild free, entries = %d, %d, want %d, %d", r.Get(regs.CamFree), r.Get(regs.CamEntries), free, entries)
			}
		})
	}
}

func snapshot(c *CAM, words int) []uint32 {
	if words > 64 {
		return nil // too long to copy at every step; the smaller sizes compare
	}
	return slices.Clone(c.words)
}

// TestLoad fills to the load of the default image with every page in use: 294,912 keys in 2^20 words, IPv6 throughout,
// scaled down.
func TestLoad(t *testing.T) {
	const words = 1 << 14
	full := words * regs.MemPageCount / regs.MemCamClientCount // keys of two words: 56 %
	for _, x := range []struct {
		name  string
		words int
		keys  int
		key   func(uint32) Key
	}{
		{"ipv6", words, full, key6},
		{"ipv4", 1 << 16, (1 << 16) * 56 / 100, key4},
		{"mixed", words, full * 4 / 3, func(i uint32) Key {
			if i%2 == 0 {
				return key4(i)
			}
			return key6(i)
		}},
	} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", x.name, seed), func(t *testing.T) {
				r := regfile.New()
				rng := rand.New(rand.NewPCG(seed, 1))
				for i := range 4 {
					r.Set(regs.CamHashKey.At(i, regs.CamHashKeyStride), rng.Uint32())
				}
				c := New(make([]uint32, x.words*wordLen), r, regs.CamClient)
				for i := range uint32(x.keys) {
					k := x.key(i)
					if got := c.Insert(&k, c.Hash(&k), i, false); got != OK {
						t.Fatalf("insert %d of %d = %v", i, x.keys, got)
					}
				}
				for i := range uint32(x.keys) {
					k := x.key(i)
					if got, _, ok := c.Lookup(&k, c.Hash(&k)); !ok || got != i {
						t.Fatalf("lookup %d = %d %v", i, got, ok)
					}
				}
				t.Logf("%d keys: %d moves, %d words free", x.keys, r.Get64(regs.CamMoves), r.Get(regs.CamFree))
			})
		}
	}
}

// TestChurn keeps the CAM at its working load while keys come and go in the order of a FIFO.
func TestChurn(t *testing.T) {
	const words = 1 << 12
	keys := uint32(words * regs.MemPageCount / regs.MemCamClientCount)
	c, _ := newCAM(t, words)
	for i := range uint32(60_000) {
		k := key6(i)
		if got := c.Insert(&k, c.Hash(&k), i, false); got != OK {
			t.Fatalf("insert %d = %v", i, got)
		}
		if i >= keys {
			old := key6(i - keys)
			if !c.Erase(&old, c.Hash(&old)) {
				t.Fatalf("erase %d: not there", i-keys)
			}
		}
	}
}

// TestKeyParts checks that every part of a key tells it from others.
func TestKeyParts(t *testing.T) {
	for _, base := range []Key{key4(1), key6(1)} {
		variants := []Key{base}
		add := func(f func(*Key)) {
			k := base
			f(&k)
			variants = append(variants, k)
		}
		add(func(k *Key) { k.Control = regs.SetCamWordControlVlan(k.Control, 7) })
		add(func(k *Key) { k.Control = regs.SetCamWordControlProtocol(k.Control, 17) })
		add(func(k *Key) { k.Ports++ })
		add(func(k *Key) { k.Ports += 1 << 16 })
		add(func(k *Key) { k.Index++ })
		add(func(k *Key) { k.Addr[0]++ })
		if base.wide() {
			add(func(k *Key) { k.Addr[1]++ })
			add(func(k *Key) { k.Addr[2]++ })
			add(func(k *Key) { k.Addr[3]++ })
		} else {
			add(func(k *Key) { k.Control = control(regs.CamWordControlKindLocal) })
		}
		c, _ := newCAM(t, 256)
		for i, k := range variants {
			if got := c.Insert(&k, c.Hash(&k), uint32(i), i%2 == 1); got != OK {
				t.Fatalf("insert of variant %d = %v", i, got)
			}
		}
		for i, k := range variants {
			handle, legB, ok := c.Lookup(&k, c.Hash(&k))
			if !ok || handle != uint32(i) || legB != (i%2 == 1) {
				t.Errorf("variant %d: got %d %v %v", i, handle, legB, ok)
			}
		}
	}
}

// TestLayout checks the words against the format's codec.
func TestLayout(t *testing.T) {
	c, _ := newCAM(t, 8)
	k := key6(0x50001)
	k.Control = regs.SetCamWordControlVlan(k.Control, 100)
	k.Addr = [4]uint32{1, 2, 3, 4}
	c.Insert(&k, c.Hash(&k), 0xabc12345, true)
	var got [2]regs.CamWordEntry
	for i := 0; i < len(c.words); i += wordLen {
		if c.words[i] != 0 {
			got[0].Decode(c.words[i:])
			got[1].Decode(c.words[i+wordLen:])
			if i/wordLen%2 != 0 {
				t.Errorf("IPv6 key at odd slot %d", i/wordLen)
			}
			break
		}
	}
	want := [2]regs.CamWordEntry{
		{ControlValid: 1, ControlKind: regs.CamWordControlKindIpv6, ControlLegB: 1, ControlProtocol: 6, ControlVlan: 100, HandleN: 0x12345, HandleGeneration: 0xabc, PortsPort: 1, PortsDestination: 80, IndexIndex: 3, Address: [3]uint32{1}},
		{ControlValid: 1, ControlKind: regs.CamWordControlKindIpv6, ControlSecond: 1, Address: [3]uint32{2, 3, 4}},
	}
	if got != want {
		t.Errorf("words = %+v, want %+v", got, want)
	}
}

// TestGarbage stores random words, as a host may through the window, and checks that nothing runs out of bounds.
func TestGarbage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 50 {
		c, _ := newCAM(t, 32)
		for i := range c.words {
			if c.words[i] = rng.Uint32(); i%wordLen == 0 {
				c.words[i] |= valid
				c.words[i] = regs.SetCamWordControlKind(c.words[i], 1+rng.Uint32N(3))
			}
		}
		c.Rebuild()
		for range 50 {
			k := randomKey(rng)
			c.Insert(&k, c.Hash(&k), 1, false)
			c.Erase(&k, c.Hash(&k))
		}
	}
}

func TestNoAllocations(t *testing.T) {
	c, _ := newCAM(t, 256)
	var i uint32
	if n := testing.AllocsPerRun(1000, func() {
		for range 2 {
			k := key6(i)
			h := c.Hash(&k)
			c.Touch(h)
			c.Insert(&k, h, i, false)
			c.Lookup(&k, h)
			old := key6(i - 60)
			c.Erase(&old, c.Hash(&old))
			i++
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
