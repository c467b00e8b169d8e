package open

import (
	"context"
	"errors"
	"fmt"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/vfio"
	"splicenic/driver/vfiouser"
	"splicenic/emu"
	"splicenic/emu/port"
)

// VFIOOptions say how a card on the bus is opened, in the words of flags.
type VFIOOptions struct {
	Transport string // auto, type1 or iommufd; empty: auto
	NoIOMMU   bool   // a card that no IOMMU confines is opened, for its registers only
	VFToken   string // UUID that the owner of the physical function set; empty: none
}

// Config says how to open a Choice.
type Config struct {
	// The emulated card's wires, as emu/port.Open takes them, or mem: nothing is attached. Both empty: mem. Server
	// empty beside a client: a one-armed card.
	Client, Server string
	// Ports are used instead where given; they are the card's from then on.
	Ports    [2]port.Port
	Seed     uint64
	Geometry emu.Geometry
	Flash    string // file that the emulated card's flash is kept in; empty: it is new, and gone with the card

	VFIO    VFIOOptions
	Machine Machine

	// Dir is where the DMA memory of a card behind a socket has its files. Empty: it has none, and ends with this process.
	Dir string
	// Reattach takes over what a predecessor left in Dir.
	Reattach bool
}

// A Card is an open card.
type Card struct {
	device.Device
	Choice Choice
	emu    *emu.Card
	client *vfiouser.Client
}

// LoadBlock and StoreBlock pass on what the device behind can do at once.
func (c *Card) LoadBlock(region int, off uint64, p []byte) {
	device.LoadBlock(c.Device, region, off, p)
}

// StoreBlock is the other way.
func (c *Card) StoreBlock(region int, off uint64, p []byte) {
	device.StoreBlock(c.Device, region, off, p)
}

// Open opens the card. ctx bounds Open alone.
func Open(ctx context.Context, c Choice, cfg Config) (*Card, error) {
	switch c.Body {
	case Emulator:
		card, err := NewEmulator(cfg)
		if err != nil {
			return nil, err
		}
		return &Card{Device: device.Local(card, device.LocalConfig{}), Choice: c, emu: card}, nil
	case VFIO:
		d, err := OpenVFIO(c, cfg)
		if err != nil {
			return nil, err
		}
		return &Card{Device: d, Choice: c}, nil
	case VFIOUser:
		d, err := vfiouser.Dial(ctx, c.Name, vfiouser.Options{Dir: cfg.Dir, Memfd: cfg.Dir == "", Reattach: cfg.Reattach})
		if err != nil {
			return nil, &Error{Card: c.String(), Err: err, Next: "splicectl card serve --socket " + c.Name + " serves a card there"}
		}
		return &Card{Device: d, Choice: c, client: d}, nil
	}
	return nil, &Error{Card: c.String(), Err: ErrName}
}

// OpenVFIO opens a card on the bus.
func OpenVFIO(c Choice, cfg Config) (*vfio.Device, error) {
	transport, err := vfio.ParseTransport(cfg.VFIO.Transport)
	if err != nil {
		return nil, &Error{Card: c.String(), Err: fmt.Errorf("%w: %w", ErrName, err), Next: "--transport is auto, type1 or iommufd"}
	}
	m := cfg.Machine
	d, err := vfio.Open(c.Name, vfio.Options{
		Transport: transport, NoIOMMU: cfg.VFIO.NoIOMMU, VFToken: cfg.VFIO.VFToken,
		Sysfs: m.dir("sys"), Dev: m.dir("dev"), Proc: m.dir("proc"),
	})
	if err != nil {
		return nil, &Error{Card: c.String(), Err: err, Next: "splicectl card list and splicectl card doctor say what the card needs"}
	}
	return d, nil
}

