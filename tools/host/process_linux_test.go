package host

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
	"splicenic/emu"
	"splicenic/regs"
	"splicenic/tools/card"
	"splicenic/tools/control"
	"splicenic/tools/open"
)

// doctored makes a card process whose card has another data-path digest, and whose log has every store.
const doctored = "SPLICE_TEST_DOCTORED"

// TestMain is the test, or where it is called as one, a card process.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "card" {
		os.Exit(m.Run())
	}
	if err := serve(os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := card.Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Geometry: emu.Geometry{Pages: 1024, Heads: 16, CamClientWords: 4096, CamServerWords: 4096}}
	f := flag.NewFlagSet("card serve", flag.ExitOnError)
	cfg.Flags(f)
	f.StringVar(&cfg.Machine.Root, "machine", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	b, err := card.Open(cfg)
	if err != nil {
		return err
	}
	if os.Getenv(doctored) != "" {
		c := b.Function.(*emu.Card)
		c.Stick(regs.DirectoryDataPathDigest, ^uint32(0), regs.DataPathDigest^1)
		b.Function = watched{c}
	}
	return errors.Join(b.Serve(ctx, cfg), b.Close())
}

// watched says every store and every map of memory.
type watched struct{ *emu.Card }

func (w watched) WriteRegion(region int, off uint64, p []byte) error {
	fmt.Fprintf(os.Stderr, "stored to region %d at %#x\n", region, off)
	return w.Card.WriteRegion(region, off, p)
}

func (w watched) MapDMA(iova, size uint64) error {
	fmt.Fprintf(os.Stderr, "mapped %#x\n", iova)
	return w.Card.MapDMA(iova, size)
}

// empty is a configuration without servers, whose next hops nobody has to wait for.
const empty = `card: CARD
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24]}
  server: {addresses: [198.18.1.1/24]}
services: []
groups: []
`

// configure writes a configuration for a card, with pairs of texts replaced.
func configure(t *testing.T, cfg Config, pairs ...string) {
	t.Helper()
	must(t, os.WriteFile(cfg.File, []byte(strings.NewReplacer(pairs...).Replace(empty)), 0o600))
}

