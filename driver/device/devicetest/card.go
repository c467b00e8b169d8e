package devicetest

import (
	"encoding/binary"
	"fmt"
	"sync"

	"splicenic/driver/device"
)

// Layout of the scratch card.
//
//	BAR0  0x00 magic (RO)   0x04 scratch (RW)    0x08 interrupt (WO: bit v raises vector v)
//	      0x10 source lo,hi 0x18 destination lo,hi  0x20 length  0x24 start (WO: copies)  0x28 status (RO: 1 failed)
//	BAR2  4096 bytes of memory
const (
	scratchMagic = 0x5c1c7e57

	offMagic       = 0x00
	offScratch     = 0x04
	offInterrupt   = 0x08
	offSource      = 0x10
	offDestination = 0x18
	offLength      = 0x20
	offStart       = 0x24
	offStatus      = 0x28
	barBytes       = 4096

	cardVectors = 4
)

// Card is a scratch card: a few registers, a memory and a DMA engine that copies at once. It implements device.Function.
type Card struct {
	mu     sync.Mutex
	host   device.Memory
	raise  []func()
	maps   map[uint64]uint64
	config [256]byte
	regs   [barBytes]byte
	memory [barBytes]byte
}

// NewCard returns a scratch card in its reset state.
func NewCard() *Card {
	c := &Card{maps: map[uint64]uint64{}}
	c.reset()
	return c
}

func (c *Card) reset() {
	c.config, c.regs, c.memory = [256]byte{}, [barBytes]byte{}, [barBytes]byte{}
	binary.LittleEndian.PutUint32(c.config[0:], 0x5c1c_1234)
	binary.LittleEndian.PutUint32(c.regs[offMagic:], scratchMagic)
}

// Info describes the card. Its IOVAs come in two ranges, so that an allocator has an edge to mind.
func (c *Card) Info() device.Info {
	i := device.Info{
		Name: "scratch", Body: "test", VendorID: 0x1234, DeviceID: 0x5c1c, Class: 0x020000, NUMANode: -1, Vectors: cardVectors,
		IOVA: []device.IOVARange{{First: 0, Last: 1<<20 - 1}, {First: 1 << 32, Last: 1<<40 - 1}},
	}
	i.Regions[device.Bar0] = device.Region{Size: barBytes, Flags: device.RegionRead | device.RegionWrite}
	i.Regions[device.Bar2] = device.Region{Size: barBytes, Flags: device.RegionRead | device.RegionWrite | device.RegionPrefetchable}
	return i
}

// ReadConfig reads configuration space; beyond its 256 bytes it is zero.
func (c *Card) ReadConfig(off uint32, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(p)
	if int(off) < len(c.config) {
		copy(p, c.config[off:])
	}
	return nil
}

// WriteConfig writes configuration space; the ids keep their value.
func (c *Card) WriteConfig(off uint32, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, b := range p {
		if at := int(off) + i; at >= 4 && at < len(c.config) {
			c.config[at] = b
		}
	}
	return nil
}

func (c *Card) bytes(region int, off uint64, n int) ([]byte, error) {
	b := c.regs[:]
	if region == device.Bar2 {
		b = c.memory[:]
	}
	if region != device.Bar0 && region != device.Bar2 || off > barBytes || uint64(n) > barBytes-off {
		return nil, fmt.Errorf("region %d at %#x: %w", region, off, device.ErrRange)
	}
	return b[off:][:n], nil
}

// ReadRegion reads registers or memory.
func (c *Card) ReadRegion(region int, off uint64, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.bytes(region, off, len(p))
	if err == nil {
		copy(p, b)
	}
	return err
}

// WriteRegion writes registers or memory; it raises vectors and copies before it returns.
func (c *Card) WriteRegion(region int, off uint64, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.bytes(region, off, len(p))
	if err != nil {
		return err
	}
	if region == device.Bar2 {
		copy(b, p)
		return nil
	}
	for i := 0; i < len(p); i += 4 {
		c.store(off+uint64(i), binary.LittleEndian.Uint32(p[i:]))
	}
	return nil
}

func (c *Card) store(off uint64, v uint32) {
	switch off {
	case offMagic, offStatus:
	case offInterrupt:
		for i, raise := range c.raise {
			if v>>i&1 != 0 && raise != nil {
				raise()
			}
		}
	case offStart:
		status := uint32(0)
		if c.copy() != nil {
			status = 1
		}
		binary.LittleEndian.PutUint32(c.regs[offStatus:], status)
	default:
		binary.LittleEndian.PutUint32(c.regs[off:], v&(1<<31-1))
	}
}

func (c *Card) copy() error {
	if c.host == nil {
		return device.ErrDMA
	}
	p := make([]byte, min(binary.LittleEndian.Uint32(c.regs[offLength:]), 1<<20))
	src := binary.LittleEndian.Uint64(c.regs[offSource:])
	dst := binary.LittleEndian.Uint64(c.regs[offDestination:])
	if len(p) == 4 && (src|dst)%4 == 0 { // the engine's word path
		v, err := c.host.Load32(src)
		if err != nil {
			return err
		}
		return c.host.Store32(dst, v)
	}
	if err := c.host.Read(src, p); err != nil {
		return err
	}
	return c.host.Write(dst, p)
}

// MapDMA notes a range; ranges must not overlap.
func (c *Card) MapDMA(iova, size uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, n := range c.maps {
		if iova < at+n && at < iova+size {
			return fmt.Errorf("map %#x: overlaps %#x: %w", iova, at, device.ErrDMA)
		}
	}
	c.maps[iova] = size
	return nil
}

// UnmapDMA forgets a range as it was mapped.
func (c *Card) UnmapDMA(iova, size uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.maps[iova] != size {
		return fmt.Errorf("unmap %#x: %w", iova, device.ErrDMA)
	}
	delete(c.maps, iova)
	return nil
}

// Maps returns how many ranges are mapped, for leak checks.
func (c *Card) Maps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.maps)
}

// SetHost gives or takes the host's memory.
func (c *Card) SetHost(m device.Memory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host = m
}

// SetVectors says how to raise vectors.
func (c *Card) SetVectors(raise []func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raise = raise
	return nil
}

// Reset returns registers and memory to their first state.
func (c *Card) Reset() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset()
	return nil
}

// NewHarness describes a scratch card behind dev.
func (c *Card) NewHarness(dev device.Device) Harness {
	return Harness{
		Device:   dev,
		Scratch:  Register{Region: device.Bar0, Off: offScratch, Mask: 1<<31 - 1},
		Constant: Register{Region: device.Bar0, Off: offMagic, Value: scratchMagic},
		Window:   Window{Region: device.Bar2, Off: 0, Bytes: barBytes},
		Raise:    func(v int) { dev.Store32(device.Bar0, offInterrupt, 1<<v) },
		Copy: func(dst, src uint64, n int) error {
			dev.Store32(device.Bar0, offSource, uint32(src))
			dev.Store32(device.Bar0, offSource+4, uint32(src>>32))
			dev.Store64(device.Bar0, offDestination, dst)
			dev.Store32(device.Bar0, offLength, uint32(n))
			dev.Store32(device.Bar0, offStart, 1)
			if dev.Load32(device.Bar0, offStatus) != 0 {
				return device.ErrDMA
			}
			return nil
		},
	}
}
