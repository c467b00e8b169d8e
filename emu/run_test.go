package emu_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

const patience = 20 * time.Second

// running is a card that runs by itself.
type running struct {
	*host
	arrived chan struct{} // a frame came to the far end of a port
}

func start(t *testing.T) *running {
	t.Helper()
	r := &running{host: newHost(t, emu.Config{}, port.MemConfig{}), arrived: make(chan struct{}, 1)}
	for _, far := range r.far {
		far.Notify(func() {
			select {
			case r.arrived <- struct{}{}:
			default:
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.card.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return r
}

// TestRun: frames and doorbells wake a card that sleeps.
func TestRun(t *testing.T) {
	r := start(t)
	if err := r.dev.EnableVectors(3); err != nil {
		t.Fatal(err)
	}
	r.serve()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range 50 {
		r.send(0, syn(uint16(1000+i), 1).build(false), noOffload)
		select {
		case <-r.arrived:
		case <-ctx.Done():
			t.Fatalf("SYN %d: no answer", i)
		}
		if out := r.drain(); len(out) != 1 {
			t.Fatalf("SYN %d: %d answers", i, len(out))
		}
		r.post(bulk(regs.CommandControlTypeClear, regs.MemHeadOffset, 4, 0))
		if _, err := r.dev.Wait(ctx, 2); err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
		if done := r.completions(); len(done) != 1 {
			t.Fatalf("command %d: completions %+v", i, done)
		}
	}
	r.want(regs.AmuLive, 50)
}

// TestRunReset: time begins anew with a reset, and the card goes on working.
func TestRunReset(t *testing.T) {
	r := start(t)
	for range 3 {
		if err := r.dev.Reset(); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.serve()
		r.send(0, syn(1000, 1).build(false), noOffload)
		select {
		case <-r.arrived:
		case <-time.After(patience):
			t.Fatal("no answer")
		}
		// On a machine that stood still for a second the same SYN-ACK comes again.
		out := r.drain()
		if len(out) == 0 {
			t.Fatal("no answer")
		}
		for _, f := range out[1:] {
			if string(f.bytes) != string(out[0].bytes) {
				t.Fatalf("two answers: % x, % x", out[0].bytes, f.bytes)
			}
		}
		if got := time.Duration(r.load64(regs.TimerNow)) * time.Microsecond; got > patience {
			t.Errorf("timer.now = %v", got)
		}
	}
}

// TestRunAccess uses the card from several goroutines while it runs. The race detector judges.
func TestRunAccess(t *testing.T) {
	r := start(t)
	r.serve()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint32(2000) {
			r.dev.Store32(device.Bar0, uint64(regs.ControlScratch), i)
			if got := r.dev.Load32(device.Bar0, uint64(regs.ControlScratch)); got != i {
				t.Errorf("scratch = %d, want %d", got, i)
			}
		}
	})
	wg.Go(func() {
		for i := range uint64(2000) {
			r.dev.Store64(device.Bar2, regs.MemHeadOffset+8*(i%8), i)
		}
	})
	wg.Go(func() {
		for range 200 {
			m, err := r.dev.AllocDMA("test", 4096)
			if err != nil {
				t.Error(err)
				return
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 500 {
		r.far[0].Inject(nil, noOffload) // nobody receives there
		f := syn(uint16(2000+i%100), 1).build(false)
		r.far[0].Transmit(oneFrame(f))
		if i%50 == 0 {
			r.drain()
		}
	}
	wg.Wait()
}

func TestRunEnds(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.card.Run(ctx); err != nil {
		t.Errorf("Run with a context that is over: %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := b.card.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
}
