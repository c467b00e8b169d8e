package emu

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"splicenic/bitstream/xilinx"
	"splicenic/driver/device"
	"splicenic/emu/cam"
	"splicenic/emu/datapath"
	"splicenic/emu/flash"
	"splicenic/emu/frame"
	"splicenic/emu/hostif"
	"splicenic/emu/port"
	"splicenic/emu/regfile"
	"splicenic/emu/ssram"
	"splicenic/regs"
)

// Geometry says how large the card's memories are; a zero field means the default image's number.
type Geometry = ssram.Geometry

// Config describes a card.
type Config struct {
	Geometry Geometry
	Client   port.Port // needed
	Server   port.Port // nil: a one-armed card, both sides behind the client port
	Seed     uint64    // gives the keys their values after a reset; zero: the keys are zero until the host stores them
	Serial   uint64    // identity.serial
	Name     string    // how the device is called in messages; empty: "emu"
	Strict   bool      // record every access that the map does not allow

	// Flash is the board's, with what it holds; the card's until Close. nil: FlashFile is one, or a new one is made. A
	// new one, and a file with nothing in it, has an image of Geometry in its golden slot. From a flash that holds one,
	// the image says how large the memories are.
	Flash      *flash.Flash
	FlashFile  string
	FlashScale float64       // of the part's typical times; zero: a hundredth
	BootTime   time.Duration // how long the card is off the bus while it boots; zero: 20 ms

	// Clock is the time of flash and boot; nil: time passes by itself. No packet asks it.
	Clock func() time.Duration
}

// Card is an emulated card. It implements device.Function.
type Card struct {
	cfg  Config
	wake waker

	waiting atomic.Int32  // accesses that wait for mu: Run lets them in
	resets  atomic.Uint64 // resets of the data path so far: Run starts its clock anew

	mu       sync.Mutex
	reg      *regfile.File
	mem      *ssram.Memory
	cams     [2]*cam.CAM
	host     *hostif.Interface
	core     *datapath.Core
	out      *datapath.Output
	wires    [regs.PortInstances]wire
	inject   []frame.Frame
	maxFrame int         // bytes of a frame that the ports take
	punted   frame.Frame // what punt cuts out of a frame
	cutter   port.Cutter
	bulk     []byte // bulk commands and snapshots pass through here
	memory   device.Memory
	bus      bus  // the way to memory that is slow
	stepping bool // the lock may be free in the middle of a step, while bus accesses memory
	config   [configBytes]byte
	vectors  msix
	faults   faults
	strict   record
	closed   bool

	flash      *flash.Flash
	flashUntil time.Duration // the controller is busy until then, if flash_status says so
	icap       icap
	sensors    Sensors
	alarming   uint32 // alarms whose condition holds, as the registers have it
	clock      func() time.Duration
	run        running
	boot       boot
}

var _ device.Function = (*Card)(nil)

// New makes a card in its state after power-on. The ports are the card's until Close.
func New(cfg Config) (*Card, error) {
	if cfg.Client == nil {
		return nil, errors.New("make emulated card: no client port")
	}
	if cfg.Name == "" {
		cfg.Name = "emu"
	}
	if cfg.FlashScale == 0 {
		cfg.FlashScale = flashScale
	}
	if cfg.BootTime == 0 {
		cfg.BootTime = bootTime
	}
	if cfg.Clock == nil {
		start := time.Now()
		cfg.Clock = func() time.Duration { return time.Since(start) }
	}
	m, err := ssram.New(cfg.Geometry)
	if err != nil {
		return nil, fmt.Errorf("make emulated card: %w", err)
	}
	c := &Card{cfg: cfg, mem: m, reg: regfile.New(), bulk: make([]byte, bulkChunk), sensors: atRest, clock: cfg.Clock, icap: icap{xilinx.NewLogic(idcode)}}
	if err := c.openFlash(); err != nil {
		return nil, errors.Join(fmt.Errorf("make emulated card: %w", err), m.Close())
	}
	c.host = hostif.New(c.reg, c.raise)
	c.bus.card, c.bus.free = c, sync.NewCond(&c.mu)
	c.connect()
	maxFrame := 0
	for i, p := range []port.Port{cfg.Client, cfg.Server} {
		c.wires[i].init(i, p)
		maxFrame = max(maxFrame, c.wires[i].maxFrame())
	}
	c.out = datapath.NewOutput(maxFrame)
	c.maxFrame = maxFrame
	c.inject = newFrames(injectBatch, frame.Headroom+max(maxFrame, frame.MaxBytes))
	if err := c.powerOn(); err != nil {
		return nil, errors.Join(fmt.Errorf("make emulated card: %w", err), c.flash.Close(), c.mem.Close())
	}
	return c, nil
}

// Close lets the ports and the memory go. Run has to have returned; to its host the card is lost then.
func (c *Card) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	errs := []error{c.wake.close()}
	for i := range c.wires {
		if p := c.wires[i].port; p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(append(errs, c.flash.Close(), c.mem.Close())...)
}

