// Package open turns a card's name into a device: auto, emu, vfio:ADDRESS or vfio-user:PATH. It is the only place that
// knows both the emulator and the driver's ways to reach a card; everybody else has a device.Device.
//
// A Card owns its device and, for the emulator, the card behind it with its ports. It starts no goroutine: Run is its
// caller's.
package open

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/discover"
	"splicenic/emu"
	"splicenic/emu/port"
)

// Bodies of a card.
const (
	Auto     = "auto"
	Emulator = "emu"
	VFIO     = "vfio"
	VFIOUser = "vfio-user"
)

// ErrName: no card can have that name.
var ErrName = errors.New("no such card")

// ErrNotSupported: a card of a kind that this release cannot open yet.
var ErrNotSupported = errors.New("not supported yet")

// An Error says that there is no usable card, and what to do about it.
type Error struct {
	Card string // as named
	Err  error
	Next string // the next command; may be empty
}

func (e *Error) Error() string { return fmt.Sprintf("open card %s: %v", e.Card, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A Choice is a card that was decided for, not yet opened.
type Choice struct {
	Body string // never Auto
	Name string // PCI address with VFIO, socket path with VFIOUser
	Note string // what the user should know about how auto decided; empty: nothing
}

// String returns the card as --card names it.
func (c Choice) String() string {
	if c.Name == "" {
		return c.Body
	}
	return c.Body + ":" + c.Name
}

// Choose resolves a card's name; empty means auto. Auto takes the one usable card, the emulator where there is no card
// at all, and refuses to guess in every other case. It binds nothing.
func Choose(card string, d discover.Config) (Choice, error) {
	body, name, named := strings.Cut(card, ":")
	switch body {
	case "", Auto:
		if named {
			break
		}
		return chooseAuto(d)
	case Emulator:
		if named {
			break
		}
		return Choice{Body: Emulator}, nil
	case VFIO, VFIOUser:
		if name != "" {
			return Choice{Body: body, Name: name}, nil
		}
	}
	return Choice{}, &Error{Card: card, Err: ErrName, Next: "name it auto, emu, vfio:ADDRESS or vfio-user:PATH"}
}

func chooseAuto(d discover.Config) (Choice, error) {
	found, err := discover.Auto(d)
	if err != nil {
		e := &Error{Card: Auto, Err: err}
		if _, ok := errors.AsType[*discover.AutoError](err); ok {
			e.Next = "take one of the commands above, or say --card emu"
		}
		return Choice{}, e
	}
	if found == nil {
		return Choice{Body: Emulator, Note: "no card found in this machine; the emulator is the card"}, nil
	}
	return Choice{Body: VFIO, Name: found.Address}, nil
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
}

// A Card is an open card.
type Card struct {
	device.Device
	Choice Choice
	emu    *emu.Card
}

// Open opens the card.
func Open(c Choice, cfg Config) (*Card, error) {
	if c.Body != Emulator {
		return nil, &Error{Card: c.String(), Err: fmt.Errorf("cards over %s are %w", c.Body, ErrNotSupported), Next: "use --card emu"}
	}
	ports, err := wires(cfg)
	if err != nil {
		return nil, &Error{Card: c.String(), Err: err}
	}
	card, err := emu.New(emu.Config{Geometry: cfg.Geometry, Client: ports[0], Server: ports[1], Seed: cfg.Seed})
	if err != nil {
		return nil, errors.Join(&Error{Card: c.String(), Err: err}, closePorts(ports))
	}
	return &Card{Device: device.Local(card, device.LocalConfig{}), Choice: c, emu: card}, nil
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

// Run moves frames until ctx ends. A card that is not in this process moves them by itself.
func (c *Card) Run(ctx context.Context) error {
	if c.emu == nil {
		<-ctx.Done()
		return nil
	}
	return c.emu.Run(ctx)
}

// Step makes an emulated card work once, at a time its caller gives; see emu.Card.Step.
func (c *Card) Step(now time.Duration) bool { return c.emu != nil && c.emu.Step(now) }

// Close lets the device go, and ends the emulated card. Run has to have returned.
func (c *Card) Close() error {
	err := c.Device.Close()
	if c.emu != nil {
		err = errors.Join(err, c.emu.Close())
	}
	return err
}
