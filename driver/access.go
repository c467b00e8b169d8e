package driver

import (
	"bytes"
	"encoding/binary"
	"sync"

	"splicenic/driver/device"
	"splicenic/regs"
)

const allOnes = ^uint32(0)

// bars is the Device with one user per region at a time, as its contract asks.
type bars struct {
	dev device.Device
	mu  [device.Regions]sync.Mutex
}

// Load32 loads a word of a region.
func (b *bars) Load32(region int, off uint64) uint32 {
	b.mu[region].Lock()
	defer b.mu[region].Unlock()
	return b.dev.Load32(region, off)
}

// Store32 stores a word of a region.
func (b *bars) Store32(region int, off uint64, v uint32) {
	b.mu[region].Lock()
	defer b.mu[region].Unlock()
	b.dev.Store32(region, off, v)
}

// storeWords stores words one after another.
func (b *bars) storeWords(region int, off uint64, words []uint32) {
	b.mu[region].Lock()
	defer b.mu[region].Unlock()
	for i, w := range words {
		b.dev.Store32(region, off+4*uint64(i), w)
	}
}

// storeBytes copies bytes into a window of words. What the last two have beyond p becomes ff.
func (b *bars) storeBytes(region int, off uint64, p []byte) {
	b.mu[region].Lock()
	defer b.mu[region].Unlock()
	whole := len(p) &^ 7
	device.StoreBlock(b.dev, region, off, p[:whole])
	if p = p[whole:]; len(p) > 0 {
		last := [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		copy(last[:], p)
		b.dev.Store64(region, off+uint64(whole), binary.LittleEndian.Uint64(last[:]))
	}
}

// loadBytes copies bytes out of a window of words, and says whether all of them were ff.
func (b *bars) loadBytes(region int, off uint64, p []byte) (blank bool) {
	b.mu[region].Lock()
	defer b.mu[region].Unlock()
	whole := len(p) &^ 7
	device.LoadBlock(b.dev, region, off, p[:whole])
	if whole < len(p) {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], b.dev.Load64(region, off+uint64(whole)))
		copy(p[whole:], last[:])
	}
	return bytes.Count(p, []byte{0xff}) == len(p)
}

// Load loads a register. A lost card reads all ones: such a value costs one check of the identity register, which ends
// the device if that answers wrong, too.
func (c *Card) Load(r regs.Reg) uint32 {
	v := c.bars.Load32(device.Bar0, uint64(r))
	if v == allOnes {
		c.suspect(r.Name())
	}
	return v
}

// suspect checks whether the card is still there after what read all ones.
func (c *Card) suspect(what string) {
	if c.dev.Err() != nil {
		return
	}
	if id := c.bars.Load32(device.Bar0, uint64(regs.IdentityPciId)); id == allOnes || c.pciID != 0 && id != c.pciID {
		c.dev.Lose(&lostError{what, id})
	}
}

// A lostError says how the loss was noticed.
type lostError struct {
	what string
	id   uint32
}

func (e *lostError) Error() string {
	return device.ErrDeviceLost.Error() + ": " + e.what + " reads all ones and " + regs.IdentityPciId.Name() + " " + hex(e.id)
}

func (e *lostError) Unwrap() error { return device.ErrDeviceLost }

// Store stores a register. Stores are posted: the next Load of any register flushes them.
func (c *Card) Store(r regs.Reg, v uint32) { c.bars.Store32(device.Bar0, uint64(r), v) }

// Load64 loads a wide register that runs freely: high word, low word, and high word again until it stood still. The high
// word moves once in 2^32 counts, so that the third turn is for a card that is broken.
func (c *Card) Load64(r regs.Reg) uint64 {
	hi, lo := c.Load(r+4), uint32(0)
	for range 3 {
		lo = c.Load(r)
		again := c.Load(r + 4)
		if again == hi {
			break
		}
		hi = again
	}
	return uint64(hi)<<32 | uint64(lo)
}

// Store64 stores a wide register, low word first.
func (c *Card) Store64(r regs.Reg, v uint64) {
	c.Store(r, uint32(v))
	c.Store(r+4, uint32(v>>32))
}

// Err returns the device's sticky error.
func (c *Card) Err() error { return c.dev.Err() }

// Device returns the device behind the card.
func (c *Card) Device() device.Device { return c.dev }
