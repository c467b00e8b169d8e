package guest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
	"splicenic/tools/card"
	"splicenic/tools/open"
)

// TestServed runs the suite on the guest's card behind a card process: stores, loads, DMA and interrupts of the client go to
// the card as the kernel lets them, without passing through the process.
func TestServed(t *testing.T) {
	d := take(t)
	name := d.Info().Name
	d.Close()
	devicetest.Run(t, func(t *testing.T) devicetest.Harness {
		dir := t.TempDir()
		cfg := card.Config{Card: name, Socket: filepath.Join(dir, "card.sock"), Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			VFIO: open.VFIOOptions{Transport: transport()}}
		body, err := card.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ready := make(chan struct{})
		cfg.Ready = func() { close(ready) }
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- body.Serve(ctx, cfg) }()
		stop := func() {
			end()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := body.Close(); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-ready:
		case err := <-ended:
			body.Close()
			t.Fatal(err)
		}
		c, err := vfiouser.Dial(t.Context(), cfg.Socket, vfiouser.Options{Dir: filepath.Join(dir, "dma"), HugeDirs: []string{"/dev/hugepages"}})
		if err != nil {
			stop()
			t.Fatal(err)
		}
		h := devicetest.SpliceHarness(c)
		h.Close = stop
		return h
	})
}
