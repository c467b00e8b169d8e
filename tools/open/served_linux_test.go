package open

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"splicenic/driver/discover"
	"splicenic/driver/vfiouser"
	"splicenic/emu"
)

// TestServed opens a card behind a socket, lets it go as it is, and takes it over again.
func TestServed(t *testing.T) {
	dir := t.TempDir()
	e, err := NewEmulator(Config{Geometry: emu.Geometry{Pages: 64, Heads: 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	path := filepath.Join(dir, "card.sock")
	s, err := vfiouser.Listen(path, e, vfiouser.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx) }()
	choice, err := Choose("vfio-user:"+path, discover.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []bool{false, true} {
		c, err := Open(t.Context(), choice, Config{Dir: filepath.Join(dir, "dma"), Reattach: true})
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.AllocDMA("ring", 4096)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Outlives() || c.Emulated() || c.Kept(m) != kept || kept != (m.Bytes[0] == 7) {
			t.Errorf("outlives %v, emulated %v, kept %v (want %v), byte %d", c.Outlives(), c.Emulated(), c.Kept(m), kept, m.Bytes[0])
		}
		m.Bytes[0] = 7
		if err := errors.Join(c.ReleaseUnclaimed(), c.Run(closed(t)), c.Detach()); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// closed is a context that is over.
func closed(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
