package vfiouser_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/drivertest"
	"splicenic/driver/vfiouser"
	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
)

// stride leaves out accesses, of which each is a card process of its own here, but for SPLICE_LONG.
func stride() int {
	switch {
	case raceEnabled || testing.Short():
		return 37
	case os.Getenv("SPLICE_LONG") == "":
		return 11
	}
	return 1
}

func TestSurpriseRemoval(t *testing.T) {
	t.Run("card", func(t *testing.T) { drivertest.SurpriseRemoval(t, stride(), driven(t, false)) })
	t.Run("card process", func(t *testing.T) { drivertest.SurpriseRemoval(t, stride(), driven(t, true)) })
}

func TestTakeover(t *testing.T) { drivertest.Takeover(t, stride(), driven(t, false)) }

func TestFound(t *testing.T) { drivertest.Found(t, driven(t, false)) }

// short is a port that takes no coalesced frames, so that a card with it is made faster.
type short struct{ *port.Mem }

func (short) BufferBytes() int { return frame.Headroom + 2048 }

// driven returns what makes an emulated card that works by itself and is served on a socket. end says that it is its server
// that vanishes.
func driven(t *testing.T, end bool) func(testing.TB) *drivertest.Bench {
	dir := runDir(t)
	return func(t testing.TB) *drivertest.Bench {
		t.Helper()
		near, _ := port.Pair(port.MemConfig{})
		server, _ := port.Pair(port.MemConfig{})
		card, err := emu.New(emu.Config{Client: short{near}, Server: short{server}, Geometry: emu.Geometry{Pages: 64, Heads: 40, CamClientWords: 256,
			CamServerWords: 512, Listeners: 16, Services: 16, Groups: 4, Servers: 4, NextHops: 4, Vips: 4, LocalAddresses: 4, Rules: 16, UrlNodes: 256, Slots: 16, LocalPorts: 4}})
		if err != nil {
			t.Fatal(err)
		}
		bus := &drivertest.Bus{Function: card}
		path := filepath.Join(dir, "driven.sock")
		srv, err := vfiouser.Listen(path, bus, vfiouser.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		serving, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { card.Run(ctx) })
		served := make(chan struct{})
		wg.Go(func() {
			defer close(served)
			if err := srv.Serve(serving); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
		b := &drivertest.Bench{Bus: bus, Lose: card.Lose, Frame: func(f []byte) { near.Inject(f, frame.Offload{}) }}
		if end {
			b.Lose = func() { stop(); <-served }
		}
		o := vfiouser.Options{Name: "card", Dir: filepath.Join(dir, "driven")}
		b.Attach = func() (device.Device, func(*device.DMA) bool) {
			c, err := vfiouser.Dial(context.Background(), path, o)
			if err != nil {
				t.Fatal(err)
			}
			o.Reattach = true
			return c, c.Kept
		}
		b.Die = func(d device.Device) {
			if err := d.(*vfiouser.Client).Detach(); err != nil {
				t.Error(err)
			}
		}
		b.Close = func() {
			stop()
			cancel()
			wg.Wait()
			if err := errors.Join(card.Close(), os.RemoveAll(o.Dir)); err != nil {
				t.Error(err)
			}
		}
		return b
	}
}