// processes is a Config for a runtime with a card process, which ends with the test.
func processes(t *testing.T, name string) (Config, place, *bytes.Buffer) {
	t.Helper()
	cfg, log := write(t, name)
	configure(t, cfg, "CARD", name)
	self, err := os.Executable()
	must(t, err)
	cfg.InProcess, cfg.Command = false, []string{self, "card", "serve"}
	p := placeOf(cfg.Socket)
	t.Cleanup(func() {
		if c, _ := card.Find(context.Background(), p.card); c != nil {
			_ = syscall.Kill(c.PID, syscall.SIGCONT)
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
			c.Close()
		}
		if t.Failed() {
			b, _ := os.ReadFile(p.log)
			t.Logf("the card process said:\n%s", b)
		}
	})
	return cfg, p, log
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// once runs until the runtime is ready, does something, and ends it.
func once(t *testing.T, cfg Config, do func(r Ready)) error {
	t.Helper()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ready := false
	cfg.Ready = func(r Ready) {
		ready = true
		if do != nil {
			do(r)
		}
		cancel()
	}
	err := Run(ctx, cfg)
	if err == nil && !ready {
		t.Error("it ended before it was ready")
	}
	leaks(t, before)
	return err
}

// find returns the card process of a place, nil where there is none.
func find(t *testing.T, p place) *card.Process {
	t.Helper()
	c, err := card.Find(t.Context(), p.card)
	must(t, err)
	if c != nil {
		t.Cleanup(c.Close)
	}
	return c
}

// TestStop: at an orderly end the card process ends too, and nothing is left but its log.
func TestStop(t *testing.T) {
	cfg, p, _ := processes(t, "emu")
	must(t, once(t, cfg, func(r Ready) {
		c := find(t, p)
		if c == nil || r.CardProcess != c.PID || r.CardSocket != p.card || r.Attached != "reset" {
			t.Errorf("ready: %+v, card process %v", r, c)
		}
	}))
	if c := find(t, p); c != nil {
		t.Errorf("%v is left", c)
	}
	for _, name := range []string{p.card, p.dma, p.state, p.socket} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// TestKeep: a card that is kept is taken over by the next runtime, in the same process with the same memory.
func TestKeep(t *testing.T) {
	cfg, p, log := processes(t, "auto")
	cfg.Keep = true
	must(t, once(t, cfg, nil))
	first := find(t, p)
	if first == nil {
		t.Fatal("no card process was kept")
	}
	for i := range 3 {
		must(t, once(t, cfg, func(r Ready) {
			if r.CardProcess != first.PID || r.Attached != "continued" {
				t.Errorf("run %d: %+v, want continued in process %d", i, r, first.PID)
			}
		}))
	}
	cfg.Keep = false
	must(t, once(t, cfg, nil))
	if !first.Ended(0) {
		t.Error("the card process was not ended")
	}
	if n := strings.Count(log.String(), "no card found in this machine"); n != 1 {
		t.Errorf("auto looked for a card %d times, want once: it is what runs\n%s", n, log)
	}
}

// TestOtherWires: a card process with another card than the file's is neither used nor ended.
func TestOtherWires(t *testing.T) {
	cfg, p, _ := processes(t, "emu")
	cfg.Keep = true
	must(t, once(t, cfg, nil))
	configure(t, cfg, "CARD", "emu", "server: mem}", `server: "pcap:in,out"}`)
	err := once(t, cfg, nil)
	if f := control.Explain("run", err); err == nil || f.Exit != control.ExitRefused || !strings.Contains(f.What, "server wire is mem, not pcap:") {
		t.Errorf("got %v", err)
	}
	if find(t, p) == nil {
		t.Error("the card process is gone")
	}
}

// TestStartFails: what keeps the card process from starting is in the error, and nothing is left.
func TestStartFails(t *testing.T) {
	cfg, p, _ := processes(t, "emu")
	configure(t, cfg, "CARD", "emu", "client: mem", `client: "pcap:/no/such/file,out"`)
	err := once(t, cfg, nil)
	if _, ok := errors.AsType[*card.StartError](err); !ok || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("got %v", err)
	}
	if c := find(t, p); c != nil {
		t.Errorf("%v is left", c)
	}
}

// TestDamagedMemory: what a predecessor left of its memory is no use; the card is taken over all the same.
func TestDamagedMemory(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, dir string)
	}{
		{"state", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "dma.json"), []byte("{"), 0o600))
		}},
		{"everything", func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) }},
		{"files", func(t *testing.T, dir string) {
			names, err := filepath.Glob(filepath.Join(dir, "dma-*"))
			must(t, err)
			if len(names) == 0 {
				t.Fatal("there is no memory")
			}
			for _, n := range names {
				must(t, os.Remove(n))
			}
		}},
		{"a file is short", func(t *testing.T, dir string) {
			names, err := filepath.Glob(filepath.Join(dir, "dma-*"))
			must(t, err)
			must(t, os.Truncate(names[0], 1))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, p, _ := processes(t, "emu")
			cfg.Keep = true
			must(t, once(t, cfg, nil))
			tt.damage(t, p.dma)
			must(t, once(t, cfg, func(r Ready) {
				if r.Attached != "adopted" {
					t.Errorf("attached: %s, want adopted", r.Attached)
				}
			}))
		})
	}
}

