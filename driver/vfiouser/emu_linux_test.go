package vfiouser_test

import (
	"context"
	"sync"
	"testing"

	"splicenic/driver"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
	"splicenic/emu"
	"splicenic/emu/port"
)

// newEmu returns a small emulated card that runs by itself, and how to end it.
func newEmu(t testing.TB) (*emu.Card, func()) {
	t.Helper()
	near, _ := port.Pair(port.MemConfig{MACs: [2][6]byte{{2, 0, 0, 0, 1, 1}, {2, 0, 0, 0, 2, 1}}})
	card, err := emu.New(emu.Config{Client: near, Geometry: emu.Geometry{Pages: 1024, Heads: 64, CamClientWords: 4096, CamServerWords: 8192,
		Listeners: 16, Services: 16, Groups: 16, Servers: 16, NextHops: 16, Vips: 16, LocalAddresses: 16, Rules: 64, UrlNodes: 256, Slots: 16, LocalPorts: 16}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := card.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return card, sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		if err := card.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestEmuConformance runs the suite on the emulated card behind a socket.
func TestEmuConformance(t *testing.T) {
	for _, messages := range []bool{false, true} {
		name := "files"
		if messages {
			name = "messages"
		}
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devicetest.Harness {
				noLeaks(t)
				card, end := newEmu(t)
				s := serveAt(t, card, vfiouser.Config{}, runDir(t))
				o := s.options()
				o.Messages = messages
				c := s.dial(o)
				master(t, c)
				h := devicetest.SpliceHarness(c)
				h.Close = func() {
					s.end()
					end()
				}
				return h
			})
		})
	}
}

// TestDriver brings the emulated card up over a socket and uses it.
func TestDriver(t *testing.T) {
	noLeaks(t)
	emulated, end := newEmu(t)
	defer end()
	s := serveAt(t, emulated, vfiouser.Config{}, runDir(t))
	defer s.end()
	c := s.dial(s.options())
	defer c.Close()
	card, err := driver.Open(t.Context(), c, driver.Config{Rings: driver.Rings{Exception: 64, Inject: 64, FrameBytes: 2048}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := card.Allocate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := card.Free(t.Context(), h); err != nil {
		t.Error(err)
	}
	if err := card.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
