package cam

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"splicenic/emu/ssram"
	"splicenic/regs"
)

// BenchmarkLookup measures one lookup at the working load: small stays in the cache and shows the computing, full is
// the default image with its misses.
func BenchmarkLookup(b *testing.B) {
	for _, size := range []struct {
		name  string
		words int
	}{{"cached", 1 << 8}, {"full", regs.MemCamClientCount}} {
		for _, fam := range []struct {
			name string
			key  func(uint32) Key
		}{{"ipv4", key4}, {"ipv6", key6}} {
			n := uint32(uint64(size.words) * regs.MemPageCount / regs.MemCamClientCount)
			if size.words <= 1<<8 {
				n = uint32(size.words) * 28 / 100
			}
			c := inMemory(b, size.words)
			keys := make([]Key, n)
			for i := range keys {
				keys[i] = fam.key(uint32(i))
				c.Insert(&keys[i], c.Hash(&keys[i]), uint32(i), false)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			b.Run(fmt.Sprintf("%s/%s", size.name, fam.name), func(b *testing.B) {
				b.ReportAllocs()
				var sink uint32
				i := 0
				for b.Loop() {
					k := &keys[i]
					handle, _, _ := c.Lookup(k, c.Hash(k))
					sink += handle
					if i++; i == len(keys) {
						i = 0
					}
				}
				_ = sink
			})
			b.Run(fmt.Sprintf("%s/%s/batch64", size.name, fam.name), func(b *testing.B) {
				b.ReportAllocs()
				var hashes [64]uint64
				var sink uint32
				at := 0
				for i := 0; i < b.N; i += len(hashes) {
					if at+len(hashes) > len(keys) {
						at = 0
					}
					batch := keys[at:min(at+len(hashes), len(keys))]
					for j := range batch {
						hashes[j] = c.Hash(&batch[j])
						sink += c.Touch(hashes[j])
					}
					for j := range batch {
						handle, _, _ := c.Lookup(&batch[j], hashes[j])
						sink += handle
					}
					at += len(batch)
				}
				_ = sink
			})
		}
	}
}

// inMemory makes a CAM in the card's memory, whose huge pages a lookup's misses depend on.
func inMemory(b *testing.B, words int) *CAM {
	m, err := ssram.New(ssram.Geometry{CamClientWords: uint32(words)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	_, r := newCAM(b, 4)
	return New(m.CamClient, r, regs.CamClient)
}

// BenchmarkInsertErase is one life of a key at the working load.
func BenchmarkInsertErase(b *testing.B) {
	for _, fam := range []struct {
		name string
		key  func(uint32) Key
	}{{"ipv4", key4}, {"ipv6", key6}} {
		b.Run(fam.name, func(b *testing.B) {
			const words = 1 << 16
			const live = words * regs.MemPageCount / regs.MemCamClientCount
			c, _ := newCAM(b, words)
			for i := range uint32(live) {
				k := fam.key(i)
				c.Insert(&k, c.Hash(&k), i, false)
			}
			i := uint32(live)
			b.ReportAllocs()
			for b.Loop() {
				k, old := fam.key(i), fam.key(i-live)
				c.Erase(&old, c.Hash(&old))
				c.Insert(&k, c.Hash(&k), i, false)
				i++
			}
		})
	}
}