// TestKilled: the card process is killed under the runtime, which ends within two seconds and says so. The next one starts
// another.
func TestKilled(t *testing.T) {
	cfg, p, _ := processes(t, "emu")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var killed *devicetest.Stopwatch
	cfg.Ready = func(r Ready) {
		killed = devicetest.NewStopwatch()
		must(t, syscall.Kill(r.CardProcess, syscall.SIGKILL))
	}
	err := Run(ctx, cfg)
	if killed == nil {
		t.Fatal(err)
	}
	if took := killed.Stop(); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	if f := control.Explain("run", err); f.Exit != control.ExitCard || !errors.Is(err, device.ErrDeviceLost) || !strings.Contains(f.Why, "ended") {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{p.card, p.dma} { // stale files
		if _, err := os.Lstat(name); err != nil {
			t.Error(err)
		}
	}
	must(t, once(t, cfg, func(r Ready) {
		if r.Attached != "reset" {
			t.Errorf("attached: %s, want reset", r.Attached)
		}
	}))
}

// TestStoppedProcess: a card process that does not answer is named, in bounded time, and harmed by nobody.
func TestStoppedProcess(t *testing.T) {
	cfg, p, _ := processes(t, "emu")
	cfg.Keep = true
	must(t, once(t, cfg, nil))
	c := find(t, p)
	must(t, syscall.Kill(c.PID, syscall.SIGSTOP))
	for !c.Stopped() {
		runtime.Gosched()
	}
	watch := devicetest.NewStopwatch()
	err := once(t, cfg, nil)
	if took := watch.Stop(); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if f := control.Explain("run", err); f.Exit != control.ExitCard || !strings.Contains(f.Why, "stopped") || !strings.Contains(f.Why, fmt.Sprintf("kill -CONT %d", c.PID)) {
		t.Errorf("got %v", err)
	}
	must(t, syscall.Kill(c.PID, syscall.SIGCONT))
	must(t, once(t, cfg, func(r Ready) {
		if r.Attached != "continued" || r.CardProcess != c.PID {
			t.Errorf("ready: %+v", r)
		}
	}))
}

// TestSecondClient: a card that somebody else uses is busy, and he is named.
func TestSecondClient(t *testing.T) {
	cfg, p, _ := processes(t, "emu")
	cfg.Keep = true
	must(t, once(t, cfg, nil))
	other, err := vfiouser.Dial(t.Context(), p.card, vfiouser.Options{Memfd: true})
	must(t, err)
	err = once(t, cfg, nil)
	if f := control.Explain("run", err); f.Exit != control.ExitBusy || !strings.Contains(f.Why, fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("got %v", err)
	}
	must(t, other.Detach())
	must(t, once(t, cfg, func(r Ready) {
		if r.Attached != "continued" {
			t.Errorf("attached: %s, want continued", r.Attached)
		}
	}))
}

// TestOtherDigest: a card with another data path is refused before the first store and the first map, and goes on.
func TestOtherDigest(t *testing.T) {
	t.Setenv(doctored, "1")
	cfg, p, _ := processes(t, "emu")
	c, err := card.Start(t.Context(), card.Config{Card: "emu", Socket: p.card, Client: "mem", Server: "mem"}, card.Launch{Command: cfg.Command, Log: p.log})
	must(t, err)
	defer c.Close()
	err = once(t, cfg, nil)
	if f := control.Explain("run", err); f.Exit != control.ExitCard || !errors.Is(err, driver.ErrMapMismatch) ||
		!strings.Contains(f.Why, fmt.Sprintf("%#08x", regs.DataPathDigest^1)) || !strings.Contains(f.Why, fmt.Sprintf("%#08x", regs.DataPathDigest)) {
		t.Errorf("got %v", err)
	}
	if c.Ended(0) {
		t.Error("the card process is gone")
	}
	log, err := os.ReadFile(p.log)
	must(t, err)
	if bytes.Contains(log, []byte("stored")) || bytes.Contains(log, []byte("mapped")) {
		t.Error("the card was changed")
	}
}

// TestForeignCard: somebody else's card process is used by its path, and never ended.
func TestForeignCard(t *testing.T) {
	cfg, p, _ := processes(t, "emu")
	c, err := card.Start(t.Context(), card.Config{Card: "emu", Socket: p.card, Client: "mem", Server: "mem"}, card.Launch{Command: cfg.Command, Log: p.log})
	must(t, err)
	defer c.Close()
	configure(t, cfg, "CARD", "vfio-user:"+p.card, "emu: {client: mem, server: mem}\n", "")
	for _, want := range []string{"reset", "adopted"} {
		must(t, once(t, cfg, func(r Ready) {
			if r.CardProcess != 0 || r.CardSocket != p.card || r.Card != "vfio-user:"+p.card || r.Attached != want {
				t.Errorf("ready: %+v, want %s", r, want)
			}
		}))
		if c.Ended(0) {
			t.Fatal("the card process is gone")
		}
	}
}

// TestRemoval: the machine asks for the card back; the runtime lets go of it in time and says why it ended.
func TestRemoval(t *testing.T) {
	cfg, p, _ := processes(t, "emu")
	b, err := card.Open(card.Config{Card: open.Emulator, Geometry: emu.Geometry{Pages: 1024, Heads: 16, CamClientWords: 4096, CamServerWords: 4096}})
	must(t, err)
	removal, serving, served := make(chan struct{}), make(chan struct{}), make(chan error)
	b.Removal = removal
	go func() {
		err := b.Serve(t.Context(), card.Config{Card: open.Emulator, Client: "mem", Server: "mem", Socket: p.card, Ready: func() { close(serving) }})
		served <- errors.Join(err, b.Close())
	}()
	<-serving
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var asked, given *devicetest.Stopwatch
	cfg.Ready = func(Ready) {
		asked, given = devicetest.NewStopwatch(), devicetest.NewStopwatch()
		close(removal)
	}
	err = Run(ctx, cfg)
	if asked == nil {
		t.Fatal(err)
	}
	if took := asked.Stop(); took > 2*time.Second {
		t.Errorf("the runtime took %v", took)
	}
	if f := control.Explain("run", err); f.Exit != control.ExitCard || !errors.Is(err, card.ErrRemoved) {
		t.Errorf("got %v", err)
	}
	if err := <-served; !errors.Is(err, card.ErrRemoved) {
		t.Errorf("the card process: %v", err)
	}
	if took := given.Stop(); took > 3*time.Second {
		t.Errorf("the card process took %v", took)
	}
}