// Info describes the function.
func (c *Card) Info() device.Info {
	i := device.Info{
		Name: c.cfg.Name, Body: "emu", VendorID: regs.VendorID, DeviceID: regs.DeviceID, Subsys: subsystem,
		Revision: revision, Class: class, NUMANode: -1, Vectors: hostif.Vectors,
		IOVA: []device.IOVARange{{First: 0x1000, Last: 1<<48 - 1}},
	}
	i.Regions[device.Bar0] = device.Region{Size: regs.Bar0Bytes, Flags: device.RegionRead | device.RegionWrite}
	i.Regions[device.Bar2] = device.Region{Size: regs.Bar2Bytes, Flags: device.RegionRead | device.RegionWrite | device.RegionPrefetchable}
	i.Regions[device.Bar4] = device.Region{Size: regs.Bar4Bytes, Flags: device.RegionRead | device.RegionWrite}
	return i
}

// SetHost gives the card its host's memory; nil takes it away. Rings keep their indexes, connections go on.
func (c *Card) SetHost(m device.Memory) {
	c.lock()
	defer c.mu.Unlock()
	c.bus.leave()
	c.memory = m
	c.busMaster()
}

// MapDMA has nothing to do: every access asks the host's memory anew.
func (c *Card) MapDMA(iova, size uint64) error { return nil }

// UnmapDMA waits for the step in progress, or only for its access to the range where the card can be stopped in the
// middle: no access to it is outstanding afterwards, and none follows that was on its way.
func (c *Card) UnmapDMA(iova, size uint64) error {
	c.lock()
	defer c.mu.Unlock()
	if size > 0 {
		c.bus.retire(iova, size)
	}
	return nil
}

// Reset is a function-level reset: the card is as after power-on, but for the sticky bits of configuration space and
// those of the link. The host's memory map and vectors have to be given anew.
func (c *Card) Reset() error {
	c.lock()
	defer c.mu.Unlock()
	if c.gone() {
		return c.fault("reset", device.ErrDeviceLost)
	}
	c.memory = nil
	c.vectors.raise = nil
	c.resetFunction()
	return nil
}

// gone says whether nothing is on the bus, for good or for as long as a boot takes.
func (c *Card) gone() bool { return c.faults.lost || c.closed || c.boot.going || c.flash.Dark() }

// leave takes the card off the bus: it reaches nothing there any more.
func (c *Card) leave() {
	c.bus.forget()
	c.resetConfig(false)
	c.configured()
}

// resetFunction is a function-level reset. What it leaves of the host, memory and vectors, the card reaches again when it
// is bus master and MSI-X is on.
func (c *Card) resetFunction() {
	c.resetConfig(true)
	c.start()
}

// start gives what lies behind the BARs its first value.
func (c *Card) start() {
	c.vectors.reset()
	c.configured()
	c.reg.Reset()
	c.mem.Geometry.Store(c.reg)
	c.identify()
	c.configurationStart()
	c.startDataPath()
	c.alarming = 0
	c.measure()
}

// resetDataPath is control.reset.data_path.
func (c *Card) resetDataPath() {
	c.reg.ResetDataPath()
	c.startDataPath()
}

// startDataPath brings memories, lists and ports to their first state; the registers are there already.
func (c *Card) startDataPath() {
	c.resets.Add(1)
	c.bus.forget()
	c.mem.Reset()
	c.out.Reset()
	if c.run.shellOnly() {
		return
	}
	c.keys()
	for i := range c.cams {
		c.cams[i].Rebuild()
	}
	for i := range c.wires {
		c.wires[i].start(c.reg)
	}
	c.core.ResetDataPath()
}

// keys derives the first value of every key from the seed.
func (c *Card) keys() {
	if c.cfg.Seed == 0 {
		return
	}
	x := c.cfg.Seed
	for i := range 2 {
		for j := range regs.CamHashKeyCount {
			x += golden
			c.reg.Set(regs.CamHashKey.At(i, regs.CamStride).At(j, regs.CamHashKeyStride), mix(x))
		}
		for j := range regs.TransmitIsnKeyCount {
			x += golden
			c.reg.Set(regs.TransmitIsnKey.At(i, regs.TransmitStride).At(j, regs.TransmitIsnKeyStride), mix(x))
		}
	}
	for j := range regs.DefenceKeyCount {
		x += golden
		c.reg.Set(regs.DefenceKey.At(j, regs.DefenceKeyStride), mix(x))
	}
}

const golden = 0x9e3779b97f4a7c15

// mix is the output function of SplitMix64, its upper half.
func mix(x uint64) uint32 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint32((x ^ x>>31) >> 32)
}

// lock takes mu for an access from outside.
func (c *Card) lock() {
	c.waiting.Add(1)
	c.mu.Lock()
	c.waiting.Add(-1)
	if c.boot.going {
		c.endBoot()
	}
}

func (c *Card) fault(op string, err error) error {
	return &device.OpError{Op: op, Dev: c.cfg.Name, Err: err}
}