// NewEmulator makes an emulated card with its ports.
func NewEmulator(cfg Config) (*emu.Card, error) {
	ports, err := wires(cfg)
	if errors.Is(err, port.ErrBusy) {
		err = fmt.Errorf("%w: %w", err, device.ErrBusy)
	}
	if err != nil {
		return nil, &Error{Card: Emulator, Err: err, Next: "name wires that are there and that no other card has"}
	}
	card, err := emu.New(emu.Config{Geometry: cfg.Geometry, Client: ports[0], Server: ports[1], Seed: cfg.Seed, FlashFile: cfg.Flash})
	if err != nil {
		return nil, errors.Join(&Error{Card: Emulator, Err: err}, closePorts(ports))
	}
	return card, nil
}

// nothing is the wire that leads nowhere.
const nothing = "mem"

// wires opens the emulated card's ports.
func wires(cfg Config) (ports [2]port.Port, err error) {
	if cfg.Ports[0] != nil {
		return cfg.Ports, nil
	}
	specs := [2]string{cfg.Client, cfg.Server}
	if cfg.Client == "" {
		specs = [2]string{nothing, nothing}
	}
	for i, spec := range specs {
		switch spec {
		case "":
			continue
		case nothing:
			ports[i], _ = port.Pair(port.MemConfig{MACs: [2][6]byte{{2, 0, 0, 0, 0, byte(i + 1)}}})
			continue
		}
		if ports[i], err = port.Open(spec); err != nil {
			return ports, errors.Join(err, closePorts(ports))
		}
	}
	port.Align(ports[:]...) // captures of both sides keep in step
	return ports, nil
}

func closePorts(ports [2]port.Port) (err error) {
	for _, p := range ports {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}
	return err
}

// Again opens an emulated card of this process once more, as after a boot: its owner keeps it, and closes it. What was
// opened before is of no use any more.
func (c *Card) Again() (*Card, error) {
	if c.emu == nil {
		return nil, fmt.Errorf("open card %s again: %w", c.Choice, device.ErrNotSupported)
	}
	return &Card{Device: device.Local(c.emu, device.LocalConfig{}), Choice: c.Choice}, nil
}

// Renew opens the emulated card of this process anew in place of a device that was closed.
func (c *Card) Renew() error {
	again, err := c.Again()
	if err == nil {
		c.Device = again.Device
	}
	return err
}

// Run moves frames until ctx ends. A card that is not in this process moves them by itself.
func (c *Card) Run(ctx context.Context) error {
	if c.emu == nil {
		<-ctx.Done()
		return nil
	}
	return c.emu.Run(ctx)
}

// Emulated says whether the card is an emulator in this process, which works only while Run or Step does.
func (c *Card) Emulated() bool { return c.emu != nil }

// Step makes an emulated card work once, at a time its caller gives; see emu.Card.Step.
func (c *Card) Step(now time.Duration) bool { return c.emu != nil && c.emu.Step(now) }

// Bus returns the card as VFIO has it, nil where it is not opened over VFIO in this process.
func (c *Card) Bus() *vfio.Device {
	d, _ := c.Device.(*vfio.Device)
	return d
}

// Outlives says whether the card goes on when this process ends: it is in another one.
func (c *Card) Outlives() bool { return c.client != nil }

// Kept says whether DMA memory is a predecessor's, with its contents.
func (c *Card) Kept(m *device.DMA) bool { return c.client != nil && c.client.Kept(m) }

// ReleaseUnclaimed gives back what a predecessor left and nobody asked for.
func (c *Card) ReleaseUnclaimed() error {
	if c.client == nil {
		return nil
	}
	return c.client.ReleaseUnclaimed()
}

// Detach lets a card of another process go as it is, for a successor that opens it with Reattach. Any other card is
// closed.
func (c *Card) Detach() error {
	if c.client == nil {
		return c.Close()
	}
	return c.client.Detach()
}

// Close lets the device go, and ends the emulated card. Run has to have returned.
func (c *Card) Close() error {
	err := c.Device.Close()
	if c.emu != nil {
		err = errors.Join(err, c.emu.Close())
	}
	return err
}
