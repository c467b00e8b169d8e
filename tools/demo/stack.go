package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"splicenic/driver"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/tools/open"
)

// A stack is the emulated card with driver and runtime on top.
type stack struct {
	card   *open.Card
	drv    *driver.Card
	daemon *daemon.Daemon
	vips   map[netip.Addr]uint16 // index of a VIP
}

// newStack makes the card between two ports.
func newStack(ports [2]port.Port) (*stack, error) {
	card, err := open.Open(context.Background(), open.Choice{Body: open.Emulator}, open.Config{Ports: ports})
	if err != nil {
		return nil, err
	}
	return &stack{card: card}, nil
}

// start brings the card up and applies the configuration. Where clock is nil the card is running by itself; else it is
// stepped whenever the driver waits.
func (s *stack) start(ctx context.Context, wires [2]string, clock func() time.Duration) error {
	cfg := driver.Config{}
	var random io.Reader
	if clock != nil {
		cfg.Pump = func() { s.card.Step(clock()) }
		cfg.Random = rand.NewChaCha8([32]byte{}) // a second run shows the same numbers
		random = rand.NewChaCha8([32]byte{1})
	}
	var err error
	if s.drv, err = driver.Open(ctx, s.card, cfg); err != nil {
		return fmt.Errorf("bring card up: %w", err)
	}
	if s.daemon, err = daemon.New(daemon.Config{Card: s.drv, Clock: clock, Random: random}); err != nil {
		return err
	}
	c, err := config.Load("demo.yaml", fmt.Appendf(nil, configuration, wires[0], wires[1]))
	if err != nil {
		return err
	}
	if _, err := s.daemon.Apply(ctx, c); err != nil {
		return fmt.Errorf("apply the demo's configuration: %w", err)
	}
	return s.findVIPs(ctx)
}

// findVIPs reads the VIP address memory: a VIP's index is part of the CAM's keys.
func (s *stack) findVIPs(ctx context.Context) error {
	s.vips = map[netip.Addr]uint16{}
	return s.daemon.Do(func(c *driver.Card) error {
		words, err := table(ctx, c, regs.MemVip, 0, some)
		for i := 0; i < len(words); i += regs.AddressWords {
			var e regs.AddressEntry
			e.Decode(words[i:])
			if e.ControlValid != 0 {
				s.vips[driver.Address(e.ControlKind, e.Address)] = uint16(i / regs.AddressWords)
			}
		}
		return err
	})
}

// some entries are more than the demo has of anything.
const some = 16

// table reads entries of a memory.
func table(ctx context.Context, c *driver.Card, memory int, first, count uint32) ([]uint32, error) {
	m := c.Memory(memory)
	off, err := m.At(0, first)
	if err != nil {
		return nil, err
	}
	words := make([]uint32, count*m.EntryBytes/4)
	if err := c.ReadTable(ctx, off, words); err != nil {
		return nil, fmt.Errorf("read %s: %w", m.Name, err)
	}
	return words, nil
}

// resolved says whether the card knows the MAC addresses of all its next hops.
func (s *stack) resolved(ctx context.Context) (all bool, err error) {
	err = s.daemon.Do(func(c *driver.Card) error {
		words, err := table(ctx, c, regs.MemNextHop, 0, some)
		all = err == nil
		for i := 0; i < len(words); i += regs.NextHopWords {
			w := words[i+regs.NextHopControl]
			all = all && regs.NextHopControlValid(w) == regs.NextHopControlResolved(w)
		}
		return err
	})
	return all, err
}

// A sight is what the card's memories say about a connection.
type sight struct {
	N      uint32 `json:"n"`
	L      uint32 `json:"l"`
	Delta  uint32 `json:"delta"` // a = a0 − a1
	server netip.AddrPort
}

// see finds a connection the way the card does: its client's address in the CAM, then page n.
func (s *stack) see(ctx context.Context, client netip.AddrPort, vip netip.AddrPort) (v sight, err error) {
	k := driver.Key{Protocol: 6, Port: client.Port(), Destination: vip.Port(), Index: s.vips[vip.Addr()], Addr: client.Addr()}
	err = s.daemon.Do(func(c *driver.Card) error {
		h, _, err := c.CAMLookup(ctx, regs.CamClient, k)
		if err != nil {
			return fmt.Errorf("look up %v in the client-side CAM: %w", client, err)
		}
		p, err := c.Page(ctx, h.N())
		if err != nil {
			return fmt.Errorf("read page %d: %w", h.N(), err)
		}
		v = sight{N: h.N(), L: h.N() * c.Load(regs.GeometryPageBytes), Delta: p.ADeltaServer}
		words, err := table(ctx, c, regs.MemServer, p.AIndexServer, 1)
		if err != nil {
			return err
		}
		var e regs.ServerEntry
		e.Decode(words)
		v.server = netip.AddrPortFrom(driver.Address(e.ControlKind, e.Address), uint16(e.ControlPort))
		return nil
	})
	return v, err
}

// atRest says whether all pages and heads are free again.
func (s *stack) atRest() (rest bool) {
	_ = s.daemon.Do(func(c *driver.Card) error {
		rest = c.Load(regs.AmuFree) == c.Load(regs.GeometryPages) && c.Load(regs.HeadFree) == c.Load(regs.GeometryHeads)
		return nil
	})
	return rest
}

// read fills in what the card's registers say in the end.
func (s *stack) read(ctx context.Context, r *Report) error {
	return s.daemon.Do(func(c *driver.Card) error {
		r.Card.Body = s.card.Info().Body
		r.Card.Pages = Count{c.Load(regs.AmuFree), c.Load(regs.GeometryPages)}
		r.Card.Heads = Count{c.Load(regs.HeadFree), c.Load(regs.GeometryHeads)}
		counters, err := c.Counters(ctx)
		if err != nil {
			return fmt.Errorf("read counters: %w", err)
		}
		r.count(counters)
		return nil
	})
}

func (s *stack) close() error {
	var err error
	if s.drv != nil {
		err = s.drv.Shutdown(context.Background())
	}
	return errors.Join(err, s.card.Close())
}
