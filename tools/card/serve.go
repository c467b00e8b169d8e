package card

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/vfio"
	"splicenic/driver/vfiouser"
	"splicenic/emu"
	"splicenic/tools/open"
)

// A Body is an open card that can be served.
type Body struct {
	Function       device.Function
	Removal, Error <-chan struct{} // the notices of whoever took the card from the bus; nil: never given

	run   func(ctx context.Context) error // moves frames until ctx ends; nil: the card does by itself
	close func() error
}

// Open opens the card that cfg names.
func Open(cfg Config) (*Body, error) {
	choice, err := open.Choose(cfg.Card, cfg.Machine.Discover())
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.Card == choice.String() && choice.Body == open.Emulator:
		c, err := open.NewEmulator(open.Config{Client: cfg.Client, Server: cfg.Server, Seed: cfg.Seed, Flash: cfg.Flash, Geometry: cfg.Geometry})
		if err != nil {
			return nil, err
		}
		return Emulated(c), nil
	case cfg.Card == choice.String() && choice.Body == open.VFIO:
		d, err := open.OpenVFIO(choice, open.Config{VFIO: cfg.VFIO, Machine: cfg.Machine})
		if err != nil {
			return nil, err
		}
		return &Body{Function: served{d.Function(), d}, Removal: d.RemovalRequested(), Error: d.ErrorNotice(), close: d.Close}, nil
	}
	return nil, &open.Error{Card: cfg.Card, Err: open.ErrName, Next: "a card process serves emu or vfio:ADDRESS"}
}

// Emulated is an emulated card to be served; it is the Body's from then on.
func Emulated(c *emu.Card) *Body { return &Body{Function: c, run: c.Run, close: c.Close} }

// Close lets the card go. Serve has to have returned.
func (b *Body) Close() error { return b.close() }

// served adds to a real card's function that clients map its BARs themselves.
type served struct {
	*vfio.Function
	d *vfio.Device
}

// RegionFile tells what of a BAR a client may map.
func (s served) RegionFile(region int) (vfiouser.RegionFile, error) {
	offset, parts, err := s.d.RegionFile(region)
	if err != nil {
		return vfiouser.RegionFile{}, err
	}
	if len(parts) == 0 {
		return vfiouser.RegionFile{}, fmt.Errorf("map region %d: %w", region, device.ErrNotSupported)
	}
	f := vfiouser.RegionFile{FD: s.d.FD(), Offset: offset}
	for _, p := range parts {
		f.Areas = append(f.Areas, vfiouser.Area{Offset: p.Offset, Size: p.Size})
	}
	return f, nil
}

// ErrRemoved: the card was given back because its owner asked for it.
var ErrRemoved = fmt.Errorf("the machine asked for the card back: %w", device.ErrDeviceLost)

// drain is how long a client may take to let go of a card that has to be given back.
const drain = 2 * time.Second

// Serve offers the card on cfg.Socket until ctx ends, which is no error, or until the card has to be given back.
func (b *Body) Serve(ctx context.Context, cfg Config) error {
	if err := os.MkdirAll(filepath.Dir(cfg.Socket), 0o700); err != nil {
		return fmt.Errorf("serve card on %s: %w", cfg.Socket, err)
	}
	info := cfg.info(os.Getpid())
	s, err := vfiouser.Listen(cfg.Socket, b.Function, vfiouser.Config{
		Log: cfg.Log, Removal: b.Removal, Error: b.Error,
		Locked: func() error { return info.write(cfg.Socket) }, // who finds the socket finds the file
	})
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() { // the file goes first: without the socket's lock it may be somebody else's
		<-ctx.Done()
		_ = os.Remove(infoPath(cfg.Socket))
		end()
	})
	if b.run != nil {
		moving, halt := context.WithCancel(context.WithoutCancel(ctx))
		defer halt()
		group.Go(func() {
			if err := b.run(moving); err != nil && moving.Err() == nil {
				stop(fmt.Errorf("run card: %w", err))
			}
		})
	}
	group.Go(func() { b.giveBack(ctx, s, stop) })
	cfg.tell()
	err = s.Serve(serving)
	if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
		err = errors.Join(why, err)
	}
	return err
}

// giveBack ends the card's use when its owner asks for it. The client, who was asked too, has some time to let go.
func (b *Body) giveBack(ctx context.Context, s *vfiouser.Server, stop context.CancelCauseFunc) {
	select {
	case <-b.Removal:
	case <-ctx.Done():
		return
	}
	if _, gone := s.Client(); gone != nil {
		patience := time.NewTimer(drain)
		defer patience.Stop()
		select {
		case <-gone:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	stop(ErrRemoved)
}

// Main is the card process: it opens the card, serves it until ctx ends, and lets it go.
func Main(ctx context.Context, cfg Config) error {
	b, err := Open(cfg)
	if err != nil {
		return err
	}
	return errors.Join(b.Serve(ctx, cfg), b.Close())
}

// readyText is what Start waits for.
const readyText = "ready\n"

// tell says that the card is served.
func (c *Config) tell() {
	if c.ready > 2 {
		f := os.NewFile(uintptr(c.ready), "ready")
		_, _ = f.WriteString(readyText) // whoever waited may be gone, which is no reason to end
		_ = f.Close()
	}
	if c.Ready != nil {
		c.Ready()
	}
}
