package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/ring"
	"splicenic/regs"
)

// Interrupt vectors.
const (
	VectorException  = 0
	VectorEvent      = 1 // events, and the causes of hostif.cause
	VectorCompletion = 2
	vectors          = 3
)

// Config says how Open brings a card up. The zero value resets the data path and brings up everything but the ports.
type Config struct {
	// Shell identifies the card only: no store, no DMA, no interrupt.
	Shell bool
	// Adopt takes over a card that a predecessor has set up: tables, connections, keys, ports and counters stay. A card
	// that nobody has set up is reset as without it.
	Adopt bool
	// Kept says whether DMA memory came from the predecessor, with its contents. nil: none did.
	Kept func(*device.DMA) bool
	// Pump moves a card that only moves when stepped; it is called while the Card waits. nil: wait for interrupts.
	Pump func()
	// PumpLimit bounds the calls of Pump in one wait. Zero: 1<<20.
	PumpLimit int
	// Timeout bounds one wait for the card without Pump. Zero: 5 s.
	Timeout time.Duration
	// Random gives hash and sequence-number keys. nil: crypto/rand.
	Random io.Reader
	// Rings sizes the rings; zero fields have defaults.
	Rings Rings
	// Timers are stored; zero fields keep the card's value.
	Timers Timers
	// Ports are stored as by SetPort where not zero. A port is off until then.
	Ports [2]PortConfig
}

const (
	defaultTimeout   = 5 * time.Second
	defaultPumpLimit = 1 << 20
)

// A Card is an opened card.
type Card struct {
	dev      device.Device
	cfg      Config
	bars     bars
	pciID    uint32
	identity Identity
	mismatch *MismatchError
	geometry Geometry
	memories [len(regs.Memories)]Memory
	stats    stats

	up   atomic.Bool   // rings run
	ours bool          // they are to be stopped at tear-down, and what dma holds to be freed
	dma  []*device.DMA // what the card reaches
	lock chan struct{} // holds one token: who has it may use commands
	port chan struct{} // likewise: the configuration port, and flashPage

	flashPage uint32 // 0: not loaded yet

	adopted, continued atomic.Bool

	rings       ringMemory
	commands    *ring.Producer
	completions *ring.Consumer
	inFlight    uint32
	cookie      uint32
	staging     *device.DMA

	exceptions exceptions
	events     inbox
	begins     *device.DMA // buffers of the event ring
	inject     inject
}

// Open identifies the card behind dev and brings it up. Nothing is stored before its magic was seen. Open is bounded by
// Config.Timeout per step and ends early with ctx.
//
// Open fails with device.ErrDeviceLost where the card vanishes, at whatever step. Rings of a predecessor that Open had not
// stopped when it failed go on; DMA memory that it had taken over by then is the device's.
//
// Where the card's data path is not the one this host was built for, Open succeeds and the Card does what the shell
// offers: see Mismatch.
func Open(ctx context.Context, dev device.Device, cfg Config) (*Card, error) {
	c := &Card{dev: dev, cfg: cfg, bars: bars{dev: dev}, lock: make(chan struct{}, 1), port: make(chan struct{}, 1)}
	c.lock <- struct{}{}
	c.port <- struct{}{}
	if c.cfg.Timeout == 0 {
		c.cfg.Timeout = defaultTimeout
	}
	if c.cfg.PumpLimit == 0 {
		c.cfg.PumpLimit = defaultPumpLimit
	}
	c.cfg.Rings = c.cfg.Rings.withDefaults()
	if err := c.identify(); err != nil {
		return nil, c.opened(err)
	}
	if c.mismatch != nil || cfg.Shell {
		return c, nil
	}
	if err := c.readGeometry(); err != nil {
		return nil, c.opened(err)
	}
	if err := c.bringUp(ctx, cfg.Adopt); err != nil {
		return nil, c.opened(errors.Join(c.because(err), c.tearDown(context.WithoutCancel(ctx))))
	}
	return c, nil
}

func (c *Card) opened(err error) error { return fmt.Errorf("open card %s: %w", c.dev.Info().Name, err) }

// dataPath returns why operations beyond the shell are refused, nil if they are not.
func (c *Card) dataPath() error {
	if err := c.dev.Err(); err != nil {
		return err
	}
	if c.mismatch != nil {
		return c.mismatch
	}
	if !c.up.Load() {
		return ErrShellOnly
	}
	return nil
}

// acquire takes the right to use commands, and with it the right to bring the card up or down.
func (c *Card) acquire(ctx context.Context) error {
	select {
	case <-c.lock:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Card) release() { c.lock <- struct{}{} }

// Reset resets the data path: tables, connections and counters go, links stay. A card that was brought up is up again
// afterwards, with all rings empty; nobody may be using them meanwhile. It works on a card whose data path is not known.
func (c *Card) Reset(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return fmt.Errorf("reset card: %w", err)
	}
	defer c.release()
	if !c.up.Load() {
		if err := c.reset(ctx, regs.ControlResetDataPathMask|regs.ControlResetHostInterfaceMask); err != nil {
			return fmt.Errorf("reset card: %w", err)
		}
		return nil
	}
	if err := c.tearDown(ctx); err != nil {
		return fmt.Errorf("reset card: %w", err)
	}
	if err := c.bringUp(ctx, false); err != nil {
		return fmt.Errorf("reset card: %w", errors.Join(c.because(err), c.tearDown(context.WithoutCancel(ctx))))
	}
	return nil
}

// Shutdown stops the rings, waits until the card is idle, takes bus mastering away and frees the memory, in this order.
// Connections and tables stay; forwarding goes on. Frames of Exceptions are invalid from here on.
func (c *Card) Shutdown(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return fmt.Errorf("shut card down: %w", err)
	}
	defer c.release()
	if err := c.tearDown(ctx); err != nil {
		return fmt.Errorf("shut card down: %w", err)
	}
	return nil
}

// lookout is how long Wait stays without a look at whether the card is still there.
const lookout = 500 * time.Millisecond

// Wait blocks until an interrupt vector was raised since the last Wait for it. It ends, too, where the card is lost or has
// stopped itself.
func (c *Card) Wait(ctx context.Context, vector int) error {
	for {
		if silent, err := c.listen(ctx, vector, lookout); !silent || err != nil {
			return err
		}
	}
}

// Causes returns why the event vector was raised beside its ring, as regs.HostifCause has it, and clears it.
func (c *Card) Causes() uint32 {
	w := c.Load(regs.HostifCause)
	if w != 0 && c.dataPath() == nil {
		c.Store(regs.HostifCause, w)
	}
	return w
}
